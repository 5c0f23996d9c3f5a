/* Blocks come back by attention (session/retrieve.h) on the engine llama, on a model whose attention is known
 * (support/retrieve_check.h), with KV that rounds and without; the fake engine, which is plain C, on the same model first. */
#include "adapters/llama/llama_backend.h"
#include "engine/fake.h"
#include "support/exact_model.h"
#include "support/lookup_model.h"
#include "support/on_device.h"
#include "support/retrieve_check.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <unistd.h>

static char path[512];
static struct md_fake_model *model;

static void setup(void)
{
    ck_assert(md_exact_model_file_of("retrieve", md_lookup_model_open, &model, path, sizeof path));
}

static void teardown(void)
{
    md_fake_model_close(model);
    unlink(path);
}

START_TEST(in_plain_c)
{
    const struct md_fake_options options = { .cell_count = MD_RETRIEVE_CHECK_CELLS, .attention = true };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_fake_open(model, &options, &e, &err) == MD_OK, "%s", err.text);
    md_retrieve_check(e, "fake");
    md_engine_close(e);
}
END_TEST

static const struct {
    const char *type;
    int flash_attn;
} rows[] = { { "f32", 0 }, { "f16", 1 }, { "q8_0", 1 } };

START_TEST(in_llama)
{
    char name[64];
    const struct md_open_params params = { .model_path = path,
                                           .cell_count = MD_RETRIEVE_CHECK_CELLS,
                                           .ubatch_tokens = MD_LOOKUP_STEP,
                                           .threads = 1,
                                           .gpu_layers = md_test_gpu_layers(),
                                           .flash_attn = rows[_i].flash_attn,
                                           .type_k = rows[_i].type,
                                           .type_v = rows[_i].flash_attn ? "f16" : "f32",
                                           .attention = true };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_backend_llama.open(&params, &e, NULL, &err) == MD_OK, "%s", err.text);
    snprintf(name, sizeof name, "llama, keys of %s", rows[_i].type);
    md_retrieve_check(e, name);
    md_engine_close(e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("retrieve llama");
    TCase *c = tcase_create("retrieve");
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, in_plain_c);
    tcase_add_loop_test(c, in_llama, 0, sizeof rows / sizeof rows[0]);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
