/* ov_cache.h - the memory of the KV cache: rows of all layers, their bytes in and out, keys turned.
 *
 * A row is what one token has in all layers.  Outside of the cache, in exports: for each layer the keys of the first
 * head of all rows, then those of the next head, then the values likewise.  So rows that stand together in a block of the
 * cache stand together there too, and are copied in one piece for each head.
 *
 * Memory comes from the system as it is first written, so that a cache that is not full costs no more than what
 * is in it.
 *
 * Threads: as engine.h. */
#ifndef MD_ADAPTERS_OPENVINO_OV_CACHE_H
#define MD_ADAPTERS_OPENVINO_OV_CACHE_H

#include "adapters/openvino/ov_shim.h"
#include "base/types.h"

/* Keys or values of one layer. */
struct md_ov_part {
    uint8_t *at; /* its blocks */
    int32_t heads;
    bool windowed;    /* a layer with a window */
    size_t row_bytes; /* of one head */
};

struct md_ov_cache {
    enum md_ov_type type;
    int32_t block_count, part_count;
    struct md_ov_part *parts; /* keys and values of each layer in turn */
    int32_t key_length;       /* of a head, equal in all layers; 0: they differ */
    void *memory;
    size_t memory_bytes;
    size_t token_bytes; /* of one row */
    uint8_t *spare;     /* one row, for swaps */
};

/* MD_NO_MEMORY: the blocks do not fit the address space, or the heap; nothing is left of it */
MD_MUST_USE enum md_status md_ov_cache_init(struct md_ov_cache *c, const struct md_ov_facts *facts,
                                            enum md_ov_type type, int32_t block_count, struct md_err *err);
void md_ov_cache_done(struct md_ov_cache *c); /* accepts a zeroed struct */

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
