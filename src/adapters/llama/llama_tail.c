/* llama_tail.c - engines with a tail state: what the library keeps of the end of a sequence only, beside KV of
 * positions.  Saving it, putting it back, and moving ranges around it.
 *
 * Windowed layers have a cache of their own with cells for one window and one micro-batch, recurrent layers one cell
 * per sequence.  The library writes a sequence as [KV of global layers][windows][recurrent state], with its flag
 * PARTIAL_ONLY without the first part; every part of an empty sequence has its few bytes.  (Source: state_write of
 * llama-kv-cache-iswa.cpp, llama-memory-hybrid.cpp, llama-memory-recurrent.cpp.)  So:
 *
 *     a checkpoint     is the partial state of the sequence
 *     an export of r   is the whole state of scratch with the tags of r, and nothing behind the first part: where
 *                      scratch has cells of windows too (r reaches into what is still there), they are cut off
 *     putting back     into the live id replaces its windows and its recurrent state and leaves the KV; the partial
 *                      state of an empty sequence takes the recurrent state away, but no window
 *
 * Copying tags copies those of both caches, and makes the target's recurrent cell that of the source, whatever the
 * range; removing tags is refused where it would cut a recurrent state.  What the library says of first and last
 * positions is of windows and states here, not of the KV.
 *
 * Only ids below n_seq_max can be written.  With windows alone that is scratch (their cache grows with n_seq_max), so
 * they are tagged for it; a model with recurrent layers has n_seq_max 2, and its live id is written.  Any id can be
 * read into. */
#include "engine/kv_blob.h"
#include "adapters/llama/llama_engine.h"

#include <assert.h>
#include <string.h>

enum {
    STATE_HEAD_BYTES = 8
}; /* in front of the parts: a mark and the id; that it is so much is tried at open */

/* ---- the library's state ---- */

size_t md_llama_tail_rest_bytes(const struct md_llama_engine *e)
{
    return e->nothing.len - STATE_HEAD_BYTES;
}

/* Put a partial state into an id. */
static bool put(struct md_llama_engine *e, llama_seq_id id, const uint8_t *state, size_t len)
{
    md_llama_log_clear();
    return llama_state_seq_set_data_ext(e->ctx, state, len, id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == len;
}

/* Take the recurrent state away, if there is one; without it any tags can be removed. */
static bool drop_recurrent(struct md_llama_engine *e, llama_seq_id id)
{
    return put(e, id, e->nothing.data, e->nothing.len);
}

static size_t partial_bytes(struct md_llama_engine *e, llama_seq_id id)
{
    return llama_state_seq_get_size_ext(e->ctx, id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
}

/* Append the partial state of an id. */
static enum md_status append_partial(struct md_llama_engine *e, llama_seq_id id, struct md_buf *ret,
                                     struct md_err *err)
{
    md_llama_log_clear();
    const size_t due = partial_bytes(e, id);
    enum md_status s = md_buf_reserve(ret, due, err);
    if (s != MD_OK)
        return s;
    size_t n = llama_state_seq_get_data_ext(e->ctx, ret->data + ret->len, due, id,
                                            LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    if (n != due)
        return md_fail(err, MD_INTERNAL, "saved %zu bytes of state where %zu were due: %s", n, due,
                       md_llama_log_cause());
    ret->len += due;
    return MD_OK;
}

/* Append the tail state of seq, which ends at `end`. */
static enum md_status append_tail(struct md_llama_engine *e, md_seq seq, int32_t end, struct md_buf *ret,
                                  struct md_err *err)
{
    const llama_seq_id live = md_llama_live(e, seq);
    if (e->recurrent)
        return append_partial(e, live, ret, err);
    const int32_t from = end - e->base.info.window_tokens;
    llama_memory_seq_cp(e->mem, live, e->scratch, from > 0 ? from : 0, -1);
    enum md_status s = append_partial(e, e->scratch, ret, err);
    md_llama_forget(e, e->scratch);
    return s;
}

static int64_t tail_bytes(const struct md_llama_engine *e)
{
    const struct md_engine_info *i = &e->base.info;
    const int32_t most = i->window_tokens < i->cell_count ? i->window_tokens : i->cell_count;
    return e->state_fixed_bytes + most * e->state_token_bytes;
}

int64_t md_llama_checkpoint_bytes(const struct md_llama_engine *e)
{
    return MD_KV_BLOB_HEADER_BYTES + tail_bytes(e);
}

enum md_status md_llama_checkpoint(struct md_llama_engine *e, md_seq seq, int32_t end,
                                   struct md_buf *ret_state, struct md_err *err)
{
    const size_t before = ret_state->len;
    enum md_status s = md_buf_reserve(ret_state, (size_t)md_llama_checkpoint_bytes(e), err);
    if (s != MD_OK)
        return s;
    ret_state->len += MD_KV_BLOB_HEADER_BYTES;
    s = append_tail(e, seq, end, ret_state, err);
    const size_t payload = ret_state->len - before - MD_KV_BLOB_HEADER_BYTES;
    if (s == MD_OK && (int64_t)payload > tail_bytes(e))
        s = md_fail(err, MD_INTERNAL, "a state of %zu bytes where at most %lld were due", payload,
                    (long long)tail_bytes(e));
    if (s != MD_OK) {
        ret_state->len = before;
        return s;
    }
    md_kv_blob_seal(ret_state->data + before, MD_KV_BLOB_STATE, payload, (struct md_range){ end, end },
                    e->identity_hash);
    return MD_OK;
}

/* Are the cells that begin a state, of windows or recurrent, of positions before `at`?  The library takes memory for as many
 * as are said, and ends the process for a position below 0; the rest it checks itself. */
static bool has_cells(const struct md_llama_engine *e, const uint8_t *payload, size_t len, int32_t at)
{
    enum { RECURRENT_CELL_BYTES = 8, WINDOW_CELL_BYTES = 12 };
    uint32_t streams = 0, count; /* the number of streams, 1, comes before windows alone */
    size_t from = STATE_HEAD_BYTES;
    if (e->nothing.len >= from + sizeof streams)
        memcpy(&streams, e->nothing.data + from, sizeof streams);
    const bool windows = streams == 1;
    const size_t each = !windows            ? RECURRENT_CELL_BYTES
                        : e->cell_bytes > 0 ? e->cell_bytes
                                            : WINDOW_CELL_BYTES;
    from += windows ? sizeof streams : 0;
    if (len < from + sizeof count)
        return false;
    memcpy(&count, payload + from, sizeof count);
    from += sizeof count;
    if (count > (len - from) / each)
        return false;
    for (uint32_t i = 0; i < count && (!windows || e->cell_bytes > 0); i++) {
        int32_t position;
        memcpy(&position, payload + from + i * each, sizeof position);
        if (position < 0 || position >= at)
            return false;
    }
    return true;
}

static enum md_status check_state(const struct md_llama_engine *e, int32_t at, struct md_bytes state,
                                  struct md_err *err)
{
    enum md_status s = md_kv_blob_check(state, MD_KV_BLOB_STATE, (size_t)tail_bytes(e),
                                        (struct md_range){ at, at }, e->identity_hash, err);
    if (s == MD_OK && !has_cells(e, (const uint8_t *)state.data + MD_KV_BLOB_HEADER_BYTES,
                                 state.len - MD_KV_BLOB_HEADER_BYTES, at))
        s = md_fail(err, MD_CORRUPT, "saved state of position %d: its cells are of other positions", at);
    return s;
}

static bool put_checked(struct md_llama_engine *e, llama_seq_id id, struct md_bytes state)
{
    return put(e, id, (const uint8_t *)state.data + MD_KV_BLOB_HEADER_BYTES,
               state.len - MD_KV_BLOB_HEADER_BYTES);
}

enum md_status md_llama_rewind(struct md_llama_engine *e, md_seq seq, int32_t at, struct md_bytes state,
                               struct md_err *err)
{
    const llama_seq_id live = md_llama_live(e, seq);
    enum md_status s = check_state(e, at, state, err);
    if (s != MD_OK)
        return s;
    /* the state first: one of a later position would forbid the cut */
    if (!put_checked(e, live, state) || !llama_memory_seq_rm(e->mem, live, at, -1))
        return md_fail(err, MD_SESSION_FATAL, "the state of position %d could not be put back: %s", at,
                       md_llama_log_cause());
    e->window_from = 0;
    return MD_OK;
}

/* ---- cutting ---- */

/* The cells of windowed layers are used again once their token is out of the window; the library keeps what is left
 * of a sequence without a gap (llama_kv_cache::apply_ubatch), and pos_min tells where that begins.  Behind a range
 * that was removed there may be one. */
int32_t md_llama_tail_cut_point(const struct md_llama_engine *e, md_seq seq, int32_t from)
{
    if (e->recurrent)
        return 0;
    if (!e->window_cells)
        return from;
    const int32_t needed = from - e->base.info.window_tokens + 1;
    int32_t first = llama_memory_seq_pos_min(e->mem, md_llama_live(e, seq));
    first = first > e->window_from ? first : e->window_from;
    return first <= (needed > 0 ? needed : 0) ? from : 0;
}

enum md_status md_llama_tail_truncate(struct md_llama_engine *e, md_seq seq, int32_t from, struct md_err *err)
{
    const llama_seq_id live = md_llama_live(e, seq);
    bool done = from == 0 || !e->recurrent || drop_recurrent(e, live);
    if (!done || !llama_memory_seq_rm(e->mem, live, from == 0 ? -1 : from, -1))
        return md_fail(err, MD_SESSION_FATAL, "the sequence could not be cut at position %d: %s", from,
                       md_llama_log_cause());
    if (from == 0)
        e->window_from = 0;
    return MD_OK;
}

enum md_status md_llama_tail_remove(struct md_llama_engine *e, md_seq seq, struct md_range r, int32_t end,
                                    bool all, struct md_err *err)
{
    const llama_seq_id live = md_llama_live(e, seq);
    if (all)
        return md_llama_tail_truncate(e, seq, 0, err);
    bool done = r.end < end || !e->recurrent || drop_recurrent(e, live);
    if (!done || !llama_memory_seq_rm(e->mem, live, r.start, r.end))
        return md_fail(err, MD_SESSION_FATAL, "range [%d, %d) could not be removed: %s", r.start, r.end,
                       md_llama_log_cause());
    if (r.end > e->window_from)
        e->window_from = r.end;
    return MD_OK;
}

/* ---- ranges ---- */

/* Bytes of what scratch holds, without windows and states: what an export of it has. */
static size_t range_bytes(struct md_llama_engine *e)
{
    return llama_state_seq_get_size(e->ctx, e->scratch) - partial_bytes(e, e->scratch) + e->nothing.len;
}

/* Write the whole state of scratch to `out`, with nothing behind its first part.  Only where it has windows a copy
 * must be made. */
static bool write_range(struct md_llama_engine *e, uint8_t *out, size_t due)
{
    const size_t partial = partial_bytes(e, e->scratch), whole = due - e->nothing.len + partial;
    if (partial == e->nothing.len)
        return llama_state_seq_get_data(e->ctx, out, due, e->scratch) == due;
    const size_t part = whole - (partial - STATE_HEAD_BYTES);
    uint8_t *copy = md_calloc(NULL, whole, 1);
    const bool done = copy != NULL && llama_state_seq_get_data(e->ctx, copy, whole, e->scratch) == whole;
    if (done) {
        memcpy(out, copy, part);
        memcpy(out + part, e->nothing.data + STATE_HEAD_BYTES, e->nothing.len - STATE_HEAD_BYTES);
    }
    md_free(NULL, copy);
    return done;
}

static enum md_status export_scratch(struct md_llama_engine *e, struct md_range r, struct md_buf *ret_kv,
                                     struct md_err *err)
{
    const size_t due = (size_t)md_llama_payload_bytes(e, md_range_len(r));
    enum md_status s = md_buf_reserve(ret_kv, MD_KV_BLOB_HEADER_BYTES + due, err);
    if (s != MD_OK)
        return s;
    if (range_bytes(e) != due)
        return md_fail(err, MD_INTERNAL,
                       "range [%d, %d) could not be set apart: %zu bytes where %zu were due", r.start, r.end,
                       range_bytes(e), due);
    uint8_t *blob = ret_kv->data + ret_kv->len;
    md_llama_log_clear();
    if (!write_range(e, blob + MD_KV_BLOB_HEADER_BYTES, due))
        return md_fail(err, MD_INTERNAL, "range [%d, %d) could not be exported: %s", r.start, r.end,
                       md_llama_log_cause());
    md_kv_blob_seal(blob, MD_KV_BLOB_RANGE, due, r, e->identity_hash);
    ret_kv->len += MD_KV_BLOB_HEADER_BYTES + due;
    return MD_OK;
}

enum md_status md_llama_tail_export(struct md_llama_engine *e, md_seq seq, struct md_range r,
                                    struct md_buf *ret_kv, struct md_err *err)
{
    llama_memory_seq_cp(e->mem, md_llama_live(e, seq), e->scratch, r.start, r.end);
    enum md_status s = drop_recurrent(e, e->scratch) ? export_scratch(e, r, ret_kv, err)
                                                     : md_fail(err, MD_INTERNAL, "scratch keeps a state");
    md_llama_forget(e, e->scratch);
    return s;
}

enum md_status md_llama_tail_admit(struct md_llama_engine *e, md_seq seq, struct md_range r, int32_t end,
                                   struct md_bytes kv, struct md_err *err)
{
    const llama_seq_id live = md_llama_live(e, seq);
    const size_t len = (size_t)md_llama_payload_bytes(e, md_range_len(r));
    enum md_status s = md_kv_blob_check(kv, MD_KV_BLOB_RANGE, len, r, e->identity_hash, err);
    const uint8_t *payload = (const uint8_t *)kv.data + MD_KV_BLOB_HEADER_BYTES;
    const size_t tail = md_llama_tail_rest_bytes(e); /* write_range */
    if (s == MD_OK)
        s = md_llama_cells_check(e, payload, len, r, err);
    if (s == MD_OK &&
        (len < tail || memcmp(payload + len - tail, e->nothing.data + STATE_HEAD_BYTES, tail) != 0))
        s = md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) end in a state", r.start, r.end);
    if (s != MD_OK)
        return s;
    md_llama_log_clear();
    size_t n = llama_state_seq_set_data(e->ctx, payload, len, e->scratch);
    if (n != len || range_bytes(e) != len) {
        md_llama_forget(e, e->scratch);
        return md_fail(err, MD_INTERNAL, "KV of [%d, %d) was not taken in (%zu of %zu bytes): %s", r.start,
                       r.end, n, len, md_llama_log_cause());
    }
    if (e->recurrent) /* copying tags makes live's state that of scratch: it shall be live's own */
        llama_memory_seq_cp(e->mem, live, e->scratch, 0, 0);
    llama_memory_seq_cp(e->mem, e->scratch, live, r.start, r.end);
    md_llama_forget(e, e->scratch);
    if (r.end > end && e->recurrent && !drop_recurrent(e, live)) /* it is not that of the end any more */
        return md_fail(err, MD_SESSION_FATAL, "the state of position %d could not be dropped", end);
    return MD_OK;
}

/* ---- recompute ---- */

/* Live has the state that the token at `at` needs, and its KV as before. */
static bool put_state_at(struct md_llama_engine *e, llama_seq_id live, int32_t at, struct md_bytes state)
{
    if (at > 0)
        return put_checked(e, live, state);
    if (!e->window_cells)
        return drop_recurrent(e, live);
    /* no state takes windows away: put one with a single cell, at a position that has no KV, and remove that */
    return put(e, live, e->first.data, e->first.len) && llama_memory_seq_rm(e->mem, live, 0, 1);
}

/* Take out what the failed steps left of r, and what the library took with it from behind: it removes all from the
 * failed position on. */
static bool undo_recompute(struct md_llama_engine *e, llama_seq_id live, struct md_range r)
{
    bool done = (!e->recurrent || drop_recurrent(e, live)) && llama_memory_seq_rm(e->mem, live, r.start, -1);
    llama_memory_seq_cp(e->mem, e->scratch, live, r.end, -1);
    return done;
}

/* The library lets tokens follow the last position of windows and states, and tokens see no KV of later positions.
 * So the range is computed in its place, once the state that was there is put back; what stands behind keeps a
 * second tag in scratch meanwhile. */
static enum md_status recompute_with(struct md_llama_engine *e, llama_seq_id live, struct md_range r,
                                     const md_token *tokens, struct md_bytes state, struct md_err *err)
{
    if (!put_state_at(e, live, r.start, state))
        return md_fail(err, MD_INTERNAL, "the state of position %d could not be put back: %s", r.start,
                       md_llama_log_cause());
    llama_memory_seq_cp(e->mem, live, e->scratch, r.end, -1);
    if (e->recurrent && !drop_recurrent(e, e->scratch))
        return md_fail(err, MD_INTERNAL, "scratch keeps a state");
    const bool before = e->unstoppable;
    e->unstoppable = false; /* all is put back */
    md_llama_log_clear();
    int code = md_llama_steps(e, live, r.start, tokens, md_range_len(r), false);
    llama_synchronize(e->ctx);
    e->unstoppable = before;
    if (code == 0)
        return MD_OK;
    enum md_status s = md_llama_step_failed(code, err);
    if (!undo_recompute(e, live, r))
        s = md_fail(err, MD_SESSION_FATAL, "the KV keeps tokens of a failed step (llama_decode said %d)",
                    code);
    return s;
}

enum md_status md_llama_tail_recompute(struct md_llama_engine *e, md_seq seq, struct md_range r,
                                       const md_token *tokens, struct md_bytes state, int32_t end, bool ready,
                                       struct md_err *err)
{
    const llama_seq_id live = md_llama_live(e, seq);
    struct md_buf own;
    md_buf_init(&own, NULL, (size_t)tail_bytes(e));
    enum md_status s = r.start > 0 ? check_state(e, r.start, state, err) : MD_OK;
    if (s == MD_OK && ready)
        s = append_tail(e, seq, end, &own, err);
    if (s != MD_OK) {
        md_buf_done(&own);
        return s;
    }
    s = recompute_with(e, live, r, tokens, state, err);
    md_llama_forget(e, e->scratch);
    const bool back = ready ? put(e, live, own.data, own.len) : !e->recurrent || drop_recurrent(e, live);
    if (!back)
        s = md_fail(err, MD_SESSION_FATAL, "the state of the end could not be put back: %s",
                    md_llama_log_cause());
    md_buf_done(&own);
    e->window_from = 0;
    return s;
}

/* ---- opening ---- */

void md_llama_tail_done(struct md_llama_engine *e)
{
    md_buf_done(&e->nothing);
    md_buf_done(&e->first);
}

enum md_status md_llama_tail_begin(struct md_llama_engine *e, struct md_err *err)
{
    md_buf_init(&e->nothing, NULL, SIZE_MAX / 2);
    md_buf_init(&e->first, NULL, SIZE_MAX / 2);
    enum md_status s = append_partial(e, e->scratch >= 0 ? e->scratch : 0, &e->nothing, err);
    if (s == MD_OK && e->nothing.len < STATE_HEAD_BYTES)
        s = md_fail(err, MD_INTERNAL, "the state of nothing is %zu bytes", e->nothing.len);
    return s;
}

enum md_status md_llama_tail_measure(struct md_llama_engine *e, int32_t end, struct md_err *err)
{
    struct md_buf state;
    md_buf_init(&state, NULL, SIZE_MAX / 2);
    enum md_status s = append_tail(e, 0, end, &state, err);
    const int64_t size = (int64_t)state.len;
    if (s == MD_OK && end == 1) {
        e->first = state;
        e->state_fixed_bytes = size;
    } else {
        md_buf_done(&state);
        e->state_token_bytes = size - e->state_fixed_bytes;
        e->state_fixed_bytes -= e->state_token_bytes;
    }
    if (s != MD_OK || e->scratch < 0)
        return s;
    llama_memory_seq_cp(e->mem, md_llama_live(e, 0), e->scratch, 0, end);
    const int64_t range = drop_recurrent(e, e->scratch) ? (int64_t)range_bytes(e) : 0;
    md_llama_forget(e, e->scratch);
    if (end == 1)
        e->export_fixed_bytes = range;
    else {
        e->export_token_bytes = range - e->export_fixed_bytes;
        e->export_fixed_bytes -= e->export_token_bytes;
    }
    return MD_OK;
}

static bool same(const struct md_buf *a, const struct md_buf *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* The first token goes out, comes in and is computed again, and the state is put back; what is then there must be what
 * was there.  The first export has a cell of the windows to cut off, the second has none: that they are equal shows
 * that the cut is where it is thought to be. */
static bool ranges_work(struct md_llama_engine *e, const struct md_buf *state)
{
    const struct md_range first = { 0, 1 };
    const md_token zero = 0;
    struct md_buf kv, again, after;
    md_buf_init(&kv, NULL, SIZE_MAX / 2);
    md_buf_init(&again, NULL, SIZE_MAX / 2);
    md_buf_init(&after, NULL, SIZE_MAX / 2);
    bool works = e->export_token_bytes > 0 && md_llama_tail_export(e, 0, first, &kv, NULL) == MD_OK;
    if (works)
        md_llama_cells_learn(e, &kv, first);
    works = works && md_llama_tail_remove(e, 0, first, 2, false, NULL) == MD_OK &&
            md_llama_tail_admit(e, 0, first, 2, (struct md_bytes){ kv.data, kv.len }, NULL) == MD_OK &&
            md_llama_tail_export(e, 0, first, &again, NULL) == MD_OK && same(&kv, &again) &&
            md_llama_rewind(e, 0, 2, (struct md_bytes){ state->data, state->len }, NULL) == MD_OK;
    again.len = 0;
    works = works && md_llama_tail_remove(e, 0, first, 2, false, NULL) == MD_OK &&
            md_llama_rewind(e, 0, 2, (struct md_bytes){ state->data, state->len }, NULL) == MD_OK &&
            md_llama_tail_recompute(e, 0, first, &zero, (struct md_bytes){ 0 }, 2, true, NULL) == MD_OK &&
            md_llama_tail_export(e, 0, first, &again, NULL) == MD_OK && again.len == kv.len &&
            md_llama_checkpoint(e, 0, 2, &after, NULL) == MD_OK && same(state, &after);
    md_buf_done(&kv);
    md_buf_done(&again);
    md_buf_done(&after);
    return works;
}

bool md_llama_tail_works(struct md_llama_engine *e, bool ranges)
{
    const md_token zero = 0;
    const llama_seq_id live = md_llama_live(e, 0);
    struct md_buf state, again;
    md_buf_init(&state, NULL, SIZE_MAX / 2);
    md_buf_init(&again, NULL, SIZE_MAX / 2);
    bool works = md_llama_checkpoint(e, 0, 2, &state, NULL) == MD_OK &&
                 md_llama_run(e, live, 2, &zero, 1, false, NULL) == MD_OK &&
                 md_llama_rewind(e, 0, 2, (struct md_bytes){ state.data, state.len }, NULL) == MD_OK &&
                 md_llama_checkpoint(e, 0, 2, &again, NULL) == MD_OK && same(&state, &again) &&
                 (!ranges || ranges_work(e, &state));
    md_buf_done(&state);
    md_buf_done(&again);
    return works;
}
