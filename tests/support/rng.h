/* rng.h - numbers for random walks.  rng_open prints its seed; SEED=... in the environment repeats a walk. */
#ifndef MD_TESTS_RNG_H
#define MD_TESTS_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

/* Seeded from SEED or the clock; `name` goes into the printed line. */
struct rng rng_open(const char *name);
uint64_t rng_next(struct rng *r);
/* A number in [0, n). */
uint32_t rng_below(struct rng *r, uint32_t n);

#endif
