/* Two engines, one file: on the exact model, where nothing is rounded below f32, the one says what the other says. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PROMPT = 700, CELLS = 1024, ANSWER = 32, ENGINES = 2 };
enum { LLAMA, OPENVINO };

static char path[512];
static md_token tokens[PROMPT];
static struct md_fake_model *model;

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");
    struct md_err err = { 0 };
    snprintf(path, sizeof path, "%s/modeld-two-engines-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
    ck_assert_msg(md_exact_model_open(&model, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_exact_model_write(model, path, &err) == MD_OK, "%s", err.text);
    md_subject_random_tokens(tokens, PROMPT);
}

static void teardown(void)
{
    md_fake_model_close(model);
    unlink(path);
}

static struct md_engine *open_engine(int which, const struct md_open_params *more)
{
    struct md_open_params p = *more;
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    p.model_path = path;
    p.threads = p.threads > 0 ? p.threads : 1; /* the model is too small for more */
    enum md_status s =
        which == LLAMA ? md_backend_llama.open(&p, &e, NULL, &err) : md_openvino_open(&p, &e, &err);
    ck_assert_msg(s == MD_OK, "engine %d: %s", which, err.text);
    return e;
}

static md_token best_of(const float *logits, int32_t count)
{
    md_token best = 0;
    for (md_token i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* The right answer is llama.cpp's without flash attention, which the suite holds against the reference pass. */
START_TEST(the_same_greedy_answer)
{
    const struct md_open_params p = { .cell_count = CELLS, .type_k = "f32", .type_v = "f32" };
    struct md_engine *e[ENGINES];
    md_token said[ENGINES][ANSWER];
    float kept[MD_FAKE_BYTE_VOCAB];
    for (int k = 0; k < ENGINES; k++) {
        struct md_open_params mine = p;
        mine.flash_attn = k == LLAMA ? 0 : -1;
        e[k] = open_engine(k, &mine);
    }
    for (int step = -1; step < ANSWER; step++)
        for (int k = 0; k < ENGINES; k++) {
            const float *logits = NULL;
            struct md_err err = { 0 };
            enum md_status s;
            if (step < 0) { /* the prompt in two calls, the second one with logits */
                s = md_engine_prefill(e[k], 0, 0, tokens, 400, &err);
                if (s == MD_OK)
                    s = md_engine_decode(e[k], 0, 400, tokens + 400, PROMPT - 400, &logits, &err);
            } else {
                s = md_engine_decode(e[k], 0, PROMPT + step, &said[k][step], 1, &logits, &err);
            }
            ck_assert_msg(s == MD_OK, "%s", err.text);
            for (int32_t i = 0; k == OPENVINO && i < MD_FAKE_BYTE_VOCAB; i++)
                ck_assert_msg(fabsf(logits[i] - kept[i]) <= 1e-3f, "step %d, token %d: %g and %g", step, i,
                              (double)kept[i], (double)logits[i]);
            memcpy(kept, logits, sizeof kept);
            if (step + 1 < ANSWER)
                said[k][step + 1] = best_of(logits, MD_FAKE_BYTE_VOCAB);
        }
    ck_assert_mem_eq(said[LLAMA], said[OPENVINO], sizeof said[0]);
    for (int k = 0; k < ENGINES; k++)
        md_engine_close(e[k]);
}
END_TEST

/* KV of one engine is no KV of the other, whatever the file. */
START_TEST(kv_of_the_other_engine_is_refused)
{
    const struct md_open_params p = {
        .cell_count = CELLS, .flash_attn = -1, .type_k = "f32", .type_v = "f32"
    };
    const struct md_range r = { 0, 64 };
    struct md_engine *e[ENGINES] = { open_engine(LLAMA, &p), open_engine(OPENVINO, &p) };
    for (int k = 0; k < ENGINES; k++) {
        struct md_buf kv;
        struct md_err err = { 0 };
        md_buf_init(&kv, NULL, 1 << 24);
        ck_assert_int_eq(md_engine_prefill(e[k], 0, 0, tokens, 64, NULL), MD_OK);
        ck_assert_int_eq(md_engine_export_range(e[k], 0, r, &kv, NULL), MD_OK);
        ck_assert_int_eq(md_engine_admit_range(e[1 - k], 1, r, (struct md_bytes){ kv.data, kv.len }, &err),
                         MD_INVALID);
        ck_assert_msg(strstr(err.text, "engine") != NULL, "%s", err.text);
        md_buf_done(&kv);
    }
    ck_assert_str_ne(md_engine_info(e[LLAMA])->identity, md_engine_info(e[OPENVINO])->identity);
    for (int k = 0; k < ENGINES; k++)
        md_engine_close(e[k]);
}
END_TEST

static int64_t ns_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* An engine that has nothing to do leaves the processors to the other one: `modeld bench --engine both` relies on it.
 * Threads that wait by spinning would use a whole processor each; they may for a moment after a step. */
START_TEST(an_idle_engine_uses_no_processor)
{
    const struct md_open_params p = {
        .cell_count = CELLS, .threads = 2, .flash_attn = -1, .type_k = "f32", .type_v = "f32"
    };
    const struct timespec moment = { 0, 100000000 }, while_idle = { 0, 300000000 };
    struct md_engine *e[ENGINES] = { open_engine(LLAMA, &p), open_engine(OPENVINO, &p) };
    for (int k = 0; k < ENGINES; k++) {
        ck_assert_int_eq(md_engine_prefill(e[k], 0, 0, tokens, 64, NULL), MD_OK);
        nanosleep(&moment, NULL);
        const int64_t used = ns_of(CLOCK_PROCESS_CPUTIME_ID), start = ns_of(CLOCK_MONOTONIC);
        nanosleep(&while_idle, NULL);
        const int64_t busy = ns_of(CLOCK_PROCESS_CPUTIME_ID) - used, all = ns_of(CLOCK_MONOTONIC) - start;
        ck_assert_msg(busy * 20 <= all, "engine %d: %.1f ms of %.1f", k, (double)busy / 1e6,
                      (double)all / 1e6);
    }
    for (int k = 0; k < ENGINES; k++)
        md_engine_close(e[k]);
}
END_TEST

/* Blocks that were out and in again, while another sequence took their place: the same bytes, and the same logits to the
 * last bit, because blocks are attended in the order of their positions wherever they lie. */
START_TEST(what_comes_back_is_what_left)
{
    static const char *const types[] = { "f32", "f16", "u8" };
    static const struct md_range out[] = { { 64, 128 }, { 256, 288 }, { 0, 32 } };
    enum { OUT = sizeof out / sizeof out[0] };
    const struct md_open_params p = {
        .cell_count = CELLS, .flash_attn = -1, .type_k = types[_i], .type_v = types[_i]
    };
    struct md_engine *e = open_engine(OPENVINO, &p);
    struct md_buf kv[OUT], again;
    float before[MD_FAKE_BYTE_VOCAB];
    const float *logits = NULL;
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 400, NULL), MD_OK);
    ck_assert_int_eq(md_engine_decode(e, 0, 400, &tokens[400], 1, &logits, NULL), MD_OK);
    memcpy(before, logits, sizeof before);
    ck_assert_int_eq(md_engine_truncate(e, 0, 400, NULL), MD_OK);
    for (int i = 0; i < OUT; i++) {
        md_buf_init(&kv[i], NULL, 1 << 24);
        ck_assert_int_eq(md_engine_evict_range(e, 0, out[i], &kv[i], NULL), MD_OK);
    }
    ck_assert_int_eq(md_engine_prefill(e, 1, 0, tokens + 200, 150, NULL), MD_OK);
    for (int i = 0; i < OUT; i++) {
        const struct md_bytes bytes = { kv[i].data, kv[i].len };
        ck_assert_int_eq(md_engine_admit_range(e, 0, out[i], bytes, NULL), MD_OK);
        md_buf_init(&again, NULL, 1 << 24);
        ck_assert_int_eq(md_engine_export_range(e, 0, out[i], &again, NULL), MD_OK);
        ck_assert(again.len == kv[i].len && memcmp(again.data, kv[i].data, again.len) == 0);
        md_buf_done(&again);
        md_buf_done(&kv[i]);
    }
    ck_assert_int_eq(md_engine_decode(e, 0, 400, &tokens[400], 1, &logits, NULL), MD_OK);
    ck_assert_mem_eq(before, logits, sizeof before);
    md_engine_close(e);
}
END_TEST

/* What is planned from the header is what the open engine takes for each token; the plan counts what u8 has for each row of
 * a head.  A type that is named for keys alone is that of values too. */
START_TEST(the_plan_knows_each_kv_type)
{
    static const char *const types[] = { "f32", "f16", "u8" };
    const struct md_open_params p = { .cell_count = 64, .flash_attn = -1, .type_k = types[_i] };
    static struct md_model_facts facts;
    struct md_open_cost cost;
    struct md_err err = { 0 };
    ck_assert_msg(md_backend_llama.probe(path, &facts, &err) == MD_OK, "%s", err.text);
    md_openvino_judge(&facts);
    ck_assert_msg(md_openvino_cost(&facts, &p, 1, &cost, &err) == MD_OK, "%s", err.text);
    struct md_engine *e = open_engine(OPENVINO, &p);
    ck_assert_int_eq(md_kv_bytes_per_token(&facts.shape, &cost.mode), md_engine_info(e)->kv_bytes_per_token);
    ck_assert_str_eq(md_kv_type_name(cost.mode.type_k), types[_i]);
    ck_assert_str_eq(md_engine_info(e)->type_k, types[_i]);
    ck_assert_str_eq(md_engine_info(e)->type_v, types[_i]);
    ck_assert_int_eq(md_engine_info(e)->lossy_kv, md_kv_type_is_quantized(cost.mode.type_k));
    md_engine_close(e);
}
END_TEST

/* What cannot be done is said before the model is compiled: each of these names what to do instead. */
START_TEST(what_is_asked_wrongly_is_refused)
{
    static const struct {
        struct md_open_params p;
        enum md_status want;
        const char *word;
    } rows[] = {
        { { .cell_count = 0, .flash_attn = -1 }, MD_INVALID, "cells" },
        { { .cell_count = 64, .threads = -1, .flash_attn = -1 }, MD_INVALID, "threads" },
        { { .cell_count = 64, .seq_count = 128, .flash_attn = -1 }, MD_INVALID, "sequences" },
        { { .cell_count = 64, .gpu_layers = 1, .flash_attn = -1 }, MD_UNSUPPORTED, "use 0" },
        { { .cell_count = 64, .flash_attn = -1, .rope = { .freq_base = 5000 } }, MD_UNSUPPORTED, "RoPE" },
        { { .cell_count = 64, .flash_attn = 0 }, MD_UNSUPPORTED, "flash attention" },
        { { .cell_count = 64, .flash_attn = -1, .type_k = "q8_0", .type_v = "q8_0" }, MD_UNSUPPORTED, "u8" },
        { { .cell_count = 64, .flash_attn = -1, .type_k = "f32", .type_v = "f16" },
          MD_UNSUPPORTED,
          "'f32' and 'f16'" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_open_params p = rows[i].p;
        struct md_engine *e = NULL;
        struct md_err err = { 0 };
        p.model_path = path;
        ck_assert_int_eq(md_openvino_open(&p, &e, &err), rows[i].want);
        ck_assert_msg(e == NULL && strstr(err.text, rows[i].word) != NULL, "%s", err.text);
    }
    struct md_open_params p = { .model_path = "/nowhere/model.gguf", .cell_count = 64, .flash_attn = -1 };
    struct md_engine *e = NULL;
    ck_assert_int_eq(md_openvino_open(&p, &e, NULL), MD_NOT_FOUND);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openvino_llama_exact");
    TCase *c = tcase_create("two engines");
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, the_same_greedy_answer);
    tcase_add_test(c, kv_of_the_other_engine_is_refused);
    tcase_add_test(c, an_idle_engine_uses_no_processor);
    tcase_add_loop_test(c, what_comes_back_is_what_left, 0, 3);
    tcase_add_loop_test(c, the_plan_knows_each_kv_type, 0, 3);
    tcase_add_test(c, what_is_asked_wrongly_is_refused);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
