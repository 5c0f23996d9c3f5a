/* The contract of a session on OpenVINO with SmolLM2: 4-bit weights, and all else in f32, KV too, so that the logits of each
 * answer are those of the dense run, however it came about. */
#include "support/suite_models.h"

int main(void)
{
    return md_contract_run_smollm(&md_suite_openvino, "contract_openvino_smollm");
}
