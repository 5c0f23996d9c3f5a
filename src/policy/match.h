/* match.h - known blocks in new text, wherever they begin.  Pure: no engine, clock, lock or I/O.
 *
 * A prefix is found block by block from the start (prefix.h); this finds what was moved, quoted or stands behind
 * another beginning.  A window of one block rolls along the text, one content key a place (content.h).
 *
 * Threads: any; touches nothing but its arguments and what look_up touches. */
#ifndef MD_POLICY_MATCH_H
#define MD_POLICY_MATCH_H

#include "base/types.h"

/* block_tokens tokens of the text, from `start` on, that are known. */
struct md_match {
    int32_t start;
    const void *known; /* what look_up said */
};

/* Is a block with this content key and exactly these tokens (block_tokens of them) known?  NULL: no.  Compares the
 * tokens: a key alone is no proof.
 *
 * before  the match that ends where this block begins, or NULL: of several blocks with the same tokens the one
 *         that follows what matched there is to be preferred */
typedef const void *(*md_match_look_up)(void *user, uint64_t content, const md_token *tokens,
                                        const struct md_match *before);

/* Greedy from the left: the first place with a known block is a match, and the search goes on behind it.  So matches
 * do not overlap, and ascend.  Asks look_up at most once a place and hashes each token at most twice.
 *
 * text         count tokens, count at least 0
 * ret_matches  room for count / block_tokens of them; the first so many are written
 * Returns how many there are. */
size_t md_match_blocks(const md_token *text, int32_t count, int32_t block_tokens, md_match_look_up look_up,
                       void *user, struct md_match *ret_matches);

#endif
