#include "commands/sizing.h"

#include "commands/device.h"
#include "commands/print.h"
#include "commands/start.h"
#include "host/paths.h"
#include "policy/rebase.h"
#include "session/cold.h"
#include "session/pool.h"

#include <stdio.h>
#include <string.h>

enum { WINDOW_UNKNOWN = 4096 }; /* tokens, of a model that does not say */

const struct md_backend *md_sizing_backend(const struct md_backend *backends, const char *name,
                                           struct md_err *err)
{
    for (const struct md_backend *b = backends; b->name != NULL; b++)
        if (strcmp(b->name, name) == 0)
            return b;
    char known[128] = "";
    size_t used = 0;
    for (const struct md_backend *b = backends; b->name != NULL && used < sizeof known; b++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s'%s'", used > 0 ? ", " : "", b->name);
    md_fail(err, MD_INVALID, "unknown engine '%.40s': this build has %s, or auto", name, known);
    return NULL;
}

static enum md_status rope_asked(const struct md_options *o, struct md_rope_asked *ret, struct md_err *err)
{
    struct md_rope_asked a = { .scale = o->rope_scale,
                               .freq_scale = o->rope_freq_scale,
                               .freq_base = o->rope_freq_base,
                               .yarn_orig_ctx = (int32_t)o->yarn_orig_ctx,
                               .yarn_attn_factor = o->yarn_attn_factor,
                               .yarn_beta_fast = o->yarn_beta_fast,
                               .yarn_beta_slow = o->yarn_beta_slow,
                               .yarn_ext_given = o->yarn_ext_factor >= 0,
                               .yarn_ext_factor = o->yarn_ext_factor >= 0 ? o->yarn_ext_factor : 0 };
    for (int i = MD_ROPE_NONE; i <= MD_ROPE_YARN; i++)
        if (strcmp(o->rope_scaling, md_rope_scaling_name((enum md_rope_scaling)i)) == 0)
            a.scaling = (enum md_rope_scaling)i;
    if (o->rope_scaling[0] != '\0' && a.scaling == MD_ROPE_UNSAID)
        return md_fail(err, MD_INVALID, "--rope-scaling must be none, linear or yarn, got '%.40s'",
                       o->rope_scaling);
    *ret = a;
    return md_rope_check(&a, err);
}

static enum md_status open_params(const struct md_options *o, struct md_sizing *s, struct md_err *err)
{
    s->open = (struct md_open_params){
        .model_path = s->model_path,
        .batch_tokens = (int32_t)o->batch,
        .ubatch_tokens = (int32_t)o->ubatch,
        .threads = (int32_t)o->threads,
        .gpu_layers = (int32_t)o->gpu_layers,
        .type_k = o->type_k,
        .type_v = o->type_v,
        .window_full = o->swa_full,
        .xattention = o->xattention,
    };
    if (strcmp(o->flash_attn, "on") == 0)
        s->open.flash_attn = 1;
    else if (strcmp(o->flash_attn, "auto") == 0)
        s->open.flash_attn = -1;
    else if (strcmp(o->flash_attn, "off") != 0)
        return md_fail(err, MD_INVALID, "--flash-attn must be on, off or auto, got '%.40s'", o->flash_attn);
    return rope_asked(o, &s->open.rope, err);
}

/* Unified memory: what the driver calls free may be more than the control group lets us take. */
static int64_t free_of(const struct md_device *d, const struct md_host_memory *host)
{
    const bool host_decides = d->shares_host && (d->free_bytes <= 0 || d->free_bytes > host->available_bytes);
    return host_decides ? host->available_bytes : d->free_bytes;
}

/* The library spreads the layers over all cards by what is free on each, so they count together. */
static struct md_device_memory device_memory(const struct md_sizing *s)
{
    if (s->device == NULL)
        return (struct md_device_memory){ .total_bytes = s->host.total_bytes,
                                          .free_bytes = s->host.available_bytes };
    struct md_device_memory sum = { .accelerator = true };
    for (int32_t i = 0; i < s->machine.device_count; i++) {
        const struct md_device *d = &s->machine.devices[i];
        if (d != s->device && s->open.device != NULL)
            continue; /* it was named: nothing goes to others */
        if (d != s->device && (d->refused != NULL || strcmp(d->kind, s->device->kind) != 0 || d->shares_host))
            continue;
        sum.total_bytes += d->total_bytes;
        sum.free_bytes += free_of(d, &s->host);
        if (d->max_allocation_bytes > 0 &&
            (sum.max_allocation_bytes == 0 || d->max_allocation_bytes < sum.max_allocation_bytes))
            sum.max_allocation_bytes = d->max_allocation_bytes;
    }
    return sum;
}

/* An explicit number of layers puts the last ones on the accelerator, the output layer being one more.
 * Source: llama-model.cpp (i_gpu_start). */
static int32_t first_device_layer(const struct md_sizing *s)
{
    const int32_t layers = s->facts.shape.layer_count, asked = s->open.gpu_layers;
    return s->device == NULL || asked < 0 || asked > layers ? 0 : layers + 1 - asked;
}

static void keep_device_layers(struct md_sizing *s)
{
    s->device_shape = s->facts.shape;
    for (int32_t i = 0; i < first_device_layer(s) && i < s->device_shape.layer_count; i++)
        s->device_shape.layers[i].kv_heads = 0, s->device_shape.layers[i].state_bytes = 0;
}

static int64_t device_weights(const struct md_sizing *s)
{
    const int32_t slots = s->facts.shape.layer_count + 1;
    return s->facts.file_bytes / slots * (slots - first_device_layer(s)) +
           (first_device_layer(s) == 0 ? s->facts.file_bytes % slots : 0);
}

/* A projector's file, and room for its encoder: llama.cpp gives no figure before an image is seen.
 * Source: modeld/llama: vision encoder reserve. */
static enum md_status projector_bytes(const struct md_options *o, int64_t *ret_bytes, struct md_err *err)
{
    enum { ENCODER_RESERVE_MIB = 320 };
    *ret_bytes = 0;
    if (o->mmproj == NULL || o->mmproj[0] == '\0')
        return MD_OK;
    enum md_status st = md_paths_file_bytes(o->mmproj, ret_bytes, err);
    *ret_bytes += (int64_t)ENCODER_RESERVE_MIB << 20;
    return st;
}

static int32_t least(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

/* As far as bytes are counted; what is more is refused by the model's window. */
static int32_t countable(int64_t tokens)
{
    return least(tokens, MD_CONTEXT_MAX);
}

struct md_memory_policy md_sizing_policy(const struct md_options *o)
{
    return (struct md_memory_policy){
        .max_resident_bytes = o->mem_max,
        .min_free_bytes = o->mem_reserve,
        .host_cold_bytes = o->mem_cold,
        .min_hot_tokens = (int32_t)o->min_hot_context,
        .headroom_frac = o->mem_headroom,
    };
}

/* What the cold store is charged for a block past the window, where all of a conversation is there: headers and the store's
 * own bytes are a tenth and more of small models' blocks. */
static void count_block(const struct md_options *o, struct md_sizing *s)
{
    const struct md_open_cost *cost = &s->cost;
    struct md_capacity_params *p = &s->params;
    const int64_t tokens = o->block_tokens;
    const int64_t kv = md_kv_bytes_per_token(&s->facts.shape, &cost->mode); /* wherever its layers lie */
    if (p->hot_most_tokens == 0 || kv <= 0 || tokens < 1 || tokens > MD_BLOCK_TOKENS_MAX)
        return;
    p->cold_block_tokens = (int32_t)tokens;
    p->cold_block_bytes =
        (int64_t)md_cold_block_bytes(cost->export_bytes + tokens * (kv + cost->export_cell_bytes),
                                     (int32_t)tokens);
}

static enum md_status fill_params(const struct md_options *o, struct md_sizing *s, struct md_err *err)
{
    struct md_capacity_params *p = &s->params;
    *p = (struct md_capacity_params){
        .model_max_tokens = s->facts.trained_tokens,
        .past_window =
            o->past_window || (o->hot > 0 && s->cost.cold_store), /* the cells of several conversations */
        .hot_most_tokens = o->past_window && s->facts.trained_tokens >= MD_REBASE_WINDOW_LEAST
                               ? md_rebase_hot_most(s->facts.trained_tokens)
                               : 0,
        .cost = { .shape = &s->device_shape,
                  .mode = s->cost.mode,
                  .extra_per_cell = o->budget > 0 ? 0 : s->cost.compute_bytes_per_cell },
        .weights_bytes = device_weights(s),
        .compute_bytes = s->cost.compute_bytes,
        .device = device_memory(s),
        .reclaimable_bytes = s->device != NULL ? s->held.device_bytes : 0,
        .kv_budget_bytes = o->budget,
        .request_tokens = countable(o->hot > 0 ? o->hot : o->ctx_size),
        .cold_store = s->cost.cold_store && o->residency,
    };
    count_block(o, s);
    p->policy = md_capacity_policy(md_sizing_policy(o), &p->device, s->host.available_bytes,
                                   p->hot_most_tokens > 0 ? p->hot_most_tokens : p->model_max_tokens);
    if (o->budget > 0) { /* a question about the KV alone: what is free here does not limit it */
        p->policy.max_resident_derived = true;
        p->policy.min_free_bytes = 0;
    }
    return projector_bytes(o, &p->mmproj_bytes, err);
}

/* A cold store beside a model that is in the host's memory too: it gets what the model and the reserve leave. */
static void fit_cold(const struct md_options *o, struct md_sizing *s)
{
    struct md_capacity_params *p = &s->params;
    const bool together = s->device == NULL && p->kv_budget_bytes == 0;
    int64_t left = s->host.available_bytes;
    s->model_bytes = md_capacity_bytes(p, o->hot > 0 ? countable(o->hot) : s->capacity.hot_tokens);
    if (together)
        left -= p->policy.min_free_bytes + s->model_bytes;
    s->cold_room_bytes = left > 0 ? left : 0;
    if (o->mem_cold < 0 && p->policy.host_cold_bytes > s->cold_room_bytes) {
        p->policy.host_cold_bytes = s->cold_room_bytes;
        s->capacity = md_capacity_resolve(p);
    }
    s->cold_bytes =
        o->residency && (s->cost.cold_store || s->cost.checkpoints) ? p->policy.host_cold_bytes : 0;
}

/* The cold store has what the keys leave.  The window they are kept of is at most that which it would hold without them. */
static void fit_keys(const struct md_options *o, struct md_sizing *s)
{
    struct md_capacity_params *p = &s->params;
    const int32_t hot = o->hot > 0 ? countable(o->hot) : s->capacity.hot_tokens;
    const int64_t cold = md_capacity_cold_tokens(p, s->capacity.host_cold_bytes);
    int64_t window = o->ctx_size > 0 ? o->ctx_size : hot + cold;
    if (o->ctx_size == 0 && s->facts.trained_tokens > 0)
        window = least(window, s->facts.trained_tokens);
    if (window > hot)
        s->keys_bytes = md_sizing_keys_bytes(o, s, s->cold_bytes, window);
    if (s->keys_bytes == 0)
        return;
    p->policy.host_cold_bytes -= s->keys_bytes;
    s->capacity = md_capacity_resolve(p);
}

/* -c is the logical window, which the cold store may carry in part; --hot is what must fit at once. */
static void derive_sizes(const struct md_options *o, struct md_sizing *s)
{
    struct md_capacity *c = &s->capacity;
    const int32_t trained = s->facts.trained_tokens;
    const int64_t cold = md_capacity_cold_tokens(&s->params, c->host_cold_bytes);
    s->past_window = o->past_window;
    s->asked_tokens = countable(o->ctx_size);
    s->manual_hot = o->hot > 0;
    s->hot_tokens = s->manual_hot ? countable(o->hot) : c->hot_tokens;
    const bool past = s->params.hot_most_tokens > 0; /* the cold store has what is moved as well */
    const int64_t both = !past ? s->hot_tokens + cold : s->hot_tokens > cold ? s->hot_tokens : cold;
    const int32_t longest = past ? MD_CONTEXT_MAX : trained > 0 ? trained : INT32_MAX;
    const int32_t reach =
        s->hot_tokens <= 0 ? 0 /* with none hot nothing is cold either */ : least(both, longest);
    s->window_tokens = o->ctx_size > 0 ? (int32_t)o->ctx_size : reach;
    if (s->manual_hot && c->planner_tokens > 0) /* --hot limits what is hot, not what is kept */
        c->planner_tokens = reach;
    if (trained <= 0 && o->ctx_size == 0)
        s->window_tokens = WINDOW_UNKNOWN;
    if (s->hot_tokens > s->window_tokens && !s->manual_hot)
        s->hot_tokens = s->window_tokens;
}

static void credit(struct md_sizing *s, const struct md_held *held)
{
    struct md_host_memory *h = &s->host;
    const int64_t most = h->total_bytes - h->available_bytes;
    s->held = *held;
    h->available_bytes += held->host_bytes < most ? held->host_bytes : most;
}

/* Where the model goes and what that costs.  AUTO takes the accelerator whatever is to be opened there; what that one device
 * refuses the processor may take. */
static enum md_status place(const struct md_options *o, struct md_sizing *s, struct md_err *err)
{
    struct md_err why = { 0 };
    enum md_status st = s->backend->machine(&s->machine, err);
    if (st == MD_OK)
        st = md_device_resolve(o->device, s->backend->name, &s->machine, &s->open, &s->device, err);
    if (st != MD_OK)
        return st;
    st = s->backend->cost(&s->facts, &s->open, (int32_t)o->seq_max, &s->cost, &why);
    if (st == MD_UNSUPPORTED && s->open.device != NULL && md_device_is_auto(o->device) &&
        s->open.gpu_layers < 0) { /* layers that were asked of a GPU stay there */
        snprintf(s->device_why, sizeof s->device_why, "'%.31s' cannot: %.300s", s->open.device, why.text);
        s->open.device = NULL;
        s->device = NULL;
        st = s->backend->cost(&s->facts, &s->open, (int32_t)o->seq_max, &s->cost, &why);
    }
    return st == MD_OK ? MD_OK : md_fail(err, st, "%s", why.text);
}

enum md_status md_sizing_resolve(const struct md_options *o, const struct md_backend *backends,
                                 const struct md_held *held, struct md_sizing *ret, struct md_err *err)
{
    struct md_sizing *s = ret;
    memset(s, 0, sizeof *s);
    s->choice = o->engine_choice;
    s->backend = md_sizing_backend(backends, o->engine, err);
    if (s->backend == NULL)
        return MD_INVALID;
    enum md_status st = md_paths_find_model(o->data_root, o->model, s->model_path, sizeof s->model_path, err);
    if (st == MD_OK)
        st = open_params(o, s, err);
    if (st == MD_OK)
        st = s->backend->probe(s->model_path, &s->facts, err);
    if (st == MD_OK)
        st = md_rope_resolve(&s->facts.rope, &s->open.rope, &s->rope, err);
    if (st == MD_OK && s->rope.changed)
        s->facts.trained_tokens = s->rope.trained_tokens;
    if (st == MD_OK)
        st = place(o, s, err);
    if (st == MD_OK)
        st = md_start_memory(&s->host, err);
    if (st != MD_OK)
        return st;
    if (held != NULL)
        credit(s, held);
    md_paths_model_name(s->model_path, s->model_name, sizeof s->model_name);
    keep_device_layers(s);
    st = fill_params(o, s, err);
    if (st != MD_OK)
        return st;
    s->capacity = md_capacity_resolve(&s->params);
    fit_cold(o, s);
    fit_keys(o, s);
    derive_sizes(o, s);
    return MD_OK;
}

int32_t md_sizing_window(const struct md_sizing *s)
{
    int32_t window = 0;
    for (int32_t i = 0; i < s->facts.shape.layer_count; i++) {
        const struct md_kv_layer *l = &s->facts.shape.layers[i];
        if (l->window_cells && l->window > window)
            window = l->window;
    }
    return window;
}

int32_t md_sizing_context(const struct md_sizing *s)
{
    const int32_t hot =
        s->params.request_tokens > 0 ? s->params.request_tokens : s->capacity.effective_tokens;
    return s->asked_tokens > 0 ? s->asked_tokens : hot;
}

const char *md_sizing_limit(const struct md_sizing *s)
{
    switch (s->capacity.reason) {
    case MD_CLAMP_ALLOCATION: return "single allocation";
    case MD_CLAMP_REQUEST_WINDOW: return "model";
    case MD_CLAMP_NONE: return s->params.request_tokens > 0 ? "request" : "model";
    default: return "memory";
    }
}

/* ---- refusals ---- */

enum md_status md_sizing_check_model(const struct md_sizing *s, struct md_err *err)
{
    if (s->facts.loadable)
        return MD_OK;
    if (s->facts.refusal[0] != '\0')
        return md_fail(err, MD_INVALID, "%s", s->facts.refusal);
    return md_fail(err, MD_UNSUPPORTED, "engine '%s' cannot run the architecture '%s' of model '%s' (%s)",
                   s->backend->name, s->facts.architecture, s->model_name,
                   s->facts.unsupported[0] != NULL ? s->facts.unsupported[0] : "unsupported");
}

/* With YaRN the engine's library scales the keys whenever it turns them: moved KV would be wrong.  The engine tries it
 * when it opens; said here it is known before the weights are read, and `plan` says it too. */
static enum md_status check_yarn(const char *flag, const struct md_rope *r, struct md_err *err)
{
    const bool as_computed =
        r->ext_given && r->ext_factor == 0 && (r->attn_factor <= 0 || r->attn_factor == 1);
    if (r->scaling != MD_ROPE_YARN || r->factor <= 1 || as_computed)
        return MD_OK;
    return md_fail(err, MD_UNSUPPORTED,
                   "%s: with YaRN keys cannot be moved to other positions: leave one of them out, or use "
                   "--rope-scaling linear, or --rope-scaling yarn with --yarn-ext-factor 0",
                   flag);
}

/* As far as the header of the model says it; the rest is known when the engine is open. */
static enum md_status check_past_window(const struct md_options *o, const struct md_sizing *s,
                                        struct md_err *err)
{
    const struct md_rebase_facts facts = {
        .residency = o->residency,
        .trained_tokens = s->facts.trained_tokens,
        .hot_tokens = s->hot_tokens,
        .tail_state = !s->cost.cold_store || s->cost.checkpoints,
        .can_move = true,
        .type_k = md_kv_type_name(s->cost.mode.type_k),
        .cold_bytes = s->cold_bytes,
        /* as the pool counts it when the model is open */
        .need_bytes = s->params.cold_block_bytes > 0
                          ? s->params.cold_block_bytes * (s->hot_tokens / s->params.cold_block_tokens)
                          : 0,
        .disk = o->kv_dir != NULL,
    };
    if (o->ctx_size > MD_CONTEXT_MAX)
        return md_fail(err, MD_TOO_LARGE, "--ctx-size %lld is more than the %d tokens that can be counted",
                       (long long)o->ctx_size, MD_CONTEXT_MAX);
    enum md_status st = md_rebase_check(&facts, err);
    return st == MD_OK ? check_yarn("--past-window", &s->rope, err) : st;
}

static enum md_status check_flags(const struct md_options *o, const struct md_sizing *s, struct md_err *err)
{
    const int32_t trained = s->facts.trained_tokens;
    if (s->open.gpu_layers > 0 && s->device == NULL)
        return md_fail(err, MD_UNSUPPORTED, "--gpu-layers %d: engine '%s' sees no GPU here; use 0",
                       s->open.gpu_layers, s->backend->name);
    if (!o->residency && s->manual_hot && s->hot_tokens != s->window_tokens)
        return md_fail(err, MD_INVALID, "--hot %d needs --residency on: without it all %d tokens are hot",
                       s->hot_tokens, s->window_tokens);
    enum md_status st = s->past_window ? check_past_window(o, s, err) : MD_OK;
    if (st == MD_OK && strcmp(o->reuse, md_reuse_name(MD_REUSE_APPROXIMATE)) == 0)
        st = check_yarn("--reuse approximate", &s->rope, err);
    if (st != MD_OK)
        return st;
    if (!s->past_window && trained > 0 && s->window_tokens > trained)
        return md_fail(
            err, MD_TOO_LARGE,
            "--ctx-size %d is more than the %d tokens the model was trained for%s (--past-window goes "
            "on behind them)",
            s->window_tokens, trained, s->rope.changed ? ", with --rope-* counted" : "");
    /* beyond the window of one there is room for the KV of others, where several can be held at once */
    if (s->hot_tokens > s->window_tokens && !s->cost.cold_store)
        return md_fail(
            err, MD_INVALID,
            "--hot %d is more than the window of %d tokens (--ctx-size), and this model's KV is that of "
            "one conversation at a time",
            s->hot_tokens, s->window_tokens);
    if (s->manual_hot && s->hot_tokens < s->window_tokens && !s->cost.cold_store)
        return md_fail(
            err, MD_UNSUPPORTED,
            "--hot %d is less than the window of %d tokens, and this model's KV cannot be evicted: "
            "give --ctx-size and --hot the same value",
            s->hot_tokens, s->window_tokens);
    return MD_OK;
}

static enum md_status check_cold(const struct md_options *o, const struct md_sizing *s, struct md_err *err)
{
    if (o->mem_cold < 0 || s->cold_bytes <= s->cold_room_bytes)
        return MD_OK;
    char cold[32], available[32], reserve[32], model[32], room[32];
    return md_fail(
        err, MD_NO_MEMORY,
        "a cold store of %s does not fit: of %s available the reserve is %s and the model takes %s, "
        "which leaves %s: lower --mem-cold or --mem-reserve",
        md_size_text(s->cold_bytes, cold, sizeof cold),
        md_size_text(s->host.available_bytes, available, sizeof available),
        md_size_text(s->device == NULL ? s->params.policy.min_free_bytes : 0, reserve, sizeof reserve),
        md_size_text(s->device == NULL ? s->model_bytes : 0, model, sizeof model),
        md_size_text(s->cold_room_bytes, room, sizeof room));
}

/* What is asked for fits hot set and cold store together; the hot set may still be too small to work with. */
static enum md_status check_two_tiers(const struct md_sizing *s, struct md_err *err)
{
    const struct md_capacity *c = &s->capacity;
    if (c->hot_tokens >= s->params.policy.min_hot_tokens)
        return MD_OK;
    return md_fail(
        err, MD_NO_MEMORY,
        "of %d tokens only %d fit the memory at once, fewer than the %d of --min-hot-context: give "
        "--hot %d to work with that, or more memory",
        s->window_tokens, c->hot_tokens, s->params.policy.min_hot_tokens, c->hot_tokens);
}

/* With some layers on an accelerator the others, and what comes before them, stay in the host's memory. */
static enum md_status check_host_share(const struct md_sizing *s, struct md_err *err)
{
    const int64_t weights = s->facts.file_bytes - s->params.weights_bytes;
    const int64_t kv = md_kv_bytes(&s->facts.shape, &s->cost.mode, s->hot_tokens) -
                       md_kv_bytes(&s->device_shape, &s->cost.mode, s->hot_tokens);
    if (s->device == NULL || s->params.kv_budget_bytes > 0 || weights + kv <= s->host.available_bytes)
        return MD_OK;
    char w[32], k[32], available[32];
    return md_fail(err, MD_NO_MEMORY,
                   "the layers that stay on the host do not fit: weights %s + KV %s, %s are available: put "
                   "more layers on the accelerator (-ngl), or ask for less with -c",
                   md_size_text(weights, w, sizeof w), md_size_text(kv, k, sizeof k),
                   md_size_text(s->host.available_bytes, available, sizeof available));
}

enum md_status md_sizing_check(const struct md_options *o, const struct md_sizing *s, struct md_err *err)
{
    enum md_status st = md_sizing_check_model(s, err);
    if (st == MD_OK)
        st = check_flags(o, s, err);
    if (st == MD_OK)
        st = check_host_share(s, err);
    if (st == MD_OK)
        st = check_cold(o, s, err);
    if (st != MD_OK)
        return st;
    const struct md_capacity *c = &s->capacity;
    const int32_t asked = s->params.request_tokens;
    const bool two_tiers = s->params.cold_store && !s->manual_hot && asked > 0 && c->hot_tokens > 0 &&
                           c->effective_tokens < asked && c->planner_tokens >= asked;
    return two_tiers ? check_two_tiers(s, err) : md_capacity_check(&s->params, c, err);
}
