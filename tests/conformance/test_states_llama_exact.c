/* test_states_llama_exact.c - the suite of tail states (support/states_suite.h) on llama.cpp with tiny models in f32: windows
 * beside attention that sees everything, recurrent layers beside it, and recurrent layers alone (RWKV 7, Mamba). */
#include "adapters/llama/llama_backend.h"
#include "support/run_suite.h"
#include "support/states_suite.h"
#include "support/subjects.h"
#include "support/exact_model.h"
#include "support/tiny_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct md_tiny_model *const models[] = { &md_tiny_windowed, &md_tiny_hybrid, &md_tiny_recurrent,
                                                      &md_tiny_state_space };
enum { MODELS = sizeof models / sizeof models[0] };

static void path_of(int model, char *out, size_t out_bytes)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(out, out_bytes, "%s/modeld-states-%ld-%d.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid(),
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
    const struct md_tiny_model *m = models[model];
    static md_token tokens[MD_STATES_TOKENS];
    char path[512];
    struct md_err err = { 0 };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    path_of(model, path, sizeof path);
    const struct md_open_params params = { .model_path = path,
                                           .cell_count = MD_STATES_CELLS,
                                           .batch_tokens = MD_STATES_BATCH,
                                           .ubatch_tokens = MD_STATES_BATCH,
                                           .threads = 1,    /* the model is too small for more */
                                           .flash_attn = 0, /* it would round f32 KV to f16 */
                                           .type_k = "f32",
                                           .type_v = "f32" };
    enum md_status s = md_backend_llama.open(&params, &engine, &text, &err);
    unlink(path);
    if (s != MD_OK) {
        fprintf(stderr, "%s: %s\n", m->name, err.text);
        return 1;
    }
    md_subject_random_tokens(tokens, MD_STATES_TOKENS);
    for (int i = 0; i < MD_STATES_TOKENS; i++)
        tokens[i] &= 127; /* bytes, and so are their neighbours */
    md_states_watch(&engine);
    const struct md_states_subject subject = { .name = m->name,
                                               .engine = engine,
                                               .text = text,
                                               .tokens = tokens,
                                               .end = MD_EXACT_TOKEN_END,
                                               .tolerance = 1e-3f };
    const int failed = md_states_run(&subject);
    md_engine_close(engine);
    md_text_close(text);
    return failed;
}

int main(void)
{
    Suite *suite = suite_create("models");
    TCase *c = tcase_create("write");
    tcase_add_test(c, write_the_models);
    suite_add_tcase(suite, c);
    int failed = md_run_suite_here(suite);
    for (int i = 0; i < MODELS; i++)
        failed |= run(i);
    return failed;
}
