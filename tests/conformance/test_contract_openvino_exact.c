/* The contract of a session on OpenVINO with the exact model: f32 weights and KV. */
#include "support/suite_models.h"

int main(void)
{
    return md_contract_run_exact(&md_suite_openvino, "contract_openvino_exact", -1);
}
