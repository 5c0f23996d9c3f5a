/* ov_attention.c - what the engine tells of its attention: queries that each step of the graph gives for all layers, kept
 * of those that are watched; keys out of the rows of an export. */
#include "adapters/openvino/ov_engine.h"

#include "base/half.h"
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
        for (int32_t h = 0; h < p->heads; h++)
            for (int32_t t = 0; t < tokens; t++, ret_keys += length)
                to_halves(c, rows + ((size_t)t * (size_t)p->heads + (size_t)h) * p->row_bytes, length,
                          ret_keys);
    }
    return MD_OK;
}

/* ---- opening ---- */

/* Numbers that attention could be computed with: finite, and not all 0. */
static bool sound(const float *numbers, size_t count)
{
    bool some = false;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(numbers[i]))
            return false;
        some = some || numbers[i] != 0;
    }
    return some;
}

enum md_status md_ov_attention_open(struct md_ov_engine *e, unsigned *caps, struct md_err *err)
{
    enum { TRIED = 3 };
    const struct md_ov_facts *f = md_ov_model_facts(e->model);
    md_token tokens[TRIED];
    const float *unwanted;
    enum md_status s = md_attention_init(&e->base.attention, f->layer_count, err);
    if (s != MD_OK)
        return s;
    const int32_t batch = e->base.info.batch_tokens < e->base.info.ubatch_tokens ? e->base.info.batch_tokens
                                                                                 : e->base.info.ubatch_tokens;
    const int32_t count = batch < TRIED ? batch : TRIED;
    for (int32_t i = 0; i < TRIED; i++)
        tokens[i] = (3 + 7 * i) % f->vocab_count;
    if (md_ov_engine_ops.decode(&e->base, 0, 0, tokens, count, &unwanted, NULL) != MD_OK)
        return MD_OK; /* not claimed, and nothing else changes */
    for (int32_t i = 0; i < f->layer_count; i++) {
        const struct md_ov_layer *l = &f->layers[i];
        struct md_ov_queries q;
        if (!(l->scale > 0) || !isfinite(l->scale) || md_ov_model_queries(e->model, i, &q, NULL) != MD_OK)
            continue;
        if (q.rows != count || q.length != l->key_length || q.heads < 1 || q.heads % l->heads != 0 ||
            !sound(q.at, (size_t)q.rows * (size_t)q.heads * (size_t)q.length))
            continue;
        e->base.attention.layers[i] = (struct md_attention_layer){ .query_heads = q.heads,
                                                                   .key_heads = l->heads,
                                                                   .length = q.length,
                                                                   .scale = l->scale,
                                                                   .windowed = l->windowed };
    }
    md_ov_rows_remove(&e->rows, 0, (struct md_range){ 0, INT32_MAX });
    if (md_attention_any(&e->base.attention))
        *caps |= MD_CAP_ATTENTION_SCORES;
    return MD_OK;
}
