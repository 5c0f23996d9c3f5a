/* drive.h - makes engine, tape and cold store agree with a plan; with move.h, and reuse.h for text from elsewhere, the
 * only place that moves KV.
 *
 * One drive belongs to one conversation.  Whatever happens, on return each block of its tape is what its state
 * says: hot in its sequence of the engine; cold, which means in the cold store or hot in another conversation;
 * or lost.  An engine failure leaves the blocks moved so far where they are.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_DRIVE_H
#define MD_SESSION_DRIVE_H

#include "session/move.h"

void md_drive_open(struct md_drive *d, struct md_hot *hot, struct md_tape *tape);
/* Let go of all it holds.  keep: its hot blocks go cold, as those always do that other conversations have on
 * their tapes; without, they and its cold ones are dropped.  Accepts one that was never opened. */
void md_drive_close(struct md_drive *d, bool keep);

/* Begin a turn: it is the live one from now on, and has a sequence.  Errors as md_room_take_sequence. */
MD_MUST_USE enum md_status md_drive_begin(struct md_drive *d, struct md_err *err);

/* Make the hot set what the planner wants while leaving `incoming` cells free for new tokens at the end.  Past the trained
 * window (md_hot.past_window) each block of it is put where those tokens are near enough to it (policy/rebase.h); of what
 * must be moved for that, and cannot be kept in the cold store, what is not protected leaves and is lost.
 *
 * Where there is a tail state alone (whole.h) everything is wanted, and comes with the state of the tape's end.
 *
 * ret_lost_from  -1, or: the KV of a protected block is lost and cannot be computed in place, so the tape
 *                must be cut here and prefilled from here on; for one that its class alone protects once in
 *                a turn, and not while it answers: then it stays lost
 * MD_NO_MEMORY   the plan, or protected blocks alone leave no room for `incoming`; or a protected block must be moved,
 *                and the cold store has no room for what it was: it stays where it is
 * others         from the engine */
MD_MUST_USE enum md_status md_drive_make_room(struct md_drive *d, int32_t incoming, int32_t *ret_lost_from,
                                              struct md_err *err);

/* The first `count` tokens are wanted now: their cold blocks shall not make way for what goes out next.  The later
 * ones count as used last, for they are the ones that come back. */
void md_drive_touch(struct md_drive *d, int32_t count);

/* Cut the tape at `count` or, where the engine cannot keep a part of a block or of a sequence, before it: on engines with
 * a tail state at the last position before it that the engine can go on from (state.h).
 *
 * keep  everything behind goes cold (each block whole, the last piece too), so that its branch of the history can
 *       come back; without, its KV is dropped wherever it is, unless another conversation has it too */
MD_MUST_USE enum md_status md_drive_cut(struct md_drive *d, int32_t count, bool keep, struct md_err *err);

/* Cut it at `count` exactly, on an engine with a tail state beside KV of positions, and go on from `state`, which is that of
 * `count` (md_state_read): what is cut off is dropped.  0 < count < the tape's; the block before it is hot, as it was when
 * the state was taken.  After an error other than MD_SESSION_FATAL the tape is as before. */
MD_MUST_USE enum md_status md_drive_cut_rewound(struct md_drive *d, int32_t count, struct md_bytes state,
                                                struct md_err *err);

/* Cut it, keeping what falls off, at a position that it will go on from only after more of it has come (reuse.h): no
 * checkpoint is looked for. */
MD_MUST_USE enum md_status md_drive_cut_known(struct md_drive *d, int32_t count, struct md_err *err);

/* Tokens that the engine has just computed join the tape, in reserved room, at its end.  Nothing was moved since,
 * so what they attended is what is hot.  With write-through, blocks that they make whole are copied; where that
 * fails they are hot all the same.  MD_SESSION_FATAL: the copying failed so. */
MD_MUST_USE enum md_status md_drive_append_computed(struct md_drive *d, const md_token *tokens, int32_t count,
                                                    struct md_err *err);

/* Can `more` tokens be evaluated at the end of the tape over what is hot now?  Past the trained window they may be too far
 * from some of it: then md_drive_make_room first. */
bool md_drive_reaches(const struct md_drive *d, int32_t more);

/* The class of block i of the prompt that is on its way. */
enum md_cache_class md_drive_class(const struct md_drive *d, size_t i);
/* And whether it is held out by hand. */
bool md_drive_holds_out(const struct md_drive *d, size_t i);

/* Tokens that may be hot besides the protected ones: what a chunk can count on.  At least one block, when the hot
 * set can evict, for task-pinned blocks give way in the end. */
int32_t md_drive_free_tokens(const struct md_drive *d);

/* Invariants of engine, tapes and store over all conversations, for asserts and tests. */
bool md_drive_check_all(const struct md_hot *h);

#endif
