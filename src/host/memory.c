#include "host/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum md_status md_host_memory(const struct md_memory_files *files, struct md_host_memory *ret,
                              struct md_err *err)
{
    const char *path = files != NULL && files->meminfo != NULL ? files->meminfo : "/proc/meminfo";
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return md_fail(err, MD_IO, "open '%s': %s", path, strerror(errno));
    char line[256];
    int64_t total = -1, available = -1;
    while (fgets(line, sizeof line, f) != NULL) {
        (void)!sscanf(line, "MemTotal: %" SCNd64 " kB", &total);
        (void)!sscanf(line, "MemAvailable: %" SCNd64 " kB", &available);
    }
    fclose(f);
    if (total < 0 || available < 0)
        return md_fail(err, MD_IO, "'%s' has no MemTotal and MemAvailable", path);
    *ret = (struct md_host_memory){ .total_bytes = total * 1024, .available_bytes = available * 1024 };
    return MD_OK;
}
