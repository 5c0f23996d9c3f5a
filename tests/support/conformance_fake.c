/* conformance_fake.c - see conformance_fake.h. */
#include "support/conformance_fake.h"

#include "engine/fake.h"
#include "engine/trace.h"
#include "support/fault_engine.h"
#include "support/subjects.h"

#include <stdio.h>

static int run(const char *name, const struct md_fake_dims *dims, unsigned caps_off, bool wrapped,
               enum md_conformance_part part)
{
    static md_token tokens[MD_SUBJECT_MIN_TOKENS];
    const bool checkpoints = dims->tail_period > 0 && !(caps_off & MD_CAP_CHECKPOINT);
    const bool recurrent = dims->tail_period > 0 && dims->window_tokens == 0;
    /* small calls where there are windows: they keep what one call may take back, and must get lost */
    const struct md_fake_options options = { .cell_count = MD_SUBJECT_MIN_CELLS,
                                             .batch_tokens = checkpoints ? 64 : 1024,
                                             .caps_off = caps_off,
                                             .attention = true };
    struct md_err err = { 0 };
    struct md_fake_model *model = NULL;
    struct md_engine *engine = NULL;
    struct md_fault none = { .op = MD_OP_COUNT };
    md_subject_random_tokens(tokens, MD_SUBJECT_MIN_TOKENS);
    enum md_status s = md_fake_model_open(dims, 1, NULL, &model, &err);
    if (s == MD_OK)
        s = md_fake_open(model, &options, &engine, &err);
    if (s == MD_OK && wrapped)
        s = md_trace_open(engine, &engine, &err);
    if (s == MD_OK && wrapped)
        s = md_fault_open(engine, &none, &engine, &err);
    if (s != MD_OK) {
        fprintf(stderr, "%s: %s\n", name, err.text);
        return 1;
    }
    const struct md_subject subject = { .name = name,
                                        .part = part,
                                        .engine = engine,
                                        .model = recurrent ? NULL : model, /* the notes have no states */
                                        .small = true,
                                        .tokens = tokens,
                                        .token_count = MD_SUBJECT_MIN_TOKENS,
                                        .reference_tolerance = 1e-3f,
                                        .turned_tolerance = 1e-4f };
    const int failed = md_conformance_run(&subject);
    md_engine_close(engine);
    md_fake_model_close(model);
    return failed;
}

static struct md_fake_dims with_tail(int32_t layers, int32_t tail_period, int32_t window_tokens)
{
    struct md_fake_dims d = md_fake_dims_default();
    d.layers = layers;
    d.tail_period = tail_period;
    d.window_tokens = window_tokens;
    return d;
}

int md_conformance_fake_dense(enum md_conformance_part part)
{
    const struct md_fake_dims small = md_fake_dims_default();
    int failed = run("fake", &small, 0, false, part);
    failed |= run("fake_wrapped_twice", &small, 0, true, part);
    if (part == MD_PART_WALKS) /* they need what the others lack */
        return failed;
    failed |= run("fake_without_parking", &small, MD_CAP_SPARSE_ATTENTION, false, part);
    failed |= run("fake_cuts_tails_only", &small, MD_CAP_REMOVE_MIDDLE | MD_CAP_RECOMPUTE_RANGE, false, part);
    failed |= run("fake_without_middle", &small,
                  MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE, false, part);
    return failed;
}

int md_conformance_fake_exact(enum md_conformance_part part)
{
    const struct md_fake_dims exact = md_fake_dims_exact();
    return run("fake_exact_model", &exact, 0, false, part);
}

int md_conformance_fake_tails(enum md_conformance_part part)
{
    const struct md_fake_dims windowed = with_tail(4, 2, 32), one_window = with_tail(2, 2, 32),
                              recurrent = with_tail(4, 2, 0);
    const struct md_fake_dims windows_only = with_tail(2, 3, 32), recurrent_only = with_tail(2, 3, 0);
    int failed = run("fake_windowed", &windowed, 0, false, part);
    failed |= run("fake_windowed_wrapped_twice", &windowed, 0, true, part);
    if (part != MD_PART_WALKS) /* there is none without checkpoints */
        failed |= run("fake_windowed_without_checkpoints", &one_window, MD_CAP_CHECKPOINT, false, part);
    failed |= run("fake_recurrent", &recurrent, 0, false, part);
    failed |= run("fake_windows_only", &windows_only, 0, true, part);
    failed |= run("fake_recurrent_only", &recurrent_only, 0, false, part);
    return failed;
}
