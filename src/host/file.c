#include "host/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum md_status read_open_file(int fd, const char *path, int most, struct md_buf *b, struct md_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return md_fail(err, MD_IO, "read '%.250s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return md_fail(err, MD_IO, "read '%.250s': it is %s", path,
                       S_ISDIR(st.st_mode) ? "a directory" : "no regular file");
    if (st.st_size > most)
        return md_fail(err, MD_INVALID, "file '%.250s' has %" PRId64 " bytes, at most %d are read", path,
                       (int64_t)st.st_size, most);
    const size_t end = b->len + (size_t)st.st_size;
    enum md_status s = md_buf_reserve(b, (size_t)st.st_size, err);
    while (s == MD_OK && b->len < end) {
        ssize_t n = read(fd, b->data + b->len, end - b->len);
        if (n < 0)
            return md_fail(err, MD_IO, "read '%.250s': %s", path, strerror(errno));
        if (n == 0)
            break;
        b->len += (size_t)n;
    }
    return s;
}

enum md_status md_file_read(const char *path, int most, struct md_buf *b, bool *ret_missing,
                            struct md_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *ret_missing = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
    if (*ret_missing)
        return MD_OK;
    if (fd < 0)
        return md_fail(err, MD_IO, "open '%.250s': %s", path, strerror(errno));
    enum md_status s = read_open_file(fd, path, most, b, err);
    close(fd);
    return s;
}
