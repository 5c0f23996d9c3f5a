/* clock.h - monotonic time for measuring, wall time for stamps.  Threads: any. */
#ifndef MD_BASE_CLOCK_H
#define MD_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed point; never steps back. */
int64_t md_clock_mono_ns(void);
/* Seconds since 1970 (UTC): for `created` fields and file stamps only. */
int64_t md_clock_wall_s(void);

#endif
