/* A question is taken back and evaluated again (support/retrieve_back.h) on the engine openvino, in f32, on a tiny model whose
 * windows have 32 tokens: it keeps all their rows and could tell their keys, and only layers without a window are scored. */
#include "support/retrieve_back.h"
#include "support/run_suite.h"
#include "support/suite_models.h"
#include "support/tiny_run.h"

#include <check.h>

static struct md_engine *engine;
static struct md_text *text;

START_TEST(in_openvino)
{
    md_retrieve_back_check(engine, text, "openvino, windowed", 1e-3f); /* another order of the same sums */
    md_text_close(text);
}
END_TEST

static int one_model(const struct md_tiny_model *m, struct md_engine *e, struct md_text *t)
{
    Suite *suite = suite_create(m->name);
    TCase *c = tcase_create("back");
    engine = e;
    text = t;
    tcase_set_timeout(c, 120);
    tcase_add_test(c, in_openvino);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}

int main(void)
{
    static const struct md_tiny_model *const models[] = { &md_tiny_windowed };
    return md_tiny_run(&md_suite_openvino_tiny, models, 1, MD_RETRIEVE_BACK_CELLS, MD_RETRIEVE_BACK_BATCH,
                       MD_RETRIEVE_BACK_BATCH, one_model);
}
