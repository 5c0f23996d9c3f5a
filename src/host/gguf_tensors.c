/* gguf_tensors.c - the tensor table: shapes, sizes, and that each tensor lies inside its file. */
#include "host/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_DIMENSIONS = 8 };

static const char *shape_text(char *out, size_t out_bytes, const uint64_t *dimensions, uint32_t count)
{
    size_t used = (size_t)snprintf(out, out_bytes, "[");
    for (uint32_t i = 0; i < count && used < out_bytes; i++)
        used +=
            (size_t)snprintf(out + used, out_bytes - used, "%s%" PRIu64, i == 0 ? "" : ", ", dimensions[i]);
    if (used < out_bytes)
        snprintf(out + used, out_bytes - used, "]");
    return out;
}

/* Four are the most that ggml has; a few more are read so that the refusal can show them. */
static enum md_status read_shape(struct md_gguf_cursor *c, struct md_gguf_tensor *t, struct md_err *err)
{
    uint64_t all[SHOWN_DIMENSIONS] = { 0 };
    char shape[200];
    const uint64_t at = c->at;
    uint32_t count;
    enum md_status s = md_gguf_get(c, "number of dimensions", &count, sizeof count, err);
    if (s != MD_OK)
        return s;
    if (count > SHOWN_DIMENSIONS)
        return md_gguf_fail(c, at, MD_INVALID, err, "%" PRIu32 " dimensions, at most %d", count,
                            MD_GGUF_DIMENSIONS_MAX);
    s = md_gguf_get(c, "shape", all, count * sizeof all[0], err);
    if (s != MD_OK)
        return s;
    shape_text(shape, sizeof shape, all, count);
    if (count > MD_GGUF_DIMENSIONS_MAX)
        return md_gguf_fail(c, at, MD_INVALID, err, "shape %s has %" PRIu32 " dimensions, at most %d", shape,
                            count, MD_GGUF_DIMENSIONS_MAX);
    int64_t elements = 1;
    t->dimension_count = count;
    for (uint32_t i = 0; i < MD_GGUF_DIMENSIONS_MAX; i++) {
        t->dimensions[i] = i < count ? all[i] : 1;
        if (t->dimensions[i] == 0)
            return md_gguf_fail(c, at, MD_INVALID, err, "shape %s has an empty dimension", shape);
    }
    for (uint32_t i = 0; i < MD_GGUF_DIMENSIONS_MAX; i++)
        if (__builtin_mul_overflow(elements, t->dimensions[i], &elements))
            return md_gguf_fail(c, at, MD_INVALID, err, "shape %s has over 2^63 values", shape);
    t->bytes = elements; /* turned into bytes by the type */
    return MD_OK;
}

static enum md_status read_type(struct md_gguf_cursor *c, struct md_gguf_tensor *t, struct md_err *err)
{
    char shape[200];
    const uint64_t at = c->at;
    uint32_t number;
    enum md_status s = md_gguf_get(c, "type", &number, sizeof number, err);
    if (s != MD_OK)
        return s;
    const struct md_gguf_tensor_type *type = md_gguf_tensor_type(number);
    if (type == NULL)
        return md_gguf_fail(c, at, MD_INVALID, err,
                            "tensor type %" PRIu32 " is not known or no longer in use", number);
    shape_text(shape, sizeof shape, t->dimensions, t->dimension_count);
    if (t->dimensions[0] % type->block_values != 0)
        return md_gguf_fail(c, at, MD_INVALID, err,
                            "rows of shape %s are not whole blocks of %" PRIu32 " (%s)", shape,
                            type->block_values, type->name);
    if (__builtin_mul_overflow(t->bytes / type->block_values, type->block_bytes, &t->bytes))
        return md_gguf_fail(c, at, MD_INVALID, err, "shape %s of %s has over 2^63 bytes", shape, type->name);
    t->type = type->name;
    return MD_OK;
}

static enum md_status read_tensor(struct md_gguf *f, struct md_gguf_cursor *c, struct md_gguf_tensor *t,
                                  struct md_err *err)
{
    enum md_status s = md_gguf_get_name(c, "name", &f->names, MD_GGUF_TENSOR_NAME_MAX, &t->name, err);
    if (s != MD_OK)
        return s;
    c->name = t->name;
    s = read_shape(c, t, err);
    if (s == MD_OK)
        s = read_type(c, t, err);
    if (s == MD_OK)
        s = md_gguf_get(c, "offset", &t->offset, sizeof t->offset, err);
    return s;
}

enum md_status md_gguf_read_tensors(struct md_gguf *f, struct md_gguf_cursor *c, uint64_t count, int32_t part,
                                    struct md_err *err)
{
    enum md_status s = MD_OK;
    c->kind = NULL;
    if (count > MD_GGUF_ENTRIES_MAX - f->tensor_count)
        return md_gguf_fail(c, 8, MD_INVALID, err, "%" PRIu64 " tensors%s, at most %d",
                            count + f->tensor_count, part == 0 ? "" : " in the parts so far",
                            MD_GGUF_ENTRIES_MAX);
    for (uint64_t i = 0; i < count && s == MD_OK; i++) {
        c->kind = "tensor";
        c->name = NULL;
        c->index = i;
        if (!md_grow(f->alloc, (void **)&f->tensors, &f->tensor_cap, f->tensor_count + 1, sizeof *f->tensors))
            return md_gguf_fail(c, c->at, MD_NO_MEMORY, err, "no memory for the tensor table");
        struct md_gguf_tensor *t = &f->tensors[f->tensor_count];
        *t = (struct md_gguf_tensor){ .part = part };
        s = read_tensor(f, c, t, err);
        f->tensor_count += s == MD_OK;
    }
    c->kind = c->name = NULL;
    return s;
}

/* ggml wants the tensors one behind the other, each at the next multiple of the alignment, and refuses
 * other files; so what it would refuse is named here. */
enum md_status md_gguf_place_tensors(struct md_gguf *f, struct md_gguf_cursor *c,
                                     const struct md_gguf_part *p, size_t first, struct md_err *err)
{
    uint64_t next = 0;
    for (size_t i = first; i < f->tensor_count; i++) {
        struct md_gguf_tensor *t = &f->tensors[i];
        const uint64_t offset = t->offset;
        char name[64];
        uint64_t end;
        md_gguf_escape(name, sizeof name, t->name, strlen(t->name));
        if (__builtin_add_overflow(p->data_offset, offset, &t->offset) ||
            __builtin_add_overflow(t->offset, (uint64_t)t->bytes, &end))
            end = UINT64_MAX;
        if (end > p->file_bytes)
            return md_gguf_fail(c, c->at, MD_INVALID, err,
                                "file has %" PRIu64 " bytes, tensor '%s' needs %" PRIu64, p->file_bytes, name,
                                end);
        if (offset % p->alignment != 0)
            return md_gguf_fail(c, t->offset, MD_INVALID, err,
                                "tensor '%s': offset %" PRIu64 " is not a multiple of the alignment %" PRIu64,
                                name, offset, p->alignment);
        if (offset != next)
            return md_gguf_fail(c, t->offset, MD_INVALID, err,
                                "tensor '%s': offset %" PRIu64 ", but the one before ends at %" PRIu64, name,
                                offset, next);
        /* cannot overflow: the end is inside the file, and the alignment below 2^32 */
        next = (offset + (uint64_t)t->bytes + p->alignment - 1) / p->alignment * p->alignment;
        if (__builtin_add_overflow(f->tensor_bytes, t->bytes, &f->tensor_bytes))
            return md_gguf_fail(c, c->at, MD_INVALID, err, "the tensors have over 2^63 bytes together");
    }
    return MD_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct md_gguf_tensor *const *x = a, *const *y = b;
    const int order = strcmp((*x)->name, (*y)->name);
    return order != 0 ? order : (*x > *y) - (*x < *y);
}

enum md_status md_gguf_check_tensor_names(struct md_gguf *f, struct md_err *err)
{
    if (f->tensor_count == 0)
        return MD_OK;
    const struct md_gguf_tensor **sorted = md_calloc(f->alloc, f->tensor_count, sizeof *sorted);
    if (sorted == NULL)
        return md_fail(err, MD_NO_MEMORY, "no memory to compare %zu tensor names", f->tensor_count);
    for (size_t i = 0; i < f->tensor_count; i++)
        sorted[i] = &f->tensors[i];
    qsort(sorted, f->tensor_count, sizeof *sorted, by_name);
    enum md_status s = MD_OK;
    for (size_t i = 1; i < f->tensor_count && s == MD_OK; i++) {
        const struct md_gguf_tensor *a = sorted[i - 1], *b = sorted[i];
        if (strcmp(a->name, b->name) != 0)
            continue;
        char name[64];
        md_gguf_escape(name, sizeof name, a->name, strlen(a->name));
        s = md_fail(err, MD_INVALID,
                    "tensor '%s' is there twice, at byte %" PRIu64 " of part %d and byte %" PRIu64
                    " of part %d of '%.200s'",
                    name, a->offset, a->part + 1, b->offset, b->part + 1, f->path);
    }
    md_free(f->alloc, sorted);
    return s;
}
