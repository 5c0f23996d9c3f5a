/* The contract of a session on llama.cpp with Gemma-3-270M: windows of 512 tokens on 15 of 18 layers, one sequence, 4 bits:
 * where its figures were computed in other calls its logits differ, so that answers are compared at the steps at which the
 * best token is sure.  Hot sets smaller than its windows are for other subjects (contract_suite.h). */
#include "adapters/llama/llama_backend.h"
#include "support/contract_suite.h"
#include "support/subjects.h"

#include <stdio.h>
#include <unistd.h>

enum { END_OF_TURN = 106, END_OF_TEXT = 1 };

static enum md_status tokens_of_prose(const struct md_text *text, struct md_tokens *ret_tokens,
                                      struct md_err *err)
{
    struct md_buf prose;
    md_buf_init(&prose, NULL, 1 << 20);
    enum md_status s = md_subject_prose(&prose, 12 << 10, err); /* four bytes a token and some to spare */
    if (s == MD_OK)
        s = md_text_tokenize(text, (struct md_bytes){ prose.data, prose.len }, true, false, ret_tokens, err);
    if (s == MD_OK && ret_tokens->count < MD_CONTRACT_TOKENS)
        s = md_fail(err, MD_INVALID, "the prose has only %zu tokens", ret_tokens->count);
    md_buf_done(&prose);
    return s;
}

int main(void)
{
    const struct md_open_params params = {
        .model_path = ".deps/models/gemma3-270m.gguf",
        .cell_count = MD_CONTRACT_CELLS,
        .ubatch_tokens = 128,
        .threads = 1, /* two that wait for each other are slow on a busy machine */
        .flash_attn = -1
    };
    struct md_err err = { 0 };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    struct md_tokens tokens = { 0 };
    if (access(params.model_path, R_OK) != 0) {
        fprintf(stderr, "'%s' is missing: tools/setup.sh model gemma3-270m\n", params.model_path);
        return 1;
    }
    int failed = 1;
    enum md_status s = md_backend_llama.open(&params, &engine, &text, &err);
    if (s == MD_OK)
        s = tokens_of_prose(text, &tokens, &err);
    if (s == MD_OK) {
        /* what another border between batches alone does to logits of this model: up to 0.9; the text of
         * case B055 has 0.1 for prompts that were picked */
        const struct md_contract_subject subject = { .name = "contract_gemma",
                                                     .engine = engine,
                                                     .text = text,
                                                     .tokens = tokens.ids,
                                                     .ends = { END_OF_TURN, END_OF_TEXT },
                                                     .end_count = 2,
                                                     .tolerance = -1,
                                                     .sure_gap = 0.9f };
        failed = md_contract_run(&subject);
    } else {
        fprintf(stderr, "Gemma cannot be tested: %s\n", err.text);
        md_engine_close(engine);
    }
    md_tokens_done(&tokens);
    md_text_close(text);
    return failed;
}
