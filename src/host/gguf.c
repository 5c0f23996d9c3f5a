/* gguf.c - opening a GGUF file: header, keys, and the parts of a split file. */
#include "host/gguf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRY_BYTES_MIN = 13, TENSOR_BYTES_MIN = 24 }; /* the least that one of them takes in a file */
enum { ALIGNMENT_DEFAULT = 32, ALIGNMENT_MIN = 8 };   /* gguf.md: "must be a multiple of 8" */
/* Names are bytes of the header, each rounded up to the arena's unit. */
#define NAMES_BYTES_MAX ((size_t)MD_GGUF_HEADER_BYTES_MAX + (size_t)MD_GGUF_ENTRIES_MAX * 32)

/* ---- the header of one file ---- */

struct counts {
    uint64_t tensors, entries;
};

static enum md_status check_magic(struct md_gguf_cursor *c, struct md_err *err)
{
    char magic[4], shown[20];
    enum md_status s = md_gguf_get(c, "magic", magic, sizeof magic, err);
    if (s != MD_OK)
        return s;
    if (memcmp(magic, "FUGG", 4) == 0)
        return md_gguf_fail(c, 0, MD_INVALID, err, "big-endian GGUF files are not read");
    if (memcmp(magic, "GGUF", 4) != 0) {
        md_gguf_escape(shown, sizeof shown, magic, sizeof magic);
        return md_gguf_fail(c, 0, MD_INVALID, err, "not a GGUF file: it begins with \"%s\"", shown);
    }
    return MD_OK;
}

static enum md_status read_head(struct md_gguf_cursor *c, struct md_gguf_part *p, struct counts *n,
                                struct md_err *err)
{
    enum md_status s = check_magic(c, err);
    if (s == MD_OK)
        s = md_gguf_get(c, "version", &p->version, sizeof p->version, err);
    if (s != MD_OK)
        return s;
    if (p->version != 0 && (p->version & 0xffff) == 0) /* 2 or 3 with its bytes the other way round */
        return md_gguf_fail(c, 4, MD_INVALID, err,
                            "big-endian GGUF files are not read (version 0x%08" PRIx32 ")", p->version);
    if (p->version != 2 && p->version != 3)
        return md_gguf_fail(c, 4, MD_UNSUPPORTED, err, "GGUF version %" PRIu32 ": only 2 and 3 are read",
                            p->version);
    s = md_gguf_get(c, "counts", n, sizeof *n, err);
    if (s != MD_OK)
        return s;
    const uint64_t left = md_gguf_left(c);
    if (n->tensors > left / TENSOR_BYTES_MIN)
        return md_gguf_fail(c, 8, MD_INVALID, err,
                            "%" PRIu64 " tensors of %d bytes or more, %" PRIu64 " bytes are left %s",
                            n->tensors, TENSOR_BYTES_MIN, left, c->end_of);
    if (n->entries > (left - n->tensors * TENSOR_BYTES_MIN) / ENTRY_BYTES_MIN)
        return md_gguf_fail(c, 16, MD_INVALID, err,
                            "%" PRIu64 " entries of %d bytes or more and %" PRIu64 " tensors, %" PRIu64
                            " bytes are left %s",
                            n->entries, ENTRY_BYTES_MIN, n->tensors, left, c->end_of);
    if (n->entries > MD_GGUF_ENTRIES_MAX)
        return md_gguf_fail(c, 16, MD_INVALID, err, "%" PRIu64 " entries, at most %d", n->entries,
                            MD_GGUF_ENTRIES_MAX);
    return MD_OK;
}

enum md_status md_gguf_get_name(struct md_gguf_cursor *c, const char *what, struct md_arena *a, uint64_t max,
                                const char **ret_name, struct md_err *err)
{
    const uint64_t at = c->at;
    uint64_t len;
    char shown[64];
    enum md_status s = md_gguf_get(c, what, &len, sizeof len, err);
    if (s != MD_OK)
        return s;
    if (len == 0)
        return md_gguf_fail(c, at, MD_INVALID, err, "the %s is empty", what);
    if (len > md_gguf_left(c))
        return md_gguf_fail_short(c, what, len, err);
    if (len > max)
        return md_gguf_fail(c, at, MD_INVALID, err, "a %s of %" PRIu64 " bytes, at most %" PRIu64, what, len,
                            max);
    char *name = md_arena_get(a, (size_t)len + 1, 1);
    if (name == NULL)
        return md_gguf_fail(c, at, MD_NO_MEMORY, err, "no memory for a %s of %" PRIu64 " bytes", what, len);
    s = md_gguf_get(c, what, name, (size_t)len, err);
    if (s != MD_OK)
        return s;
    if (memchr(name, '\0', (size_t)len) != NULL) {
        md_gguf_escape(shown, sizeof shown, name, (size_t)len);
        return md_gguf_fail(c, at, MD_INVALID, err, "a NUL byte in the %s '%s'", what, shown);
    }
    *ret_name = name;
    return MD_OK;
}

static enum md_status get_type(struct md_gguf_cursor *c, enum md_gguf_type *ret, struct md_err *err)
{
    const uint64_t at = c->at;
    uint32_t number;
    enum md_status s = md_gguf_get(c, "type", &number, sizeof number, err);
    if (s != MD_OK)
        return s;
    if (number >= MD_GGUF_TYPE_COUNT)
        return md_gguf_fail(c, at, MD_INVALID, err, "value type %" PRIu32 " is not known", number);
    *ret = (enum md_gguf_type)number;
    return MD_OK;
}

/* The head of an array, behind its type.  Arrays of arrays end here: there is nothing to recurse into. */
static enum md_status get_array(struct md_gguf_cursor *c, struct md_gguf_entry *e, struct md_err *err)
{
    const uint64_t at = c->at;
    enum md_status s = get_type(c, &e->type, err);
    if (s != MD_OK)
        return s;
    if (e->type == MD_GGUF_ARRAY)
        return md_gguf_fail(c, at, MD_INVALID, err, "nested arrays are not supported");
    s = md_gguf_get(c, "length of the array", &e->count, sizeof e->count, err);
    if (s != MD_OK)
        return s;
    const size_t least = e->type == MD_GGUF_STRING ? sizeof(uint64_t) : md_gguf_type_bytes(e->type);
    if (e->count > md_gguf_left(c) / least)
        return md_gguf_fail(c, at, MD_INVALID, err,
                            "an array of %" PRIu64 " x %s, %" PRIu64 " bytes are left %s", e->count,
                            md_gguf_type_name(e->type), md_gguf_left(c), c->end_of);
    if (e->count > MD_GGUF_ARRAY_MAX)
        return md_gguf_fail(c, at, MD_INVALID, err, "an array of %" PRIu64 " elements, at most %d", e->count,
                            MD_GGUF_ARRAY_MAX);
    e->is_array = true;
    return MD_OK;
}

static enum md_status skip_values(struct md_gguf_cursor *c, const struct md_gguf_entry *e, struct md_err *err)
{
    if (e->type != MD_GGUF_STRING) /* at most 2^24 x 8 */
        return md_gguf_skip(c, md_gguf_type_name(e->type), e->count * md_gguf_type_bytes(e->type), err);
    enum md_status s = MD_OK;
    for (uint64_t i = 0; i < e->count && s == MD_OK; i++) {
        uint64_t len;
        s = md_gguf_get(c, "length of a string", &len, sizeof len, err);
        if (s == MD_OK)
            s = md_gguf_skip(c, "a string", len, err);
    }
    return s;
}

static enum md_status read_entry(struct md_gguf_cursor *c, struct md_gguf_part *p, struct md_gguf_entry *e,
                                 struct md_err *err)
{
    enum md_status s = md_gguf_get_name(c, "key", &p->keys, MD_GGUF_KEY_BYTES_MAX, &e->key, err);
    if (s != MD_OK)
        return s;
    c->kind = "key";
    c->name = e->key;
    e->count = 1;
    s = get_type(c, &e->type, err);
    if (s == MD_OK && e->type == MD_GGUF_ARRAY)
        s = get_array(c, e, err);
    e->offset = c->at;
    return s == MD_OK ? skip_values(c, e, err) : s;
}

static int by_key(const void *a, const void *b)
{
    const struct md_gguf_entry *const *x = a, *const *y = b;
    const int order = strcmp((*x)->key, (*y)->key);
    return order != 0 ? order : (*x > *y) - (*x < *y);
}

/* Sorted and not hashed: a file cannot be made so that this takes quadratic time. */
static enum md_status index_entries(const struct md_alloc *alloc, struct md_gguf_cursor *c,
                                    struct md_gguf_part *p, struct md_err *err)
{
    c->kind = NULL;
    if (p->entry_count == 0)
        return MD_OK;
    p->by_key = md_calloc(alloc, p->entry_count, sizeof(const struct md_gguf_entry *));
    if (p->by_key == NULL)
        return md_gguf_fail(c, c->at, MD_NO_MEMORY, err, "no memory to sort %zu keys", p->entry_count);
    for (size_t i = 0; i < p->entry_count; i++)
        p->by_key[i] = &p->entries[i];
    qsort(p->by_key, p->entry_count, sizeof *p->by_key, by_key);
    for (size_t i = 1; i < p->entry_count; i++) {
        const struct md_gguf_entry *a = p->by_key[i - 1], *b = p->by_key[i];
        if (strcmp(a->key, b->key) != 0)
            continue;
        c->kind = "key";
        c->name = a->key;
        return md_gguf_fail(c, b->offset, MD_INVALID, err, "it is there twice, first at byte %" PRIu64,
                            a->offset);
    }
    return MD_OK;
}

static enum md_status read_entries(const struct md_alloc *alloc, struct md_gguf_cursor *c,
                                   struct md_gguf_part *p, uint64_t count, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (uint64_t i = 0; i < count && s == MD_OK; i++) {
        c->kind = "entry";
        c->name = NULL;
        c->index = i;
        if (!md_grow(alloc, (void **)&p->entries, &p->entry_cap, p->entry_count + 1, sizeof *p->entries))
            return md_gguf_fail(c, c->at, MD_NO_MEMORY, err, "no memory for the table of keys");
        struct md_gguf_entry *e = &p->entries[p->entry_count];
        *e = (struct md_gguf_entry){ 0 };
        s = read_entry(c, p, e, err);
        p->entry_count += s == MD_OK;
    }
    p->metadata_end = c->at;
    return s == MD_OK ? index_entries(alloc, c, p, err) : s;
}

static int key_order(const void *key, const void *item)
{
    const struct md_gguf_entry *const *e = item;
    return strcmp(key, (*e)->key);
}

const struct md_gguf_entry *md_gguf_part_find(const struct md_gguf_part *p, const char *key)
{
    if (p->entry_count == 0)
        return NULL;
    const struct md_gguf_entry *const *e =
        bsearch(key, p->by_key, p->entry_count, sizeof *p->by_key, key_order);
    return e == NULL ? NULL : *e;
}

/* A key that ggml reads as one exact type, and stops at any other.  Without the key *ret stays as it is. */
static enum md_status get_exact(struct md_gguf_cursor *c, const struct md_gguf_part *p, const char *key,
                                enum md_gguf_type type, int64_t *ret, struct md_err *err)
{
    const struct md_gguf_entry *e = md_gguf_part_find(p, key);
    struct md_gguf_number n;
    if (e == NULL)
        return MD_OK;
    const uint64_t at = c->at;
    c->kind = "key";
    c->name = e->key;
    if (e->type != type || e->is_array)
        return md_gguf_fail(c, e->offset, MD_INVALID, err, "its type is %s%s, but %s is required",
                            e->is_array ? "array of " : "", md_gguf_type_name(e->type),
                            md_gguf_type_name(type));
    c->at = e->offset;
    enum md_status s = md_gguf_get_integer(c, type, &n, err);
    c->at = at;
    c->kind = NULL;
    if (s == MD_OK)
        *ret = n.i;
    return s;
}

static enum md_status read_alignment(struct md_gguf_cursor *c, struct md_gguf_part *p, struct md_err *err)
{
    int64_t v = ALIGNMENT_DEFAULT;
    enum md_status s = get_exact(c, p, "general.alignment", MD_GGUF_U32, &v, err);
    if (s != MD_OK)
        return s;
    if (v < ALIGNMENT_MIN || (v & (v - 1)) != 0)
        return md_gguf_fail(c, md_gguf_part_find(p, "general.alignment")->offset, MD_INVALID, err,
                            "key 'general.alignment': %" PRId64 " is not a power of two from %d on", v,
                            ALIGNMENT_MIN);
    p->alignment = (uint64_t)v;
    return MD_OK;
}

/* Files that only carry metadata may end without padding, unless they declare an alignment themselves. */
static enum md_status place_data(struct md_gguf_cursor *c, struct md_gguf_part *p, uint64_t tensors,
                                 struct md_err *err)
{
    p->data_offset = (c->at + p->alignment - 1) / p->alignment * p->alignment;
    if (p->data_offset <= p->file_bytes)
        return MD_OK;
    if (tensors > 0 || md_gguf_part_find(p, "general.alignment") != NULL)
        return md_gguf_fail(c, c->at, MD_INVALID, err,
                            "file has %" PRIu64 " bytes, its data would begin at %" PRIu64
                            " (alignment %" PRIu64 ")",
                            p->file_bytes, p->data_offset, p->alignment);
    p->data_offset = p->file_bytes;
    return MD_OK;
}

static enum md_status read_part(struct md_gguf *f, struct md_gguf_cursor *c, struct md_gguf_part *p,
                                int32_t index, struct md_err *err)
{
    const size_t first = f->tensor_count;
    struct counts n = { 0 };
    enum md_status s = read_head(c, p, &n, err);
    if (s == MD_OK)
        s = read_entries(f->alloc, c, p, n.entries, err);
    if (s == MD_OK)
        s = read_alignment(c, p, err);
    if (s == MD_OK)
        s = md_gguf_read_tensors(f, c, n.tensors, index, err);
    if (s == MD_OK)
        s = place_data(c, p, n.tensors, err);
    if (s == MD_OK)
        s = md_gguf_place_tensors(f, c, p, first, err);
    return s;
}

static void part_done(const struct md_alloc *alloc, struct md_gguf_part *p)
{
    md_free(alloc, p->by_key);
    md_free(alloc, p->entries);
    md_arena_done(&p->keys);
}

/* ---- files ---- */

/* Open without ever waiting, and only what is a file: a FIFO would block, a folder cannot be read. */
static enum md_status open_file(const char *path, int *ret_fd, uint64_t *ret_bytes, struct md_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && errno == ENXIO) /* a socket, or a device without hardware */
        return md_fail(err, MD_INVALID, "'%.300s' is not a file", path);
    if (fd < 0)
        return md_fail(err, errno == ENOENT || errno == ENOTDIR ? MD_NOT_FOUND : MD_IO, "open '%.300s': %s",
                       path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        enum md_status s = md_fail(err, MD_IO, "look at '%.300s': %s", path, strerror(errno));
        close(fd);
        return s;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return md_fail(err, MD_INVALID, "'%.300s' is not a file", path);
    }
    *ret_fd = fd;
    *ret_bytes = (uint64_t)st.st_size;
    return MD_OK;
}

static enum md_status open_part(struct md_gguf *f, const char *path, int32_t index, int *ret_fd,
                                struct md_gguf_cursor *c, struct md_gguf_part *p, struct md_err *err)
{
    enum md_status s = open_file(path, ret_fd, &p->file_bytes, err);
    if (s != MD_OK)
        return s;
    const bool small = p->file_bytes <= MD_GGUF_HEADER_BYTES_MAX;
    md_gguf_cursor_init(c, *ret_fd, path, 0, small ? p->file_bytes : MD_GGUF_HEADER_BYTES_MAX,
                        small ? "in the file" : "of the 256 MiB that a header may have");
    md_arena_init(&p->keys, f->alloc, NAMES_BYTES_MAX);
    s = read_part(f, c, p, index, err);
    if (s == MD_OK && __builtin_add_overflow(f->file_bytes, (int64_t)p->file_bytes, &f->file_bytes))
        s = md_gguf_fail(c, 0, MD_INVALID, err, "the parts have over 2^63 bytes together");
    return s;
}

/* ---- split files: NAME-00001-of-0000N.gguf, keys split.no, split.count, split.tensors.count ---- */

struct split {
    int64_t no, count, tensors; /* -1: the key is not there */
};

static enum md_status get_split(struct md_gguf_cursor *c, const struct md_gguf_part *p, struct split *ret,
                                struct md_err *err)
{
    *ret = (struct split){ -1, -1, -1 };
    enum md_status s = get_exact(c, p, "split.no", MD_GGUF_U16, &ret->no, err);
    if (s == MD_OK)
        s = get_exact(c, p, "split.count", MD_GGUF_U16, &ret->count, err);
    if (s == MD_OK)
        s = get_exact(c, p, "split.tensors.count", MD_GGUF_I32, &ret->tensors, err);
    return s;
}

static enum md_status read_later_part(struct md_gguf *f, const char *path, int32_t index, int64_t count,
                                      struct md_err *err)
{
    struct md_gguf_cursor c;
    struct md_gguf_part p = { 0 };
    struct split split;
    int fd = -1;
    enum md_status s = open_part(f, path, index, &fd, &c, &p, err);
    if (s == MD_NOT_FOUND)
        md_fail(err, s, "part %d of %" PRId64 " is missing: '%.300s'", index + 1, count, path);
    if (s == MD_OK)
        s = get_split(&c, &p, &split, err);
    if (s == MD_OK && (split.no != index || split.count != count))
        s = md_gguf_fail(&c, 0, MD_INVALID, err,
                         "split.no %" PRId64 " and split.count %" PRId64 ", expected %d and %" PRId64,
                         split.no, split.count, index, count);
    if (fd >= 0)
        close(fd);
    part_done(f->alloc, &p);
    return s;
}

void md_gguf_part_path(const char *first, int32_t index, int32_t count, char *out)
{
    const size_t stem = strlen(first) - MD_GGUF_PART_ENDING;
    char ending[40];
    snprintf(ending, sizeof ending, "-%05d-of-%05d.gguf", index + 1, count);
    memcpy(out, first, stem);
    memcpy(out + stem, ending, MD_GGUF_PART_ENDING + 1);
}

/* Read the parts behind the first, if it says that there are any. */
static enum md_status read_other_parts(struct md_gguf *f, struct md_gguf_cursor *c, struct md_err *err)
{
    struct split split;
    char ending[40];
    enum md_status s = get_split(c, &f->first, &split, err);
    if (s != MD_OK || split.count <= 1)
        return s;
    if (split.count > MD_GGUF_PARTS_MAX)
        return md_gguf_fail(c, 0, MD_INVALID, err, "split in %" PRId64 " parts, at most %d", split.count,
                            MD_GGUF_PARTS_MAX);
    if (split.no != 0)
        return md_gguf_fail(c, 0, MD_INVALID, err,
                            "split.no %" PRId64 " of %" PRId64
                            " is not the first part: give the one that ends in "
                            "-00001-of-%05" PRId64 ".gguf",
                            split.no, split.count, split.count);
    snprintf(ending, sizeof ending, "-00001-of-%05" PRId64 ".gguf", split.count);
    const size_t len = strlen(f->path);
    if (len <= MD_GGUF_PART_ENDING || strcmp(f->path + len - MD_GGUF_PART_ENDING, ending) != 0)
        return md_gguf_fail(c, 0, MD_INVALID, err,
                            "the first of %" PRId64 " parts, but its name does not end in %s", split.count,
                            ending);
    char *path = md_calloc(f->alloc, len + 1, 1);
    if (path == NULL)
        return md_fail(err, MD_NO_MEMORY, "no memory for the name of a part");
    for (int32_t i = 1; i < split.count && s == MD_OK; i++) {
        md_gguf_part_path(f->path, i, (int32_t)split.count, path);
        s = read_later_part(f, path, i, split.count, err);
    }
    md_free(f->alloc, path);
    if (s == MD_OK && split.tensors != (int64_t)f->tensor_count)
        s = md_gguf_fail(c, 0, MD_INVALID, err, "split.tensors.count is %" PRId64 ", the parts have %zu",
                         split.tensors, f->tensor_count);
    f->part_count = (int32_t)split.count;
    return s;
}

enum md_status md_gguf_open_with(const struct md_alloc *alloc, const char *path, struct md_gguf **ret_file,
                                 struct md_err *err)
{
    struct md_gguf_cursor c;
    struct md_gguf *f = md_calloc(alloc, 1, sizeof *f);
    if (f == NULL)
        return md_fail(err, MD_NO_MEMORY, "no memory to open '%.300s'", path);
    *f = (struct md_gguf){ .alloc = alloc, .fd = -1, .part_count = 1 };
    md_arena_init(&f->names, alloc, NAMES_BYTES_MAX);
    enum md_status s = MD_OK;
    f->path = md_arena_strndup(&f->names, path, strlen(path));
    if (f->path == NULL)
        s = md_fail(err, MD_NO_MEMORY, "no memory to open '%.300s'", path);
    if (s == MD_OK)
        s = open_part(f, f->path, 0, &f->fd, &c, &f->first, err);
    if (s == MD_OK)
        s = read_other_parts(f, &c, err);
    if (s == MD_OK)
        s = md_gguf_check_tensor_names(f, err);
    if (s != MD_OK) {
        md_gguf_close(f);
        return s;
    }
    *ret_file = f;
    return MD_OK;
}

enum md_status md_gguf_open(const char *path, struct md_gguf **ret_file, struct md_err *err)
{
    return md_gguf_open_with(NULL, path, ret_file, err);
}

void md_gguf_close(struct md_gguf *f)
{
    if (f == NULL)
        return;
    const struct md_alloc *alloc = f->alloc;
    if (f->fd >= 0)
        close(f->fd);
    part_done(alloc, &f->first);
    md_free(alloc, f->tensors);
    md_arena_done(&f->names);
    md_free(alloc, f);
}

/* ---- what was found ---- */

const char *md_gguf_path(const struct md_gguf *f)
{
    return f->path;
}

uint32_t md_gguf_version(const struct md_gguf *f)
{
    return f->first.version;
}

int32_t md_gguf_part_count(const struct md_gguf *f)
{
    return f->part_count;
}

int64_t md_gguf_file_bytes(const struct md_gguf *f)
{
    return f->file_bytes;
}

uint64_t md_gguf_data_offset(const struct md_gguf *f)
{
    return f->first.data_offset;
}

uint64_t md_gguf_alignment(const struct md_gguf *f)
{
    return f->first.alignment;
}

size_t md_gguf_entry_count(const struct md_gguf *f)
{
    return f->first.entry_count;
}

const struct md_gguf_entry *md_gguf_entry_at(const struct md_gguf *f, size_t index)
{
    return &f->first.entries[index];
}

const struct md_gguf_entry *md_gguf_find(const struct md_gguf *f, const char *key)
{
    return md_gguf_part_find(&f->first, key);
}

size_t md_gguf_tensor_count(const struct md_gguf *f)
{
    return f->tensor_count;
}

const struct md_gguf_tensor *md_gguf_tensor_at(const struct md_gguf *f, size_t index)
{
    return &f->tensors[index];
}

int64_t md_gguf_tensor_bytes(const struct md_gguf *f)
{
    return f->tensor_bytes;
}
