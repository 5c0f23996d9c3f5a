/* ov_layout.c - see ov_layout.h. */
#include "adapters/openvino/ov_layout.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static bool in_range(const struct md_ov_shape *s)
{
    enum { LIMIT = 1 << 16 };
    return s->heads > 0 && s->heads <= LIMIT && s->inner[0] > 0 && s->inner[0] <= LIMIT && s->inner[1] > 0 &&
           s->inner[1] <= LIMIT && s->number_bytes > 0;
}

enum md_status md_ov_layout_find(const struct md_ov_shape *keys, const struct md_ov_shape *values,
                                 bool keys_across, struct md_ov_layout *ret_keys,
                                 struct md_ov_layout *ret_values, struct md_err *err)
{
    const int64_t rows = values->inner[0];
    const bool behind = keys->inner[0] == rows, across = keys->inner[1] == rows;
    if (!in_range(keys) || !in_range(values) || keys->heads != values->heads || (!behind && !across))
        return md_fail(err, MD_UNSUPPORTED,
                       "keys of %" PRId64 " heads of %" PRId64 " x %" PRId64 " and values of %" PRId64
                       " heads of %" PRId64 " x %" PRId64 " are kept in a way that is not known here",
                       keys->heads, keys->inner[0], keys->inner[1], values->heads, values->inner[0],
                       values->inner[1]);
    const bool is_across = across && (!behind || keys_across);
    *ret_keys = (struct md_ov_layout){ .rows = (int32_t)rows,
                                       .number_bytes = keys->number_bytes,
                                       .row_bytes = (size_t)keys->inner[is_across ? 0 : 1] *
                                                    (size_t)keys->number_bytes,
                                       .across = is_across };
    *ret_values =
        (struct md_ov_layout){ .rows = (int32_t)rows,
                               .number_bytes = values->number_bytes,
                               .row_bytes = (size_t)values->inner[1] * (size_t)values->number_bytes };
    return MD_OK;
}

size_t md_ov_layout_head_bytes(const struct md_ov_layout *l)
{
    return (size_t)l->rows * l->row_bytes;
}

/* Numbers of all sizes there are, so that copying one is an instruction. */
static void copy_number(uint8_t *to, const uint8_t *from, size_t bytes)
{
    switch (bytes) {
    case 1: *to = *from; break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    default: memcpy(to, from, bytes);
    }
}

static void check_rows(const struct md_ov_layout *l, int32_t row, int32_t count)
{
    assert(row >= 0 && count > 0 && count <= l->rows - row);
}

void md_ov_layout_gather(const struct md_ov_layout *l, const uint8_t *head, int32_t row, int32_t count,
                         uint8_t *ret_rows)
{
    const size_t bytes = (size_t)l->number_bytes;
    check_rows(l, row, count);
    if (!l->across) {
        memcpy(ret_rows, head + (size_t)row * l->row_bytes, (size_t)count * l->row_bytes);
        return;
    }
    for (int32_t r = 0; r < count; r++)
        for (size_t i = 0; i < l->row_bytes / bytes; i++, ret_rows += bytes)
            copy_number(ret_rows, head + (i * (size_t)l->rows + (size_t)(row + r)) * bytes, bytes);
}

void md_ov_layout_scatter(const struct md_ov_layout *l, uint8_t *head, int32_t row, int32_t count,
                          const uint8_t *rows)
{
    const size_t bytes = (size_t)l->number_bytes;
    check_rows(l, row, count);
    if (!l->across) {
        memcpy(head + (size_t)row * l->row_bytes, rows, (size_t)count * l->row_bytes);
        return;
    }
    for (int32_t r = 0; r < count; r++)
        for (size_t i = 0; i < l->row_bytes / bytes; i++, rows += bytes)
            copy_number(head + (i * (size_t)l->rows + (size_t)(row + r)) * bytes, rows, bytes);
}
