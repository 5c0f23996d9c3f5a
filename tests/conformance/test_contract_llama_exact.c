/* The contract of a session on llama.cpp with the exact model: f32 weights and KV, without flash attention (which
 * rounds keys and values to f16, see test_conformance_llama_exact.c). */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

int main(void)
{
    return md_contract_run_exact(&(struct md_suite_engine){ .backend = &md_backend_llama },
                                 "contract_llama_exact", 0);
}
