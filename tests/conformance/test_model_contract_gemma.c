/* The contract of a session on llama.cpp with Gemma-3-270M: windows of 512 tokens on 15 of 18 layers, one sequence, 4 bits:
 * where its figures were computed in other calls its logits differ, so that answers are compared at the steps at which the
 * best token is sure.  Hot sets smaller than its windows are for other subjects (contract_suite.h). */
#include "adapters/llama/llama_backend.h"
#include "support/contract_suite.h"
#include "support/suite_models.h"

#include <stdio.h>
#include <unistd.h>

enum { END_OF_TURN = 106, END_OF_TEXT = 1 };

int main(void)
{
    const struct md_open_params params = {
        .model_path = ".deps/models/gemma3-270m.gguf",
        .cell_count = MD_CONTRACT_CELLS,
        .ubatch_tokens = 128,
        .threads = 1, /* two that wait for each other are slow on a busy machine */
        .flash_attn = -1
    };
    if (access(params.model_path, R_OK) != 0) {
        fprintf(stderr, "'%s' is missing: tools/setup.sh model gemma3-270m\n", params.model_path);
        return 1;
    }
    return md_contract_run_real(&md_backend_llama, &params, "contract_gemma",
                                (const md_token[]){ END_OF_TURN, END_OF_TEXT });
}
