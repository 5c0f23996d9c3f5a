/* hot.c - see hot.h. */
#include "session/hot.h"

#include "policy/idle.h"
#include "policy/prefix.h"
#include "session/drive.h"

#include <assert.h>

enum { IDLE_BYTES_MAX = 64 << 20 }; /* idle blocks of a hot set of millions of tokens; a limit from birth */

/* ---- sequences ---- */

static bool sequence_is_free(const struct md_hot *h, md_seq seq)
{
    for (const struct md_drive *d = h->drives; d != NULL; d = d->next)
        if (d->seq == seq)
            return false;
    return md_engine_end(h->engine, seq) == 0; /* one that could not be emptied is not used again */
}

enum md_status md_hot_take_sequence(struct md_hot *h, struct md_drive *d, struct md_err *err)
{
    assert(d->seq < 0);
    for (md_seq seq = 0; seq < md_engine_info(h->engine)->seq_count; seq++) {
        if (!sequence_is_free(h, seq))
            continue;
        d->seq = seq;
        return MD_OK;
    }
    struct md_drive *idle = NULL;
    for (struct md_drive *o = h->drives; o != NULL; o = o->next)
        if (o != d && o->seq >= 0 && (idle == NULL || o->last_live < idle->last_live))
            idle = o;
    if (idle == NULL)
        return md_fail(err, MD_NO_MEMORY, "the engine has no sequence left: restart modeld");
    md_seq seq = idle->seq;
    enum md_status s = md_drive_leave(idle, err);
    if (s == MD_SESSION_FATAL) { /* for the idle one, which has no sequence any more */
        md_drive_give_up(idle, err);
        return md_hot_take_sequence(h, d, err);
    }
    if (s == MD_OK)
        d->seq = seq;
    return s;
}

/* ---- blocks that several have ---- */

/* Tokens of block i of d that come first and are those of the range, when both stand behind the same text. */
static int32_t common_tokens(const struct md_drive *d, size_t i, struct md_key parent, const md_token *tokens,
                             int32_t count)
{
    if (i >= md_tape_block_count(d->tape) || !md_key_equal(md_tape_parent_key(d->tape, i), parent))
        return 0;
    struct md_range r = md_tape_range(d->tape, i);
    return (int32_t)md_prefix_common(d->tape->tokens + r.start, (size_t)md_range_len(r), tokens, (size_t)count);
}

struct md_hot_match md_hot_best(const struct md_hot *h, const struct md_drive *d, struct md_key parent,
                                int32_t start, const md_token *tokens, int32_t count)
{
    struct md_hot_match best = { 0 };
    if (!(md_engine_caps(h->engine) & MD_CAP_SHARE))
        return best;
    size_t i = (size_t)(start / d->tape->block_tokens);
    for (const struct md_drive *o = h->drives; o != NULL; o = o->next) {
        if (o == d || o->seq < 0 || i >= md_tape_block_count(o->tape))
            continue;
        const struct md_tape_block *b = &o->tape->blocks[i];
        if (b->state != MD_STATE_HOT || !md_provenance_accepted(b->provenance, h->floor))
            continue;
        int32_t common = common_tokens(o, i, parent, tokens, count);
        if (common < best.common || common == 0 ||
            (common == best.common && b->provenance.kind >= best.provenance.kind))
            continue;
        struct md_range r = md_tape_range(o->tape, i);
        best = (struct md_hot_match){ .drive = o,
                                      .tokens = o->tape->tokens + r.start,
                                      .count = md_range_len(r),
                                      .common = common,
                                      .provenance = b->provenance };
    }
    return best;
}

bool md_hot_is_wanted(const struct md_hot *h, const struct md_drive *d, const struct md_cold_ref *ref)
{
    size_t i = (size_t)(ref->range.start / d->tape->block_tokens);
    int32_t count = md_range_len(ref->range);
    for (const struct md_drive *o = h->drives; o != NULL; o = o->next)
        if (o != d && common_tokens(o, i, ref->parent, ref->tokens, count) == count)
            return true;
    return false;
}

/* ---- room ---- */

struct idle_list {
    struct md_idle_block *blocks;
    struct md_drive **drives; /* whose block it is */
    size_t *indices, *order, count;
};

static enum md_status list_idle(struct md_hot *h, const struct md_drive *live, struct md_arena *arena,
                                struct idle_list *l, struct md_err *err)
{
    size_t cap = 0;
    for (struct md_drive *d = h->drives; d != NULL; d = d->next)
        cap += d != live && d->seq >= 0 ? md_tape_block_count(d->tape) : 0;
    l->blocks = md_arena_get(arena, cap, sizeof *l->blocks);
    l->drives = md_arena_get(arena, cap, sizeof *l->drives);
    l->indices = md_arena_get(arena, cap, sizeof *l->indices);
    l->order = md_arena_get(arena, cap, sizeof *l->order);
    if (l->blocks == NULL || l->drives == NULL || l->indices == NULL || l->order == NULL)
        return md_fail(err, MD_NO_MEMORY, "list of %zu idle blocks", cap);
    for (struct md_drive *d = h->drives; d != NULL; d = d->next) {
        for (size_t i = 0; d != live && d->seq >= 0 && i < md_tape_block_count(d->tape); i++) {
            if (d->tape->blocks[i].state != MD_STATE_HOT)
                continue;
            l->blocks[l->count] = (struct md_idle_block){ .session_last_used = d->last_live,
                                                          .cls = d->tape->blocks[i].cls,
                                                          .range = md_tape_range(d->tape, i) };
            l->drives[l->count] = d;
            l->indices[l->count++] = i;
        }
    }
    md_idle_order(l->blocks, l->count, l->order);
    return MD_OK;
}

enum md_status md_hot_make_cells(struct md_hot *h, const struct md_drive *live, int32_t need,
                                 struct md_err *err)
{
    struct md_arena arena MD_CLEANUP(md_arena_done);
    struct idle_list l = { 0 };
    md_arena_init(&arena, h->alloc, IDLE_BYTES_MAX);
    if (md_engine_cells_used(h->engine) + need <= h->limit_tokens)
        return MD_OK;
    enum md_status s = list_idle(h, live, &arena, &l, err);
    /* first what frees cells by itself; then also what idle ones hold together; never what the live one has too */
    for (int round = 0; round < 2 && s == MD_OK; round++) {
        for (size_t k = 0; k < l.count && s == MD_OK; k++) {
            if (md_engine_cells_used(h->engine) + need <= h->limit_tokens)
                return MD_OK;
            struct md_drive *d = l.drives[l.order[k]];
            size_t i = l.indices[l.order[k]];
            if (d->tape->blocks[i].state != MD_STATE_HOT)
                continue;
            struct md_range r = md_tape_range(d->tape, i);
            bool shared = md_engine_own_cells(h->engine, d->seq, r) == 0;
            struct md_cold_ref ref = md_tape_ref(d->tape, i);
            if (shared && (round == 0 || md_drive_has_hot(live, &ref)))
                continue;
            s = md_drive_evict(d, i, err);
            if (s == MD_SESSION_FATAL) { /* for d, whose blocks are all out of the way now */
                md_drive_give_up(d, err);
                s = MD_OK;
            }
        }
    }
    if (s == MD_OK && md_engine_cells_used(h->engine) + need > h->limit_tokens)
        s = md_fail(err, MD_NO_MEMORY, "%d tokens do not fit beside %d in the hot set of %d", need,
                    md_engine_cells_used(h->engine), h->limit_tokens);
    return s;
}

bool md_hot_check(const struct md_hot *h)
{
    for (const struct md_drive *d = h->drives; d != NULL; d = d->next)
        if (!md_drive_check(d))
            return false;
    return md_engine_cells_used(h->engine) <= h->limit_tokens;
}
