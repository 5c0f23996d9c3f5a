/* move.h - moves of KV, one block at a time, between the engine, the cold store and other conversations.
 *
 * Each leaves the block's state, the engine and the store in agreement.  Which block moves is decided by drive.h (a plan),
 * room.h (somebody else needs its cells) or by hand (session.h).
 *
 * Errors of the engine unless said otherwise; the block is then as before.
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_MOVE_H
#define MD_SESSION_MOVE_H

#include "session/hot.h"

/* Move hot block i out of the engine: cold when it can be, else lost.  On failure it is hot as before.  Without
 * MD_CAP_REMOVE_MIDDLE all behind it leave as well, and all of the tape where there is a tail state alone (whole.h). */
MD_MUST_USE enum md_status md_move_evict(struct md_drive *d, size_t i, struct md_err *err);
/* Hold cold block i together with the conversation that has it hot.  *ret_done false: none has, or a better copy is
 * cold.  A piece of a block is shared as soon as it is on the tape: when the other one goes on or leaves, the store knows
 * it only as a part of something longer. */
MD_MUST_USE enum md_status md_move_share(struct md_drive *d, size_t i, bool *ret_done, struct md_err *err);
/* Bring cold block i from the store, to its place on the tape (`at` its range's start) or, past the trained window, to
 * another, from position `at` on: then its copy in the store is held for as long as it stands there.
 *
 * keep  a copy stays in the store in any case.  When it is gone or will not do, it is lost and the call succeeds. */
MD_MUST_USE enum md_status md_move_admit(struct md_drive *d, size_t i, int32_t at, bool keep,
                                         struct md_err *err);
/* Take hot block i out of its place, so that it can come in at another: it is cold then, its copy in the store is what it
 * was at its own place, and is held, whatever its class, until it has come or md_move_let_go.
 * *ret_kept false: there was no room for the copy, or nobody would use it; nothing was done. */
MD_MUST_USE enum md_status md_move_lift(struct md_drive *d, size_t i, bool *ret_kept, struct md_err *err);
/* No longer hold the copy of block i, which is not hot at another place than its own, or will not be. */
void md_move_let_go(struct md_drive *d, size_t i);
/* Compute lost block i again where it is.  *ret_done false: the block before it is not hot, or not at its own place, so
 * it cannot. */
MD_MUST_USE enum md_status md_move_recompute(struct md_drive *d, size_t i, bool *ret_done,
                                             struct md_err *err);
/* Copy hot block i to where it can be had when it has left: into the store, unless somebody has it as good.
 * *ret_kept false: there was no room. */
MD_MUST_USE enum md_status md_move_keep_copy(struct md_drive *d, size_t i, bool *ret_kept,
                                             struct md_err *err);
/* Take positions r out of the engine: from the middle, or as the tail.  States are the caller's. */
MD_MUST_USE enum md_status md_move_remove(struct md_drive *d, struct md_range r, struct md_err *err);
/* Empty the sequence: what is hot is lost. */
MD_MUST_USE enum md_status md_move_lose_hot(struct md_drive *d, struct md_err *err);
/* So many tokens of it were lost: told of a conversation, not of what is unseen. */
void md_move_count_dropped(struct md_drive *d, int32_t tokens);
/* Block i is nowhere any more. */
void md_move_lose(struct md_drive *d, size_t i);
/* Forget the cold copy of a block, unless another conversation has it on its tape. */
void md_move_drop_cold(struct md_drive *d, const struct md_cold_ref *ref);

/* All of them, and give the sequence back. */
MD_MUST_USE enum md_status md_move_leave(struct md_drive *d, struct md_err *err);

/* A call for its sequence failed with MD_SESSION_FATAL, so that its KV there is unknown: its hot blocks are lost, its
 * sequence is emptied or never used again, and the first cause is kept. */
void md_move_give_up(struct md_drive *d, const struct md_err *cause);

/* Cold blocks that nobody has any more are lost: say so.  Called before anything is planned or reported. */
void md_move_notice_lost(struct md_drive *d);

/* The same of all conversations, where anything was lost since each was looked at: before all are shown. */
void md_move_notice_all_lost(struct md_hot *h);

/* Note what became of positions r for the counters of the request. */
void md_move_mark(struct md_drive *d, struct md_range r, enum md_mark mark);

#endif
