/* The contract of a session on the fake engine with a tail state: windows or recurrent layers, beside attention that sees
 * everything, and alone; exact to the last bit. */
#include "engine/fake.h"
#include "support/contract_suite.h"
#include "support/scripted.h"
#include "support/subjects.h"

#include <stdio.h>

enum { BATCH = 32, WINDOW = 32, NO_GLOBAL_LAYER = 8 }; /* small: windows shall get lost */

static int run(const char *name, int32_t tail_period, int32_t window, int32_t seq_count)
{
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    const struct md_script script = { .pieces = two, .count = 2 };
    const struct md_fake_options options = { .cell_count = MD_CONTRACT_CELLS,
                                             .seq_count = seq_count,
                                             .batch_tokens = BATCH };
    struct md_fake_dims dims = md_fake_dims_default();
    static md_token tokens[MD_CONTRACT_TOKENS];
    struct md_err err = { 0 };
    struct md_fake_model *model = NULL;
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    dims.tail_period = tail_period;
    dims.window_tokens = window;
    md_subject_random_tokens(tokens, MD_CONTRACT_TOKENS);
    for (int i = 0; i < MD_CONTRACT_TOKENS; i++)
        tokens[i] %= MD_SCRIPTED_END;
    enum md_status s = md_scripted_open(&script, NULL, &text, &err);
    if (s == MD_OK)
        s = md_fake_model_open(&dims, 1, NULL, &model, &err);
    if (s == MD_OK)
        s = md_fake_open(model, &options, &engine, &err);
    if (s != MD_OK)
        fprintf(stderr, "%s: %s\n", name, err.text);
    const struct md_contract_subject subject = { .name = name,
                                                 .engine = engine,
                                                 .text = text,
                                                 .tokens = tokens,
                                                 .ends = { MD_SCRIPTED_END },
                                                 .end_count = 1 };
    const int failed = s != MD_OK || md_contract_run(&subject) != 0;
    md_text_close(text);
    md_fake_model_close(model);
    return failed;
}

int main(void)
{
    int failed = run("contract_fake_windowed", 2, WINDOW, MD_CONTRACT_SEQUENCES);
    failed |= run("contract_fake_windowed_one_sequence", 2, WINDOW, 1);
    failed |= run("contract_fake_hybrid", 2, 0, 1);
    failed |= run("contract_fake_windows_alone", NO_GLOBAL_LAYER, WINDOW, MD_CONTRACT_SEQUENCES);
    failed |= run("contract_fake_recurrent", NO_GLOBAL_LAYER, 0, 1);
    return failed;
}
