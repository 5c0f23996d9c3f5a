/* cold_blocks.h - numbered blocks for tests of session/cold: block i fills positions [i * tokens, ...) of
 * sequence i of a double engine, alone there, so that any block can be computed again at any time. */
#ifndef MD_TESTS_COLD_BLOCKS_H
#define MD_TESTS_COLD_BLOCKS_H

#include "session/cold.h"
#include "support/double_engine.h"

enum { COLD_BLOCKS_MAX = 128, COLD_BLOCK_TOKENS_MAX = 64 };

struct cold_blocks {
    struct double_engine *engine;
    int count;
    int32_t tokens;
    md_token ids[COLD_BLOCK_TOKENS_MAX]; /* of the block asked for last */
    uint64_t kv[COLD_BLOCKS_MAX];        /* first number of each as last computed; 0 = not computed */
};

enum { COLD_CAPS = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE };

void cold_blocks_init(struct cold_blocks *b, unsigned caps, int count, int32_t tokens,
                      size_t bytes_per_token);
void cold_blocks_done(struct cold_blocks *b);
/* Its name; the tokens are valid until the next call. */
struct md_cold_ref cold_blocks_ref(struct cold_blocks *b, int i);
/* Copy it into the store and take it out of the engine, as session/drive.c does. */
enum md_status cold_blocks_evict(struct md_cold *cold, struct md_engine *e, md_seq seq,
                                 const struct md_cold_ref *ref, enum md_cache_class cls,
                                 struct md_provenance provenance, bool *ret_stored, struct md_err *err);
/* Prefill block i, which must be absent. */
void cold_blocks_compute(struct cold_blocks *b, int i);
bool cold_blocks_hot(const struct cold_blocks *b, int i);
/* Hot, and with the very numbers that were computed last. */
bool cold_blocks_intact(const struct cold_blocks *b, int i);

#endif
