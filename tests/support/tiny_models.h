/* tiny_models.h - models of a few layers that llama.cpp really loads, one for each way of laying out KV that the
 * three models of the tests do not have.  Weights are zero, so that what they compute means nothing, or random
 * (always the same), so that it differs with every token that is attended.
 *
 * Source of names and shapes: load_arch_tensors in llama.cpp's src/models/, release 0.4.0. */
#ifndef MD_TESTS_TINY_MODELS_H
#define MD_TESTS_TINY_MODELS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct md_tiny_model {
    const char *name;   /* "mla": for messages and for tests */
    const char *arch;   /* general.architecture */
    const char *keys;   /* as gw_spec takes them */
    const char *layers; /* one letter each: which of `kinds` it is */
    struct {
        char letter;
        const char *tensors; /* "attn_q.weight=64x64 ...", the innermost dimension first */
    } kinds[3];
    const char *tensors; /* outside of layers, beside token_embd.weight; NULL: output_norm.weight */
    bool random, strong; /* strong: norms are around 1, so that attention is sharp, not nearly even */
};

/* Random, for the exact tests: windows of 32 tokens on six of seven layers; short convolutions and
 * attention in turn, without windows and with windows of 32 tokens; M-RoPE; matrices per head alone; state spaces
 * alone. */
extern const struct md_tiny_model md_tiny_windowed, md_tiny_hybrid, md_tiny_hybrid_windowed,
    md_tiny_hybrid_mrope, md_tiny_recurrent, md_tiny_state_space;
/* Random, dense, of 4 layers, strong: architectures that turn keys in halves, with biases, with norms of heads, and with a
 * scale on the input. */
extern const struct md_tiny_model md_tiny_qwen2, md_tiny_qwen3, md_tiny_gemma;
extern const struct md_tiny_model md_tiny_models[];
extern const size_t md_tiny_model_count;

MD_MUST_USE enum md_status md_tiny_model_write(const struct md_tiny_model *m, const char *path,
                                               struct md_err *err);

#endif
