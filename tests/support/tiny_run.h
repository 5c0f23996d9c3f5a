/* tiny_run.h - a suite on each of several tiny models (tiny_models.h), in f32, opened by an engine's backend.
 *
 * Threads: one at a time. */
#ifndef MD_TESTS_TINY_RUN_H
#define MD_TESTS_TINY_RUN_H

#include "engine/backend.h"
#include "support/tiny_models.h"

/* Takes engine and text over; returns 0, or 1 when a test failed. */
typedef int md_tiny_suite_fn(const struct md_tiny_model *m, struct md_engine *engine, struct md_text *text);

/* Write each of `count` models to a file of its own under TMPDIR, open it with one thread, and run.
 * cells, batch, ubatch  of each; batch 0: the adapter's default
 * Returns 0, or 1 when a model could not be opened or a test failed. */
int md_tiny_run(const struct md_backend *backend, const struct md_tiny_model *const *models, int count,
                int32_t cells, int32_t batch, int32_t ubatch, md_tiny_suite_fn *suite);

#endif
