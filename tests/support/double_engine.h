/* double_engine.h - an engine without a model, for tests of what is above the seam.
 *
 * The KV of a position is one number, made anew each time the position is computed, so that a test can tell
 * bytes that came back from bytes that were computed again.  An export repeats that number over
 * bytes_per_token bytes; an import believes nothing: range, length and every byte are checked.
 * A shared or moved position has the number of the one it comes from.  The next export or admit can be told to
 * fail.
 *
 * Threads: one at a time. */
#ifndef MD_TESTS_DOUBLE_ENGINE_H
#define MD_TESTS_DOUBLE_ENGINE_H

#include "engine/engine_ops.h"

struct double_engine {
    struct md_engine base;
    uint64_t *kv; /* [seq_count][positions] */
    int32_t positions;
    size_t bytes_per_token;                 /* a multiple of 8 */
    uint64_t computed;                      /* how many positions were, so far */
    int64_t bound_off;                      /* added to export_bytes: below 0 it promises too little */
    enum md_status fail_export, fail_admit; /* what the next call returns, once; MD_OK: it works */
};

/* caps: bits of enum md_cap.  Asserts on failure: a test cannot go on. */
struct double_engine *double_engine_open(unsigned caps, int32_t seq_count, int32_t positions,
                                         size_t bytes_per_token);
uint64_t double_engine_kv(const struct double_engine *d, md_seq seq, int32_t pos);

#endif
