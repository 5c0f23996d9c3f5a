/* cold.h - the cold store: the KV bytes of blocks that are not hot, in host memory and, where there is one, on disk.
 *
 * The index and the choice of what goes are policy/coldstore; this owns the memory.  A block of a tape is
 * either hot or here: taking it back into the engine removes it (unless keep says that another branch of
 * the history still wants the copy).  A block that does not fit is refused and the caller must count it
 * dropped: nothing here ever claims to have what it lost.  With a disk (md_cold_set_disk) what must leave the memory goes there, and
 * a block is read from there when it is wanted: the disk's copy stays until it is dropped, or the disk is full.
 *
 * Threads: one at a time (the session's worker). */
#ifndef MD_SESSION_COLD_H
#define MD_SESSION_COLD_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "engine/engine.h"
#include "policy/coldstore.h"
#include "policy/restore.h"

struct md_cold;
struct md_disk;

/* What names one block: see policy/prefix.h. */
struct md_cold_ref {
    struct md_key key, parent;
    struct md_range range;
    const md_token *tokens; /* md_range_len(range) of them; borrowed for the call */
    bool is_state;          /* a checkpoint: see session/state.h */
};

MD_MUST_USE enum md_status md_cold_open(const struct md_alloc *alloc, size_t budget_bytes,
                                        struct md_cold **ret_cold, struct md_err *err);
void md_cold_close(struct md_cold *c); /* accepts NULL; frees all blocks in memory */
/* From now on with that disk tier (session/disk.h), borrowed; NULL: with none.  Accepts c NULL. */
void md_cold_set_disk(struct md_cold *c, struct md_disk *disk);

/* Copy a hot block into the store: make room, export, index.  It stays hot; whoever wants its cells removes it
 * afterwards.
 *
 * Of a block that is here already the better copy is kept (policy/provenance.h); of two that are as good this one,
 * unless both are full, and then equal, or somebody holds the one that is here.
 *
 * ret_stored  false: no room or no memory (counted refused), or the disk would not have it (in the log)
 * MD_INVALID  it is not hot
 * others      from the engine; whatever is returned, the block is hot as before */
MD_MUST_USE enum md_status md_cold_copy(struct md_cold *c, struct md_engine *e, md_seq seq,
                                        const struct md_cold_ref *ref, enum md_cache_class cls,
                                        struct md_provenance provenance, bool *ret_stored,
                                        struct md_err *err);
/* See that the disk has this block: it outlives the process then.
 *
 * hot        it is in the engine, of that provenance; else only what is here can be written
 * displace   other blocks on the disk may go for it
 * ret_saved  false: there is no disk, no room on it for this class, or no KV of the block
 * MD_IO      the disk would not have it; MD_NO_MEMORY; others from the engine */
MD_MUST_USE enum md_status md_cold_save(struct md_cold *c, struct md_engine *e, md_seq seq,
                                        const struct md_cold_ref *ref, enum md_cache_class cls,
                                        struct md_provenance provenance, bool hot, bool displace,
                                        bool *ret_saved, struct md_err *err);
/* Store bytes that were exported once.  Of a block that is here already the better copy is kept.
 * ret_stored  false: no room or no memory (counted refused); MD_INVALID: no such block; those of md_disk_put */
MD_MUST_USE enum md_status md_cold_put(struct md_cold *c, const struct md_cold_ref *ref,
                                       enum md_cache_class cls, struct md_provenance provenance,
                                       struct md_bytes kv, bool *ret_stored, struct md_err *err);
/* As md_cold_put, but only as far as md_cold_take_back can undo it: in memory, and nothing goes for it.
 * MD_COLD_IS_HERE  a copy is in memory that md_cold_put would keep; MD_COLD_NEEDS_ROOM: another block has to go, a copy
 * that is here would, or there is no memory; nothing was changed on both */
enum md_cold_added { MD_COLD_ADDED, MD_COLD_IS_HERE, MD_COLD_NEEDS_ROOM };
enum md_cold_added md_cold_add(struct md_cold *c, const struct md_cold_ref *ref, enum md_cache_class cls,
                               struct md_provenance provenance, struct md_bytes kv);
/* Take out of memory what md_cold_add put there.  No effect when it has gone since. */
void md_cold_take_back(struct md_cold *c, const struct md_cold_ref *ref);
/* Append a copy of its bytes to ret_kv.  Errors as md_cold_admit, but for the engine's; MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_cold_read(struct md_cold *c, const struct md_cold_ref *ref,
                                        enum md_provenance_kind floor, struct md_buf *ret_kv,
                                        struct md_provenance *ret_provenance, struct md_err *err);
/* What came, and from where. */
struct md_cold_admitted {
    struct md_provenance provenance;
    enum md_restore_tier tier;
};
/* Bring it back, from position `at` on.  On failure of the engine it stays here.
 *
 * at            where it begins: its place, or another, to which its keys are turned; then a copy stays here, as it does
 *               of one that is held
 * floor         the worst kind that will do
 * keep          leave a copy in memory
 * MD_CORRUPT    damaged on disk: it is not here any more
 * MD_NOT_FOUND  not here (never stored, or dropped since); or below the floor, or the disk cannot read it (in the log),
 *               and then it stays */
MD_MUST_USE enum md_status md_cold_admit(struct md_cold *c, struct md_engine *e, md_seq seq,
                                         const struct md_cold_ref *ref, int32_t at,
                                         enum md_provenance_kind floor, bool keep,
                                         struct md_cold_admitted *ret, struct md_err *err);
/* Hold the copy that is here, so that no other block makes it go: once more, for as many as hold it.  False: there is
 * none of that kind or a better one. */
bool md_cold_hold(struct md_cold *c, const struct md_cold_ref *ref, enum md_provenance_kind floor);
/* Let it go again.  No effect when it was lost all the same: damaged on the disk. */
void md_cold_release(struct md_cold *c, const struct md_cold_ref *ref);
bool md_cold_is_held(const struct md_cold *c, const struct md_cold_ref *ref);
/* What a block of so many tokens and bytes of KV costs the budget, headers counted; 0: that is no number. */
size_t md_cold_block_bytes(int64_t kv_bytes, int32_t tokens);
/* The known block that shares the most with what follows a block border: see md_coldstore_best.
 * common == 0: none; tokens are borrowed until the store changes. */
struct md_cold_match {
    const md_token *tokens;
    int32_t count, common;
    struct md_provenance provenance;
    enum md_restore_tier tier;
};
struct md_cold_match md_cold_best(const struct md_cold *c, struct md_key parent, int32_t start,
                                  const md_token *tokens, int32_t count, enum md_provenance_kind floor);
/* How long the longest entry is that begins there and that these tokens begin with; 0: none. */
int32_t md_cold_within(const struct md_cold *c, struct md_key parent, int32_t start, const md_token *tokens,
                       int32_t count, enum md_provenance_kind floor);
/* Bring text that stands at r from a block that says the same somewhere else, nearest to known_start; the block
 * stays.  MD_NOT_FOUND: none says that, or the disk cannot give it; others: from the engine, with nothing changed. */
MD_MUST_USE enum md_status md_cold_admit_moved(struct md_cold *c, struct md_engine *e, md_seq seq,
                                               struct md_range r, const md_token *tokens, int32_t known_start,
                                               enum md_provenance_kind floor, struct md_err *err);
/* Where the block begins that says this, borrowed until the store changes; NULL: none does.  See
 * md_coldstore_by_content. */
const int32_t *md_cold_find_content(struct md_cold *c, uint64_t content, const md_token *tokens,
                                    int32_t count, int32_t prefer_start, enum md_provenance_kind floor);
/* Let it go: it cannot be brought back.  No effect when it is not here, or somebody holds it. */
void md_cold_drop(struct md_cold *c, const struct md_cold_ref *ref);
bool md_cold_has(const struct md_cold *c, const struct md_cold_ref *ref, enum md_provenance_kind floor);
/* How good the copy here is; MD_PROVENANCE_COUNT: there is none. */
enum md_provenance_kind md_cold_kind(const struct md_cold *c, const struct md_cold_ref *ref);
/* Does it outlive the process? */
bool md_cold_is_durable(const struct md_cold *c, const struct md_cold_ref *ref);
/* Keep it longer: it belongs to the live tape, where its class is cls.  No effect when it is not here. */
void md_cold_touch(struct md_cold *c, const struct md_cold_ref *ref, enum md_cache_class cls);
struct md_coldstore_stats md_cold_stats(const struct md_cold *c); /* of the memory */
struct md_coldstore_stats md_cold_disk_stats(
    const struct md_cold *c); /* of the disk; zeroed: there is none */

#endif
