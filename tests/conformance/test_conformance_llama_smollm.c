/* The suite on llama.cpp with SmolLM2, a 4-bit model: what a real model adds is rounding, so that a batch
 * boundary alone moves the logits; what must be identical still is. */
#include "adapters/llama/llama_backend.h"
#include "support/conformance.h"
#include "support/subjects.h"
#include "text/text.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    const struct md_open_params params = { .model_path = getenv("MODELD_TEST_MODEL"),
                                           .cell_count = 4096,
                                           .batch_tokens = 1024,
                                           .ubatch_tokens = 512,
                                           .flash_attn = -1 };
    struct md_err err = { 0 };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    struct md_tokens tokens = { 0 };
    if (params.model_path == NULL) {
        fprintf(stderr, "MODELD_TEST_MODEL names no model file: set it to SmolLM2 (tests/run.sh does)\n");
        return 1;
    }
    enum md_status s = md_backend_llama.open(&params, &engine, &text, &err);
    if (s == MD_OK)
        s = md_subject_prose_tokens(text, 24 << 10, 4096, &tokens,
                                    &err); /* four bytes a token and some to spare */
    if (s != MD_OK)
        fprintf(stderr, "SmolLM2 cannot be tested: %s\n", err.text);
    int failed = 1;
    if (s == MD_OK) {
        const struct md_subject subject = { .name = "llama_smollm",
                                            .engine = engine,
                                            .tokens = tokens.ids,
                                            .token_count = (int32_t)tokens.count,
                                            .moved_tolerance = -1 };
        failed = md_conformance_run(&subject);
    }
    md_tokens_done(&tokens);
    md_text_close(text);
    md_engine_close(engine);
    return failed;
}
