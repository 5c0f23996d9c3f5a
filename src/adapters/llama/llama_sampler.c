/* llama_sampler.c - one request's sampler: the library's chains over our own candidates.
 *
 * Order as the library's default: bias, penalties | top_k, top_p, min_p, temperature, draw.  It is cut in
 * two so that "every token is banned" is seen between them and becomes an error instead of a token.
 *
 * A grammar is asked about the chosen token alone; only where it says no is the whole vocabulary held against it,
 * before the second half of the chain, and chosen from again. */
#include "adapters/llama/llama_chat.h"
#include "adapters/llama/llama_internal.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { BAN_AT = -100 }; /* this bias or lower bans a token, as OpenAI documents */

struct sampler {
    struct md_sampler base;
    struct llama_sampler *adjust, *choose;
    int32_t vocab_count;
    llama_token_data *candidates;
    struct md_llama_grammar *grammar; /* NULL: none */
};

static const struct md_sampler_ops sampler_ops;

static struct sampler *sampler_of(struct md_sampler *s)
{
    assert(s->ops == &sampler_ops);
    return (struct sampler *)s;
}

static void sampler_close(struct md_sampler *base)
{
    struct sampler *s = (struct sampler *)base;
    if (s == NULL)
        return;
    if (s->adjust != NULL)
        llama_sampler_free(s->adjust);
    if (s->choose != NULL)
        llama_sampler_free(s->choose);
    md_llama_grammar_close(s->grammar);
    free(s->candidates);
    free(s);
}

static void sampler_accept(struct md_sampler *base, md_token token)
{
    struct sampler *s = sampler_of(base);
    if (token >= 0 && token < s->vocab_count)
        llama_sampler_accept(s->adjust, token);
}

/* One choice; bound: only from what the grammar allows. */
static enum md_status choose(struct sampler *s, const float *logits, bool bound, md_token *ret_token,
                             struct md_err *err)
{
    for (int32_t i = 0; i < s->vocab_count; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return md_fail(err, MD_INTERNAL,
                           "the logit of token %d is not a number: the model or its KV is broken", i);
        s->candidates[i] = (llama_token_data){ .id = i, .logit = logits[i] };
    }
    llama_token_data_array a = { .data = s->candidates, .size = (size_t)s->vocab_count, .selected = -1 };
    llama_sampler_apply(s->adjust, &a);
    enum md_status st = bound ? md_llama_grammar_apply(s->grammar, &a, err) : MD_OK;
    if (st != MD_OK)
        return st;
    bool any = false;
    for (size_t i = 0; i < a.size && !any; i++)
        any = a.data[i].logit > -INFINITY;
    if (!any)
        return md_fail(err, MD_INVALID, "every token is banned by logit_bias%s",
                       bound ? " or by the grammar of the answer" : "");
    llama_sampler_apply(s->choose, &a);
    if (a.selected < 0 || (size_t)a.selected >= a.size)
        return md_fail(err, MD_INTERNAL, "the sampler chose nothing");
    *ret_token = a.data[a.selected].id;
    return MD_OK;
}

static enum md_status allowed(struct sampler *s, md_token token, bool *ret_allowed, struct md_err *err)
{
    llama_token_data one = { .id = token, .logit = 1 };
    llama_token_data_array a = { .data = &one, .size = 1, .selected = -1 };
    enum md_status st = md_llama_grammar_apply(s->grammar, &a, err);
    *ret_allowed = one.logit > -INFINITY;
    return st;
}

static enum md_status sampler_sample(struct md_sampler *base, const float *logits, int32_t count,
                                     md_token *ret_token, struct md_err *err)
{
    struct sampler *s = sampler_of(base);
    md_token token = -1;
    bool fits = true;
    if (count != s->vocab_count)
        return md_fail(err, MD_INVALID, "%d logits for a vocabulary of %d", count, s->vocab_count);
    enum md_status st = choose(s, logits, false, &token, err);
    if (st == MD_OK && s->grammar != NULL)
        st = allowed(s, token, &fits, err);
    if (st == MD_OK && !fits)
        st = choose(s, logits, true, &token, err);
    if (st == MD_OK && s->grammar != NULL)
        st = md_llama_grammar_accept(s->grammar, token, err);
    if (st != MD_OK)
        return st;
    llama_sampler_accept(s->adjust, token);
    *ret_token = token;
    return MD_OK;
}

static const struct md_sampler_ops sampler_ops = { .close = sampler_close,
                                                   .accept = sampler_accept,
                                                   .sample = sampler_sample };

/* The user's biases and the tokens the model file itself suppresses, in one sampler. */
static enum md_status add_bias(struct llama_sampler *chain, const struct llama_vocab *vocab,
                               const struct md_sample_params *p, struct md_err *err)
{
    int32_t suppressed = 0;
    const llama_token *own = llama_vocab_get_suppress_tokens(vocab, &suppressed);
    size_t count = p->bias_count + (size_t)suppressed;
    if (count == 0)
        return MD_OK;
    llama_logit_bias *bias = calloc(count, sizeof *bias);
    if (bias == NULL)
        return md_fail(err, MD_NO_MEMORY, "logit bias");
    for (size_t i = 0; i < p->bias_count; i++)
        bias[i] =
            (llama_logit_bias){ p->bias[i].token, p->bias[i].bias <= BAN_AT ? -INFINITY : p->bias[i].bias };
    for (int32_t i = 0; i < suppressed; i++)
        bias[p->bias_count + (size_t)i] = (llama_logit_bias){ own[i], -INFINITY };
    llama_sampler_chain_add(chain,
                            llama_sampler_init_logit_bias(llama_vocab_n_tokens(vocab), (int32_t)count, bias));
    free(bias);
    return MD_OK;
}

/* The library takes 2^32-1 for "a random one"; here that is a seed like any other, -1 asks for random. */
static uint32_t choose_seed(int64_t seed)
{
    uint32_t s = (uint32_t)seed;
    if (seed < 0 && getrandom(&s, sizeof s, 0) != sizeof s)
        s = (uint32_t)(uintptr_t)&s ^ (uint32_t)errno;
    return s == LLAMA_DEFAULT_SEED ? s - 1 : s;
}

enum md_status md_llama_sampler_new(const struct llama_vocab *vocab, const struct md_sample_params *p,
                                    struct md_sampler **ret_sampler, struct md_err *err)
{
    const struct llama_sampler_chain_params chain = { .no_perf = true };
    struct sampler *s = calloc(1, sizeof *s);
    if (s == NULL)
        return md_fail(err, MD_NO_MEMORY, "sampler");
    s->base.ops = &sampler_ops;
    s->vocab_count = llama_vocab_n_tokens(vocab);
    s->candidates = calloc((size_t)s->vocab_count, sizeof *s->candidates);
    s->adjust = llama_sampler_chain_init(chain);
    s->choose = llama_sampler_chain_init(chain);
    enum md_status st = MD_OK;
    if (s->candidates == NULL || s->adjust == NULL || s->choose == NULL)
        st = md_fail(err, MD_NO_MEMORY, "sampler of %d candidates", s->vocab_count);
    if (st == MD_OK)
        st = add_bias(s->adjust, vocab, p, err);
    if (st == MD_OK)
        st = md_llama_grammar_open(p->form, &s->grammar, err);
    if (st != MD_OK) {
        sampler_close(&s->base);
        return st;
    }
    llama_sampler_chain_add(s->adjust,
                            llama_sampler_init_penalties(s->vocab_count, p->repeat_last_n, p->repeat_penalty,
                                                         p->frequency_penalty, p->presence_penalty));
    if (p->temperature < 1e-3f) {
        llama_sampler_chain_add(s->choose, llama_sampler_init_greedy());
    } else {
        llama_sampler_chain_add(s->choose, llama_sampler_init_top_k(p->top_k));
        llama_sampler_chain_add(s->choose, llama_sampler_init_top_p(p->top_p, 1));
        llama_sampler_chain_add(s->choose, llama_sampler_init_min_p(p->min_p, 1));
        llama_sampler_chain_add(s->choose, llama_sampler_init_temp(p->temperature));
        llama_sampler_chain_add(s->choose, llama_sampler_init_dist(choose_seed(p->seed)));
    }
    *ret_sampler = &s->base;
    return MD_OK;
}
