/* The suite on OpenVINO with a tiny model whose windows have 32 tokens (f32 weights and KV), and the same tokens on
 * llama.cpp: its windowed layers have what ours must see when the holes are older than a window. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "engine/kv_blob.h"
#include "support/conformance.h"
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

enum { WINDOW = 32, CELLS = MD_SUBJECT_MIN_CELLS, TOKENS = 600, UBATCH = 64, ANSWER = 40 };
static const float tolerance = 1e-3f; /* of the exact tests: another order of the same sums in f32 */

static char path[512], half_path[512];
static md_token tokens[MD_SUBJECT_MIN_TOKENS];

/* window  WINDOW, or half of it */
static struct md_engine *open_engine(bool openvino, const char *type, int32_t window)
{
    const struct md_open_params p = { .model_path = window == WINDOW ? path : half_path,
                                      .cell_count = CELLS,
                                      .ubatch_tokens = UBATCH,
                                      .threads = 1, /* the model is too small for more */
                                      .flash_attn = openvino ? -1 : 0,
                                      .type_k = type,
                                      .type_v = type };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    enum md_status s = openvino ? md_openvino_open(&p, &e, &err) : md_backend_llama.open(&p, &e, NULL, &err);
    if (s != MD_OK)
        fprintf(stderr, "windowed model: %s\n", err.text);
    return e;
}

/* The same weights, which do not depend on the keys. */
static void write_half(void)
{
    static char keys[1024];
    struct md_tiny_model half = md_tiny_windowed;
    struct md_err err = { 0 };
    snprintf(keys, sizeof keys, "%s", half.keys);
    char *window = strstr(keys, "sliding_window=32");
    ck_assert_ptr_nonnull(window);
    memcpy(window, "sliding_window=16", strlen("sliding_window=16"));
    half.keys = keys;
    ck_assert_msg(md_tiny_model_write(&half, half_path, &err) == MD_OK, "%s", err.text);
}

/* ---- beside llama.cpp ---- */

static struct md_engine *engines[2]; /* llama, openvino */

static void setup(void)
{
    struct md_err err = { 0 };
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/modeld-ov-window-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
    ck_assert_msg(md_tiny_model_write(&md_tiny_windowed, path, &err) == MD_OK, "%s", err.text);
    snprintf(half_path, sizeof half_path, "%s/modeld-ov-half-%ld.gguf", tmp != NULL ? tmp : "/tmp",
             (long)getpid());
    write_half();
    md_subject_random_tokens(tokens, MD_SUBJECT_MIN_TOKENS);
    for (int k = 0; k < 2; k++) {
        engines[k] = open_engine(k == 1, "f32", WINDOW);
        ck_assert_ptr_nonnull(engines[k]);
        ck_assert_int_eq(md_engine_info(engines[k])->window_tokens, WINDOW);
    }
}

static void teardown(void)
{
    for (int k = 0; k < 2; k++)
        md_engine_close(engines[k]);
}

static void feed(int k, int32_t from, int32_t to, int32_t chunk)
{
    struct md_err err = { 0 };
    for (int32_t at = from, n; at < to; at += n) {
        n = to - at < chunk ? to - at : chunk;
        ck_assert_msg(md_engine_prefill(engines[k], 0, at, tokens + at, n, &err) == MD_OK, "%s", err.text);
    }
}

static void answers_agree(int32_t from, const char *label)
{
    const int32_t vocab = md_engine_info(engines[0])->vocab_count;
    for (int32_t at = from; at < from + ANSWER; at++) {
        float wanted[1024];
        ck_assert_int_le(vocab, 1024);
        for (int k = 0; k < 2; k++) {
            const float *logits = NULL;
            struct md_err err = { 0 };
            ck_assert_msg(md_engine_decode(engines[k], 0, at, &tokens[at], 1, &logits, &err) == MD_OK, "%s",
                          err.text);
            for (int32_t i = 0; k == 1 && i < vocab; i++)
                ck_assert_msg(fabsf(logits[i] - wanted[i]) <= tolerance, "%s, token %d: %g and %g", label, at,
                              (double)wanted[i], (double)logits[i]);
            memcpy(wanted, logits, (size_t)vocab * sizeof *wanted);
        }
    }
}

START_TEST(long_texts_and_old_holes)
{
    static const struct md_range out[] = { { 0, 32 }, { 100, 177 }, { 300, 333 }, { 500, 560 } };
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(md_engine_truncate(engines[k], 0, 0, NULL), MD_OK);
        feed(k, 0, TOKENS, k == 0 ? UBATCH : 50);
    }
    answers_agree(TOKENS, "no hole");
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
            ck_assert_int_eq(md_engine_remove_range(engines[k], 0, out[i], NULL), MD_OK);
    answers_agree(TOKENS + ANSWER, "with holes");
    for (int k = 0; k < 2; k++)
        feed(k, TOKENS + 2 * ANSWER, TOKENS + 2 * ANSWER + 120, UBATCH);
    answers_agree(TOKENS + 2 * ANSWER + 120, "behind them");
}
END_TEST

/* ---- holes in a window ---- */

static float *logits_of(struct md_engine *e, int32_t at)
{
    const int32_t vocab = md_engine_info(e)->vocab_count;
    const float *logits = NULL;
    float *copy = calloc((size_t)vocab, sizeof *copy);
    ck_assert_int_eq(md_engine_decode(e, 0, at, &tokens[at], 1, &logits, NULL), MD_OK);
    memcpy(copy, logits, (size_t)vocab * sizeof *copy);
    return copy;
}

/* What a window sees goes by position, so that it makes no difference how many tokens come in one call, nor where rows
 * lie.  One by one each token has a number of rows of its own. */
START_TEST(a_hole_in_the_window)
{
    enum { OLD = 200, HOLE = OLD + 10, HOLE_END = OLD + 26, END = OLD + WINDOW, MORE = 100 };
    struct md_engine *e = engines[1];
    const int32_t vocab = md_engine_info(e)->vocab_count;
    float *got[3];
    for (int way = 0; way < 3; way++) { /* in chunks, one by one, and with other rows between */
        ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK);
        ck_assert_int_eq(md_engine_truncate(e, 1, 0, NULL), MD_OK);
        feed(1, 0, END, way == 2 ? 7 : UBATCH);
        ck_assert_int_eq(md_engine_remove_range(e, 0, (struct md_range){ HOLE, HOLE_END }, NULL), MD_OK);
        if (way == 2) { /* another sequence takes rows beside ours */
            ck_assert_int_eq(md_engine_share(e, 0, 1, (struct md_range){ 3, 150 }, NULL), MD_OK);
            ck_assert_int_eq(md_engine_park(e, 0, (struct md_range){ 40, 90 }, NULL), MD_OK);
            ck_assert_int_eq(md_engine_unpark(e, 0, (struct md_range){ 40, 90 }, NULL), MD_OK);
        }
        feed(1, END, END + MORE, way == 1 ? 1 : UBATCH);
        got[way] = logits_of(e, END + MORE);
    }
    for (int way = 1; way < 3; way++)
        for (int32_t i = 0; i < vocab; i++)
            ck_assert_msg(fabsf(got[0][i] - got[way][i]) <= tolerance, "way %d, %d: %g and %g", way, i,
                          (double)got[0][i], (double)got[way][i]);
    for (int way = 0; way < 3; way++)
        free(got[way]);
}
END_TEST

/* The right logits are of the same weights with windows of half the length, over the same KV: half of the window is
 * absent, so that as many rows are seen, and these. */
START_TEST(half_a_window_is_a_window_of_half)
{
    enum { AT = 300, HALF = WINDOW / 2 };
    const struct md_range hole = { AT - WINDOW + 1, AT - HALF + 1 };
    const struct md_range kept[] = { { 0, hole.start }, { hole.end, AT } };
    struct md_engine *whole = engines[1], *half = open_engine(true, "f32", HALF);
    const int32_t vocab = md_engine_info(whole)->vocab_count;
    const char *identity = md_engine_info(half)->identity;
    float *want, *got;
    ck_assert_int_eq(md_engine_info(half)->window_tokens, HALF);
    ck_assert_int_eq(md_engine_truncate(whole, 0, 0, NULL), MD_OK);
    feed(1, 0, AT, UBATCH);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        struct md_buf kv;
        struct md_err err = { 0 };
        md_buf_init(&kv, NULL, 1 << 24);
        ck_assert_int_eq(md_engine_export_range(whole, 0, kept[i], &kv, NULL), MD_OK);
        md_kv_blob_seal(kv.data, MD_KV_BLOB_RANGE, kv.len - MD_KV_BLOB_HEADER_BYTES, kept[i],
                        XXH3_64bits(identity, strlen(identity))); /* as if it were of that file */
        ck_assert_msg(md_engine_admit_range(half, 0, kept[i], (struct md_bytes){ kv.data, kv.len }, &err) ==
                          MD_OK,
                      "%s", err.text);
        md_buf_done(&kv);
    }
    want = logits_of(half, AT);
    md_engine_close(half);
    got = logits_of(whole, AT); /* which sees all of its window */
    float apart = 0;
    for (int32_t i = 0; i < vocab; i++)
        apart = fmaxf(apart, fabsf(want[i] - got[i]));
    ck_assert_msg(apart > 10 * tolerance, "the hole makes only %g", (double)apart);
    free(got);
    ck_assert_int_eq(md_engine_truncate(whole, 0, AT, NULL), MD_OK);
    ck_assert_int_eq(md_engine_remove_range(whole, 0, hole, NULL), MD_OK);
    got = logits_of(whole, AT);
    for (int32_t i = 0; i < vocab; i++)
        ck_assert_msg(fabsf(want[i] - got[i]) <= tolerance, "%d: %g and %g", i, (double)want[i],
                      (double)got[i]);
    free(got);
    free(want);
}
END_TEST

/* ---- the suite ---- */

static int run(const char *name, const char *type, float same)
{
    const unsigned caps = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_SPARSE_ATTENTION |
                          MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_SHARE | MD_CAP_POSITION_SHIFT;
    struct md_engine *engine = open_engine(true, type, WINDOW);
    if (engine == NULL || md_engine_caps(engine) != caps) {
        fprintf(stderr, "%s: capabilities %x, not %x\n", name, engine != NULL ? md_engine_caps(engine) : 0,
                caps);
        md_engine_close(engine);
        return 1;
    }
    const struct md_subject subject = { .name = name,
                                        .small = true,
                                        .engine = engine,
                                        .tokens = tokens,
                                        .token_count = MD_SUBJECT_MIN_TOKENS,
                                        .same_tolerance = same,
                                        .reference_tolerance = same,
                                        .turned_tolerance = same,
                                        .least_move = 0.01f,
                                        .polls_by_time = true,
                                        .moved_tolerance = same };
    const int failed = md_conformance_run(&subject);
    md_engine_close(engine);
    return failed;
}

int main(void)
{
    Suite *suite = suite_create("openvino_windowed");
    TCase *c = tcase_create("windows");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, long_texts_and_old_holes);
    tcase_add_test(c, a_hole_in_the_window);
    tcase_add_test(c, half_a_window_is_a_window_of_half);
    suite_add_tcase(suite, c);
    int failed = md_run_suite_here(suite);
    failed |= run("openvino_windowed_f32", "f32", 1e-3f);
    failed |= run("openvino_windowed_f16", "f16", 0.01f);
    unlink(path);
    unlink(half_path);
    return failed;
}
