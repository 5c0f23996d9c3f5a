#include "base/clock.h"

#include <time.h>

int64_t md_clock_mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t md_clock_wall_s(void)
{
    return (int64_t)time(NULL);
}
