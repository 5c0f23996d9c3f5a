/* mem.h - the one door to the heap, arenas and byte buffers; each has its limit from birth.
 *
 * struct md_alloc is the seam of the fault tests: whatever keeps state (cold store, tape, arena)
 * takes one, and a test makes the Nth call fail.  NULL means the C heap.
 * An arena is work memory for one request: it goes at once.  A buffer grows up to its limit.
 *
 * Threads: an object belongs to one thread at a time. */
#ifndef MD_BASE_MEM_H
#define MD_BASE_MEM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Borrowed bytes. */
struct md_bytes {
    const void *data;
    size_t len;
};

static inline bool md_bytes_equal(struct md_bytes a, struct md_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}
/* Are they this word? */
static inline bool md_bytes_are(struct md_bytes a, const char *word)
{
    const struct md_bytes b = { word, strlen(word) };
    return md_bytes_equal(a, b);
}

/* realloc_ with new_bytes == 0 frees and returns NULL; old == NULL allocates.  Returns NULL on
 * failure and leaves old as it was. */
struct md_alloc {
    void *(*realloc_)(void *user, void *old, size_t new_bytes);
    void *user;
};

/* Zeroed; NULL on failure or when count * size overflows. */
void *md_calloc(const struct md_alloc *alloc, size_t count, size_t size);
void *md_realloc(const struct md_alloc *alloc, void *old, size_t bytes);
void md_free(const struct md_alloc *alloc, void *p);

/* Grow `*items` (elements of `size` bytes) so that it holds at least `need`; capacity doubles.
 * Returns false and changes nothing when memory ran out. */
MD_MUST_USE int md_grow(const struct md_alloc *alloc, void **items, size_t *cap, size_t need, size_t size);

/* ---- arena: allocations that go together ---- */

struct md_arena {
    const struct md_alloc *alloc;
    struct md_arena_chunk *chunks;
    size_t used_bytes, limit_bytes;
};

/* Cannot fail: nothing is allocated before the first md_arena_get. */
void md_arena_init(struct md_arena *a, const struct md_alloc *alloc, size_t limit_bytes);
/* Zeroed, aligned for any type; NULL when the limit or the heap is exhausted. */
void *md_arena_get(struct md_arena *a, size_t count, size_t size);
/* A NUL-terminated copy; NULL as above. */
char *md_arena_strndup(struct md_arena *a, const char *s, size_t len);
/* Frees everything; the arena may be used again.  Accepts a zeroed struct. */
void md_arena_done(struct md_arena *a);

/* ---- buffer: bytes that grow up to a limit ---- */

struct md_buf {
    const struct md_alloc *alloc;
    uint8_t *data;
    size_t len, cap, limit_bytes;
};

void md_buf_init(struct md_buf *b, const struct md_alloc *alloc, size_t limit_bytes);
void md_buf_done(struct md_buf *b); /* accepts a zeroed struct */
/* Make room for `more` bytes after len, exactly (no doubling): for payloads whose size is known.
 * MD_NO_MEMORY: over the limit, or the heap; the buffer is as before. */
MD_MUST_USE enum md_status md_buf_reserve(struct md_buf *b, size_t more, struct md_err *err);
MD_MUST_USE enum md_status md_buf_append(struct md_buf *b, const void *data, size_t len, struct md_err *err);
/* Formatted text; a NUL follows it but is not counted. */
MD_MUST_USE enum md_status md_buf_printf(struct md_buf *b, struct md_err *err, const char *fmt, ...)
    MD_PRINTF(3, 4);

/* ---- scope cleanup ---- */

#define MD_CLEANUP(fn) __attribute__((cleanup(fn)))
/* Hand ownership out of a MD_CLEANUP variable. */
#define MD_TAKE(p)                     \
    __extension__({                    \
        __typeof__(p) md_taken_ = (p); \
        (p) = NULL;                    \
        md_taken_;                     \
    })

#ifdef __cplusplus
}
#endif
#endif
