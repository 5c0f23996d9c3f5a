/* drive.c - see drive.h. */
#include "session/drive.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>

enum { PLAN_BYTES_MAX = 64 << 20 }; /* blocks of a tape of millions of tokens; a limit from birth */

static struct md_tape_block *block_at(const struct md_drive *d, size_t i)
{
    return &d->tape->blocks[i];
}

static bool has_cap(const struct md_drive *d, unsigned cap)
{
    return (md_engine_caps(d->hot->engine) & cap) != 0;
}

static void set_state(struct md_drive *d, size_t i, enum md_block_state state)
{
    block_at(d, i)->state = state;
    d->changes++;
}

static void block_lost(struct md_drive *d, size_t i)
{
    set_state(d, i, MD_STATE_LOST);
    d->request.dropped_tokens += md_range_len(md_tape_range(d->tape, i));
    d->dropped_blocks++;
}

void md_drive_mark(struct md_drive *d, struct md_range r, enum md_mark mark)
{
    for (int32_t p = r.start; p < r.end && p < d->request.mark_count; p++) {
        if (mark == MD_MARK_COMPUTED && !(d->request.marks[p] & MD_MARK_COMPUTED))
            d->request.computed_tokens++;
        d->request.marks[p] |= (uint8_t)mark;
    }
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
    return d->seq >= 0 ? MD_OK : md_hot_take_sequence(d->hot, d, err);
}

enum md_status md_drive_leave(struct md_drive *d, struct md_err *err)
{
    if (d->seq < 0)
        return MD_OK;
    for (size_t i = md_tape_block_count(d->tape);
         i-- > 0;) { /* from the end: every engine can do that best */
        enum md_status s = block_at(d, i)->state == MD_STATE_HOT ? md_drive_evict(d, i, err) : MD_OK;
        if (s != MD_OK)
            return s;
    }
    assert(md_engine_end(d->hot->engine, d->seq) == 0);
    d->seq = -1;
    return MD_OK;
}

/* Forget the KV of a block wherever it is, unless another conversation has it on its tape. */
static void drop_cold(struct md_drive *d, const struct md_cold_ref *ref)
{
    if (!md_hot_is_wanted(d->hot, d, ref))
        md_cold_drop(d->hot->cold, ref);
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
            (void)!md_drive_evict(d, i, &ignored);
        else if (!keep)
            drop_cold(d, &ref); /* of a hot one there may be a copy */
    }
    if (d->seq >= 0)
        (void)!md_engine_truncate(d->hot->engine, d->seq, 0, &ignored);
    struct md_drive **at = &d->hot->drives;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    *d = (struct md_drive){ 0 };
}

void md_drive_give_up(struct md_drive *d, const struct md_err *cause)
{
    struct md_err ignored;
    if (d->fatal.status == MD_OK)
        d->fatal = *cause;
    d->changes++;
    if (d->seq < 0)
        return;
    for (size_t i = 0; i < md_tape_block_count(d->tape); i++)
        if (block_at(d, i)->state == MD_STATE_HOT)
            block_lost(d, i);
    (void)!md_engine_truncate(d->hot->engine, d->seq, 0, &ignored);
    d->seq = -1; /* not free as long as anything is left in it */
}

/* ---- single moves ---- */

bool md_drive_has_hot(const struct md_drive *d, const struct md_cold_ref *ref)
{
    size_t i = (size_t)(ref->range.start / d->tape->block_tokens);
    if (d->seq < 0 || i >= md_tape_block_count(d->tape) || block_at(d, i)->state != MD_STATE_HOT)
        return false;
    struct md_cold_ref own = md_tape_ref(d->tape, i);
    return md_key_equal(own.key, ref->key) && md_range_len(own.range) == md_range_len(ref->range);
}

/* The copy of this block, whole, that another conversation has hot; drive NULL: none. */
static struct md_hot_match elsewhere(const struct md_drive *d, const struct md_cold_ref *ref)
{
    int32_t count = md_range_len(ref->range);
    struct md_hot_match m = md_hot_best(d->hot, d, ref->parent, ref->range.start, ref->tokens, count);
    return m.common == count ? m : (struct md_hot_match){ 0 };
}

static bool is_available(const struct md_drive *d, const struct md_cold_ref *ref)
{
    return md_cold_has(d->hot->cold, ref, d->hot->floor) || elsewhere(d, ref).drive != NULL;
}

/* A copy of hot block i stays when it leaves the engine: in the cold store, or with somebody else.  A piece of a block
 * is not left to somebody else: his may grow, and is then another block in the store. */
static enum md_status keep_copy(struct md_drive *d, size_t i, bool *ret_kept, struct md_err *err)
{
    const struct md_tape_block *b = block_at(d, i);
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    struct md_hot_match other = elsewhere(d, &ref);
    *ret_kept = md_range_len(ref.range) == d->tape->block_tokens && other.drive != NULL &&
                other.provenance.kind <= b->provenance.kind;
    if (*ret_kept || !has_cap(d, MD_CAP_COLD_STORE) || !md_provenance_accepted(b->provenance, d->hot->floor))
        return MD_OK; /* what would not be used again takes no room */
    return md_cold_copy(d->hot->cold, d->hot->engine, d->seq, &ref, b->cls, b->provenance, ret_kept, err);
}

/* Take r out of the engine: from the middle, or as the tail. */
static enum md_status remove_range(struct md_drive *d, struct md_range r, struct md_err *err)
{
    struct md_engine *e = d->hot->engine;
    return has_cap(d, MD_CAP_REMOVE_MIDDLE) ? md_engine_remove_range(e, d->seq, r, err)
                                            : md_engine_truncate(e, d->seq, r.start, err);
}

/* An engine that can only forget its end lets go of block i with all that stands behind it, or of everything. */
static enum md_status evict_tail(struct md_drive *d, size_t i, struct md_err *err)
{
    struct md_engine *e = d->hot->engine;
    const size_t count = md_tape_block_count(d->tape);
    int32_t from = md_tape_range(d->tape, i).start;
    enum md_status s = MD_OK;
    if (md_engine_cut_point(e, d->seq, from) < from)
        from = 0;
    const size_t first = (size_t)(from / d->tape->block_tokens);
    bool ignored; /* whether each is there is asked at the end: one copy may push out another */
    for (size_t k = count; k-- > first && s == MD_OK;)
        if (block_at(d, k)->state == MD_STATE_HOT)
            s = keep_copy(d, k, &ignored, err);
    if (s == MD_OK)
        s = md_engine_truncate(e, d->seq, from, err);
    for (size_t k = first; k < count && s == MD_OK; k++) {
        if (block_at(d, k)->state != MD_STATE_HOT)
            continue;
        d->evicted_blocks++;
        set_state(d, k, MD_STATE_COLD);
    }
    if (s == MD_OK)
        md_drive_notice_lost(d);
    return s;
}

enum md_status md_drive_evict(struct md_drive *d, size_t i, struct md_err *err)
{
    bool kept;
    assert(block_at(d, i)->state == MD_STATE_HOT);
    if (!has_cap(d, MD_CAP_REMOVE_MIDDLE))
        return evict_tail(d, i, err);
    enum md_status s = keep_copy(d, i, &kept, err);
    if (s == MD_OK)
        s = remove_range(d, md_tape_range(d->tape, i), err);
    if (s != MD_OK)
        return s;
    d->evicted_blocks++;
    if (kept)
        set_state(d, i, MD_STATE_COLD);
    else
        block_lost(d, i);
    return MD_OK;
}

static void block_came(struct md_drive *d, size_t i, struct md_provenance provenance)
{
    set_state(d, i, MD_STATE_HOT);
    block_at(d, i)->provenance = provenance;
    md_drive_mark(d, md_tape_range(d->tape, i), MD_MARK_RESTORED);
}

/* Hold cold block i together with the conversation that has it hot.  *ret_done false: none has, or a better copy
 * is cold. */
static enum md_status share_block(struct md_drive *d, size_t i, bool *ret_done, struct md_err *err)
{
    assert(d->seq >= 0 && block_at(d, i)->state == MD_STATE_COLD);
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    struct md_hot_match m = elsewhere(d, &ref);
    *ret_done = false;
    if (m.drive == NULL || md_cold_kind(d->hot->cold, &ref) < m.provenance.kind)
        return MD_OK;
    enum md_status s = md_engine_share(d->hot->engine, m.drive->seq, d->seq, ref.range, err);
    if (s != MD_OK)
        return s;
    block_came(d, i, m.provenance);
    d->shared_blocks++;
    *ret_done = true;
    return MD_OK;
}

enum md_status md_drive_share_last(struct md_drive *d, struct md_err *err)
{
    bool ignored;
    return share_block(d, md_tape_block_count(d->tape) - 1, &ignored, err);
}

/* Another conversation that has it on its tape could not share it, or not for long when it is a piece that grows:
 * the copy stays for it. */
static bool others_need_copy(const struct md_drive *d, const struct md_cold_ref *ref)
{
    bool shared = has_cap(d, MD_CAP_SHARE) && md_range_len(ref->range) == d->tape->block_tokens;
    return !shared && md_hot_is_wanted(d->hot, d, ref);
}

static enum md_status admit_block(struct md_drive *d, size_t i, bool keep, struct md_err *err)
{
    struct md_hot *h = d->hot;
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    struct md_provenance provenance;
    int64_t t0 = md_clock_mono_ns();
    const bool whole = md_range_len(ref.range) == d->tape->block_tokens;
    keep = keep || (h->write_through && whole) || others_need_copy(d, &ref);
    enum md_status s = md_cold_admit(h->cold, h->engine, d->seq, &ref, h->floor, keep, &provenance, err);
    int64_t ns = md_clock_mono_ns() - t0;
    d->request.restore_ns += ns;
    /* Gone meanwhile, or the engine will not have it (damaged): keeping it would fail every request that comes
     * this way.  Its tokens are known, so it can be computed again. */
    if (s == MD_NOT_FOUND || s == MD_CORRUPT || s == MD_INVALID || s == MD_INTERNAL) {
        if (s != MD_NOT_FOUND) {
            md_log(MD_LOG_WARN, "cold block at %d is given up: %s", ref.range.start, err->text);
            md_cold_drop(h->cold, &ref);
        }
        block_lost(d, i);
        return MD_OK;
    }
    if (s != MD_OK)
        return s;
    md_restore_note_restore(&h->speeds, MD_TIER_HOST,
                            md_engine_export_bytes(h->engine, md_range_len(ref.range)), 1, ns);
    block_came(d, i, provenance);
    d->restored_blocks++;
    return MD_OK;
}

/* Compute a lost block again where it is.  *ret_done false: the block before it is not hot, so it cannot. */
static enum md_status recompute_block(struct md_drive *d, size_t i, bool *ret_done, struct md_err *err)
{
    struct md_range r = md_tape_range(d->tape, i);
    bool possible =
        has_cap(d, MD_CAP_RECOMPUTE_RANGE) && (i == 0 || block_at(d, i - 1)->state == MD_STATE_HOT);
    *ret_done = false;
    if (!possible)
        return MD_OK;
    int64_t t0 = md_clock_mono_ns();
    enum md_status s = md_engine_recompute_range(d->hot->engine, d->seq, r, d->tape->tokens + r.start, err);
    d->request.compute_ns += md_clock_mono_ns() - t0;
    if (s != MD_OK)
        return s;
    set_state(d, i, MD_STATE_HOT);
    block_at(d, i)->provenance = md_tape_provenance(d->tape, i);
    md_drive_mark(d, r, MD_MARK_COMPUTED);
    d->recomputed_blocks++;
    *ret_done = true;
    return MD_OK;
}

/* ---- plan and apply ---- */

void md_drive_notice_lost(struct md_drive *d)
{
    for (size_t i = 0; i < md_tape_block_count(d->tape); i++) {
        if (block_at(d, i)->state != MD_STATE_COLD)
            continue;
        struct md_cold_ref ref = md_tape_ref(d->tape, i);
        if (!is_available(d, &ref))
            block_lost(d, i);
    }
}

/* A plan over the blocks that are not held out; index[k] is the block of the tape that plan block k is. */
struct planned {
    struct md_arena arena;
    struct md_plan plan;
    struct md_block *blocks;
    size_t *index, count;
    int32_t missing_tokens; /* planned and not hot */
};

static enum md_status make_plan(struct md_drive *d, int32_t budget, struct planned *p, struct md_err *err)
{
    md_drive_notice_lost(d);
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
    enum md_status s = md_residency_plan(p->blocks, p->count, NULL, budget, d->hot->stream, d->hot->gate,
                                         &p->arena, &p->plan, err);
    if (s == MD_OK) {
        d->pinned_cold = p->plan.pinned_cold_tokens;
        d->protected_tokens = p->plan.protected_tokens;
    }
    return s;
}

/* Out with what is hot and not planned; together with others what they have hot. */
static enum md_status apply_free_moves(struct md_drive *d, struct planned *p, struct md_err *err)
{
    enum md_status s = MD_OK;
    size_t k = 0;
    for (size_t i = 0; i < md_tape_block_count(d->tape) && s == MD_OK; i++) {
        bool wanted = k < p->count && p->index[k] == i && p->plan.hot[k];
        k += k < p->count && p->index[k] == i;
        if (!wanted && block_at(d, i)->state == MD_STATE_HOT)
            s = md_drive_evict(d, i, err);
        bool done = false;
        if (wanted && block_at(d, i)->state == MD_STATE_COLD)
            s = share_block(d, i, &done, err);
        if (wanted && block_at(d, i)->state != MD_STATE_HOT)
            p->missing_tokens += md_range_len(md_tape_range(d->tape, i));
    }
    return s;
}

static enum md_status apply_plan(struct md_drive *d, struct planned *p, int32_t incoming,
                                 int32_t *ret_lost_from, struct md_err *err)
{
    enum md_status s = apply_free_moves(d, p, err);
    if (s == MD_OK)
        s = md_hot_make_cells(d->hot, d, incoming + p->missing_tokens, err);
    for (size_t k = 0; k < p->count && s == MD_OK; k++) {
        size_t i = p->index[k];
        if (!p->plan.hot[k])
            continue;
        if (block_at(d, i)->state == MD_STATE_COLD)
            s = admit_block(d, i, false, err);
        bool done = true;
        if (s == MD_OK && block_at(d, i)->state == MD_STATE_LOST)
            s = recompute_block(d, i, &done, err);
        /* another one that is wanted but not needed stays lost: computing it would mean all behind it too.  Where
         * everything fits, everything is needed. */
        if (s == MD_OK && !done &&
            (d->hot->stream.recent_tokens == 0 || md_block_is_protected(&p->blocks[k]))) {
            *ret_lost_from = md_tape_range(d->tape, i).start;
            return MD_OK;
        }
    }
    return s;
}

enum md_status md_drive_make_room(struct md_drive *d, int32_t incoming, int32_t *ret_lost_from,
                                  struct md_err *err)
{
    struct planned p = { 0 };
    const int32_t limit = d->hot->limit_tokens;
    assert(incoming >= 0 && d->seq >= 0);
    *ret_lost_from = -1;
    if (incoming > limit)
        return md_fail(err, MD_NO_MEMORY, "%d tokens do not fit the hot set of %d", incoming, limit);
    if (d->tape->count == 0)
        return md_hot_make_cells(d->hot, d, incoming, err);
    md_arena_init(&p.arena, d->hot->alloc, PLAN_BYTES_MAX);
    enum md_status s = make_plan(d, limit - incoming, &p, err);
    if (s == MD_OK && p.plan.over_budget)
        s = md_fail(err, MD_NO_MEMORY, "%d tokens must stay hot and leave no room for %d more in %d%s%s",
                    p.plan.hot_tokens, incoming, limit, p.plan.diagnostic != NULL ? ": " : "",
                    p.plan.diagnostic != NULL ? p.plan.diagnostic : "");
    if (s == MD_OK)
        s = apply_plan(d, &p, incoming, ret_lost_from, err);
    md_arena_done(&p.arena);
    assert(s == MD_SESSION_FATAL || md_engine_cells_used(d->hot->engine) <= limit);
    return s;
}

int32_t md_drive_free_tokens(const struct md_drive *d)
{
    const struct md_hot *h = d->hot;
    const struct md_tape *t = d->tape;
    if (!h->evicts)
        return h->limit_tokens - t->count;
    /* protected: the sinks, the recent window with the part of a block it may begin in, what is pinned between */
    const int32_t most =
        h->limit_tokens - h->stream.sink_tokens - h->stream.recent_tokens - t->count % t->block_tokens;
    int32_t pinned = 0;
    for (size_t i = 0; i < md_tape_block_count(t); i++) {
        struct md_range r = md_tape_range(t, i);
        if (r.start >= h->stream.sink_tokens && r.end <= t->count - h->stream.recent_tokens &&
            t->blocks[i].cls == MD_CLASS_TASK_PINNED && !t->blocks[i].held_out)
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
        md_cold_touch(d->hot->cold, &ref);
    }
}

/* ---- growing ---- */

enum md_status md_drive_append_computed(struct md_drive *d, const md_token *tokens, int32_t count,
                                        struct md_err *err)
{
    struct md_tape *t = d->tape;
    const int32_t start = t->count;
    md_tape_append_computed(t, tokens, count, MD_CLASS_VOLATILE);
    md_drive_mark(d, (struct md_range){ start, start + count }, MD_MARK_COMPUTED);
    d->changes++;
    for (size_t i = (size_t)(start / t->block_tokens); i < md_tape_block_count(t); i++) {
        if (i < d->class_count)
            t->blocks[i].cls = d->classes[i];
        bool whole = md_range_len(md_tape_range(t, i)) == t->block_tokens, kept;
        /* on a plain failure it is hot, and goes cold when it leaves */
        if (whole && d->hot->write_through && keep_copy(d, i, &kept, err) == MD_SESSION_FATAL)
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
    if (!keep)
        drop_cold(d, &ref);
    if (block_at(d, i)->state == MD_STATE_HOT) {
        if (keep || md_hot_is_wanted(d->hot, d, &ref)) {
            s = md_drive_evict(d, i, err);
        } else {
            s = remove_range(d, ref.range, err);
            if (s == MD_OK)
                block_lost(d, i);
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
        s = admit_block(d, i, keep, err);
    } else if (keep)
        s = keep_copy(d, i, &kept, err);
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
        d->request.dropped_tokens += ref.range.end - count;
    md_tape_cut(d->tape, count);
    d->changes++;
    return MD_OK;
}

/* Empty the sequence: what is hot is lost. */
static enum md_status lose_hot(struct md_drive *d, struct md_err *err)
{
    enum md_status s = md_engine_truncate(d->hot->engine, d->seq, 0, err);
    for (size_t i = 0; s == MD_OK && i < md_tape_block_count(d->tape); i++)
        if (block_at(d, i)->state == MD_STATE_HOT)
            block_lost(d, i);
    return s;
}

/* Where KV cannot go back a part of the way, everything is computed again. */
static enum md_status drop_all(struct md_drive *d, struct md_err *err)
{
    enum md_status s = lose_hot(d, err);
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
            drop_cold(d, &ref);
        md_tape_cut(t, count); /* another conversation has that much of it hot */
        return md_drive_share_last(d, err);
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
            drop_cold(d, &ref);
        return md_drive_cut(d, lost_from, keep, err);
    }
    t->count = r.end; /* its tokens and record are still in place */
    t->blocks[last] = kept;
    *ret_done = false;
    return MD_OK;
}

enum md_status md_drive_cut(struct md_drive *d, int32_t count, bool keep, struct md_err *err)
{
    struct md_tape *t = d->tape;
    enum md_status s = MD_OK;
    assert(count >= 0 && count <= t->count);
    if (count == t->count)
        return MD_OK;
    d->changes++;
    /* the engine may be behind the tape: blocks at its end may be cold or lost */
    const int32_t end = md_engine_end(d->hot->engine, d->seq), from = count < end ? count : end;
    if (md_engine_cut_point(d->hot->engine, d->seq, from) < from)
        return drop_all(d, err);
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

/* ---- invariants ---- */

bool md_drive_check(const struct md_drive *d)
{
    int32_t hot = 0;
    for (size_t i = 0; i < md_tape_block_count(d->tape); i++) {
        struct md_range r = md_tape_range(d->tape, i);
        bool is_hot = d->tape->blocks[i].state == MD_STATE_HOT;
        hot += is_hot ? md_range_len(r) : 0;
        /* not hot: nothing of it is; the store may have let it go, which the next plan notices */
        for (int32_t p = r.start; !is_hot && d->seq >= 0 && p < r.end; p++)
            if (md_engine_is_hot(d->hot->engine, d->seq, (struct md_range){ p, p + 1 }))
                return false;
        if (is_hot && (d->seq < 0 || !md_engine_is_hot(d->hot->engine, d->seq, r)))
            return false;
    }
    if (d->seq < 0)
        return hot == 0;
    return hot <= md_engine_cells_used(d->hot->engine) &&
           md_engine_end(d->hot->engine, d->seq) <= d->tape->count;
}
