/* test_snapshot_openvino_llama_exact.c - a snapshot of the one engine on the other, both over the exact model in f32: its KV
 * is refused with a line, its tokens go on.  What is right: a conversation on the second engine that never was elsewhere. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "session/snapshot.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/talker.h"
#include "support/temp_folder.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LLAMA, OPENVINO, ENGINES };
enum { CELLS = 1024, PROMPT = 700, ANSWER = 16, MORE = 30, STEPS = ANSWER };

static char folder[4096], path[512];
static md_token tokens[2 * PROMPT];
static const struct md_sections_place place = { folder, "k" };
static struct talker t[ENGINES];
static float logits[ENGINES][STEPS * MD_FAKE_BYTE_VOCAB];

static struct md_pool_config config(int32_t hot)
{
    return (struct md_pool_config){ .window_tokens = CELLS,
                                    .hot_tokens = hot,
                                    .residency = true,
                                    .block_tokens = 16,
                                    .sink_tokens = 16,
                                    .recent_tokens = 128,
                                    .cold_bytes = 1 << 26 };
}

/* type  of the KV */
static void open_talker(int which, const char *type, const struct md_rope_asked *rope, int32_t hot)
{
    struct md_open_params p = { .model_path = path,
                                .cell_count = CELLS,
                                .batch_tokens = 64,
                                .ubatch_tokens = 64,
                                .threads = 1, /* the model is too small for more */
                                .flash_attn = which == LLAMA ? 0 : -1,
                                .type_k = type,
                                .type_v = type };
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    struct md_err err = { 0 };
    if (rope != NULL)
        p.rope = *rope;
    enum md_status s = md_llama_text_open(path, &text, &err);
    if (s == MD_OK)
        s = which == LLAMA ? md_backend_llama.open(&p, &engine, NULL, &err)
                           : md_openvino_open(&p, &engine, &err);
    ck_assert_msg(s == MD_OK, "%s", err.text);
    t[which].banned[0] = MD_EXACT_TOKEN_END;
    t[which].banned_count = 1;
    t[which].logits = logits[which];
    t[which].logits_steps = STEPS;
    talker_watch(&t[which], &engine);
    talker_open(&t[which], engine, text, config(hot));
}

static void close_talker(int which)
{
    struct md_engine *engine = t[which].engine;
    struct md_text *text = t[which].text;
    talker_close(&t[which]);
    md_engine_close(engine);
    md_text_close(text);
}

static void ask(int which, const md_token *prompt, int32_t count)
{
    ck_assert_msg(talker_ask(&t[which], prompt, count, ANSWER) == MD_OK, "%s", t[which].err.text);
    ck_assert_int_eq((int)t[which].last.tokens.count, ANSWER);
}

static void setup(void)
{
    struct md_fake_model *model;
    md_temp_folder(folder, sizeof folder, "engines");
    ck_assert(md_exact_model_file("snapshot-engines", &model, path, sizeof path));
    md_fake_model_close(model);
    md_subject_random_tokens(tokens, 2 * PROMPT);
}

static void teardown(void)
{
    unlink(path);
}

/* Nothing of the conversation in `which` is changed by a restore that fails, and the line names both. */
static void check_refused(int which, const char *theirs, const char *ours)
{
    struct md_snapshot snap;
    struct md_err err = { 0 };
    const struct md_session_status before = md_session_status(t[which].session);
    ck_assert_int_eq(md_session_restore(t[which].session, &place, NULL, NULL, &snap, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, theirs) != NULL && strstr(err.text, ours) != NULL &&
                      strstr(err.text, "--tokens-only") != NULL,
                  "%s", err.text);
    const struct md_session_status after = md_session_status(t[which].session);
    ck_assert(before.changes == after.changes && md_pool_check(t[which].pool));
}

static void restore_tokens(int which)
{
    struct md_snapshot snap;
    struct md_err err = { 0 };
    ck_assert_msg(md_session_restore_tokens(t[which].session, &place, NULL, NULL, &snap, &err) == MD_OK, "%s",
                  err.text);
    ck_assert_int_eq(snap.kv_tokens, 0);
    ck_assert_int_eq(snap.tape_tokens, PROMPT + ANSWER - 1);
    ck_assert_int_eq(md_session_status(t[which].session).lost_tokens, PROMPT + ANSWER - 1);
    ck_assert(md_session_status(t[which].session).tokens_only);
}

/* Written by `from`, gone on with on `to`. */
static void there_and_on(int from, int to, int32_t hot)
{
    static const char *const names[] = { "llama", "openvino" };
    struct md_snapshot snap;
    struct md_err err = { 0 };
    md_token prompt[PROMPT + ANSWER + MORE], said[ANSWER];
    static float got[STEPS * MD_FAKE_BYTE_VOCAB];
    open_talker(from, "f32", NULL, hot);
    ask(from, tokens, PROMPT);
    memcpy(prompt, tokens, PROMPT * sizeof *prompt);
    memcpy(prompt + PROMPT, t[from].last.tokens.ids, ANSWER * sizeof *prompt);
    memcpy(prompt + PROMPT + ANSWER, tokens + PROMPT, MORE * sizeof *prompt);
    ck_assert_msg(md_session_snapshot(t[from].session, &place, NULL, &snap, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(snap.kv_tokens, PROMPT + ANSWER - 1);
    close_talker(from);

    open_talker(to, "f32", NULL, hot);
    check_refused(to, names[from], names[to]);
    restore_tokens(to);
    ask(to, prompt, PROMPT + ANSWER + MORE);
    ck_assert_int_eq(t[to].last.cached, 0);
    ck_assert_int_eq(t[to].last.prefilled, PROMPT + ANSWER + MORE);
    ck_assert_int_eq(t[to].last.lost + t[to].last.restored + t[to].last.recomputed, 0);
    memcpy(said, t[to].last.tokens.ids, sizeof said);
    memcpy(got, logits[to], sizeof got);
    int32_t of[MD_PROVENANCE_COUNT];
    memcpy(of, t[to].last.tokens_of, sizeof of);
    close_talker(to);

    open_talker(to, "f32", NULL, hot); /* one that never was elsewhere */
    ask(to, prompt, PROMPT + ANSWER + MORE);
    ck_assert_mem_eq(of, t[to].last.tokens_of, sizeof of);
    for (int i = 0; i < STEPS * MD_FAKE_BYTE_VOCAB; i++)
        ck_assert_msg(fabsf(got[i] - logits[to][i]) <= 1e-3f, "logit %d is off by %g", i,
                      (double)fabsf(got[i] - logits[to][i]));
    ck_assert_mem_eq(said, t[to].last.tokens.ids, sizeof said);
    close_talker(to);
}

START_TEST(from_llama_to_openvino)
{
    there_and_on(LLAMA, OPENVINO, CELLS);
}
END_TEST

START_TEST(from_openvino_to_llama)
{
    there_and_on(OPENVINO, LLAMA, CELLS);
}
END_TEST

START_TEST(with_a_small_hot_set)
{
    there_and_on(LLAMA, OPENVINO, 256);
}
END_TEST

/* One engine with KV of another type, and with other positions. */
START_TEST(of_other_settings)
{
    const struct md_rope_asked rope = { .freq_base = 5000 };
    struct md_snapshot snap;
    struct md_err err = { 0 };
    for (int which = 0; which < ENGINES; which++) {
        open_talker(which, "f32", NULL, CELLS);
        ask(which, tokens, PROMPT);
        ck_assert_msg(md_session_snapshot(t[which].session, &place, NULL, &snap, &err) == MD_OK, "%s",
                      err.text);
        close_talker(which);
        open_talker(which, "f16", NULL, CELLS);
        check_refused(which, "f32/f32", "f16/f16");
        restore_tokens(which);
        close_talker(which);
    }
    open_talker(LLAMA, "f32", &rope, CELLS);
    check_refused(LLAMA, "openvino", "5000");
    restore_tokens(LLAMA);
    close_talker(LLAMA);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshot_openvino_llama_exact");
    TCase *c = tcase_create("engines");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, from_llama_to_openvino);
    tcase_add_test(c, from_openvino_to_llama);
    tcase_add_test(c, with_a_small_hot_set);
    tcase_add_test(c, of_other_settings);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
