/* block_meta.h - what a file says of a block besides its tokens and KV: 64 bytes, little-endian.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_SESSION_BLOCK_META_H
#define MD_SESSION_BLOCK_META_H

#include "policy/coldstore.h"

enum { MD_BLOCK_META_BYTES = 64 };

/* Key, parent, start, token_count, class, provenance and kind of an entry. */
void md_block_meta_write(const struct md_cold_entry *e, uint8_t out[MD_BLOCK_META_BYTES]);
/* False: values that no block has; e is then of no use. */
bool md_block_meta_read(const uint8_t in[MD_BLOCK_META_BYTES], struct md_cold_entry *e);

#endif
