/* The contract of a session on OpenVINO with a tiny model whose windows have 32 tokens; f32 weights and KV.  All rows of its
 * windowed layers are kept, so that it has many sequences and no checkpoints. */
#include "support/suite_models.h"

int main(void)
{
    static const struct md_tiny_model *const windowed = &md_tiny_windowed;
    return md_contract_run_tiny(&md_suite_openvino_tiny, &windowed, 1);
}
