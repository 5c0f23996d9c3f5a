/* test_restore_faults.c - a restore and a branch in which the Nth allocation fails: nothing has changed and nothing leaks,
 * and the next one is right. */
#include "session/snapshot.h"
#include "support/fault_alloc.h"
#include "support/run_suite.h"
#include "support/session_rig.h"
#include "support/temp_folder.h"

#include <check.h>
#include <string.h>

enum { PROMPT = 700, KEEP_ALL = 64 << 20 };

static md_token text_a[PROMPT], branch[PROMPT];

static void fill(void)
{
    rig_tokens(text_a, PROMPT, 1);
    memcpy(branch, text_a, sizeof branch);
    rig_tokens(branch + 333, 100, 2);
}

static const enum rig_model models[] = { RIG_DENSE, RIG_WINDOWED, RIG_RECURRENT };
enum { MODELS = sizeof models / sizeof models[0] };

static char folder[4096];
static const struct md_sections_place place = { folder, "k" };

/* A conversation that is restored over, beside another one. */
static enum md_status play_two(struct rig *r, struct md_session **ret_other)
{
    enum md_status s = rig_ask(r, text_a + 450, 200, 8, false);
    *ret_other = r->session;
    if (s == MD_OK)
        s = md_pool_new(r->pool, &r->session, &r->err);
    return s == MD_OK ? rig_ask(r, branch + 250, 150, 8, false) : s;
}

/* Until one meets none.  A restore that fails has changed nothing; one that finds no memory for a block's copy has fewer.
 * cold_bytes: with room for all of the file, and without.  Returns how many failed. */
static int fail_restores(int32_t hot, size_t cold_bytes)
{
    int failures = 0;
    for (long nth = 1;; nth++) {
        struct fault_alloc f;
        struct rig r;
        struct md_session *other;
        struct md_snapshot snap;
        struct md_pool_config c = rig_config(1024, hot, cold_bytes);
        fault_alloc_init(&f, 0);
        c.alloc = &f.alloc;
        rig_open(&r, c, 0);
        ck_assert_int_eq(play_two(&r, &other), MD_OK);
        const struct rig_seen before = rig_look(&r, other);
        fault_alloc_arm(&f, nth);
        const enum md_status s = md_session_restore(r.session, &place, NULL, NULL, &snap, &r.err);
        const bool met = f.failed;
        fault_alloc_arm(&f, 0);
        ck_assert_msg(s == MD_OK || (met && s == MD_NO_MEMORY), "call %ld: %s", nth, md_status_name(s));
        if (s != MD_OK)
            rig_check_same(&r, &before);
        failures += s != MD_OK;
        ck_assert_int_eq(md_session_restore(r.session, &place, NULL, NULL, &snap, &r.err), MD_OK);
        ck_assert_int_eq(md_session_status(r.session).context_tokens, 308);
        rig_close(&r);
        ck_assert_msg(f.live_blocks == 0, "call %ld: %zu blocks leaked", nth, f.live_blocks);
        if (!met)
            return failures;
    }
}

/* All places are taken: who would make way for the branch stays when there is none. */
START_TEST(nth_allocation_of_a_branch)
{
    for (long nth = 1;; nth++) {
        struct fault_alloc f;
        struct rig r;
        struct md_session *other, *b;
        struct md_pool_config c = rig_config(1024, 1024, KEEP_ALL);
        fault_alloc_init(&f, 0);
        c.alloc = &f.alloc;
        c.session_limit = 2;
        rig_open(&r, c, 0);
        ck_assert_int_eq(play_two(&r, &other), MD_OK);
        const struct rig_seen before = rig_look(&r, other);
        fault_alloc_arm(&f, nth);
        const enum md_status s = md_session_branch(r.session, -1, &b, &r.err);
        const bool met = f.failed;
        fault_alloc_arm(&f, 0);
        ck_assert_msg(s == MD_OK || (met && s == MD_NO_MEMORY), "call %ld: %s", nth, md_status_name(s));
        if (s != MD_OK)
            rig_check_same(&r, &before);
        else
            ck_assert_ptr_null(md_pool_find(r.pool, before.s[1].id));
        rig_close(&r);
        ck_assert_msg(f.live_blocks == 0, "call %ld: %zu blocks leaked", nth, f.live_blocks);
        if (!met) {
            ck_assert_int_gt(nth, 2); /* the conversation, its context */
            return;
        }
    }
}
END_TEST

/* Of tokens alone, and of the call that computes them: where that fails, the next one is right all the same. */
START_TEST(nth_allocation_of_a_restore_of_tokens)
{
    enum { RESTORE, CALL, BOTH };
    struct rig r;
    struct md_snapshot snap;
    md_token want[8];
    rig_use_model(models[_i]);
    md_temp_folder(folder, sizeof folder, "faults");
    rig_fresh_answer(text_a, 300, 8, want);
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 300, 8, false), MD_OK);
    ck_assert_int_eq(md_session_snapshot(r.session, &place, NULL, &snap, &r.err), MD_OK);
    rig_close(&r);
    for (int what = RESTORE; what < BOTH; what++) {
        bool met = true;
        int failures = 0;
        for (long nth = 1; met; nth++) {
            struct fault_alloc f;
            struct md_session *other;
            struct md_pool_config c = rig_config(1024, 1024, KEEP_ALL);
            fault_alloc_init(&f, 0);
            c.alloc = &f.alloc;
            rig_open(&r, c, 0);
            ck_assert_int_eq(play_two(&r, &other), MD_OK);
            const struct rig_seen before = rig_look(&r, other);
            enum md_status s = MD_OK;
            for (int step = RESTORE; step <= what && s == MD_OK; step++) {
                fault_alloc_arm(&f, step == what ? nth : 0);
                s = step == RESTORE ? md_session_restore_tokens(r.session, &place, NULL, NULL, &snap, &r.err)
                                    : rig_ask(&r, text_a, 300, 8, false);
                met = f.failed;
                fault_alloc_arm(&f, 0);
            }
            ck_assert_msg(s == MD_OK || (met && s == MD_NO_MEMORY), "call %ld: %s", nth, md_status_name(s));
            if (s != MD_OK && what == RESTORE)
                rig_check_same(&r, &before);
            failures += s != MD_OK;
            ck_assert(md_pool_check(r.pool));
            ck_assert_int_eq(md_session_restore_tokens(r.session, &place, NULL, NULL, &snap, &r.err), MD_OK);
            ck_assert_int_eq(rig_ask(&r, text_a, 300, 8, false), MD_OK);
            ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
            rig_close(&r);
            ck_assert_msg(f.live_blocks == 0, "call %ld: %zu blocks leaked", nth, f.live_blocks);
        }
        ck_assert_int_gt(failures, 3);
    }
}
END_TEST

START_TEST(nth_allocation_of_a_restore)
{
    struct rig r;
    struct md_snapshot snap;
    rig_use_model(models[_i]);
    md_temp_folder(folder, sizeof folder, "faults");
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 300, 8, false), MD_OK);
    ck_assert_int_eq(md_session_snapshot(r.session, &place, NULL, &snap, &r.err), MD_OK);
    rig_close(&r);
    ck_assert_int_gt(fail_restores(1024, KEEP_ALL), 8); /* reader, record, buffers, tape, context, list */
    if (models[_i] == RIG_DENSE)
        ck_assert_int_gt(fail_restores(256, 96 << 10), 8);
    md_temp_folder_remove(folder);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore faults");
    TCase *c = tcase_create("faults");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_loop_test(c, nth_allocation_of_a_restore_of_tokens, 0, MODELS);
    tcase_add_loop_test(c, nth_allocation_of_a_restore, 0, MODELS);
    tcase_add_test(c, nth_allocation_of_a_branch);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
