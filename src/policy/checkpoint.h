/* checkpoint.h - where in a text the tail state of a model is saved (engine/engine.h).  Pure.
 *
 * A cut, an edit, a switch or a restart goes back to the nearest checkpoint before it and computes the rest again, so the
 * distance between two says what that costs at most; each takes a window's worth of memory, so there are not more than
 * that needs.  Ends of segments are where texts are cut and edited: they are taken instead of a place in the middle of one,
 * when the last checkpoint is not just before them.
 *
 * Threads: any; touches nothing but its arguments.  Source: the rules are this project's. */
#ifndef MD_POLICY_CHECKPOINT_H
#define MD_POLICY_CHECKPOINT_H

#include "base/types.h"

enum { MD_CHECKPOINT_TOKENS = 512 }; /* between two, when nothing else is asked for */

/* What an end of a segment, or of a turn, must lie behind the last one for its own. */
static inline int32_t md_checkpoint_least(int32_t distance)
{
    return distance / 4 + (distance % 4 != 0);
}

/* The first position behind `from`, up to `limit`, at which one is due; else limit.
 *
 * last      the checkpoint before or at `from`; 0: none
 * distance  the most tokens between two, at least 1; an end of a segment counts from md_checkpoint_least on
 * ends      `count` ends of segments, ascending */
int32_t md_checkpoint_next(int32_t last, int32_t from, int32_t limit, int32_t distance, const int32_t *ends,
                           size_t count);

#endif
