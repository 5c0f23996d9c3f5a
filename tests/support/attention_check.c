/* attention_check.c - see attention_check.h. */
#include "support/attention_check.h"

#include "base/half.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

int32_t md_check_watchable(const struct md_engine *e, int32_t layers[MD_CHECK_LAYERS_MAX])
{
    int32_t all = 0, count = 0;
    const struct md_attention_layer *l = md_engine_attention(e, &all);
    ck_assert_int_le(all, MD_CHECK_LAYERS_MAX);
    for (int32_t i = 0; i < all; i++)
        if (l[i].length > 0)
            layers[count++] = i;
    return count;
}

float *md_check_queries(struct md_engine *e, int32_t layer, int32_t start, int32_t rows)
{
    int32_t all = 0;
    const struct md_attention_layer *l = md_engine_attention(e, &all) + layer;
    struct md_queries q = { 0 };
    struct md_err err = { 0 };
    ck_assert_msg(md_engine_queries(e, layer, &q, &err) == MD_OK, "layer %d: %s", layer, err.text);
    ck_assert_int_eq(q.start, start);
    ck_assert_int_eq(q.rows, rows);
    ck_assert_int_eq(q.heads, l->query_heads);
    ck_assert_int_eq(q.length, l->length);
    const size_t count = (size_t)rows * (size_t)q.heads * (size_t)q.length;
    float *copy = calloc(count, sizeof *copy);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, q.at, count * sizeof *copy);
    return copy;
}

float *md_check_keys(const struct md_engine *e, struct md_range r, const struct md_buf *kv, int32_t layer)
{
    const size_t count = md_engine_keys_count(e, &layer, 1, md_range_len(r));
    uint16_t *halves = calloc(count, sizeof *halves);
    float *keys = calloc(count, sizeof *keys);
    struct md_err err = { 0 };
    ck_assert(halves != NULL && keys != NULL);
    ck_assert_msg(md_engine_keys(e, r, (struct md_bytes){ kv->data, kv->len }, &layer, 1, halves, &err) ==
                      MD_OK,
                  "layer %d: %s", layer, err.text);
    for (size_t i = 0; i < count; i++)
        keys[i] = md_half_to_float(halves[i]);
    free(halves);
    return keys;
}

float md_check_apart(const float *a, const float *b, size_t count)
{
    float worst = 0;
    for (size_t i = 0; i < count; i++)
        worst = fmaxf(worst, fabsf(a[i] - b[i]) / fmaxf(1, fabsf(b[i])));
    return worst;
}

void md_check_shares(const struct md_attention_layer *l, const float *query, int32_t head, const float *keys,
                     int32_t tokens, double *ret)
{
    const float *q = query + (ptrdiff_t)head * l->length;
    const float *k = keys + (ptrdiff_t)(head * l->key_heads / l->query_heads) * tokens * l->length;
    double top = -HUGE_VAL, sum = 0;
    for (int32_t t = 0; t < tokens; t++) {
        ret[t] = 0;
        for (int32_t i = 0; i < l->length; i++)
            ret[t] += (double)q[i] * (double)k[(ptrdiff_t)t * l->length + i];
        ret[t] *= (double)l->scale;
        top = fmax(top, ret[t]);
    }
    for (int32_t t = 0; t < tokens; t++)
        sum += ret[t] = exp(ret[t] - top);
    for (int32_t t = 0; t < tokens; t++)
        ret[t] /= sum;
}
