/* The suite on llama.cpp with Gemma-3-270M: ranges that leave and come back beside the tail state
 * (test_model_conformance_tails_gemma.c). */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

enum { CELLS = 1792, BATCH = 512 };

int main(void)
{
    return md_conformance_run_gemma(&(struct md_suite_engine){ .backend = &md_backend_llama },
                                    "llama_gemma_tail_ranges", MD_PART_TAIL_RANGES, MD_SUITE_TAIL_CAPS, CELLS,
                                    BATCH);
}
