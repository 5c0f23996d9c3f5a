/* The random walk of the suite on llama.cpp, with all tiny models that have a tail state. */
#include "adapters/llama/llama_backend.h"
#include "support/conformance_tails.h"

int main(void)
{
    return md_conformance_tails(&md_backend_llama, MD_MODELS_ALL, MD_PART_WALKS);
}
