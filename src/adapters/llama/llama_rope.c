/* llama_rope.c - rotary positions: what a file says of them, and what the user set, as the library takes it. */
#include "adapters/llama/llama_arch.h"
#include "adapters/llama/llama_internal.h"
#include "host/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Source: llama-model.cpp (llama_model_rope_type), of the families that generate text; and starcoder, which has a type
 * there, but no such operation in its graph (models/starcoder.cpp). */
static const char *const without_rope[] = {
    "gpt2",           "gptj",        "mpt",     "refact",     "bloom", "mamba",  "mamba2",
    "jamba",          "jais",        "rwkv6",   "rwkv6qwen2", "rwkv7", "arwkv7", "nemotron_h",
    "nemotron_h_moe", "kimi-linear", "kimi-k3", "starcoder",
};

static bool has_rope(const char *name, const struct md_llama_arch *arch)
{
    for (size_t i = 0; i < sizeof without_rope / sizeof without_rope[0]; i++)
        if (strcmp(without_rope[i], name) == 0)
            return false;
    return arch->memory != MD_LLAMA_MEMORY_RECURRENT;
}

static const char *find(struct md_gguf *f, const char *arch, const char *name, char key[160])
{
    snprintf(key, 160, "%s.rope.%s", arch, name);
    return md_gguf_find(f, key) != NULL ? key : NULL;
}

/* Linear is what the library takes a factor without a type for.  A type it does not know it refuses when it loads. */
static enum md_status read_type(struct md_gguf *f, const char *arch, enum md_rope_scaling *ret,
                                struct md_err *err)
{
    char key[160], type[40];
    *ret = MD_ROPE_LINEAR;
    if (find(f, arch, "scaling.type", key) == NULL)
        return MD_OK;
    enum md_status s = md_gguf_string(f, key, type, sizeof type, err);
    *ret = MD_ROPE_NONE;
    for (int i = MD_ROPE_LINEAR; s == MD_OK && i <= MD_ROPE_LONGROPE; i++)
        if (strcmp(type, md_rope_scaling_name((enum md_rope_scaling)i)) == 0)
            *ret = (enum md_rope_scaling)i;
    return s;
}

/* The newer key first; 0 is as if it were not there (load_hparams). */
static enum md_status read_factor(struct md_gguf *f, const char *arch, double *ret, struct md_err *err)
{
    char key[160];
    if (find(f, arch, "scaling.factor", key) == NULL && find(f, arch, "scale_linear", key) == NULL)
        return MD_OK;
    enum md_status s = md_gguf_real(f, key, ret, err);
    if (s == MD_OK && !(isfinite(*ret) && *ret >= 0))
        s = md_fail(err, MD_INVALID, "model '%s': '%s' is %g, a number above 0 is supported", md_gguf_path(f),
                    key, *ret);
    return s;
}

enum md_status md_llama_read_rope(struct md_gguf *file, const struct md_llama_arch *arch,
                                  struct md_model_facts *facts, struct md_err *err)
{
    const char *name = facts->architecture;
    struct md_rope_file r = { .context_tokens = facts->trained_tokens };
    char key[160];
    int64_t original = 0;
    r.absent = !has_rope(name, arch);
    facts->rope = r;
    if (r.absent)
        return MD_OK;
    r.base = facts->rope_base;
    enum md_status s = read_type(file, name, &r.scaling, err);
    if (s == MD_OK)
        s = read_factor(file, name, &r.factor, err);
    if (s == MD_OK && find(file, name, "scaling.original_context_length", key) != NULL)
        s = md_gguf_int(file, key, 0, 1 << 30, &original, err);
    if (s != MD_OK)
        return s;
    r.original_tokens = (int32_t)original;
    facts->rope = r;
    facts->trained_tokens = md_rope_file_window(&r);
    return MD_OK;
}

void md_llama_set_rope(const struct md_rope *r, struct llama_context_params *c)
{
    if (!r->changed)
        return;
    if (r->base > 0)
        c->rope_freq_base = (float)r->base;
    if (r->scaling == MD_ROPE_LONGROPE)
        return;
    c->rope_freq_scale = (float)(1 / r->factor);
    if (r->scaling != MD_ROPE_YARN) {
        c->rope_scaling_type =
            r->scaling == MD_ROPE_LINEAR ? LLAMA_ROPE_SCALING_TYPE_LINEAR : LLAMA_ROPE_SCALING_TYPE_NONE;
        c->yarn_ext_factor = 0; /* what the file says of YaRN must not stay */
        c->yarn_attn_factor = 1;
        return;
    }
    c->rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN;
    c->yarn_orig_ctx = (uint32_t)r->orig_tokens;
    if (r->ext_given)
        c->yarn_ext_factor = (float)r->ext_factor;
    if (r->attn_factor > 0)
        c->yarn_attn_factor = (float)r->attn_factor;
    if (r->beta_fast > 0)
        c->yarn_beta_fast = (float)r->beta_fast;
    if (r->beta_slow > 0)
        c->yarn_beta_slow = (float)r->beta_slow;
}
