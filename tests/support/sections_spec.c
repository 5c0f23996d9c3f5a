/* sections_spec.c - see sections_spec.h. */
#include "support/sections_spec.h"

#include "host/sections_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum { FILE_LIMIT_BYTES = 64 << 20 };

const uint32_t ss_known[4] = { SS_TYPE("TAPE"), SS_TYPE("KVKV"), SS_TYPE("META"), SS_TYPE("A  B") };

static void add(struct sections_spec *f, const void *data, size_t len)
{
    const enum md_status s = md_buf_append(&f->buf, data, len, NULL);
    assert(s == MD_OK);
    (void)s;
}

/* Of a section that lies at p: type, flags and length, then the payload behind the hash. */
static uint64_t hash_of(const uint8_t *p, size_t payload_bytes)
{
    uint8_t *whole = malloc(16 + payload_bytes);
    assert(whole != NULL);
    memcpy(whole, p, 16);
    memcpy(whole + 16, p + SS_HEAD_BYTES, payload_bytes);
    const uint64_t hash = XXH3_64bits(whole, 16 + payload_bytes);
    free(whole);
    return hash;
}

void ss_begin(struct sections_spec *f, uint32_t version, uint32_t kind)
{
    static const uint8_t reserved[16];
    *f = (struct sections_spec){ 0 };
    md_buf_init(&f->buf, NULL, FILE_LIMIT_BYTES);
    add(f, "modeldkv", 8);
    add(f, &version, 4);
    add(f, &kind, 4);
    add(f, reserved, sizeof reserved);
}

void ss_section(struct sections_spec *f, const char *type, uint32_t flags, const void *data, size_t len)
{
    const uint64_t bytes = len, none = 0;
    const size_t at = f->buf.len;
    add(f, type, 4);
    add(f, &flags, 4);
    add(f, &bytes, 8);
    add(f, &none, 8);
    if (len > 0)
        add(f, data, len);
    while (f->buf.len % 8 != 0)
        add(f, "", 1);
    const uint64_t hash = hash_of(f->buf.data + at, len);
    memcpy(f->buf.data + at + 16, &hash, 8);
    f->count++;
}

void ss_end(struct sections_spec *f)
{
    const XXH128_hash_t all = XXH3_128bits(f->buf.data, f->buf.len);
    const uint64_t payload[3] = { f->count, all.low64, all.high64 };
    ss_section(f, "END ", 0, payload, sizeof payload);
}

void ss_done(struct sections_spec *f)
{
    md_buf_done(&f->buf);
}

void ss_reseal(uint8_t *file, size_t len)
{
    size_t at = SS_HEADER_BYTES;
    const size_t end_at = len - SS_END_BYTES;
    uint64_t payload[3] = { 0 }, hash;
    const uint64_t end_payload_bytes = sizeof payload;
    assert(len >= SS_HEADER_BYTES + SS_END_BYTES && len % 8 == 0);
    while (at + SS_HEAD_BYTES <= end_at) {
        uint64_t bytes;
        memcpy(&bytes, file + at + 8, 8);
        if (bytes > end_at - at - SS_HEAD_BYTES)
            break;
        hash = hash_of(file + at, bytes);
        memcpy(file + at + 16, &hash, 8);
        for (at += SS_HEAD_BYTES + bytes; at % 8 != 0; at++)
            file[at] = 0;
        payload[0]++;
    }
    const XXH128_hash_t all = XXH3_128bits(file, end_at);
    payload[1] = all.low64;
    payload[2] = all.high64;
    memcpy(file + end_at, "END \0\0\0\0", 8);
    memcpy(file + end_at + 8, &end_payload_bytes, 8);
    memcpy(file + end_at + SS_HEAD_BYTES, payload, sizeof payload);
    hash = hash_of(file + end_at, sizeof payload);
    memcpy(file + end_at + 16, &hash, 8);
}

enum md_status ss_open_bytes(const void *data, size_t len, struct md_sections_reader **ret_reader,
                             int *ret_fd, struct md_err *err)
{
    const struct md_sections_path path = { "memory" };
    const int fd = memfd_create("sections", MFD_CLOEXEC);
    assert(fd >= 0);
    const ssize_t n = len == 0 ? 0 : pwrite(fd, data, len, 0);
    assert(n == (ssize_t)len);
    (void)n;
    const int other = ret_fd != NULL ? dup(fd) : -1;
    const enum md_status s =
        md_sections_open_fd(NULL, fd, &path, SS_KIND, ss_known, sizeof ss_known / sizeof ss_known[0],
                            FILE_LIMIT_BYTES, ret_reader, err);
    if (ret_fd != NULL)
        *ret_fd = other;
    return s;
}

enum md_status ss_read_all(struct md_sections_reader *r, size_t piece_bytes, struct sections_spec *ret_file,
                           struct md_err *err)
{
    struct sections_spec f;
    uint32_t type = 0;
    int64_t bytes = 0;
    ss_begin(&f, 1, SS_KIND);
    enum md_status s = md_sections_next(r, &type, &bytes, err);
    while (s == MD_OK && type != 0) {
        uint8_t *payload = malloc((size_t)bytes + 1);
        char text[5];
        assert(payload != NULL && bytes >= 0 && bytes <= FILE_LIMIT_BYTES);
        snprintf(text, sizeof text, "%c%c%c%c", (char)type, (char)(type >> 8), (char)(type >> 16),
                 (char)(type >> 24));
        for (size_t at = 0, n; s == MD_OK && at < (size_t)bytes; at += n) {
            n = (size_t)bytes - at < piece_bytes ? (size_t)bytes - at : piece_bytes;
            s = md_sections_read(r, payload + at, n, err);
        }
        if (s == MD_OK) {
            ss_section(&f, text, 0, payload, (size_t)bytes);
            s = md_sections_next(r, &type, &bytes, err);
        }
        free(payload);
    }
    if (s != MD_OK) {
        ss_done(&f);
        return s;
    }
    ss_end(&f);
    *ret_file = f;
    return MD_OK;
}
