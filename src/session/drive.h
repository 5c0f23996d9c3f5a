/* drive.h - the only place that moves KV: it makes engine, tape and cold store agree with a plan.
 *
 * Whatever happens, on return each block of the tape is what its state says: hot in the engine, cold in
 * the store, or lost.  An engine failure leaves the blocks moved so far where they are.
 *
 * Threads: one at a time (the session's). */
#ifndef MD_SESSION_DRIVE_H
#define MD_SESSION_DRIVE_H

#include "engine/engine.h"
#include "policy/residency.h"
#include "session/cold.h"
#include "session/tape.h"

/* What a request has moved; set by the session at its start. */
struct md_drive_request {
    uint8_t *marks; /* one byte per position of the prompt: bits of enum md_mark; borrowed */
    int32_t mark_count;
    int32_t computed_tokens; /* positions marked MD_MARK_COMPUTED so far */
    int32_t dropped_tokens;  /* lost while it ran */
    int64_t restore_ns, compute_ns;
};
enum md_mark { MD_MARK_COMPUTED = 1, MD_MARK_RESTORED = 2 };

struct md_drive {
    struct md_engine *engine; /* borrowed */
    md_seq seq;
    struct md_tape *tape; /* borrowed */
    struct md_cold *cold; /* borrowed */
    const struct md_alloc *alloc;
    struct md_stream_policy stream;
    struct md_residency_gate gate;
    int32_t hot_limit;
    struct md_drive_request request;
    int64_t evicted_blocks, restored_blocks, recomputed_blocks, dropped_blocks; /* since open */
};

/* Make the hot set what the planner wants while leaving `incoming` cells free for new tokens at the end.
 *
 * ret_lost_from  -1, or: the KV of a protected block is lost and cannot be computed in place, so the tape
 *                must be cut here and prefilled from here on
 * MD_NO_MEMORY   the plan, or protected blocks alone leave no room for `incoming`
 * others         from the engine */
MD_MUST_USE enum md_status md_drive_make_room(struct md_drive *d, int32_t incoming, int32_t *ret_lost_from,
                                              struct md_err *err);

/* The first `count` tokens are wanted now: their cold blocks shall not make way for what goes out next.  The later
 * ones count as used last, for they are the ones that come back. */
void md_drive_touch(struct md_drive *d, int32_t count);

/* Cut the tape at `count` or, where the engine cannot keep a part of a block or of a sequence, before it.
 * Everything behind goes cold (each block whole, the last piece too), so that its branch of the history can
 * come back. */
MD_MUST_USE enum md_status md_drive_cut(struct md_drive *d, int32_t count, struct md_err *err);

/* Lengthen the tape with what the cold store knows of a prompt whose prefix it is, as cold blocks; only a last
 * block that is known in part comes in, to be cut.  Nothing at or behind `limit` is taken.
 * Errors of the engine, MD_NO_MEMORY: the tape is valid, but may no longer be a prefix of the prompt. */
MD_MUST_USE enum md_status md_drive_extend(struct md_drive *d, const md_token *prompt, int32_t limit,
                                           struct md_err *err);

/* Cold blocks that the store let go are lost: say so.  Called before anything is planned or reported. */
void md_drive_notice_lost(struct md_drive *d);

/* Note what became of positions r for the counters of the request. */
void md_drive_mark(struct md_drive *d, struct md_range r, enum md_mark mark);

/* Tokens that may be hot besides the protected ones: what a chunk can count on. */
int32_t md_drive_free_tokens(const struct md_drive *d);

/* Invariants of the three, for asserts and tests. */
bool md_drive_check(const struct md_drive *d);

#endif
