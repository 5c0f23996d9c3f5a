#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct md_arena_chunk {
    struct md_arena_chunk *next;
    size_t used, cap;
    _Alignas(max_align_t) uint8_t bytes[];
};

enum { ARENA_CHUNK_BYTES = 16 << 10 }; /* most requests need one or two of these */

void *md_realloc(const struct md_alloc *alloc, void *old, size_t bytes)
{
    if (alloc != NULL)
        return alloc->realloc_(alloc->user, old, bytes);
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, bytes);
}

void *md_calloc(const struct md_alloc *alloc, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes == 0)
        return NULL;
    if (alloc == NULL)
        return calloc(count, size);
    void *p = md_realloc(alloc, NULL, bytes);
    if (p != NULL)
        memset(p, 0, bytes);
    return p;
}

void md_free(const struct md_alloc *alloc, void *p)
{
    if (p != NULL)
        md_realloc(alloc, p, 0);
}

int md_grow(const struct md_alloc *alloc, void **items, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return 1;
    size_t next = *cap < 8 ? 8 : *cap * 2, bytes;
    if (next < need)
        next = need;
    if (__builtin_mul_overflow(next, size, &bytes))
        return 0;
    void *p = md_realloc(alloc, *items, bytes);
    if (p == NULL)
        return 0;
    *items = p;
    *cap = next;
    return 1;
}

void md_arena_init(struct md_arena *a, const struct md_alloc *alloc, size_t limit_bytes)
{
    *a = (struct md_arena){ .alloc = alloc, .limit_bytes = limit_bytes };
}

void *md_arena_get(struct md_arena *a, size_t count, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > a->limit_bytes - a->used_bytes)
        return NULL;
    bytes = (bytes + align - 1) / align * align;
    if (bytes == 0)
        bytes = align;
    struct md_arena_chunk *c = a->chunks;
    if (c == NULL || c->cap - c->used < bytes) {
        size_t cap = bytes > ARENA_CHUNK_BYTES ? bytes : ARENA_CHUNK_BYTES;
        c = md_calloc(a->alloc, 1, sizeof *c + cap);
        if (c == NULL)
            return NULL;
        *c = (struct md_arena_chunk){ .next = a->chunks, .cap = cap };
        a->chunks = c;
    }
    void *p = c->bytes + c->used;
    c->used += bytes;
    a->used_bytes += bytes < a->limit_bytes - a->used_bytes ? bytes : a->limit_bytes - a->used_bytes;
    return p;
}

char *md_arena_strndup(struct md_arena *a, const char *s, size_t len)
{
    char *p = md_arena_get(a, len + 1, 1);
    if (p != NULL && len > 0) /* the s of no bytes may be NULL */
        memcpy(p, s, len);
    return p;
}

void md_arena_done(struct md_arena *a)
{
    while (a->chunks != NULL) {
        struct md_arena_chunk *c = a->chunks;
        a->chunks = c->next;
        md_free(a->alloc, c);
    }
    a->used_bytes = 0;
}

void md_buf_init(struct md_buf *b, const struct md_alloc *alloc, size_t limit_bytes)
{
    *b = (struct md_buf){ .alloc = alloc, .limit_bytes = limit_bytes };
}

void md_buf_done(struct md_buf *b)
{
    md_free(b->alloc, b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

static enum md_status buf_set_cap(struct md_buf *b, size_t cap, struct md_err *err)
{
    uint8_t *p = md_realloc(b->alloc, b->data, cap);
    if (p == NULL)
        return md_fail(err, MD_NO_MEMORY, "buffer of %zu bytes", cap);
    b->data = p;
    b->cap = cap;
    return MD_OK;
}

enum md_status md_buf_reserve(struct md_buf *b, size_t more, struct md_err *err)
{
    if (more > b->limit_bytes || b->len > b->limit_bytes - more)
        return md_fail(err, MD_NO_MEMORY, "buffer would pass its limit of %zu bytes", b->limit_bytes);
    if (b->cap - b->len >= more)
        return MD_OK;
    return buf_set_cap(b, b->len + more, err);
}

enum md_status md_buf_append(struct md_buf *b, const void *data, size_t len, struct md_err *err)
{
    if (len > b->limit_bytes || b->len > b->limit_bytes - len)
        return md_fail(err, MD_NO_MEMORY, "buffer would pass its limit of %zu bytes", b->limit_bytes);
    if (b->cap - b->len < len) {
        size_t cap = b->cap < 64 ? 64 : b->cap;
        while (cap < b->len + len)
            cap *= 2;
        if (cap > b->limit_bytes)
            cap = b->limit_bytes;
        enum md_status s = buf_set_cap(b, cap, err);
        if (s != MD_OK)
            return s;
    }
    if (len > 0)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    return MD_OK;
}

enum md_status md_buf_printf(struct md_buf *b, struct md_err *err, const char *fmt, ...)
{
    char small[256];
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    assert(n >= 0);
    enum md_status s;
    if ((size_t)n < sizeof small) {
        s = md_buf_append(b, small, (size_t)n + 1, err);
    } else {
        s = md_buf_reserve(b, (size_t)n + 1, err);
        if (s == MD_OK) {
            vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, again);
            b->len += (size_t)n + 1;
        }
    }
    va_end(again);
    if (s == MD_OK)
        b->len--; /* the NUL stays behind the text, uncounted */
    return s;
}
