/* text.c - see text.h.  Checks what every adapter would have to check and hands the call on. */
#include "text/text.h"

#include "text/form.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- tokens ---- */

enum md_status md_tokens_append(struct md_tokens *t, const md_token *ids, size_t count, struct md_err *err)
{
    size_t need;
    void *items = t->ids; /* md_grow wants a void *, and t->ids is not one */
    if (__builtin_add_overflow(t->count, count, &need) ||
        !md_grow(t->alloc, &items, &t->cap, need, sizeof *t->ids))
        return md_fail(err, MD_NO_MEMORY, "%zu tokens", t->count);
    t->ids = items;
    if (count > 0)
        memcpy(t->ids + t->count, ids, count * sizeof *ids);
    t->count = need;
    return MD_OK;
}

void md_tokens_done(struct md_tokens *t)
{
    md_free(t->alloc, t->ids);
    t->ids = NULL;
    t->count = t->cap = 0;
}

/* ---- sampling parameters ---- */

struct md_sample_params md_sample_defaults(void)
{
    return (struct md_sample_params){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .repeat_penalty = 1.0f,
        .repeat_last_n = 64,
        .frequency_penalty = 0.0f,
        .presence_penalty = 0.0f,
        .seed = -1,
    };
}

enum bound { FROM, ABOVE }; /* is the lower bound itself allowed? */

/* Written so that a NaN, which is neither above nor below anything, is refused. */
static enum md_status check_real(const char *field, float value, enum bound bound, float low, float high,
                                 struct md_err *err)
{
    if ((bound == FROM ? value >= low : value > low) && value <= high)
        return MD_OK;
    if (bound == ABOVE)
        return md_fail(err, MD_INVALID, "%s must be above %g and at most %g, got %g", field, (double)low,
                       (double)high, (double)value);
    return md_fail(err, MD_INVALID, "%s must be between %g and %g, got %g", field, (double)low, (double)high,
                   (double)value);
}

static enum md_status check_whole(const char *field, int64_t value, int64_t low, int64_t high,
                                  struct md_err *err)
{
    if (value >= low && value <= high)
        return MD_OK;
    return md_fail(err, MD_INVALID, "%s must be between %lld and %lld, got %lld", field, (long long)low,
                   (long long)high, (long long)value);
}

static enum md_status check_bias(const struct md_sample_params *p, int32_t vocab_count, struct md_err *err)
{
    assert(p->bias != NULL || p->bias_count == 0);
    for (size_t i = 0; i < p->bias_count; i++) {
        if (p->bias[i].token < 0 || p->bias[i].token >= vocab_count)
            return md_fail(err, MD_INVALID, "logit_bias names token %d, the vocabulary has %d",
                           p->bias[i].token, vocab_count);
        if (!isfinite(p->bias[i].bias))
            return md_fail(err, MD_INVALID, "logit_bias of token %d is not a finite number",
                           p->bias[i].token);
    }
    return MD_OK;
}

enum md_status md_sample_check(const struct md_sample_params *p, int32_t vocab_count, struct md_err *err)
{
    enum md_status s;
    if ((s = check_real("temperature", p->temperature, FROM, 0, 100, err)) != MD_OK ||
        (s = check_whole("top_k", p->top_k, 0, INT32_MAX, err)) != MD_OK ||
        (s = check_real("top_p", p->top_p, ABOVE, 0, 1, err)) != MD_OK ||
        (s = check_real("min_p", p->min_p, FROM, 0, 1, err)) != MD_OK ||
        (s = check_real("repeat_penalty", p->repeat_penalty, ABOVE, 0, 10, err)) != MD_OK ||
        (s = check_whole("repeat_last_n", p->repeat_last_n, 0, 32768, err)) != MD_OK ||
        (s = check_real("frequency_penalty", p->frequency_penalty, FROM, -2, 2, err)) != MD_OK ||
        (s = check_real("presence_penalty", p->presence_penalty, FROM, -2, 2, err)) != MD_OK ||
        (s = check_whole("seed", p->seed, -1, UINT32_MAX, err)) != MD_OK)
        return s;
    return check_bias(p, vocab_count, err);
}

/* ---- text ---- */

void md_text_close(struct md_text *t)
{
    if (t != NULL)
        t->ops->close(t);
}

enum md_status md_text_tokenize(const struct md_text *t, struct md_bytes text, bool add_special,
                                bool parse_special, struct md_tokens *ret_tokens, struct md_err *err)
{
    size_t before = ret_tokens->count;
    enum md_status s = t->ops->tokenize(t, text, add_special, parse_special, ret_tokens, err);
    if (s != MD_OK)
        ret_tokens->count = before;
    return s;
}

static bool in_vocabulary(const struct md_text *t, md_token token)
{
    return token >= 0 && token < t->info.vocab_count;
}

enum md_status md_text_piece(const struct md_text *t, md_token token, bool special, struct md_buf *ret_bytes,
                             struct md_err *err)
{
    if (!in_vocabulary(t, token))
        return md_fail(err, MD_INVALID, "no token %d, the vocabulary has %d", token, t->info.vocab_count);
    return t->ops->piece(t, token, special, ret_bytes, err);
}

bool md_text_is_end(const struct md_text *t, md_token token)
{
    return in_vocabulary(t, token) && t->ops->is_end(t, token);
}

enum md_status md_text_render_chat(const struct md_text *t, const struct md_chat_input *in,
                                   struct md_buf *ret_prompt, struct md_chat_form **ret_form,
                                   struct md_err *err)
{
    if (!t->info.has_chat_template || t->ops->render_chat == NULL)
        return md_fail(err, MD_UNSUPPORTED,
                       "the model has no chat template: use /v1/completions, or `modeld run --raw`");
    if (in->count == 0)
        return md_fail(err, MD_INVALID, "messages must not be empty");
    const size_t before = ret_prompt->len;
    *ret_form = NULL;
    enum md_status s = t->ops->render_chat(t, in, ret_prompt, ret_form, err);
    if (s != MD_OK)
        ret_prompt->len = before;
    return s;
}

enum md_status md_text_constrain(const struct md_text *t, struct md_bytes json_schema,
                                 struct md_bytes grammar, struct md_chat_form **ret_form, struct md_err *err)
{
    if (t->ops->constrain == NULL)
        return md_fail(err, MD_UNSUPPORTED, "this model's answers cannot be bound to a grammar");
    return t->ops->constrain(t, json_schema, grammar, ret_form, err);
}

/* ---- forms ---- */

struct md_chat_form *md_chat_form_ref(struct md_chat_form *f)
{
    if (f != NULL)
        __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
    return f;
}

void md_chat_form_unref(struct md_chat_form *f)
{
    if (f != NULL && __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) == 0)
        f->ops->close(f);
}

bool md_chat_form_keeps(const struct md_chat_form *f, md_token token)
{
    for (size_t i = 0; f != NULL && i < f->kept_count; i++)
        if (f->kept[i] == token)
            return true;
    return false;
}

/* ---- sampler ---- */

enum md_status md_sampler_open(const struct md_text *t, const struct md_sample_params *params,
                               struct md_sampler **ret_sampler, struct md_err *err)
{
    enum md_status s = md_sample_check(params, t->info.vocab_count, err);
    return s != MD_OK ? s : t->ops->sampler_open(t, params, ret_sampler, err);
}

void md_sampler_accept(struct md_sampler *s, md_token token)
{
    s->ops->accept(s, token);
}

enum md_status md_sampler_sample(struct md_sampler *s, const float *logits, int32_t count,
                                 md_token *ret_token, struct md_err *err)
{
    return s->ops->sample(s, logits, count, ret_token, err);
}

void md_sampler_close(struct md_sampler *s)
{
    if (s != NULL)
        s->ops->close(s);
}
