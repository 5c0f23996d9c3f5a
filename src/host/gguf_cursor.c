/* gguf_cursor.c - bytes of a GGUF file, one behind the other, and the words when they are not there. */
#include "host/gguf_internal.h"

#include "base/utf8.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SHOWN = 150 };

void md_gguf_cursor_init(struct md_gguf_cursor *c, int fd, const char *path, uint64_t at, uint64_t end,
                         const char *end_of)
{
    c->fd = fd;
    c->path = path;
    c->at = at;
    c->end = end;
    c->end_of = end_of;
    c->kind = c->name = NULL;
    c->index = 0;
    c->held_at = c->held = 0;
}

uint64_t md_gguf_left(const struct md_gguf_cursor *c)
{
    return c->at < c->end ? c->end - c->at : 0;
}

enum md_status md_gguf_fail(const struct md_gguf_cursor *c, uint64_t at, enum md_status status,
                            struct md_err *err, const char *fmt, ...)
{
    char text[220], subject[90] = "", name[64];
    const size_t path_len = strlen(c->path);
    const char *path = path_len > PATH_SHOWN ? c->path + path_len - PATH_SHOWN : c->path;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (c->kind != NULL && c->name != NULL) {
        md_gguf_escape(name, sizeof name, c->name, strlen(c->name));
        snprintf(subject, sizeof subject, "%s '%s': ", c->kind, name);
    } else if (c->kind != NULL) {
        snprintf(subject, sizeof subject, "%s %" PRIu64 ": ", c->kind, c->index);
    }
    return md_fail(err, status, "%s%s (byte %" PRIu64 " of '%s%s')", subject, text, at,
                   path == c->path ? "" : "...", path);
}

enum md_status md_gguf_fail_short(const struct md_gguf_cursor *c, const char *what, uint64_t need,
                                  struct md_err *err)
{
    return md_gguf_fail(c, c->at, MD_INVALID, err, "%s needs %" PRIu64 " bytes, %" PRIu64 " are left %s",
                        what, need, md_gguf_left(c), c->end_of);
}

static enum md_status refill(struct md_gguf_cursor *c, struct md_err *err)
{
    const uint64_t left = md_gguf_left(c);
    const size_t want = left < sizeof c->buf ? (size_t)left : sizeof c->buf;
    ssize_t n;
    do {
        n = pread(c->fd, c->buf, want, (off_t)c->at);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return md_gguf_fail(c, c->at, MD_IO, err, "read: %s", strerror(errno));
    if (n == 0)
        return md_gguf_fail(c, c->at, MD_IO, err, "the file was cut since it was opened");
    c->held_at = c->at;
    c->held = (size_t)n;
    return MD_OK;
}

enum md_status md_gguf_get(struct md_gguf_cursor *c, const char *what, void *out, size_t len,
                           struct md_err *err)
{
    if (len > md_gguf_left(c))
        return md_gguf_fail_short(c, what, len, err);
    for (uint8_t *to = out; len > 0;) {
        if (c->at < c->held_at || c->at - c->held_at >= c->held) {
            enum md_status s = refill(c, err);
            if (s != MD_OK)
                return s;
        }
        const size_t skip = (size_t)(c->at - c->held_at);
        const size_t n = c->held - skip < len ? c->held - skip : len;
        memcpy(to, c->buf + skip, n);
        to += n;
        len -= n;
        c->at += n;
    }
    return MD_OK;
}

enum md_status md_gguf_skip(struct md_gguf_cursor *c, const char *what, uint64_t len, struct md_err *err)
{
    if (len > md_gguf_left(c))
        return md_gguf_fail_short(c, what, len, err);
    c->at += len;
    return MD_OK;
}

enum md_status md_gguf_get_integer(struct md_gguf_cursor *c, enum md_gguf_type type,
                                   struct md_gguf_number *ret, struct md_err *err)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } v;
    const uint64_t at = c->at;
    struct md_gguf_number n = { 0 };
    assert(md_gguf_type_is_integer(type));
    enum md_status s = md_gguf_get(c, md_gguf_type_name(type), &v, md_gguf_type_bytes(type), err);
    if (s != MD_OK)
        return s;
    switch (type) {
    case MD_GGUF_U8: n.i = v.u8; break;
    case MD_GGUF_I8: n.i = v.i8; break;
    case MD_GGUF_U16: n.i = v.u16; break;
    case MD_GGUF_I16: n.i = v.i16; break;
    case MD_GGUF_U32: n.i = v.u32; break;
    case MD_GGUF_I32: n.i = v.i32; break;
    case MD_GGUF_I64: n.i = v.i64; break;
    case MD_GGUF_U64:
        n.over = v.u64 > INT64_MAX;
        n.u = v.u64;
        n.i = n.over ? INT64_MAX : (int64_t)v.u64;
        break;
    default: /* bool */
        if (v.u8 > 1)
            return md_gguf_fail(c, at, MD_INVALID, err, "a bool is %u, not 0 or 1", v.u8);
        n.i = v.u8;
    }
    *ret = n;
    return MD_OK;
}

/* Bytes of the character that s begins with, 0 if it is none or a control character. */
static size_t printable(const uint8_t *s, size_t len)
{
    const int n = md_utf8_step(s, len);
    if (n == 1)
        return s[0] >= 0x20 && s[0] != 0x7f;
    const bool c1 = n == 2 && s[0] == 0xc2 && s[1] < 0xa0;
    return n < 0 || c1 ? 0 : (size_t)n;
}

size_t md_gguf_escape(char *out, size_t out_bytes, const char *s, size_t len)
{
    size_t used = 0, i = 0;
    assert(out_bytes > 0);
    while (i < len) {
        char one[5];
        const uint8_t c = (uint8_t)s[i];
        size_t n = printable((const uint8_t *)s + i, len - i), taken = n == 0 ? 1 : n;
        if (c == '"' || c == '\\' || c == '\n' || c == '\t')
            n = (size_t)snprintf(one, sizeof one, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : c);
        else if (n == 0)
            n = (size_t)snprintf(one, sizeof one, "\\x%02x", c);
        else
            memcpy(one, s + i, n);
        if (n >= out_bytes - used)
            break;
        memcpy(out + used, one, n);
        used += n;
        i += taken;
    }
    out[used] = '\0';
    return i;
}
