/* block_meta.c - see block_meta.h. */
#include "session/block_meta.h"

#include "base/le.h"

static void put(uint8_t **at, uint64_t v, int bytes)
{
    md_le_store(*at, v, bytes);
    *at += bytes;
}

static uint64_t get(const uint8_t **at, int bytes)
{
    const uint64_t v = md_le_load(*at, bytes);
    *at += bytes;
    return v;
}

void md_block_meta_write(const struct md_cold_entry *e, uint8_t out[MD_BLOCK_META_BYTES])
{
    put(&out, e->key.hi, 8);
    put(&out, e->key.lo, 8);
    put(&out, e->parent.hi, 8);
    put(&out, e->parent.lo, 8);
    put(&out, (uint32_t)e->start, 4);
    put(&out, (uint32_t)e->token_count, 4);
    put(&out, (uint32_t)e->cls, 4);
    put(&out, (uint32_t)e->provenance.kind, 4);
    put(&out, e->provenance.attended, 8);
    put(&out, e->is_state, 8);
}

bool md_block_meta_read(const uint8_t at[MD_BLOCK_META_BYTES], struct md_cold_entry *e)
{
    e->key.hi = get(&at, 8);
    e->key.lo = get(&at, 8);
    e->parent.hi = get(&at, 8);
    e->parent.lo = get(&at, 8);
    e->start = (int32_t)(uint32_t)get(&at, 4);
    e->token_count = (int32_t)(uint32_t)get(&at, 4);
    const uint64_t cls = get(&at, 4), kind = get(&at, 4);
    e->provenance.attended = get(&at, 8);
    const uint64_t is_state = get(&at, 8);
    e->is_state = is_state != 0;
    if (e->start < 0 || e->token_count < 1 || e->token_count > INT32_MAX / 8 || cls >= MD_CLASS_COUNT ||
        kind >= MD_PROVENANCE_COUNT || is_state > 1)
        return false;
    e->cls = (enum md_cache_class)cls;
    e->provenance.kind = (enum md_provenance_kind)kind;
    return (kind == MD_PROVENANCE_FULL) == (e->provenance.attended == 0);
}
