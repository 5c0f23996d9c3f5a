/* test_xattention_openvino_sessions.c - conversations on an engine with XAttention: what it computed is never called exact,
 * never reused where only exact KV may be, and refused by an engine without it.  On the exact model. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "session/snapshot.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/talker.h"
#include "support/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 2048, PROMPT = 700, SHORT = 100, ANSWER = 8 };

static char folder[4096], path[512];
static md_token tokens[PROMPT];
static const struct md_sections_place place = { folder, "k" };
static struct talker t;

static void setup(void)
{
    struct md_fake_model *model;
    md_temp_folder(folder, sizeof folder, "xattention");
    ck_assert(md_exact_model_file("xattention-sessions", &model, path, sizeof path));
    md_fake_model_close(model);
    md_subject_random_tokens(tokens, PROMPT);
}

static void teardown(void)
{
    unlink(path);
}

static void open_talker(double share, enum md_reuse reuse)
{
    const struct md_open_params p = { .model_path = path,
                                      .cell_count = CELLS,
                                      .batch_tokens = 1024,
                                      .ubatch_tokens = 1024,
                                      .threads = 1, /* the model is too small for more */
                                      .flash_attn = -1,
                                      .xattention = share };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    struct md_err err = { 0 };
    enum md_status s = md_llama_text_open(path, &text, &err);
    if (s == MD_OK)
        s = md_openvino_open(&p, &engine, &err);
    ck_assert_msg(s == MD_OK, "%s", err.text);
    t.banned[0] = MD_EXACT_TOKEN_END;
    t.banned_count = 1;
    talker_watch(&t, &engine);
    talker_open(&t, engine, text,
                (struct md_pool_config){ .window_tokens = CELLS,
                                         .hot_tokens = CELLS,
                                         .residency = true,
                                         .reuse = reuse,
                                         .block_tokens = 16,
                                         .cold_bytes = 1 << 26 });
}

static void close_talker(void)
{
    struct md_engine *engine = t.engine;
    struct md_text *text = t.text;
    talker_close(&t);
    md_engine_close(engine);
    md_text_close(text);
}

static void ask(const md_token *prompt, int32_t count)
{
    ck_assert_msg(talker_ask(&t, prompt, count, ANSWER) == MD_OK, "%s", t.err.text);
}

static void check_kinds(int32_t full, int32_t bounded)
{
    const int32_t *of = t.last.tokens_of;
    ck_assert_msg(of[MD_PROVENANCE_FULL] == full && of[MD_PROVENANCE_BOUNDED] == bounded &&
                      of[MD_PROVENANCE_APPROXIMATE] == 0,
                  "%d full, %d bounded, %d approximate", of[MD_PROVENANCE_FULL], of[MD_PROVENANCE_BOUNDED],
                  of[MD_PROVENANCE_APPROXIMATE]);
}

/* A prompt that is longer than a block of it, its answer and the next turn, which are computed over it; one that is short
 * is exact, as what follows it. */
START_TEST(what_a_turn_says)
{
    md_token next[PROMPT + ANSWER];
    open_talker(0, MD_REUSE_PLACE);
    ask(tokens, PROMPT);
    check_kinds(PROMPT + ANSWER - 1, 0);
    close_talker();

    open_talker(0.9, MD_REUSE_PLACE);
    ask(tokens, PROMPT - 200);
    check_kinds(0, PROMPT - 200 + ANSWER - 1);
    memcpy(next, tokens, sizeof tokens);
    ask(next, PROMPT);
    ck_assert_int_eq(t.last.prefilled, 200);
    check_kinds(0, PROMPT + ANSWER - 1);
    close_talker();

    open_talker(0.9, MD_REUSE_PLACE);
    ask(tokens, SHORT);
    check_kinds(SHORT + ANSWER - 1, 0);
    ask(tokens, PROMPT); /* behind a past: in full */
    check_kinds(PROMPT + ANSWER - 1, 0);
    close_talker();
}
END_TEST

/* Exact only: what leaves the engine is not kept, so that a text that comes again is computed again. */
START_TEST(what_is_reused)
{
    static const enum md_reuse ways[] = { MD_REUSE_PLACE, MD_REUSE_FULL };
    for (int i = 0; i < 2; i++) {
        md_token other[PROMPT];
        for (int32_t n = 0; n < PROMPT; n++)
            other[n] = tokens[PROMPT - 1 - n];
        open_talker(0.9, ways[i]);
        ask(tokens, PROMPT);
        ask(other, PROMPT); /* in the place of the first */
        ask(tokens, PROMPT);
        ck_assert_int_eq(t.last.cached > PROMPT / 2, ways[i] == MD_REUSE_PLACE);
        check_kinds(0, PROMPT + ANSWER - 1);
        close_talker();
    }
}
END_TEST

/* From one with to one without, and the other way: a line that says where they differ; with the tokens alone it goes on, and
 * what is computed is what this engine computes. */
START_TEST(snapshots)
{
    static const double shares[] = { 0.9, 0, 0.5 };
    for (int from = 0; from < 3; from++) {
        const int to = (from + 1) % 3;
        struct md_snapshot snap;
        struct md_err err = { 0 };
        open_talker(shares[from], MD_REUSE_PLACE);
        ask(tokens, PROMPT);
        ck_assert_msg(md_session_snapshot(t.session, &place, NULL, &snap, &err) == MD_OK, "%s", err.text);
        close_talker();

        open_talker(shares[to], MD_REUSE_PLACE);
        ck_assert_int_eq(md_session_restore(t.session, &place, NULL, NULL, &snap, &err), MD_INVALID);
        ck_assert_msg(strstr(err.text, "xattention 0.") != NULL && strstr(err.text, "--tokens-only") != NULL,
                      "%s", err.text);
        ck_assert_msg(md_session_restore_tokens(t.session, &place, NULL, NULL, &snap, &err) == MD_OK, "%s",
                      err.text);
        ck_assert_int_eq(snap.kv_tokens, 0);
        ask(tokens, PROMPT);
        ck_assert_int_eq(t.last.prefilled, PROMPT);
        check_kinds(shares[to] > 0 ? 0 : PROMPT + ANSWER - 1, shares[to] > 0 ? PROMPT + ANSWER - 1 : 0);
        close_talker();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("xattention_openvino_sessions");
    TCase *c = tcase_create("xattention");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, what_a_turn_says);
    tcase_add_test(c, what_is_reused);
    tcase_add_test(c, snapshots);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
