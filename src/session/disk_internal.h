/* disk_internal.h - what the files of the disk tier share. */
#ifndef MD_SESSION_DISK_INTERNAL_H
#define MD_SESSION_DISK_INTERNAL_H

#include "host/sections.h"
#include "session/disk.h"

enum {
    MD_DISK_PAGE = 4096,
    MD_DISK_LOCK_BYTES = MD_DISK_PAGE, /* the lock is a file as well */
    MD_DISK_FOLDER_BYTES = 4096,
    MD_DISK_NAME_BYTES = 64,
    MD_DISK_IDENTITY_BYTES = 512
};

#define MD_DISK_BLOCK MD_SECTION_TYPE('B', 'L', 'C', 'K')
#define MD_DISK_RECORD MD_SECTION_TYPE('R', 'E', 'C', 'D')
#define MD_DISK_KV MD_SECTION_TYPE('K', 'V', ' ', ' ')

struct md_disk_block {
    struct md_cold_entry entry; /* first: the index hands it back */
    md_token tokens[];
};

struct md_disk_record {
    int64_t id, bytes;
};

struct md_disk {
    const struct md_alloc *alloc;
    struct md_coldstore *index;
    char folder[MD_DISK_FOLDER_BYTES], identity[MD_DISK_IDENTITY_BYTES];
    int lock_fd; /* the file also holds last_id, in decimals */
    int64_t budget_bytes, last_id;
    int64_t left_bytes; /* of block files that are left alone: unreadable, or of another version */
    struct md_disk_record *records;
    size_t record_count, record_cap;
};

void md_disk_block_name(const struct md_key *key, char out[MD_DISK_NAME_BYTES]);
void md_disk_remove_file(const struct md_disk *d, const char *name);
/* Open a file of that kind; the reader stands behind the identity.  It is closed by the caller on a failure too. */
MD_MUST_USE enum md_status md_disk_open_file(const struct md_disk *d, const char *name, uint32_t kind,
                                             struct md_sections_reader **ret_reader, struct md_err *err);
/* What a file says of its block, up to its KV; the caller frees it. */
MD_MUST_USE enum md_status md_disk_read_head(const struct md_disk *d, struct md_sections_reader *r,
                                             struct md_disk_block **ret_block, struct md_err *err);
/* Bytes of the budget that a file of that size takes, and one with so much in it. */
size_t md_disk_whole_pages(uint64_t bytes);
size_t md_disk_cost(const struct md_disk *d, int32_t token_count, uint64_t payload_bytes);
/* Remove blocks until so much fits.  False, and nothing went: it never will. */
bool md_disk_make_room(struct md_disk *d, size_t bytes, enum md_cache_class cls);
/* Take so many bytes of the budget for a file that is left alone; blocks go for it.  False: it is not counted, for not even
 * an empty index has room. */
bool md_disk_leave(struct md_disk *d, int64_t bytes);
/* Say that `count` of them, "block(s)", are of another version. */
void md_disk_log_left(const char *what, int64_t count, int64_t bytes);
/* Take of the budget what is no block: the lock, records, what is left alone. */
void md_disk_reserve(struct md_disk *d);
/* Make room for a record of so many bytes, beside the one that it is to replace, and for its place in the list. */
MD_MUST_USE enum md_status md_disk_reserve_record(struct md_disk *d, int64_t bytes, struct md_err *err);
/* Note that a record takes so many bytes; 0: none.  Room for it was made. */
void md_disk_note_record(struct md_disk *d, int64_t id, int64_t bytes);

#endif
