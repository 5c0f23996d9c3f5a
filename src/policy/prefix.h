/* prefix.h - what of a prompt is already known.  Pure: no engine, clock, lock or I/O.
 *
 * A tape is cut into blocks of block_tokens.  The chain key of a block hashes the chain key of the block
 * before it and its own tokens, from a root that names everything KV depends on (model, engine, KV type,
 * RoPE, adapters): equal chain keys mean the same text before and in the block, under the same model.
 *
 * Source: vLLM's prefix caching (hash of parent hash and block tokens); hash: XXH3 128 bit (xxhash.com). */
#ifndef MD_POLICY_PREFIX_H
#define MD_POLICY_PREFIX_H

#include "base/types.h"

/* Length of the longest common prefix. */
size_t md_prefix_common(const md_token *a, size_t a_count, const md_token *b, size_t b_count);

/* Root key from an identity string (md_engine_info.identity). */
struct md_key md_prefix_root(const char *identity);
/* What checkpoints of the state behind `parent` hang from: a key that no block has for its parent. */
struct md_key md_prefix_state_parent(struct md_key parent);
/* Chain key of a block from its parent's and its tokens. */
struct md_key md_prefix_chain(struct md_key parent, const md_token *tokens, size_t count);

#endif
