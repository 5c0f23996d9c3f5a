/* test_states_llama_recurrent.c - the suite of tail states (support/states_suite.h) on llama.cpp with tiny models in f32 that
 * have recurrent layers alone: RWKV 7 and Mamba. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

int main(void)
{
    static const struct md_tiny_model *const models[] = { &md_tiny_recurrent, &md_tiny_state_space };
    return md_states_run_tiny(&md_backend_llama, models, sizeof models / sizeof models[0]);
}
