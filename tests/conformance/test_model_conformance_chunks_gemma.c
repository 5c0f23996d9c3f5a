/* Case B120 on llama.cpp with Gemma-3-270M: a prompt of 1001 tokens, twice its window, in calls of 1001 to one. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

enum { CELLS = 1792, BATCH = 1024 };

int main(void)
{
    return md_conformance_run_gemma(&(struct md_suite_engine){ .backend = &md_backend_llama },
                                    "llama_gemma_chunks", MD_PART_CHUNKS, MD_SUITE_TAIL_CAPS, CELLS, BATCH);
}
