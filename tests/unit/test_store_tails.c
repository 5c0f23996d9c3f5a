/* test_store_tails.c - what is said to be on disk of conversations on models with a tail state: durable_tokens is what the
 * next process goes on from, also when the disk will not have the state that the memory has.
 *
 * What is right: what the next process has, and rig_fresh_answer. */
#include "support/run_suite.h"
#include "support/store_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum {
    RAM = 64 << 20,
    DISK = 1 << 20, /* the least that a folder may have */
    ANSWER = 6,
    WINDOW = 8192,
    PINNED = 4500, /* a file of a page for each 16 tokens at least: more than the disk has room for */
    SAID = 200,
    MORE = 20
};

static const enum rig_model models[] = { RIG_HYBRID, RIG_RECURRENT };
enum { MODELS = sizeof models / sizeof models[0] };

static md_token pinned[PINNED], text[SAID + MORE];

/* As many checkpoints as blocks, and room for both conversations at once. */
static struct md_pool_config config(void)
{
    struct md_pool_config c = rig_config(WINDOW, WINDOW, RAM);
    c.checkpoint_tokens = 16;
    return c;
}

/* The next process has what was said to be durable, and goes on from there. */
static void check_next(int32_t durable)
{
    struct store_rig s;
    md_token want[ANSWER];
    sr_start(&s, config(), DISK);
    struct md_session *c = md_pool_find(s.r.pool, 1);
    ck_assert_int_eq(c == NULL ? 0 : md_session_status(c).durable_tokens, durable);
    s.r.session = c != NULL ? c : s.r.session;
    ck_assert_int_eq(rig_ask(&s.r, text, SAID + MORE, ANSWER, false), MD_OK);
    ck_assert_int_eq(s.r.last.cached, durable < SAID ? durable : SAID - 1); /* where the answer began */
    rig_fresh_answer(text, SAID + MORE, ANSWER, want);
    ck_assert_mem_eq(s.r.last.tokens.ids, want, sizeof want);
    sr_stop(&s);
}

START_TEST(what_the_disk_has_not_is_not_durable)
{
    struct md_segment segment = { .range = { 0, PINNED },
                                  .kind = MD_SEGMENT_SYSTEM,
                                  .cls = MD_CLASS_TASK_PINNED };
    const struct md_context all_pinned = { pinned, PINNED, &segment, 1 };
    for (int full = 0; full < 2; full++) {
        struct store_rig s;
        rig_use_model(models[_i]);
        sr_start(&s, config(), DISK);
        struct md_session *small = s.r.session;
        if (full) { /* of what is dearer than the text */
            s.r.session = rig_new(&s.r);
            ck_assert_int_eq(rig_ask_segments(&s.r, &all_pinned, 1), MD_OK);
            ck_assert_int_lt(s.r.last.durable, s.r.last.tape);
            s.r.session = small;
        }
        ck_assert_int_eq(rig_ask(&s.r, text, SAID, ANSWER, false), MD_OK);
        const int32_t durable = s.r.last.durable;
        ck_assert_int_eq(durable, full ? 0 : SAID + ANSWER - 1);
        ck_assert_int_eq(md_session_status(small).durable_tokens, durable);
        sr_stop(&s);
        check_next(durable);
        sr_empty();
    }
}
END_TEST

static void setup(void)
{
    sr_setup();
    rig_tokens(pinned, PINNED, 1);
    rig_tokens(text, SAID + MORE, 2);
}

/* The folder is away while a turn is written: what is durable is what was. */
START_TEST(a_write_that_fails_leaves_what_was_durable)
{
    struct store_rig s;
    char moved[250];
    md_token prompt[SAID + ANSWER + MORE];
    rig_use_model(models[_i]);
    sr_start(&s, config(), DISK);
    ck_assert_int_eq(rig_ask(&s.r, text, SAID, ANSWER, false), MD_OK);
    const int32_t durable = s.r.last.durable;
    ck_assert_int_eq(durable, SAID + ANSWER - 1);
    memcpy(prompt, text, SAID * sizeof *prompt);
    memcpy(prompt + SAID, s.r.last.tokens.ids, ANSWER * sizeof *prompt);
    memcpy(prompt + SAID + ANSWER, text + SAID, MORE * sizeof *prompt);
    snprintf(moved, sizeof moved, "%s.moved", sr_folder);
    ck_assert_int_eq(rename(sr_folder, moved), 0);
    ck_assert_int_eq(rig_ask(&s.r, prompt, SAID + ANSWER + MORE, ANSWER, false), MD_OK);
    ck_assert_int_eq(s.r.last.durable, durable);
    ck_assert_int_eq(rename(moved, sr_folder), 0);
    sr_stop(&s);
    check_next(durable);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store tails");
    TCase *c = tcase_create("durable");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, sr_teardown);
    tcase_add_loop_test(c, what_the_disk_has_not_is_not_durable, 0, MODELS);
    tcase_add_loop_test(c, a_write_that_fails_leaves_what_was_durable, 0, MODELS);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
