/* scripted.c - see scripted.h.  The engine is a small fake one whose logits are replaced. */
#include "support/scripted.h"

#include "engine/engine_ops.h"
#include "engine/fake.h"
#include "engine/wrap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char end_text[] = "<|end|>";

/* ---- engine ---- */

struct puppet {
    struct md_fake_model *model;
    int decode_delay_ms, prefill_delay_ms, export_delay_ms;
    int32_t vocab;
    float logits[]; /* vocab */
};

static enum md_status pause_ms(const struct md_engine *e, int64_t ms, struct md_err *err)
{
    enum { SLICE_MS = 2 }; /* how late a cancel may be noticed */
    for (; ms > 0; ms -= SLICE_MS) {
        if (md_engine_interrupted(e))
            return md_fail(err, MD_CANCELLED, "cancelled");
        int64_t now = ms < SLICE_MS ? ms : SLICE_MS;
        nanosleep(&(struct timespec){ .tv_nsec = now * 1000000 }, NULL);
    }
    return MD_OK;
}

static enum md_status puppet_before(void *user, const struct md_engine_call *call, struct md_err *err)
{
    const struct puppet *p = user;
    if (call->op == MD_OP_DECODE)
        return pause_ms(call->wrapper,
                        p->decode_delay_ms + (int64_t)p->prefill_delay_ms * (md_range_len(call->r) - 1), err);
    if (call->op == MD_OP_PREFILL || call->op == MD_OP_RECOMPUTE)
        return pause_ms(call->wrapper, (int64_t)p->prefill_delay_ms * md_range_len(call->r), err);
    if (call->op == MD_OP_EXPORT) /* which the library does not interrupt */
        nanosleep(&(struct timespec){ .tv_nsec = p->export_delay_ms * 1000000L }, NULL);
    return MD_OK;
}

static void puppet_after(void *user, const struct md_engine_call *call, enum md_status status,
                         int64_t elapsed_ns)
{
    (void)elapsed_ns;
    struct puppet *p = user;
    if (call->op != MD_OP_DECODE || status != MD_OK)
        return;
    md_token next = call->token < MD_SCRIPTED_FIRST ? MD_SCRIPTED_FIRST : call->token + 1;
    if (next >= p->vocab)
        next = MD_SCRIPTED_END;
    md_token second = next == MD_SCRIPTED_END ? MD_SCRIPTED_FIRST : MD_SCRIPTED_END;
    memset(p->logits, 0, (size_t)p->vocab * sizeof(float));
    if (second < p->vocab)
        p->logits[second] = 10;
    p->logits[next] = 20;
    *call->logits = p->logits;
}

static void puppet_closed(void *user)
{
    struct puppet *p = user;
    md_fake_model_close(p->model);
    free(p);
}

static enum md_status open_engine(const struct md_script *script, struct md_engine **ret_engine,
                                  struct md_err *err)
{
    struct md_fake_dims dims = md_fake_dims_default();
    dims.vocab = MD_SCRIPTED_FIRST + (int32_t)script->count;
    dims.layers = 1; /* nobody looks at what it computes */
    dims.width = dims.ffn = 8;
    struct puppet *p = calloc(1, sizeof *p + (size_t)dims.vocab * sizeof(float));
    if (p == NULL)
        return md_fail(err, MD_NO_MEMORY, "scripted engine");
    p->vocab = dims.vocab;
    p->decode_delay_ms = script->decode_delay_ms;
    p->prefill_delay_ms = script->prefill_delay_ms;
    p->export_delay_ms = script->export_delay_ms;
    struct md_engine *inner = NULL;
    const struct md_fake_options options = { .cell_count =
                                                 script->cell_count != 0 ? script->cell_count : 4096,
                                             .batch_tokens = script->batch_tokens,
                                             .caps_off = script->caps_off,
                                             .name = script->engine };
    enum md_status s = md_fake_model_open(&dims, 1, NULL, &p->model, err);
    if (s == MD_OK)
        s = md_fake_open(p->model, &options, &inner, err);
    if (s != MD_OK) {
        puppet_closed(p);
        return s;
    }
    const struct md_engine_hooks hooks = { puppet_before, puppet_after, puppet_closed, p };
    return md_engine_wrap(inner, &hooks, ret_engine, err);
}

/* ---- text ---- */

struct book {
    struct md_text base;
    size_t *starts; /* count + 1 offsets into bytes */
    char *bytes;
    md_token control_from;
    md_scripted_render_fn *render;
    md_scripted_constrain_fn *constrain;
    void *render_user;
};

static const struct book *book_of(const struct md_text *t)
{
    return (const struct book *)t;
}

static void book_close(struct md_text *t)
{
    struct book *b = (struct book *)t;
    free(b->starts);
    free(b->bytes);
    free(b);
}

static enum md_status book_tokenize(const struct md_text *t, struct md_bytes text, bool add_special,
                                    bool parse_special, struct md_tokens *ret_tokens, struct md_err *err)
{
    (void)t;
    (void)add_special; /* there is no first token to add */
    const size_t before = ret_tokens->count, end_len = sizeof end_text - 1;
    const uint8_t *p = text.data;
    for (size_t i = 0; i < text.len;) {
        md_token token = p[i];
        size_t used = 1;
        if (parse_special && text.len - i >= end_len && memcmp(p + i, end_text, end_len) == 0) {
            token = MD_SCRIPTED_END;
            used = end_len;
        }
        enum md_status s = md_tokens_append(ret_tokens, &token, 1, err);
        if (s != MD_OK) {
            ret_tokens->count = before;
            return s;
        }
        i += used;
    }
    return MD_OK;
}

static enum md_status book_piece(const struct md_text *t, md_token token, bool special,
                                 struct md_buf *ret_bytes, struct md_err *err)
{
    const struct book *b = book_of(t);
    if (token < 0 || token >= t->info.vocab_count)
        return md_fail(err, MD_INVALID, "token %d is not in the vocabulary of %d", token,
                       t->info.vocab_count);
    if (token < MD_SCRIPTED_END)
        return md_buf_append(ret_bytes, &(uint8_t){ (uint8_t)token }, 1, err);
    if (token == MD_SCRIPTED_END)
        return special ? md_buf_append(ret_bytes, end_text, sizeof end_text - 1, err) : MD_OK;
    if (b->control_from > 0 && token >= b->control_from && !special)
        return MD_OK;
    const size_t i = (size_t)(token - MD_SCRIPTED_FIRST);
    return md_buf_append(ret_bytes, b->bytes + b->starts[i], b->starts[i + 1] - b->starts[i], err);
}

static bool book_is_end(const struct md_text *t, md_token token)
{
    (void)t;
    return token == MD_SCRIPTED_END;
}

static bool known_role(struct md_bytes role)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (role.len == strlen(roles[i]) && memcmp(role.data, roles[i], role.len) == 0)
            return true;
    return false;
}

static enum md_status book_render(const struct md_text *t, const struct md_chat_input *in,
                                  struct md_buf *ret_prompt, struct md_chat_form **ret_form,
                                  struct md_err *err)
{
    const struct book *b = book_of(t);
    const size_t before = ret_prompt->len;
    if (b->render != NULL)
        return b->render(b->render_user, in, ret_prompt, ret_form, err);
    enum md_status s = in->count > 0 ? MD_OK : md_fail(err, MD_INVALID, "no messages");
    if (in->tools.len > 0)
        s = md_fail(err, MD_INVALID, "the scripted model has no place for tools");
    for (size_t i = 0; i < in->count && s == MD_OK; i++) {
        const struct md_chat_message *m = &in->messages[i];
        const struct md_bytes parts[] = { m->role, { ": ", 2 }, m->content, { "\n", 1 } };
        if (!known_role(m->role))
            s = md_fail(err, MD_INVALID, "unknown role '%.*s'", (int)(m->role.len & 63),
                        (const char *)m->role.data);
        for (size_t j = 0; j < sizeof parts / sizeof parts[0] && s == MD_OK; j++)
            s = md_buf_append(ret_prompt, parts[j].data, parts[j].len, err);
    }
    if (s == MD_OK && in->add_generation_prompt)
        s = md_buf_append(ret_prompt, "assistant: ", 11, err);
    if (s != MD_OK)
        ret_prompt->len = before;
    return s;
}

/* Nothing is bound here; whoever gave a constrain may say what cannot be. */
static enum md_status book_constrain(const struct md_text *t, struct md_bytes json_schema,
                                     struct md_bytes grammar, struct md_chat_form **ret_form,
                                     struct md_err *err)
{
    const struct book *b = book_of(t);
    return b->constrain != NULL ? b->constrain(json_schema, grammar, ret_form, err) : MD_OK;
}

struct chooser {
    struct md_sampler base;
    int32_t vocab;
    float bias[]; /* vocab; -INFINITY bans */
};

static void chooser_close(struct md_sampler *s)
{
    free(s);
}

static void chooser_accept(struct md_sampler *s, md_token token)
{
    (void)s; /* no penalties here */
    (void)token;
}

static enum md_status chooser_sample(struct md_sampler *s, const float *logits, int32_t count,
                                     md_token *ret_token, struct md_err *err)
{
    const struct chooser *c = (const struct chooser *)s;
    md_token best = -1;
    for (int32_t i = 0; i < count && i < c->vocab; i++) {
        if (isnan(logits[i]))
            return md_fail(err, MD_INTERNAL, "logit %d is not a number", i);
        if (c->bias[i] > -INFINITY && (best < 0 || logits[i] + c->bias[i] > logits[best] + c->bias[best]))
            best = i;
    }
    if (best < 0)
        return md_fail(err, MD_INTERNAL, "every token is banned");
    *ret_token = best;
    return MD_OK;
}

static enum md_status book_sampler(const struct md_text *t, const struct md_sample_params *params,
                                   struct md_sampler **ret_sampler, struct md_err *err)
{
    static const struct md_sampler_ops ops = { chooser_close, chooser_accept, chooser_sample };
    struct chooser *c = calloc(1, sizeof *c + (size_t)t->info.vocab_count * sizeof(float));
    if (c == NULL)
        return md_fail(err, MD_NO_MEMORY, "sampler");
    c->base.ops = &ops;
    c->vocab = t->info.vocab_count;
    for (size_t i = 0; i < params->bias_count; i++) {
        const struct md_logit_bias b = params->bias[i];
        if (b.token < 0 || b.token >= c->vocab) {
            free(c);
            return md_fail(err, MD_INVALID, "logit_bias: token %d is not in the vocabulary of %d", b.token,
                           t->info.vocab_count);
        }
        c->bias[b.token] = b.bias <= -100 ? -INFINITY : b.bias;
    }
    *ret_sampler = &c->base;
    return MD_OK;
}

static enum md_status open_text(const struct md_script *script, struct md_text **ret_text, struct md_err *err)
{
    static const struct md_text_ops ops = { .name = "scripted",
                                            .close = book_close,
                                            .tokenize = book_tokenize,
                                            .piece = book_piece,
                                            .is_end = book_is_end,
                                            .render_chat = book_render,
                                            .constrain = book_constrain,
                                            .sampler_open = book_sampler };
    size_t total = 0;
    for (size_t i = 0; i < script->count; i++)
        total += script->pieces[i].len;
    struct book *b = calloc(1, sizeof *b);
    if (b == NULL)
        return md_fail(err, MD_NO_MEMORY, "scripted text");
    b->base.ops = &ops;
    b->control_from = script->control_from;
    b->render = script->render;
    b->constrain = script->constrain;
    b->render_user = script->render_user;
    b->base.info = (struct md_text_info){ .longest_piece_bytes = sizeof end_text - 1,
                                          .vocab_count = MD_SCRIPTED_FIRST + (int32_t)script->count,
                                          .bos = -1,
                                          .eos = MD_SCRIPTED_END,
                                          .has_chat_template = true };
    b->starts = calloc(script->count + 1, sizeof *b->starts);
    b->bytes = calloc(total + 1, 1);
    if (b->starts == NULL || b->bytes == NULL) {
        book_close(&b->base);
        return md_fail(err, MD_NO_MEMORY, "scripted text");
    }
    for (size_t i = 0; i < script->count; i++) {
        if (script->pieces[i].len > 0)
            memcpy(b->bytes + b->starts[i], script->pieces[i].data, script->pieces[i].len);
        b->starts[i + 1] = b->starts[i] + script->pieces[i].len;
    }
    *ret_text = &b->base;
    return MD_OK;
}

enum md_status md_scripted_open(const struct md_script *script, struct md_engine **ret_engine,
                                struct md_text **ret_text, struct md_err *err)
{
    struct md_engine *engine = NULL;
    enum md_status s = MD_OK;
    if (ret_engine != NULL)
        s = open_engine(script, &engine, err);
    if (s == MD_OK && ret_text != NULL)
        s = open_text(script, ret_text, err);
    if (s != MD_OK) {
        md_engine_close(engine);
        return s;
    }
    if (ret_engine != NULL)
        *ret_engine = engine;
    return MD_OK;
}
