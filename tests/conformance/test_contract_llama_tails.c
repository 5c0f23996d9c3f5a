/* The contract of a session on llama.cpp with a tiny model in f32 that has windows beside attention that sees everything. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

int main(void)
{
    static const struct md_tiny_model *const models[] = { &md_tiny_windowed };
    return md_contract_run_tiny(&md_backend_llama, models, sizeof models / sizeof models[0]);
}
