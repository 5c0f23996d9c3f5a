#include "support/model_copy.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_BYTES = 8 << 20 }; /* the metadata of the test models ends before */

/* Open a new file that begins with the first `keep` bytes of model. */
static int copy(const char *model, char *out_path, int64_t keep)
{
    static char buf[1 << 20];
    int in = open(model, O_RDONLY), out = mkstemp(out_path);
    ck_assert_msg(in >= 0 && out >= 0, "copy '%s'", model);
    ssize_t n = 1;
    for (int64_t left = keep; left > 0 && n > 0; left -= n) {
        n = read(in, buf, left < (int64_t)sizeof buf ? (size_t)left : sizeof buf);
        ck_assert(n >= 0 && write(out, buf, (size_t)n) == n);
    }
    close(in);
    return out;
}

void md_copy_patched(const char *model, char *out_path, const char *after, size_t skip, const void *data,
                     size_t len)
{
    int fd = copy(model, out_path, INT64_MAX);
    char *head = malloc(HEAD_BYTES);
    ck_assert_ptr_nonnull(head);
    ssize_t n = pread(fd, head, HEAD_BYTES, 0);
    char *at = n > 0 ? memmem(head, (size_t)n, after, strlen(after)) : NULL;
    ck_assert_msg(at != NULL, "'%s' is not in the file", after);
    ck_assert_int_eq(pwrite(fd, data, len, at - head + (off_t)(strlen(after) + skip)), (ssize_t)len);
    free(head);
    close(fd);
}

void md_copy_cut(const char *model, char *out_path, int64_t keep)
{
    close(copy(model, out_path, keep));
}
