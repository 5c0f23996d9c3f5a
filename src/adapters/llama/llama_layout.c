/* llama_layout.c - from a model file's header to the KV cache this library will allocate for it.  The
 * library is not asked, nothing of it is started.
 *
 * All rules are those of llama.cpp's load_hparams and create_memory (llama_arch.h names the places); a
 * header that the library would meet with an assertion is refused here or marked as not loadable. */
#include "adapters/llama/llama_arch.h"
#include "adapters/llama/llama_internal.h"
#include "host/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Far above any model.  They keep all products of kv_shape.h below 2^63: 512 layers of 2 x 2^20 values of
 * 4 bytes and 2^30 cells are 2^62. */
enum {
    HEADS_MAX = 1 << 16,
    LENGTH_MAX = 1 << 16,
    ROW_MAX = 1 << 20,
    WIDTH_MAX = 1 << 24,
    TOKENS_MAX = 1 << 30,
    EXPERTS_MAX = 1024
};
static const int64_t state_max = (int64_t)1 << 40; /* bytes of a recurrent layer and sequence */
static const char pattern_key[] = "attention.sliding_window_pattern";

/* The first failure sticks, so that reading is a list. */
struct reader {
    struct md_gguf *file;
    const char *arch;
    enum md_status status;
    struct md_err *err;
    char key[160]; /* the last one asked for */
};

/* What of the header decides the layers. */
struct header {
    const struct md_llama_arch *arch;
    int32_t layers, kept; /* all, and without those for speculation (nextn) */
    int32_t width, trained_tokens;
    int32_t heads[MD_LAYERS_MAX], kv_heads[MD_LAYERS_MAX], ffn[MD_LAYERS_MAX];
    int32_t key_length, value_length, key_length_window, value_length_window;
    bool latent;
    int32_t window;
    bool window_cells; /* the windowed layers get cells for their window only */
    bool windowed[MD_LAYERS_MAX], recurrent[MD_LAYERS_MAX];
    int32_t own_kv; /* layers from here on use the KV of others */
    int64_t state_bytes;
};

/* ---- reading ---- */

static const struct md_gguf_entry *find(struct reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
    return r->status == MD_OK ? md_gguf_find(r->file, r->key) : NULL;
}

static void refuse(struct reader *r, const char *what)
{
    if (r->status == MD_OK)
        r->status = md_fail(r->err, MD_INVALID, "model '%s': '%s' %s", md_gguf_path(r->file), r->key, what);
}

static int64_t integer(struct reader *r, const char *name, int64_t low, int64_t high, int64_t absent)
{
    int64_t value = absent;
    if (find(r, name) != NULL)
        r->status = md_gguf_int(r->file, r->key, low, high, &value, r->err);
    return value;
}

/* Must be there, and not 0. */
static int64_t needed(struct reader *r, const char *name, int64_t high)
{
    int64_t value = integer(r, name, 0, high, -1);
    if (value <= 0)
        refuse(r, value < 0 ? "is missing" : "is 0");
    return value;
}

/* One for all or `count` of them; without the key out stays as it is. */
static void integers(struct reader *r, const char *name, int64_t high, int32_t *out, int32_t count)
{
    int64_t values[MD_LAYERS_MAX];
    if (find(r, name) == NULL)
        return;
    r->status = md_gguf_ints(r->file, r->key, 0, high, values, (size_t)count, r->err);
    for (int32_t i = 0; i < count && r->status == MD_OK; i++)
        out[i] = (int32_t)values[i];
}

static double real(struct reader *r, const char *name, double absent)
{
    double value = absent;
    if (find(r, name) != NULL)
        r->status = md_gguf_real(r->file, r->key, &value, r->err);
    return value;
}

/* ---- layers ---- */

static void read_layers(struct reader *r, struct header *h)
{
    const bool headless = h->arch->memory == MD_LLAMA_MEMORY_RECURRENT;
    int64_t layers = needed(r, "block_count", UINT32_MAX);
    if (r->status == MD_OK && layers > MD_LAYERS_MAX)
        r->status = md_fail(r->err, MD_INVALID, "model '%s' has %" PRId64 " layers, at most %d supported",
                            md_gguf_path(r->file), layers, MD_LAYERS_MAX);
    if (r->status != MD_OK)
        return;
    h->layers = (int32_t)layers;
    int64_t trained = needed(r, "context_length", UINT32_MAX);
    h->trained_tokens = (int32_t)(trained < TOKENS_MAX ? trained : TOKENS_MAX);
    h->width = (int32_t)needed(r, "embedding_length", WIDTH_MAX);
    if (find(r, "attention.head_count") == NULL && !headless)
        refuse(r, "is missing");
    integers(r, "attention.head_count", HEADS_MAX, h->heads, h->layers);
    if (h->heads[0] == 0 && !headless && !h->arch->lengths_need_a_key)
        refuse(r, "is 0"); /* the library takes the lengths of heads from the first layer */
    memcpy(h->kv_heads, h->heads, sizeof h->kv_heads);
    integers(r, "attention.head_count_kv", HEADS_MAX, h->kv_heads, h->layers);
    integers(r, "feed_forward_length", WIDTH_MAX, h->ffn, h->layers);
    h->kept = h->layers - (int32_t)integer(r, "nextn_predict_layers", 0, h->layers - 1, 0);
}

static void read_lengths(struct reader *r, struct header *h)
{
    const bool by_heads = h->heads[0] > 0;
    const int32_t length = by_heads ? h->width / h->heads[0] : 0;
    const int64_t high = by_heads || h->arch->lengths_need_a_key ? LENGTH_MAX : 0;
    h->key_length = h->value_length = length;
    if (high > 0) {
        h->key_length = (int32_t)integer(r, "attention.key_length", 0, high, length);
        h->value_length = (int32_t)integer(r, "attention.value_length", 0, high, length);
    }
    h->key_length_window = (int32_t)integer(r, "attention.key_length_swa", 0, LENGTH_MAX, h->key_length);
    h->value_length_window =
        (int32_t)integer(r, "attention.value_length_swa", 0, LENGTH_MAX, h->value_length);
    if (h->arch->latent == MD_LLAMA_LATENT_NEVER)
        return;
    int64_t keys = integer(r, "attention.key_length_mla", 0, LENGTH_MAX, 0);
    int64_t values = integer(r, "attention.value_length_mla", 0, LENGTH_MAX, 0);
    h->latent = keys > 0 && values > 0;
    if (h->arch->latent == MD_LLAMA_LATENT_ALWAYS && !h->latent) {
        find(r, keys > 0 ? "attention.value_length_mla" : "attention.key_length_mla");
        refuse(r, "is missing or 0");
    }
}

static void read_recurrence(struct reader *r, struct header *h)
{
    const struct md_llama_arch *a = h->arch;
    int32_t declared[MD_LAYERS_MAX] = { 0 };
    bool listed = false;
    int32_t interval = a->interval;
    if (a->memory == MD_LLAMA_MEMORY_HYBRID && a->recurrence == MD_LLAMA_RECURRENT_INTERVAL) {
        listed = find(r, "attention.recurrent_layers") != NULL;
        integers(r, "attention.recurrent_layers", 1, declared, h->layers);
        interval = (int32_t)integer(r, "full_attention_interval", 1, INT32_MAX, interval);
    }
    for (int32_t i = 0; i < h->kept; i++) {
        if (a->memory == MD_LLAMA_MEMORY_RECURRENT)
            h->recurrent[i] = true;
        if (a->memory != MD_LLAMA_MEMORY_HYBRID)
            continue;
        switch (a->recurrence) {
        case MD_LLAMA_RECURRENT_NO_HEADS: h->recurrent[i] = h->kv_heads[i] == 0; break;
        case MD_LLAMA_RECURRENT_NO_FFN: h->recurrent[i] = h->kv_heads[i] == 0 && h->ffn[i] == 0; break;
        case MD_LLAMA_RECURRENT_INTERVAL:
            h->recurrent[i] = listed ? declared[i] != 0 : (i + 1) % interval != 0;
            break;
        case MD_LLAMA_RECURRENT_ALL: h->recurrent[i] = true; break;
        }
    }
}

/* Both parts are f32 (create_memory).  Source: llama-hparams.cpp (n_embd_r, n_embd_s). */
static int64_t read_state(struct reader *r, const struct header *h)
{
    enum { PART_MAX = 1 << 20 }; /* of each factor */
    int64_t rolling = 0, state = 0;
    switch (h->arch->state) {
    case MD_LLAMA_STATE_SSM:
    case MD_LLAMA_STATE_SSM_GROUPS: {
        const bool groups = h->arch->state == MD_LLAMA_STATE_SSM_GROUPS;
        int64_t kernel = needed(r, "ssm.conv_kernel", LENGTH_MAX),
                inner = needed(r, "ssm.inner_size", PART_MAX);
        int64_t size = needed(r, "ssm.state_size", LENGTH_MAX);
        int64_t group_count = groups ? needed(r, "ssm.group_count", LENGTH_MAX) : 0;
        rolling = (kernel - 1) * (inner + 2 * group_count * size);
        state = size * inner;
        break;
    }
    case MD_LLAMA_STATE_WKV:
        rolling = integer(r, "token_shift_count", 1, LENGTH_MAX, 2) * h->width;
        state = needed(r, "wkv.head_size", LENGTH_MAX) * h->width;
        break;
    case MD_LLAMA_STATE_SHORTCONV:
        rolling = h->width * (needed(r, "shortconv.l_cache", LENGTH_MAX) - 1);
        break;
    case MD_LLAMA_STATE_KDA: {
        int64_t kernel = integer(r, "ssm.conv_kernel", 0, LENGTH_MAX, 0);
        int64_t length = needed(r, "kda.head_dim", LENGTH_MAX);
        rolling = 3 * (kernel > 0 ? kernel - 1 : 3) * h->heads[0] * length;
        state = length * length * h->heads[0];
        break;
    }
    case MD_LLAMA_STATE_LINEAR: state = (int64_t)h->key_length * h->key_length * h->heads[0]; break;
    }
    if (r->status == MD_OK && (rolling + state) * 4 > state_max)
        r->status = md_fail(r->err, MD_INVALID,
                            "model '%s' declares a recurrent state of %" PRId64 " bytes per layer",
                            md_gguf_path(r->file), (rolling + state) * 4);
    return (rolling + state) * 4;
}

/* ---- windows ---- */

static void by_stride(struct header *h, int64_t n, bool global_first)
{
    for (int32_t i = 0; i < h->kept; i++)
        h->windowed[i] = n == 0 || (global_first ? i % n != 0 : i % n < n - 1);
}

static void by_mask(struct reader *r, struct header *h, int32_t count)
{
    int32_t mask[MD_LAYERS_MAX] = { 0 };
    integers(r, pattern_key, UINT32_MAX, mask, count);
    for (int32_t i = 0; i < count; i++)
        h->windowed[i] = mask[i] != 0;
}

static void by_number_or_array(struct reader *r, struct header *h, const struct md_gguf_entry *e)
{
    if (!e->is_array)
        by_stride(h, integer(r, pattern_key, 0, UINT32_MAX, 0), h->arch->window.global_first);
    else
        by_mask(r, h, e->count == (uint64_t)h->kept ? h->kept : h->layers);
}

/* A window is there: which layers have it. */
static void read_pattern(struct reader *r, struct header *h, enum md_llama_pattern pattern)
{
    const struct md_llama_window *w = &h->arch->window;
    const struct md_gguf_entry *e = find(r, pattern_key);
    switch (pattern) {
    case MD_LLAMA_PATTERN_STRIDE:
        by_stride(h, e == NULL || e->is_array ? w->period : integer(r, pattern_key, 0, UINT32_MAX, 0),
                  w->global_first);
        return;
    case MD_LLAMA_PATTERN_ATTENTION:
        for (int32_t i = 0; i < h->kept; i++)
            h->windowed[i] = !h->recurrent[i];
        return;
    case MD_LLAMA_PATTERN_IGNORED:
    case MD_LLAMA_PATTERN_DECLARED:
        h->window_cells = e != NULL && pattern == MD_LLAMA_PATTERN_DECLARED;
        if (e == NULL)
            by_stride(h, 0, false);
        else
            by_number_or_array(r, h, e);
        return;
    default: break;
    }
    if (e == NULL) {
        refuse(r, "is missing");
    } else if (pattern == MD_LLAMA_PATTERN_EITHER) {
        by_number_or_array(r, h, e);
    } else if (pattern == MD_LLAMA_PATTERN_ARRAY && !e->is_array) {
        refuse(r, "must be an array");
    } else {
        by_mask(r, h, pattern == MD_LLAMA_PATTERN_MASK ? h->kept : h->layers);
    }
}

static void read_window(struct reader *r, struct header *h)
{
    const struct md_llama_window *w = &h->arch->window;
    const bool applies = w->layers == 0 || w->layers == h->kept;
    const enum md_llama_pattern pattern = applies ? w->pattern : MD_LLAMA_PATTERN_IGNORED;
    int64_t declared = integer(r, "attention.sliding_window", 0, TOKENS_MAX, -1), window = declared;
    if (pattern != MD_LLAMA_PATTERN_IGNORED && pattern != MD_LLAMA_PATTERN_DECLARED) {
        window = declared < 0 ? w->absent : declared;
        if (window == MD_LLAMA_WINDOW_NEEDED)
            refuse(r, "is missing");
        else if (declared == 0 && !w->zero_is_none)
            refuse(r, "is 0");
        if (window > 0 && w->fixed > 0)
            window = w->fixed;
        h->window_cells = true;
    }
    if (window <= 0 || r->status != MD_OK)
        return;
    h->window = (int32_t)window;
    read_pattern(r, h, pattern);
}

/* ---- the shape ---- */

static void fill_layer(const struct header *h, int32_t i, struct md_kv_layer *l)
{
    const struct md_llama_arch *a = h->arch;
    const bool windowed = h->windowed[i] && h->window_cells; /* as the library has it */
    const bool keeps_kv = a->memory != MD_LLAMA_MEMORY_RECURRENT &&
                          (a->recurrence == MD_LLAMA_RECURRENT_ALL || !h->recurrent[i]);
    *l = (struct md_kv_layer){ .kv_heads = keeps_kv ? h->kv_heads[i] : 0,
                               .key_length = windowed ? h->key_length_window : h->key_length,
                               .value_length = windowed ? h->value_length_window : h->value_length,
                               .window = h->windowed[i] ? h->window : 0,
                               .window_cells = windowed,
                               .keys_only = h->latent,
                               .state_bytes = h->recurrent[i] ? h->state_bytes : 0 };
    /* A feed-forward layer of nemotron_h has no place in the cache, a layer for speculation none in this
     * context, and the last layers of gemma3n and gemma4 read what earlier ones wrote. */
    l->shared = i >= h->own_kv || (a->nextn_dropped && i >= h->kept) ||
                (a->memory == MD_LLAMA_MEMORY_HYBRID && a->recurrence == MD_LLAMA_RECURRENT_NO_FFN &&
                 !h->recurrent[i] && h->ffn[i] != 0);
}

static void check_rows(struct reader *r, const struct md_kv_shape *shape)
{
    for (int32_t i = 0; i < shape->layer_count && r->status == MD_OK; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        const int64_t length = l->key_length > l->value_length ? l->key_length : l->value_length;
        if (l->kv_heads * length > ROW_MAX)
            r->status = md_fail(r->err, MD_INVALID,
                                "model '%s' declares %d KV heads of %" PRId64
                                " in layer %d, at most %d values are supported",
                                md_gguf_path(r->file), l->kv_heads, length, i, ROW_MAX);
    }
}

/* nanbeige's layers run several times; graniteswitch has one more. */
static void add_layers(struct reader *r, const struct header *h, struct md_kv_shape *shape)
{
    const int64_t loops = h->arch->loops ? integer(r, "num_loops", 1, MD_LAYERS_MAX, 1) : 1;
    if (loops > 1)
        shape->layer_count = h->kept;
    if (shape->layer_count * loops + h->arch->router_layer > MD_LAYERS_MAX) {
        if (r->status == MD_OK)
            r->status =
                md_fail(r->err, MD_INVALID, "model '%s' has %" PRId64 " layers in all, at most %d supported",
                        md_gguf_path(r->file), shape->layer_count * loops + h->arch->router_layer,
                        MD_LAYERS_MAX);
        return;
    }
    for (int64_t loop = 1; loop < loops; loop++)
        memcpy(&shape->layers[loop * h->kept], shape->layers, (size_t)h->kept * sizeof shape->layers[0]);
    shape->layer_count *= (int32_t)loops;
    if (h->arch->router_layer) {
        struct md_kv_layer *l = &shape->layers[h->kept];
        *l = shape->layers[0];
        l->kv_heads = 1;
        shape->layer_count = h->kept + 1;
    }
}

/* What create_memory asserts on: a family with windows needs a windowed layer, and layers that use the KV
 * of others find it in the last two that have their own, a windowed one and a global one. */
static bool library_would_abort(const struct header *h)
{
    bool any = h->window == 0 || !h->window_cells || h->arch->memory == MD_LLAMA_MEMORY_HYBRID;
    for (int32_t i = 0; i < h->layers; i++)
        any = any || h->windowed[i];
    if (!any)
        return true;
    if (h->window == 0 && strcmp(h->arch->name, "llama4") == 0)
        return true; /* its graph asserts that attention has a temperature, which it gets with windows only */
    if (h->own_kv == MD_LAYERS_MAX)
        return false;
    if (h->own_kv < 2)
        return true;
    for (int32_t i = h->own_kv; i < h->layers; i++)
        if (h->windowed[i] != h->windowed[h->own_kv - (h->windowed[i] ? 2 : 1)])
            return true;
    return false;
}

static int32_t widest(const int32_t *values, int32_t count)
{
    int32_t most = 0;
    for (int32_t i = 0; i < count; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

/* Of a token: of the widest layer, or of all experts it is sent to.  A state space layer is
 * counted as four times its inner size and what its groups convolve, which covers what was measured. */
static int32_t read_ffn(struct reader *r, const struct header *h)
{
    int32_t used[MD_LAYERS_MAX] = { 0 }, expert[MD_LAYERS_MAX] = { 0 };
    integers(r, "expert_used_count", EXPERTS_MAX, used, h->layers);
    integers(r, "expert_feed_forward_length", WIDTH_MAX, expert, h->layers);
    int64_t dense = widest(h->ffn, h->layers);
    if (h->state_bytes > 0) {
        const int64_t inner = 4 * integer(r, "ssm.inner_size", 0, WIDTH_MAX, 0) +
                              2 * integer(r, "ssm.group_count", 0, LENGTH_MAX, 0) *
                                  integer(r, "ssm.state_size", 0, LENGTH_MAX, 0);
        dense = inner > dense ? inner : dense;
    }
    int64_t one = widest(expert, h->layers), experts = widest(used, h->layers);
    experts *= one > 0 ? one : dense;
    if (dense > experts)
        experts = dense;
    return (int32_t)(experts > INT32_MAX ? INT32_MAX : experts);
}

static void read_bases(struct reader *r, const struct header *h, struct md_model_facts *facts)
{
    const double base = h->arch->window.base;
    if (h->arch->memory == MD_LLAMA_MEMORY_RECURRENT)
        return;
    facts->rope_base = real(r, "rope.freq_base", 10000); /* the default of load_hparams */
    if (h->window > 0 && h->window_cells)
        facts->rope_base_window = real(r, "rope.freq_base_swa", base > 0 ? base : facts->rope_base);
}

static void read_shape(struct reader *r, struct header *h, struct md_model_facts *facts)
{
    const struct md_llama_arch *a = h->arch;
    read_layers(r, h);
    if (r->status != MD_OK)
        return;
    read_lengths(r, h);
    read_recurrence(r, h);
    read_window(r, h);
    h->own_kv = a->own_kv_layers > 0 ? a->own_kv_layers : MD_LAYERS_MAX;
    if (a->shared_declared)
        h->own_kv = h->layers - (int32_t)integer(r, "attention.shared_kv_layers", 0, h->layers, 0);
    if (a->memory == MD_LLAMA_MEMORY_RECURRENT || a->memory == MD_LLAMA_MEMORY_HYBRID)
        h->state_bytes = read_state(r, h);
    if (r->status != MD_OK)
        return;
    facts->shape.layer_count = h->layers;
    for (int32_t i = 0; i < h->layers; i++)
        fill_layer(h, i, &facts->shape.layers[i]);
    add_layers(r, h, &facts->shape);
    check_rows(r, &facts->shape);
    if (library_would_abort(h))
        md_llama_refuse_to_load(facts, "unsupported_layer_pattern");
    if (h->window > 0 && !h->window_cells)
        facts->note = "the sliding window this model declares is not used: its layers are counted with the "
                      "whole context";
    facts->trained_tokens = h->trained_tokens;
    facts->head_count = widest(h->heads, h->layers);
    facts->embedding_length = h->width;
    facts->ffn_length = read_ffn(r, h);
    read_bases(r, h, facts);
}

enum md_status md_llama_read_layout(struct md_gguf *file, const struct md_llama_arch *arch,
                                    struct md_model_facts *facts, struct md_err *err)
{
    struct reader r = { .file = file, .arch = facts->architecture, .err = err };
    struct header h = { .arch = arch };
    read_shape(&r, &h, facts);
    return r.status;
}
