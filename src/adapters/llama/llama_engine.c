/* llama_engine.c - the operations of engine_ops.h on one llama_context.
 *
 * A sequence id of the library is a tag on cells of one unified cache; copying and removing tags moves no
 * bytes, and a cell with the tags of two sequences is shared by them.  A user's sequence s owns two ids,
 * live_id(s) (attended) and parked_id(s) (kept, not attended); one more, scratch, is empty between calls and is
 * where ranges are exported, imported, turned to other positions and recomputed.
 *
 * Only ids below n_seq_max can be exported, and for each of those the library sets aside logits of the whole
 * vocabulary; a unified cache takes all its ids in everything else.  So n_seq_max is 1 and scratch is id 0.
 * Windowed and recurrent models have memory for n_seq_max sequences only: one, and no scratch.
 *
 * The library wants the tokens it is given to follow the last position of their sequence at once; the
 * base (engine.c) refuses the rest. */
#include "adapters/llama/llama_backend.h"
#include "adapters/llama/llama_blob.h"
#include "adapters/llama/llama_internal.h"
#include "engine/engine_ops.h"
#include "host/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    CELL_META_BYTES = 12 /* position, count of ids and id, in front of each cell's KV in an export */
};

struct engine {
    struct md_engine base;
    struct md_llama_model *model;
    struct llama_context *ctx;
    llama_memory_t mem;
    struct llama_batch batch; /* one micro-batch, refilled */
    llama_seq_id scratch;     /* -1: this model has no use for one */
    int64_t export_fixed_bytes,
        export_token_bytes; /* measured at open; an export of n is exactly this long */
    uint64_t identity_hash;
    bool window_cells; /* windowed layers have cells for their window only */
    bool turn_pending; /* keys of moved cells wait to be turned: see settle() */
    bool turning;      /* and must not be interrupted */
};

static const struct md_engine_ops engine_ops;

static struct engine *engine_of(struct md_engine *e)
{
    assert(e->ops == &engine_ops);
    return (struct engine *)e;
}

static llama_seq_id live_id(const struct engine *e, md_seq seq)
{
    return e->scratch + 1 + seq;
}

static llama_seq_id parked_id(const struct engine *e, md_seq seq)
{
    return live_id(e, e->base.info.seq_count + seq);
}

static void forget(struct engine *e, llama_seq_id id)
{
    llama_memory_seq_rm(e->mem, id, -1, -1);
}

/* Exactly r is in id: its first and last position are; the count follows from the export's size. */
static bool spans(const struct engine *e, llama_seq_id id, struct md_range r)
{
    return llama_memory_seq_pos_min(e->mem, id) == r.start &&
           llama_memory_seq_pos_max(e->mem, id) == r.end - 1;
}

/* ---- forward pass ---- */

static bool abort_now(void *user)
{
    const struct engine *e = user;
    return !e->turning && md_engine_interrupted(&e->base);
}

static int run_slice(struct engine *e, llama_seq_id id, int32_t pos, const md_token *tokens, int32_t count,
                     bool logits)
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

/* After a failure the library may have kept whole micro-batches: take out all that came in. */
static enum md_status undo(struct engine *e, llama_seq_id id, int32_t start, int code, struct md_err *err)
{
    llama_memory_seq_rm(e->mem, id, start, -1);
    if (llama_memory_seq_pos_max(e->mem, id) >= start)
        return md_fail(err, MD_SESSION_FATAL, "the KV keeps tokens of a failed step (llama_decode said %d)",
                       code);
    switch (code) {
    case 1: return md_fail(err, MD_NO_MEMORY, "no free KV cells for this step");
    case 2: return md_fail(err, MD_CANCELLED, "interrupted");
    default: /* -1 refused the batch, below that the computation failed */
        return md_fail(err, MD_INTERNAL, "llama_decode failed with %d: %s", code, md_llama_log_cause());
    }
}

/* Compute tokens at start.. in id, a micro-batch at a time so that an interrupt is met soon. */
static enum md_status run(struct engine *e, llama_seq_id id, int32_t start, const md_token *tokens,
                          int32_t count, bool logits, struct md_err *err)
{
    for (int32_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= e->base.info.vocab_count)
            return md_fail(err, MD_INVALID, "token %d is not in the vocabulary of %d", tokens[i],
                           e->base.info.vocab_count);
    }
    md_llama_log_clear();
    const int32_t step = e->base.info.ubatch_tokens;
    int code = 0;
    for (int32_t i = 0; i < count && code == 0; i += step) {
        int32_t n = count - i < step ? count - i : step;
        /* what cannot be cut back must not be left half done */
        bool may_stop = i == 0 || (e->base.caps & MD_CAP_REMOVE_TAIL);
        code = may_stop && md_engine_interrupted(&e->base)
                   ? 2
                   : run_slice(e, id, start + i, tokens + i, n, logits && i + n == count);
    }
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
static enum md_status settle(struct engine *e, struct md_err *err)
{
    const md_token any = 0;
    if (!e->turn_pending)
        return MD_OK;
    md_llama_log_clear();
    e->turning = true;
    int code = run_slice(e, e->scratch, 0, &any, 1, false);
    llama_synchronize(e->ctx);
    e->turning = false;
    forget(e, e->scratch);
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
    struct engine *e = engine_of(base);
    enum md_status s = settle(e, err);
    return s == MD_OK ? run(e, live_id(e, seq), start, tokens, count, false, err) : s;
}

static enum md_status op_decode(struct md_engine *base, md_seq seq, int32_t pos, md_token token,
                                const float **ret_logits, struct md_err *err)
{
    struct engine *e = engine_of(base);
    enum md_status s = settle(e, err);
    if (s == MD_OK)
        s = run(e, live_id(e, seq), pos, &token, 1, true, err);
    if (s != MD_OK)
        return s;
    const float *logits = llama_get_logits_ith(e->ctx, -1);
    if (logits == NULL) {
        md_fail(err, MD_INTERNAL, "llama.cpp gave no logits: %s", md_llama_log_cause());
        return llama_memory_seq_rm(e->mem, live_id(e, seq), pos, -1) ? MD_INTERNAL : MD_SESSION_FATAL;
    }
    *ret_logits = logits;
    return MD_OK;
}

/* ---- surgery ---- */

static enum md_status op_truncate(struct md_engine *base, md_seq seq, int32_t from, struct md_err *err)
{
    struct engine *e = engine_of(base);
    if (!llama_memory_seq_rm(e->mem, live_id(e, seq), from == 0 ? -1 : from, -1))
        return md_fail(err, MD_UNSUPPORTED, "this model's state cannot be cut at position %d", from);
    if (e->scratch >= 0)
        llama_memory_seq_rm(e->mem, parked_id(e, seq), from, -1);
    return MD_OK;
}

/* The cells of windowed layers are used again once their token is out of the window; the library keeps
 * what is left of a sequence without a gap (llama_kv_cache::apply_ubatch), and pos_min tells where that begins. */
static int32_t op_cut_point(const struct md_engine *base, md_seq seq, int32_t from)
{
    const struct engine *e = (const struct engine *)base;
    if (!e->window_cells)
        return from;
    const int32_t needed = from - e->base.info.window_tokens + 1;
    return llama_memory_seq_pos_min(e->mem, live_id(e, seq)) <= (needed > 0 ? needed : 0) ? from : 0;
}

static int64_t payload_bytes(const struct engine *e, int32_t tokens)
{
    return e->export_fixed_bytes + tokens * e->export_token_bytes;
}

static int64_t op_export_bytes(const struct md_engine *base, int32_t tokens)
{
    return MD_LLAMA_BLOB_HEADER_BYTES + payload_bytes((const struct engine *)base, tokens);
}

/* Append header and payload of r, which scratch holds. */
static enum md_status export_scratch(struct engine *e, struct md_range r, struct md_buf *ret_kv,
                                     struct md_err *err)
{
    const size_t due = (size_t)payload_bytes(e, md_range_len(r));
    if (!spans(e, e->scratch, r))
        return md_fail(err, MD_INTERNAL, "range [%d, %d) could not be set apart", r.start, r.end);
    enum md_status s = md_buf_reserve(ret_kv, MD_LLAMA_BLOB_HEADER_BYTES + due, err);
    if (s != MD_OK)
        return s;
    uint8_t *blob = ret_kv->data + ret_kv->len;
    md_llama_log_clear();
    size_t n = llama_state_seq_get_data(e->ctx, blob + MD_LLAMA_BLOB_HEADER_BYTES, due, e->scratch);
    if (n != due)
        return md_fail(err, MD_INTERNAL, "exported %zu bytes of [%d, %d) where %zu were due: %s", n, r.start,
                       r.end, due, md_llama_log_cause());
    md_llama_blob_seal(blob, due, r, e->identity_hash);
    ret_kv->len += MD_LLAMA_BLOB_HEADER_BYTES + due;
    return MD_OK;
}

static enum md_status op_export(struct md_engine *base, md_seq seq, struct md_range r, struct md_buf *ret_kv,
                                struct md_err *err)
{
    struct engine *e = engine_of(base);
    enum md_status s = settle(e, err);
    if (s != MD_OK)
        return s;
    llama_memory_seq_cp(e->mem, live_id(e, seq), e->scratch, r.start, r.end);
    s = export_scratch(e, r, ret_kv, err);
    forget(e, e->scratch);
    return s;
}

static enum md_status op_remove(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    struct engine *e = engine_of(base);
    if (!llama_memory_seq_rm(e->mem, live_id(e, seq), r.start, r.end))
        return md_fail(err, MD_SESSION_FATAL, "range [%d, %d) could not be removed", r.start, r.end);
    return MD_OK;
}

/* Give `to` the tags of r in `from`. */
static bool tag(struct engine *e, llama_seq_id from, llama_seq_id to, struct md_range r)
{
    llama_memory_seq_cp(e->mem, from, to, r.start, r.end);
    return llama_memory_seq_pos_min(e->mem, to) <= r.start &&
           llama_memory_seq_pos_max(e->mem, to) >= r.end - 1;
}

/* Make what scratch holds of r visible in seq and leave scratch empty. */
static enum md_status show_scratch(struct engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    bool there = tag(e, e->scratch, live_id(e, seq), r);
    forget(e, e->scratch);
    if (!there)
        return md_fail(err, MD_SESSION_FATAL, "range [%d, %d) did not arrive in its sequence", r.start,
                       r.end);
    return MD_OK;
}

/* Take kv, which was exported as r, into scratch. */
static enum md_status import_scratch(struct engine *e, struct md_range r, struct md_bytes kv,
                                     struct md_err *err)
{
    const size_t len = (size_t)payload_bytes(e, md_range_len(r));
    enum md_status s = md_llama_blob_check(kv, len, r, e->identity_hash, err);
    if (s != MD_OK)
        return s;
    const uint8_t *payload = (const uint8_t *)kv.data + MD_LLAMA_BLOB_HEADER_BYTES;
    md_llama_log_clear();
    size_t n = llama_state_seq_set_data(e->ctx, payload, len, e->scratch);
    if (n != len || !spans(e, e->scratch, r)) {
        forget(e, e->scratch);
        return md_fail(err, MD_INTERNAL, "KV of [%d, %d) was not taken in (%zu of %zu bytes): %s", r.start,
                       r.end, n, len, md_llama_log_cause());
    }
    return MD_OK;
}

static enum md_status op_admit(struct md_engine *base, md_seq seq, struct md_range r, struct md_bytes kv,
                               struct md_err *err)
{
    struct engine *e = engine_of(base);
    enum md_status s = import_scratch(e, r, kv, err);
    return s == MD_OK ? show_scratch(e, seq, r, err) : s;
}

/* The positions change at once, the keys with the next step. */
static enum md_status op_admit_moved(struct md_engine *base, md_seq seq, struct md_range r,
                                     int32_t from_start, struct md_bytes kv, struct md_err *err)
{
    struct engine *e = engine_of(base);
    const struct md_range from = { from_start, from_start + md_range_len(r) };
    enum md_status s = import_scratch(e, from, kv, err);
    if (s != MD_OK || r.start == from_start)
        return s == MD_OK ? show_scratch(e, seq, r, err) : s;
    llama_memory_seq_add(e->mem, e->scratch, from.start, from.end, r.start - from.start);
    e->turn_pending = true;
    if (!spans(e, e->scratch, r)) {
        forget(e, e->scratch);
        return md_fail(err, MD_INTERNAL, "KV of [%d, %d) could not be moved to [%d, %d)", from.start,
                       from.end, r.start, r.end);
    }
    return show_scratch(e, seq, r, err);
}

static enum md_status op_share(struct md_engine *base, md_seq from, md_seq to, struct md_range r,
                               struct md_err *err)
{
    struct engine *e = engine_of(base);
    if (tag(e, live_id(e, from), live_id(e, to), r))
        return MD_OK;
    llama_memory_seq_rm(e->mem, live_id(e, to), r.start, r.end);
    return md_fail(err, MD_INTERNAL, "range [%d, %d) could not be shared", r.start, r.end);
}

static enum md_status move_tag(struct engine *e, llama_seq_id from, llama_seq_id to, struct md_range r,
                               struct md_err *err)
{
    if (!tag(e, from, to, r)) {
        llama_memory_seq_rm(e->mem, to, r.start, r.end);
        return md_fail(err, MD_INTERNAL, "range [%d, %d) could not be tagged", r.start, r.end);
    }
    if (!llama_memory_seq_rm(e->mem, from, r.start, r.end))
        return md_fail(err, MD_SESSION_FATAL, "range [%d, %d) could not be untagged", r.start, r.end);
    return MD_OK;
}

static enum md_status op_park(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    struct engine *e = engine_of(base);
    return move_tag(e, live_id(e, seq), parked_id(e, seq), r, err);
}

static enum md_status op_unpark(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    struct engine *e = engine_of(base);
    return move_tag(e, parked_id(e, seq), live_id(e, seq), r, err);
}

/* Tokens can only follow the end of a sequence, so the middle is computed where it is the end: in scratch,
 * behind the tags of what comes before it. */
static enum md_status op_recompute(struct md_engine *base, md_seq seq, struct md_range r,
                                   const md_token *tokens, struct md_bytes state, struct md_err *err)
{
    struct engine *e = engine_of(base);
    (void)state; /* dense models only, so far */
    enum md_status s = settle(e, err);
    if (s != MD_OK)
        return s;
    if (r.start > 0)
        llama_memory_seq_cp(e->mem, live_id(e, seq), e->scratch, 0, r.start);
    s = run(e, e->scratch, r.start, tokens, md_range_len(r), false, err);
    if (s == MD_OK)
        return show_scratch(e, seq, r, err);
    forget(e, e->scratch);
    return s;
}

static void op_close(struct md_engine *base)
{
    if (base == NULL)
        return;
    struct engine *e = (struct engine *)base; /* ops may not be set yet */
    md_engine_done(base);
    if (e->batch.token != NULL)
        llama_batch_free(e->batch);
    if (e->ctx != NULL)
        llama_free(e->ctx);
    md_llama_model_unref(e->model);
    free(e);
}

static const struct md_engine_ops engine_ops = {
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
};

/* ---- opening ---- */

/* What the model's kind of state allows; confirmed by measure() before anyone is told. */
static unsigned wanted_caps(const struct llama_model *m)
{
    if (llama_model_is_recurrent(m) || llama_model_is_hybrid(m))
        return 0;
    if (llama_model_n_swa(m) > 0)
        return MD_CAP_REMOVE_TAIL;
    return MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_SPARSE_ATTENTION | MD_CAP_COLD_STORE |
           MD_CAP_RECOMPUTE_RANGE | MD_CAP_SHARE;
}

static struct llama_context_params context_params(const struct engine *e, const struct md_open_params *p,
                                                  const struct md_kv_mode *mode)
{
    struct llama_context_params c = llama_context_default_params();
    const int32_t batch = p->batch_tokens > 0 ? p->batch_tokens : MD_LLAMA_BATCH;
    c.n_ctx = (uint32_t)md_kv_pad(p->cell_count);
    c.n_ubatch = (uint32_t)mode->ubatch_tokens;
    /* a step that fails is undone, which needs the window before it: of one micro-batch it is still there */
    c.n_batch = e->window_cells ? c.n_ubatch : (uint32_t)batch;
    c.n_seq_max = (uint32_t)mode->seq_count;
    c.n_outputs_max =
        c.n_seq_max; /* logits of one token at a time: the default reserves n_batch x vocabulary floats */
    c.kv_unified = true;
    c.swa_full = !e->window_cells;
    c.n_threads = c.n_threads_batch = p->threads > 0 ? p->threads : md_host_processor_count();
    c.type_k = md_llama_kv_type(mode->type_k);
    c.type_v = md_llama_kv_type(mode->type_v);
    c.flash_attn_type = p->flash_attn > 0    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                        : p->flash_attn == 0 ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                             : LLAMA_FLASH_ATTN_TYPE_AUTO;
    if (p->gpu_layers == 0)
        c.offload_kqv = c.op_offload = false;
    c.no_perf = true;
    return c;
}

static void export_first(struct engine *e, struct md_buf *ret_kv, enum md_status *s)
{
    if (*s == MD_OK)
        *s = op_export(&e->base, 0, (struct md_range){ 0, 1 }, ret_kv, NULL);
}

/* Two tokens are there: put the second out and in again, so that a capability is claimed because it was
 * executed. */
static bool cold_store_works(struct engine *e)
{
    const struct md_range second = { 1, 2 };
    struct md_buf kv;
    md_buf_init(&kv, NULL, SIZE_MAX / 2);
    enum md_status s = op_export(&e->base, 0, second, &kv, NULL);
    if (s == MD_OK)
        s = op_remove(&e->base, 0, second, NULL);
    if (s == MD_OK)
        s = op_admit(&e->base, 0, second, (struct md_bytes){ kv.data, kv.len }, NULL);
    md_buf_done(&kv);
    return s == MD_OK;
}

/* Move the second token and see that the first stays as it is: turning goes over all cells, those that did not
 * move by an angle of 0, and with YaRN the library scales the keys of them all while it does so. */
static bool moving_works(struct engine *e, enum md_kv_type keys)
{
    const struct md_range second = { 1, 2 }, far = { 9, 10 };
    /* ggml_compute_forward_rope ends the process on other types; quantised ones would be rounded once more */
    if ((keys != MD_KV_F32 && keys != MD_KV_F16) || !llama_memory_can_shift(e->mem))
        return false;
    if (llama_model_rope_type(e->model->model) == LLAMA_ROPE_TYPE_NONE)
        return false; /* nothing tells what a position does to the keys */
    struct md_buf before, after, kv;
    md_buf_init(&before, NULL, SIZE_MAX / 2);
    md_buf_init(&after, NULL, SIZE_MAX / 2);
    md_buf_init(&kv, NULL, SIZE_MAX / 2);
    enum md_status s = op_export(&e->base, 0, second, &kv, NULL);
    export_first(e, &before, &s);
    if (s == MD_OK)
        s = op_remove(&e->base, 0, second, NULL);
    if (s == MD_OK)
        s = op_admit_moved(&e->base, 0, far, second.start, (struct md_bytes){ kv.data, kv.len }, NULL);
    export_first(e, &after, &s);
    const bool same =
        s == MD_OK && before.len == after.len && memcmp(before.data, after.data, before.len) == 0;
    md_buf_done(&before);
    md_buf_done(&after);
    md_buf_done(&kv);
    return same;
}

/* Decode two tokens and look at the sizes of their exports: the header has no call for bytes per token,
 * and per-layer head counts, latent attention and the like make a formula of our own unsafe.  Then try what
 * dense models can. */
static enum md_status measure(struct engine *e, enum md_kv_type keys, unsigned *caps, struct md_err *err)
{
    const md_token zero = 0;
    const llama_seq_id exported = e->scratch >= 0 ? e->scratch : live_id(e, 0);
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        enum md_status s = run(e, live_id(e, 0), i, &zero, 1, false, err);
        if (s != MD_OK)
            return s;
        if (e->scratch >= 0)
            tag(e, live_id(e, 0), e->scratch, (struct md_range){ 0, i + 1 });
        size[i] = llama_state_seq_get_size(e->ctx, exported);
        if (e->scratch >= 0)
            forget(e, e->scratch);
    }
    e->export_token_bytes = (int64_t)(size[1] - size[0]);
    e->export_fixed_bytes = (int64_t)size[0] - e->export_token_bytes;
    const int64_t caches = llama_model_n_swa(e->model->model) > 0 ? 2 : 1;
    e->base.info.kv_bytes_per_token = *caps != 0 ? e->export_token_bytes - caches * CELL_META_BYTES : 0;
    if (e->scratch >= 0 && !cold_store_works(e))
        *caps = MD_CAP_REMOVE_TAIL;
    else if (e->scratch >= 0 && moving_works(e, keys))
        *caps |= MD_CAP_POSITION_SHIFT;
    llama_memory_clear(e->mem, false);
    e->turn_pending = false;
    return MD_OK;
}

static const char *meta(const struct llama_model *m, const char *arch, const char *key, char *out,
                        size_t out_bytes)
{
    char full[160];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    if (llama_model_meta_val_str(m, full, out, out_bytes) < 0)
        snprintf(out, out_bytes, "-");
    return out;
}

static void fill_info(struct engine *e, const struct md_open_params *p, const struct md_kv_mode *mode)
{
    const struct llama_model *m = e->model->model;
    struct md_engine_info *i = &e->base.info;
    char arch[64] = "", base[24], scaling[24], factor[24];
    snprintf(i->engine, sizeof i->engine, "llama");
    llama_model_desc(m, i->model, sizeof i->model);
    snprintf(i->type_k, sizeof i->type_k, "%s", md_kv_type_name(mode->type_k));
    snprintf(i->type_v, sizeof i->type_v, "%s", md_kv_type_name(mode->type_v));
    i->lossy_kv = md_kv_type_is_quantized(mode->type_k) || md_kv_type_is_quantized(mode->type_v);
    i->vocab_count = llama_vocab_n_tokens(e->model->vocab);
    i->seq_count = e->scratch < 0 ? 1 : p->seq_count > 0 ? p->seq_count : MD_LLAMA_SEQS;
    i->cell_count = (int32_t)llama_n_ctx(e->ctx);
    i->trained_tokens = llama_model_n_ctx_train(m);
    i->window_tokens = llama_model_n_swa(m);
    i->batch_tokens = (int32_t)llama_n_batch(e->ctx);
    i->ubatch_tokens = (int32_t)llama_n_ubatch(e->ctx);
    i->model_bytes = (int64_t)llama_model_size(m);
    llama_model_meta_val_str(m, "general.architecture", arch, sizeof arch);
    /* Flash attention is in it because it changes how values lie in the exported bytes. */
    snprintf(i->identity, sizeof i->identity,
             "llama.cpp %.24s|%016" PRIx64 "|%" PRId64 "|%" PRIu64 "|%s/%s|fa%d|rope %s %s %s|%.64s",
             llama_version(), e->model->fingerprint, e->model->file_bytes, llama_model_n_params(m), i->type_k,
             i->type_v, p->flash_attn, meta(m, arch, "rope.freq_base", base, sizeof base),
             meta(m, arch, "rope.scaling.type", scaling, sizeof scaling),
             meta(m, arch, "rope.scaling.factor", factor, sizeof factor), i->model);
    e->identity_hash = XXH3_64bits(i->identity, strlen(i->identity));
}

static void fill_kv_bytes(struct md_engine_info *i, const struct md_kv_shape *shape,
                          const struct md_kv_mode *mode)
{
    i->kv_growing_bytes = md_kv_growing_bytes(shape, mode);
    i->kv_fixed_bytes = md_kv_bytes(shape, mode, i->cell_count) - i->kv_growing_bytes * i->cell_count;
}

enum md_status md_llama_engine_new(struct md_llama_model *m, const struct md_open_params *params,
                                   const struct md_kv_shape *shape, const struct md_open_cost *cost,
                                   struct md_engine **ret_engine, struct md_err *err)
{
    const struct md_kv_mode *mode = &cost->mode;
    unsigned caps = wanted_caps(m->model);
    if (((caps & MD_CAP_REMOVE_MIDDLE) != 0) != cost->cold_store)
        return md_fail(err, MD_INTERNAL,
                       "the library takes this model for another kind than its header says");
    struct engine *e = calloc(1, sizeof *e);
    if (e == NULL)
        return md_fail(err, MD_NO_MEMORY, "engine");
    e->model = md_llama_model_ref(m);
    e->scratch = (caps & MD_CAP_REMOVE_MIDDLE) ? 0 : -1;
    e->window_cells = llama_model_n_swa(m->model) > 0 && !mode->window_full;
    md_llama_log_clear();
    e->ctx = llama_init_from_model(m->model, context_params(e, params, mode));
    enum md_status s = MD_OK;
    if (e->ctx == NULL) {
        const char *cause = md_llama_log_cause();
        s = md_fail(err, strstr(cause, "alloc") != NULL ? MD_NO_MEMORY : MD_UNSUPPORTED,
                    "open the KV cache of %d cells: %s", params->cell_count, cause);
    } else {
        e->mem = llama_get_memory(e->ctx);
        fill_info(e, params, mode);
        fill_kv_bytes(&e->base.info, shape, mode);
        e->batch = llama_batch_init(e->base.info.ubatch_tokens, 0, 1);
        e->base.ops = &engine_ops; /* measure() uses the operations before the base is made */
        if (e->mem == NULL || e->batch.token == NULL)
            s = md_fail(err, e->mem == NULL ? MD_UNSUPPORTED : MD_NO_MEMORY, "this model has no KV cache");
    }
    if (s == MD_OK)
        s = measure(e, mode->type_k, &caps, err);
    if (s == MD_OK)
        s = md_engine_init(&e->base, &engine_ops, caps, err);
    if (s != MD_OK) {
        op_close(&e->base);
        return s;
    }
    if (caps & MD_CAP_REMOVE_TAIL)
        llama_set_abort_callback(e->ctx, abort_now, &e->base);
    *ret_engine = &e->base;
    return MD_OK;
}
