/* ov_layout.h - how the numbers of a block of keys or values lie in memory, and rows out of it and into it.  Pure.
 *
 * A block has the rows of one head, then those of the next.  Within a head they lie one behind the other, or across: the
 * first number of all rows, then the second.  Processors have them one behind the other, in blocks of 32 rows; GPUs
 * have keys across and values not, in blocks of 16.  What a device has is read off the shapes of its inputs:
 *
 *   keys     [blocks, heads, rows, numbers], or across [blocks, heads, numbers, rows]
 *   values   [blocks, heads, rows, numbers]
 *
 * Threads: any.
 * Source: shapes that the CPU plugin of OpenVINO 2026.4.1 was seen to give; its GPU plugin as its operations describe their
 * inputs, which nobody here could run (ov_prove.c tries what comes of it). */
#ifndef MD_ADAPTERS_OPENVINO_OV_LAYOUT_H
#define MD_ADAPTERS_OPENVINO_OV_LAYOUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct md_ov_layout {
    int32_t rows;         /* of a block */
    int32_t number_bytes; /* of one number */
    size_t row_bytes;     /* of one row of one head */
    bool across;
};

/* A shape, but for its first number, that of blocks. */
struct md_ov_shape {
    int64_t heads, inner[2];
    int32_t number_bytes;
};

/* What keys and values of these shapes look like.
 *
 * keys_across  how keys lie if the shape allows both, because a head has as many numbers as a block rows
 * MD_UNSUPPORTED  neither fits, heads differ, or a size is out of range; the text has the numbers
 * State: nothing is written on failure. */
MD_MUST_USE enum md_status md_ov_layout_find(const struct md_ov_shape *keys, const struct md_ov_shape *values,
                                             bool keys_across, struct md_ov_layout *ret_keys,
                                             struct md_ov_layout *ret_values, struct md_err *err);

size_t md_ov_layout_head_bytes(const struct md_ov_layout *l); /* of all rows of a head */

/* Rows [row, row + count) of a head that begins at `head`, one behind the other, out and in. */
void md_ov_layout_gather(const struct md_ov_layout *l, const uint8_t *head, int32_t row, int32_t count,
                         uint8_t *ret_rows);
void md_ov_layout_scatter(const struct md_ov_layout *l, uint8_t *head, int32_t row, int32_t count,
                          const uint8_t *rows);

#ifdef __cplusplus
}
#endif
#endif
