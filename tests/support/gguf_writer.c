/* gguf_writer.c - see gguf_writer.h.  Little-endian machines only, as all that we build for. */
#include "support/gguf_writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 32, FILE_LIMIT_BYTES = 512 << 20, COUNTS_AT = 8 };

static void begin(struct gguf_writer *w)
{
    *w = (struct gguf_writer){ .alignment = ALIGNMENT };
    md_buf_init(&w->buf, NULL, FILE_LIMIT_BYTES);
}

void gw_init(struct gguf_writer *w)
{
    begin(w);
    gw_put(w, "GGUF", 4);
    gw_put_u32(w, 3);
    gw_put_u64(w, 0); /* tensors and entries: filled in at the end */
    gw_put_u64(w, 0);
}

void gw_raw(struct gguf_writer *w, const char *hex)
{
    unsigned byte;
    int taken;
    begin(w);
    for (; sscanf(hex, " %2x%n", &byte, &taken) == 1; hex += taken)
        gw_put(w, &(uint8_t){ (uint8_t)byte }, 1);
    if (w->buf.len >= COUNTS_AT + 2 * sizeof(uint64_t)) {
        memcpy(&w->tensors, w->buf.data + COUNTS_AT, sizeof w->tensors);
        memcpy(&w->entries, w->buf.data + COUNTS_AT + sizeof w->tensors, sizeof w->entries);
    }
}

void gw_base12(struct gguf_writer *w)
{
    gw_init(w);
    gw_string(w, "general.architecture", "llama");
    gw_u32(w, "llama.block_count", 12);
    gw_u32(w, "llama.context_length", 32768);
    gw_u32(w, "llama.embedding_length", 1024);
    gw_u32(w, "llama.attention.head_count", 16);
    gw_u32(w, "llama.attention.head_count_kv", 4);
}

void gw_done(struct gguf_writer *w)
{
    md_buf_done(&w->buf);
}

void gw_put(struct gguf_writer *w, const void *data, size_t len)
{
    if (w->status == MD_OK)
        w->status = md_buf_append(&w->buf, data, len, &w->err);
}

void gw_put_u32(struct gguf_writer *w, uint32_t v)
{
    gw_put(w, &v, sizeof v);
}

void gw_put_u64(struct gguf_writer *w, uint64_t v)
{
    gw_put(w, &v, sizeof v);
}

void gw_put_string(struct gguf_writer *w, const char *s)
{
    gw_put_u64(w, strlen(s));
    gw_put(w, s, strlen(s));
}

void gw_entry(struct gguf_writer *w, const char *key, uint32_t type)
{
    gw_put_string(w, key);
    gw_put_u32(w, type);
    w->entries++;
}

void gw_array(struct gguf_writer *w, const char *key, uint32_t of, uint64_t count)
{
    gw_entry(w, key, MD_GGUF_ARRAY);
    gw_put_u32(w, of);
    gw_put_u64(w, count);
}

static void put_int(struct gguf_writer *w, enum md_gguf_type type, int64_t v)
{
    static const size_t bytes[MD_GGUF_TYPE_COUNT] = {
        [MD_GGUF_U8] = 1,  [MD_GGUF_I8] = 1,  [MD_GGUF_BOOL] = 1, [MD_GGUF_U16] = 2, [MD_GGUF_I16] = 2,
        [MD_GGUF_U32] = 4, [MD_GGUF_I32] = 4, [MD_GGUF_U64] = 8,  [MD_GGUF_I64] = 8,
    };
    gw_put(w, &v, bytes[type]);
}

void gw_int(struct gguf_writer *w, const char *key, enum md_gguf_type type, int64_t v)
{
    gw_entry(w, key, type);
    put_int(w, type, v);
}

void gw_ints(struct gguf_writer *w, const char *key, enum md_gguf_type of, const int64_t *v, size_t count)
{
    gw_array(w, key, of, count);
    for (size_t i = 0; i < count; i++)
        put_int(w, of, v[i]);
}

void gw_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    gw_int(w, key, MD_GGUF_U32, v);
}

void gw_f32(struct gguf_writer *w, const char *key, float v)
{
    gw_entry(w, key, MD_GGUF_F32);
    gw_put(w, &v, sizeof v);
}

void gw_f64(struct gguf_writer *w, const char *key, double v)
{
    gw_entry(w, key, MD_GGUF_F64);
    gw_put(w, &v, sizeof v);
}

void gw_bool(struct gguf_writer *w, const char *key, bool v)
{
    gw_int(w, key, MD_GGUF_BOOL, v);
}

void gw_string(struct gguf_writer *w, const char *key, const char *v)
{
    gw_entry(w, key, MD_GGUF_STRING);
    gw_put_string(w, v);
}

void gw_strings(struct gguf_writer *w, const char *key, const char *const *v, size_t count)
{
    gw_array(w, key, MD_GGUF_STRING, count);
    for (size_t i = 0; i < count; i++)
        gw_put_string(w, v[i]);
}

void gw_tensor_at(struct gguf_writer *w, const char *name, uint32_t type, const uint64_t *dimensions,
                  uint32_t dimension_count, uint64_t offset)
{
    gw_put_string(w, name);
    gw_put_u32(w, dimension_count);
    gw_put(w, dimensions, dimension_count * sizeof *dimensions);
    gw_put_u32(w, type);
    gw_put_u64(w, offset);
    w->tensors++;
}

void gw_tensor(struct gguf_writer *w, const char *name, uint32_t type, const uint64_t *dimensions,
               uint32_t dimension_count, uint64_t bytes)
{
    gw_tensor_at(w, name, type, dimensions, dimension_count, w->data_bytes);
    w->data_bytes += (bytes + w->alignment - 1) / w->alignment * w->alignment;
}

void gw_pad(struct gguf_writer *w)
{
    while (w->status == MD_OK && w->buf.len % w->alignment != 0)
        gw_put(w, "", 1);
}

void gw_data(struct gguf_writer *w, const void *data, size_t len)
{
    gw_put(w, data, len);
    gw_pad(w);
}

void gw_zeros(struct gguf_writer *w)
{
    static const uint8_t zeros[4096];
    gw_pad(w);
    for (uint64_t left = w->data_bytes; left > 0;) {
        const size_t n = left < sizeof zeros ? (size_t)left : sizeof zeros;
        gw_put(w, zeros, n);
        left -= n;
    }
}

static enum md_status finish(struct gguf_writer *w, struct md_err *err)
{
    if (w->status != MD_OK)
        return md_fail(err, w->status, "%s", w->err.text);
    if (w->buf.len >= COUNTS_AT + 2 * sizeof(uint64_t)) {
        memcpy(w->buf.data + COUNTS_AT, &w->tensors, sizeof w->tensors);
        memcpy(w->buf.data + COUNTS_AT + sizeof w->tensors, &w->entries, sizeof w->entries);
    }
    return MD_OK;
}

enum md_status gw_save(struct gguf_writer *w, const char *path, struct md_err *err)
{
    enum md_status s = finish(w, err);
    if (s != MD_OK)
        return s;
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return md_fail(err, MD_IO, "open '%s': %s", path, strerror(errno));
    bool good = fwrite(w->buf.data, 1, w->buf.len, f) == w->buf.len;
    good = fclose(f) == 0 && good;
    if (good)
        return MD_OK;
    unlink(path);
    return md_fail(err, MD_IO, "write '%s': %s", path, strerror(errno));
}

enum md_status gw_open_bytes(const void *data, size_t len, const struct md_alloc *alloc,
                             struct md_gguf **ret_file, struct md_err *err)
{
    char path[40];
    const uint8_t *from = data;
    int fd = memfd_create("gguf", MFD_CLOEXEC);
    bool good = fd >= 0;
    for (size_t done = 0; good && done < len;) {
        ssize_t n = pwrite(fd, from + done, len - done, (off_t)done);
        good = n > 0;
        done += good ? (size_t)n : 0;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum md_status s = good ? md_gguf_open_with(alloc, path, ret_file, err)
                            : md_fail(err, MD_IO, "a file in memory: %s", strerror(errno));
    if (fd >= 0)
        close(fd); /* the reader has it open for itself */
    return s;
}

enum md_status gw_open(struct gguf_writer *w, const struct md_alloc *alloc, struct md_gguf **ret_file,
                       struct md_err *err)
{
    enum md_status s = finish(w, err);
    return s == MD_OK ? gw_open_bytes(w->buf.data, w->buf.len, alloc, ret_file, err) : s;
}
