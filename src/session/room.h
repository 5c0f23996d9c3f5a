/* room.h - sequences and cells for the conversation that is live, at the cost of those that are not.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_ROOM_H
#define MD_SESSION_ROOM_H

#include "session/hot.h"

/* Give d a sequence: a free one, or else that of the conversation that was live longest ago, whose KV goes cold.
 * MD_NO_MEMORY: every other one has lost its sequence for good.  Others: from the engine. */
MD_MUST_USE enum md_status md_room_take_sequence(struct md_hot *h, struct md_drive *d, struct md_err *err);

/* Make sure that `need` cells are free within the limit, at the cost of conversations other than `live`.
 * MD_NO_MEMORY: all of theirs are gone and it is not enough. */
MD_MUST_USE enum md_status md_room_make_cells(struct md_hot *h, const struct md_drive *live, int32_t need,
                                              struct md_err *err);

#endif
