/* reuse.c - see reuse.h. */
#include "session/reuse.h"

#include "base/clock.h"
#include "policy/content.h"
#include "policy/match.h"
#include "session/state.h"
#include "session/whole.h"

#include <assert.h>
#include <string.h>

/* ---- at its place ---- */

/* What is known of the block that begins at `start`, a block border, when the prompt goes on with tokens up to
 * `limit`: the better of what the cold store and other conversations have. */
struct known {
    const md_token *tokens;
    int32_t count, common; /* common 0: nothing */
    struct md_provenance provenance;
    bool hot;                  /* with another conversation */
    enum md_restore_tier tier; /* where it is cold */
};

static struct known known_block(struct md_drive *d, const md_token *prompt, int32_t start, int32_t limit)
{
    int32_t block = d->tape->block_tokens, most = limit - start < block ? limit - start : block;
    struct md_key parent = md_tape_parent_key(d->tape, (size_t)(start / block));
    struct md_cold_match c = md_cold_best(d->hot->cold, parent, start, prompt + start, most, d->hot->floor);
    struct md_hot_match h = md_hot_best(d->hot, d, parent, start, prompt + start, most);
    if (h.common >= c.common && h.common > 0)
        return (struct known){ h.tokens, h.count, h.common, h.provenance, true, MD_TIER_HOST };
    return (struct known){ c.tokens, c.count, c.common, c.provenance, false, c.tier };
}

/* Append the block as a cold one.  Of one that another conversation has hot only the part that matches: the engine
 * shares any part.  Where only the first part of a cold one matches, it comes in now and is cut: the store keeps the
 * whole for the branch it belongs to. */
static enum md_status append_known(struct md_drive *d, const struct known *k, struct md_err *err)
{
    struct md_tape *t = d->tape;
    const int32_t start = t->count, count = k->hot ? k->common : k->count;
    enum md_status s = md_tape_reserve(t, start + count, err);
    if (s != MD_OK)
        return s;
    size_t i = md_tape_block_count(t);
    struct md_tape_block fresh = { .state = MD_STATE_COLD,
                                   .cls = md_drive_class(d, i),
                                   .provenance = k->provenance,
                                   .held_out = md_drive_holds_out(d, i) };
    md_tape_append(t, k->tokens, count, fresh);
    d->changes++;
    struct md_cold_ref ref = md_tape_ref(t, i);
    md_cold_touch(d->hot->cold, &ref, fresh.cls);
    if (k->common < count)
        return md_drive_cut_known(d, start + k->common, err);
    bool ignored;
    return k->hot && count < t->block_tokens ? md_move_share(d, i, &ignored, err) : MD_OK;
}

static bool is_worth_it(const struct md_drive *d, const struct known *k)
{
    return k->hot || md_restore_wins(&d->hot->speeds, k->tier,
                                     md_engine_export_bytes(d->hot->engine, k->count), k->common);
}

static enum md_status extend(struct md_drive *d, const md_token *prompt, int32_t limit, struct md_err *err)
{
    struct md_tape *t = d->tape;
    enum md_status s = MD_OK;
    int32_t inside = t->count % t->block_tokens;
    if (inside > 0) {
        struct known k = known_block(d, prompt, t->count - inside, limit);
        if (k.common > inside && is_worth_it(d, &k))
            s = md_drive_cut_known(d, t->count - inside,
                                   err); /* more of the block is known than the piece we have */
    }
    while (s == MD_OK && t->count < limit && t->count % t->block_tokens == 0) {
        struct known k = known_block(d, prompt, t->count, limit);
        if (k.common == 0 || !is_worth_it(d, &k))
            break;
        if (d->seq < 0 && (k.common < t->block_tokens || k.count < t->block_tokens))
            break; /* a piece is shared or cut in the engine */
        int32_t before = t->count;
        s = append_known(d, &k, err);
        if (t->count <= before)
            break; /* it was let go while room was made for it: prefill */
    }
    return s;
}

enum md_status md_reuse_extend(struct md_drive *d, const md_token *prompt, int32_t limit, struct md_err *err)
{
    struct md_tape *t = d->tape;
    if (t->count >= limit)
        return MD_OK;
    enum md_status s = md_tape_reserve(t, limit, err); /* room for the keys as well */
    if (s != MD_OK || !md_state_is_kept(d->hot))
        return s == MD_OK ? extend(d, prompt, limit, err) : s;
    if (md_whole_is_all(d->hot))
        return md_whole_extend(d, prompt, limit, err);
    const int32_t ahead = md_state_ahead(d, prompt, limit);
    if (ahead == t->count || d->seq < 0)
        return MD_OK;
    s = md_state_save(d, err); /* so that it can be come back to, when not all of that is there any more */
    if (s == MD_OK)
        s = extend(d, prompt, ahead, err);
    if (s == MD_OK && t->count < ahead) /* not all of it came: only a checkpoint will do */
        s = md_drive_cut_known(d, md_state_before(d, t->count), err);
    return s;
}

/* ---- elsewhere ---- */

/* Whole blocks of one's own tape by content: open addressing, at most half full. */
struct own_blocks {
    const struct md_tape *tape;
    uint64_t *keys;
    int32_t *starts; /* -1: empty */
    size_t size;     /* a power of two */
};

static enum md_status own_open(struct md_drive *d, struct md_arena *arena, struct own_blocks *o,
                               struct md_err *err)
{
    const struct md_tape *t = d->tape;
    size_t whole = (size_t)(t->count / t->block_tokens);
    *o = (struct own_blocks){ .tape = t, .size = 2 };
    while (o->size < 2 * whole)
        o->size *= 2;
    o->keys = md_arena_get(arena, o->size, sizeof *o->keys);
    o->starts = md_arena_get(arena, o->size, sizeof *o->starts);
    if (o->keys == NULL || o->starts == NULL)
        return md_fail(err, MD_NO_MEMORY, "index of %zu blocks", whole);
    memset(o->starts, -1, o->size * sizeof *o->starts);
    for (size_t i = 0; i < whole; i++) {
        if (t->blocks[i].state == MD_STATE_LOST)
            continue;
        const md_token *tokens = t->tokens + i * (size_t)t->block_tokens;
        uint64_t key = md_content_key(tokens, (size_t)t->block_tokens);
        size_t at = key & (o->size - 1);
        while (o->starts[at] >= 0)
            at = (at + 1) & (o->size - 1);
        o->keys[at] = key;
        o->starts[at] = (int32_t)i * t->block_tokens;
    }
    return MD_OK;
}

/* Where the block begins that says this; of several the one at `prefer`, else any.  NULL: none does. */
static const int32_t *own_find(const struct own_blocks *o, uint64_t key, const md_token *tokens,
                               int32_t prefer)
{
    const size_t bytes = (size_t)o->tape->block_tokens * sizeof *tokens;
    const int32_t *found = NULL;
    for (size_t at = key & (o->size - 1); o->starts[at] >= 0; at = (at + 1) & (o->size - 1)) {
        if (o->keys[at] != key || memcmp(o->tape->tokens + o->starts[at], tokens, bytes) != 0)
            continue;
        if (found == NULL || o->starts[at] == prefer)
            found = &o->starts[at];
    }
    return found;
}

struct finder {
    struct md_drive *d;
    struct own_blocks own;
    bool own_only;
};

/* What md_match calls known is where the block begins. */
static const void *find_block(void *user, uint64_t key, const md_token *tokens, const struct md_match *before)
{
    struct finder *f = user;
    const int32_t block = f->d->tape->block_tokens;
    const int32_t prefer = before == NULL ? f->d->tape->count : *(const int32_t *)before->known + block;
    const int32_t *start = own_find(&f->own, key, tokens, prefer);
    if (start != NULL || f->own_only)
        return start;
    return md_cold_find_content(f->d->hot->cold, key, tokens, block, prefer, f->d->hot->floor);
}

enum md_status md_reuse_find(struct md_drive *d, const md_token *prompt, int32_t from, int32_t limit,
                             bool own_only, struct md_reuse_matches *m, struct md_err *err)
{
    struct md_arena arena MD_CLEANUP(md_arena_done);
    struct finder f = { .d = d, .own_only = own_only };
    const int32_t block = d->tape->block_tokens;
    *m = (struct md_reuse_matches){ .alloc = d->hot->alloc };
    md_arena_init(&arena, d->hot->alloc, (size_t)256 << 20);
    if (limit - from < block)
        return MD_OK;
    size_t most = (size_t)((limit - from) / block);
    void *items = NULL;
    struct md_match *found = md_arena_get(&arena, most, sizeof *found);
    enum md_status s = own_open(d, &arena, &f.own, err);
    if (s == MD_OK && (found == NULL || !md_grow(m->alloc, &items, &m->cap, most, sizeof *m->items)))
        s = md_fail(err, MD_NO_MEMORY, "matches of %zu blocks", most);
    if (s != MD_OK)
        return s;
    m->items = items;
    size_t count = md_match_blocks(prompt + from, limit - from, block, find_block, &f, found);
    for (size_t i = 0; i < count; i++)
        m->items[m->count++] =
            (struct md_reuse_found){ from + found[i].start, *(const int32_t *)found[i].known };
    return MD_OK;
}

void md_reuse_matches_done(struct md_reuse_matches *m)
{
    md_free(m->alloc, m->items);
    *m = (struct md_reuse_matches){ 0 };
}

void md_reuse_offer(struct md_drive *d, const struct md_reuse_matches *m)
{
    for (size_t i = 0; i < m->count; i++)
        d->tape->blocks[m->items[i].known_start / d->tape->block_tokens].retrieved = true;
}

/* The bytes must be in the cold store to be moved from there; a hot block of one's own is copied there first. */
static enum md_status bring_own(struct md_drive *d, int32_t known_start, const md_token *tokens,
                                struct md_err *err)
{
    const struct md_tape *t = d->tape;
    size_t i = (size_t)(known_start / t->block_tokens);
    if (i >= md_tape_block_count(t) || t->blocks[i].state != MD_STATE_HOT || t->blocks[i].moved_by != 0 ||
        md_range_len(md_tape_range(t, i)) != t->block_tokens ||
        memcmp(t->tokens + known_start, tokens, (size_t)t->block_tokens * sizeof *tokens) != 0)
        return MD_OK;
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    bool stored;
    return md_cold_copy(d->hot->cold, d->hot->engine, d->seq, &ref, t->blocks[i].cls, t->blocks[i].provenance,
                        &stored, err);
}

/* *ret_done false: it is not there any more, nothing was changed. */
static enum md_status append_one_moved(struct md_drive *d, const md_token *prompt,
                                       const struct md_reuse_found *found, bool *ret_done, struct md_err *err)
{
    struct md_tape *t = d->tape;
    const struct md_range r = { t->count, t->count + t->block_tokens };
    const md_token *tokens = prompt + r.start;
    assert(found->start == r.start);
    *ret_done = false;
    int64_t t0 = md_clock_mono_ns();
    enum md_status s = md_cold_admit_moved(d->hot->cold, d->hot->engine, d->seq, r, tokens,
                                           found->known_start, d->hot->floor, err);
    d->request.restore_ns += md_clock_mono_ns() - t0;
    if (s == MD_NOT_FOUND)
        return MD_OK;
    if (s != MD_OK)
        return s;
    size_t i = md_tape_block_count(t);
    struct md_provenance p = { .kind = MD_PROVENANCE_APPROXIMATE,
                               .attended = md_tape_provenance(t, i).attended };
    if (p.attended == 0)
        p.attended = 1; /* only full KV has no digest */
    struct md_tape_block fresh = { .state = MD_STATE_HOT,
                                   .cls = md_drive_class(d, i),
                                   .provenance = p,
                                   .held_out = md_drive_holds_out(d, i) };
    md_tape_append(t, tokens, t->block_tokens, fresh);
    d->changes++;
    d->moved_tokens += t->block_tokens;
    md_move_mark(d, r, MD_MARK_RESTORED);
    md_move_mark(d, r, MD_MARK_MOVED);
    *ret_done = true;
    return MD_OK;
}

enum md_status md_reuse_append_moved(struct md_drive *d, const md_token *prompt,
                                     const struct md_reuse_found *found, size_t count, size_t *ret_done,
                                     struct md_err *err)
{
    struct md_tape *t = d->tape;
    *ret_done = 0;
    enum md_status s = md_tape_reserve(t, t->count + (int32_t)count * t->block_tokens, err);
    for (size_t k = 0; k < count && s == MD_OK; k++)
        s = bring_own(d, found[k].known_start, prompt + found[k].start, err);
    bool there = true;
    while (s == MD_OK && *ret_done < count) {
        const struct md_reuse_found *f = &found[*ret_done];
        s = append_one_moved(d, prompt, f, &there, err);
        if (s == MD_OK && !there) { /* a small store: what came behind it may have pushed it out */
            s = bring_own(d, f->known_start, prompt + f->start, err);
            if (s == MD_OK)
                s = append_one_moved(d, prompt, f, &there, err);
        }
        if (s != MD_OK || !there)
            break;
        ++*ret_done;
    }
    return s;
}
