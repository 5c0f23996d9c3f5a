/* test_store_kill_tails.c - a process is killed at any moment, on models with a tail state, which go on from checkpoints: see
 * support/kill_rig.h. */
#include "support/kill_rig.h"
#include "support/run_suite.h"

#include <check.h>

enum { KILLS = 30, SOME = 12 };

static const struct {
    const char *name;
    enum rig_model model;
    int32_t hot;
    int kills;
} rows[] = {
    { "windowed", RIG_WINDOWED, KILL_RIG_WINDOW, KILLS },
    { "windowed, most is cold", RIG_WINDOWED, 160, SOME },
    { "hybrid", RIG_HYBRID, KILL_RIG_WINDOW, SOME },
    { "recurrent", RIG_RECURRENT, KILL_RIG_WINDOW, KILLS },
};

START_TEST(killed_at_any_moment)
{
    kill_often(rows[_i].name, rows[_i].model, rows[_i].hot, rows[_i].kills);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store kill tails");
    TCase *c = tcase_create("kill");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, sr_setup, sr_teardown);
    tcase_add_loop_test(c, killed_at_any_moment, 0, (int)(sizeof rows / sizeof rows[0]));
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
