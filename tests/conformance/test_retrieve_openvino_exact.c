/* Blocks come back by attention (session/retrieve.h) on the engine openvino, on a model whose attention is known
 * (support/retrieve_check.h), with KV that rounds and without. */
#include "adapters/openvino/ov_backend.h"
#include "support/exact_model.h"
#include "support/lookup_model.h"
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

static const char *const types[] = { "f32", "f16", "u8" };

START_TEST(in_openvino)
{
    char name[64];
    const struct md_open_params params = { .model_path = path,
                                           .cell_count = MD_RETRIEVE_CHECK_CELLS,
                                           .ubatch_tokens = MD_LOOKUP_STEP,
                                           .threads = 1,
                                           .flash_attn = -1,
                                           .type_k = types[_i],
                                           .type_v = types[_i],
                                           .attention = true };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_openvino_open(&params, &e, &err) == MD_OK, "%s", err.text);
    snprintf(name, sizeof name, "openvino, %s", types[_i]);
    md_retrieve_check(e, name);
    md_engine_close(e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("retrieve openvino");
    TCase *c = tcase_create("retrieve");
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, in_openvino, 0, sizeof types / sizeof types[0]);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
