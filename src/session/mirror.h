/* mirror.h - keys of blocks, kept where they can be scored: as f16 in host memory, of the layers that are watched.
 *
 * They are read out of KV as the engine exports it (engine/attention.h), hot or cold, at the first time somebody asks for
 * them, and stay for as long as there is room: of what is not asked for the longest goes first, and is read again when
 * it is wanted.  So they are those that are attended, at the places that the tokens have for life; and after a restart, a restored
 * snapshot or a change of layers they make themselves anew.
 *
 * Memory: a budget of its own, taken before anything is allocated (policy/coldstore.h).
 * Threads: one at a time (the session's worker). */
#ifndef MD_SESSION_MIRROR_H
#define MD_SESSION_MIRROR_H

#include "session/cold.h"

struct md_mirror;

/* layers  `count` of them, ascending, each one that can be watched (its length is not 0); copied
 * MD_INVALID, MD_NO_MEMORY */
MD_MUST_USE enum md_status md_mirror_open(const struct md_alloc *alloc, const struct md_engine *engine,
                                          const int32_t *layers, int32_t count, size_t budget_bytes,
                                          struct md_mirror **ret_mirror, struct md_err *err);
void md_mirror_close(struct md_mirror *m); /* accepts NULL */

/* Numbers of the keys of one token, over all layers. */
int64_t md_mirror_token_numbers(const struct md_engine *engine, const int32_t *layers, int32_t count);
/* What the keys of a block cost the budget, headers counted. */
size_t md_mirror_block_bytes(int64_t token_numbers, int32_t tokens);

/* The budget beside a cold store: room for the keys of a whole window, and never more than a quarter of cold_bytes, which the
 * store does not have then. */
size_t md_mirror_budget(int64_t token_numbers, int32_t block_tokens, int32_t window_tokens,
                        size_t cold_bytes);

/* Where the KV of a block can be had. */
struct md_mirror_source {
    struct md_engine *engine;
    struct md_cold *cold;
    md_seq seq;
    bool hot; /* at its own place in that sequence; else the cold store is asked */
};

/* The keys of a block: for each layer in turn [key heads][tokens][length].
 *
 * ret_keys      borrowed until a call with a later mark; NULL: there is no room for them beside what was asked for since `mark`
 * mark          md_mirror_mark() when this round began: what was asked for since does not go for it
 * MD_NOT_FOUND  the cold store does not have the block
 * MD_CORRUPT, MD_NO_MEMORY, others of md_engine_export_range, which leave the KV as it is */
MD_MUST_USE enum md_status md_mirror_keys(struct md_mirror *m, const struct md_mirror_source *from,
                                          const struct md_cold_ref *ref, int64_t mark,
                                          const uint16_t **ret_keys, struct md_err *err);
int64_t md_mirror_mark(struct md_mirror *m);

struct md_mirror_stats {
    size_t budget_bytes, used_bytes;
    int64_t blocks, read_hot,
        read_cold; /* kept now; made since open: from the engine, from the cold store or the disk */
};
struct md_mirror_stats md_mirror_stats(const struct md_mirror *m);

#endif
