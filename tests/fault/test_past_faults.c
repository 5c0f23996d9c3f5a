/* test_past_faults.c - past the trained window, each move of KV and each allocation fails once: the tape stays valid, what
 * is moved is its own bytes moved once, and the conversation goes on. */
#include "support/fault_alloc.h"
#include "support/past_check.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { KEEP_ALL = 64 << 20, TRAINED = 144, HOT = 112, WINDOW = 2000, ANSWER = 4 };

static md_token text[WINDOW], other[WINDOW];

static void fill(void)
{
    rig_tokens(text, WINDOW, 1);
    rig_tokens(other, WINDOW, 2);
    memcpy(other, text, 300 * sizeof *text);
}

static struct md_pool_config config(const struct md_alloc *alloc)
{
    struct md_pool_config c = rig_config(WINDOW, HOT, KEEP_ALL);
    c.alloc = alloc;
    return c;
}

/* One call, which may fail; what must hold, holds. */
static enum md_status said(struct rig *r, struct md_session *s, enum md_status status)
{
    const struct md_fault fault = r->fault;
    r->fault.nth = 0; /* to look is no call of the scenario */
    ck_assert(md_pool_check(r->pool));
    past_check_moved(r, s);
    r->fault = fault;
    return status;
}

/* Grow past the window, look back, branch, edit.  The first failure that is not fatal ends it. */
static enum md_status scenario(struct rig *r)
{
    struct md_session *a = r->session, *b;
    int32_t tokens;
    enum md_status s = said(r, a, rig_ask(r, text, 300, ANSWER, false));
    if (s == MD_OK)
        s = said(r, a, md_session_admit_range(a, (struct md_range){ 64, 96 }, &tokens, &r->err));
    if (s == MD_OK)
        s = said(r, a, md_session_branch(a, 300, &b, &r->err));
    if (s != MD_OK)
        return s;
    r->session = b;
    s = said(r, a, rig_ask(r, other, 360, ANSWER, false));
    r->session = a;
    if (s == MD_OK)
        s = said(r, a, rig_ask(r, text, 340, ANSWER, false));
    if (s == MD_OK) /* an edit inside a block, where moved ones stand */
        s = said(r, a, rig_ask(r, text, 231, ANSWER, false));
    return s;
}

/* Afterwards, with nothing failing: whoever is alive goes on, and whatever is missing is computed again. */
static void goes_on(struct rig *r)
{
    for (struct md_session *s = md_pool_next(r->pool, NULL); s != NULL; s = md_pool_next(r->pool, s)) {
        r->session = s;
        if (md_session_status(s).fatal)
            continue;
        enum md_status st = rig_ask(r, text, 420, ANSWER, false);
        ck_assert_msg(st == MD_OK, "%s", r->err.text);
        past_check_moved(r, s);
        past_check_answer(r);
    }
}

START_TEST(each_move_fails_once)
{
    static const enum md_engine_op ops[] = { MD_OP_EXPORT, MD_OP_REMOVE, MD_OP_ADMIT, MD_OP_ADMIT_MOVED,
                                             MD_OP_TRUNCATE };
    static const enum md_status statuses[] = { MD_INTERNAL, MD_NO_MEMORY, MD_SESSION_FATAL };
    int failed = 0;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0] * 3; i++) {
        bool met = true;
        for (int nth = 1; met; nth++) {
            struct rig r;
            past_open(&r, config(NULL), 0, 3, TRAINED);
            r.fault = (struct md_fault){ .op = ops[i / 3], .nth = nth, .status = statuses[i % 3] };
            enum md_status s = scenario(&r);
            met = r.fault.failed > 0;
            ck_assert_msg(met || s == MD_OK, "%s", r.err.text);
            failed += met;
            r.fault = (struct md_fault){ 0 };
            goes_on(&r);
            rig_close(&r);
        }
    }
    printf("%d failures\n", failed);
    ck_assert_int_gt(failed, 100);
}
END_TEST

START_TEST(allocations_fail)
{
    bool met = true;
    int failed = 0;
    for (int nth = 1; met; nth += 1 + nth / 40) { /* the first ones each, later ones here and there */
        struct fault_alloc heap;
        struct rig r;
        fault_alloc_init(&heap, 0);
        past_open(&r, config(&heap.alloc), 0, 3, TRAINED);
        fault_alloc_arm(&heap, nth);
        enum md_status s = scenario(&r);
        met = heap.failed;
        ck_assert_msg(met || s == MD_OK, "%s", r.err.text);
        ck_assert_msg(s == MD_OK || s == MD_NO_MEMORY, "%s", r.err.text);
        fault_alloc_arm(&heap, 0);
        failed += met;
        goes_on(&r);
        rig_close(&r);
        ck_assert_uint_eq(heap.live_bytes, 0);
    }
    printf("%d failures\n", failed);
    ck_assert_int_gt(failed, 40);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("past faults");
    TCase *c = tcase_create("faults");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_test(c, each_move_fails_once);
    tcase_add_test(c, allocations_fail);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
