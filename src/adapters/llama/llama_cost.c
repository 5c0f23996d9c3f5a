/* llama_cost.c - what opening a model takes besides its weights, as llama_engine.c opens it. */
#include "adapters/llama/llama_arch.h"
#include "engine/kv_blob.h"
#include "adapters/llama/llama_internal.h"

enum ggml_type md_llama_kv_type(enum md_kv_type t)
{
    switch (t) {
#define X(id, name, values, bytes) \
    case MD_KV_##id: return GGML_TYPE_##id;
        MD_KV_TYPE_LIST(X)
#undef X
    case MD_KV_U8: /* the other engine's */
    case MD_KV_TYPE_COUNT: break;
    }
    return GGML_TYPE_COUNT;
}

static enum md_status check_params(const struct md_open_params *p, struct md_kv_mode *mode,
                                   struct md_err *err)
{
    enum { LIMIT = 1 << 30 };
    if (p->batch_tokens < 0 || p->batch_tokens > LIMIT || p->ubatch_tokens < 0 || p->ubatch_tokens > LIMIT)
        return md_fail(err, MD_INVALID, "batch sizes must be 0 to %d, got %d and %d", LIMIT, p->batch_tokens,
                       p->ubatch_tokens);
    if (p->seq_count < 0 || p->seq_count > MD_LLAMA_SEQS_MAX)
        return md_fail(err, MD_INVALID, "sequences must be 0 to %d, got %d", MD_LLAMA_SEQS_MAX, p->seq_count);
    for (int i = 0; i < 2; i++) { /* an empty name was meant to be one */
        const char *name = i == 0 ? p->type_k : p->type_v;
        if (name != NULL && name[0] == '\0')
            return md_fail(err, MD_INVALID, "unknown KV type '' for %s: one of %s",
                           i == 0 ? "keys" : "values", md_kv_type_names());
    }
    enum md_status s = md_kv_type_find(p->type_k, "keys", &mode->type_k, err);
    if (s == MD_OK)
        s = md_kv_type_find(p->type_v, "values", &mode->type_v, err);
    if (s == MD_OK && md_kv_type_is_quantized(mode->type_v) && p->flash_attn == 0)
        return md_fail(err, MD_INVALID, "KV type '%s' for values needs flash attention, which is off",
                       p->type_v);
    return s;
}

static int32_t micro_batch(const struct md_open_params *p)
{
    const int32_t batch = p->batch_tokens > 0 ? p->batch_tokens : MD_LLAMA_BATCH;
    const int32_t wanted = p->ubatch_tokens > 0 ? p->ubatch_tokens : MD_LLAMA_BATCH;
    return wanted < batch ? wanted : batch;
}

struct kind {
    bool dense; /* every token of every layer stays: what can be evicted and put back */
    bool state; /* recurrent layers: pure, or beside attention */
    bool pure;
    bool latent;
    int32_t window; /* the widest with cells of its own */
};

static struct kind kind_of(const struct md_model_facts *facts)
{
    struct kind k = { .dense = true };
    const struct md_llama_arch *a = md_llama_arch_find(facts->architecture);
    for (int32_t i = 0; i < facts->shape.layer_count; i++) {
        const struct md_kv_layer *l = &facts->shape.layers[i];
        /* a family that has windows in some sizes only tells its window in all of them */
        const bool windowed = l->window > 0 && (l->window_cells || a->window.layers > 0);
        k.dense = k.dense && l->state_bytes == 0 && !windowed;
        k.latent = k.latent || l->keys_only;
        if (l->window_cells && l->window > k.window)
            k.window = l->window;
    }
    k.pure = a->memory == MD_LLAMA_MEMORY_RECURRENT;
    k.state = k.pure || a->memory == MD_LLAMA_MEMORY_HYBRID;
    k.dense = k.dense && !k.state;
    return k;
}

/* Bytes of one cell's keys and values of f32 as f16: flash attention reads them so, a layer at a time. */
static int64_t converted_bytes(const struct md_kv_shape *shape, const struct md_kv_mode *mode)
{
    int64_t most = 0;
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        int64_t values = (mode->type_k == MD_KV_F32 ? l->key_length : 0) +
                         (mode->type_v == MD_KV_F32 && !l->keys_only ? l->value_length : 0);
        most = values * l->kv_heads > most ? values * l->kv_heads : most;
    }
    return 2 * most;
}

/* All heads of a token side by side, in the widest layer: with latent attention far more than the model's width. */
static int64_t heads_width(const struct md_model_facts *facts)
{
    int32_t longest = 0;
    for (int32_t i = 0; i < facts->shape.layer_count; i++)
        longest = facts->shape.layers[i].key_length > longest ? facts->shape.layers[i].key_length : longest;
    return (int64_t)longest * facts->head_count;
}

/* What the widest layer keeps of one sequence as a state: read as a whole for each of them. */
static int64_t widest_state(const struct md_kv_shape *shape)
{
    int64_t most = 0;
    for (int32_t i = 0; i < shape->layer_count; i++)
        most = shape->layers[i].state_bytes > most ? shape->layers[i].state_bytes : most;
    return most;
}

/* The library plans its compute buffer by one pass of a micro-batch (or of a token for each sequence).
 * What it holds at once was measured with its log ('compute buffer size', 'output buffer size') on three
 * models, with micro-batches of 1 to 1024 and contexts of 1k to 32k: a mask, without flash attention the
 * scores of all heads of a layer, and either the activations of a feed-forward part or the logits.  The
 * logits stand a second time in the output buffer. */
static void estimate(const struct md_model_facts *facts, const struct kind *k, bool flash,
                     struct md_open_cost *c)
{
    const struct md_kv_mode *m = &c->mode;
    const int64_t tokens = m->ubatch_tokens > m->seq_count ? m->ubatch_tokens : m->seq_count;
    const int64_t width = facts->embedding_length, heads = heads_width(facts);
    const int64_t logits = 4 * (int64_t)facts->vocab_count * m->seq_count;
    const int64_t attention = 3 * (heads > width ? heads : width);
    const int64_t pass = 4 * tokens * (3 * (int64_t)facts->ffn_length + 2 * width + attention);
    const int64_t last = logits + 4 * tokens * width;
    const int64_t mask = tokens * (flash ? 2 : 4);
    c->compute_bytes =
        (pass > last ? pass : last) + logits + (m->seq_count - 1) * widest_state(&facts->shape);
    c->compute_bytes_per_cell =
        mask + (flash ? converted_bytes(&facts->shape, m) : 4 * tokens * facts->head_count);
    /* the second mask, of the windowed layers' cells: a window beyond the trained context never binds */
    const int64_t windowed = (int64_t)k->window * m->seq_count + m->ubatch_tokens + MD_CELL_UNIT;
    if (k->window > 0 && (m->window_full || windowed > facts->trained_tokens))
        c->compute_bytes_per_cell += mask;
    else if (k->window > 0)
        c->compute_bytes += mask * windowed;
}

/* What stands around the KV of a range, at most.  Each cache writes four numbers, and kind and length of the rows for keys
 * and values of each layer; in front of each cell its position, the count of its ids and the id.  What it is to the byte is
 * measured when the model is open.  Source: llama-kv-cache.cpp (state_write_meta, state_write_data). */
static void estimate_export(const struct md_model_facts *facts, const struct kind *k, struct md_open_cost *c)
{
    enum { CACHE_BYTES = 16, LAYER_BYTES = 24, CELL_BYTES = 12 };
    const int64_t caches = k->window > 0 ? 2 : 1;
    c->export_bytes =
        MD_KV_BLOB_HEADER_BYTES + caches * CACHE_BYTES + (int64_t)facts->shape.layer_count * LAYER_BYTES;
    c->export_cell_bytes = caches * CELL_BYTES;
}

enum md_status md_llama_cost(const struct md_model_facts *facts, const struct md_open_params *params,
                             int32_t seq_count, struct md_open_cost *ret_cost, struct md_err *err)
{
    enum { SEQS_MAX = 256 }; /* the library's */
    const struct kind k = kind_of(facts);
    const bool flash =
        params->flash_attn != 0 && !md_llama_arch_find(facts->architecture)->no_flash_attention;
    const bool tail = k.state || (k.window > 0 && !params->window_full);
    struct md_open_cost c = { .cold_store = k.dense || (tail && !k.pure), .checkpoints = tail };
    if (seq_count < 0 || seq_count > SEQS_MAX)
        return md_fail(err, MD_INVALID, "sequences must be 0 to %d, got %d", SEQS_MAX, seq_count);
    enum md_status s = check_params(params, &c.mode, err);
    if (s == MD_OK && params->xattention != 0)
        s = md_fail(
            err, MD_UNSUPPORTED,
            "the engine 'llama' has no XAttention: leave out --xattention, or use the engine 'openvino'");
    if (s == MD_OK && !k.dense && params->seq_count > 1)
        s = md_fail(err, MD_UNSUPPORTED, "this model can be run with one sequence, not with %d",
                    params->seq_count);
    if (s != MD_OK)
        return s;
    /* see llama_engine.c: scratch is all that counts; beside it the states of a hybrid */
    c.mode.seq_count = seq_count > 0 ? seq_count : k.state && !k.pure ? 2 : 1;
    c.mode.ubatch_tokens = micro_batch(params);
    c.mode.window_full = params->window_full;
    c.mode.values_padded = !flash; /* makes no difference where all layers are equal */
    s = md_kv_check_types(&facts->shape, &c.mode, err);
    if (s == MD_OK && k.latent && c.mode.type_k != c.mode.type_v)
        s = md_fail(
            err, MD_UNSUPPORTED,
            "this model keeps keys and values in one: their KV types must be equal, not '%s' and '%s'",
            md_kv_type_name(c.mode.type_k), md_kv_type_name(c.mode.type_v));
    if (s == MD_OK && !flash && md_kv_type_is_quantized(c.mode.type_v))
        s = md_fail(err, MD_UNSUPPORTED,
                    "this model runs without flash attention, which KV type '%s' for values needs",
                    md_kv_type_name(c.mode.type_v));
    if (s != MD_OK)
        return s;
    estimate(facts, &k, flash, &c);
    estimate_export(facts, &k, &c);
    *ret_cost = c;
    return MD_OK;
}
