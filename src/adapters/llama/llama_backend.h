/* llama_backend.h - the llama.cpp engine, as adapters/all lists it.  The name keeps clear of the library's
 * own llama.h, which only the files of this folder include.
 *
 * What it can: dense models do everything of engine.h but scores, and move KV to other positions only as f16 and
 * f32.  Windowed models (sliding attention) and hybrid ones (recurrent layers beside attention) have a tail state: one
 * sequence, ranges of the KV of their global layers, checkpoints.  Recurrent models have checkpoints only.  With
 * window_full a windowed model is cut at its end, and no more.  All of it is tried while the engine opens, and what
 * does not work is not claimed.
 *
 * An interrupt stops a prefill between layers and micro-batches; where there is a recurrent state, which cannot be
 * taken back, only before it begins, and batch_tokens is one micro-batch.  A recompute is stopped anywhere. */
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
