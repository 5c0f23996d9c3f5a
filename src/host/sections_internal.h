/* sections_internal.h - what sections.c, its writer and its reader share: the format's numbers, and where a
 * file lies.  No one else includes it but tests that have the bytes of a file and no folder. */
#ifndef MD_HOST_SECTIONS_INTERNAL_H
#define MD_HOST_SECTIONS_INTERNAL_H

#include "base/le.h"
#include "host/sections.h"

#include <sys/types.h>

_Static_assert(sizeof(off_t) == 8, "files are larger than 2 GiB");

/* As sections.h describes it. */
#define MD_SECTIONS_MAGIC "modeldkv"
enum {
    MD_SECTIONS_VERSION = 1,
    MD_SECTIONS_ALIGN = 8,
    MD_SECTIONS_HEADER_BYTES = 32,
    MD_SECTIONS_VERSION_AT = 8,
    MD_SECTIONS_KIND_AT = 12,
    MD_SECTIONS_RESERVED_AT = 16,
    MD_SECTIONS_HEAD_BYTES =
        24, /* of a section, before its payload; its hash comes last and is not in the hash */
    MD_SECTIONS_HASHED_HEAD_BYTES = 16,
    MD_SECTIONS_END_BYTES = MD_SECTIONS_HEAD_BYTES + 24,
};
#define MD_SECTIONS_TYPE_END MD_SECTION_TYPE('E', 'N', 'D', ' ')

/* A section's type for people: 'TAPE', or a number where that is no text. */
struct md_sections_type_text {
    char text[16];
};
struct md_sections_type_text md_sections_type_text(uint32_t type);
bool md_sections_type_is_text(uint32_t type);

/* FOLDER/NAME for error texts, of a long folder its end, so that both and a sentence fit into struct md_err. */
struct md_sections_path {
    char text[8 + 150 + MD_SECTIONS_NAME_BYTES];
};
void md_sections_path_init(struct md_sections_path *p, const struct md_sections_place *place);

/* Its descriptor, for openat and its like.  MD_NOT_FOUND, MD_IO. */
MD_MUST_USE enum md_status md_sections_open_folder(const char *folder, int *ret_fd, struct md_err *err);

/* Room for the name of a temporary file, and whether a name is one of ours. */
enum { MD_SECTIONS_TEMPORARY_BYTES = 1 + MD_SECTIONS_NAME_BYTES + 1 + 16 + 4 };
bool md_sections_is_temporary(const char *name);

/* An object of `bytes` zeros on a boundary of 64 bytes, which is what XXH3's states want and md_alloc does
 * not promise.  *ret_block is what md_free takes.  NULL: no memory. */
void *md_sections_object(const struct md_alloc *alloc, size_t bytes, void **ret_block);

/* md_sections_open for a file that is open already.  fd belongs to the reader from here, and is closed on
 * failure. */
MD_MUST_USE enum md_status md_sections_open_fd(const struct md_alloc *alloc, int fd,
                                               const struct md_sections_path *path, uint32_t kind,
                                               const uint32_t *known_types, size_t known_count,
                                               int64_t limit_bytes, struct md_sections_reader **ret_reader,
                                               struct md_err *err);

#endif
