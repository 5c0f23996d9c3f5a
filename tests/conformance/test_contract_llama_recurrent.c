/* The contract of a session on llama.cpp with tiny models in f32 that have recurrent layers, beside attention and alone. */
#include "adapters/llama/llama_backend.h"
#include "support/contract_suite.h"
#include "support/exact_model.h"
#include "support/subjects.h"
#include "support/tiny_run.h"

#include <stdio.h>

enum { UBATCH = 32 }; /* small: windows shall get lost */

static int run(const struct md_tiny_model *m, struct md_engine *engine, struct md_text *text)
{
    static md_token tokens[MD_CONTRACT_TOKENS];
    char name[96];
    snprintf(name, sizeof name, "contract_llama, %s", m->name);
    md_subject_random_tokens(tokens, MD_CONTRACT_TOKENS);
    const struct md_contract_subject subject = { .name = name,
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
    static const struct md_tiny_model *const models[] = { &md_tiny_hybrid, &md_tiny_recurrent };
    return md_tiny_run(&md_backend_llama, models, sizeof models / sizeof models[0], MD_CONTRACT_CELLS, UBATCH,
                       run);
}
