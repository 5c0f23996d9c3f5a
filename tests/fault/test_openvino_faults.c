/* test_openvino_faults.c - each call of OpenVINO fails in turn, with what it throws itself, without memory, and with
 * something strange: the status says so, nothing crosses the shim, a model that could not be opened can be opened next,
 * and after a step that failed the KV and all answers are as before it.
 *
 * The right bytes and logits are those from before the fault. */
#include "adapters/openvino/ov_backend.h"
#include "adapters/openvino/ov_shim.h"
#include "openvino_calls.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 700, CELLS = 1024, UBATCH = 32, HELD = 100, CALLS_MAX = 2000, KV_LIMIT_BYTES = 64 << 20 };

static char path[512];
static md_token tokens[TOKENS];
static const struct md_range held = { 0, HELD };

static void setup(struct md_fake_dims dims)
{
    const char *tmp = getenv("TMPDIR");
    struct md_fake_model *model = NULL;
    struct md_err err = { 0 };
    snprintf(path, sizeof path, "%s/modeld-ov-faults-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
    enum md_status s = md_fake_model_open(&dims, 1, NULL, &model, &err);
    if (s == MD_OK)
        s = md_exact_model_write(model, path, &err);
    ck_assert_msg(s == MD_OK, "%s", err.text);
    md_fake_model_close(model);
    md_subject_random_tokens(tokens, TOKENS);
}

/* Opening compiles the model, some hundred times here: of two layers, which is a first one and one behind it. */
static void setup_small(void)
{
    setup(md_fake_dims_default());
}

/* A step that is stopped must take longer than it takes to be asked twice. */
static void setup_exact(void)
{
    setup(md_fake_dims_exact());
}

static void teardown(void)
{
    unlink(path);
}

static enum md_status open_engine(struct md_engine **ret_engine, struct md_err *err)
{
    const struct md_open_params p = { .model_path = path,
                                      .cell_count = CELLS,
                                      .ubatch_tokens = UBATCH,
                                      .threads = 1, /* the model is too small for more */
                                      .flash_attn = -1,
                                      .type_k = "f32",
                                      .type_v = "f32" };
    return md_openvino_open(&p, ret_engine, err);
}

/* otherwise  the status of what is not for want of memory; MD_OK: one of the two that opening has */
static void check_failed(enum md_status s, enum openvino_throw what, enum md_status otherwise,
                         const struct md_err *err, long nth)
{
    const char *name = openvino_calls_threw();
    const bool right = what == OPENVINO_THROWS_MEMORY ? s == MD_NO_MEMORY
                       : otherwise != MD_OK           ? s == otherwise
                                                      : s == MD_UNSUPPORTED || s == MD_INTERNAL;
    ck_assert_msg(right, "call %ld, %s, throws %d: %s: %s", nth, name, what, md_status_name(s), err->text);
    ck_assert_msg(err->text[0] != '\0' && strchr(err->text, '\n') == NULL, "call %ld, %s: '%s'", nth, name,
                  err->text);
}

/* ---- opening ---- */

/* Compiling takes its time: what is thrown changes from call to call, and the other way around in the second round, which
 * ends with the shim's part of opening. */
START_TEST(each_call_of_opening)
{
    long nth = 1;
    /* the second half of the first round is the same few calls for each layer, and steps: every other one */
    for (bool met = true; met; nth += _i == 0 && nth > 20 ? 2 : 1) {
        const enum openvino_throw what = (nth + _i) % OPENVINO_THROWS;
        struct md_engine *e = NULL;
        struct md_ov_model *m = NULL;
        struct md_err err = { 0 };
        openvino_calls_arm(nth, what, _i == 1);
        const enum md_status s =
            _i == 0 ? open_engine(&e, &err) : md_ov_model_open(path, "CPU", MD_OV_F32, 1, NULL, &m, &err);
        met = openvino_calls_threw() != NULL;
        if (met)
            check_failed(s, what, MD_OK, &err, nth);
        openvino_calls_arm(0, what, false);
        ck_assert_msg((s == MD_OK) == !met && (e != NULL || m != NULL) == !met, "call %ld: %s", nth,
                      md_status_name(s));
        md_engine_close(e);
        md_ov_model_close(m);
    }
    printf("# %ld calls of opening\n", nth - 2);
    ck_assert_int_gt(
        nth, _i == 0 ? 40 : 10); /* frontend, two passes, compiling, inputs; KV of each layer, first steps */
}
END_TEST

/* The shim asks for memory some hundred times: the first ones each, then one in so many. */
START_TEST(memory_of_opening)
{
    long nth = 1, failures = 0, told = 0;
    for (bool met = true; met; nth += 1 + nth / 5) {
        struct md_ov_model *m = NULL;
        struct md_err err = { 0 };
        openvino_memory_arm(nth);
        const enum md_status s = md_ov_model_open(path, "CPU", MD_OV_F32, 1, NULL, &m, &err);
        met = openvino_calls_threw() != NULL;
        openvino_memory_arm(0);
        /* the library catches some, and gives others another name: then it goes on, or says that it cannot */
        const bool right = s == MD_OK || s == MD_NO_MEMORY || (s == MD_UNSUPPORTED && err.text[0] != '\0');
        ck_assert_msg(met ? right : s == MD_OK, "call %ld: %s", nth, md_status_name(s));
        ck_assert_msg((m != NULL) == (s == MD_OK), "call %ld: %s", nth, md_status_name(s));
        ck_assert(m == NULL || md_ov_model_facts(m)->layer_count == md_fake_dims_default().layers);
        told += s == MD_NO_MEMORY;
        md_ov_model_close(m);
        failures += met;
    }
    printf("# memory failed at %ld places of opening\n", failures);
    ck_assert_int_gt(failures, 20);
    ck_assert_int_gt(told, 10); /* the shim, and what lets it through */
}
END_TEST

START_TEST(looking_at_the_processor)
{
    for (int what = 0; what < OPENVINO_THROWS; what++) {
        bool met = true;
        for (long nth = 1; met; nth++) {
            struct md_machine m = { 0 };
            struct md_err err = { 0 };
            openvino_calls_arm(nth, what, false);
            const enum md_status s = md_openvino_machine(&m, &err);
            met = openvino_calls_threw() != NULL;
            if (met)
                check_failed(s, what, MD_UNSUPPORTED, &err, nth);
            openvino_calls_arm(0, what, false);
            ck_assert_int_eq(s == MD_OK, !met);
            ck_assert(met || nth > 2);
        }
    }
}
END_TEST

/* ---- memory of the library's, and blocks of it ---- */

static enum md_status ask_pool(struct md_ov_model *m, int kind, uint8_t *bytes, struct md_err *err)
{
    enum { BLOCKS = 3, BLOCK = 1 };
    switch (kind) {
    case 0: return md_ov_model_hold(m, BLOCKS, err);
    case 1: return md_ov_model_put(m, BLOCK, bytes, err);
    default: return md_ov_model_get(m, BLOCK, bytes, err);
    }
}

START_TEST(each_call_of_a_pool)
{
    const enum openvino_throw what = _i;
    struct md_ov_model *m = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_ov_model_open(path, "CPU", MD_OV_F32, 1, NULL, &m, &err) == MD_OK, "%s", err.text);
    const size_t size = md_ov_model_facts(m)->block_bytes;
    uint8_t *bytes = malloc(size), *got = malloc(size);
    ck_assert(bytes != NULL && got != NULL);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 131 % 127);
    for (int kind = 0; kind < 3; kind++) {
        long nth = 1;
        for (bool met = true; met; nth++) {
            openvino_calls_arm(nth, what, nth % 2 == 0);
            const enum md_status s = ask_pool(m, kind, kind == 2 ? got : bytes, &err);
            met = openvino_calls_threw() != NULL;
            if (met)
                check_failed(s, what, kind == 0 ? MD_NO_MEMORY : MD_INTERNAL, &err, nth);
            openvino_calls_arm(0, what, false);
            ck_assert_int_eq(s == MD_OK, !met);
        }
        ck_assert_int_gt(nth, 4 * md_ov_model_facts(m)->layer_count); /* a region and a copy of each part */
    }
    ck_assert(memcmp(bytes, got, size) == 0);
    free(bytes);
    free(got);
    md_ov_model_close(m);
}
END_TEST

/* ---- steps ---- */

static bool never(void *user)
{
    (void)user;
    return false;
}

struct before {
    struct md_buf kv;
    float logits[MD_FAKE_BYTE_VOCAB];
};

static void look(struct md_engine *e, struct before *ret)
{
    const float *logits = NULL;
    struct md_err err = { 0 };
    md_buf_init(&ret->kv, NULL, KV_LIMIT_BYTES);
    enum md_status s = md_engine_export_range(e, 0, held, &ret->kv, &err);
    if (s == MD_OK)
        s = md_engine_decode(e, 0, HELD, &tokens[HELD], 1, &logits, &err);
    ck_assert_msg(s == MD_OK, "%s: %s", openvino_calls_threw(), err.text);
    memcpy(ret->logits, logits, sizeof ret->logits);
    ck_assert_int_eq(md_engine_truncate(e, 0, HELD, NULL), MD_OK);
}

static void check_as_before(struct md_engine *e, const struct before *want, long nth)
{
    struct before now;
    ck_assert_int_eq(md_engine_end(e, 0), HELD);
    ck_assert_int_eq(md_engine_cells_used(e), HELD);
    look(e, &now);
    ck_assert_msg(now.kv.len == want->kv.len && memcmp(now.kv.data, want->kv.data, now.kv.len) == 0,
                  "call %ld, %s: other KV", nth, openvino_calls_threw());
    ck_assert_msg(memcmp(now.logits, want->logits, sizeof now.logits) == 0, "call %ld, %s: other logits", nth,
                  openvino_calls_threw());
    md_buf_done(&now.kv);
}

/* Two micro-batches, so that one of them is done when the other fails; with logits; a step of one token. */
static enum md_status step(struct md_engine *e, int kind, struct md_err *err)
{
    enum { COUNT = UBATCH + 16 };
    const float *logits = NULL;
    switch (kind) {
    case 0: return md_engine_prefill(e, 0, HELD, tokens + HELD, COUNT, err);
    case 1: return md_engine_decode(e, 0, HELD, tokens + HELD, COUNT, &logits, err);
    default: return md_engine_decode(e, 0, HELD, tokens + HELD, 1, &logits, err);
    }
}

/* interrupted  whether somebody may stop it: the step is then waited for in pieces */
static long fail_each(struct md_engine *e, int kind, bool interrupted, enum openvino_throw what, bool after,
                      const struct before *want)
{
    long nth = 1;
    for (bool met = true; met; nth++) {
        struct md_err err = { 0 };
        ck_assert_int_lt(nth, CALLS_MAX);
        if (interrupted)
            md_engine_set_interrupt(e, never, NULL);
        openvino_calls_arm(nth, what, after);
        const enum md_status s = step(e, kind, &err);
        met = openvino_calls_threw() != NULL;
        if (met)
            check_failed(s, what, MD_INTERNAL, &err, nth);
        else
            ck_assert_int_eq(s, MD_OK);
        openvino_calls_arm(0, what, after);
        md_engine_set_interrupt(e, NULL, NULL);
        ck_assert_int_eq(met ? MD_OK : md_engine_truncate(e, 0, HELD, NULL), MD_OK);
        check_as_before(e, want, nth);
    }
    return nth - 2;
}

START_TEST(each_call_of_a_step)
{
    const enum openvino_throw what = _i % OPENVINO_THROWS;
    const bool after = _i >= OPENVINO_THROWS;
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    struct before want;
    ck_assert_msg(open_engine(&e, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, HELD, NULL), MD_OK);
    look(e, &want);
    for (int kind = 0; kind < 3; kind++)
        for (int interrupted = 0; interrupted < 2; interrupted++) {
            const long calls = fail_each(e, kind, interrupted == 1, what, after, &want);
            printf("# %ld calls of step %d\n", calls, kind);
            ck_assert_int_gt(calls, 15); /* two for each input, start, wait, logits */
        }
    md_buf_done(&want.kv);
    md_engine_close(e);
}
END_TEST

/* ---- a step that was stopped, and the one that settles it ---- */

static bool at_second_poll(void *user)
{
    int *polls = user;
    return ++*polls >= 2;
}

/* True: it was stopped while it computed. */
static bool stop_a_step(struct md_engine *e, int32_t count)
{
    int polls = 0;
    struct md_err err = { 0 };
    md_engine_set_interrupt(e, at_second_poll, &polls);
    const enum md_status s = md_engine_prefill(e, 0, HELD, tokens + HELD, count, &err);
    md_engine_set_interrupt(e, NULL, NULL);
    ck_assert_msg(s == MD_OK || s == MD_CANCELLED, "%s", err.text);
    if (s == MD_OK)
        ck_assert_int_eq(md_engine_truncate(e, 0, HELD, NULL), MD_OK);
    return s == MD_CANCELLED;
}

START_TEST(each_call_behind_a_step_that_was_stopped)
{
    enum { LONG = 512, TRIES = 40 };
    const struct md_open_params p = { .model_path = path,
                                      .cell_count = CELLS,
                                      .ubatch_tokens = LONG,
                                      .threads = 1,
                                      .flash_attn = -1,
                                      .type_k = "f32",
                                      .type_v = "f32" };
    const enum openvino_throw what = _i;
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    struct before want;
    int stopped = 0;
    ck_assert_msg(md_openvino_open(&p, &e, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, HELD, NULL), MD_OK);
    look(e, &want);
    for (long nth = 1; nth < TRIES; nth++) { /* more than there are */
        if (!stop_a_step(e, LONG))
            continue;
        stopped++;
        openvino_calls_arm(nth, what, nth % 2 == 0);
        const enum md_status s = step(e, 2, &err);
        if (openvino_calls_threw() != NULL)
            check_failed(s, what, MD_INTERNAL, &err, nth);
        else
            ck_assert_int_eq(md_engine_truncate(e, 0, HELD, NULL), MD_OK);
        openvino_calls_arm(0, what, false);
        check_as_before(e, &want, nth);
    }
    ck_assert_msg(stopped > TRIES / 2, "only %d steps were stopped", stopped);
    md_buf_done(&want.kv);
    md_engine_close(e);
}
END_TEST

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    Suite *suite = suite_create("openvino_faults");
    TCase *opening = tcase_create("opening"), *steps = tcase_create("steps"),
          *stopped = tcase_create("stopped");
    TCase *const all[] = { opening, steps, stopped };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tcase_set_timeout(all[i], 600);
        tcase_add_unchecked_fixture(all[i], all[i] == stopped ? setup_exact : setup_small, teardown);
        suite_add_tcase(suite, all[i]);
    }
    tcase_add_loop_test(opening, each_call_of_opening, 0, 2);
    tcase_add_test(opening, memory_of_opening);
    tcase_add_test(opening, looking_at_the_processor);
    tcase_add_loop_test(opening, each_call_of_a_pool, 0, OPENVINO_THROWS);
    tcase_add_loop_test(steps, each_call_of_a_step, 0, 2 * OPENVINO_THROWS);
    tcase_add_loop_test(stopped, each_call_behind_a_step_that_was_stopped, 0, OPENVINO_THROWS);
    return md_run_suite_here(suite);
}
