/* The suite on llama.cpp with Gemma-3-270M, of which windowed layers (15 of 18) keep the last 512 tokens and those of one
 * call: what is said of the tail state, saved and put back, where the windows of earlier positions are lost. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

enum { CELLS = 1792, BATCH = 512 };

int main(void)
{
    return md_conformance_run_gemma(&(struct md_suite_engine){ .backend = &md_backend_llama },
                                    "llama_gemma_tails", MD_PART_TAILS, MD_SUITE_TAIL_CAPS, CELLS, BATCH);
}
