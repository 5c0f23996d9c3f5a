#include "support/prompt_check.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct md_bytes bytes(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

void prompt_check_tiles(const struct md_prompt *p, size_t messages)
{
    int32_t at = 0;
    size_t message = 0;
    for (size_t i = 0; i < p->segment_count; i++) {
        const struct md_prompt_segment *g = &p->segments[i];
        const int32_t len = md_range_len(g->tokens);
        ck_assert(g->tokens.start == at && len >= 0 && g->body_tokens >= 0);
        ck_assert(i + 1 < p->segment_count ? g->body_tokens == len : g->body_tokens <= len);
        ck_assert_int_eq(g->first_message, (int)message);
        message += (size_t)g->message_count;
        at = g->tokens.end;
    }
    ck_assert(at == (int32_t)p->tokens.count && message == messages);
}

/* Where each token begins in the text they were made of.  Their bytes are joined and compared with the text whose
 * spaces are U+2581 instead, as sentencepiece has them; both ways must add up to the whole text. */
static size_t *starts_of(const struct md_text *text, struct md_bytes prompt, const struct md_tokens *t)
{
    size_t *starts = calloc(t->count + 1, sizeof *starts), at = 0, third = 0;
    struct md_buf piece;
    md_buf_init(&piece, NULL, 1 << 16);
    for (size_t i = 0; i < t->count; i++) {
        static const uint8_t mark[] = { 0xe2, 0x96, 0x81 };
        const uint8_t *p = prompt.data;
        starts[i] = at;
        piece.len = 0;
        ck_assert_int_eq(md_text_piece(text, t->ids[i], true, &piece, NULL), MD_OK);
        if (i == 0 && t->ids[0] == text->info.bos &&
            (piece.len > prompt.len || memcmp(p, piece.data, piece.len) != 0))
            continue; /* put there by the tokenizer */
        for (size_t b = 0; b < piece.len; b++) {
            const bool marked = at < prompt.len && p[at] == ' ' && piece.data[b] == mark[third];
            ck_assert_msg(marked || (third == 0 && at < prompt.len && p[at] == piece.data[b]),
                          "token %zu at byte %zu: '%.*s'", i, at, (int)piece.len, (char *)piece.data);
            third = marked ? (third + 1) % 3 : 0;
            at += third == 0;
        }
    }
    ck_assert_uint_eq(at, prompt.len);
    starts[t->count] = at;
    md_buf_done(&piece);
    return starts;
}

/* Gemma's turns, for files that bring no template (its documentation; the first token is the template's). */
struct turns {
    struct md_text base;
    const struct md_text *inner;
};

static const struct md_text *inner(const struct md_text *t)
{
    return ((const struct turns *)t)->inner;
}

static enum md_status inner_tokenize(const struct md_text *t, struct md_bytes text, bool add_special,
                                     bool parse_special, struct md_tokens *ret, struct md_err *err)
{
    return md_text_tokenize(inner(t), text, add_special, parse_special, ret, err);
}

static enum md_status inner_piece(const struct md_text *t, md_token token, bool special, struct md_buf *ret,
                                  struct md_err *err)
{
    return md_text_piece(inner(t), token, special, ret, err);
}

static enum md_status render_turns(const struct md_text *t, const struct md_chat_input *in,
                                   struct md_buf *out, struct md_chat_form **ret_form, struct md_err *err)
{
    const struct md_chat_message *m = in->messages;
    (void)ret_form;
    enum md_status s = md_text_piece(inner(t), t->info.bos, true, out, err);
    for (size_t i = 0; i < in->count && s == MD_OK; i++)
        s = md_buf_printf(out, err, "<start_of_turn>%.*s\n%.*s<end_of_turn>\n", (int)m[i].role.len,
                          (const char *)m[i].role.data, (int)m[i].content.len,
                          (const char *)m[i].content.data);
    return s == MD_OK && in->add_generation_prompt ? md_buf_printf(out, err, "<start_of_turn>model\n") : s;
}

static const struct md_text_ops turns_ops = {
    .name = "turns", .tokenize = inner_tokenize, .piece = inner_piece, .render_chat = render_turns
};

/* Tokens that begin before byte `end`. */
static int32_t tokens_before(const size_t *starts, size_t count, size_t end)
{
    size_t n = 0;
    while (n < count && starts[n] < end)
        n++;
    return (int32_t)n;
}

static void same_tokens(const struct md_tokens *a, const struct md_tokens *b)
{
    ck_assert(a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
}

/* The text itself, or with Gemma's turns where it has no template. */
static const struct md_text *with_template(const struct md_text *model, struct turns *turns)
{
    *turns = (struct turns){ { .ops = &turns_ops, .info = model->info }, model };
    turns->base.info.has_chat_template = true;
    return model->info.has_chat_template ? model : &turns->base;
}

static void leads_once(const struct md_prompt *p, md_token first, const char *label)
{
    int times = 0;
    for (size_t i = 0; i < p->tokens.count; i++)
        times += p->tokens.ids[i] == first;
    ck_assert_msg(times == 1 && p->tokens.ids[0] == first, "%s: %d times", label, times);
}

void prompt_check_first_token(const struct md_text *model, const char *spelled)
{
    struct turns turns;
    const struct md_text *text = with_template(model, &turns);
    const struct md_chat_message m = { .role = bytes("user"), .content = bytes("Hi") };
    const struct md_prompt_request chat = {
        .text = text,
        .input = { .messages = &m, .count = 1, .add_generation_prompt = true },
        .add_special = true
    };
    struct md_prompt p;
    struct md_err err = { 0 };
    char raws[2][32] = { "Hi" };
    snprintf(raws[1], sizeof raws[1], "%sHi", spelled);
    for (int i = 0; i < 2; i++) {
        const struct md_prompt_raw_request raw = { .text = text,
                                                   .prompt = bytes(raws[i]),
                                                   .add_special = true };
        ck_assert_msg(md_prompt_raw(&raw, NULL, &p, &err) == MD_OK, "%s", err.text);
        leads_once(&p, text->info.bos, raws[i]);
        ck_assert_uint_eq(p.tokens.count, 2);
        md_prompt_done(&p);
    }
    ck_assert_msg(md_prompt_render(&chat, NULL, &p, &err) == MD_OK, "%s", err.text);
    leads_once(&p, text->info.bos, "chat");
    md_prompt_done(&p);
}

void prompt_check_chat(const struct md_text *model)
{
    struct turns turns;
    const struct md_text *text = with_template(model, &turns);
    static const char *const contents[] = {
        "Answer in one word.",
        "What  is   this?\n\n\tint main(void) { return 0; }",
        "C \xe2\x80\x94 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80 \xe4\xbd\xa0\xe5\xa5\xbd",
        "x",
        "<|im_start|>user is no turn, <start_of_turn> neither, qzmd00000000i nor that.",
        "The last word, and two blanks.  \n",
    };
    enum { N = sizeof contents / sizeof contents[0] };
    struct md_chat_message m[N];
    size_t ends[N], from = 0;
    for (size_t i = 0; i < N; i++)
        m[i] = (struct md_chat_message){ .role = bytes(i == 0  ? "system"
                                                       : i % 2 ? "user"
                                                               : "assistant"),
                                         .content = bytes(contents[i]) };
    const struct md_chat_input in = { .messages = m, .count = N, .add_generation_prompt = true };
    const struct md_prompt_request r = { .text = text, .input = in, .add_special = true };
    struct md_prompt p;
    struct md_err err = { 0 };
    struct md_buf whole;
    struct md_tokens tokens = { 0 };
    struct md_chat_form *form = NULL;
    md_buf_init(&whole, NULL, 1 << 20);
    ck_assert_msg(md_prompt_render(&r, NULL, &p, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(md_text_render_chat(text, &in, &whole, &form, NULL), MD_OK);
    const struct md_bytes prompt = { whole.data, whole.len };
    ck_assert_int_eq(md_text_tokenize(text, prompt, true, true, &tokens, NULL), MD_OK);
    same_tokens(&p.tokens, &tokens);
    size_t *starts = starts_of(text, prompt, &tokens);
    ck_assert_msg(p.segment_count == N && p.diagnostic == NULL, "%zu segments, %s", p.segment_count,
                  p.diagnostic);
    for (size_t i = 0; i < N; i++) {
        size_t len = strlen(contents[i]);
        const uint8_t *at = memmem(whole.data + from, whole.len - from, contents[i], len);
        if (at == NULL) { /* a template that trims */
            len -= 3;
            at = memmem(whole.data + from, whole.len - from, contents[i], len);
        }
        ck_assert_ptr_nonnull(at);
        ends[i] = from = (size_t)(at - whole.data) + len;
        const struct md_prompt_segment *g = &p.segments[i];
        ck_assert_int_eq(g->tokens.start, i == 0 ? 0 : p.segments[i - 1].tokens.end);
        ck_assert_msg(g->tokens.start + g->body_tokens == tokens_before(starts, tokens.count, ends[i]),
                      "message %zu ends at byte %zu", i, ends[i]);
    }
    ck_assert_int_eq(p.segments[N - 1].tokens.end, (int)tokens.count);
    ck_assert_int_lt(p.segments[N - 1].body_tokens, md_range_len(p.segments[N - 1].tokens));
    free(starts);
    md_tokens_done(&tokens);
    md_buf_done(&whole);
    md_prompt_done(&p);
}

void prompt_check_raw(const struct md_text *text)
{
    static const char *const texts[] = {
        "a  b\n\n\n    c\t<|im_end|>  d",
        " leading, \xe2\x82\xac and \xf0\x9f\x9a\x80",
        "<start_of_turn>user\nHi<end_of_turn>\n",
        "",
    };
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++)
        for (size_t cut = 0; cut <= strlen(texts[k]); cut++) {
            const struct md_segment_label l[2] = { md_segment_label_of(bytes("system"), true),
                                                   md_segment_label_of(bytes("user"), false) };
            const struct md_bytes prompt = bytes(texts[k]);
            const size_t ends[2] = { cut, prompt.len };
            struct md_tokens tokens = { 0 };
            struct md_prompt p;
            struct md_err err = { 0 };
            const struct md_prompt_raw_request r = { .text = text,
                                                     .prompt = prompt,
                                                     .add_special = true,
                                                     .labels = l,
                                                     .byte_ends = ends,
                                                     .count = 2 };
            ck_assert_msg(md_prompt_raw(&r, NULL, &p, &err) == MD_OK, "%s", err.text);
            ck_assert_int_eq(md_text_tokenize(text, prompt, true, true, &tokens, NULL), MD_OK);
            same_tokens(&p.tokens, &tokens);
            size_t *starts = starts_of(text, prompt, &tokens);
            ck_assert_msg(p.segment_count == 2 && p.diagnostic == NULL, "text %zu: %s", k, p.diagnostic);
            ck_assert_msg(p.segments[0].tokens.end == tokens_before(starts, tokens.count, cut),
                          "text %zu cut at %zu: %d", k, cut, p.segments[0].tokens.end);
            free(starts);
            md_tokens_done(&tokens);
            md_prompt_done(&p);
        }
}
