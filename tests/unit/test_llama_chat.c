/* Chat templates without a model: what they write, what they refuse, and that they end (B095). */
#include "adapters/llama/llama_chat.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define EACH "{% for m in messages %}"
#define LINE "{{ m.role + ': ' + m.content + '\n' }}"

static const struct {
    const char *label, *source;
    const char *messages[6]; /* role, content, role, content ... */
    bool generation;
    const char *want;  /* the prompt, or NULL when it must be refused */
    const char *error; /* part of the refusal */
} rows[] = {
    { "one line each",
      EACH LINE "{% endfor %}",
      { "system", "s", "user", "u" },
      false,
      "system: s\nuser: u\n",
      NULL },
    { "no generation prompt asked",
      EACH LINE "{% endfor %}{% if add_generation_prompt %}>{% endif %}",
      { "user", "u" },
      false,
      "user: u\n",
      NULL },
    { "generation prompt asked",
      EACH LINE "{% endfor %}{% if add_generation_prompt %}>{% endif %}",
      { "user", "u" },
      true,
      "user: u\n>",
      NULL },
    { "tokens by name",
      "{{ bos_token }}" EACH "{{ m.content }}{% endfor %}{{ eos_token }}",
      { "user", "u" },
      true,
      "<s>u</s>",
      NULL },
    { "last message from the assistant",
      EACH LINE "{% endfor %}",
      { "user", "u", "assistant", "a" },
      true,
      "user: u\nassistant: a\n",
      NULL },
    { "content as typed parts",
      EACH "{% for p in m.content %}{{ p.type + '=' + p.text }}{% endfor %}{% endfor %}",
      { "user", "u" },
      false,
      "text=u",
      NULL },
    { "short range",
      "{% for i in range(3) %}{{ i }}{% endfor %}" EACH "{{ m.content }}{% endfor %}",
      { "user", "u" },
      false,
      "012u",
      NULL },
    { "range with start and step",
      "{% for i in range(7, 1, -2) %}{{ i }}{% endfor %}" EACH "{{ m.content }}{% endfor %}",
      { "user", "u" },
      false,
      "753u",
      NULL },
    { "raises for a role",
      EACH "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" LINE
           "{% endfor %}",
      { "system", "s", "user", "u" },
      false,
      NULL,
      "refused: System role not supported" },
    { "the same, without that role",
      EACH "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" LINE
           "{% endfor %}",
      { "user", "u" },
      false,
      "user: u\n",
      NULL },
    { "wants alternation",
      EACH "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') "
           "}}{% endif %}" LINE "{% endfor %}",
      { "user", "u", "user", "v" },
      false,
      NULL,
      "roles must alternate" },
    { "says nothing for developer",
      EACH "{% if m.role == 'user' %}" LINE "{% endif %}{% endfor %}",
      { "developer", "obey", "user", "u" },
      false,
      NULL,
      "leaves out the message 1 of role 'developer'" },
    { "cuts an assistant's reasoning",
      EACH "{% if m.role == 'user' %}" LINE "{% endif %}{% endfor %}",
      { "user", "u", "assistant", "a" },
      false,
      "user: u\n",
      NULL },
    { "blank content is not left out",
      EACH "{{ m.role + ': ' + m.content|trim + '\n' }}{% endfor %}",
      { "user", " u \n", "user", " " },
      false,
      "user: u\nuser: \n",
      NULL },
    { "fails without raising",
      EACH "{% for x in 5 %}{% endfor %}{% endfor %}",
      { "user", "u" },
      false,
      NULL,
      "refused: Expected iterable" },
    { "broken syntax", "{% for m in %}", { "user", "u" }, false, NULL, "cannot be parsed" },
    { "no end of a block", EACH, { "user", "u" }, false, NULL, "chat template" },
    { "10^9 at once",
      "{% for i in range(1000000000) %}x{% endfor %}",
      { "user", "u" },
      false,
      NULL,
      "range() of more than 10000" },
    { "10^12 by nesting",
      "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}{% set x = c %}{% "
      "endfor %}{% endfor %}{% endfor %}",
      { "user", "u" },
      false,
      NULL,
      "ran too long" },
    { "macro that calls itself",
      "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
      { "user", "u" },
      false,
      NULL,
      "too deeply" },
};

START_TEST(b095_templates)
{
    struct md_err err = { 0 };
    struct md_chat_template *t = NULL;
    struct md_chat_message messages[3];
    size_t count = 0;
    for (; count < 3 && rows[_i].messages[2 * count] != NULL; count++) {
        const char *role = rows[_i].messages[2 * count], *content = rows[_i].messages[2 * count + 1];
        messages[count] = (struct md_chat_message){ .role = { role, strlen(role) },
                                                    .content = { content, strlen(content) } };
    }
    struct md_buf out;
    md_buf_init(&out, NULL, 1 << 20);
    ck_assert_int_eq(md_buf_append(&out, "before", 6, &err), MD_OK);
    ck_assert_msg(md_chat_template_open(rows[_i].source, "<s>", "</s>", &t, &err) == MD_OK, "%s: %s",
                  rows[_i].label, err.text);
    const struct md_chat_input in = { .messages = messages,
                                      .count = count,
                                      .add_generation_prompt = rows[_i].generation };
    struct md_chat_form *form = NULL;
    enum md_status s = md_chat_template_render(t, NULL, &in, &out, &form, &err);
    if (rows[_i].want != NULL) {
        ck_assert_msg(s == MD_OK, "%s: %s", rows[_i].label, err.text);
        ck_assert_msg(out.len == 6 + strlen(rows[_i].want) &&
                          memcmp(out.data + 6, rows[_i].want, out.len - 6) == 0,
                      "%s: got '%.*s'", rows[_i].label, (int)out.len, (char *)out.data);
    } else {
        ck_assert_msg(s == MD_INVALID, "%s: status %s", rows[_i].label, md_status_name(s));
        ck_assert_msg(strstr(err.text, rows[_i].error) != NULL, "%s: '%s'", rows[_i].label, err.text);
        ck_assert_msg(strchr(err.text, '\n') == NULL, "%s: more than one line: '%s'", rows[_i].label,
                      err.text);
        ck_assert_uint_eq(out.len, 6);
    }
    ck_assert_msg(form == NULL, "%s: nothing is to be read out of its answers", rows[_i].label);
    md_buf_done(&out);
    md_chat_template_close(t);
}
END_TEST

START_TEST(nul_bytes_are_kept)
{
    struct md_chat_template *t = NULL;
    struct md_chat_message m = { .role = { "user", 4 }, .content = { "a\0b", 3 } };
    struct md_buf out;
    const struct md_chat_input in = { .messages = &m, .count = 1 };
    struct md_chat_form *form = NULL;
    md_buf_init(&out, NULL, 64);
    ck_assert_int_eq(md_chat_template_open(EACH "[{{ m.content }}]{% endfor %}", "", "", &t, NULL), MD_OK);
    ck_assert_int_eq(md_chat_template_render(t, NULL, &in, &out, &form, NULL), MD_OK);
    ck_assert_uint_eq(out.len, 5);
    ck_assert_mem_eq(out.data, "[a\0b]", 5);
    md_buf_done(&out);
    md_chat_template_close(t);
}
END_TEST

START_TEST(full_buffer_changes_nothing)
{
    struct md_err err = { 0 };
    struct md_chat_template *t = NULL;
    struct md_chat_message m = { .role = { "user", 4 }, .content = { "too long for it", 15 } };
    struct md_buf out;
    const struct md_chat_input in = { .messages = &m, .count = 1 };
    struct md_chat_form *form = NULL;
    md_buf_init(&out, NULL, 8);
    ck_assert_int_eq(md_chat_template_open(EACH LINE "{% endfor %}", "", "", &t, NULL), MD_OK);
    ck_assert_int_eq(md_chat_template_render(t, NULL, &in, &out, &form, &err), MD_NO_MEMORY);
    ck_assert_uint_eq(out.len, 0);
    md_buf_done(&out);
    md_chat_template_close(t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("llama_chat");
    TCase *c = tcase_create("templates");
    tcase_set_timeout(c, 30); /* the runaway ones use up their CPU seconds */
    tcase_add_loop_test(c, b095_templates, 0, (int)(sizeof rows / sizeof rows[0]));
    tcase_add_test(c, nul_bytes_are_kept);
    tcase_add_test(c, full_buffer_changes_nothing);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
