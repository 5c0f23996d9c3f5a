/* The suite on llama.cpp with Gemma-3-270M: windows of 512 tokens on 15 of 18 layers, and 4-bit weights, so that a batch
 * boundary alone moves the logits; what must be identical still is.  Without the tail state
 * (test_model_conformance_tails_gemma.c) and case B120 (test_model_conformance_chunks_gemma.c): calls are long here, and what they may take back is long. */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

enum { CELLS = 1792, BATCH = 1024 };

int main(void)
{
    const unsigned caps = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE |
                          MD_CAP_RECOMPUTE_RANGE | MD_CAP_CHECKPOINT;
    const struct md_open_params params = {
        .model_path = ".deps/models/gemma3-270m.gguf",
        .cell_count = CELLS,
        .batch_tokens = BATCH,
        .ubatch_tokens = BATCH,
        .threads = 1, /* two that wait for each other are slow on a busy machine */
        .flash_attn = -1
    };
    return md_conformance_run_real(&(struct md_suite_engine){ .backend = &md_backend_llama }, &params,
                                   "llama_gemma", MD_PART_RANGES, caps, MD_SUBJECT_MIN_TOKENS, 0);
}
