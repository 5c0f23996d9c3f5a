/* llama_backend.h - the llama.cpp engine, as main.c lists it.  The name keeps clear of the library's
 * own llama.h, which only the files of this folder include.
 *
 * What it can: dense models do everything of engine.h but shifting and scores.  Windowed models
 * (sliding attention) can only be cut at the end, recurrent and hybrid ones only emptied: their state
 * is not addressable by range, and checkpoints do not exist yet. */
#ifndef MD_ADAPTERS_LLAMA_BACKEND_H
#define MD_ADAPTERS_LLAMA_BACKEND_H

#include "engine/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* open: the engine and the text object share the model, which is loaded once; either may be closed
 * first.  ret_text may be NULL.  flash_attn -1 leaves the choice to the library. */
extern const struct md_backend md_backend_llama;

/* The tokenizer, template and samplers alone: reads the vocabulary, not the weights.  Errors as open. */
MD_MUST_USE enum md_status md_llama_text_open(const char *model_path, struct md_text **ret_text,
                                              struct md_err *err);

/* For tests: every whole line the library logs, on the thread that logged it.  NULL: none.  Set it
 * while no other thread uses this adapter. */
void md_llama_log_hook(void (*line)(void *user, const char *text), void *user);

#ifdef __cplusplus
}
#endif
#endif
