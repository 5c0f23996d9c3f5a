/* fake_model.c - see fake_model.h.  Every weight is drawn in a fixed order, so a new tensor goes last. */
#include "engine/fake_model.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct md_fake_dims md_fake_dims_default(void)
{
    return (struct md_fake_dims){ .layers = 2,
                                  .width = 32,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 8,
                                  .ffn = 64,
                                  .vocab = MD_FAKE_BYTE_VOCAB,
                                  .trained_tokens = 262144,
                                  .rope_base = 10000.0f,
                                  .norm_eps = 1e-5f };
}

struct md_fake_dims md_fake_dims_exact(void)
{
    return (struct md_fake_dims){ .layers = 4,
                                  .width = 64,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .ffn = 128,
                                  .vocab = MD_FAKE_BYTE_VOCAB,
                                  .trained_tokens = 262144,
                                  .rope_base = 10000.0f,
                                  .norm_eps = 1e-5f };
}

uint64_t md_fake_hash(uint64_t start, const void *words, size_t bytes)
{
    const unsigned char *p = words;
    uint64_t h = start ^ 0xcbf29ce484222325u; /* FNV-1a, a word at a time */
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t w;
        memcpy(&w, p + i, 4);
        h = (h ^ w) * 0x100000001b3u;
    }
    return h ^ (h >> 29);
}

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct maker {
    float *next;
    uint64_t random;
};

/* Nearly normal: the sum of four 16-bit draws.  No library function that may differ by machine. */
static const float *draw(struct maker *m, int32_t rows, int32_t cols, float mean, float deviation)
{
    const float *first = m->next;
    const float unit = deviation / 37837.2f; /* the deviation of that sum: 65536 / sqrt(3) */
    for (size_t i = 0; i < (size_t)rows * (size_t)cols; i++) {
        uint64_t r = next_random(&m->random);
        int32_t sum = (int32_t)(r & 0xffff) + (int32_t)(r >> 16 & 0xffff) + (int32_t)(r >> 32 & 0xffff) +
                      (int32_t)(r >> 48) - 2 * 0xffff;
        volatile float part =
            (float)sum * unit; /* volatile: no fused multiply-add on machines that have it */
        *m->next++ = part + mean;
    }
    return first;
}

static size_t weights_needed(const struct md_fake_dims *d)
{
    size_t w = (size_t)d->width, q = (size_t)d->heads * (size_t)d->head_dim;
    size_t kv = (size_t)d->kv_heads * (size_t)d->head_dim, f = (size_t)d->ffn;
    size_t layer = 2 * w + 2 * q * w + 2 * kv * w + 3 * f * w;
    return 2 * (size_t)d->vocab * w + w + (size_t)d->layers * layer;
}

static enum md_status check_dims(const struct md_fake_dims *d, struct md_err *err)
{
    static const int32_t most = 1 << 14; /* keeps every product far from overflow */
    const struct {
        const char *name;
        int32_t value;
        int32_t max;
    } all[] = {
        { "layers", d->layers, MD_FAKE_LAYERS_MAX },
        { "width", d->width, most },
        { "heads", d->heads, 256 },
        { "kv_heads", d->kv_heads, 256 },
        { "head_dim", d->head_dim, 256 },
        { "ffn", d->ffn, most },
        { "vocab", d->vocab, 1 << 20 },
        { "trained_tokens", d->trained_tokens, INT32_MAX },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].value < 1 || all[i].value > all[i].max)
            return md_fail(err, MD_INVALID, "fake model: %s must be between 1 and %d, got %d", all[i].name,
                           all[i].max, all[i].value);
    if (d->heads % d->kv_heads != 0)
        return md_fail(err, MD_INVALID, "fake model: %d heads do not share %d kv_heads evenly", d->heads,
                       d->kv_heads);
    if (d->head_dim % 2 != 0)
        return md_fail(err, MD_INVALID, "fake model: head_dim must be even, got %d", d->head_dim);
    if (d->tail_period < 0 || d->tail_period == 1)
        return md_fail(err, MD_INVALID, "fake model: tail_period must be 0 or at least 2, got %d",
                       d->tail_period);
    if (d->window_tokens < 0 || d->window_tokens > most || (d->window_tokens > 0 && d->tail_period == 0))
        return md_fail(
            err, MD_INVALID,
            "fake model: window_tokens must be between 0 and %d, and 0 without tail_period, got %d", most,
            d->window_tokens);
    if (!(d->rope_base > 1.0f) || !(d->norm_eps > 0.0f))
        return md_fail(err, MD_INVALID, "fake model: rope_base must be above 1 and norm_eps above 0");
    return MD_OK;
}

static void make_weights(struct md_fake_model *m)
{
    const struct md_fake_dims d = m->dims;
    const int32_t q = d.heads * d.head_dim, kv = d.kv_heads * d.head_dim;
    const float by_width = 1.0f / sqrtf((float)d.width);
    struct maker k = { .next = m->weights, .random = m->seed };
    m->embed = draw(&k, d.vocab, d.width, 0, 1);
    m->output_norm = draw(&k, 1, d.width, 1, 0.1f);
    m->output = draw(&k, d.vocab, d.width, 0, 4 * by_width); /* so that the best token stands out */
    for (int32_t i = 0; i < d.layers; i++) {
        struct md_fake_layer *l = &m->layers[i];
        l->attn_norm = draw(&k, 1, d.width, 1, 0.1f); /* not all ones: a forgotten one must show */
        l->q = draw(&k, q, d.width, 0, 2 * by_width); /* twice: attention that chooses, not an average */
        l->k = draw(&k, kv, d.width, 0, 2 * by_width);
        l->v = draw(&k, kv, d.width, 0, by_width);
        l->o = draw(&k, d.width, q, 0, 1.0f / sqrtf((float)q));
        l->ffn_norm = draw(&k, 1, d.width, 1, 0.1f);
        l->gate = draw(&k, d.ffn, d.width, 0, by_width);
        l->up = draw(&k, d.ffn, d.width, 0, by_width);
        l->down = draw(&k, d.width, d.ffn, 0, 1.0f / sqrtf((float)d.ffn));
    }
}

enum md_status md_fake_model_open(const struct md_fake_dims *dims, uint64_t seed,
                                  const struct md_alloc *alloc, struct md_fake_model **ret_model,
                                  struct md_err *err)
{
    enum md_status s = check_dims(dims, err);
    if (s != MD_OK)
        return s;
    struct md_fake_model *m = md_calloc(alloc, 1, sizeof *m);
    if (m == NULL)
        return md_fail(err, MD_NO_MEMORY, "fake model");
    *m = (struct md_fake_model){
        .dims = *dims, .seed = seed, .alloc = alloc, .weight_count = weights_needed(dims)
    };
    m->weights = md_calloc(alloc, m->weight_count, sizeof *m->weights);
    if (m->weights == NULL) {
        s = md_fail(err, MD_NO_MEMORY, "fake model: %zu weights", m->weight_count);
        md_free(alloc, m);
        return s;
    }
    make_weights(m);
    /* a model without a tail state has the name it always had */
    const size_t plain = offsetof(struct md_fake_dims, tail_period);
    const uint64_t shape = md_fake_hash(0, dims, dims->tail_period == 0 ? plain : sizeof *dims);
    m->fingerprint = md_fake_hash(shape, m->weights, m->weight_count * sizeof(float));
    *ret_model = m;
    return MD_OK;
}

void md_fake_model_close(struct md_fake_model *m)
{
    if (m == NULL)
        return;
    md_free(m->alloc, m->weights);
    md_free(m->alloc, m);
}
