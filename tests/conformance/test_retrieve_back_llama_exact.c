/* A question is taken back and evaluated again (support/retrieve_back.h) on the engine llama, in f32, on tiny models of every kind
 * of layer that keeps the end of a sequence only; the fake engine, which is exact to the last bit, on its own first. */
#include "adapters/llama/llama_backend.h"
#include "engine/fake.h"
#include "support/on_device.h"
#include "support/retrieve_back.h"
#include "support/run_suite.h"
#include "support/scripted.h"
#include "support/tiny_run.h"

#include <check.h>

static const float exact = 1e-3f; /* of all tests in f32: another order of the same sums */

static const struct {
    const char *name;
    int32_t tail_period, window;
} fakes[] = { { "fake", 0, 0 }, { "fake, windowed", 2, 32 }, { "fake, recurrent layers too", 2, 0 } };

START_TEST(in_plain_c)
{
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    const struct md_script script = { .pieces = two, .count = 2 };
    const struct md_fake_options options = { .cell_count = MD_RETRIEVE_BACK_CELLS,
                                             .batch_tokens = MD_RETRIEVE_BACK_BATCH,
                                             .attention = true };
    struct md_fake_dims dims = md_fake_dims_default();
    struct md_fake_model *model;
    struct md_engine *engine;
    struct md_text *text;
    dims.tail_period = fakes[_i].tail_period;
    dims.window_tokens = fakes[_i].window;
    ck_assert_int_eq(md_scripted_open(&script, NULL, &text, NULL), MD_OK);
    ck_assert_int_eq(md_fake_model_open(&dims, 1, NULL, &model, NULL), MD_OK);
    ck_assert_int_eq(md_fake_open(model, &options, &engine, NULL), MD_OK);
    md_retrieve_back_check(engine, text, fakes[_i].name, 0);
    md_text_close(text);
    md_fake_model_close(model);
}
END_TEST

static struct md_engine *engine;
static struct md_text *text;
static const char *name;

START_TEST(in_llama)
{
    md_retrieve_back_check(engine, text, name, md_test_bound(exact));
    md_text_close(text);
}
END_TEST

static TCase *new_case(Suite *suite)
{
    TCase *c = tcase_create("back");
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return c;
}

static int one_model(const struct md_tiny_model *m, struct md_engine *e, struct md_text *t)
{
    Suite *suite = suite_create(m->name);
    engine = e;
    text = t;
    name = m->name;
    tcase_add_test(new_case(suite), in_llama);
    return md_run_suite_here(suite);
}

int main(void)
{
    static const struct md_tiny_model *const models[] = { &md_tiny_windowed, &md_tiny_hybrid };
    Suite *suite = suite_create("fake");
    tcase_add_loop_test(new_case(suite), in_plain_c, 0, sizeof fakes / sizeof fakes[0]);
    const int failed = md_run_suite_here(suite);
    return failed | md_tiny_run(&md_backend_llama, models, sizeof models / sizeof models[0],
                                MD_RETRIEVE_BACK_CELLS, MD_RETRIEVE_BACK_BATCH, MD_RETRIEVE_BACK_BATCH,
                                one_model);
}
