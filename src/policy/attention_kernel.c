/* attention_kernel.c - see attention_kernel.h.  Each function but dots is written once, as a body that is compiled
 * again for each set of instructions. */
#include "policy/attention_kernel.h"

#include <string.h>

#define BODY static inline __attribute__((always_inline))

enum { STRIP = MD_ATTENTION_STRIP, PAIR = MD_ATTENTION_PAIR };

/* Eight lanes.  Vectors of the compiler, because gcc 12 leaves half of these loops to scalars; what is loaded and
 * stored is aligned to its element only.  They are passed by address: by value their ABI depends on the
 * instructions. */
typedef float lanes __attribute__((vector_size(4 * MD_ATTENTION_STRIP)));
typedef float lanes_at __attribute__((vector_size(4 * MD_ATTENTION_STRIP), aligned(4), may_alias));
typedef uint32_t bits_of __attribute__((vector_size(4 * MD_ATTENTION_STRIP)));
typedef uint16_t halves __attribute__((vector_size(2 * MD_ATTENTION_STRIP)));

/* where[i] is all ones or nothing: ret = where ? a : b. */
BODY void choose(const bits_of *where, const lanes *a, const lanes *b, lanes *ret)
{
    *ret = (lanes)((*where & (bits_of)*a) | (~*where & (bits_of)*b));
}

BODY void take_larger(const lanes *a, lanes *most)
{
    const bits_of above = (bits_of)(*a > *most);
    choose(&above, a, most, most);
}

/* The exponent of f16 is 5 bits with bias 15, that of f32 8 bits with bias 127: moved into place, the number is too
 * small by 2^112, and one multiplication puts it right, subnormal ones included. */
BODY void widen_eight(const uint16_t *bits, float *ret, bits_of *bad)
{
    halves in;
    memcpy(&in, bits, sizeof in);
    const bits_of h = __builtin_convertvector(in, bits_of);
    const lanes magnitude = (lanes)((h & 0x7fff) << 13) * 0x1p112F;
    const bits_of out = (bits_of)magnitude | (h & 0x8000) << 16;
    memcpy(ret, &out, sizeof out);
    *bad |= (bits_of)((h & 0x7c00) == 0x7c00);
}

BODY bool widen_body(const uint16_t *bits, size_t count, float *ret)
{
    bits_of bad = { 0 };
    size_t i = 0;
    for (; i + STRIP <= count; i += STRIP)
        widen_eight(bits + i, ret + i, &bad);
    if (i < count) {
        uint16_t in[STRIP] = { 0 };
        float out[STRIP];
        memcpy(in, bits + i, (count - i) * sizeof *in);
        widen_eight(in, out, &bad);
        memcpy(ret + i, out, (count - i) * sizeof *out);
    }
    uint32_t any = 0;
    for (i = 0; i < STRIP; i++)
        any |= bad[i];
    return any == 0;
}

#if defined(__x86_64__)
/* Four tokens by sixteen lanes are eight sums that do not wait for each other: as many as two multipliers with a
 * latency of four need. */
BODY void dots_body(const float *queries, const float *keys, size_t tokens, size_t length, float *ret)
{
    size_t t = 0;
    for (; t + 4 <= tokens; t += 4) {
        const float *k0 = keys + t * length, *k1 = k0 + length, *k2 = k1 + length, *k3 = k2 + length;
        lanes a0 = { 0 }, a1 = { 0 }, b0 = { 0 }, b1 = { 0 }, c0 = { 0 }, c1 = { 0 }, d0 = { 0 }, d1 = { 0 };
        for (size_t i = 0; i < length; i++) {
            const lanes q0 = *(const lanes_at *)(queries + i * PAIR);
            const lanes q1 = *(const lanes_at *)(queries + i * PAIR + STRIP);
            a0 += q0 * k0[i];
            a1 += q1 * k0[i];
            b0 += q0 * k1[i];
            b1 += q1 * k1[i];
            c0 += q0 * k2[i];
            c1 += q1 * k2[i];
            d0 += q0 * k3[i];
            d1 += q1 * k3[i];
        }
        lanes_at *out = (lanes_at *)(ret + t * PAIR);
        out[0] = a0;
        out[1] = a1;
        out[2] = b0;
        out[3] = b1;
        out[4] = c0;
        out[5] = c1;
        out[6] = d0;
        out[7] = d1;
    }
    for (; t < tokens; t++) {
        const float *k = keys + t * length;
        lanes a0 = { 0 }, a1 = { 0 };
        for (size_t i = 0; i < length; i++) {
            a0 += *(const lanes_at *)(queries + i * PAIR) * k[i];
            a1 += *(const lanes_at *)(queries + i * PAIR + STRIP) * k[i];
        }
        lanes_at *out = (lanes_at *)(ret + t * PAIR);
        out[0] = a0;
        out[1] = a1;
    }
}
#endif

/* The same where registers hold four lanes: gcc keeps sums of wider vectors in memory there. */
typedef float quad __attribute__((vector_size(16)));
typedef float quad_at __attribute__((vector_size(16), aligned(4), may_alias));

static void dots_plain(const float *queries, const float *keys, size_t tokens, size_t length, float *ret)
{
    for (size_t t = 0; t < tokens; t += 2) {
        const bool both = t + 1 < tokens;
        const float *k0 = keys + t * length, *k1 = both ? k0 + length : k0;
        quad a0 = { 0 }, a1 = { 0 }, a2 = { 0 }, a3 = { 0 }, b0 = { 0 }, b1 = { 0 }, b2 = { 0 }, b3 = { 0 };
        for (size_t i = 0; i < length; i++) {
            const quad_at *q = (const quad_at *)(queries + i * PAIR);
            a0 += q[0] * k0[i];
            a1 += q[1] * k0[i];
            a2 += q[2] * k0[i];
            a3 += q[3] * k0[i];
            b0 += q[0] * k1[i];
            b1 += q[1] * k1[i];
            b2 += q[2] * k1[i];
            b3 += q[3] * k1[i];
        }
        quad_at *out = (quad_at *)(ret + t * PAIR);
        out[0] = a0;
        out[1] = a1;
        out[2] = a2;
        out[3] = a3;
        if (both) {
            out[4] = b0;
            out[5] = b1;
            out[6] = b2;
            out[7] = b3;
        }
    }
}

/* e^x for x <= 0, to about 2e-7 of its value; 0 below -87, where f32 runs out of normal numbers.
 *
 * x = n ln 2 + r with n whole and |r| <= ln 2 / 2: e^x = 2^n e^r.  The sum with 1.5 * 2^23 rounds to a whole number
 * and has it in its low bits; ln 2 is in two parts, so that n ln 2 loses nothing; e^r is its Taylor sum up to r^6 /
 * 720, whose rest is below r^7 / 5040 = 1.2e-7. */
BODY void exp_of_negative(lanes *x)
{
    const float round = 12582912.0F; /* 1.5 * 2^23 */
    const lanes least = (lanes){ 0 } - 87.0F, nothing = { 0 };
    const bits_of below = (bits_of)(*x < least);
    lanes y;
    choose(&below, &least, x, &y);
    const lanes shifted = y * 1.44269504F + round;
    const lanes n = shifted - round;
    const lanes r = (y - n * 0.693359375F) + n * 2.12194440e-4F;
    lanes p = r * (1.0F / 720) + 1.0F / 120;
    p = p * r + 1.0F / 24;
    p = p * r + 1.0F / 6;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    p *= (lanes)(((bits_of)shifted << 23) + 0x3f800000U); /* 2^n: what is above the low bits falls off */
    choose(&below, &nothing, &p, x);
}

BODY void soften_body(float *logits, size_t tokens, float *ret_most, float *ret_sum)
{
    for (int half = 0; half < PAIR; half += STRIP) {
        lanes most = *(const lanes_at *)(logits + half), sum = { 0 };
        for (size_t t = 1; t < tokens; t++) {
            const lanes l = *(const lanes_at *)(logits + t * PAIR + half);
            take_larger(&l, &most);
        }
        for (size_t t = 0; t < tokens; t++) {
            lanes_at *l = (lanes_at *)(logits + t * PAIR + half);
            lanes e = *l - most;
            exp_of_negative(&e);
            *l = e;
            sum += e;
        }
        *(lanes_at *)(ret_most + half) = most;
        *(lanes_at *)(ret_sum + half) = sum;
    }
}

BODY const lanes_at *strip_of(const float *values, size_t tokens, size_t strip, size_t t)
{
    return (const lanes_at *)(values + (strip / 2 * tokens + t) * PAIR + strip % 2 * STRIP);
}

BODY void gather_body(const float *values, size_t tokens, size_t first, size_t end, const float *weights,
                      float *mass, float *peak)
{
    for (size_t t = 0; t < tokens; t++) {
        lanes sum = { 0 };
        for (size_t s = first; s < end; s++)
            sum += *strip_of(values, tokens, s, t) * *(const lanes_at *)(weights + s * STRIP);
        mass[t] += ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
    }
    for (size_t t = 0; peak != NULL && t < tokens; t++) {
        lanes most = { 0 };
        for (size_t s = first; s < end; s++) {
            const lanes v = *strip_of(values, tokens, s, t) * *(const lanes_at *)(weights + s * STRIP);
            take_larger(&v, &most);
        }
        for (int i = 0; i < STRIP; i++)
            peak[t] = most[i] > peak[t] ? most[i] : peak[t];
    }
}

/* One kernel: what is compiled for it, and its table. */
#define KERNEL(suffix, attributes)                                                                       \
    attributes static bool widen_##suffix(const uint16_t *bits, size_t count, float *ret)                \
    {                                                                                                    \
        return widen_body(bits, count, ret);                                                             \
    }                                                                                                    \
    attributes static void soften_##suffix(float *logits, size_t tokens, float *most, float *sum)        \
    {                                                                                                    \
        soften_body(logits, tokens, most, sum);                                                          \
    }                                                                                                    \
    attributes static void gather_##suffix(const float *values, size_t tokens, size_t first, size_t end, \
                                           const float *weights, float *mass, float *peak)               \
    {                                                                                                    \
        gather_body(values, tokens, first, end, weights, mass, peak);                                    \
    }                                                                                                    \
    static const struct md_attention_kernel kernel_##suffix = { #suffix, widen_##suffix, dots_##suffix,  \
                                                                soften_##suffix, gather_##suffix };

KERNEL(plain, )
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void dots_avx2(const float *queries, const float *keys,
                                                          size_t tokens, size_t length, float *ret)
{
    dots_body(queries, keys, tokens, length, ret);
}
KERNEL(avx2, __attribute__((target("avx2,fma"))))
#endif

const struct md_attention_kernel *md_attention_kernel_plain(void)
{
    return &kernel_plain;
}

const struct md_attention_kernel *md_attention_kernel_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &kernel_avx2;
#endif
    return &kernel_plain;
}
