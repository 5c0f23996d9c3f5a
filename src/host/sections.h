/* sections.h - files of typed sections: what conversations and cold KV are written to.  Knows nothing of KV.
 *
 * The bytes of a file, numbers little-endian:
 *
 *     header    8 bytes "modeldkv", u32 version of this format (1), u32 kind (the caller's: what the file is
 *               for), 16 bytes of zero
 *     sections  each: u32 type (four ASCII characters, the first one first), u32 flags (0), u64 bytes of the
 *               payload, u64 XXH3-64 of type, flags, length and payload; the payload; zeros up to a multiple
 *               of 8
 *     end       a section of type "END ", whose payload is u64 the number of sections before it, and XXH3-128
 *               of every byte before it (u64 low half, u64 high half).  Nothing follows.
 *
 * One content has one spelling: each byte is either covered by a hash or must be zero, so that a change of
 * any byte is seen.  A hash tells damage, it is no seal: whoever can write the file can write its hashes too.
 *
 * A file appears under its name whole or not at all: it is written under a temporary name in the same folder
 * and renamed.  A reader sees it whole or gets an error: everything is verified before the first section is
 * given out, and again while it is.  What a reader does not know (version, type, flag) it refuses, never skips.
 *
 * Folders are the user's: links in their path are followed.  The folder is opened once, and a file is made,
 * renamed, opened and removed relative to it.  A link that stands under a file's name is never followed: a
 * reader refuses it, a writer replaces it, md_sections_remove removes it, and what it points to is left
 * alone.
 *
 * Threads: an object belongs to one thread at a time; several may write and read in one folder, also under
 * one name (the last one that commits has it; who has a file open reads on what was there).
 * Source: rename(2), fsync(2), open(2); XXH3: xxhash.com, format of 0.8. */
#ifndef MD_HOST_SECTIONS_H
#define MD_HOST_SECTIONS_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ". NAME . 16 digits .tmp" is 22 longer, and file systems take 255 bytes. */
enum { MD_SECTIONS_NAME_BYTES = 200 };

/* MD_SECTION_TYPE('T', 'A', 'P', 'E'): in the file it reads TAPE. */
#define MD_SECTION_TYPE(a, b, c, d) \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

/* Borrowed for the call. */
struct md_sections_place {
    const char *folder; /* must exist */
    const char *name;   /* of the file in it: see md_sections_check_name */
};

/* Is this a name to store a file under?  1 to MD_SECTIONS_NAME_BYTES bytes of UTF-8, no '/', '\', NUL or other
 * control character (U+0000 to U+001F, U+007F to U+009F), no '.' in front (that is ".", "..", and our temporary
 * files).  All else is a name and stands on disk as it is given: "CON", " x ", "-rf".
 *
 * MD_INVALID   the text says which rule, and where */
MD_MUST_USE enum md_status md_sections_check_name(const char *name, size_t len, struct md_err *err);

/* ---- writing ---- */

struct md_sections_writer;

/* Begin a file.  Nothing stands under its name before md_sections_commit; its bytes go to a new file of mode
 * 0600 in the same folder, ".NAME.16 hex digits.tmp".
 *
 * alloc        outlives the writer; NULL: the C heap
 * place        copied
 * limit_bytes  the most the whole file may have, header and end included; INT64_MAX: no limit
 * ret_writer   the caller's: md_sections_commit or md_sections_abort
 *
 * MD_INVALID    the name
 * MD_TOO_LARGE  not even an empty file (80 bytes) is within the limit
 * MD_NOT_FOUND  no such folder
 * MD_NO_MEMORY; MD_IO: the folder or the temporary file cannot be opened */
MD_MUST_USE enum md_status md_sections_create(const struct md_alloc *alloc,
                                              const struct md_sections_place *place, uint32_t kind,
                                              int64_t limit_bytes, struct md_sections_writer **ret_writer,
                                              struct md_err *err);

/* Append one whole section: the parts, one behind the other (none, or empty ones: an empty section).  The
 * bytes must stand still during the call, and may go after it.
 *
 * type   four printable ASCII characters, not "END "; the same type may come more than once
 * parts  count of them; NULL when count is 0
 *
 * MD_TOO_LARGE  the file would pass its limit; nothing was written and the writer goes on
 * MD_IO         "no space left" and what to do (ENOSPC, EDQUOT, EFBIG; SIGXFSZ reaches nobody), or another
 *               failure.  The temporary file is gone; commit gives the same error, abort is still the caller's
 *               to call. */
MD_MUST_USE enum md_status md_sections_put(struct md_sections_writer *w, uint32_t type,
                                           const struct md_bytes *parts, size_t count, struct md_err *err);

/* Bytes that the whole file will have, if it ends now. */
int64_t md_sections_bytes(const struct md_sections_writer *w);

/* End the file and put it under its name, in place of what stands there.  w is gone after it, whatever comes
 * out.
 *
 * durable  it outlives a loss of power: file and folder are synced.  False: it outlives the end of this
 *          process.
 *
 * MD_IO  as md_sections_put.  The temporary file is gone, and what stood under the name stands there
 *        unchanged; but for one case, which the text names: the folder could not be synced after the
 *        renaming.  Then the new file stands under the name, whole, and only a loss of power may bring back
 *        the old one. */
MD_MUST_USE enum md_status md_sections_commit(struct md_sections_writer *w, bool durable, struct md_err *err);

/* Give it up: the temporary file goes.  (md_sections_list tells of one that cannot be removed.)  Takes NULL. */
void md_sections_abort(struct md_sections_writer *w);

/* ---- reading ---- */

struct md_sections_reader;

/* Open a file and verify all of it, in one pass through a buffer of 256 KiB.
 *
 * alloc        outlives the reader; NULL: the C heap
 * place        borrowed for the call
 * kind         what the caller can read
 * known_types  known_count of them; must outlive the reader
 * limit_bytes  larger files are refused before anything is read
 *
 * MD_NOT_FOUND    no such folder or file
 * MD_INVALID      the name; a link, a folder or another thing that is no regular file; a file of another kind
 * MD_TOO_LARGE    larger than the limit
 * MD_UNSUPPORTED  another version of the format; a section of unknown type or with flags, which is sound
 *                 otherwise
 * MD_CORRUPT      the text says what is wrong, and at which byte
 * MD_NO_MEMORY, MD_IO */
MD_MUST_USE enum md_status md_sections_open(const struct md_alloc *alloc,
                                            const struct md_sections_place *place, uint32_t kind,
                                            const uint32_t *known_types, size_t known_count,
                                            int64_t limit_bytes, struct md_sections_reader **ret_reader,
                                            struct md_err *err);

/* The same without the pass over all of it: header and end are checked, each section when its last byte is read (or read
 * over by md_sections_next), the file as a whole when there is no section left.  For files of which one wants the
 * beginning, or that one reads once and can do without. */
MD_MUST_USE enum md_status md_sections_open_as_read(const struct md_alloc *alloc,
                                                    const struct md_sections_place *place, uint32_t kind,
                                                    const uint32_t *known_types, size_t known_count,
                                                    int64_t limit_bytes,
                                                    struct md_sections_reader **ret_reader,
                                                    struct md_err *err);

/* The pass that md_sections_open makes, of a file that was opened as read: the errors of both are the same then.  The reader
 * stands before the first section again, whatever comes out.
 *
 * cancelled     polled before each section; NULL: never
 * MD_CANCELLED  it said so; the file may be sound or not */
MD_MUST_USE enum md_status md_sections_verify(struct md_sections_reader *r, bool (*cancelled)(void *user),
                                              void *user, struct md_err *err);

/* Go to the next section, in the order of the file; the first call goes to the first one.  What was not read
 * of the one before is read over, and verified.
 *
 * ret_type   0: there is none left, and the file is still the one that was verified
 * ret_bytes  of its payload; never more than the file has, so within limit_bytes.  Until its last byte is
 *            read it is as unverified as the payload.
 *
 * MD_CORRUPT  the file has changed since it was opened      MD_IO
 * State: after a failure next and read give the same one, until md_sections_rewind. */
MD_MUST_USE enum md_status md_sections_next(struct md_sections_reader *r, uint32_t *ret_type,
                                            int64_t *ret_bytes, struct md_err *err);

/* The next n bytes of this section's payload.  The call that takes the last one verifies the section a second
 * time: what the calls before it gave holds only when that one returns MD_OK (an empty section: when the
 * following md_sections_next does).
 *
 * MD_CORRUPT  fewer than n are left: nothing was read, and the reader goes on; or as md_sections_next
 * MD_IO */
MD_MUST_USE enum md_status md_sections_read(struct md_sections_reader *r, void *out, size_t n,
                                            struct md_err *err);

/* Of the whole file. */
int64_t md_sections_file_bytes(const struct md_sections_reader *r);

/* Back to before the first section. */
void md_sections_rewind(struct md_sections_reader *r);
void md_sections_close(struct md_sections_reader *r); /* takes NULL */

/* ---- folders ---- */

struct md_sections_file {
    const char *name; /* borrowed for the callback */
    int64_t bytes, mtime_ns;
    bool is_temporary; /* of a writer, or left behind by one that was killed: no reader opens it */
};

/* Call each(user, file) for the regular files of a folder whose names we would give, temporary ones included,
 * until it returns false.  No order.  It may remove the file it is called with.  Links, folders and other
 * names are left out; nothing is opened, so a listed file may be anything.
 *
 * MD_NOT_FOUND  no such folder      MD_IO: cannot be read; some files may have been listed */
MD_MUST_USE enum md_status md_sections_list(const char *folder,
                                            bool (*each)(void *user, const struct md_sections_file *file),
                                            void *user, struct md_err *err);

/* Remove a file, or a temporary one by its name from md_sections_list.  Not synced: a loss of power may bring
 * it back.
 *
 * MD_INVALID  the name      MD_NOT_FOUND  no such folder or file      MD_IO */
MD_MUST_USE enum md_status md_sections_remove(const struct md_sections_place *place, struct md_err *err);

#endif
