#include "policy/capacity.h"

#include <assert.h>
#include <stdio.h>

static const int64_t MIB = 1 << 20;
static const double HEADROOM = 0.10, RESIDENT_SHARE = 0.80, COLD_SHARE = 0.25, ACCELERATOR_SHARE = 0.10;

const char *md_clamp_text(enum md_clamp c)
{
    static const char *const texts[] = {
#define X(id, text) text,
        MD_CLAMP_LIST(X)
#undef X
    };
    return texts[c];
}

/* ---- the policy ---- */

static int64_t accelerator_reserve(const struct md_device_memory *d)
{
    int64_t share = (int64_t)((double)d->total_bytes * ACCELERATOR_SHARE);
    int64_t reserve = share > 512 * MIB ? share : 512 * MIB;
    return d->total_bytes > 0 && reserve > d->total_bytes / 4 ? d->total_bytes / 4 : reserve;
}

static int64_t resident_share(int64_t free_bytes)
{
    return (int64_t)((double)free_bytes * RESIDENT_SHARE);
}

struct md_memory_policy md_capacity_policy(struct md_memory_policy set, const struct md_device_memory *device,
                                           int64_t host_free_bytes, int32_t model_max_tokens)
{
    if (set.min_free_bytes <= 0)
        set.min_free_bytes = device->accelerator ? accelerator_reserve(device) : 0;
    set.max_resident_derived = set.max_resident_bytes <= 0;
    if (set.max_resident_derived)
        set.max_resident_bytes = resident_share(device->free_bytes);
    if (set.host_cold_bytes < 0)
        set.host_cold_bytes = (int64_t)((double)host_free_bytes * COLD_SHARE);
    if (set.min_hot_tokens < 0)
        set.min_hot_tokens = MD_MIN_HOT_DEFAULT;
    if (model_max_tokens > 0 && set.min_hot_tokens > model_max_tokens)
        set.min_hot_tokens = model_max_tokens;
    if (!(set.headroom_frac > 0 && set.headroom_frac < 1))
        set.headroom_frac = HEADROOM;
    return set;
}

/* ---- cost ---- */

static bool by_shape(const struct md_kv_cost *c)
{
    return c->shape != NULL && c->shape->layer_count > 0;
}

static bool is_known(const struct md_kv_cost *c)
{
    return by_shape(c) || md_kv_profile_dense(&c->profile) > 0;
}

static int64_t cost_per_token(const struct md_kv_cost *c)
{
    return by_shape(c) ? md_kv_bytes_per_token(c->shape, &c->mode) : md_kv_profile_dense(&c->profile);
}

static int64_t cost_bytes(const struct md_kv_cost *c, int32_t tokens)
{
    return by_shape(c) ? md_kv_bytes(c->shape, &c->mode, tokens) : md_kv_profile_bytes(&c->profile, tokens);
}

static int64_t extra_bytes(const struct md_kv_cost *c, int32_t tokens)
{
    return by_shape(c) ? md_kv_extra_bytes(c->extra_per_cell, tokens) : 0;
}

/* ---- the answer ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t usable_bytes(const struct md_capacity_params *p, int64_t free_bytes)
{
    const struct md_memory_policy *m = &p->policy;
    if (p->kv_budget_bytes > 0)
        return p->kv_budget_bytes + p->weights_bytes + p->compute_bytes + p->mmproj_bytes;
    int64_t usable = free_bytes > m->min_free_bytes ? free_bytes - m->min_free_bytes : 0;
    int64_t most = m->max_resident_bytes;
    if (m->max_resident_derived) /* a share of what is free, and this will be */
        most += resident_share(p->reclaimable_bytes);
    if (most > 0)
        usable = least(usable, most > p->reserved_bytes ? most - p->reserved_bytes : 0);
    return (int64_t)((double)usable * (1 - m->headroom_frac));
}

/* The window nothing may exceed; 0: none is known. */
static int32_t window_limit(const struct md_capacity_params *p)
{
    return p->past_window && p->request_tokens > p->model_max_tokens ? p->request_tokens
                                                                     : p->model_max_tokens;
}

static int32_t clamp(int64_t tokens, int32_t window, int32_t request)
{
    if (window > 0)
        tokens = least(tokens, window);
    if (request > 0)
        tokens = least(tokens, request);
    return (int32_t)least(tokens, MD_CONTEXT_MAX);
}

/* What is left for KV and what grows with it; below 0: the weights alone do not fit. */
static int64_t left_bytes(const struct md_capacity_params *p, int64_t usable)
{
    return usable - p->weights_bytes - p->compute_bytes - p->mmproj_bytes;
}

static int32_t memory_tokens(const struct md_capacity_params *p, int64_t left, int64_t max_tensor)
{
    const struct md_kv_cost *c = &p->cost;
    if (by_shape(c))
        return md_kv_tokens(c->shape, &c->mode, left, c->extra_per_cell, max_tensor, MD_CONTEXT_MAX);
    const int32_t window = window_limit(p); /* the answer when nothing grows */
    int64_t tokens =
        md_kv_profile_tokens(&c->profile, left, window > p->request_tokens ? window : p->request_tokens);
    return (int32_t)least(tokens, MD_CONTEXT_MAX);
}

/* Tokens that can be hot of so many. */
static int32_t hot_limit(const struct md_capacity_params *p, int32_t tokens)
{
    return p->hot_most_tokens > 0 && tokens > p->hot_most_tokens ? p->hot_most_tokens : tokens;
}

static enum md_clamp why(const struct md_capacity_params *p, const struct md_capacity *c, int64_t free_bytes)
{
    const struct md_memory_policy *m = &p->policy;
    const int32_t most = p->model_max_tokens > 0 ? p->model_max_tokens : m->min_hot_tokens;
    const int32_t wanted = hot_limit(p, p->request_tokens > 0 ? p->request_tokens : most);
    const int64_t left = left_bytes(p, c->usable_bytes);
    if (p->request_tokens > 0 && p->model_max_tokens > 0 && p->request_tokens > window_limit(p))
        return MD_CLAMP_REQUEST_WINDOW;
    if (m->max_resident_bytes > 0 && !m->max_resident_derived && c->required_bytes > m->max_resident_bytes)
        return MD_CLAMP_USER_LIMIT;
    if (m->min_free_bytes > 0 && free_bytes <= m->min_free_bytes)
        return MD_CLAMP_RESERVE;
    if (c->effective_tokens > 0 ? c->effective_tokens >= wanted : left >= 0 && !is_known(&p->cost))
        return p->request_tokens > wanted && c->planner_tokens < p->request_tokens ? MD_CLAMP_REQUEST
                                                                                   : MD_CLAMP_NONE;
    if (memory_tokens(p, left, 0) > c->memory_tokens)
        return MD_CLAMP_ALLOCATION;
    return p->request_tokens > 0 ? MD_CLAMP_REQUEST : MD_CLAMP_MODEL;
}

/* What the request needs, or else the tokens there are. */
static void count_bytes(const struct md_capacity_params *p, struct md_capacity *c, int32_t tokens)
{
    c->kv_bytes = cost_bytes(&p->cost, tokens);
    c->overhead_bytes = p->compute_bytes + p->mmproj_bytes + extra_bytes(&p->cost, tokens);
    c->required_bytes = p->weights_bytes + c->overhead_bytes + c->kv_bytes;
}

int64_t md_capacity_bytes(const struct md_capacity_params *p, int32_t tokens)
{
    struct md_capacity c;
    count_bytes(p, &c, tokens);
    return c.required_bytes;
}

int64_t md_capacity_cold_tokens(const struct md_capacity_params *p, int64_t bytes)
{
    const int64_t per_token = cost_per_token(&p->cost);
    if (p->cold_block_bytes > 0)
        return bytes / p->cold_block_bytes * p->cold_block_tokens;
    return per_token > 0 ? bytes / per_token : 0;
}

struct md_capacity md_capacity_resolve(const struct md_capacity_params *p)
{
    assert(p->request_tokens >= 0);
    assert(p->policy.headroom_frac > 0 && p->policy.headroom_frac < 1);
    const int64_t free_bytes = p->device.free_bytes + p->reclaimable_bytes;
    const int32_t window = window_limit(p), request = p->request_tokens;
    struct md_capacity c = { .kv_bytes_per_token = cost_per_token(&p->cost),
                             .usable_bytes = usable_bytes(p, free_bytes) };
    const int64_t left = left_bytes(p, c.usable_bytes);
    const bool known = is_known(&p->cost);
    c.budget_bytes = left > 0 ? left : 0;
    c.memory_tokens = memory_tokens(p, left, p->device.max_allocation_bytes);
    if (known)
        c.effective_tokens = clamp(c.memory_tokens, window, request);
    else if (left >= 0)
        c.effective_tokens = clamp(window > 0 ? window : request, window, request);
    c.hot_tokens = c.effective_tokens = hot_limit(p, c.effective_tokens);

    c.host_cold_bytes = p->cold_store ? p->policy.host_cold_bytes : 0;
    const int64_t cold = md_capacity_cold_tokens(p, c.host_cold_bytes);
    const bool past = p->hot_most_tokens > 0;
    const int64_t both = !past ? c.hot_tokens + cold : c.hot_tokens > cold ? c.hot_tokens : cold;
    c.planner_tokens = c.hot_tokens > 0 ? clamp(both, past ? 0 : window, request) : 0;

    count_bytes(p, &c, request > 0 ? hot_limit(p, clamp(request, 0, 0)) : c.effective_tokens);
    c.reason = why(p, &c, free_bytes);
    c.clamped = c.reason != MD_CLAMP_NONE;
    c.below_floor = request == 0 && (known || left < 0) && c.hot_tokens < p->policy.min_hot_tokens;
    return c;
}

/* ---- refusal ---- */

struct size {
    char text[24];
};

static struct size size_of(int64_t bytes)
{
    struct size s;
    const double mib = (double)bytes / (double)MIB;
    if (mib >= 1024)
        snprintf(s.text, sizeof s.text, "%.2f GiB", mib / 1024);
    else
        snprintf(s.text, sizeof s.text, "%.1f MiB", mib);
    return s;
}

/* The arithmetic of `tokens` that do not fit, for a person. */
static enum md_status refuse(const struct md_capacity_params *p, const struct md_capacity *c, int32_t tokens,
                             struct md_err *err)
{
    struct md_capacity needs = *c;
    count_bytes(p, &needs, clamp(tokens, 0, 0));
    char piece[64] = "";
    if (c->reason == MD_CLAMP_ALLOCATION)
        snprintf(piece, sizeof piece, ", at most %s in one piece",
                 size_of(p->device.max_allocation_bytes).text);
    char tiers[64] = "";
    if (c->planner_tokens > c->effective_tokens && p->request_tokens > 0)
        snprintf(tiers, sizeof tiers, " and, with the cold store, %d", c->planner_tokens);
    const bool limited = p->policy.max_resident_bytes > 0 && !p->policy.max_resident_derived;
    const char *more = c->reason == MD_CLAMP_RESERVE ? "lower --mem-reserve"
                       : limited                     ? "raise --mem-max"
                                                     : "free memory";
    const char *less = c->effective_tokens == 0 ? "take a smaller model"
                       : p->request_tokens > 0  ? "ask for less"
                                                : "lower --min-hot-context, or ask for less with -c";
    return md_fail(
        err, MD_NO_MEMORY,
        "a context of %d tokens does not fit: it needs %s (weights %s + KV %s + buffers %s), of %s "
        "free %s are usable%s, which is enough for %d tokens%s: %s, or %s (%s)",
        tokens, size_of(needs.required_bytes).text, size_of(p->weights_bytes).text,
        size_of(needs.kv_bytes).text, size_of(needs.overhead_bytes).text,
        size_of(p->device.free_bytes + p->reclaimable_bytes).text, size_of(c->usable_bytes).text, piece,
        c->effective_tokens, tiers, more, less, md_clamp_text(c->reason));
}

enum md_status md_capacity_check(const struct md_capacity_params *p, const struct md_capacity *c,
                                 struct md_err *err)
{
    if (c->reason == MD_CLAMP_REQUEST_WINDOW)
        return md_fail(err, MD_TOO_LARGE,
                       "a context of %d tokens is too large: the model was trained for %d; ask for less",
                       p->request_tokens, p->model_max_tokens);
    if (p->request_tokens > 0 && c->effective_tokens < p->request_tokens)
        return refuse(p, c, p->request_tokens, err);
    const int32_t needed = p->policy.min_hot_tokens > 0 ? p->policy.min_hot_tokens : MD_CELL_UNIT;
    if (c->below_floor || (c->clamped && c->effective_tokens == 0))
        return refuse(p, c, needed, err);
    return MD_OK;
}

/* ---- engines that evict by themselves ---- */

static int32_t align_up(int32_t n, int32_t unit)
{
    int32_t units = (n + unit - 1) / unit;
    return (units > 1 ? units : 1) * unit;
}

struct md_eviction_budget md_capacity_eviction_budget(int32_t window, int32_t sliding_window, int32_t block)
{
    if (sliding_window > 0 && sliding_window < window)
        window = sliding_window;
    if (block < 1)
        block = 1;
    if (window / 4 < block)
        return (struct md_eviction_budget){ .recent_tokens = window, .max_tokens = window };
    return (struct md_eviction_budget){ .sink_tokens = align_up(window / 16, block),
                                        .recent_tokens = align_up(window / 4, block),
                                        .max_tokens = window / block * block };
}
