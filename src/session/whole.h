/* whole.h - conversations on engines where the tail state is all there is (md_engine_info.tail_only: recurrent layers
 * alone), which have no KV of blocks.
 *
 * Such a tape is hot as a whole or not at all: the state of its end covers all before it, and there is no hot set to plan.
 * What is not hot is cold as far as its last checkpoint (state.h) reaches, and lost behind that.  It leaves by saving its
 * state and comes back by putting one on an empty sequence.
 *
 * Each leaves the states of the blocks, the engine and the store in agreement.  Errors of the engine; MD_NO_MEMORY.
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_WHOLE_H
#define MD_SESSION_WHOLE_H

#include "session/hot.h"

bool md_whole_is_all(const struct md_hot *h);

/* Out of the engine; its state is saved where there is room for it. */
MD_MUST_USE enum md_status md_whole_evict(struct md_drive *d, struct md_err *err);
/* Room for `incoming` more, and all of the tape in the engine.
 * ret_cut  as md_state_arm */
MD_MUST_USE enum md_status md_whole_make_room(struct md_drive *d, int32_t incoming, int32_t *ret_cut,
                                              struct md_err *err);
/* As md_drive_cut: at the last position up to `count` that it can go on from. */
MD_MUST_USE enum md_status md_whole_cut(struct md_drive *d, int32_t count, bool keep, struct md_err *err);
/* As md_reuse_extend: to the furthest checkpoint of the prompt up to `limit`, as cold.  In reserved room. */
MD_MUST_USE enum md_status md_whole_extend(struct md_drive *d, const md_token *prompt, int32_t limit,
                                           struct md_err *err);
/* Cold blocks that no checkpoint reaches any more are lost. */
void md_whole_notice_lost(struct md_drive *d);

#endif
