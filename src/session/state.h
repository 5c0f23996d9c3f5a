/* state.h - checkpoints of a conversation: tail states (engine.h) in the cold store, and the way back to them.
 *
 * On an engine with MD_CAP_CHECKPOINT a tape can go on only where the engine holds the state of its end, or where one was
 * saved.  A checkpoint is an entry of the cold store like a block, named by the text before it (policy/prefix.h:
 * md_prefix_state_parent), so that whatever has that text finds it; it takes part in the budget, goes to disk and comes
 * back as a block does.  On other engines all of this does nothing.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_STATE_H
#define MD_SESSION_STATE_H

#include "session/hot.h"

bool md_state_is_kept(const struct md_hot *h);

/* Save the state of the tape's end, where the engine holds it; on the disk too, when there is one.  Without room it is not
 * kept.  Errors of the engine. */
MD_MUST_USE enum md_status md_state_save(struct md_drive *d, struct md_err *err);

/* The last position, at most `count`, at which the tape can go on: one that the engine can be cut at now, or that has a
 * checkpoint; 0: none.  count: at most the tape's. */
int32_t md_state_before(struct md_drive *d, int32_t count);

/* The last that was saved, likewise. */
int32_t md_state_saved_before(struct md_drive *d, int32_t count);
/* Does the engine hold the whole end of the tape, and can it be cut at `count` and go on at once? */
bool md_state_can_cut(const struct md_drive *d, int32_t count);

/* Of a prompt whose first tokens the tape is, the tokens of the block that begins at `start` up to the last checkpoint in
 * it: 0: none.  parent: the chain key before the block; tokens: `count` of the prompt from `start` on. */
int32_t md_state_within(const struct md_hot *h, struct md_key parent, int32_t start, const md_token *tokens,
                        int32_t count);

/* Of a prompt whose first tokens the tape is, as far as it can go on from: the last checkpoint, up to `limit`, before which
 * all blocks are known too, where there are any; the tape's own count where that is no further. */
int32_t md_state_ahead(struct md_drive *d, const md_token *prompt, int32_t limit);

/* Make the engine hold the state of the tape's end: the blocks it needs are hot or, where the state is all there is, the
 * sequence is empty.
 * ret_cut  -1; or there is no such state (any more): the tape must be cut here and computed from here on */
MD_MUST_USE enum md_status md_state_arm(struct md_drive *d, int32_t *ret_cut, struct md_err *err);

/* Append the state saved at position `at` of the tape to ret, or that of its end from the engine.  MD_NOT_FOUND, MD_CORRUPT,
 * MD_NO_MEMORY, MD_IO; errors of the engine */
MD_MUST_USE enum md_status md_state_read(struct md_drive *d, int32_t at, struct md_buf *ret,
                                         struct md_err *err);

/* Forget those that lie in block i, and those that lie behind position `from`; but for what other conversations have on
 * their tapes too. */
void md_state_drop(struct md_drive *d, size_t i);
void md_state_drop_behind(struct md_drive *d, int32_t from);

/* The name of the checkpoint at position `at` > 0 of a tape: borrowed from it until it changes. */
struct md_cold_ref md_state_ref(struct md_tape *t, int32_t at);

#endif
