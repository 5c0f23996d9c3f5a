/* rng.c - see rng.h.  SplitMix64 (Steele, Lea, Flood 2014). */
#include "support/rng.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

struct rng rng_open(const char *name)
{
    const char *seed = getenv("SEED");
    struct rng r = { seed != NULL && *seed != '\0' ? strtoull(seed, NULL, 10)
                                                   : (uint64_t)md_clock_mono_ns() };
    printf("%s: SEED=%llu\n", name, (unsigned long long)r.state);
    fflush(stdout); /* a failing check ends the process without it */
    return r;
}

uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)(rng_next(r) >> 32) % n;
}
