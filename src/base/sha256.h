/* sha256.h - SHA-256 as lower-case hex: the digests other programs compare with theirs.  libcrypto's.
 *
 * Threads: an object belongs to one thread at a time. */
#ifndef MD_BASE_SHA256_H
#define MD_BASE_SHA256_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MD_SHA256_HEX = 64 };

struct md_sha256 {
    void *ctx;
    bool failed;
};

/* Neither can fail here: what went wrong is told by finish, which must follow. */
void md_sha256_init(struct md_sha256 *h);
void md_sha256_update(struct md_sha256 *h, const void *data, size_t len);
/* ret_hex  64 digits and a NUL; frees what init took, whatever it returns
 * MD_NO_MEMORY  the library could not take or start its state (it has the C heap only) */
MD_MUST_USE enum md_status md_sha256_finish(struct md_sha256 *h, char ret_hex[MD_SHA256_HEX + 1],
                                            struct md_err *err);

/* All three for bytes that lie in one piece. */
MD_MUST_USE enum md_status md_sha256_hex(struct md_bytes data, char ret_hex[MD_SHA256_HEX + 1],
                                         struct md_err *err);

#ifdef __cplusplus
}
#endif
#endif
