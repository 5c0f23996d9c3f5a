/* cold.h - the host cold store: the KV bytes of blocks that are not hot.
 *
 * The index and the choice of what goes are policy/coldstore; this owns the memory.  A block of a tape is
 * either hot or here: taking it back into the engine removes it (unless keep says that another branch of
 * the history still wants the copy).  A block that does not fit is refused and the caller must count it
 * dropped: nothing here ever claims to have what it lost.
 *
 * Threads: one at a time (the session's worker). */
#ifndef MD_SESSION_COLD_H
#define MD_SESSION_COLD_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "engine/engine.h"
#include "policy/coldstore.h"

struct md_cold;

/* What names one block: see policy/prefix.h. */
struct md_cold_ref {
    struct md_key key, parent;
    struct md_range range;
    const md_token *tokens; /* md_range_len(range) of them; borrowed for the call */
};

MD_MUST_USE enum md_status md_cold_open(const struct md_alloc *alloc, size_t budget_bytes,
                                        struct md_cold **ret_cold, struct md_err *err);
void md_cold_close(struct md_cold *c); /* accepts NULL; frees all blocks */

/* Move one block from the engine into the store: make room, export, index.  On MD_OK the engine's cells are
 * free, stored or not.
 *
 * Of a block that is here already one copy is kept: this one, unless the one here has full provenance.
 *
 * ret_stored  false: no room or no memory, so the KV is dropped (counted refused), the block is lost
 * MD_INVALID  it is not hot; nothing was changed
 * MD_SESSION_FATAL, MD_INTERNAL: from the engine; on MD_INTERNAL the block is hot as before */
MD_MUST_USE enum md_status md_cold_evict(struct md_cold *c, struct md_engine *e, md_seq seq,
                                         const struct md_cold_ref *ref, enum md_cache_class cls, bool full,
                                         bool *ret_stored, struct md_err *err);
/* As evict, but the block stays hot: for a block that two branches of a history share the start of.
 * ret_stored false: not stored.  Whatever is returned, the block is hot as before. */
MD_MUST_USE enum md_status md_cold_copy(struct md_cold *c, struct md_engine *e, md_seq seq,
                                        const struct md_cold_ref *ref, enum md_cache_class cls, bool full,
                                        bool *ret_stored, struct md_err *err);
/* Bring it back in place.  On failure of the engine it stays here.
 *
 * keep      leave a copy here
 * ret_full  its provenance
 * MD_NOT_FOUND  not here (never stored, or dropped since) */
MD_MUST_USE enum md_status md_cold_admit(struct md_cold *c, struct md_engine *e, md_seq seq,
                                         const struct md_cold_ref *ref, bool keep, bool *ret_full,
                                         struct md_err *err);
/* The known block that shares the most with what follows a block border: see md_coldstore_best.
 * common == 0: none; tokens are borrowed until the store changes. */
struct md_cold_match {
    const md_token *tokens;
    int32_t count, common;
    bool full; /* its provenance */
};
struct md_cold_match md_cold_best(const struct md_cold *c, struct md_key parent, int32_t start,
                                  const md_token *tokens, int32_t count);
/* Let it go: it cannot be brought back.  No effect when it is not here. */
void md_cold_drop(struct md_cold *c, const struct md_cold_ref *ref);
bool md_cold_has(const struct md_cold *c, const struct md_cold_ref *ref);
/* Keep it longer: it belongs to the live tape.  No effect when it is not here. */
void md_cold_touch(struct md_cold *c, const struct md_cold_ref *ref);
struct md_coldstore_stats md_cold_stats(const struct md_cold *c);

#endif
