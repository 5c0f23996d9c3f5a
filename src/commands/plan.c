/* plan.c - `modeld plan`: the context a model really gets on this machine, and where the memory goes.
 * Reads the model's header only. */
#include "commands/choose.h"
#include "commands/commands.h"
#include "commands/describe.h"
#include "commands/print.h"
#include "commands/speeds.h"
#include "commands/stack.h"
#include "commands/start.h"
#include "policy/rebase.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char about[] = "The context a model gets on this machine, to the byte, and what limits it.";

enum { SLOW_SECONDS = 180, BAR_COLUMNS = 60 };

/* What of it the engine holds at once: all, unless the cold store carries the rest. */
static int32_t hot_context(const struct md_sizing *s)
{
    const bool two_tiers = s->capacity.planner_tokens >= md_sizing_context(s);
    return two_tiers && s->hot_tokens < md_sizing_context(s) ? s->hot_tokens : md_sizing_context(s);
}

static int64_t all_kv_bytes(const struct md_sizing *s)
{
    return md_kv_bytes(&s->facts.shape, &s->cost.mode, md_sizing_context(s));
}

/* ---- the panel ---- */

static void row_tokens(const char *label, int64_t tokens, const char *remark)
{
    char n[32];
    printf("  %-24s %14s tokens%s%s\n", label, md_count_text(tokens, n, sizeof n),
           remark[0] == '\0' ? "" : "   ", remark);
}

static void row_bytes(const char *label, int64_t bytes, const char *remark)
{
    char size[32], n[32];
    printf("  %-24s %14s bytes    %s%s%s\n", label, md_count_text(bytes, n, sizeof n),
           md_size_text(bytes, size, sizeof size), remark[0] == '\0' ? "" : "   ", remark);
}

struct part {
    char letter;
    const char *label;
    int64_t bytes;
};

/* Each part that is not nothing gets a column at least, the rest goes by share. */
static void print_bar(const struct part *parts, int count)
{
    int64_t total = 0;
    for (int i = 0; i < count; i++)
        total += parts[i].bytes;
    fputs("  [", stdout);
    int drawn = 0;
    for (int i = 0; i < count && total > 0; i++) {
        int columns = (int)lround((double)parts[i].bytes / (double)total * BAR_COLUMNS);
        columns = columns == 0 && parts[i].bytes > 0 ? 1 : columns;
        columns = i == count - 1 || drawn + columns > BAR_COLUMNS ? BAR_COLUMNS - drawn : columns;
        for (int c = 0; c < columns; c++)
            putchar(parts[i].letter);
        drawn += columns;
    }
    fputs("]\n", stdout);
    for (int i = 0; i < count; i++) {
        char label[64];
        if (parts[i].bytes == 0)
            continue;
        snprintf(label, sizeof label, "%c %s", parts[i].letter, parts[i].label);
        row_bytes(label, parts[i].bytes, "");
    }
}

static int64_t windowed_bytes(const struct md_sizing *s, int32_t context)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->device_shape.layer_count; i++)
        if (s->device_shape.layers[i].window_cells && !s->cost.mode.window_full)
            bytes += md_kv_layer_bytes(&s->device_shape, i, &s->cost.mode, context);
    return bytes;
}

static int64_t not_negative(int64_t n)
{
    return n > 0 ? n : 0;
}

static void print_memory(const struct md_sizing *s)
{
    const struct md_capacity_params *p = &s->params;
    const struct md_capacity *c = &s->capacity;
    const int32_t hot = hot_context(s);
    const int64_t windowed = windowed_bytes(s, hot), kv = md_kv_bytes(&s->device_shape, &s->cost.mode, hot);
    const int64_t compute =
        p->compute_bytes + p->mmproj_bytes + md_kv_extra_bytes(p->cost.extra_per_cell, hot);
    const int64_t cold = s->device == NULL ? s->cold_bytes : 0, keys = s->device == NULL ? s->keys_bytes : 0,
                  left = p->device.free_bytes - c->usable_bytes - cold;
    const int64_t kept = left > p->policy.min_free_bytes ? left : p->policy.min_free_bytes;
    const struct part parts[] = {
        { 'W', "weights", p->weights_bytes },
        { 'K', "KV, hot", kv - windowed },
        { 'S', "KV of windowed layers", windowed },
        { 'C', "compute buffers", compute },
        { 'c', "cold store, at most", cold - keys },
        { 'Q', "keys for attention, at most", keys },
        { 'R', "kept: limits, headroom", kept },
        { '.', "allowed, not needed",
          not_negative(p->device.free_bytes - p->weights_bytes - kv - compute - cold - kept) },
    };
    char size[32];
    printf("\nwhere the memory goes: %s free %s%s\n", md_size_text(p->device.free_bytes, size, sizeof size),
           s->device == NULL ? "in RAM" : s->device->description,
           s->host.limit_bytes > 0 && s->device == NULL ? ", inside this group's limit" : "");
    print_bar(parts, sizeof parts / sizeof parts[0]);
    if (s->device != NULL)
        row_bytes("cold store, in RAM", s->cold_bytes - s->keys_bytes, "");
    if (s->device != NULL && s->keys_bytes > 0)
        row_bytes("keys for attention, in RAM", s->keys_bytes, "");
}

static bool has_windows(const struct md_sizing *s)
{
    for (int32_t i = 0; i < s->facts.shape.layer_count; i++)
        if (s->facts.shape.layers[i].window > 0)
            return true;
    return false;
}

static void print_kv(const struct md_sizing *s)
{
    const int64_t growing = md_kv_growing_bytes(&s->facts.shape, &s->cost.mode);
    char remark[160], label[32], n[32];
    snprintf(remark, sizeof remark, "%s keys, %s values%s", md_kv_type_name(s->cost.mode.type_k),
             md_kv_type_name(s->cost.mode.type_v),
             !s->cost.mode.window_full ? ""
             : s->open.window_full     ? "; windowed layers at full size (--swa-full)"
             : has_windows(s)          ? "; windowed layers have as many cells as the others"
                                       : "");
    row_bytes("KV per token", s->capacity.kv_bytes_per_token, remark);
    if (growing != s->capacity.kv_bytes_per_token)
        row_bytes("  beyond the windows", growing, "");
    snprintf(label, sizeof label, "KV of %s", md_count_text(md_sizing_context(s), n, sizeof n));
    row_bytes(label, all_kv_bytes(s), "");
}

/* The window that counts as trained, and how it came about where the file does not simply say it. */
static void print_trained(const struct md_sizing *s)
{
    char text[MD_ROPE_TEXT_BYTES], n[32], remark[320] = "";
    md_rope_text(&s->rope, text);
    if (s->rope.changed)
        snprintf(remark, sizeof remark, "RoPE set to %s; %s in the file", text,
                 md_count_text(md_rope_file_window(&s->facts.rope), n, sizeof n));
    else if (text[0] != '\0')
        snprintf(remark, sizeof remark, "RoPE %s, by the file", text);
    row_tokens("trained for", s->facts.trained_tokens, remark);
}

/* What --past-window would mean. */
static void print_past_window(const struct md_sizing *s)
{
    char remark[160], step[32], most[32];
    if (!s->past_window || s->params.hot_most_tokens == 0)
        return;
    const int32_t more = s->window_tokens - s->facts.trained_tokens;
    snprintf(remark, sizeof remark, "moved nearer every %s tokens; at most %s hot",
             md_count_text(md_rebase_step(s->facts.trained_tokens), step, sizeof step),
             md_count_text(s->params.hot_most_tokens, most, sizeof most));
    row_tokens("past the trained window", more > 0 ? more : 0, remark);
}

static void print_context(const struct md_sizing *s, bool refused)
{
    const struct md_capacity *c = &s->capacity;
    char remark[160];
    print_trained(s);
    if (s->asked_tokens > 0)
        row_tokens("asked for", s->asked_tokens, "");
    if (s->manual_hot)
        row_tokens("asked for, hot", s->hot_tokens, "");
    snprintf(remark, sizeof remark, "limited by the %s%s%s%s", md_sizing_limit(s), c->clamped ? " (" : "",
             md_clamp_text(c->reason), c->clamped ? ")" : "");
    row_tokens("hot at once", c->hot_tokens, remark);
    row_tokens("with the cold store", c->planner_tokens,
               s->params.cold_store  ? ""
               : s->cost.cold_store  ? "--residency off: nothing goes cold"
               : s->cost.checkpoints ? "recurrent layers alone: conversations go cold as a whole"
                                     : "this model's KV cannot be evicted: nothing goes cold");
    row_tokens("memory would hold", c->memory_tokens, "");
    print_past_window(s);
    if (refused)
        printf("  %-24s %14s          see the last line\n", "opened with", "nothing");
    else
        row_tokens("opened with", s->window_tokens, "");
    print_kv(s);
}

static void print_speed(const struct md_sizing *s, double speed)
{
    if (speed <= 0) {
        puts("\nprefill of the whole window from nothing: not measured here yet (a prompt of 256 tokens does "
             "it)");
        return;
    }
    const double seconds = s->window_tokens / speed;
    printf("\nprefill of the whole window from nothing: about %.0f s at %.0f tokens/s%s\n", seconds, speed,
           seconds > SLOW_SECONDS ? "  WARNING: above 180 s" : "");
}

static void print_plan(const struct md_sizing *s, double speed, const char *refusal)
{
    char name[600], description[300], architecture[200], text[1024];
    printf("%s: %s, architecture %s\n\n", md_plain_text(s->model_name, name, sizeof name),
           md_plain_text(s->facts.description, description, sizeof description),
           md_plain_text(s->facts.architecture, architecture, sizeof architecture));
    if (s->choice[0] != '\0')
        printf("  engine %s: %s\n\n", s->backend->name, s->choice);
    if (s->device_why[0] != '\0')
        printf("  device CPU: chosen by AUTO, %s\n\n", md_plain_text(s->device_why, text, sizeof text));
    print_context(s, refusal != NULL);
    print_memory(s);
    print_speed(s, speed);
    if (s->facts.note != NULL)
        printf("note: %s\n", s->facts.note);
    for (int i = 0; i < MD_UNSUPPORTED_MAX && s->facts.unsupported[i] != NULL; i++)
        printf("unsupported: %s\n", s->facts.unsupported[i]);
    if (refusal != NULL)
        printf("serve would refuse this: %s\n", md_plain_text(refusal, text, sizeof text));
}

int md_command_plan(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct md_sizing s;
    struct md_err err, refused;
    int rc = md_start(argc, argv, MD_CMD_PLAN, about, &o);
    if (rc >= 0)
        return rc;
    if (md_stack_check_words(&o, &err) != MD_OK || md_choose_engine(&o, backends, false, &err) != MD_OK ||
        md_sizing_resolve(&o, backends, NULL, &s, &err) != MD_OK)
        return md_failed(argv[0], &err);
    const double speed = md_speeds_find(o.data_root, &s);
    const char *refusal = md_sizing_check(&o, &s, &refused) == MD_OK ? NULL : refused.text;
    enum md_status st;
    if (o.json) {
        st = md_print_json(md_describe_plan(&s, speed, refusal), true, &err);
    } else {
        print_plan(&s, speed, refusal);
        st = md_print_flush(&err);
    }
    return st == MD_OK ? 0 : md_failed(argv[0], &err);
}
