/* ov_cost.c - what this engine makes of a model's header, and what opening it takes: for plans, before anything is
 * loaded. */
#include "adapters/openvino/ov_backend.h"
#include "adapters/openvino/ov_engine.h"
#include "engine/kv_blob.h"
#include "host/memory.h"

#include <stdio.h>
#include <string.h>

/* ---- the model ---- */

static void refuse(struct md_model_facts *facts, const char *code)
{
    int n = 0;
    while (n < MD_UNSUPPORTED_MAX - 2 && facts->unsupported[n] != NULL)
        n++;
    facts->unsupported[n] = code;
    facts->loadable = false;
}

void md_openvino_judge(struct md_model_facts *facts)
{
    /* of those that the library's GGUF frontend names: the ones that were held against llama.cpp.  Of the others qwen3moe
     * opens, and fails in its first step of more than one token (2026.4.1: values of all tokens in each row) */
    static const char *const known[] = { "gemma", "gemma3", "llama", "qwen2", "qwen3" };
    bool is_known = false, windows = false, states = false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        is_known = is_known || strcmp(facts->architecture, known[i]) == 0;
    if (facts->rope.scaling == MD_ROPE_YARN || facts->rope.scaling == MD_ROPE_LONGROPE ||
        facts->rope.factor > 1)
        refuse(facts, "rope_scaling");
    for (int32_t i = 0; i < facts->shape.layer_count; i++) {
        const struct md_kv_layer *l = &facts->shape.layers[i];
        windows = windows || l->window > 0;
        states = states || l->state_bytes > 0 || l->kv_heads == 0 || l->keys_only || l->shared;
    }
    if (windows && strcmp(facts->architecture, "gemma3") != 0)
        refuse(facts, "sliding_window");
    else if (states)
        refuse(facts, "unsupported_layers");
    else if (!is_known && facts->loadable)
        refuse(facts, "unsupported_architecture");
    facts->note = NULL; /* how the other engine counts layers */
}

/* ---- what it takes ---- */

const char *md_ov_kv_type_name(enum md_ov_type type)
{
    static const char *const names[] = { [MD_OV_F32] = "f32", [MD_OV_F16] = "f16", [MD_OV_U8] = "u8" };
    return names[type];
}

enum md_status md_ov_kv_type(const struct md_open_params *params, enum md_ov_type *ret_type,
                             struct md_err *err)
{
    const char *keys = params->type_k, *values = params->type_v;
    if (keys == NULL) /* what is not said is as what is */
        keys = values != NULL ? values : "f16";
    if (values == NULL)
        values = keys;
    if (params->flash_attn == 0)
        return md_fail(
            err, MD_UNSUPPORTED,
            "the engine 'openvino' has one way of computing attention: flash attention cannot be off");
    if (strcmp(keys, values) != 0)
        return md_fail(err, MD_UNSUPPORTED,
                       "the engine 'openvino' has one KV type for keys and values, not '%.16s' and '%.16s'",
                       keys, values);
    for (int t = MD_OV_F32; t <= MD_OV_U8; t++)
        if (strcmp(keys, md_ov_kv_type_name((enum md_ov_type)t)) == 0) {
            *ret_type = (enum md_ov_type)t;
            return MD_OK;
        }
    return md_fail(err, MD_UNSUPPORTED, "the engine 'openvino' has no KV type '%.16s': use f32, f16 or u8",
                   keys);
}

enum md_status md_ov_check_xattention(const struct md_open_params *params, struct md_err *err)
{
    const int32_t batch = params->batch_tokens > 0 ? params->batch_tokens : MD_OPENVINO_BATCH;
    const int32_t micro = params->ubatch_tokens > 0 ? params->ubatch_tokens : MD_OPENVINO_BATCH;
    const int32_t step = micro < batch ? micro : batch;
    const double share = params->xattention;
    if (share == 0)
        return MD_OK;
    if (!(share > 0 && share <= 1))
        return md_fail(err, MD_INVALID, "XAttention keeps a share of attention above 0 and up to 1, not %g",
                       share);
    if (!md_ov_on_cpu(params))
        return md_fail(err, MD_UNSUPPORTED,
                       "XAttention is for the CPU: leave it out, or use --device CPU instead of '%.32s'",
                       params->device);
    if (step <= MD_OV_SPARSE_ROWS)
        return md_fail(
            err, MD_INVALID,
            "XAttention leaves out blocks of %d tokens, of a step of %d none: give -b and -ub more, "
            "best as many as prompts have",
            MD_OV_SPARSE_ROWS, step);
    return MD_OK;
}

static bool has_windows(const struct md_model_facts *facts)
{
    for (int32_t i = 0; i < facts->shape.layer_count; i++)
        if (facts->shape.layers[i].window > 0)
            return true;
    return false;
}

/* Blocks of a device may be smaller than those of the processor, by which it counts. */
enum md_status md_openvino_cost(const struct md_model_facts *facts, const struct md_open_params *params,
                                int32_t seq_count, struct md_open_cost *ret_cost, struct md_err *err)
{
    const int32_t batch = params->batch_tokens > 0 ? params->batch_tokens : MD_OPENVINO_BATCH;
    const int32_t wanted = params->ubatch_tokens > 0 ? params->ubatch_tokens : MD_OPENVINO_BATCH;
    const int64_t threads = params->threads > 0 ? params->threads : md_host_processor_count();
    struct md_open_cost c = { .cold_store = facts->loadable, .export_bytes = MD_KV_BLOB_HEADER_BYTES };
    if (seq_count < 0 || seq_count > MD_OPENVINO_SEQS_MAX)
        return md_fail(err, MD_INVALID, "sequences must be 0 to %d, got %d", MD_OPENVINO_SEQS_MAX, seq_count);
    static const enum md_kv_type types[] = {
        [MD_OV_F32] = MD_KV_F32, [MD_OV_F16] = MD_KV_F16, [MD_OV_U8] = MD_KV_U8
    };
    enum md_ov_type type;
    enum md_status s = md_ov_kv_type(params, &type, err);
    if (s == MD_OK)
        s = md_ov_check_xattention(params, err);
    if (s == MD_OK && !md_ov_on_cpu(params))
        s = md_ov_check_device(params, type, err);
    if (s == MD_OK && !md_ov_on_cpu(params) && has_windows(facts))
        s = md_fail(
            err, MD_UNSUPPORTED,
            "layers with a window cannot be run on '%.32s' by the engine 'openvino': use --device CPU, "
            "or the engine 'llama'",
            params->device);
    if (s != MD_OK)
        return s;
    c.mode.type_k = c.mode.type_v = types[type];
    c.mode.seq_count = 1;      /* all share the cells */
    c.mode.window_full = true; /* windowed layers have a row for each cell, as others */
    c.mode.ubatch_tokens = wanted < batch ? wanted : batch;
    const int64_t tokens = c.mode.ubatch_tokens, width = facts->embedding_length;
    c.compute_bytes = 4 * tokens * (3 * (int64_t)facts->ffn_length + 8 * width) +
                      4 * (int64_t)facts->vocab_count +
                      2 * MD_OV_BLOCK_ROWS * md_kv_bytes_per_token(&facts->shape, &c.mode);
    c.compute_bytes_per_cell = 4 * MD_OV_BLOCK_ROWS * threads; /* scores of a block of queries */
    *ret_cost = c;
    return MD_OK;
}
