#include "host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What one version of control groups calls its files. */
struct layout {
    const char *limit, *used, *inactive;
};
static const struct layout layout_v1 = { "memory.limit_in_bytes", "memory.usage_in_bytes",
                                         "total_inactive_file" };
static const struct layout layout_v2 = { "memory.max", "memory.current", "inactive_file" };

/* A group on the way from a hierarchy's root to the own group. */
struct level {
    const struct layout *layout;
    const char *root, *mount; /* "/sys/fs/cgroup", "/memory" */
    const char *path;         /* of the own group below the mount; the first path_len bytes lead here */
    int path_len;
    int dir;
};

enum reading { READ_OK, READ_MISSING, READ_FAILED };

/* The end of a path tells more than its beginning. */
static void copy_tail(char *out, size_t out_bytes, const char *text)
{
    size_t len = strlen(text);
    if (len < out_bytes)
        memcpy(out, text, len + 1);
    else
        snprintf(out, out_bytes, "...%s", text + len - (out_bytes - 4));
}

static void level_path(const struct level *l, const char *file, char *out, size_t out_bytes)
{
    char whole[2 * PATH_MAX + 64];
    snprintf(whole, sizeof whole, "%s%s%.*s/%s", l->root, l->mount, l->path_len, l->path, file);
    copy_tail(out, out_bytes, whole);
}

/* The first problem is kept: those after it often follow from it. */
static void note_problem(struct md_host_memory *m, const struct level *l, const char *file, const char *why)
{
    char where[sizeof m->limit_path];
    if (m->problem[0] != '\0')
        return;
    level_path(l, file, where, sizeof where);
    snprintf(m->problem, sizeof m->problem, "'%s': %s", where, why);
}

/* Decimal digits and nothing else; more than an int64_t holds is INT64_MAX, which limits nothing. */
static bool parse_number(const char *text, size_t len, int64_t *ret)
{
    int64_t value = 0;
    if (len == 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text[i] - '0', &value))
            value = INT64_MAX; /* and stays there: each further digit overflows again */
    }
    *ret = value;
    return true;
}

/* Never what a link leads to, and no waiting for the writer of a FIFO.  NULL with errno set. */
static FILE *open_file(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (f == NULL && fd >= 0)
        close(fd);
    return f;
}

/* One number, or "max" (INT64_MAX).  What is there but says neither is noted, never taken for "max" in silence. */
static enum reading read_number(const struct level *l, const char *name, int64_t *ret,
                                struct md_host_memory *m)
{
    char line[64] = "", why[128];
    FILE *f = open_file(l->dir, name);
    if (f == NULL && errno == ENOENT)
        return READ_MISSING;
    if (f == NULL) {
        note_problem(m, l, name, strerror(errno));
        return READ_FAILED;
    }
    size_t len = fread(line, 1, sizeof line - 1, f);
    int failed = ferror(f) ? errno : 0;
    fclose(f);
    if (failed != 0) {
        note_problem(m, l, name, strerror(failed));
        return READ_FAILED;
    }
    if (len > 0 && line[len - 1] == '\n')
        line[--len] = '\0';
    if (len == 3 && memcmp(line, "max", 3) == 0)
        *ret = INT64_MAX;
    else if (!parse_number(line, len, ret)) {
        snprintf(why, sizeof why, "'%.40s' is no number of bytes", line);
        note_problem(m, l, name, why);
        return READ_FAILED;
    }
    return READ_OK;
}

/* Page cache that nobody used lately.  0 where the kernel does not say: then all that is used stays used. */
static int64_t read_inactive(const struct level *l)
{
    char line[256];
    int64_t bytes = 0;
    size_t len = strlen(l->layout->inactive);
    FILE *f = open_file(l->dir, "memory.stat");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, l->layout->inactive, len) == 0 && line[len] == ' ' &&
            parse_number(line + len + 1, strcspn(line + len + 1, "\n"), &bytes))
            break;
    fclose(f);
    return bytes;
}

/* total_bytes is still the machine's here: a group that is looser than its child may be the fuller one. */
static void take_level(const struct level *l, struct md_host_memory *m)
{
    int64_t limit, used = 0;
    if (read_number(l, l->layout->limit, &limit, m) != READ_OK || limit >= m->total_bytes)
        return;
    if (read_number(l, l->layout->used, &used, m) == READ_MISSING)
        note_problem(m, l, l->layout->used, "missing, the limit counts as if nothing were used");
    int64_t inactive = read_inactive(l);
    int64_t left = limit - (used > inactive ? used - inactive : 0);
    if (left < m->available_bytes)
        m->available_bytes = left > 0 ? left : 0;
    if (m->limit_path[0] == '\0' || limit < m->limit_bytes) {
        m->limit_bytes = limit;
        level_path(l, l->layout->limit, m->limit_path, sizeof m->limit_path);
    }
}

static int open_folder(int dir, const char *name, int flags)
{
    return openat(dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC | flags);
}

/* Does the path leave the mount?  Seen from a namespace whose root is below the own group. */
static bool goes_up(const char *path)
{
    for (const char *c = path; (c = strstr(c, "..")) != NULL; c += 2)
        if ((c == path || c[-1] == '/') && (c[2] == '/' || c[2] == '\0'))
            return true;
    return false;
}

/* From the mount down to the own group, or to the last of its ancestors that is visible here. */
static void walk(const char *root, const char *mount, const struct layout *layout, const char *path,
                 struct md_host_memory *m)
{
    struct level l = { .layout = layout, .root = root, .mount = mount, .path = path };
    char name[NAME_MAX + 2]; /* a name that is too long stays too long */
    if (goes_up(path))
        l.path = path = "";
    int top = open_folder(AT_FDCWD, root, 0);
    l.dir =
        top < 0 || mount[0] == '\0' ? top : open_folder(top, mount + 1, 0); /* may be a link: cpu,memory */
    if (l.dir < 0 && errno != ENOENT)
        note_problem(m, &l, "", strerror(errno));
    while (l.dir >= 0) {
        take_level(&l, m);
        const char *next = path + l.path_len + strspn(path + l.path_len, "/");
        size_t len = strcspn(next, "/");
        if (len == 0)
            break;
        snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), next);
        int below = open_folder(l.dir, name, O_NOFOLLOW);
        if (below < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
            note_problem(m, &l, name, strerror(errno));
        if (below < 0)
            break;
        if (l.dir != top)
            close(l.dir);
        l.dir = below;
        l.path_len = (int)(next + len - path);
    }
    if (l.dir >= 0 && l.dir != top)
        close(l.dir);
    if (top >= 0)
        close(top);
}

/* "cpu,memory" names memory, "memory_extra" does not. */
static bool has_memory(const char *list, size_t len)
{
    for (const char *end = list + len; list < end;) {
        size_t n = strcspn(list, ",:");
        if (n == 6 && memcmp(list, "memory", 6) == 0)
            return true;
        list += n + 1;
    }
    return false;
}

/* A line of /proc/self/cgroup: NUMBER:CONTROLLERS:PATH, where version 2 has 0 and no controllers. */
static void take_line(const char *line, const char *root, struct md_host_memory *m)
{
    const char *list = strchr(line, ':');
    const char *path = list == NULL ? NULL : strchr(list + 1, ':');
    if (path == NULL || path[1] != '/')
        return;
    list++;
    if (strncmp(line, "0::", 3) == 0)
        walk(root, "", &layout_v2, path + 1, m);
    else if (has_memory(list, (size_t)(path - list)))
        walk(root, "/memory", &layout_v1, path + 1, m);
}

static void take_groups(const char *self, const char *root, struct md_host_memory *m)
{
    char line[PATH_MAX + 256];
    FILE *f = fopen(self, "re");
    if (f == NULL) { /* the own group is unknown, what is mounted as the root still holds */
        if (errno != ENOENT)
            snprintf(m->problem, sizeof m->problem, "'%.200s': %s", self, strerror(errno));
        take_line("0::/", root, m);
        take_line("1:memory:/", root, m);
        return;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        size_t len = strlen(line);
        bool whole = len > 0 && line[len - 1] == '\n';
        if (whole)
            line[len - 1] = '\0';
        take_line(line, root, m); /* one that is cut has its ancestors still */
        for (int c = '\0'; !whole && c != '\n' && c != EOF;)
            c = fgetc(f);
    }
    fclose(f);
}

/* "MemTotal:  16316412 kB" in bytes, or unchanged for another line. */
static void take_kib(const char *line, const char *name, int64_t *ret)
{
    size_t len = strlen(name);
    int64_t kib;
    if (strncmp(line, name, len) != 0)
        return;
    line += len + strspn(line + len, " \t");
    size_t digits = strspn(line, "0123456789");
    if (strncmp(line + digits, " kB", 3) == 0 && parse_number(line, digits, &kib) && kib <= INT64_MAX / 1024)
        *ret = kib * 1024;
}

enum md_status md_host_memory(const struct md_memory_files *files, struct md_host_memory *ret,
                              struct md_err *err)
{
    static const struct md_memory_files none;
    const struct md_memory_files *given = files != NULL ? files : &none;
    const char *path = given->meminfo != NULL ? given->meminfo : "/proc/meminfo";
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return md_fail(err, MD_IO, "open '%s': %s", path, strerror(errno));
    char line[256];
    struct md_host_memory m = { .total_bytes = -1, .available_bytes = -1 };
    while (fgets(line, sizeof line, f) != NULL) {
        take_kib(line, "MemTotal:", &m.total_bytes);
        take_kib(line, "MemAvailable:", &m.available_bytes);
    }
    fclose(f);
    if (m.total_bytes < 0 || m.available_bytes < 0)
        return md_fail(err, MD_IO, "'%s' has no MemTotal and MemAvailable in kB", path);
    take_groups(given->self_cgroup != NULL ? given->self_cgroup : "/proc/self/cgroup",
                given->cgroup_root != NULL ? given->cgroup_root : "/sys/fs/cgroup", &m);
    if (m.limit_path[0] != '\0')
        m.total_bytes = m.limit_bytes; /* take_level: less than the machine's */
    *ret = m;
    return MD_OK;
}

enum md_status md_host_own_memory(const char *status_file, int64_t *ret_bytes, struct md_err *err)
{
    const char *path = status_file != NULL ? status_file : "/proc/self/status";
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return md_fail(err, MD_IO, "open '%s': %s", path, strerror(errno));
    char line[256];
    int64_t bytes = -1;
    while (fgets(line, sizeof line, f) != NULL)
        take_kib(line, "RssAnon:", &bytes);
    fclose(f);
    if (bytes < 0)
        return md_fail(err, MD_IO, "'%s' has no RssAnon in kB", path);
    *ret_bytes = bytes;
    return MD_OK;
}

int md_host_processor_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}
