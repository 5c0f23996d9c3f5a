/* host/memory.h - what memory this machine has to give.  Threads: any. */
#ifndef MD_HOST_MEMORY_H
#define MD_HOST_MEMORY_H

#include "base/err.h"

#include <stdint.h>

/* Bytes a process can take now without pushing others out: MemAvailable of /proc/meminfo (see proc(5)).
 * MD_IO when it cannot be read. */
MD_MUST_USE enum md_status md_host_available_bytes(int64_t *ret_bytes, struct md_err *err);

#endif
