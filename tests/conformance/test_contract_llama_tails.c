/* The contract of a session on llama.cpp with tiny models in f32 that have a tail state: windows beside attention that sees
 * everything, recurrent layers beside it, and recurrent layers alone. */
#include "adapters/llama/llama_backend.h"
#include "support/contract_suite.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/tiny_models.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BATCH = 32 }; /* small: windows shall get lost */

static const struct md_tiny_model *const models[] = { &md_tiny_windowed, &md_tiny_hybrid,
                                                      &md_tiny_recurrent };
enum { MODELS = sizeof models / sizeof models[0] };

static void path_of(int model, char *out, size_t out_bytes)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(out, out_bytes, "%s/modeld-contract-%ld-%d.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid(),
             model);
}

START_TEST(write_the_models) /* whose writer asserts, which can only be done in a test */
{
    for (int i = 0; i < MODELS; i++) {
        char path[512];
        struct md_err err = { 0 };
        path_of(i, path, sizeof path);
        ck_assert_msg(md_tiny_model_write(models[i], path, &err) == MD_OK, "%s", err.text);
    }
}
END_TEST

static int run(int model)
{
    static md_token tokens[MD_CONTRACT_TOKENS];
    char path[512], name[96];
    struct md_err err = { 0 };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    path_of(model, path, sizeof path);
    snprintf(name, sizeof name, "contract_llama, %s", models[model]->name);
    const struct md_open_params params = { .model_path = path,
                                           .cell_count = MD_CONTRACT_CELLS,
                                           .ubatch_tokens = BATCH,
                                           .threads = 1,    /* the model is too small for more */
                                           .flash_attn = 0, /* it would round f32 KV to f16 */
                                           .type_k = "f32",
                                           .type_v = "f32" };
    enum md_status s = md_backend_llama.open(&params, &engine, &text, &err);
    unlink(path);
    if (s != MD_OK) {
        fprintf(stderr, "%s: %s\n", name, err.text);
        return 1;
    }
    md_subject_random_tokens(tokens, MD_CONTRACT_TOKENS);
    const struct md_contract_subject subject = { .name = name,
                                                 .engine = engine,
                                                 .text = text,
                                                 .tokens = tokens,
                                                 .ends = { MD_EXACT_TOKEN_END },
                                                 .end_count = 1,
                                                 .tolerance = 1e-3f };
    const int failed = md_contract_run(&subject);
    md_text_close(text);
    return failed;
}

static int write_models(void)
{
    const char *one = getenv("CK_RUN_CASE"); /* means a scenario */
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

int main(void)
{
    int failed = write_models();
    for (int i = 0; i < MODELS; i++)
        failed |= run(i);
    return failed;
}
