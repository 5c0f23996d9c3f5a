/* exact_model.c - the GGUF writer (version 3, little-endian machines only, as all that we build for). */
#include "support/exact_model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GGUF_ALIGN = 32, FILE_LIMIT_BYTES = 256 << 20 };
enum gguf_type { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };
enum { TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 3, TOKEN_BYTE = 6 };

static const char chat_template[] = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
                                    "{% if add_generation_prompt %}assistant: {% endif %}";

/* The first failure sticks, so that the writing below reads as a list. */
struct writer {
    struct md_buf buf;
    uint64_t entries, tensors;
    uint64_t data_bytes; /* of the tensors announced so far */
    enum md_status status;
    struct md_err *err;
};

static void put(struct writer *w, const void *data, size_t len)
{
    if (w->status == MD_OK)
        w->status = md_buf_append(&w->buf, data, len, w->err);
}

static void put_u32(struct writer *w, uint32_t v)
{
    put(w, &v, sizeof v);
}

static void put_u64(struct writer *w, uint64_t v)
{
    put(w, &v, sizeof v);
}

static void put_string(struct writer *w, const char *s)
{
    put_u64(w, strlen(s));
    put(w, s, strlen(s));
}

static void entry(struct writer *w, const char *key, enum gguf_type type)
{
    put_string(w, key);
    put_u32(w, type);
    w->entries++;
}

static void entry_u32(struct writer *w, const char *key, int32_t v)
{
    entry(w, key, GGUF_U32);
    put_u32(w, (uint32_t)v);
}

static void entry_f32(struct writer *w, const char *key, float v)
{
    entry(w, key, GGUF_F32);
    put(w, &v, sizeof v);
}

static void entry_bool(struct writer *w, const char *key, bool v)
{
    entry(w, key, GGUF_BOOL);
    put(w, &(uint8_t){ v }, 1);
}

static void entry_string(struct writer *w, const char *key, const char *v)
{
    entry(w, key, GGUF_STRING);
    put_string(w, v);
}

static void entry_array(struct writer *w, const char *key, enum gguf_type of, int32_t count)
{
    entry(w, key, GGUF_ARRAY);
    put_u32(w, of);
    put_u64(w, (uint64_t)count);
}

static void put_hyperparameters(struct writer *w, const struct md_fake_dims *d)
{
    entry_string(w, "general.architecture", "llama");
    entry_string(w, "general.name", "modeld exact test model");
    entry_u32(w, "general.file_type", 0); /* all f32 */
    entry_u32(w, "llama.block_count", d->layers);
    entry_u32(w, "llama.context_length", d->trained_tokens);
    entry_u32(w, "llama.embedding_length", d->width);
    entry_u32(w, "llama.feed_forward_length", d->ffn);
    entry_u32(w, "llama.attention.head_count", d->heads);
    entry_u32(w, "llama.attention.head_count_kv", d->kv_heads);
    entry_u32(w, "llama.attention.key_length", d->head_dim);
    entry_u32(w, "llama.attention.value_length", d->head_dim);
    entry_f32(w, "llama.attention.layer_norm_rms_epsilon", d->norm_eps);
    entry_u32(w, "llama.rope.dimension_count", d->head_dim);
    entry_f32(w, "llama.rope.freq_base", d->rope_base);
    entry_u32(w, "llama.vocab_size", d->vocab);
}

static void put_vocabulary(struct writer *w, int32_t vocab)
{
    entry_string(w, "tokenizer.ggml.model", "llama");
    entry_array(w, "tokenizer.ggml.tokens", GGUF_STRING, vocab);
    put_string(w, "<unk>");
    put_string(w, "<s>");
    put_string(w, "</s>");
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte & 0xffu);
        put_string(w, name);
    }
    entry_array(w, "tokenizer.ggml.scores", GGUF_F32, vocab);
    for (int32_t i = 0; i < vocab; i++)
        put(w, &(float){ 0 }, sizeof(float));
    entry_array(w, "tokenizer.ggml.token_type", GGUF_I32, vocab);
    for (int32_t i = 0; i < vocab; i++)
        put_u32(w, i == 0 ? TOKEN_UNKNOWN : i < MD_EXACT_TOKEN_OF_BYTE_0 ? TOKEN_CONTROL : TOKEN_BYTE);
    entry_u32(w, "tokenizer.ggml.bos_token_id", 1);
    entry_u32(w, "tokenizer.ggml.eos_token_id", MD_EXACT_TOKEN_END);
    entry_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    entry_bool(w, "tokenizer.ggml.add_bos_token", false);
    entry_bool(w, "tokenizer.ggml.add_space_prefix", false);
    entry_string(w, "tokenizer.chat_template", chat_template);
}

/* Tensors are announced first and written after, in one order: each of these does either. */
typedef void tensor_fn(struct writer *w, const char *name, const float *data, int32_t rows, int32_t cols);

static void announce(struct writer *w, const char *name, const float *data, int32_t rows, int32_t cols)
{
    (void)data;
    put_string(w, name);
    put_u32(w, rows == 1 ? 1 : 2); /* dimensions, the innermost first */
    put_u64(w, (uint64_t)cols);
    if (rows != 1)
        put_u64(w, (uint64_t)rows);
    put_u32(w, 0); /* f32 */
    put_u64(w, w->data_bytes);
    uint64_t bytes = (uint64_t)rows * (uint64_t)cols * sizeof(float);
    w->data_bytes += (bytes + GGUF_ALIGN - 1) / GGUF_ALIGN * GGUF_ALIGN;
    w->tensors++;
}

static void pad(struct writer *w)
{
    static const uint8_t zeros[GGUF_ALIGN];
    put(w, zeros, (GGUF_ALIGN - w->buf.len % GGUF_ALIGN) % GGUF_ALIGN);
}

static void write_data(struct writer *w, const char *name, const float *data, int32_t rows, int32_t cols)
{
    (void)name;
    put(w, data, (size_t)rows * (size_t)cols * sizeof(float));
    pad(w);
}

static void each_tensor(struct writer *w, const struct md_fake_model *m, tensor_fn *fn)
{
    const struct md_fake_dims *d = &m->dims;
    const int32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    fn(w, "token_embd.weight", m->embed, d->vocab, d->width);
    fn(w, "output_norm.weight", m->output_norm, 1, d->width);
    fn(w, "output.weight", m->output, d->vocab, d->width);
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
            fn(w, name, all[j].data, all[j].rows, all[j].cols);
        }
    }
}

static enum md_status save(const struct md_buf *buf, const char *path, struct md_err *err)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return md_fail(err, MD_IO, "open '%s': %s", path, strerror(errno));
    bool good = fwrite(buf->data, 1, buf->len, f) == buf->len;
    good = fclose(f) == 0 && good;
    if (good)
        return MD_OK;
    unlink(path);
    return md_fail(err, MD_IO, "write '%s': %s", path, strerror(errno));
}

enum md_status md_exact_model_open(struct md_fake_model **ret_model, struct md_err *err)
{
    const struct md_fake_dims dims = md_fake_dims_exact();
    return md_fake_model_open(&dims, 1, NULL, ret_model, err);
}

enum md_status md_exact_model_write(const struct md_fake_model *m, const char *path, struct md_err *err)
{
    if (m->dims.vocab != MD_FAKE_BYTE_VOCAB)
        return md_fail(err, MD_INVALID, "the exact model has %d tokens, not %d", MD_FAKE_BYTE_VOCAB,
                       m->dims.vocab);
    struct writer w = { .err = err };
    md_buf_init(&w.buf, NULL, FILE_LIMIT_BYTES);
    put(&w, "GGUF", 4);
    put_u32(&w, 3);
    const size_t counts_at = w.buf.len;
    put_u64(&w, 0); /* tensors and entries: filled in below */
    put_u64(&w, 0);
    put_hyperparameters(&w, &m->dims);
    put_vocabulary(&w, m->dims.vocab);
    each_tensor(&w, m, announce);
    pad(&w);
    each_tensor(&w, m, write_data);
    if (w.status == MD_OK) {
        memcpy(w.buf.data + counts_at, &w.tensors, sizeof w.tensors);
        memcpy(w.buf.data + counts_at + sizeof w.tensors, &w.entries, sizeof w.entries);
        w.status = save(&w.buf, path, err);
    }
    md_buf_done(&w.buf);
    return w.status;
}
