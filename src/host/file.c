#include "host/file.h"

#include "host/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
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

static enum md_status write_all(int fd, struct md_bytes bytes)
{
    const char *at = bytes.data;
    for (size_t left = bytes.len; left > 0;) {
        const ssize_t n = write(fd, at, left);
        if (n < 0 && errno != EINTR)
            return MD_IO;
        at += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    return fsync(fd) == 0 ? MD_OK : MD_IO;
}

/* The name itself is to last: a folder that cannot be synced keeps its file all the same. */
static void sync_folder_of(const char *path)
{
    char folder[MD_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        return;
    slash[1] = '\0';
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!fsync(fd);
        close(fd);
    }
}

enum md_status md_file_replace(const char *path, struct md_bytes bytes, struct md_err *err)
{
    char beside[MD_PATH_MAX];
    const int length = snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid());
    if (length < 0 || (size_t)length >= sizeof beside)
        return md_fail(err, MD_INVALID, "the path '%.250s' is too long", path);
    const int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return md_fail(err, MD_IO, "write '%.250s': %s", beside, strerror(errno));
    enum md_status s = write_all(fd, bytes);
    if (s != MD_OK)
        md_fail(err, s, "write '%.250s': %s", beside, strerror(errno));
    if (close(fd) != 0 && s == MD_OK)
        s = md_fail(err, MD_IO, "write '%.250s': %s", beside, strerror(errno));
    if (s == MD_OK && rename(beside, path) != 0)
        s = md_fail(err, MD_IO, "rename '%.250s': %s", beside, strerror(errno));
    if (s != MD_OK)
        unlink(beside);
    else
        sync_folder_of(path);
    return s;
}
