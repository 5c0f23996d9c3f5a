/* llama_blob.h - what stands in front of exported KV, so that the library never sees a byte that it did not
 * write: of which range and engine the bytes are, and a checksum.
 *
 * Threads: any. */
#ifndef MD_ADAPTERS_LLAMA_BLOB_H
#define MD_ADAPTERS_LLAMA_BLOB_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"

enum { MD_LLAMA_BLOB_HEADER_BYTES = 40 };
enum md_llama_blob {
    MD_LLAMA_BLOB_RANGE, /* KV of the positions of r */
    MD_LLAMA_BLOB_STATE  /* a tail state: r is [at, at) */
};

/* Fill in the header at `blob`; `payload_bytes` of the library's stand behind it. */
void md_llama_blob_seal(uint8_t *blob, enum md_llama_blob kind, size_t payload_bytes, struct md_range r,
                        uint64_t identity_hash);
/* Everything that can be wrong with kv, before the library sees any of it.
 *
 * payload_bytes  that an export of r has, or the most that a state has
 * MD_CORRUPT     not as it was written, or of the other kind
 * MD_INVALID     of another range, or of an engine with another identity */
MD_MUST_USE enum md_status md_llama_blob_check(struct md_bytes kv, enum md_llama_blob kind,
                                               size_t payload_bytes, struct md_range r,
                                               uint64_t identity_hash, struct md_err *err);

#endif
