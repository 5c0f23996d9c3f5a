/* whole.c - see whole.h. */
#include "session/whole.h"

#include "session/drive.h"
#include "session/room.h"
#include "session/state.h"

#include <assert.h>

bool md_whole_is_all(const struct md_hot *h)
{
    return md_state_is_kept(h) && md_engine_info(h->engine)->tail_only;
}

static bool is_hot(const struct md_drive *d)
{
    return d->seq >= 0 && md_engine_end(d->hot->engine, d->seq) > 0;
}

static void set_states(struct md_drive *d, enum md_block_state state)
{
    for (size_t i = 0; i < md_tape_block_count(d->tape); i++)
        d->tape->blocks[i].state = state;
    d->changes++;
}

void md_whole_notice_lost(struct md_drive *d)
{
    const struct md_tape *t = d->tape;
    if (is_hot(d) || md_tape_tokens_in(t, MD_STATE_COLD) == 0)
        return;
    const int32_t reach = md_state_saved_before(d, t->count);
    for (size_t i = (size_t)(reach / t->block_tokens); i < md_tape_block_count(t); i++)
        if (t->blocks[i].state == MD_STATE_COLD && md_tape_range(t, i).end > reach)
            md_move_lose(d, i);
}

enum md_status md_whole_evict(struct md_drive *d, struct md_err *err)
{
    enum md_status s = md_state_save(d, err);
    if (s == MD_OK)
        s = md_engine_truncate(d->hot->engine, d->seq, 0, err);
    if (s != MD_OK)
        return s;
    d->evicted_blocks += (int64_t)md_tape_block_count(d->tape);
    set_states(d, MD_STATE_COLD);
    md_whole_notice_lost(d);
    return MD_OK;
}

/* ---- coming back ---- */

enum md_status md_whole_make_room(struct md_drive *d, int32_t incoming, int32_t *ret_cut, struct md_err *err)
{
    struct md_tape *t = d->tape;
    const bool here = is_hot(d);
    *ret_cut = -1;
    enum md_status s = md_room_make_cells(d->hot, d, incoming + (here ? 0 : t->count), err);
    if (s != MD_OK || here || t->count == 0)
        return s;
    s = md_state_arm(d, ret_cut, err);
    if (s != MD_OK || *ret_cut >= 0)
        return s;
    d->restored_blocks += (int64_t)md_tape_block_count(t);
    set_states(d, MD_STATE_HOT);
    md_move_mark(d, (struct md_range){ 0, t->count }, MD_MARK_RESTORED);
    return MD_OK;
}

enum md_status md_whole_extend(struct md_drive *d, const md_token *prompt, int32_t limit, struct md_err *err)
{
    struct md_tape *t = d->tape;
    const int32_t ahead = md_state_ahead(d, prompt, limit);
    if (ahead == t->count)
        return MD_OK;
    enum md_status s = is_hot(d) ? md_whole_evict(d, err) : MD_OK; /* it can be come back to */
    if (s != MD_OK)
        return s;
    md_tape_cut(t, t->count - t->count % t->block_tokens); /* the piece comes again, as a part of more */
    while (t->count < ahead) {
        const int32_t left = ahead - t->count;
        const struct md_tape_block fresh = { .state = MD_STATE_COLD,
                                             .cls = md_drive_class(d, md_tape_block_count(t)),
                                             .provenance = { .kind = MD_PROVENANCE_FULL } };
        md_tape_append(t, prompt + t->count, left < t->block_tokens ? left : t->block_tokens, fresh);
    }
    set_states(d, MD_STATE_COLD); /* those before as well: the state there covers them */
    return MD_OK;
}

/* ---- cutting ---- */

enum md_status md_whole_cut(struct md_drive *d, int32_t count, bool keep, struct md_err *err)
{
    struct md_tape *t = d->tape;
    const int32_t old = t->count;
    const int32_t had = md_tape_tokens_in(t, MD_STATE_HOT) + md_tape_tokens_in(t, MD_STATE_COLD);
    enum md_status s = keep ? md_state_save(d, err) : MD_OK;
    if (s != MD_OK)
        return s;
    const int32_t at = md_state_before(d, count);
    if (!keep)
        md_state_drop_behind(d, at);
    int32_t left = md_state_saved_before(d, old); /* what falls off is there up to here */
    left = left > at ? left : at;
    if (is_hot(d)) {
        const bool stays = at > 0 && md_state_can_cut(d, at);
        s = md_engine_truncate(d->hot->engine, d->seq, stays ? at : 0, err);
        if (s == MD_OK && !stays)
            set_states(d, MD_STATE_COLD);
    }
    if (s != MD_OK)
        return s;
    md_move_count_dropped(d, had > left ? had - left : 0);
    md_tape_cut(t, at);
    return MD_OK;
}
