/* test_past_openvino_exact.c - B126: past the trained window on OpenVINO with the exact model, f32 weights and KV, as
 * test_past_llama_exact.c does it on llama.cpp and with the same bounds; and what cannot go there is refused when it is
 * opened, not after a thousand tokens.
 *
 * The model was trained for 512 tokens here (the file says so), the step is 64, and the conversation has 3,400. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "session/pool.h"
#include "support/past_far.h"
#include "support/run_suite.h"
#include "support/suite_models.h"
#include "support/tiny_models.h"
#include "text/text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRAINED = 512, HOT = 448, BATCH = 70, BLOCK = 32, TOTAL = 3400, COLD = 64 << 20 };

static char path[512], windowed_path[512];

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");
    struct md_err err = { 0 };
    past_far_write(path, sizeof path, "past-ov", TRAINED);
    snprintf(windowed_path, sizeof windowed_path, "%s/modeld-past-ov-windows-%ld.gguf",
             tmp != NULL ? tmp : "/tmp", (long)getpid());
    ck_assert_msg(md_tiny_model_write(&md_tiny_windowed, windowed_path, &err) == MD_OK, "%s", err.text);
}

static void teardown(void)
{
    unlink(path);
    unlink(windowed_path);
}

/* A turn of 70 tokens is more than the step, so that the first block moves with each. */
START_TEST(b126_far_past_the_window)
{
    past_far_run(&(struct past_far){ .backend = md_suite_openvino.backend,
                                     .path = path,
                                     .flash_attn = -1,
                                     .hot = HOT,
                                     .batch = BATCH,
                                     .block = BLOCK,
                                     .total = TOTAL,
                                     .moves = (TOTAL - TRAINED) / BATCH - 1,
                                     .logits = true });
}
END_TEST

/* Whoever can go past the window has POSITION_SHIFT in the list of what the engine can, and the others are told why not
 * before the first token. */
START_TEST(b126_what_cannot_is_refused_at_once)
{
    const struct {
        const char *label, *path, *type, *says; /* NULL: it opens */
        bool shifts;                            /* in the list */
    } rows[] = {
        { "f32", path, "f32", NULL, true },
        { "f16", path, "f16", NULL, true },
        { "u8 is exact only where it is", path, "u8", "keys of type u8 cannot be moved", false },
        { "windows", windowed_path, "f32", "windowed or recurrent layers", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct md_open_params params = { .model_path = rows[i].path,
                                               .cell_count = HOT,
                                               .threads = 1,
                                               .flash_attn = -1,
                                               .type_k = rows[i].type,
                                               .type_v = rows[i].type };
        const struct md_pool_config config = { .window_tokens = TOTAL,
                                               .past_window = true,
                                               .hot_tokens = HOT,
                                               .residency = true,
                                               .block_tokens = BLOCK,
                                               .sink_tokens = -1,
                                               .recent_tokens = -1,
                                               .cold_bytes = COLD };
        struct md_engine *e;
        struct md_text *text;
        struct md_pool *pool = NULL;
        struct md_err err = { 0 };
        char list[256];
        ck_assert_msg(md_suite_openvino.backend->open(&params, &e, &text, &err) == MD_OK, "%s", err.text);
        md_engine_caps_text(md_engine_caps(e), list, sizeof list);
        ck_assert_msg((strstr(list, "position_shift") != NULL) == rows[i].shifts, "%s: %s", rows[i].label,
                      list);
        const enum md_status s = md_pool_open(&config, e, text, &pool, &err);
        ck_assert_msg(s == (rows[i].says == NULL ? MD_OK : MD_UNSUPPORTED), "%s: %s", rows[i].label,
                      err.text);
        ck_assert_msg(rows[i].says == NULL || strstr(err.text, rows[i].says) != NULL, "%s: %s", rows[i].label,
                      err.text);
        if (s == MD_OK)
            md_pool_close(pool);
        md_engine_close(e);
        md_text_close(text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("past_openvino_exact");
    TCase *c = tcase_create("past");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, b126_far_past_the_window);
    tcase_add_test(c, b126_what_cannot_is_refused_at_once);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
