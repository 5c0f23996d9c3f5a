/* Grammars on a real vocabulary (no weights): what binds an answer, from where on, and what reaches the text. */
#include "adapters/llama/llama_backend.h"
#include "support/run_suite.h"
#include "text/form.h"
#include "text/parser.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL ".deps/models/qwen2.5-coder-0.5b.gguf"

static struct md_text *text;
static float *logits;

static struct md_bytes bytes(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

static void open_model(void)
{
    struct md_err err;
    ck_assert_msg(md_llama_text_open(MODEL, &text, &err) == MD_OK, "%s", err.text);
    logits = calloc((size_t)text->info.vocab_count, sizeof *logits);
    ck_assert_ptr_nonnull(logits);
}

static void close_model(void)
{
    md_text_close(text);
    free(logits);
}

/* The model wants to say `wanted` and then to end; what the form lets it say, up to 40 tokens. */
static const char *says(struct md_chat_form *form, const char *wanted)
{
    static char out[1000];
    struct md_tokens want = { 0 };
    struct md_sample_params params = md_sample_defaults();
    struct md_sampler *sampler = NULL;
    struct md_buf piece;
    struct md_err err;
    size_t at = 0;
    params.temperature = 0;
    params.form = form;
    md_buf_init(&piece, NULL, sizeof out - 1);
    ck_assert_int_eq(md_text_tokenize(text, bytes(wanted), false, true, &want, NULL), MD_OK);
    ck_assert_int_eq(md_sampler_open(text, &params, &sampler, NULL), MD_OK);
    for (int i = 0; i < 40; i++) {
        md_token next = at < want.count ? want.ids[at] : text->info.eos, got = -1;
        logits[next] = 10;
        enum md_status s = md_sampler_sample(sampler, logits, text->info.vocab_count, &got, &err);
        logits[next] = 0;
        ck_assert_msg(s == MD_OK, "%s", err.text);
        if (md_text_is_end(text, got))
            break;
        at += got == next;
        ck_assert_int_eq(md_text_piece(text, got, md_chat_form_keeps(form, got), &piece, NULL), MD_OK);
    }
    snprintf(out, sizeof out, "%.*s", (int)piece.len, (const char *)piece.data);
    md_sampler_close(sampler);
    md_tokens_done(&want);
    md_buf_done(&piece);
    return out;
}

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"sum\",\"parameters\":{\"type\":\"object\","
    "\"properties\":"
    "{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{}}}}]";

static struct md_chat_form *form_of(struct md_chat_input in)
{
    const struct md_chat_message hi = { .role = bytes("user"), .content = bytes("hi") };
    struct md_chat_form *form = NULL;
    struct md_buf prompt;
    struct md_err err;
    in.messages = &hi;
    in.count = 1;
    in.add_generation_prompt = true;
    md_buf_init(&prompt, NULL, 1 << 20);
    ck_assert_msg(md_text_render_chat(text, &in, &prompt, &form, &err) == MD_OK, "%s", err.text);
    md_buf_done(&prompt);
    return form;
}

#define CALL(args) "<tool_call>\n{\"name\": \"sum\", \"arguments\": " args "}\n</tool_call>"

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

START_TEST(required_calls_begin_at_once)
{
    struct md_chat_form *form =
        form_of((struct md_chat_input){ .tools = bytes(tools), .tool_choice = MD_TOOLS_REQUIRED });
    const char *got = says(form, "Well. " CALL("{\"a\": 1}"));
    ck_assert_msg(begins(got, "<tool_call>"), "%s", got);
    ck_assert_str_eq(says(form, CALL("{\"a\": 1}")), CALL("{\"a\": 1}"));
    got = says(form, CALL("{\"a\": \"text\"}"));
    ck_assert_msg(begins(got, "<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\":") &&
                      strstr(got, "text") == NULL,
                  "a is an integer: %s", got);
    md_chat_form_unref(form);
}
END_TEST

START_TEST(a_named_tool_is_the_only_one)
{
    struct md_chat_form *form = form_of((struct md_chat_input){
        .tools = bytes(tools), .tool_choice = MD_TOOLS_NAMED, .tool_name = bytes("stop") });
    const char *got = says(form, CALL("{\"a\": 1}"));
    ck_assert_msg(begins(got, "<tool_call>\n{\"name\": \"stop\""), "%s", got);
    md_chat_form_unref(form);
}
END_TEST

/* Free until the trigger, bound from there, free again for another word of the same tag. */
START_TEST(calls_that_may_come_are_bound_from_their_trigger_on)
{
    struct md_chat_form *form = form_of((struct md_chat_input){ .tools = bytes(tools) });
    ck_assert_str_eq(says(form, "Just <b>text</b>, and <tool_calls>."),
                     "Just <b>text</b>, and <tool_calls>.");
    ck_assert_str_eq(says(form, "Hi. " CALL("{\"a\": 1}")), "Hi. " CALL("{\"a\": 1}"));
    const char *got = says(form, "Hi. <tool_call>\n{\"name\": \"nope\", \"arguments\": {}}");
    ck_assert_msg(begins(got, "Hi. <tool_call>\n") && strstr(got, "nope") == NULL, "%s", got);
    md_chat_form_unref(form);
}
END_TEST

START_TEST(control_tokens_of_calls_are_text)
{
    struct md_chat_form *form = form_of((struct md_chat_input){ .tools = bytes(tools) });
    struct md_tokens one = { 0 };
    ck_assert_int_eq(md_text_tokenize(text, bytes("<tool_call>"), false, true, &one, NULL), MD_OK);
    ck_assert_uint_eq(one.count, 1); /* it is in this vocabulary */
    ck_assert(md_chat_form_keeps(form, one.ids[0]));
    ck_assert(!md_chat_form_keeps(form, text->info.eos) && !md_chat_form_keeps(NULL, one.ids[0]));
    md_tokens_done(&one);
    md_chat_form_unref(form);
}
END_TEST

START_TEST(schemas_bind)
{
    const char *schema = "{\"type\":\"object\",\"properties\":{\"n\":{\"enum\":[7,8]}},\"required\":[\"n\"],"
                         "\"additionalProperties\":false}";
    struct md_chat_form *chat = form_of((struct md_chat_input){ .json_schema = bytes(schema) }), *raw = NULL;
    ck_assert_int_eq(md_text_constrain(text, bytes(schema), bytes(""), &raw, NULL), MD_OK);
    struct md_chat_form *both[] = { chat, raw };
    for (int i = 0; i < 2; i++) {
        ck_assert_str_eq(says(both[i], "{\"n\": 7}"), "{\"n\": 7}");
        const char *got = says(both[i], "{\"n\": 9}");
        ck_assert_msg(strchr(got, '9') == NULL, "%s", got);
        md_chat_form_unref(both[i]);
    }
    struct md_chat_form *any = form_of((struct md_chat_input){ .json_schema = bytes("{}") });
    ck_assert_str_eq(says(any, "{\"x\": [1, null]}"), "{\"x\": [1, null]}");
    const char *got = says(any, "[1]");
    ck_assert_msg(got[strcspn(got, "[{")] == '{', "json_object is an object: %s", got);
    md_chat_form_unref(any);
}
END_TEST

START_TEST(grammars_bind)
{
    struct md_chat_form *form =
        form_of((struct md_chat_input){ .grammar = bytes("root ::= \"maybe\" | \"no\"") });
    ck_assert_str_eq(says(form, "maybe"), "maybe");
    const char *got = says(form, "yes");
    ck_assert_msg(strcmp(got, "maybe") == 0 || strcmp(got, "no") == 0, "%s", got);
    md_chat_form_unref(form);
}
END_TEST

static const char *const broken[] = {
    "root ::= (", "root ::= root \"a\"", "x ::= \"a\"",           "root ::= missing",
    "%",          "root ::= [a",         "root ::= \"a\"{100000}"
};

START_TEST(broken_grammars_are_refused)
{
    struct md_chat_form *form = NULL;
    struct md_err err = { 0 };
    ck_assert_int_eq(md_text_constrain(text, bytes(""), bytes(broken[_i]), &form, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "grammar") != NULL, "%s", err.text);
    ck_assert_ptr_null(form);
}
END_TEST

/* What the grammar allows and the request bans. */
START_TEST(nothing_left_is_an_error)
{
    struct md_logit_bias bans[64];
    struct md_sample_params params = md_sample_defaults();
    struct md_sampler *sampler = NULL;
    struct md_err err = { 0 };
    md_token got;
    ck_assert_int_eq(md_text_constrain(text, bytes(""), bytes("root ::= \"\""), &params.form, NULL), MD_OK);
    for (md_token t = 0; t < text->info.vocab_count; t++)
        if (md_text_is_end(text, t)) {
            ck_assert_uint_lt(params.bias_count, 64);
            bans[params.bias_count++] = (struct md_logit_bias){ t, -100 };
        }
    ck_assert_uint_gt(params.bias_count, 0);
    params.bias = bans;
    ck_assert_int_eq(md_sampler_open(text, &params, &sampler, NULL), MD_OK);
    ck_assert_int_eq(md_sampler_sample(sampler, logits, text->info.vocab_count, &got, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "grammar") != NULL, "%s", err.text);
    md_sampler_close(sampler);
    md_chat_form_unref(params.form);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("llama_model_chat");
    TCase *c = tcase_create("grammars");
    tcase_add_unchecked_fixture(c, open_model, close_model);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, required_calls_begin_at_once);
    tcase_add_test(c, a_named_tool_is_the_only_one);
    tcase_add_test(c, calls_that_may_come_are_bound_from_their_trigger_on);
    tcase_add_test(c, control_tokens_of_calls_are_text);
    tcase_add_test(c, schemas_bind);
    tcase_add_test(c, grammars_bind);
    tcase_add_loop_test(c, broken_grammars_are_refused, 0, (int)(sizeof broken / sizeof broken[0]));
    tcase_add_test(c, nothing_left_is_an_error);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
