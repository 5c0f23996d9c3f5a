/* The contract of a session on OpenVINO with the exact model: f32 weights and KV. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "support/contract_suite.h"
#include "support/exact_model.h"
#include "support/subjects.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int run(const char *path)
{
    static md_token tokens[MD_CONTRACT_TOKENS];
    const struct md_open_params params = { .model_path = path,
                                           .cell_count = MD_CONTRACT_CELLS,
                                           .seq_count = MD_CONTRACT_SEQUENCES,
                                           .threads = 1, /* the model is too small for more */
                                           .flash_attn = -1,
                                           .type_k = "f32",
                                           .type_v = "f32" };
    struct md_err err = { 0 };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    enum md_status s = md_llama_text_open(path, &text, &err);
    if (s == MD_OK)
        s = md_openvino_open(&params, &engine, &err);
    if (s != MD_OK) {
        fprintf(stderr, "exact model: %s\n", err.text);
        md_text_close(text);
        return 1;
    }
    md_subject_random_tokens(tokens, MD_CONTRACT_TOKENS);
    const struct md_contract_subject subject = { .name = "contract_openvino_exact",
                                                 .engine = engine,
                                                 .text = text,
                                                 .tokens = tokens,
                                                 .ends = { MD_EXACT_TOKEN_END },
                                                 .end_count = 1,
                                                 .tolerance = 1e-3f };
    const int failed = md_contract_run(&subject);
    md_text_close(text);
    return failed;
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char path[512];
    struct md_err err = { 0 };
    struct md_fake_model *model = NULL;
    snprintf(path, sizeof path, "%s/modeld-contract-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
    enum md_status s = md_exact_model_open(&model, &err);
    if (s == MD_OK)
        s = md_exact_model_write(model, path, &err);
    md_fake_model_close(model);
    if (s != MD_OK) {
        fprintf(stderr, "exact model: %s\n", err.text);
        return 1;
    }
    int failed = run(path);
    unlink(path);
    return failed;
}
