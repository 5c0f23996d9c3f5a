/* test_choice.c - which engine is taken.  The right answers are worked out by hand: a window of 8,000 tokens is 7,000 read
 * and 1,000 written. */
#include "policy/choice.h"
#include "support/run_suite.h"

#include <check.h>

START_TEST(seconds_of_a_window)
{
    ck_assert_double_eq_tol(md_choice_seconds((struct md_choice_speed){ 700, 10 }, 8000), 10 + 100, 1e-9);
    ck_assert_double_eq_tol(md_choice_seconds((struct md_choice_speed){ 70, 100 }, 8000), 100 + 10, 1e-9);
    ck_assert_double_eq(md_choice_seconds((struct md_choice_speed){ 0, 10 }, 8000), 0);
    ck_assert_double_eq(md_choice_seconds((struct md_choice_speed){ 700, 0 }, 8000), 0);
    ck_assert_double_eq(md_choice_seconds((struct md_choice_speed){ 700, 10 }, 0), 0);
}
END_TEST

static const struct {
    const char *label;
    struct md_choice_engine engines[3];
    size_t count, want;
    enum md_choice_why why;
} rows[] = {
    { "alone", { { true, { 0, 0 } } }, 1, 0, MD_CHOICE_ONLY },
    { "nothing usable", { { false, { 9, 9 } }, { false, { 9, 9 } } }, 2, 0, MD_CHOICE_NONE },
    { "the first cannot", { { false, { 9, 9 } }, { true, { 0, 0 } } }, 2, 1, MD_CHOICE_ONLY },
    { "the second cannot", { { true, { 0, 0 } }, { false, { 9, 9 } } }, 2, 0, MD_CHOICE_ONLY },
    { "one not measured", { { true, { 1, 1 } }, { true, { 9, 0 } } }, 2, 0, MD_CHOICE_UNMEASURED },
    { "what cannot need not be measured",
      { { true, { 70, 10 } }, { false, { 0, 0 } }, { true, { 140, 20 } } },
      3,
      2,
      MD_CHOICE_FASTER },
    { "the same", { { true, { 70, 10 } }, { true, { 70, 10 } } }, 2, 0, MD_CHOICE_EVEN },
    { "slower", { { true, { 70, 10 } }, { true, { 35, 5 } } }, 2, 0, MD_CHOICE_EVEN },
    /* 5 %: 105 against 100.  700 read at 7 are 100 s, 100 written at 20 are 5 s */
    { "faster by the margin", { { true, { 7, 20 } }, { true, { 7, 1e12 } } }, 2, 0, MD_CHOICE_EVEN },
    { "faster by more", { { true, { 7, 19 } }, { true, { 7, 1e12 } } }, 2, 1, MD_CHOICE_FASTER },
    { "reads slower, writes faster",
      { { true, { 141, 15 } }, { true, { 100, 30 } } },
      2,
      1,
      MD_CHOICE_FASTER },
    { "reads faster, writes slower", { { true, { 141, 48 } }, { true, { 160, 30 } } }, 2, 0, MD_CHOICE_EVEN },
    { "the best of three",
      { { true, { 7, 1 } }, { true, { 14, 2 } }, { true, { 21, 3 } } },
      3,
      2,
      MD_CHOICE_FASTER },
};

START_TEST(the_soonest_one)
{
    enum md_choice_why why;
    size_t got = md_choice_resolve(rows[_i].engines, rows[_i].count, &why);
    ck_assert_msg(got == rows[_i].want && why == rows[_i].why, "%s: %zu, %d", rows[_i].label, got, (int)why);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("choice");
    TCase *t = tcase_create("choice");
    tcase_add_test(t, seconds_of_a_window);
    tcase_add_loop_test(t, the_soonest_one, 0, sizeof rows / sizeof rows[0]);
    suite_add_tcase(suite, t);
    return md_run_suite(suite);
}
