/* test_states_llama_exact.c - the suite of tail states (support/states_suite.h) on llama.cpp with tiny models in f32: windows
 * beside attention that sees everything, and recurrent layers beside it. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

int main(void)
{
    static const struct md_tiny_model *const models[] = { &md_tiny_windowed, &md_tiny_hybrid };
    return md_states_run_tiny(&md_backend_llama, models, sizeof models / sizeof models[0]);
}
