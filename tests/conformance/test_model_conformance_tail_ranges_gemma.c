/* The suite on llama.cpp with Gemma-3-270M: ranges that leave and come back beside the tail state
 * (test_model_conformance_tails_gemma.c). */
#include "adapters/llama/llama_backend.h"
#include "support/suite_models.h"

/* Windows have 1024 cells, padded, for themselves and one micro-batch: what is saved before lies in them in the order of
 * positions, so that what is put back can be compared to the bit; and is used again before the scenarios end. */
enum { CELLS = 1792, UBATCH = 512 };

int main(void)
{
    const unsigned caps = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE |
                          MD_CAP_RECOMPUTE_RANGE | MD_CAP_CHECKPOINT;
    const struct md_open_params params = {
        .model_path = ".deps/models/gemma3-270m.gguf",
        .cell_count = CELLS,
        .batch_tokens = UBATCH,
        .ubatch_tokens = UBATCH,
        .threads = 1, /* two that wait for each other are slow on a busy machine */
        .flash_attn = -1
    };
    return md_conformance_run_real(&(struct md_suite_engine){ .backend = &md_backend_llama }, &params,
                                   "llama_gemma_tail_ranges", MD_PART_TAIL_RANGES, caps,
                                   MD_SUBJECT_MIN_TOKENS, 0);
}
