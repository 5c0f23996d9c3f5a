/* move.c - see move.h. */
#include "session/move.h"

#include "base/clock.h"
#include "base/log.h"
#include "session/state.h"
#include "session/whole.h"

#include <assert.h>

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

void md_move_let_go(struct md_drive *d, size_t i)
{
    if (!block_at(d, i)->held)
        return;
    const struct md_cold_ref ref = md_tape_ref(d->tape, i);
    md_cold_release(d->hot->cold, &ref);
    block_at(d, i)->held = false;
}

void md_move_count_dropped(struct md_drive *d, int32_t tokens)
{
    d->hot->dropped_tokens += d->unseen ? 0 : tokens;
}

void md_move_lose(struct md_drive *d, size_t i)
{
    md_move_let_go(d, i);
    block_at(d, i)->moved_by = 0;
    set_state(d, i, MD_STATE_LOST);
    md_move_count_dropped(d, md_range_len(md_tape_range(d->tape, i)));
    d->hot->losses++;
    d->dropped_blocks++;
}

void md_move_mark(struct md_drive *d, struct md_range r, enum md_mark mark)
{
    for (int32_t p = r.start; p < r.end && p < d->request.mark_count; p++) {
        if (mark == MD_MARK_COMPUTED && !(d->request.marks[p] & MD_MARK_COMPUTED))
            d->request.computed_tokens++;
        d->request.marks[p] |= (uint8_t)mark;
    }
}

/* ---- one block ---- */

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

/* Grows whenever a block that somebody has cold may have gone. */
static int64_t losses_so_far(const struct md_hot *h)
{
    const struct md_coldstore_stats ram = md_cold_stats(h->cold), disk = md_cold_disk_stats(h->cold);
    return h->losses + ram.dropped + ram.refused + disk.dropped + disk.refused;
}

void md_move_notice_all_lost(struct md_hot *h)
{
    const int64_t losses = losses_so_far(h);
    for (struct md_drive *d = h->drives; d != NULL; d = d->next)
        if (d->losses_seen != losses)
            md_move_notice_lost(d);
    const int64_t noticed =
        losses_so_far(h); /* to notice one is no new one: nobody is looked at again for it */
    for (struct md_drive *d = h->drives; d != NULL; d = d->next)
        d->losses_seen = noticed;
}

void md_move_notice_lost(struct md_drive *d)
{
    d->losses_seen = losses_so_far(d->hot);
    if (md_whole_is_all(d->hot)) {
        md_whole_notice_lost(d);
        return;
    }
    for (size_t i = 0; i < md_tape_block_count(d->tape); i++) {
        if (block_at(d, i)->state != MD_STATE_COLD)
            continue;
        struct md_cold_ref ref = md_tape_ref(d->tape, i);
        if (!is_available(d, &ref))
            md_move_lose(d, i);
    }
}

/* A copy of hot block i stays when it leaves the engine: in the cold store, or with somebody else.  A piece of a block
 * is not left to somebody else: his may grow, and is then another block in the store. */
enum md_status md_move_keep_copy(struct md_drive *d, size_t i, bool *ret_kept, struct md_err *err)
{
    const struct md_tape_block *b = block_at(d, i);
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    *ret_kept = b->moved_by != 0 && md_provenance_accepted(b->provenance, d->hot->floor);
    if (b->moved_by != 0)
        return MD_OK; /* of what stands elsewhere the copy is there */
    struct md_hot_match other = elsewhere(d, &ref);
    *ret_kept = md_range_len(ref.range) == d->tape->block_tokens && other.drive != NULL &&
                other.provenance.kind <= b->provenance.kind;
    if (*ret_kept || !has_cap(d, MD_CAP_COLD_STORE) || !md_provenance_accepted(b->provenance, d->hot->floor))
        return MD_OK; /* what would not be used again takes no room */
    return md_cold_copy(d->hot->cold, d->hot->engine, d->seq, &ref, b->cls, b->provenance, ret_kept, err);
}

/* Take r out of the engine: from the middle, or as the tail. */
enum md_status md_move_remove(struct md_drive *d, struct md_range r, struct md_err *err)
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
            s = md_move_keep_copy(d, k, &ignored, err);
    if (s == MD_OK)
        s = md_engine_truncate(e, d->seq, from, err);
    for (size_t k = first; k < count && s == MD_OK; k++) {
        if (block_at(d, k)->state != MD_STATE_HOT)
            continue;
        d->evicted_blocks++;
        set_state(d, k, MD_STATE_COLD);
    }
    if (s == MD_OK)
        md_move_notice_lost(d);
    return s;
}

static bool touches_end(const struct md_drive *d, size_t i)
{
    const int32_t window = md_engine_info(d->hot->engine)->window_tokens;
    return md_tape_range(d->tape, i).end > d->tape->count - (window > 0 ? window : 1);
}

enum md_status md_move_evict(struct md_drive *d, size_t i, struct md_err *err)
{
    bool kept;
    assert(block_at(d, i)->state == MD_STATE_HOT);
    if (md_whole_is_all(d->hot))
        return md_whole_evict(d, err);
    if (!has_cap(d, MD_CAP_REMOVE_MIDDLE))
        return evict_tail(d, i, err);
    /* without the tokens before its end a sequence loses the state there, and what was computed last goes first */
    enum md_status s = touches_end(d, i) ? md_state_save(d, err) : MD_OK;
    if (s == MD_OK)
        s = md_move_keep_copy(d, i, &kept, err);
    if (s == MD_OK)
        s = md_move_remove(d, md_tape_place(d->tape, i), err);
    if (s != MD_OK)
        return s;
    d->evicted_blocks++;
    md_move_let_go(d, i);
    block_at(d, i)->moved_by = 0;
    if (kept)
        set_state(d, i, MD_STATE_COLD);
    else
        md_move_lose(d, i);
    return MD_OK;
}

static const enum md_provenance_kind any_kind = MD_PROVENANCE_APPROXIMATE;

/* Copy block i from seq, which has it hot at its own place, and hold the copy.  It is made whatever else must go for it:
 * what stands elsewhere in the engine cannot be copied from there.  Of any kind: it is not found again, but goes on. */
static enum md_status copy_and_hold(struct md_drive *d, size_t i, md_seq seq, struct md_provenance provenance,
                                    struct md_err *err)
{
    struct md_hot *h = d->hot;
    struct md_tape_block *b = block_at(d, i);
    const struct md_cold_ref ref = md_tape_ref(d->tape, i);
    bool stored = false;
    enum md_status s =
        md_cold_copy(h->cold, h->engine, seq, &ref, MD_CLASS_TASK_PINNED, provenance, &stored, err);
    b->held = s == MD_OK && stored && md_cold_hold(h->cold, &ref, any_kind);
    if (b->held)
        md_cold_touch(h->cold, &ref, b->cls);
    return s;
}

/* Hold the copy of cold block i, which may be hot with somebody else instead. */
static enum md_status hold_cold(struct md_drive *d, size_t i, struct md_err *err)
{
    const struct md_cold_ref ref = md_tape_ref(d->tape, i);
    block_at(d, i)->held = md_cold_hold(d->hot->cold, &ref, d->hot->floor);
    const struct md_hot_match m = elsewhere(d, &ref);
    if (block_at(d, i)->held || m.drive == NULL)
        return MD_OK;
    return copy_and_hold(d, i, m.drive->seq, m.provenance, err);
}

enum md_status md_move_lift(struct md_drive *d, size_t i, bool *ret_kept, struct md_err *err)
{
    struct md_tape_block *b = block_at(d, i);
    assert(b->state == MD_STATE_HOT && has_cap(d, MD_CAP_REMOVE_MIDDLE));
    enum md_status s = b->moved_by == 0 ? copy_and_hold(d, i, d->seq, b->provenance, err) : MD_OK;
    *ret_kept = b->held;
    if (s != MD_OK || !b->held)
        return s;
    s = md_move_remove(d, md_tape_place(d->tape, i), err);
    if (s == MD_OK) {
        b->moved_by = 0;
        set_state(d, i, MD_STATE_COLD);
    } else if (b->moved_by == 0) {
        md_move_let_go(d, i);
    }
    return s;
}

static void block_came(struct md_drive *d, size_t i, struct md_provenance provenance)
{
    set_state(d, i, MD_STATE_HOT);
    block_at(d, i)->provenance = provenance;
    md_move_mark(d, md_tape_range(d->tape, i), MD_MARK_RESTORED);
}

/* Hold cold block i together with the conversation that has it hot.  *ret_done false: none has, or a better copy
 * is cold. */
enum md_status md_move_share(struct md_drive *d, size_t i, bool *ret_done, struct md_err *err)
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

/* Another conversation that has it on its tape could not share it, or not for long when it is a piece that grows:
 * the copy stays for it. */
static bool others_need_copy(const struct md_drive *d, const struct md_cold_ref *ref)
{
    bool shared = has_cap(d, MD_CAP_SHARE) && md_range_len(ref->range) == d->tape->block_tokens;
    return !shared && md_hot_is_wanted(d->hot, d, ref);
}

enum md_status md_move_admit(struct md_drive *d, size_t i, int32_t at, bool keep, struct md_err *err)
{
    struct md_hot *h = d->hot;
    struct md_tape_block *b = block_at(d, i);
    struct md_cold_ref ref = md_tape_ref(d->tape, i);
    const bool moves = at != ref.range.start;
    const enum md_provenance_kind floor = b->held ? any_kind : h->floor; /* it was hot until now */
    enum md_status s = MD_OK;
    if (!moves)
        md_move_let_go(d, i);
    else if (!b->held)
        s = hold_cold(d, i, err);
    if (s != MD_OK)
        return s;
    struct md_cold_admitted got;
    int64_t t0 = md_clock_mono_ns();
    const bool whole = md_range_len(ref.range) == d->tape->block_tokens;
    keep = keep || (h->write_through && whole) || others_need_copy(d, &ref);
    s = md_cold_admit(h->cold, h->engine, d->seq, &ref, at, floor, keep, &got, err);
    int64_t ns = md_clock_mono_ns() - t0;
    d->request.restore_ns += ns;
    /* Gone meanwhile, or the engine will not have it (damaged): keeping it would fail every request that comes
     * this way.  Its tokens are known, so it can be computed again. */
    if (s == MD_NOT_FOUND || s == MD_CORRUPT || s == MD_INVALID || s == MD_INTERNAL) {
        md_move_let_go(d, i);
        if (s != MD_NOT_FOUND) {
            md_log(MD_LOG_WARN, "cold block at %d is given up: %s", ref.range.start, err->text);
            md_cold_drop(h->cold, &ref);
        }
        md_move_lose(d, i);
        return MD_OK;
    }
    if (s != MD_OK)
        return s;
    md_restore_note_restore(&h->speeds, got.tier, md_engine_export_bytes(h->engine, md_range_len(ref.range)),
                            1, ns);
    block_came(d, i, got.provenance);
    b->moved_by = at - ref.range.start;
    d->restored_blocks++;
    d->rebased_blocks += moves;
    return MD_OK;
}

enum md_status md_move_recompute(struct md_drive *d, size_t i, bool *ret_done, struct md_err *err)
{
    struct md_range r = md_tape_range(d->tape, i);
    struct md_buf state MD_CLEANUP(md_buf_done) = { 0 };
    const struct md_tape_block *before = i > 0 ? block_at(d, i - 1) : NULL;
    bool possible = has_cap(d, MD_CAP_RECOMPUTE_RANGE) &&
                    (before == NULL || (before->state == MD_STATE_HOT && before->moved_by == 0));
    *ret_done = false;
    if (possible && i > 0 && md_state_is_kept(d->hot)) { /* from the state that was saved before it */
        md_buf_init(&state, d->hot->alloc, SIZE_MAX / 2);
        possible = md_state_read(d, r.start, &state, err) == MD_OK;
    }
    if (!possible)
        return MD_OK;
    int64_t t0 = md_clock_mono_ns();
    enum md_status s = md_engine_recompute_range(d->hot->engine, d->seq, r, d->tape->tokens + r.start,
                                                 (struct md_bytes){ state.data, state.len }, err);
    d->request.compute_ns += md_clock_mono_ns() - t0;
    if (s != MD_OK)
        return s;
    set_state(d, i, MD_STATE_HOT);
    block_at(d, i)->provenance = md_tape_provenance(d->tape, i);
    md_move_mark(d, r, MD_MARK_COMPUTED);
    d->recomputed_blocks++;
    *ret_done = true;
    return MD_OK;
}

/* ---- all of them ---- */

enum md_status md_move_leave(struct md_drive *d, struct md_err *err)
{
    if (d->seq < 0)
        return MD_OK;
    for (size_t i = md_tape_block_count(d->tape);
         i-- > 0;) { /* from the end: every engine can do that best */
        enum md_status s = block_at(d, i)->state == MD_STATE_HOT ? md_move_evict(d, i, err) : MD_OK;
        if (s != MD_OK)
            return s;
    }
    assert(md_engine_end(d->hot->engine, d->seq) == 0);
    d->seq = -1;
    return MD_OK;
}

void md_move_give_up(struct md_drive *d, const struct md_err *cause)
{
    struct md_err ignored;
    if (d->fatal.status == MD_OK)
        d->fatal = *cause;
    d->changes++;
    if (d->seq < 0)
        return;
    for (size_t i = 0; i < md_tape_block_count(d->tape); i++)
        if (block_at(d, i)->state == MD_STATE_HOT)
            md_move_lose(d, i);
    (void)!md_engine_truncate(d->hot->engine, d->seq, 0, &ignored);
    d->seq = -1; /* not free as long as anything is left in it */
}

/* Forget the KV of a block wherever it is, unless another conversation has it on its tape. */
void md_move_drop_cold(struct md_drive *d, const struct md_cold_ref *ref)
{
    if (!md_hot_is_wanted(d->hot, d, ref))
        md_cold_drop(d->hot->cold, ref);
}

/* Empty the sequence: what is hot is lost. */
enum md_status md_move_lose_hot(struct md_drive *d, struct md_err *err)
{
    enum md_status s = md_engine_truncate(d->hot->engine, d->seq, 0, err);
    for (size_t i = 0; s == MD_OK && i < md_tape_block_count(d->tape); i++)
        if (block_at(d, i)->state == MD_STATE_HOT)
            md_move_lose(d, i);
    return s;
}
