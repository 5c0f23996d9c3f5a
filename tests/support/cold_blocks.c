/* cold_blocks.c - see cold_blocks.h. */
#include "support/cold_blocks.h"

#include "policy/prefix.h"

#include <assert.h>
#include <string.h>

void cold_blocks_init(struct cold_blocks *b, unsigned caps, int count, int32_t tokens, size_t bytes_per_token)
{
    assert(count <= COLD_BLOCKS_MAX && tokens <= COLD_BLOCK_TOKENS_MAX);
    *b = (struct cold_blocks){ .count = count, .tokens = tokens };
    b->engine = double_engine_open(caps, count, count * tokens, bytes_per_token);
}

void cold_blocks_done(struct cold_blocks *b)
{
    md_engine_close(&b->engine->base);
    b->engine = NULL;
}

static struct md_range range_of(const struct cold_blocks *b, int i)
{
    return (struct md_range){ i * b->tokens, (i + 1) * b->tokens };
}

struct md_cold_ref cold_blocks_ref(struct cold_blocks *b, int i)
{
    assert(i >= 0 && i < b->count);
    for (int32_t k = 0; k < b->tokens; k++)
        b->ids[k] = i * 1000 + k;
    struct md_key parent = { .hi = 7, .lo = (uint64_t)i };
    return (struct md_cold_ref){ .key = md_prefix_chain(parent, b->ids, (size_t)b->tokens),
                                 .parent = parent,
                                 .range = range_of(b, i),
                                 .tokens = b->ids };
}

enum md_status cold_blocks_evict(struct md_cold *cold, struct md_engine *e, md_seq seq,
                                 const struct md_cold_ref *ref, enum md_cache_class cls,
                                 struct md_provenance provenance, bool *ret_stored, struct md_err *err)
{
    enum md_status s = md_cold_copy(cold, e, seq, ref, cls, provenance, ret_stored, err);
    return s == MD_OK ? md_engine_remove_range(e, seq, ref->range, err) : s;
}

void cold_blocks_compute(struct cold_blocks *b, int i)
{
    struct md_cold_ref ref = cold_blocks_ref(b, i);
    enum md_status s = md_engine_prefill(&b->engine->base, i, ref.range.start, ref.tokens, b->tokens, NULL);
    assert(s == MD_OK);
    (void)s;
    b->kv[i] = double_engine_kv(b->engine, i, ref.range.start);
}

bool cold_blocks_hot(const struct cold_blocks *b, int i)
{
    return md_engine_is_hot(&b->engine->base, i, range_of(b, i));
}

bool cold_blocks_intact(const struct cold_blocks *b, int i)
{
    struct md_range r = range_of(b, i);
    if (!cold_blocks_hot(b, i))
        return false;
    /* Positions of a block were computed one after the other: serial and position rise together. */
    for (int32_t k = 0; k < b->tokens; k++) {
        uint64_t serial = (b->kv[i] >> 32) + (uint64_t)k;
        if (double_engine_kv(b->engine, i, r.start + k) >> 32 != serial)
            return false;
    }
    return true;
}
