/* suite_models.h - the suites of engines (conformance.h) and of conversations (contract_suite.h, states_suite.h) on models
 * that a backend opens.
 *
 * Each returns 0, or another number when a model could not be opened or a test failed. */
#ifndef MD_TESTS_SUITE_MODELS_H
#define MD_TESTS_SUITE_MODELS_H

#include "support/conformance.h"
#include "support/tiny_run.h"

/* Tiny models in f32, which answer within 1e-3. */
int md_contract_run_tiny(const struct md_backend *backend, const struct md_tiny_model *const *models,
                         int count);
int md_states_run_tiny(const struct md_backend *backend, const struct md_tiny_model *const *models,
                       int count);

/* What an engine does on any model. */
struct md_suite_engine {
    const struct md_backend *backend;
    const char *kv_type;  /* of real models; NULL: its default */
    int32_t seq_count;    /* of models with windows; 0: its default */
    float same_tolerance; /* as in struct md_subject */
    float sure_gap;       /* likewise, of a real model whatever its text */
    bool polls_by_time;   /* likewise */
};
extern const struct md_suite_engine
    md_suite_openvino; /* suite_openvino.c, for tests that are linked with it */

/* For md_*_run_tiny, which ask for no flash attention, as it rounds f32 KV on llama.cpp: openvino has one way to attend, which
 * keeps f32. */
extern const struct md_backend md_suite_openvino_tiny;

/* Real models, which round: what other batchings of the same tokens do to their logits is measured, and allowed where cells
 * or batches are others; what must be identical is compared as such.
 * caps  what the engine must be able to do: of what it cannot the suite leaves the scenarios out */

/* A part of it on Gemma-3-270M, with one thread: two that wait for each other are slow on a busy machine.
 * batch  tokens of a batch and of a micro-batch.  For what is said of tails, 256: windows then have 768 cells, for
 *        themselves and one micro-batch; what is saved before lies in them in the order of positions, so that what is put
 *        back can be compared to the bit, and is used again before the scenarios end */
int md_conformance_run_gemma(const struct md_suite_engine *of, const char *name,
                             enum md_conformance_part part, unsigned caps, int32_t cells, int32_t batch);
/* All of it on SmolLM2, which MODELD_TEST_MODEL names. */
int md_conformance_run_smollm(const struct md_suite_engine *of, const char *name, unsigned caps);

/* The exact model's file, opened with one thread as `params` say: in those are flash_attn, the KV type and seq_count, all
 * else is set here.
 * subject  its name, the reference model and tolerances; engine and tokens are set here, what md_suite_engine has too */
int md_conformance_run_exact(const struct md_suite_engine *of, struct md_open_params params,
                             struct md_subject subject);

/* The contract on the exact model, in f32 within 1e-3.
 * flash_attn  as in struct md_open_params */
int md_contract_run_exact(const struct md_suite_engine *of, const char *name, int flash_attn);

/* The suite of conversations (states_suite.h) on it, likewise. */
int md_states_run_exact(const struct md_suite_engine *of, const char *name, int flash_attn);

/* What an engine can do on a dense model, and one that saves the tail of a windowed one. */
enum {
    MD_SUITE_DENSE_CAPS = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_POSITION_SHIFT |
                          MD_CAP_SPARSE_ATTENTION | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_SHARE,
    MD_SUITE_TAIL_CAPS = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE |
                         MD_CAP_RECOMPUTE_RANGE | MD_CAP_CHECKPOINT
};

/* The contract on SmolLM2, and on Gemma-3-270M in micro-batches of 128.  Where an engine has a same_tolerance the logits of
 * each answer must be that near to those of the dense run; else they round, and answers are compared at the steps at which
 * the best token is sure. */
int md_contract_run_smollm(const struct md_suite_engine *of, const char *name);
int md_contract_run_gemma(const struct md_suite_engine *of, const char *name);

#endif
