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
    char limit_path[256];    /* the file that sets it, for people (its end where it is long); "" without */
    /* "'FILE': why" for a limit that is there but could not be read, and so does not count; "" without one.
     * Whoever acts on the figures says so (MD_LOG_WARN). */
    char problem[512];
};

/* Where to look; tests point it elsewhere.  NULL or a NULL member: the system's own files. */
struct md_memory_files {
    const char *meminfo;     /* /proc/meminfo               */
    const char *self_cgroup; /* /proc/self/cgroup           */
    const char *cgroup_root; /* /sys/fs/cgroup              */
};

/* MemAvailable, and for this process's control group and each of its ancestors, version 1 and 2:
 * limit - (used - inactive page cache), whichever is least, never below 0.
 *
 * Groups are those between the mount (cgroup_root for version 2, cgroup_root/memory for version 1) and
 * the path in self_cgroup.  In a container that path may not exist below the mount, or lead out of it ("/../x"):
 * then those that exist count, at least the mount itself.  Links below the mount are not followed.
 *
 * No limit: "max", a missing file, and whatever is not less than MemTotal (version 1 writes 9223372036854771712
 * for none).  A file that is there but cannot be read, or says something else, does not count either, and
 * `problem` names it: refusing to start for it would help nobody, and hiding it would be found by the OOM killer.
 *
 * Inactive page cache is credited because the kernel gives it back before it refuses memory.  Active page cache
 * is not: it is in use, by this program's weights among others, and would be read from disk again and again.
 * memory.high does not count: above it the kernel reclaims and slows down, but neither refuses nor kills.
 *
 * MD_IO: the memory of the machine cannot be read.
 * Source: proc(5); cgroups(7); the kernel's cgroup-v2.rst (memory.max, memory.current, memory.stat) and
 * cgroup-v1/memory.rst (memory.limit_in_bytes, memory.usage_in_bytes, total_inactive_file). */
MD_MUST_USE enum md_status md_host_memory(const struct md_memory_files *files, struct md_host_memory *ret,
                                          struct md_err *err);

/* What this process would give back if it ended: its anonymous memory.  Mapped files (weights) are not in it, for the
 * kernel counts their pages as available already.
 *
 * status_file  tests point it elsewhere; NULL: /proc/self/status
 * MD_IO: it cannot be read, or has no RssAnon (Linux before 4.5)
 * Source: proc(5). */
MD_MUST_USE enum md_status md_host_own_memory(const char *status_file, int64_t *ret_bytes,
                                              struct md_err *err);

/* Processors this process may run on; at least 1. */
int md_host_processor_count(void);

#endif
