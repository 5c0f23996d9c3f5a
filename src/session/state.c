/* state.c - see state.h. */
#include "session/state.h"

#include "base/clock.h"
#include "base/log.h"
#include "policy/prefix.h"
#include "session/whole.h"

#include <assert.h>

bool md_state_is_kept(const struct md_hot *h)
{
    return (md_engine_caps(h->engine) & MD_CAP_CHECKPOINT) != 0;
}

/* ---- names ---- */

static size_t block_of(const struct md_tape *t, int32_t at)
{
    return (size_t)((at - 1) / t->block_tokens);
}

struct md_cold_ref md_state_ref(struct md_tape *t, int32_t at)
{
    assert(at > 0 && at <= t->count);
    const size_t i = block_of(t, at);
    const int32_t start = (int32_t)i * t->block_tokens;
    const struct md_key parent = md_prefix_state_parent(md_tape_parent_key(t, i));
    const md_token *tokens = t->tokens + start;
    return (struct md_cold_ref){ .key = md_prefix_chain(parent, tokens, (size_t)(at - start)),
                                 .parent = parent,
                                 .range = { start, at },
                                 .tokens = tokens,
                                 .is_state = true };
}

/* ---- finding ---- */

/* The sequence holds all there is of the tape's end, and its state. */
static bool holds_end(const struct md_drive *d)
{
    const struct md_engine *e = d->hot->engine;
    return d->seq >= 0 && md_engine_end(e, d->seq) == d->tape->count && md_engine_is_ready(e, d->seq);
}

int32_t md_state_within(const struct md_hot *h, struct md_key parent, int32_t start, const md_token *tokens,
                        int32_t count)
{
    return md_cold_within(h->cold, md_prefix_state_parent(parent), start, tokens, count, h->floor);
}

bool md_state_can_cut(const struct md_drive *d, int32_t count)
{
    return holds_end(d) && md_engine_cut_point(d->hot->engine, d->seq, count) == count;
}

int32_t md_state_before(struct md_drive *d, int32_t count)
{
    assert(count >= 0 && count <= d->tape->count);
    return count == 0 || md_state_can_cut(d, count) ? count : md_state_saved_before(d, count);
}

int32_t md_state_saved_before(struct md_drive *d, int32_t count)
{
    struct md_tape *t = d->tape;
    assert(count >= 0 && count <= t->count);
    for (size_t i = count > 0 ? block_of(t, count) + 1 : 0; i-- > 0;) {
        const int32_t start = (int32_t)i * t->block_tokens, most = count - start;
        const int32_t within = md_state_within(d->hot, md_tape_parent_key(t, i), start, t->tokens + start,
                                               most < t->block_tokens ? most : t->block_tokens);
        if (within > 0)
            return start + within;
    }
    return 0;
}

int32_t md_state_ahead(struct md_drive *d, const md_token *prompt, int32_t limit)
{
    struct md_cold *cold = d->hot->cold;
    const bool alone = md_whole_is_all(d->hot);
    const int32_t block = d->tape->block_tokens;
    int32_t start = d->tape->count - d->tape->count % block, ahead = d->tape->count;
    struct md_key parent = md_tape_parent_key(d->tape, (size_t)(start / block));
    while (start < limit) {
        const int32_t most = limit - start < block ? limit - start : block;
        const int32_t known =
            alone ? most : md_cold_best(cold, parent, start, prompt + start, most, d->hot->floor).common;
        const int32_t within = md_state_within(d->hot, parent, start, prompt + start, known);
        if (within > 0 && start + within > ahead)
            ahead = start + within;
        if (known < block)
            break;
        parent = md_prefix_chain(parent, prompt + start, (size_t)block);
        start += block;
    }
    return ahead;
}

/* ---- saving ---- */

enum md_status md_state_save(struct md_drive *d, struct md_err *err)
{
    const struct md_hot *h = d->hot;
    struct md_tape *t = d->tape;
    struct md_buf state MD_CLEANUP(md_buf_done) = { 0 };
    if (!md_state_is_kept(h) || t->count == 0 || !holds_end(d))
        return MD_OK;
    const struct md_cold_ref ref = md_state_ref(t, t->count);
    const struct md_tape_block *last = &t->blocks[block_of(t, t->count)];
    if (md_cold_kind(h->cold, &ref) <= last->provenance.kind ||
        !md_provenance_accepted(last->provenance, h->floor)) {
        md_cold_touch(h->cold, &ref, last->cls);
        return MD_OK;
    }
    bool stored = false;
    md_buf_init(&state, h->alloc, (size_t)md_engine_checkpoint_bytes(h->engine));
    enum md_status s = md_engine_checkpoint(h->engine, d->seq, &state, err);
    if (s == MD_OK)
        s = md_cold_put(h->cold, &ref, last->cls, last->provenance,
                        (struct md_bytes){ state.data, state.len }, &stored, err);
    if (s == MD_NO_MEMORY || s == MD_IO) {
        md_log(MD_LOG_WARN, "the checkpoint at %d is not kept: %s", t->count, err != NULL ? err->text : "");
        return MD_OK;
    }
    return s;
}

/* Forget the one at position `at`, unless another conversation has its text. */
static void drop_at(struct md_drive *d, int32_t at)
{
    const struct md_cold_ref ref = md_state_ref(d->tape, at);
    struct md_cold_ref text = ref; /* as a block is named */
    text.parent = md_tape_parent_key(d->tape, block_of(d->tape, at));
    if (!md_hot_is_wanted(d->hot, d, &text))
        md_cold_drop(d->hot->cold, &ref);
}

/* Those in block i behind position `from`. */
static void drop_in(struct md_drive *d, size_t i, int32_t from)
{
    const struct md_range r = md_tape_range(d->tape, i);
    for (int32_t at = r.end; at > r.start; at--) {
        at = r.start + md_state_within(d->hot, md_tape_parent_key(d->tape, i), r.start,
                                       d->tape->tokens + r.start, at - r.start);
        if (at <= from || at == r.start)
            break;
        drop_at(d, at);
    }
}

void md_state_drop(struct md_drive *d, size_t i)
{
    if (md_state_is_kept(d->hot))
        drop_in(d, i, 0);
}

void md_state_drop_behind(struct md_drive *d, int32_t from)
{
    if (md_state_is_kept(d->hot))
        for (size_t i = md_tape_block_count(d->tape); i-- > (size_t)(from / d->tape->block_tokens);)
            drop_in(d, i, from);
}

/* ---- putting back ---- */

enum md_status md_state_read(struct md_drive *d, int32_t at, struct md_buf *ret, struct md_err *err)
{
    const struct md_cold_ref ref = md_state_ref(d->tape, at);
    struct md_provenance ignored;
    if (at == d->tape->count && holds_end(d))
        return md_engine_checkpoint(d->hot->engine, d->seq, ret, err);
    return md_cold_read(d->hot->cold, &ref, d->hot->floor, ret, &ignored, err);
}

enum md_status md_state_arm(struct md_drive *d, int32_t *ret_cut, struct md_err *err)
{
    struct md_hot *h = d->hot;
    struct md_tape *t = d->tape;
    struct md_buf state MD_CLEANUP(md_buf_done) = { 0 };
    *ret_cut = -1;
    if (!md_state_is_kept(h) || t->count == 0 || holds_end(d))
        return MD_OK;
    const int64_t t0 = md_clock_mono_ns();
    md_buf_init(&state, h->alloc, SIZE_MAX / 2);
    enum md_status s = md_state_read(d, t->count, &state, err);
    if (s == MD_OK)
        s = md_engine_rewind(h->engine, d->seq, t->count, (struct md_bytes){ state.data, state.len }, err);
    d->request.restore_ns += md_clock_mono_ns() - t0;
    const struct md_cold_ref ref = md_state_ref(t, t->count);
    if (s == MD_OK)
        md_cold_touch(h->cold, &ref, t->blocks[block_of(t, t->count)].cls);
    if (s != MD_NOT_FOUND && s != MD_CORRUPT && s != MD_INVALID && s != MD_INTERNAL)
        return s;
    if (s != MD_NOT_FOUND) {
        md_log(MD_LOG_WARN, "the checkpoint at %d is given up: %s", t->count, err->text);
        md_cold_drop(h->cold, &ref);
    }
    *ret_cut = md_state_before(d, t->count - 1);
    return MD_OK;
}
