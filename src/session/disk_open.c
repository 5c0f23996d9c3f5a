/* disk_open.c - opening the KV folder: whose it is, and what in it is still good. */
#include "session/disk_internal.h"

#include "base/log.h"
#include "host/paths.h"
#include "policy/prefix.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct found {
    char name[MD_DISK_NAME_BYTES];
    int64_t bytes, changed_ns;
    bool block;
};

struct scan {
    struct md_disk *disk;
    struct found *files;
    size_t count, cap;
    int64_t left, left_bytes; /* files of another version */
    bool no_memory;
};

/* ---- names ---- */

static bool is_block_name(const char *name)
{
    return strncmp(name, "b-", 2) == 0 && strspn(name + 2, "0123456789abcdef") == 32 &&
           strcmp(name + 34, ".kv") == 0;
}

static bool is_record_name(const char *name, int64_t *ret_id)
{
    char *end;
    if (strncmp(name, "s-", 2) != 0 || name[2] < '1' || name[2] > '9')
        return false;
    errno = 0;
    *ret_id = strtoll(name + 2, &end, 10);
    return errno == 0 && strcmp(end, ".session") == 0;
}

/* ---- what is there ---- */

static bool note_file(void *user, const struct md_sections_file *file)
{
    struct scan *s = user;
    int64_t id;
    const bool block = is_block_name(file->name);
    if (file->is_temporary) {
        md_disk_remove_file(s->disk, file->name);
        return true;
    }
    if (!block && !is_record_name(file->name, &id))
        return true; /* not ours */
    void *files = s->files;
    if (!md_grow(s->disk->alloc, &files, &s->cap, s->count + 1, sizeof *s->files)) {
        s->no_memory = true;
        return false;
    }
    s->files = files;
    struct found *f = &s->files[s->count++];
    *f = (struct found){ .bytes = file->bytes, .changed_ns = file->mtime_ns, .block = block };
    snprintf(f->name, sizeof f->name, "%s", file->name);
    return true;
}

static int by_change(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->changed_ns != y->changed_ns)
        return x->changed_ns < y->changed_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* MD_IO, MD_UNSUPPORTED: it is to be left alone; MD_CORRUPT and the like: it is to go. */
static enum md_status take_block(struct md_disk *d, const struct found *f, struct md_err *err)
{
    struct md_sections_reader *r = NULL;
    struct md_disk_block *b = NULL;
    char name[MD_DISK_NAME_BYTES];
    uint32_t type;
    int64_t kv = 0;
    enum md_status s = md_disk_open_file(d, f->name, MD_DISK_BLOCK, &r, err);
    if (s == MD_OK)
        s = md_disk_read_head(d, r, &b, err);
    if (s == MD_OK)
        s = md_sections_next(r, &type, &kv, err);
    md_sections_close(r);
    if (s == MD_OK) {
        md_disk_block_name(&b->entry.key, name);
        if (type != MD_DISK_KV || strcmp(name, f->name) != 0)
            s = md_fail(err, MD_CORRUPT, "'%s' is not the file of its block", f->name);
    }
    if (s == MD_OK) {
        b->entry.bytes = md_disk_cost(d, b->entry.token_count, (uint64_t)kv);
        if (!md_disk_make_room(d, b->entry.bytes, b->entry.cls))
            s = md_fail(err, MD_TOO_LARGE, "it has no room in the budget");
        else
            s = md_coldstore_put(d->index, &b->entry, err);
    }
    if (s != MD_OK)
        md_free(d->alloc, b);
    return s;
}

static enum md_status take_record(struct md_disk *d, const struct found *f, struct md_err *err)
{
    int64_t id = 0;
    const int64_t bytes = (int64_t)md_disk_whole_pages((uint64_t)f->bytes);
    (void)is_record_name(f->name, &id);
    enum md_status s = md_disk_reserve_record(d, bytes, err);
    if (s == MD_OK)
        md_disk_note_record(d, id, bytes);
    return s;
}

/* What became of a file that was not taken: one that cannot be read, or that another version wrote, is not ours to remove,
 * and costs its block only. */
static void give_up_file(struct md_disk *d, struct scan *scan, const struct found *f, enum md_status why,
                         const struct md_err *err)
{
    const int64_t bytes = (int64_t)md_disk_whole_pages((uint64_t)f->bytes);
    if (why != MD_IO && why != MD_UNSUPPORTED) {
        md_log(MD_LOG_WARN, "kv folder: '%s' is removed: %s", f->name, err->text);
        md_disk_remove_file(d, f->name);
        return;
    }
    (void)md_disk_leave(d, bytes);
    if (why == MD_IO) {
        md_log(MD_LOG_WARN, "kv folder: '%s' is lost to this process and left alone: %s", f->name, err->text);
        return;
    }
    scan->left++;
    scan->left_bytes += bytes;
}

/* The oldest first, so that the order of use is what it was. */
static enum md_status take_files(struct md_disk *d, struct scan *scan, struct md_err *err)
{
    enum md_status s = MD_OK;
    struct md_err why;
    err = err != NULL ? err : &why;
    if (scan->count > 0)
        qsort(scan->files, scan->count, sizeof *scan->files, by_change);
    for (size_t pass = 0; pass < 2; pass++) { /* records first: they never go */
        for (size_t i = 0; i < scan->count && s == MD_OK; i++) {
            const struct found *f = &scan->files[i];
            if (f->block != (pass == 1))
                continue;
            s = f->block ? take_block(d, f, err) : take_record(d, f, err);
            if (s == MD_OK || s == MD_NO_MEMORY)
                continue;
            give_up_file(d, scan, f, s, err);
            s = MD_OK;
        }
    }
    if (scan->left > 0)
        md_disk_log_left("block(s)", scan->left, scan->left_bytes);
    return s;
}

static enum md_status scan_folder(struct md_disk *d, struct md_err *err)
{
    struct scan scan = { .disk = d };
    enum md_status s = md_sections_list(d->folder, note_file, &scan, err);
    if (s == MD_OK && scan.no_memory)
        s = md_fail(err, MD_NO_MEMORY, "list of the files in '%s'", d->folder);
    if (s == MD_OK)
        s = take_files(d, &scan, err);
    md_free(d->alloc, scan.files);
    return s;
}

/* ---- ids ---- */

int64_t md_disk_last_id(const struct md_disk *d)
{
    return d->last_id;
}

void md_disk_note_id(struct md_disk *d, int64_t id)
{
    char text[32];
    if (id <= d->last_id)
        return;
    d->last_id = id;
    const int n = snprintf(text, sizeof text, "%20" PRId64 "\n", id); /* one length: it is written over */
    if (pwrite(d->lock_fd, text, (size_t)n, 0) != n)
        md_log(MD_LOG_WARN, "kv folder: the last id is not noted: %s", strerror(errno));
}

static void read_last_id(struct md_disk *d)
{
    char text[32] = "";
    const ssize_t n = pread(d->lock_fd, text, sizeof text - 1, 0);
    const long long id = n > 0 ? strtoll(text, NULL, 10) : 0;
    d->last_id = id > 0 && id < INT64_MAX ? id : 0;
    for (size_t i = 0; i < d->record_count; i++)
        if (d->records[i].id > d->last_id)
            d->last_id = d->records[i].id;
}

/* ---- the folder ---- */

/* A lock is the process's: it goes with it, however that ends. */
static enum md_status lock_folder(struct md_disk *d, struct md_err *err)
{
    char path[MD_DISK_FOLDER_BYTES + 8];
    snprintf(path, sizeof path, "%s/lock", d->folder);
    d->lock_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (d->lock_fd < 0)
        return md_fail(err, MD_IO, "open '%s': %s", path, strerror(errno));
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return MD_OK;
    return errno == EWOULDBLOCK
               ? md_fail(err, MD_BUSY,
                         "the KV folder '%s' is in use by another modeld: give this one another --kv-dir",
                         d->folder)
               : md_fail(err, MD_IO, "lock '%s': %s", path, strerror(errno));
}

static enum md_status open_folder(struct md_disk *d, const char *folder, struct md_err *err)
{
    const struct md_key key = md_prefix_root(d->identity);
    const int n = snprintf(d->folder, sizeof d->folder, "%s/%016" PRIx64, folder, key.hi);
    if (n < 0 || (size_t)n >= sizeof d->folder)
        return md_fail(err, MD_INVALID, "--kv-dir: the path is too long");
    enum md_status s = md_paths_make_folder(d->folder, err);
    return s == MD_OK ? lock_folder(d, err) : s;
}

enum md_status md_disk_open(const struct md_disk_config *config, struct md_disk **ret_disk,
                            struct md_err *err)
{
    if (config->budget_bytes < MD_DISK_BYTES_MIN)
        return md_fail(err, MD_INVALID, "the KV folder needs at least %d bytes (--kv-disk), got %" PRId64,
                       MD_DISK_BYTES_MIN, config->budget_bytes);
    struct md_disk *d = md_calloc(config->alloc, 1, sizeof *d);
    if (d == NULL)
        return md_fail(err, MD_NO_MEMORY, "disk tier");
    d->alloc = config->alloc;
    d->lock_fd = -1;
    d->budget_bytes = config->budget_bytes;
    snprintf(d->identity, sizeof d->identity, "%s", config->identity);
    enum md_status s = md_coldstore_open(config->alloc, (size_t)config->budget_bytes, &d->index, err);
    if (s == MD_OK)
        s = open_folder(d, config->folder, err);
    if (s == MD_OK)
        md_disk_reserve(d);
    if (s == MD_OK)
        s = scan_folder(d, err);
    if (s == MD_OK)
        read_last_id(d);
    if (s != MD_OK) {
        md_disk_close(d);
        return s;
    }
    *ret_disk = d;
    return MD_OK;
}

void md_disk_close(struct md_disk *d)
{
    if (d == NULL)
        return;
    struct md_cold_entry *e;
    while (d->index != NULL && (e = md_coldstore_any(d->index)) != NULL) {
        md_coldstore_remove(d->index, e, false);
        md_free(d->alloc, e);
    }
    if (d->index != NULL)
        md_coldstore_reserve(d->index, 0);
    md_coldstore_close(d->index);
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    md_free(d->alloc, d->records);
    md_free(d->alloc, d);
}
