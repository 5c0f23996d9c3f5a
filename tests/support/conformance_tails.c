/* conformance_tails.c - see conformance_tails.h. */
#include "support/conformance_tails.h"

#include "support/subjects.h"
#include "support/tiny_run.h"

#include <stdio.h>

enum { UBATCH = 64 }; /* windows have cells for themselves and one micro-batch: they are soon used again */

static const unsigned tail = MD_CAP_REMOVE_TAIL | MD_CAP_CHECKPOINT;
static const unsigned ranges = MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE;

static const struct {
    const struct md_tiny_model *model;
    bool ranges, starts_only, attention; /* it has a layer without a window */
    float tolerance, least_move;         /* below 0: no layer sees what is evicted */
} rows[] = {
    { &md_tiny_windowed, true, false, true, 1e-3f, 0.01f },
    { &md_tiny_hybrid_windowed, true, true, false, 1e-3f, -1 },
    { &md_tiny_hybrid, true, true, true, 1e-3f, 0.01f },
    { &md_tiny_hybrid_mrope, true, true, true, 1e-3f, 0.01f },
    { &md_tiny_recurrent, false, true, false, 1e-4f, 0.003f },
    { &md_tiny_state_space, false, true, false, 1e-3f, 0.01f },
};
enum { ROWS = sizeof rows / sizeof rows[0], FIRST_OTHER = 2 };

static enum md_conformance_part part_now;

static size_t row_of(const struct md_tiny_model *m)
{
    size_t row = 0;
    while (rows[row].model != m)
        row++;
    return row;
}

static int run(const struct md_tiny_model *m, struct md_engine *engine, struct md_text *text)
{
    static md_token tokens[MD_SUBJECT_MIN_TOKENS];
    const size_t row = row_of(m);
    const unsigned caps = tail | (rows[row].ranges ? ranges : 0) |
                          (rows[row].attention ? (unsigned)MD_CAP_ATTENTION_SCORES : 0);
    md_text_close(text); /* nothing of the suite is about it */
    if (md_engine_caps(engine) != caps) {
        char can[160];
        md_engine_caps_text(md_engine_caps(engine), can, sizeof can);
        fprintf(stderr, "%s: it can '%s'\n", m->name, can);
        md_engine_close(engine);
        return 1;
    }
    md_subject_random_tokens(tokens, MD_SUBJECT_MIN_TOKENS);
    const struct md_subject subject = { .name = m->name,
                                        .part = part_now,
                                        .engine = engine,
                                        .small = true,
                                        .starts_only = rows[row].starts_only,
                                        .tokens = tokens,
                                        .token_count = MD_SUBJECT_MIN_TOKENS,
                                        .same_tolerance = rows[row].tolerance,
                                        .reference_tolerance = 1e-3f,
                                        .least_move = rows[row].least_move,
                                        .moved_tolerance = rows[row].tolerance };
    const int failed = md_conformance_run(&subject);
    md_engine_close(engine);
    return failed;
}

int md_conformance_tails(const struct md_backend *backend, enum md_conformance_models which,
                         enum md_conformance_part part)
{
    const struct md_tiny_model *models[ROWS];
    const int from = which == MD_MODELS_OTHERS ? FIRST_OTHER : 0;
    const int to = which == MD_MODELS_WINDOWED ? FIRST_OTHER : ROWS;
    part_now = part;
    for (int i = from; i < to; i++)
        models[i - from] = rows[i].model;
    return md_tiny_run(backend, models, to - from, MD_SUBJECT_MIN_CELLS, 0, UBATCH, run);
}
