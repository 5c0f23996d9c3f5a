#include "session/tape.h"

#include "policy/prefix.h"
#include "policy/profile.h"

#include <assert.h>
#include <string.h>

void md_tape_init(struct md_tape *t, const struct md_alloc *alloc, int32_t block_tokens, struct md_key root)
{
    assert(block_tokens > 0);
    *t = (struct md_tape){ .alloc = alloc, .block_tokens = block_tokens, .root = root };
}

void md_tape_done(struct md_tape *t)
{
    md_free(t->alloc, t->tokens);
    md_free(t->alloc, t->blocks);
    md_free(t->alloc, t->keys);
    *t = (struct md_tape){ .block_tokens = t->block_tokens };
}

struct md_range md_tape_range(const struct md_tape *t, size_t block)
{
    assert(block < md_tape_block_count(t));
    int32_t start = (int32_t)block * t->block_tokens;
    int32_t end = t->count - start < t->block_tokens ? t->count : start + t->block_tokens;
    return (struct md_range){ start, end };
}

struct md_range md_tape_place(const struct md_tape *t, size_t block)
{
    const struct md_range r = md_tape_range(t, block);
    const int32_t by = t->blocks[block].moved_by;
    assert(by >= 0 && by <= INT32_MAX - r.end);
    return (struct md_range){ r.start + by, r.end + by };
}

enum md_status md_tape_reserve(struct md_tape *t, int32_t count, struct md_err *err)
{
    size_t block_count = ((size_t)count + (size_t)t->block_tokens - 1) / (size_t)t->block_tokens;
    void *tokens = t->tokens, *blocks = t->blocks, *keys = t->keys;
    int ok = md_grow(t->alloc, &tokens, &t->token_cap, (size_t)count, sizeof *t->tokens);
    t->tokens = tokens;
    ok = ok && md_grow(t->alloc, &blocks, &t->block_cap, block_count, sizeof *t->blocks);
    t->blocks = blocks;
    ok = ok && md_grow(t->alloc, &keys, &t->key_cap, block_count + 1, sizeof *t->keys);
    t->keys = keys;
    return ok ? MD_OK : md_fail(err, MD_NO_MEMORY, "tape of %d tokens", count);
}

void md_tape_append(struct md_tape *t, const md_token *tokens, int32_t count, struct md_tape_block fresh)
{
    assert(count > 0 && (size_t)t->count + (size_t)count <= t->token_cap);
    size_t old_blocks = md_tape_block_count(t);
    if (t->count % t->block_tokens != 0) {
        struct md_tape_block *b = &t->blocks[old_blocks - 1];
        assert(b->state == MD_STATE_HOT && b->moved_by == 0 && fresh.state == MD_STATE_HOT);
        b->provenance = md_provenance_worse(b->provenance, fresh.provenance);
    }
    memcpy(t->tokens + t->count, tokens, (size_t)count * sizeof *tokens);
    t->count += count;
    for (size_t i = old_blocks; i < md_tape_block_count(t); i++)
        t->blocks[i] = fresh;
}

void md_tape_append_computed(struct md_tape *t, const md_token *tokens, int32_t count,
                             enum md_cache_class cls)
{
    size_t first = (size_t)(t->count / t->block_tokens);
    const bool sparse = t->count == 0 && t->sparse_from > 0 && count >= t->sparse_from;
    md_tape_append(t, tokens, count, (struct md_tape_block){ .state = MD_STATE_HOT, .cls = cls });
    if (sparse) { /* which blocks of it is not told: from the first on, those behind it are of it by that */
        const struct md_attended nothing = { 0 };
        t->blocks[0].provenance =
            (struct md_provenance){ MD_PROVENANCE_BOUNDED, md_attended_digest(&nothing) };
    }
    for (size_t i = first; i < md_tape_block_count(t); i++) /* in order: each is hot for the next */
        t->blocks[i].provenance = md_provenance_worse(t->blocks[i].provenance, md_tape_provenance(t, i));
    t->evaluated = t->count;
}

void md_tape_cut(struct md_tape *t, int32_t count)
{
    assert(count >= 0 && count <= t->count);
    if (count < t->count && count % t->block_tokens != 0) { /* what joins it now is other text */
        struct md_tape_block *b = &t->blocks[count / t->block_tokens];
        b->held_out = b->aside = false;
        b->profile = 0;
        b->judged = 0;
    }
    t->scorings = count == 0 ? 0 : t->scorings;
    t->count = count;
    t->unchanged = count < t->unchanged ? count : t->unchanged;
    t->evaluated = count < t->evaluated ? count : t->evaluated;
    size_t whole_blocks = (size_t)(count / t->block_tokens);
    if (t->key_count > whole_blocks + 1)
        t->key_count = whole_blocks + 1; /* keys past here were over tokens that are gone */
}

enum md_status md_tape_scores(const struct md_tape *t, const size_t *index, size_t count,
                              struct md_arena *arena, const float **ret_scores, struct md_err *err)
{
    *ret_scores = NULL;
    if (t->scorings == 0)
        return MD_OK;
    float *profile = md_arena_get(arena, count, sizeof *profile);
    float *scores = md_arena_get(arena, count, sizeof *scores);
    int32_t *judged = md_arena_get(arena, count, sizeof *judged);
    if (profile == NULL || scores == NULL || judged == NULL)
        return md_fail(err, MD_NO_MEMORY, "scores of %zu blocks", count);
    for (size_t k = 0; k < count; k++) {
        assert(index[k] < md_tape_block_count(t));
        const struct md_tape_block *b = &t->blocks[index[k]];
        profile[k] = md_profile_mean(b->profile, b->judged, MD_PROFILE_DECAY);
        judged[k] = b->judged;
    }
    md_profile_scores(profile, judged, count, MD_PROFILE_GRACE_TURNS, scores);
    for (size_t k = 0; k < count; k++)
        if (t->blocks[index[k]].aside)
            scores[k] = -1; /* profiles are 0 or more */
    *ret_scores = scores;
    return MD_OK;
}

struct md_key md_tape_parent_key(struct md_tape *t, size_t block)
{
    if (t->key_cap == 0)
        return t->root; /* nothing was ever reserved: only block 0 can be asked for */
    if (t->key_count == 0) {
        t->keys[0] = t->root;
        t->key_count = 1;
    }
    assert(block * (size_t)t->block_tokens <= (size_t)t->count && block < t->key_cap);
    for (; t->key_count <= block; t->key_count++) {
        const md_token *tokens = t->tokens + (t->key_count - 1) * (size_t)t->block_tokens;
        t->keys[t->key_count] = md_prefix_chain(t->keys[t->key_count - 1], tokens, (size_t)t->block_tokens);
    }
    return t->keys[block];
}

struct md_cold_ref md_tape_ref(struct md_tape *t, size_t block)
{
    struct md_range r = md_tape_range(t, block);
    struct md_key parent = md_tape_parent_key(t, block);
    const md_token *tokens = t->tokens + r.start;
    bool whole = md_range_len(r) == t->block_tokens; /* its key is the parent of the next: hashed once */
    return (struct md_cold_ref){ .key = whole ? md_tape_parent_key(t, block + 1)
                                              : md_prefix_chain(parent, tokens, (size_t)md_range_len(r)),
                                 .parent = parent,
                                 .range = r,
                                 .tokens = tokens };
}

int32_t md_tape_tokens_in(const struct md_tape *t, enum md_block_state state)
{
    int32_t sum = 0;
    for (size_t i = 0; i < md_tape_block_count(t); i++)
        if (t->blocks[i].state == state)
            sum += md_range_len(md_tape_range(t, i));
    return sum;
}

int32_t md_tape_moved_tokens(const struct md_tape *t)
{
    int32_t sum = 0;
    for (size_t i = 0; i < md_tape_block_count(t); i++)
        if (t->blocks[i].moved_by > 0)
            sum += md_range_len(md_tape_range(t, i));
    return sum;
}

int32_t md_tape_kind_tokens(const struct md_tape *t, enum md_provenance_kind kind)
{
    int32_t sum = 0;
    for (size_t i = 0; i < md_tape_block_count(t); i++)
        if (t->blocks[i].provenance.kind == kind && t->blocks[i].state != MD_STATE_LOST)
            sum += md_range_len(md_tape_range(t, i));
    return sum;
}

struct md_provenance md_tape_provenance(const struct md_tape *t, size_t block)
{
    struct md_provenance p = { .kind = MD_PROVENANCE_FULL };
    struct md_attended attended = { 0 }, moved = { 0 };
    bool any_moved = false;
    for (size_t i = 0; i < block; i++) {
        const struct md_tape_block *b = &t->blocks[i];
        bool hot = b->state == MD_STATE_HOT, whole = hot && b->moved_by == 0;
        enum md_provenance_kind kind = whole ? MD_PROVENANCE_FULL : MD_PROVENANCE_BOUNDED;
        if (hot && b->provenance.kind > kind)
            kind = b->provenance.kind;
        p.kind = kind > p.kind ? kind : p.kind;
        if (hot)
            md_attended_add(&attended, md_tape_place(t, i));
        if (hot && !whole)
            md_attended_add(&moved, md_tape_range(t, i));
        any_moved = any_moved || (hot && !whole);
    }
    if (p.kind != MD_PROVENANCE_FULL)
        p.attended = md_attended_digest(&attended);
    if (any_moved) /* which positions, and whose text stands there */
        p = md_provenance_worse(p, (struct md_provenance){ p.kind, md_attended_digest(&moved) });
    return p;
}
