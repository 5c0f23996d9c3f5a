/* kv_blob.h - what stands in front of exported KV, so that an adapter never takes in a byte that it did not
 * write: of which range and engine the bytes are, and a checksum.  For adapters.
 *
 * Threads: any. */
#ifndef MD_ENGINE_KV_BLOB_H
#define MD_ENGINE_KV_BLOB_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"

enum { MD_KV_BLOB_HEADER_BYTES = 40 };
enum md_kv_blob {
    MD_KV_BLOB_RANGE, /* KV of the positions of r */
    MD_KV_BLOB_STATE  /* a tail state: r is [at, at) */
};

/* Fill in the header at `blob`; `payload_bytes` stand behind it. */
void md_kv_blob_seal(uint8_t *blob, enum md_kv_blob kind, size_t payload_bytes, struct md_range r,
                     uint64_t identity_hash);
/* Everything that can be wrong with kv, before any of it is used.
 *
 * payload_bytes  that an export of r has, or the most that a state has
 * MD_CORRUPT     not as it was written, or of the other kind
 * MD_INVALID     of another range, or of an engine with another identity */
MD_MUST_USE enum md_status md_kv_blob_check(struct md_bytes kv, enum md_kv_blob kind, size_t payload_bytes,
                                            struct md_range r, uint64_t identity_hash, struct md_err *err);

#endif
