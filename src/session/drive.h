/* drive.h - the only place that moves KV: it makes engine, tape and cold store agree with a plan.
 *
 * One drive belongs to one conversation.  Whatever happens, on return each block of its tape is what its state
 * says: hot in its sequence of the engine; cold, which means in the cold store or hot in another conversation;
 * or lost.  An engine failure leaves the blocks moved so far where they are.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_DRIVE_H
#define MD_SESSION_DRIVE_H

#include "session/hot.h"
#include "session/tape.h"

/* What a request has moved; set by the session at its start. */
struct md_drive_request {
    uint8_t *marks; /* one byte per position of the prompt: bits of enum md_mark; borrowed */
    int32_t mark_count;
    int32_t computed_tokens; /* positions marked MD_MARK_COMPUTED so far */
    int32_t dropped_tokens;  /* lost while it ran */
    int64_t restore_ns, compute_ns;
};
enum md_mark { MD_MARK_COMPUTED = 1, MD_MARK_RESTORED = 2, MD_MARK_MOVED = 4 };

struct md_drive {
    struct md_hot *hot; /* borrowed */
    struct md_drive *next;
    md_seq seq;           /* -1: nothing of it is in the engine */
    int64_t last_live;    /* hot->clock of its last turn */
    struct md_tape *tape; /* borrowed */
    /* Classes of the blocks of the prompt that is on its way, for blocks still to come; borrowed. */
    const enum md_cache_class *classes;
    size_t class_count;
    struct md_drive_request request;
    int64_t evicted_blocks, restored_blocks, shared_blocks, recomputed_blocks,
        dropped_blocks;   /* since open */
    int64_t moved_tokens; /* restored at another place, since open */
    int32_t pinned_cold,
        protected_tokens; /* of the last plan: task-pinned ones that found no room; protected ones */
    struct md_err fatal;  /* why it was given up; status MD_OK: it was not */
    uint64_t changes;     /* counts changes of states: whoever shows them looks again */
};

void md_drive_open(struct md_drive *d, struct md_hot *hot, struct md_tape *tape);
/* Let go of all it holds.  keep: its hot blocks go cold, as those always do that other conversations have on
 * their tapes; without, they and its cold ones are dropped.  Accepts one that was never opened. */
void md_drive_close(struct md_drive *d, bool keep);

/* A call for its sequence failed with MD_SESSION_FATAL, so that its KV there is unknown: its hot blocks are lost, its
 * sequence is emptied or never used again, and the first cause is kept. */
void md_drive_give_up(struct md_drive *d, const struct md_err *cause);

/* Begin a turn: it is the live one from now on, and has a sequence.  Errors as md_hot_take_sequence. */
MD_MUST_USE enum md_status md_drive_begin(struct md_drive *d, struct md_err *err);

/* Make the hot set what the planner wants while leaving `incoming` cells free for new tokens at the end.
 *
 * ret_lost_from  -1, or: the KV of a protected block is lost and cannot be computed in place, so the tape
 *                must be cut here and prefilled from here on
 * MD_NO_MEMORY   the plan, or protected blocks alone leave no room for `incoming`
 * others         from the engine */
MD_MUST_USE enum md_status md_drive_make_room(struct md_drive *d, int32_t incoming, int32_t *ret_lost_from,
                                              struct md_err *err);

/* Hold the last block, a cold one, together with a conversation that has it hot.  A piece of a block is shared as soon
 * as it is on the tape: when the other one goes on or leaves, the store knows it only as a part of something longer.
 * No effect when none has it.  Errors of the engine: it is cold as before. */
MD_MUST_USE enum md_status md_drive_share_last(struct md_drive *d, struct md_err *err);

/* Has it this block hot? */
bool md_drive_has_hot(const struct md_drive *d, const struct md_cold_ref *ref);
/* Move hot block i out of the engine: cold when it can be, else lost.  On failure it is hot as before.  Without
 * MD_CAP_REMOVE_MIDDLE all behind it leave as well. */
MD_MUST_USE enum md_status md_drive_evict(struct md_drive *d, size_t i, struct md_err *err);
/* All of them, and give the sequence back. */
MD_MUST_USE enum md_status md_drive_leave(struct md_drive *d, struct md_err *err);

/* The first `count` tokens are wanted now: their cold blocks shall not make way for what goes out next.  The later
 * ones count as used last, for they are the ones that come back. */
void md_drive_touch(struct md_drive *d, int32_t count);

/* Cut the tape at `count` or, where the engine cannot keep a part of a block or of a sequence, before it.
 *
 * keep  everything behind goes cold (each block whole, the last piece too), so that its branch of the history can
 *       come back; without, its KV is dropped wherever it is, unless another conversation has it too */
MD_MUST_USE enum md_status md_drive_cut(struct md_drive *d, int32_t count, bool keep, struct md_err *err);

/* Tokens that the engine has just computed join the tape, in reserved room, at its end.  Nothing was moved since,
 * so what they attended is what is hot.  With write-through, blocks that they make whole are copied; where that
 * fails they are hot all the same.  MD_SESSION_FATAL: the copying failed so. */
MD_MUST_USE enum md_status md_drive_append_computed(struct md_drive *d, const md_token *tokens, int32_t count,
                                                    struct md_err *err);

/* Cold blocks that nobody has any more are lost: say so.  Called before anything is planned or reported. */
void md_drive_notice_lost(struct md_drive *d);

/* Note what became of positions r for the counters of the request. */
void md_drive_mark(struct md_drive *d, struct md_range r, enum md_mark mark);

/* Tokens that may be hot besides the protected ones: what a chunk can count on.  At least one block, when the hot
 * set can evict, for task-pinned blocks give way in the end. */
int32_t md_drive_free_tokens(const struct md_drive *d);

/* Invariants of the three, for asserts and tests. */
bool md_drive_check(const struct md_drive *d);

#endif
