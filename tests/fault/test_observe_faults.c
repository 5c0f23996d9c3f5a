/* test_observe_faults.c - while the hot set goes by attention, each engine call and each allocation of a call that reads far past
 * the hot set and answers fails once: a scoring that fails costs that scoring and is counted, whatever else fails leaves the tape
 * valid; and the same request afterwards is answered, with nothing lost but where copying itself failed. */
#include "session/session_internal.h"
#include "support/fault_alloc.h"
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <stdio.h>

enum { WINDOW = 1000, HOT = 192, COUNT = 437, ANSWER = 3, COLD = 64 << 20 };

static md_token text[WINDOW];

static void fill(void)
{
    rig_tokens(text, WINDOW, 3);
}

static void open_rig(struct rig *r, const struct md_alloc *alloc)
{
    struct md_pool_config c = rig_config(WINDOW, HOT, COLD);
    c.alloc = alloc;
    c.evict = MD_EVICT_ATTENTION;
    rig_open(r, c, 0);
}

static enum md_status ask(struct rig *r)
{
    return rig_ask(r, text, COUNT, ANSWER, false);
}

/* With nothing failing any more: its question at least is scored. */
static void goes_on(struct rig *r)
{
    ck_assert(md_pool_check(r->pool));
    ck_assert(!md_session_status(r->session).fatal);
    ck_assert_msg(ask(r) == MD_OK, "%s", r->err.text);
    ck_assert_int_eq(r->last.completion, ANSWER);
    ck_assert_int_ge(r->last.eviction.scorings, 1);
    ck_assert_int_eq(r->last.eviction.missed, 0);
    ck_assert(md_pool_check(r->pool));
}

/* Scoring alone watches, asks for queries and reads keys.  FATAL of one of those says that the KV is unknown, and is believed; a
 * watch touches none. */
START_TEST(each_engine_call_fails_once)
{
    static const enum md_engine_op ops[] = { MD_OP_WATCH,  MD_OP_QUERIES, MD_OP_KEYS,
                                             MD_OP_EXPORT, MD_OP_PREFILL, MD_OP_REMOVE };
    static const enum md_status statuses[] = { MD_INTERNAL, MD_NO_MEMORY, MD_SESSION_FATAL };
    const enum md_engine_op op = ops[_i / 3];
    const enum md_status status = statuses[_i % 3];
    const bool scores = op == MD_OP_WATCH || op == MD_OP_QUERIES || op == MD_OP_KEYS;
    int failed = 0, missed = 0, unscored = 0;
    for (bool met = true; met; failed += met) {
        struct rig r;
        open_rig(&r, NULL);
        r.fault = (struct md_fault){ .op = op, .nth = failed + 1, .status = status };
        enum md_status s = ask(&r);
        met = r.fault.failed > 0;
        r.fault = (struct md_fault){ 0 };
        ck_assert(md_pool_check(r.pool));
        if (!met || (scores && status != MD_SESSION_FATAL))
            ck_assert_msg(s == MD_OK, "%s", r.err.text);
        missed += s == MD_OK ? r.last.eviction.missed : 0;
        unscored += s == MD_OK ? r.last.eviction.unscored : 0;
        if (md_session_status(r.session).fatal) {
            ck_assert(s == MD_SESSION_FATAL && status == MD_SESSION_FATAL);
            r.session = rig_new(&r); /* others go on */
        }
        goes_on(&r);
        rig_close(&r);
    }
    printf("%s, %s: %d failures, %d scorings missed, %d blocks unscored\n", md_engine_op_name(op),
           md_status_name(status), failed, missed, unscored);
    ck_assert_int_gt(failed, 0);
    if (status != MD_SESSION_FATAL) {
        if (op == MD_OP_QUERIES)
            ck_assert_int_eq(missed, failed);
        if (op == MD_OP_KEYS)
            ck_assert_int_eq(unscored, failed);
    }
}
END_TEST

START_TEST(allocations_fail)
{
    int failed = 0, missed = 0;
    bool met = true;
    for (int nth = 1; met; nth += 1 + nth / 30) { /* the first ones each, later ones here and there */
        struct fault_alloc heap;
        struct rig r;
        fault_alloc_init(&heap, 0);
        open_rig(&r, &heap.alloc);
        fault_alloc_arm(&heap, nth);
        enum md_status s = ask(&r);
        met = heap.failed;
        fault_alloc_arm(&heap, 0);
        ck_assert(s == MD_OK || (met && s == MD_NO_MEMORY));
        failed += met;
        missed += s == MD_OK ? r.last.eviction.missed : 0;
        goes_on(&r);
        rig_close(&r);
        ck_assert_uint_eq(heap.live_bytes, 0);
    }
    printf("%d failures, %d scorings missed\n", failed, missed);
    ck_assert_int_gt(failed, 40);
    ck_assert_int_gt(missed, 0);
}
END_TEST

START_TEST(opening_fails)
{
    int failed = 0;
    bool met = true;
    for (int nth = 1; met; nth++) {
        struct fault_alloc heap;
        struct md_pool_config c = rig_config(WINDOW, HOT, COLD);
        struct rig r;
        fault_alloc_init(&heap, nth);
        c.alloc = &heap.alloc;
        c.evict = MD_EVICT_ATTENTION;
        c.retrieval = MD_RETRIEVAL_AUTO;
        enum md_status s = rig_try_open(&r, c, 0);
        met = heap.failed;
        ck_assert_int_eq(s, met ? MD_NO_MEMORY : MD_OK);
        failed += met;
        rig_close(&r);
        ck_assert_uint_eq(heap.live_bytes, 0);
    }
    ck_assert_int_gt(failed, 4);
}
END_TEST

START_TEST(cancelled_at_each_poll)
{
    int cancelled = 0;
    for (enum md_status s = MD_CANCELLED; s == MD_CANCELLED; cancelled++) {
        struct rig r;
        open_rig(&r, NULL);
        r.cancel_after = cancelled;
        s = ask(&r);
        ck_assert(s == MD_OK || s == MD_CANCELLED);
        r.cancel_after = -1;
        goes_on(&r);
        rig_close(&r);
    }
    ck_assert_int_gt(cancelled, ANSWER + 3);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("observe faults");
    TCase *c = tcase_create("faults");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, fill, NULL);
    tcase_add_loop_test(c, each_engine_call_fails_once, 0, 18);
    tcase_add_test(c, allocations_fail);
    tcase_add_test(c, opening_fails);
    tcase_add_test(c, cancelled_at_each_poll);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
