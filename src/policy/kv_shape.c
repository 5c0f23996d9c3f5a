/* kv_shape.c - the arithmetic of KV bytes.  All products are of checked factors: contexts up to 2^30,
 * 512 layers and rows below 2^31 bytes stay far below 2^63. */
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
};

const char *md_kv_type_name(enum md_kv_type t)
{
    assert(t < MD_KV_TYPE_COUNT);
    return types[t].name;
}

const char *md_kv_type_names(void)
{
#define X(id, name, values, bytes) name " "
    static const char names[] = MD_KV_TYPE_LIST(X);
#undef X
    return names;
}

bool md_kv_type_is_quantized(enum md_kv_type t)
{
    return md_kv_type_block(t) > 1;
}

int32_t md_kv_type_block(enum md_kv_type t)
{
    assert(t < MD_KV_TYPE_COUNT);
    return types[t].block_values;
}

enum md_status md_kv_type_find(const char *name, const char *which, enum md_kv_type *ret_type,
                               struct md_err *err)
{
    if (name == NULL || name[0] == '\0')
        name = "f16";
    for (int t = 0; t < MD_KV_TYPE_COUNT; t++) {
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
    return values / types[t].block_values * types[t].block_bytes;
}

/* ---- layers ---- */

int32_t md_kv_pad(int32_t tokens)
{
    assert(tokens >= 0 && tokens <= 1 << 30);
    return (tokens + MD_CELL_UNIT - 1) / MD_CELL_UNIT * MD_CELL_UNIT;
}

static int64_t key_values(const struct md_kv_layer *l)
{
    return l->shared ? 0 : (int64_t)l->kv_heads * l->key_length;
}

static int64_t value_values(const struct md_kv_shape *shape, const struct md_kv_layer *l,
                            const struct md_kv_mode *mode)
{
    if (l->shared || l->keys_only || l->kv_heads == 0)
        return 0;
    int64_t widest = (int64_t)l->kv_heads * l->value_length;
    for (int32_t i = 0; i < shape->layer_count && mode->values_padded; i++) {
        int64_t n = (int64_t)shape->layers[i].kv_heads * shape->layers[i].value_length;
        widest = n > widest ? n : widest;
    }
    return widest;
}

int64_t md_kv_layer_cells(const struct md_kv_layer *l, const struct md_kv_mode *mode, int32_t context)
{
    assert(mode->seq_count >= 1 && mode->ubatch_tokens >= 1);
    const int64_t all = md_kv_pad(context);
    if (l->shared || l->kv_heads == 0)
        return 0;
    if (!l->window_cells || mode->window_full)
        return all;
    int64_t window = (int64_t)l->window * mode->seq_count + mode->ubatch_tokens;
    return window < all ? (window + MD_CELL_UNIT - 1) / MD_CELL_UNIT * MD_CELL_UNIT : all;
}

static int64_t cell_bytes(const struct md_kv_shape *shape, const struct md_kv_layer *l,
                          const struct md_kv_mode *mode)
{
    return md_kv_type_bytes(mode->type_k, key_values(l)) +
           md_kv_type_bytes(mode->type_v, value_values(shape, l, mode));
}

int64_t md_kv_layer_bytes(const struct md_kv_shape *shape, int32_t layer, const struct md_kv_mode *mode,
                          int32_t context)
{
    assert(layer >= 0 && layer < shape->layer_count);
    const struct md_kv_layer *l = &shape->layers[layer];
    return md_kv_layer_cells(l, mode, context) * cell_bytes(shape, l, mode) +
           l->state_bytes * mode->seq_count;
}

int64_t md_kv_bytes(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int32_t context)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < shape->layer_count; i++)
        bytes += md_kv_layer_bytes(shape, i, mode, context);
    return bytes;
}

int64_t md_kv_bytes_per_token(const struct md_kv_shape *shape, const struct md_kv_mode *mode)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < shape->layer_count; i++)
        bytes += cell_bytes(shape, &shape->layers[i], mode);
    return bytes;
}

int64_t md_kv_largest_tensor(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int32_t context)
{
    int64_t largest = 0;
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        const int64_t cells = md_kv_layer_cells(l, mode, context);
        const int64_t keys = cells * md_kv_type_bytes(mode->type_k, key_values(l));
        const int64_t values = cells * md_kv_type_bytes(mode->type_v, value_values(shape, l, mode));
        largest = keys > largest ? keys : largest;
        largest = values > largest ? values : largest;
    }
    return largest;
}

/* ---- inversion ---- */

static bool fits(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int64_t budget,
                 int64_t extra_per_cell, int64_t max_tensor, int32_t context)
{
    return md_kv_bytes(shape, mode, context) + extra_per_cell * md_kv_pad(context) <= budget &&
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

enum md_status md_kv_check_types(const struct md_kv_shape *shape, const struct md_kv_mode *mode,
                                 struct md_err *err)
{
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        if (l->kv_heads == 0 || l->shared)
            continue;
        if (l->key_length % md_kv_type_block(mode->type_k) != 0)
            return md_fail(err, MD_UNSUPPORTED,
                           "KV type '%s' for keys has blocks of %d, which do not divide the heads of %d in "
                           "layer %d: use f16",
                           md_kv_type_name(mode->type_k), md_kv_type_block(mode->type_k), l->key_length, i);
        if (!l->keys_only && l->value_length % md_kv_type_block(mode->type_v) != 0)
            return md_fail(err, MD_UNSUPPORTED,
                           "KV type '%s' for values has blocks of %d, which do not divide the heads of %d in "
                           "layer %d: use f16",
                           md_kv_type_name(mode->type_v), md_kv_type_block(mode->type_v), l->value_length, i);
    }
    return MD_OK;
}

/* ---- the simple summary ---- */

static int64_t layers_of(const struct md_kv_profile *p)
{
    return (int64_t)p->global_layers + p->windowed_layers;
}

int64_t md_kv_profile_dense(const struct md_kv_profile *p)
{
    return layers_of(p) * p->per_layer_kv_bytes;
}

int64_t md_kv_profile_marginal(const struct md_kv_profile *p)
{
    return p->window > 0 ? p->global_layers * p->per_layer_kv_bytes : md_kv_profile_dense(p);
}

int64_t md_kv_profile_bytes(const struct md_kv_profile *p, int64_t context)
{
    if (p->window <= 0)
        return md_kv_profile_dense(p) * context;
    int64_t in_window = context < p->window ? context : p->window;
    return p->per_layer_kv_bytes * (p->global_layers * context + p->windowed_layers * in_window);
}

int64_t md_kv_profile_tokens(const struct md_kv_profile *p, int64_t budget, int64_t limit)
{
    const int64_t dense = md_kv_profile_dense(p), marginal = md_kv_profile_marginal(p);
    if (budget <= 0 || dense <= 0)
        return 0;
    if (p->window <= 0 || p->windowed_layers <= 0 || budget <= dense * p->window)
        return budget / dense;
    if (marginal <= 0)
        return limit > 0 ? limit : p->window;
    return (budget - p->windowed_layers * p->per_layer_kv_bytes * p->window) / marginal;
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
