/* The text object of the llama adapter on SmolLM2: tokenizer, template, samplers.
 * MODELD_TEST_MODEL names the model file; a missing one fails. */
#include "adapters/llama/llama_backend.h"
#include "support/run_suite.h"
#include "support/model_copy.h"
#include "text/text.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VOCAB = 49152, IM_START = 1, IM_END = 2 };

static const char *model_path;
static struct md_text *text;

static struct md_bytes bytes(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

static struct md_tokens tokenize(const struct md_text *t, struct md_bytes b, bool add_special,
                                 bool parse_special)
{
    struct md_err err = { 0 };
    struct md_tokens out = { 0 };
    ck_assert_msg(md_text_tokenize(t, b, add_special, parse_special, &out, &err) == MD_OK, "%s", err.text);
    return out;
}

/* ---- tokenizer ---- */

static const struct {
    const char *label;
    struct md_bytes text;
} round_trips[] = {
    { "nothing", { "", 0 } },
    { "word", { "hello", 5 } },
    { "spaces", { "  two  and   three ", 19 } },
    { "lines", { "a\n\n\tb\r\nc\n", 9 } },
    { "umlauts and a euro", { "\xc3\xa4\xc3\xb6\xe2\x82\xac", 7 } },
    { "emoji of several code points", { "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80", 11 } },
    { "chinese", { "\xe4\xbd\xa0\xe5\xa5\xbd", 6 } },
    { "code", { "for (int i = 0; i < n; i++) x[i] += 1;", 38 } },
    { "NUL inside", { "a\0b", 3 } },
    { "control token as plain text", { "<|im_start|>user", 16 } },
};

START_TEST(round_trip)
{
    struct md_buf out;
    md_buf_init(&out, NULL, 1 << 16);
    struct md_tokens t = tokenize(text, round_trips[_i].text, true, false);
    for (size_t i = 0; i < t.count; i++)
        ck_assert_int_eq(md_text_piece(text, t.ids[i], false, &out, NULL), MD_OK);
    ck_assert_msg(out.len == round_trips[_i].text.len &&
                      (out.len == 0 || memcmp(out.data, round_trips[_i].text.data, out.len) == 0),
                  "%s: got '%.*s'", round_trips[_i].label, (int)out.len, (char *)out.data);
    md_tokens_done(&t);
    md_buf_done(&out);
}
END_TEST

START_TEST(control_tokens)
{
    struct md_buf out;
    md_buf_init(&out, NULL, 64);
    struct md_tokens one = tokenize(text, bytes("<|im_start|>"), false, true),
                     many = tokenize(text, bytes("<|im_start|>"), false, false);
    ck_assert_uint_eq(one.count, 1);
    ck_assert_int_eq(one.ids[0], IM_START);
    ck_assert_uint_gt(many.count, 1);
    ck_assert_int_eq(md_text_piece(text, IM_START, false, &out, NULL), MD_OK);
    ck_assert_uint_eq(out.len, 0);
    ck_assert_int_eq(md_text_piece(text, IM_START, true, &out, NULL), MD_OK);
    ck_assert_uint_eq(out.len, 12);
    ck_assert_mem_eq(out.data, "<|im_start|>", 12);
    ck_assert(md_text_is_end(text, IM_END) && !md_text_is_end(text, IM_START) &&
              !md_text_is_end(text, 28120));
    md_tokens_done(&one);
    md_tokens_done(&many);
    md_buf_done(&out);
}
END_TEST

START_TEST(tokens_that_do_not_exist)
{
    static const md_token wrong[] = { -1, VOCAB, INT32_MAX, INT32_MIN };
    struct md_buf out;
    md_buf_init(&out, NULL, 64);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(md_text_piece(text, wrong[i], true, &out, NULL), MD_INVALID);
        ck_assert(!md_text_is_end(text, wrong[i]));
    }
    ck_assert_uint_eq(out.len, 0);
}
END_TEST

START_TEST(appending_keeps_what_is_there)
{
    struct md_tokens t = tokenize(text, bytes("hello"), true, false);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(md_text_tokenize(text, bytes("hello"), true, false, &t, NULL), MD_OK);
    ck_assert_uint_eq(t.count, 4);
    for (size_t i = 0; i < t.count; i++)
        ck_assert_int_eq(t.ids[i], 28120);
    md_tokens_done(&t);
}
END_TEST

START_TEST(b050_pieces_join_to_a_word_of_another_token)
{
    struct md_buf out;
    md_buf_init(&out, NULL, 64);
    ck_assert_int_eq(md_text_piece(text, 2797, false, &out, NULL), MD_OK);
    ck_assert_int_eq(md_text_piece(text, 5365, false, &out, NULL), MD_OK);
    struct md_tokens t = tokenize(text, (struct md_bytes){ out.data, out.len }, true, false);
    ck_assert_uint_eq(out.len, 5);
    ck_assert_mem_eq(out.data, "hello", 5);
    ck_assert_uint_eq(t.count, 1);
    ck_assert_int_eq(t.ids[0], 28120);
    md_tokens_done(&t);
    md_buf_done(&out);
}
END_TEST

/* ---- template ---- */

/* One without tools, whose answer is plain text. */
static enum md_status render(const struct md_chat_message *m, size_t count, bool generation,
                             struct md_buf *out, struct md_err *err)
{
    const struct md_chat_input in = { .messages = m, .count = count, .add_generation_prompt = generation };
    struct md_chat_form *form = NULL;
    enum md_status s = md_text_render_chat(text, &in, out, &form, err);
    ck_assert_ptr_null(form);
    return s;
}

static struct md_chat_message say(const char *role, const char *content)
{
    return (struct md_chat_message){ .role = bytes(role), .content = bytes(content) };
}

#define DEFAULT_SYSTEM \
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"

START_TEST(template_of_the_model)
{
    const struct md_chat_message m[] = { say("system", "Be brief."), say("user", "Hi"),
                                         say("assistant", "Hello"), say("user", "Bye") };
    static const struct {
        size_t first, count;
        bool generation;
        const char *want;
    } rows[] = {
        { 1, 1, true, DEFAULT_SYSTEM "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" },
        { 1, 1, false, DEFAULT_SYSTEM "<|im_start|>user\nHi<|im_end|>\n" },
        { 0, 4, true,
          "<|im_start|>system\nBe "
          "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
          "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_err err = { 0 };
        struct md_buf out;
        md_buf_init(&out, NULL, 4096);
        ck_assert_msg(render(m + rows[i].first, rows[i].count, rows[i].generation, &out, &err) == MD_OK, "%s",
                      err.text);
        ck_assert_msg(out.len == strlen(rows[i].want) && memcmp(out.data, rows[i].want, out.len) == 0,
                      "row %zu: '%.*s'", i, (int)out.len, (char *)out.data);
        md_buf_done(&out);
    }
}
END_TEST

START_TEST(b095_messages_no_template_should_see)
{
    const struct md_chat_message wrong[] = { say("", "x"), say("user<|im_end|>", "x"), say("us er", "x"),
                                             say("user\n", "x"),
                                             say("a-role-that-is-longer-than-thirty-two", "x") };
    struct md_buf out;
    md_buf_init(&out, NULL, 4096);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(render(wrong + i, 1, true, &out, NULL) == MD_INVALID, "row %zu", i);
    ck_assert_int_eq(render(wrong, 0, true, &out, NULL), MD_INVALID);
    ck_assert_uint_eq(out.len, 0);
}
END_TEST

static size_t count_token(const struct md_tokens *t, md_token id)
{
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++)
        n += t->ids[i] == id;
    return n;
}

/* Model S does not put a first token.  The same file with the flag set stands in for one that does. */
START_TEST(b049_first_token_once)
{
    char copy[] = "/tmp/modeld-test-XXXXXX";
    const struct md_chat_message m = say("user", "Hi");
    struct md_text *adding = NULL;
    struct md_err err = { 0 };
    struct md_buf prompt;
    md_buf_init(&prompt, NULL, 4096);
    md_copy_patched(model_path, copy, "tokenizer.ggml.add_bos_token", 4, "\1", 1);
    ck_assert_msg(md_llama_text_open(copy, &adding, &err) == MD_OK, "%s", err.text);
    ck_assert(!text->info.adds_bos && adding->info.adds_bos);
    ck_assert_int_eq(text->info.bos, IM_START);
    ck_assert_int_eq(render(&m, 1, true, &prompt, NULL), MD_OK);

    const struct {
        const struct md_text *t;
        struct md_bytes text;
        bool parse_special;
        size_t wanted; /* times the first token stands in it */
        bool leads;
    } rows[] = {
        { text, bytes("Hi"), false, 0, false },
        { text, { prompt.data, prompt.len }, true, 3, true }, /* one per message and one for the answer */
        { adding, bytes("Hi"), false, 1, true },
        { adding, bytes(""), false, 1, true },
        { adding, bytes("<|im_start|>Hi"), true, 1, true },
        { adding, { prompt.data, prompt.len }, true, 3, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_tokens t = tokenize(rows[i].t, rows[i].text, true, rows[i].parse_special);
        ck_assert_msg(count_token(&t, IM_START) == rows[i].wanted, "row %zu: %zu times", i,
                      count_token(&t, IM_START));
        ck_assert_msg((t.count > 0 && t.ids[0] == IM_START) == rows[i].leads, "row %zu", i);
        md_tokens_done(&t);
        t = tokenize(rows[i].t, rows[i].text, false, rows[i].parse_special);
        ck_assert_msg(count_token(&t, IM_START) ==
                          rows[i].wanted -
                              (rows[i].t == adding && rows[i].wanted == 1 && !rows[i].parse_special),
                      "row %zu without asking", i);
        md_tokens_done(&t);
    }
    md_text_close(adding);
    md_buf_done(&prompt);
    unlink(copy);
}
END_TEST

/* ---- samplers, on logits made up here ---- */

static float logits[VOCAB];

/* Token 1000 leads, 1001 and 1002 follow; all others lie far below. */
static void three_peaks(float a, float b, float c)
{
    for (int i = 0; i < VOCAB; i++)
        logits[i] = -20;
    logits[1000] = a;
    logits[1001] = b;
    logits[1002] = c;
}

static md_token sample_once(const struct md_sample_params *p, const md_token *seen, size_t seen_count)
{
    struct md_sampler *s;
    struct md_err err = { 0 };
    md_token got = -1;
    ck_assert_msg(md_sampler_open(text, p, &s, &err) == MD_OK, "%s", err.text);
    for (size_t i = 0; i < seen_count; i++)
        md_sampler_accept(s, seen[i]);
    ck_assert_msg(md_sampler_sample(s, logits, VOCAB, &got, &err) == MD_OK, "%s", err.text);
    md_sampler_close(s);
    return got;
}

static struct md_sample_params greedy(void)
{
    struct md_sample_params p = md_sample_defaults();
    p.temperature = 0;
    p.repeat_penalty = 1;
    return p;
}

START_TEST(greedy_after_bias_and_penalties)
{
    const struct md_logit_bias ban = { 1000, -100 }, lift = { 1002, 100 }, nudge = { 1001, 2 },
                               far = { 40000, 100 };
    const md_token seen[] = { 1000 };
    struct md_sample_params p = greedy();
    three_peaks(5, 4, 3);
    ck_assert_int_eq(sample_once(&p, NULL, 0), 1000);
    p.temperature = 0.0009f; /* so close that a draw at this temperature would take any of them */
    three_peaks(5.0001f, 5, 5);
    for (p.seed = 0; p.seed < 20; p.seed++)
        ck_assert_int_eq(sample_once(&p, NULL, 0), 1000);
    three_peaks(5, 4, 3);
    p.bias_count = 1;
    p.bias = &ban;
    ck_assert_int_eq(sample_once(&p, NULL, 0), 1001);
    p.bias = &lift;
    ck_assert_int_eq(sample_once(&p, NULL, 0), 1002);
    p.bias = &nudge;
    ck_assert_int_eq(sample_once(&p, NULL, 0), 1001);
    p.bias = &far;
    ck_assert_int_eq(sample_once(&p, NULL, 0), 40000);

    static const struct {
        float repeat, frequency, presence;
        int32_t last_n;
        md_token want;
    } rows[] = {
        { 1, 0, 0, 64, 1000 },    { 1.5f, 0, 0, 64, 1001 }, { 1, 1.5f, 0, 64, 1001 },
        { 1, 0, 1.5f, 64, 1001 }, { 1, 0, 0.5f, 64, 1000 }, { 2, 2, 2, 0, 1000 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        p = greedy();
        p.repeat_penalty = rows[i].repeat;
        p.frequency_penalty = rows[i].frequency;
        p.presence_penalty = rows[i].presence;
        p.repeat_last_n = rows[i].last_n;
        ck_assert_msg(sample_once(&p, seen, 1) == rows[i].want, "row %zu", i);
    }
}
END_TEST

START_TEST(own_choices_are_penalised_too)
{
    struct md_sample_params p = greedy();
    struct md_sampler *s;
    md_token got[3];
    p.presence_penalty = 2;
    three_peaks(5, 4, 2.5f);
    ck_assert_int_eq(md_sampler_open(text, &p, &s, NULL), MD_OK);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got[i], NULL), MD_OK);
    ck_assert_int_eq(got[0], 1000);
    ck_assert_int_eq(got[1], 1001);
    ck_assert_int_eq(got[2], 1000); /* 3 against 2 against 2.5 */
    md_sampler_close(s);
}
END_TEST

START_TEST(cut_offs_leave_only_what_they_should)
{
    static const struct {
        const char *label;
        int32_t top_k;
        float top_p, min_p;
        bool second, third; /* may these be drawn */
    } rows[] = {
        { "everything", 0, 1, 0, true, true },        { "top_k 1", 1, 1, 0, false, false },
        { "top_k 2", 2, 1, 0, true, false },          { "top_p below the first", 0, 0.3f, 0, false, false },
        { "top_p of two", 0, 0.7f, 0, true, false },  { "min_p 1", 0, 1, 1, false, false },
        { "min_p between", 0, 1, 0.7f, true, false },
    };
    three_peaks(logf(0.45f), logf(0.35f), logf(0.2f));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_sample_params p = greedy();
        p.temperature = 1;
        p.seed = 1;
        p.top_k = rows[i].top_k;
        p.top_p = rows[i].top_p;
        p.min_p = rows[i].min_p;
        struct md_sampler *s;
        int seen[4] = { 0 };
        ck_assert_int_eq(md_sampler_open(text, &p, &s, NULL), MD_OK);
        for (int n = 0; n < 100; n++) {
            md_token got;
            ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, NULL), MD_OK);
            seen[got >= 1000 && got <= 1002 ? got - 1000 : 3]++;
        }
        ck_assert_msg(seen[0] > 0 && (seen[1] > 0) == rows[i].second && (seen[2] > 0) == rows[i].third &&
                          seen[3] == 0,
                      "%s: %d %d %d %d", rows[i].label, seen[0], seen[1], seen[2], seen[3]);
        md_sampler_close(s);
    }
}
END_TEST

/* 32 draws of 16 equal tokens, as one number. */
static uint64_t draws(int64_t seed)
{
    struct md_sample_params p = greedy();
    struct md_sampler *s;
    uint64_t h = 0;
    p.temperature = 1;
    p.top_k = 16;
    p.seed = seed;
    for (int i = 0; i < VOCAB; i++)
        logits[i] = i >= 100 && i < 116 ? 1 : -20;
    ck_assert_int_eq(md_sampler_open(text, &p, &s, NULL), MD_OK);
    for (int i = 0; i < 16; i++) {
        md_token got;
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, NULL), MD_OK);
        ck_assert(got >= 100 && got < 116);
        h = h << 4 | (uint64_t)(got - 100);
    }
    md_sampler_close(s);
    return h;
}

START_TEST(seeds_repeat)
{
    ck_assert_uint_eq(draws(7), draws(7));
    ck_assert_uint_eq(draws(UINT32_MAX), draws(UINT32_MAX)); /* the library's own mark for a random seed */
    ck_assert_uint_ne(draws(7), draws(8));
    ck_assert_uint_ne(draws(-1), draws(-1));
}
END_TEST

START_TEST(broken_logits_are_an_error)
{
    static const float bad[] = { NAN, INFINITY };
    const struct md_logit_bias ban = { 77, -100 };
    struct md_sample_params p = greedy();
    struct md_sampler *s;
    struct md_err err = { 0 };
    md_token got = -1;
    for (int hot = 0; hot < 2; hot++) {
        p.temperature = (float)hot;
        ck_assert_int_eq(md_sampler_open(text, &p, &s, NULL), MD_OK);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            three_peaks(5, 4, 3);
            logits[VOCAB - 1] = bad[i];
            ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, &err), MD_INTERNAL);
        }
        for (int i = 0; i < VOCAB; i++)
            logits[i] = -INFINITY;
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, &err), MD_INVALID);
        ck_assert_str_eq(err.text, "every token is banned by logit_bias");
        logits[77] = -3; /* one is enough */
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, &err), MD_OK);
        ck_assert_int_eq(got, 77);
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB - 1, &got, &err), MD_INVALID);
        md_sampler_close(s);
        p.bias = &ban; /* -100 is no number here: it bans even the only one left */
        p.bias_count = 1;
        ck_assert_int_eq(md_sampler_open(text, &p, &s, NULL), MD_OK);
        ck_assert_int_eq(md_sampler_sample(s, logits, VOCAB, &got, &err), MD_INVALID);
        md_sampler_close(s);
        p.bias_count = 0;
    }
}
END_TEST

static void setup(void)
{
    struct md_err err = { 0 };
    ck_assert_msg(md_llama_text_open(model_path, &text, &err) == MD_OK, "%s", err.text);
}

static void teardown(void)
{
    md_text_close(text);
}

int main(void)
{
    model_path = getenv("MODELD_TEST_MODEL");
    if (model_path == NULL) {
        fprintf(stderr, "MODELD_TEST_MODEL must name the SmolLM2 file\n");
        return 1;
    }
    Suite *suite = suite_create("model_llama_text_smollm");
    TCase *c = tcase_create("text");
    tcase_set_timeout(c, 60);
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, round_trip, 0, (int)(sizeof round_trips / sizeof round_trips[0]));
    tcase_add_test(c, control_tokens);
    tcase_add_test(c, tokens_that_do_not_exist);
    tcase_add_test(c, appending_keeps_what_is_there);
    tcase_add_test(c, b050_pieces_join_to_a_word_of_another_token);
    tcase_add_test(c, template_of_the_model);
    tcase_add_test(c, b095_messages_no_template_should_see);
    tcase_add_test(c, b049_first_token_once);
    tcase_add_test(c, greedy_after_bias_and_penalties);
    tcase_add_test(c, own_choices_are_penalised_too);
    tcase_add_test(c, cut_offs_leave_only_what_they_should);
    tcase_add_test(c, seeds_repeat);
    tcase_add_test(c, broken_logits_are_an_error);
    suite_add_tcase(suite, c);

    return md_run_suite(suite);
}
