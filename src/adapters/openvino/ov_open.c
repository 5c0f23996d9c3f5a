/* ov_open.c - opening an engine: parameters checked in our words, the model's kind and facts, and how keys are
 * turned, which is tried before it is claimed. */
#include "adapters/openvino/ov_backend.h"
#include "adapters/openvino/ov_engine.h"
#include "engine/kv_blob.h"
#include "host/gguf.h"
#include "host/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- what is asked ---- */

static enum md_status check_params(const struct md_open_params *p, struct md_err *err)
{
    enum { LIMIT = 1 << 30, THREADS_MAX = 512 };
    if (p->model_path == NULL || p->model_path[0] == '\0')
        return md_fail(err, MD_INVALID, "no model file is named");
    if (p->cell_count < 1 || p->cell_count > LIMIT)
        return md_fail(err, MD_INVALID, "KV cells must be 1 to %d, got %d", LIMIT, p->cell_count);
    if (p->seq_count < 0 || p->seq_count > MD_OPENVINO_SEQS_MAX)
        return md_fail(err, MD_INVALID, "sequences must be 0 to %d, got %d", MD_OPENVINO_SEQS_MAX,
                       p->seq_count);
    if (p->batch_tokens < 0 || p->batch_tokens > LIMIT || p->ubatch_tokens < 0 || p->ubatch_tokens > LIMIT)
        return md_fail(err, MD_INVALID, "batch sizes must be 0 to %d, got %d and %d", LIMIT, p->batch_tokens,
                       p->ubatch_tokens);
    if (p->threads < 0 || p->threads > THREADS_MAX)
        return md_fail(err, MD_INVALID, "threads must be 0 to %d, got %d", THREADS_MAX, p->threads);
    const struct md_rope_asked *rope = &p->rope;
    if (rope->scaling != MD_ROPE_UNSAID || rope->scale != 0 || rope->freq_scale != 0 || rope->freq_base != 0)
        return md_fail(
            err, MD_UNSUPPORTED,
            "the engine 'openvino' leaves positions as the file has them: no RoPE option can be used");
    return MD_OK;
}

/* ---- the file ---- */

/* What the header says, as far as it is asked here. */
struct header {
    char architecture[64], name[64];
    int32_t trained_tokens;
    int64_t bytes, rope_length; /* 0: it does not say */
    double rope_base, rope_base_window;
    uint64_t fingerprint;
};

static int64_t number(struct md_gguf *file, const char *arch, const char *key)
{
    enum { LIMIT = 1 << 30 };
    char full[160];
    int64_t value = 0;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    return md_gguf_int(file, full, 0, LIMIT, &value, NULL) == MD_OK ? value : 0;
}

/* What the library makes of scaled positions was not looked at. */
static enum md_status check_scaling(struct md_gguf *file, const char *path, const char *arch,
                                    struct md_err *err)
{
    char key[160], scaling[32];
    double factor;
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    if (md_gguf_string(file, key, scaling, sizeof scaling, NULL) != MD_OK)
        snprintf(scaling, sizeof scaling, "linear");
    snprintf(key, sizeof key, "%s.rope.scaling.factor", arch);
    if (md_gguf_real(file, key, &factor, NULL) != MD_OK)
        factor = 1;
    if (strcmp(scaling, "none") == 0 || (strcmp(scaling, "linear") == 0 && factor <= 1))
        return MD_OK;
    return md_fail(
        err, MD_UNSUPPORTED,
        "model '%.200s' has scaled positions (%s), which the engine 'openvino' cannot run yet: use the "
        "engine 'llama'",
        path, scaling);
}

static enum md_status read_header(const char *path, struct header *ret, struct md_err *err)
{
    enum { ROPE_BASE_DEFAULT = 10000 }; /* where the file is silent: llama.cpp's */
    struct md_gguf *file = NULL;
    struct header h = { .rope_base = ROPE_BASE_DEFAULT };
    double real;
    char key[160];
    const char *ending = strrchr(path, '.');
    enum md_status s = md_gguf_open(path, &file, err);
    if (s == MD_OK && (ending == NULL || strcmp(ending, ".gguf") != 0)) /* the library goes by the name */
        s = md_fail(
            err, MD_UNSUPPORTED,
            "model '%.200s': the engine 'openvino' reads files named .gguf only: rename it, or link to it",
            path);
    if (s == MD_OK && md_gguf_part_count(file) > 1)
        s = md_fail(err, MD_UNSUPPORTED,
                    "model '%.200s' is in %d parts, which the engine 'openvino' cannot read: "
                    "join them, or use the engine 'llama'",
                    path, md_gguf_part_count(file));
    if (s == MD_OK)
        s = md_gguf_string(file, "general.architecture", h.architecture, sizeof h.architecture, err);
    if (s == MD_OK) {
        if (md_gguf_string(file, "general.name", h.name, sizeof h.name, NULL) != MD_OK)
            h.name[0] = '\0';
        h.bytes = md_gguf_file_bytes(file);
        h.trained_tokens = (int32_t)number(file, h.architecture, "context_length");
        h.rope_length = number(file, h.architecture, "rope.dimension_count");
        snprintf(key, sizeof key, "%s.rope.freq_base", h.architecture);
        if (md_gguf_real(file, key, &h.rope_base, NULL) != MD_OK)
            h.rope_base = ROPE_BASE_DEFAULT;
        h.rope_base_window = strcmp(h.architecture, "gemma3") == 0 ? ROPE_BASE_DEFAULT : h.rope_base;
        snprintf(key, sizeof key, "%s.rope.freq_base_swa", h.architecture);
        if (md_gguf_real(file, key, &real, NULL) == MD_OK)
            h.rope_base_window = real;
        s = check_scaling(file, path, h.architecture, err);
    }
    if (s == MD_OK)
        s = md_gguf_fingerprint(file, &h.fingerprint, err);
    md_gguf_close(file);
    if (s == MD_OK)
        *ret = h;
    return s;
}

/* ---- how keys are turned ---- */

/* The KV of one token alone at a position: it attends to itself only, so all but the turn of its key is the same
 * everywhere. */
static enum md_status kv_of_one(struct md_ov_engine *e, int32_t position, struct md_buf *ret_kv,
                                struct md_err *err)
{
    const md_token any = 1;
    const float *unwanted;
    enum md_status s = md_ov_engine_ops.decode(&e->base, 0, position, &any, 1, &unwanted, err);
    if (s == MD_OK)
        s = md_ov_engine_ops.export_range(&e->base, 0, (struct md_range){ position, position + 1 }, ret_kv,
                                          err);
    md_ov_rows_remove(&e->rows, 0, (struct md_range){ 0, INT32_MAX });
    return s;
}

/* Largest difference of two rows, as a share of the largest number of its head: some have far larger ones than
 * others. */
static float difference(const struct md_ov_cache *c, const uint8_t *a, const uint8_t *b)
{
    const size_t size = c->type == MD_OV_F32 ? sizeof(float) : sizeof(uint16_t);
    float worst = 0;
    size_t at = 0;
    for (int32_t part = 0; part < c->part_count; part++)
        for (int32_t h = 0; h < c->parts[part].heads; h++) {
            const size_t end = at + c->parts[part].row_bytes / size;
            float most = 0, apart = 0;
            for (; at < end; at++) {
                const float x = md_ov_cache_number(c, a, at), y = md_ov_cache_number(c, b, at);
                most = fmaxf(most, fabsf(x));
                apart = fmaxf(apart, fabsf(x - y));
            }
            worst = most > 0 ? fmaxf(worst, apart / most) : worst;
        }
    return worst;
}

/* Which way of turning takes the key of a token at one position to its key at another, in all layers? */
static enum md_status find_turn(struct md_ov_engine *e, const struct header *h, struct md_err *err)
{
    enum {
        NEAR = 1,
        FAR_MIN = 402,
        FAR_MAX = 8192
    };                                            /* beyond, the library's own angles are off by too much */
    const float tolerance = 5e-3f, least = 0.05f; /* f16 rounds by 5e-4; another way is off by about 1 */
    const int32_t trained = h->trained_tokens - 1, far_at = trained < FAR_MIN   ? FAR_MIN
                                                            : trained > FAR_MAX ? FAR_MAX
                                                                                : trained;
    struct md_buf near, far;
    if (e->cache.type == MD_OV_U8 || e->cache.key_length == 0)
        return MD_OK;
    const int32_t length = h->rope_length > 0 ? (int32_t)h->rope_length : e->cache.key_length;
    if (length > e->cache.key_length || length % 2 != 0 || h->rope_base <= 0 || h->rope_base_window <= 0)
        return MD_OK;
    md_buf_init(&near, NULL, SIZE_MAX / 2);
    md_buf_init(&far, NULL, SIZE_MAX / 2);
    enum md_status s = kv_of_one(e, NEAR, &near, err);
    if (s == MD_OK)
        s = kv_of_one(e, far_at, &far, err);
    for (int way = 0; way < 2 && s == MD_OK && e->turn.length == 0; way++) {
        const struct md_ov_turn turn = { length, way == 1, h->rope_base, h->rope_base_window };
        uint8_t *from = near.data + MD_KV_BLOB_HEADER_BYTES, *to = far.data + MD_KV_BLOB_HEADER_BYTES;
        if (difference(&e->cache, from, to) < least)
            break; /* nothing is turned here, or hardly: that tells nothing */
        s = md_ov_cache_turn(&e->cache, &turn, from, 1, far_at - NEAR, err);
        if (s == MD_OK && difference(&e->cache, from, to) <= tolerance)
            e->turn = turn;
        else if (s == MD_OK) /* back, for the other way */
            s = md_ov_cache_turn(&e->cache, &turn, from, 1, NEAR - far_at, err);
    }
    md_buf_done(&near);
    md_buf_done(&far);
    return s;
}

/* ---- the engine ---- */

static const char exact_weights[] = "OV_GGUF_Q4_K_ZP_F16";

void md_openvino_prepare(void)
{
    setenv(exact_weights, "1", 0);
}

static void fill_info(struct md_ov_engine *e, const struct md_open_params *p, const struct header *h,
                      int32_t cells, enum md_ov_type type)
{
    struct md_engine_info *i = &e->base.info;
    const int32_t batch = p->batch_tokens > 0 ? p->batch_tokens : MD_OPENVINO_BATCH;
    const int32_t micro = p->ubatch_tokens > 0 ? p->ubatch_tokens : MD_OPENVINO_BATCH;
    const char *exact = getenv(exact_weights);
    char version[64];
    md_ov_version(version, sizeof version);
    snprintf(i->engine, sizeof i->engine, "openvino");
    snprintf(i->version, sizeof i->version, "%s", version);
    snprintf(i->device, sizeof i->device, "%s", md_ov_on_cpu(p) ? "CPU" : p->device);
    snprintf(i->model, sizeof i->model, "%.32s %.60s", h->architecture, h->name);
    snprintf(i->type_k, sizeof i->type_k, "%s", md_ov_kv_type_name(type));
    snprintf(i->type_v, sizeof i->type_v, "%s", md_ov_kv_type_name(type));
    i->lossy_kv = type == MD_OV_U8;
    i->vocab_count = md_ov_model_facts(e->model)->vocab_count;
    i->seq_count = p->seq_count > 0 ? p->seq_count : MD_OPENVINO_SEQS;
    i->cell_count = cells;
    i->trained_tokens = h->trained_tokens;
    i->window_tokens = md_ov_model_facts(e->model)->window_tokens;
    i->batch_tokens = batch;
    i->ubatch_tokens = micro < batch ? micro : batch;
    i->kv_bytes_per_token = i->kv_growing_bytes = (int64_t)e->cache.token_bytes;
    /* one block to arrange rows, one of the shim, and two that are at hand where KV lies in a pool */
    i->kv_fixed_bytes = (e->cache.stage != NULL ? 4 : 2) * e->cache.block_rows * i->kv_growing_bytes;
    i->model_bytes = h->bytes;
    md_gguf_key(h->fingerprint, h->bytes, i->model_key);
    char sparse[48] =
        ""; /* its KV is none of an engine that attends to everything, nor of another threshold */
    snprintf(i->xattention, sizeof i->xattention, md_ov_on_cpu(p) ? "off" : "unavailable: for the CPU only");
    if (p->xattention > 0) {
        snprintf(i->xattention, sizeof i->xattention, "%.15g", p->xattention);
        snprintf(sparse, sizeof sparse, ", xattention %.15g of %d", p->xattention, MD_OV_SPARSE_ROWS);
        i->sparse_from_tokens = MD_OV_SPARSE_ROWS + 1;
    }
    /* "by head" is the order of an export (ov_cache.h); what a GPU computes is rounded in other ways */
    snprintf(i->identity, sizeof i->identity,
             "openvino %.40s|%016" PRIx64 "|%" PRId64 "|%s by head|%.32s%s%s%s", version, h->fingerprint,
             h->bytes, md_ov_kv_type_name(type), h->architecture, sparse,
             exact != NULL && strcmp(exact, "1") == 0 ? "" : "|rounded Q4_K", md_ov_on_cpu(p) ? "" : "|GPU");
    e->identity_hash = XXH3_64bits(i->identity, strlen(i->identity));
}

static enum md_status pool_get(void *user, int32_t block, uint8_t *ret_bytes, struct md_err *err)
{
    return md_ov_model_get(user, block, ret_bytes, err);
}

static enum md_status pool_put(void *user, int32_t block, const uint8_t *bytes, struct md_err *err)
{
    return md_ov_model_put(user, block, bytes, err);
}

/* The cache, and where the graph finds it. */
static enum md_status make_cache(struct md_ov_engine *e, enum md_ov_type type, int32_t blocks, bool pooled,
                                 struct md_err *err)
{
    const struct md_ov_facts *f = md_ov_model_facts(e->model);
    const struct md_ov_pool_ops pool = { pool_get, pool_put, e->model };
    enum md_status s = md_ov_cache_init(&e->cache, f, type, blocks, pooled ? &pool : NULL, err);
    if (s == MD_OK && pooled)
        s = md_ov_model_hold(e->model, blocks, err);
    for (int32_t i = 0; i < f->layer_count && !pooled && s == MD_OK; i++)
        s = md_ov_model_bind(e->model, i, e->cache.parts[2 * i].at, e->cache.parts[2 * i + 1].at, blocks,
                             err);
    return s;
}

static enum md_status build(struct md_ov_engine *e, const struct md_open_params *p, const struct header *h,
                            enum md_ov_type type, bool pooled, struct md_err *err)
{
    const int32_t threads = p->threads > 0 ? p->threads : md_host_processor_count();
    const struct md_ov_mover mover = { md_ov_cache_move, md_ov_cache_swap, &e->cache };
    const struct md_ov_watch watch = { .count = p->attention ? MD_OV_WATCH_ALL : 0,
                                       .sparse = p->xattention > 0 };
    enum md_status s = md_ov_model_open(p->model_path, md_ov_on_cpu(p) ? "CPU" : p->device, type, threads,
                                        &watch, &e->model, err);
    if (s != MD_OK)
        return s;
    const int32_t rows = md_ov_model_facts(e->model)->block_rows, blocks = (p->cell_count + rows - 1) / rows;
    s = make_cache(e, type, blocks + 2, pooled, err);
    if (s != MD_OK)
        return s;
    fill_info(e, p, h, blocks * rows, type);
    s = md_ov_rows_init(&e->rows, e->base.info.cell_count, rows, e->base.info.seq_count, mover, err);
    if (s == MD_OK)
        e->rows.window = e->base.info.window_tokens;
    if (s == MD_OK && pooled)
        s = md_ov_prove(e, err);
    if (s == MD_OK)
        s = find_turn(e, h, err);
    return s;
}

/* Is it there?  Asked before the model is read. */
static enum md_status check_there(const struct md_open_params *p, struct md_err *err)
{
    struct md_ov_device devices[MD_OV_DEVICES_MAX];
    int32_t count = 0;
    if (md_ov_on_cpu(p))
        return MD_OK;
    enum md_status s = md_ov_devices(devices, &count, err);
    return s == MD_OK ? md_ov_check_there(devices, count, p->device, err) : s;
}

enum md_status md_openvino_open(const struct md_open_params *params, struct md_engine **ret_engine,
                                struct md_err *err)
{
    return md_ov_engine_open(params, !md_ov_on_cpu(params), ret_engine, err);
}

enum md_status md_ov_engine_open(const struct md_open_params *params, bool pooled,
                                 struct md_engine **ret_engine, struct md_err *err)
{
    struct header h;
    enum md_ov_type type = MD_OV_F16;
    enum md_status s = check_params(params, err);
    if (s == MD_OK)
        s = md_ov_kv_type(params, &type, err);
    if (s == MD_OK)
        s = md_ov_check_xattention(params, err);
    if (s == MD_OK)
        s = md_ov_check_device(params, type, err);
    if (s == MD_OK)
        s = check_there(params, err);
    if (s == MD_OK)
        s = read_header(params->model_path, &h, err);
    if (s != MD_OK)
        return s;
    struct md_ov_engine *e = md_calloc(NULL, 1, sizeof *e);
    if (e == NULL)
        return md_fail(err, MD_NO_MEMORY, "engine");
    e->base.ops = &md_ov_engine_ops; /* so that opening can use them, and close works */
    e->threshold = (float)params->xattention;
    s = build(e, params, &h, type, pooled, err);
    if (s == MD_OK) {
        unsigned caps = MD_OV_CAPS;
        if (e->turn.length > 0)
            caps |= MD_CAP_POSITION_SHIFT;
        if (params->attention)
            s = md_ov_attention_open(e, &caps, err);
        if (s == MD_OK)
            s = md_engine_init(&e->base, &md_ov_engine_ops, caps, err);
    }
    if (s != MD_OK) {
        md_engine_close(&e->base);
        return s;
    }
    *ret_engine = &e->base;
    return MD_OK;
}
