/* The contract of a session on OpenVINO with a tiny model whose windows have 32 tokens; f32 weights and KV.  All rows of its
 * windowed layers are kept, so that it has many sequences and no checkpoints. */
#include "support/suite_models.h"

/* It has one way to attend, which keeps f32. */
static enum md_status open_windowed(const struct md_open_params *params, struct md_engine **ret_engine,
                                    struct md_text **ret_text, struct md_err *err)
{
    struct md_open_params p = *params;
    p.flash_attn = -1;
    return md_suite_openvino.backend->open(&p, ret_engine, ret_text, err);
}

int main(void)
{
    static const struct md_backend backend = { .name = "openvino", .open = open_windowed };
    static const struct md_tiny_model *const windowed = &md_tiny_windowed;
    return md_contract_run_tiny(&backend, &windowed, 1);
}
