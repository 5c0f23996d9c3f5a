/* exact_model.c - the keys, the vocabulary and the tensors of the exact model. */
#include "support/exact_model.h"

#include "support/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 3, TOKEN_BYTE = 6 };

static const char chat_template[] = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
                                    "{% if add_generation_prompt %}assistant: {% endif %}";

static void put_hyperparameters(struct gguf_writer *w, const struct md_fake_dims *d)
{
    gw_string(w, "general.architecture", "llama");
    gw_string(w, "general.name", "modeld exact test model");
    gw_u32(w, "general.file_type", 0); /* all f32 */
    gw_u32(w, "llama.block_count", (uint32_t)d->layers);
    gw_u32(w, "llama.context_length", (uint32_t)d->trained_tokens);
    gw_u32(w, "llama.embedding_length", (uint32_t)d->width);
    gw_u32(w, "llama.feed_forward_length", (uint32_t)d->ffn);
    gw_u32(w, "llama.attention.head_count", (uint32_t)d->heads);
    gw_u32(w, "llama.attention.head_count_kv", (uint32_t)d->kv_heads);
    gw_u32(w, "llama.attention.key_length", (uint32_t)d->head_dim);
    gw_u32(w, "llama.attention.value_length", (uint32_t)d->head_dim);
    gw_f32(w, "llama.attention.layer_norm_rms_epsilon", d->norm_eps);
    gw_u32(w, "llama.rope.dimension_count", (uint32_t)d->head_dim);
    gw_f32(w, "llama.rope.freq_base", d->rope_base);
    gw_u32(w, "llama.vocab_size", (uint32_t)d->vocab);
}

void md_exact_model_vocabulary(struct gguf_writer *w)
{
    const int32_t vocab = MD_FAKE_BYTE_VOCAB;
    gw_string(w, "tokenizer.ggml.model", "llama");
    gw_array(w, "tokenizer.ggml.tokens", MD_GGUF_STRING, (uint64_t)vocab);
    gw_put_string(w, "<unk>");
    gw_put_string(w, "<s>");
    gw_put_string(w, "</s>");
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte & 0xffu);
        gw_put_string(w, name);
    }
    gw_array(w, "tokenizer.ggml.scores", MD_GGUF_F32, (uint64_t)vocab);
    for (int32_t i = 0; i < vocab; i++)
        gw_put(w, &(float){ 0 }, sizeof(float));
    gw_array(w, "tokenizer.ggml.token_type", MD_GGUF_I32, (uint64_t)vocab);
    for (int32_t i = 0; i < vocab; i++)
        gw_put_u32(w, i == 0 ? TOKEN_UNKNOWN : i < MD_EXACT_TOKEN_OF_BYTE_0 ? TOKEN_CONTROL : TOKEN_BYTE);
    gw_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gw_u32(w, "tokenizer.ggml.eos_token_id", MD_EXACT_TOKEN_END);
    gw_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gw_bool(w, "tokenizer.ggml.add_bos_token", false);
    gw_bool(w, "tokenizer.ggml.add_space_prefix", false);
    gw_string(w, "tokenizer.chat_template", chat_template);
}

/* A file, or one of several: the tensors [first, end) of all. */
struct part {
    struct gguf_writer *w;
    int first, end, seen;
};

/* Tensors are announced first and written after, in one order: each of these does either. */
typedef void tensor_fn(struct gguf_writer *w, const char *name, const float *data, int32_t rows,
                       int32_t cols);

static void announce(struct gguf_writer *w, const char *name, const float *data, int32_t rows, int32_t cols)
{
    (void)data;
    const uint64_t dimensions[] = { (uint64_t)cols, (uint64_t)rows }; /* the innermost first */
    gw_tensor(w, name, GW_F32, dimensions, rows == 1 ? 1 : 2, dimensions[0] * dimensions[1] * sizeof(float));
}

static void write_data(struct gguf_writer *w, const char *name, const float *data, int32_t rows, int32_t cols)
{
    (void)name;
    gw_data(w, data, (size_t)rows * (size_t)cols * sizeof(float));
}

static void one(struct part *p, tensor_fn *fn, const char *name, const float *data, int32_t rows,
                int32_t cols)
{
    if (p->seen >= p->first && p->seen < p->end)
        fn(p->w, name, data, rows, cols);
    p->seen++;
}

static void each_tensor(struct part *p, const struct md_fake_model *m, tensor_fn *fn)
{
    p->seen = 0;
    const struct md_fake_dims *d = &m->dims;
    const int32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    one(p, fn, "token_embd.weight", m->embed, d->vocab, d->width);
    one(p, fn, "output_norm.weight", m->output_norm, 1, d->width);
    one(p, fn, "output.weight", m->output, d->vocab, d->width);
    for (int32_t i = 0; i < d->layers; i++) {
        const struct md_fake_layer *l = &m->layers[i];
        const struct {
            const char *name;
            const float *data;
            int32_t rows, cols;
        } all[] = {
            { "attn_norm", l->attn_norm, 1, d->width }, { "attn_q", l->q, q, d->width },
            { "attn_k", l->k, kv, d->width },           { "attn_v", l->v, kv, d->width },
            { "attn_output", l->o, d->width, q },       { "ffn_norm", l->ffn_norm, 1, d->width },
            { "ffn_gate", l->gate, d->ffn, d->width },  { "ffn_up", l->up, d->ffn, d->width },
            { "ffn_down", l->down, d->width, d->ffn },
        };
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, all[j].name);
            one(p, fn, name, all[j].data, all[j].rows, all[j].cols);
        }
    }
}

enum md_status md_exact_model_open(struct md_fake_model **ret_model, struct md_err *err)
{
    const struct md_fake_dims dims = md_fake_dims_exact();
    return md_fake_model_open(&dims, 1, NULL, ret_model, err);
}

static enum md_status finish(struct part *p, const struct md_fake_model *m, const char *path,
                             struct md_err *err)
{
    each_tensor(p, m, announce);
    gw_pad(p->w);
    each_tensor(p, m, write_data);
    enum md_status s = gw_save(p->w, path, err);
    gw_done(p->w);
    return s;
}

enum md_status md_exact_model_write(const struct md_fake_model *m, const char *path, struct md_err *err)
{
    return md_exact_model_write_with(m, NULL, NULL, path, err);
}

enum md_status md_exact_model_write_with(const struct md_fake_model *m,
                                         void (*more)(struct gguf_writer *w, void *user), void *user,
                                         const char *path, struct md_err *err)
{
    if (m->dims.vocab != MD_FAKE_BYTE_VOCAB)
        return md_fail(err, MD_INVALID, "the exact model has %d tokens, not %d", MD_FAKE_BYTE_VOCAB,
                       m->dims.vocab);
    struct gguf_writer w;
    struct part all = { &w, 0, INT32_MAX, 0 };
    gw_init(&w);
    put_hyperparameters(&w, &m->dims);
    if (more != NULL)
        more(&w, user);
    md_exact_model_vocabulary(&w);
    return finish(&all, m, path, err);
}

enum md_status md_exact_model_write_parts(const struct md_fake_model *m, const char *prefix,
                                          struct md_err *err)
{
    enum { TENSORS_FIRST = 10, PARTS = 2 };
    enum md_status s = MD_OK;
    for (int i = 0; i < PARTS && s == MD_OK; i++) {
        struct gguf_writer w;
        struct part part = { &w, i == 0 ? 0 : TENSORS_FIRST, i == 0 ? TENSORS_FIRST : INT32_MAX, 0 };
        char path[512];
        snprintf(path, sizeof path, "%s-%05d-of-%05d.gguf", prefix, i + 1, PARTS);
        gw_init(&w);
        if (i == 0) {
            put_hyperparameters(&w, &m->dims);
            md_exact_model_vocabulary(&w);
        }
        gw_int(&w, "split.no", MD_GGUF_U16, i);
        gw_int(&w, "split.count", MD_GGUF_U16, PARTS);
        gw_int(&w, "split.tensors.count", MD_GGUF_I32, 3 + 9 * m->dims.layers);
        s = finish(&part, m, path, err);
    }
    return s;
}

bool md_exact_model_file(const char *what, struct md_fake_model **ret_model, char *out, size_t out_bytes)
{
    return md_exact_model_file_of(what, md_exact_model_open, ret_model, out, out_bytes);
}

bool md_exact_model_file_of(const char *what,
                            enum md_status (*open)(struct md_fake_model **ret_model, struct md_err *err),
                            struct md_fake_model **ret_model, char *out, size_t out_bytes)
{
    const char *tmp = getenv("TMPDIR");
    struct md_err err = { 0 };
    snprintf(out, out_bytes, "%s/modeld-%s-%ld.gguf", tmp != NULL ? tmp : "/tmp", what, (long)getpid());
    *ret_model = NULL;
    enum md_status s = open(ret_model, &err);
    if (s == MD_OK)
        s = md_exact_model_write(*ret_model, out, &err);
    if (s == MD_OK)
        return true;
    fprintf(stderr, "model '%s': %s\n", what, err.text);
    md_fake_model_close(*ret_model);
    return false;
}
