/* test_prompt.c - segments of prompts, with templates and tokenizers of our own: tokens are bytes, so that what a
 * segment holds can be read.  What each must hold follows from the rule in prompt.h: from the end of the content
 * before it to the end of its own.  Raw text and other tokens: test_prompt_raw.c; real
 * tokenizers: test_prompt_llama.c, test_model_llama_prompt.c. */
#include "session/prompt.h"
#include "support/fault_alloc.h"
#include "support/prompt_check.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct md_bytes text(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

/* ---- a tokenizer: bytes ---- */

struct tokenizer {
    struct md_text base;
    struct template *t;
};

static enum md_status tokenize(const struct md_text *t, struct md_bytes in, bool add_special,
                               bool parse_special, struct md_tokens *ret, struct md_err *err)
{
    enum md_status s = MD_OK;
    (void)t, (void)add_special;
    ck_assert(parse_special);
    for (size_t i = 0; i < in.len && s == MD_OK; i++)
        s = md_tokens_append(ret, &(md_token){ ((const uint8_t *)in.data)[i] }, 1, err);
    return s;
}

static enum md_status piece(const struct md_text *t, md_token token, bool special, struct md_buf *ret,
                            struct md_err *err)
{
    (void)t;
    ck_assert(special);
    return md_buf_append(ret, &(uint8_t){ (uint8_t)token }, 1, err);
}

/* ---- a template:  <ROLE>CONTENT</>  ---- */

enum {
    TRIM = 1 << 0,       /* contents without blanks around them */
    IF_CONTENT = 1 << 1, /* a message without content writes "-" */
    LOOKS = 1 << 2,      /* "!" before a content that ends with a full stop */
    COUNTS = 1 << 3,     /* the number of messages stands first */
    REVERSED = 1 << 4,
    TWICE = 1 << 5,   /* each content stands there twice */
    DROPS = 1 << 6,   /* the content of assistants is left out */
    FAILS = 1 << 7,   /* every rendering but the first */
    JUDGES = 1 << 12, /* as LOOKS, and "?" before all others */
    TAIL = 1 << 13,   /* "~" at the very end if the last content ends with a full stop */
    TOOLS_FIRST = 1 << 8,
    TOOLS_AFTER = 1 << 9, /* behind the first content */
    TOOLS_IN =
        1 << 10, /* before the content of the first message that is not system, and a line at the top */
    TOOLS_OFTEN = 1 << 11 /* at the top and at the very end */
};

struct template
{
    unsigned how;
    int calls, with_tools;
    size_t content_ends[64]; /* of the first rendering */
};

static bool is(struct md_bytes a, const char *b)
{
    return a.len == strlen(b) && memcmp(a.data, b, a.len) == 0;
}

static void put(struct md_buf *out, struct md_bytes b, enum md_status *s, struct md_err *err)
{
    if (*s == MD_OK)
        *s = md_buf_append(out, b.data, b.len, err);
}

static struct md_bytes trim(struct md_bytes b)
{
    const char *p = b.data;
    while (b.len > 0 && strchr(" \n\t", p[0]) != NULL)
        p++, b.len--;
    while (b.len > 0 && strchr(" \n\t", p[b.len - 1]) != NULL)
        b.len--;
    b.data = p;
    return b;
}

static enum md_status render(const struct md_text *text_, const struct md_chat_input *in, struct md_buf *out,
                             struct md_chat_form **ret_form, struct md_err *err)
{
    struct template *t = ((const struct tokenizer *)text_)->t;
    const struct md_chat_message *messages = in->messages;
    const size_t count = in->count;
    const bool tools = in->tools.len > 0, generation = in->add_generation_prompt;
    const unsigned how = t->how;
    (void)ret_form;
    enum md_status s = MD_OK;
    bool in_done = false;
    t->with_tools += tools;
    if (t->calls++ > 0 && (how & FAILS) != 0)
        return md_fail(err, MD_INVALID, "no");
    if ((how & COUNTS) != 0) {
        char n[24];
        snprintf(n, sizeof n, "%zu ", count);
        put(out, text(n), &s, err);
    }
    if (tools && (how & (TOOLS_FIRST | TOOLS_IN | TOOLS_OFTEN)) != 0)
        put(out, text("{tools}"), &s, err);
    for (size_t k = 0; k < count; k++) {
        const size_t i = (how & REVERSED) != 0 ? count - 1 - k : k;
        const struct md_chat_message *m = &messages[i];
        const struct md_bytes c = (how & TRIM) != 0 ? trim(m->content) : m->content;
        put(out, text("<"), &s, err);
        put(out, m->role, &s, err);
        put(out, text(">"), &s, err);
        if (tools && (how & TOOLS_IN) != 0 && !in_done && !is(m->role, "system")) {
            put(out, text("[f(x)]"), &s, err);
            in_done = true;
        }
        const bool stop = c.len > 0 && ((const char *)c.data)[c.len - 1] == '.';
        if ((how & (LOOKS | JUDGES)) != 0 && stop)
            put(out, text("!"), &s, err);
        if ((how & JUDGES) != 0 && !stop)
            put(out, text("?"), &s, err);
        if ((how & IF_CONTENT) != 0 && c.len == 0)
            put(out, text("-"), &s, err);
        if ((how & DROPS) == 0 || !is(m->role, "assistant"))
            put(out, c, &s, err);
        if ((how & TWICE) != 0)
            put(out, c, &s, err);
        if (t->calls == 1 && i < 64)
            t->content_ends[i] = out->len;
        if (tools && (how & TOOLS_AFTER) != 0 && k == 0)
            put(out, text("\n[f(x)]"), &s, err);
        put(out, text("</>"), &s, err);
        if ((how & TAIL) != 0 && stop && k + 1 == count)
            put(out, text("~"), &s, err);
    }
    if (s == MD_OK && generation) /* printf wants room for a NUL */
        s = md_buf_printf(out, err, "<assistant>");
    if (tools && (how & TOOLS_OFTEN) != 0)
        put(out, text("{tools}"), &s, err);
    return s;
}

static const struct md_text_ops tokenizer_ops = {
    .name = "test", .tokenize = tokenize, .piece = piece, .render_chat = render
};

/* Bytes, and chats by this template; one at a time. */
static const struct md_text *bytes_text(struct template *t)
{
    static struct tokenizer k = { .base = { .ops = &tokenizer_ops, .info.vocab_count = 256 } };
    k.base.info.has_chat_template = true;
    k.t = t;
    return &k.base;
}

#define TOOLS(are) ((are) ? (struct md_bytes){ "[{}]", 4 } : (struct md_bytes){ NULL, 0 })

/* ---- rows: messages, and what the segments must hold ---- */

#define EXACT NULL
#define WHOLE "the template writes marked text otherwise"
#define SHARED "the ends of some messages were not found"
#define NO_TOOLS "no end of the tools section was found"

static const struct {
    const char *label;
    unsigned how;
    bool generation, tools;
    const char *messages[10];
    const char *want[8]; /* "kind|text" */
    const char *diagnostic;
    int calls;
} rows[] = {
    { "plain",
      0,
      true,
      false,
      { "system", "Be.", "user", "Hi", "assistant", "Yo", "tool", "42" },
      { "system|<system>Be.", "user|</><user>Hi", "assistant|</><assistant>Yo",
        "tool|</><tool>42</><assistant>" },
      EXACT,
      2 },
    { "no generation prompt", 0, false, false, { "user", "Hi" }, { "user|<user>Hi</>" }, EXACT, 2 },
    { "blanks at the end are the content's",
      0,
      false,
      false,
      { "user", "Hi \n", "user", " x" },
      { "user|<user>Hi \n", "user|</><user> x</>" },
      EXACT,
      2 },
    { "unless they are trimmed",
      TRIM,
      false,
      false,
      { "user", " Hi \n", "user", " x " },
      { "user|<user>Hi", "user|</><user>x</>" },
      EXACT,
      2 },
    { "no content",
      IF_CONTENT,
      true,
      false,
      { "user", "a", "assistant", "", "tool", "b", "user", " " },
      { "user|<user>a", "assistant|", "tool|</><assistant>-</><tool>b", "user|</><user> </><assistant>" },
      EXACT,
      2 },
    { "no content at all", 0, false, false, { "user", "" }, { "user|<user></>" }, EXACT, 2 },
    { "a content that is a piece of another",
      0,
      false,
      false,
      { "user", "user", "user", "<user>user", "user", "</>" },
      { "user|<user>user", "user|</><user><user>user", "user|</><user></></>" },
      EXACT,
      2 },
    { "markers in a content",
      0,
      false,
      false,
      { "user", "qzmd00000000i00000000e", "user", "qzmd00000001iqzmd0000000qzmd" },
      { "user|<user>qzmd00000000i00000000e", "user|</><user>qzmd00000001iqzmd0000000qzmd</>" },
      EXACT,
      2 },
    { "looks at contents: whole messages",
      LOOKS,
      true,
      false,
      { "system", "Be.", "user", "Hi." },
      { "system|<system>!Be.</>", "user|<user>!Hi.</><assistant>" },
      WHOLE,
      4 },
    { "writes as much, but something else",
      JUDGES,
      false,
      false,
      { "user", "Hi.", "user", "Ho" },
      { "user|<user>!Hi.</>", "user|<user>?Ho</>" },
      WHOLE,
      4 },
    { "writes less behind a marker",
      TAIL,
      false,
      false,
      { "user", "Hi", "user", "Ho." },
      { "user|<user>Hi</>", "user|<user>Ho.</>~" },
      WHOLE,
      4 },
    { "looks, and counts: nothing is found",
      LOOKS | COUNTS,
      true,
      false,
      { "system", "Be.", "user", "Hi", "user", "Ho" },
      { "system|3 <system>!Be.</><user>Hi</><user>Ho</><assistant>" },
      SHARED,
      5 },
    { "another order",
      REVERSED,
      false,
      false,
      { "user", "a", "user", "b" },
      { "user|<user>b</><user>a</>" },
      SHARED,
      4 },
    { "everything twice",
      TWICE,
      false,
      false,
      { "user", "a", "user", "b" },
      { "user|<user>aa</>", "user|<user>bb</>" },
      WHOLE,
      4 },
    { "answers are left out",
      DROPS,
      false,
      false,
      { "user", "a", "assistant", "x", "user", "b" },
      { "user|<user>a</>", "assistant|<assistant></>", "user|<user>b</>" },
      WHOLE,
      5 },
    { "the last answer is left out",
      DROPS,
      false,
      false,
      { "user", "a", "assistant", "x" },
      { "user|<user>a</>", "assistant|<assistant></>" },
      WHOLE,
      4 },
    { "fails the second time",
      FAILS,
      false,
      false,
      { "user", "a", "user", "b" },
      { "user|<user>a</><user>b</>" },
      SHARED,
      4 },
    { "tools first",
      TOOLS_FIRST,
      true,
      true,
      { "system", "Be.", "user", "Hi" },
      { "tools|{tools}", "system|<system>Be.", "user|</><user>Hi</><assistant>" },
      EXACT,
      3 },
    { "tools behind the system text",
      TOOLS_AFTER,
      true,
      true,
      { "system", "Be.", "user", "Hi" },
      { "system|<system>Be.", "tools|\n[f(x)]", "user|</><user>Hi</><assistant>" },
      EXACT,
      3 },
    { "tools in the first turn, and a word at the top",
      TOOLS_IN,
      true,
      true,
      { "system", "Be.", "user", "Hi" },
      { "system|{tools}<system>Be.", "tools|</><user>[f(x)]", "user|Hi</><assistant>" },
      EXACT,
      3 },
    { "tools at the end",
      TOOLS_OFTEN,
      true,
      true,
      { "system", "Be.", "user", "Hi" },
      { "system|{tools}<system>Be.", "user|</><user>Hi</><assistant>{tools}" },
      NO_TOOLS,
      3 },
    { "tools at the end, whole messages",
      TOOLS_OFTEN | TWICE,
      false,
      true,
      { "system", "Be.", "user", "Hi" },
      { "system|{tools}<system>Be.Be.</><user>HiHi</>{tools}" },
      NO_TOOLS,
      5 },
    { "tools that are not written",
      0,
      true,
      true,
      { "user", "Hi" },
      { "user|<user>Hi</><assistant>" },
      EXACT,
      3 },
    { "tools, and nothing of the rest is found",
      TOOLS_FIRST | FAILS,
      false,
      true,
      { "system", "Be.", "user", "Hi" },
      { "system|{tools}<system>Be.</><user>Hi</>" },
      NO_TOOLS,
      5 },
};

static size_t messages_of(const char *const *from, struct md_chat_message *to)
{
    size_t n = 0;
    for (; n < 5 && from[2 * n] != NULL; n++)
        to[n] = (struct md_chat_message){ .role = text(from[2 * n]), .content = text(from[2 * n + 1]) };
    return n;
}

/* "kind|text" of a segment of byte tokens. */
static void segment_text(const struct md_prompt *p, size_t i, char *out, size_t room)
{
    const struct md_prompt_segment *g = &p->segments[i];
    int n = snprintf(out, room, "%.*s|", (int)g->label.name.len, (const char *)g->label.name.data);
    for (int32_t t = g->tokens.start; t < g->tokens.end && (size_t)n + 1 < room; t++)
        out[n++] = (char)p->tokens.ids[t];
    out[n] = '\0';
}

START_TEST(templates)
{
    struct md_chat_message m[5];
    struct template t = { .how = rows[_i].how };
    const struct md_prompt_request r = { .text = bytes_text(&t),
                                         .input = { .messages = m,
                                                    .count = messages_of(rows[_i].messages, m),
                                                    .add_generation_prompt = rows[_i].generation,
                                                    .tools = TOOLS(rows[_i].tools) } };
    struct md_prompt p;
    struct md_err err;
    char got[400];
    ck_assert_msg(md_prompt_render(&r, NULL, &p, &err) == MD_OK, "%s: %s", rows[_i].label, err.text);
    prompt_check_tiles(&p, r.input.count);
    for (size_t i = 0; i < p.segment_count; i++) {
        segment_text(&p, i, got, sizeof got);
        ck_assert_msg(rows[_i].want[i] != NULL && strcmp(got, rows[_i].want[i]) == 0,
                      "%s: segment %zu is '%s'", rows[_i].label, i, got);
    }
    ck_assert_ptr_null(rows[_i].want[p.segment_count]);
    if (rows[_i].diagnostic == NULL)
        ck_assert_msg(p.diagnostic == NULL, "%s: %s", rows[_i].label, p.diagnostic);
    else
        ck_assert_msg(p.diagnostic != NULL && strstr(p.diagnostic, rows[_i].diagnostic) == p.diagnostic,
                      "%s: %s", rows[_i].label, p.diagnostic != NULL ? p.diagnostic : "none");
    ck_assert_int_eq(t.calls, rows[_i].calls);
    md_prompt_done(&p);
}
END_TEST

/* Sends every marker there is: whole messages then. */
START_TEST(all_markers_are_taken)
{
    char all[16 * 13 + 1];
    for (int i = 0; i < 16; i++)
        snprintf(all + 13 * i, 14, "qzmd%08xi", (unsigned)i);
    struct template t = { 0 };
    const struct md_chat_message m[] = { { .role = text("user"), .content = text(all) },
                                         { .role = text("user"), .content = text("x") } };
    const struct md_prompt_request r = { .text = bytes_text(&t), .input = { .messages = m, .count = 2 } };
    struct md_prompt p;
    ck_assert_int_eq(md_prompt_render(&r, NULL, &p, NULL), MD_OK);
    ck_assert(p.segment_count == 2 && p.diagnostic != NULL && t.calls == 3);
    ck_assert_int_eq(p.segments[0].tokens.end, 6 + 16 * 13 + 3);
    md_prompt_done(&p);
}
END_TEST

/* 20,000 messages: as many renderings as for two. */
START_TEST(renderings_do_not_grow_with_messages)
{
    enum { N = 20000 };
    static struct md_chat_message m[N];
    struct md_prompt p;
    for (int i = 0; i < N; i++)
        m[i] = (struct md_chat_message){ .role = text(i % 2 ? "assistant" : "user"),
                                         .content = text("some words") };
    m[0].role = text("system");
    for (int tools = 0; tools < 2; tools++) {
        struct template t = { .how = TOOLS_FIRST };
        struct md_prompt_request r = { .text = bytes_text(&t),
                                       .input = { .messages = m, .count = N, .tools = TOOLS(tools) } };
        ck_assert_int_eq(md_prompt_render(&r, NULL, &p, NULL), MD_OK);
        ck_assert(p.segment_count == (size_t)(N + tools) && p.diagnostic == NULL);
        ck_assert(t.calls == 2 + tools && t.with_tools == 2 * tools);
        prompt_check_tiles(&p, N);
        md_prompt_done(&p);
    }
    /* a template that must be asked message by message is asked for the first ones only */
    struct template t = { .how = TWICE };
    struct md_prompt_request r = { .text = bytes_text(&t), .input = { .messages = m, .count = N } };
    ck_assert_int_eq(md_prompt_render(&r, NULL, &p, NULL), MD_OK);
    ck_assert_uint_eq(p.segment_count, MD_PROMPT_PREFIX_RENDERS + 1);
    ck_assert_int_eq(t.calls, 2 + MD_PROMPT_PREFIX_RENDERS);
    ck_assert_int_eq(p.segments[MD_PROMPT_PREFIX_RENDERS].message_count, N - MD_PROMPT_PREFIX_RENDERS);
    prompt_check_tiles(&p, N);
    md_prompt_done(&p);
}
END_TEST

START_TEST(labels_by_role_and_given)
{
    static const char *const roles[] = { "system", "developer", "user",  "assistant",
                                         "tool",   "system",    "critic" };
    static const struct {
        const char *name;
        enum md_segment_kind kind;
        enum md_cache_class cls;
        bool stable;
    } want[] = {
        { "system", MD_SEGMENT_SYSTEM, MD_CLASS_TASK_PINNED, true },
        { "system", MD_SEGMENT_SYSTEM, MD_CLASS_TASK_PINNED, true },
        { "user", MD_SEGMENT_USER, MD_CLASS_VOLATILE, false },
        { "assistant", MD_SEGMENT_ASSISTANT, MD_CLASS_VOLATILE, false },
        { "tool", MD_SEGMENT_TOOL, MD_CLASS_VOLATILE, false },
        { "system", MD_SEGMENT_SYSTEM, MD_CLASS_VOLATILE, false }, /* a reminder */
        { "critic", MD_SEGMENT_OTHER, MD_CLASS_VOLATILE, false },
    };
    struct md_chat_message m[7];
    struct md_segment_label l[7];
    for (int i = 0; i < 7; i++)
        m[i] = (struct md_chat_message){ .role = text(roles[i]), .content = text("x") };
    md_prompt_labels(m, 7, l);
    for (int i = 0; i < 7; i++)
        ck_assert_msg(is(l[i].name, want[i].name) && l[i].kind == want[i].kind && l[i].cls == want[i].cls &&
                          l[i].stable == want[i].stable && l[i].invalidation == MD_INVALIDATION_NONE,
                      "%d", i);

    /* Given ones are kept, names copied; what shares a segment is as dear as the dearest. */
    char name[] = "now";
    struct template t = { .how = LOOKS | COUNTS };
    l[0] = md_segment_label_of(text(name), true);
    l[0].invalidation = l[1].invalidation = MD_INVALIDATION_ON_TURN;
    l[0].cls = MD_CLASS_VOLATILE;
    l[1].cls = MD_CLASS_REPO_MAP;
    l[1].stable = false;
    m[1].content = text("dot.");
    struct md_prompt_request r = { .text = bytes_text(&t),
                                   .labels = l,
                                   .input = { .messages = m, .count = 2 } };
    struct md_prompt p;
    ck_assert_int_eq(md_prompt_render(&r, NULL, &p, NULL), MD_OK);
    memset(name, 'x', 3);
    ck_assert_uint_eq(p.segment_count, 1);
    const struct md_segment_label *g = &p.segments[0].label;
    ck_assert(is(g->name, "now") && g->cls == MD_CLASS_REPO_MAP && !g->stable &&
              p.segments[0].message_count == 2);
    ck_assert_int_eq(g->invalidation, MD_INVALIDATION_ON_TURN);
    md_prompt_done(&p);
}
END_TEST

START_TEST(refusals)
{
    const struct md_chat_message m[] = { { .role = text("user"), .content = text("Hi") } };
    struct template t = { 0 };
    struct md_err err;
    struct md_prompt p = { .segment_count = 77 };
    struct md_prompt_request r = { .text = bytes_text(&t), .input.messages = m };
    ck_assert_int_eq(md_prompt_render(&r, NULL, &p, &err), MD_INVALID);
    r.input.count = 1;
    r.bytes_max = 10;
    ck_assert_int_eq(md_prompt_render(&r, NULL, &p, &err), MD_TOO_LARGE);
    ck_assert_str_eq(err.text, "the prompt has 11 bytes, more than 10");
    ck_assert_uint_eq(p.bytes, 11);
    t = (struct template){ .how = FAILS, .calls = 1 };
    r.bytes_max = 0;
    ck_assert_int_eq(md_prompt_render(&r, NULL, &p, &err), MD_INVALID);
    ck_assert_str_eq(err.text, "no");

    ck_assert_uint_eq(p.segment_count, 77);
}
END_TEST

/* A remembered turn of the assistant stands in the prompt with its own text and tokens, and its segment holds them:
 * the contents that are marked are those that were rendered. */
START_TEST(remembered_calls_have_their_segment)
{
    static const char given[] = "[{\"id\":\"i\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]";
    static const char raw_turn[] = "CALL f() ";
    const md_token sampled[] = { 'C', 'A', 'L', 'L', ' ', 'f', '(', ')', ' ' };
    const struct md_chat_call call = { text("i"), text("f"), text("{}") };
    const struct md_calls_turn turn = { .lead = text("<assistant>"),
                                        .raw = text(raw_turn),
                                        .tokens = sampled,
                                        .token_count = 9,
                                        .content = text(""),
                                        .calls = &call,
                                        .call_count = 1 };
    const struct md_chat_message m[] = {
        { .role = text("user"), .content = text("q") },
        { .role = text("assistant"), .content = text(""), .tool_calls = text(given) },
        { .role = text("tool"), .content = text("42") },
    };
    struct template t = { .how = TOOLS_FIRST };
    struct md_prompt_request r = { .text = bytes_text(&t),
                                   .input = { .messages = m, .count = 3, .tools = TOOLS(true) } };
    struct md_prompt p;
    char got[100];
    ck_assert_int_eq(md_calls_open(10, 10000, NULL, &r.calls, NULL), MD_OK);
    ck_assert_int_eq(md_calls_remember(r.calls, &turn, NULL), MD_OK);
    ck_assert_int_eq(md_prompt_render(&r, NULL, &p, NULL), MD_OK);
    static const char *const want[] = { "tools|{tools}", "user|<user>q", "assistant|</><assistant>CALL f() ",
                                        "tool|</><tool>42</>" };
    ck_assert_uint_eq(p.segment_count, 4);
    ck_assert_ptr_null(p.diagnostic);
    for (size_t i = 0; i < 4; i++) {
        segment_text(&p, i, got, sizeof got);
        ck_assert_str_eq(got, want[i]);
    }
    ck_assert_int_eq(t.calls, 3); /* the prompt, the marked one, the one without tools */
    md_prompt_done(&p);
    md_calls_close(r.calls);
}
END_TEST

/* Tools that come behind something volatile are not stable: stable segments come first. */
START_TEST(tools_are_as_stable_as_what_is_before_them)
{
    const struct md_chat_message m[] = { { .role = text("system"), .content = text("a") },
                                         { .role = text("user"), .content = text("b") } };
    for (int stable = 0; stable < 2; stable++) {
        struct template t = { .how = TOOLS_AFTER };
        struct md_segment_label l[2];
        struct md_prompt p;
        md_prompt_labels(m, 2, l);
        l[0].stable = stable;
        const struct md_prompt_request r = { .text = bytes_text(&t),
                                             .labels = l,
                                             .input = { .messages = m, .count = 2, .tools = TOOLS(true) } };
        ck_assert_int_eq(md_prompt_render(&r, NULL, &p, NULL), MD_OK);
        ck_assert(p.segment_count == 3 && p.segments[1].label.kind == MD_SEGMENT_TOOLS);
        ck_assert_int_eq(p.segments[1].label.stable, stable);
        md_prompt_done(&p);
    }
}
END_TEST

/* ---- any contents ---- */

START_TEST(walk)
{
    static const char *const bits[] = { "a",
                                        "word",
                                        " ",
                                        "\n",
                                        "<user>",
                                        "</>",
                                        "q",
                                        "qzmd",
                                        "qzmd0000",
                                        "0000i",
                                        "qzmd00000000i",
                                        "00000000e",
                                        ".",
                                        "\xc3\xa4",
                                        "{tools}",
                                        "qzmd00000001i00000001e" };
    struct rng rng = rng_open("prompt_walk");
    for (int round = 0; round < 3000; round++) {
        static char contents[12][256];
        struct md_chat_message m[12];
        const size_t n = 1 + rng_below(&rng, 12);
        for (size_t i = 0; i < n; i++) {
            contents[i][0] = '\0';
            for (uint32_t k = rng_below(&rng, 8); k > 0; k--)
                strcat(contents[i], bits[rng_below(&rng, sizeof bits / sizeof bits[0])]);
            m[i] = (struct md_chat_message){ .role = text("user"), .content = text(contents[i]) };
        }
        struct template t = { .how = rng_below(&rng, 2) ? TRIM : 0 };
        const struct md_prompt_request r = {
            .text = bytes_text(&t),
            .input = { .messages = m, .count = n, .add_generation_prompt = rng_below(&rng, 2) }
        };
        struct md_prompt p;
        ck_assert_int_eq(md_prompt_render(&r, NULL, &p, NULL), MD_OK);
        prompt_check_tiles(&p, n);
        ck_assert_uint_eq(p.segment_count, n);
        ck_assert(p.diagnostic == NULL && t.calls == 2);
        /* The template noted where contents end; blank ones have no end of their own. */
        for (size_t i = 0; i < n; i++) {
            const struct md_prompt_segment *g = &p.segments[i];
            const size_t want = trim(m[i].content).len > 0 ? t.content_ends[i] : (size_t)g->tokens.start;
            ck_assert_msg((size_t)(g->tokens.start + g->body_tokens) == want, "round %d, message %zu", round,
                          i);
        }
        md_prompt_done(&p);
    }
}
END_TEST

START_TEST(allocations_fail)
{
    static const unsigned hows[] = { TOOLS_FIRST, TOOLS_FIRST | TWICE };
    for (size_t k = 0; k < 2; k++) {
        enum md_status s = MD_NO_MEMORY;
        int runs = 0;
        for (long nth = 1; s != MD_OK; nth++, runs++) {
            struct fault_alloc f;
            struct template t = { .how = hows[k] };
            const struct md_chat_message m[] = { { .role = text("system"), .content = text("Be.") },
                                                 { .role = text("user"), .content = text("Hi") } };
            const struct md_prompt_request r = {
                .text = bytes_text(&t), .input = { .messages = m, .count = 2, .tools = TOOLS(true) }
            };
            struct md_prompt p = { .segment_count = 77 };
            fault_alloc_init(&f, nth);
            s = md_prompt_render(&r, &f.alloc, &p, NULL);
            ck_assert(s == (f.failed ? MD_NO_MEMORY : MD_OK));
            ck_assert_uint_eq(p.segment_count, s == MD_OK ? 3 : 77);
            if (s == MD_OK)
                md_prompt_done(&p);
            ck_assert_uint_eq(f.live_blocks, 0);
        }
        ck_assert_int_ge(runs, 10);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("prompt");
    TCase *t = tcase_create("prompt");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, templates, 0, (int)(sizeof rows / sizeof rows[0]));
    tcase_add_test(t, all_markers_are_taken);
    tcase_add_test(t, renderings_do_not_grow_with_messages);
    tcase_add_test(t, labels_by_role_and_given);
    tcase_add_test(t, refusals);
    tcase_add_test(t, remembered_calls_have_their_segment);
    tcase_add_test(t, tools_are_as_stable_as_what_is_before_them);
    tcase_add_test(t, walk);
    tcase_add_test(t, allocations_fail);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
