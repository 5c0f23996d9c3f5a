/* room.c - see room.h. */
#include "session/room.h"

#include "policy/idle.h"
#include "session/move.h"

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

enum md_status md_room_take_sequence(struct md_hot *h, struct md_drive *d, struct md_err *err)
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
    enum md_status s = md_move_leave(idle, err);
    if (s == MD_SESSION_FATAL) { /* for the idle one, which has no sequence any more */
        md_move_give_up(idle, err);
        return md_room_take_sequence(h, d, err);
    }
    if (s == MD_OK)
        d->seq = seq;
    return s;
}

/* ---- room ---- */

/* Hot blocks of conversations that are not live, and whose they are. */
struct idle_list {
    struct md_idle_block *blocks;
    struct md_drive **drives;
    size_t *indices, count; /* on the tape */
};

static int32_t own_cells(const struct md_hot *h, const struct md_drive *d, size_t i)
{
    return md_engine_own_cells(h->engine, d->seq, md_tape_place(d->tape, i));
}

static enum md_status list_idle(struct md_hot *h, const struct md_drive *live, struct md_arena *arena,
                                struct idle_list *l, struct md_err *err)
{
    size_t cap = 0, session = 0;
    for (struct md_drive *d = h->drives; d != NULL; d = d->next)
        cap += d != live && d->seq >= 0 ? md_tape_block_count(d->tape) : 0;
    l->blocks = md_arena_get(arena, cap, sizeof *l->blocks);
    l->drives = md_arena_get(arena, cap, sizeof *l->drives);
    l->indices = md_arena_get(arena, cap, sizeof *l->indices);
    if (l->blocks == NULL || l->drives == NULL || l->indices == NULL)
        return md_fail(err, MD_NO_MEMORY, "list of %zu idle blocks", cap);
    for (struct md_drive *d = h->drives; d != NULL; d = d->next, session++) {
        for (size_t i = 0; d != live && d->seq >= 0 && i < md_tape_block_count(d->tape); i++) {
            struct md_range r = md_tape_range(d->tape, i);
            if (d->tape->blocks[i].state != MD_STATE_HOT)
                continue;
            l->blocks[l->count] = (struct md_idle_block){ .session = session,
                                                          .session_last_used = d->last_live,
                                                          .cls = d->tape->blocks[i].cls,
                                                          .range = r,
                                                          .own_cells = own_cells(h, d, i) };
            l->drives[l->count] = d;
            l->indices[l->count++] = i;
        }
    }
    return MD_OK;
}

/* Take entry k off the list; those that may have shared its cells own more now. */
static void unlist(const struct md_hot *h, struct idle_list *l, size_t k)
{
    const struct md_range r = l->blocks[k].range;
    l->count--;
    l->blocks[k] = l->blocks[l->count];
    l->drives[k] = l->drives[l->count];
    l->indices[k] = l->indices[l->count];
    for (size_t i = 0; i < l->count; i++)
        if (l->blocks[i].range.start == r.start &&
            l->drives[i]->tape->blocks[l->indices[i]].state == MD_STATE_HOT)
            l->blocks[i].own_cells = own_cells(h, l->drives[i], l->indices[i]);
}

enum md_status md_room_make_cells(struct md_hot *h, const struct md_drive *live, int32_t need,
                                  struct md_err *err)
{
    struct md_arena arena MD_CLEANUP(md_arena_done);
    struct idle_list l = { 0 };
    md_arena_init(&arena, h->alloc, IDLE_BYTES_MAX);
    if (md_engine_cells_used(h->engine) + need <= h->limit_tokens)
        return MD_OK;
    enum md_status s = list_idle(h, live, &arena, &l, err);
    while (s == MD_OK && l.count > 0 && md_engine_cells_used(h->engine) + need > h->limit_tokens) {
        size_t k = md_idle_victim(l.blocks, l.count);
        /* it may have left with another one, where the engine cuts tails only */
        if (l.drives[k]->tape->blocks[l.indices[k]].state == MD_STATE_HOT)
            s = md_move_evict(l.drives[k], l.indices[k], err);
        if (s == MD_SESSION_FATAL) { /* for that one, whose blocks are all out of the way now */
            md_move_give_up(l.drives[k], err);
            s = MD_OK;
        }
        unlist(h, &l, k);
    }
    if (s == MD_OK && md_engine_cells_used(h->engine) + need > h->limit_tokens)
        s = md_fail(err, MD_NO_MEMORY, "%d tokens do not fit beside %d in the hot set of %d", need,
                    md_engine_cells_used(h->engine), h->limit_tokens);
    return s;
}
