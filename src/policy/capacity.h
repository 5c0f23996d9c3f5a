/* capacity.h - the context a model really gets on this machine.  Pure: memory comes in as values.
 *
 * From the cost of KV (kv_shape.h), the weights, the compute buffers and the memory that is free now, one
 * answer: how many tokens fit hot, how many more the cold store holds, and why it is not more.  No number
 * here is a constant of gigabytes: every budget is a share of what there is.
 *
 * Threads: any; touches nothing but its arguments.
 * Source: modeld/capacity: Resolve, WithResidentDefault, WithHostColdDefaults, DeriveEvictionBudget. */
#ifndef MD_POLICY_CAPACITY_H
#define MD_POLICY_CAPACITY_H

#include "base/err.h"
#include "policy/kv_shape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the user set.  0 means: derive it (headroom_frac: 0.10), unless said otherwise. */
struct md_memory_policy {
    int64_t max_resident_bytes; /* cap of weights, compute and hot KV together                   */
    bool max_resident_derived;  /* set by md_capacity_policy: nobody asked for that cap          */
    int64_t min_free_bytes;     /* left alone on the device                                      */
    int64_t host_cold_bytes;    /* cold store; -1: derive it, 0: none                            */
    int32_t min_hot_tokens;     /* smallest context worth opening; -1: derive it, 0: any will do */
    double headroom_frac;       /* share of the usable memory kept for fragmentation             */
};

enum { MD_MIN_HOT_DEFAULT = 4096 }; /* tokens: below that a coding agent cannot work */

/* The device KV and weights live on. */
struct md_device_memory {
    bool accelerator;    /* its own reserve is kept free: max(512 MiB, 10 %), at most a quarter */
    int64_t total_bytes; /* 0: unknown */
    int64_t free_bytes;
    int64_t max_allocation_bytes; /* 0: any */
};

/* Fill in what is derived: min_free on an accelerator, max_resident as 0.8 of what is free now, cold as a
 * quarter of what the host has free now, min_hot 4096, headroom.  Any min_hot is at most model_max (0:
 * unknown).  `device` is as it stands: what is reclaimable is for md_capacity_resolve to count. */
struct md_memory_policy md_capacity_policy(struct md_memory_policy set, const struct md_device_memory *device,
                                           int64_t host_free_bytes, int32_t model_max_tokens);

/* KV cost: by shape, else by profile, else unknown. */
struct md_kv_cost {
    const struct md_kv_shape *shape; /* NULL or without layers: none; borrowed for the call */
    struct md_kv_mode mode;
    struct md_kv_profile profile; /* used without a shape; zero layers: unknown */
    int64_t extra_per_cell;       /* compute bytes that grow with the context; with a shape only */
};

struct md_capacity_params {
    int32_t model_max_tokens; /* trained window; 0: unknown */
    struct md_kv_cost cost;
    int64_t weights_bytes;
    int64_t compute_bytes; /* buffers that do not depend on the context */
    int64_t mmproj_bytes;  /* projector and its buffers */
    struct md_device_memory device;
    int64_t reclaimable_bytes;      /* what a resident model gives back on a switch: counts as free,
                                       also in a derived max_resident */
    int64_t reserved_bytes;         /* part of max_resident that is taken already */
    struct md_memory_policy policy; /* from md_capacity_policy */
    int64_t kv_budget_bytes;        /* above 0: that much for KV and what grows with it, whatever is free */
    int32_t request_tokens;         /* 0: automatic, never below.  Only ever a current, explicit setting */
    bool
        past_window; /* more cells than the trained window may be asked for: those of several conversations, or of
                         an engine that goes past it */
    bool cold_store; /* the engine can evict and put back: cold tokens count */
    /* Above 0: conversations go on past the trained window (policy/rebase.h), so many tokens are hot at most, whatever is
     * asked for, and the window does not limit planner_tokens. */
    int32_t hot_most_tokens;
    /* What a block of so many tokens takes of the cold store then, headers counted; 0: its KV alone. */
    int64_t cold_block_bytes;
    int32_t cold_block_tokens;
};

/* Why it is not more. */
#define MD_CLAMP_LIST(X)                            \
    X(NONE, "")                                     \
    X(USER_LIMIT, "request_exceeds_user_limit")     \
    X(RESERVE, "device_free_memory_below_reserve")  \
    X(REQUEST, "request_exceeds_memory_budget")     \
    X(MODEL, "model_context_exceeds_memory_budget") \
    X(ALLOCATION, "single_allocation")              \
    X(REQUEST_WINDOW, "request_exceeds_model_window")

enum md_clamp {
#define MD_CLAMP_ENUM(id, text) MD_CLAMP_##id,
    MD_CLAMP_LIST(MD_CLAMP_ENUM)
#undef MD_CLAMP_ENUM
};
const char *md_clamp_text(enum md_clamp c); /* "request_exceeds_user_limit"; "" for none */

struct md_capacity {
    int32_t effective_tokens; /* context all of which is hot; 0: does not fit                         */
    int32_t hot_tokens;       /* what memory allows, within the model's window and the request        */
    int32_t planner_tokens;   /* hot plus what the cold store holds, within the same                  */
    int32_t memory_tokens;    /* what memory allows, unclamped by the model; 0: KV cost unknown       */
    int64_t usable_bytes;     /* for weights, compute and KV together                                 */
    int64_t budget_bytes;     /* of those, for KV and what grows with it                              */
    int64_t required_bytes;   /* weights + compute + KV of the request, or of effective_tokens        */
    int64_t kv_bytes;         /* KV of the same                                                       */
    int64_t overhead_bytes;   /* compute and mmproj of the same                                       */
    int64_t kv_bytes_per_token;
    int64_t host_cold_bytes; /* as far as the engine can use it                                      */
    bool clamped;
    enum md_clamp reason;
    bool below_floor; /* automatic, and hot_tokens < policy.min_hot_tokens; nothing known: false */
};

/* The answer.  Never fails: what does not fit has effective_tokens 0, or a reason.
 *
 * usable  = max(free + reclaimable - min_free, 0), at most max_resident - reserved, less the headroom
 * budget  = max(usable - weights - compute - mmproj, 0); with kv_budget that, and usable follows from it
 * memory  = the most tokens whose KV fits the budget, at most 2^30
 * hot     = memory, at most the window and the request; cost unknown: the window, or else the request
 * planner = hot + md_capacity_cold_tokens, within the same; past the window the cold ones alone, where they are more, for
 *           the cold store has what is moved as well
 * A request is an upper limit; it never revives an impossible budget: what does not fit without any KV has
 * no tokens at all.
 *
 * The first that holds is the reason:
 *   request_exceeds_model_window          the request, unless it may go past the window
 *   request_exceeds_user_limit            required > max_resident, when the user set that
 *   device_free_memory_below_reserve      free + reclaimable <= min_free
 *   single_allocation                     more would fit, but not in one piece
 *   request_exceeds_memory_budget         fewer than the request
 *   model_context_exceeds_memory_budget   automatic, and fewer than the window (unknown: than the floor) */
struct md_capacity md_capacity_resolve(const struct md_capacity_params *p);

/* Tokens that so many bytes of cold store hold: whole blocks, where it is known what one takes. */
int64_t md_capacity_cold_tokens(const struct md_capacity_params *p, int64_t bytes);

/* Weights, buffers and KV when so many tokens are hot. */
int64_t md_capacity_bytes(const struct md_capacity_params *p, int32_t tokens);

/* May this be opened?  An explicit request that does not fit is refused, and so is an automatic answer
 * below the floor: never a silent shrink.
 *
 * MD_NO_MEMORY  the text has the arithmetic of the request or the floor: needs, weights, KV, buffers; free,
 *               usable; the tokens that fit and the reason
 * MD_TOO_LARGE  the request is more than the model's window */
MD_MUST_USE enum md_status md_capacity_check(const struct md_capacity_params *p, const struct md_capacity *c,
                                             struct md_err *err);

/* Sinks, recent window and the whole, for engines that evict by themselves.
 *
 * window = min(window, sliding_window) when there is one; sink = window/16 and recent = window/4 in whole
 * blocks, rounded up; max = window in whole blocks.  Too small for four blocks: sink 0, which means none. */
struct md_eviction_budget {
    int32_t sink_tokens, recent_tokens, max_tokens;
};
struct md_eviction_budget md_capacity_eviction_budget(int32_t window, int32_t sliding_window, int32_t block);

#endif
