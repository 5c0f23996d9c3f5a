/* gemma_pass.c - see gemma_pass.h.  Slow and plain on purpose. */
#include "support/gemma_pass.h"

#include "base/half.h"
#include "host/gguf.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, WIDTH = 64, HEADS = 4, SHARED = 2, DIM = 16, FFN = 128, KV = SHARED * DIM };
static const double norm_eps = 1e-5, rope_base = 10000;

/* ---- weights ---- */

struct layer {
    float attn_norm[WIDTH], q[WIDTH * WIDTH], k[KV * WIDTH], v[KV * WIDTH], o[WIDTH * WIDTH];
    float ffn_norm[WIDTH], gate[FFN * WIDTH], up[FFN * WIDTH], down[WIDTH * FFN];
};

struct weights {
    float embed[MD_GEMMA_PASS_VOCAB * WIDTH], output_norm[WIDTH];
    struct layer layers[LAYERS];
};

/* count  numbers of f32 */
static void read_tensor(struct md_gguf *file, FILE *bytes, const char *name, float *to, size_t count)
{
    for (size_t i = 0; i < md_gguf_tensor_count(file); i++) {
        const struct md_gguf_tensor *t = md_gguf_tensor_at(file, i);
        if (strcmp(t->name, name) != 0)
            continue;
        ck_assert_int_eq(t->bytes, (int64_t)(count * sizeof *to));
        ck_assert_int_eq(fseeko(bytes, (off_t)t->offset, SEEK_SET), 0);
        ck_assert_uint_eq(fread(to, sizeof *to, count, bytes), count);
        return;
    }
    ck_abort_msg("there is no tensor '%s'", name);
}

static void read_layer(struct md_gguf *file, FILE *bytes, int number, struct layer *l)
{
    const struct {
        const char *name;
        float *to;
        size_t count;
    } all[] = {
        { "attn_norm", l->attn_norm, WIDTH },   { "attn_q", l->q, WIDTH * WIDTH },
        { "attn_k", l->k, KV * WIDTH },         { "attn_v", l->v, KV * WIDTH },
        { "attn_output", l->o, WIDTH * WIDTH }, { "ffn_norm", l->ffn_norm, WIDTH },
        { "ffn_gate", l->gate, FFN * WIDTH },   { "ffn_up", l->up, FFN * WIDTH },
        { "ffn_down", l->down, WIDTH * FFN },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", number, all[i].name);
        read_tensor(file, bytes, name, all[i].to, all[i].count);
    }
}

static struct weights *read_weights(const char *path)
{
    struct weights *w = malloc(sizeof *w);
    struct md_gguf *file = NULL;
    struct md_err err = { 0 };
    FILE *bytes = fopen(path, "rb");
    ck_assert_ptr_nonnull(w);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_msg(md_gguf_open(path, &file, &err) == MD_OK, "%s", err.text);
    read_tensor(file, bytes, "token_embd.weight", w->embed, MD_GEMMA_PASS_VOCAB * WIDTH);
    read_tensor(file, bytes, "output_norm.weight", w->output_norm, WIDTH);
    for (int i = 0; i < LAYERS; i++)
        read_layer(file, bytes, i, &w->layers[i]);
    md_gguf_close(file);
    fclose(bytes);
    return w;
}

/* ---- the pass ---- */

static void project(double *out, const float *weights, int outputs, const double *in, int inputs)
{
    for (int o = 0; o < outputs; o++) {
        out[o] = 0;
        for (int i = 0; i < inputs; i++)
            out[o] += (double)weights[o * inputs + i] * in[i];
    }
}

static void normalise(double *out, const double *in, const float *gain)
{
    double squares = 0;
    for (int i = 0; i < WIDTH; i++)
        squares += in[i] * in[i];
    for (int i = 0; i < WIDTH; i++)
        out[i] = (double)gain[i] * in[i] / sqrt(squares / WIDTH + norm_eps);
}

static void turn(double *head, int position)
{
    for (int i = 0; i < DIM / 2; i++) {
        const double angle = position * pow(rope_base, -2.0 * i / DIM), x = head[i], y = head[i + DIM / 2];
        head[i] = x * cos(angle) - y * sin(angle);
        head[i + DIM / 2] = x * sin(angle) + y * cos(angle);
    }
}

static double gelu_of(double x, enum md_gelu gelu)
{
    const double root = 0.79788456080286535588, third = 0.044715; /* of 2 / pi; as Gemma has it, by tanh */
    const bool outside = x <= -10 || x >= 10;                     /* of the table */
    const double in =
        gelu == MD_GELU_COMPUTED || outside ? x : (double)md_half_to_float(md_half_of((float)x));
    const double value = 0.5 * in * (1 + tanh(root * in * (1 + third * in * in)));
    return gelu == MD_GELU_COMPUTED || outside ? value : (double)md_half_to_float(md_half_of((float)value));
}

struct token {
    double x[WIDTH], q[WIDTH], k[KV], v[KV]; /* x: residual */
};

/* What token `who` makes of itself and those before it. */
static void attend(double out[WIDTH], const struct token *all, int who)
{
    double *share = malloc(((size_t)who + 1) * sizeof *share);
    ck_assert_ptr_nonnull(share);
    for (int h = 0; h < HEADS; h++) {
        const int shared = h * SHARED / HEADS * DIM;
        double most = -HUGE_VAL, total = 0;
        for (int j = 0; j <= who; j++) {
            share[j] = 0;
            for (int i = 0; i < DIM; i++)
                share[j] += all[who].q[h * DIM + i] * all[j].k[shared + i] / sqrt(DIM);
            most = fmax(most, share[j]);
        }
        for (int j = 0; j <= who; j++)
            total += share[j] = exp(share[j] - most);
        for (int i = 0; i < DIM; i++) {
            out[h * DIM + i] = 0;
            for (int j = 0; j <= who; j++)
                out[h * DIM + i] += share[j] / total * all[j].v[shared + i];
        }
    }
    free(share);
}

static void run_layer(struct token *all, int count, const struct layer *l, enum md_gelu gelu)
{
    double normed[WIDTH], mixed[WIDTH], gate[FFN], up[FFN], out[WIDTH];
    for (int t = 0; t < count; t++) {
        normalise(normed, all[t].x, l->attn_norm);
        project(all[t].q, l->q, WIDTH, normed, WIDTH);
        project(all[t].k, l->k, KV, normed, WIDTH);
        project(all[t].v, l->v, KV, normed, WIDTH);
        for (int h = 0; h < HEADS; h++)
            turn(all[t].q + h * DIM, t);
        for (int h = 0; h < SHARED; h++)
            turn(all[t].k + h * DIM, t);
    }
    for (int t = 0; t < count; t++) { /* keys and values of this layer are all there */
        attend(mixed, all, t);
        project(out, l->o, WIDTH, mixed, WIDTH);
        for (int i = 0; i < WIDTH; i++)
            all[t].x[i] += out[i];
        normalise(normed, all[t].x, l->ffn_norm);
        project(gate, l->gate, FFN, normed, WIDTH);
        project(up, l->up, FFN, normed, WIDTH);
        for (int i = 0; i < FFN; i++)
            up[i] *= gelu_of(gate[i], gelu);
        project(out, l->down, WIDTH, up, FFN);
        for (int i = 0; i < WIDTH; i++)
            all[t].x[i] += out[i];
    }
}

void md_gemma_pass(const char *path, const md_token *tokens, int32_t count, int32_t asked, enum md_gelu gelu,
                   float *ret_logits)
{
    struct weights *w = read_weights(path);
    struct token *all = calloc((size_t)count, sizeof *all);
    ck_assert_ptr_nonnull(all);
    for (int t = 0; t < count; t++)
        for (int i = 0; i < WIDTH; i++)
            all[t].x[i] = (double)w->embed[tokens[t] * WIDTH + i] * sqrt(WIDTH);
    for (int i = 0; i < LAYERS; i++)
        run_layer(all, count, &w->layers[i], gelu);
    for (int t = count - asked; t < count; t++) {
        double normed[WIDTH], logit;
        normalise(normed, all[t].x, w->output_norm);
        for (int v = 0; v < MD_GEMMA_PASS_VOCAB; v++) {
            project(&logit, w->embed + (ptrdiff_t)v * WIDTH, 1, normed, WIDTH);
            *ret_logits++ = (float)logit;
        }
    }
    free(all);
    free(w);
}
