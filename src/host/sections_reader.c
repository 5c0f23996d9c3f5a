/* sections_reader.c - reads a file of sections that nobody trusts; see sections.h.
 *
 * One walk does both passes: opening goes through the file with it and reads over every payload, the caller
 * goes through it again.  r->at is the next byte that is neither given out nor hashed; it never passes
 * r->end_at, where the end section begins.  Lengths are compared with what is left before they are added to
 * anything. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "host/sections_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10 };

struct md_sections_reader {
    const struct md_alloc *alloc;
    void *block;
    int fd;
    const uint32_t *known_types;
    size_t known_count;
    struct md_sections_path path;
    struct md_err failure;
    int64_t end_at, at;
    uint64_t count; /* sections begun */

    /* the section at hand */
    bool inside; /* not verified yet */
    uint32_t type, flags;
    int64_t begin_at, left; /* bytes of its payload that are not taken yet */
    int pad;
    uint64_t wanted;

    XXH3_state_t whole, section;
    uint8_t header[MD_SECTIONS_HEADER_BYTES]; /* as it was when the file was opened; not read again */
    uint8_t end[MD_SECTIONS_END_BYTES];       /* likewise; compared at the end of each pass */
    size_t ahead, buffered; /* the last `ahead` bytes of those in the buffer are the file's from `at` on */
    uint8_t buffer[BUFFER_BYTES];
};

/* ---- bytes ---- */

/* Up to `most` bytes from `at`, at least one. */
static enum md_status read_some(const struct md_sections_reader *r, int64_t at, void *out, size_t most,
                                size_t *ret_got, struct md_err *err)
{
    const ssize_t n = TEMP_FAILURE_RETRY(pread(r->fd, out, most, at));
    if (n < 0)
        return md_fail(err, MD_IO, "read '%s': %s", r->path.text, strerror(errno));
    if (n == 0)
        return md_fail(err, MD_CORRUPT, "'%s' is damaged: it has become shorter and ends at byte %" PRId64,
                       r->path.text, at);
    *ret_got = (size_t)n;
    return MD_OK;
}

static enum md_status read_at(const struct md_sections_reader *r, int64_t at, uint8_t *out, size_t len,
                              struct md_err *err)
{
    enum md_status s = MD_OK;
    for (size_t got = 0; s == MD_OK && len > 0; at += (int64_t)got, out += got, len -= got)
        s = read_some(r, at, out, len, &got, err);
    return s;
}

/* The next bytes, at most n of them, as they are at hand: in `to` when n is large, else in the buffer. */
static enum md_status bring(struct md_sections_reader *r, uint8_t *to, int64_t n, const uint8_t **ret_from,
                            size_t *ret_bytes, struct md_err *err)
{
    if (r->ahead == 0 && to != NULL && n >= BUFFER_BYTES) {
        *ret_from = to;
        return read_some(r, r->at, to, BUFFER_BYTES, ret_bytes, err);
    }
    if (r->ahead == 0) {
        const int64_t rest = r->end_at + MD_SECTIONS_END_BYTES - r->at;
        const size_t most = rest < BUFFER_BYTES ? (size_t)rest : BUFFER_BYTES;
        enum md_status s = read_some(r, r->at, r->buffer, most, &r->buffered, err);
        if (s != MD_OK)
            return s;
        r->ahead = r->buffered;
    }
    *ret_from = r->buffer + r->buffered - r->ahead;
    *ret_bytes = (int64_t)r->ahead < n ? r->ahead : (size_t)n;
    r->ahead -= *ret_bytes;
    if (to != NULL)
        memcpy(to, *ret_from, *ret_bytes);
    return MD_OK;
}

/* Take the next n bytes of the file: into `out` (NULL: nowhere), the hash of the file, and that of the
 * section. */
static enum md_status take(struct md_sections_reader *r, void *out, int64_t n, bool in_section,
                           struct md_err *err)
{
    uint8_t *to = out;
    while (n > 0) {
        const uint8_t *from;
        size_t bytes;
        enum md_status s = bring(r, to, n, &from, &bytes, err);
        if (s != MD_OK)
            return s;
        XXH3_128bits_update(&r->whole, from, bytes);
        if (in_section)
            XXH3_64bits_update(&r->section, from, bytes);
        r->at += (int64_t)bytes;
        n -= (int64_t)bytes;
        to = to == NULL ? NULL : to + bytes;
    }
    return MD_OK;
}

/* ---- sections ---- */

static bool is_known(const struct md_sections_reader *r, uint32_t type)
{
    for (size_t i = 0; i < r->known_count; i++)
        if (r->known_types[i] == type)
            return true;
    return false;
}

/* After the last byte of the payload: what was taken counts only from here on.  A type or flags that nobody
 * knows are a newer version's where the hash is right, and damage where it is not. */
static enum md_status finish_section(struct md_sections_reader *r, struct md_err *err)
{
    const struct md_sections_type_text type = md_sections_type_text(r->type);
    uint8_t pad[MD_SECTIONS_ALIGN] = { 0 };
    assert(r->left == 0);
    enum md_status s = take(r, pad, r->pad, false, err);
    if (s != MD_OK)
        return s;
    r->inside = false;
    if (XXH3_64bits_digest(&r->section) != r->wanted)
        return md_fail(err, MD_CORRUPT, "'%s' is damaged: section %s at byte %" PRId64 " fails its checksum",
                       r->path.text, type.text, r->begin_at);
    if (md_le_load(pad, sizeof pad) != 0)
        return md_fail(err, MD_CORRUPT,
                       "'%s' is damaged: section %s ends with other bytes than 0 before byte %" PRId64,
                       r->path.text, type.text, r->at);
    if (r->type == MD_SECTIONS_TYPE_END)
        return md_fail(err, MD_CORRUPT, "'%s' is damaged: it has an end at byte %" PRId64 " and goes on",
                       r->path.text, r->begin_at);
    if (!is_known(r, r->type))
        return md_fail(err, MD_UNSUPPORTED,
                       "'%s' has a section %s at byte %" PRId64 ", which this version does not know",
                       r->path.text, type.text, r->begin_at);
    if (r->flags != 0)
        return md_fail(err, MD_UNSUPPORTED,
                       "'%s': section %s at byte %" PRId64
                       " has flags 0x%x, which this version does not know",
                       r->path.text, type.text, r->begin_at, r->flags);
    return MD_OK;
}

/* All sections are read: is it what the end section says, and still the same end section? */
static enum md_status finish_file(struct md_sections_reader *r, struct md_err *err)
{
    const XXH128_hash_t hash = XXH3_128bits_digest(&r->whole);
    const uint8_t *says = r->end + MD_SECTIONS_HEAD_BYTES;
    uint8_t end[MD_SECTIONS_END_BYTES];
    const uint64_t count = md_le_load(says, 8);
    if (count != r->count)
        return md_fail(err, MD_CORRUPT,
                       "'%s' is damaged: it has %" PRIu64 " sections, %" PRIu64
                       " by its end at byte %" PRId64,
                       r->path.text, r->count, count, r->end_at);
    if (md_le_load(says + 8, 8) != hash.low64 || md_le_load(says + 16, 8) != hash.high64)
        return md_fail(err, MD_CORRUPT,
                       "'%s' is damaged: the bytes before its end at byte %" PRId64 " fail their checksum",
                       r->path.text, r->end_at);
    enum md_status s = read_at(r, r->end_at, end, sizeof end, err);
    if (s == MD_OK && memcmp(end, r->end, sizeof end) != 0)
        return md_fail(err, MD_CORRUPT, "'%s' has changed since it was opened, at byte %" PRId64,
                       r->path.text, r->end_at);
    return s;
}

/* Whatever is left of the section before, then the head of the next one.  !r->inside: there is none. */
static enum md_status go_on(struct md_sections_reader *r, struct md_err *err)
{
    uint8_t head[MD_SECTIONS_HEAD_BYTES];
    enum md_status s = take(r, NULL, r->left, true, err);
    r->left = 0;
    if (s == MD_OK && r->inside)
        s = finish_section(r, err);
    if (s != MD_OK)
        return s;
    r->type = 0;
    if (r->at == r->end_at)
        return finish_file(r, err);
    const int64_t rest = r->end_at - r->at - MD_SECTIONS_HEAD_BYTES;
    if (rest < 0)
        return md_fail(err, MD_CORRUPT,
                       "'%s' is damaged: no section fits between byte %" PRId64 " and its end at %" PRId64,
                       r->path.text, r->at, r->end_at);
    r->begin_at = r->at;
    XXH3_64bits_reset(&r->section);
    s = take(r, head, MD_SECTIONS_HASHED_HEAD_BYTES, true, err);
    if (s == MD_OK)
        s = take(r, head + MD_SECTIONS_HASHED_HEAD_BYTES, sizeof head - MD_SECTIONS_HASHED_HEAD_BYTES, false,
                 err);
    if (s != MD_OK)
        return s;
    const uint64_t bytes = md_le_load(head + 8, 8);
    if (bytes > (uint64_t)rest)
        return md_fail(err, MD_CORRUPT,
                       "'%s' is damaged: the section at byte %" PRId64 " says %" PRIu64 " bytes, %" PRId64
                       " are left",
                       r->path.text, r->begin_at, bytes, rest);
    r->type = (uint32_t)md_le_load(head, 4);
    r->flags = (uint32_t)md_le_load(head + 4, 4);
    r->left = (int64_t)bytes;
    r->pad = (int)(-bytes & (MD_SECTIONS_ALIGN - 1));
    r->wanted = md_le_load(head + MD_SECTIONS_HASHED_HEAD_BYTES, 8);
    r->inside = true;
    r->count++;
    return MD_OK;
}

/* ---- opening ---- */

static enum md_status check_header(const struct md_sections_reader *r, uint32_t kind, struct md_err *err)
{
    const uint64_t version = md_le_load(r->header + MD_SECTIONS_VERSION_AT, 4);
    const uint64_t has = md_le_load(r->header + MD_SECTIONS_KIND_AT, 4);
    if (memcmp(r->header, MD_SECTIONS_MAGIC, MD_SECTIONS_VERSION_AT) != 0)
        return md_fail(err, MD_CORRUPT, "'%s' is damaged, or no file of modeld: byte 0 on is not \"%s\"",
                       r->path.text, MD_SECTIONS_MAGIC);
    if (version != MD_SECTIONS_VERSION)
        return md_fail(err, MD_UNSUPPORTED,
                       "'%s' has version %" PRIu64 " of its format, this program reads version %d",
                       r->path.text, version, MD_SECTIONS_VERSION);
    if (has != kind)
        return md_fail(err, MD_INVALID, "'%s' is a file of kind %" PRIu64 ", not %" PRIu32, r->path.text, has,
                       kind);
    for (int i = MD_SECTIONS_RESERVED_AT; i < MD_SECTIONS_HEADER_BYTES; i++)
        if (r->header[i] != 0)
            return md_fail(err, MD_CORRUPT, "'%s' is damaged: byte %d is not 0", r->path.text, i);
    return MD_OK;
}

/* Looked at before all the rest: a file that was cut, or is long and empty, is not read to be refused. */
static enum md_status check_end(const struct md_sections_reader *r, struct md_err *err)
{
    uint8_t bytes[MD_SECTIONS_END_BYTES]; /* what is in the hash, without the hash */
    const size_t payload_bytes = MD_SECTIONS_END_BYTES - MD_SECTIONS_HEAD_BYTES;
    memcpy(bytes, r->end, MD_SECTIONS_HASHED_HEAD_BYTES);
    memcpy(bytes + MD_SECTIONS_HASHED_HEAD_BYTES, r->end + MD_SECTIONS_HEAD_BYTES, payload_bytes);
    if (md_le_load(r->end, 4) != MD_SECTIONS_TYPE_END || md_le_load(r->end + 4, 4) != 0 ||
        md_le_load(r->end + 8, 8) != payload_bytes ||
        md_le_load(r->end + MD_SECTIONS_HASHED_HEAD_BYTES, 8) !=
            XXH3_64bits(bytes, MD_SECTIONS_HASHED_HEAD_BYTES + payload_bytes))
        return md_fail(err, MD_CORRUPT,
                       "'%s' is damaged: at byte %" PRId64
                       " there is no end; it was cut, or something was added",
                       r->path.text, r->end_at);
    return MD_OK;
}

/* The first pass.  Every check of the second one is made here, and what it finds is no change but damage. */
enum md_status md_sections_verify(struct md_sections_reader *r, bool (*cancelled)(void *user), void *user,
                                  struct md_err *err)
{
    enum md_status s = MD_OK;
    md_sections_rewind(r);
    do {
        if (cancelled != NULL && cancelled(user))
            s = md_fail(err, MD_CANCELLED, "cancelled by the client");
        else
            s = go_on(r, err);
    } while (s == MD_OK && r->inside);
    md_sections_rewind(r);
    return s;
}

/* whole  false: only what tells that this is such a file, and ends as one */
static enum md_status verify(struct md_sections_reader *r, uint32_t kind, int64_t bytes, bool whole,
                             struct md_err *err)
{
    size_t head = bytes < MD_SECTIONS_HEADER_BYTES ? (size_t)bytes : MD_SECTIONS_HEADER_BYTES;
    enum md_status s = read_at(r, 0, r->header, head, err);
    if (s == MD_OK && head == MD_SECTIONS_HEADER_BYTES)
        s = check_header(r, kind, err);
    if (s != MD_OK)
        return s;
    if (bytes < MD_SECTIONS_HEADER_BYTES + MD_SECTIONS_END_BYTES || bytes % MD_SECTIONS_ALIGN != 0)
        return md_fail(err, MD_CORRUPT, "'%s' is damaged: it ends at byte %" PRId64 ", where no file can end",
                       r->path.text, bytes);
    r->end_at = bytes - MD_SECTIONS_END_BYTES;
    s = read_at(r, r->end_at, r->end, sizeof r->end, err);
    if (s == MD_OK)
        s = check_end(r, err);
    if (s != MD_OK)
        return s;
    md_sections_rewind(r);
    return whole ? md_sections_verify(r, NULL, NULL, err) : MD_OK;
}

static void closep(struct md_sections_reader **r)
{
    md_sections_close(*r);
}

static enum md_status open_fd(const struct md_alloc *alloc, int fd, const struct md_sections_path *path,
                              uint32_t kind, const uint32_t *known_types, size_t known_count,
                              int64_t limit_bytes, bool whole, struct md_sections_reader **ret_reader,
                              struct md_err *err)
{
    struct stat st;
    void *block = NULL;
    enum md_status s = MD_OK;
    if (fstat(fd, &st) != 0)
        s = md_fail(err, MD_IO, "read '%s': %s", path->text, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        s = md_fail(err, MD_INVALID, "'%s' is no regular file", path->text);
    else if (st.st_size > limit_bytes)
        s = md_fail(err, MD_TOO_LARGE, "'%s' has %" PRId64 " bytes, at most %" PRId64 " are read", path->text,
                    (int64_t)st.st_size, limit_bytes);
    struct md_sections_reader *r MD_CLEANUP(closep) =
        s == MD_OK ? md_sections_object(alloc, sizeof *r, &block) : NULL;
    if (s == MD_OK && r == NULL)
        s = md_fail(err, MD_NO_MEMORY, "no memory to read '%s'", path->text);
    if (s != MD_OK) {
        close(fd);
        return s;
    }
    r->alloc = alloc;
    r->block = block;
    r->fd = fd;
    r->known_types = known_types;
    r->known_count = known_count;
    r->path = *path;
    s = verify(r, kind, st.st_size, whole, err);
    if (s == MD_OK)
        *ret_reader = MD_TAKE(r);
    return s;
}

enum md_status md_sections_open_fd(const struct md_alloc *alloc, int fd, const struct md_sections_path *path,
                                   uint32_t kind, const uint32_t *known_types, size_t known_count,
                                   int64_t limit_bytes, struct md_sections_reader **ret_reader,
                                   struct md_err *err)
{
    return open_fd(alloc, fd, path, kind, known_types, known_count, limit_bytes, true, ret_reader, err);
}

static enum md_status open_place(const struct md_alloc *alloc, const struct md_sections_place *place,
                                 uint32_t kind, const uint32_t *known_types, size_t known_count,
                                 int64_t limit_bytes, bool whole, struct md_sections_reader **ret_reader,
                                 struct md_err *err)
{
    struct md_sections_path path;
    struct stat st;
    int folder;
    enum md_status s = md_sections_check_name(place->name, strlen(place->name), err);
    if (s == MD_OK)
        s = md_sections_open_folder(place->folder, &folder, err);
    if (s != MD_OK)
        return s;
    md_sections_path_init(&path, place);
    /* Asked first, because opening a device can do things; what was opened is asked again. */
    int fd = -1, error = 0;
    if (fstatat(folder, place->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        error = errno;
    else if (S_ISLNK(st.st_mode))
        error = ELOOP;
    else if (!S_ISREG(st.st_mode))
        s = md_fail(err, MD_INVALID, "'%s' is no regular file", path.text);
    if (s == MD_OK && error == 0) {
        fd = (int)TEMP_FAILURE_RETRY(
            openat(folder, place->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
        error = fd < 0 ? errno : 0;
    }
    close(folder);
    if (error == ELOOP)
        s = md_fail(err, MD_INVALID, "'%s' is a link: links are not followed", path.text);
    else if (error != 0)
        s = md_fail(err, error == ENOENT ? MD_NOT_FOUND : MD_IO, "open '%s': %s", path.text, strerror(error));
    return s != MD_OK ? s
                      : open_fd(alloc, fd, &path, kind, known_types, known_count, limit_bytes, whole,
                                ret_reader, err);
}

enum md_status md_sections_open(const struct md_alloc *alloc, const struct md_sections_place *place,
                                uint32_t kind, const uint32_t *known_types, size_t known_count,
                                int64_t limit_bytes, struct md_sections_reader **ret_reader,
                                struct md_err *err)
{
    return open_place(alloc, place, kind, known_types, known_count, limit_bytes, true, ret_reader, err);
}

enum md_status md_sections_open_as_read(const struct md_alloc *alloc, const struct md_sections_place *place,
                                        uint32_t kind, const uint32_t *known_types, size_t known_count,
                                        int64_t limit_bytes, struct md_sections_reader **ret_reader,
                                        struct md_err *err)
{
    return open_place(alloc, place, kind, known_types, known_count, limit_bytes, false, ret_reader, err);
}

/* ---- the second pass ---- */

/* What was taken after a failure would not be what the hashes stand for, so that it stays one. */
static enum md_status fail_from_here(struct md_sections_reader *r, const struct md_err *why,
                                     struct md_err *err)
{
    r->failure = *why;
    if (err != NULL)
        *err = *why;
    return why->status;
}

enum md_status md_sections_next(struct md_sections_reader *r, uint32_t *ret_type, int64_t *ret_bytes,
                                struct md_err *err)
{
    struct md_err why = r->failure;
    if (why.status == MD_OK && go_on(r, &why) == MD_OK && r->inside &&
        (!is_known(r, r->type) || r->flags != 0))
        md_fail(&why, MD_CORRUPT, "'%s' has changed since it was opened, at byte %" PRId64, r->path.text,
                r->begin_at);
    if (why.status != MD_OK)
        return fail_from_here(r, &why, err);
    *ret_type = r->inside ? r->type : 0;
    *ret_bytes = r->inside ? r->left : 0;
    return MD_OK;
}

enum md_status md_sections_read(struct md_sections_reader *r, void *out, size_t n, struct md_err *err)
{
    struct md_err why = r->failure;
    assert(r->count > 0 || n == 0 || why.status != MD_OK); /* md_sections_next comes first */
    if (why.status == MD_OK && n > (uint64_t)r->left)
        return md_fail(err, MD_CORRUPT,
                       "'%s': section %s at byte %" PRId64 " has %" PRId64 " bytes left, %zu were to be read",
                       r->path.text, md_sections_type_text(r->type).text, r->begin_at, r->left, n);
    if (why.status == MD_OK && take(r, out, (int64_t)n, true, &why) == MD_OK) {
        r->left -= (int64_t)n;
        if (r->left == 0 && r->inside)
            (void)finish_section(r, &why);
    }
    return why.status == MD_OK ? MD_OK : fail_from_here(r, &why, err);
}

int64_t md_sections_file_bytes(const struct md_sections_reader *r)
{
    return r->end_at + MD_SECTIONS_END_BYTES;
}

void md_sections_rewind(struct md_sections_reader *r)
{
    r->failure.status = MD_OK;
    r->at = MD_SECTIONS_HEADER_BYTES;
    r->count = 0;
    r->inside = false;
    r->left = 0;
    r->ahead = 0;
    XXH3_128bits_reset(&r->whole);
    XXH3_128bits_update(&r->whole, r->header, sizeof r->header);
}

void md_sections_close(struct md_sections_reader *r)
{
    if (r == NULL)
        return;
    close(r->fd);
    md_free(r->alloc, r->block);
}
