/* llama_attention.c - queries on their way into attention, by the library's callback for the nodes of a graph; and what
 * is known of each layer, found out when the engine opens.
 *
 * What is taken is what the attention operation itself reads, FLASH_ATTN_EXT or, without flash attention, the product of
 * keys and queries: behind norms, RoPE and whatever a model multiplies its queries by (gemma3 does after RoPE), and
 * behind the rotation that the library puts before quantised keys, which its cache has too.  So nothing has to be known
 * of architectures; the factor of the product is read from the operation.  A layer is known by the tensor of the cache
 * that its keys are read from.  While the operation's result is waited for, its inputs are still there.
 *
 * Some layers use the keys of an earlier one: the first operation of a step that reads a cache is that of its own layer.
 *
 * Source: build_attn_mha in llama-graph.cpp; ggml_flash_attn_ext, ggml_soft_max_ext (their parameters: scale, ALiBi,
 * soft cap); names of tensors in llama-kv-cache.cpp. */
#include "adapters/llama/llama_engine.h"
#include "engine/kv_blob.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCALE = 0, ALIBI = 1, SOFT_CAP = 2 };                                        /* parameters */
enum { Q = 0, K = 1, PRODUCT_K = 0, PRODUCT_Q = 1, SINKS = 4, SOFT_MAX_SINKS = 2 }; /* inputs */
enum { TRIED = 5 }; /* tokens that are computed at open */

/* ---- the graph ---- */

/* What a node is made of, behind views and changes of type. */
static const struct ggml_tensor *root_of(const struct ggml_tensor *t)
{
    while (t != NULL) {
        if (t->view_src != NULL)
            t = t->view_src;
        else if (t->op == GGML_OP_CPY || t->op == GGML_OP_CONT || t->op == GGML_OP_DUP)
            t = t->src[0];
        else
            break;
    }
    return t;
}

static float parameter(const struct ggml_tensor *t, int i)
{
    float value;
    memcpy(&value, &t->op_params[i], sizeof value);
    return value;
}

/* The inputs of a node that may be a layer's attention. */
static bool inputs_of(const struct ggml_tensor *t, const struct ggml_tensor **ret_q,
                      const struct ggml_tensor **ret_k)
{
    if (t->op != GGML_OP_FLASH_ATTN_EXT && t->op != GGML_OP_MUL_MAT)
        return false;
    const bool flash = t->op == GGML_OP_FLASH_ATTN_EXT;
    *ret_q = t->src[flash ? Q : PRODUCT_Q];
    *ret_k = t->src[flash ? K : PRODUCT_K];
    return true;
}

/* Which layer's attention it is; -1: none, or one that was there before in this step. */
static int32_t layer_of(const struct md_llama_attention *a, const struct ggml_tensor *k)
{
    const struct ggml_tensor *cache = root_of(k);
    for (int32_t i = 0; i < a->layer_count; i++)
        if (a->layers[i].cache == cache)
            return a->layers[i].taken ? -1 : i;
    return -1;
}

/* Copy the queries of a step: [number, row, head], heads and rows one behind the other in all graphs but odd ones. */
static bool read_queries(const struct ggml_tensor *q, const struct md_attention_layer *l, float *to)
{
    const size_t head = (size_t)l->length * sizeof *to, row = (size_t)l->query_heads * head;
    if (q->type != GGML_TYPE_F32 || q->ne[0] != l->length || q->ne[2] != l->query_heads || q->ne[3] != 1 ||
        q->nb[0] != sizeof *to)
        return false;
    if (q->nb[2] == head && q->nb[1] == row) {
        ggml_backend_tensor_get(q, to, 0, (size_t)q->ne[1] * row);
        return true;
    }
    for (int64_t r = 0; r < q->ne[1]; r++)
        for (int64_t h = 0; h < q->ne[2]; h++)
            ggml_backend_tensor_get(q, to + ((size_t)r * row + (size_t)h * head) / sizeof *to,
                                    (size_t)r * q->nb[1] + (size_t)h * q->nb[2], head);
    return true;
}

/* ---- learning ---- */

/* A layer's attention in the graph: note what there is to know of it.  Its length is set when all is well. */
static void learn(struct md_llama_engine *e, const struct ggml_tensor *t)
{
    struct md_llama_attention *a = &e->attention;
    const struct ggml_tensor *q, *k;
    int32_t i = -1;
    if (t->op == GGML_OP_SOFT_MAX) { /* of a product that was seen before */
        for (i = 0; i < a->layer_count && (a->layers[i].product == NULL || a->layers[i].product != t->src[0]);
             i++)
            ;
        if (i < a->layer_count && parameter(t, ALIBI) == 0 && t->src[SOFT_MAX_SINKS] == NULL)
            e->base.attention.layers[i].scale = parameter(t, SCALE);
        return;
    }
    if (!inputs_of(t, &q, &k) || root_of(k) == NULL || sscanf(root_of(k)->name, "cache_k_l%d", &i) != 1 ||
        i < 0 || i >= a->layer_count || a->layers[i].taken)
        return;
    struct md_attention_layer *l = &e->base.attention.layers[i];
    a->layers[i].cache = root_of(k);
    a->layers[i].taken = true;
    a->layers[i].product = t->op == GGML_OP_MUL_MAT ? t : NULL;
    const bool plain = t->op == GGML_OP_MUL_MAT ||
                       (parameter(t, ALIBI) == 0 && parameter(t, SOFT_CAP) == 0 && t->src[SINKS] == NULL);
    l->scale = t->op == GGML_OP_FLASH_ATTN_EXT && plain ? parameter(t, SCALE) : 0;
    l->query_heads = (int32_t)q->ne[2];
    l->key_heads = (int32_t)k->ne[2];
    l->length = 0;
    if (q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && q->ne[0] == k->ne[0] && q->ne[3] == 1 &&
        q->ne[1] == a->count && k->ne[2] > 0 && q->ne[2] % k->ne[2] == 0)
        l->length = (int32_t)q->ne[0];
}

bool md_llama_on_node(struct ggml_tensor *t, bool ask, void *user)
{
    struct md_llama_engine *e = user;
    struct md_llama_attention *a = &e->attention;
    const struct ggml_tensor *q, *k;
    if (a->row < 0 || (!a->learning && e->base.attention.rooms == NULL))
        return !ask;
    if (a->learning) {
        if (ask)
            learn(e, t);
        return !ask;
    }
    const int32_t layer = inputs_of(t, &q, &k) ? layer_of(a, k) : -1;
    float *room = layer < 0 ? NULL : md_attention_room(&e->base, layer, a->row);
    if (room == NULL)
        return !ask;
    if (ask)
        return true;
    if (q->ne[1] != a->count || !read_queries(q, &e->base.attention.layers[layer], room))
        md_attention_lose(&e->base.attention);
    a->layers[layer].taken = true;
    return true;
}

void md_llama_attention_step(struct md_llama_engine *e, int32_t row, int32_t count)
{
    struct md_llama_attention *a = &e->attention;
    a->row = row;
    a->count = count;
    for (int32_t i = 0; i < a->layer_count; i++)
        a->layers[i].taken = false;
}

void md_llama_attention_stepped(struct md_llama_engine *e)
{
    struct md_llama_attention *a = &e->attention;
    for (int32_t i = 0; i < a->layer_count && !a->learning; i++)
        if (!a->layers[i].taken && md_attention_room(&e->base, i, a->row) != NULL)
            md_attention_lose(&e->base.attention);
    a->row = -1;
}

/* ---- opening ---- */

static enum md_status begin(struct md_llama_engine *e, struct md_err *err)
{
    const int32_t layers = llama_model_n_layer(e->model->model);
    e->attention.layers = md_calloc(NULL, (size_t)layers, sizeof *e->attention.layers);
    if (e->attention.layers == NULL)
        return md_fail(err, MD_NO_MEMORY, "the attention of %d layers", layers);
    e->attention.layer_count = layers;
    return md_attention_init(&e->base.attention, layers, err);
}

/* Are the keys in `rows`, of all tokens that were tried but the first, what the layer's cache has?  Its first cells are
 * theirs, in order: it was empty. */
static bool same_keys(const struct md_llama_export *x, const struct ggml_tensor *cache, const uint8_t *rows,
                      enum ggml_type type, size_t row_bytes, uint8_t *work)
{
    bool told = false; /* they differ from token to token, or it would prove nothing */
    if (type != cache->type || row_bytes != cache->nb[1] || cache->ne[1] < TRIED)
        return false;
    ggml_backend_tensor_get(cache, work, 0, TRIED * row_bytes);
    for (int32_t i = 0; i < md_range_len(x->r); i++) {
        const int32_t pos = x->r.start + md_llama_keys_index(x, i);
        if (memcmp(work + (size_t)pos * row_bytes, rows + (size_t)i * row_bytes, row_bytes) != 0)
            return false;
        told = told || (i > 0 && memcmp(rows + (size_t)i * row_bytes, rows, row_bytes) != 0);
    }
    return told;
}

/* Which of the keys in the export are the layer's: -1 where none are, or where several might be. */
static int32_t find_place(const struct md_llama_export *x, const struct ggml_tensor *cache)
{
    int32_t found = -1, matches = 0;
    uint8_t *work = md_calloc(NULL, TRIED, cache->nb[1]);
    for (int32_t place = 0; work != NULL && place < x->layer_count; place++) {
        enum ggml_type type = GGML_TYPE_COUNT;
        size_t row_bytes = 0;
        const uint8_t *rows = md_llama_keys_block(x, place, &type, &row_bytes);
        if (rows == NULL)
            break;
        if (same_keys(x, cache, rows, type, row_bytes, work)) {
            found = place;
            matches++;
        }
    }
    md_free(NULL, work);
    return matches == 1 ? found : -1;
}

/* Compare what was learned with an export: a layer keeps its length if its keys are found there. */
static void prove(struct md_llama_engine *e, const struct md_kv_shape *shape, const struct md_buf *kv,
                  struct md_range r)
{
    struct md_llama_attention *a = &e->attention;
    const uint8_t *payload = kv->data + MD_KV_BLOB_HEADER_BYTES;
    const size_t len = kv->len - MD_KV_BLOB_HEADER_BYTES;
    struct md_llama_export x = { 0 };
    const bool open = e->cell_bytes > 0 && md_llama_keys_open(&x, payload, len, r, e->cell_bytes);
    for (int32_t i = 0; i < a->layer_count; i++) {
        struct md_attention_layer *l = &e->base.attention.layers[i];
        const bool known = i < shape->layer_count && !shape->layers[i].keys_only;
        const bool sound = l->length > 0 && isfinite(l->scale) && l->scale > 0;
        a->layers[i].place = open && known && sound ? find_place(&x, a->layers[i].cache) : -1;
        l->windowed = i < shape->layer_count && shape->layers[i].window > 0;
        if (a->layers[i].place < 0)
            l->length = 0;
    }
}

enum md_status md_llama_attention_open(struct md_llama_engine *e, const struct md_kv_shape *shape,
                                       unsigned *caps, struct md_err *err)
{
    const struct md_range later = { 1, TRIED };
    md_token tokens[TRIED];
    struct md_buf kv;
    if (!(*caps & MD_CAP_COLD_STORE) || e->base.info.cell_count < TRIED || e->base.info.batch_tokens < TRIED)
        return MD_OK;
    enum md_status s = begin(e, err);
    if (s != MD_OK)
        return s;
    for (int32_t i = 0; i < TRIED; i++)
        tokens[i] = (3 + 7 * i) % e->base.info.vocab_count;
    md_buf_init(&kv, NULL, SIZE_MAX / 2);
    e->attention.learning = true;
    s = md_llama_run(e, md_llama_live(e, 0), 0, tokens, TRIED, false, NULL);
    e->attention.learning = false;
    if (s == MD_OK)
        s = md_llama_engine_ops.export_range(&e->base, 0, later, &kv, NULL);
    if (s == MD_OK)
        prove(e, shape, &kv, later);
    md_buf_done(&kv);
    llama_memory_clear(e->mem, false);
    e->window_from = 0;
    if (s == MD_OK && md_attention_any(&e->base.attention))
        *caps |= MD_CAP_ATTENTION_SCORES;
    return MD_OK; /* where it does not work nothing else changes */
}

void md_llama_attention_done(struct md_llama_engine *e)
{
    md_free(NULL, e->attention.layers);
    e->attention.layers = NULL;
    e->attention.layer_count = 0;
}
