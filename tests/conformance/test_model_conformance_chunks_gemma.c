/* Case B120 on llama.cpp with Gemma-3-270M: a prompt of 1001 tokens, twice its window, in calls of 1001 to one. */
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
                                   "llama_gemma_chunks", MD_PART_CHUNKS, caps, MD_SUBJECT_MIN_TOKENS, 0);
}
