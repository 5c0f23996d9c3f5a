/* llama_open.c - the backend table: what is asked for is checked here, in our words, before the library
 * is asked to do it. */
#include "adapters/llama/llama_backend.h"
#include "adapters/llama/llama_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum ggml_type type;
} kv_types[] = {
    { "f32", GGML_TYPE_F32 },   { "f16", GGML_TYPE_F16 },   { "bf16", GGML_TYPE_BF16 },
    { "q8_0", GGML_TYPE_Q8_0 }, { "q5_1", GGML_TYPE_Q5_1 }, { "q5_0", GGML_TYPE_Q5_0 },
    { "q4_1", GGML_TYPE_Q4_1 }, { "q4_0", GGML_TYPE_Q4_0 }, { "iq4_nl", GGML_TYPE_IQ4_NL },
};

const char *md_llama_kv_type_names(void)
{
    return "f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl";
}

static enum md_status kv_type(const char *name, const char *which, enum ggml_type *ret_type,
                              struct md_err *err)
{
    if (name == NULL)
        name = "f16";
    for (size_t i = 0; i < sizeof kv_types / sizeof kv_types[0]; i++) {
        if (strcmp(name, kv_types[i].name) == 0) {
            *ret_type = kv_types[i].type;
            return MD_OK;
        }
    }
    return md_fail(err, MD_INVALID, "unknown KV type '%s' for %s: one of %s", name, which,
                   md_llama_kv_type_names());
}

static enum md_status check_params(const struct md_open_params *p, enum ggml_type *ret_k,
                                   enum ggml_type *ret_v, struct md_err *err)
{
    enum { LIMIT = 1 << 30, THREADS_MAX = 512 }; /* the library's own limit of threads */
    if (p->cell_count < 1 || p->cell_count > LIMIT)
        return md_fail(err, MD_INVALID, "KV cells must be 1 to %d, got %d", LIMIT, p->cell_count);
    if (p->batch_tokens < 0 || p->batch_tokens > LIMIT || p->ubatch_tokens < 0 || p->ubatch_tokens > LIMIT)
        return md_fail(err, MD_INVALID, "batch sizes must be 0 to %d, got %d and %d", LIMIT, p->batch_tokens,
                       p->ubatch_tokens);
    if (p->threads < 0 || p->threads > THREADS_MAX)
        return md_fail(err, MD_INVALID, "threads must be 0 to %d, got %d", THREADS_MAX, p->threads);
    if (p->gpu_layers < -1)
        return md_fail(err, MD_INVALID, "GPU layers must be -1 or more, got %d", p->gpu_layers);
    enum md_status s = kv_type(p->type_k, "keys", ret_k, err);
    if (s == MD_OK)
        s = kv_type(p->type_v, "values", ret_v, err);
    if (s == MD_OK && ggml_is_quantized(*ret_v) && p->flash_attn == 0)
        return md_fail(err, MD_INVALID, "KV type '%s' for values needs flash attention, which is off",
                       p->type_v);
    return s;
}

/* From the metadata: with the vocabulary alone the library reads no hyperparameters, and says 0. */
static int32_t trained_tokens(const struct llama_model *m)
{
    char arch[64], key[96], value[32];
    if (llama_model_meta_val_str(m, "general.architecture", arch, sizeof arch) < 0)
        return 0;
    snprintf(key, sizeof key, "%s.context_length", arch);
    if (llama_model_meta_val_str(m, key, value, sizeof value) < 0)
        return 0;
    long long tokens = strtoll(value, NULL, 10);
    return tokens > 0 && tokens <= INT32_MAX ? (int32_t)tokens : 0;
}

static enum md_status llama_probe(const char *model_path, struct md_model_facts *ret_facts,
                                  struct md_err *err)
{
    struct md_llama_model *m;
    enum md_status s = md_llama_model_open(model_path, MD_LLAMA_VOCAB_ONLY, 0, &m, err);
    if (s != MD_OK)
        return s;
    struct md_model_facts facts = { .trained_tokens = trained_tokens(m->model) };
    llama_model_desc(m->model, facts.description, sizeof facts.description);
    md_llama_model_unref(m);
    *ret_facts = facts;
    return MD_OK;
}

static enum md_status llama_open(const struct md_open_params *params, struct md_engine **ret_engine,
                                 struct md_text **ret_text, struct md_err *err)
{
    enum ggml_type type_k, type_v;
    struct md_llama_model *m;
    struct md_engine *e = NULL;
    struct md_text *t = NULL;
    enum md_status s = check_params(params, &type_k, &type_v, err);
    if (s == MD_OK)
        s = md_llama_model_open(params->model_path, MD_LLAMA_WHOLE, params->gpu_layers, &m, err);
    if (s != MD_OK)
        return s;
    s = md_llama_engine_new(m, params, type_k, type_v, &e, err);
    if (s == MD_OK && ret_text != NULL)
        s = md_llama_text_new(m, &t, err);
    md_llama_model_unref(m);
    if (s != MD_OK) {
        md_engine_close(e);
        return s;
    }
    *ret_engine = e;
    if (ret_text != NULL)
        *ret_text = t;
    return MD_OK;
}

enum md_status md_llama_text_open(const char *model_path, struct md_text **ret_text, struct md_err *err)
{
    struct md_llama_model *m;
    enum md_status s = md_llama_model_open(model_path, MD_LLAMA_VOCAB_ONLY, 0, &m, err);
    if (s != MD_OK)
        return s;
    s = md_llama_text_new(m, ret_text, err);
    md_llama_model_unref(m);
    return s;
}

const struct md_backend md_backend_llama = { .name = "llama", .probe = llama_probe, .open = llama_open };
