#include "host/library.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEGMENTS_MAX = 256 }; /* libraries have about ten */

static bool read_at(int fd, void *out, size_t n, off_t at)
{
    ssize_t got;
    do
        got = pread(fd, out, n, at);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)n;
}

/* What is mapped must be there. */
static enum md_status check_segments(int fd, const ElfW(Ehdr) * head, uint64_t bytes, const char *path,
                                     struct md_err *err)
{
    ElfW(Phdr) segments[SEGMENTS_MAX];
    const size_t size = (size_t)head->e_phnum * sizeof *segments;
    if (head->e_phentsize != sizeof *segments || head->e_phnum == 0 || head->e_phnum > SEGMENTS_MAX)
        return md_fail(err, MD_INVALID, "'%.250s' is no library", path);
    const bool there = head->e_phoff <= bytes && read_at(fd, segments, size, (off_t)head->e_phoff);
    for (size_t i = 0; there && i < head->e_phnum; i++)
        if (segments[i].p_filesz > bytes || segments[i].p_offset > bytes - segments[i].p_filesz)
            return md_fail(err, MD_INVALID, "'%.250s' was cut: its %" PRIu64 " bytes are not all", path,
                           bytes);
    return there ? MD_OK
                 : md_fail(err, MD_INVALID, "'%.250s' was cut within its header: %" PRIu64 " bytes", path,
                           bytes);
}

static enum md_status check_open(int fd, const char *path, struct md_err *err)
{
    ElfW(Ehdr) head;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return md_fail(err, MD_IO, "read '%.250s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return md_fail(err, MD_INVALID, "'%.250s' is no regular file", path);
    if (!read_at(fd, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return md_fail(err, MD_INVALID, "'%.250s' is no library", path);
    return check_segments(fd, &head, (uint64_t)st.st_size, path, err);
}

enum md_status md_library_check(const char *path, struct md_err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return md_fail(err, errno == ENOENT || errno == ENOTDIR ? MD_NOT_FOUND : MD_IO, "open '%.250s': %s",
                       path, strerror(errno));
    const enum md_status s = check_open(fd, path, err);
    close(fd);
    return s;
}
