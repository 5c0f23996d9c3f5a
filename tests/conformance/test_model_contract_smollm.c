/* The contract of a session on llama.cpp with SmolLM2, a 4-bit model: where its figures were computed in other
 * calls its logits differ, so that answers are compared at the steps at which the best token is sure. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

int main(void)
{
    return md_contract_run_smollm(&(struct md_suite_engine){ .backend = &md_backend_llama },
                                  "contract_smollm");
}
