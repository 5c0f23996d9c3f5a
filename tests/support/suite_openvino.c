/* suite_openvino.c - the engine openvino as the suites open it: as `modeld` does. */
#include "adapters/all/engines.h"
#include "support/suite_models.h"

/* A row may lie elsewhere when it comes back, and attention then adds in another order: all else is computed in f32, where
 * that makes 1e-3 at most, as in the exact tests.  So that what is sure for a prompt that was picked (case B120: 0.1) is sure
 * for any.
 *
 * f16 KV is for the exact models: where a key rounds the other way, 5e-5 become 5e-3, and few batchings show how far that
 * goes: on SmolLM2 nine of them had only four different logits, 0.005 apart at most, where holes made 0.009. */
static enum md_status open_tiny(const struct md_open_params *params, struct md_engine **ret_engine,
                                struct md_text **ret_text, struct md_err *err)
{
    struct md_open_params p = *params;
    p.flash_attn = -1;
    return md_backend_openvino.open(&p, ret_engine, ret_text, err);
}

const struct md_backend md_suite_openvino_tiny = { .name = "openvino", .open = open_tiny };

const struct md_suite_engine md_suite_openvino = { .backend = &md_backend_openvino,
                                                   .kv_type = "f32",
                                                   .seq_count = 4,
                                                   .same_tolerance = 1e-3f,
                                                   .sure_gap = 0.1f,
                                                   .polls_by_time = true };
