/* The contract of a session on llama.cpp with Gemma-3-270M: windows of 512 tokens on 15 of 18 layers, one sequence, 4 bits:
 * where its figures were computed in other calls its logits differ, so that answers are compared at the steps at which the
 * best token is sure.  Hot sets smaller than its windows are for other subjects (contract_suite.h). */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

int main(void)
{
    return md_contract_run_gemma(&(struct md_suite_engine){ .backend = &md_backend_llama }, "contract_gemma");
}
