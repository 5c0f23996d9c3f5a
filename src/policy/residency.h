/* residency.h - which blocks of a tape are hot.  Pure: no engine, clock, lock or I/O.
 *
 * The planner sees all blocks of one tape, hot or not, and a budget, and says which of them should be
 * hot.  It never moves anything: session/drive.c does.  Its answer depends on the tape and the budget
 * alone, not on what happens to be hot now, so the same history gives the same hot set however it was
 * built.  Protected blocks (sink, recent, pinned, task_pinned) are in first; a plan may be over_budget.
 *
 * Source: StreamingLLM (attention sinks + recent window), arXiv 2309.17453; the rest of the order is this project's. */
#ifndef MD_POLICY_RESIDENCY_H
#define MD_POLICY_RESIDENCY_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"

/* Higher is evicted first. */
enum md_cache_class { MD_CLASS_TASK_PINNED, MD_CLASS_REPO_MAP, MD_CLASS_VOLATILE, MD_CLASS_COUNT };

enum md_block_flag {
    MD_BLOCK_PINNED = 1 << 0,
    MD_BLOCK_SINK = 1 << 1,   /* set by the planner */
    MD_BLOCK_RECENT = 1 << 2, /* set by the planner */
    /* A retriever wants it for this request: it stays longest of those that may leave.  Not protected: what is asked
     * for beyond the budget leaves all the same. */
    MD_BLOCK_RETRIEVED = 1 << 3,
};

struct md_block {
    struct md_range range;
    enum md_cache_class cls;
    unsigned flags;
    int64_t last_used; /* any clock; smaller = longer ago */
};

/* Always hot: sink, recent, pinned or task_pinned.  The first two are known after planning. */
bool md_block_is_protected(const struct md_block *b);

struct md_stream_policy {
    int32_t sink_tokens, recent_tokens; /* at the start and at the end of the tape: whole blocks */
};

/* Which of MD_BLOCK_SINK and MD_BLOCK_RECENT a block of a tape that ends at `end` has: one that the border of a protected
 * stretch cuts is protected whole. */
unsigned md_stream_flags(struct md_range block, int32_t end, struct md_stream_policy stream);

/* The gate: what is asked of the engine for T1 to do anything. */
struct md_residency_gate {
    bool remove_middle, recompute_range, cold_store;
};

/* The middle can be removed, or what stays can be put back behind a cut: from the cold store, or computed. */
bool md_residency_gate_is_open(struct md_residency_gate gate);

struct md_plan {
    bool *hot; /* [count], in the order of blocks; owned by the arena */
    int32_t total_tokens, hot_tokens, protected_tokens;
    int32_t pinned_cold_tokens; /* task_pinned ones that found no room: the last resort */
    bool over_budget; /* hot_tokens > budget_tokens: only protected blocks are left, or the gate is shut */
    bool gate_shut;   /* the engine cannot evict: everything stays hot, `diagnostic` says so */
    const char *diagnostic; /* static text or NULL */
};

/* Choose the hot set.
 *
 * blocks         count blocks, ascending, not overlapping; SINK and RECENT flags are set in place on
 *                those that overlap [0, sink_tokens) and [end - recent_tokens, end), end being that of the
 *                last block, and cleared on the others
 * scores         NULL, or one for each block: how much it is worth keeping; any finite numbers
 * budget_tokens  hot tokens allowed; 0 keeps only what is protected
 * arena          owns ret_plan->hot
 *
 * Unprotected blocks leave until the rest fits: those not retrieved before those retrieved; then more evictable class
 * first; then, when there are scores, the lowest score first; then longest unused; then lowest start.  So no score
 * makes a block leave before one of a more evictable class.  When all of them are out and it is not enough, blocks that
 * only their class task_pinned protects follow, from the end.
 *
 * MD_INVALID    budget, sink or recent below 0; blocks overlap, are empty or out of order; or a score is not a finite
 *               number (the text names the block)
 * MD_NO_MEMORY  the arena is full
 * State:   ret_plan untouched on failure (flags may have been set).
 * Threads: any; touches nothing but its arguments. */
MD_MUST_USE enum md_status md_residency_plan(struct md_block *blocks, size_t count, const float *scores,
                                             int32_t budget_tokens, struct md_stream_policy stream,
                                             struct md_residency_gate gate, struct md_arena *arena,
                                             struct md_plan *ret_plan, struct md_err *err);

/* Sink and recent sizes for a hot set, rounded up to whole blocks.
 *
 * hot_tokens     the budget
 * window_tokens  sliding window + micro-batch of a windowed model, 0 for a dense one: recent is at least this
 * sink, recent   asked for, or -1: hot/16 and hot/4
 *
 * MD_INVALID     a size is negative; hot, block or recent is 0; or hot_tokens < sink + recent + one block (the
 *                text says which rule and the smallest --hot that works)
 * Source: StreamingLLM needs few sinks; the shares are this project's. */
MD_MUST_USE enum md_status md_residency_derive(int32_t hot_tokens, int32_t window_tokens,
                                               int32_t block_tokens, int32_t sink, int32_t recent,
                                               struct md_stream_policy *ret_stream, struct md_err *err);

#endif
