/* The random walk of the suite on llama.cpp with Gemma-3-270M, of which windowed layers (15 of 18) keep the last 512 tokens
 * and those of one call. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

enum { CELLS = 2048, BATCH = 512 };

int main(void)
{
    return md_conformance_run_gemma(&(struct md_suite_engine){ .backend = &md_backend_llama },
                                    "llama_gemma_walk", MD_PART_WALKS, MD_SUITE_TAIL_CAPS, CELLS, BATCH);
}
