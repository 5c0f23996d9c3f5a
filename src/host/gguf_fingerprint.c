/* gguf_fingerprint.c - telling two files of weights apart. */
#include "host/gguf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static enum md_status hash_file(const char *path, uint8_t *buf, size_t buf_bytes, uint64_t *hash,
                                struct md_err *err)
{
    enum md_status s = MD_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    for (ssize_t n = 1; n != 0 && s == MD_OK;) {
        n = fd < 0 ? -1 : read(fd, buf + have, buf_bytes - have);
        if (n < 0 && errno != EINTR)
            s = md_fail(err, MD_IO, "read model '%.300s': %s", path, strerror(errno));
        have += n > 0 ? (size_t)n : 0;
        if (s == MD_OK && (n == 0 || have == buf_bytes)) {
            *hash = XXH3_64bits_withSeed(buf, have, *hash);
            have = 0;
        }
    }
    if (fd >= 0)
        close(fd);
    return s;
}

enum md_status md_gguf_fingerprint(const struct md_gguf *f, uint64_t *ret_hash, struct md_err *err)
{
    enum { CHUNK_BYTES = 1 << 20 };
    const size_t path_bytes = strlen(f->path) + 1;
    uint8_t *buf = md_calloc(f->alloc, CHUNK_BYTES + path_bytes, 1);
    char *path = (char *)buf + CHUNK_BYTES;
    uint64_t hash = (uint64_t)md_gguf_file_bytes(f);
    if (buf == NULL)
        return md_fail(err, MD_NO_MEMORY, "read model '%.300s'", f->path);
    memcpy(path, f->path, path_bytes);
    enum md_status s = hash_file(path, buf, CHUNK_BYTES, &hash, err);
    for (int32_t i = 1; i < f->part_count && s == MD_OK; i++) {
        md_gguf_part_path(f->path, i, f->part_count, path);
        s = hash_file(path, buf, CHUNK_BYTES, &hash, err);
    }
    md_free(f->alloc, buf);
    if (s == MD_OK)
        *ret_hash = hash;
    return s;
}

void md_gguf_key(uint64_t hash, int64_t file_bytes, char out[MD_GGUF_KEY_BYTES])
{
    snprintf(out, MD_GGUF_KEY_BYTES, "gguf %016" PRIx64 " %" PRId64, hash, file_bytes);
}
