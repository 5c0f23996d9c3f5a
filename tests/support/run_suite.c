#include "support/run_suite.h"

#include <stdio.h>
#include <time.h>

static int run(SRunner *runner)
{
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

int md_run_suite(Suite *suite)
{
    return run(srunner_create(suite));
}

int md_run_suite_here(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    return run(runner);
}

static clock_t since;

void md_run_timed_begin(void)
{
    since = clock();
}

void md_run_timed_end(void)
{
    printf("# %s took %.1f s of the processor\n", tcase_name(), (double)(clock() - since) / CLOCKS_PER_SEC);
    fflush(stdout);
}
