/* content.h - names of blocks by what they say alone.  Pure: no engine, clock, lock or I/O.
 *
 * A chain key (prefix.h) names a block behind one text; a content key names its tokens wherever they stand, and can be
 * rolled along a text one token at a time.  Equal keys are a hint, never a proof: whoever finds one compares the
 * tokens.  The hash has no secret: a text can be made whose blocks collide, which costs comparisons and nothing else.
 *
 * Threads: any; touches nothing but its arguments.
 * Source: Karp and Rabin 1987, polynomial over the prime 2^61 - 1. */
#ifndef MD_POLICY_CONTENT_H
#define MD_POLICY_CONTENT_H

#include "base/types.h"

/* Key of so many tokens; below 2^61. */
uint64_t md_content_key(const md_token *tokens, size_t count);

/* The key of `count` tokens that move along a text. */
struct md_content_roller {
    uint64_t key;    /* of the tokens under it */
    uint64_t weight; /* of the first of them */
};
/* count at least 1 (assert) */
struct md_content_roller md_content_roll_start(const md_token *tokens, size_t count);
/* One token on: `out` was the first, `in` becomes the last. */
void md_content_roll(struct md_content_roller *r, md_token out, md_token in);

#endif
