/* run_suite.h - the end of every libcheck program: run a suite, say how it went. */
#ifndef MD_TESTS_RUN_SUITE_H
#define MD_TESTS_RUN_SUITE_H

#include <check.h>

/* The exit status: 0 when every test passed. */
int md_run_suite(Suite *suite);
/* The same in this process, for suites that share a model loaded once. */
int md_run_suite_here(Suite *suite);

/* Beside a test case of a suite that takes minutes: what it took of the processor, in a line with its name.  The time
 * of all threads, so that what else the machine does says little. */
void md_run_timed_begin(void);
void md_run_timed_end(void);

#endif
