/* test_eval_llama.c - haystacks on the tokenizer of the exact model, which makes one token of a byte and three of a blank: so
 * what the tokens of a span say is what their bytes are. */
#include "adapters/llama/llama_backend.h"
#include "commands/eval_chat.h"
#include "commands/eval_haystack.h"
#include "support/exact_model.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct md_text *text;

static void setup(void)
{
    char path[512];
    struct md_err err = { 0 };
    struct md_fake_model *model;
    ck_assert(md_exact_model_file("eval", &model, path, sizeof path));
    md_fake_model_close(model);
    const enum md_status s = md_llama_text_open(path, &text, &err);
    unlink(path);
    ck_assert_msg(s == MD_OK, "%s", err.text);
}

static void teardown(void)
{
    md_text_close(text);
}

/* The bytes of tokens [r.start, r.end). */
static void bytes_of(const struct md_tokens *t, struct md_range r, char *out, size_t bytes)
{
    struct md_buf b;
    md_buf_init(&b, NULL, 1 << 20);
    for (int32_t i = r.start; i < r.end; i++)
        ck_assert_int_eq(md_text_piece(text, t->ids[i], false, &b, NULL), MD_OK);
    ck_assert_uint_lt(b.len, bytes);
    size_t n = 0;
    for (size_t i = 0; i < b.len; n++) { /* a blank is U+2581, of three bytes */
        const bool blank = i + 3 <= b.len && memcmp(b.data + i, "\xe2\x96\x81", 3) == 0;
        out[n] = blank ? ' ' : (char)b.data[i];
        i += blank ? 3 : 1;
    }
    out[n] = '\0';
    md_buf_done(&b);
}

struct rig {
    struct md_buf bytes;
    struct md_eval_filler filler;
    struct md_arena arena;
    struct md_eval_needle needles[MD_EVAL_NEEDLES_MAX];
    struct md_eval_spec spec;
    struct md_eval_haystack h;
    struct md_err err;
};

static void open_rig(struct rig *r, enum md_eval_task task, int count, int depth, size_t bytes,
                     const char *own)
{
    *r = (struct rig){ .spec = { .task = task, .count = count, .depth = depth, .seed = 3 } };
    md_buf_init(&r->bytes, NULL, 1 << 20);
    md_arena_init(&r->arena, NULL, 1 << 20);
    ck_assert_int_eq(own != NULL ? md_buf_append(&r->bytes, own, strlen(own), NULL)
                                 : md_eval_text_write(md_eval_task_text(task), 3, bytes, &r->bytes, NULL),
                     MD_OK);
    const struct md_bytes b = { r->bytes.data, r->bytes.len };
    ck_assert_int_eq(md_eval_filler_read(text, b, &r->filler, NULL), MD_OK);
    ck_assert_int_eq(md_eval_needles(&r->spec, b, &r->arena, r->needles, NULL), MD_OK);
}

static enum md_status build(struct rig *r, int32_t length)
{
    return md_eval_haystack_build(text, &r->filler, length, r->needles, r->spec.count, &r->h, &r->err);
}

static void close_rig(struct rig *r)
{
    md_eval_haystack_done(&r->h);
    md_eval_filler_done(&r->filler);
    md_arena_done(&r->arena);
    md_buf_done(&r->bytes);
}

/* Each needle is a line of its own, and its span is the whole of it and no more. */
static void assert_lines(const struct rig *r)
{
    char line[1000], around[1100], want[1100];
    const int32_t count = (int32_t)r->h.tokens.count;
    for (int i = 0; i < r->spec.count; i++)
        for (int k = 0; k < r->needles[i].part_count; k++) {
            const struct md_range s = r->h.spans[i][k];
            bytes_of(&r->h.tokens, s, line, sizeof line);
            ck_assert_str_eq(line, r->needles[i].parts[k]);
            const struct md_range wider = { s.start > 0 ? s.start - 1 : 0,
                                            s.end < count ? s.end + 1 : count };
            bytes_of(&r->h.tokens, wider, around, sizeof around);
            snprintf(want, sizeof want, "%s%s\n", s.start > 0 ? "\n" : "", line);
            ck_assert_str_eq(around, want);
        }
}

/* Without the needles it is the beginning of the text. */
static void assert_rest(const struct rig *r)
{
    bool *needle = calloc(r->h.tokens.count, 1);
    for (int i = 0; i < r->spec.count; i++)
        for (int k = 0; k < r->needles[i].part_count; k++) {
            const struct md_range s = r->h.spans[i][k];
            const int ends = r->filler.longest == 1 ? 1 : 2;
            memset(needle + s.start, true, (size_t)(s.end + ends - s.start));
        }
    size_t n = 0;
    for (size_t i = 0; i < r->h.tokens.count; i++)
        if (!needle[i])
            ck_assert_int_eq(r->h.tokens.ids[i], r->filler.tokens.ids[n++]);
    ck_assert_uint_gt(n, 0);
    free(needle);
}

START_TEST(length_and_lines_are_exact)
{
    static const struct {
        enum md_eval_task task;
        int count, depth;
    } rows[] = {
        { MD_EVAL_NEEDLE, 1, 0 },
        { MD_EVAL_NEEDLE, 1, 37 },
        { MD_EVAL_NEEDLE, 6, MD_EVAL_SPREAD },
        { MD_EVAL_KEYS, 1, 50 },
        { MD_EVAL_KEYS, 9, MD_EVAL_SPREAD },
        { MD_EVAL_VT, 3, MD_EVAL_SPREAD },
        { MD_EVAL_CODE_NEEDLE, 4, MD_EVAL_SPREAD },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r;
        open_rig(&r, rows[i].task, rows[i].count, rows[i].depth, 20000, NULL);
        ck_assert_msg(build(&r, 6000) == MD_OK, "%s", r.err.text);
        ck_assert_uint_eq(r.h.tokens.count, 6000);
        assert_lines(&r);
        assert_rest(&r);
        close_rig(&r);
    }
}
END_TEST

/* 256 tokens to either side are searched, and needles before it push it back. */
START_TEST(depth_is_where_it_was_asked_for)
{
    for (int depth = 0; depth <= 100; depth += 10) {
        struct rig r;
        open_rig(&r, MD_EVAL_NEEDLE, 1, depth, 20000, NULL);
        ck_assert_msg(build(&r, 8000) == MD_OK, "%s", r.err.text);
        const int32_t wanted = (8000 - md_range_len(r.h.spans[0][0]) - 2) * depth / 100;
        ck_assert_int_le(abs(r.h.spans[0][0].start - wanted), 257);
        if (depth == 0)
            ck_assert_int_eq(r.h.spans[0][0].start, 0);
        assert_lines(&r);
        close_rig(&r);
    }
}
END_TEST

/* However near the end of the last whole paragraph is: the needle is the last line, and an empty one follows it. */
START_TEST(the_end_is_the_end)
{
    struct rig r;
    open_rig(&r, MD_EVAL_NEEDLE, 1, 100, 20000, NULL);
    for (int32_t length = 7000; length < 7500; length += 50) {
        ck_assert_msg(build(&r, length) == MD_OK, "%s", r.err.text);
        ck_assert_uint_eq((size_t)r.h.spans[0][0].end + 2, r.h.tokens.count);
        assert_lines(&r);
        md_eval_haystack_done(&r.h);
    }
    close_rig(&r);
}
END_TEST

/* Lines without empty ones, and text without any end of a line: a line is made for the needle. */
START_TEST(other_peoples_text)
{
    char lines[4001], none[4001];
    for (int i = 0; i < 4000; i++) {
        lines[i] = i % 40 == 39 ? '\n' : (char)('a' + i % 7);
        none[i] = (char)('a' + i % 5);
    }
    lines[4000] = none[4000] = '\0';
    struct rig r;
    open_rig(&r, MD_EVAL_NEEDLE, 3, MD_EVAL_SPREAD, 0, lines);
    ck_assert_msg(build(&r, 2000) == MD_OK, "%s", r.err.text);
    ck_assert_uint_eq(r.h.tokens.count, 2000);
    assert_lines(&r);
    assert_rest(&r);
    close_rig(&r);
    open_rig(&r, MD_EVAL_NEEDLE, 3, MD_EVAL_SPREAD, 0, none);
    ck_assert_msg(build(&r, 2000) == MD_OK, "%s", r.err.text);
    ck_assert_uint_eq(r.h.tokens.count, 2003); /* an end of a line before each */
    assert_lines(&r);
    close_rig(&r);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_with_the_figure)
{
    struct rig r;
    char want[100];
    open_rig(&r, MD_EVAL_NEEDLE, 6, MD_EVAL_SPREAD, 3000, NULL);
    ck_assert_int_eq(build(&r, 300), MD_INVALID);
    const char *least = strstr(r.err.text, "so that ");
    ck_assert_ptr_nonnull(least);
    const int32_t length = atoi(least + strlen("so that "));
    ck_assert_msg(build(&r, length) == MD_OK, "%s", r.err.text); /* what it says is so */
    md_eval_haystack_done(&r.h);
    ck_assert_int_eq(build(&r, length - 1), MD_INVALID);
    snprintf(want, sizeof want, "it has %zu tokens, --length 50000 needs ", r.filler.tokens.count);
    ck_assert_int_eq(build(&r, 50000), MD_INVALID);
    ck_assert_msg(strstr(r.err.text, want) != NULL, "%s", r.err.text);
    close_rig(&r);
}
END_TEST

/* ---- the conversation ---- */

static void say(struct md_eval_chat *c, const char *role, const char *words)
{
    ck_assert_int_eq(md_eval_chat_say(c, role, (struct md_bytes){ words, strlen(words) }, NULL), MD_OK);
}

/* Segments tile the prompt, the first ends with the haystack, and the last is the question and what the model's template (or the
 * form of a model without one) puts around it: both are written here as the exact model's file and eval_chat.h have them. */
static void assert_chat(bool template)
{
    struct rig r;
    struct md_eval_chat c;
    struct md_err err;
    char got[400];
    text->info.has_chat_template = template;
    open_rig(&r, MD_EVAL_NEEDLE, 1, 50, 4000, NULL);
    ck_assert_msg(build(&r, 1000) == MD_OK, "%s", r.err.text);
    md_eval_chat_init(&c, text, "exact", &r.h.tokens);
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(md_eval_chat_begin(&c, NULL), MD_OK);
        say(&c, "user", "What is it?");
        for (int turn = 0; turn < 2; turn++) {
            if (turn == 1) {
                say(&c, "assistant", " an answer\n");
                say(&c, "user", "And who?");
            }
            ck_assert_msg(md_eval_chat_render(&c, &err) == MD_OK, "%s", err.text);
            const struct md_context whole = md_eval_chat_context(&c), prefix = md_eval_chat_prefix(&c);
            int32_t at = 0;
            ck_assert_uint_eq(whole.segment_count, c.count);
            for (size_t i = 0; i < whole.segment_count; i++) {
                const struct md_segment *g = &whole.segments[i];
                ck_assert_int_eq(g->range.start, at);
                at = g->range.end;
                ck_assert_int_eq(g->kind, md_bytes_are(c.messages[i].role, "user") ? MD_SEGMENT_USER
                                                                                   : MD_SEGMENT_ASSISTANT);
            }
            ck_assert_int_eq(at, whole.count);
            ck_assert_int_eq(prefix.count, c.haystack_at + 1000);
            ck_assert_mem_eq(whole.tokens + c.haystack_at, r.h.tokens.ids, 1000 * sizeof(md_token));
            bytes_of(&c.prompt, whole.segments[whole.segment_count - 1].range, got, sizeof got);
            const char *want[2][2] = {
                { "\n\nQuestion: What is it?\nAnswer:", "\n\n\nQuestion: And who?\nAnswer:" },
                { "\nuser: What is it?\nassistant: ", "\n\nuser: And who?\nassistant: " }
            };
            ck_assert_str_eq(got, want[template][turn]);
        }
    }
    md_eval_chat_done(&c);
    close_rig(&r);
}

START_TEST(the_question_is_a_message_of_its_own)
{
    assert_chat(true);
    assert_chat(false);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("eval_llama");
    TCase *t = tcase_create("eval_llama");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, length_and_lines_are_exact);
    tcase_add_test(t, depth_is_where_it_was_asked_for);
    tcase_add_test(t, the_end_is_the_end);
    tcase_add_test(t, other_peoples_text);
    tcase_add_test(t, what_does_not_fit_is_refused_with_the_figure);
    tcase_add_test(t, the_question_is_a_message_of_its_own);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
