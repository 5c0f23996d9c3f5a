#include "commands/describe.h"

#include "commands/print.h"
#include "commands/speeds.h"
#include "policy/rebase.h"

#include <stdlib.h>
#include <string.h>

static void add_int(yyjson_mut_doc *doc, yyjson_mut_val *o, const char *key, int64_t value)
{
    yyjson_mut_obj_add_sint(doc, o, key, value);
}

static void add_text(yyjson_mut_doc *doc, yyjson_mut_val *o, const char *key, const char *value)
{
    yyjson_mut_obj_add_strcpy(doc, o, key, value);
}

void md_describe_layers(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_kv_shape *shape,
                        const struct md_kv_mode *mode, int32_t context)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, obj, "layers");
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        yyjson_mut_val *o = yyjson_mut_arr_add_obj(doc, list);
        add_int(doc, o, "kv_heads", l->kv_heads);
        add_int(doc, o, "key_length", l->key_length);
        add_int(doc, o, "value_length", l->value_length);
        add_int(doc, o, "window", l->window);
        add_int(doc, o, "cells", md_kv_layer_cells(l, mode, context));
        add_int(doc, o, "bytes", md_kv_layer_bytes(shape, i, mode, context));
        if (l->keys_only)
            yyjson_mut_obj_add_bool(doc, o, "keys_only", true);
        if (l->shared)
            yyjson_mut_obj_add_bool(doc, o, "shared", true);
        if (l->state_bytes > 0)
            add_int(doc, o, "state_bytes", l->state_bytes);
    }
}

void md_describe_unsupported(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_model_facts *facts)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, obj, "unsupported");
    for (int i = 0; i < MD_UNSUPPORTED_MAX && facts->unsupported[i] != NULL; i++)
        yyjson_mut_arr_add_str(doc, list, facts->unsupported[i]);
}

/* Each word of a text as a string. */
static void add_words(yyjson_mut_doc *doc, yyjson_mut_val *obj, const char *name, const char *words)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, obj, name);
    while (*words != '\0') {
        const size_t length = strcspn(words, " ");
        if (length > 0)
            yyjson_mut_arr_add_strncpy(doc, list, words, length);
        words += length + (words[length] == ' ');
    }
}

void md_describe_machine(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_machine *m)
{
    add_text(doc, obj, "runtime_name", m->runtime_name);
    add_text(doc, obj, "runtime_digest", m->runtime_version);
    add_text(doc, obj, "runtime_system_info", m->system_info);
    yyjson_mut_obj_add_bool(doc, obj, "supports_gpu_offload", m->gpu_offload);
    add_words(doc, obj, "engine_kv_types", m->kv_types);
    char caps[200];
    md_engine_caps_text(m->caps, caps, sizeof caps);
    add_words(doc, obj, "engine_capabilities", caps);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, obj, "devices");
    for (int32_t i = 0; i < m->device_count; i++) {
        const struct md_device *d = &m->devices[i];
        yyjson_mut_val *o = yyjson_mut_arr_add_obj(doc, list);
        add_int(doc, o, "index", i);
        add_text(doc, o, "name", d->id);
        add_text(doc, o, "description", d->description);
        add_text(doc, o, "type", d->kind);
        add_words(doc, o, "computes_with", d->can);
        if (d->refused != NULL)
            add_text(doc, o, "refused", d->refused);
        add_int(doc, o, "memory_free", d->free_bytes);
        add_int(doc, o, "memory_total", d->total_bytes);
        yyjson_mut_obj_add_bool(doc, o, "memory_free_known", d->free_bytes > 0);
        yyjson_mut_obj_add_bool(doc, o, "memory_total_known", d->total_bytes > 0);
    }
}

static void add_profile(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_sizing *s)
{
    const struct md_kv_profile p = md_kv_profile_of(&s->facts.shape, &s->cost.mode);
    yyjson_mut_val *o = yyjson_mut_obj_add_obj(doc, obj, "layer_kv_profile");
    add_int(doc, o, "global_layers", p.global_layers);
    add_int(doc, o, "windowed_layers", p.windowed_layers);
    add_int(doc, o, "window", p.window);
    add_int(doc, o, "per_layer_kv_bytes", p.per_layer_kv_bytes);
}

/* Of one conversation, however many cells there are. */
static int32_t of_one(const struct md_sizing *s, int32_t tokens)
{
    const int32_t trained = s->facts.trained_tokens;
    return !s->past_window && trained > 0 && tokens > trained ? trained : tokens;
}

/* What positions come to: null where nothing scales them and the base is the file's. */
void md_describe_rope(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_rope *r)
{
    char text[MD_ROPE_TEXT_BYTES];
    md_rope_text(r, text);
    if (text[0] == '\0') {
        yyjson_mut_obj_add_null(doc, obj, "rope");
        return;
    }
    yyjson_mut_val *o = yyjson_mut_obj_add_obj(doc, obj, "rope");
    add_text(doc, o, "text", text);
    yyjson_mut_obj_add_bool(doc, o, "set", r->changed);
    yyjson_mut_obj_add_str(doc, o, "scaling", md_rope_scaling_name(r->scaling));
    yyjson_mut_obj_add_real(doc, o, "scale", r->factor);
    yyjson_mut_obj_add_real(doc, o, "freq_base", r->base);
    add_int(doc, o, "yarn_orig_ctx", r->orig_tokens);
}

static void add_context(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_sizing *s)
{
    const struct md_capacity *c = &s->capacity;
    add_int(doc, obj, "model_max_context", s->facts.trained_tokens);
    add_int(doc, obj, "file_max_context",
            s->rope.changed ? md_rope_file_window(&s->facts.rope) : s->facts.trained_tokens);
    md_describe_rope(doc, obj, &s->rope);
    add_int(doc, obj, "effective_context", of_one(s, c->effective_tokens));
    add_int(doc, obj, "memory_context_tokens", c->memory_tokens);
    add_int(doc, obj, "hot_context_tokens", c->hot_tokens);
    add_int(doc, obj, "planner_effective_context", of_one(s, c->planner_tokens));
    yyjson_mut_obj_add_bool(doc, obj, "past_window", s->past_window);
    add_int(doc, obj, "past_window_step_tokens",
            s->past_window ? md_rebase_step(s->facts.trained_tokens) : 0);
    add_int(doc, obj, "past_window_hot_most_tokens", s->params.hot_most_tokens);
    add_int(doc, obj, "kv_bytes_per_token", c->kv_bytes_per_token);
    add_int(doc, obj, "min_hot_context_tokens", s->params.policy.min_hot_tokens);
    yyjson_mut_obj_add_bool(doc, obj, "sparse_attention", md_sizing_window(s) > 0);
    add_int(doc, obj, "sliding_window_attention_tokens", md_sizing_window(s));
}

static void add_memory(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_sizing *s)
{
    const struct md_capacity_params *p = &s->params;
    const struct md_capacity *c = &s->capacity;
    add_int(doc, obj, "free_bytes", p->device.free_bytes);
    add_int(doc, obj, "weights_bytes", p->weights_bytes);
    add_int(doc, obj, "overhead_bytes", c->overhead_bytes);
    add_int(doc, obj, "reserved_bytes", p->reserved_bytes);
    add_int(doc, obj, "user_limit_bytes", p->policy.max_resident_derived ? 0 : p->policy.max_resident_bytes);
    add_int(doc, obj, "max_resident_bytes", p->policy.max_resident_bytes);
    add_int(doc, obj, "min_free_bytes", p->policy.min_free_bytes);
    add_int(doc, obj, "host_cold_budget_bytes", s->cold_bytes);
    add_int(doc, obj, "retrieval_keys_bytes", s->keys_bytes);
    yyjson_mut_obj_add_real(doc, obj, "headroom_frac", p->policy.headroom_frac);
    add_int(doc, obj, "usable_bytes", c->usable_bytes);
    add_int(doc, obj, "required_bytes", c->required_bytes);
    yyjson_mut_obj_add_bool(doc, obj, "clamped", c->clamped);
    yyjson_mut_obj_add_str(doc, obj, "reason", md_clamp_text(c->reason));
    add_int(doc, obj, "host_limit_bytes", s->host.limit_bytes);
    add_int(doc, obj, "credited_bytes", s->held.host_bytes + s->params.reclaimable_bytes);
}

static void add_device(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_sizing *s)
{
    const bool host = s->device == NULL;
    add_text(doc, obj, "device_kind", host ? "system" : s->device->kind);
    add_text(doc, obj, "device_id", host ? "ram" : s->device->id);
    if (s->device_why[0] != '\0')
        add_text(doc, obj, "device_why", s->device_why);
    add_int(doc, obj, "device_total_bytes", s->params.device.total_bytes);
    yyjson_mut_obj_add_bool(doc, obj, "shared_with_display", !host && s->device->shares_host);
    const int32_t all = s->facts.shape.layer_count + 1; /* the output layer is one more */
    const int32_t asked = s->open.gpu_layers;
    add_int(doc, obj, "requested_gpu_layers", asked);
    add_int(doc, obj, "resolved_gpu_layers", host ? 0 : asked >= 0 && asked < all ? asked : all);
}

static void add_text_and_vision(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_template_facts *t)
{
    yyjson_mut_obj_add_bool(doc, obj, "supports_vision", false); /* no images in this version */
    add_int(doc, obj, "vision_tokens_per_image", 0);
    yyjson_mut_obj_add_str(doc, obj, "chat_template_format", t->present ? "jinja" : "");
    yyjson_mut_obj_add_str(doc, obj, "chat_template_thinking_start_tag", t->think_tag ? "<think>" : "");
    yyjson_mut_obj_add_str(doc, obj, "chat_template_reasoning_format", t->thinking ? "auto" : "");
    yyjson_mut_obj_add_bool(doc, obj, "chat_template_supports_tool_calls", t->tools);
    yyjson_mut_obj_add_bool(doc, obj, "chat_template_supports_thinking", t->thinking);
    yyjson_mut_obj_add_bool(doc, obj, "chat_template_supports_reasoning_effort", t->effort);
}

void md_describe(yyjson_mut_doc *doc, yyjson_mut_val *obj, const struct md_sizing *s)
{
    add_context(doc, obj, s);
    add_profile(doc, obj, s);
    add_memory(doc, obj, s);
    add_device(doc, obj, s);
    add_text_and_vision(doc, obj, &s->facts.chat_template);
    md_describe_machine(doc, obj, &s->machine);
    md_describe_unsupported(doc, obj, &s->facts);
}

yyjson_mut_doc *md_describe_plan(const struct md_sizing *s, double speed, const char *refusal)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    const int32_t context = md_sizing_context(s);
    yyjson_mut_doc_set_root(doc, o);
    add_text(doc, o, "model", s->model_name);
    add_text(doc, o, "architecture", s->facts.architecture);
    add_text(doc, o, "description", s->facts.description);
    yyjson_mut_obj_add_str(doc, o, "engine", s->backend->name);
    if (s->choice[0] != '\0')
        add_text(doc, o, "engine_choice", s->choice);
    add_int(doc, o, "context_tokens", context);
    add_int(doc, o, "kv_bytes", md_kv_bytes(&s->facts.shape, &s->cost.mode, context));
    yyjson_mut_obj_add_str(doc, o, "limited_by", md_sizing_limit(s));
    add_int(doc, o, "window_tokens", s->window_tokens);
    add_int(doc, o, "hot_tokens", s->hot_tokens);
    yyjson_mut_obj_add_str(doc, o, "type_k", md_kv_type_name(s->cost.mode.type_k));
    yyjson_mut_obj_add_str(doc, o, "type_v", md_kv_type_name(s->cost.mode.type_v));
    add_int(doc, o, "sequences", s->cost.mode.seq_count);
    add_int(doc, o, "ubatch_tokens", s->cost.mode.ubatch_tokens);
    yyjson_mut_obj_add_bool(doc, o, "window_full", s->cost.mode.window_full);
    md_describe(doc, o, s);
    if (speed > 0) {
        yyjson_mut_obj_add_real(doc, o, "prefill_tokens_per_second", speed);
        yyjson_mut_obj_add_real(doc, o, "cold_prefill_seconds", s->window_tokens / speed);
    }
    if (s->facts.note != NULL)
        yyjson_mut_obj_add_str(doc, o, "note", s->facts.note);
    if (refusal != NULL)
        add_text(doc, o, "refused", refusal);
    md_describe_layers(doc, o, &s->facts.shape, &s->cost.mode, context);
    return doc;
}

enum md_status md_describe_capacity(const struct md_options *o, const struct md_backend *backends,
                                    int64_t device_bytes, struct md_buf *out, struct md_err *err)
{
    struct md_held held = { .device_bytes = device_bytes };
    struct md_err refused;
    struct md_sizing *s = malloc(sizeof *s); /* threads of fronts have small stacks */
    if (s == NULL)
        return md_fail(err, MD_NO_MEMORY, "capacity report");
    enum md_status st = md_host_own_memory(NULL, &held.host_bytes, err);
    if (st == MD_OK)
        st = md_sizing_resolve(o, backends, &held, s, err);
    if (st == MD_OK) {
        const char *refusal = md_sizing_check(o, s, &refused) == MD_OK ? NULL : refused.text;
        char *text = NULL;
        st = md_write_json(md_describe_plan(s, md_speeds_find(o->data_root, s), refusal), false, &text, err);
        if (st == MD_OK)
            st = md_buf_append(out, text, strlen(text), err);
        free(text);
    }
    free(s);
    return st;
}
