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

/* The model wants to say `wanted` and then to end; what the form lets it say, up to 100 tokens. */
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
    for (int i = 0; i < 100; i++) {
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
    "[{\"type\":\"function\",\"function\":{\"name\":\"sum\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";

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

START_TEST(required_calls_begin_at_once)
{
    struct md_chat_form *form =
        form_of((struct md_chat_input){ .tools = bytes(tools), .tool_choice = MD_TOOLS_REQUIRED });
    const char *got = says(form, "Well. " CALL("{\"a\": 1}"));
    puts(got);
    ck_assert_ptr_eq(strstr(got, "<tool_call>"), got);
    ck_assert_str_eq(says(form, CALL("{\"a\": 1}")), CALL("{\"a\": 1}"));
    md_chat_form_unref(form);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("llama_model_chat");
    TCase *c = tcase_create("grammars");
    tcase_add_checked_fixture(c, open_model, close_model);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, required_calls_begin_at_once);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
