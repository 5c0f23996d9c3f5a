/* sections_writer.c - writes a file of sections beside its name and renames it; see sections.h.
 *
 * While there is a temporary file, w->fd is open; a writer that failed has neither, and keeps its first
 * error. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "host/sections_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 64 << 10, /* small sections share a write; larger parts go past it */
    NAMES_TRIED = 8,         /* 64 random bits each: a second try is rare, a third means something is wrong */
};

struct md_sections_writer {
    const struct md_alloc *alloc;
    void *block;
    int folder, fd;
    int64_t limit_bytes, at; /* bytes of the file so far, those in the buffer included */
    uint64_t count;
    struct md_err failure;
    struct md_sections_path path;
    char name[MD_SECTIONS_NAME_BYTES + 1];
    char temporary[MD_SECTIONS_TEMPORARY_BYTES + 1];
    XXH3_state_t whole;
    size_t held;
    uint8_t buffer[BUFFER_BYTES];
};

/* ---- failures ---- */

/* Remove the temporary file, which may be all the space there is. */
static void drop_temporary(struct md_sections_writer *w)
{
    if (w->fd < 0)
        return;
    close(w->fd);
    w->fd = -1;
    unlinkat(w->folder, w->temporary, 0);
}

static enum md_status give_up(struct md_sections_writer *w, const char *doing, int error, struct md_err *err)
{
    const char *advice = NULL;
    if (error == ENOSPC)
        advice = "free some space, or choose a folder on another disk";
    else if (error == EDQUOT)
        advice = "this user's quota is used up";
    else if (error == EFBIG)
        advice = "files may not grow that large (ulimit -f, or the file system)";
    if (advice != NULL)
        md_fail(&w->failure, MD_IO, "%s '%s': no space left: %s", doing, w->path.text, advice);
    else
        md_fail(&w->failure, MD_IO, "%s '%s': %s", doing, w->path.text, strerror(error));
    drop_temporary(w);
    if (err != NULL)
        *err = w->failure;
    return MD_IO;
}

static enum md_status failed_before(const struct md_sections_writer *w, struct md_err *err)
{
    if (err != NULL && w->failure.status != MD_OK)
        *err = w->failure;
    return w->failure.status;
}

/* ---- bytes ---- */

/* A write past RLIMIT_FSIZE raises SIGXFSZ in this thread, which would end the process.  It is held back
 * during the write and taken away if the write raised it; whether and how others handle it stays theirs. */
static ssize_t write_unsignalled(int fd, const void *data, size_t len)
{
    static const struct timespec at_once = { 0, 0 };
    sigset_t xfsz, before, pending;
    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &xfsz, &before);
    const ssize_t n = TEMP_FAILURE_RETRY(write(fd, data, len));
    const int error = errno;
    if (n < 0 && error == EFBIG && !sigismember(&pending, SIGXFSZ))
        (void)TEMP_FAILURE_RETRY(sigtimedwait(&xfsz, NULL, &at_once));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return n;
}

static enum md_status write_out(struct md_sections_writer *w, const uint8_t *data, size_t len,
                                struct md_err *err)
{
    while (len > 0) {
        const ssize_t n = write_unsignalled(w->fd, data, len);
        if (n <= 0)
            return give_up(w, "write", n < 0 ? errno : EIO, err);
        data += n;
        len -= (size_t)n;
    }
    return MD_OK;
}

static enum md_status flush(struct md_sections_writer *w, struct md_err *err)
{
    const size_t held = w->held;
    w->held = 0;
    return write_out(w, w->buffer, held, err);
}

/* The next bytes of the file. */
static enum md_status emit(struct md_sections_writer *w, const void *data, size_t len, struct md_err *err)
{
    enum md_status s = MD_OK;
    if (len == 0)
        return MD_OK; /* data may be NULL */
    XXH3_128bits_update(&w->whole, data, len);
    w->at += (int64_t)len;
    if (len > BUFFER_BYTES - w->held)
        s = flush(w, err);
    if (s == MD_OK && len >= BUFFER_BYTES)
        return write_out(w, data, len, err);
    if (s == MD_OK) {
        memcpy(w->buffer + w->held, data, len);
        w->held += len;
    }
    return s;
}

/* ---- sections ---- */

/* Of a section's payload; false: more than can be counted. */
static bool add_up(const struct md_bytes *parts, size_t count, int64_t *ret_bytes)
{
    *ret_bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(*ret_bytes, parts[i].len, ret_bytes))
            return false;
    return true;
}

static enum md_status emit_section(struct md_sections_writer *w, uint32_t type, const struct md_bytes *parts,
                                   size_t count, int64_t bytes, struct md_err *err)
{
    static const uint8_t zeros[MD_SECTIONS_ALIGN];
    uint8_t head[MD_SECTIONS_HEAD_BYTES];
    XXH3_state_t hash;
    md_le_store(head, type, 4);
    md_le_store(head + 4, 0, 4);
    md_le_store(head + 8, (uint64_t)bytes, 8);
    XXH3_64bits_reset(&hash);
    XXH3_64bits_update(&hash, head, MD_SECTIONS_HASHED_HEAD_BYTES);
    for (size_t i = 0; i < count; i++)
        if (parts[i].len > 0)
            XXH3_64bits_update(&hash, parts[i].data, parts[i].len);
    md_le_store(head + MD_SECTIONS_HASHED_HEAD_BYTES, XXH3_64bits_digest(&hash), 8);
    enum md_status s = emit(w, head, sizeof head, err);
    for (size_t i = 0; i < count && s == MD_OK; i++)
        s = emit(w, parts[i].data, parts[i].len, err);
    return s == MD_OK ? emit(w, zeros, (size_t)(-bytes & (MD_SECTIONS_ALIGN - 1)), err) : s;
}

enum md_status md_sections_put(struct md_sections_writer *w, uint32_t type, const struct md_bytes *parts,
                               size_t count, struct md_err *err)
{
    assert(md_sections_type_is_text(type) && type != MD_SECTIONS_TYPE_END);
    assert(parts != NULL || count == 0);
    if (failed_before(w, err) != MD_OK)
        return w->failure.status;
    const int64_t around = MD_SECTIONS_HEAD_BYTES + MD_SECTIONS_ALIGN - 1 + MD_SECTIONS_END_BYTES;
    const int64_t room = w->limit_bytes - w->at - MD_SECTIONS_HEAD_BYTES - MD_SECTIONS_END_BYTES;
    int64_t bytes;
    if (!add_up(parts, count, &bytes) || bytes > INT64_MAX - w->at - around)
        return md_fail(err, MD_TOO_LARGE, "'%s' would have more bytes than can be counted", w->path.text);
    const int64_t padded = bytes + (-bytes & (MD_SECTIONS_ALIGN - 1));
    if (padded > room)
        return md_fail(err, MD_TOO_LARGE,
                       "'%s' would have %" PRId64 " bytes, at most %" PRId64 " are allowed", w->path.text,
                       w->limit_bytes - room + padded, w->limit_bytes);
    enum md_status s = emit_section(w, type, parts, count, bytes, err);
    w->count += s == MD_OK;
    return s;
}

static enum md_status emit_end(struct md_sections_writer *w, struct md_err *err)
{
    uint8_t payload[MD_SECTIONS_END_BYTES - MD_SECTIONS_HEAD_BYTES];
    const XXH128_hash_t hash = XXH3_128bits_digest(&w->whole);
    md_le_store(payload, w->count, 8);
    md_le_store(payload + 8, hash.low64, 8);
    md_le_store(payload + 16, hash.high64, 8);
    const struct md_bytes part = { payload, sizeof payload };
    return emit_section(w, MD_SECTIONS_TYPE_END, &part, 1, sizeof payload, err);
}

/* ---- life ---- */

static enum md_status open_temporary(struct md_sections_writer *w, struct md_err *err)
{
    for (int i = 0; i < NAMES_TRIED && w->fd < 0; i++) {
        uint64_t random;
        if (TEMP_FAILURE_RETRY(getrandom(&random, sizeof random, 0)) != sizeof random)
            return md_fail(err, MD_IO, "a random number for '%s': %s", w->path.text, strerror(errno));
        snprintf(w->temporary, sizeof w->temporary, ".%s.%016" PRIx64 ".tmp", w->name, random);
        w->fd = (int)TEMP_FAILURE_RETRY(
            openat(w->folder, w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
        if (w->fd < 0 && errno != EEXIST)
            break;
    }
    return w->fd >= 0 ? MD_OK : give_up(w, "make a file for", errno, err);
}

static void abortp(struct md_sections_writer **w)
{
    md_sections_abort(*w);
}

enum md_status md_sections_create(const struct md_alloc *alloc, const struct md_sections_place *place,
                                  uint32_t kind, int64_t limit_bytes, struct md_sections_writer **ret_writer,
                                  struct md_err *err)
{
    const int64_t least = MD_SECTIONS_HEADER_BYTES + MD_SECTIONS_END_BYTES;
    uint8_t header[MD_SECTIONS_HEADER_BYTES] = MD_SECTIONS_MAGIC;
    void *block;
    enum md_status s = md_sections_check_name(place->name, strlen(place->name), err);
    if (s != MD_OK)
        return s;
    if (limit_bytes < least)
        return md_fail(err, MD_TOO_LARGE,
                       "'%s' would have %" PRId64 " bytes, at most %" PRId64 " are allowed", place->name,
                       least, limit_bytes);
    struct md_sections_writer *w MD_CLEANUP(abortp) = md_sections_object(alloc, sizeof *w, &block);
    if (w == NULL)
        return md_fail(err, MD_NO_MEMORY, "no memory to write '%s'", place->name);
    w->alloc = alloc;
    w->block = block;
    w->folder = w->fd = -1;
    w->limit_bytes = limit_bytes;
    md_sections_path_init(&w->path, place);
    snprintf(w->name, sizeof w->name, "%s", place->name);
    XXH3_128bits_reset(&w->whole);
    md_le_store(header + MD_SECTIONS_VERSION_AT, MD_SECTIONS_VERSION, 4);
    md_le_store(header + MD_SECTIONS_KIND_AT, kind, 4);
    s = md_sections_open_folder(place->folder, &w->folder, err);
    if (s == MD_OK)
        s = open_temporary(w, err);
    if (s == MD_OK)
        s = emit(w, header, sizeof header, err);
    if (s == MD_OK)
        *ret_writer = MD_TAKE(w);
    return s;
}

/* From here the file is as the disk will have it, or the temporary one is gone. */
static enum md_status put_in_place(struct md_sections_writer *w, bool durable, struct md_err *err)
{
    if (durable && TEMP_FAILURE_RETRY(fdatasync(w->fd)) != 0)
        return give_up(w, "write", errno, err);
    /* A file system in the network may say only now that there was no space.  The descriptor is gone in any
     * case. */
    const int error = close(w->fd) != 0 && errno != EINTR ? errno : 0;
    w->fd = -1;
    if (error == 0 && renameat(w->folder, w->temporary, w->folder, w->name) == 0) {
        if (!durable || TEMP_FAILURE_RETRY(fsync(w->folder)) == 0)
            return MD_OK;
        return md_fail(err, MD_IO,
                       "sync the folder of '%s': %s; the file is there, but may be lost with the power",
                       w->path.text, strerror(errno));
    }
    const int why = error != 0 ? error : errno;
    unlinkat(w->folder, w->temporary, 0);
    return give_up(w, error != 0 ? "write" : "put in place", why, err);
}

int64_t md_sections_bytes(const struct md_sections_writer *w)
{
    return w->at + MD_SECTIONS_END_BYTES;
}

enum md_status md_sections_commit(struct md_sections_writer *w, bool durable, struct md_err *err)
{
    enum md_status s = failed_before(w, err);
    if (s == MD_OK)
        s = emit_end(w, err);
    if (s == MD_OK)
        s = flush(w, err);
    if (s == MD_OK)
        s = put_in_place(w, durable, err);
    md_sections_abort(w);
    return s;
}

void md_sections_abort(struct md_sections_writer *w)
{
    if (w == NULL)
        return;
    drop_temporary(w);
    if (w->folder >= 0)
        close(w->folder);
    md_free(w->alloc, w->block);
}
