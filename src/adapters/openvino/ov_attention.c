/* ov_attention.c - what the engine tells of its attention: queries that each step of the graph gives for all layers, kept
 * of those that are watched; keys out of the rows of an export. */
#include "adapters/openvino/ov_engine.h"

#include "base/half.h"
#include "base/mem.h"
#include "engine/kv_blob.h"

#include <math.h>
#include <string.h>

enum { U8_HEAD_BYTES = 2 * sizeof(float) }; /* scale and zero point, in front of a row of u8 */

/* ---- queries ---- */

enum md_status md_ov_attention_step(struct md_ov_engine *e, int32_t row, struct md_err *err)
{
    const struct md_attention *a = &e->base.attention;
    struct md_ov_queries q;
    enum md_status s = MD_OK;
    for (int32_t i = 0; a->rooms != NULL && i < a->layer_count && s == MD_OK; i++) {
        float *room = md_attention_room(&e->base, i, row);
        if (room == NULL)
            continue;
        s = md_ov_model_queries(e->model, i, &q, err);
        if (s == MD_OK && (q.heads != a->layers[i].query_heads || q.length != a->layers[i].length))
            s = md_fail(err, MD_INTERNAL, "queries of layer %d have %d heads of %d", i, q.heads, q.length);
        if (s == MD_OK)
            memcpy(room, q.at, (size_t)q.rows * (size_t)q.heads * (size_t)q.length * sizeof *room);
    }
    return s;
}

/* ---- keys ---- */

/* One row of one head. */
static void to_halves(const struct md_ov_cache *c, const uint8_t *row, int32_t length, uint16_t *ret)
{
    float scale, zero;
    if (c->type != MD_OV_U8) {
        for (int32_t i = 0; i < length; i++)
            ret[i] = md_half_of(md_ov_cache_number(c, row, (size_t)i));
        return;
    }
    memcpy(&scale, row, sizeof scale);
    memcpy(&zero, row + sizeof scale, sizeof zero);
    for (int32_t i = 0; i < length; i++)
        ret[i] = md_half_of(((float)row[U8_HEAD_BYTES + i] - zero) * scale);
}

/* The keys of a layer begin behind the keys and values of those before it. */
static const uint8_t *keys_of(const struct md_ov_cache *c, const uint8_t *payload, int32_t layer,
                              int32_t count)
{
    for (int32_t i = 0; i < 2 * layer; i++)
        payload += (size_t)count * (size_t)c->parts[i].heads * c->parts[i].row_bytes;
    return payload;
}

enum md_status md_ov_keys(const struct md_engine *base, struct md_range r, struct md_bytes kv,
                          const int32_t *layers, int32_t count, uint16_t *ret_keys, struct md_err *err)
{
    const struct md_ov_engine *e = (const struct md_ov_engine *)base;
    const struct md_ov_cache *c = &e->cache;
    const int32_t tokens = md_range_len(r);
    enum md_status s =
        md_kv_blob_check(kv, MD_KV_BLOB_RANGE, c->token_bytes * (size_t)tokens, r, e->identity_hash, err);
    if (s != MD_OK)
        return s;
    for (int32_t i = 0; i < count; i++) {
        const struct md_ov_part *p = &c->parts[2 * layers[i]];
        const int32_t length = base->attention.layers[layers[i]].length;
        const uint8_t *rows =
            keys_of(c, (const uint8_t *)kv.data + MD_KV_BLOB_HEADER_BYTES, layers[i], tokens);
        for (int32_t row = 0; row < p->heads * tokens; row++, ret_keys += length) /* head after head */
            to_halves(c, rows + (size_t)row * p->row_bytes, length, ret_keys);
    }
    return MD_OK;
}

/* ---- opening ---- */

/* What a layer's queries and keys look like, of the step that was just computed: `count` tokens. */
static struct md_attention_layer look_at(struct md_ov_engine *e, int32_t layer, int32_t count)
{
    const struct md_ov_layer *l = &md_ov_model_facts(e->model)->layers[layer];
    const struct md_attention_layer none = { .windowed = l->windowed };
    struct md_ov_queries q;
    bool some = false;
    if (!(l->scale > 0) || !isfinite(l->scale) || md_ov_model_queries(e->model, layer, &q, NULL) != MD_OK)
        return none;
    if (q.rows != count || q.length != l->key_length || q.heads < 1 || q.heads % l->heads != 0)
        return none;
    for (int32_t i = 0; i < q.rows * q.heads * q.length; i++) {
        if (!isfinite(q.at[i]))
            return none;
        some = some || q.at[i] != 0;
    }
    if (!some)
        return none;
    return (struct md_attention_layer){ .query_heads = q.heads,
                                        .key_heads = l->heads,
                                        .length = q.length,
                                        .scale = l->scale,
                                        .windowed = l->windowed };
}

/* Query times key of a token that is alone, in a layer's first head, and how large it could be. */
struct product {
    double is, most;
};

static bool multiply(struct md_ov_engine *e, struct md_range r, const struct md_buf *kv, int32_t layer,
                     struct product *ret)
{
    uint16_t *keys =
        md_calloc(NULL, md_engine_keys_count(&e->base, &layer, 1, md_range_len(r)), sizeof *keys);
    struct md_ov_queries q;
    const bool there =
        keys != NULL && md_ov_model_queries(e->model, layer, &q, NULL) == MD_OK &&
        md_ov_keys(&e->base, r, (struct md_bytes){ kv->data, kv->len }, &layer, 1, keys, NULL) == MD_OK;
    double squares_q = 0, squares_k = 0;
    ret->is = 0;
    for (int32_t i = 0; there && i < q.length; i++) {
        const double a = (double)q.at[i], b = (double)md_half_to_float(keys[i]);
        ret->is += a * b;
        squares_q += a * a;
        squares_k += b * b;
    }
    ret->most = sqrt(squares_q * squares_k);
    md_free(NULL, keys);
    return there;
}

/* The products of all layers that may be watched, at a position. */
static bool products_at(struct md_ov_engine *e, int32_t position, struct product *ret)
{
    const md_token any = 3 % md_ov_model_facts(e->model)->vocab_count;
    const struct md_range r = { position, position + 1 };
    const float *unwanted;
    struct md_buf kv;
    md_buf_init(&kv, NULL, SIZE_MAX / 2);
    bool good = md_ov_engine_ops.decode(&e->base, 0, position, &any, 1, &unwanted, NULL) == MD_OK &&
                md_ov_engine_ops.export_range(&e->base, 0, r, &kv, NULL) == MD_OK;
    for (int32_t i = 0; i < e->base.attention.layer_count && good; i++)
        if (e->base.attention.layers[i].length > 0)
            good = multiply(e, r, &kv, i, &ret[i]);
    md_buf_done(&kv);
    md_ov_rows_remove(&e->rows, 0, (struct md_range){ 0, INT32_MAX });
    return good;
}

/* A token alone is the same at all positions, but for the turn of its query and of its key: where both are turned, and
 * their numbers stand in one order, their product stays.  A layer where it does not cannot be watched. */
static bool prove(struct md_ov_engine *e)
{
    enum { NEAR = 1, FAR = 97 };
    const double tolerance = 0.03; /* u8 rounds by a 255th of a span; another turn is off by about 1 */
    struct md_attention *a = &e->base.attention;
    struct product *near = md_calloc(NULL, (size_t)a->layer_count, sizeof *near),
                   *far = md_calloc(NULL, (size_t)a->layer_count, sizeof *far);
    const bool computed =
        near != NULL && far != NULL && products_at(e, NEAR, near) && products_at(e, FAR, far);
    for (int32_t i = 0; i < a->layer_count; i++)
        if (!computed || fabs(near[i].is - far[i].is) > tolerance * fmax(near[i].most, far[i].most))
            a->layers[i].length = 0;
    md_free(NULL, near);
    md_free(NULL, far);
    return md_attention_any(a);
}

enum md_status md_ov_attention_open(struct md_ov_engine *e, unsigned *caps, struct md_err *err)
{
    enum { TRIED = 3 };
    const struct md_ov_facts *f = md_ov_model_facts(e->model);
    const int32_t count = e->base.info.ubatch_tokens < TRIED ? e->base.info.ubatch_tokens : TRIED;
    md_token tokens[TRIED];
    const float *unwanted;
    enum md_status s = md_attention_init(&e->base.attention, f->layer_count, err);
    if (s != MD_OK)
        return s;
    for (int32_t i = 0; i < TRIED; i++)
        tokens[i] = (3 + 7 * i) % f->vocab_count;
    if (md_ov_engine_ops.decode(&e->base, 0, 0, tokens, count, &unwanted, NULL) != MD_OK)
        return MD_OK; /* not claimed, and nothing else changes */
    for (int32_t i = 0; i < f->layer_count; i++)
        e->base.attention.layers[i] = look_at(e, i, count);
    md_ov_rows_remove(&e->rows, 0, (struct md_range){ 0, INT32_MAX });
    if (prove(e))
        *caps |= MD_CAP_ATTENTION_SCORES;
    return MD_OK;
}
