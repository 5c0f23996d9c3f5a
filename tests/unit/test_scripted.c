/* The scripted model: the fronts' tests rest on it. */
#include "base/clock.h"
#include "support/run_suite.h"
#include "support/scripted.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const struct md_bytes pieces[] = {
    { "Hel", 3 }, { "lo \xc3", 4 }, { "\xa4", 1 }, { "", 0 }, { "\0x", 2 }
};
enum { PIECES = sizeof pieces / sizeof pieces[0] };

/* Feed a prompt and collect what is chosen, until the end or `most` tokens. */
static int generate(struct md_engine *e, struct md_text *t, const struct md_sample_params *p, int most,
                    md_token *out)
{
    struct md_tokens prompt = { 0 };
    struct md_sampler *sampler = NULL;
    ck_assert_int_eq(md_text_tokenize(t, (struct md_bytes){ "say it", 6 }, true, true, &prompt, NULL), MD_OK);
    ck_assert_uint_eq(prompt.count, 6);
    ck_assert_int_eq(md_sampler_open(t, p, &sampler, NULL), MD_OK);
    const int32_t n = (int32_t)prompt.count;
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, prompt.ids, n - 1, NULL), MD_OK);
    md_token token = prompt.ids[n - 1];
    int count = 0;
    for (int32_t pos = n - 1; count < most; pos++) {
        const float *logits = NULL;
        ck_assert_int_eq(md_engine_decode(e, 0, pos, &token, 1, &logits, NULL), MD_OK);
        ck_assert_int_eq(md_sampler_sample(sampler, logits, md_engine_info(e)->vocab_count, &token, NULL),
                         MD_OK);
        out[count++] = token;
        if (md_text_is_end(t, token))
            break;
    }
    ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK);
    md_sampler_close(sampler);
    md_tokens_done(&prompt);
    return count;
}

START_TEST(it_says_its_pieces_and_ends)
{
    const struct md_script script = { .pieces = pieces, .count = PIECES };
    struct md_engine *e = NULL;
    struct md_text *t = NULL;
    ck_assert_int_eq(md_scripted_open(&script, &e, &t, NULL), MD_OK);
    ck_assert_int_eq(md_engine_info(e)->vocab_count, t->info.vocab_count);
    struct md_sample_params p = md_sample_defaults();
    md_token said[16];
    ck_assert_int_eq(generate(e, t, &p, 16, said), PIECES + 1);
    struct md_buf text;
    md_buf_init(&text, NULL, 1 << 10);
    for (int i = 0; i < PIECES + 1; i++)
        ck_assert_int_eq(md_text_piece(t, said[i], false, &text, NULL), MD_OK);
    ck_assert_uint_eq(text.len, 10);
    ck_assert_int_eq(memcmp(text.data, "Hello \xc3\xa4\0x", 10), 0);
    ck_assert_int_eq(said[PIECES], MD_SCRIPTED_END);
    ck_assert_int_eq(md_text_piece(t, -1, false, &text, NULL), MD_INVALID);
    ck_assert_int_eq(md_text_piece(t, MD_SCRIPTED_FIRST + PIECES, false, &text, NULL), MD_INVALID);

    const struct md_logit_bias no_end = { MD_SCRIPTED_END, -100 },
                               no_second = { MD_SCRIPTED_FIRST + 1, -100 };
    p.bias = &no_end;
    p.bias_count = 1;
    ck_assert_int_eq(generate(e, t, &p, 16, said), 16); /* round and round */
    ck_assert_int_eq(said[PIECES], MD_SCRIPTED_FIRST);
    p.bias = &no_second;
    ck_assert_int_eq(generate(e, t, &p, 16, said), 2);
    ck_assert_int_eq(said[1], MD_SCRIPTED_END);
    md_text_close(t); /* either may go first */
    md_engine_close(e);
    md_buf_done(&text);
}
END_TEST

START_TEST(prompts)
{
    const struct md_script script = { .pieces = pieces, .count = PIECES };
    struct md_text *t = NULL;
    ck_assert_int_eq(md_scripted_open(&script, NULL, &t, NULL), MD_OK);
    struct md_buf prompt;
    md_buf_init(&prompt, NULL, 1 << 10);
    const struct md_chat_message messages[] = { { .role = { "system", 6 }, .content = { "be kind", 7 } },
                                                { .role = { "user", 4 }, .content = { "a\0b", 3 } } };
    const struct md_chat_message stranger = { .role = { "robot", 5 }, .content = { "x", 1 } };
    const struct md_chat_input both = { .messages = messages, .count = 2, .add_generation_prompt = true };
    const struct md_chat_input bad = { .messages = &stranger, .count = 1 }, none = { .messages = messages };
    struct md_chat_form *form = NULL;
    ck_assert_int_eq(md_text_render_chat(t, &both, &prompt, &form, NULL), MD_OK);
    ck_assert_uint_eq(prompt.len, 16 + 10 + 11);
    ck_assert_int_eq(memcmp(prompt.data, "system: be kind\nuser: a\0b\nassistant: ", prompt.len), 0);
    ck_assert_int_eq(md_text_render_chat(t, &bad, &prompt, &form, NULL), MD_INVALID);
    ck_assert_int_eq(md_text_render_chat(t, &none, &prompt, &form, NULL), MD_INVALID);
    ck_assert_uint_eq(prompt.len, 37);
    struct md_tokens tokens = { 0 };
    const struct md_bytes text = { "\xff<|end|>", 8 };
    ck_assert_int_eq(md_text_tokenize(t, text, true, true, &tokens, NULL), MD_OK);
    ck_assert_uint_eq(tokens.count, 2);
    ck_assert_int_eq(tokens.ids[0], 0xff);
    ck_assert_int_eq(tokens.ids[1], MD_SCRIPTED_END);
    ck_assert_int_eq(md_text_tokenize(t, text, true, false, &tokens, NULL), MD_OK); /* user text stays text */
    ck_assert_uint_eq(tokens.count, 10);
    md_tokens_done(&tokens);
    md_buf_done(&prompt);
    md_text_close(t);
}
END_TEST

static bool late(void *user)
{
    return md_clock_mono_ns() > *(const int64_t *)user;
}

START_TEST(a_delay_is_kept_and_can_be_interrupted)
{
    const struct md_script script = {
        .pieces = pieces, .count = PIECES, .decode_delay_ms = 30, .prefill_delay_ms = 5
    };
    struct md_engine *e = NULL;
    const md_token tokens[8] = { 0 };
    const float *logits = NULL;
    ck_assert_int_eq(md_scripted_open(&script, &e, NULL, NULL), MD_OK);
    int64_t start = md_clock_mono_ns();
    ck_assert_int_eq(md_engine_prefill(e, 0, 0, tokens, 8, NULL), MD_OK);
    int64_t prefilled = md_clock_mono_ns();
    ck_assert_int_ge(prefilled - start, 40 * 1000000);
    ck_assert_int_eq(md_engine_decode(e, 0, 8, (md_token[]){ 0 }, 1, &logits, NULL), MD_OK);
    ck_assert_int_ge(md_clock_mono_ns() - prefilled, 30 * 1000000);

    int64_t soon = md_clock_mono_ns() + 10 * 1000000;
    md_engine_set_interrupt(e, late, &soon);
    ck_assert_int_eq(md_engine_prefill(e, 0, 9, tokens, 8, NULL), MD_CANCELLED);
    ck_assert_int_eq(md_engine_end(e, 0), 9);
    md_engine_close(e);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("scripted");
    TCase *t = tcase_create("scripted");
    suite_add_tcase(s, t);
    tcase_add_test(t, it_says_its_pieces_and_ends);
    tcase_add_test(t, prompts);
    tcase_add_test(t, a_delay_is_kept_and_can_be_interrupted);
    return md_run_suite(s);
}
