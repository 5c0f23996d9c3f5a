/* gguf_writer.h - builds the bytes of a GGUF file in memory: right ones, and any wrong ones a test wants.
 *
 *     struct gguf_writer w;
 *     gw_init(&w);
 *     gw_u32(&w, "llama.block_count", 12);
 *     gw_tensor(&w, "a", GW_F32, (uint64_t[]){ 8, 2 }, 2, 64);
 *     gw_zeros(&w);
 *     ... gw_save(&w, path, &err) or gw_open(&w, ...) ...
 *     gw_done(&w);
 *
 * Entries come first, then all tensors, then the data.  The first failure sticks in w.status, so that the
 * writing reads as a list; gw_save and gw_open return it.  Nothing is checked: the order and the lengths are
 * the caller's.  Source: docs/gguf.md of ggml.
 *
 * Threads: one at a time per object. */
#ifndef MD_TESTS_GGUF_WRITER_H
#define MD_TESTS_GGUF_WRITER_H

#include "base/mem.h"
#include "host/gguf.h"

enum { GW_F32 = 0, GW_F16 = 1, GW_Q4_0 = 2 }; /* some numbers of enum ggml_type */

struct gguf_writer {
    struct md_buf buf;
    uint64_t entries, tensors; /* counted by the calls below; set them to lie in the header */
    uint64_t alignment;        /* 32; set it where `general.alignment` says so */
    uint64_t data_bytes;       /* of the tensors announced so far */
    enum md_status status;
    struct md_err err;
};

void gw_init(struct gguf_writer *w);                 /* version 3, nothing in it */
void gw_raw(struct gguf_writer *w, const char *hex); /* instead: these bytes, spaces allowed */
void gw_base12(struct gguf_writer *w);               /* instead: the file of the cases, 263 bytes */
void gw_done(struct gguf_writer *w);

/* ---- bytes ---- */

void gw_put(struct gguf_writer *w, const void *data, size_t len);
void gw_put_u32(struct gguf_writer *w, uint32_t v);
void gw_put_u64(struct gguf_writer *w, uint64_t v);
void gw_put_string(struct gguf_writer *w, const char *s); /* its length, then its bytes */

/* ---- entries ---- */

void gw_entry(struct gguf_writer *w, const char *key, uint32_t type); /* the caller puts the value */
void gw_array(struct gguf_writer *w, const char *key, uint32_t of, uint64_t count); /* and the elements */
/* An integer or bool of any type: the low bytes of v. */
void gw_int(struct gguf_writer *w, const char *key, enum md_gguf_type type, int64_t v);
void gw_ints(struct gguf_writer *w, const char *key, enum md_gguf_type of, const int64_t *v, size_t count);
void gw_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gw_f32(struct gguf_writer *w, const char *key, float v);
void gw_f64(struct gguf_writer *w, const char *key, double v);
void gw_bool(struct gguf_writer *w, const char *key, bool v);
void gw_string(struct gguf_writer *w, const char *key, const char *v);
void gw_strings(struct gguf_writer *w, const char *key, const char *const *v, size_t count);

/* ---- tensors ---- */

/* `bytes` of data will follow, behind those of the tensors before. */
void gw_tensor(struct gguf_writer *w, const char *name, uint32_t type, const uint64_t *dimensions,
               uint32_t dimension_count, uint64_t bytes);
/* Anywhere. */
void gw_tensor_at(struct gguf_writer *w, const char *name, uint32_t type, const uint64_t *dimensions,
                  uint32_t dimension_count, uint64_t offset);
void gw_pad(struct gguf_writer *w);                                /* zeroes up to the alignment */
void gw_data(struct gguf_writer *w, const void *data, size_t len); /* one tensor and its padding */
void gw_zeros(struct gguf_writer *w);                              /* the data of all of them */

/* ---- the whole ---- */

MD_MUST_USE enum md_status gw_save(struct gguf_writer *w, const char *path, struct md_err *err);
/* md_gguf_open_with on these bytes, as a file without a name.  In gw_open_bytes: any bytes. */
MD_MUST_USE enum md_status gw_open(struct gguf_writer *w, const struct md_alloc *alloc,
                                   struct md_gguf **ret_file, struct md_err *err);
MD_MUST_USE enum md_status gw_open_bytes(const void *data, size_t len, const struct md_alloc *alloc,
                                         struct md_gguf **ret_file, struct md_err *err);

#endif
