/* Answers as deltas, with a form of our own: "(thought)" at the front is reasoning, "[name args]" is a call, what is
 * before it content; a '!' anywhere is of no form.  What llama-common's forms do is in test_llama_form.c. */
#include "support/run_suite.h"
#include "text/parser.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct md_bytes part(struct md_arena *arena, const char *data, size_t len)
{
    return (struct md_bytes){ md_arena_strndup(arena, data, len), len };
}

static size_t parse_calls;

static enum md_status toy_parse(const struct md_chat_form *f, struct md_bytes text, bool whole,
                                struct md_chat_parsed *ret, struct md_err *err)
{
    const char *p = text.data, *end = p + text.len;
    (void)f, (void)whole;
    parse_calls++;
    md_arena_init(&ret->arena, NULL, 64 << 20);
    if (memchr(p, '!', text.len) != NULL)
        return md_fail(err, MD_INVALID, "no form");
    ret->calls = md_arena_get(&ret->arena, text.len + 1, sizeof *ret->calls);
    if (p < end && *p == '(') {
        const char *close = memchr(p, ')', (size_t)(end - p));
        const char *to = close != NULL ? close : end;
        ret->reasoning = part(&ret->arena, p + 1, (size_t)(to - p) - 1);
        p = close != NULL ? close + 1 : end;
    }
    const char *open = memchr(p, '[', (size_t)(end - p));
    ret->content = part(&ret->arena, p, (size_t)((open != NULL ? open : end) - p));
    while (open != NULL) {
        const char *to = memchr(open, ']', (size_t)(end - open));
        const char *stop = to != NULL ? to : end, *blank = memchr(open, ' ', (size_t)(stop - open));
        struct md_chat_call *c = &ret->calls[ret->call_count++];
        c->name = part(&ret->arena, open + 1, (size_t)((blank != NULL ? blank : stop) - open) - 1);
        if (blank != NULL)
            c->arguments = part(&ret->arena, blank + 1, (size_t)(stop - blank) - 1);
        open = memchr(stop, '[', (size_t)(end - stop));
    }
    return MD_OK;
}

static int closed;
static void toy_close(struct md_chat_form *f)
{
    (void)f;
    closed++;
}

static const struct md_chat_form_ops toy_ops = { toy_close, toy_parse };
static const struct md_bytes toy_markers[] = { { "(", 1 }, { ")", 1 }, { "[", 1 }, { "<tool_call>", 11 } };

static struct md_chat_form toy_form(bool markers_known)
{
    return (struct md_chat_form){ .ops = &toy_ops,
                                  .refs = 1,
                                  .tools = true,
                                  .markers = toy_markers,
                                  .marker_count = 4,
                                  .markers_known = markers_known };
}

/* Deltas written down: text, R(...), C(index name), A(index ...). */
struct notes {
    char text[4096];
    char ids[8][MD_CALL_ID_BYTES];
    size_t deltas, longest;
};

static enum md_status note(void *user, const struct md_chat_delta *d, struct md_err *err)
{
    struct notes *n = user;
    char line[2100];
    (void)err;
    if (d->kind == MD_DELTA_CALL) {
        ck_assert_uint_lt(d->index, 8);
        ck_assert_str_eq(n->ids[d->index], ""); /* the name comes once */
        memcpy(n->ids[d->index], d->id.data, d->id.len);
        snprintf(line, sizeof line, "C(%zu %.*s)", d->index, (int)d->name.len, (const char *)d->name.data);
    } else {
        ck_assert_uint_gt(d->text.len, 0);
        const char *before = d->kind == MD_DELTA_CONTENT ? "" : d->kind == MD_DELTA_REASONING ? "R(" : "A(";
        snprintf(line, sizeof line, "%s%.*s%s", before, (int)d->text.len, (const char *)d->text.data,
                 d->kind == MD_DELTA_CONTENT ? "" : ")");
    }
    strncat(n->text, line, sizeof n->text - strlen(n->text) - 1);
    n->deltas++;
    n->longest = d->text.len > n->longest ? d->text.len : n->longest;
    return MD_OK;
}

/* The answer in pieces of `step` bytes; what it is at the end, in the same notes. */
static void run(struct md_chat_form *form, const char *text, size_t step, struct notes *n, char *whole,
                size_t cap)
{
    struct md_chat_parser *p = NULL;
    size_t len = strlen(text);
    *n = (struct notes){ 0 };
    ck_assert_int_eq(md_chat_parser_open(form, note, n, &p, NULL), MD_OK);
    for (size_t at = 0; at < len; at += step)
        ck_assert_int_eq(
            md_chat_parser_push(p, (struct md_bytes){ text + at, len - at < step ? len - at : step }, NULL),
            MD_OK);
    ck_assert_int_eq(md_chat_parser_finish(p, NULL), MD_OK);
    struct md_bytes r = md_chat_parser_reasoning(p), c = md_chat_parser_content(p);
    int at = snprintf(whole, cap, "R=%.*s C=%.*s", (int)r.len, r.len > 0 ? (const char *)r.data : "",
                      (int)c.len, c.len > 0 ? (const char *)c.data : "");
    for (size_t i = 0; i < md_chat_parser_call_count(p); i++) {
        struct md_chat_call call = md_chat_parser_call(p, i);
        at += snprintf(whole + at, cap - (size_t)at, " %.*s:%.*s", (int)call.name.len,
                       (const char *)call.name.data, (int)call.arguments.len,
                       call.arguments.len > 0 ? (const char *)call.arguments.data : "");
        ck_assert_str_eq(n->ids[i], (const char *)call.id.data);
    }
    md_chat_parser_close(p);
}

static const struct {
    const char *text, *want;
} rows[] = {
    { "hello", "R= C=hello" },
    { "", "R= C=" },
    { "(hm) so", "R=hm C= so" },
    { "(never closed", "R=never closed C=" },
    { "first [sum 1,2]", "R= C=first  sum:1,2" },
    { "(t)[a 1][b 2]", "R=t C= a:1 b:2" },
    { "[cut 1,", "R= C= cut:1," },
    { "[cu", "R= C= cu:" },
    { "[none ]", "R= C= none:" },
    { "not of it!", "R= C=not of it!" },
    { "\xf0\x9f\xa6\x80 [x \xc3\xa9]", "R= C=\xf0\x9f\xa6\x80  x:\xc3\xa9" },
    /* what the form does not know: the rule of the daemon we stay compatible with */
    { "so! <tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1}}</tool_call>", "R= C=so!  f:{\"a\":1}" },
    { "! <tool_call>{\"function\":{\"name\":\"f\",\"parameters\":null}}</tool_call> z", "R= C=!  z f:{}" },
    { "! <tool_call>{\"tool_name\":\"f\",\"arguments\":\"[1]\"}</tool_call>", "R= C=!  f:[1]" },
    { "! <tool_call>{\"arguments\":{}}</tool_call>", "R= C=! <tool_call>{\"arguments\":{}}</tool_call>" },
    { "! <tool_call>{broken</tool_call>", "R= C=! <tool_call>{broken</tool_call>" },
    { "! <tool_call>", "R= C=! <tool_call>" },
    /* a call in tags that the form took for content */
    { "<tool_call>{\"name\":\"f\"}</tool_call>", "R= C= f:{}" },
    { "a <tool_call> is written so", "R= C=a <tool_call> is written so" },
};

/* However the text is cut, and whether or not markers are known, the end is the same. */
START_TEST(b093_same_end_at_every_step)
{
    for (int known = 0; known < 2; known++)
        for (size_t step = 1; step <= strlen(rows[_i].text) + 1; step++) {
            struct md_chat_form form = toy_form(known);
            struct notes n;
            char whole[1000];
            run(&form, rows[_i].text, step, &n, whole, sizeof whole);
            ck_assert_msg(strcmp(whole, rows[_i].want) == 0, "step %zu: '%s', want '%s'", step, whole,
                          rows[_i].want);
            ck_assert_int_eq(form.refs, 1);
        }
}
END_TEST

START_TEST(deltas_come_at_once)
{
    struct md_chat_form form = toy_form(true);
    struct notes n;
    char whole[200];
    run(&form, "(abc)def[s 12]", 1, &n, whole, sizeof whole);
    ck_assert_str_eq(n.text, "R(a)R(b)R(c)defC(0 s)A(1)A(2)");
    run(NULL, "(abc)[x]!", 2, &n, whole, sizeof whole);
    ck_assert_str_eq(n.text, "(abc)[x]!");
    ck_assert_uint_eq(n.deltas, 5);
}
END_TEST

/* 200 KB one byte at a time: plain text is not read again and again, and calls cost MD_PARSER_TIMES at most. */
START_TEST(work_is_bounded)
{
    enum { LEN = 200000 };
    static const char *const starts[] = { "a", "(a", "[s a" };
    char *text = malloc(LEN + 1);
    for (size_t i = 0; i < 3; i++) {
        struct md_chat_form form = toy_form(i < 2);
        struct md_chat_parser *p = NULL;
        struct notes n = { 0 };
        memset(text, 'a', LEN);
        memcpy(text, starts[i], strlen(starts[i]));
        ck_assert_int_eq(md_chat_parser_open(&form, note, &n, &p, NULL), MD_OK);
        for (size_t at = 0; at < LEN; at++)
            ck_assert_int_eq(md_chat_parser_push(p, (struct md_bytes){ text + at, 1 }, NULL), MD_OK);
        size_t before_end = md_chat_parser_read_bytes(p),
               most = (size_t)MD_PARSER_TIMES * LEN + MD_PARSER_FREE_BYTES;
        ck_assert_msg(before_end <= most, "%s: %zu bytes were read, at most %zu may be", starts[i],
                      before_end, most);
        if (i < 2)
            ck_assert_uint_lt(before_end, 100); /* known for content after its first bytes */
        ck_assert_int_eq(md_chat_parser_finish(p, NULL), MD_OK);
        ck_assert_uint_lt(n.longest, LEN / 16); /* and no reader waits long */
        md_chat_parser_close(p);
    }
    free(text);
}
END_TEST

START_TEST(ids_differ_and_look_right)
{
    char ids[64][MD_CALL_ID_BYTES];
    struct md_call_ids answer = { 0 };
    for (int i = 0; i < 64; i++) {
        answer = i % 4 == 0 ? md_call_ids_new() : answer; /* four calls in each */
        md_call_ids_name(&answer, (size_t)i % 4, ids[i]);
        ck_assert_uint_eq(strlen(ids[i]), 29); /* "call_" and 24 digits */
        ck_assert_uint_eq(strspn(ids[i] + 5, "0123456789abcdef"), 24);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(ids[i], ids[j]);
    }
}
END_TEST

static enum md_status refuse(void *user, const struct md_chat_delta *d, struct md_err *err)
{
    (void)user, (void)d;
    return md_fail(err, MD_NO_MEMORY, "full");
}

START_TEST(what_the_reader_says_ends_the_push)
{
    struct md_chat_form form = toy_form(true);
    struct md_chat_parser *p = NULL;
    ck_assert_int_eq(md_chat_parser_open(&form, refuse, NULL, &p, NULL), MD_OK);
    ck_assert_int_eq(form.refs, 2);
    ck_assert_int_eq(md_chat_parser_push(p, (struct md_bytes){ "abc", 3 }, NULL), MD_NO_MEMORY);
    closed = 0;
    md_chat_form_unref(&form);
    ck_assert_int_eq(closed, 0);
    md_chat_parser_close(p);
    ck_assert_int_eq(closed, 1); /* the parser had its own reference */
    md_chat_parser_close(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("parser");
    TCase *c = tcase_create("deltas");
    tcase_set_timeout(c, 30);
    tcase_add_loop_test(c, b093_same_end_at_every_step, 0, (int)(sizeof rows / sizeof rows[0]));
    tcase_add_test(c, deltas_come_at_once);
    tcase_add_test(c, work_is_bounded);
    tcase_add_test(c, ids_differ_and_look_right);
    tcase_add_test(c, what_the_reader_says_ends_the_push);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
