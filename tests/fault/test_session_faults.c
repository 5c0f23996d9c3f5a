/* test_session_faults.c - a whole turn in which the Nth allocation fails, and one in which each operation of
 * the engine fails: the tape stays valid, nothing leaks, and the next turn is right. */
#include "support/fault_alloc.h"
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <string.h>

enum { PROMPT = 700, ANSWER = 40, KEEP_ALL = 64 << 20 };

static md_token text_a[PROMPT], branch[PROMPT];

static void fill(void)
{
    rig_tokens(text_a, PROMPT, 1);
    memcpy(branch, text_a, sizeof branch);
    rig_tokens(branch + 333, 100, 2);
}

/* A turn, a branch in the middle of a block, and back: prefill, evict, export, restore, copy, decode. */
static enum md_status play(struct rig *r, struct md_err *ret_first)
{
    enum md_status first = MD_OK;
    static const int32_t counts[] = { PROMPT, 433, PROMPT };
    for (int i = 0; i < 3; i++) {
        enum md_status s = rig_ask(r, i == 1 ? branch : text_a, counts[i], ANSWER, false);
        if (s != MD_OK && first == MD_OK) {
            first = s;
            *ret_first = r->err;
        }
    }
    return first;
}

/* Windows and their state, and a state alone, beside the dense one. */
static const enum rig_model models[] = { RIG_DENSE, RIG_WINDOWED, RIG_RECURRENT };
enum { MODELS = sizeof models / sizeof models[0] };

START_TEST(nth_allocation_of_a_whole_turn)
{
    int failures = 0;
    const int32_t hot = models[_i] == RIG_DENSE ? 128 : models[_i] == RIG_WINDOWED ? 160 : 2048;
    rig_use_model(models[_i]);
    for (long nth = 1;; nth++) {
        struct fault_alloc f;
        struct rig r;
        struct md_err err;
        struct md_pool_config c = rig_config(2048, hot, KEEP_ALL);
        fault_alloc_init(&f, nth);
        c.alloc = &f.alloc;
        enum md_status s = rig_try_open(&r, c, 0);
        if (s == MD_OK)
            s = play(&r, &err);
        bool met = f.failed;
        ck_assert_msg(s == MD_OK || (met && s == MD_NO_MEMORY), "call %ld: status %s", nth,
                      md_status_name(s));
        failures += s != MD_OK;
        fault_alloc_arm(&f, 0); /* memory is back: the next turn must work */
        if (r.session != NULL) {
            ck_assert_int_eq(rig_ask(&r, text_a, 100, 8, false), MD_OK);
        }
        rig_close(&r);
        ck_assert_msg(f.live_blocks == 0, "call %ld: %zu blocks leaked", nth, f.live_blocks);
        if (!met)
            break;
    }
    ck_assert_int_gt(failures, 10); /* it did fail: the loop is not empty */
}
END_TEST

/* fits: the hot set holds everything, so all KV is of full provenance and the last answer must be that of a
 * fresh run whatever failed before. */
static void fail_each_operation(bool fits)
{
    md_token want[8];
    rig_fresh_answer(text_a, PROMPT, 8, want);
    for (int op = 0; op < MD_OP_COUNT; op++) {
        for (int nth = 1;; nth++) {
            struct rig r;
            struct md_err err;
            rig_open(&r, rig_config(1024, fits ? 1024 : 128, KEEP_ALL), 0);
            r.fault = (struct md_fault){ .op = (enum md_engine_op)op, .nth = nth, .status = MD_INTERNAL };
            enum md_status s = play(&r, &err);
            bool met = r.fault.failed > 0;
            ck_assert_msg(s == MD_OK || (met && s == MD_INTERNAL), "%s %d: %s",
                          md_engine_op_name((enum md_engine_op)op), nth, md_status_name(s));
            r.fault = (struct md_fault){ 0 };
            ck_assert_int_eq(rig_ask(&r, branch, 433, ANSWER, false), MD_OK);
            ck_assert_int_eq(rig_ask(&r, text_a, PROMPT, 8, false), MD_OK);
            if (fits)
                ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
            rig_close(&r);
            if (!met)
                break;
            if (nth > 12)
                nth += 7; /* decode and remove are many of a kind */
        }
    }
}

START_TEST(nth_operation_fails_with_a_small_hot_set)
{
    fail_each_operation(false);
}
END_TEST

START_TEST(nth_operation_fails_and_answers_stay_exact)
{
    rig_use_model(models[_i]);
    fail_each_operation(true);
}
END_TEST

START_TEST(fatal_engine_closes_the_session_only)
{
    struct rig r;
    rig_open(&r, rig_config(2048, 128, KEEP_ALL), 0);
    r.fault = (struct md_fault){ .op = MD_OP_REMOVE, .nth = 2, .status = MD_SESSION_FATAL };
    ck_assert_int_eq(rig_ask(&r, text_a, PROMPT, ANSWER, false), MD_SESSION_FATAL);
    r.fault = (struct md_fault){ 0 };
    for (int i = 0; i < 2; i++) { /* every later call returns the same, with the first cause */
        ck_assert_int_eq(rig_ask(&r, text_a, 50, 4, false), MD_SESSION_FATAL);
        ck_assert_msg(strstr(r.err.text, "closed") != NULL, "%s", r.err.text);
    }
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("session faults");
    TCase *c = tcase_create("faults");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_loop_test(c, nth_allocation_of_a_whole_turn, 0, MODELS);
    tcase_add_test(c, nth_operation_fails_with_a_small_hot_set);
    tcase_add_loop_test(c, nth_operation_fails_and_answers_stay_exact, 0, MODELS);
    tcase_add_test(c, fatal_engine_closes_the_session_only);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
