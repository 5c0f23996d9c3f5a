/* The contract of a session on llama.cpp with tiny models in f32 that have recurrent layers, beside attention and alone. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

int main(void)
{
    static const struct md_tiny_model *const models[] = { &md_tiny_hybrid, &md_tiny_recurrent };
    return md_contract_run_tiny(&md_backend_llama, models, sizeof models / sizeof models[0]);
}
