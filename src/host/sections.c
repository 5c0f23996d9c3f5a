/* sections.c - names of files of sections and the folders they lie in; see sections.h. */
#include "host/sections_internal.h"

#include "base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_SHOWN = 150, DIGITS = 16, BOUNDARY = 64 };
static const char temporary_end[] = ".tmp";

/* ---- names ---- */

/* U+0000 to U+001F and U+007F to U+009F; the latter are 0xc2 and a byte below 0xa0 in UTF-8. */
static bool is_control(const unsigned char *p, int bytes)
{
    return bytes == 1 ? p[0] < 0x20 || p[0] == 0x7f : bytes == 2 && p[0] == 0xc2 && p[1] < 0xa0;
}

enum md_status md_sections_check_name(const char *name, size_t len, struct md_err *err)
{
    const unsigned char *p = (const unsigned char *)name;
    if (len == 0)
        return md_fail(err, MD_INVALID, "the name is empty: give 1 to %d bytes", MD_SECTIONS_NAME_BYTES);
    if (len > MD_SECTIONS_NAME_BYTES)
        return md_fail(err, MD_INVALID, "the name has %zu bytes: give at most %d", len,
                       MD_SECTIONS_NAME_BYTES);
    if (p[0] == '.')
        return md_fail(err, MD_INVALID,
                       "the name begins with '.': such names are for folders and temporary files");
    for (size_t i = 0; i < len;) {
        const int bytes = md_utf8_step(p + i, len - i);
        if (bytes < 0)
            return md_fail(err, MD_INVALID, "the name is not valid UTF-8 at byte %zu", i);
        if (p[i] == '/' || p[i] == '\\')
            return md_fail(err, MD_INVALID, "the name has a '%c' at byte %zu: it is a name, not a path", p[i],
                           i);
        if (is_control(p + i, bytes))
            return md_fail(err, MD_INVALID, "the name has a control character (0x%02x) at byte %zu",
                           p[i + (size_t)bytes - 1], i);
        i += (size_t)bytes;
    }
    return MD_OK;
}

bool md_sections_is_temporary(const char *name)
{
    const size_t len = strlen(name), tail = 1 + DIGITS + sizeof temporary_end - 1; /* ".16 digits.tmp" */
    if (name[0] != '.' || len < 1 + 1 + tail || len > MD_SECTIONS_TEMPORARY_BYTES)
        return false;
    const char *end = name + len - tail;
    return end[0] == '.' && strspn(end + 1, "0123456789abcdef") == DIGITS &&
           strcmp(end + 1 + DIGITS, temporary_end) == 0 &&
           md_sections_check_name(name + 1, (size_t)(end - name) - 1, NULL) == MD_OK;
}

/* ---- what writer and reader share ---- */

bool md_sections_type_is_text(uint32_t type)
{
    for (int i = 0; i < 4; i++)
        if ((uint8_t)(type >> 8 * i) < 0x20 || (uint8_t)(type >> 8 * i) > 0x7e)
            return false;
    return true;
}

struct md_sections_type_text md_sections_type_text(uint32_t type)
{
    struct md_sections_type_text t;
    if (md_sections_type_is_text(type))
        snprintf(t.text, sizeof t.text, "'%c%c%c%c'", (char)type, (char)(type >> 8), (char)(type >> 16),
                 (char)(type >> 24));
    else
        snprintf(t.text, sizeof t.text, "0x%08x", type);
    return t;
}

void md_sections_path_init(struct md_sections_path *p, const struct md_sections_place *place)
{
    const size_t len = strlen(place->folder);
    const bool cut = len > FOLDER_SHOWN;
    snprintf(p->text, sizeof p->text, "%s%s/%.*s", cut ? "..." : "",
             cut ? place->folder + len - FOLDER_SHOWN : place->folder, MD_SECTIONS_NAME_BYTES, place->name);
}

enum md_status md_sections_open_folder(const char *folder, int *ret_fd, struct md_err *err)
{
    /* Not O_PATH: the folder is synced through it. */
    const int fd = (int)TEMP_FAILURE_RETRY(openat(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        return md_fail(err, errno == ENOENT ? MD_NOT_FOUND : MD_IO, "open the folder '%.250s': %s", folder,
                       strerror(errno));
    *ret_fd = fd;
    return MD_OK;
}

void *md_sections_object(const struct md_alloc *alloc, size_t bytes, void **ret_block)
{
    uint8_t *block = md_calloc(alloc, 1, bytes + BOUNDARY - 1);
    *ret_block = block;
    return block == NULL ? NULL : block + (BOUNDARY - (uintptr_t)block % BOUNDARY) % BOUNDARY;
}

/* ---- folders ---- */

/* Fill in what the file system knows of it; false: it is not ours to list, or it has gone meanwhile. */
static bool is_listed(int folder, const char *name, struct md_sections_file *ret_file)
{
    struct stat st;
    const bool temporary = md_sections_is_temporary(name);
    if (!temporary && md_sections_check_name(name, strlen(name), NULL) != MD_OK)
        return false;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return false;
    *ret_file =
        (struct md_sections_file){ .name = name,
                                   .bytes = st.st_size,
                                   .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                                   .is_temporary = temporary };
    return true;
}

enum md_status md_sections_list(const char *folder,
                                bool (*each)(void *user, const struct md_sections_file *file), void *user,
                                struct md_err *err)
{
    int fd = -1;
    enum md_status s = md_sections_open_folder(folder, &fd, err);
    if (s != MD_OK)
        return s;
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        s = md_fail(err, MD_IO, "read the folder '%.250s': %s", folder, strerror(errno));
        close(fd);
        return s;
    }
    for (bool more = true; more;) {
        struct md_sections_file file;
        errno = 0; /* the end of the folder leaves it alone */
        const struct dirent *e = readdir(d);
        if (e == NULL && errno != 0)
            s = md_fail(err, MD_IO, "read the folder '%.250s': %s", folder, strerror(errno));
        more = e != NULL && (!is_listed(fd, e->d_name, &file) || each(user, &file));
    }
    closedir(d);
    return s;
}

enum md_status md_sections_remove(const struct md_sections_place *place, struct md_err *err)
{
    int fd = -1;
    enum md_status s = MD_OK;
    if (!md_sections_is_temporary(place->name))
        s = md_sections_check_name(place->name, strlen(place->name), err);
    if (s == MD_OK)
        s = md_sections_open_folder(place->folder, &fd, err);
    if (s != MD_OK)
        return s;
    if (unlinkat(fd, place->name, 0) != 0) {
        const int error = errno;
        struct md_sections_path path;
        md_sections_path_init(&path, place);
        s = md_fail(err, error == ENOENT ? MD_NOT_FOUND : MD_IO, "remove '%s': %s", path.text,
                    strerror(error));
    }
    close(fd);
    return s;
}
