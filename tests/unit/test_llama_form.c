/* Forms that llama-common makes of templates, without a model: what answers are taken apart into, however they are
 * cut, and which requests are refused.  Grammars at work are in test_llama_model_chat.c. */
#include "adapters/llama/llama_chat.h"
#include "support/run_suite.h"
#include "text/parser.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tools in the system turn, calls in tags; thoughts in <think>, kept for the last turn only. */
#define TURNS                                                                                                \
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"                                         \
    "{%- if m.reasoning_content and loop.last %}{{- '<think>\\n' + m.reasoning_content + "                   \
    "'\\n</think>\\n\\n' }}"                                                                                 \
    "{%- endif %}{{- m.content }}{%- for call in m.tool_calls or [] %}{{- '\\n<tool_call>\\n{\"name\": \"' " \
    "+ "                                                                                                     \
    "call.function.name + '\", \"arguments\": ' }}{{- call.function.arguments | tojson }}"                   \
    "{{- '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}"                              \
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
#define TOOLS                                                                                                \
    "{%- if tools %}{{- '<|im_start|>system\\n<tools>' }}{%- for t in tools %}{{- '\\n' }}{{- t | tojson }}" \
    "{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}"
static const char with_tools[] = TOOLS TURNS "{%- endif %}";
static const char thinks[] = TURNS "{%- if enable_thinking is defined and not enable_thinking %}{{- "
                                   "'<think>\\n\\n</think>\\n\\n' }}{%- endif "
                                   "%}{%- endif %}";
static const char plain[] = "{%- for m in messages %}{{- m.role + ': ' + m.content + '\\n' }}{%- endfor %}";

static const char sum[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"sum\",\"description\":null,\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"a\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"}},\"required\":[]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"sum_all\"}}]";

static struct md_bytes bytes(const char *s)
{
    return (struct md_bytes){ s, s != NULL ? strlen(s) : 0 };
}

static enum md_status render(const char *source, struct md_chat_input in, struct md_buf *prompt,
                             struct md_chat_form **form, struct md_err *err)
{
    static const struct md_chat_message hi = { .role = { "user", 4 }, .content = { "hi", 2 } };
    struct md_chat_template *t = NULL;
    ck_assert_int_eq(md_chat_template_open(source, "", "", &t, err), MD_OK);
    if (in.messages == NULL) {
        in.messages = &hi;
        in.count = 1;
    }
    in.add_generation_prompt = true;
    enum md_status s = md_chat_template_render(t, NULL, &in, prompt, form, err);
    md_chat_template_close(t);
    return s;
}

static struct md_chat_form *form_of(const char *source, struct md_chat_input in)
{
    struct md_chat_form *form = NULL;
    struct md_buf prompt;
    struct md_err err;
    md_buf_init(&prompt, NULL, 1 << 20);
    ck_assert_msg(render(source, in, &prompt, &form, &err) == MD_OK, "%s", err.text);
    md_buf_done(&prompt);
    return form;
}

/* ---- answers ---- */

struct joined {
    char content[500], reasoning[500], calls[4][2][300];
};

static enum md_status join(void *user, const struct md_chat_delta *d, struct md_err *err)
{
    struct joined *j = user;
    (void)err;
    ck_assert_uint_lt(d->index, 4);
    char *to = d->kind == MD_DELTA_CONTENT     ? j->content
               : d->kind == MD_DELTA_REASONING ? j->reasoning
                                               : j->calls[d->index][d->kind == MD_DELTA_ARGUMENTS];
    const struct md_bytes what = d->kind == MD_DELTA_CALL ? d->name : d->text;
    if (d->kind == MD_DELTA_CALL)
        ck_assert_str_eq(to, "");
    if (d->kind == MD_DELTA_ARGUMENTS)
        ck_assert_str_ne(j->calls[d->index][0], ""); /* the name comes first */
    strncat(to, what.data, what.len);
    return MD_OK;
}

#define T(args) "<tool_call>\n{\"name\": \"sum\", \"arguments\": " args "}\n</tool_call>"

static const struct {
    const char *source;
    bool tools;
    const char *text, *reasoning, *content;
    const char *calls[4]; /* name, arguments ... */
} rows[] = {
    { with_tools, true, "just text", "", "just text", { NULL } },
    { with_tools, true, T("{\"a\": 1}"), "", "", { "sum", "{\"a\": 1}" } },
    /* inside a key, inside an escape, between two backslashes and what follows: the bytes of the model */
    { with_tools,
      true,
      "So: " T("{\"s\": \"\\u00e9 \\\\n\"}"),
      "",
      "So: ",
      { "sum", "{\"s\": \"\\u00e9 \\\\n\"}" } },
    { with_tools, true, T("{}"), "", "", { "sum", "{}" } },
    { with_tools,
      true,
      T("{\"a\": 1}") "\n" T("{\"a\": 2}"),
      "",
      "",
      { "sum", "{\"a\": 1}", "sum", "{\"a\": 2}" } },
    { with_tools,
      true,
      "<tool_call>\n{\"name\": \"sum_all\", \"arguments\": {}}\n</tool_call>",
      "",
      "",
      { "sum_all", "{}" } },
    /* cut by max_tokens */
    { with_tools,
      true,
      "<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"s\": \"ab",
      "",
      "",
      { "sum", "{\"s\": \"ab" } },
    /* in one line, as models write it that nothing binds: the fallback, which compacts */
    { with_tools,
      true,
      "<tool_call>{\"name\": \"sum\", \"arguments\": {\"a\": 1}}</tool_call>",
      "",
      "",
      { "sum", "{\"a\":1}" } },
    { with_tools, true, "x < y, <tool_caller> and <b>", "", "x < y, <tool_caller> and <b>", { NULL } },
    { with_tools, true, "<tool_call> is a tag", "", "<tool_call> is a tag", { NULL } },
    { thinks, false, "<think>\nhm < h\n</think>\n\nSo <b>.", "hm < h\n", "So <b>.", { NULL } },
    { thinks, false, "<think>\ncut of", "cut of", "", { NULL } },
    { thinks, false, "no thought", "", "no thought", { NULL } },
};

START_TEST(b093_answers_are_taken_apart_the_same_however_cut)
{
    const size_t len = strlen(rows[_i].text);
    struct md_chat_form *form =
        form_of(rows[_i].source, (struct md_chat_input){ .tools = bytes(rows[_i].tools ? sum : NULL),
                                                         .parallel_tool_calls = true });
    ck_assert_ptr_nonnull(form);
    ck_assert(form->markers_known);
    for (size_t step = 1; step <= len; step += step < 20 ? 1 : 7) {
        struct joined j = { 0 };
        struct md_chat_parser *p = NULL;
        ck_assert_int_eq(md_chat_parser_open(form, join, &j, &p, NULL), MD_OK);
        for (size_t at = 0; at < len; at += step) {
            const struct md_bytes piece = { rows[_i].text + at, len - at < step ? len - at : step };
            ck_assert_int_eq(md_chat_parser_push(p, piece, NULL), MD_OK);
        }
        ck_assert_int_eq(md_chat_parser_finish(p, NULL), MD_OK);
        ck_assert_str_eq(j.content, rows[_i].content);
        ck_assert_str_eq(j.reasoning, rows[_i].reasoning);
        for (int c = 0; c < 2; c++)
            for (int k = 0; k < 2; k++) {
                const char *want = rows[_i].calls[2 * c + k];
                ck_assert_str_eq(j.calls[c][k], want != NULL ? want : "");
            }
        md_chat_parser_close(p);
    }
    md_chat_form_unref(form);
}
END_TEST

/* Brackets are read by recursion: an answer of many is text. */
START_TEST(deep_answers_are_text)
{
    enum { DEEP = 200000 };
    struct md_chat_form *form = form_of(with_tools, (struct md_chat_input){ .tools = bytes(sum) });
    static char text[DEEP + 100];
    struct md_chat_parsed now = { 0 };
    int at = snprintf(text, sizeof text, "<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": ");
    memset(text + at, '[', DEEP);
    ck_assert_int_eq(form->ops->parse(form, bytes(text), true, &now, NULL), MD_INVALID);
    md_arena_done(&now.arena);
    now = (struct md_chat_parsed){ 0 };
    text[at + 490] = '\0'; /* with those before it less than the bound: no stack ends here */
    enum md_status s = form->ops->parse(form, bytes(text), false, &now, NULL);
    ck_assert(s == MD_OK || s == MD_INVALID);
    md_arena_done(&now.arena);
    md_chat_form_unref(form);
}
END_TEST

/* ---- prompts ---- */

START_TEST(what_the_template_is_told)
{
    struct md_chat_form *form = NULL;
    struct md_buf prompt;
    struct md_err err;
    static const char source[] =
        "{{ messages[0].content }}|{{ messages[1].tool_calls[0].function.arguments | tojson }}|"
        "{{ messages[2].tool_call_id }}|{{ messages[2].name }}|{{ enable_thinking }}|"
        "{{ reasoning_effort }}|{{ color }}|{{ messages[1].reasoning_content }}|"
        "{% if tools %}{{ tools[0].function.name }}{% endif %}";
    const struct md_chat_message m[] = {
        { .role = bytes("user"), .content = bytes("hi") },
        { .role = bytes("assistant"),
          .content = bytes(""),
          .reasoning_content = bytes("why"),
          .tool_calls =
              bytes("[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 7}\"}}]") },
        { .role = bytes("tool"), .content = bytes("r"), .tool_call_id = bytes("c"), .name = bytes("f") },
    };
    struct md_chat_input in = { .messages = m,
                                .count = 3,
                                .tools = bytes(sum),
                                .tool_choice = MD_TOOLS_NONE,
                                .thinking = MD_THINKING_OFF,
                                .reasoning_effort = bytes("low"),
                                .chat_template_kwargs = bytes("{\"color\": \"red\"}") };
    md_buf_init(&prompt, NULL, 1000);
    ck_assert_msg(render(source, in, &prompt, &form, &err) == MD_OK, "%s", err.text);
    static const char want[] = "hi|{\"a\": 7}|c|f|False|low|red|why|sum";
    ck_assert_msg(prompt.len == strlen(want) && memcmp(prompt.data, want, prompt.len) == 0, "%.*s",
                  (int)prompt.len, (char *)prompt.data);
    md_chat_form_unref(form);
    md_buf_done(&prompt);
}
END_TEST

/* Not told: the model's default, in the prompt and in what the parser expects before the answer. */
START_TEST(thinking_is_three_valued)
{
    static const struct {
        enum md_thinking thinking;
        const char *lead;
    } cases[] = { { MD_THINKING_DEFAULT, "A?" }, { MD_THINKING_ON, "A!" }, { MD_THINKING_OFF, "A." } };
    static const char source[] =
        "{%- for m in messages %}{{- m.role + m.content }}{%- if m.reasoning_content %}{{- '<think>' + "
        "m.reasoning_content + '</think>' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- 'A' "
        "+ ('?' if "
        "enable_thinking is not defined else '!' if enable_thinking else '.') }}{%- endif %}";
    for (size_t i = 0; i < 3; i++) {
        struct md_chat_form *form = NULL;
        struct md_buf prompt;
        struct md_err err;
        md_buf_init(&prompt, NULL, 1000);
        struct md_chat_input in = { .thinking = cases[i].thinking, .json_schema = bytes("{}") };
        ck_assert_msg(render(source, in, &prompt, &form, &err) == MD_OK, "%s", err.text);
        ck_assert_mem_eq(prompt.data + prompt.len - 2, cases[i].lead, 2);
        ck_assert_ptr_nonnull(form);
        ck_assert_uint_eq(form->lead.len, 2);
        ck_assert_mem_eq(form->lead.data, cases[i].lead, 2);
        md_chat_form_unref(form);
        md_buf_done(&prompt);
    }
}
END_TEST

static const char circle[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"allOf\":[{\"$ref\":\"#/"
    "$defs/a\"}],\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}}}]";

static const struct {
    const char *label, *source;
    struct md_chat_input in;
    const char *says;
} refusals[] = {
    { "tools, and no place for them", plain, { .tools = { sum, sizeof sum - 1 } }, "leaves out 'sum'" },
    { "shown but never called",
      "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}",
      { .tools = { sum, sizeof sum - 1 } },
      "does not say how tools are called" },
    { "an endless one with tools",
      "{% if tools and tools[0].function.name == 'sum' %}{% for a in range(10000) %}{% for b in range(10000) "
      "%}{% set x = b "
      "%}{% endfor %}{% endfor %}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}",
      { .tools = { sum, sizeof sum - 1 } },
      "ran too long" },
    { "no such type", with_tools, { .json_schema = { "{\"type\":\"thing\"}", 16 } }, "JSON schema" },
    { "a reference to nothing", with_tools, { .json_schema = { "{\"$ref\":\"#/no\"}", 15 } }, "JSON schema" },
    { "a tool whose schema is in a circle",
      with_tools,
      { .tools = { circle, sizeof circle - 1 } },
      "tool 'f': the JSON schema has references" },
    { "a schema that is none", with_tools, { .json_schema = { "[1]", 3 } }, "not a JSON object" },
    { "tools and a schema",
      with_tools,
      { .tools = { sum, sizeof sum - 1 }, .json_schema = { "{}", 2 } },
      "together" },
    { "tools and a grammar",
      with_tools,
      { .tools = { sum, sizeof sum - 1 }, .grammar = { "root ::= \"a\"", 12 } },
      "together" },
};

START_TEST(refused_with_a_reason)
{
    struct md_chat_form *form = NULL;
    struct md_err err = { 0 };
    struct md_buf prompt;
    md_buf_init(&prompt, NULL, 1 << 20);
    enum md_status s = render(refusals[_i].source, refusals[_i].in, &prompt, &form, &err);
    ck_assert_msg(s == MD_INVALID, "%s: %s", refusals[_i].label, md_status_name(s));
    ck_assert_msg(strstr(err.text, refusals[_i].says) != NULL, "%s: '%s'", refusals[_i].label, err.text);
    ck_assert_msg(strchr(err.text, '\n') == NULL, "%s: more than one line: '%s'", refusals[_i].label,
                  err.text);
    ck_assert_ptr_null(form);
    md_buf_done(&prompt);
}
END_TEST

START_TEST(broken_arguments_in_a_history)
{
    const struct md_chat_message m[] = {
        { .role = bytes("user"), .content = bytes("hi") },
        { .role = bytes("assistant"),
          .content = bytes(""),
          .tool_calls = bytes("[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{oops\"}}]") },
    };
    struct md_chat_form *form = NULL;
    struct md_err err = { 0 };
    struct md_buf prompt;
    md_buf_init(&prompt, NULL, 1 << 20);
    ck_assert_int_eq(render(with_tools, (struct md_chat_input){ .messages = m, .count = 2 }, &prompt, &form,
                            &err),
                     MD_INVALID);
    ck_assert_msg(strstr(err.text, "message 2 are not valid JSON") != NULL, "%s", err.text);
    md_buf_done(&prompt);
}
END_TEST

/* {"type":"object","properties":{"p0":{},...}}, or {"enum":[0,...]} */
static void write_many(char *out, size_t out_bytes, bool properties, int count)
{
    size_t at = (size_t)snprintf(out, out_bytes, "%s",
                                 properties ? "{\"type\":\"object\",\"properties\":{" : "{\"enum\":[");
    for (int i = 0; i < count; i++)
        at += (size_t)snprintf(out + at, out_bytes - at, properties ? "%s\"p%d\":{}" : "%s%d",
                               i > 0 ? "," : "", i);
    snprintf(out + at, out_bytes - at, properties ? "}}" : "]}");
}

static void write_nested(char *out, size_t out_bytes, const char *head, int depth, const char *tail)
{
    size_t at = 0;
    for (int i = 0; i < depth; i++)
        at += (size_t)snprintf(out + at, out_bytes - at, "%s", head);
    at += (size_t)snprintf(out + at, out_bytes - at, "{}");
    for (int i = 0; i < depth; i++)
        at += (size_t)snprintf(out + at, out_bytes - at, "%s", tail);
}

static void expect_schema(const char *label, const char *schema, const char *refused)
{
    struct md_chat_form *form = NULL;
    struct md_err err = { 0 };
    enum md_status s = md_llama_constrain(NULL, bytes(schema), (struct md_bytes){ NULL, 0 }, &form, &err);
    if (refused == NULL)
        ck_assert_msg(s == MD_OK, "%s: %s", label, err.text);
    else
        ck_assert_msg(s == MD_INVALID && strstr(err.text, refused) != NULL, "%s: %d '%s'", label, s,
                      err.text);
    md_chat_form_unref(form);
}

/* The first two ended the process or kept a processor for hours; the limits are those of llama_schema.cc, which were
 * measured: at them a schema takes some seconds on one busy core, at twice as much ten to a hundred times that. */
START_TEST(schemas_that_would_never_end_are_refused)
{
    static char text[1 << 16];
    expect_schema("a circle under allOf",
                  "{\"allOf\":[{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}",
                  "in a circle");
    write_nested(text, sizeof text, "{\"type\":[\"object\",\"object\"],\"properties\":{\"a\":", 40, "}}");
    expect_schema("a type given twice, 40 deep", text, "lists the type 'object' twice");
    write_nested(text, sizeof text,
                 "{\"type\":[\"object\",\"string\"],\"allOf\":[{\"properties\":{\"a\":", 20, "}}]}");
    expect_schema("two ways to the same, 20 deep", text, "more than 20000 parts");
    write_nested(text, sizeof text, "{\"type\":[\"object\",\"null\"],\"properties\":{\"a\":", 40, "}}");
    expect_schema("nullable, 40 deep", text, NULL);
    for (int properties = 0; properties < 2; properties++)
        for (int more = 0; more < 2; more++) {
            write_many(text, sizeof text, properties, (properties ? 256 : 1000) + more);
            expect_schema("many", text,
                          !more ? NULL
                          : properties
                              ? "one object may have 256, several together fewer (the last one has 257)"
                              : "may have 1000, several together fewer (the last one has 1001)");
        }
    expect_schema("a pattern", "{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}", NULL);
    expect_schema("one that cannot be expressed",
                  "{\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"[a-z]\"}}}",
                  "cannot be bound to: '[a-z]'");
    expect_schema("a property of that name",
                  "{\"properties\":{\"default\":{\"type\":\"string\",\"pattern\":\"^\\\\d+$\"}}}",
                  "cannot be bound to");
    expect_schema("under a keyword that is not read", "{\"type\":\"object\",\"not\":{\"pattern\":\"[a-z]\"}}",
                  NULL);
    static const char circle_of_a[] = "\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}";
    static const struct {
        const char *head, *says;
    } odd[] = {
        { "{\"additionalProperties\":true,\"allOf\":[{\"$ref\":\"#/$defs/a\"}],", "in a circle" },
        { "{\"allOf\":{\"x\":{\"$ref\":\"#/$defs/a\"}},", "\"allOf\" that is no array" },
        { "{\"allOf\":[{\"anyOf\":{\"x\":{\"$ref\":\"#/$defs/a\"}}}],", "\"anyOf\" that is no array" },
        { "{\"allOf\":[{\"$ref\":\"#/allOf/0x\"}],", "'#/allOf/0x', which names nothing" },
        { "{\"$ref\":\"https://x/y\",", "which names nothing" },
        { "{\"properties\":[{},{}],", "no object" },
        { "{\"type\":[\"object\",\"thing\"],", "lists 'thing' among its types" },
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        snprintf(text, sizeof text, "%s%s", odd[i].head, circle_of_a);
        expect_schema("odd", text, odd[i].says);
    }
    strcpy(text, "{\"allOf\":[");
    write_many(text + strlen(text), sizeof text - 100, false, 1001);
    strcat(text, "]}");
    expect_schema("an enum under allOf", text, "too many alternatives");
    snprintf(text, sizeof text, "{\"properties\":{\"%0257d\":{}}}", 0);
    expect_schema("a long name", text, "name of 257 bytes");
    expect_schema("one that is data", "{\"const\":{\"pattern\":\"[a-z]\"}}", NULL);
    expect_schema(
        "refers to itself inside",
        "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#/"
        "$defs/n\"}}}}}",
        NULL);
}
END_TEST

START_TEST(bounds_of_schemas_and_grammars)
{
    struct md_chat_form *form = NULL;
    struct md_err err = { 0 };
    const struct md_bytes none = { NULL, 0 };
    char *big = malloc((1 << 20) + 100);
    int at = snprintf(big, 100, "{\"description\":\"");
    memset(big + at, 'x', 1 << 20);
    strcpy(big + at + (1 << 20), "\"}");
    ck_assert_int_eq(md_llama_constrain(NULL, bytes(big), none, &form, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "262144 are allowed") != NULL, "%s", err.text);
    at = snprintf(big, 100, "{\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^");
    memset(big + at, '(', 100000);
    strcpy(big + at + 100000, "\"}}}");
    ck_assert_int_eq(md_llama_constrain(NULL, bytes(big), none, &form, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "parentheses") != NULL, "%s", err.text);
    memset(big, '(', 60000);
    big[60000] = '\0';
    ck_assert_int_eq(md_llama_constrain(NULL, none, bytes(big), &form, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "parentheses") != NULL, "%s", err.text);
    memset(big, 'a', 70000);
    big[70000] = '\0';
    ck_assert_int_eq(md_llama_constrain(NULL, none, bytes(big), &form, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "65536 are allowed") != NULL, "%s", err.text);
    ck_assert_ptr_null(form);
    ck_assert_int_eq(md_llama_constrain(NULL, bytes("{}"), none, &form, &err), MD_OK);
    md_chat_form_unref(form);
    free(big);
}
END_TEST

START_TEST(plain_answers_have_no_form)
{
    ck_assert_ptr_null(form_of(plain, (struct md_chat_input){ .thinking = MD_THINKING_DEFAULT }));
    ck_assert_ptr_null(
        form_of(plain, (struct md_chat_input){ .tools = bytes(sum), .tool_choice = MD_TOOLS_NONE }));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("llama_form");
    TCase *c = tcase_create("forms");
    tcase_set_timeout(c, 30);
    tcase_add_loop_test(c, b093_answers_are_taken_apart_the_same_however_cut, 0,
                        (int)(sizeof rows / sizeof rows[0]));
    tcase_add_test(c, deep_answers_are_text);
    tcase_add_test(c, what_the_template_is_told);
    tcase_add_test(c, thinking_is_three_valued);
    tcase_add_loop_test(c, refused_with_a_reason, 0, (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(c, broken_arguments_in_a_history);
    tcase_add_test(c, bounds_of_schemas_and_grammars);
    tcase_add_test(c, schemas_that_would_never_end_are_refused);
    tcase_add_test(c, plain_answers_have_no_form);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
