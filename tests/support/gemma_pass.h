/* gemma_pass.h - the forward pass of the tiny gemma model (tiny_models.h) as its paper writes it: no cache, doubles,
 * whole layers at once.  GELU is computed, or looked up in a table of f16 as ggml does on processors.
 *
 * Shares no line of code with an engine; the weights are read from the file that was written.
 *
 * Source: "Gemma: Open Models Based on Gemini Research and Technology" (GeGLU, RMSNorm before each part, embeddings times
 * the root of their width, output tied to them); of the file: norms hold 1 + weight, heads are turned in halves. */
#ifndef MD_TESTS_GEMMA_PASS_H
#define MD_TESTS_GEMMA_PASS_H

#include "base/types.h"

enum { MD_GEMMA_PASS_VOCAB = 259 };

enum md_gelu {
    MD_GELU_COMPUTED,
    MD_GELU_OF_HALVES /* what goes in and what comes out is rounded to f16 (GGML_GELU_FP16 in ggml's vec.h) */
};

/* Logits behind each of the last `asked` of `count` tokens at 0, 1, ...: asked * MD_GEMMA_PASS_VOCAB floats.  What cannot
 * be read fails the running test. */
void md_gemma_pass(const char *path, const md_token *tokens, int32_t count, int32_t asked, enum md_gelu gelu,
                   float *ret_logits);

#endif
