/* Gemma-3-270M with cells for its window only (512 tokens; every sixth of 18 layers is global): what may be
 * cut, what may not, and what a session makes of it.  The right logits are those of a run that never did
 * anything else: the same tokens in the same steps, since a moved batch border alone changes a 4-bit model. */
#include "adapters/llama/llama_backend.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/talker.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WINDOW = 512,
    UBATCH = 128,
    STEP = 32,
    CELLS = 1024,
    LONG = 900,
    JUNK = 60,
    NEXT = 20,
    END_OF_TURN = 106,
    EOS = 1
};
/* window + micro-batch, in units of 256: what the windowed layers have cells for */
enum { WINDOW_CELLS = 768 };

static struct md_engine *engine;
static struct md_text *text;
static struct talker t;
static struct md_tokens source;
static float *wanted; /* logits of the undisturbed run */

static void setup(void)
{
    const struct md_open_params p = { .model_path = ".deps/models/gemma3-270m.gguf",
                                      .cell_count = CELLS,
                                      .ubatch_tokens = UBATCH,
                                      .threads = 1,
                                      .flash_attn = -1 };
    struct md_err err = { 0 };
    struct md_buf prose;
    ck_assert_msg(access(p.model_path, R_OK) == 0, "'%s' is missing: tools/setup.sh model gemma3-270m",
                  p.model_path);
    ck_assert_msg(md_backend_llama.open(&p, &engine, &text, &err) == MD_OK, "%s", err.text);
    t.banned[0] = END_OF_TURN;
    t.banned[1] = EOS;
    t.banned_count = 2;
    talker_watch(&t, &engine);
    md_buf_init(&prose, NULL, 1 << 20);
    ck_assert_int_eq(md_subject_prose(&prose, 8000, &err), MD_OK);
    ck_assert_int_eq(md_text_tokenize(text, (struct md_bytes){ prose.data, prose.len }, true, false, &source,
                                      &err),
                     MD_OK);
    ck_assert_int_gt((int)source.count, LONG + JUNK + NEXT + 1);
    md_buf_done(&prose);
    wanted = calloc((size_t)md_engine_info(engine)->vocab_count, sizeof *wanted);
}

static void teardown(void)
{
    free(wanted);
    md_tokens_done(&source);
    md_engine_close(engine);
    md_text_close(text);
}

static void prefill(int32_t start, const md_token *tokens, int32_t count)
{
    struct md_err err = { 0 };
    for (int32_t i = 0, n; i < count; i += n) {
        n = count - i < STEP ? count - i : STEP;
        ck_assert_msg(md_engine_prefill(engine, 0, start + i, tokens + i, n, &err) == MD_OK, "%s", err.text);
    }
}

static const float *decode(int32_t pos)
{
    const float *logits = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_engine_decode(engine, 0, pos, &source.ids[pos], 1, &logits, &err) == MD_OK, "%s",
                  err.text);
    return logits;
}

/* The source's first `count` tokens in two runs of steps that part at `cut`, and the logits after one more. */
static void undisturbed(int32_t cut, int32_t count)
{
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    prefill(0, source.ids, cut);
    prefill(cut, source.ids + cut, count - cut);
    memcpy(wanted, decode(count), (size_t)md_engine_info(engine)->vocab_count * sizeof *wanted);
}

static float furthest(const float *logits)
{
    float most = 0;
    for (int32_t i = 0; i < md_engine_info(engine)->vocab_count; i++)
        most = fmaxf(most, fabsf(logits[i] - wanted[i]));
    return most;
}

START_TEST(a_cut_inside_the_window_is_as_if_never_gone_on)
{
    undisturbed(LONG, LONG + NEXT);
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    prefill(0, source.ids, LONG);
    prefill(LONG, source.ids + LONG + NEXT, JUNK); /* other text, which is then taken back */
    ck_assert_int_eq(md_engine_cut_point(engine, 0, LONG), LONG);
    ck_assert_int_eq(md_engine_truncate(engine, 0, LONG, NULL), MD_OK);
    prefill(LONG, source.ids + LONG, NEXT);
    float far = furthest(decode(LONG + NEXT));
    ck_assert_msg(far <= 1e-3f, "logits are off by %g", (double)far);
}
END_TEST

/* The first position that can be cut is found by asking: from there on all can, before it none.  (That the
 * logits after a cut exactly there are right is shown on a model in f32, where it can be shown.) */
START_TEST(how_far_back_is_told_and_true)
{
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    prefill(0, source.ids, LONG + JUNK);
    const int32_t end = LONG + JUNK;
    int32_t first = end;
    while (first > 1 && md_engine_cut_point(engine, 0, first - 1) == first - 1)
        first--;
    for (int32_t at = 1; at < first; at++)
        ck_assert_int_eq(md_engine_cut_point(engine, 0, at), 0);
    /* at least what was computed last may be taken back; at most the cells that are beside the window */
    ck_assert_int_le(first, end - STEP);
    ck_assert_int_ge(first, end - (WINDOW_CELLS - WINDOW) - 1);

    struct md_err err = { 0 };
    ck_assert_int_eq(md_engine_truncate(engine, 0, first, &err), MD_OK);
    ck_assert(md_engine_end(engine, 0) == first && md_engine_is_ready(engine, 0));
    ck_assert_int_eq(md_engine_truncate(engine, 0, first - 1, &err), MD_OK);
    ck_assert(md_engine_end(engine, 0) == first - 1 && !md_engine_is_ready(engine, 0));
    ck_assert_int_eq(md_engine_prefill(engine, 0, first - 1, source.ids, 1, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "rewind it to a checkpoint first"));
}
END_TEST

/* Where the cells of the window were used again long ago; the KV of the global layers goes out and comes back. */
START_TEST(a_checkpoint_brings_the_window_back)
{
    enum { AT = 128, BLOCK = 64 };
    struct md_buf state, kv;
    struct md_err err = { 0 };
    undisturbed(AT, AT + NEXT);
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    prefill(0, source.ids, AT);
    md_buf_init(&state, NULL, (size_t)md_engine_checkpoint_bytes(engine));
    md_buf_init(&kv, NULL, 1 << 24);
    ck_assert_msg(md_engine_checkpoint(engine, 0, &state, &err) == MD_OK, "%s", err.text);
    prefill(AT, source.ids + AT + NEXT, CELLS - 2 * AT); /* other text */
    ck_assert_int_eq(md_engine_cut_point(engine, 0, AT), 0);
    const struct md_range r = { 32, 32 + BLOCK };
    ck_assert_msg(md_engine_evict_range(engine, 0, r, &kv, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_engine_rewind(engine, 0, AT, (struct md_bytes){ state.data, state.len }, &err) == MD_OK,
                  "%s", err.text);
    ck_assert_msg(md_engine_admit_range(engine, 0, r, (struct md_bytes){ kv.data, kv.len }, &err) == MD_OK,
                  "%s", err.text);
    prefill(AT, source.ids + AT, NEXT);
    float far = furthest(decode(AT + NEXT));
    printf("# rewound: logits are off by %g; a checkpoint is %lld bytes\n", (double)far,
           (long long)state.len);
    ck_assert_msg(far <= 1e-3f, "logits are off by %g", (double)far);
    md_buf_done(&state);
    md_buf_done(&kv);
}
END_TEST

static bool now(void *user)
{
    int *polls = user;
    return --*polls < 0;
}

START_TEST(an_interrupted_step_leaves_the_window_whole)
{
    undisturbed(LONG, LONG + NEXT);
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    prefill(0, source.ids, LONG);
    int polls = 5; /* some layers into the step */
    md_engine_set_interrupt(engine, now, &polls);
    ck_assert_int_eq(md_engine_prefill(engine, 0, LONG, source.ids + LONG, CELLS - LONG, NULL), MD_CANCELLED);
    md_engine_set_interrupt(engine, NULL, NULL);
    ck_assert_int_eq(md_engine_end(engine, 0), LONG);
    prefill(LONG, source.ids + LONG, NEXT);
    float far = furthest(decode(LONG + NEXT));
    ck_assert_msg(far <= 1e-3f, "logits are off by %g", (double)far);
}
END_TEST

static void ask(const md_token *prompt, int32_t count)
{
    ck_assert_msg(talker_ask(&t, prompt, count, 8) == MD_OK, "%s", t.err.text);
}

/* An edit near the end keeps what is before it; one far back computes all of it again, says so, and answers
 * as a new session does. */
START_TEST(a_session_computes_again_what_it_cannot_cut)
{
    const struct md_pool_config c = { .window_tokens = CELLS,
                                      .hot_tokens = CELLS,
                                      .residency = true,
                                      .block_tokens = 64,
                                      .sink_tokens = -1,
                                      .recent_tokens = -1,
                                      .cold_bytes = 1 << 24 };
    md_token edited[LONG], answer[8];
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    talker_open(&t, engine, text, c);
    ask(source.ids, LONG);
    memcpy(edited, source.ids, sizeof edited);
    edited[LONG - 10] = source.ids[3];
    ask(edited, LONG);
    ck_assert_int_ge(t.last.cached, LONG - 10 - 1);
    ck_assert_int_le(t.last.prefilled, 11);
    edited[50] = source.ids[4];
    ask(edited, LONG);
    ck_assert_int_eq(t.last.cached, 0);
    ck_assert_int_eq(t.last.prefilled, LONG);
    ck_assert_int_eq((int)t.last.tokens.count, 8);
    memcpy(answer, t.last.tokens.ids, sizeof answer);
    talker_close(&t);
    talker_open(&t, engine, text, c);
    ask(edited, LONG);
    ck_assert_mem_eq(answer, t.last.tokens.ids, sizeof answer);
    talker_close(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_windowed_gemma");
    TCase *c = tcase_create("windowed");
    tcase_set_timeout(c, 900);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, a_cut_inside_the_window_is_as_if_never_gone_on);
    tcase_add_test(c, how_far_back_is_told_and_true);
    tcase_add_test(c, a_checkpoint_brings_the_window_back);
    tcase_add_test(c, an_interrupted_step_leaves_the_window_whole);
    tcase_add_test(c, a_session_computes_again_what_it_cannot_cut);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
