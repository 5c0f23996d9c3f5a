/* The suite on llama.cpp with Gemma-3-270M: windows of 512 tokens on 15 of 18 layers, and 4-bit weights, so that a batch
 * boundary alone moves the logits; what must be identical still is.  Without the tail state
 * (test_model_conformance_tails_gemma.c) and case B120 (test_model_conformance_chunks_gemma.c): calls are long here, and what they may take back is long. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

enum { CELLS = 1792, BATCH = 1024 };

int main(void)
{
    return md_conformance_run_gemma(&(struct md_suite_engine){ .backend = &md_backend_llama }, "llama_gemma",
                                    MD_PART_RANGES, MD_SUITE_TAIL_CAPS, CELLS, BATCH);
}
