/* llama_internal.h - what the files of this folder share: the loaded model and the captured log. */
#ifndef MD_ADAPTERS_LLAMA_INTERNAL_H
#define MD_ADAPTERS_LLAMA_INTERNAL_H

#include "base/err.h"
#include "text/text.h"

#include <llama.h>
#include <stdatomic.h>

/* A model file in memory, counted: the engine and the text object each hold one reference. */
struct md_llama_model {
    atomic_int refs;
    struct llama_model *model;
    const struct llama_vocab *vocab;
    int64_t file_bytes;
    uint64_t
        fingerprint; /* of samples of the file: tells two fine-tunes of one base apart; 0 without weights */
};

enum md_llama_load { MD_LLAMA_VOCAB_ONLY, MD_LLAMA_WHOLE };

/* Load the library once, check the file, load the model.
 *
 * gpu_layers     as struct md_open_params
 * MD_NOT_FOUND   no such file        MD_IO  it cannot be read
 * MD_INVALID     not a model file, or a cut one
 * MD_UNSUPPORTED the architecture, or layers for a GPU that is not there
 * Threads: any. */
MD_MUST_USE enum md_status md_llama_model_open(const char *path, enum md_llama_load what, int32_t gpu_layers,
                                               struct md_llama_model **ret_model, struct md_err *err);
struct md_llama_model *md_llama_model_ref(struct md_llama_model *m);
void md_llama_model_unref(struct md_llama_model *m); /* accepts NULL */

/* The text object over a model; takes a reference of its own. */
MD_MUST_USE enum md_status md_llama_text_new(struct md_llama_model *m, struct md_text **ret_text,
                                             struct md_err *err);
/* params have been checked. */
MD_MUST_USE enum md_status md_llama_sampler_new(const struct llama_vocab *vocab,
                                                const struct md_sample_params *params,
                                                struct md_sampler **ret_sampler, struct md_err *err);

/* The engine over a model: takes a reference of its own.  params have been checked. */
struct md_open_params;
struct md_engine;
MD_MUST_USE enum md_status md_llama_engine_new(struct md_llama_model *m, const struct md_open_params *params,
                                               enum ggml_type type_k, enum ggml_type type_v,
                                               struct md_engine **ret_engine, struct md_err *err);

/* ---- the library's log (llama_log.c) ---- */

/* Send the library's log lines here instead of to standard error.  Once. */
void md_llama_log_install(void);
/* Forget the calling thread's captured error. */
void md_llama_log_clear(void);
/* The first error line this thread met since: the first names the cause, later ones only that the
 * callers failed too.  Without the function's name in front; "no reason given" when there was none. */
const char *md_llama_log_cause(void);

#endif
