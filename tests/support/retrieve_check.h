/* retrieve_check.h - conversations far past their hot set on a model whose attention looks up equal tokens (lookup_model.h).
 *
 * In each of many places a block stands that has a token which stands nowhere else.  A question of that token must bring exactly
 * that block, one of tokens that stand everywhere else must not, and one of two such tokens must bring both blocks, in whichever
 * order they are asked for.  Asserts with libcheck. */
#ifndef MD_TESTS_RETRIEVE_CHECK_H
#define MD_TESTS_RETRIEVE_CHECK_H

#include "engine/engine.h"

enum { MD_RETRIEVE_CHECK_CELLS = 256 };

/* e  runs the lookup model with MD_RETRIEVE_CHECK_CELLS cells, and gives scores of attention; empty, stays the caller's */
void md_retrieve_check(struct md_engine *e, const char *name);

#endif
