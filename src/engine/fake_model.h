/* fake_model.h - the weights of a small model of the llama architecture, made from a seed.
 *
 * Owns the weights and nothing else: fake.c computes with them, tests write them as a GGUF file or put
 * them through a reference pass.  The same dims and seed give the same bits on every machine (integer
 * arithmetic and one correctly rounded multiplication per weight).
 *
 * Layout is that of a GGUF file: a matrix is rows of `in` floats, one row per output; queries and keys
 * are rotated in neighbouring pairs (2i, 2i + 1).
 *
 * Threads: a made model is never changed; any number may read it. */
#ifndef MD_ENGINE_FAKE_MODEL_H
#define MD_ENGINE_FAKE_MODEL_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MD_FAKE_LAYERS_MAX = 16,
    MD_FAKE_BYTE_VOCAB = 259 /* <unk> <s> </s>, then the 256 bytes */
};

struct md_fake_dims {
    int32_t layers, width;
    int32_t heads, kv_heads; /* kv_heads divides heads (grouped queries) */
    int32_t head_dim;        /* even: rotary pairs */
    int32_t ffn, vocab;
    int32_t trained_tokens;
    float rope_base, norm_eps;
    /* 0: all layers attend to everything.  Else every tail_period-th layer does, and the others keep something at
     * the end of the text only: the last window_tokens tokens (the token itself is one of them) or, where
     * window_tokens is 0, a matrix per KV head that each token adds its key and value to (linear attention that
     * forgets).  More than `layers`: no layer attends to everything. */
    int32_t tail_period, window_tokens;
};

/* Two layers, width 32: for tests that want speed. */
struct md_fake_dims md_fake_dims_default(void);
/* Four layers, width 64: the exact model, which llama.cpp runs too. */
struct md_fake_dims md_fake_dims_exact(void);

struct md_fake_layer {
    const float *attn_norm; /* width */
    const float *q;         /* heads * head_dim rows of width */
    const float *k, *v;     /* kv_heads * head_dim rows of width */
    const float *o;         /* width rows of heads * head_dim */
    const float *ffn_norm;  /* width */
    const float *gate, *up; /* ffn rows of width */
    const float *down;      /* width rows of ffn */
};

struct md_fake_model {
    struct md_fake_dims dims;
    uint64_t seed;
    uint64_t fingerprint; /* of dims and weights: KV of one model is refused by another */
    size_t weight_count;  /* floats, all tensors */
    const float *embed;   /* vocab rows of width */
    const float *output_norm;
    const float *output; /* vocab rows of width */
    struct md_fake_layer layers[MD_FAKE_LAYERS_MAX];
    const struct md_alloc *alloc;
    float *weights; /* all of the above point in here */
};

/* MD_INVALID    dims that make no model (the text says which)
 * MD_NO_MEMORY  the weights */
MD_MUST_USE enum md_status md_fake_model_open(const struct md_fake_dims *dims, uint64_t seed,
                                              const struct md_alloc *alloc, struct md_fake_model **ret_model,
                                              struct md_err *err);
void md_fake_model_close(struct md_fake_model *m); /* accepts NULL */

/* A hash of 32-bit words, for fingerprints and for the check of exported KV; bytes beyond the last whole
 * word are not seen. */
uint64_t md_fake_hash(uint64_t start, const void *words, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
