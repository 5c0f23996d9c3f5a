/* Queries and keys of the engine llama on a model whose attention is known in closed form (lookup_model.h), with each way
 * of attention and KV types that round; the fake engine, which is plain C, on the same model first.
 *
 * Its heads have 64 numbers: the library then turns queries and quantised keys by a Hadamard matrix, both, so that their
 * products stay. */
#include "adapters/llama/llama_backend.h"
#include "engine/attention.h"
#include "engine/fake.h"
#include "support/exact_model.h"
#include "support/lookup_model.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <unistd.h>

static char path[512];
static struct md_fake_model *model;

static void setup(void)
{
    ck_assert(md_exact_model_file_of("lookup", md_lookup_model_open, &model, path, sizeof path));
}

static void teardown(void)
{
    md_fake_model_close(model);
    unlink(path);
}

START_TEST(in_plain_c)
{
    const struct md_fake_options options = { .cell_count = MD_LOOKUP_CELLS, .attention = true };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_fake_open(model, &options, &e, &err) == MD_OK, "%s", err.text);
    md_lookup_check(e, "fake", 1e-3);
    md_engine_close(e);
}
END_TEST

static struct md_engine *open_llama(int flash_attn, const char *type_k, bool attention)
{
    const struct md_open_params params = { .model_path = path,
                                           .cell_count = MD_LOOKUP_CELLS,
                                           .ubatch_tokens = MD_LOOKUP_STEP,
                                           .threads = 1,
                                           .flash_attn = flash_attn,
                                           .type_k = type_k,
                                           .type_v = flash_attn ? "f16" : "f32",
                                           .attention = attention };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_backend_llama.open(&params, &e, NULL, &err) == MD_OK, "%s", err.text);
    return e;
}

/* f16 and bf16 keep 11 and 8 bits of a number, q8_0 about 7 of the largest in 32. */
static const struct {
    const char *type;
    int flash_attn;
    double tolerance;
} rows[] = {
    { "f32", 0, 1e-3 },  { "f32", 1, 1e-3 },  { "f16", 0, 1e-3 },  { "f16", 1, 1e-3 },
    { "bf16", 1, 1e-2 }, { "q8_0", 1, 1e-2 }, { "q8_0", 0, 1e-2 },
};

START_TEST(in_llama)
{
    char name[64];
    struct md_engine *e = open_llama(rows[_i].flash_attn, rows[_i].type, true);
    snprintf(name, sizeof name, "llama, keys of %s, %s", rows[_i].type,
             rows[_i].flash_attn ? "flash attention" : "without flash attention");
    md_lookup_check(e, name, rows[_i].tolerance);
    md_engine_close(e);
}
END_TEST

START_TEST(unasked_it_is_not_claimed)
{
    struct md_engine *e = open_llama(0, "f32", false);
    int32_t count = 1;
    uint16_t key;
    const int32_t layer = 0;
    struct md_queries q;
    ck_assert(!(md_engine_caps(e) & MD_CAP_ATTENTION_SCORES));
    ck_assert(md_engine_attention(e, &count) == NULL && count == 0);
    ck_assert_int_eq(md_engine_watch(e, &layer, 1, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_queries(e, 0, &q, NULL), MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_keys(e, (struct md_range){ 0, 1 }, (struct md_bytes){ 0 }, &layer, 1, &key,
                                    NULL),
                     MD_UNSUPPORTED);
    md_engine_close(e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attention llama");
    TCase *c = tcase_create("attention");
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, in_plain_c);
    tcase_add_loop_test(c, in_llama, 0, sizeof rows / sizeof rows[0]);
    tcase_add_test(c, unasked_it_is_not_claimed);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
