/* A windowed model in f32 (windows of 32 tokens, cells for one window and a micro-batch): after a cut the
 * logits are those of a run that never went on, from the first position that can be cut to the last. */
#include "adapters/llama/llama_backend.h"
#include "engine/engine.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/tiny_models.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* pad256(32 + 64) = 256 cells for the windowed layers: of 600 tokens the first 344 at least are gone there */
enum { WINDOW = 32, UBATCH = 64, WINDOW_CELLS = 256, CELLS = 1024, TOKENS = 600, AHEAD = 4 };
static const float tolerance = 1e-3f; /* of the exact tests: another order of the same sums in f32 */

static char path[] = "/tmp/modeld-windowed-XXXXXX";
static struct md_engine *engine;
static md_token tokens[8192]; /* as many as md_subject_random_tokens gives */
static float *wanted;

static void setup(void)
{
    struct md_err err = { 0 };
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_msg(md_tiny_model_write(&md_tiny_windowed, path, &err) == MD_OK, "%s", err.text);
    const struct md_open_params p = { .model_path = path,
                                      .cell_count = CELLS,
                                      .ubatch_tokens = UBATCH,
                                      .threads = 1,
                                      .flash_attn = 0, /* it would round f32 KV to f16 */
                                      .type_k = "f32",
                                      .type_v = "f32" };
    ck_assert_msg(md_backend_llama.open(&p, &engine, NULL, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(md_engine_info(engine)->window_tokens, WINDOW);
    ck_assert_int_eq(md_engine_info(engine)->batch_tokens, UBATCH); /* so that each step can be undone */
    md_subject_random_tokens(tokens, (int32_t)(sizeof tokens / sizeof tokens[0]));
    wanted = calloc((size_t)md_engine_info(engine)->vocab_count, sizeof *wanted);
}

static void teardown(void)
{
    free(wanted);
    md_engine_close(engine);
    unlink(path);
}

static void prefill(int32_t start, const md_token *what, int32_t count)
{
    struct md_err err = { 0 };
    for (int32_t i = 0, n; i < count; i += n) {
        n = count - i < UBATCH ? count - i : UBATCH;
        ck_assert_msg(md_engine_prefill(engine, 0, start + i, what + i, n, &err) == MD_OK, "%s", err.text);
    }
}

static const float *decode(int32_t pos, md_token token)
{
    const float *logits = NULL;
    ck_assert_int_eq(md_engine_decode(engine, 0, pos, &token, 1, &logits, NULL), MD_OK);
    return logits;
}

static float furthest(const float *logits)
{
    float most = 0;
    for (int32_t i = 0; i < md_engine_info(engine)->vocab_count; i++)
        most = fmaxf(most, fabsf(logits[i] - wanted[i]));
    return most;
}

/* As far as the window reaches: the logits of AHEAD tokens behind `from`, where the text goes another way. */
static float continue_at(int32_t from)
{
    const md_token *other = tokens + 2000;
    prefill(from, other, AHEAD);
    return furthest(decode(from + AHEAD, other[AHEAD]));
}

static void undisturbed(int32_t from)
{
    const md_token *other = tokens + 2000;
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    prefill(0, tokens, from);
    prefill(from, other, AHEAD);
    memcpy(wanted, decode(from + AHEAD, other[AHEAD]),
           (size_t)md_engine_info(engine)->vocab_count * sizeof *wanted);
}

static int32_t run_and_first_cut(void)
{
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    prefill(0, tokens, TOKENS);
    int32_t first = TOKENS;
    while (first > 1 && md_engine_cut_point(engine, 0, first - 1) == first - 1)
        first--;
    for (int32_t at = 1; at < first; at++)
        ck_assert_int_eq(md_engine_cut_point(engine, 0, at), 0);
    return first;
}

START_TEST(every_cut_that_is_allowed_is_right)
{
    const int32_t first = run_and_first_cut();
    /* what the cells beside the window hold can be taken back, and not more */
    ck_assert_int_ge(first, TOKENS - (WINDOW_CELLS - WINDOW) - 1);
    ck_assert_int_le(first, TOKENS - UBATCH);
    for (int32_t at = first; at <= TOKENS; at += at < first + 3 ? 1 : 29) {
        undisturbed(at);
        ck_assert_int_eq(run_and_first_cut(), first);
        ck_assert_int_eq(md_engine_truncate(engine, 0, at, NULL), MD_OK);
        float far = continue_at(at);
        ck_assert_msg(far <= tolerance, "cut at %d (first %d): logits are off by %g", at, first, (double)far);
    }
}
END_TEST

/* The guard is needed, and its border is the right one: with the window gone the logits are wrong.  A cut one
 * token too early loses the oldest token of the window only, which is still seen. */
START_TEST(a_lost_window_shows)
{
    undisturbed(TOKENS - 300);
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    /* positions without the tokens before them, as a cut too far back would leave them */
    prefill(TOKENS - 300, tokens + 2000, AHEAD);
    float far = furthest(decode(TOKENS - 300 + AHEAD, tokens[2000 + AHEAD]));
    ck_assert_msg(far > 100 * tolerance, "only %g", (double)far);
}
END_TEST

static bool at_once(void *user)
{
    int *polls = user;
    return --*polls < 0;
}

START_TEST(an_interrupted_step_leaves_the_window_whole)
{
    undisturbed(TOKENS);
    ck_assert_int_eq(md_engine_truncate(engine, 0, 0, NULL), MD_OK);
    prefill(0, tokens, TOKENS);
    int polls = 3;
    md_engine_set_interrupt(engine, at_once, &polls);
    ck_assert_int_eq(md_engine_prefill(engine, 0, TOKENS, tokens + TOKENS, UBATCH, NULL), MD_CANCELLED);
    md_engine_set_interrupt(engine, NULL, NULL);
    ck_assert_int_eq(md_engine_end(engine, 0), TOKENS);
    float far = continue_at(TOKENS);
    ck_assert_msg(far <= tolerance, "logits are off by %g", (double)far);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("windowed_llama_exact");
    TCase *c = tcase_create("windowed");
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, every_cut_that_is_allowed_is_right);
    tcase_add_test(c, a_lost_window_shows);
    tcase_add_test(c, an_interrupted_step_leaves_the_window_whole);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
