/* The suite on llama.cpp with tiny models that have recurrent layers and no windows; without the walks
 * (test_conformance_llama_tail_walks.c). */
#include "adapters/llama/llama_backend.h"
#include "support/conformance_tails.h"

int main(void)
{
    return md_conformance_tails(&md_backend_llama, MD_MODELS_OTHERS, MD_PART_STEPS);
}
