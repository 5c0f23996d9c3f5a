/* test_states_llama_recurrent.c - the suite of tail states (support/states_suite.h) on llama.cpp with tiny models in f32 that
 * have recurrent layers alone: RWKV 7 and Mamba. */
#include "adapters/llama/llama_backend.h"
#include "support/exact_model.h"
#include "support/states_suite.h"
#include "support/subjects.h"
#include "support/tiny_run.h"

static int run(const struct md_tiny_model *m, struct md_engine *engine, struct md_text *text)
{
    static md_token tokens[MD_STATES_TOKENS];
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
    static const struct md_tiny_model *const models[] = { &md_tiny_recurrent, &md_tiny_state_space };
    return md_tiny_run(&md_backend_llama, models, sizeof models / sizeof models[0], MD_STATES_CELLS,
                       MD_STATES_BATCH, run);
}
