/* tiny_run.c - see tiny_run.h. */
#include "support/tiny_run.h"

#include "support/on_device.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct md_tiny_model *const *all;
static int all_count;

static void path_of(int model, char *out, size_t out_bytes)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(out, out_bytes, "%s/modeld-tiny-%ld-%d.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid(), model);
}

START_TEST(write_the_models) /* whose writer asserts, which can only be done in a test */
{
    for (int i = 0; i < all_count; i++) {
        char path[512];
        struct md_err err = { 0 };
        path_of(i, path, sizeof path);
        ck_assert_msg(md_tiny_model_write(all[i], path, &err) == MD_OK, "%s", err.text);
    }
}
END_TEST

static int write_models(void)
{
    const char *one = getenv("CK_RUN_CASE"); /* means a scenario of the suite that follows */
    char name[64] = "";
    snprintf(name, sizeof name, "%s", one != NULL ? one : "");
    unsetenv("CK_RUN_CASE");
    Suite *suite = suite_create("models");
    TCase *c = tcase_create("write");
    tcase_add_test(c, write_the_models);
    suite_add_tcase(suite, c);
    const int failed = md_run_suite_here(suite);
    if (name[0] != '\0')
        setenv("CK_RUN_CASE", name, 1);
    return failed;
}

int md_tiny_run(const struct md_backend *backend, const struct md_tiny_model *const *models, int count,
                int32_t cells, int32_t batch, int32_t ubatch, md_tiny_suite_fn *suite)
{
    all = models;
    all_count = count;
    int failed = write_models();
    for (int i = 0; i < count; i++) {
        char path[512];
        struct md_err err = { 0 };
        struct md_engine *engine = NULL;
        struct md_text *text = NULL;
        path_of(i, path, sizeof path);
        const struct md_open_params params = { .model_path = path,
                                               .cell_count = cells,
                                               .batch_tokens = batch,
                                               .ubatch_tokens = ubatch,
                                               .gpu_layers = md_test_gpu_layers(),
                                               .threads = 1,    /* the model is too small for more */
                                               .flash_attn = 0, /* it would round f32 KV to f16 */
                                               .attention = true,
                                               .type_k = "f32",
                                               .type_v = "f32" };
        const enum md_status s = backend->open(&params, &engine, &text, &err);
        unlink(path);
        if (s != MD_OK)
            fprintf(stderr, "%s: %s\n", models[i]->name, err.text);
        failed |= s != MD_OK || suite(models[i], engine, text) != 0;
    }
    return failed;
}
