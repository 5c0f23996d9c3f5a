#include "host/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum md_status md_host_available_bytes(int64_t *ret_bytes, struct md_err *err)
{
    FILE *f = fopen("/proc/meminfo", "re");
    if (f == NULL)
        return md_fail(err, MD_IO, "open '/proc/meminfo': %s", strerror(errno));
    char line[256];
    int64_t kib = -1;
    while (kib < 0 && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "MemAvailable: %" SCNd64 " kB", &kib) != 1)
            kib = -1;
    fclose(f);
    if (kib < 0)
        return md_fail(err, MD_IO, "'/proc/meminfo' has no MemAvailable");
    *ret_bytes = kib * 1024;
    return MD_OK;
}
