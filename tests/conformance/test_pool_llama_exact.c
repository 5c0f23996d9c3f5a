/* Several conversations on llama.cpp with the exact model: what they share, restore, branch and hold out by hand gives
 * the logits of a dense run wherever the KV is full. */
#include "adapters/llama/llama_backend.h"
#include "engine/wrap.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/talker.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 1024, ANSWER = 16, COLD_BYTES = 64 << 20, TALKS = 4, VOCAB_MAX = 512 };

static char model_path[512];
static md_token tokens[8192];

/* The logits of each step of a request. */
struct logits {
    int steps;
    float at[ANSWER][VOCAB_MAX];
};
static struct logits got, dense;

static void after_call(void *user, const struct md_engine_call *call, enum md_status status,
                       int64_t elapsed_ns)
{
    struct logits *l = user;
    const int32_t vocab = md_engine_info(call->wrapper)->vocab_count;
    (void)elapsed_ns;
    if (call->op != MD_OP_DECODE || status != MD_OK || l->steps >= ANSWER)
        return;
    ck_assert_int_le(vocab, VOCAB_MAX);
    memcpy(l->at[l->steps++], *call->logits, (size_t)vocab * sizeof(float));
}

struct side {
    struct md_engine *engine;
    struct md_text *text;
    struct talker t;
    struct logits *logits;
};

static void side_open(struct side *s, struct logits *logits, int32_t window, int32_t seq_count,
                      enum md_reuse reuse)
{
    const struct md_open_params p = { .model_path = model_path,
                                      .cell_count = CELLS,
                                      .seq_count = seq_count,
                                      .threads = 1, /* the model is too small for more */
                                      .type_k = "f32",
                                      .type_v = "f32" };
    const struct md_pool_config c = { .window_tokens = window,
                                      .hot_tokens = window,
                                      .residency = true,
                                      .block_tokens = 32,
                                      .sink_tokens = -1,
                                      .recent_tokens = -1,
                                      .cold_bytes = COLD_BYTES,
                                      .reuse = reuse };
    const struct md_engine_hooks hooks = { .after = after_call, .user = logits };
    struct md_engine *inner;
    struct md_err err = { 0 };
    *s = (struct side){ .logits = logits, .t = { .banned = { MD_EXACT_TOKEN_END }, .banned_count = 1 } };
    ck_assert_msg(md_backend_llama.open(&p, &inner, &s->text, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_engine_wrap(inner, &hooks, &s->engine, &err) == MD_OK, "%s", err.text);
    talker_open(&s->t, s->engine, s->text, c);
}

static void side_close(struct side *s)
{
    talker_close(&s->t);
    md_engine_close(s->engine);
    md_text_close(s->text);
}

static struct side pool, fresh;

struct talk {
    struct md_session *s;
    md_token said[CELLS];
    int32_t count;
};
static struct talk talks[TALKS];

static void open_sides(int32_t window, int32_t seq_count, enum md_reuse reuse, int count)
{
    side_open(&pool, &got, window, seq_count, reuse);
    side_open(&fresh, &dense, CELLS, 0, MD_REUSE_PLACE);
    for (int i = 0; i < count; i++) {
        struct talk *t = &talks[i];
        t->s = pool.t.session;
        if (i > 0)
            ck_assert_int_eq(md_pool_new(pool.t.pool, &t->s, &pool.t.err), MD_OK);
        t->count = 150; /* the same beginning */
        memcpy(t->said, tokens, 150 * sizeof *tokens);
    }
}

static void close_sides(void)
{
    side_close(&pool);
    side_close(&fresh);
}

/* Ask a dense run in an empty pool the same and hold the logits against those that were got, as long as both said
 * the same (a tie may fall either way). */
static void compare_dense(const struct talk *t)
{
    struct talker *f = &fresh.t;
    md_session_close(f->session);
    ck_assert_int_eq(md_pool_new(f->pool, &f->session, &f->err), MD_OK);
    dense.steps = 0;
    ck_assert_int_eq(talker_ask(f, t->said, t->count, ANSWER), MD_OK);
    ck_assert_int_eq(f->last.cached, 0);
    ck_assert_int_eq(got.steps, ANSWER);
    ck_assert_int_eq(dense.steps, ANSWER);
    for (int step = 0; step < ANSWER; step++) {
        const int32_t vocab = md_engine_info(fresh.engine)->vocab_count;
        float worst = 0;
        for (int32_t i = 0; i < vocab; i++)
            worst = fmaxf(worst, fabsf(got.at[step][i] - dense.at[step][i]));
        ck_assert_msg(worst <= 1e-3f, "step %d: logits differ by %g", step,
                      worst); /* the brief of these tests */
        if (pool.t.last.tokens.ids[step] != f->last.tokens.ids[step])
            break;
    }
}

static void say(struct talk *t, int32_t count, int from, bool full)
{
    memcpy(t->said + t->count, tokens + from, (size_t)count * sizeof *tokens);
    t->count += count;
    pool.t.session = t->s;
    got.steps = 0;
    ck_assert_msg(talker_ask(&pool.t, t->said, t->count, ANSWER) == MD_OK, "%s", pool.t.err.text);
    if (full) {
        ck_assert_int_eq(pool.t.last.attended, t->count);
        compare_dense(t);
    }
    memcpy(t->said + t->count, pool.t.last.tokens.ids, ANSWER * sizeof *tokens);
    t->count += ANSWER;
}

START_TEST(one_beginning_is_held_once_and_costs_once)
{
    open_sides(CELLS, 4, MD_REUSE_PLACE, 3);
    for (int i = 0; i < 3; i++) {
        say(&talks[i], 40, 1000 + 100 * i, true);
        ck_assert_int_eq(pool.t.last.prefilled, i == 0 ? 190 : 40);
    }
    ck_assert_int_eq(md_engine_cells_used(pool.engine), 3 * (190 + ANSWER - 1) - 2 * 150);
    for (int turn = 0; turn < 6; turn++) {
        say(&talks[turn % 3], 10, 2000 + 20 * turn, true);
        ck_assert_int_eq(pool.t.last.prefilled, 11);
        ck_assert_int_eq(pool.t.last.restored, 0);
    }
    md_session_close(talks[0].s);
    say(&talks[1], 10, 3000, true);
    ck_assert_int_eq(pool.t.last.prefilled, 11);
    close_sides();
}
END_TEST

static void switch_in(int32_t window, int32_t seq_count)
{
    open_sides(window, seq_count, MD_REUSE_PLACE, TALKS);
    int restored = 0;
    for (int turn = 0; turn < 12; turn++) {
        say(&talks[turn % TALKS], 40, 1000 + 50 * turn, true);
        ck_assert_int_eq(pool.t.last.prefilled, turn == 0 ? 190 : turn < TALKS ? 40 : 41);
        ck_assert_int_eq(pool.t.last.recomputed + pool.t.last.dropped, 0);
        restored += turn >= TALKS && pool.t.last.restored > 0;
    }
    ck_assert_int_gt(restored, 4);
    ck_assert_int_le(pool.t.cells_max, window);
    close_sides();
}

START_TEST(switching_restores_what_had_to_leave)
{
    switch_in(384, 4); /* one fits, four do not */
    switch_in(CELLS, 2);
}
END_TEST

START_TEST(branches_and_ranges_by_hand)
{
    int32_t out = 0, in = 0;
    open_sides(CELLS, 4, MD_REUSE_PLACE, 1);
    struct talk *a = &talks[0], *b = &talks[1];
    say(a, 100, 1000, true);
    ck_assert_int_eq(md_session_evict_range(a->s, (struct md_range){ 32, 128 }, &out, &pool.t.err), MD_OK);
    ck_assert_int_eq(out, 96);
    ck_assert_int_eq(md_session_branch(a->s, 203, &b->s, &pool.t.err), MD_OK);
    b->count = 203;
    memcpy(b->said, a->said, 203 * sizeof *tokens);
    say(b, 30, 2000, true); /* its own blocks are not held out */
    ck_assert_int_eq(pool.t.last.prefilled, 30);
    say(a, 10, 2500, false);
    ck_assert_int_eq(pool.t.last.attended, a->count - ANSWER - 96);
    ck_assert_int_eq(md_session_admit_range(a->s, (struct md_range){ 32, 128 }, &in, &pool.t.err), MD_OK);
    ck_assert_int_eq(in, 96);
    md_session_close(b->s);
    a->count = 240; /* back to what was computed over everything */
    say(a, 10, 2600, true);
    ck_assert_int_eq(pool.t.last.prefilled, 10);
    close_sides();
}
END_TEST

START_TEST(text_sent_again_is_moved)
{
    open_sides(CELLS, 4, MD_REUSE_APPROXIMATE, 1);
    struct talk *a = &talks[0];
    say(a, 50, 1000, true);
    say(a, 110, 20, false); /* [20, 130) again: the blocks [32, 128) are whole ones */
    ck_assert_int_eq(pool.t.last.moved, 96);
    ck_assert_int_eq(pool.t.last.prefilled, 1 + 110 - 96);
    ck_assert_int_gt(pool.t.last.tokens_of[MD_PROVENANCE_APPROXIMATE], 96);
    close_sides();
}
END_TEST

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    struct md_err err = { 0 };
    struct md_fake_model *model = NULL;
    snprintf(model_path, sizeof model_path, "%s/modeld-pool-%ld.gguf", tmp != NULL ? tmp : "/tmp",
             (long)getpid());
    enum md_status s = md_exact_model_open(&model, &err);
    if (s == MD_OK)
        s = md_exact_model_write(model, model_path, &err);
    md_fake_model_close(model);
    if (s != MD_OK) {
        fprintf(stderr, "exact model: %s\n", err.text);
        return 1;
    }
    md_subject_random_tokens(tokens, (int32_t)(sizeof tokens / sizeof tokens[0]));
    Suite *suite = suite_create("pool_llama_exact");
    TCase *c = tcase_create("pool");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, one_beginning_is_held_once_and_costs_once);
    tcase_add_test(c, switching_restores_what_had_to_leave);
    tcase_add_test(c, branches_and_ranges_by_hand);
    tcase_add_test(c, text_sent_again_is_moved);
    suite_add_tcase(suite, c);
    int rc = md_run_suite(suite);
    unlink(model_path);
    return rc;
}
