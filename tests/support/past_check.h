/* past_check.h - what holds of conversations past the trained window, told by a second fake engine of the same weights.
 *
 * The fake engine is exact to the last bit, so there is nothing to tolerate. */
#ifndef MD_TESTS_PAST_CHECK_H
#define MD_TESTS_PAST_CHECK_H

#include "support/session_rig.h"

/* A pool with past_window on a model trained for so many tokens; fails the test when it does not open. */
void past_open(struct rig *r, struct md_pool_config config, unsigned caps_off, int32_t seq_count,
               int32_t trained_tokens);
/* Each block of the session that stands elsewhere than at its own place is, to the bit, what the cold store has of it moved
 * there once.  Fails the test; returns how many there are. */
int past_check_moved(const struct rig *r, struct md_session *s);
/* The last token of the last answer (r->last, of r->session) is the likeliest one over exactly the blocks that are hot, at
 * the places where they stand, each taken from its own bytes.  For answers that did not end by themselves. */
void past_check_answer(const struct rig *r);
/* The cold store must be at least so large for this. */
size_t past_least_cold(int32_t hot_tokens, int32_t block_tokens);

#endif
