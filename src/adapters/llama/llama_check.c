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

/* ---- the door ---- */

enum md_status md_llama_check(struct md_gguf *file, const struct md_llama_arch *arch,
                              const struct md_model_facts *facts, struct md_err *err)
{
    struct subject s = {
        .file = file, .arch = facts->architecture, .memory = arch->memory, .shape = &facts->shape, .err = err
    };
    s.layers = (int32_t)value(&s, "block_count", 0);
    check_state_space(&s);
    check_kept(&s);
    return s.status;
}
