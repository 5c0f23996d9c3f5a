/* reference.c - see reference.h.  Slow and plain on purpose. */
#include "support/reference.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* All tokens of one kind of vector: item(t)[i]. */
struct table {
    double *at;
    int32_t width;
};

static double *item(const struct table *t, int32_t i)
{
    return t->at + (ptrdiff_t)i * t->width;
}

static bool table_make(struct table *t, int32_t count, int32_t width)
{
    *t = (struct table){ .at = calloc((size_t)count * (size_t)width, sizeof(double)), .width = width };
    return t->at != NULL;
}

static void project(double *out, const float *weights, int32_t outputs, const double *in, int32_t inputs)
{
    for (int32_t o = 0; o < outputs; o++) {
        out[o] = 0;
        for (int32_t i = 0; i < inputs; i++)
            out[o] += (double)weights[(ptrdiff_t)o * inputs + i] * in[i];
    }
}

static void normalise(double *out, const double *in, const float *gain, const struct md_fake_dims *d)
{
    double squares = 0;
    for (int32_t i = 0; i < d->width; i++)
        squares += in[i] * in[i];
    for (int32_t i = 0; i < d->width; i++)
        out[i] = (double)gain[i] * in[i] / sqrt(squares / d->width + (double)d->norm_eps);
}

/* Each pair of a head is a complex number that turns with the position. */
static void turn(double *head, int32_t pos, const struct md_fake_dims *d)
{
    for (int32_t pair = 0; pair < d->head_dim / 2; pair++) {
        double speed = exp(-2.0 * pair / d->head_dim * log((double)d->rope_base));
        double complex z = (head[2 * pair] + head[2 * pair + 1] * I) * cexp(I * (speed * pos));
        head[2 * pair] = creal(z);
        head[2 * pair + 1] = cimag(z);
    }
}

/* Softmax over what entry `who` sees, for one query head. */
static bool mix(double *out, const double *query, const struct table *keys, const struct table *values,
                int32_t shared_head, const bool *sees, int32_t count, int32_t dim)
{
    double *weight = calloc((size_t)count, sizeof *weight), total = 0, highest = -HUGE_VAL;
    if (weight == NULL)
        return false;
    for (int32_t j = 0; j < count; j++) {
        for (int32_t i = 0; i < dim; i++)
            weight[j] += query[i] * item(keys, j)[shared_head * dim + i];
        weight[j] /= sqrt(dim);
        if (sees[j] && weight[j] > highest)
            highest = weight[j];
    }
    for (int32_t j = 0; j < count; j++) {
        weight[j] = sees[j] ? exp(weight[j] - highest) : 0;
        total += weight[j];
    }
    for (int32_t i = 0; i < dim; i++) {
        out[i] = 0;
        for (int32_t j = 0; j < count; j++)
            out[i] += weight[j] / total * item(values, j)[shared_head * dim + i];
    }
    free(weight);
    return true;
}

/* A recurrent layer, written out: what entry `who` sees, each weakened by 0.9 for every token since, without softmax. */
static void weaken(double *out, const double *query, const struct table *keys, const struct table *values,
                   int32_t shared_head, const bool *sees, const struct md_ref_token *tokens, int32_t who,
                   int32_t dim)
{
    for (int32_t i = 0; i < dim; i++)
        out[i] = 0;
    for (int32_t j = 0; j <= who; j++) {
        double weight = 0;
        for (int32_t i = 0; sees[j] && i < dim; i++)
            weight += query[i] * item(keys, j)[shared_head * dim + i];
        weight *= pow(0.9, tokens[who].asked_at - tokens[j].pos) / dim;
        for (int32_t i = 0; i < dim; i++)
            out[i] += weight * item(values, j)[shared_head * dim + i];
    }
}

struct pass {
    const struct md_fake_model *m;
    bool *in_window; /* work: what one entry sees in a windowed layer */
    const struct md_ref_token *tokens;
    const bool *sees;
    int32_t count;
    int32_t layer;                               /* whose queries and keys are wanted */
    float *queries, *keys;                       /* NULL: they are not */
    struct table x, y, q, k, v, mixed, gate, up; /* x: residual; y: work */
};

static const bool *seen_by(struct pass *p, int32_t who, bool windowed)
{
    const bool *sees = p->sees + (ptrdiff_t)who * p->count;
    for (int32_t j = 0; windowed && j < p->count; j++)
        p->in_window[j] = sees[j] && p->tokens[who].asked_at - p->tokens[j].pos < p->m->dims.window_tokens;
    return windowed ? p->in_window : sees;
}

static bool mix_heads(struct pass *p, int32_t t, bool global)
{
    const struct md_fake_dims *d = &p->m->dims;
    const bool *sees = seen_by(p, t, !global && d->window_tokens > 0);
    for (int32_t h = 0; h < d->heads; h++) {
        double *out = item(&p->mixed, t) + h * d->head_dim;
        const double *query = item(&p->q, t) + h * d->head_dim;
        const int32_t shared = h * d->kv_heads / d->heads;
        if (!global && d->window_tokens == 0)
            weaken(out, query, &p->k, &p->v, shared, sees, p->tokens, t, d->head_dim);
        else if (!mix(out, query, &p->k, &p->v, shared, sees, p->count, d->head_dim))
            return false;
    }
    return true;
}

static bool attention_block(struct pass *p, const struct md_fake_layer *l, bool global)
{
    const struct md_fake_dims *d = &p->m->dims;
    for (int32_t t = 0; t < p->count; t++) {
        normalise(item(&p->y, t), item(&p->x, t), l->attn_norm, d);
        project(item(&p->q, t), l->q, p->q.width, item(&p->y, t), d->width);
        project(item(&p->k, t), l->k, p->k.width, item(&p->y, t), d->width);
        project(item(&p->v, t), l->v, p->v.width, item(&p->y, t), d->width);
        for (int32_t h = 0; h < d->heads; h++)
            turn(item(&p->q, t) + h * d->head_dim, p->tokens[t].asked_at, d);
        for (int32_t h = 0; h < d->kv_heads; h++)
            turn(item(&p->k, t) + h * d->head_dim, p->tokens[t].pos, d);
    }
    for (int32_t t = 0; t < p->count; t++) {
        if (!mix_heads(p, t, global))
            return false;
        project(item(&p->y, t), l->o, d->width, item(&p->mixed, t), p->mixed.width);
        for (int32_t i = 0; i < d->width; i++)
            item(&p->x, t)[i] += item(&p->y, t)[i];
    }
    return true;
}

static void feed_forward_block(struct pass *p, const struct md_fake_layer *l)
{
    const struct md_fake_dims *d = &p->m->dims;
    for (int32_t t = 0; t < p->count; t++) {
        double *gate = item(&p->gate, t), *up = item(&p->up, t);
        normalise(item(&p->y, t), item(&p->x, t), l->ffn_norm, d);
        project(gate, l->gate, d->ffn, item(&p->y, t), d->width);
        project(up, l->up, d->ffn, item(&p->y, t), d->width);
        for (int32_t i = 0; i < d->ffn; i++)
            up[i] *= gate[i] / (1 + exp(-gate[i]));
        project(item(&p->y, t), l->down, d->width, up, d->ffn);
        for (int32_t i = 0; i < d->width; i++)
            item(&p->x, t)[i] += item(&p->y, t)[i];
    }
}

static bool pass_run(struct pass *p, float *ret_logits)
{
    const struct md_fake_dims *d = &p->m->dims;
    const int32_t last = p->count - 1;
    for (int32_t t = 0; t < p->count; t++)
        for (int32_t i = 0; i < d->width; i++)
            item(&p->x, t)[i] = (double)p->m->embed[(ptrdiff_t)p->tokens[t].token * d->width + i];
    for (int32_t n = 0; n < d->layers; n++) {
        if (!attention_block(p, &p->m->layers[n], d->tail_period == 0 || (n + 1) % d->tail_period == 0))
            return false;
        for (int32_t i = 0; p->queries != NULL && n == p->layer && i < p->count * p->q.width; i++)
            p->queries[i] = (float)p->q.at[i];
        for (int32_t i = 0; p->keys != NULL && n == p->layer && i < p->count * p->k.width; i++)
            p->keys[i] = (float)p->k.at[i];
        feed_forward_block(p, &p->m->layers[n]);
    }
    normalise(item(&p->y, last), item(&p->x, last), p->m->output_norm, d);
    for (int32_t o = 0; o < d->vocab; o++) {
        double logit;
        project(&logit, p->m->output + (ptrdiff_t)o * d->width, 1, item(&p->y, last), d->width);
        ret_logits[o] = (float)logit;
    }
    return true;
}

static bool run(const struct md_fake_model *m, const struct md_ref_token *tokens, const bool *sees,
                int32_t count, int32_t layer, float *ret_queries, float *ret_keys, float *ret_logits)
{
    const struct md_fake_dims *d = &m->dims;
    const int32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    struct pass p = { .m = m,
                      .tokens = tokens,
                      .sees = sees,
                      .count = count,
                      .layer = layer,
                      .queries = ret_queries,
                      .keys = ret_keys };
    bool good = table_make(&p.x, count, d->width) && table_make(&p.y, count, d->width) &&
                table_make(&p.q, count, q) && table_make(&p.k, count, kv) && table_make(&p.v, count, kv) &&
                table_make(&p.mixed, count, q) && table_make(&p.gate, count, d->ffn) &&
                table_make(&p.up, count, d->ffn) &&
                (p.in_window = calloc((size_t)count, sizeof *p.in_window)) != NULL &&
                pass_run(&p, ret_logits);
    free(p.in_window);
    double *const owned[] = { p.x.at, p.y.at, p.q.at, p.k.at, p.v.at, p.mixed.at, p.gate.at, p.up.at };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    return good;
}

bool md_reference_logits(const struct md_fake_model *m, const struct md_ref_token *tokens, const bool *sees,
                         int32_t count, float *ret_logits)
{
    return run(m, tokens, sees, count, 0, NULL, NULL, ret_logits);
}

bool md_reference_attention(const struct md_fake_model *m, const struct md_ref_token *tokens,
                            const bool *sees, int32_t count, int32_t layer, float *ret_queries,
                            float *ret_keys)
{
    float *logits = calloc((size_t)m->dims.vocab, sizeof *logits);
    const bool good = logits != NULL && run(m, tokens, sees, count, layer, ret_queries, ret_keys, logits);
    free(logits);
    return good;
}
