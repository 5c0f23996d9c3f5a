/* attention_check.h - what tests do with queries and keys: copies, distances, and the softmax of their products.
 *
 * All assert with libcheck; what they return is the caller's to free. */
#ifndef MD_TESTS_ATTENTION_CHECK_H
#define MD_TESTS_ATTENTION_CHECK_H

#include "base/mem.h"
#include "engine/attention.h"
#include "engine/engine.h"

enum { MD_CHECK_LAYERS_MAX = 64 };

/* Which layers can be watched: how many, in rising order. */
int32_t md_check_watchable(const struct md_engine *e, int32_t layers[MD_CHECK_LAYERS_MAX]);
/* Queries of the last call, which must be of [start, start + rows): rows * heads * length floats. */
float *md_check_queries(struct md_engine *e, int32_t layer, int32_t start, int32_t rows);
/* Keys of one layer in an export of r: [key head][position][number]. */
float *md_check_keys(const struct md_engine *e, struct md_range r, const struct md_buf *kv, int32_t layer);
/* The largest difference of two numbers, as a share of the second where that is above 1. */
float md_check_apart(const float *a, const float *b, size_t count);
/* How one head of a token, whose queries stand at `query` (all heads), shares its attention among the `tokens` positions
 * whose keys are given: ret sums to 1. */
void md_check_shares(const struct md_attention_layer *l, const float *query, int32_t head, const float *keys,
                     int32_t tokens, double *ret);

#endif
