/* The suite on llama.cpp with SmolLM2, a 4-bit model: what a real model adds is rounding, so that a batch
 * boundary alone moves the logits; what must be identical still is. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 4096 };
static const float SURE_GAP = 0.1f; /* as case B120 has it: the prose was picked */

int main(void)
{
    const unsigned caps = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_POSITION_SHIFT |
                          MD_CAP_SPARSE_ATTENTION | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_SHARE;
    const struct md_open_params params = { .model_path = getenv("MODELD_TEST_MODEL"),
                                           .cell_count = CELLS,
                                           .batch_tokens = 1024,
                                           .ubatch_tokens = 512,
                                           .flash_attn = -1 };
    if (params.model_path == NULL) {
        fprintf(stderr, "MODELD_TEST_MODEL names no model file: set it to SmolLM2 (tests/run.sh does)\n");
        return 1;
    }
    return md_conformance_run_real(&(struct md_suite_engine){ .backend = &md_backend_llama }, &params,
                                   "llama_smollm", MD_PART_ALL, caps, CELLS, SURE_GAP);
}
