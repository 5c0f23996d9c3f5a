/* suite_models.c - see suite_models.h. */
#include "support/suite_models.h"

#include "support/contract_suite.h"
#include "support/exact_model.h"
#include "support/states_suite.h"
#include "support/subjects.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char gemma_path[] = ".deps/models/gemma3-270m.gguf";

/* NULL, which is told: there is none. */
static const char *smollm_path(void)
{
    const char *path = getenv("MODELD_TEST_MODEL");
    if (path == NULL)
        fprintf(stderr, "MODELD_TEST_MODEL names no model file: set it to SmolLM2 (tests/run.sh does)\n");
    return path;
}

/* Takes both over. */
static int contract_of(const char *name, struct md_engine *engine, struct md_text *text)
{
    static md_token tokens[MD_CONTRACT_TOKENS];
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

static int run_contract(const struct md_tiny_model *m, struct md_engine *engine, struct md_text *text)
{
    char name[96];
    snprintf(name, sizeof name, "contract_%.40s, %.40s", md_engine_info(engine)->engine, m->name);
    return contract_of(name, engine, text);
}

int md_contract_run_tiny(const struct md_backend *backend, const struct md_tiny_model *const *models,
                         int count)
{
    enum { UBATCH = 32 }; /* small: windows shall get lost */
    return md_tiny_run(backend, models, count, MD_CONTRACT_CELLS, UBATCH, UBATCH, run_contract);
}

/* Takes both over. */
static int states_of(const char *name, struct md_engine *engine, struct md_text *text)
{
    static md_token tokens[MD_STATES_TOKENS];
    md_subject_random_tokens(tokens, MD_STATES_TOKENS);
    for (int i = 0; i < MD_STATES_TOKENS; i++)
        tokens[i] &= 127; /* bytes, and so are their neighbours */
    md_states_watch(&engine);
    const struct md_states_subject subject = { .name = name,
                                               .engine = engine,
                                               .text = text,
                                               .tokens = tokens,
                                               .end = MD_EXACT_TOKEN_END,
                                               .tolerance = 1e-3f };
    const int failed = md_states_run(&subject);
    md_engine_close(engine);
    md_text_close(text);
    return failed;
}

static int run_states(const struct md_tiny_model *m, struct md_engine *engine, struct md_text *text)
{
    return states_of(m->name, engine, text);
}

int md_states_run_tiny(const struct md_backend *backend, const struct md_tiny_model *const *models, int count)
{
    return md_tiny_run(backend, models, count, MD_STATES_CELLS, MD_STATES_BATCH, MD_STATES_BATCH, run_states);
}

/* Fed with `token_count` tokens of prose, MD_SUBJECT_MIN_TOKENS or more. */
static int run_real(const struct md_suite_engine *of, const struct md_open_params *params, const char *name,
                    enum md_conformance_part part, unsigned caps, int32_t token_count, float sure_gap)
{
    enum { BYTES_OF_TOKEN = 6 }; /* four and some to spare */
    struct md_err err = { 0 };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    struct md_tokens tokens = { 0 };
    int failed = 1;
    enum md_status s = of->backend->open(params, &engine, &text, &err);
    if (s == MD_OK && (caps & ~md_engine_caps(engine)) != 0) {
        char missing[160];
        md_engine_caps_text(caps & ~md_engine_caps(engine), missing, sizeof missing);
        s = md_fail(&err, MD_UNSUPPORTED, "the engine lacks %s", missing);
    }
    if (s == MD_OK)
        s = md_subject_prose_tokens(text, (size_t)token_count * BYTES_OF_TOKEN, (size_t)token_count, &tokens,
                                    &err);
    if (s == MD_OK) {
        const struct md_subject subject = { .name = name,
                                            .part = part,
                                            .engine = engine,
                                            .tokens = tokens.ids,
                                            .token_count = (int32_t)tokens.count,
                                            .sure_gap = sure_gap,
                                            .same_tolerance = of->same_tolerance,
                                            .polls_by_time = of->polls_by_time,
                                            .moved_tolerance = -1 };
        failed = md_conformance_run(&subject);
    } else {
        fprintf(stderr, "%s cannot be tested: %s (a model that is missing: tools/setup.sh model NAME)\n",
                name, err.text);
    }
    md_tokens_done(&tokens);
    md_text_close(text);
    md_engine_close(engine);
    return failed;
}

int md_conformance_run_gemma(const struct md_suite_engine *of, const char *name,
                             enum md_conformance_part part, unsigned caps, int32_t cells, int32_t batch)
{
    const struct md_open_params params = { .model_path = gemma_path,
                                           .cell_count = cells,
                                           .batch_tokens = batch,
                                           .ubatch_tokens = batch,
                                           .threads = 1,
                                           .flash_attn = -1,
                                           .type_k = of->kv_type,
                                           .type_v = of->kv_type };
    return run_real(of, &params, name, part, caps, MD_SUBJECT_MIN_TOKENS, of->sure_gap);
}

int md_conformance_run_smollm(const struct md_suite_engine *of, const char *name, unsigned caps)
{
    enum { CELLS = 4096 };
    const float sure_gap = 0.1f; /* as case B120 has it: the prose was picked */
    const struct md_open_params params = {
        .model_path = smollm_path(),
        .cell_count = CELLS,
        .batch_tokens = 1024,
        .ubatch_tokens = 256, /* less than a call that is interrupted */
        .threads = 1,         /* two that wait for each other are slow on a busy machine */
        .flash_attn = -1,
        .type_k = of->kv_type,
        .type_v = of->kv_type
    };
    if (params.model_path == NULL)
        return 1;
    return run_real(of, &params, name, MD_PART_ALL, caps, CELLS, sure_gap);
}

int md_conformance_run_exact(const struct md_suite_engine *of, struct md_open_params params,
                             struct md_subject subject)
{
    static md_token tokens[MD_SUBJECT_MIN_TOKENS];
    struct md_err err = { 0 };
    params.cell_count = MD_SUBJECT_MIN_CELLS;
    params.batch_tokens = 1024;
    params.ubatch_tokens = 256;
    params.threads = 1; /* the model is too small for more */
    params.attention = true;
    if (of->backend->open(&params, &subject.engine, NULL, &err) != MD_OK) {
        fprintf(stderr, "%s: %s\n", subject.name, err.text);
        return 1;
    }
    md_subject_random_tokens(tokens, MD_SUBJECT_MIN_TOKENS);
    subject.tokens = tokens;
    subject.token_count = MD_SUBJECT_MIN_TOKENS;
    subject.same_tolerance = of->same_tolerance;
    subject.polls_by_time = of->polls_by_time;
    const int failed = md_conformance_run(&subject);
    md_engine_close(subject.engine);
    return failed;
}

/* A file of the exact model, opened in f32 with one thread (it is too small for more); `params` say all else.  False when it
 * could not be opened, which is told. */
static bool open_exact(const struct md_suite_engine *of, const char *label, struct md_open_params params,
                       struct md_engine **ret_engine, struct md_text **ret_text)
{
    char path[512];
    struct md_fake_model *model;
    struct md_err err = { 0 };
    if (!md_exact_model_file(label, &model, path, sizeof path))
        return false;
    md_fake_model_close(model);
    params.model_path = path;
    params.threads = 1;
    params.type_k = params.type_v = "f32";
    const enum md_status s = of->backend->open(&params, ret_engine, ret_text, &err);
    unlink(path);
    if (s != MD_OK)
        fprintf(stderr, "exact model: %s\n", err.text);
    return s == MD_OK;
}

int md_contract_run_exact(const struct md_suite_engine *of, const char *name, int flash_attn)
{
    const struct md_open_params params = { .cell_count = MD_CONTRACT_CELLS,
                                           .seq_count = MD_CONTRACT_SEQUENCES,
                                           .flash_attn = flash_attn };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    if (!open_exact(of, "contract", params, &engine, &text))
        return 1;
    return contract_of(name, engine, text);
}

int md_states_run_exact(const struct md_suite_engine *of, const char *name, int flash_attn)
{
    const struct md_open_params params = { .cell_count = MD_STATES_CELLS,
                                           .batch_tokens = MD_STATES_BATCH,
                                           .ubatch_tokens = MD_STATES_BATCH,
                                           .flash_attn = flash_attn };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    if (!open_exact(of, "states", params, &engine, &text))
        return 1;
    return states_of(name, engine, text);
}

static int run_contract_real(const struct md_suite_engine *of, struct md_open_params params, const char *name,
                             const md_token ends[2])
{
    enum { PROSE_BYTES = 12 << 10 }; /* four bytes a token and some to spare */
    struct md_err err = { 0 };
    struct md_engine *engine = NULL, *dense = NULL;
    struct md_text *text = NULL;
    struct md_tokens tokens = { 0 };
    int failed = 1;
    params.cell_count = MD_CONTRACT_CELLS;
    params.threads = 1; /* two that wait for each other are slow on a busy machine */
    params.flash_attn = -1;
    params.type_k = params.type_v = of->kv_type;
    enum md_status s = of->backend->open(&params, &engine, &text, &err);
    if (s == MD_OK)
        s = of->backend->open(&params, &dense, NULL, &err);
    if (s == MD_OK)
        s = md_subject_prose_tokens(text, PROSE_BYTES, MD_CONTRACT_TOKENS, &tokens, &err);
    if (s == MD_OK) {
        /* what another border between batches alone does to logits of 4-bit models on llama.cpp: up to 0.9; the text of
         * case B055 has 0.1 for prompts that were picked */
        const struct md_contract_subject subject = { .name = name,
                                                     .engine = engine,
                                                     .dense = dense,
                                                     .text = text,
                                                     .tokens = tokens.ids,
                                                     .ends = { ends[0], ends[1] },
                                                     .end_count = 2,
                                                     .slow = true,
                                                     .tolerance =
                                                         of->same_tolerance > 0 ? of->same_tolerance : -1,
                                                     .sure_gap = 0.9f };
        failed = md_contract_run(&subject);
    } else {
        fprintf(stderr, "%s cannot be tested: %s (a model that is missing: tools/setup.sh model NAME)\n",
                name, err.text);
        md_engine_close(engine);
        md_engine_close(dense);
    }
    md_tokens_done(&tokens);
    md_text_close(text);
    return failed;
}

int md_contract_run_gemma(const struct md_suite_engine *of, const char *name)
{
    enum { END_OF_TURN = 106, END_OF_TEXT = 1 };
    const struct md_open_params params = { .model_path = gemma_path,
                                           .seq_count = of->seq_count,
                                           .ubatch_tokens = 128 };
    return run_contract_real(of, params, name, (const md_token[]){ END_OF_TURN, END_OF_TEXT });
}

int md_contract_run_smollm(const struct md_suite_engine *of, const char *name)
{
    enum { END_OF_TURN = 2, END_OF_TEXT = 0 };
    const struct md_open_params params = { .model_path = smollm_path(), .seq_count = MD_CONTRACT_SEQUENCES };
    if (params.model_path == NULL)
        return 1;
    return run_contract_real(of, params, name, (const md_token[]){ END_OF_TURN, END_OF_TEXT });
}
