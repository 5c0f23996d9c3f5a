/* test_retrieve_faults.c - while a question brings back what it attends to, each engine call, each allocation and each look for
 * a cancelling client fails once: the tape stays valid, nothing before the question is lost by it, and the same request
 * afterwards has the answer, and brings the blocks, that it has where nothing failed. */
#include "session/session_internal.h"
#include "support/fault_alloc.h"
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { WINDOW = 1000, HOT = 192, COUNT = 437, ROWS = 32, FROM = COUNT - ROWS, ANSWER = 4, COLD = 64 << 20 };
enum { BLOCK = 16, BLOCKS = FROM / BLOCK };
/* With a tail state the engine goes back by a checkpoint; the rig's batches are shorter there, and so is what asks. */
static const enum rig_model models[] = { RIG_DENSE, RIG_WINDOWED, RIG_HYBRID };
enum { MODELS = sizeof models / sizeof models[0], SHORT = 32 };

static md_token text[WINDOW], want[ANSWER];
static bool want_in[BLOCKS];
static struct md_retrieve_params params;

static enum rig_model used;

static int32_t question(void)
{
    return used == RIG_DENSE ? ROWS : SHORT;
}

/* All before the question is computed before anything fails. */
static void open_prepared(struct rig *r, const struct md_alloc *alloc)
{
    struct md_pool_config c = rig_config(WINDOW, HOT, COLD);
    c.alloc = alloc;
    c.retrieval = MD_RETRIEVAL_AUTO;
    c.retrieve = &params;
    rig_open(r, c, 0);
    ck_assert_int_eq(rig_ensure(r, text, COUNT - question() + 1), MD_OK);
}

static enum md_status ask(struct rig *r)
{
    return rig_ask(r, text, COUNT, ANSWER, false);
}

static void check_right(const struct rig *r)
{
    ck_assert_int_eq(r->last.completion, ANSWER);
    ck_assert_mem_eq(r->last.tokens.ids, want, sizeof want);
    for (size_t i = 0; i < BLOCKS; i++)
        ck_assert_msg(r->session->tape.blocks[i].retrieved == want_in[i], "block %zu", i);
}

static void fill_for(enum rig_model model)
{
    struct rig r;
    used = model;
    rig_use_model(model);
    rig_tokens(text, WINDOW, 3);
    params = md_retrieve_defaults();
    params.select.margin_frac = 0; /* so that what is in does not depend on what was */
    params.select.beaten_most = 1;
    open_prepared(&r, NULL);
    ck_assert_int_eq(ask(&r), MD_OK);
    ck_assert_int_gt(r.last.retrieval.evaluations, 1);
    memcpy(want, r.last.tokens.ids, sizeof want);
    for (size_t i = 0; i < BLOCKS; i++)
        want_in[i] = r.session->tape.blocks[i].retrieved;
    rig_close(&r);
}

/* With nothing failing any more.  A block whose copying failed may be lost, and one that the engine refuses is (session/move.h). */
static void goes_on(struct rig *r, bool all_there)
{
    const struct md_session_status st = md_session_status(r->session);
    ck_assert(md_pool_check(r->pool));
    ck_assert(!st.fatal);
    ck_assert(!all_there || st.lost_tokens == 0);
    const int64_t dropped =
        r->pool->hot.dropped_tokens; /* some of it may have been computed again, over what was hot then */
    ck_assert(!all_there || dropped == 0);
    ck_assert(st.lost_tokens == 0 || dropped > 0);
    ck_assert_msg(ask(r) == MD_OK, "%s", r->err.text);
    if (dropped == 0)
        check_right(r);
}

/* The first TAIL_OPS are all that a recurrent state makes another: of the others a model with windows is enough. */
static const enum md_engine_op ops[] = { MD_OP_DECODE, MD_OP_REWIND, MD_OP_CHECKPOINT, MD_OP_WATCH,
                                         MD_OP_KEYS,   MD_OP_ADMIT,  MD_OP_TRUNCATE,   MD_OP_REMOVE,
                                         MD_OP_EXPORT, MD_OP_QUERIES };
enum { TAIL_OPS = 3 };
enum { OPS = sizeof ops / sizeof ops[0] };
static const enum md_status statuses[] = { MD_INTERNAL, MD_NO_MEMORY, MD_SESSION_FATAL };

/* Is it how this engine goes back? */
static bool is_called(enum md_engine_op op)
{
    return used == RIG_DENSE ? op != MD_OP_REWIND && op != MD_OP_CHECKPOINT : op != MD_OP_TRUNCATE;
}

START_TEST(each_engine_call_fails_once)
{
    const enum md_engine_op op = ops[_i / 3 % OPS];
    const enum md_status status = statuses[_i % 3];
    int failed = 0;
    fill_for(models[_i / 3 / OPS]);
    for (bool met = true; met; failed += met) {
        struct rig r;
        open_prepared(&r, NULL);
        r.fault = (struct md_fault){ .op = op, .nth = failed + 1, .status = status };
        enum md_status s = ask(&r);
        met = r.fault.failed > 0;
        r.fault = (struct md_fault){ 0 };
        ck_assert(md_pool_check(r.pool));
        if (!met)
            ck_assert_int_eq(s, MD_OK);
        /* what scores fails: the answer comes all the same, and says that it goes by what was hot */
        const bool scores = op == MD_OP_QUERIES || (op == MD_OP_WATCH && failed == 0); /* later ones end it */
        if (met && scores && status != MD_SESSION_FATAL) {
            ck_assert_int_eq(s, MD_OK);
            ck_assert(r.last.retrieval.skipped != NULL);
            ck_assert_int_eq(r.last.completion, ANSWER);
        }
        if (md_session_status(r.session).fatal) {
            ck_assert(s == MD_SESSION_FATAL && status == MD_SESSION_FATAL);
            r.session = rig_new(&r); /* others go on */
            ck_assert_int_eq(ask(&r), MD_OK);
        } else {
            ck_assert(status != MD_SESSION_FATAL || !met || op == MD_OP_WATCH || op == MD_OP_KEYS ||
                      op == MD_OP_QUERIES);
            goes_on(&r, op != MD_OP_EXPORT && (op != MD_OP_ADMIT || status != MD_INTERNAL));
        }
        rig_close(&r);
    }
    printf("%s, %s, %s: %d failures\n", rig_model_name(used), md_engine_op_name(op), md_status_name(status),
           failed);
    ck_assert(failed > 0 || !is_called(op));
}
END_TEST

/* What it could go back by is not to be had: the question is evaluated once, and the answer says so. */
START_TEST(without_a_checkpoint_nothing_is_retrieved)
{
    struct rig r;
    fill_for(models[_i]);
    open_prepared(&r, NULL);
    r.fault =
        (struct md_fault){ .op = MD_OP_CHECKPOINT, .nth = 1, .from_then_on = true, .status = MD_NO_MEMORY };
    ck_assert_msg(ask(&r) == MD_OK, "%s", r.err.text);
    const struct md_retrieval *did = &r.last.retrieval;
    ck_assert(did->due && did->skipped != NULL && strstr(did->skipped, "checkpoint") != NULL);
    ck_assert_int_eq(did->evaluations, 1);
    ck_assert_int_eq(did->question, SHORT);
    ck_assert_int_eq(did->scored + did->brought_tokens + did->chosen_tokens, 0);
    ck_assert_int_eq(r.last.completion, ANSWER);
    ck_assert_int_eq(r.fault.calls[MD_OP_QUERIES] + r.fault.calls[MD_OP_REWIND], 0);
    r.fault = (struct md_fault){ 0 };
    goes_on(&r, true);
    ck_assert_ptr_null(r.last.retrieval.skipped);
    rig_close(&r);
}
END_TEST

START_TEST(allocations_fail)
{
    int failed = 0;
    fill_for(models[_i]);
    bool met = true;
    for (int nth = 1; met; nth += 1 + nth / 30) { /* the first ones each, later ones here and there */
        struct fault_alloc heap;
        struct rig r;
        fault_alloc_init(&heap, 0);
        open_prepared(&r, &heap.alloc);
        fault_alloc_arm(&heap, nth);
        enum md_status s = ask(&r);
        met = heap.failed;
        fault_alloc_arm(&heap, 0);
        ck_assert(s == MD_OK || (met && s == MD_NO_MEMORY));
        failed += met;
        goes_on(&r, false);
        rig_close(&r);
        ck_assert_uint_eq(heap.live_bytes, 0);
    }
    printf("%d failures\n", failed);
    ck_assert_int_gt(failed, 40);
}
END_TEST

START_TEST(cancelled_at_each_poll)
{
    int cancelled = 0;
    fill_for(models[_i]);
    for (enum md_status s = MD_CANCELLED; s == MD_CANCELLED; cancelled++) {
        struct rig r;
        open_prepared(&r, NULL);
        r.cancel_after = cancelled;
        s = ask(&r);
        ck_assert(s == MD_OK || s == MD_CANCELLED);
        r.cancel_after = -1;
        goes_on(&r, true);
        rig_close(&r);
    }
    printf("%d polls\n", cancelled);
    ck_assert_int_gt(cancelled, ANSWER + 3); /* one before each token and each pass, and the engine's */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("retrieve faults");
    TCase *c = tcase_create("faults");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, each_engine_call_fails_once, 0, (2 * OPS + TAIL_OPS) * 3);
    tcase_add_loop_test(c, without_a_checkpoint_nothing_is_retrieved, 1, MODELS);
    tcase_add_loop_test(c, allocations_fail, 0, 2);
    tcase_add_loop_test(c, cancelled_at_each_poll, 0, 2);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
