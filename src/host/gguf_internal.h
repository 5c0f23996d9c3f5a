/* gguf_internal.h - what the files of the GGUF reader share; only src/host/gguf*.c includes it.
 *
 * Threads: one at a time per object. */
#ifndef MD_HOST_GGUF_INTERNAL_H
#define MD_HOST_GGUF_INTERNAL_H

#include "base/mem.h"
#include "host/gguf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are taken from files as they stand");

enum {
    MD_GGUF_HEADER_BYTES_MAX = 256 << 20,
    MD_GGUF_ENTRIES_MAX = 65536, /* and tensors of all parts together */
    MD_GGUF_KEY_BYTES_MAX = 65535,
    MD_GGUF_ARRAY_MAX = 1 << 24,
    MD_GGUF_PARTS_MAX = 1024,
    MD_GGUF_DIMENSIONS_MAX = 4,
    MD_GGUF_TENSOR_NAME_MAX = 63,
};

/* The name of a later part, from the first one's, which ends as it should; `out` has room for as many bytes as that. */
enum { MD_GGUF_PART_ENDING = sizeof "-00001-of-00002.gguf" - 1 };
void md_gguf_part_path(const char *first, int32_t index, int32_t count, char *out);

/* ---- types ---- */

size_t md_gguf_type_bytes(enum md_gguf_type t); /* of one value; 0: string or array */
bool md_gguf_type_is_integer(enum md_gguf_type t);

struct md_gguf_tensor_type {
    const char *name;
    uint32_t block_values, block_bytes;
};

/* By ggml's number; NULL when it has none or gave it up. */
const struct md_gguf_tensor_type *md_gguf_tensor_type(uint32_t number);

/* ---- cursor: reads a file from front to back through a small buffer, never behind `end` ---- */

struct md_gguf_cursor {
    int fd;
    const char *path;
    uint64_t at, end;
    const char *end_of; /* whose end that is, for messages: "in the file" */
    /* What is being read, for messages: a kind ("key", "tensor", NULL for none) with a name or, without
     * one yet, an index. */
    const char *kind, *name;
    uint64_t index;
    uint64_t held_at;
    size_t held;
    uint8_t buf[16 << 10];
};

void md_gguf_cursor_init(struct md_gguf_cursor *c, int fd, const char *path, uint64_t at, uint64_t end,
                         const char *end_of);
uint64_t md_gguf_left(const struct md_gguf_cursor *c);

/* "KIND 'NAME': TEXT (byte AT of 'PATH')" */
enum md_status md_gguf_fail(const struct md_gguf_cursor *c, uint64_t at, enum md_status status,
                            struct md_err *err, const char *fmt, ...) MD_PRINTF(5, 6);
/* MD_INVALID: `what` needs more bytes than are left. */
enum md_status md_gguf_fail_short(const struct md_gguf_cursor *c, const char *what, uint64_t need,
                                  struct md_err *err);

/* MD_INVALID: behind the end.  MD_IO: the system, or the file was cut meanwhile. */
MD_MUST_USE enum md_status md_gguf_get(struct md_gguf_cursor *c, const char *what, void *out, size_t len,
                                       struct md_err *err);
MD_MUST_USE enum md_status md_gguf_skip(struct md_gguf_cursor *c, const char *what, uint64_t len,
                                        struct md_err *err);

/* Any integer type or bool.  What does not fit int64_t sets `over`, and `u` has it. */
struct md_gguf_number {
    int64_t i;
    uint64_t u;
    bool over;
};
/* MD_INVALID also for a bool that is neither 0 nor 1. */
MD_MUST_USE enum md_status md_gguf_get_integer(struct md_gguf_cursor *c, enum md_gguf_type type,
                                               struct md_gguf_number *ret, struct md_err *err);

/* ---- a file ---- */

struct md_gguf_part {
    uint32_t version;
    uint64_t file_bytes, alignment, data_offset;
    uint64_t metadata_end;
    struct md_arena keys;
    struct md_gguf_entry *entries;
    size_t entry_count, entry_cap;
    const struct md_gguf_entry **by_key;
};

struct md_gguf {
    const struct md_alloc *alloc;
    int fd; /* of the first part */
    char *path;
    struct md_gguf_part first;
    int32_t part_count;
    int64_t file_bytes, tensor_bytes;
    struct md_arena names;
    struct md_gguf_tensor *tensors;
    size_t tensor_count, tensor_cap;
};

const struct md_gguf_entry *md_gguf_part_find(const struct md_gguf_part *p, const char *key);

/* gguf_tensors.c: read `count` tensors, then, once the place of the data is known, check where each lies. */
MD_MUST_USE enum md_status md_gguf_read_tensors(struct md_gguf *f, struct md_gguf_cursor *c, uint64_t count,
                                                int32_t part, struct md_err *err);
MD_MUST_USE enum md_status md_gguf_place_tensors(struct md_gguf *f, struct md_gguf_cursor *c,
                                                 const struct md_gguf_part *p, size_t first,
                                                 struct md_err *err);
MD_MUST_USE enum md_status md_gguf_check_tensor_names(struct md_gguf *f, struct md_err *err);

/* A length and as many bytes: not empty, at most `max`, no NUL inside.  The copy is the arena's. */
MD_MUST_USE enum md_status md_gguf_get_name(struct md_gguf_cursor *c, const char *what, struct md_arena *a,
                                            uint64_t max, const char **ret_name, struct md_err *err);

#endif
