/* llama_keys.c - keys out of the bytes of an export: of the library's state of a sequence, what stands before the
 * values.
 *
 *     mark (4), sequence id (4), number of streams (4): 1, number of cells (4)
 *     for each cell: position (4), number of ids (4): 1, where positions have several dimensions these (12), id (4)
 *     order of values (4), number of layers (4)
 *     for each layer: type (4), bytes of a row (8), the rows of all cells
 *
 * A row has the keys of all heads, one behind the other.  (Source: llama_context::state_seq_get_data; state_write,
 * state_write_meta and state_write_data of llama-kv-cache.cpp.)  The bytes passed their checksum, so they are what the
 * library wrote; that this is as above is tried when the engine opens, and each number is looked at all the same. */
#include "adapters/llama/llama_engine.h"
#include "engine/kv_blob.h"

#include <string.h>

enum { HEAD_BYTES = 16, LAYOUT_BYTES = 8, BLOCK_HEAD_BYTES = 12 };
enum { CELL_BYTES = 12, CELL_WITH_PLACE_BYTES = 24 };

static uint32_t number_at(const uint8_t *from)
{
    uint32_t n;
    memcpy(&n, from, sizeof n);
    return n;
}

bool md_llama_keys_open(struct md_llama_export *x, const uint8_t *payload, size_t len, struct md_range r,
                        size_t cell_bytes)
{
    const size_t rows = (size_t)md_range_len(r), before = HEAD_BYTES + rows * cell_bytes + LAYOUT_BYTES;
    *x = (struct md_llama_export){ .r = r, .cells = payload + HEAD_BYTES, .cell_bytes = cell_bytes };
    if (len < before || number_at(payload + 8) != 1 || number_at(payload + 12) != rows)
        return false;
    for (int32_t i = 0; i < md_range_len(r); i++)
        if (number_at(x->cells + (size_t)i * cell_bytes + 4) != 1 || md_llama_keys_index(x, i) < 0)
            return false;
    x->layer_count = (int32_t)number_at(payload + before - 4);
    x->blocks = payload + before;
    x->blocks_end = payload + len;
    return x->layer_count >= 0 && x->layer_count <= MD_LAYERS_MAX;
}

int32_t md_llama_keys_index(const struct md_llama_export *x, int32_t row)
{
    const uint32_t pos = number_at(x->cells + (size_t)row * x->cell_bytes);
    if (pos > INT32_MAX || (int32_t)pos < x->r.start || (int32_t)pos >= x->r.end)
        return -1;
    return (int32_t)pos - x->r.start;
}

const uint8_t *md_llama_keys_block(const struct md_llama_export *x, int32_t place, enum ggml_type *ret_type,
                                   size_t *ret_row_bytes)
{
    const size_t rows = (size_t)md_range_len(x->r);
    const uint8_t *at = x->blocks;
    for (int32_t i = 0; i <= place && i < x->layer_count; i++) {
        uint64_t row_bytes;
        if (x->blocks_end - at < BLOCK_HEAD_BYTES)
            return NULL;
        const uint32_t type = number_at(at);
        memcpy(&row_bytes, at + sizeof type, sizeof row_bytes);
        at += BLOCK_HEAD_BYTES;
        if (type >= GGML_TYPE_COUNT || row_bytes > (uint64_t)(x->blocks_end - at) / rows)
            return NULL;
        *ret_type = (enum ggml_type)type;
        *ret_row_bytes = (size_t)row_bytes;
        if (i == place)
            return at;
        at += row_bytes * rows;
    }
    return NULL;
}

/* ---- before the library reads it ---- */

/* Is there what must follow the cells: keys, or, where all layers have windows, nothing but an empty state? */
static bool goes_on(const struct md_llama_engine *e, const struct md_llama_export *x)
{
    enum ggml_type type;
    size_t row_bytes;
    return x->layer_count > 0
               ? md_llama_keys_block(x, 0, &type, &row_bytes) != NULL
               : md_llama_has_tail(e) && (size_t)(x->blocks_end - x->blocks) == md_llama_tail_rest_bytes(e);
}

/* The library takes memory for as many cells as are said, and ends the process for a position below 0. */
void md_llama_cells_learn(struct md_llama_engine *e, const struct md_buf *kv, struct md_range r)
{
    static const size_t sizes[] = { CELL_BYTES, CELL_WITH_PLACE_BYTES };
    const uint8_t *payload = kv->data + MD_KV_BLOB_HEADER_BYTES;
    e->cell_bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && e->cell_bytes == 0; i++) {
        struct md_llama_export x;
        if (md_llama_keys_open(&x, payload, kv->len - MD_KV_BLOB_HEADER_BYTES, r, sizes[i]) && goes_on(e, &x))
            e->cell_bytes = sizes[i];
    }
}

enum md_status md_llama_cells_check(const struct md_llama_engine *e, const uint8_t *payload, size_t len,
                                    struct md_range r, struct md_err *err)
{
    struct md_llama_export x;
    if (e->cell_bytes == 0 || md_llama_keys_open(&x, payload, len, r, e->cell_bytes))
        return MD_OK;
    return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) do not have the cells of their positions", r.start,
                   r.end);
}

/* ---- keys ---- */

/* The numbers of a row as 16 bits each; work has room for as many of f32. */
static void to_halves(const uint8_t *row, enum ggml_type type, int64_t count, float *work, uint16_t *ret)
{
    if (type == GGML_TYPE_F16) {
        memcpy(ret, row, (size_t)count * sizeof *ret);
        return;
    }
    if (type == GGML_TYPE_F32)
        memcpy(work, row, (size_t)count * sizeof *work);
    else
        ggml_get_type_traits(type)->to_float(row, work, count);
    ggml_fp32_to_fp16_row(work, ret, count);
}

/* Keys of one layer: rows of cells in any order become [head][position][number]. */
static enum md_status read_layer(const struct md_llama_engine *e, const struct md_llama_export *x,
                                 int32_t layer, uint16_t *ret, struct md_err *err)
{
    const struct md_attention_layer *l = &e->base.attention.layers[layer];
    const size_t width = (size_t)l->key_heads * (size_t)l->length, tokens = (size_t)md_range_len(x->r);
    enum ggml_type type = GGML_TYPE_COUNT;
    size_t row_bytes = 0;
    const uint8_t *rows = md_llama_keys_block(x, e->attention.layers[layer].place, &type, &row_bytes);
    if (rows == NULL || type != e->attention.layers[layer].cache->type ||
        row_bytes != ggml_row_size(type, (int64_t)width))
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) do not have the keys of layer %d", x->r.start,
                       x->r.end, layer);
    uint8_t *memory = md_calloc(NULL, width, sizeof(float) + sizeof(uint16_t));
    if (memory == NULL)
        return md_fail(err, MD_NO_MEMORY, "keys of layer %d", layer);
    float *work = (float *)(void *)memory;
    uint16_t *halves = (uint16_t *)(void *)(memory + width * sizeof *work);
    for (size_t i = 0; i < tokens; i++) {
        const size_t index = (size_t)md_llama_keys_index(x, (int32_t)i);
        to_halves(rows + i * row_bytes, type, (int64_t)width, work, halves);
        for (size_t h = 0; h < (size_t)l->key_heads; h++)
            memcpy(ret + (h * tokens + index) * (size_t)l->length, halves + h * (size_t)l->length,
                   (size_t)l->length * sizeof *ret);
    }
    md_free(NULL, memory);
    return MD_OK;
}

enum md_status md_llama_keys(const struct md_engine *base, struct md_range r, struct md_bytes kv,
                             const int32_t *layers, int32_t count, uint16_t *ret_keys, struct md_err *err)
{
    const struct md_llama_engine *e = (const struct md_llama_engine *)base;
    const size_t len = (size_t)md_llama_payload_bytes(e, md_range_len(r));
    struct md_llama_export x;
    enum md_status s = md_kv_blob_check(kv, MD_KV_BLOB_RANGE, len, r, e->identity_hash, err);
    if (s != MD_OK)
        return s;
    if (!md_llama_keys_open(&x, (const uint8_t *)kv.data + MD_KV_BLOB_HEADER_BYTES, len, r, e->cell_bytes))
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) are not laid out as the library does it",
                       r.start, r.end);
    for (int32_t i = 0; i < count && s == MD_OK; i++) {
        s = read_layer(e, &x, layers[i], ret_keys, err);
        ret_keys += md_engine_keys_count(base, &layers[i], 1, md_range_len(r));
    }
    return s;
}
