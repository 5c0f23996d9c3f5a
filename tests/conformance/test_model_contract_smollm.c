/* The contract of a session on llama.cpp with SmolLM2, a 4-bit model: where its figures were computed in other
 * calls its logits differ, so that answers are compared at the steps at which the best token is sure. */
#include "adapters/llama/llama_backend.h"
#include "support/contract_suite.h"
#include "support/suite_models.h"

#include <stdio.h>
#include <stdlib.h>

enum { END_OF_TURN = 2, END_OF_TEXT = 0 };

int main(void)
{
    const struct md_open_params params = {
        .model_path = getenv("MODELD_TEST_MODEL"),
        .cell_count = MD_CONTRACT_CELLS,
        .seq_count = MD_CONTRACT_SEQUENCES,
        .threads = 1, /* two that wait for each other are slow on a busy machine */
        .flash_attn = -1
    };
    if (params.model_path == NULL) {
        fprintf(stderr, "MODELD_TEST_MODEL names no model file: set it to SmolLM2 (tests/run.sh does)\n");
        return 1;
    }
    return md_contract_run_real(&md_backend_llama, &params, "contract_smollm",
                                (const md_token[]){ END_OF_TURN, END_OF_TEXT });
}
