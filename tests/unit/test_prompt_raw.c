/* test_prompt_raw.c - prompts of raw text: limits, segments by bytes, and tokens laid along the bytes they were made
 * of, by tokenizers that give a fixed list of pieces.  Chats: test_prompt.c. */
#include "session/prompt.h"
#include "support/prompt_check.h"
#include "support/run_suite.h"

#include <check.h>
#include <string.h>

static struct md_bytes text(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

/* ---- a tokenizer: bytes, or a fixed list of pieces ---- */

struct tokenizer {
    struct md_text base;
    const char *const *pieces; /* NULL: each byte is a token */
    int count;
};

static enum md_status tokenize(const struct md_text *t, struct md_bytes in, bool add_special,
                               bool parse_special, struct md_tokens *ret, struct md_err *err)
{
    const struct tokenizer *k = (const struct tokenizer *)t;
    (void)add_special;
    ck_assert(parse_special);
    const size_t n = k->pieces != NULL ? (size_t)k->count : in.len;
    enum md_status s = MD_OK;
    for (size_t i = 0; i < n && s == MD_OK; i++) {
        const md_token id = k->pieces != NULL ? (md_token)i : (md_token)((const uint8_t *)in.data)[i];
        s = md_tokens_append(ret, &id, 1, err);
    }
    return s;
}

static enum md_status piece(const struct md_text *t, md_token token, bool special, struct md_buf *ret,
                            struct md_err *err)
{
    const struct tokenizer *k = (const struct tokenizer *)t;
    ck_assert(special);
    if (k->pieces != NULL)
        return md_buf_append(ret, k->pieces[token], strlen(k->pieces[token]), err);
    const uint8_t byte = (uint8_t)token;
    return md_buf_append(ret, &byte, 1, err);
}

static const struct md_text_ops tokenizer_ops = { .name = "test", .tokenize = tokenize, .piece = piece };
static const struct tokenizer bytes_text = { .base = { .ops = &tokenizer_ops, .info.vocab_count = 256 } };

static enum md_status raw(const struct md_text *from, const char *prompt,
                          const struct md_segment_label *labels, const size_t *ends, size_t count,
                          struct md_prompt *ret, struct md_err *err)
{
    const struct md_prompt_raw_request r = { .text = from,
                                             .prompt = text(prompt),
                                             .add_special = true,
                                             .labels = labels,
                                             .byte_ends = ends,
                                             .count = count };
    return md_prompt_raw(&r, NULL, ret, err);
}

/* ---- limits, and what a context gets ---- */

START_TEST(refusals)
{
    struct md_err err;
    struct md_prompt p = { .segment_count = 77 };
    const struct md_segment_label l[2] = { 0 };
    static const size_t ends[][2] = { { 5, 4 }, { 2, 3 }, { 2, 5 } };
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(raw(&bytes_text.base, "abcd", l, ends[i], 2, &p, &err), MD_INVALID);
    ck_assert_str_eq(err.text, "2 segments end at byte 5, the prompt has 4");
    ck_assert_uint_eq(p.segment_count, 77);
}
END_TEST

START_TEST(what_cannot_fit_is_not_tokenized)
{
    struct md_text any = bytes_text.base;
    const struct md_prompt_raw_request r = { .text = &any, .prompt = text("abcdef"), .bytes_max = 5 };
    struct md_prompt p = { 0 };
    /* 3 tokens of at most 4 bytes are 12: one byte less may be fewer */
    any.info.longest_piece_bytes = 4;
    ck_assert_uint_eq(md_prompt_bytes_max(&any, 3), 11);
    ck_assert_uint_eq(md_prompt_bytes_max(&any, INT32_MAX), MD_PROMPT_BYTES_MAX);
    any.info.longest_piece_bytes = 0; /* not known */
    ck_assert_uint_eq(md_prompt_bytes_max(&any, 3), MD_PROMPT_BYTES_MAX);
    ck_assert_int_eq(md_prompt_raw(&r, NULL, &p, NULL), MD_TOO_LARGE);
    ck_assert_uint_eq(p.bytes, 6);
    ck_assert_ptr_null(p.tokens.ids);
}
END_TEST

START_TEST(raw_text_without_segments)
{
    struct md_prompt p;
    ck_assert_int_eq(raw(&bytes_text.base, "abc", NULL, NULL, 0, &p, NULL), MD_OK);
    ck_assert(p.tokens.count == 3 && p.segment_count == 0 && p.bytes == 3);
    md_prompt_done(&p);
    ck_assert_int_eq(raw(&bytes_text.base, "", NULL, NULL, 0, &p, NULL), MD_OK);
    ck_assert_uint_eq(p.tokens.count, 0);
    md_prompt_done(&p);
}
END_TEST

START_TEST(segments_of_a_context)
{
    struct md_segment_label l[3] = { md_segment_label_of(text("system"), true),
                                     md_segment_label_of(text("a name of thirty-one characters"), false),
                                     md_segment_label_of(text("a name of thirty-two characters."), false) };
    static const size_t ends[] = { 1, 3, 6 };
    struct md_segment g[3];
    struct md_prompt p;
    l[1].invalidation = MD_INVALIDATION_ON_EDIT;
    l[2].cls = MD_CLASS_REPO_MAP;
    ck_assert_int_eq(raw(&bytes_text.base, "abcdef", l, ends, 3, &p, NULL), MD_OK);
    md_prompt_segments(&p, g);
    md_prompt_done(&p); /* they are copies */
    ck_assert(g[0].range.start == 0 && g[0].range.end == 1 && g[2].range.start == 3 && g[2].range.end == 6);
    ck_assert(g[0].stable && g[0].kind == MD_SEGMENT_SYSTEM && g[0].cls == MD_CLASS_TASK_PINNED);
    ck_assert(!g[1].stable && g[1].invalidation == MD_INVALIDATION_ON_EDIT);
    ck_assert(g[2].cls == MD_CLASS_REPO_MAP && g[2].invalidation == MD_INVALIDATION_NONE);
    ck_assert_str_eq(g[0].name, "system");
    ck_assert_str_eq(g[1].name, "a name of thirty-one characters");
    ck_assert_str_eq(g[2].name, "other");
}
END_TEST

/* ---- tokens that are not the bytes ---- */

#define SPACE "\xe2\x96\x81" /* U+2581 */

static const struct {
    const char *label, *prompt;
    const char *pieces[16];
    size_t ends[4];
    int count;
    int32_t want[4]; /* tokens that begin before each end; the last gets all */
    bool aligned;
} tokenizers[] = {
    { "exact", "ab cd", { "ab", " cd" }, { 2, 5 }, 2, { 1, 2 }, true },
    { "straddles", "ab cd", { "ab", " cd" }, { 3, 5 }, 2, { 2, 2 }, true },
    { "two ends in one token", "abcd", { "a", "bcd" }, { 2, 3, 4 }, 3, { 2, 2, 2 }, true },
    { "empty segments", "ab", { "a", "b" }, { 0, 1, 1, 2 }, 4, { 0, 1, 1, 2 }, true },
    { "first token put in", "ab", { "<s>", "a", "b" }, { 1, 2 }, 2, { 2, 3 }, true },
    { "first token put in, empty first", "ab", { "<s>", "a", "b" }, { 0, 2 }, 2, { 0, 3 }, true },
    { "space put in", "ab cd", { " ab", " cd" }, { 2, 5 }, 2, { 1, 2 }, true },
    { "space put in before the same", "aa", { " a", "a" }, { 1, 2 }, 2, { 1, 2 }, true },
    { "U+2581 as a space before the same",
      "a" SPACE "bb",
      { "a", " b", "b" },
      { 1, 5, 6 },
      3,
      { 1, 2, 3 },
      true },
    { "blanks dropped before the same", "a  bb", { "a", "b", "b" }, { 3, 4, 5 }, 3, { 2, 2, 3 }, true },
    { "space put in alone", "ab cd", { " ", "ab", " cd" }, { 2, 5 }, 2, { 2, 3 }, true },
    { "after a space that is there", " ab", { " ", " ab" }, { 1, 3 }, 2, { 1, 2 }, true },
    { "after each control token",
      "<u>hi<e>ho",
      { "<u>", " hi", "<e>", " ho" },
      { 5, 10 },
      2,
      { 2, 4 },
      true },
    { "first token and space", "hi ho", { "<s>", " hi", " ho" }, { 2, 5 }, 2, { 2, 3 }, true },
    { "spaces as U+2581", "a  b", { "a", SPACE SPACE, "b" }, { 1, 4 }, 2, { 1, 3 }, true },
    { "U+2581 as bytes",
      "a  b c",
      { "a", "\xe2", "\x96", "\x81", "\xe2", "\x96", "\x81", "b", "\xe2", "\x96", "\x81", "c" },
      { 1, 2, 3, 6 },
      4,
      { 1, 4, 7, 12 },
      true },
    { "U+2581 as a space", "a" SPACE "b", { "a", " b" }, { 1, 5 }, 2, { 1, 2 }, true },
    { "bytes of a character",
      "\xe2\x82\xac!",
      { "\xe2", "\x82", "\xac", "!" },
      { 1, 3, 4 },
      3,
      { 1, 3, 4 },
      true },
    { "blanks dropped", "a \n<e>b", { "a", "<e>", "b" }, { 1, 3, 7 }, 3, { 1, 2, 3 }, true },
    { "blanks dropped at the end", "ab \n", { "a", "b" }, { 1, 4 }, 2, { 1, 2 }, true },
    { "unknown",
      "a\xe2\x82\xac"
      "b c",
      { "a", "<unk>", "b", " c" },
      { 1, 4, 7 },
      3,
      { 1, 2, 4 },
      true },
    { "two unknown",
      "a\xe2\x82\xac\xe2\x82\xac"
      "b",
      { "a", "<unk>", "<unk>", "b" },
      { 7, 8 },
      2,
      { 3, 4 },
      true },
    { "unknown at the end", "a\xe2\x82\xac", { "a", "<unk>" }, { 1, 4 }, 2, { 1, 2 }, true },
    { "tokens without bytes", "ab", { "", "a", "", "b", "" }, { 1, 2 }, 2, { 2, 5 }, true },
    { "no tokens for all of it", "abc", { "a", "b" }, { 1, 3 }, 2, { 0 }, false },
    { "another text",
      "ABCDEFGHIJKL",
      { "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l" },
      { 1, 12 },
      2,
      { 0 },
      false },
};

START_TEST(laid_along_the_prompt)
{
    int pieces = 0;
    while (pieces < 16 && tokenizers[_i].pieces[pieces] != NULL)
        pieces++;
    const struct tokenizer k = { { .ops = &tokenizer_ops, .info.vocab_count = 256 },
                                 tokenizers[_i].pieces,
                                 pieces };
    struct md_segment_label l[4];
    struct md_prompt p;
    struct md_err err;
    for (int i = 0; i < 4; i++)
        l[i] = md_segment_label_of(text("user"), false);
    ck_assert_msg(raw(&k.base, tokenizers[_i].prompt, l, tokenizers[_i].ends, (size_t)tokenizers[_i].count,
                      &p, &err) == MD_OK,
                  "%s", err.text);
    prompt_check_tiles(&p, (size_t)tokenizers[_i].count);
    ck_assert_uint_eq(p.tokens.count, (size_t)pieces);
    ck_assert_int_eq(p.diagnostic == NULL, tokenizers[_i].aligned);
    if (!tokenizers[_i].aligned) {
        ck_assert_uint_eq(p.segment_count, 1);
        ck_assert_ptr_nonnull(strstr(p.diagnostic, "all of it is one segment"));
    } else {
        ck_assert_int_eq((int)p.segment_count, tokenizers[_i].count);
    }
    for (int i = 0; i + 1 < (int)p.segment_count; i++)
        ck_assert_msg(p.segments[i].tokens.end == tokenizers[_i].want[i], "%s: %d ends at %d",
                      tokenizers[_i].label, i, p.segments[i].tokens.end);
    md_prompt_done(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("prompt_raw");
    TCase *t = tcase_create("prompt_raw");
    tcase_add_test(t, refusals);
    tcase_add_test(t, what_cannot_fit_is_not_tokenized);
    tcase_add_test(t, raw_text_without_segments);
    tcase_add_test(t, segments_of_a_context);
    tcase_add_loop_test(t, laid_along_the_prompt, 0, (int)(sizeof tokenizers / sizeof tokenizers[0]));
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
