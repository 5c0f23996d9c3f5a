/* ov_cache.h - the memory of the KV cache: rows of all layers, their bytes in and out, keys turned.
 *
 * A row is what one token has in all layers.  Outside of the cache, in exports: for each layer the keys of the first
 * head of all rows, then those of the next head, then the values likewise.  So rows that stand together in a block of the
 * cache stand together there too, and are copied in one piece for each head.
 *
 * The blocks lie in memory of ours, which comes from the system as it is first written, so that a cache that is not full
 * costs no more than what is in it.  Or they lie in a pool, which is memory that only whole blocks get into and out of:
 * two of them are at hand at a time, changed there, and written back when others take their place and by settle.
 * What a pool fails in is noted, and settle says it; from then on the KV is unknown.
 *
 * Threads: as engine.h. */
#ifndef MD_ADAPTERS_OPENVINO_OV_CACHE_H
#define MD_ADAPTERS_OPENVINO_OV_CACHE_H

#include "adapters/openvino/ov_shim.h"
#include "base/types.h"

/* Keys or values of one layer. */
struct md_ov_part {
    uint8_t *at; /* its blocks, in memory of ours; NULL: in a pool */
    int32_t heads;
    bool windowed;      /* a layer with a window */
    size_t row_bytes;   /* of one head */
    size_t block_bytes; /* of all heads */
    size_t in_block;    /* where it begins in a block of all parts */
    struct md_ov_layout layout;
};

/* Blocks out and in, all parts in turn; both or neither.  Errors are the pool's own. */
struct md_ov_pool_ops {
    enum md_status (*get)(void *user, int32_t block, uint8_t *ret_bytes, struct md_err *err);
    enum md_status (*put)(void *user, int32_t block, const uint8_t *bytes, struct md_err *err);
    void *user;
};

/* A block that is at hand. */
struct md_ov_staged {
    int32_t block; /* -1: none */
    bool changed;
    uint8_t *bytes;
};

struct md_ov_stage {
    struct md_ov_pool_ops pool;
    struct md_ov_staged at_hand[2]; /* the one used last comes first */
    struct md_err failed;           /* status MD_OK: nothing has */
};

struct md_ov_cache {
    enum md_ov_type type;
    int32_t block_count, part_count, block_rows;
    struct md_ov_part *parts; /* keys and values of each layer in turn */
    int32_t key_length;       /* of a head, equal in all layers; 0: they differ */
    void *memory;
    size_t memory_bytes;
    size_t token_bytes;        /* of one row */
    uint8_t *spare;            /* two rows, for swaps */
    struct md_ov_stage *stage; /* NULL: memory of ours */
};

/* pool  where the blocks are; NULL: in memory that is taken here
 * MD_NO_MEMORY: the blocks do not fit the address space, or the heap; nothing is left of it */
MD_MUST_USE enum md_status md_ov_cache_init(struct md_ov_cache *c, const struct md_ov_facts *facts,
                                            enum md_ov_type type, int32_t block_count,
                                            const struct md_ov_pool_ops *pool, struct md_err *err);
void md_ov_cache_done(struct md_ov_cache *c); /* accepts a zeroed struct */

/* What was changed is in the pool: before a step, and before anybody is told that it is there.
 * MD_SESSION_FATAL  the pool failed, now or before: what it holds is not known any more */
MD_MUST_USE enum md_status md_ov_cache_settle(struct md_ov_cache *c, struct md_err *err);
/* A step has written to blocks: what is at hand is old.  It was settled before. */
void md_ov_cache_forget(struct md_ov_cache *c);

void md_ov_cache_move(void *cache, int32_t from, int32_t to); /* rows, as struct md_ov_mover wants it */
void md_ov_cache_swap(void *cache, int32_t a, int32_t b);

/* Rows that stand together in the cache: row, row + 1, ..., all of one block. */
struct md_ov_run {
    int32_t row, count;
};
/* The run is rows index, index + 1, ... of `count` in an export at `bytes`, which has count * token_bytes. */
void md_ov_cache_read(const struct md_ov_cache *c, struct md_ov_run run, uint8_t *bytes, int32_t index,
                      int32_t count);
void md_ov_cache_write(struct md_ov_cache *c, struct md_ov_run run, const uint8_t *bytes, int32_t index,
                       int32_t count);

/* ---- turning keys ---- */

/* How a model turns its queries and keys: pair i of the first `length` numbers of a head by position * angle[i]. */
struct md_ov_turn {
    int32_t length;           /* even; 0: it is not known */
    bool halves;              /* a pair is numbers i and i + length / 2; else 2 i and 2 i + 1 */
    double base, base_window; /* angle[i] = base ^ (-2 i / length); of layers with a window */
};

/* Turn the keys of an export of `count` rows by `distance` positions.  f32 and f16 only.
 * MD_NO_MEMORY: the heap; nothing changed */
MD_MUST_USE enum md_status md_ov_cache_turn(const struct md_ov_cache *c, const struct md_ov_turn *turn,
                                            uint8_t *bytes, int32_t count, int32_t distance,
                                            struct md_err *err);

/* Number i of those that stand at `from` in the cache's type, f32 or f16. */
float md_ov_cache_number(const struct md_ov_cache *c, const uint8_t *from, size_t i);

#endif
