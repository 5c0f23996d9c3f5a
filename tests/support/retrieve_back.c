/* retrieve_back.c - see retrieve_back.h. */
#include "support/retrieve_back.h"

#include "engine/attention.h"
#include "engine/wrap.h"
#include "session/session_internal.h"
#include "session/state.h"
#include "support/rng.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 1400,
    BLOCK = 16,
    ROWS = 32, /* of a context without messages */
    COUNT = 805,
    FROM = COUNT - ROWS, /* inside a block */
    BLOCKS = FROM / BLOCK,
    FAR_STEPS = 10, /* more than a window and what a cache of windows has beside it: 256 cells */
    MAP = 128,
};

static struct {
    struct md_engine *engine;
    struct md_text *text;
    const char *name;
    float tolerance;
    md_token tokens[COUNT], other[FAR_STEPS * ROWS];
    size_t vocab;
    float *heard; /* logits of the last question that was evaluated */
    int questions, scorings;
} at;

static void after_call(void *user, const struct md_engine_call *call, enum md_status status,
                       int64_t elapsed_ns)
{
    (void)user, (void)elapsed_ns;
    if (call->op != MD_OP_DECODE || status != MD_OK || md_range_len(call->r) != ROWS)
        return;
    memcpy(at.heard, *call->logits, at.vocab * sizeof *at.heard);
    at.questions++;
}

static void check_ok(enum md_status s, const struct md_err *err, const char *what)
{
    ck_assert_msg(s == MD_OK, "%s, %s: %s", at.name, what, err->text);
}

static struct md_pool *open_pool(enum md_retrieval_mode mode, struct md_session **ret_session)
{
    static struct md_retrieve_params params;
    struct md_pool *pool;
    struct md_err err = { 0 };
    params = md_retrieve_defaults();
    params.heads.band_start = 0; /* of few layers none may stand between */
    params.heads.band_end = 1;
    const struct md_pool_config c = { .window_tokens = WINDOW,
                                      .hot_tokens = MD_RETRIEVE_BACK_CELLS,
                                      .residency = true,
                                      .block_tokens = BLOCK,
                                      .sink_tokens = BLOCK,
                                      .recent_tokens = 2 * BLOCK,
                                      .cold_bytes = 64 << 20,
                                      .checkpoint_tokens = 100,
                                      .retrieval = mode,
                                      .retrieve = &params };
    const struct md_context prefix = { .tokens = at.tokens, .count = FROM + 1 };
    struct md_prefill_status did;
    check_ok(md_pool_open(&c, at.engine, at.text, &pool, &err), &err, "open");
    const char *why = md_pool_status(pool).no_retrieval;
    ck_assert_msg((why == NULL) == (mode == MD_RETRIEVAL_AUTO), "%s: %s", at.name, why);
    check_ok(md_pool_new(pool, ret_session, &err), &err, "new");
    check_ok(md_session_ensure_prefix(*ret_session, &prefix, false, NULL, &did, &err), &err, "prefix");
    ck_assert_int_eq((*ret_session)->tape.count, FROM);
    return pool;
}

static void make_room(struct md_session *s, int32_t count)
{
    int32_t lost_from;
    struct md_err err = { 0 };
    check_ok(md_drive_make_room(&s->drive, count, &lost_from, &err), &err, "room");
    ck_assert_int_eq(lost_from, -1);
}

static void evaluate(struct md_session *s, const md_token *tokens)
{
    const float *logits;
    struct md_err err = { 0 };
    check_ok(md_tape_reserve(&s->tape, s->tape.count + ROWS, &err), &err, "tape");
    make_room(s, ROWS + BLOCK);
    check_ok(md_engine_decode(at.engine, s->drive.seq, s->tape.count, tokens, ROWS, &logits, &err), &err,
             "question");
    check_ok(md_drive_append_computed(&s->drive, tokens, ROWS, &err), &err, "append");
}

static float furthest(const float *wanted)
{
    float most = 0;
    for (size_t i = 0; i < at.vocab; i++)
        most = fmaxf(most, fabsf(at.heard[i] - wanted[i]));
    return most;
}

static void go_back(struct md_session *s, const struct md_buf *state)
{
    struct md_err err = { 0 };
    const struct md_bytes bytes = { state->data, state->len };
    check_ok(state->len > 0 ? md_drive_cut_rewound(&s->drive, FROM, bytes, &err)
                            : md_drive_cut(&s->drive, FROM, false, &err),
             &err, "back");
    ck_assert_int_eq(s->tape.count, FROM);
    ck_assert_int_eq(md_engine_end(at.engine, s->drive.seq), FROM);
    ck_assert(md_engine_is_ready(at.engine, s->drive.seq));
    ck_assert(md_pool_check(s->pool));
}

/* Nothing comes in between: once another question was taken back, and then something longer than what the cache of windows
 * keeps, the logits of the question are those that it had when it was the first. */
static void with_nothing_brought(void)
{
    struct md_session *s;
    struct md_buf state = { 0 };
    struct md_err err = { 0 };
    struct md_pool *pool = open_pool(MD_RETRIEVAL_OFF, &s);
    float *once = calloc(at.vocab, sizeof *once);
    evaluate(s, at.tokens + FROM);
    memcpy(once, at.heard, at.vocab * sizeof *once);
    md_pool_close(pool);

    pool = open_pool(MD_RETRIEVAL_OFF, &s);
    md_buf_init(&state, NULL, SIZE_MAX / 2);
    if (md_state_is_kept(&pool->hot))
        check_ok(md_state_read(&s->drive, FROM, &state, &err), &err, "state");
    evaluate(s, at.other);
    ck_assert_float_gt(furthest(once), 2 * at.tolerance); /* the two can be told apart */
    go_back(s, &state);
    evaluate(s, at.tokens + FROM);
    const float first = furthest(once);
    go_back(s, &state);
    s->tape.blocks[BLOCKS].retrieved = true; /* a rewind needs what stands before FROM */
    for (int i = 0; i < FAR_STEPS && state.len > 0; i++)
        evaluate(s, at.other + (ptrdiff_t)i * ROWS);
    if (state.len > 0)
        go_back(s, &state);
    evaluate(s, at.tokens + FROM);
    printf("%s: evaluated again, nothing brought: logits are off by %g, and %g\n", at.name, (double)first,
           (double)furthest(once));
    ck_assert_float_le(first, at.tolerance);
    ck_assert_float_le(furthest(once), at.tolerance);
    md_buf_done(&state);
    free(once);
    md_pool_close(pool);
}

/* Layers that see no more than a window are not scored. */
static void seen(void *user, const struct md_attention_input *in, const struct md_calibrate_set *heads,
                 const size_t *index, int32_t from, int32_t pass)
{
    (void)user, (void)in, (void)index, (void)pass;
    int32_t layers;
    const struct md_attention_layer *of = md_engine_attention(at.engine, &layers);
    ck_assert_int_eq(from, FROM);
    ck_assert_uint_gt(heads->count, 0);
    for (size_t i = 0; i < heads->count; i++)
        ck_assert_msg(!of[heads->heads[i].layer].windowed, "%s: layer %d", at.name, heads->heads[i].layer);
    at.scorings++;
}

/* What an answer that retrieved attends to, evaluated once: the chosen blocks are marked by hand before. */
static void with_what_was_chosen(void)
{
    struct md_block_view map[MAP];
    struct md_session *s;
    struct md_err err = { 0 };
    struct md_result result = { 0 };
    struct md_request q = { .prompt = { at.tokens, COUNT, NULL, 0 },
                            .decode = { .max_tokens = 1, .sample = md_sample_defaults() } };
    struct md_pool *pool = open_pool(MD_RETRIEVAL_AUTO, &s);
    float *retrieved = calloc(at.vocab, sizeof *retrieved);
    static const struct md_retrieve_observer observer = { .seen = seen };
    md_pool_observe_retrieval(pool, &observer);
    at.questions = at.scorings = 0;
    check_ok(md_session_run(s, &q, NULL, &result, &err), &err, "ask");
    memcpy(retrieved, at.heard, at.vocab * sizeof *retrieved);
    ck_assert_ptr_null(result.retrieval.skipped);
    ck_assert_int_eq(result.retrieval.question, ROWS);
    ck_assert_int_ge(at.questions, 2);
    ck_assert_int_ge(at.scorings, 1);
    ck_assert_int_eq(result.retrieval.evaluations, at.questions);
    ck_assert_int_gt(result.retrieval.brought_tokens, 0);
    ck_assert_int_eq(result.retrieval.scored, BLOCKS);
    ck_assert_int_eq(result.prefilled, ROWS);
    ck_assert_int_eq(result.dropped, 0);
    ck_assert_int_eq(s->tape.count, COUNT);
    ck_assert_int_eq(md_engine_end(at.engine, s->drive.seq), COUNT);
    const size_t count = md_session_map(s, map, MAP);
    ck_assert_uint_eq(count, (COUNT + BLOCK - 1) / BLOCK);
    for (size_t i = 0; i < count; i++) /* each where it says, in the engine as on the tape */
        ck_assert_int_eq(map[i].state == MD_STATE_HOT,
                         md_engine_is_hot(at.engine, s->drive.seq, md_tape_range(&s->tape, i)));
    md_result_done(&result);
    md_pool_close(pool);

    pool = open_pool(MD_RETRIEVAL_OFF, &s);
    for (size_t i = 0; i < BLOCKS; i++)
        s->tape.blocks[i].retrieved = map[i].retrieved;
    evaluate(s, at.tokens + FROM);
    for (size_t i = 0; i < BLOCKS; i++)
        ck_assert_msg((s->tape.blocks[i].state == MD_STATE_HOT) == (map[i].state == MD_STATE_HOT),
                      "%s: block %zu", at.name, i);
    printf("%s: %d evaluations, logits are off by %g\n", at.name, at.questions - 1,
           (double)furthest(retrieved));
    ck_assert_float_le(furthest(retrieved), at.tolerance);
    free(retrieved);
    md_pool_close(pool);
}

void md_retrieve_back_check(struct md_engine *e, struct md_text *text, const char *name, float tolerance)
{
    static const struct md_engine_hooks hooks = { .after = after_call };
    struct rng r = { 11 };
    struct md_err err = { 0 };
    at.text = text;
    at.name = name;
    at.tolerance = tolerance;
    ck_assert_msg(md_engine_wrap(e, &hooks, &at.engine, &err) == MD_OK, "%s", err.text);
    ck_assert_int_ge(md_engine_info(at.engine)->batch_tokens, MD_RETRIEVE_BACK_BATCH);
    at.vocab = (size_t)md_engine_info(at.engine)->vocab_count;
    at.heard = calloc(at.vocab, sizeof *at.heard);
    for (int32_t i = 0; i < COUNT + FAR_STEPS * ROWS; i++)
        *(i < COUNT ? &at.tokens[i] : &at.other[i - COUNT]) = 3 + (md_token)(rng_next(&r) % (at.vocab - 4));
    with_nothing_brought();
    with_what_was_chosen();
    free(at.heard);
    md_engine_close(at.engine);
}
