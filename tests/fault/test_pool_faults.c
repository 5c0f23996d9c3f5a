/* test_pool_faults.c - several conversations over an engine that fails: MD_SESSION_FATAL ends the one it happened to,
 * every other failure none; each allocation and each operation of a scenario fails once. */
#include "support/fault_alloc.h"
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { KEEP_ALL = 64 << 20, ANSWER = 6, TEXT = 1024, SYSTEM = 160 };

static md_token text[TEXT];
static struct rig_talk talks[4];

static void fill(void)
{
    rig_tokens(text, TEXT, 1);
}

/* ---- fatal ---- */

/* `count` conversations with one beginning, each with an answer. */
static void open_talks(struct rig *r, struct md_pool_config c, int32_t seq_count, int count)
{
    rig_open_seqs(r, c, 0, seq_count);
    for (int i = 0; i < count; i++) {
        talks[i].s = i == 0 ? r->session : rig_new(r);
        talks[i].count = SYSTEM;
        memcpy(talks[i].tokens, text, SYSTEM * sizeof *text);
        (void)rig_say(r, &talks[i], 30, 10 + (uint32_t)i, ANSWER);
    }
}

static void check_dead(struct rig *r, struct md_session *s, const char *cause)
{
    int32_t tokens;
    struct md_session *branch;
    const struct md_range range = { 0, 16 };
    r->session = s;
    for (int call = 0; call < 8; call++) {
        enum md_status st = call == 0   ? rig_ask(r, text, 50, 4, false)
                            : call == 1 ? rig_ensure(r, text, 50)
                            : call == 2 ? rig_suffix(r, text, 5)
                            : call == 3 ? rig_decode(r, 4)
                            : call == 4 ? md_session_evict_range(s, range, &tokens, &r->err)
                            : call == 5 ? md_session_admit_range(s, range, &tokens, &r->err)
                            : call == 6 ? md_session_admit_at_tail(s, range, NULL, &tokens, &r->err)
                                        : md_session_branch(s, -1, &branch, &r->err);
        ck_assert_int_eq(st, MD_SESSION_FATAL);
        ck_assert_msg(strstr(r->err.text, cause) != NULL, "call %d: %s", call, r->err.text);
    }
    struct md_session_status st = md_session_status(s);
    ck_assert(st.fatal && strstr(st.fatal_text, cause) != NULL);
    ck_assert_int_eq(st.hot_tokens, 0);
}

START_TEST(a_fatal_failure_ends_the_one_it_happened_to)
{
    static const enum md_engine_op ops[] = { MD_OP_PREFILL, MD_OP_DECODE, MD_OP_SHARE, MD_OP_TRUNCATE };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct rig r;
        char cause[64];
        open_talks(&r, rig_config(1024, 1024, KEEP_ALL), 4, 3);
        struct rig_talk *a = &talks[3]; /* the beginning is shared, the rest computed; then an edit */
        a->s = rig_new(&r);
        a->count = SYSTEM;
        memcpy(a->tokens, text, 165 * sizeof *text);
        if (ops[i] == MD_OP_TRUNCATE)
            (void)rig_say(&r, a, 20, 20, ANSWER);
        r.session = a->s;
        memcpy(a->tokens + 165, text + 165, 5 * sizeof *text); /* an edit inside a block */
        r.fault = (struct md_fault){ .op = ops[i], .nth = 1, .status = MD_SESSION_FATAL };
        ck_assert_int_eq(ops[i] == MD_OP_PREFILL ? rig_ensure(&r, a->tokens, 170)
                                                 : rig_ask(&r, a->tokens, 170, ANSWER, false),
                         MD_SESSION_FATAL);
        ck_assert_int_eq(r.fault.failed, 1);
        r.fault = (struct md_fault){ 0 };
        snprintf(cause, sizeof cause, "injected fault in %s", md_engine_op_name(ops[i]));
        check_dead(&r, a->s, cause);
        for (int k = 0; k < 3; k++) { /* the others share cells with it, and go on at no cost */
            ck_assert(rig_say(&r, &talks[k], 20, 30, ANSWER));
            ck_assert_int_eq(r.last.prefilled, 21);
            ck_assert_int_eq(r.last.restored, 0);
        }
        md_session_close(a->s);
        ck_assert(rig_say(&r, &talks[0], 20, 31, ANSWER));
        rig_close(&r);
    }
}
END_TEST

START_TEST(a_fatal_failure_in_a_copy_is_not_overlooked)
{
    struct rig r;
    struct md_pool_config c = rig_config(1024, 1024, KEEP_ALL);
    c.write_through = true;
    open_talks(&r, c, 4, 2);
    r.fault = (struct md_fault){ .op = MD_OP_EXPORT, .nth = 1, .status = MD_SESSION_FATAL };
    struct md_session *s =
        rig_new(&r); /* nothing of it is moved: the first export is that of its first block */
    r.session = s;
    ck_assert_int_eq(rig_ask(&r, text + 300, 50, ANSWER, false), MD_SESSION_FATAL);
    check_dead(&r, s, "injected fault in export_range");
    ck_assert(rig_say(&r, &talks[1], 20, 30, ANSWER));
    rig_close(&r);
}
END_TEST

START_TEST(an_idle_one_that_fails_to_leave_does_not_end_the_live_one)
{
    static const enum md_engine_op ops[] = { MD_OP_EXPORT, MD_OP_REMOVE };
    for (size_t i = 0; i < 2; i++)
        for (int32_t seqs = 1; seqs <= 4; seqs += 3) { /* it makes way for its sequence, and for its cells */
            struct rig r;
            char cause[64];
            open_talks(&r, rig_config(256, 256, KEEP_ALL), seqs, 1);
            struct rig_talk *b = &talks[1];
            *b = (struct rig_talk){ .s = rig_new(&r) };
            r.fault = (struct md_fault){ .op = ops[i], .nth = 1, .status = MD_SESSION_FATAL };
            ck_assert(rig_say(&r, b, 200, 7, ANSWER));
            ck_assert_int_eq(r.fault.failed, 1);
            snprintf(cause, sizeof cause, "injected fault in %s", md_engine_op_name(ops[i]));
            check_dead(&r, talks[0].s, cause);
            ck_assert(rig_say(&r, b, 10, 8, ANSWER));
            ck_assert_int_eq(r.last.prefilled, 11);
            rig_close(&r);
        }
}
END_TEST

START_TEST(a_sequence_that_cannot_be_emptied_is_not_used_again)
{
    struct rig r;
    open_talks(&r, rig_config(1024, 1024, KEEP_ALL), 2, 2);
    r.fault =
        (struct md_fault){ .op = MD_OP_COUNT, .nth = 1, .from_then_on = true, .status = MD_SESSION_FATAL };
    r.session = talks[0].s;
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_SESSION_FATAL);
    r.fault = (struct md_fault){ 0 };
    check_dead(&r, talks[0].s, "injected fault");
    int32_t stuck =
        md_engine_end(r.engine, 0) > 0 ? md_engine_own_cells(r.engine, 0, (struct md_range){ 0, 1024 }) : 0;
    ck_assert_int_gt(stuck, 0);
    md_session_close(talks[0].s);
    talks[2].s = rig_new(&r);
    talks[2].count = 0;
    for (uint32_t turn = 0; turn < 6; turn++) /* the other sequence is lent to and fro */
        ck_assert(rig_say(&r, &talks[1 + turn % 2], 20, turn, ANSWER));
    ck_assert_int_eq(md_engine_own_cells(r.engine, 0, (struct md_range){ 0, 1024 }) >= stuck, 1);
    /* and when there is none left, that is said */
    r.fault =
        (struct md_fault){ .op = MD_OP_COUNT, .nth = 1, .from_then_on = true, .status = MD_SESSION_FATAL };
    r.session = talks[2].s;
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_SESSION_FATAL);
    r.fault = (struct md_fault){ 0 };
    r.session = talks[1].s;
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_NO_MEMORY);
    ck_assert_msg(strstr(r.err.text, "no sequence left") != NULL, "%s", r.err.text);
    rig_close(&r);
}
END_TEST

/* ---- every call fails once ---- */

static md_token said[3][TEXT];
static int32_t said_count[3];

static void note(enum md_status s, const struct rig *r, enum md_status *first, struct md_err *ret_first)
{
    ck_assert(md_pool_check(r->pool));
    if (s == MD_OK || *first != MD_OK)
        return;
    *first = s;
    *ret_first = r->err;
}

static void prompt(int i, const md_token *tokens, int32_t count)
{
    memcpy(said[i] + said_count[i], tokens, (size_t)count * sizeof *tokens);
    said_count[i] += count;
}

/* Two with one beginning, a branch of the first, text sent again, and back to the second: share, evict, export, admit,
 * move, cut, decode.  Goes on after a failure; gives the first. */
static enum md_status play(struct rig *r, struct md_session *s[3], struct md_err *ret_first)
{
    enum md_status first = MD_OK;
    memset(said_count, 0, sizeof said_count);
    prompt(0, text, 200);
    prompt(1, text, 100);
    prompt(1, text + 300, 80);
    for (int i = 0; i < 2; i++) {
        r->session = s[i];
        note(rig_ask(r, said[i], said_count[i], ANSWER, false), r, &first, ret_first);
    }
    note(md_session_branch(s[0], 150, &s[2], &r->err), r, &first, ret_first);
    ck_assert_int_eq(md_pool_status(r->pool).sessions, s[2] != NULL ? 3 : 2);
    prompt(2, text, 150);
    prompt(2, text + 400, 30);
    if (s[2] != NULL) {
        r->session = s[2];
        note(rig_suffix(r, text + 400, 30), r, &first, ret_first);
        note(rig_decode(r, ANSWER), r, &first, ret_first);
    }
    prompt(0, text + 500, 10);
    prompt(0, text + 40, 64); /* a paragraph again */
    prompt(1, text + 600, 20);
    for (int i = 0; i < 2; i++) {
        r->session = s[i];
        note(rig_ask(r, said[i], said_count[i], ANSWER, false), r, &first, ret_first);
    }
    return first;
}

/* Whatever failed: each of them goes on, and says what is right where its KV is full. */
static void go_on(struct rig *r, struct md_session *s[3])
{
    for (int i = 0; i < 3; i++) {
        md_token want[ANSWER];
        if (s[i] == NULL)
            continue;
        r->session = s[i];
        ck_assert_msg(rig_ask(r, said[i], said_count[i], ANSWER, false) == MD_OK, "%s", r->err.text);
        if (!rig_is_full(r, s[i]))
            continue;
        rig_fresh_answer(said[i], said_count[i], ANSWER, want);
        ck_assert_mem_eq(r->last.tokens.ids, want, sizeof want);
    }
}

static struct md_pool_config scenario(bool fits)
{
    struct md_pool_config c = rig_config(512, fits ? 512 : 128, KEEP_ALL);
    c.reuse = MD_REUSE_APPROXIMATE;
    return c;
}

START_TEST(nth_allocation_with_three_conversations)
{
    int failures = 0;
    for (long nth = 1;; nth++) {
        struct fault_alloc f;
        struct rig r;
        struct md_err err;
        struct md_session *s[3] = { NULL, NULL, NULL };
        struct md_pool_config c = scenario(nth % 2 == 0);
        fault_alloc_init(&f, nth);
        c.alloc = &f.alloc;
        enum md_status st = rig_try_open(&r, c, 0);
        if (st == MD_OK) {
            s[0] = r.session;
            st = md_pool_new(r.pool, &s[1], &r.err);
        }
        if (st == MD_OK)
            st = play(&r, s, &err);
        bool met = f.failed;
        ck_assert_msg(st == MD_OK || (met && st == MD_NO_MEMORY), "call %ld: %s", nth, md_status_name(st));
        failures += st != MD_OK;
        fault_alloc_arm(&f, 0); /* memory is back */
        if (s[1] != NULL)
            go_on(&r, s);
        rig_close(&r);
        ck_assert_msg(f.live_blocks == 0, "call %ld: %zu blocks leaked", nth, f.live_blocks);
        if (!met)
            break;
        if (nth > 60)
            nth += 2;
    }
    ck_assert_int_gt(failures, 20);
}
END_TEST

static void fail_each_operation(bool fits)
{
    for (int op = 0; op < MD_OP_COUNT; op++)
        for (int nth = 1;; nth++) {
            struct rig r;
            struct md_err err = { 0 };
            rig_open(&r, scenario(fits), 0);
            struct md_session *s[3] = { r.session, rig_new(&r), NULL };
            r.fault = (struct md_fault){ .op = (enum md_engine_op)op, .nth = nth, .status = MD_INTERNAL };
            enum md_status st = play(&r, s, &err);
            bool met = r.fault.failed > 0;
            ck_assert_msg(st == MD_OK || (met && st == MD_INTERNAL), "%s %d: %s: %s",
                          md_engine_op_name((enum md_engine_op)op), nth, md_status_name(st), err.text);
            r.fault = (struct md_fault){ 0 };
            go_on(&r, s);
            rig_close(&r);
            if (!met)
                break;
            if (nth > 12)
                nth += 7; /* many of a kind */
        }
}

START_TEST(nth_operation_with_three_conversations)
{
    fail_each_operation(false);
}
END_TEST

START_TEST(nth_operation_with_three_conversations_that_fit_by_themselves)
{
    fail_each_operation(true);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool faults");
    TCase *c = tcase_create("faults");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_test(c, a_fatal_failure_ends_the_one_it_happened_to);
    tcase_add_test(c, a_fatal_failure_in_a_copy_is_not_overlooked);
    tcase_add_test(c, an_idle_one_that_fails_to_leave_does_not_end_the_live_one);
    tcase_add_test(c, a_sequence_that_cannot_be_emptied_is_not_used_again);
    tcase_add_test(c, nth_allocation_with_three_conversations);
    tcase_add_test(c, nth_operation_with_three_conversations);
    tcase_add_test(c, nth_operation_with_three_conversations_that_fit_by_themselves);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
