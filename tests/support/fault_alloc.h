/* fault_alloc.h - a heap that fails on request and counts what is alive.
 *
 *     struct fault_alloc f;
 *     fault_alloc_init(&f, nth);        the nth call for memory from now on fails, once; 0 = none does
 *     ... &f.alloc wherever a struct md_alloc is wanted ...
 *     ck_assert_uint_eq(f.live_blocks, 0);
 *
 * Threads: one at a time. */
#ifndef MD_TESTS_FAULT_ALLOC_H
#define MD_TESTS_FAULT_ALLOC_H

#include "base/mem.h"

#include <stdbool.h>

struct fault_alloc {
    struct md_alloc alloc;
    long calls, fail_at; /* calls for memory (a free is none); the one that fails, 0 = none */
    bool failed;         /* it did */
    size_t live_blocks;
    size_t live_bytes, peak_bytes; /* as asked for */
};

void fault_alloc_init(struct fault_alloc *f, long fail_at);
/* From here on the nth call fails (0: none), and the peak starts at what is alive. */
void fault_alloc_arm(struct fault_alloc *f, long fail_at);

#endif
