/* What the shim gives besides logits: queries of layers, and the library's scores of attention.  On the exact model, whose
 * queries the reference pass computes in double; scores are held against a softmax that is computed here, from the
 * queries and the keys in the cache, there and on a tiny model with windows and norms of queries. */
#include "adapters/openvino/ov_shim.h"
#include "support/exact_model.h"
#include "support/reference.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/tiny_models.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT = 150, MORE = 45, TOKENS = PROMPT + MORE, BLOCKS = 12, PLACES = 8 };

static const float tolerance = 1e-3f;
/* Where the rows of the sequence lie: any order will do. */
static const int32_t table[PLACES] = { 7, 2, 9, 0, 5, 4, 8, 1 };

static char path[512], windowed_path[512];
static struct md_fake_model *model;
static md_token tokens[TOKENS];
static void *memory[2 * MD_FAKE_LAYERS_MAX];

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");
    struct md_err err = { 0 };
    snprintf(path, sizeof path, "%s/modeld-watch-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
    ck_assert_msg(md_exact_model_open(&model, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_exact_model_write(model, path, &err) == MD_OK, "%s", err.text);
    snprintf(windowed_path, sizeof windowed_path, "%s/modeld-watch-%ld-w.gguf", tmp != NULL ? tmp : "/tmp",
             (long)getpid());
    ck_assert_msg(md_tiny_model_write(&md_tiny_windowed, windowed_path, &err) == MD_OK, "%s", err.text);
    md_subject_random_tokens(tokens, TOKENS);
}

static void teardown(void)
{
    md_fake_model_close(model);
    unlink(path);
    unlink(windowed_path);
}

static struct md_ov_model *open_watched(const char *file, const struct md_ov_watch *watch)
{
    struct md_ov_model *m = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_ov_model_open(file, "CPU", MD_OV_F32, 1, watch, &m, &err) == MD_OK, "%s", err.text);
    const struct md_ov_facts *f = md_ov_model_facts(m);
    for (int32_t i = 0; i < f->layer_count; i++) {
        const size_t rows = (size_t)BLOCKS * MD_OV_BLOCK_ROWS * (size_t)f->layers[i].heads;
        memory[2 * i] = calloc(rows, (size_t)f->layers[i].key_bytes);
        memory[2 * i + 1] = calloc(rows, (size_t)f->layers[i].value_bytes);
        ck_assert_msg(md_ov_model_bind(m, i, memory[2 * i], memory[2 * i + 1], BLOCKS, &err) == MD_OK, "%s",
                      err.text);
    }
    return m;
}

static void close_watched(struct md_ov_model *m)
{
    const int32_t layers = md_ov_model_facts(m)->layer_count;
    md_ov_model_close(m);
    for (int32_t i = 0; i < 2 * layers; i++)
        free(memory[i]);
}

static enum md_status step(struct md_ov_model *m, int32_t start, int32_t count, bool (*stop)(void *user),
                           const float **ret_logits, struct md_err *err)
{
    const struct md_ov_step s = {
        .tokens = tokens + start,
        .start = start,
        .count = count,
        .table = table,
        .table_count = (start + count + MD_OV_BLOCK_ROWS - 1) / MD_OV_BLOCK_ROWS,
        .past = start,
        .window_rows = md_ov_model_facts(m)->window_tokens,
    };
    return md_ov_model_run(m, &s, stop, NULL, ret_logits, err);
}

static void step_ok(struct md_ov_model *m, int32_t start, int32_t count)
{
    const float *logits = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(step(m, start, count, NULL, &logits, &err) == MD_OK, "%s", err.text);
}

/* All queries of a layer, by the reference pass. */
static float *right_queries(int32_t layer)
{
    static struct md_ref_token list[TOKENS];
    static bool sees[TOKENS * TOKENS];
    float *q = calloc((size_t)TOKENS * (size_t)(model->dims.heads * model->dims.head_dim), sizeof *q);
    for (int32_t i = 0; i < TOKENS; i++) {
        list[i] = (struct md_ref_token){ .token = tokens[i], .pos = i, .asked_at = i };
        for (int32_t j = 0; j < TOKENS; j++)
            sees[i * TOKENS + j] = j <= i;
    }
    ck_assert(q != NULL && md_reference_attention(model, list, sees, TOKENS, layer, q, NULL));
    return q;
}

static void check_queries(struct md_ov_model *m, int32_t layer, const float *right, int32_t start,
                          int32_t count)
{
    struct md_ov_queries q;
    struct md_err err = { 0 };
    float worst = 0, most = 0;
    ck_assert_msg(md_ov_model_queries(m, layer, &q, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(q.rows, count);
    ck_assert_int_eq(q.heads, model->dims.heads);
    ck_assert_int_eq(q.length, model->dims.head_dim);
    const int32_t width = q.heads * q.length;
    for (int32_t i = 0; i < count * width; i++) {
        worst = fmaxf(worst, fabsf(q.at[i] - right[start * width + i]));
        most = fmaxf(most, fabsf(right[start * width + i]));
    }
    printf("layer %d, rows %d + %d: queries up to %g, off by %g\n", layer, start, count, (double)most,
           (double)worst);
    ck_assert_msg(worst <= tolerance, "layer %d, rows %d + %d: %g", layer, start, count, (double)worst);
    ck_assert(most > 0.1f); /* or it would prove little */
}

/* Queries and keys of a prompt, of a single token, and of some more tokens. */
START_TEST(queries_are_those_of_the_reference)
{
    static const int32_t layers[] = { 0, 2, 3 };
    const struct md_ov_watch watch = { layers, 3, false, false };
    static const int32_t steps[][2] = { { 0, PROMPT }, { PROMPT, 1 }, { PROMPT + 1, MORE - 1 } };
    struct md_ov_model *m = open_watched(path, &watch);
    for (int n = 0; n < 3; n++) {
        step_ok(m, steps[n][0], steps[n][1]);
        for (int i = 0; i < watch.count; i++) {
            float *right = right_queries(layers[i]);
            check_queries(m, layers[i], right, steps[n][0], steps[n][1]);
            free(right);
        }
    }
    close_watched(m);
}
END_TEST

/* The share of attention that the last row of `q` pays to each of `rows` rows, summed over heads. */
static void right_scores(struct md_ov_model *m, int32_t layer, const struct md_ov_queries *q, int32_t rows,
                         float *ret)
{
    const struct md_ov_layer *l = &md_ov_model_facts(m)->layers[layer];
    const float *last = q->at + (ptrdiff_t)(q->rows - 1) * q->heads * q->length;
    const int32_t window = md_ov_model_facts(m)->window_tokens,
                  first = l->windowed && rows > window ? rows - window : 0;
    memset(ret, 0, (size_t)rows * sizeof *ret);
    for (int32_t h = 0; h < q->heads; h++) {
        const int32_t shared = h * l->heads / q->heads;
        double weight[TOKENS], total = 0;
        for (int32_t r = first; r < rows; r++) {
            const int32_t block = table[r / MD_OV_BLOCK_ROWS], place = r % MD_OV_BLOCK_ROWS;
            const float *key =
                (const float *)memory[2 * layer] +
                ((ptrdiff_t)(block * l->heads + shared) * MD_OV_BLOCK_ROWS + place) * l->key_length;
            weight[r] = 0;
            for (int32_t i = 0; i < q->length; i++)
                weight[r] += (double)last[h * q->length + i] * (double)key[i];
            weight[r] = exp(weight[r] * (double)l->scale);
            total += weight[r];
        }
        for (int32_t r = first; r < rows; r++)
            ret[r] += (float)(weight[r] / total);
    }
}

static void check_scores(struct md_ov_model *m, int32_t layer, int32_t rows)
{
    struct md_ov_queries q;
    struct md_err err = { 0 };
    const float *scores = NULL;
    float right[TOKENS], worst = 0, sum = 0, most = 0;
    int32_t count = 0;
    ck_assert_int_eq(md_ov_model_queries(m, layer, &q, NULL), MD_OK);
    ck_assert_msg(md_ov_model_scores(m, layer, &scores, &count, &err) == MD_OK, "%s", err.text);
    right_scores(m, layer, &q, rows, right);
    ck_assert_int_eq(count, rows);
    for (int32_t r = 0; r < rows; r++) {
        worst = fmaxf(worst, fabsf(scores[r] - right[r]));
        most = fmaxf(most, right[r]);
        sum += scores[r];
    }
    printf("layer %d, %d rows, scale %g: scores up to %g, off by %g\n", layer, rows,
           (double)md_ov_model_facts(m)->layers[layer].scale, (double)most, (double)worst);
    ck_assert_msg(worst <= tolerance, "layer %d, %d rows: %g", layer, rows, (double)worst);
    ck_assert(fabsf(sum - (float)q.heads) <= tolerance); /* each head's shares sum to 1 */
}

START_TEST(scores_are_the_softmax_of_queries_and_keys)
{
    static const int32_t layers[] = { 1, 3 };
    const struct md_ov_watch watch = { layers, 2, true, false };
    static const int32_t steps[][2] = { { 0, PROMPT }, { PROMPT, 1 }, { PROMPT + 1, MORE - 1 } };
    struct md_ov_model *m = open_watched(path, &watch);
    for (int n = 0; n < 3; n++) {
        step_ok(m, steps[n][0], steps[n][1]);
        for (int i = 0; i < watch.count; i++) {
            ck_assert(fabs((double)md_ov_model_facts(m)->layers[layers[i]].scale - 1 / sqrt(16.0)) < 1e-6);
            check_scores(m, layers[i], steps[n][0] + steps[n][1]);
        }
    }
    close_watched(m);
}
END_TEST

/* 0, 1, ...: one for each letter. */
static int32_t all_layers(const char *letters, int32_t *ret)
{
    int32_t count = 0;
    for (; letters[count] != '\0'; count++)
        ret[count] = count;
    return count;
}

/* Layers with a window pay nothing to what is before it, and one without looks at all. */
START_TEST(scores_of_windowed_layers)
{
    int32_t layers[MD_FAKE_LAYERS_MAX];
    struct md_ov_watch watch = { layers, all_layers(md_tiny_windowed.layers, layers), true, false };
    static const int32_t steps[][2] = { { 0, 20 }, { 20, PROMPT - 20 }, { PROMPT, 1 } };
    struct md_ov_model *m = open_watched(windowed_path, &watch);
    int windowed = 0;
    ck_assert_int_eq(md_ov_model_facts(m)->layer_count, watch.count);
    for (int n = 0; n < 3; n++) {
        step_ok(m, steps[n][0], steps[n][1]);
        for (int32_t i = 0; i < watch.count; i++) {
            check_scores(m, i, steps[n][0] + steps[n][1]);
            windowed += md_ov_model_facts(m)->layers[i].windowed;
        }
    }
    ck_assert(windowed > 0 && windowed < 3 * watch.count);
    close_watched(m);
}
END_TEST

/* With nothing asked there is the output that there was; and what is watched changes no logit. */
START_TEST(nothing_is_added_unless_asked)
{
    static const int32_t layers[] = { 0, 1, 2, 3 };
    const struct md_ov_watch none = { NULL, 0, true, false }, all = { layers, 4, true, false },
                             half = { layers, 2, false, false };
    const struct {
        const struct md_ov_watch *watch;
        int32_t outputs;
    } rows[] = { { NULL, 1 }, { &none, 1 }, { &half, 3 }, { &all, 9 } };
    float before[MD_FAKE_BYTE_VOCAB];
    for (int n = 0; n < 4; n++) {
        struct md_ov_model *m = open_watched(path, rows[n].watch);
        const float *logits = NULL;
        ck_assert_int_eq(md_ov_model_facts(m)->output_count, rows[n].outputs);
        ck_assert_int_eq(step(m, 0, PROMPT, NULL, &logits, NULL), MD_OK);
        for (int32_t i = 0; n > 0 && i < MD_FAKE_BYTE_VOCAB; i++)
            ck_assert_msg(fabsf(logits[i] - before[i]) <= 1e-5f, "logit %d: %g and %g", i, (double)logits[i],
                          (double)before[i]);
        memcpy(before, logits, sizeof before);
        close_watched(m);
    }
}
END_TEST

/* A graph that is not for sparse steps is the one that it was: it has none of their inputs.  One that is says the same, as long
 * as no step is one. */
START_TEST(nothing_is_sparse_unless_asked)
{
    const struct md_ov_watch sparse = { NULL, 0, false, true }, none = { NULL, 0, false, false };
    const struct md_ov_watch *const rows[] = { NULL, &none, &sparse };
    float before[MD_FAKE_BYTE_VOCAB];
    int32_t inputs = 0;
    for (int n = 0; n < 3; n++) {
        struct md_ov_model *m = open_watched(path, rows[n]);
        const struct md_ov_facts *f = md_ov_model_facts(m);
        const float *logits = NULL;
        if (n == 0)
            inputs = f->input_count;
        ck_assert_int_eq(f->output_count, 1); /* logits */
        ck_assert_int_eq(f->input_count, inputs + (n == 2 ? f->layer_count + 2 : 0));
        ck_assert_int_eq(step(m, 0, PROMPT, NULL, &logits, NULL), MD_OK);
        if (n > 0)
            ck_assert_mem_eq(before, logits, sizeof before);
        memcpy(before, logits, sizeof before);
        close_watched(m);
    }
}
END_TEST

static bool at_once(void *user)
{
    (void)user;
    return true;
}

START_TEST(what_is_not_there_is_refused)
{
    static const int32_t layer_2[] = { 2 }, beyond[] = { 4 }, below[] = { -1 }, twice[] = { 1, 1 };
    const struct md_ov_watch wrong[] = { { beyond, 1, false, false },
                                         { below, 1, false, false },
                                         { twice, 2, false, false } };
    const struct md_ov_watch watch = { layer_2, 1, false, false };
    struct md_err err = { 0 };
    struct md_ov_model *m = NULL;
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(md_ov_model_open(path, "CPU", MD_OV_F32, 1, &wrong[i], &m, &err), MD_INVALID);
        ck_assert_msg(strstr(err.text, "0 to 3") != NULL, "%s", err.text);
    }
    m = open_watched(path, &watch);
    struct md_ov_queries q = { 0 };
    const float *some = NULL;
    int32_t count = 0;
    ck_assert_int_eq(md_ov_model_queries(m, 2, &q, NULL), MD_INVALID); /* before any step */
    step_ok(m, 0, 40);
    ck_assert_int_eq(md_ov_model_queries(m, 2, &q, NULL), MD_OK);
    ck_assert_int_eq(md_ov_model_queries(m, 1, &q, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "layer 1") != NULL, "%s", err.text);
    ck_assert_int_eq(md_ov_model_scores(m, 2, &some, &count, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "not asked") != NULL, "%s", err.text);
    ck_assert_int_eq(step(m, 40, 20, at_once, &some, NULL), MD_CANCELLED);
    ck_assert_int_eq(md_ov_model_queries(m, 2, &q, NULL), MD_INVALID); /* those of the step before are gone */
    step_ok(m, 40, 20);
    ck_assert_int_eq(md_ov_model_queries(m, 2, &q, NULL), MD_OK);
    ck_assert_int_eq(q.rows, 20);
    close_watched(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openvino watch");
    TCase *c = tcase_create("watch");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, queries_are_those_of_the_reference);
    tcase_add_test(c, scores_are_the_softmax_of_queries_and_keys);
    tcase_add_test(c, scores_of_windowed_layers);
    tcase_add_test(c, nothing_is_added_unless_asked);
    tcase_add_test(c, nothing_is_sparse_unless_asked);
    tcase_add_test(c, what_is_not_there_is_refused);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
