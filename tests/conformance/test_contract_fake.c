/* The contract of a session on the fake engine: exact to the last bit, whatever moved. */
#include "engine/fake.h"
#include "support/contract_suite.h"
#include "support/scripted.h"
#include "support/subjects.h"

#include <stdio.h>

static int run(const char *name, unsigned caps_off)
{
    /* the scripted text samples from what the engine says, and ends with a token that the fake model has */
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    static md_token tokens[MD_CONTRACT_TOKENS];
    const struct md_script script = { .pieces = two, .count = 2 };
    const struct md_fake_options options = { .cell_count = MD_CONTRACT_CELLS,
                                             .seq_count = MD_CONTRACT_SEQUENCES,
                                             .batch_tokens = 128,
                                             .caps_off = caps_off };
    struct md_err err = { 0 };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    md_subject_random_tokens(tokens, MD_CONTRACT_TOKENS);
    for (int i = 0; i < MD_CONTRACT_TOKENS; i++)
        tokens[i] %= MD_SCRIPTED_END;
    enum md_status s = md_scripted_open(&script, NULL, &text, &err);
    if (s == MD_OK)
        s = md_fake_open(NULL, &options, &engine, &err);
    if (s != MD_OK) {
        fprintf(stderr, "%s: %s\n", name, err.text);
        md_text_close(text);
        return 1;
    }
    const struct md_contract_subject subject = { .name = name,
                                                 .engine = engine,
                                                 .text = text,
                                                 .tokens = tokens,
                                                 .ends = { MD_SCRIPTED_END },
                                                 .end_count = 1 };
    const int failed = md_contract_run(&subject);
    md_text_close(text);
    return failed;
}

int main(void)
{
    int failed = run("contract_fake", 0);
    failed |= run("contract_fake_neither_shares_nor_moves", MD_CAP_SHARE | MD_CAP_POSITION_SHIFT);
    failed |= run("contract_fake_cuts_tails_only", MD_CAP_REMOVE_MIDDLE | MD_CAP_RECOMPUTE_RANGE);
    return failed;
}
