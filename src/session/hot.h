/* hot.h - what all conversations of one engine share: its cells, the cold store, the plan's figures.
 *
 * Each open conversation has a drive (session/drive.h).  One is live: the planner makes its hot set, and it may use
 * every cell.  The KV of the others stays in the cells that are left, under sequences of their own, so that
 * switching back costs nothing; when the live one needs room, theirs goes cold, the longest idle first
 * (policy/idle.h).  Blocks with the same text before and in them are held once, wherever the engine can share
 * cells (MD_CAP_SHARE).  There may be more conversations than sequences: the longest idle one lends its own.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_HOT_H
#define MD_SESSION_HOT_H

#include "engine/engine.h"
#include "policy/provenance.h"
#include "policy/residency.h"
#include "policy/restore.h"
#include "session/cold.h"

struct md_drive;

struct md_hot {
    struct md_engine *engine; /* borrowed */
    struct md_cold *cold;     /* borrowed */
    const struct md_alloc *alloc;
    struct md_stream_policy stream;
    struct md_residency_gate gate;
    bool evicts;                   /* the gate is open */
    int32_t limit_tokens;          /* cells, all conversations together */
    enum md_provenance_kind floor; /* the worst KV that is reused */
    bool write_through;            /* whole blocks are copied to the cold store when they are computed */
    struct md_restore speeds;
    struct md_drive *drives; /* all that are open */
    int64_t clock;           /* counts turns: the time of last_live */
};

/* Give d a sequence: a free one, or else that of the conversation that was live longest ago, whose KV goes cold.
 * MD_NO_MEMORY: every other one has lost its sequence for good.  Others: from the engine. */
MD_MUST_USE enum md_status md_hot_take_sequence(struct md_hot *h, struct md_drive *d, struct md_err *err);

/* Make sure that `need` cells are free within the limit, at the cost of conversations other than `live`.
 * MD_NO_MEMORY: all of theirs are gone and it is not enough. */
MD_MUST_USE enum md_status md_hot_make_cells(struct md_hot *h, const struct md_drive *live, int32_t need,
                                             struct md_err *err);

/* The hot block of another conversation that begins at `start`, a block border, behind `parent`, and shares the
 * most tokens with those given; of two that share as much the one of better provenance.  Its shared part can be
 * shared into d's sequence.  drive NULL: none. */
struct md_hot_match {
    const struct md_drive *drive;
    const md_token *tokens; /* of the block, borrowed until its tape changes */
    int32_t count, common;
    struct md_provenance provenance;
};
struct md_hot_match md_hot_best(const struct md_hot *h, const struct md_drive *d, struct md_key parent,
                                int32_t start, const md_token *tokens, int32_t count);

/* Is the block on the tape of another open conversation, hot or not? */
bool md_hot_is_wanted(const struct md_hot *h, const struct md_drive *d, const struct md_cold_ref *ref);

/* Invariants over all conversations, for asserts and tests. */
bool md_hot_check(const struct md_hot *h);

#endif
