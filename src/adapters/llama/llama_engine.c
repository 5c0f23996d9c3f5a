/* llama_engine.c - the operations of engine_ops.h on one llama_context.
 *
 * Only ids below n_seq_max can be exported, and for each of those the library sets aside logits of the whole
 * vocabulary; a unified cache takes all its ids in everything else.  So n_seq_max is 1 and scratch is id 0.
 * Recurrent layers have memory for n_seq_max sequences only: beside attention it is 2; without, there is no scratch.
 * What such models and windowed ones keep of the end of a sequence is llama_tail.c's.
 *
 * The library wants the tokens it is given to follow the last position of their sequence at once; the
 * base (engine.c) refuses the rest. */
#include "adapters/llama/llama_engine.h"
#include "engine/kv_blob.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct md_llama_engine *engine_of(struct md_engine *e)
{
    assert(e->ops == &md_llama_engine_ops);
    return md_llama_engine_of(e);
}

static llama_seq_id parked_id(const struct md_llama_engine *e, md_seq seq)
{
    return md_llama_live(e, e->base.info.seq_count + seq);
}

void md_llama_forget(struct md_llama_engine *e, llama_seq_id id)
{
    llama_memory_seq_rm(e->mem, id, -1, -1);
}

/* Exactly r is in id: its first and last position are; the count follows from the export's size. */
static bool spans(const struct md_llama_engine *e, llama_seq_id id, struct md_range r)
{
    return llama_memory_seq_pos_min(e->mem, id) == r.start &&
           llama_memory_seq_pos_max(e->mem, id) == r.end - 1;
}

/* ---- forward pass ---- */

bool md_llama_abort_now(void *user)
{
    const struct md_llama_engine *e = user;
    return !e->unstoppable && md_engine_interrupted(&e->base);
}

static int run_slice(struct md_llama_engine *e, llama_seq_id id, int32_t pos, const md_token *tokens,
                     int32_t count, bool logits)
{
    struct llama_batch *b = &e->batch;
    b->n_tokens = count;
    for (int32_t i = 0; i < count; i++) {
        b->token[i] = tokens[i];
        b->pos[i] = pos + i;
        b->n_seq_id[i] = 1;
        b->seq_id[i][0] = id;
        b->logits[i] = logits && i == count - 1;
    }
    return llama_decode(e->ctx, *b);
}

enum md_status md_llama_step_failed(int code, struct md_err *err)
{
    switch (code) {
    case 1: return md_fail(err, MD_NO_MEMORY, "no free KV cells for this step");
    case 2: return md_fail(err, MD_CANCELLED, "interrupted");
    default: /* -1 refused the batch, below that the computation failed */
        return md_fail(err, MD_INTERNAL, "llama_decode failed with %d: %s", code, md_llama_log_cause());
    }
}

/* After a failure the library may have kept whole micro-batches: take out all that came in.  A recurrent state
 * cannot be cut back; where the step had begun (and not only been refused) it is lost. */
static enum md_status undo(struct md_llama_engine *e, llama_seq_id id, int32_t start, int code,
                           struct md_err *err)
{
    llama_memory_seq_rm(e->mem, id, start, -1);
    if (llama_memory_seq_pos_max(e->mem, id) >= start)
        return md_fail(err, MD_SESSION_FATAL, "the KV keeps tokens of a failed step (llama_decode said %d)",
                       code);
    return md_llama_step_failed(code, err);
}

int md_llama_steps(struct md_llama_engine *e, llama_seq_id id, int32_t start, const md_token *tokens,
                   int32_t count, bool logits)
{
    const int32_t step = e->base.info.ubatch_tokens;
    int code = 0;
    for (int32_t i = 0; i < count && code == 0; i += step) {
        int32_t n = count - i < step ? count - i : step;
        /* what cannot be cut back must not be left half done */
        bool may_stop = i == 0 || !e->unstoppable;
        md_llama_attention_step(e, i, n);
        code = may_stop && md_engine_interrupted(&e->base)
                   ? 2
                   : run_slice(e, id, start + i, tokens + i, n, logits && i + n == count);
        md_llama_attention_stepped(e);
    }
    return code;
}

enum md_status md_llama_run(struct md_llama_engine *e, llama_seq_id id, int32_t start, const md_token *tokens,
                            int32_t count, bool logits, struct md_err *err)
{
    for (int32_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= e->base.info.vocab_count)
            return md_fail(err, MD_INVALID, "token %d is not in the vocabulary of %d", tokens[i],
                           e->base.info.vocab_count);
    }
    md_llama_log_clear();
    int code = md_llama_steps(e, id, start, tokens, count, logits);
    if (code != 0)
        return undo(e, id, start, code, err);
    llama_synchronize(e->ctx); /* so that time is charged to the call that caused it */
    return MD_OK;
}

/* Carry out what admit_moved left to do.  The library turns the keys of moved cells at the beginning of its next
 * step (llama_context::decode, memory_update), all layers and all cells in one graph; there is no call for that
 * alone.  An export before it would hold keys of the old positions under the new ones, and an interrupt in the
 * middle of it would leave some layers turned and others not.  So a step of one token is made for it, whose KV is
 * thrown away.  Where no cell is free for that token, the step is refused after the keys were turned. */
static enum md_status settle(struct md_llama_engine *e, struct md_err *err)
{
    const md_token any = 0;
    if (!e->turn_pending)
        return MD_OK;
    md_llama_log_clear();
    e->unstoppable = true; /* which no dense engine is otherwise */
    int code = run_slice(e, e->scratch, 0, &any, 1, false);
    llama_synchronize(e->ctx);
    e->unstoppable = false;
    md_llama_forget(e, e->scratch);
    if (strstr(md_llama_log_cause(), "K-shift") != NULL) /* all that tells: the step goes on without */
        return md_fail(err, MD_SESSION_FATAL, "keys could not be turned to their new positions: %s",
                       md_llama_log_cause());
    if (code != 0 && code != 1)
        return md_fail(err, MD_INTERNAL, "llama_decode failed with %d: %s", code, md_llama_log_cause());
    e->turn_pending = false;
    return MD_OK;
}

static enum md_status op_prefill(struct md_engine *base, md_seq seq, int32_t start, const md_token *tokens,
                                 int32_t count, struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    enum md_status s = settle(e, err);
    return s == MD_OK ? md_llama_run(e, md_llama_live(e, seq), start, tokens, count, false, err) : s;
}

static enum md_status op_decode(struct md_engine *base, md_seq seq, int32_t start, const md_token *tokens,
                                int32_t count, const float **ret_logits, struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    enum md_status s = settle(e, err);
    if (s == MD_OK)
        s = md_llama_run(e, md_llama_live(e, seq), start, tokens, count, true, err);
    if (s != MD_OK)
        return s;
    const float *logits = llama_get_logits_ith(e->ctx, -1);
    if (logits == NULL) {
        md_fail(err, MD_INTERNAL, "llama.cpp gave no logits: %s", md_llama_log_cause());
        return llama_memory_seq_rm(e->mem, md_llama_live(e, seq), start, -1) ? MD_INTERNAL : MD_SESSION_FATAL;
    }
    *ret_logits = logits;
    return MD_OK;
}

/* ---- surgery ---- */

static enum md_status op_truncate(struct md_engine *base, md_seq seq, int32_t from, struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    if (md_llama_has_tail(e))
        return md_llama_tail_truncate(e, seq, from, err);
    if (!llama_memory_seq_rm(e->mem, md_llama_live(e, seq), from == 0 ? -1 : from, -1))
        return md_fail(err, MD_UNSUPPORTED, "this model's state cannot be cut at position %d", from);
    if (e->scratch >= 0)
        llama_memory_seq_rm(e->mem, parked_id(e, seq), from, -1);
    return MD_OK;
}

static int32_t op_cut_point(const struct md_engine *base, md_seq seq, int32_t from)
{
    return md_llama_tail_cut_point((const struct md_llama_engine *)base, seq, from);
}

int64_t md_llama_payload_bytes(const struct md_llama_engine *e, int32_t tokens)
{
    return e->export_fixed_bytes + tokens * e->export_token_bytes;
}

static int64_t op_export_bytes(const struct md_engine *base, int32_t tokens)
{
    return MD_KV_BLOB_HEADER_BYTES + md_llama_payload_bytes((const struct md_llama_engine *)base, tokens);
}

/* Append header and payload of r, which scratch holds. */
static enum md_status export_scratch(struct md_llama_engine *e, struct md_range r, struct md_buf *ret_kv,
                                     struct md_err *err)
{
    const size_t due = (size_t)md_llama_payload_bytes(e, md_range_len(r));
    if (!spans(e, e->scratch, r))
        return md_fail(err, MD_INTERNAL, "range [%d, %d) could not be set apart", r.start, r.end);
    enum md_status s = md_buf_reserve(ret_kv, MD_KV_BLOB_HEADER_BYTES + due, err);
    if (s != MD_OK)
        return s;
    uint8_t *blob = ret_kv->data + ret_kv->len;
    md_llama_log_clear();
    size_t n = llama_state_seq_get_data(e->ctx, blob + MD_KV_BLOB_HEADER_BYTES, due, e->scratch);
    if (n != due)
        return md_fail(err, MD_INTERNAL, "exported %zu bytes of [%d, %d) where %zu were due: %s", n, r.start,
                       r.end, due, md_llama_log_cause());
    md_kv_blob_seal(blob, MD_KV_BLOB_RANGE, due, r, e->identity_hash);
    ret_kv->len += MD_KV_BLOB_HEADER_BYTES + due;
    return MD_OK;
}

static enum md_status op_export(struct md_engine *base, md_seq seq, struct md_range r, struct md_buf *ret_kv,
                                struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    if (md_llama_has_tail(e))
        return md_llama_tail_export(e, seq, r, ret_kv, err);
    enum md_status s = settle(e, err);
    if (s != MD_OK)
        return s;
    llama_memory_seq_cp(e->mem, md_llama_live(e, seq), e->scratch, r.start, r.end);
    s = export_scratch(e, r, ret_kv, err);
    md_llama_forget(e, e->scratch);
    return s;
}

static enum md_status op_remove(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    if (md_llama_has_tail(e)) {
        const int32_t end = md_engine_end(base, seq);
        const bool all = r.end == end && md_engine_own_cells(base, seq, (struct md_range){ 0, r.start }) == 0;
        return md_llama_tail_remove(e, seq, r, end, all, err);
    }
    if (!llama_memory_seq_rm(e->mem, md_llama_live(e, seq), r.start, r.end))
        return md_fail(err, MD_SESSION_FATAL, "range [%d, %d) could not be removed", r.start, r.end);
    return MD_OK;
}

bool md_llama_tag(struct md_llama_engine *e, llama_seq_id from, llama_seq_id to, struct md_range r)
{
    llama_memory_seq_cp(e->mem, from, to, r.start, r.end);
    return llama_memory_seq_pos_min(e->mem, to) <= r.start &&
           llama_memory_seq_pos_max(e->mem, to) >= r.end - 1;
}

/* Make what scratch holds of r visible in seq and leave scratch empty. */
static enum md_status show_scratch(struct md_llama_engine *e, md_seq seq, struct md_range r,
                                   struct md_err *err)
{
    bool there = md_llama_tag(e, e->scratch, md_llama_live(e, seq), r);
    md_llama_forget(e, e->scratch);
    if (!there)
        return md_fail(err, MD_SESSION_FATAL, "range [%d, %d) did not arrive in its sequence", r.start,
                       r.end);
    return MD_OK;
}

/* Take kv, which was exported as r, into scratch. */
static enum md_status import_scratch(struct md_llama_engine *e, struct md_range r, struct md_bytes kv,
                                     struct md_err *err)
{
    const size_t len = (size_t)md_llama_payload_bytes(e, md_range_len(r));
    enum md_status s = md_kv_blob_check(kv, MD_KV_BLOB_RANGE, len, r, e->identity_hash, err);
    const uint8_t *payload = (const uint8_t *)kv.data + MD_KV_BLOB_HEADER_BYTES;
    if (s == MD_OK)
        s = md_llama_cells_check(e, payload, len, r, err);
    if (s != MD_OK)
        return s;
    md_llama_log_clear();
    size_t n = llama_state_seq_set_data(e->ctx, payload, len, e->scratch);
    if (n != len || !spans(e, e->scratch, r)) {
        md_llama_forget(e, e->scratch);
        return md_fail(err, MD_INTERNAL, "KV of [%d, %d) was not taken in (%zu of %zu bytes): %s", r.start,
                       r.end, n, len, md_llama_log_cause());
    }
    return MD_OK;
}

static enum md_status op_admit(struct md_engine *base, md_seq seq, struct md_range r, struct md_bytes kv,
                               struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    if (md_llama_has_tail(e))
        return md_llama_tail_admit(e, seq, r, md_engine_end(base, seq), kv, err);
    enum md_status s = import_scratch(e, r, kv, err);
    return s == MD_OK ? show_scratch(e, seq, r, err) : s;
}

/* The positions change at once, the keys with the next step. */
static enum md_status op_admit_moved(struct md_engine *base, md_seq seq, struct md_range r,
                                     int32_t from_start, struct md_bytes kv, struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    const struct md_range from = { from_start, from_start + md_range_len(r) };
    enum md_status s = import_scratch(e, from, kv, err);
    if (s != MD_OK || r.start == from_start)
        return s == MD_OK ? show_scratch(e, seq, r, err) : s;
    llama_memory_seq_add(e->mem, e->scratch, from.start, from.end, r.start - from.start);
    e->turn_pending = true;
    if (!spans(e, e->scratch, r)) {
        md_llama_forget(e, e->scratch);
        return md_fail(err, MD_INTERNAL, "KV of [%d, %d) could not be moved to [%d, %d)", from.start,
                       from.end, r.start, r.end);
    }
    return show_scratch(e, seq, r, err);
}

static enum md_status op_share(struct md_engine *base, md_seq from, md_seq to, struct md_range r,
                               struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    if (md_llama_tag(e, md_llama_live(e, from), md_llama_live(e, to), r))
        return MD_OK;
    llama_memory_seq_rm(e->mem, md_llama_live(e, to), r.start, r.end);
    return md_fail(err, MD_INTERNAL, "range [%d, %d) could not be shared", r.start, r.end);
}

static enum md_status move_tag(struct md_llama_engine *e, llama_seq_id from, llama_seq_id to,
                               struct md_range r, struct md_err *err)
{
    if (!md_llama_tag(e, from, to, r)) {
        llama_memory_seq_rm(e->mem, to, r.start, r.end);
        return md_fail(err, MD_INTERNAL, "range [%d, %d) could not be tagged", r.start, r.end);
    }
    if (!llama_memory_seq_rm(e->mem, from, r.start, r.end))
        return md_fail(err, MD_SESSION_FATAL, "range [%d, %d) could not be untagged", r.start, r.end);
    return MD_OK;
}

static enum md_status op_park(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    return move_tag(e, md_llama_live(e, seq), parked_id(e, seq), r, err);
}

static enum md_status op_unpark(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    return move_tag(e, parked_id(e, seq), md_llama_live(e, seq), r, err);
}

/* Tokens can only follow the end of a sequence, so the middle is computed where it is the end: in scratch,
 * behind the tags of what comes before it. */
static enum md_status op_recompute(struct md_engine *base, md_seq seq, struct md_range r,
                                   const md_token *tokens, struct md_bytes state, struct md_err *err)
{
    struct md_llama_engine *e = engine_of(base);
    if (md_llama_has_tail(e)) {
        const int32_t end = md_engine_end(base, seq);
        const bool ready = end > 0 && md_engine_is_ready(base, seq);
        return md_llama_tail_recompute(e, seq, r, tokens, state, end, ready, err);
    }
    enum md_status s = settle(e, err);
    if (s != MD_OK)
        return s;
    if (r.start > 0)
        llama_memory_seq_cp(e->mem, md_llama_live(e, seq), e->scratch, 0, r.start);
    s = md_llama_run(e, e->scratch, r.start, tokens, md_range_len(r), false, err);
    if (s == MD_OK)
        return show_scratch(e, seq, r, err);
    md_llama_forget(e, e->scratch);
    return s;
}

static int64_t op_checkpoint_bytes(const struct md_engine *base)
{
    return md_llama_checkpoint_bytes((const struct md_llama_engine *)base);
}

static enum md_status op_checkpoint(struct md_engine *base, md_seq seq, struct md_buf *ret_state,
                                    struct md_err *err)
{
    return md_llama_checkpoint(engine_of(base), seq, md_engine_end(base, seq), ret_state, err);
}

static enum md_status op_rewind(struct md_engine *base, md_seq seq, int32_t at, struct md_bytes state,
                                struct md_err *err)
{
    return md_llama_rewind(engine_of(base), seq, at, state, err);
}

static void op_close(struct md_engine *base)
{
    if (base == NULL)
        return;
    struct md_llama_engine *e = (struct md_llama_engine *)base; /* ops may not be set yet */
    md_engine_done(base);
    md_llama_tail_done(e);
    md_llama_attention_done(e);
    if (e->batch.token != NULL)
        llama_batch_free(e->batch);
    if (e->ctx != NULL)
        llama_free(e->ctx);
    md_llama_model_unref(e->model);
    free(e);
}

const struct md_engine_ops md_llama_engine_ops = {
    .name = "llama",
    .close = op_close,
    .prefill = op_prefill,
    .decode = op_decode,
    .truncate = op_truncate,
    .cut_point = op_cut_point,
    .export_range = op_export,
    .export_bytes = op_export_bytes,
    .admit_range = op_admit,
    .admit_moved = op_admit_moved,
    .remove_range = op_remove,
    .share = op_share,
    .park = op_park,
    .unpark = op_unpark,
    .recompute_range = op_recompute,
    .checkpoint = op_checkpoint,
    .checkpoint_bytes = op_checkpoint_bytes,
    .rewind = op_rewind,
    .keys = md_llama_keys,
};
