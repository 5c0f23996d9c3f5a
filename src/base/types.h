/* types.h - the few value types every layer speaks.  Positions and counts are tokens, as int32. */
#ifndef MD_BASE_TYPES_H
#define MD_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t md_token;

/* Half-open range of token positions [start, end). */
struct md_range {
    int32_t start, end;
};

static inline int32_t md_range_len(struct md_range r)
{
    return r.end - r.start;
}

static inline bool md_range_overlaps(struct md_range a, struct md_range b)
{
    return a.start < b.end && b.start < a.end;
}

/* A 128-bit hash; equal keys are a hint, never a proof: tokens are compared on every hit. */
struct md_key {
    uint64_t hi, lo;
};

static inline bool md_key_equal(struct md_key a, struct md_key b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

#endif
