/* suite_models.h - the suites of conversations (contract_suite.h, states_suite.h) on models that a backend opens.
 *
 * Each returns 0, or another number when a model could not be opened or a test failed. */
#ifndef MD_TESTS_SUITE_MODELS_H
#define MD_TESTS_SUITE_MODELS_H

#include "support/tiny_run.h"

/* Tiny models in f32, which answer within 1e-3. */
int md_contract_run_tiny(const struct md_backend *backend, const struct md_tiny_model *const *models,
                         int count);
int md_states_run_tiny(const struct md_backend *backend, const struct md_tiny_model *const *models,
                       int count);

/* A real model, which rounds: answers are compared at the steps at which the best token is sure.
 * ends  the two tokens that end its texts */
int md_contract_run_real(const struct md_backend *backend, const struct md_open_params *params,
                         const char *name, const md_token ends[2]);

#endif
