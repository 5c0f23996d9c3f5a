/* lookup_model.c - see lookup_model.h. */
#include "support/lookup_model.h"

#include "support/attention_check.h"
#include "support/exact_model.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 64, HEADS = 2, PROMPT = 90, BLOCK = 32 };
static const float rope_base = 1e9f;
static const double strength[MD_LOOKUP_LAYERS] = { 2, 4 };

/* Numbers (i, i) of a matrix with `columns` columns, from its first row and column on; its weights are the caller's. */
static void set_diagonal(const float *matrix, int32_t columns, float value)
{
    float *at = (float *)(uintptr_t)matrix;
    for (int32_t i = 0; i < WIDTH; i++)
        at[(ptrdiff_t)i * columns + i] = value;
}

static void set_all(const float *vector, float value)
{
    for (int32_t i = 0; i < WIDTH; i++)
        ((float *)(uintptr_t)vector)[i] = value;
}

enum md_status md_lookup_model_open(struct md_fake_model **ret_model, struct md_err *err)
{
    const struct md_fake_dims dims = { .layers = MD_LOOKUP_LAYERS,
                                       .width = WIDTH,
                                       .heads = HEADS,
                                       .kv_heads = 1,
                                       .head_dim = WIDTH,
                                       .ffn = WIDTH,
                                       .vocab = MD_FAKE_BYTE_VOCAB,
                                       .trained_tokens = 8192,
                                       .rope_base = rope_base,
                                       .norm_eps = 1e-6f };
    struct md_fake_model *m = NULL;
    enum md_status s = md_fake_model_open(&dims, 1, NULL, &m, err);
    if (s != MD_OK)
        return s;
    const float unit = sqrtf((float)WIDTH); /* long enough that norms leave it as it is */
    memset(m->weights, 0, m->weight_count * sizeof *m->weights);
    set_all(m->output_norm, 1);
    for (int32_t b = 0; b < MD_LOOKUP_TOKENS; b++) {
        const ptrdiff_t at = (ptrdiff_t)(MD_EXACT_TOKEN_OF_BYTE_0 + b) * WIDTH + (ptrdiff_t)2 * b;
        ((float *)(uintptr_t)m->embed)[at] = unit;
        ((float *)(uintptr_t)m->output)[at] = 1;
    }
    for (int32_t i = 0; i < dims.layers; i++) {
        /* before softmax: q * k * WIDTH numbers / sqrt(WIDTH) */
        const float both = (float)strength[i] / unit, q = 1, k = both;
        const struct md_fake_layer *l = &m->layers[i];
        set_all(l->attn_norm, 1);
        set_all(l->ffn_norm, 1);
        set_diagonal(l->q, WIDTH, q);
        set_diagonal(l->k, WIDTH, k);
        set_diagonal(l->v, WIDTH, 1);
    }
    set_diagonal(m->layers[1].o, HEADS * WIDTH, 1);
    *ret_model = m;
    return MD_OK;
}

double md_lookup_share(const uint8_t *bytes, int32_t layer, int32_t head, int32_t p, int32_t j)
{
    const double speed = pow((double)rope_base, -2.0 * bytes[p] / WIDTH);
    double sum = 0, own = 0;
    for (int32_t i = 0; i <= p; i++) {
        const double score = head == 0 && bytes[i] == bytes[p] ? strength[layer] * cos((p - i) * speed) : 0;
        sum += exp(score);
        own = i == j ? exp(score) : own;
    }
    return own / sum;
}

/* Keys of all positions as whoever ranks blocks gets them: block by block, each from an export, put one behind the other. */
static float *keys_of_blocks(struct md_engine *e, int32_t layer, int32_t tokens)
{
    float *keys = calloc((size_t)tokens * WIDTH, sizeof *keys);
    ck_assert_ptr_nonnull(keys);
    for (int32_t start = 0; start < tokens; start += BLOCK) {
        const struct md_range r = { start, start + BLOCK < tokens ? start + BLOCK : tokens };
        struct md_err err = { 0 };
        struct md_buf kv;
        md_buf_init(&kv, NULL, 1 << 24);
        ck_assert_msg(md_engine_export_range(e, 0, r, &kv, &err) == MD_OK, "%s", err.text);
        float *block = md_check_keys(e, r, &kv, layer);
        memcpy(keys + (ptrdiff_t)start * WIDTH, block, (size_t)md_range_len(r) * WIDTH * sizeof *keys);
        free(block);
        md_buf_done(&kv);
    }
    return keys;
}

static void check_layer(struct md_engine *e, const char *name, const uint8_t *bytes, int32_t layer,
                        double tolerance)
{
    int32_t count = 0;
    const struct md_attention_layer *l = md_engine_attention(e, &count) + layer;
    float *queries = md_check_queries(e, layer, 0, PROMPT), *keys = keys_of_blocks(e, layer, PROMPT);
    double worst = 0, most = 0, shares[PROMPT];
    ck_assert_int_eq(count, MD_LOOKUP_LAYERS);
    ck_assert(l->query_heads == HEADS && l->key_heads == 1 && l->length == WIDTH);
    for (int32_t p = 0; p < PROMPT; p++)
        for (int32_t h = 0; h < HEADS; h++) {
            float *seen = calloc((size_t)(p + 1) * WIDTH, sizeof *seen);
            ck_assert_ptr_nonnull(seen);
            memcpy(seen, keys, (size_t)(p + 1) * WIDTH * sizeof *seen);
            md_check_shares(l, queries + (ptrdiff_t)p * HEADS * WIDTH, h, seen, p + 1, shares);
            for (int32_t j = 0; j <= p; j++) {
                const double right = md_lookup_share(bytes, layer, h, p, j);
                worst = fmax(worst, fabs(shares[j] - right));
                most = p > PROMPT / 2 ? fmax(most, right) : most;
            }
            free(seen);
        }
    printf("%s, layer %d, scale %g: shares up to %.3f, off by %.2g\n", name, layer, (double)l->scale, most,
           worst);
    ck_assert_msg(worst <= tolerance, "%s, layer %d: shares are off by %g", name, layer, worst);
    ck_assert(most > 0.1); /* far from even */
    free(queries);
    free(keys);
}

/* Each token's logit is in proportion to what its occurrences got from the last token's first head. */
static void check_logits(const char *name, const uint8_t *bytes, const float *logits, double tolerance)
{
    double paid[MD_LOOKUP_TOKENS] = { 0 }, logit_sum = 0, paid_sum = 0;
    const int32_t last = PROMPT - 1;
    for (int32_t j = 0; j < PROMPT; j++)
        paid[bytes[j]] += md_lookup_share(bytes, 1, 0, last, j);
    for (int32_t b = 0; b < MD_LOOKUP_TOKENS; b++)
        if (b != bytes[last]) {
            logit_sum += (double)logits[MD_EXACT_TOKEN_OF_BYTE_0 + b];
            paid_sum += paid[b];
        }
    ck_assert(logit_sum > 0 && paid_sum > 0);
    for (int32_t b = 0; b < MD_LOOKUP_TOKENS; b++) {
        const double said = (double)logits[MD_EXACT_TOKEN_OF_BYTE_0 + b] / logit_sum * paid_sum;
        ck_assert_msg(b == bytes[last] || fabs(said - paid[b]) <= tolerance,
                      "%s: byte %d got %g, by its logit %g", name, b, paid[b], said);
    }
    /* and the last token's own: beside what was found there is the token itself, as long as WIDTH numbers of 1 */
    const double own = (double)logits[MD_EXACT_TOKEN_OF_BYTE_0 + bytes[last]] / logit_sum * paid_sum;
    ck_assert_msg(fabs(own - (1 + paid[bytes[last]])) <= 10 * tolerance, "%s: the last token's is %g, not %g",
                  name, own, 1 + paid[bytes[last]]);
}

void md_lookup_check(struct md_engine *e, const char *name, double tolerance)
{
    static const int32_t layers[MD_LOOKUP_LAYERS] = { 0, 1 };
    uint8_t bytes[PROMPT];
    md_token tokens[PROMPT];
    const float *logits = NULL;
    struct md_err err = { 0 };
    for (int32_t i = 0; i < PROMPT; i++) { /* repeats near and far, and tokens that come once */
        bytes[i] = (uint8_t)(i % 7 == 3 ? 20 : i < MD_LOOKUP_TOKENS ? i : (i * i + 3 * i) % MD_LOOKUP_TOKENS);
        tokens[i] = MD_EXACT_TOKEN_OF_BYTE_0 + bytes[i];
    }
    bytes[PROMPT - 1] = 20;
    tokens[PROMPT - 1] = MD_EXACT_TOKEN_OF_BYTE_0 + 20;
    ck_assert_msg(md_engine_caps(e) & MD_CAP_ATTENTION_SCORES, "%s: it cannot", name);
    ck_assert_msg(md_engine_watch(e, layers, MD_LOOKUP_LAYERS, &err) == MD_OK, "%s: %s", name, err.text);
    ck_assert_msg(md_engine_decode(e, 0, 0, tokens, PROMPT, &logits, &err) == MD_OK, "%s: %s", name,
                  err.text);
    check_logits(name, bytes, logits, tolerance);
    for (int32_t i = 0; i < MD_LOOKUP_LAYERS; i++)
        check_layer(e, name, bytes, i, tolerance);
}
