/* residency.c - see residency.h.  The plan is made in two passes over values: mark what is protected, then
 * let candidates go in one fixed order until the rest fits.  Nothing here depends on what is hot now. */
#include "policy/residency.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum {
    PROTECTED_FLAGS = MD_BLOCK_PINNED | MD_BLOCK_SINK | MD_BLOCK_RECENT,
    SINK_SHARE = 16,  /* default: one sixteenth of the hot set */
    RECENT_SHARE = 4, /* default: a quarter of it */
};

bool md_block_is_protected(const struct md_block *b)
{
    return (b->flags & PROTECTED_FLAGS) != 0 || b->cls == MD_CLASS_TASK_PINNED;
}

unsigned md_stream_flags(struct md_range block, int32_t end, struct md_stream_policy stream)
{
    const int32_t recent_start = stream.recent_tokens < end ? end - stream.recent_tokens : 0;
    return (block.start < stream.sink_tokens ? (unsigned)MD_BLOCK_SINK : 0) |
           (block.end > recent_start ? (unsigned)MD_BLOCK_RECENT : 0);
}

bool md_residency_gate_is_open(struct md_residency_gate gate)
{
    return gate.remove_middle || (gate.recompute_range && gate.cold_store);
}

/* ---- plan ---- */

struct candidate {
    bool retrieved;
    enum md_cache_class cls;
    float score;
    int64_t last_used;
    int32_t start;
    size_t index;
};

/* Who leaves first stands first.  Starts differ, so the order is total and qsort's being unstable is no matter. */
static int by_departure(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    if (a->retrieved != b->retrieved)
        return b->retrieved ? -1 : 1;
    if (a->cls != b->cls)
        return a->cls > b->cls ? -1 : 1;
    if (a->score != b->score)
        return a->score < b->score ? -1 : 1;
    if (a->last_used != b->last_used)
        return a->last_used < b->last_used ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

static enum md_status check_input(const struct md_block *blocks, size_t count, const float *scores,
                                  int32_t budget_tokens, struct md_stream_policy stream, struct md_err *err)
{
    if (budget_tokens < 0)
        return md_fail(err, MD_INVALID, "hot budget is below 0: %d", budget_tokens);
    if (stream.sink_tokens < 0 || stream.recent_tokens < 0)
        return md_fail(err, MD_INVALID, "sink or recent tokens are below 0: %d, %d", stream.sink_tokens,
                       stream.recent_tokens);
    int32_t end = 0;
    for (size_t i = 0; i < count; i++) {
        struct md_range r = blocks[i].range;
        if (r.end <= r.start)
            return md_fail(err, MD_INVALID, "block %zu is empty: [%d, %d)", i, r.start, r.end);
        if (r.start < end)
            return md_fail(err, MD_INVALID, "block %zu at %d overlaps or is out of order: before it is %d", i,
                           r.start, end);
        if (scores != NULL && !isfinite(scores[i]))
            return md_fail(err, MD_INVALID, "score of block %zu at %d is no finite number: %g", i, r.start,
                           (double)scores[i]);
        assert((unsigned)blocks[i].cls < MD_CLASS_COUNT);
        end = r.end;
    }
    return MD_OK;
}

static void mark_stream(struct md_block *blocks, size_t count, struct md_stream_policy stream)
{
    const int32_t end = count == 0 ? 0 : blocks[count - 1].range.end;
    for (size_t i = 0; i < count; i++) {
        blocks[i].flags &= ~(unsigned)(MD_BLOCK_SINK | MD_BLOCK_RECENT);
        blocks[i].flags |= md_stream_flags(blocks[i].range, end, stream);
    }
}

static void evict_to_budget(struct md_plan *plan, const struct md_block *blocks, struct candidate *candidates,
                            size_t count, int32_t budget_tokens)
{
    qsort(candidates, count, sizeof *candidates, by_departure);
    for (size_t i = 0; i < count && plan->hot_tokens > budget_tokens; i++) {
        size_t index = candidates[i].index;
        assert(plan->hot[index]);
        plan->hot[index] = false;
        plan->hot_tokens -= md_range_len(blocks[index].range);
    }
}

/* The last resort: what only its class protects gives way, from the end, so that beginnings stay. */
static void evict_pinned(struct md_plan *plan, const struct md_block *blocks, size_t count,
                         int32_t budget_tokens)
{
    for (size_t i = count; i-- > 0 && plan->hot_tokens > budget_tokens;) {
        if (!md_block_is_protected(&blocks[i]) || (blocks[i].flags & PROTECTED_FLAGS) != 0)
            continue;
        int32_t tokens = md_range_len(blocks[i].range);
        plan->hot[i] = false;
        plan->hot_tokens -= tokens;
        plan->pinned_cold_tokens += tokens;
    }
}

enum md_status md_residency_plan(struct md_block *blocks, size_t count, const float *scores,
                                 int32_t budget_tokens, struct md_stream_policy stream,
                                 struct md_residency_gate gate, struct md_arena *arena,
                                 struct md_plan *ret_plan, struct md_err *err)
{
    enum md_status s = check_input(blocks, count, scores, budget_tokens, stream, err);
    if (s != MD_OK)
        return s;
    struct md_plan plan = { .hot = md_arena_get(arena, count, sizeof *plan.hot) };
    struct candidate *candidates = md_arena_get(arena, count, sizeof *candidates);
    if (plan.hot == NULL || candidates == NULL)
        return md_fail(err, MD_NO_MEMORY, "plan of %zu blocks", count);

    mark_stream(blocks, count, stream);
    size_t candidate_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct md_block *b = &blocks[i];
        int32_t tokens = md_range_len(b->range);
        plan.total_tokens += tokens;
        if (md_block_is_protected(b))
            plan.protected_tokens += tokens;
        else
            candidates[candidate_count++] =
                (struct candidate){ .retrieved = (b->flags & MD_BLOCK_RETRIEVED) != 0,
                                    .cls = b->cls,
                                    .score = scores != NULL ? scores[i] : 0,
                                    .last_used = b->last_used,
                                    .start = b->range.start,
                                    .index = i };
        plan.hot[i] = true;
        plan.hot_tokens += tokens;
    }

    plan.gate_shut = !md_residency_gate_is_open(gate);
    if (!plan.gate_shut) {
        evict_to_budget(&plan, blocks, candidates, candidate_count, budget_tokens);
        evict_pinned(&plan, blocks, count, budget_tokens);
    }
    plan.over_budget = plan.hot_tokens > budget_tokens;
    if (plan.gate_shut)
        plan.diagnostic = "the engine can neither remove nor recompute a middle range: everything stays hot";
    else if (plan.over_budget)
        plan.diagnostic = "sinks, recent window and pinned blocks alone exceed the hot budget";
    else if (plan.pinned_cold_tokens > 0)
        plan.diagnostic = "task-pinned text does not fit the hot budget: its end is cold";
    assert(plan.hot_tokens <= plan.total_tokens &&
           plan.protected_tokens - plan.pinned_cold_tokens <= plan.hot_tokens);
    *ret_plan = plan;
    return MD_OK;
}

/* ---- derive ---- */

struct derive {
    int32_t window, block, sink, recent; /* sink, recent: -1 = a share of the hot set */
};

static int64_t round_up(int64_t tokens, int32_t block)
{
    return (tokens + block - 1) / block * block;
}

static int64_t derived_sink(const struct derive *d, int64_t hot)
{
    int64_t sink = d->sink >= 0 ? d->sink : hot / SINK_SHARE > 0 ? hot / SINK_SHARE : 1;
    return round_up(sink, d->block);
}

static int64_t derived_recent(const struct derive *d, int64_t hot)
{
    int64_t recent = d->recent >= 0 ? d->recent : hot / RECENT_SHARE > 0 ? hot / RECENT_SHARE : 1;
    return round_up(recent > d->window ? recent : d->window, d->block);
}

static int64_t derived_need(const struct derive *d, int64_t hot)
{
    return derived_sink(d, hot) + derived_recent(d, hot) + d->block;
}

/* The least hot with derived_need(hot) <= hot.  The need grows with hot, by 5/16 of it at most, so climbing
 * from below stops, and stops at the least. */
static int64_t smallest_hot(const struct derive *d)
{
    int64_t hot = 0;
    while (derived_need(d, hot) > hot)
        hot = derived_need(d, hot);
    return hot;
}

enum md_status md_residency_derive(int32_t hot_tokens, int32_t window_tokens, int32_t block_tokens,
                                   int32_t sink, int32_t recent, struct md_stream_policy *ret_stream,
                                   struct md_err *err)
{
    if (hot_tokens < 1)
        return md_fail(err, MD_INVALID, "--hot must be at least 1, got %d", hot_tokens);
    if (window_tokens < 0)
        return md_fail(err, MD_INVALID, "sliding window is below 0: %d", window_tokens);
    if (block_tokens < 1)
        return md_fail(err, MD_INVALID, "--block-tokens must be at least 1, got %d", block_tokens);
    if (sink < -1)
        return md_fail(err, MD_INVALID, "--sink must be at least 0 (or -1 for the default), got %d", sink);
    if (recent < -1 || recent == 0)
        return md_fail(err, MD_INVALID, "--recent must be at least 1 (or -1 for the default), got %d",
                       recent);

    struct derive d = { .window = window_tokens, .block = block_tokens, .sink = sink, .recent = recent };
    int64_t need = derived_need(&d, hot_tokens);
    if (need > hot_tokens) {
        int64_t least = smallest_hot(&d);
        const char *rule = "--hot must hold sinks, recent window and one block";
        long long sinks = derived_sink(&d, hot_tokens), recents = derived_recent(&d, hot_tokens);
        if (least > INT32_MAX)
            return md_fail(err, MD_INVALID, "%s (%lld + %lld + %d tokens), got %d: no --hot is large enough",
                           rule, sinks, recents, block_tokens, hot_tokens);
        return md_fail(err, MD_INVALID,
                       "%s (%lld + %lld + %d tokens), got %d: the smallest that works is %lld", rule, sinks,
                       recents, block_tokens, hot_tokens, (long long)least);
    }
    *ret_stream = (struct md_stream_policy){ .sink_tokens = (int32_t)derived_sink(&d, hot_tokens),
                                             .recent_tokens = (int32_t)derived_recent(&d, hot_tokens) };
    return MD_OK;
}
