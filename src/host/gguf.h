/* gguf.h - reads the metadata and tensor table of a GGUF model file that nobody should trust.
 *
 * Only the header is read, in pieces, and nothing is mapped: a file of many gigabytes costs what its header
 * costs.  Every length, count, type and offset is checked against the bytes that are there before it is
 * used; nothing is reserved by a count the file declares; arrays of arrays are refused, so there is no
 * recursion.  Keys and the tensor table are kept in memory, values stay in the file and are read when asked
 * for.  A file split in parts (NAME-00001-of-0000N.gguf) is opened by its first part, and all are checked.
 *
 * Versions 2 and 3, little-endian.  Limits, all refused with the number: header 256 MiB, 65,536 entries and
 * as many tensors (in all parts together), keys of 65,535 bytes, tensor names of 63, 4 dimensions, 2^24
 * elements of an array, 1,024 parts.  The alignment is a power of two from 8 on.  Tensors stand one behind
 * the other, each at the next multiple of the alignment, as ggml wants them.
 *
 * A refusal names the file, the offset, the key or tensor, what was declared and what is there.
 *
 * Threads: one at a time per object.
 * Source: docs/gguf.md of ggml (the format); ggml/src/gguf.cpp (what its reader refuses). */
#ifndef MD_HOST_GGUF_H
#define MD_HOST_GGUF_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The format's own numbers. */
enum md_gguf_type {
    MD_GGUF_U8,
    MD_GGUF_I8,
    MD_GGUF_U16,
    MD_GGUF_I16,
    MD_GGUF_U32,
    MD_GGUF_I32,
    MD_GGUF_F32,
    MD_GGUF_BOOL,
    MD_GGUF_STRING,
    MD_GGUF_ARRAY,
    MD_GGUF_U64,
    MD_GGUF_I64,
    MD_GGUF_F64,
    MD_GGUF_TYPE_COUNT
};

struct md_gguf;

struct md_gguf_entry {
    const char *key;        /* owned by the object; not empty, no NUL inside        */
    enum md_gguf_type type; /* of the value, or of the elements                     */
    bool is_array;
    uint64_t count;  /* elements; 1 for a single value                       */
    uint64_t offset; /* in the first part's file: of the (first) value       */
};

struct md_gguf_tensor {
    const char *name; /* owned by the object */
    const char *type; /* "f16", "q4_K", ...; static */
    uint32_t dimension_count;
    uint64_t dimensions[4]; /* unused ones are 1 */
    int64_t bytes;
    uint64_t offset; /* in its part's file */
    int32_t part;    /* 0-based */
};

/* Open and check the whole header of every part.
 *
 * MD_NOT_FOUND   no such file, or a part of a split file is missing (the text names it)
 * MD_INVALID     not a GGUF file, broken, cut, or over a limit; big-endian; a later part of a split file
 * MD_UNSUPPORTED another version of the format
 * MD_IO          cannot be read        MD_NO_MEMORY
 * State: nothing stays open on failure.  The caller closes ret_file with md_gguf_close. */
MD_MUST_USE enum md_status md_gguf_open(const char *path, struct md_gguf **ret_file, struct md_err *err);
/* The same with memory from `alloc` (NULL: the C heap), which stays the caller's and outlives the object. */
MD_MUST_USE enum md_status md_gguf_open_with(const struct md_alloc *alloc, const char *path,
                                             struct md_gguf **ret_file, struct md_err *err);
void md_gguf_close(struct md_gguf *f); /* accepts NULL */

const char *md_gguf_path(const struct md_gguf *f);
uint32_t md_gguf_version(const struct md_gguf *f);
int32_t md_gguf_part_count(const struct md_gguf *f);
int64_t md_gguf_file_bytes(const struct md_gguf *f); /* all parts together */
/* XXH3 over all bytes of all parts: KV of weights that differ in one byte is other KV.  Reads every file once more from the
 * start; loading, which is next, finds it in the page cache.  MD_IO, MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_gguf_fingerprint(const struct md_gguf *f, uint64_t *ret_hash,
                                               struct md_err *err);
/* A name of the file by its bytes, for md_engine_info.model_key: two engines that read one file have the same. */
enum { MD_GGUF_KEY_BYTES = 48 };
void md_gguf_key(uint64_t hash, int64_t file_bytes, char out[MD_GGUF_KEY_BYTES]);
/* Of the first part: where tensor data begins, or the end of a file that has none and is not padded. */
uint64_t md_gguf_data_offset(const struct md_gguf *f);
uint64_t md_gguf_alignment(const struct md_gguf *f);

/* ---- metadata, of the first part ---- */

size_t md_gguf_entry_count(const struct md_gguf *f);
const struct md_gguf_entry *md_gguf_entry_at(const struct md_gguf *f, size_t index);
const struct md_gguf_entry *md_gguf_find(const struct md_gguf *f, const char *key); /* NULL: not there */
const char *md_gguf_type_name(enum md_gguf_type t);                                 /* "u32", "string", ... */

/* Each of these: MD_NOT_FOUND the key is not there (the text names it); MD_INVALID its type or value does
 * not fit what is asked; MD_IO, also where the file was cut since.  Any integer type, and bool, counts as an
 * integer.  What `out` holds after a failure is not defined. */

/* An integer from low to high. */
MD_MUST_USE enum md_status md_gguf_int(struct md_gguf *f, const char *key, int64_t low, int64_t high,
                                       int64_t *ret, struct md_err *err);
/* f32 or f64; finite. */
MD_MUST_USE enum md_status md_gguf_real(struct md_gguf *f, const char *key, double *ret, struct md_err *err);
/* A string, cut to out_bytes - 1 at a UTF-8 border, NUL bytes shown as '?'. */
MD_MUST_USE enum md_status md_gguf_string(struct md_gguf *f, const char *key, char *out, size_t out_bytes,
                                          struct md_err *err);
/* One integer for all, or an array with exactly `count` of them, each from low to high; out gets `count`.
 * MD_INVALID of a wrong length says "expected COUNT, found N". */
MD_MUST_USE enum md_status md_gguf_ints(struct md_gguf *f, const char *key, int64_t low, int64_t high,
                                        int64_t *out, size_t count, struct md_err *err);
/* Each string of an array in order; `each` borrows the bytes (no NUL behind them) and may stop with another
 * status than MD_OK, which is returned. */
MD_MUST_USE enum md_status md_gguf_each_string(struct md_gguf *f, const char *key,
                                               enum md_status (*each)(void *user, const char *text,
                                                                      size_t len, struct md_err *err),
                                               void *user, struct md_err *err);
/* A value as a person reads it: `1`, `0.5`, `true`, `"llama"`, `[4, 4, 0, ...] (32 x u32)`.  Of an array as
 * many elements as out has room for, at most 64; strings are cut, control characters and what is not UTF-8
 * escaped.  A value that cannot be read any more, or a bool that is neither 0 nor 1, shows as "?". */
void md_gguf_value_text(struct md_gguf *f, const struct md_gguf_entry *e, char *out, size_t out_bytes);
/* Write s for people: control characters, quotes, backslashes and what is not UTF-8 are escaped.  Only whole
 * characters are written, and a NUL.  Returns how many bytes of s there was room for. */
size_t md_gguf_escape(char *out, size_t out_bytes, const char *s, size_t len);

/* ---- tensors, of all parts ---- */

size_t md_gguf_tensor_count(const struct md_gguf *f);
const struct md_gguf_tensor *md_gguf_tensor_at(const struct md_gguf *f, size_t index);
int64_t md_gguf_tensor_bytes(const struct md_gguf *f); /* sum over all */

#endif
