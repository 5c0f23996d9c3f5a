/* run_suite.h - the end of every libcheck program: run a suite, say how it went. */
#ifndef MD_TESTS_RUN_SUITE_H
#define MD_TESTS_RUN_SUITE_H

#include <check.h>

/* The exit status: 0 when every test passed. */
int md_run_suite(Suite *suite);
/* The same in this process, for suites that share a model loaded once. */
int md_run_suite_here(Suite *suite);

#endif
