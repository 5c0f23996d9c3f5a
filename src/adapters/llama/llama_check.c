/* llama_check.c - what a header may declare and the library then asserts on instead of refusing: an assertion
 * in it ends the process.  Looked at once the layout is known; nothing of the library is started.
 *
 * A rule names its place in llama.cpp's src/: models/NAME.cpp of a family unless said.  What the library
 * refuses by itself is not repeated here. */
#include "adapters/llama/llama_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The first failure sticks, so that checking is a list. */
struct subject {
    struct md_gguf *file;
    const char *arch;
    enum md_llama_memory memory;
    const struct md_kv_shape *shape;
    int32_t layers; /* as declared */
    enum md_status status;
    struct md_err *err;
};

enum { ABSENT = -1 };

static bool is_one_of(const char *arch, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], arch) == 0)
            return true;
    return false;
}
#define ONE_OF(arch, names) is_one_of(arch, names, sizeof(names) / sizeof(names)[0])

/* A value of another type is the loader's to refuse. */
static int64_t value(const struct subject *s, const char *name, int64_t absent)
{
    char key[160];
    int64_t v = absent;
    snprintf(key, sizeof key, "%s.%s", s->arch, name);
    return md_gguf_int(s->file, key, 0, UINT32_MAX, &v, NULL) == MD_OK ? v : absent;
}

__attribute__((format(printf, 5, 6))) static void need(struct subject *s, bool met, const char *name,
                                                       int64_t v, const char *wanted, ...)
{
    char text[120];
    va_list ap;
    if (met || s->status != MD_OK)
        return;
    va_start(ap, wanted);
    vsnprintf(text, sizeof text, wanted, ap);
    va_end(ap);
    if (v == ABSENT)
        s->status = md_fail(s->err, MD_INVALID, "model '%s': '%s.%s' is missing, %s is needed",
                            md_gguf_path(s->file), s->arch, name, text);
    else
        s->status = md_fail(s->err, MD_INVALID, "model '%s': '%s.%s' is %" PRId64 ", %s is needed",
                            md_gguf_path(s->file), s->arch, name, v, text);
}

/* ---- layers ---- */

/* An empty cache has no buffer, and the library asks that buffer for its name.  (Source: the constructors in
 * llama-memory-recurrent.cpp and llama-kv-cache.cpp; ggml-backend.cpp asserts.) */
static void check_kept(struct subject *s)
{
    bool state = s->memory != MD_LLAMA_MEMORY_HYBRID, kv = s->memory == MD_LLAMA_MEMORY_RECURRENT;
    for (int32_t i = 0; i < s->shape->layer_count; i++) {
        const struct md_kv_layer *l = &s->shape->layers[i];
        state = state || l->state_bytes > 0;
        kv = kv || (l->kv_heads > 0 && !l->shared);
    }
    if (s->status == MD_OK && !kv)
        s->status = md_fail(s->err, MD_INVALID,
                            "model '%s': of %d layers none has KV heads ('%s.attention.head_count_kv'), one "
                            "is needed",
                            md_gguf_path(s->file), s->layers, s->arch);
    if (s->status == MD_OK && !state)
        s->status = md_fail(s->err, MD_INVALID,
                            "model '%s': of %d layers none is recurrent, which one is needed of "
                            "architecture '%s'",
                            md_gguf_path(s->file), s->layers, s->arch);
}

/* ---- recurrent layers ---- */

/* mamba-base.cpp (build_mamba2_layer). */
static const char *const mamba2_layers[] = { "mamba2", "falcon-h1", "nemotron_h", "nemotron_h_moe",
                                             "granitehybrid" };
static const char *const delta_layers[] = { "qwen3next", "qwen35", "qwen35moe" };

static void check_state_space(struct subject *s)
{
    const int64_t inner = value(s, "ssm.inner_size", ABSENT), size = value(s, "ssm.state_size", ABSENT);
    const int64_t rank = value(s, "ssm.time_step_rank", ABSENT), groups = value(s, "ssm.group_count", ABSENT);
    const bool plamo2 = strcmp(s->arch, "plamo2") == 0;
    if (plamo2)
        need(s, groups <= 0, "ssm.group_count", groups, "0");
    if (inner < 0 || rank < 0)
        return; /* the loader says so */
    if (plamo2 || ONE_OF(s->arch, mamba2_layers))
        need(s, rank > 0 && inner % rank == 0, "ssm.time_step_rank", rank,
             "a divisor of the inner size %" PRId64, inner);
    if (ONE_OF(s->arch, mamba2_layers) && groups > 0)
        need(s, inner % groups == 0 && rank % groups == 0, "ssm.group_count", groups,
             "a divisor of the inner size %" PRId64 " and of the time step rank %" PRId64, inner, rank);
    if (ONE_OF(s->arch, delta_layers)) {
        need(s, rank > 0 && inner == size * rank, "ssm.inner_size", inner,
             "the state size %" PRId64 " times the time step rank %" PRId64, size, rank);
        need(s, groups <= 0 || rank % groups == 0, "ssm.group_count", groups,
             "a divisor of the time step rank %" PRId64, rank);
    }
    if (strcmp(s->arch, "jamba") == 0 || strcmp(s->arch, "granitehybrid") == 0)
        need(s, inner == 2 * value(s, "embedding_length", 0), "ssm.inner_size", inner,
             "twice the embedding length %" PRId64, value(s, "embedding_length", 0));
}

/* rwkv6.cpp, rwkv7.cpp: token_shift_count == 2; the others: n_embd == n_embd_r() */
static void check_wkv(struct subject *s)
{
    const bool two = strcmp(s->arch, "rwkv6") == 0 || strcmp(s->arch, "rwkv7") == 0;
    const bool six = strncmp(s->arch, "rwkv6", 5) == 0;
    const int64_t shifts = value(s, "token_shift_count", ABSENT), length = value(s, "wkv.head_size", ABSENT);
    const int64_t width = value(s, "embedding_length", 0);
    const int64_t kv = value(s, "attention.head_count_kv", value(s, "attention.head_count", 0));
    if (!two && !six && strcmp(s->arch, "arwkv7") != 0)
        return;
    need(s, two ? shifts == ABSENT || shifts == 2 : shifts == 1, "token_shift_count", shifts, "%d",
         two ? 2 : 1);
    if (length <= 0)
        return; /* the loader says so */
    need(s, width % length == 0, "wkv.head_size", length, "a divisor of the embedding length %" PRId64,
         width);
    need(s, !six || kv == 0 || width / length % kv == 0, "attention.head_count_kv", kv,
         "a divisor of %" PRId64 " heads", width / length);
}

/* lfm2.cpp: n_shortconv_l_cache > 1 */
static void check_short_convolution(struct subject *s)
{
    if (strncmp(s->arch, "lfm2", 4) == 0)
        need(s, value(s, "shortconv.l_cache", 2) > 1, "shortconv.l_cache", value(s, "shortconv.l_cache", 2),
             "2 or more");
}

/* ---- attention ---- */

/* Their graphs assert that keys are as long as values, or take one length for both (llm_graph_context::build_qkv,
 * which reshapes)... */
static const char *const equal_lengths[] = {
    "afmoe",         "bailingmoe",    "bailingmoe2", "bitnet",     "bloom",          "chatglm",    "cohere2",
    "command-r",     "deepseek2-ocr", "gemma4",      "glm4",       "glm4moe",        "gpt2",       "gptneox",
    "granitehybrid", "falcon-h1",     "gemma",       "gemma2",     "gemma3",         "gemma3n",    "jais",
    "jamba",         "lfm2",          "lfm2moe",     "laguna",     "minimax-01",     "minimax-m2", "mpt",
    "muse-glimmer",  "nanbeige",      "nemotron",    "nemotron_h", "nemotron_h_moe", "openelm",    "phi2",
    "phi3",          "phimoe",        "qwen",        "qwen3next",  "qwen35",         "qwen35moe",  "refact",
    "stablelm",      "starcoder"
};
/* ... and these also that a whole head is rotated. */
static const char *const whole_heads[] = {
    "apertus",   "arcee",          "arctic",      "baichuan",      "chameleon",  "codeshell",
    "cogvlm",    "cohere2moe",     "dbrx",        "deci",          "deepseek",   "dots1",
    "ernie4_5",  "ernie4_5-moe",   "exaone",      "exaone4",       "exaone-moe", "falcon",
    "granite",   "granite_swa",    "granitemoe",  "graniteswitch", "gpt-oss",    "grok",
    "grovemoe",  "hunyuan-dense",  "hunyuan-moe", "hunyuan_vl",    "hy_v3",      "internlm2",
    "jais2",     "llama",          "llama-embed", "llama4",        "maincoder",  "mellum",
    "minicpm",   "mistral3",       "olmo",        "olmo2",         "olmoe",      "orion",
    "paddleocr", "pangu-embedded", "plamo",       "pockettts",     "qwen2",      "qwen2moe",
    "qwen2vl",   "qwen3",          "qwen3moe",    "qwen3tts",      "qwen3vl",    "qwen3vlmoe",
    "seed_oss",  "smallthinker",   "smollm3",     "starcoder2",    "talkie",     "xverse"
};
/* These rotate nothing, or what they declare of it is not used. */
static const char *const not_rotated[] = { "bloom",          "gpt2",    "jais",     "jamba",
                                           "kimi-linear",    "kimi-k3", "mpt",      "nemotron_h",
                                           "nemotron_h_moe", "refact",  "starcoder" };
/* They have lengths of their own in windowed layers; graphs of the others take those of the first layer. */
static const char *const two_lengths[] = { "gemma4", "mimo2", "step35" };
/* deepseek2.cpp: n_embd_head_qk_nope >= 1 */
static const char *const partly_rotated[] = { "deepseek2", "mistral4" };

/* load_arch_tensors makes the matrix behind attention as wide as the model, so the heads together are that wide. */
static const char *const full_width[] = {
    "arctic",   "baichuan",  "bitnet",   "bloom",     "chameleon",     "chatglm", "codeshell",
    "cohere2",  "command-r", "dbrx",     "deepseek",  "deepseek2-ocr", "exaone4", "falcon",
    "gpt2",     "gptneox",   "grok",     "internlm2", "jais",          "jamba",   "lfm2",
    "lfm2moe",  "mpt",       "nemotron", "olmo",      "olmo2",         "olmoe",   "orion",
    "phi2",     "phi3",      "phimoe",   "plamo",     "pockettts",     "qwen",    "qwen2",
    "qwen2moe", "qwen2vl",   "stablelm", "starcoder", "starcoder2",    "xverse"
};

/* ggml.c: ggml_can_mul_mat(k, q), and of what comes out */
static void check_heads(struct subject *s, const int64_t *heads)
{
    const int64_t width = value(s, "embedding_length", 0);
    const bool full = ONE_OF(s->arch, full_width);
    for (int32_t i = 0; i < s->layers && i < s->shape->layer_count && s->status == MD_OK; i++) {
        const struct md_kv_layer *l = &s->shape->layers[i];
        if (l->kv_heads == 0 || l->shared)
            continue;
        if (heads[i] % l->kv_heads != 0)
            s->status = md_fail(s->err, MD_INVALID,
                                "model '%s': '%s.attention.head_count' is %" PRId64
                                " in layer %d, a multiple of its %d KV heads is needed",
                                md_gguf_path(s->file), s->arch, heads[i], i, l->kv_heads);
        else if (full && heads[i] * l->value_length != width)
            s->status = md_fail(s->err, MD_INVALID,
                                "model '%s': '%s.attention.head_count' is %" PRId64
                                " in layer %d, of %d values each; the embedding length %" PRId64
                                " is needed of them together",
                                md_gguf_path(s->file), s->arch, heads[i], i, l->value_length, width);
    }
}

/* A row of the cache is what the keys are put together from: one head, a compressed part and a rotated one
 * (deepseek2.cpp and the others: Kcur; ggml.c asserts in ggml_set_rows). */
static void check_latent(struct subject *s, int64_t rotated_values)
{
    const int64_t rank = value(s, "attention.kv_lora_rank", ABSENT);
    for (int32_t i = 0; i < s->shape->layer_count; i++) {
        const struct md_kv_layer *l = &s->shape->layers[i];
        if (l->kv_heads == 0 || !l->keys_only)
            continue;
        need(s, l->kv_heads == 1, "attention.head_count_kv", l->kv_heads, "1");
        need(s, rank < 0 || l->key_length == rank + rotated_values, "attention.key_length", l->key_length,
             "the KV rank %" PRId64 " and the %" PRId64 " rotated values", rank, rotated_values);
    }
}

/* Of a layer without a window of its own, or with one.  Source: llama-model.cpp (load_hparams). */
static int64_t rotated(const struct subject *s, int64_t first_heads, bool windowed)
{
    int64_t n = value(s, "rope.dimension_count", ABSENT);
    if (n == ABSENT)
        n = value(s, "attention.key_length", value(s, "embedding_length", 0) / first_heads);
    if (windowed)
        return value(s, "rope.dimension_count_swa", n);
    return strcmp(s->arch, "step35") == 0 ? n / 2 : n; /* step35.cpp: n_rot_full / 2 */
}

static void check_lengths(struct subject *s, int64_t first_heads)
{
    const struct md_kv_layer *first = &s->shape->layers[0];
    const bool whole = ONE_OF(s->arch, whole_heads);
    const char *const name = first->window_cells ? "rope.dimension_count_swa" : "rope.dimension_count";
    const int64_t n = rotated(s, first_heads, first->window_cells);
    if (whole || ONE_OF(s->arch, equal_lengths))
        need(s, first->key_length == first->value_length, "attention.value_length", first->value_length,
             "the length %d of keys", first->key_length);
    if (whole)
        need(s, n == first->key_length, name, n, "the length %d of keys", first->key_length);
    for (int32_t i = 1; i < s->shape->layer_count && !ONE_OF(s->arch, two_lengths); i++) {
        const struct md_kv_layer *l = &s->shape->layers[i];
        const struct md_kv_layer *w = l->window_cells ? l : first, *other = l->window_cells ? first : l;
        if (l->kv_heads == 0)
            continue;
        need(s, w->key_length == other->key_length, "attention.key_length_swa", w->key_length,
             "the length %d of the other layers", other->key_length);
        need(s, w->value_length == other->value_length, "attention.value_length_swa", w->value_length,
             "the length %d of the other layers", other->value_length);
    }
    if (ONE_OF(s->arch, partly_rotated)) {
        const int64_t keys =
            value(s, "attention.key_length_mla", 0) > 0 && value(s, "attention.value_length_mla", 0) > 0
                ? value(s, "attention.key_length_mla", 0)
                : first->key_length;
        need(s, n < keys, name, n, "less than the length %" PRId64 " of keys", keys);
    }
}

/* ggml-cpu/ops.cpp: n_dims <= ne0, n_dims % 2 == 0; with 0 it never comes back.  granite-hybrid.cpp rotates only
 * where the file says so. */
static void check_rotation(struct subject *s, int64_t first_heads)
{
    for (int32_t i = 0; i < s->shape->layer_count; i++) {
        const struct md_kv_layer *l = &s->shape->layers[i];
        const int64_t n = rotated(s, first_heads, l->window_cells);
        if (l->kv_heads > 0)
            need(s, n <= l->key_length && n % 2 == 0 && (n > 0 || strcmp(s->arch, "granitehybrid") == 0),
                 l->window_cells ? "rope.dimension_count_swa" : "rope.dimension_count", n,
                 "an even number from 2 to the length %d of keys", l->key_length);
    }
}

static void check_attention(struct subject *s)
{
    int64_t heads[MD_LAYERS_MAX] = { 0 };
    char key[160];
    snprintf(key, sizeof key, "%s.attention.head_count", s->arch);
    if (s->status != MD_OK || md_gguf_find(s->file, key) == NULL)
        return;
    s->status = md_gguf_ints(s->file, key, 0, INT32_MAX, heads, (size_t)s->layers, s->err);
    check_heads(s, heads);
    if (s->status != MD_OK || heads[0] == 0)
        return; /* the library reads no lengths then, and rotates nothing */
    check_lengths(s, heads[0]);
    check_latent(s, rotated(s, heads[0], false));
    if (!ONE_OF(s->arch, not_rotated))
        check_rotation(s, heads[0]);
}

/* ---- experts ---- */

static const char *const need_experts[] = { "bailingmoe2", "glm4moe", "grovemoe", "smallthinker" };
/* Without experts when there is one (llama-model.cpp, load_hparams). */
static const char *const one_is_none[] = { "hunyuan_vl", "hunyuan-dense" };
/* They read how experts are gated, and have no way of their own when none is declared... */
static const char *const gated_as_declared[] = { "bailingmoe2", "bailingmoe3", "dots1",
                                                 "exaone-moe",  "kimi-linear", "kimi-k3",
                                                 "lfm2moe",     "minimax-m2",  "smallthinker" };
/* ... or have one. */
static const char *const gated[] = { "afmoe", "cohere2moe", "deepseek2", "deepseek2-ocr", "glm4moe",
                                     "hy_v3", "laguna",     "mistral4",  "step35" };

static void check_groups(struct subject *s, int64_t experts)
{
    const int64_t groups = value(s, "expert_group_count", 0), used = value(s, "expert_group_used_count", 0);
    need(s, groups == 0 || groups < experts, "expert_group_count", groups, "less than %" PRId64 " experts",
         experts);
    if (groups > 1) {
        need(s, experts % groups == 0, "expert_group_count", groups, "a divisor of %" PRId64 " experts",
             experts);
        need(s, used > 0 && used < groups, "expert_group_used_count", used,
             "1 or more and less than %" PRId64, groups);
    }
}

/* llama-model.cpp (load_hparams), and the families' load_arch_tensors; llama-graph.cpp (build_moe_ffn). */
static void check_experts(struct subject *s)
{
    enum { EXPERTS_MAX = 1024, GATINGS = 4 };
    int64_t used[MD_LAYERS_MAX] = { 0 }, most = 0;
    char key[160];
    const int64_t experts = value(s, "expert_count", 0), gating = value(s, "expert_gating_func", ABSENT);
    snprintf(key, sizeof key, "%s.expert_used_count", s->arch);
    if (s->status == MD_OK && md_gguf_find(s->file, key) != NULL)
        s->status = md_gguf_ints(s->file, key, 0, EXPERTS_MAX, used, (size_t)s->layers, s->err);
    for (int32_t i = 0; i < s->layers; i++)
        most = used[i] > most ? used[i] : most;
    if (ONE_OF(s->arch, one_is_none) && experts <= 1)
        return;
    const bool mixed =
        strcmp(s->arch, "lfm2moe") == 0 && value(s, "leading_dense_block_count", 0) < s->layers;
    if (mixed || ONE_OF(s->arch, need_experts))
        need(s, experts > 0, "expert_count", experts, "1 or more");
    need(s, experts <= EXPERTS_MAX, "expert_count", experts, "at most %d", EXPERTS_MAX);
    need(s, most <= experts && (experts == 0 || most > 0), "expert_used_count", most,
         "%d to %" PRId64 " of its experts", experts > 0, experts);
    check_groups(s, experts);
    if (strcmp(s->arch, "ernie4_5-moe") == 0) /* ernie4-5-moe.cpp: n_moe_layer_step > 0 */
        need(s, value(s, "interleave_moe_layer_step", 1) > 0, "interleave_moe_layer_step", 0, "1 or more");
    if (strcmp(s->arch, "grovemoe") == 0)
        need(s, value(s, "experts_per_group", ABSENT) > 0, "experts_per_group",
             value(s, "experts_per_group", ABSENT), "1 or more");
    if (experts > 0 && ONE_OF(s->arch, gated_as_declared))
        need(s, gating >= 1 && gating <= GATINGS, "expert_gating_func", gating, "1 to %d", GATINGS);
    else if (experts > 0 && ONE_OF(s->arch, gated))
        need(s, gating <= GATINGS, "expert_gating_func", gating, "0 to %d", GATINGS);
}

/* ---- tensors ---- */

static bool ends_with(const char *text, const char *tail)
{
    const size_t a = strlen(text), b = strlen(tail);
    return a >= b && strcmp(text + a - b, tail) == 0;
}

/* Added, multiplied element by element, or convolved with: f32 only (ggml-cpu/binary-ops.cpp, ops.cpp).  The
 * converter writes all of these so (conversion/base.py, prepare_tensors).  A router of one row or a score may
 * have one dimension and is a matrix still. */
static bool is_plain(const struct md_gguf_tensor *t)
{
    if (!ends_with(t->name, ".weight") || strstr(t->name, "norm") != NULL ||
        strstr(t->name, "ssm_conv1d") != NULL || strstr(t->name, "shortconv.conv") != NULL)
        return true;
    return t->dimension_count == 1 && strstr(t->name, "gate_inp") == NULL && strstr(t->name, "cls") == NULL &&
           strstr(t->name, "score") == NULL;
}

/* Types that ggml computes with but nothing is multiplied with: no vec_dot, or no to_float (ggml-cpu.c). */
static const char *const no_weights[] = { "i8", "i16", "i32", "i64", "f64", "q8_1", "q8_K" };

/* mamba-base.cpp adds it in each of these, though the file need not have it. */
static const char *const convolution_bias[] = { "falcon-h1", "granitehybrid", "nemotron_h",
                                                "nemotron_h_moe" };

static bool has_tensor(const struct subject *s, const char *name)
{
    for (size_t i = 0; i < md_gguf_tensor_count(s->file); i++)
        if (strcmp(md_gguf_tensor_at(s->file, i)->name, name) == 0)
            return true;
    return false;
}

static void check_bias(struct subject *s)
{
    char name[48];
    if (!ONE_OF(s->arch, convolution_bias) || md_gguf_tensor_count(s->file) == 0)
        return;
    for (int32_t i = 0; i < s->shape->layer_count && s->status == MD_OK; i++) {
        snprintf(name, sizeof name, "blk.%d.ssm_conv1d.bias", i);
        if (s->shape->layers[i].state_bytes > 0 && !has_tensor(s, name))
            s->status =
                md_fail(s->err, MD_INVALID, "model '%s': tensor '%s' is missing, architecture '%s' needs it",
                        md_gguf_path(s->file), name, s->arch);
    }
}

static void check_tensors(struct subject *s)
{
    check_bias(s);
    for (size_t i = 0; i < md_gguf_tensor_count(s->file) && s->status == MD_OK; i++) {
        const struct md_gguf_tensor *t = md_gguf_tensor_at(s->file, i);
        const bool plain = is_plain(t);
        if (plain ? strcmp(t->type, "f32") != 0 : ONE_OF(t->type, no_weights))
            s->status = md_fail(s->err, MD_INVALID, "model '%s': tensor '%s' is of type %s, %s is needed",
                                md_gguf_path(s->file), t->name, t->type, plain ? "f32" : "a type of weights");
    }
}

/* ---- the door ---- */

enum md_status md_llama_check(struct md_gguf *file, const struct md_llama_arch *arch,
                              const struct md_model_facts *facts, struct md_err *err)
{
    struct subject s = {
        .file = file, .arch = facts->architecture, .memory = arch->memory, .shape = &facts->shape, .err = err
    };
    s.layers = (int32_t)value(&s, "block_count", 0);
    check_attention(&s);
    check_experts(&s);
    check_state_space(&s);
    check_wkv(&s);
    check_short_convolution(&s);
    check_kept(&s);
    check_tensors(&s);
    return s.status;
}
