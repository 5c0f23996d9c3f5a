/* Conversations on engines with a tail state: whatever is edited, the answer is
 * that of a conversation that never was anything else, bit for bit. */
#include "engine/fake.h"
#include "support/run_suite.h"
#include "support/scripted.h"
#include "support/subjects.h"
#include "support/talker.h"

#include <check.h>
#include <string.h>

enum { CELLS = 512, LONG = 300, ANSWER = 6, TOKENS = 8192 };

static const struct {
    const char *label;
    int32_t tail_period, window_tokens;
    unsigned caps_off;
    bool evicts; /* has KV of positions, and checkpoints */
} rows[] = {
    { "windows", 2, 32, 0, true },
    { "recurrent", 2, 0, 0, true },
    { "windows only", 8, 32, 0, false },
    { "recurrent only", 8, 0, 0, false },
    { "windows, no checkpoints", 2, 32, MD_CAP_CHECKPOINT, false },
    { "recurrent, no checkpoints", 2, 0, MD_CAP_CHECKPOINT, false },
};

static struct talker t;
static struct md_text *text;
static struct md_engine *engine;

static struct md_pool_config config(void)
{
    return (struct md_pool_config){ .window_tokens = CELLS,
                                    .hot_tokens = CELLS,
                                    .residency = true,
                                    .block_tokens = 16,
                                    .sink_tokens = -1,
                                    .recent_tokens = -1,
                                    .cold_bytes = 1 << 22 };
}

static void ask(const char *label, const md_token *prompt, int32_t count)
{
    ck_assert_msg(talker_ask(&t, prompt, count, ANSWER) == MD_OK, "%s: %s", label, t.err.text);
    ck_assert_msg((int)t.last.tokens.count == ANSWER && !t.broken, "%s", label);
}

/* In a conversation that goes on, and in a new one. */
static void compare(const char *label, const md_token *prompt, int32_t count)
{
    md_token answer[ANSWER];
    ask(label, prompt, count);
    memcpy(answer, t.last.tokens.ids, sizeof answer);
    talker_close(&t);
    talker_open(&t, engine, text, config());
    ask(label, prompt, count);
    ck_assert_msg(memcmp(answer, t.last.tokens.ids, sizeof answer) == 0, "%s: another answer", label);
}

START_TEST(every_edit_is_as_if_never_edited)
{
    static md_token tokens[TOKENS], prompt[LONG];
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    const struct md_script script = { .pieces = two, .count = 2 };
    const struct md_fake_options o = { .cell_count = CELLS,
                                       .batch_tokens = 64,
                                       .caps_off = rows[_i].caps_off };
    struct md_fake_dims dims = md_fake_dims_default();
    struct md_fake_model *model = NULL;
    dims.tail_period = rows[_i].tail_period;
    dims.window_tokens = rows[_i].window_tokens;
    md_subject_random_tokens(tokens, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        tokens[i] %= MD_SCRIPTED_END;
    ck_assert_int_eq(md_scripted_open(&script, NULL, &text, &t.err), MD_OK);
    ck_assert_int_eq(md_fake_model_open(&dims, 1, NULL, &model, &t.err), MD_OK);
    ck_assert_int_eq(md_fake_open(model, &o, &engine, &t.err), MD_OK);
    t.banned[0] = MD_SCRIPTED_END;
    t.banned_count = 1;
    talker_open(&t, engine, text, config());
    ck_assert_int_eq((md_pool_status(t.pool).caps & MD_CAP_REMOVE_MIDDLE) != 0, rows[_i].evicts);
    memcpy(prompt, tokens, sizeof prompt);
    ask(rows[_i].label, prompt, LONG);
    static const int32_t edits[] = { LONG - 3, LONG - 40, 170, 33, 1, 0 };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        prompt[edits[i]] = tokens[1000 + (int)i];
        compare(rows[_i].label, prompt, LONG);
    }
    compare(rows[_i].label, prompt, 100);         /* shorter */
    compare(rows[_i].label, tokens + 2000, LONG); /* another text */
    struct md_err err = { 0 };
    struct md_pool_config small = config();
    small.hot_tokens = CELLS / 2;
    talker_close(&t);
    if (!rows[_i].evicts) {
        struct md_pool *pool = NULL;
        ck_assert_int_eq(md_pool_open(&small, engine, text, &pool, &err), MD_UNSUPPORTED);
    }
    md_engine_close(engine);
    md_text_close(text);
    md_fake_model_close(model);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool_tail");
    TCase *c = tcase_create("pool_tail");
    tcase_add_loop_test(c, every_edit_is_as_if_never_edited, 0, (int)(sizeof rows / sizeof rows[0]));
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
