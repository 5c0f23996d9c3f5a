/* llama_engine.c - the operations of engine_ops.h on one llama_context.
 *
 * A sequence id of the library is a tag on cells of one unified cache; copying and removing tags moves no
 * bytes.  A user's sequence s owns two ids, s (live, attended) and parked_id(s) (kept, not attended); one
 * more, scratch, is empty between calls and is where ranges are exported, imported and recomputed.  All
 * ids lie below n_seq_max, because only those can be exported.
 *
 * The library wants the tokens it is given to follow the last position of their sequence at once; the
 * base (engine.c) refuses the rest.  Positions are never shifted here, so no shift is ever pending. */
#include "adapters/llama/llama_backend.h"
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
};

/* In front of the library's bytes, so that it never sees a byte that is not what it wrote. */
struct blob_header {
    uint32_t magic, version;
    int32_t start, end;
    uint64_t payload_bytes, identity_hash, check;
};
enum { BLOB_MAGIC = 0x626b646d, BLOB_VERSION = 1 }; /* "mdkb" */

static const struct md_engine_ops engine_ops;

static struct engine *engine_of(struct md_engine *e)
{
    assert(e->ops == &engine_ops);
    return (struct engine *)e;
}

static llama_seq_id parked_id(const struct engine *e, md_seq seq)
{
    return e->base.info.seq_count + seq;
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
    return md_engine_interrupted(user);
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

static enum md_status op_prefill(struct md_engine *base, md_seq seq, int32_t start, const md_token *tokens,
                                 int32_t count, struct md_err *err)
{
    return run(engine_of(base), seq, start, tokens, count, false, err);
}

static enum md_status op_decode(struct md_engine *base, md_seq seq, int32_t pos, md_token token,
                                const float **ret_logits, struct md_err *err)
{
    struct engine *e = engine_of(base);
    enum md_status s = run(e, seq, pos, &token, 1, true, err);
    if (s != MD_OK)
        return s;
    const float *logits = llama_get_logits_ith(e->ctx, -1);
    if (logits == NULL) {
        md_fail(err, MD_INTERNAL, "llama.cpp gave no logits: %s", md_llama_log_cause());
        return llama_memory_seq_rm(e->mem, seq, pos, -1) ? MD_INTERNAL : MD_SESSION_FATAL;
    }
    *ret_logits = logits;
    return MD_OK;
}

/* ---- surgery ---- */

static enum md_status op_truncate(struct md_engine *base, md_seq seq, int32_t from, struct md_err *err)
{
    struct engine *e = engine_of(base);
    if (!llama_memory_seq_rm(e->mem, seq, from == 0 ? -1 : from, -1))
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
    return llama_memory_seq_pos_min(e->mem, seq) <= (needed > 0 ? needed : 0) ? from : 0;
}

static int64_t payload_bytes(const struct engine *e, int32_t tokens)
{
    return e->export_fixed_bytes + tokens * e->export_token_bytes;
}

static int64_t op_evict_bytes(const struct md_engine *base, int32_t tokens)
{
    return (int64_t)sizeof(struct blob_header) + payload_bytes((const struct engine *)base, tokens);
}

static uint64_t blob_check(struct blob_header h, const void *payload)
{
    h.check = 0;
    return XXH3_64bits_withSeed(payload, h.payload_bytes, XXH3_64bits(&h, sizeof h));
}

/* Append header and payload of r, which scratch holds. */
static enum md_status export_scratch(struct engine *e, struct md_range r, struct md_buf *ret_kv,
                                     struct md_err *err)
{
    struct blob_header h = { .magic = BLOB_MAGIC,
                             .version = BLOB_VERSION,
                             .start = r.start,
                             .end = r.end,
                             .payload_bytes = (uint64_t)payload_bytes(e, md_range_len(r)),
                             .identity_hash = e->identity_hash };
    if (!spans(e, e->scratch, r))
        return md_fail(err, MD_INTERNAL, "range [%d, %d) could not be set apart", r.start, r.end);
    enum md_status s = md_buf_reserve(ret_kv, sizeof h + h.payload_bytes, err);
    if (s != MD_OK)
        return s;
    uint8_t *payload = ret_kv->data + ret_kv->len + sizeof h;
    md_llama_log_clear();
    size_t n = llama_state_seq_get_data(e->ctx, payload, h.payload_bytes, e->scratch);
    if (n != h.payload_bytes)
        return md_fail(err, MD_INTERNAL, "exported %zu bytes of [%d, %d) where %" PRIu64 " were due: %s", n,
                       r.start, r.end, h.payload_bytes, md_llama_log_cause());
    h.check = blob_check(h, payload);
    memcpy(payload - sizeof h, &h, sizeof h);
    ret_kv->len += sizeof h + h.payload_bytes;
    return MD_OK;
}

static enum md_status op_evict(struct md_engine *base, md_seq seq, struct md_range r, struct md_buf *ret_kv,
                               struct md_err *err)
{
    struct engine *e = engine_of(base);
    if (ret_kv != NULL) {
        llama_memory_seq_cp(e->mem, seq, e->scratch, r.start, r.end);
        enum md_status s = export_scratch(e, r, ret_kv, err);
        forget(e, e->scratch);
        if (s != MD_OK)
            return s;
    }
    if (!llama_memory_seq_rm(e->mem, seq, r.start, r.end))
        return md_fail(err, MD_SESSION_FATAL, "range [%d, %d) could not be removed", r.start, r.end);
    return MD_OK;
}

/* Everything that can be wrong with kv, before the library sees any of it. */
static enum md_status check_blob(const struct engine *e, struct md_range r, struct md_bytes kv,
                                 struct md_err *err)
{
    struct blob_header h;
    if (kv.data == NULL || kv.len < sizeof h)
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) end inside their header", r.start, r.end);
    memcpy(&h, kv.data, sizeof h);
    if (h.magic != BLOB_MAGIC || h.version != BLOB_VERSION)
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) do not begin as this version writes them",
                       r.start, r.end);
    if (h.payload_bytes != kv.len - sizeof h)
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d): %zu are here, %" PRIu64 " were written",
                       r.start, r.end, kv.len - sizeof h, h.payload_bytes);
    if (h.check != blob_check(h, (const uint8_t *)kv.data + sizeof h))
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) fail their checksum", r.start, r.end);
    if (h.identity_hash != e->identity_hash)
        return md_fail(err, MD_INVALID, "KV bytes of [%d, %d) are of another model, KV type or engine",
                       r.start, r.end);
    if (h.start != r.start || h.end != r.end)
        return md_fail(err, MD_INVALID, "KV bytes are of [%d, %d), not of [%d, %d)", h.start, h.end, r.start,
                       r.end);
    if (h.payload_bytes != (uint64_t)payload_bytes(e, md_range_len(r)))
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) have a wrong size", r.start, r.end);
    return MD_OK;
}

/* Make what scratch holds of r visible in seq and leave scratch empty. */
static enum md_status show_scratch(struct engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    llama_memory_seq_cp(e->mem, e->scratch, seq, r.start, r.end);
    forget(e, e->scratch);
    if (llama_memory_seq_pos_min(e->mem, seq) > r.start || llama_memory_seq_pos_max(e->mem, seq) < r.end - 1)
        return md_fail(err, MD_SESSION_FATAL, "range [%d, %d) did not arrive in its sequence", r.start,
                       r.end);
    return MD_OK;
}

static enum md_status op_admit(struct md_engine *base, md_seq seq, struct md_range r, struct md_bytes kv,
                               struct md_err *err)
{
    struct engine *e = engine_of(base);
    enum md_status s = check_blob(e, r, kv, err);
    if (s != MD_OK)
        return s;
    const uint8_t *payload = (const uint8_t *)kv.data + sizeof(struct blob_header);
    const size_t len = kv.len - sizeof(struct blob_header);
    md_llama_log_clear();
    size_t n = llama_state_seq_set_data(e->ctx, payload, len, e->scratch);
    if (n != len || !spans(e, e->scratch, r)) {
        forget(e, e->scratch);
        return md_fail(err, MD_INTERNAL, "KV of [%d, %d) was not taken in (%zu of %zu bytes): %s", r.start,
                       r.end, n, len, md_llama_log_cause());
    }
    return show_scratch(e, seq, r, err);
}

static enum md_status move_tag(struct engine *e, llama_seq_id from, llama_seq_id to, struct md_range r,
                               struct md_err *err)
{
    llama_memory_seq_cp(e->mem, from, to, r.start, r.end);
    if (llama_memory_seq_pos_min(e->mem, to) > r.start || llama_memory_seq_pos_max(e->mem, to) < r.end - 1) {
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
    return move_tag(e, seq, parked_id(e, seq), r, err);
}

static enum md_status op_unpark(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    struct engine *e = engine_of(base);
    return move_tag(e, parked_id(e, seq), seq, r, err);
}

/* Tokens can only follow the end of a sequence, so the middle is computed where it is the end: in scratch,
 * behind the tags of what comes before it. */
static enum md_status op_recompute(struct md_engine *base, md_seq seq, struct md_range r,
                                   const md_token *tokens, struct md_err *err)
{
    struct engine *e = engine_of(base);
    if (r.start > 0)
        llama_memory_seq_cp(e->mem, seq, e->scratch, 0, r.start);
    enum md_status s = run(e, e->scratch, r.start, tokens, md_range_len(r), false, err);
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
    .evict_range = op_evict,
    .admit_range = op_admit,
    .evict_bytes = op_evict_bytes,
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
           MD_CAP_RECOMPUTE_RANGE;
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

/* Decode two tokens and look at the sizes of their exports: the header has no call for bytes per token,
 * and per-layer head counts, latent attention and the like make a formula of our own unsafe.  On dense
 * models put one of them out and in again, so that a capability is claimed because it was executed. */
static enum md_status measure(struct engine *e, unsigned *caps, struct md_err *err)
{
    const md_token zero = 0;
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        enum md_status s = run(e, 0, i, &zero, 1, false, err);
        if (s != MD_OK)
            return s;
        size[i] = llama_state_seq_get_size(e->ctx, 0);
    }
    e->export_token_bytes = (int64_t)(size[1] - size[0]);
    e->export_fixed_bytes = (int64_t)size[0] - e->export_token_bytes;
    const int64_t caches = llama_model_n_swa(e->model->model) > 0 ? 2 : 1;
    e->base.info.kv_bytes_per_token = *caps != 0 ? e->export_token_bytes - caches * CELL_META_BYTES : 0;
    if (e->scratch >= 0) {
        const struct md_range second = { 1, 2 };
        struct md_buf kv;
        md_buf_init(&kv, NULL, SIZE_MAX / 2);
        enum md_status s = op_evict(&e->base, 0, second, &kv, err);
        if (s == MD_OK)
            s = op_admit(&e->base, 0, second, (struct md_bytes){ kv.data, kv.len }, err);
        md_buf_done(&kv);
        if (s != MD_OK)
            *caps = MD_CAP_REMOVE_TAIL;
    }
    llama_memory_clear(e->mem, false);
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
    i->seq_count = e->scratch >= 0 ? MD_LLAMA_LIVE_DENSE : 1;
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
                                   const struct md_kv_shape *shape, const struct md_kv_mode *mode,
                                   struct md_engine **ret_engine, struct md_err *err)
{
    unsigned caps = wanted_caps(m->model);
    if (((caps & MD_CAP_REMOVE_MIDDLE) != 0) != (mode->seq_count == MD_LLAMA_DENSE_SEQS))
        return md_fail(err, MD_INTERNAL,
                       "the library takes this model for another kind than its header says");
    struct engine *e = calloc(1, sizeof *e);
    if (e == NULL)
        return md_fail(err, MD_NO_MEMORY, "engine");
    e->model = md_llama_model_ref(m);
    e->scratch = (caps & MD_CAP_REMOVE_MIDDLE) ? MD_LLAMA_DENSE_SEQS - 1 : -1;
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
        s = measure(e, &caps, err);
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
