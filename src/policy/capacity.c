#include "policy/capacity.h"

#include <assert.h>
#include <inttypes.h>
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

struct md_memory_policy md_capacity_policy(struct md_memory_policy set, const struct md_device_memory *device,
                                           int64_t host_free_bytes, int32_t model_max_tokens)
{
    if (set.min_free_bytes <= 0)
        set.min_free_bytes = device->accelerator ? accelerator_reserve(device) : 0;
    set.max_resident_derived = set.max_resident_bytes <= 0;
    if (set.max_resident_derived)
        set.max_resident_bytes = (int64_t)((double)device->free_bytes * RESIDENT_SHARE);
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

static int64_t cost_per_token(const struct md_kv_cost *c)
{
    return c->shape != NULL ? md_kv_bytes_per_token(c->shape, &c->mode) : md_kv_profile_dense(&c->profile);
}

static int64_t cost_bytes(const struct md_kv_cost *c, int32_t tokens)
{
    return c->shape != NULL ? md_kv_bytes(c->shape, &c->mode, tokens)
                            : md_kv_profile_bytes(&c->profile, tokens);
}

static int64_t extra_bytes(const struct md_kv_cost *c, int32_t tokens)
{
    return c->shape != NULL ? c->extra_per_cell * md_kv_pad(tokens) : 0;
}

enum { CONTEXT_MAX = 1 << 30 };

/* `limit`: no need to look further; 0: none is known. */
static int32_t cost_tokens(const struct md_kv_cost *c, int64_t budget, int64_t max_tensor, int32_t limit)
{
    if (c->shape != NULL)
        return md_kv_tokens(c->shape, &c->mode, budget, c->extra_per_cell, max_tensor,
                            limit > 0 ? limit : CONTEXT_MAX);
    int64_t tokens = md_kv_profile_tokens(&c->profile, budget, limit);
    return tokens > CONTEXT_MAX ? CONTEXT_MAX : (int32_t)tokens;
}

/* ---- the answer ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t usable_bytes(const struct md_capacity_params *p, int64_t free_bytes)
{
    const struct md_memory_policy *m = &p->policy;
    int64_t usable = free_bytes > m->min_free_bytes ? free_bytes - m->min_free_bytes : 0;
    if (m->max_resident_bytes > 0) {
        int64_t left = m->max_resident_bytes - p->reserved_bytes;
        usable = least(usable, left > 0 ? left : 0);
    }
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
    return (int32_t)least(tokens, CONTEXT_MAX);
}

static enum md_clamp why(const struct md_capacity_params *p, const struct md_capacity *c, int64_t free_bytes)
{
    const struct md_memory_policy *m = &p->policy;
    const int32_t wanted = p->request_tokens > 0 ? p->request_tokens : p->model_max_tokens;
    if (p->request_tokens > 0 && p->model_max_tokens > 0 && p->request_tokens > window_limit(p))
        return MD_CLAMP_REQUEST_WINDOW;
    if (m->max_resident_bytes > 0 && !m->max_resident_derived && c->required_bytes > m->max_resident_bytes)
        return MD_CLAMP_USER_LIMIT;
    if (m->min_free_bytes > 0 && free_bytes <= m->min_free_bytes)
        return MD_CLAMP_RESERVE;
    if (wanted <= 0 || c->effective_tokens >= wanted)
        return MD_CLAMP_NONE;
    if (p->device.max_allocation_bytes > 0 && p->cost.shape != NULL &&
        cost_tokens(&p->cost, c->budget_bytes, 0, wanted) > c->effective_tokens)
        return MD_CLAMP_ALLOCATION;
    return p->request_tokens > 0 ? MD_CLAMP_REQUEST : MD_CLAMP_MODEL;
}

struct md_capacity md_capacity_resolve(const struct md_capacity_params *p)
{
    assert(p->request_tokens >= 0 && p->request_tokens <= CONTEXT_MAX);
    assert(p->policy.headroom_frac > 0 && p->policy.headroom_frac < 1);
    const int64_t free_bytes = p->device.free_bytes + p->reclaimable_bytes;
    const int64_t fixed = p->weights_bytes + p->compute_bytes + p->mmproj_bytes;
    const int32_t window = window_limit(p);
    struct md_capacity c = { .kv_bytes_per_token = cost_per_token(&p->cost),
                             .usable_bytes = usable_bytes(p, free_bytes) };
    const bool known = c.kv_bytes_per_token > 0;
    c.budget_bytes = c.usable_bytes > fixed ? c.usable_bytes - fixed : 0;
    if (known) {
        int32_t limit = window > p->request_tokens ? window : p->request_tokens;
        c.memory_tokens = cost_tokens(&p->cost, c.budget_bytes, p->device.max_allocation_bytes, limit);
    }
    c.effective_tokens = clamp(known ? c.memory_tokens : window, window, p->request_tokens);
    if (!known && window <= 0)
        c.effective_tokens = p->request_tokens;
    c.hot_tokens = c.effective_tokens;

    c.host_cold_bytes = p->cold_store ? p->policy.host_cold_bytes : 0;
    const int64_t cold = known ? c.host_cold_bytes / c.kv_bytes_per_token : 0;
    c.planner_tokens = c.hot_tokens > 0 ? clamp(c.hot_tokens + cold, window, p->request_tokens) : 0;

    const int32_t counted = p->request_tokens > 0 ? p->request_tokens : c.effective_tokens;
    c.kv_bytes = cost_bytes(&p->cost, counted);
    c.overhead_bytes = p->compute_bytes + p->mmproj_bytes + extra_bytes(&p->cost, counted);
    c.required_bytes = p->weights_bytes + c.overhead_bytes + c.kv_bytes;
    c.reason = why(p, &c, free_bytes);
    c.clamped = c.reason != MD_CLAMP_NONE;
    c.below_floor = p->request_tokens == 0 && known && c.hot_tokens < p->policy.min_hot_tokens;
    return c;
}

/* ---- refusal ---- */

static void size_text(int64_t bytes, char *out, size_t out_bytes)
{
    const double mib = (double)bytes / (double)MIB;
    if (mib >= 1024)
        snprintf(out, out_bytes, "%.2f GiB", mib / 1024);
    else
        snprintf(out, out_bytes, "%.1f MiB", mib);
}

enum md_status md_capacity_check(const struct md_capacity_params *p, const struct md_capacity *c,
                                 struct md_err *err)
{
    if (c->reason == MD_CLAMP_REQUEST_WINDOW)
        return md_fail(err, MD_TOO_LARGE, "a context of %d tokens is asked for, the model was trained for %d",
                       p->request_tokens, p->model_max_tokens);
    const bool refused = p->request_tokens > 0 ? c->effective_tokens < p->request_tokens
                                               : c->below_floor || (c->clamped && c->effective_tokens == 0);
    if (!refused)
        return MD_OK;
    char needs[32], weights[32], kv[32], overhead[32], usable[32];
    size_text(c->required_bytes, needs, sizeof needs);
    size_text(p->weights_bytes, weights, sizeof weights);
    size_text(c->kv_bytes, kv, sizeof kv);
    size_text(c->overhead_bytes, overhead, sizeof overhead);
    size_text(c->usable_bytes, usable, sizeof usable);
    if (p->request_tokens > 0)
        return md_fail(
            err, MD_NO_MEMORY,
            "a context of %d tokens needs %s (weights %s + KV %s + buffers %s), %s are usable: that "
            "holds %d tokens (%s)",
            p->request_tokens, needs, weights, kv, overhead, usable, c->effective_tokens,
            md_clamp_text(c->reason));
    return md_fail(err, MD_NO_MEMORY,
                   "%s are usable, weights %s + buffers %s leave room for a context of %d tokens, the least "
                   "that is opened by itself is %d (--min-hot-context): free memory, or ask for less with -c",
                   usable, weights, overhead, c->hot_tokens, p->policy.min_hot_tokens);
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
    struct md_eviction_budget b = { .sink_tokens = align_up(window / 16, block),
                                    .recent_tokens = align_up(window / 4, block),
                                    .max_tokens = window / block * block };
    if (b.max_tokens <= b.sink_tokens + b.recent_tokens)
        b.max_tokens = b.sink_tokens + b.recent_tokens + block;
    return b;
}
