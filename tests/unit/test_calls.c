/* Turns that are remembered by their calls, over a text whose template writes "role:content\n" and calls as
 * "role:content{calls}\n"; its tokens are bytes. */
#include "support/run_suite.h"
#include "text/calls.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct md_bytes bytes(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

/* ---- JSON equality ---- */

static const struct {
    const char *a, *b;
    bool same;
} pairs[] = {
    { "{\"a\":1,\"b\":[1,2]}", " { \"b\" : [1, 2.0], \"a\": 1e0 }\n", true },
    { "{\"a\":\"\\u00e9\\n\"}", "{\"a\":\"\xc3\xa9\\u000a\"}", true },
    { "{\"a\":1}", "{\"a\":1.5}", false },
    { "{\"a\":1}", "{\"a\":\"1\"}", false },
    { "{\"a\":1}", "{\"a\":1,\"b\":null}", false },
    { "{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":2}", false },
    { "[1,2]", "[2,1]", false },
    { "[1]", "[1,1]", false },
    { "{}", "[]", false },
    { "null", "null", true },
    { "true", "false", false },
    { "-1", "-1.0", true },
    { "18446744073709551615", "18446744073709551614", false }, /* the same as doubles */
    { "{\"a\":", "{\"a\":", true },                            /* no JSON: bytes */
    { "{\"a\":", "{\"a\": ", false },
    { "{}", "", false },
    { "", "", true },
};

START_TEST(json_is_compared_by_value)
{
    ck_assert_msg(md_json_same(bytes(pairs[_i].a), bytes(pairs[_i].b)) == pairs[_i].same, "%s and %s",
                  pairs[_i].a, pairs[_i].b);
    ck_assert(md_json_same(bytes(pairs[_i].b), bytes(pairs[_i].a)) == pairs[_i].same);
}
END_TEST

/* ---- a text ---- */

static bool trims; /* the template cuts blanks off contents */
static bool wants_calls;
static int renders;

static enum md_status put(struct md_buf *out, struct md_bytes b, struct md_err *err)
{
    return md_buf_append(out, b.data, b.len, err);
}

static enum md_status toy_render(const struct md_text *t, const struct md_chat_input *in, struct md_buf *out,
                                 struct md_chat_form **ret_form, struct md_err *err)
{
    (void)t, (void)ret_form;
    renders++;
    enum md_status s = MD_OK;
    for (size_t i = 0; i < in->count && s == MD_OK; i++) {
        const struct md_chat_message *m = &in->messages[i];
        struct md_bytes content = m->content;
        while (trims && content.len > 0 && ((const char *)content.data)[content.len - 1] == ' ')
            content.len--;
        if (wants_calls && m->role.len == 4 && memcmp(m->role.data, "tool", 4) == 0 &&
            in->messages[i - 1].tool_calls.len == 0)
            return md_fail(err, MD_INVALID, "a result without a call");
        const struct md_bytes parts[] = { m->role, { ":", 1 }, content, m->tool_calls, { "\n", 1 } };
        for (size_t k = 0; k < 5 && s == MD_OK; k++)
            s = put(out, parts[k], err);
    }
    return s;
}

static enum md_status toy_tokenize(const struct md_text *t, struct md_bytes text, bool add_special,
                                   bool parse_special, struct md_tokens *ret, struct md_err *err)
{
    const md_token first = 999;
    const unsigned char *p = text.data;
    (void)t, (void)parse_special;
    enum md_status s = add_special ? md_tokens_append(ret, &first, 1, err) : MD_OK;
    for (size_t i = 0; i < text.len && s == MD_OK; i++)
        s = md_tokens_append(ret, &(md_token){ p[i] }, 1, err);
    return s;
}

#define RAW "<<f  {\"a\":1} >> "
static const md_token turn_tokens[] = { 301, 302, 303 };

/* 301 to 303 are thirds of RAW, others the byte they are. */
static enum md_status toy_piece(const struct md_text *t, md_token token, bool special, struct md_buf *out,
                                struct md_err *err)
{
    const char byte = (char)token;
    const size_t third = (sizeof RAW - 1) / 3, from = (size_t)(token - 301) * third;
    (void)t, (void)special;
    if (token < 301 || token > 303)
        return md_buf_append(out, &byte, 1, err);
    return md_buf_append(out, &RAW[from], token == 303 ? sizeof RAW - 1 - from : third, err);
}

static const struct md_text_ops toy_ops = {
    .name = "toy", .render_chat = toy_render, .tokenize = toy_tokenize, .piece = toy_piece
};
static const struct md_text toy = { .ops = &toy_ops,
                                    .info = { .vocab_count = 1000, .has_chat_template = true } };

static void remember(struct md_calls *c, const char *id, const char *content)
{
    const struct md_chat_call call = { bytes(id), bytes("f"), bytes("{\"a\":1,\"b\":\"x\"}") };
    const struct md_calls_turn turn = { .lead = bytes("assistant:"),
                                        .raw = bytes(RAW),
                                        .tokens = turn_tokens,
                                        .token_count = 3,
                                        .content = bytes(content),
                                        .calls = &call,
                                        .call_count = 1 };
    ck_assert_int_eq(md_calls_remember(c, &turn, NULL), MD_OK);
}

static char prompt[2000];
static md_token tokens[2000];
static size_t token_count;

/* The prompt of user, assistant with these calls, tool. */
static const char *prompt_of(struct md_calls *c, const char *content, const char *calls)
{
    const struct md_chat_message m[] = {
        { .role = bytes("user"), .content = bytes("hi") },
        { .role = bytes("assistant"), .content = bytes(content), .tool_calls = bytes(calls) },
        { .role = bytes("tool"), .content = bytes("3") }
    };
    const struct md_chat_input in = { .messages = m, .count = 3 };
    struct md_chat_form *form = NULL;
    struct md_calls_spans spans = { 0 };
    struct md_tokens out = { 0 };
    struct md_buf b;
    md_buf_init(&b, NULL, sizeof prompt - 1);
    ck_assert_int_eq(md_calls_render(c, &toy, &in, &b, &spans, &form, NULL), MD_OK);
    snprintf(prompt, sizeof prompt, "%.*s", (int)b.len, (const char *)b.data);
    /* what was rendered is what is handed out: rendered again it is the same */
    struct md_chat_input again = in;
    struct md_buf b2;
    again.messages = spans.messages;
    md_buf_init(&b2, NULL, sizeof prompt - 1);
    ck_assert_int_eq(md_text_render_chat(&toy, &again, &b2, &form, NULL), MD_OK);
    renders--;
    ck_assert_uint_eq(b2.len, b.len);
    ck_assert_mem_eq(b2.data, b.data, b.len);
    md_buf_done(&b2);
    ck_assert_int_eq(md_calls_tokenize(&toy, (struct md_bytes){ b.data, b.len }, &spans, true, &out, NULL),
                     MD_OK);
    token_count = out.count;
    memcpy(tokens, out.ids, out.count * sizeof *tokens);
    md_tokens_done(&out);
    md_calls_spans_done(&spans);
    md_buf_done(&b);
    return prompt;
}

#define GIVEN \
    "[{\"id\":\"i\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1,\\\"b\\\":\\\"x\\\"}\"}}]"
#define KNOWN "user:hi\nassistant:" RAW "\ntool:3\n"

static const struct {
    const char *label, *content, *calls;
    bool known;
} histories[] = {
    { "as given", "so", GIVEN, true },
    { "written anew", "so",
      "[ {\"type\":\"function\",\"id\":\"i\",\"function\":{\"arguments\":\"{ \\\"b\\\": \\\"\\\\u0078\\\", "
      "\\\"a\\\": 1.0}\",\"name\":\"f\"}} ]",
      true },
    { "arguments as an object", "so",
      "[{\"id\":\"i\",\"function\":{\"name\":\"f\",\"arguments\":{\"b\":\"x\",\"a\":1}}}]", true },
    { "another id", "so",
      "[{\"id\":\"j\",\"function\":{\"name\":\"f\",\"arguments\":{\"b\":\"x\",\"a\":1}}}]", false },
    { "another name", "so",
      "[{\"id\":\"i\",\"function\":{\"name\":\"g\",\"arguments\":{\"b\":\"x\",\"a\":1}}}]", false },
    { "edited arguments", "so",
      "[{\"id\":\"i\",\"function\":{\"name\":\"f\",\"arguments\":{\"b\":\"x\",\"a\":2}}}]", false },
    { "edited content", "so.", GIVEN, false },
    { "one more call", "so",
      "[{\"id\":\"i\",\"function\":{\"name\":\"f\",\"arguments\":{\"b\":\"x\",\"a\":1}}},{\"id\":\"k\"}]",
      false },
    { "no id", "so", "[{\"function\":{\"name\":\"f\",\"arguments\":{\"b\":\"x\",\"a\":1}}}]", false },
    { "no calls at all", "so", "[1]", false },
};

START_TEST(unchanged_calls_carry_the_turn)
{
    struct md_calls *c = NULL;
    char as_sent[1000];
    trims = wants_calls = false;
    ck_assert_int_eq(md_calls_open(10, 10000, NULL, &c, NULL), MD_OK);
    remember(c, "i", "so");
    snprintf(as_sent, sizeof as_sent, "user:hi\nassistant:%s%s\ntool:3\n", histories[_i].content,
             histories[_i].calls);
    const char *got = prompt_of(c, histories[_i].content, histories[_i].calls);
    ck_assert_msg(strcmp(got, histories[_i].known ? KNOWN : as_sent) == 0, "%s: %s", histories[_i].label,
                  got);
    if (histories[_i].known) { /* the first token once, the turn's own in the middle */
        const size_t before = strlen("user:hi\nassistant:");
        ck_assert_uint_eq(token_count, 1 + before + 3 + strlen("\ntool:3\n"));
        ck_assert_int_eq(tokens[0], 999);
        ck_assert_mem_eq(tokens + 1 + before, turn_tokens, sizeof turn_tokens);
        ck_assert_int_eq(tokens[1 + before + 3], '\n');
    } else {
        ck_assert_uint_eq(token_count, 1 + strlen(as_sent));
    }
    md_calls_close(c);
}
END_TEST

/* A template that changes the text, or must see the calls: what the client sent is rendered. */
START_TEST(what_is_not_carried_is_rendered_as_sent)
{
    struct md_calls *c = NULL;
    ck_assert_int_eq(md_calls_open(10, 10000, NULL, &c, NULL), MD_OK);
    remember(c, "i", "so");
    trims = true;
    wants_calls = false;
    ck_assert_str_eq(prompt_of(c, "so", GIVEN), "user:hi\nassistant:so" GIVEN "\ntool:3\n");
    trims = false;
    wants_calls = true;
    renders = 0;
    ck_assert_str_eq(prompt_of(c, "so", GIVEN), "user:hi\nassistant:so" GIVEN "\ntool:3\n");
    ck_assert_int_eq(renders, 2);
    wants_calls = false;
    ck_assert_str_eq(prompt_of(c, "so", GIVEN), KNOWN);
    md_calls_close(c);
}
END_TEST

/* ---- as bytes ---- */

/* What c has of the turns "i" and "j" in a prompt with both, at most so many bytes. */
static struct md_buf written(struct md_calls *c, size_t limit)
{
    static const char second[] = "[{\"id\":\"j\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                                 "\"arguments\":\"{\\\"b\\\":\\\"x\\\",\\\"a\\\":1.0}\"}}]";
    const struct md_chat_message m[] = {
        { .role = bytes("user"), .content = bytes("hi") },
        { .role = bytes("assistant"), .content = bytes("so"), .tool_calls = bytes(GIVEN) },
        { .role = bytes("assistant"), .content = bytes("so"), .tool_calls = bytes(second) },
    };
    struct md_buf out;
    md_buf_init(&out, NULL, 1 << 20);
    ck_assert_int_eq(md_calls_write(c, m, 3, limit, &out, NULL), MD_OK);
    return out;
}

static struct md_bytes of(const struct md_buf *b)
{
    return (struct md_bytes){ b->data, b->len };
}

START_TEST(written_and_read_it_is_the_same)
{
    struct md_calls *c = NULL, *other = NULL;
    trims = wants_calls = false;
    ck_assert_int_eq(md_calls_open(10, 10000, NULL, &c, NULL), MD_OK);
    ck_assert_int_eq(md_calls_open(10, 10000, NULL, &other, NULL), MD_OK);
    remember(c, "i", "so");
    struct md_buf one = written(c, 10000); /* "j" is not known */
    ck_assert_uint_gt(one.len, 0);
    remember(c, "j", "so");
    struct md_buf both = written(c, 10000);
    ck_assert_uint_eq(both.len, 2 * one.len);
    struct md_buf last = written(c, 2 * one.len - 1); /* no room for both: the later one */
    ck_assert_uint_eq(last.len, one.len);
    ck_assert_mem_eq(last.data, both.data + one.len, one.len);
    struct md_buf none = written(c, one.len - 1);
    ck_assert_uint_eq(none.len, 0);
    ck_assert_int_eq(md_calls_read(other, &toy, of(&none), NULL), MD_OK);
    ck_assert_uint_eq(md_calls_stats(other).entries, 0);
    ck_assert_int_eq(md_calls_read(other, &toy, of(&both), NULL), MD_OK);
    ck_assert_uint_eq(md_calls_stats(other).entries, 2);
    ck_assert_str_eq(prompt_of(other, "so", GIVEN), KNOWN);
    struct md_buf again = written(other, 10000);
    ck_assert(md_bytes_equal(of(&again), of(&both)));
    md_buf_done(&one);
    md_buf_done(&both);
    md_buf_done(&last);
    md_buf_done(&none);
    md_buf_done(&again);
    md_calls_close(c);
    md_calls_close(other);
}
END_TEST

/* Nothing of it is taken, or all: whichever byte is another one, wherever it ends, whatever it is. */
START_TEST(bytes_that_are_no_turns_are_refused)
{
    struct md_calls *c = NULL;
    struct md_err err;
    struct md_text small = toy;
    ck_assert_int_eq(md_calls_open(10, 10000, NULL, &c, NULL), MD_OK);
    remember(c, "i", "so");
    remember(c, "j", "so");
    struct md_buf b = written(c, 10000);
    md_calls_close(c);
    const size_t half = b.len / 2;
    for (size_t len = 1; len < b.len; len++) {
        ck_assert_int_eq(md_calls_open(10, 10000, NULL, &c, NULL), MD_OK);
        const enum md_status s = md_calls_read(c, &toy, (struct md_bytes){ b.data, len }, &err);
        ck_assert_int_eq(s, len == half ? MD_OK : MD_CORRUPT);
        ck_assert_uint_eq(md_calls_stats(c).entries, len == half);
        md_calls_close(c);
    }
    /* 8 bytes of head, 5 counts, 3 tokens, "assistant:", RAW: those must agree, what follows may be any */
    const size_t tokens_at = 8 + 20, raw_at = tokens_at + 12 + 10;
    for (size_t at = 0; at < b.len; at++) {
        ck_assert_int_eq(md_calls_open(10, 10000, NULL, &c, NULL), MD_OK);
        b.data[at] ^= 1;
        const enum md_status s = md_calls_read(c, &toy, of(&b), &err);
        ck_assert(s == MD_OK || ((s == MD_CORRUPT || s == MD_UNSUPPORTED) && err.text[0] != '\0'));
        ck_assert_uint_eq(md_calls_stats(c).entries, s == MD_OK ? 2 : 0);
        const size_t in = at % half;
        if (in < tokens_at + 12 || (in >= raw_at && in < raw_at + strlen(RAW)))
            ck_assert_msg(s != MD_OK, "byte %zu", at);
        b.data[at] ^= 1;
        md_calls_close(c);
    }
    ck_assert_int_eq(md_calls_open(10, 10000, NULL, &c, NULL), MD_OK);
    b.data[3]++; /* "TCL2" */
    ck_assert_int_eq(md_calls_read(c, &toy, of(&b), &err), MD_UNSUPPORTED);
    b.data[3]--;
    small.info.vocab_count = 303;
    ck_assert_int_eq(md_calls_read(c, &small, of(&b), &err), MD_CORRUPT);
    ck_assert_msg(strstr(err.text, "vocabulary") != NULL, "%s", err.text);
    ck_assert_int_eq(md_calls_read(c, &toy, bytes("notes of another front"), &err), MD_CORRUPT);
    ck_assert_uint_eq(md_calls_stats(c).entries, 0);
    md_buf_done(&b);
    md_calls_close(c);
}
END_TEST

START_TEST(limits_drop_what_was_not_used_for_longest)
{
    struct md_calls *c = NULL;
    char id[20];
    trims = wants_calls = false;
    ck_assert_int_eq(md_calls_open(3, 100000, NULL, &c, NULL), MD_OK);
    remember(c, "i", "so");
    remember(c, "j", "so");
    remember(c, "k", "so");
    ck_assert_str_eq(prompt_of(c, "so", GIVEN), KNOWN); /* used: j is the oldest now */
    remember(c, "l", "so");
    ck_assert_uint_eq(md_calls_stats(c).entries, 3);
    ck_assert_str_eq(prompt_of(c, "so", GIVEN), KNOWN);
    remember(c, "i", "other"); /* the same id again: the newer one */
    ck_assert_uint_eq(md_calls_stats(c).entries, 3);
    ck_assert_str_ne(prompt_of(c, "so", GIVEN), KNOWN);
    md_calls_close(c);

    ck_assert_int_eq(md_calls_open(1000, 5000, NULL, &c, NULL), MD_OK);
    for (int i = 0; i < 500; i++) {
        snprintf(id, sizeof id, "id%d", i);
        remember(c, id, "so");
        ck_assert_uint_le(md_calls_stats(c).bytes, 5000);
    }
    ck_assert_uint_gt(md_calls_stats(c).entries, 5);
    md_calls_close(c);
    ck_assert_int_eq(md_calls_open(1000, 50, NULL, &c, NULL), MD_OK);
    remember(c, "i", "so"); /* larger than everything together may be */
    ck_assert_uint_eq(md_calls_stats(c).entries, 0);
    md_calls_close(c);
    md_calls_close(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("calls");
    TCase *c = tcase_create("calls");
    tcase_add_loop_test(c, json_is_compared_by_value, 0, (int)(sizeof pairs / sizeof pairs[0]));
    tcase_add_loop_test(c, unchanged_calls_carry_the_turn, 0, (int)(sizeof histories / sizeof histories[0]));
    tcase_add_test(c, what_is_not_carried_is_rendered_as_sent);
    tcase_add_test(c, written_and_read_it_is_the_same);
    tcase_add_test(c, bytes_that_are_no_turns_are_refused);
    tcase_add_test(c, limits_drop_what_was_not_used_for_longest);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
