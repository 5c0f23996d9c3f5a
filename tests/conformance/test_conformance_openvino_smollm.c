/* The suite on OpenVINO with SmolLM2.  Its weights have 4 bits, all else is computed in f32, the KV is f16: rounding
 * is that of the KV alone, so that one way of cutting a prompt is close to another.  Seen: batchings of 256 and of 3,968
 * tokens differ by 0.005, runs with holes by 0.009; another set of tokens differs by 0.4 at least, which is checked. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "support/conformance.h"
#include "support/subjects.h"
#include "text/text.h"

#include <stdio.h>
#include <stdlib.h>

static enum md_status tokens_of_prose(const char *path, struct md_tokens *ret_tokens, struct md_err *err)
{
    struct md_text *text = NULL;
    struct md_buf prose;
    md_buf_init(&prose, NULL, 1 << 20);
    enum md_status s = md_llama_text_open(path, &text, err);
    if (s == MD_OK)
        s = md_subject_prose(&prose, 24 << 10, err); /* four bytes a token and some to spare */
    if (s == MD_OK)
        s = md_text_tokenize(text, (struct md_bytes){ prose.data, prose.len }, true, false, ret_tokens, err);
    if (s == MD_OK && ret_tokens->count < 4096)
        s = md_fail(err, MD_INVALID, "the prose has only %zu tokens", ret_tokens->count);
    md_buf_done(&prose);
    md_text_close(text);
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
    struct md_tokens tokens = { 0 };
    if (params.model_path == NULL) {
        fprintf(stderr, "MODELD_TEST_MODEL names no model file: set it to SmolLM2 (tests/run.sh does)\n");
        return 1;
    }
    enum md_status s = tokens_of_prose(params.model_path, &tokens, &err);
    if (s == MD_OK)
        s = md_openvino_open(&params, &engine, &err);
    if (s != MD_OK)
        fprintf(stderr, "SmolLM2 cannot be tested: %s\n", err.text);
    int failed = 1;
    if (s == MD_OK) {
        const struct md_subject subject = { .name = "openvino_smollm",
                                            .engine = engine,
                                            .tokens = tokens.ids,
                                            .token_count = (int32_t)tokens.count,
                                            .same_tolerance = 1e-3f,
                                            .polls_by_time = true,
                                            .moved_tolerance = 0.02f };
        failed = md_conformance_run(&subject);
    }
    md_tokens_done(&tokens);
    md_engine_close(engine);
    return failed;
}
