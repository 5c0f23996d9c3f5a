/* Case B120 on OpenVINO with Gemma-3-270M: a prompt of 1001 tokens, twice its window, in calls of 1001 to one. */
#include "support/suite_models.h"

enum { CELLS = 1792, BATCH = 1024 };

int main(void)
{
    const unsigned caps = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_POSITION_SHIFT |
                          MD_CAP_SPARSE_ATTENTION | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_SHARE;
    const struct md_open_params params = {
        .model_path = ".deps/models/gemma3-270m.gguf",
        .cell_count = CELLS,
        .batch_tokens = BATCH,
        .ubatch_tokens = BATCH,
        .threads = 1, /* two that wait for each other are slow on a busy machine */
        .flash_attn = -1,
        .type_k = "f32", /* f16 rounds more than other batchings show: test_conformance_openvino_smollm.c */
        .type_v = "f32"
    };
    return md_conformance_run_real(&md_suite_openvino, &params, "openvino_gemma_chunks", MD_PART_CHUNKS, caps,
                                   MD_SUBJECT_MIN_TOKENS, 0);
}
