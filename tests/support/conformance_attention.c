/* conformance_attention.c - scenarios of attention.h: whose queries and keys are given, and when. */
#include "support/conformance_run.h"

#include "support/attention_check.h"
#include "support/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KV_LIMIT_BYTES = 64 << 20, CALL_MAX = 300, TAIL_TOKENS = 160, DENSE_TOKENS = 96 };

/* Where the same was computed in other steps: what is allowed of logits is enough for what they are made of. */
static float tolerance(void)
{
    const struct md_subject *s = md_conf_subject;
    return fmaxf(1e-3f, fmaxf(s->reference_tolerance, s->moved_tolerance));
}

/* Everything that can be watched, is. */
static int32_t watch_all(int32_t layers[MD_CHECK_LAYERS_MAX])
{
    const int32_t count = md_check_watchable(md_conf_engine(), layers);
    ck_assert_int_gt(count, 0);
    MD_CONF_OK(md_engine_watch(md_conf_engine(), layers, count, err));
    return count;
}

static size_t floats_of(int32_t layer, int32_t rows)
{
    int32_t all = 0;
    const struct md_attention_layer *l = md_engine_attention(md_conf_engine(), &all) + layer;
    return (size_t)rows * (size_t)l->query_heads * (size_t)l->length;
}

/* More than a micro-batch, where a call may be that long. */
static int32_t long_call(void)
{
    const struct md_engine_info *i = md_engine_info(md_conf_engine());
    const int32_t some = i->ubatch_tokens + 44,
                  most = i->batch_tokens < CALL_MAX ? i->batch_tokens : CALL_MAX;
    return some < most ? some : most;
}

static void feed(int32_t start, int32_t count)
{
    MD_CONF_OK(md_engine_prefill(md_conf_engine(), 0, start, md_conf_subject->tokens + start, count, err));
}

static void export_range(md_seq seq, struct md_range r, struct md_buf *ret_kv)
{
    md_buf_init(ret_kv, NULL, KV_LIMIT_BYTES);
    MD_CONF_OK(md_engine_export_range(md_conf_engine(), seq, r, ret_kv, err));
}

/* ---- against the reference pass ---- */

/* The shares that the last token's heads pay, by the engine and by the reference's queries and keys. */
static void compare_shares(int32_t layer, int32_t count, const float *queries, const float *keys,
                           const float *right_queries, const float *right_keys)
{
    int32_t all = 0;
    const struct md_attention_layer *l = md_engine_attention(md_conf_engine(), &all) + layer;
    const size_t last = floats_of(layer, count - 1);
    double got[CALL_MAX], right[CALL_MAX], worst = 0;
    for (int32_t h = 0; h < l->query_heads; h++) {
        md_check_shares(l, queries + last, h, keys, count, got);
        md_check_shares(l, right_queries + last, h, right_keys, count, right);
        for (int32_t t = 0; t < count; t++)
            worst = fmax(worst, fabs(got[t] - right[t]));
    }
    ck_assert_msg(worst <= (double)tolerance(), "layer %d: shares are off by %g", layer, worst);
}

/* Queries of one call of several micro-batches and keys of its export are what the reference pass computes in double; its
 * logits are the engine's (other scenarios), so its attention is. */
void md_scenario_attention_of_known_weights(int unused)
{
    static struct md_ref_token list[CALL_MAX];
    static bool sees[CALL_MAX * CALL_MAX];
    const struct md_fake_dims *d = &md_conf_subject->model->dims;
    const size_t width = (size_t)d->kv_heads * (size_t)d->head_dim;
    int32_t layers[MD_CHECK_LAYERS_MAX], all = 0;
    struct md_buf kv;
    (void)unused;
    md_conf_begin();
    const int32_t count = long_call(), watched = watch_all(layers);
    const struct md_range r = { 0, count };
    for (int32_t i = 0; i < count; i++) {
        list[i] = (struct md_ref_token){ md_conf_subject->tokens[i], i, i };
        for (int32_t j = 0; j < count; j++)
            sees[i * count + j] = j <= i;
    }
    feed(0, count);
    export_range(0, r, &kv);
    for (int32_t i = 0; i < watched; i++) {
        const struct md_attention_layer *l = md_engine_attention(md_conf_engine(), &all) + layers[i];
        ck_assert(l->query_heads == d->heads && l->key_heads == d->kv_heads && l->length == d->head_dim);
        ck_assert(fabs((double)l->scale - 1 / sqrt(d->head_dim)) < 1e-6 && !l->windowed);
        float *queries = md_check_queries(md_conf_engine(), layers[i], 0, count);
        float *keys = md_check_keys(md_conf_engine(), r, &kv, layers[i]);
        float *right_queries = calloc(floats_of(layers[i], count), sizeof *right_queries);
        float *by_token = calloc((size_t)count * width, sizeof *by_token);
        float *right_keys = calloc((size_t)count * width, sizeof *right_keys);
        ck_assert(right_queries != NULL && by_token != NULL && right_keys != NULL);
        ck_assert(md_reference_attention(md_conf_subject->model, list, sees, count, layers[i], right_queries,
                                         by_token));
        for (int32_t h = 0; h < d->kv_heads; h++)
            for (int32_t t = 0; t < count; t++)
                memcpy(right_keys + (h * count + t) * d->head_dim,
                       by_token + (size_t)t * width + (size_t)(h * d->head_dim),
                       (size_t)d->head_dim * sizeof *right_keys);
        const float q = md_check_apart(queries, right_queries, floats_of(layers[i], count));
        const float k = md_check_apart(keys, right_keys, (size_t)count * width);
        ck_assert_msg(q <= tolerance(), "layer %d: queries are off by %g", layers[i], (double)q);
        ck_assert_msg(k <= tolerance(), "layer %d: keys are off by %g", layers[i], (double)k);
        compare_shares(layers[i], count, queries, keys, right_queries, right_keys);
        free(queries);
        free(keys);
        free(right_queries);
        free(by_token);
        free(right_keys);
    }
    md_buf_done(&kv);
}

/* ---- queries ---- */

/* A long call gives the rows of the short ones, in their order; so does a decode, of one token and of several. */
void md_scenario_queries_of_any_split(int unused)
{
    int32_t layers[MD_CHECK_LAYERS_MAX];
    float *whole[MD_CHECK_LAYERS_MAX];
    (void)unused;
    md_conf_begin();
    const int32_t total = long_call(), watched = watch_all(layers), chunk = total / 4 + 1, few = 5;
    feed(0, total);
    for (int32_t i = 0; i < watched; i++)
        whole[i] = md_check_queries(md_conf_engine(), layers[i], 0, total);
    md_conf_begin();
    watch_all(layers);
    for (int32_t start = 0, n; start < total; start += n) {
        const float *unwanted;
        const int32_t left = total - few - 1 - start;
        n = left > chunk ? chunk : left > 0 ? left : left == 0 ? few : 1;
        if (left > 0)
            feed(start, n);
        else
            MD_CONF_OK(md_engine_decode(md_conf_engine(), 0, start, md_conf_subject->tokens + start, n,
                                        &unwanted, err));
        for (int32_t i = 0; i < watched; i++) {
            float *part = md_check_queries(md_conf_engine(), layers[i], start, n);
            const float d =
                md_check_apart(part, whole[i] + floats_of(layers[i], start), floats_of(layers[i], n));
            ck_assert_msg(d <= tolerance(), "layer %d, rows %d + %d: off by %g", layers[i], start, n,
                          (double)d);
            free(part);
        }
    }
    for (int32_t i = 0; i < watched; i++) {
        const float d =
            md_check_apart(whole[i], whole[i] + floats_of(layers[i], 1), floats_of(layers[i], total - 1));
        ck_assert_msg(d > 0.01f, "all rows of layer %d are alike: they prove nothing", layers[i]);
        free(whole[i]);
    }
}

static bool at_once(void *user)
{
    (void)user;
    return true;
}

static void check_none(int32_t layer, const char *label)
{
    struct md_queries q = { .rows = -1 };
    struct md_err err = { 0 };
    ck_assert_msg(md_engine_queries(md_conf_engine(), layer, &q, &err) == MD_INVALID, "%s", label);
    ck_assert_msg(q.rows == -1 && err.text[0] != '\0', "%s", label);
}

/* From the end of a call to the beginning of the next, whatever is done in between. */
void md_scenario_queries_are_those_of_the_last_call(int unused)
{
    struct md_engine *e = md_conf_engine();
    int32_t layers[MD_CHECK_LAYERS_MAX];
    struct md_buf kv;
    (void)unused;
    md_conf_begin();
    feed(0, 20);
    const int32_t watched = watch_all(layers), layer = layers[watched - 1];
    check_none(layer, "watched, and no call since");
    feed(20, 12);
    float *before = md_check_queries(e, layer, 20, 12);
    export_range(0, (struct md_range){ 4, 12 }, &kv);
    ck_assert_int_eq(md_engine_prefill(e, 0, 3, md_conf_subject->tokens, 4, NULL), MD_INVALID);
    if (md_engine_caps(e) & MD_CAP_SHARE) {
        MD_CONF_OK(md_engine_share(e, 0, 1, (struct md_range){ 0, 16 }, err));
        if (md_engine_caps(e) & MD_CAP_RECOMPUTE_RANGE) {
            MD_CONF_OK(md_engine_remove_range(e, 1, (struct md_range){ 4, 12 }, err));
            MD_CONF_OK(md_engine_recompute_range(e, 1, (struct md_range){ 4, 12 }, md_conf_subject->tokens,
                                                 (struct md_bytes){ 0 }, err));
        }
        MD_CONF_OK(md_engine_truncate(e, 1, 0, err));
    }
    float *after = md_check_queries(e, layer, 20, 12);
    ck_assert_mem_eq(before, after, floats_of(layer, 12) * sizeof *before);
    free(before);
    free(after);
    md_buf_done(&kv);

    md_engine_set_interrupt(e, at_once, NULL);
    ck_assert_int_eq(md_engine_prefill(e, 0, 32, md_conf_subject->tokens + 32, 8, NULL), MD_CANCELLED);
    md_engine_set_interrupt(e, NULL, NULL);
    check_none(layer, "after an interrupted call");
    feed(32, 8);
    free(md_check_queries(e, layer, 32, 8));
    MD_CONF_OK(md_engine_watch(e, layers, watched, err));
    check_none(layer, "watched again, and no call since");
}

void md_scenario_only_what_is_there_is_watched(int unused)
{
    struct md_engine *e = md_conf_engine();
    int32_t layers[MD_CHECK_LAYERS_MAX], all = 0;
    (void)unused;
    md_conf_begin();
    const int32_t count = md_check_watchable(e, layers), first = layers[0];
    const struct md_attention_layer *l = md_engine_attention(e, &all);
    const int32_t wrong[][2] = { { -1, first }, { first, all }, { first, first }, { all, all + 1 } };
    ck_assert_int_gt(count, 0);
    feed(0, 8);
    check_none(first, "nothing is watched");
    MD_CONF_OK(md_engine_watch(e, layers, 1, err));
    feed(8, 8);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_int_eq(md_engine_watch(e, wrong[i], 2, NULL), MD_INVALID);
    ck_assert_int_eq(md_engine_watch(e, layers, -1, NULL), MD_INVALID);
    ck_assert_int_eq(md_engine_watch(e, NULL, 1, NULL), MD_INVALID);
    for (int32_t i = 0; i < all; i++) {
        if (l[i].length == 0)
            ck_assert_int_eq(md_engine_watch(e, &i, 1, NULL), MD_INVALID);
        if (i != first)
            check_none(i, "another layer is watched");
    }
    check_none(-1, "no layer");
    check_none(all, "a layer too many");
    free(md_check_queries(e, first, 8, 8)); /* what was refused changed nothing */
    if (count > 1) {
        MD_CONF_OK(md_engine_watch(e, layers + 1, count - 1, err));
        feed(16, 8);
        check_none(first, "no longer watched");
        free(md_check_queries(e, layers[1], 16, 8));
    }
    MD_CONF_OK(md_engine_watch(e, NULL, 0, err));
    feed(md_engine_end(e, 0), 8);
    check_none(layers[count - 1], "nothing is watched any more");
}

/* To the bit: looking on changes no sum. */
void md_scenario_watching_moves_no_logit(int unused)
{
    const size_t bytes = (size_t)md_engine_info(md_conf_engine())->vocab_count * sizeof(float);
    int32_t layers[MD_CHECK_LAYERS_MAX];
    float *without[2] = { NULL, NULL };
    (void)unused;
    md_conf_begin();
    const int32_t total = long_call();
    for (int watched = 0; watched < 2; watched++) {
        md_conf_begin();
        if (watched)
            watch_all(layers);
        feed(0, total - 1);
        for (int32_t i = 0; i < 2; i++) {
            const float *logits;
            MD_CONF_OK(md_engine_decode(md_conf_engine(), 0, total - 1 + i,
                                        md_conf_subject->tokens + total - 1 + i, 1, &logits, err));
            if (watched) {
                ck_assert_msg(memcmp(without[i], logits, bytes) == 0, "logits moved by %g",
                              (double)md_conf_distance(without[i], logits));
            } else {
                without[i] = malloc(bytes);
                ck_assert_ptr_nonnull(without[i]);
                memcpy(without[i], logits, bytes);
            }
        }
    }
    free(without[0]);
    free(without[1]);
}

/* ---- keys ---- */

/* Out, in, and out again, in two parts of which the later one comes in first, so that its cells may stand before the
 * other's: the same keys.  Those of a part are a part of those of the whole, those of all layers those of
 * each in turn. */
void md_scenario_keys_of_what_came_back(int unused)
{
    struct md_engine *e = md_conf_engine();
    const bool tail = (md_engine_caps(e) & MD_CAP_CHECKPOINT) != 0;
    const int32_t end = tail ? TAIL_TOKENS + md_conf_wider() : DENSE_TOKENS;
    const struct md_range r = { 24, 57 }, part = { 30, 41 }, early = { 24, 39 }, late = { 39, 57 };
    int32_t layers[MD_CHECK_LAYERS_MAX], all = 0;
    struct md_buf first, again, piece, halves_of[2];
    (void)unused;
    md_conf_begin();
    const int32_t count = md_check_watchable(e, layers);
    md_conf_prefill(0, end, 32);
    export_range(0, r, &first);
    export_range(0, part, &piece);
    for (int i = 0; i < 2; i++) {
        md_buf_init(&halves_of[i], NULL, KV_LIMIT_BYTES);
        md_conf_evict(i == 0 ? early : late, &halves_of[i]);
    }
    for (int i = 1; i >= 0; i--) {
        md_conf_admit(i == 0 ? early : late, (struct md_bytes){ halves_of[i].data, halves_of[i].len });
        md_buf_done(&halves_of[i]);
    }
    export_range(0, r, &again);
    const size_t halves = md_engine_keys_count(e, layers, count, md_range_len(r));
    uint16_t *together = calloc(halves, sizeof *together), *next = together;
    ck_assert_ptr_nonnull(together);
    MD_CONF_OK(
        md_engine_keys(e, r, (struct md_bytes){ first.data, first.len }, layers, count, together, err));
    for (int32_t i = 0; i < count; i++) {
        const struct md_attention_layer *l = md_engine_attention(e, &all) + layers[i];
        const size_t each = md_engine_keys_count(e, &layers[i], 1, md_range_len(r));
        float *a = md_check_keys(e, r, &first, layers[i]), *b = md_check_keys(e, r, &again, layers[i]);
        float *p = md_check_keys(e, part, &piece, layers[i]);
        uint16_t *alone = calloc(each, sizeof *alone);
        ck_assert_ptr_nonnull(alone);
        MD_CONF_OK(
            md_engine_keys(e, r, (struct md_bytes){ again.data, again.len }, &layers[i], 1, alone, err));
        ck_assert_mem_eq(a, b, each * sizeof *a);
        ck_assert_mem_eq(alone, next, each * sizeof *alone);
        for (int32_t h = 0; h < l->key_heads; h++)
            ck_assert_mem_eq(p + h * md_range_len(part) * l->length,
                             a + (h * md_range_len(r) + part.start - r.start) * l->length,
                             (size_t)(md_range_len(part) * l->length) * sizeof *a);
        ck_assert_msg(md_check_apart(a, a + l->length, each - (size_t)l->length) > 0.01f,
                      "all keys of layer %d are alike: they prove nothing", layers[i]);
        next += each;
        free(a);
        free(b);
        free(p);
        free(alone);
    }
    ck_assert_ptr_eq(next, together + halves);
    free(together);
    md_buf_done(&first);
    md_buf_done(&again);
    md_buf_done(&piece);
}

/* Keys of a range at another place are turned: in the first layer, where they depend on the token and the position only,
 * those that are computed there; in all layers, those of the old place when they are turned back. */
void md_scenario_keys_of_what_was_moved(int unused)
{
    struct md_engine *e = md_conf_engine();
    const struct md_range r = { 16, 40 }, there = { 216, 240 };
    const float turned = fmaxf(tolerance(), 2e-3f); /* rounded once more */
    int32_t layers[MD_CHECK_LAYERS_MAX];
    struct md_buf kv, moved, computed, back;
    (void)unused;
    md_conf_begin();
    const int32_t count = md_check_watchable(e, layers);
    feed(0, 48);
    export_range(0, r, &kv);
    MD_CONF_OK(md_engine_admit_moved(e, 1, there, r.start, (struct md_bytes){ kv.data, kv.len }, err));
    export_range(1, there, &moved);
    MD_CONF_OK(md_engine_truncate(e, 1, 0, err));
    MD_CONF_OK(md_engine_admit_moved(e, 1, r, there.start, (struct md_bytes){ moved.data, moved.len }, err));
    export_range(1, r, &back);
    MD_CONF_OK(md_engine_truncate(e, 1, 0, err));
    MD_CONF_OK(md_engine_prefill(e, 1, there.start, md_conf_subject->tokens + r.start, md_range_len(r), err));
    export_range(1, there, &computed);
    for (int32_t i = 0; i < count; i++) {
        const size_t each = md_engine_keys_count(e, &layers[i], 1, md_range_len(r));
        float *a = md_check_keys(e, r, &kv, layers[i]), *b = md_check_keys(e, there, &moved, layers[i]),
              *c = md_check_keys(e, there, &computed, layers[i]), *d = md_check_keys(e, r, &back, layers[i]);
        const float first = md_check_apart(b, c, each), home = md_check_apart(d, a, each);
        ck_assert_msg(md_check_apart(a, b, each) > 0.1f, "layer %d: nothing was turned", layers[i]);
        ck_assert_msg(home <= turned, "layer %d: off by %g when turned back", layers[i], (double)home);
        ck_assert_msg(layers[i] > 0 || first <= turned, "computed there they are off by %g", (double)first);
        free(a);
        free(b);
        free(c);
        free(d);
    }
    md_buf_done(&kv);
    md_buf_done(&moved);
    md_buf_done(&computed);
    md_buf_done(&back);
}

void md_scenario_keys_of_other_bytes_are_refused(int unused)
{
    struct md_engine *e = md_conf_engine();
    const struct md_range r = { 4, 20 }, other = { 5, 21 }, shorter = { 4, 19 }, none = { 4, 4 },
                          before = { -4, 12 };
    int32_t layers[MD_CHECK_LAYERS_MAX], all = 0;
    struct md_buf kv;
    (void)unused;
    md_conf_begin();
    md_engine_attention(e, &all);
    const int32_t count = md_check_watchable(e, layers), wrong[] = { -1, all };
    md_conf_prefill(0, 32, 32);
    export_range(0, r, &kv);
    const struct md_bytes good = { kv.data, kv.len };
    uint16_t *keys = calloc(md_engine_keys_count(e, layers, count, md_range_len(r)), sizeof *keys);
    ck_assert_ptr_nonnull(keys);
    struct md_conf_state state = md_conf_remember();
    const struct {
        struct md_range r;
        struct md_bytes kv;
        enum md_status want;
    } rows[] = { { other, good, MD_INVALID },
                 { shorter, good, MD_INVALID },
                 { none, good, MD_INVALID },
                 { before, good, MD_INVALID },
                 { r, { kv.data, kv.len - 1 }, MD_CORRUPT },
                 { r, { kv.data, 20 }, MD_CORRUPT },
                 { r, { NULL, 0 }, MD_CORRUPT },
                 { r, good, MD_OK } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_err err = { 0 };
        const enum md_status s = md_engine_keys(e, rows[i].r, rows[i].kv, layers, count, keys, &err);
        ck_assert_msg(s == rows[i].want, "row %zu: %s: %s", i, md_status_name(s), err.text);
    }
    for (size_t at = 0; at < kv.len; at += kv.len / 7 + 1) {
        kv.data[at] ^= 0x40;
        ck_assert_int_eq(md_engine_keys(e, r, good, layers, count, keys, NULL), MD_CORRUPT);
        kv.data[at] ^= 0x40;
    }
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(md_engine_keys(e, r, good, &wrong[i], 1, keys, NULL), MD_INVALID);
    ck_assert_int_eq(md_engine_keys(e, r, good, layers, 0, keys, NULL), MD_INVALID);
    md_conf_check_unchanged(&state, "keys");
    free(keys);
    md_buf_done(&kv);
}
