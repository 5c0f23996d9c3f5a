#include "session/drive.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>

enum { PLAN_BYTES_MAX = 64 << 20 }; /* blocks of a tape of millions of tokens; a limit from birth */

/* The worst KV that is taken from the cold store: any. */
static const enum md_provenance_kind floor_kind = MD_PROVENANCE_APPROXIMATE;

static struct md_tape_block *block_at(struct md_drive *d, size_t i)
{
    return &d->tape->blocks[i];
}

static void block_lost(struct md_drive *d, size_t i)
{
    block_at(d, i)->state = MD_STATE_LOST;
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

/* ---- single moves ---- */

static enum md_status evict_block(struct md_drive *d, size_t i, struct md_err *err)
{
    struct md_tape_block *b = block_at(d, i);
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    bool stored;
    enum md_status s = md_cold_evict(d->cold, d->engine, d->seq, &ref, b->cls, b->provenance, &stored, err);
    if (s != MD_OK)
        return s;
    d->evicted_blocks++;
    if (stored)
        b->state = MD_STATE_COLD;
    else
        block_lost(d, i);
    return MD_OK;
}

static enum md_status admit_block(struct md_drive *d, size_t i, bool keep, struct md_err *err)
{
    struct md_tape_block *b = block_at(d, i);
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    int64_t t0 = md_clock_mono_ns();
    enum md_status s = md_cold_admit(d->cold, d->engine, d->seq, &ref, floor_kind, keep, &b->provenance, err);
    d->request.restore_ns += md_clock_mono_ns() - t0;
    /* Gone meanwhile, or the engine will not have it (damaged): keeping it would fail every request that comes
     * this way.  Its tokens are known, so it can be computed again. */
    if (s == MD_NOT_FOUND || s == MD_CORRUPT || s == MD_INVALID || s == MD_INTERNAL) {
        if (s != MD_NOT_FOUND)
            md_log(MD_LOG_WARN, "cold block at %d is given up: %s", ref.range.start, err->text);
        md_cold_drop(d->cold, &ref);
        block_lost(d, i);
        return MD_OK;
    }
    if (s != MD_OK)
        return s;
    md_drive_mark(d, ref.range, MD_MARK_RESTORED);
    b->state = MD_STATE_HOT;
    d->restored_blocks++;
    return MD_OK;
}

/* Compute a lost block again where it is.  *ret_done false: the block before it is not hot, so it cannot. */
static enum md_status recompute_block(struct md_drive *d, size_t i, bool *ret_done, struct md_err *err)
{
    struct md_tape_block *b = block_at(d, i);
    struct md_range r = md_tape_range(d->tape, i);
    bool possible = (md_engine_caps(d->engine) & MD_CAP_RECOMPUTE_RANGE) &&
                    (i == 0 || block_at(d, i - 1)->state == MD_STATE_HOT);
    *ret_done = false;
    if (!possible)
        return MD_OK;
    int64_t t0 = md_clock_mono_ns();
    enum md_status s = md_engine_recompute_range(d->engine, d->seq, r, d->tape->tokens + r.start, err);
    d->request.compute_ns += md_clock_mono_ns() - t0;
    if (s != MD_OK)
        return s;
    b->state = MD_STATE_HOT;
    b->provenance = md_tape_provenance(d->tape, i);
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
        if (!md_cold_has(d->cold, &ref))
            block_lost(d, i);
    }
}

static enum md_status make_plan(struct md_drive *d, int32_t budget, struct md_arena *arena,
                                struct md_plan *plan, struct md_block **ret_blocks, struct md_err *err)
{
    md_drive_notice_lost(d);
    size_t count = md_tape_block_count(d->tape);
    struct md_block *blocks = *ret_blocks = md_arena_get(arena, count, sizeof *blocks);
    if (blocks == NULL)
        return md_fail(err, MD_NO_MEMORY, "residency plan of %zu blocks", count);
    for (size_t i = 0; i < count; i++)
        blocks[i] = (struct md_block){ .range = md_tape_range(d->tape, i), .cls = block_at(d, i)->cls };
    return md_residency_plan(blocks, count, NULL, budget, d->stream, d->gate, arena, plan, err);
}

static enum md_status apply_plan(struct md_drive *d, const struct md_plan *plan,
                                 const struct md_block *blocks, int32_t *ret_lost_from, struct md_err *err)
{
    size_t count = md_tape_block_count(d->tape);
    enum md_status s = MD_OK;
    for (size_t i = 0; i < count && s == MD_OK; i++)
        if (block_at(d, i)->state == MD_STATE_HOT && !plan->hot[i])
            s = evict_block(d, i, err);
    for (size_t i = 0; i < count && s == MD_OK; i++) {
        if (!plan->hot[i])
            continue;
        if (block_at(d, i)->state == MD_STATE_COLD)
            s = admit_block(d, i, false, err);
        bool done = true;
        if (s == MD_OK && block_at(d, i)->state == MD_STATE_LOST)
            s = recompute_block(d, i, &done, err);
        /* another one that is wanted but not needed stays lost: computing it would mean all behind it too */
        if (s == MD_OK && !done && md_block_is_protected(&blocks[i])) {
            *ret_lost_from = md_tape_range(d->tape, i).start;
            return MD_OK;
        }
    }
    return s;
}

enum md_status md_drive_make_room(struct md_drive *d, int32_t incoming, int32_t *ret_lost_from,
                                  struct md_err *err)
{
    struct md_arena arena MD_CLEANUP(md_arena_done);
    struct md_plan plan;
    struct md_block *blocks;
    assert(incoming >= 0);
    *ret_lost_from = -1;
    md_arena_init(&arena, d->alloc, PLAN_BYTES_MAX);
    if (d->tape->count == 0 && incoming <= d->hot_limit)
        return MD_OK;
    if (incoming > d->hot_limit)
        return md_fail(err, MD_NO_MEMORY, "%d tokens do not fit the hot set of %d", incoming, d->hot_limit);
    enum md_status s = make_plan(d, d->hot_limit - incoming, &arena, &plan, &blocks, err);
    if (s == MD_OK && plan.over_budget)
        return md_fail(err, MD_NO_MEMORY, "%d tokens must stay hot and leave no room for %d more in %d%s%s",
                       plan.hot_tokens, incoming, d->hot_limit, plan.diagnostic != NULL ? ": " : "",
                       plan.diagnostic != NULL ? plan.diagnostic : "");
    if (s == MD_OK)
        s = apply_plan(d, &plan, blocks, ret_lost_from, err);
    assert(s == MD_SESSION_FATAL || md_engine_cells_used(d->engine) <= d->hot_limit);
    return s;
}

int32_t md_drive_free_tokens(const struct md_drive *d)
{
    /* protected: the sinks, and the recent window with the part of a block it may begin in */
    int32_t held = d->stream.sink_tokens + d->stream.recent_tokens + d->tape->count % d->tape->block_tokens;
    return d->gate.remove_middle ? d->hot_limit - held : d->hot_limit - d->tape->count;
}

void md_drive_touch(struct md_drive *d, int32_t count)
{
    for (size_t i = 0; i < md_tape_block_count(d->tape) && md_tape_range(d->tape, i).start < count; i++) {
        if (block_at(d, i)->state != MD_STATE_COLD)
            continue;
        struct md_cold_ref ref = md_tape_ref(d->tape, i);
        md_cold_touch(d->cold, &ref);
    }
}

/* ---- cutting ---- */

/* Take the last block off the tape; its KV goes cold when it can. */
static enum md_status release_last(struct md_drive *d, struct md_err *err)
{
    size_t i = md_tape_block_count(d->tape) - 1;
    struct md_range r = md_tape_range(d->tape, i);
    enum md_status s = MD_OK;
    if (block_at(d, i)->state == MD_STATE_HOT) {
        if (md_engine_caps(d->engine) & MD_CAP_COLD_STORE) {
            s = evict_block(d, i, err);
        } else {
            s = md_engine_truncate(d->engine, d->seq, r.start, err);
            if (s == MD_OK)
                block_lost(d, i);
        }
    }
    if (s == MD_OK)
        md_tape_cut(d->tape, r.start);
    return s;
}

/* Shorten the last block, which is hot or cold, to end at `count`; a copy of the whole goes or stays cold. */
static enum md_status shorten_last(struct md_drive *d, int32_t count, struct md_err *err)
{
    size_t i = md_tape_block_count(d->tape) - 1;
    struct md_tape_block *b = block_at(d, i);
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    bool stored = b->state == MD_STATE_COLD;
    enum md_status s = MD_OK;
    if (b->state == MD_STATE_COLD)
        s = admit_block(d, i, true, err);
    else if (md_engine_caps(d->engine) & MD_CAP_COLD_STORE)
        s = md_cold_copy(d->cold, d->engine, d->seq, &ref, b->cls, b->provenance, &stored, err);
    if (s == MD_INTERNAL && !md_engine_is_hot(d->engine, d->seq, ref.range)) {
        b->state = MD_STATE_COLD; /* it went out and did not come back: prefill its first part again */
        if (!md_cold_has(d->cold, &ref))
            block_lost(d, i);
        s = MD_OK;
    }
    if (s != MD_OK)
        return s;
    if (b->state != MD_STATE_HOT) {
        md_tape_cut(d->tape, ref.range.start);
        return MD_OK;
    }
    s = md_engine_truncate(d->engine, d->seq, count, err);
    if (s != MD_OK)
        return s;
    if (!stored)
        d->request.dropped_tokens += ref.range.end - count;
    md_tape_cut(d->tape, count);
    return MD_OK;
}

/* Where KV cannot go back a part of the way, everything is computed again. */
static enum md_status drop_all(struct md_drive *d, struct md_err *err)
{
    enum md_status s = md_engine_truncate(d->engine, d->seq, 0, err);
    if (s != MD_OK)
        return s;
    for (size_t i = 0; i < md_tape_block_count(d->tape); i++)
        block_lost(d, i);
    md_tape_cut(d->tape, 0);
    return MD_OK;
}

enum md_status md_drive_cut(struct md_drive *d, int32_t count, struct md_err *err)
{
    struct md_tape *t = d->tape;
    enum md_status s = MD_OK;
    assert(count >= 0 && count <= t->count);
    if (count == t->count)
        return MD_OK;
    /* the engine may be behind the tape: blocks at its end may be cold or lost */
    const int32_t end = md_engine_end(d->engine, d->seq), from = count < end ? count : end;
    if (md_engine_cut_point(d->engine, d->seq, from) < from)
        return drop_all(d, err);
    while (s == MD_OK && t->count > 0 && md_tape_range(t, md_tape_block_count(t) - 1).start >= count)
        s = release_last(d, err);
    if (s != MD_OK || t->count <= count)
        return s;

    size_t last = md_tape_block_count(t) - 1;
    int32_t start = md_tape_range(t, last).start;
    if (block_at(d, last)->state == MD_STATE_COLD) {
        /* it comes in whole before it is cut: the blocks that stay must leave it that much room */
        int32_t whole = md_range_len(md_tape_range(t, last)), lost_from;
        struct md_tape_block kept = *block_at(d, last);
        int32_t whole_end = t->count;
        md_tape_cut(t, start);
        s = md_drive_make_room(d, whole, &lost_from, err);
        if (s != MD_OK)
            return s;
        if (lost_from >= 0)
            return md_drive_cut(d, lost_from, err);
        t->count = whole_end; /* its tokens and record are still in place */
        t->blocks[last] = kept;
    }
    if (block_at(d, last)->state == MD_STATE_LOST) {
        md_tape_cut(t, start);
        return MD_OK;
    }
    return shorten_last(d, count, err);
}

/* ---- extending ---- */

/* What the store knows of the block that begins at `start`, a block border, when the prompt goes on with tokens
 * up to `limit`. */
static struct md_cold_match known_block(struct md_drive *d, const md_token *prompt, int32_t start,
                                        int32_t limit)
{
    int32_t block = d->tape->block_tokens, most = limit - start < block ? limit - start : block;
    struct md_key parent = md_tape_parent_key(d->tape, (size_t)(start / block));
    return md_cold_best(d->cold, parent, start, prompt + start, most, floor_kind);
}

/* Append the matched block as a cold one.  Where only its first part matches, it comes in now and is cut: the
 * store keeps the whole for the branch it belongs to. */
static enum md_status append_known(struct md_drive *d, const struct md_cold_match *m, struct md_err *err)
{
    struct md_tape *t = d->tape;
    int32_t start = t->count;
    enum md_status s = md_tape_reserve(t, start + m->count, err);
    if (s != MD_OK)
        return s;
    struct md_tape_block fresh = { .state = MD_STATE_COLD,
                                   .cls = MD_CLASS_VOLATILE,
                                   .provenance = m->provenance };
    md_tape_append(t, m->tokens, m->count, fresh);
    struct md_cold_ref ref = md_tape_ref(t, md_tape_block_count(t) - 1);
    md_cold_touch(d->cold, &ref);
    return m->common < m->count ? md_drive_cut(d, start + m->common, err) : MD_OK;
}

enum md_status md_drive_extend(struct md_drive *d, const md_token *prompt, int32_t limit, struct md_err *err)
{
    struct md_tape *t = d->tape;
    if (t->count >= limit || md_cold_stats(d->cold).entry_count == 0)
        return MD_OK;
    enum md_status s = md_tape_reserve(t, limit, err); /* room for the keys as well */
    int32_t inside = t->count % t->block_tokens;
    if (s == MD_OK && inside > 0 && known_block(d, prompt, t->count - inside, limit).common > inside)
        s = release_last(d, err); /* the store knows more of the block than the piece we have */
    while (s == MD_OK && t->count < limit && t->count % t->block_tokens == 0) {
        struct md_cold_match m = known_block(d, prompt, t->count, limit);
        if (m.common == 0)
            break;
        int32_t before = t->count;
        s = append_known(d, &m, err);
        if (t->count <= before)
            break; /* it was let go while room was made for it: prefill */
    }
    return s;
}

/* ---- invariants ---- */

bool md_drive_check(const struct md_drive *d)
{
    int32_t hot = 0;
    for (size_t i = 0; i < md_tape_block_count(d->tape); i++) {
        struct md_range r = md_tape_range(d->tape, i);
        switch (d->tape->blocks[i].state) {
        case MD_STATE_HOT:
            hot += md_range_len(r);
            if (!md_engine_is_hot(d->engine, d->seq, r))
                return false;
            break;
        case MD_STATE_COLD: /* the store may have let it go: the next plan notices */
        case MD_STATE_LOST:
            if (md_engine_is_hot(d->engine, d->seq, r))
                return false;
            break;
        }
    }
    return md_engine_cells_used(d->engine) == hot && hot <= d->hot_limit;
}
