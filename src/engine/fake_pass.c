/* fake_pass.c - the forward pass of the fake engine.
 *
 * It goes token by token: how tokens are cut into calls cannot change a bit.  Attention sums run in order of
 * position, whatever cells the KV lies in. */
#include "engine/fake_internal.h"

#include <math.h>
#include <string.h>

/* Eight sums side by side: a compiler may use vectors without being allowed to reorder. */
static float dot(const float *a, const float *b, int32_t n)
{
    float sum[8] = { 0 };
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int32_t j = 0; j < 8; j++)
            sum[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static void multiply(float *out, const float *matrix, const float *in, int32_t rows, int32_t cols)
{
    for (int32_t i = 0; i < rows; i++)
        out[i] = dot(matrix + (size_t)i * (size_t)cols, in, cols);
}

static void rms_norm(float *out, const float *x, const float *weight, int32_t n, float eps)
{
    float scale = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (int32_t i = 0; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

/* In double: at position 100,000 a float angle is already off by a hundredth of a turn. */
static void fill_turn(struct md_fake *f, int32_t pos)
{
    const struct md_fake_dims *d = &f->model->dims;
    for (int32_t i = 0; i < d->head_dim / 2; i++) {
        double angle = pos * pow((double)d->rope_base, -2.0 * i / d->head_dim);
        f->turn[2 * i] = (float)cos(angle);
        f->turn[2 * i + 1] = (float)sin(angle);
    }
}

static void rotate(const struct md_fake *f, float *vectors, int32_t heads)
{
    const int32_t n = f->model->dims.head_dim;
    for (float *v = vectors; v < vectors + (size_t)heads * (size_t)n; v += n)
        for (int32_t i = 0; i < n; i += 2) {
            float a = v[i], b = v[i + 1], c = f->turn[i], s = f->turn[i + 1];
            v[i] = a * c - b * s;
            v[i + 1] = a * s + b * c;
        }
}

/* One query head over `count` rows; key_at and value_at are offsets in a row. */
static void attend(const struct md_fake *f, const float *q, const float *const *rows, int32_t count,
                   size_t key_at, size_t value_at, float *out)
{
    const int32_t n = f->model->dims.head_dim;
    const float scale = 1.0f / sqrtf((float)n);
    float top = -INFINITY, sum = 0;
    for (int32_t i = 0; i < count; i++) {
        f->scores[i] = dot(q, rows[i] + key_at, n) * scale;
        top = fmaxf(top, f->scores[i]);
    }
    memset(out, 0, (size_t)n * sizeof *out);
    for (int32_t i = 0; i < count; i++) {
        const float w = expf(f->scores[i] - top), *value = rows[i] + value_at;
        sum += w;
        for (int32_t j = 0; j < n; j++)
            out[j] += w * value[j];
    }
    for (int32_t j = 0; j < n; j++)
        out[j] /= sum;
}

/* One KV head of a recurrent layer: its matrix forgets a little and takes in the outer product of key and value. */
static void take_in(float *matrix, const float *key, const float *value, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < n; j++)
            matrix[i * n + j] = 0.9f * matrix[i * n + j] + key[i] * value[j];
}

static void read_out(const float *matrix, const float *q, int32_t n, float *out)
{
    for (int32_t j = 0; j < n; j++) {
        out[j] = 0;
        for (int32_t i = 0; i < n; i++)
            out[j] += q[i] * matrix[i * n + j];
        out[j] /= (float)n;
    }
}

/* What the token looks at in a layer, by its kind. */
struct view {
    float *own; /* the token's row in cells; in the tail */
    float *near_own, *state;
    int32_t seen, near; /* rows in f->seen and f->near */
};

static void mix(struct md_fake *f, const struct md_fake_layer_at *at, const struct view *v)
{
    const struct md_fake_dims *d = &f->model->dims;
    const int32_t n = d->head_dim, kv = d->kv_heads * n, group = d->heads / d->kv_heads;
    const bool global = at->kind == MD_FAKE_GLOBAL;
    for (int32_t g = 0; at->kind == MD_FAKE_RECURRENT && g < d->kv_heads; g++)
        take_in(v->state + at->at + g * n * n, f->kv + g * n, f->kv + kv + g * n, n);
    for (int32_t h = 0; h < d->heads; h++) {
        const int32_t g = h / group;
        const float *q = f->q + (size_t)h * (size_t)n;
        float *out = f->mixed + (size_t)h * (size_t)n;
        const size_t key_at = at->at + (size_t)g * (size_t)n;
        if (at->kind == MD_FAKE_RECURRENT)
            read_out(v->state + at->at + g * n * n, q, n, out);
        else
            attend(f, q, global ? f->seen : f->near, global ? v->seen : v->near, key_at, key_at + (size_t)kv,
                   out);
    }
}

static void run_layer(struct md_fake *f, int32_t layer, int32_t row, const struct view *v)
{
    const struct md_fake_dims *d = &f->model->dims;
    const struct md_fake_layer *l = &f->model->layers[layer];
    const struct md_fake_layer_at *at = &f->layers[layer];
    const int32_t n = d->head_dim, kv = d->kv_heads * n;
    float *keys = at->kind == MD_FAKE_GLOBAL     ? v->own + at->at
                  : at->kind == MD_FAKE_WINDOWED ? v->near_own + at->at
                                                 : f->kv;

    rms_norm(f->normed, f->x, l->attn_norm, d->width, d->norm_eps);
    multiply(f->q, l->q, f->normed, d->heads * n, d->width);
    multiply(keys, l->k, f->normed, kv, d->width);
    multiply(keys + kv, l->v, f->normed, kv, d->width);
    rotate(f, f->q, d->heads);
    rotate(f, keys, d->kv_heads);
    md_fake_keep_queries(f, layer, row);
    mix(f, at, v);
    for (int32_t i = 0; i < d->width; i++)
        f->x[i] += dot(l->o + (size_t)i * (size_t)(d->heads * n), f->mixed, d->heads * n);

    rms_norm(f->normed, f->x, l->ffn_norm, d->width, d->norm_eps);
    multiply(f->gate, l->gate, f->normed, d->ffn, d->width);
    multiply(f->up, l->up, f->normed, d->ffn, d->width);
    for (int32_t i = 0; i < d->ffn; i++)
        f->up[i] *= f->gate[i] / (1.0f + expf(-f->gate[i]));
    for (int32_t i = 0; i < d->width; i++)
        f->x[i] += dot(l->down + (size_t)i * (size_t)d->ffn, f->up, d->ffn);
}

/* The token at index `at` of the timeline, over the hot cells up to and with itself, and its tail; row `row` of its
 * call. */
static void run_token(struct md_fake *f, md_seq seq, int32_t at, int32_t row, md_token token)
{
    const struct md_fake_dims *d = &f->model->dims;
    const struct md_fake_timeline *t = &f->seqs[seq];
    const int32_t pos = f->cells[t->at[at].cell].pos;
    struct view v = { .own = md_fake_row(f, t->at[at].cell) };
    for (int32_t i = 0; i <= at; i++)
        if (t->at[i].hot)
            f->seen[v.seen++] = md_fake_row(f, t->at[i].cell);
    if (d->tail_period > 0) {
        v.near_own = md_fake_tail_push(f, &f->tails[seq], pos);
        v.near = md_fake_tail_near(f, &f->tails[seq]);
        v.state = f->tails[seq].state;
    }
    fill_turn(f, pos);
    memcpy(f->x, f->model->embed + (size_t)token * (size_t)d->width, (size_t)d->width * sizeof *f->x);
    for (int32_t layer = 0; layer < d->layers; layer++)
        run_layer(f, layer, row, &v);
}

enum md_status md_fake_run(struct md_fake *f, md_seq seq, int32_t start, const md_token *tokens,
                           int32_t count, struct md_err *err)
{
    struct md_fake_timeline *t = &f->seqs[seq];
    struct md_fake_tail *tail = &f->tails[seq];
    const int32_t end = tail->end;
    if (count > f->free_count)
        return md_fail(err, MD_NO_MEMORY, "%d tokens do not fit %d free cells", count, f->free_count);
    memcpy(f->undo_state, tail->state, f->state_floats * sizeof(float));
    for (int32_t i = 0; i < count; i++) {
        if (md_engine_interrupted(&f->base)) {
            md_fake_remove(f, t, (struct md_range){ start, start + i });
            md_fake_tail_undo(tail, end);
            memcpy(tail->state, f->undo_state, f->state_floats * sizeof(float));
            return md_fail(err, MD_CANCELLED, "cancelled at token %d of %d", i, count);
        }
        int32_t at = md_fake_find(f, t, start + i);
        md_fake_add(f, t, at, start + i);
        run_token(f, seq, at, i, tokens[i]);
    }
    return MD_OK;
}

const float *md_fake_logits(struct md_fake *f)
{
    const struct md_fake_dims *d = &f->model->dims;
    rms_norm(f->normed, f->x, f->model->output_norm, d->width, d->norm_eps);
    multiply(f->logits, f->model->output, f->normed, d->vocab, d->width);
    return f->logits;
}

void md_fake_turn(struct md_fake *f, float *row, int32_t distance)
{
    const struct md_fake_dims *d = &f->model->dims;
    fill_turn(f, distance);
    for (int32_t layer = 0; layer < d->layers; layer++)
        if (f->layers[layer].kind == MD_FAKE_GLOBAL)
            rotate(f, row + f->layers[layer].at, d->kv_heads);
}
