/* drive.c - see drive.h. */
#include "session/drive.h"

#include "policy/rebase.h"
#include "session/room.h"
#include "session/state.h"
#include "session/whole.h"

#include <assert.h>

enum { PLAN_BYTES_MAX = 64 << 20 }; /* blocks of a tape of millions of tokens; a limit from birth */

static struct md_tape_block *block_at(const struct md_drive *d, size_t i)
{
    return &d->tape->blocks[i];
}

/* ---- life ---- */

void md_drive_open(struct md_drive *d, struct md_hot *hot, struct md_tape *tape)
{
    *d = (struct md_drive){ .hot = hot, .next = hot->drives, .seq = -1, .tape = tape };
    hot->drives = d;
}

enum md_status md_drive_begin(struct md_drive *d, struct md_err *err)
{
    d->last_live = ++d->hot->clock;
    return d->seq >= 0 ? MD_OK : md_room_take_sequence(d->hot, d, err);
}

void md_drive_close(struct md_drive *d, bool keep)
{
    if (d->hot == NULL)
        return;
    struct md_err
        ignored; /* what does not go cold is dropped, and a sequence that cannot be emptied is retired */
    for (size_t i = md_tape_block_count(d->tape); i-- > 0;) {
        struct md_cold_ref ref = md_tape_ref(d->tape, i);
        if (block_at(d, i)->state == MD_STATE_HOT && (keep || md_hot_is_wanted(d->hot, d, &ref)))
            (void)!md_move_evict(d, i, &ignored);
        md_move_let_go(d, i);
        if (!keep)
            md_move_drop_cold(d, &ref); /* of a hot one there may be a copy */
    }
    if (!keep)
        md_state_drop_behind(d, 0);
    if (d->seq >= 0)
        (void)!md_engine_truncate(d->hot->engine, d->seq, 0, &ignored);
    struct md_drive **at = &d->hot->drives;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    *d = (struct md_drive){ 0 };
}

/* ---- plan and apply ---- */

/* A plan over the blocks that are not held out; index[k] is the block of the tape that plan block k is. */
struct planned {
    struct md_arena arena;
    struct md_plan plan;
    struct md_block *blocks;
    size_t *index, count;
    const float *scores;    /* of each planned block; NULL: they go by recency */
    int32_t *places;        /* where planned blocks begin in the engine */
    int32_t missing_tokens; /* planned and not hot */
};

static enum md_status make_plan(struct md_drive *d, int32_t budget, struct planned *p, struct md_err *err)
{
    md_move_notice_lost(d);
    size_t count = md_tape_block_count(d->tape);
    p->blocks = md_arena_get(&p->arena, count, sizeof *p->blocks);
    p->index = md_arena_get(&p->arena, count, sizeof *p->index);
    if (p->blocks == NULL || p->index == NULL)
        return md_fail(err, MD_NO_MEMORY, "residency plan of %zu blocks", count);
    for (size_t i = 0; i < count; i++) {
        const struct md_tape_block *b = block_at(d, i);
        if (b->held_out && i + 1 < count) /* what follows joins the last one, so that it must be hot */
            continue;
        p->blocks[p->count] = (struct md_block){ .range = md_tape_range(d->tape, i),
                                                 .cls = b->cls,
                                                 .flags = b->retrieved ? MD_BLOCK_RETRIEVED : 0 };
        p->index[p->count++] = i;
    }
    enum md_status s = MD_OK;
    if (d->hot->by_attention)
        s = md_tape_scores(d->tape, p->index, p->count, &p->arena, &p->scores, err);
    if (s == MD_OK)
        s = md_residency_plan(p->blocks, p->count, p->scores, budget, d->hot->stream, d->hot->gate, &p->arena,
                              &p->plan, err);
    if (s == MD_OK) {
        d->pinned_cold = p->plan.pinned_cold_tokens;
        d->protected_tokens = p->plan.protected_tokens;
    }
    return s;
}

/* Where each of them stands in the engine: at its range on the tape, or nearer to what comes.  A lost one counts as well,
 * for it may be computed again. */
static enum md_status make_places(struct md_drive *d, int32_t incoming, struct planned *p, struct md_err *err)
{
    const int32_t window = d->hot->past_window;
    size_t n = 0;
    int32_t coming = d->tape->block_tokens, hot = 0; /* see md_rebase_plan */
    p->places = md_arena_get(&p->arena, p->count, sizeof *p->places);
    if (p->places == NULL)
        return md_fail(err, MD_NO_MEMORY, "places of %zu blocks", p->count);
    for (size_t k = 0; k < p->count; k++)
        p->places[k] = p->blocks[k].range.start;
    if (window == 0)
        return MD_OK;
    struct md_rebase_block *blocks = md_arena_get(&p->arena, p->count, sizeof *blocks);
    int32_t *places = md_arena_get(&p->arena, p->count, sizeof *places);
    if (blocks == NULL || places == NULL)
        return md_fail(err, MD_NO_MEMORY, "places of %zu blocks", p->count);
    for (size_t k = 0; k < p->count; k++)
        if (p->plan.hot[k]) {
            blocks[n++] = (struct md_rebase_block){ .start = p->blocks[k].range.start,
                                                    .length = md_range_len(p->blocks[k].range) };
            hot += md_range_len(p->blocks[k].range);
        }
    if (coming > window - hot)
        coming = window - hot;
    if (coming < incoming)
        coming = incoming;
    enum md_status s =
        md_rebase_plan(blocks, n, d->tape->count, coming, window, md_rebase_step(window), places, err);
    for (size_t k = p->count; k-- > 0 && s == MD_OK;)
        if (p->plan.hot[k])
            p->places[k] = places[--n];
    return s;
}

/* Out of the place it has, to come in at another.  Where its bytes cannot be kept, it leaves. */
static enum md_status lift(struct md_drive *d, size_t i, const struct md_block *b, struct md_err *err)
{
    bool kept;
    enum md_status s = md_move_lift(d, i, &kept, err);
    if (s != MD_OK || kept)
        return s;
    if (md_block_is_protected(b))
        return md_fail(err, MD_NO_MEMORY,
                       "the cold store has no room for the block at %d, which must be moved nearer: raise "
                       "--mem-cold",
                       b->range.start);
    return md_move_evict(d, i, err);
}

/* Out with what is hot and not planned, or not at its place; together with others what they have hot. */
static enum md_status apply_free_moves(struct md_drive *d, struct planned *p, struct md_err *err)
{
    enum md_status s = MD_OK;
    size_t k = 0;
    for (size_t i = 0; i < md_tape_block_count(d->tape) && s == MD_OK; i++) {
        const bool seen = k < p->count && p->index[k] == i, wanted = seen && p->plan.hot[k];
        const size_t at = k;
        k += seen;
        block_at(d, i)->aside = seen && !wanted && p->scores != NULL;
        if (!wanted && block_at(d, i)->state == MD_STATE_HOT)
            s = md_move_evict(d, i, err);
        else if (wanted && block_at(d, i)->state == MD_STATE_HOT &&
                 md_tape_place(d->tape, i).start != p->places[at])
            s = lift(d, i, &p->blocks[at], err);
        bool done = false;
        if (s == MD_OK && wanted && block_at(d, i)->state == MD_STATE_COLD &&
            p->places[at] == p->blocks[at].range.start)
            s = md_move_share(d, i, &done, err);
        if (wanted && block_at(d, i)->state != MD_STATE_HOT)
            p->missing_tokens += md_range_len(md_tape_range(d->tape, i));
    }
    return s;
}

/* Must the tape be cut where this planned block begins, which is lost and cannot be computed in its place?  One that
 * is wanted but not needed stays lost: computing it would mean all behind it too.  Where everything fits, everything is
 * needed.  What its class alone protects may be lost again on the way, for it comes and goes with the size of a chunk:
 * once in a turn is enough, else it would never end. */
static bool sends_back(struct md_drive *d, const struct md_block *b)
{
    if (d->request.stays)
        return false;
    if (d->hot->stream.recent_tokens == 0 || (b->flags & (MD_BLOCK_SINK | MD_BLOCK_RECENT)) != 0)
        return true;
    if (!md_block_is_protected(b) || d->request.went_back)
        return false;
    d->request.went_back = true;
    return true;
}

static enum md_status apply_plan(struct md_drive *d, struct planned *p, int32_t incoming,
                                 int32_t *ret_lost_from, struct md_err *err)
{
    enum md_status s = apply_free_moves(d, p, err);
    if (s == MD_OK)
        s = md_room_make_cells(d->hot, d, incoming + p->missing_tokens, err);
    for (size_t k = 0; k < p->count && s == MD_OK; k++) {
        size_t i = p->index[k];
        if (!p->plan.hot[k])
            continue;
        if (block_at(d, i)->state == MD_STATE_COLD)
            s = md_move_admit(d, i, p->places[k], false, err);
        bool done = true;
        if (s == MD_OK && block_at(d, i)->state == MD_STATE_LOST) {
            done = false; /* at another place than its own nothing is computed */
            if (p->places[k] == p->blocks[k].range.start)
                s = md_move_recompute(d, i, &done, err);
        }
        if (s == MD_OK && !done && sends_back(d, &p->blocks[k])) {
            *ret_lost_from = md_tape_range(d->tape, i).start;
            return MD_OK;
        }
    }
    return s;
}

/* Nothing is on its way any more. */
static void let_go_unmoved(struct md_drive *d)
{
    for (size_t i = 0; d->hot->past_window > 0 && i < md_tape_block_count(d->tape); i++)
        if (block_at(d, i)->state != MD_STATE_HOT || block_at(d, i)->moved_by == 0)
            md_move_let_go(d, i);
}

bool md_drive_reaches(const struct md_drive *d, int32_t more)
{
    const int32_t window = d->hot->past_window;
    size_t i = 0;
    if (window == 0)
        return true;
    while (i < md_tape_block_count(d->tape) && block_at(d, i)->state != MD_STATE_HOT)
        i++; /* places are in the order of the tape */
    return i == md_tape_block_count(d->tape) ||
           md_tape_place(d->tape, i).start >= d->tape->count + more - window;
}

enum md_status md_drive_make_room(struct md_drive *d, int32_t incoming, int32_t *ret_lost_from,
                                  struct md_err *err)
{
    struct planned p = { 0 };
    const int32_t limit = d->hot->limit_tokens;
    assert(incoming >= 0 && d->seq >= 0);
    *ret_lost_from = -1;
    d->room_end = d->tape->count + incoming;
    if (incoming > limit)
        return md_fail(err, MD_NO_MEMORY, "%d tokens do not fit the hot set of %d", incoming, limit);
    if (md_whole_is_all(d->hot))
        return md_whole_make_room(d, incoming, ret_lost_from, err);
    if (d->tape->count == 0)
        return md_room_make_cells(d->hot, d, incoming, err);
    md_arena_init(&p.arena, d->hot->alloc, PLAN_BYTES_MAX);
    enum md_status s = make_plan(d, limit - incoming, &p, err);
    if (s == MD_OK && p.plan.over_budget)
        s = md_fail(err, MD_NO_MEMORY, "%d tokens must stay hot and leave no room for %d more in %d%s%s",
                    p.plan.hot_tokens, incoming, limit, p.plan.diagnostic != NULL ? ": " : "",
                    p.plan.diagnostic != NULL ? p.plan.diagnostic : "");
    if (s == MD_OK)
        s = make_places(d, incoming, &p, err);
    if (s == MD_OK)
        s = apply_plan(d, &p, incoming, ret_lost_from, err);
    let_go_unmoved(d);
    md_arena_done(&p.arena);
    assert(s == MD_SESSION_FATAL || md_engine_cells_used(d->hot->engine) <= limit);
    return s;
}

int32_t md_drive_free_tokens(const struct md_drive *d)
{
    const struct md_hot *h = d->hot;
    const struct md_tape *t = d->tape;
    if (!md_residency_gate_is_open(h->gate))
        return h->limit_tokens - t->count;
    /* protected: the sinks, the recent window with the part of a block it may begin in, what is pinned between */
    const int32_t most =
        h->limit_tokens - h->stream.sink_tokens - h->stream.recent_tokens - t->count % t->block_tokens;
    int32_t pinned = 0;
    for (size_t i = 0; i < md_tape_block_count(t); i++) {
        struct md_range r = md_tape_range(t, i);
        if (md_stream_flags(r, t->count, h->stream) == 0 && t->blocks[i].cls == MD_CLASS_TASK_PINNED &&
            !t->blocks[i].held_out)
            pinned += md_range_len(r);
    }
    const int32_t least =
        most < t->block_tokens ? most : t->block_tokens; /* what is pinned makes way for that */
    return most - pinned > least ? most - pinned : least;
}

void md_drive_touch(struct md_drive *d, int32_t count)
{
    for (size_t i = 0; i < md_tape_block_count(d->tape) && md_tape_range(d->tape, i).start < count; i++) {
        if (block_at(d, i)->state != MD_STATE_COLD)
            continue;
        struct md_cold_ref ref = md_tape_ref(d->tape, i);
        md_cold_touch(d->hot->cold, &ref, block_at(d, i)->cls);
    }
}

/* ---- growing ---- */

enum md_cache_class md_drive_class(const struct md_drive *d, size_t i)
{
    return i < d->class_count ? d->classes[i] : MD_CLASS_VOLATILE; /* behind the prompt: the answer */
}

bool md_drive_holds_out(const struct md_drive *d, size_t i)
{
    return i < d->held_out_count && d->held_out[i];
}

enum md_status md_drive_append_computed(struct md_drive *d, const md_token *tokens, int32_t count,
                                        struct md_err *err)
{
    struct md_tape *t = d->tape;
    const int32_t start = t->count;
    md_tape_append_computed(t, tokens, count, MD_CLASS_VOLATILE);
    md_move_mark(d, (struct md_range){ start, start + count }, MD_MARK_COMPUTED);
    d->changes++;
    for (size_t i = (size_t)(start / t->block_tokens); i < md_tape_block_count(t); i++) {
        if (i < d->class_count)
            t->blocks[i].cls = d->classes[i];
        if (md_drive_holds_out(d, i))
            t->blocks[i].held_out = true;
        bool whole = md_range_len(md_tape_range(t, i)) == t->block_tokens, kept;
        /* on a plain failure it is hot, and goes cold when it leaves */
        if (whole && d->hot->write_through && md_move_keep_copy(d, i, &kept, err) == MD_SESSION_FATAL)
            return MD_SESSION_FATAL;
    }
    return MD_OK;
}

/* ---- cutting ---- */

/* Take the last block off the tape; its KV goes cold when it can and shall. */
static enum md_status release_last(struct md_drive *d, bool keep, struct md_err *err)
{
    size_t i = md_tape_block_count(d->tape) - 1;
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    enum md_status s = MD_OK;
    if (!keep) {
        md_move_drop_cold(d, &ref);
        md_state_drop(d, i);
    }
    if (block_at(d, i)->state == MD_STATE_HOT) {
        if (keep || md_hot_is_wanted(d->hot, d, &ref)) {
            s = md_move_evict(d, i, err);
        } else {
            s = md_move_remove(d, ref.range, err);
            if (s == MD_OK)
                md_move_lose(d, i);
        }
    }
    if (s == MD_OK)
        md_tape_cut(d->tape, ref.range.start);
    return s;
}

/* Shorten the last block, which is hot or cold, to end at `count`; a copy of the whole goes or stays cold. */
static enum md_status shorten_last(struct md_drive *d, int32_t count, bool keep, struct md_err *err)
{
    size_t i = md_tape_block_count(d->tape) - 1;
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    bool kept = false;
    enum md_status s = MD_OK;
    keep = keep || md_hot_is_wanted(d->hot, d, &ref);
    if (block_at(d, i)->state == MD_STATE_COLD) {
        kept = keep;
        s = md_move_admit(d, i, ref.range.start, keep, err);
    } else if (keep)
        s = md_move_keep_copy(d, i, &kept, err);
    if (s != MD_OK)
        return s;
    if (block_at(d, i)->state != MD_STATE_HOT) { /* it was not to be had after all */
        md_tape_cut(d->tape, ref.range.start);
        return MD_OK;
    }
    s = md_engine_truncate(d->hot->engine, d->seq, count, err);
    if (s != MD_OK)
        return s;
    if (!keep)
        md_cold_drop(d->hot->cold, &ref); /* a copy of what was hot */
    if (!kept)
        md_move_count_dropped(d, ref.range.end - count);
    md_tape_cut(d->tape, count);
    d->changes++;
    return MD_OK;
}

/* Where KV cannot go back a part of the way, everything is computed again. */
static enum md_status drop_all(struct md_drive *d, struct md_err *err)
{
    enum md_status s = md_move_lose_hot(d, err);
    if (s == MD_OK)
        md_tape_cut(d->tape, 0);
    return s;
}

/* The last block is cold and is to be cut inside.  *ret_done: it was dealt with, the tape ends at or before
 * `count`; otherwise there is room for it to come in whole. */
static enum md_status cut_cold_last(struct md_drive *d, int32_t count, bool keep, bool *ret_done,
                                    struct md_err *err)
{
    struct md_tape *t = d->tape;
    const size_t last = md_tape_block_count(t) - 1;
    struct md_range r = md_tape_range(t, last);
    struct md_cold_ref ref = md_tape_ref(t, last);
    *ret_done = true;
    if (md_hot_best(d->hot, d, ref.parent, r.start, ref.tokens, count - r.start).common == count - r.start) {
        if (!keep)
            md_move_drop_cold(d, &ref);
        bool shared;
        md_tape_cut(t, count); /* another conversation has that much of it hot */
        return md_move_share(d, md_tape_block_count(t) - 1, &shared, err);
    }
    /* it comes in whole before it is cut: the blocks that stay must leave it that much room */
    const struct md_tape_block kept = *block_at(d, last);
    int32_t lost_from;
    md_tape_cut(t, r.start);
    enum md_status s = md_drive_make_room(d, md_range_len(r), &lost_from, err);
    if (s != MD_OK)
        return s;
    if (lost_from >= 0) {
        if (!keep)
            md_move_drop_cold(d, &ref);
        return md_drive_cut(d, lost_from, keep, err);
    }
    t->count = r.end; /* its tokens and record are still in place */
    t->blocks[last] = kept;
    *ret_done = false;
    return MD_OK;
}

/* What stands re-based where the tape will end, or behind that, leaves first: the end has its own places, and what stays
 * comes back with the next plan. */
static enum md_status clear_end(struct md_drive *d, int32_t count, struct md_err *err)
{
    const struct md_tape *t = d->tape;
    enum md_status s = MD_OK;
    for (size_t i = 0; i < md_tape_block_count(t) && s == MD_OK; i++)
        if (t->blocks[i].moved_by > 0 && md_tape_place(t, i).end > count - count % t->block_tokens)
            s = md_move_evict(d, i, err);
    return s;
}

/* Cut at `count`, wherever that is: what the engine holds behind it goes. */
static enum md_status cut_at(struct md_drive *d, int32_t count, bool keep, struct md_err *err)
{
    struct md_tape *t = d->tape;
    enum md_status s = clear_end(d, count, err);
    while (s == MD_OK && t->count > 0 && md_tape_range(t, md_tape_block_count(t) - 1).start >= count)
        s = release_last(d, keep, err);
    if (s != MD_OK || t->count <= count)
        return s;
    size_t last = md_tape_block_count(t) - 1;
    bool done = false;
    if (block_at(d, last)->state == MD_STATE_COLD)
        s = cut_cold_last(d, count, keep, &done, err);
    if (s != MD_OK || done)
        return s;
    if (block_at(d, last)->state == MD_STATE_LOST) {
        md_tape_cut(t, md_tape_range(t, last).start);
        return MD_OK;
    }
    return shorten_last(d, count, keep, err);
}

/* Cut at `count`, where the engine can go on at once: its state there is lost when blocks leave one by one.
 *
 * state  NULL: it has it still; else what is put back */
static enum md_status cut_ready(struct md_drive *d, int32_t count, bool keep, const struct md_bytes *state,
                                struct md_err *err)
{
    struct md_tape *t = d->tape;
    enum md_status s = keep ? md_state_save(d, err) : MD_OK;
    if (!keep)
        md_state_drop_behind(d, count);
    for (size_t i = md_tape_block_count(t); s == MD_OK && i-- > (size_t)(count / t->block_tokens);) {
        const struct md_cold_ref ref = md_tape_ref(t, i);
        const int32_t from = ref.range.start > count ? ref.range.start : count;
        bool kept = block_at(d, i)->state == MD_STATE_COLD;
        if (!keep)
            md_move_drop_cold(d, &ref);
        if (block_at(d, i)->state == MD_STATE_HOT && (keep || md_hot_is_wanted(d->hot, d, &ref)))
            s = md_move_keep_copy(d, i, &kept, err);
        if (!kept && from < ref.range.end)
            md_move_count_dropped(d, ref.range.end - from);
    }
    if (s == MD_OK)
        s = state == NULL ? md_engine_truncate(d->hot->engine, d->seq, count, err)
                          : md_engine_rewind(d->hot->engine, d->seq, count, *state, err);
    if (s == MD_OK)
        md_tape_cut(t, count);
    return s;
}

enum md_status md_drive_cut(struct md_drive *d, int32_t count, bool keep, struct md_err *err)
{
    struct md_tape *t = d->tape;
    assert(count >= 0 && count <= t->count);
    if (count == t->count)
        return MD_OK;
    d->changes++;
    if (md_whole_is_all(d->hot))
        return md_whole_cut(d, count, keep, err);
    if (md_state_is_kept(d->hot)) {
        const int32_t at = md_state_before(d, count);
        return at > 0 && md_state_can_cut(d, at) ? cut_ready(d, at, keep, NULL, err)
                                                 : cut_at(d, at, keep, err);
    }
    /* the engine may be behind the tape: blocks at its end may be cold or lost */
    const int32_t end = md_engine_end(d->hot->engine, d->seq), from = count < end ? count : end;
    if (md_engine_cut_point(d->hot->engine, d->seq, from) < from)
        return drop_all(d, err);
    return cut_at(d, count, keep, err);
}

enum md_status md_drive_cut_rewound(struct md_drive *d, int32_t count, struct md_bytes state,
                                    struct md_err *err)
{
    assert(count > 0 && count < d->tape->count && md_state_is_kept(d->hot) && !md_whole_is_all(d->hot));
    d->changes++;
    return cut_ready(d, count, false, &state, err);
}

enum md_status md_drive_cut_known(struct md_drive *d, int32_t count, struct md_err *err)
{
    assert(count >= 0 && count <= d->tape->count);
    if (!md_state_is_kept(d->hot))
        return md_drive_cut(d, count, true, err);
    d->changes++;
    return count == d->tape->count ? MD_OK : cut_at(d, count, true, err);
}

/* ---- invariants ---- */

/* Nothing of positions r is hot. */
static bool is_clear(const struct md_drive *d, struct md_range r)
{
    for (int32_t p = r.start; d->seq >= 0 && p < r.end; p++)
        if (md_engine_is_hot(d->hot->engine, d->seq, (struct md_range){ p, p + 1 }))
            return false;
    return true;
}

/* A hot block stands behind those before it, and at its place in the engine; elsewhere than at its own only past the
 * window, and then the store holds what it was; and what was computed last did not look further than the window. */
static bool check_hot(const struct md_drive *d, size_t i, int32_t before)
{
    const struct md_tape_block *b = block_at(d, i);
    const struct md_range at = md_tape_place(d->tape, i);
    const int32_t window = d->hot->past_window;
    if (d->seq < 0 || at.start < before || !is_clear(d, (struct md_range){ before, at.start }) ||
        !md_engine_is_hot(d->hot->engine, d->seq, at))
        return false;
    if (window > 0 && at.start < d->tape->evaluated - window)
        return false;
    if (b->moved_by == 0)
        return !b->held;
    const struct md_cold_ref ref = md_tape_ref(d->tape, i);
    return window > 0 && b->moved_by > 0 && b->held && md_cold_is_held(d->hot->cold, &ref);
}

static bool check(const struct md_drive *d)
{
    int32_t hot = 0, before = 0;
    for (size_t i = 0; i < md_tape_block_count(d->tape); i++) {
        const struct md_tape_block *b = block_at(d, i);
        if (b->state != MD_STATE_HOT) { /* the store may have let it go, which the next plan notices */
            if (b->moved_by != 0 || b->held)
                return false;
            continue;
        }
        if (!check_hot(d, i, before))
            return false;
        before = md_tape_place(d->tape, i).end;
        hot += md_range_len(md_tape_range(d->tape, i));
    }
    if (!is_clear(d, (struct md_range){ before, d->tape->count }))
        return false;
    if (d->seq < 0)
        return hot == 0;
    return hot <= md_engine_cells_used(d->hot->engine) &&
           md_engine_end(d->hot->engine, d->seq) <= d->tape->count;
}

bool md_drive_check_all(const struct md_hot *h)
{
    for (const struct md_drive *d = h->drives; d != NULL; d = d->next)
        if (!check(d))
            return false;
    return md_engine_cells_used(h->engine) <= h->limit_tokens;
}
