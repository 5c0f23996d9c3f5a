/* The contract of a session on OpenVINO with Gemma-3-270M: windows of 512 tokens on 15 of 18 layers, of which all rows are kept,
 * so that it has many sequences and no checkpoints; all but the weights is f32.  Hot sets smaller than its windows are for
 * other subjects (contract_suite.h). */
#include "support/suite_models.h"

int main(void)
{
    return md_contract_run_gemma(&md_suite_openvino, "contract_openvino_gemma");
}
