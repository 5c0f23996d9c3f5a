/* The suite on llama.cpp with SmolLM2, a 4-bit model: what a real model adds is rounding, so that a batch
 * boundary alone moves the logits; what must be identical still is. */
#include "adapters/llama/llama_backend.h"
#include "support/conformance.h"
#include "support/subjects.h"
#include "text/text.h"

#include <stdio.h>
#include <stdlib.h>

static enum md_status tokens_of_prose(const struct md_text *text, struct md_tokens *ret_tokens,
                                      struct md_err *err)
{
    struct md_buf prose;
    md_buf_init(&prose, NULL, 1 << 20);
    enum md_status s = md_subject_prose(&prose, 24 << 10, err); /* four bytes a token and some to spare */
    if (s == MD_OK)
        s = md_text_tokenize(text, (struct md_bytes){ prose.data, prose.len }, true, false, ret_tokens, err);
    if (s == MD_OK && ret_tokens->count < 4096)
        s = md_fail(err, MD_INVALID, "the prose has only %zu tokens", ret_tokens->count);
    md_buf_done(&prose);
    return s;
}

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
        s = tokens_of_prose(text, &tokens, &err);
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
