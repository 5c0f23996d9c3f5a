/* attention_kernel.h - the arithmetic inside attention.c: for it, its tests and its bench row alone.
 *
 * Query rows are lanes: 16 rows are worked on at once, and every loop over them has a fixed count that compilers
 * turn into vectors.  Keys are taken one number at a time, so they need no transposing.  Sums over a row's numbers
 * run in the order of the numbers in every kernel; kernels differ in the last bits where one fuses multiply and
 * add.
 *
 * Pure; threads: any. */
#ifndef MD_POLICY_ATTENTION_KERNEL_H
#define MD_POLICY_ATTENTION_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MD_ATTENTION_STRIP = 8, /* query rows that belong to the same head and clause */
    MD_ATTENTION_PAIR = 16, /* two strips: the lanes of dots and soften */
};

/* What a lane's logit is where its row may not look.  Far below any logit (see MD_ATTENTION_QUERY_LIMIT), and so
 * that a difference of it and a logit is a finite number. */
#define MD_ATTENTION_MASKED (-2e38F)

struct md_attention_kernel {
    const char *name;
    /* f16 bits to f32, exactly.  False: one of them is infinite or no number (all are written all the same). */
    bool (*widen)(const uint16_t *bits, size_t count, float *ret);
    /* ret_logits[t][16] = sum over i of queries[i][16] * keys[t][i], for t < tokens, i < length */
    void (*dots)(const float *queries, const float *keys, size_t tokens, size_t length, float *ret_logits);
    /* Of each lane: ret_most = the largest logit; logit = exp(logit - most); ret_sum = the sum of those.  tokens >=
     * 1. Below e^-87 of the largest it is 0. */
    void (*soften)(float *logits, size_t tokens, float ret_most[16], float ret_sum[16]);
    /* For each token: mass += and peak = max with, over the lanes of strips [first, end), value * weight.
     *
     * values   of one block: [pair][tokens][16]
     * weights  [strip][8], above or equal 0
     * peak     NULL: not wanted */
    void (*gather)(const float *values, size_t tokens, size_t first, size_t end, const float *weights,
                   float *mass, float *peak);
};

/* Without any instruction that not every machine of this architecture has. */
const struct md_attention_kernel *md_attention_kernel_plain(void);
/* The fastest that this machine can run; asked of the processor, not of the loader, so that sanitizers are no matter. */
const struct md_attention_kernel *md_attention_kernel_best(void);

#endif
