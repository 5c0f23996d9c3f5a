/* test_store_kill.c - a process is killed at any moment, on a dense model: see support/kill_rig.h. */
#include "support/kill_rig.h"
#include "support/run_suite.h"

#include <check.h>

enum { KILLS = 50 };

START_TEST(everything_fits)
{
    kill_often("everything_fits", RIG_DENSE, KILL_RIG_WINDOW, KILLS);
}
END_TEST

START_TEST(most_is_cold)
{
    kill_often("most_is_cold", RIG_DENSE, 128, KILLS);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store kill");
    TCase *c = tcase_create("kill");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, sr_setup, sr_teardown);
    tcase_add_test(c, everything_fits);
    tcase_add_test(c, most_is_cold);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
