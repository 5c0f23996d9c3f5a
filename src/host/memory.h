/* memory.h - what memory this machine has to give, inside every limit that is set on this process.
 *
 * Threads: any. */
#ifndef MD_HOST_MEMORY_H
#define MD_HOST_MEMORY_H

#include "base/err.h"

#include <stdint.h>

struct md_host_memory {
    int64_t total_bytes;     /* MemTotal, or the tightest limit where that is smaller                   */
    int64_t available_bytes; /* what can be taken now without pushing others out, inside the limits     */
    int64_t limit_bytes;     /* the tightest control group limit of this process; 0: none               */
    char limit_path[256];    /* where it is set, for people; "" without one                             */
};

/* Where to look; tests point it elsewhere.  NULL or a NULL member: the system's own files. */
struct md_memory_files {
    const char *meminfo;     /* /proc/meminfo               */
    const char *self_cgroup; /* /proc/self/cgroup           */
    const char *cgroup_root; /* /sys/fs/cgroup              */
};

/* MemAvailable, and for this process's control group and each of its ancestors, version 1 and 2:
 * limit - (used - inactive page cache), whichever is least.  A limit that says "max", is missing, or is the
 * version 1 value for none does not count.  Page cache is credited because the kernel gives it back.
 *
 * MD_IO: the memory of the machine cannot be read.
 * Source: proc(5); cgroups(7); the kernel's cgroup-v2.rst (memory.max, memory.current, memory.stat) and
 * cgroup-v1/memory.rst (memory.limit_in_bytes, memory.usage_in_bytes, total_inactive_file). */
MD_MUST_USE enum md_status md_host_memory(const struct md_memory_files *files, struct md_host_memory *ret,
                                          struct md_err *err);

#endif
