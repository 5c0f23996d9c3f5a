/* test_hot_settings.c - B132 on the fake engine: sinks, recent window and hot set that do not fit blocks or each other are
 * refused by the pool's own check, or rounded up to whole blocks, and what is in force is in the status.
 *
 * The figures are those of the case.  What a number means is this product's: no sinks (0) is a choice, and -1 asks for a
 * share of the hot set, which the flags of the commands cannot say. */
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <string.h>

enum { BLOCK = 32, PROMPT = 900, ANSWER = 8, KEEP_ALL = 64 << 20 };

static md_token text[PROMPT];

START_TEST(b132_start_recent_and_most)
{
    static const struct {
        int32_t start, recent, most;
        const char *says; /* NULL: it opens, and then has */
        int32_t sinks, last;
    } rows[] = {
        { 32, 128, 128, "smallest that works is 192", 0, 0 },
        { 32, 128, 160, "smallest that works is 192", 0, 0 }, /* start + recent is not less than all */
        { 32, 128, 192, NULL, 32, 128 },
        { 0, 128, 512, NULL, 0, 128 },
        { 30, 128, 512, NULL, 32, 128 },
        { 33, 97, 512, NULL, 64, 128 },
        { 32, 128, 500, NULL, 32, 128 }, /* 15 blocks of 32 are what fits */
        { 32, -1, 512, NULL, 32, 128 },  /* a quarter of it */
        { 32, -2, 512, "--recent", 0, 0 },
        { 32, 0, 512, "--recent must be at least 1", 0, 0 },
        { -2, 128, 512, "--sink", 0, 0 },
        { 32, 128, 0, "--hot must be at least 1", 0, 0 },
        { 32, 128, -1, "--hot must be at least 1", 0, 0 },
    };
    rig_tokens(text, PROMPT, 7);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r;
        struct md_pool_config c = rig_config(2048, 512, KEEP_ALL);
        c.hot_tokens = rows[i].most;
        c.block_tokens = BLOCK;
        c.sink_tokens = rows[i].start;
        c.recent_tokens = rows[i].recent;
        enum md_status s;
        if (rows[i].most < 1) { /* no engine has so few cells: the check is made before one is opened */
            s = md_pool_check_config(&c, &r.err);
            ck_assert_msg(s == MD_INVALID && strstr(r.err.text, rows[i].says) != NULL, "%s", r.err.text);
            continue;
        }
        s = rig_try_open(&r, c, 0);
        if (rows[i].says != NULL) {
            ck_assert_msg(s == MD_INVALID && strstr(r.err.text, rows[i].says) != NULL, "%d/%d/%d: %s",
                          rows[i].start, rows[i].recent, rows[i].most, r.err.text);
        } else {
            ck_assert_msg(s == MD_OK, "%d/%d/%d: %s", rows[i].start, rows[i].recent, rows[i].most,
                          r.err.text);
            const struct md_pool_status st = md_pool_status(r.pool);
            ck_assert_int_eq(st.sink_tokens, rows[i].sinks);
            ck_assert_int_eq(st.recent_tokens, rows[i].last);
            ck_assert_int_eq(st.hot_limit_tokens, rows[i].most);
            ck_assert_int_eq(rig_ask(&r, text, PROMPT, ANSWER, false), MD_OK);
            ck_assert_int_le(r.hot_max, rows[i].most);
            ck_assert_int_gt(md_session_status(r.session).cold_tokens, PROMPT - rows[i].most);
            ck_assert_int_eq(md_session_status(r.session).lost_tokens, 0);
        }
        rig_close(&r);
    }
}
END_TEST

START_TEST(b132_a_window_of_100_keeps_everything)
{
    struct rig r;
    struct md_pool_config c = rig_config(100, 100, KEEP_ALL);
    c.block_tokens = BLOCK;
    c.sink_tokens = c.recent_tokens = -1;
    rig_open(&r, c, 0);
    rig_tokens(text, PROMPT, 7);
    const struct md_pool_status st = md_pool_status(r.pool);
    ck_assert_int_eq(st.window_tokens, 100);
    ck_assert_int_eq(st.hot_limit_tokens, 100);
    ck_assert_int_eq(st.sink_tokens + st.recent_tokens, 0); /* nothing leaves, so nothing is protected */
    ck_assert_int_eq(rig_ask(&r, text, 99 - ANSWER, ANSWER, false), MD_OK);
    ck_assert_int_eq(md_session_status(r.session).cold_tokens, 0);
    ck_assert_int_eq((int)md_session_status(r.session).evicted_blocks, 0);
    ck_assert_int_eq(md_session_status(r.session).hot_tokens, md_session_status(r.session).tape_tokens);
    ck_assert_int_eq(rig_ask(&r, text, 100, 1, false), MD_TOO_LARGE);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hot_settings");
    TCase *c = tcase_create("B132");
    tcase_add_test(c, b132_start_recent_and_most);
    tcase_add_test(c, b132_a_window_of_100_keeps_everything);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
