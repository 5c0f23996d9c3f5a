/* disk.h - the disk tier: blocks and conversations that outlive the process.
 *
 * One folder for all models, in it one for each identity of KV (md_engine_info.identity): what another model or KV
 * type left is not touched, and not read.  A block is a file of its own, named by its chain key; a conversation's record
 * (record.h) is one, too.  Every file is written beside its place and put there whole (host/sections.h), so that a kill
 * at any moment leaves what was there before.  Which blocks go when the budget is used up is policy/coldstore.h's, as
 * for the RAM: class first, then the longest unused; records are counted and never go.  All files of an identity, the lock
 * and those that are being written too, are within the budget at every moment; room is made before a file is begun.
 *
 * At the start only what no write of ours can have left as it is goes: files that were not finished, that are not whole,
 * or that are of another identity.  Names that are not ours are never touched.  Nor are files that cannot be read (the
 * block or conversation is lost to this process, in the log) and those of another version of the format (one line in the
 * log for all): they stay, and count against the budget as far as it goes.  A block's KV is verified when it is read; one
 * that is damaged is removed then, and is lost.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_DISK_H
#define MD_SESSION_DISK_H

#include "base/err.h"
#include "base/mem.h"
#include "policy/coldstore.h"
#include "session/cold.h"

struct md_disk;

enum { MD_DISK_BYTES_MIN = 1 << 20 }; /* of budget_bytes */

struct md_disk_config {
    const char *folder;   /* made, 0700, where it is not there */
    const char *identity; /* of the KV */
    int64_t budget_bytes; /* of this identity's files, in whole pages; the folder itself is not counted */
    const struct md_alloc *alloc;
};

/* Open the folder, which is this process's until close.
 *
 * MD_BUSY      another process has it
 * MD_IO        it cannot be made, read or written
 * MD_INVALID   a budget below 1 MiB
 * MD_NO_MEMORY */
MD_MUST_USE enum md_status md_disk_open(const struct md_disk_config *config, struct md_disk **ret_disk,
                                        struct md_err *err);
void md_disk_close(struct md_disk *d); /* accepts NULL; the files stay */

/* ---- blocks: as those of session/cold.h ---- */

/* Write one, unless a copy as good is there.
 *
 * displace    others may go for it, as in md_coldstore_victim; false: only where there is room
 * ret_stored  false: no room in the budget for its class (counted refused)
 * MD_IO       the system refused to write; a copy that was there stays
 * MD_NO_MEMORY */
MD_MUST_USE enum md_status md_disk_put(struct md_disk *d, const struct md_cold_ref *ref,
                                       enum md_cache_class cls, struct md_provenance provenance,
                                       struct md_bytes kv, bool displace, bool *ret_stored,
                                       struct md_err *err);
/* Append the KV of one to ret_kv, verified.
 *
 * MD_NOT_FOUND  not here, or below the floor
 * MD_CORRUPT    damaged: it is gone
 * MD_IO, MD_NO_MEMORY: it stays */
MD_MUST_USE enum md_status md_disk_get(struct md_disk *d, const struct md_cold_ref *ref,
                                       enum md_provenance_kind floor, struct md_buf *ret_kv,
                                       struct md_provenance *ret_provenance, struct md_err *err);
/* The index; nothing here reads a file. */
struct md_coldstore *md_disk_index(struct md_disk *d);
/* Remove one.  No effect when it is not here. */
void md_disk_drop(struct md_disk *d, const struct md_cold_ref *ref);

/* ---- conversations ---- */

/* Write the record of conversation `id`, and the notes on it, in place of earlier ones: both or none.  Errors as
 * md_disk_put; MD_NO_MEMORY also: the records alone fill the budget, but for what one takes while it is written again. */
MD_MUST_USE enum md_status md_disk_put_record(struct md_disk *d, int64_t id, struct md_bytes record,
                                              struct md_bytes notes, struct md_err *err);
void md_disk_drop_record(struct md_disk *d, int64_t id);
size_t md_disk_record_count(const struct md_disk *d);
/* The highest id that was ever noted, or has a record; and note another. */
int64_t md_disk_last_id(const struct md_disk *d);
void md_disk_note_id(struct md_disk *d, int64_t id);
/* Read all, in the order of their ids.  One that is damaged is removed and left out; where only its notes are, they are.
 * One that cannot be read, or is of another version, is left out and stays.
 * take  gets each; what it returns but MD_OK ends the call with that, but for MD_CORRUPT and MD_UNSUPPORTED: damaged, and
 *       of another version */
MD_MUST_USE enum md_status md_disk_records(struct md_disk *d,
                                           enum md_status (*take)(void *user, int64_t id,
                                                                  struct md_bytes record,
                                                                  struct md_bytes notes, struct md_err *err),
                                           void *user, struct md_err *err);

#endif
