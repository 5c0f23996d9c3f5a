/* Sessions on llama.cpp with the exact model.  The hot set is the whole window, so all KV is of full
 * provenance: a branch that comes back from the cold store must answer exactly as a fresh run does. */
#include "adapters/llama/llama_backend.h"
#include "support/run_suite.h"
#include "support/exact_model.h"
#include "support/subjects.h"
#include "support/talker.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 2048, ANSWER = 32, COLD_BYTES = 64 << 20 };

static char model_path[512];
static struct md_engine *engine, *fresh_engine;
static struct md_text *text, *fresh_text;
static struct talker t;
static md_token tokens[8192];

static void open_exact(struct md_engine **ret_engine, struct md_text **ret_text)
{
    const struct md_open_params p = { .model_path = model_path,
                                      .cell_count = WINDOW,
                                      .threads = 1, /* the model is too small for more */
                                      .type_k = "f32",
                                      .type_v = "f32" };
    struct md_err err = { 0 };
    ck_assert_msg(md_backend_llama.open(&p, ret_engine, ret_text, &err) == MD_OK, "%s", err.text);
}

static struct md_pool_config config(int32_t hot)
{
    return (struct md_pool_config){ .window_tokens = WINDOW,
                                    .hot_tokens = hot,
                                    .residency = true,
                                    .block_tokens = 64,
                                    .sink_tokens = -1,
                                    .recent_tokens = -1,
                                    .cold_bytes = COLD_BYTES };
}

static void setup(void)
{
    memset(&t, 0, sizeof t);
    t.banned[0] = MD_EXACT_TOKEN_END;
    t.banned_count = 1;
    md_subject_random_tokens(tokens, (int32_t)(sizeof tokens / sizeof tokens[0]));
    open_exact(&engine, &text);
    open_exact(&fresh_engine, &fresh_text);
}

static void teardown(void)
{
    md_engine_close(engine);
    md_text_close(text);
    md_engine_close(fresh_engine);
    md_text_close(fresh_text);
}

/* A prompt: `head` tokens that all branches share, then `tail` tokens of branch number `branch`. */
static int32_t branch_prompt(md_token *out, int32_t head, int branch, int32_t tail)
{
    memcpy(out, tokens, (size_t)head * sizeof *out);
    memcpy(out + head, tokens + 1000 + branch * 700, (size_t)tail * sizeof *out);
    return head + tail;
}

static void fresh_answer(const md_token *prompt, int32_t count, md_token *out)
{
    struct talker fresh = { .banned = { MD_EXACT_TOKEN_END }, .banned_count = 1 };
    talker_open(&fresh, fresh_engine, fresh_text, config(WINDOW));
    ck_assert_int_eq(talker_ask(&fresh, prompt, count, ANSWER), MD_OK);
    ck_assert_int_eq(fresh.last.cached, 0);
    ck_assert_int_eq(fresh.last.completion, ANSWER);
    memcpy(out, fresh.last.tokens.ids, ANSWER * sizeof *out);
    talker_close(&fresh);
}

START_TEST(restored_branches_answer_as_fresh_runs)
{
    static const struct {
        int32_t head;
        int branch;
        int32_t tail;
    } visits[] = { { 300, 0, 700 }, { 300, 1, 500 }, { 300, 0, 700 }, { 128, 2, 900 }, { 300, 1, 500 },
                   { 300, 0, 700 }, { 128, 2, 640 }, { 300, 0, 350 }, { 1, 3, 600 },   { 128, 2, 900 } };
    int32_t restored_in_all = 0;
    talker_open(&t, engine, text, config(WINDOW));
    for (size_t i = 0; i < sizeof visits / sizeof visits[0]; i++) {
        md_token prompt[WINDOW], want[ANSWER];
        int32_t count = branch_prompt(prompt, visits[i].head, visits[i].branch, visits[i].tail);
        fresh_answer(prompt, count, want);
        ck_assert_msg(talker_ask(&t, prompt, count, ANSWER) == MD_OK, "visit %zu: %s", i, t.err.text);
        ck_assert_int_eq(t.last.dropped, 0);
        ck_assert_int_eq(t.last.recomputed, 0);
        ck_assert_int_eq(t.last.attended, count);
        for (int n = 0; n < ANSWER; n++)
            ck_assert_msg(t.last.tokens.ids[n] == want[n], "visit %zu (%d restored), token %d: %d, fresh %d",
                          i, t.last.restored, n, t.last.tokens.ids[n], want[n]);
        restored_in_all += t.last.restored;
        if (i == 2 || i == 5) /* seen before: all but what is in no whole block comes back */
            ck_assert_int_lt(t.last.prefilled, 64);
    }
    ck_assert_int_gt(restored_in_all, 3000);
    talker_close(&t);
}
END_TEST

/* Through a small hot set other blocks are attended, so the answers are not those of the dense run; but nothing
 * is lost or computed twice. */
START_TEST(a_small_hot_set_loses_nothing)
{
    md_token prompt[WINDOW], other[WINDOW];
    int32_t count = branch_prompt(prompt, 300, 0, 700), other_count = branch_prompt(other, 300, 1, 600);
    talker_open(&t, engine, text, config(512));
    ck_assert_int_eq(talker_ask(&t, prompt, count, ANSWER), MD_OK);
    ck_assert_int_le(t.last.attended, 512);
    for (int round = 0; round < 3; round++) {
        ck_assert_int_eq(talker_ask(&t, other, other_count, ANSWER), MD_OK);
        ck_assert_int_eq(talker_ask(&t, prompt, count, ANSWER), MD_OK);
        ck_assert_int_gt(t.last.restored, 0);
        ck_assert_int_eq(t.last.recomputed + t.last.dropped, 0);
        ck_assert_int_lt(t.last.prefilled, 64);
        ck_assert_int_le(t.cells_max, 512);
    }
    struct md_session_status st = md_session_status(t.session);
    ck_assert_int_eq(st.hot_tokens + st.cold_tokens, st.tape_tokens);
    talker_close(&t);
}
END_TEST

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    struct md_err err = { 0 };
    struct md_fake_model *model = NULL;
    snprintf(model_path, sizeof model_path, "%s/modeld-session-%ld.gguf", tmp != NULL ? tmp : "/tmp",
             (long)getpid());
    enum md_status s = md_exact_model_open(&model, &err);
    if (s == MD_OK)
        s = md_exact_model_write(model, model_path, &err);
    md_fake_model_close(model);
    if (s != MD_OK) {
        fprintf(stderr, "exact model: %s\n", err.text);
        return 1;
    }
    Suite *suite = suite_create("session_llama_exact");
    TCase *c = tcase_create("sessions");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, restored_branches_answer_as_fresh_runs);
    tcase_add_test(c, a_small_hot_set_loses_nothing);
    suite_add_tcase(suite, c);
    int rc = md_run_suite(suite);
    unlink(model_path);
    return rc;
}
