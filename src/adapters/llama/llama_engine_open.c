/* llama_engine_open.c - opening an engine over a model: the library's context, what a token takes, and which
 * capabilities are claimed.  Each was executed once before. */
#include "adapters/llama/llama_engine.h"
#include "host/gguf.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    CELL_META_BYTES = 12 /* position, count of ids and id, in front of each cell's KV in an export */
};

/* What the model's kind of state allows; confirmed by measure() before anyone is told.  0 and a cut tail: what is left
 * where it is not confirmed, or where the windows are as long as the context. */
static unsigned wanted_caps(const struct llama_model *m, const struct md_open_cost *cost)
{
    const unsigned ranges =
        MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE;
    const bool state = llama_model_is_recurrent(m) || llama_model_is_hybrid(m);
    if (!state && llama_model_n_swa(m) == 0)
        return ranges | MD_CAP_SPARSE_ATTENTION | MD_CAP_SHARE;
    if (!cost->checkpoints)
        return state ? 0 : MD_CAP_REMOVE_TAIL;
    return MD_CAP_CHECKPOINT | (cost->cold_store ? ranges : MD_CAP_REMOVE_TAIL);
}

static struct llama_context_params context_params(struct md_llama_engine *e, const struct md_open_params *p,
                                                  const struct md_kv_mode *mode, const struct md_rope *rope)
{
    struct llama_context_params c = llama_context_default_params();
    const int32_t batch = p->batch_tokens > 0 ? p->batch_tokens : MD_LLAMA_BATCH;
    c.n_ctx = (uint32_t)md_kv_pad(p->cell_count);
    c.n_ubatch = (uint32_t)mode->ubatch_tokens;
    /* A step that fails is undone, which needs the window before it: of one micro-batch it is still there.  A recurrent
     * state cannot be undone: a call is one step, which is refused as a whole or done. */
    c.n_batch = e->window_cells || e->recurrent ? c.n_ubatch : (uint32_t)batch;
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
    if (p->attention) { /* else the library runs its graphs as it does without */
        c.cb_eval = md_llama_on_node;
        c.cb_eval_user_data = e;
    }
    md_llama_set_rope(rope, &c);
    return c;
}

static void export_first(struct md_llama_engine *e, struct md_buf *ret_kv, enum md_status *s)
{
    if (*s == MD_OK)
        *s = md_llama_engine_ops.export_range(&e->base, 0, (struct md_range){ 0, 1 }, ret_kv, NULL);
}

/* Two tokens are there: put the second out and in again, so that a capability is claimed because it was
 * executed. */
static bool cold_store_works(struct md_llama_engine *e)
{
    const struct md_range second = { 1, 2 };
    struct md_buf kv;
    md_buf_init(&kv, NULL, SIZE_MAX / 2);
    enum md_status s = md_llama_engine_ops.export_range(&e->base, 0, second, &kv, NULL);
    if (s == MD_OK) {
        md_llama_cells_learn(e, &kv, second);
        s = md_llama_engine_ops.remove_range(&e->base, 0, second, NULL);
    }
    if (s == MD_OK)
        s = md_llama_engine_ops.admit_range(&e->base, 0, second, (struct md_bytes){ kv.data, kv.len }, NULL);
    md_buf_done(&kv);
    return s == MD_OK;
}

/* Move the second token and see that the first stays as it is: turning goes over all cells, those that did not
 * move by an angle of 0, and with YaRN the library scales the keys of them all while it does so. */
static bool moving_works(struct md_llama_engine *e, enum md_kv_type keys)
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
    enum md_status s = md_llama_engine_ops.export_range(&e->base, 0, second, &kv, NULL);
    export_first(e, &before, &s);
    if (s == MD_OK)
        s = md_llama_engine_ops.remove_range(&e->base, 0, second, NULL);
    if (s == MD_OK)
        s = md_llama_engine_ops.admit_moved(&e->base, 0, far, second.start,
                                            (struct md_bytes){ kv.data, kv.len }, NULL);
    export_first(e, &after, &s);
    const bool same =
        s == MD_OK && before.len == after.len && memcmp(before.data, after.data, before.len) == 0;
    md_buf_done(&before);
    md_buf_done(&after);
    md_buf_done(&kv);
    return same;
}

/* The sizes of two exports, of one token and of two: the header has no call for bytes per token, and per-layer head
 * counts, latent attention and the like make a formula of our own unsafe. */
static void note_size(struct md_llama_engine *e, int32_t tokens)
{
    const llama_seq_id exported = e->scratch >= 0 ? e->scratch : md_llama_live(e, 0);
    if (e->scratch >= 0)
        md_llama_tag(e, md_llama_live(e, 0), e->scratch, (struct md_range){ 0, tokens });
    const int64_t size = (int64_t)llama_state_seq_get_size(e->ctx, exported);
    if (e->scratch >= 0)
        md_llama_forget(e, e->scratch);
    if (tokens == 1) {
        e->export_fixed_bytes = size;
        return;
    }
    e->export_token_bytes = size - e->export_fixed_bytes;
    e->export_fixed_bytes -= e->export_token_bytes;
}

/* What of the wanted capabilities two tokens, which are there, bear out. */
static unsigned proven_caps(struct md_llama_engine *e, enum md_kv_type keys, unsigned caps)
{
    if (caps & MD_CAP_CHECKPOINT) {
        if (md_llama_tail_works(e, (caps & MD_CAP_COLD_STORE) != 0))
            return caps;
        md_llama_tail_done(e);
        return e->recurrent ? 0 : MD_CAP_REMOVE_TAIL;
    }
    if (e->scratch < 0)
        return caps;
    if (!cold_store_works(e))
        return MD_CAP_REMOVE_TAIL;
    return moving_works(e, keys) ? caps | MD_CAP_POSITION_SHIFT : caps;
}

/* Decode two tokens, measure what they take, and try what the model should be able to do. */
static enum md_status measure(struct md_llama_engine *e, enum md_kv_type keys, unsigned *caps,
                              struct md_err *err)
{
    const md_token zero = 0;
    const bool tail = (*caps & MD_CAP_CHECKPOINT) != 0;
    enum md_status s = tail ? md_llama_tail_begin(e, err) : MD_OK;
    for (int32_t i = 0; i < 2 && s == MD_OK; i++) {
        s = md_llama_run(e, md_llama_live(e, 0), i, &zero, 1, false, err);
        if (s == MD_OK && tail)
            s = md_llama_tail_measure(e, i + 1, err);
        else if (s == MD_OK)
            note_size(e, i + 1);
    }
    if (s != MD_OK)
        return s;
    const int64_t caches = !tail && llama_model_n_swa(e->model->model) > 0 ? 2 : 1;
    e->base.info.kv_bytes_per_token =
        e->export_token_bytes > 0 && *caps != 0 ? e->export_token_bytes - caches * CELL_META_BYTES : 0;
    *caps = proven_caps(e, keys, *caps);
    llama_memory_clear(e->mem, false);
    e->turn_pending = false;
    e->window_from = 0;
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

/* Flash attention is in it because it changes how values lie in the exported bytes.  What the user set of RoPE follows what
 * the file says of it; where nothing was set, nothing does. */
static void fill_identity(struct md_llama_engine *e, const struct md_open_params *p,
                          const struct md_rope *rope)
{
    const struct llama_model *m = e->model->model;
    struct md_engine_info *i = &e->base.info;
    char arch[64] = "", base[24], scaling[24], factor[24];
    md_gguf_key(e->model->fingerprint, e->model->file_bytes, i->model_key);
    llama_model_meta_val_str(m, "general.architecture", arch, sizeof arch);
    snprintf(i->identity, sizeof i->identity,
             "llama.cpp %.24s|%016" PRIx64 "|%" PRId64 "|%" PRIu64 "|%s/%s|fa%d|rope %s %s %s%s%s|%.64s",
             llama_version(), e->model->fingerprint, e->model->file_bytes, llama_model_n_params(m), i->type_k,
             i->type_v, p->flash_attn, meta(m, arch, "rope.freq_base", base, sizeof base),
             meta(m, arch, "rope.scaling.type", scaling, sizeof scaling),
             meta(m, arch, "rope.scaling.factor", factor, sizeof factor), rope->changed ? " set to " : "",
             rope->changed ? i->rope : "", i->model);
    e->identity_hash = XXH3_64bits(i->identity, strlen(i->identity));
}

/* Where layers are: "CPU", or the cards among which the library spreads them; integrated ones without others. */
static void name_devices(int32_t gpu_layers, char *out, size_t out_bytes)
{
    static const enum ggml_backend_dev_type kinds[] = { GGML_BACKEND_DEVICE_TYPE_GPU,
                                                        GGML_BACKEND_DEVICE_TYPE_IGPU };
    size_t used = 0;
    out[0] = '\0';
    for (int k = 0; k < 2 && used == 0 && gpu_layers != 0; k++)
        for (size_t i = 0; i < ggml_backend_dev_count() && used < out_bytes; i++) {
            ggml_backend_dev_t dev = ggml_backend_dev_get(i);
            if (ggml_backend_dev_type(dev) == kinds[k])
                used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used > 0 ? ", " : "",
                                         ggml_backend_dev_name(dev));
        }
    if (used == 0)
        snprintf(out, out_bytes, "CPU");
}

/* many: more than one conversation may have KV at once. */
static void fill_info(struct md_llama_engine *e, const struct md_open_params *p,
                      const struct md_kv_mode *mode, const struct md_rope *rope, bool many)
{
    const struct llama_model *m = e->model->model;
    struct md_engine_info *i = &e->base.info;
    snprintf(i->engine, sizeof i->engine, "llama");
    snprintf(i->version, sizeof i->version, "%s", llama_version());
    if (p->device != NULL)
        snprintf(i->device, sizeof i->device, "%s", p->device);
    else
        name_devices(p->gpu_layers, i->device, sizeof i->device);
    llama_model_desc(m, i->model, sizeof i->model);
    snprintf(i->type_k, sizeof i->type_k, "%s", md_kv_type_name(mode->type_k));
    snprintf(i->type_v, sizeof i->type_v, "%s", md_kv_type_name(mode->type_v));
    i->lossy_kv = md_kv_type_is_quantized(mode->type_k) || md_kv_type_is_quantized(mode->type_v);
    i->vocab_count = llama_vocab_n_tokens(e->model->vocab);
    i->seq_count = !many ? 1 : p->seq_count > 0 ? p->seq_count : MD_LLAMA_SEQS;
    i->cell_count = (int32_t)llama_n_ctx(e->ctx);
    i->trained_tokens = rope->trained_tokens > 0 ? rope->trained_tokens : llama_model_n_ctx_train(m);
    i->window_tokens = llama_model_n_swa(m);
    i->tail_only = llama_model_is_recurrent(m);
    i->batch_tokens = (int32_t)llama_n_batch(e->ctx);
    i->ubatch_tokens = (int32_t)llama_n_ubatch(e->ctx);
    i->model_bytes = (int64_t)llama_model_size(m);
    md_rope_text(rope, i->rope);
    fill_identity(e, p, rope);
}

static void fill_kv_bytes(struct md_engine_info *i, const struct md_kv_shape *shape,
                          const struct md_kv_mode *mode)
{
    i->kv_growing_bytes = md_kv_growing_bytes(shape, mode);
    i->kv_fixed_bytes = md_kv_bytes(shape, mode, i->cell_count) - i->kv_growing_bytes * i->cell_count;
}

enum md_status md_llama_engine_new(struct md_llama_model *m, const struct md_open_params *params,
                                   const struct md_kv_shape *shape, const struct md_open_cost *cost,
                                   const struct md_rope *rope, struct md_engine **ret_engine,
                                   struct md_err *err)
{
    const struct md_kv_mode *mode = &cost->mode;
    unsigned caps = wanted_caps(m->model, cost);
    if (((caps & MD_CAP_REMOVE_MIDDLE) != 0) != cost->cold_store)
        return md_fail(err, MD_INTERNAL,
                       "the library takes this model for another kind than its header says");
    if (rope->changed && llama_model_rope_type(m->model) == LLAMA_ROPE_TYPE_NONE)
        return md_fail(err, MD_INTERNAL,
                       "the library finds no rotary positions in this model, its header seemed to have them: "
                       "leave out --rope-* and --yarn-*");
    struct md_llama_engine *e = calloc(1, sizeof *e);
    if (e == NULL)
        return md_fail(err, MD_NO_MEMORY, "engine");
    e->model = md_llama_model_ref(m);
    e->scratch = (caps & MD_CAP_REMOVE_MIDDLE) ? 0 : -1;
    e->recurrent = llama_model_is_recurrent(m->model) || llama_model_is_hybrid(m->model);
    e->unstoppable = e->recurrent; /* what it has computed cannot be taken back */
    e->window_cells = llama_model_n_swa(m->model) > 0 && !mode->window_full;
    e->attention.row = -1;
    md_llama_log_clear();
    e->ctx = llama_init_from_model(m->model, context_params(e, params, mode, rope));
    enum md_status s = MD_OK;
    if (e->ctx == NULL) {
        const char *cause = md_llama_log_cause();
        s = md_fail(err, strstr(cause, "alloc") != NULL ? MD_NO_MEMORY : MD_UNSUPPORTED,
                    "open the KV cache of %d cells: %s", params->cell_count, cause);
    } else {
        e->mem = llama_get_memory(e->ctx);
        fill_info(e, params, mode, rope, (caps & MD_CAP_SHARE) != 0);
        fill_kv_bytes(&e->base.info, shape, mode);
        e->batch = llama_batch_init(e->base.info.ubatch_tokens, 0, 1);
        e->base.ops = &md_llama_engine_ops; /* measure() uses the operations before the base is made */
        if (e->mem == NULL || e->batch.token == NULL)
            s = md_fail(err, e->mem == NULL ? MD_UNSUPPORTED : MD_NO_MEMORY, "this model has no KV cache");
    }
    if (s == MD_OK)
        s = measure(e, mode->type_k, &caps, err);
    if (s == MD_OK && params->attention)
        s = md_llama_attention_open(e, shape, &caps, err);
    if (s == MD_OK)
        s = md_engine_init(&e->base, &md_llama_engine_ops, caps, err);
    if (s != MD_OK) {
        md_llama_engine_ops.close(&e->base);
        return s;
    }
    llama_set_abort_callback(e->ctx, md_llama_abort_now, &e->base);
    *ret_engine = &e->base;
    return MD_OK;
}
