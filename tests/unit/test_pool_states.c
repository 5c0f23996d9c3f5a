/* test_pool_states.c - the suite of tail states (support/states_suite.h) on the fake engine, which is exact to the last bit:
 * with windowed layers, and with recurrent ones, beside global ones and alone. */
#include "engine/fake.h"
#include "support/rng.h"
#include "support/scripted.h"
#include "support/states_suite.h"

#include <assert.h>

static int run(const char *name, int32_t tail_period, int32_t window)
{
    static md_token tokens[MD_STATES_TOKENS];
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    const struct md_script script = { .pieces = two, .count = 2 };
    const struct md_fake_options o = { .cell_count = MD_STATES_CELLS,
                                       .seq_count = 1,
                                       .batch_tokens = MD_STATES_BATCH };
    struct md_fake_dims dims = md_fake_dims_default();
    struct md_fake_model *model = NULL;
    struct md_text *text = NULL;
    struct md_engine *engine = NULL;
    struct rng rng = { 7 };
    dims.tail_period = tail_period;
    dims.window_tokens = window;
    for (int i = 0; i < MD_STATES_TOKENS; i++)
        tokens[i] = (md_token)(rng_next(&rng) % MD_SCRIPTED_END);
    if (md_scripted_open(&script, NULL, &text, NULL) != MD_OK ||
        md_fake_model_open(&dims, 1, NULL, &model, NULL) != MD_OK ||
        md_fake_open(model, &o, &engine, NULL) != MD_OK)
        return 1;
    assert(md_engine_caps(engine) & MD_CAP_CHECKPOINT);
    md_states_watch(&engine);
    const struct md_states_subject s = {
        .name = name, .engine = engine, .text = text, .tokens = tokens, .end = MD_SCRIPTED_END
    };
    const int failed = md_states_run(&s);
    md_engine_close(engine);
    md_text_close(text);
    md_fake_model_close(model);
    return failed;
}

int main(void)
{
    enum { NO_GLOBAL_LAYER = 8 };
    return run("states, windowed", 2, 32) + run("states, recurrent", 2, 0) +
           run("states, windows alone", NO_GLOBAL_LAYER, 32) +
           run("states, recurrent alone", NO_GLOBAL_LAYER, 0);
}
