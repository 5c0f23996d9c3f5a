/* test_xattention_openvino_exact.c - the first step of a sequence with XAttention, on the exact model.
 *
 * What is right is the engine that was opened without it, which the conformance suite holds against a reference: to the bit
 * wherever nothing may be left out, and within the bounds of a table where something is.  What the bounds say of other
 * models is nothing: this one's weights are random, and its attention is spread over the whole text, which is the worst that
 * can be. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "engine/kv_blob.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/tiny_models.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PROMPT = 1024, MORE = 200, CELLS = 1280, VOCAB_MAX = 512 };

static char path[512], windowed_path[512];
static md_token tokens[PROMPT + MORE + 1];

static void setup(void)
{
    struct md_fake_model *model = NULL;
    struct md_err err = { 0 };
    const char *tmp = getenv("TMPDIR");
    ck_assert(md_exact_model_file("xattention", &model, path, sizeof path));
    md_fake_model_close(model);
    snprintf(windowed_path, sizeof windowed_path, "%s/modeld-xattention-windowed-%ld.gguf",
             tmp != NULL ? tmp : "/tmp", (long)getpid());
    ck_assert_msg(md_tiny_model_write(&md_tiny_windowed, windowed_path, &err) == MD_OK, "%s", err.text);
    md_subject_random_tokens(tokens, PROMPT + MORE + 1);
}

static void teardown(void)
{
    unlink(path);
    unlink(windowed_path);
}

static struct md_open_params params_of(const char *file, const char *type, double share)
{
    return (struct md_open_params){ .model_path = file,
                                    .cell_count = CELLS,
                                    .batch_tokens = PROMPT,
                                    .ubatch_tokens = PROMPT,
                                    .threads = 1, /* the model is too small for more */
                                    .flash_attn = -1,
                                    .type_k = type,
                                    .type_v = type,
                                    .xattention = share };
}

static struct md_engine *open_engine(const char *file, const char *type, double share)
{
    const struct md_open_params p = params_of(file, type, share);
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_openvino_open(&p, &e, &err) == MD_OK, "%s", err.text);
    return e;
}

/* The logits behind tokens [start, start + count), which follow what is there. */
struct logits {
    float at[VOCAB_MAX];
    int32_t count, best;
};

static struct logits logits_of(struct md_engine *e, int32_t start, int32_t count)
{
    struct logits l = { .count = md_engine_info(e)->vocab_count };
    const float *at = NULL;
    struct md_err err = { 0 };
    ck_assert_int_le(l.count, VOCAB_MAX);
    ck_assert_msg(md_engine_decode(e, 0, start, tokens + start, count, &at, &err) == MD_OK, "%s", err.text);
    memcpy(l.at, at, (size_t)l.count * sizeof *at);
    for (int32_t i = 1; i < l.count; i++)
        l.best = at[i] > at[l.best] ? i : l.best;
    return l;
}

static struct logits first_of(struct md_engine *e, int32_t count)
{
    ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK);
    return logits_of(e, 0, count);
}

static double apart(const struct logits *a, const struct logits *b)
{
    double most = 0;
    for (int32_t i = 0; i < a->count; i++)
        most = fmax(most, fabs((double)a->at[i] - (double)b->at[i]));
    return most;
}

static void check_same(const struct logits *a, const struct logits *b)
{
    ck_assert_msg(memcmp(a->at, b->at, (size_t)a->count * sizeof *a->at) == 0, "%g apart", apart(a, b));
}

static struct md_buf rows_of(struct md_engine *e, struct md_range r)
{
    struct md_buf kv;
    struct md_err err = { 0 };
    md_buf_init(&kv, NULL, 1 << 26);
    ck_assert_msg(md_engine_export_range(e, 0, r, &kv, &err) == MD_OK, "%s", err.text);
    return kv;
}

/* The numbers alone: in front of them is of which engine they are. */
static void check_same_rows(struct md_engine *a, struct md_engine *b, struct md_range r)
{
    struct md_buf x = rows_of(a, r), y = rows_of(b, r);
    ck_assert_uint_eq(x.len, y.len);
    ck_assert_msg(memcmp(x.data + MD_KV_BLOB_HEADER_BYTES, y.data + MD_KV_BLOB_HEADER_BYTES,
                         x.len - MD_KV_BLOB_HEADER_BYTES) == 0,
                  "rows [%d, %d) differ", r.start, r.end);
    md_buf_done(&x);
    md_buf_done(&y);
}

/* ---- the first step ---- */

/* The tolerance row.  Logits of the exact model reach 12 and of a step of `count` tokens with nothing before it they are
 * at least and at most so far from plain ones (f32: f16 and u8 round both sides alike).  Measured: 0 with a share of 1, also
 * of 0.9 up to 700 tokens, of which six blocks none can be left out; then 1.0 at 1,024 (u8: 1.1) and 4.5 with half at 257. */
static const struct {
    double share;
    int32_t count;
    double least, most;
    bool same_best;
} steps[] = {
    { 1.0, 129, 0, 1e-3, true },    { 1.0, 257, 0, 1e-3, true },       { 1.0, 700, 0, 1e-3, true },
    { 1.0, PROMPT, 0, 1e-3, true }, { 0.9, 700, 0, 1e-3, true },       { 0.9, PROMPT, 0.1, 2.0, true },
    { 0.5, 256, 0, 1e-3, true }, /* the first block and its own: there is no other */
    { 0.5, 257, 1.0, 7.0, true },   { 0.5, PROMPT, 4.0, 25.0, false },
};

START_TEST(a_first_step_is_near)
{
    static const char *const types[] = { "f32", "f16", "u8" };
    struct md_engine *plain = open_engine(path, types[_i], 0), *e = NULL;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (i == 0 || steps[i].share != steps[i - 1].share) {
            md_engine_close(e);
            e = open_engine(path, types[_i], steps[i].share);
        }
        const struct logits want = first_of(plain, steps[i].count), got = first_of(e, steps[i].count);
        const double d = apart(&want, &got);
        ck_assert_msg(d >= steps[i].least && d <= steps[i].most, "%s, share %g, %d tokens: %g apart",
                      types[_i], steps[i].share, steps[i].count, d);
        ck_assert_msg(!steps[i].same_best || want.best == got.best, "%s, share %g, %d tokens: %d, not %d",
                      types[_i], steps[i].share, steps[i].count, got.best, want.best);
    }
    md_engine_close(e);
    md_engine_close(plain);
}
END_TEST

/* Windowed layers attend to all that they see: on a model of five of them, one other and one more, what the first five make of
 * the text is plain to the bit, up to the keys and values of the sixth; only behind its attention is anything else. */
START_TEST(windowed_layers_stay_whole)
{
    struct md_engine *plain = open_engine(windowed_path, "f32", 0),
                     *all = open_engine(windowed_path, "f32", 1),
                     *half = open_engine(windowed_path, "f32", 0.5);
    const struct logits want = first_of(plain, PROMPT), got = first_of(all, PROMPT),
                        less = first_of(half, PROMPT);
    ck_assert_msg(apart(&want, &got) <= 1e-3, "%g apart", apart(&want, &got));
    ck_assert_msg(apart(&want, &less) > 1e-3, "%g apart", apart(&want, &less));
    struct md_buf x = rows_of(plain, (struct md_range){ 0, PROMPT }),
                  y = rows_of(half, (struct md_range){ 0, PROMPT });
    const size_t layer =
        (x.len - MD_KV_BLOB_HEADER_BYTES) / strlen(md_tiny_windowed.layers); /* all are alike */
    size_t same = 0;
    while (MD_KV_BLOB_HEADER_BYTES + same < x.len &&
           x.data[MD_KV_BLOB_HEADER_BYTES + same] == y.data[MD_KV_BLOB_HEADER_BYTES + same])
        same++;
    ck_assert_msg(same / layer == 6, "layer %zu is another", same / layer);
    md_buf_done(&x);
    md_buf_done(&y);
    md_engine_close(plain);
    md_engine_close(all);
    md_engine_close(half);
}
END_TEST

/* ---- all other steps ---- */

/* KV of one engine, as if it were of another: what the engines themselves refuse (other_kv_is_refused). */
static void admit_as_its_own(struct md_engine *to, struct md_buf *kv, struct md_range r)
{
    const char *identity = md_engine_info(to)->identity;
    struct md_err err = { 0 };
    md_kv_blob_seal(kv->data, MD_KV_BLOB_RANGE, kv->len - MD_KV_BLOB_HEADER_BYTES, r,
                    XXH3_64bits(identity, strlen(identity)));
    ck_assert_msg(md_engine_admit_range(to, 0, r, (struct md_bytes){ kv->data, kv->len }, &err) == MD_OK,
                  "%s", err.text);
}

/* Behind a step that left things out everything is attended: an engine without XAttention says the same over the same
 * rows, to the bit, in a step that is long enough to leave something out, and in one of a token. */
START_TEST(behind_a_past_all_is_plain)
{
    static const char *const types[] = { "f32", "f16", "u8" };
    const struct md_range first = { 0, PROMPT }, second = { PROMPT, PROMPT + MORE };
    struct md_engine *plain = open_engine(path, types[_i], 0), *e = open_engine(path, types[_i], 0.5);
    (void)logits_of(e, 0, PROMPT);
    struct md_buf kv = rows_of(e, first);
    admit_as_its_own(plain, &kv, first);
    const struct logits want = logits_of(plain, PROMPT, MORE), got = logits_of(e, PROMPT, MORE);
    check_same(&want, &got);
    check_same_rows(plain, e, second);
    const struct logits next = logits_of(plain, PROMPT + MORE, 1), its = logits_of(e, PROMPT + MORE, 1);
    check_same(&next, &its);
    md_buf_done(&kv);
    md_engine_close(plain);
    md_engine_close(e);
}
END_TEST

/* A step of a block, and what is computed again from its start, is as without. */
START_TEST(what_is_short_or_lost_is_plain)
{
    const struct md_range lost = { 0, 600 };
    struct md_engine *plain = open_engine(path, "f32", 0), *e = open_engine(path, "f32", 0.5);
    const int32_t from = md_engine_info(e)->sparse_from_tokens;
    ck_assert_int_eq(from, 129);
    const struct logits want = first_of(plain, from - 1), got = first_of(e, from - 1);
    check_same(&want, &got);
    check_same_rows(plain, e, (struct md_range){ 0, from - 1 });
    (void)first_of(plain, PROMPT);
    (void)first_of(e, PROMPT);
    ck_assert_int_eq(md_engine_remove_range(e, 0, lost, NULL), MD_OK);
    ck_assert_int_eq(md_engine_recompute_range(e, 0, lost, tokens, (struct md_bytes){ 0 }, NULL), MD_OK);
    check_same_rows(plain, e, lost);
    md_engine_close(plain);
    md_engine_close(e);
}
END_TEST

static bool soon(void *user)
{
    int *calls = user;
    return ++*calls > 2;
}

/* One that breaks off leaves nothing behind: the next says what it would have said. */
START_TEST(an_interrupted_step)
{
    const float *unwanted;
    int calls = 0;
    struct md_engine *e = open_engine(path, "f32", 0.5);
    const struct logits want = first_of(e, PROMPT);
    ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK);
    md_engine_set_interrupt(e, soon, &calls);
    ck_assert_int_eq(md_engine_decode(e, 0, 0, tokens, PROMPT, &unwanted, NULL), MD_CANCELLED);
    md_engine_set_interrupt(e, NULL, NULL);
    const struct logits got = first_of(e, PROMPT);
    check_same(&want, &got);
    md_engine_close(e);
}
END_TEST

/* ---- what it says of itself ---- */

/* KV that was made so is none of an engine without, nor of one that keeps another share; off is an engine that was never
 * asked. */
START_TEST(other_kv_is_refused)
{
    static const double shares[] = { 0, 0.9, 0.5 };
    static const char *const said[] = { "off", "0.9", "0.5" };
    enum { ENGINES = sizeof shares / sizeof shares[0] };
    const struct md_range r = { 0, 64 };
    struct md_engine *e[ENGINES];
    for (int i = 0; i < ENGINES; i++) {
        e[i] = open_engine(path, "f32", shares[i]);
        const struct md_engine_info *info = md_engine_info(e[i]);
        ck_assert_str_eq(info->xattention, said[i]);
        ck_assert_int_eq(info->sparse_from_tokens, i == 0 ? 0 : 129);
        ck_assert_int_eq(strstr(info->identity, "xattention") != NULL, i > 0);
        (void)logits_of(e[i], 0, 64);
    }
    for (int from = 0; from < ENGINES; from++)
        for (int to = 0; to < ENGINES; to++) {
            struct md_buf kv = rows_of(e[from], r);
            struct md_err err = { 0 };
            const enum md_status s =
                md_engine_admit_range(e[to], 1, r, (struct md_bytes){ kv.data, kv.len }, &err);
            ck_assert_int_eq(s, from == to ? MD_OK : MD_INVALID);
            if (s == MD_OK)
                ck_assert_int_eq(md_engine_truncate(e[to], 1, 0, NULL), MD_OK);
            md_buf_done(&kv);
        }
    for (int i = 0; i < ENGINES; i++)
        md_engine_close(e[i]);
}
END_TEST

/* Before a model is read, in a line that says what to do. */
START_TEST(what_is_asked_wrongly_is_refused)
{
    static const struct {
        double share;
        int32_t batch, micro;
        const char *word;
    } rows[] = { { -0.5, 0, 0, "above 0" },
                 { 1.5, 0, 0, "not 1.5" },
                 { NAN, 0, 0, "above 0" },
                 { 0.9, 0, 128, "-ub" },
                 { 0.9, 64, 0, "a step of 64" } };
    struct md_engine *e = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_err err = { 0 };
        struct md_open_params p = params_of(path, "f16", rows[i].share);
        p.batch_tokens = rows[i].batch;
        p.ubatch_tokens = rows[i].micro;
        ck_assert_int_eq(md_openvino_open(&p, &e, &err), MD_INVALID);
        ck_assert_msg(e == NULL && strstr(err.text, rows[i].word) != NULL, "%zu: %s", i, err.text);
    }
    struct md_err err = { 0 };
    const struct md_open_params p = params_of(path, "f16", 0.9);
    ck_assert_int_eq(md_backend_llama.open(&p, &e, NULL, &err), MD_UNSUPPORTED);
    ck_assert_msg(e == NULL && strstr(err.text, "'openvino'") != NULL, "%s", err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("xattention_openvino_exact");
    TCase *t = tcase_create("xattention");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_first_step_is_near, 0, 3);
    tcase_add_test(t, windowed_layers_stay_whole);
    tcase_add_loop_test(t, behind_a_past_all_is_plain, 0, 3);
    tcase_add_test(t, what_is_short_or_lost_is_plain);
    tcase_add_test(t, an_interrupted_step);
    tcase_add_test(t, other_kv_is_refused);
    tcase_add_test(t, what_is_asked_wrongly_is_refused);
    suite_add_tcase(suite, t);
    return md_run_suite_here(suite);
}
