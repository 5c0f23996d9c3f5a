/* temp_folder.c - see temp_folder.h. */
#include "support/temp_folder.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *verb, const char *folder)
{
    fprintf(stderr, "%s '%s': %s\n", verb, folder, strerror(errno));
    abort();
}

void md_temp_folder(char *out, size_t out_bytes, const char *what)
{
    const char *tmp = getenv("TMPDIR");
    const int n = snprintf(out, out_bytes, "%s/modeld-%s-XXXXXX", tmp != NULL ? tmp : "/tmp", what);
    if (n < 0 || (size_t)n >= out_bytes) {
        errno = ENAMETOOLONG; /* choose a shorter TMPDIR */
        fail("make", out);
    }
    if (mkdtemp(out) == NULL)
        fail("make", out);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    return at->level == 0 ? 0 : remove(path);
}

void md_temp_folder_empty(const char *folder)
{
    if (nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0)
        fail("empty", folder);
}

void md_temp_folder_remove(const char *folder)
{
    md_temp_folder_empty(folder);
    if (rmdir(folder) != 0)
        fail("remove", folder);
}
