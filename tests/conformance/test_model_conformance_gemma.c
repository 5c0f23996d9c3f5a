/* The suite on llama.cpp with Gemma-3-270M: windows of 512 tokens on 15 of 18 layers, and 4-bit weights, so that a batch
 * boundary alone moves the logits; what must be identical still is.
 *
 * Case B120 has calls of 1001 tokens.  All else has the smallest windows that hold: what is said of the tail state is said
 * where cells are used again.  What other batchings do is measured once for all of that. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

enum { LONG_CELLS = 1280, LONG_CALL = 1024, CELLS = 1536, CALL = 256 };

int main(void)
{
    const struct md_suite_engine llama = { .backend = &md_backend_llama };
    int failed =
        md_conformance_run_gemma(&llama, "llama_gemma", MD_PART_BUT_CHUNKS, MD_SUITE_TAIL_CAPS, CELLS, CALL);
    failed |= md_conformance_run_gemma(&llama, "llama_gemma_chunks", MD_PART_CHUNKS, MD_SUITE_TAIL_CAPS,
                                       LONG_CELLS, LONG_CALL);
    return failed;
}
