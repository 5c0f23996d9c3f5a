/* llama_internal.h - what the files of this folder share: the loaded model and the captured log. */
#ifndef MD_ADAPTERS_LLAMA_INTERNAL_H
#define MD_ADAPTERS_LLAMA_INTERNAL_H

#include "base/err.h"
#include "engine/backend.h"
#include "text/text.h"

#include <llama.h>
#include <stdatomic.h>

/* A model file in memory, counted: the engine and the text object each hold one reference. */
struct md_llama_model {
    atomic_int refs;
    struct llama_model *model;
    const struct llama_vocab *vocab;
    int64_t file_bytes;
    uint64_t fingerprint; /* of the whole file: tells two fine-tunes of one base apart; 0 without weights */
};

/* Start the library and its processor parts, once.  MD_UNSUPPORTED: they are not where they should be. */
MD_MUST_USE enum md_status md_llama_library_ready(struct md_err *err);

enum md_llama_load { MD_LLAMA_VOCAB_ONLY, MD_LLAMA_WHOLE };

struct md_gguf;
/* Load the library once, check what the header of the open `file` says, load the model.
 *
 * gpu_layers, device  as struct md_open_params
 * MD_IO          it cannot be read
 * MD_INVALID     a value or a token that the library would stop at
 * MD_UNSUPPORTED the architecture, or layers for a GPU that is not there
 * Threads: any. */
MD_MUST_USE enum md_status md_llama_model_open(struct md_gguf *file, enum md_llama_load what,
                                               int32_t gpu_layers, const char *device,
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

/* The engine over a model: takes a reference of its own.  params have been checked, shape is the model's, cost is what
 * md_llama_cost made of them and rope what md_rope_resolve did: what was counted is what is opened. */
MD_MUST_USE enum md_status md_llama_engine_new(struct md_llama_model *m, const struct md_open_params *params,
                                               const struct md_kv_shape *shape,
                                               const struct md_open_cost *cost, const struct md_rope *rope,
                                               struct md_engine **ret_engine, struct md_err *err);

/* ---- the backend table: see engine/backend.h ---- */

enum {
    MD_LLAMA_SEQS = 64,      /* sequences of a dense model that a user may name, by default */
    MD_LLAMA_SEQS_MAX = 127, /* so that a parked one for each, and scratch, fit the library's 256 ids */
    MD_LLAMA_BATCH = 512     /* tokens of a batch and a micro-batch, by default */
};

/* As md_gguf_open; a name that is not given is refused in our words. */
MD_MUST_USE enum md_status md_llama_file_open(const char *path, struct md_gguf **ret_file,
                                              struct md_err *err);
struct md_llama_arch;
/* llama_layout.c: fill in the layers of an open file, and what else the layout decides; facts->architecture is
 * known. */
MD_MUST_USE enum md_status md_llama_read_layout(struct md_gguf *file, const struct md_llama_arch *arch,
                                                struct md_model_facts *facts, struct md_err *err);
/* llama_rope.c: fill in facts->rope and the trained window that comes of it; facts->trained_tokens is the declared one.
 * MD_INVALID  a factor that is no number above 0, or a value of another type */
MD_MUST_USE enum md_status md_llama_read_rope(struct md_gguf *file, const struct md_llama_arch *arch,
                                              struct md_model_facts *facts, struct md_err *err);
/* What was asked, as the library wants it; nothing where all is as the file has it. */
void md_llama_set_rope(const struct md_rope *rope, struct llama_context_params *params);
/* Note a code; the engine will not open this model. */
void md_llama_refuse_to_load(struct md_model_facts *facts, const char *code);
/* The facts of an open file, as md_llama_probe gives them. */
MD_MUST_USE enum md_status md_llama_read_facts(struct md_gguf *file, struct md_model_facts *ret_facts,
                                               struct md_err *err);
MD_MUST_USE enum md_status md_llama_probe(const char *model_path, struct md_model_facts *ret_facts,
                                          struct md_err *err);
MD_MUST_USE enum md_status md_llama_cost(const struct md_model_facts *facts,
                                         const struct md_open_params *params, int32_t seq_count,
                                         struct md_open_cost *ret_cost, struct md_err *err);
MD_MUST_USE enum md_status md_llama_machine(struct md_machine *ret_machine, struct md_err *err);
enum ggml_type md_llama_kv_type(enum md_kv_type t);

/* ---- the library's log (llama_log.c) ---- */

/* Send the library's log lines here instead of to standard error.  Once. */
void md_llama_log_install(void);
/* Forget the calling thread's captured error. */
void md_llama_log_clear(void);
/* The first error line this thread met since: the first names the cause, later ones only that the
 * callers failed too.  Without the function's name in front; "no reason given" when there was none. */
const char *md_llama_log_cause(void);

#endif
