/* llama_text.c - text.h on a model's vocabulary: tokens, pieces, templates and samplers. */
#include "adapters/llama/llama_backend.h"
#include "adapters/llama/llama_chat.h"
#include "adapters/llama/llama_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 256, ROLE_BYTES_MAX = 32, TEXT_BYTES_MAX = 1 << 30 };

struct text {
    struct md_text base;
    struct md_llama_model *model;
    struct md_chat_template *chat;      /* NULL: the model brings none */
    struct md_chat_template *tool_chat; /* a second one for when there are tools; NULL: the first serves */
};

static const struct md_text_ops text_ops;

static const struct text *text_of(const struct md_text *t)
{
    assert(t->ops == &text_ops);
    return (const struct text *)t;
}

static void text_close(struct md_text *base)
{
    struct text *t = (struct text *)base;
    if (t == NULL)
        return;
    md_chat_template_close(t->chat);
    md_chat_template_close(t->tool_chat);
    md_llama_model_unref(t->model);
    free(t);
}

static enum md_status grow(struct md_tokens *t, size_t more, struct md_err *err)
{
    void *ids = t->ids;
    if (!md_grow(t->alloc, &ids, &t->cap, t->count + more, sizeof *t->ids))
        return md_fail(err, MD_NO_MEMORY, "%zu tokens", more);
    t->ids = ids;
    return MD_OK;
}

/* The first token is put here and not by the library, which would put a second one before a rendered
 * template that has written it already (B049). */
static enum md_status text_tokenize(const struct md_text *base, struct md_bytes text, bool add_special,
                                    bool parse_special, struct md_tokens *ret, struct md_err *err)
{
    const struct text *t = text_of(base);
    if (text.len > TEXT_BYTES_MAX)
        return md_fail(err, MD_TOO_LARGE, "a text of %zu bytes", text.len);
    const char *data = text.len > 0 ? text.data : "";
    const size_t room = text.len + 2; /* no token is shorter than a byte, but a few vocabularies add one */
    enum md_status s = grow(ret, room, err);
    if (s != MD_OK)
        return s;
    md_token *out = ret->ids + ret->count + 1; /* one free for the first token */
    int32_t n = 0;
    s = md_llama_tokenize(t->model->vocab, data, (int32_t)text.len, out, (int32_t)room - 1, parse_special, &n,
                          err);
    if (s == MD_OK && n < 0 && n != INT32_MIN) {
        const int32_t need = -n;
        s = grow(ret, (size_t)need + 1, err);
        out = s == MD_OK ? ret->ids + ret->count + 1 : NULL;
        if (s == MD_OK)
            s = md_llama_tokenize(t->model->vocab, data, (int32_t)text.len, out, need, parse_special, &n,
                                  err);
    }
    if (s == MD_OK && n < 0)
        s = md_fail(err, MD_INTERNAL, "tokenize %zu bytes", text.len);
    if (s != MD_OK)
        return s;
    md_token *first = ret->ids + ret->count;
    if (add_special && base->info.adds_bos && (n == 0 || out[0] != base->info.bos)) {
        first[0] = base->info.bos;
        n++;
    } else {
        memmove(first, out, (size_t)n * sizeof *out);
    }
    ret->count += (size_t)n;
    return MD_OK;
}

static bool known(const struct md_text *base, md_token token)
{
    return token >= 0 && token < base->info.vocab_count;
}

static enum md_status text_piece(const struct md_text *base, md_token token, bool special, struct md_buf *ret,
                                 struct md_err *err)
{
    const struct text *t = text_of(base);
    char small[PIECE_BYTES];
    if (!known(base, token))
        return md_fail(err, MD_INVALID, "token %d is not in the vocabulary of %d", token,
                       base->info.vocab_count);
    int32_t n = llama_token_to_piece(t->model->vocab, token, small, sizeof small, 0, special);
    if (n >= 0)
        return md_buf_append(ret, small, (size_t)n, err);
    char *big = malloc((size_t)-n);
    if (big == NULL)
        return md_fail(err, MD_NO_MEMORY, "piece of token %d", token);
    n = llama_token_to_piece(t->model->vocab, token, big, -n, 0, special);
    enum md_status s = n < 0 ? md_fail(err, MD_INTERNAL, "piece of token %d", token)
                             : md_buf_append(ret, big, (size_t)n, err);
    free(big);
    return s;
}

static bool text_is_end(const struct md_text *base, md_token token)
{
    return known(base, token) && llama_vocab_is_eog(text_of(base)->model->vocab, token);
}

/* A role becomes part of the prompt beside control tokens, so it must be a plain word. */
static enum md_status check_role(struct md_bytes role, size_t index, struct md_err *err)
{
    const char *p = role.data;
    bool ok = role.len > 0 && role.len <= ROLE_BYTES_MAX;
    for (size_t i = 0; ok && i < role.len; i++)
        ok = (p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') || (p[i] >= '0' && p[i] <= '9') ||
             p[i] == '_' || p[i] == '-';
    if (!ok)
        return md_fail(err, MD_INVALID, "the role of message %zu must be a word of at most %d letters",
                       index + 1, ROLE_BYTES_MAX);
    return MD_OK;
}

static enum md_status text_render(const struct md_text *base, const struct md_chat_input *in,
                                  struct md_buf *ret_prompt, struct md_chat_form **ret_form,
                                  struct md_err *err)
{
    const struct text *t = text_of(base);
    if (t->chat == NULL)
        return md_fail(err, MD_UNSUPPORTED, "this model has no chat template");
    for (size_t i = 0; i < in->count; i++) {
        enum md_status s = check_role(in->messages[i].role, i, err);
        if (s != MD_OK)
            return s;
    }
    struct md_chat_template *chat = in->tools.len > 0 && t->tool_chat != NULL ? t->tool_chat : t->chat;
    return md_chat_template_render(chat, t->model->vocab, in, ret_prompt, ret_form, err);
}

static enum md_status text_constrain(const struct md_text *base, struct md_bytes json_schema,
                                     struct md_bytes grammar, struct md_chat_form **ret_form,
                                     struct md_err *err)
{
    return md_llama_constrain(text_of(base)->model->vocab, json_schema, grammar, ret_form, err);
}

static enum md_status text_sampler(const struct md_text *base, const struct md_sample_params *params,
                                   struct md_sampler **ret_sampler, struct md_err *err)
{
    enum md_status s = md_sample_check(params, base->info.vocab_count, err);
    if (s != MD_OK)
        return s;
    return md_llama_sampler_new(text_of(base)->model->vocab, params, ret_sampler, err);
}

static const struct md_text_ops text_ops = {
    .name = "llama",
    .close = text_close,
    .tokenize = text_tokenize,
    .piece = text_piece,
    .is_end = text_is_end,
    .render_chat = text_render,
    .constrain = text_constrain,
    .sampler_open = text_sampler,
};

/* The text of a token as the template writes it; "" for none. */
static enum md_status token_text(const struct md_text *t, md_token token, struct md_buf *out,
                                 struct md_err *err)
{
    enum md_status s = token < 0 ? MD_OK : text_piece(t, token, true, out, err);
    return s == MD_OK ? md_buf_append(out, "", 1, err) : s;
}

/* Only of tokenizers that neither drop nor join what they read. */
static int32_t longest_piece(const struct llama_vocab *vocab)
{
    char small[PIECE_BYTES];
    int32_t longest = 0;
    enum llama_vocab_type type = llama_vocab_type(vocab);
    if (type != LLAMA_VOCAB_TYPE_BPE && type != LLAMA_VOCAB_TYPE_SPM)
        return 0;
    for (md_token i = 0; i < llama_vocab_n_tokens(vocab); i++) {
        int32_t n = llama_token_to_piece(vocab, i, small, sizeof small, 0, true);
        longest = n > longest ? n : -n > longest ? -n : longest; /* negative: the room it needs */
    }
    return longest;
}

enum md_status md_llama_text_new(struct md_llama_model *m, struct md_text **ret_text, struct md_err *err)
{
    struct text *t = calloc(1, sizeof *t);
    if (t == NULL)
        return md_fail(err, MD_NO_MEMORY, "text");
    t->base.ops = &text_ops;
    t->model = md_llama_model_ref(m);
    const char *source = llama_model_chat_template(m->model, NULL);
    if (source != NULL && source[0] == '\0')
        source = NULL; /* a template of 0 bytes would say nothing of what it is given */
    t->base.info = (struct md_text_info){
        .vocab_count = llama_vocab_n_tokens(m->vocab),
        .bos = llama_vocab_bos(m->vocab),
        .eos = llama_vocab_eos(m->vocab),
        .adds_bos = llama_vocab_get_add_bos(m->vocab) && llama_vocab_bos(m->vocab) >= 0,
        .longest_piece_bytes = longest_piece(m->vocab),
        .has_chat_template = source != NULL,
    };
    struct md_buf bos, eos;
    md_buf_init(&bos, NULL, 64 << 10);
    md_buf_init(&eos, NULL, 64 << 10);
    enum md_status s = token_text(&t->base, t->base.info.bos, &bos, err);
    if (s == MD_OK)
        s = token_text(&t->base, t->base.info.eos, &eos, err);
    if (s == MD_OK && source != NULL)
        s = md_chat_template_open(source, (char *)bos.data, (char *)eos.data, &t->chat, err);
    source = llama_model_chat_template(m->model, "tool_use");
    if (s == MD_OK && t->chat != NULL && source != NULL && source[0] != '\0')
        s = md_chat_template_open(source, (char *)bos.data, (char *)eos.data, &t->tool_chat, err);
    md_buf_done(&bos);
    md_buf_done(&eos);
    if (s != MD_OK) {
        text_close(&t->base);
        return s;
    }
    *ret_text = &t->base;
    return MD_OK;
}
