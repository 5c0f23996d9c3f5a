/* test_match.c - known blocks in new text: rows, a walk against a naive search, and the work of bad cases. */
#include "policy/match.h"
#include "policy/content.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { KNOWN_MAX = 40, TEXT_MAX = 300 };

/* What is known: blocks of one length, searched one after the other; counts how often it is asked. */
struct known {
    int32_t block_tokens;
    size_t count;
    md_token tokens[KNOWN_MAX][TEXT_MAX];
    uint64_t keys[KNOWN_MAX];
    int64_t asked;
    const md_token *text; /* of the search: each place is asked for once, ascending */
    int32_t last_place;
};

static void know(struct known *k, const md_token *tokens)
{
    memcpy(k->tokens[k->count], tokens, (size_t)k->block_tokens * sizeof *tokens);
    k->keys[k->count++] = md_content_key(tokens, (size_t)k->block_tokens);
}

static const void *naive_at(const struct known *k, const md_token *tokens)
{
    for (size_t i = 0; i < k->count; i++)
        if (memcmp(k->tokens[i], tokens, (size_t)k->block_tokens * sizeof *tokens) == 0)
            return &k->tokens[i];
    return NULL;
}

static const void *look_up(void *user, uint64_t content, const md_token *tokens,
                           const struct md_match *before)
{
    struct known *k = user;
    int32_t place = (int32_t)(tokens - k->text);
    k->asked++;
    ck_assert_int_gt(place, k->last_place);
    k->last_place = place;
    ck_assert_uint_eq(content, md_content_key(tokens, (size_t)k->block_tokens));
    if (before != NULL)
        ck_assert_int_eq(before->start + k->block_tokens, place);
    return naive_at(k, tokens);
}

/* As the header says it, place by place, from scratch at each. */
static size_t naive(const struct known *k, const md_token *text, int32_t count, struct md_match *ret)
{
    size_t n = 0;
    for (int32_t at = 0; at + k->block_tokens <= count;) {
        const void *known = naive_at(k, text + at);
        if (known != NULL)
            ret[n++] = (struct md_match){ at, known };
        at += known != NULL ? k->block_tokens : 1;
    }
    return n;
}

static size_t match(struct known *k, const md_token *text, int32_t count, struct md_match *ret)
{
    k->asked = 0;
    k->text = text;
    k->last_place = -1;
    return md_match_blocks(text, count, k->block_tokens, look_up, k, ret);
}

static struct known *known_of(int32_t block_tokens)
{
    struct known *k = calloc(1, sizeof *k);
    k->block_tokens = block_tokens;
    return k;
}

/* Texts are letters; "known" are blocks of three of them, apart by blanks. */
START_TEST(rows_of_letters)
{
    static const struct {
        const char *label, *known, *text, *want; /* want: '#' where a match begins */
    } rows[] = {
        { "nothing known", "", "abcabc", "" },
        { "no text", "abc", "", "" },
        { "shorter than a block", "abc", "ab", "" },
        { "just it", "abc", "abc", "#" },
        { "one token before", "abc", "xabc", " #" },
        { "one token behind", "abc", "abcx", "#" },
        { "at the end", "abc", "xyzxyabc", "     #" },
        { "two that follow", "abc def", "abcdef", "#  #" },
        { "two that follow, shifted", "abc def", "xxabcdefx", "  #  #" },
        { "something between", "abc def", "abcxdef", "#   #" },
        { "the same twice", "abc", "abcabc", "#  #" },
        { "the left one of two that overlap", "abc bcd", "abcd", "#" },
        { "greedy, though less is matched", "abc bcd efg", "abcdefg", "#   #" },
        { "all equal", "aaa", "aaaaaaaa", "#  #" },
        { "period below a block", "aba", "abababab", "#   #" },
        { "a match that nearly is", "abc", "ababdabc", "     #" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct known *k = known_of(3);
        md_token text[16], block[3];
        struct md_match got[16];
        int32_t count = (int32_t)strlen(rows[i].text);
        for (const char *p = rows[i].known; *p != '\0'; p += p[3] == ' ' ? 4 : 3) {
            for (int j = 0; j < 3; j++)
                block[j] = p[j];
            know(k, block);
        }
        for (int32_t j = 0; j < count; j++)
            text[j] = rows[i].text[j];
        size_t n = match(k, text, count, got), at = 0;
        for (size_t j = 0; j < strlen(rows[i].want); j++)
            if (rows[i].want[j] == '#')
                ck_assert_msg(at < n && got[at++].start == (int32_t)j, "%s: match %zu", rows[i].label, at);
        ck_assert_msg(at == n, "%s: %zu", rows[i].label, n);
        free(k);
    }
}
END_TEST

START_TEST(walk_against_naive)
{
    struct rng r = rng_open("match walk");
    struct known *k = calloc(1, sizeof *k);
    int64_t matches = 0, adjacent = 0;
    for (int round = 0; round < 1500; round++) {
        md_token text[TEXT_MAX];
        struct md_match got[TEXT_MAX], want[TEXT_MAX];
        int32_t count = (int32_t)rng_below(&r, TEXT_MAX + 1);
        uint32_t kinds = 1 + rng_below(&r, 4);
        k->block_tokens = 1 + (int32_t)rng_below(&r, 12);
        k->count = 0;
        for (int32_t i = 0; i < TEXT_MAX; i++)
            text[i] = (md_token)rng_below(&r, kinds);
        uint32_t blocks = rng_below(&r, KNOWN_MAX);
        for (uint32_t i = 0; i < blocks; i++) /* pieces of the text, or of its like */
            know(k, text + rng_below(&r, TEXT_MAX - (uint32_t)k->block_tokens));
        if (rng_below(&r, 2))
            for (int32_t i = 0; i < TEXT_MAX; i += 17)
                text[i] = (md_token)rng_below(&r, kinds + 1);
        size_t n = match(k, text, count, got), m = naive(k, text, count, want);
        ck_assert_msg(n == m && n <= (size_t)(count / k->block_tokens), "round %d: %zu, %zu", round, n, m);
        for (size_t i = 0; i < n; i++) {
            ck_assert_msg(got[i].start == want[i].start && got[i].known == want[i].known, "round %d", round);
            adjacent += i > 0 && got[i].start == got[i - 1].start + k->block_tokens;
        }
        ck_assert_int_le(k->asked, count);
        matches += (int64_t)n;
    }
    ck_assert(matches > 3000 && adjacent > 300);
    free(k);
}
END_TEST

/* The place after a match is asked for with that match, any other without. */
static const void *want_before(void *user, uint64_t content, const md_token *tokens,
                               const struct md_match *before)
{
    const md_token *text = user;
    (void)content;
    ck_assert(before == NULL || before->start + 2 == tokens - text);
    ck_assert((before != NULL) == (tokens - text == 3 || tokens - text == 5));
    if (before != NULL) /* its own answer comes back */
        ck_assert_ptr_eq(before->known, text + before->start);
    return tokens[0] == 7 ? tokens : NULL;
}

START_TEST(a_match_is_told_to_its_neighbour)
{
    static md_token text[] = { 0, 7, 1, 7, 1, 0, 0, 0 };
    struct md_match got[4];
    ck_assert_uint_eq(md_match_blocks(text, 8, 2, want_before, text, got), 2);
    ck_assert(got[0].start == 1 && got[1].start == 3);
}
END_TEST

/* Counts and finds nothing, or all, or only what begins with the token `only`. */
struct counter {
    int64_t asked;
    md_token only;
    bool all;
};

static const void *count_up(void *user, uint64_t content, const md_token *tokens,
                            const struct md_match *before)
{
    struct counter *c = user;
    (void)content;
    (void)before;
    c->asked++;
    return c->all || tokens[0] == c->only ? c : NULL;
}

/* A million tokens of the texts that make naive searches quadratic: at most one question a place, and within the
 * time limit, which a block's worth of work a place would not keep (10^6 x 65536 steps are minutes). */
START_TEST(bad_texts_are_linear)
{
    enum { N = 1000000, BLOCK = 65536 };
    md_token *text = calloc(N, sizeof *text);
    struct md_match *got = calloc(N / BLOCK, sizeof *got);
    struct counter c = { .only = 5 };
    ck_assert_uint_eq(md_match_blocks(text, N, BLOCK, count_up, &c, got), 0); /* all equal, nothing known */
    ck_assert_int_eq(c.asked, N - BLOCK + 1);

    c = (struct counter){ .all = true };
    ck_assert_uint_eq(md_match_blocks(text, N, BLOCK, count_up, &c, got), N / BLOCK); /* all equal, known */
    ck_assert_int_eq(c.asked, N / BLOCK);

    for (int32_t i = 0; i < N; i++) /* a period of seven, known at one place of each */
        text[i] = i % 7;
    c = (struct counter){ .only = 5 };
    size_t n = md_match_blocks(text, N, BLOCK, count_up, &c, got);
    ck_assert_int_le(c.asked, N);
    ck_assert(n >= 14 && n <= N / BLOCK);
    free(text);
    free(got);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("match");
    TCase *t = tcase_create("match");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, rows_of_letters);
    tcase_add_test(t, walk_against_naive);
    tcase_add_test(t, a_match_is_told_to_its_neighbour);
    tcase_add_test(t, bad_texts_are_linear);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
