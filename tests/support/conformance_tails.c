/* conformance_tails.c - see conformance_tails.h. */
#include "support/conformance_tails.h"

#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/tiny_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { UBATCH = 64 }; /* windows have cells for themselves and one micro-batch: they are soon used again */

static const unsigned tail = MD_CAP_REMOVE_TAIL | MD_CAP_CHECKPOINT;
static const unsigned ranges = MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE;

static const struct {
    const struct md_tiny_model *model;
    bool ranges, starts_only;
    float tolerance, least_move; /* below 0: no layer sees what is evicted */
} rows[] = {
    { &md_tiny_windowed, true, false, 1e-3f, 0.01f },   { &md_tiny_hybrid_windowed, true, true, 1e-3f, -1 },
    { &md_tiny_hybrid, true, true, 1e-3f, 0.01f },      { &md_tiny_hybrid_mrope, true, true, 1e-3f, 0.01f },
    { &md_tiny_recurrent, false, true, 1e-4f, 0.003f }, { &md_tiny_state_space, false, true, 1e-3f, 0.01f },
};
enum { ROWS = sizeof rows / sizeof rows[0], FIRST_OTHER = 2 };

static void path_of(int row, char *out, size_t out_bytes)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(out, out_bytes, "%s/modeld-tail-%ld-%d.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid(), row);
}

static int first_row, end_row;

START_TEST(write_the_models) /* whose writer asserts, which can only be done in a test */
{
    for (int i = first_row; i < end_row; i++) {
        char path[512];
        struct md_err err = { 0 };
        path_of(i, path, sizeof path);
        ck_assert_msg(md_tiny_model_write(rows[i].model, path, &err) == MD_OK, "%s", err.text);
    }
}
END_TEST

static int run(int row, const struct md_backend *backend, enum md_conformance_part part)
{
    static md_token tokens[MD_SUBJECT_MIN_TOKENS];
    const struct md_tiny_model *m = rows[row].model;
    const unsigned caps = tail | (rows[row].ranges ? ranges : 0);
    char path[512];
    struct md_err err = { 0 };
    struct md_engine *engine = NULL;
    path_of(row, path, sizeof path);
    const struct md_open_params params = { .model_path = path,
                                           .cell_count = MD_SUBJECT_MIN_CELLS,
                                           .ubatch_tokens = UBATCH,
                                           .threads = 1,
                                           .flash_attn = 0, /* it would round f32 KV to f16 */
                                           .type_k = "f32",
                                           .type_v = "f32" };
    enum md_status s = backend->open(&params, &engine, NULL, &err);
    unlink(path);
    if (s == MD_OK && md_engine_caps(engine) != caps) {
        char text[160];
        md_engine_caps_text(md_engine_caps(engine), text, sizeof text);
        s = md_fail(&err, MD_INTERNAL, "it can '%s'", text);
    }
    if (s != MD_OK) {
        fprintf(stderr, "%s: %s\n", m->name, err.text);
        md_engine_close(engine);
        return 1;
    }
    md_subject_random_tokens(tokens, MD_SUBJECT_MIN_TOKENS);
    const struct md_subject subject = { .name = m->name,
                                        .part = part,
                                        .engine = engine,
                                        .small = true,
                                        .starts_only = rows[row].starts_only,
                                        .tokens = tokens,
                                        .token_count = MD_SUBJECT_MIN_TOKENS,
                                        .same_tolerance = rows[row].tolerance,
                                        .reference_tolerance = 1e-3f,
                                        .least_move = rows[row].least_move,
                                        .moved_tolerance = rows[row].tolerance };
    const int failed = md_conformance_run(&subject);
    md_engine_close(engine);
    return failed;
}

int md_conformance_tails(const struct md_backend *backend, enum md_conformance_models which,
                         enum md_conformance_part part)
{
    const char *one = getenv("CK_RUN_CASE"); /* means a scenario */
    char name[64] = "";
    snprintf(name, sizeof name, "%s", one != NULL ? one : "");
    unsetenv("CK_RUN_CASE");
    first_row = which == MD_MODELS_OTHERS ? FIRST_OTHER : 0;
    end_row = which == MD_MODELS_WINDOWED ? FIRST_OTHER : ROWS;
    Suite *suite = suite_create("models");
    TCase *c = tcase_create("write");
    tcase_add_test(c, write_the_models);
    suite_add_tcase(suite, c);
    int failed = md_run_suite_here(suite);
    if (name[0] != '\0')
        setenv("CK_RUN_CASE", name, 1);
    for (int i = first_row; i < end_row; i++)
        failed |= run(i, backend, part);
    return failed;
}
