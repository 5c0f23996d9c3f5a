/* kv_shape.c - the arithmetic of KV bytes.  The factors come from a model's file, so products and sums stop
 * at a ceiling instead of wrapping: what a hostile file declares is then merely too large for any budget. */
#include "policy/kv_shape.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int32_t block_values, block_bytes;
} types[] = {
#define X(id, name, values, bytes) { name, values, bytes },
    MD_KV_TYPE_LIST(X)
#undef X
        [MD_KV_U8] = { "u8", 1, 1 },
};

static const int64_t CEILING = INT64_C(1) << 60; /* sums of a few of these still fit in 63 bits */

static int64_t product(int64_t a, int64_t b)
{
    int64_t bytes;
    return __builtin_mul_overflow(a, b, &bytes) || bytes > CEILING ? CEILING : bytes;
}

static int64_t sum(int64_t a, int64_t b)
{
    return a + b > CEILING ? CEILING : a + b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

const char *md_kv_type_name(enum md_kv_type t)
{
    assert(t < MD_KV_TYPE_COUNT);
    return types[t].name;
}

const char *md_kv_type_names(void)
{
#define X(id, name, values, bytes) " " name
    static const char names[] = MD_KV_TYPE_LIST(X);
#undef X
    return names + 1;
}

bool md_kv_type_is_quantized(enum md_kv_type t)
{
    return md_kv_type_block(t) > 1 || t == MD_KV_U8;
}

int32_t md_kv_type_block(enum md_kv_type t)
{
    assert(t < MD_KV_TYPE_COUNT);
    return types[t].block_values;
}

enum md_status md_kv_type_find(const char *name, const char *which, enum md_kv_type *ret_type,
                               struct md_err *err)
{
    if (name == NULL)
        name = "f16";
    for (int t = 0; t < MD_KV_LISTED; t++) {
        if (strcmp(name, types[t].name) == 0) {
            *ret_type = (enum md_kv_type)t;
            return MD_OK;
        }
    }
    return md_fail(err, MD_INVALID, "unknown KV type '%.40s' for %s: one of %s", name, which,
                   md_kv_type_names());
}

int64_t md_kv_type_bytes(enum md_kv_type t, int64_t values)
{
    assert(t < MD_KV_TYPE_COUNT && values >= 0);
    const int64_t blocks = values / types[t].block_values + (values % types[t].block_values != 0);
    return product(blocks, types[t].block_bytes);
}

/* ---- layers ---- */

int32_t md_kv_pad(int32_t tokens)
{
    assert(tokens >= 0 && tokens <= 1 << 30);
    return (tokens + MD_CELL_UNIT - 1) / MD_CELL_UNIT * MD_CELL_UNIT;
}

static int64_t key_values(const struct md_kv_layer *l)
{
    return l->shared ? 0 : product(l->kv_heads, l->key_length);
}

/* A layer without heads has a place in the cache all the same, unless it keeps a state instead; it costs
 * something only where its values are padded. */
static bool has_cells(const struct md_kv_layer *l, const struct md_kv_mode *mode)
{
    return !l->shared && (l->kv_heads > 0 || (mode->values_padded && l->state_bytes == 0));
}

static int64_t value_values(const struct md_kv_shape *shape, const struct md_kv_layer *l,
                            const struct md_kv_mode *mode)
{
    if (!has_cells(l, mode) || l->keys_only)
        return 0;
    int64_t widest = product(l->kv_heads, l->value_length);
    for (int32_t i = 0; i < shape->layer_count && mode->values_padded; i++)
        widest = larger(widest, product(shape->layers[i].kv_heads, shape->layers[i].value_length));
    return widest;
}

int64_t md_kv_layer_cells(const struct md_kv_layer *l, const struct md_kv_mode *mode, int32_t context)
{
    assert(mode->seq_count >= 1 && mode->ubatch_tokens >= 1);
    const int64_t all = md_kv_pad(context);
    if (!has_cells(l, mode))
        return 0;
    if (!l->window_cells || l->window == 0 || mode->window_full)
        return all;
    int64_t window = (int64_t)l->window * mode->seq_count + mode->ubatch_tokens;
    return window < all ? (window + MD_CELL_UNIT - 1) / MD_CELL_UNIT * MD_CELL_UNIT : all;
}

/* `values` numbers of one cell, in the heads of a layer. */
static int64_t row_bytes(enum md_kv_type t, const struct md_kv_layer *l, int64_t values)
{
    const int64_t heads = t == MD_KV_U8 && values > 0 ? product(l->kv_heads, MD_KV_U8_HEAD_BYTES) : 0;
    return sum(md_kv_type_bytes(t, values), heads);
}

static int64_t cell_bytes(const struct md_kv_shape *shape, const struct md_kv_layer *l,
                          const struct md_kv_mode *mode)
{
    return sum(row_bytes(mode->type_k, l, key_values(l)),
               row_bytes(mode->type_v, l, value_values(shape, l, mode)));
}

int64_t md_kv_layer_bytes(const struct md_kv_shape *shape, int32_t layer, const struct md_kv_mode *mode,
                          int32_t context)
{
    assert(layer >= 0 && layer < shape->layer_count);
    const struct md_kv_layer *l = &shape->layers[layer];
    return sum(product(md_kv_layer_cells(l, mode, context), cell_bytes(shape, l, mode)),
               product(l->state_bytes, mode->seq_count));
}

int64_t md_kv_bytes(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int32_t context)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < shape->layer_count; i++)
        bytes = sum(bytes, md_kv_layer_bytes(shape, i, mode, context));
    return bytes;
}

int64_t md_kv_bytes_per_token(const struct md_kv_shape *shape, const struct md_kv_mode *mode)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < shape->layer_count; i++)
        bytes = sum(bytes, cell_bytes(shape, &shape->layers[i], mode));
    return bytes;
}

int64_t md_kv_growing_bytes(const struct md_kv_shape *shape, const struct md_kv_mode *mode)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        if (md_kv_layer_cells(l, mode, MD_CONTEXT_MAX) == MD_CONTEXT_MAX)
            bytes = sum(bytes, cell_bytes(shape, l, mode));
    }
    return bytes;
}

int64_t md_kv_largest_tensor(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int32_t context)
{
    int64_t largest = 0;
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        const int64_t cells = md_kv_layer_cells(l, mode, context);
        const int64_t keys = row_bytes(mode->type_k, l, key_values(l));
        const int64_t values = row_bytes(mode->type_v, l, value_values(shape, l, mode));
        largest = larger(largest, product(cells, larger(keys, values)));
    }
    return largest;
}

int64_t md_kv_extra_bytes(int64_t extra_per_cell, int32_t context)
{
    return product(extra_per_cell, md_kv_pad(context));
}

/* ---- inversion ---- */

static bool fits(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int64_t budget,
                 int64_t extra_per_cell, int64_t max_tensor, int32_t context)
{
    return sum(md_kv_bytes(shape, mode, context), md_kv_extra_bytes(extra_per_cell, context)) <= budget &&
           (max_tensor <= 0 || md_kv_largest_tensor(shape, mode, context) <= max_tensor);
}

int32_t md_kv_tokens(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int64_t budget,
                     int64_t extra_per_cell, int64_t max_tensor, int32_t limit)
{
    assert(extra_per_cell >= 0 && limit >= 0 && limit <= 1 << 30);
    if (fits(shape, mode, budget, extra_per_cell, max_tensor, limit))
        return limit;
    int32_t low = 0, high = limit / MD_CELL_UNIT; /* in units: low fits or is nothing, high + 1 does not */
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        if (fits(shape, mode, budget, extra_per_cell, max_tensor, middle * MD_CELL_UNIT))
            low = middle;
        else
            high = middle - 1;
    }
    return low * MD_CELL_UNIT;
}

static enum md_status check_head(enum md_kv_type t, const char *which, int32_t length, int32_t layer,
                                 struct md_err *err)
{
    const int32_t block = md_kv_type_block(t);
    if (length % block == 0)
        return MD_OK;
    return md_fail(
        err, MD_UNSUPPORTED,
        "KV type '%s' for %s does not fit layer %d: heads of %d are not made of blocks of %d; use f16",
        md_kv_type_name(t), which, layer, length, block);
}

enum md_status md_kv_check_types(const struct md_kv_shape *shape, const struct md_kv_mode *mode,
                                 struct md_err *err)
{
    enum md_status s = MD_OK;
    for (int32_t i = 0; i < shape->layer_count && s == MD_OK; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        if (l->kv_heads == 0 || l->shared)
            continue;
        s = check_head(mode->type_k, "keys", l->key_length, i, err);
        if (s == MD_OK && !l->keys_only)
            s = check_head(mode->type_v, "values", l->value_length, i, err);
    }
    return s;
}

/* ---- the simple summary ---- */

static int64_t layers_of(const struct md_kv_profile *p)
{
    return (int64_t)p->global_layers + p->windowed_layers;
}

int64_t md_kv_profile_dense(const struct md_kv_profile *p)
{
    return product(layers_of(p), p->per_layer_kv_bytes);
}

int64_t md_kv_profile_marginal(const struct md_kv_profile *p)
{
    return p->window > 0 ? product(p->global_layers, p->per_layer_kv_bytes) : md_kv_profile_dense(p);
}

int64_t md_kv_profile_bytes(const struct md_kv_profile *p, int64_t context)
{
    const int64_t in_window = p->window > 0 && p->window < context ? p->window : context;
    const int64_t cells = sum(product(p->global_layers, context), product(p->windowed_layers, in_window));
    return product(p->per_layer_kv_bytes, cells);
}

int64_t md_kv_profile_tokens(const struct md_kv_profile *p, int64_t budget, int64_t limit)
{
    const int64_t dense = md_kv_profile_dense(p), marginal = md_kv_profile_marginal(p);
    if (budget <= 0 || dense <= 0)
        return 0;
    if (p->window <= 0 || p->windowed_layers <= 0 || budget <= product(dense, p->window))
        return budget / dense;
    if (marginal <= 0)
        return larger(limit, p->window);
    return (budget - product(dense - marginal, p->window)) / marginal;
}

struct md_kv_profile md_kv_profile_of(const struct md_kv_shape *shape, const struct md_kv_mode *mode)
{
    struct md_kv_profile p = { 0 };
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        if (l->kv_heads == 0 || l->shared)
            continue;
        const bool windowed = l->window_cells && !mode->window_full;
        p.windowed_layers += windowed;
        p.global_layers += !windowed;
        if (windowed && l->window > p.window)
            p.window = l->window;
    }
    if (layers_of(&p) > 0)
        p.per_layer_kv_bytes = (md_kv_bytes_per_token(shape, mode) + layers_of(&p) - 1) / layers_of(&p);
    return p;
}
