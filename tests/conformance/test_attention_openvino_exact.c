/* Queries and keys of the engine openvino on a model whose attention is known in closed form (lookup_model.h), and
 * against those of the engine llama: on the exact model, and on a tiny one with windows, norms of queries and queries that
 * are scaled behind RoPE (gemma3). */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "support/attention_check.h"
#include "support/exact_model.h"
#include "support/lookup_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/tiny_models.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LLAMA, OPENVINO, ENGINES, PROMPT = 75 };

static char lookup_path[512], exact_path[512], windowed_path[512];
static md_token tokens[PROMPT];

static void setup(void)
{
    struct md_fake_model *model = NULL;
    struct md_err err = { 0 };
    const char *tmp = getenv("TMPDIR");
    snprintf(windowed_path, sizeof windowed_path, "%s/modeld-attention-windowed-%ld.gguf",
             tmp != NULL ? tmp : "/tmp", (long)getpid());
    ck_assert(md_exact_model_file_of("attention-lookup", md_lookup_model_open, &model, lookup_path,
                                     sizeof lookup_path));
    md_fake_model_close(model);
    ck_assert(md_exact_model_file("attention-exact", &model, exact_path, sizeof exact_path));
    md_fake_model_close(model);
    ck_assert_msg(md_tiny_model_write(&md_tiny_windowed, windowed_path, &err) == MD_OK, "%s", err.text);
    md_subject_random_tokens(tokens, PROMPT);
}

static void teardown(void)
{
    unlink(lookup_path);
    unlink(exact_path);
    unlink(windowed_path);
}

static struct md_engine *open_engine(int which, const char *path, const char *type)
{
    const struct md_open_params params = { .model_path = path,
                                           .cell_count = MD_LOOKUP_CELLS,
                                           .ubatch_tokens = which == LLAMA ? 0 : MD_LOOKUP_STEP,
                                           .threads = 1,
                                           .flash_attn = which == LLAMA ? 0 : -1,
                                           .type_k = type,
                                           .type_v = type,
                                           .attention = true };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    const enum md_status s =
        which == LLAMA ? md_backend_llama.open(&params, &e, NULL, &err) : md_openvino_open(&params, &e, &err);
    ck_assert_msg(s == MD_OK, "%s", err.text);
    return e;
}

/* u8 keeps 8 bits of the span of a row. */
static const struct {
    const char *type;
    double tolerance;
} rows[] = { { "f32", 1e-3 }, { "f16", 1e-3 }, { "u8", 1e-2 } };

START_TEST(in_openvino)
{
    char name[64];
    struct md_engine *e = open_engine(OPENVINO, lookup_path, rows[_i].type);
    snprintf(name, sizeof name, "openvino, %s", rows[_i].type);
    md_lookup_check(e, name, rows[_i].tolerance);
    md_engine_close(e);
}
END_TEST

/* Query times key times scale, of all heads, tokens and positions of a layer: how the numbers of a head are ordered is
 * each engine's own. */
static float *products(struct md_engine *e, int32_t layer)
{
    int32_t count = 0;
    const struct md_attention_layer *l = md_engine_attention(e, &count) + layer;
    const struct md_range r = { 0, PROMPT };
    struct md_buf kv;
    struct md_err err = { 0 };
    md_buf_init(&kv, NULL, 1 << 24);
    ck_assert_msg(md_engine_export_range(e, 0, r, &kv, &err) == MD_OK, "%s", err.text);
    float *q = md_check_queries(e, layer, 0, PROMPT), *k = md_check_keys(e, r, &kv, layer);
    float *ret = calloc((size_t)l->query_heads * PROMPT * PROMPT, sizeof *ret), *next = ret;
    ck_assert_ptr_nonnull(ret);
    for (int32_t h = 0; h < l->query_heads; h++)
        for (int32_t p = 0; p < PROMPT; p++)
            for (int32_t j = 0; j < PROMPT; j++, next++)
                for (int32_t i = 0; i < l->length; i++)
                    *next += l->scale * q[(p * l->query_heads + h) * l->length + i] *
                             k[(h * l->key_heads / l->query_heads * PROMPT + j) * l->length + i];
    free(q);
    free(k);
    md_buf_done(&kv);
    return ret;
}

/* Both engines attend alike in all layers that both can tell of. */
static void compare(const char *path, int32_t layers_both)
{
    struct md_engine *e[ENGINES];
    const struct md_attention_layer *l[ENGINES];
    int32_t count = 0, both = 0;
    for (int i = 0; i < ENGINES; i++) {
        int32_t layers[MD_CHECK_LAYERS_MAX];
        struct md_err err = { 0 };
        e[i] = open_engine(i, path, "f32");
        l[i] = md_engine_attention(e[i], &count);
        const int32_t watched = md_check_watchable(e[i], layers);
        ck_assert_int_gt(watched, 0);
        ck_assert_msg(md_engine_watch(e[i], layers, watched, &err) == MD_OK, "%s", err.text);
        ck_assert_msg(md_engine_prefill(e[i], 0, 0, tokens, PROMPT, &err) == MD_OK, "%s", err.text);
    }
    for (int32_t i = 0; i < count; i++) {
        if (l[LLAMA][i].length == 0 || l[OPENVINO][i].length == 0)
            continue;
        ck_assert(l[LLAMA][i].query_heads == l[OPENVINO][i].query_heads);
        ck_assert(l[LLAMA][i].windowed == l[OPENVINO][i].windowed);
        float *a = products(e[LLAMA], i), *b = products(e[OPENVINO], i), most = 0, apart = 0;
        const size_t all = (size_t)l[LLAMA][i].query_heads * PROMPT * PROMPT;
        for (size_t n = 0; n < all; n++) {
            most = fmaxf(most, fabsf(a[n]));
            apart = fmaxf(apart, fabsf(a[n] - b[n]));
        }
        printf("layer %d, scales %g and %g: products up to %g, apart by %g\n", i, (double)l[LLAMA][i].scale,
               (double)l[OPENVINO][i].scale, (double)most, (double)apart);
        ck_assert_msg(apart <= 1e-3f * most, "layer %d: apart by %g", i, (double)apart);
        ck_assert(most > 0.01f);
        free(a);
        free(b);
        both++;
    }
    ck_assert_int_eq(both, layers_both);
    for (int i = 0; i < ENGINES; i++)
        md_engine_close(e[i]);
}

START_TEST(as_llama_on_the_exact_model)
{
    compare(exact_path, 4);
}
END_TEST

START_TEST(as_llama_with_scaled_queries) /* the one layer without a window: llama exports no others */
{
    compare(windowed_path, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attention openvino");
    TCase *c = tcase_create("attention");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, in_openvino, 0, sizeof rows / sizeof rows[0]);
    tcase_add_test(c, as_llama_on_the_exact_model);
    tcase_add_test(c, as_llama_with_scaled_queries);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
