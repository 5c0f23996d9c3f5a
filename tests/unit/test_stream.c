/* test_stream.c - pieces to text: B082 (whole characters), B091 (stop strings), and that no split matters. */
#include "support/run_suite.h"
#include "support/rng.h"
#include "text/stream.h"

#include <check.h>
#include <string.h>

#define FFFD "\xEF\xBF\xBD"
enum { PIECES_MAX = 8, STOPS_MAX = 4 };

static struct md_bytes text_of(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

struct row {
    const char *label;
    const char *stops[STOPS_MAX];
    const char *pieces[PIECES_MAX];
    const char *deltas[PIECES_MAX + 1]; /* after each piece, and at the end */
    bool stopped;
};

static void run_rows(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        struct md_bytes stops[STOPS_MAX];
        size_t stop_count = 0;
        while (stop_count < STOPS_MAX && row->stops[stop_count] != NULL) {
            stops[stop_count] = text_of(row->stops[stop_count]);
            stop_count++;
        }
        struct md_stream s;
        ck_assert_int_eq(md_stream_init(&s, NULL, stops, stop_count, NULL), MD_OK);
        for (size_t k = 0; k <= PIECES_MAX; k++) {
            bool end = k == PIECES_MAX || row->pieces[k] == NULL;
            struct md_buf delta;
            md_buf_init(&delta, NULL, 1 << 16);
            if (end)
                ck_assert_int_eq(md_stream_finish(&s, &delta, NULL), MD_OK);
            else
                ck_assert_int_eq(md_stream_push(&s, row->pieces[k], strlen(row->pieces[k]), &delta, NULL),
                                 MD_OK);
            const char *want = row->deltas[k] == NULL ? "" : row->deltas[k];
            ck_assert_msg(delta.len == strlen(want) &&
                              (delta.len == 0 || memcmp(delta.data, want, delta.len) == 0),
                          "%s: delta %zu is '%.*s', want '%s'", row->label, k, (int)delta.len,
                          delta.data == NULL ? "" : (const char *)delta.data, want);
            md_buf_done(&delta);
            if (end)
                break;
        }
        ck_assert_msg(s.stopped == row->stopped, "%s", row->label);
        md_stream_done(&s);
    }
}

START_TEST(b082_whole_characters)
{
    static const struct row rows[] = {
        { "F0 | 9F A6 | 80", { 0 }, { "\xF0", "\x9F\xA6", "\x80" }, { "", "", "\xF0\x9F\xA6\x80" }, false },
        { "E2 | 82 | AC", { 0 }, { "\xE2", "\x82", "\xAC" }, { "", "", "\xE2\x82\xAC" }, false },
        { "F0 9F | 41", { 0 }, { "\xF0\x9F", "A" }, { "", FFFD "A" }, false },
        { "C3 | C3 A9", { 0 }, { "\xC3", "\xC3\xA9" }, { "", FFFD "\xC3\xA9" }, false },
        { "80 | 41", { 0 }, { "\x80", "A" }, { FFFD, "A" }, false },
        { "F0 again and again", { 0 }, { "\xF0", "\xF0", "\xF0" }, { "", FFFD, FFFD, FFFD }, false },
        { "F0 9F again and again", { 0 }, { "\xF0\x9F", "\xF0\x9F" }, { "", FFFD, FFFD }, false },
        { "C3 once", { 0 }, { "\xC3" }, { "", FFFD }, false },
        { "one byte short", { 0 }, { "a\xF0\x9F\xA6" }, { "a", FFFD }, false },
        { "nothing", { 0 }, { "" }, { "", "" }, false },
        /* Unicode 15, tables 3-8 to 3-11: a replacement for each maximal part, not for each byte or character */
        { "overlong two", { 0 }, { "\xC0\xAF" }, { FFFD FFFD }, false },
        { "overlong three", { 0 }, { "\xE0\x80\xBF" }, { FFFD FFFD FFFD }, false },
        { "overlong four", { 0 }, { "\xF0\x81\x82\x41" }, { FFFD FFFD FFFD "A" }, false },
        { "surrogate", { 0 }, { "\xED\xA0\x80\xED\xBF\xBF" }, { FFFD FFFD FFFD FFFD FFFD FFFD }, false },
        { "past the last", { 0 }, { "\xF4\x91\x92\x93\xFF\x41" }, { FFFD FFFD FFFD FFFD FFFD "A" }, false },
        { "cut short",
          { 0 },
          { "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41" },
          { FFFD FFFD FFFD FFFD "A" },
          false },
        { "edges",
          { 0 },
          { "\xC2\x80\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF" },
          { "\xC2\x80\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF" },
          false },
        { "F5", { 0 }, { "\xF5\x80" }, { FFFD FFFD }, false },
    };
    run_rows(rows, sizeof rows / sizeof rows[0]);
}
END_TEST

START_TEST(b091_stop_strings)
{
    static const struct row rows[] = {
        { "STOP over pieces",
          { "STOP" },
          { "al", "pha ST", "O", "P!", "x" },
          { "al", "pha ", "", "", "" },
          true },
        { "it was not one", { "STOP" }, { "al", "pha ST" }, { "al", "pha ", "ST" }, false },
        { "STO and STOP!",
          { "STO", "STOP!" },
          { "al", "pha ST", "O", "P!", "x" },
          { "al", "pha ", "", "" },
          true },
        { "STOP! and STO", { "STOP!", "STO" }, { "al", "pha ST", "O", "P!" }, { "al", "pha " }, true },
        { "all in one piece", { "STOP" }, { "alpha STOP! beta" }, { "alpha " }, true },
        { "two in one piece: the first", { "beta", "STOP" }, { "x STOP beta" }, { "x " }, true },
        { "a character over tokens",
          { "\xE2\x82\xAC" },
          { "a\xE2", "\x82",
            "\xAC"
            "b" },
          { "a", "", "" },
          true },
        { "starts as a character does",
          { "\xE2\x82\xAC" },
          { "a\xE2\x82", "\xAB"
                         "b" },
          { "a", "\xE2\x82\xAB"
                 "b" },
          false },
        { "characters and stop over tokens",
          { "\xC3\xA9t\xC3\xA9" },
          { "l'\xC3", "\xA9t", "\xC3", "\xA9 !" },
          { "l'", "", "", "" },
          true },
        { "false start inside", { "aab" }, { "a", "a", "a", "b" }, { "", "", "a", "" }, true },
        { "false start released", { "aab" }, { "aa", "c" }, { "", "aac" }, false },
        { "the other stop goes on", { "abcx", "bcd" }, { "ab", "c", "d" }, { "", "", "a" }, true },
        { "complete first wins", { "BCDE", "CD" }, { "AB", "CDE" }, { "A", "B" }, true },
        { "end together: the longer", { "CD", "BCD" }, { "ABCD" }, { "A" }, true },
        { "first byte", { "x" }, { "x", "y" }, { "", "" }, true },
        { "after a stop nothing", { "." }, { "a.", "b", "." }, { "a", "", "" }, true },
        { "unfinished after held", { "STOP" }, { "ST\xC3" }, { "", "ST" FFFD }, false },
        { "bad byte ends a false start", { "STOP" }, { "ST\x80OP" }, { "ST" FFFD "OP" }, false },
        { "replacement is text",
          { FFFD },
          { "a\x80"
            "b" },
          { "a" },
          true },
        { "replacement at the end", { FFFD }, { "a\xC3" }, { "a", "" }, true },
        { "stop right after a bad part", { FFFD "A" }, { "x\xF0", "A" }, { "x", "" }, true },
    };
    run_rows(rows, sizeof rows / sizeof rows[0]);
}
END_TEST

START_TEST(bad_stops_are_refused)
{
    static const char *const bad[] = { "\x80", "a\xC3", "\xED\xA0\x80", "\xC0\xAF", "\xE2\x82" };
    struct md_stream s;
    struct md_err err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct md_bytes stop = text_of(bad[i]);
        ck_assert_msg(md_stream_init(&s, NULL, &stop, 1, &err) == MD_INVALID, "%zu", i);
        ck_assert_ptr_nonnull(strstr(err.text, "UTF-8"));
    }
    static char text[MD_STOP_BYTES_MAX + 1];
    memset(text, 'a', sizeof text);
    struct md_bytes stops[MD_STOP_MAX + 1];
    for (int i = 0; i <= MD_STOP_MAX; i++)
        stops[i] = (struct md_bytes){ text, MD_STOP_BYTES_MAX };
    ck_assert_int_eq(md_stream_init(&s, NULL, stops, MD_STOP_MAX + 1, &err), MD_INVALID);
    ck_assert_int_eq(md_stream_init(&s, NULL, stops, MD_STOP_MAX, &err), MD_OK);
    md_stream_done(&s);
    stops[1].len++;
    ck_assert_int_eq(md_stream_init(&s, NULL, stops, 2, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "1025"));
    stops[1].len = 0;
    ck_assert_int_eq(md_stream_init(&s, NULL, stops, 2, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "empty"));
}
END_TEST

START_TEST(nul_is_a_character)
{
    struct md_stream s;
    struct md_buf out;
    struct md_bytes stop = { "\0x", 2 };
    md_buf_init(&out, NULL, 100);
    ck_assert_int_eq(md_stream_init(&s, NULL, &stop, 1, NULL), MD_OK);
    ck_assert_int_eq(md_stream_push(&s, "a\0b\0", 4, &out, NULL), MD_OK);
    ck_assert(out.len == 3 && memcmp(out.data, "a\0b", 3) == 0);
    ck_assert_int_eq(md_stream_push(&s, "x", 1, &out, NULL), MD_OK);
    ck_assert(out.len == 3 && s.stopped);
    md_stream_done(&s);
    md_buf_done(&out);
}
END_TEST

/* The longest stop, repeated so that what is held never shrinks: it comes out whole, and what is held is bounded. */
START_TEST(longest_stop)
{
    static char text[MD_STOP_BYTES_MAX];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    struct md_bytes stop = { text, sizeof text };
    struct md_stream s;
    struct md_buf out;
    md_buf_init(&out, NULL, 1 << 20);
    ck_assert_int_eq(md_stream_init(&s, NULL, &stop, 1, NULL), MD_OK);
    for (int i = 0; i < 5000; i++) {
        ck_assert_int_eq(md_stream_push(&s, "a", 1, &out, NULL), MD_OK);
        ck_assert_uint_lt(s.held.len, MD_STOP_BYTES_MAX);
    }
    ck_assert_uint_eq(out.len, 5000 - (MD_STOP_BYTES_MAX - 1));
    ck_assert_int_eq(md_stream_push(&s, "b", 1, &out, NULL), MD_OK);
    ck_assert(s.stopped && out.len == 5000 - (MD_STOP_BYTES_MAX - 1));
    md_stream_done(&s);
    md_buf_done(&out);
}
END_TEST

/* ---- any split ---- */

/* The whole at once, by looking at it from outside: decode, then cut at the match that is complete first. */
static size_t naive_decode(const unsigned char *in, size_t len, unsigned char *out)
{
    size_t n = 0, i = 0;
    while (i < len) {
        /* try all well-formed characters of Unicode table 3-7, row by row */
        static const unsigned char table[][8] = {
            { 0x00, 0x7F },
            { 0xC2, 0xDF, 0x80, 0xBF },
            { 0xE0, 0xE0, 0xA0, 0xBF, 0x80, 0xBF },
            { 0xE1, 0xEC, 0x80, 0xBF, 0x80, 0xBF },
            { 0xED, 0xED, 0x80, 0x9F, 0x80, 0xBF },
            { 0xEE, 0xEF, 0x80, 0xBF, 0x80, 0xBF },
            { 0xF0, 0xF0, 0x90, 0xBF, 0x80, 0xBF, 0x80, 0xBF },
            { 0xF1, 0xF3, 0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF },
            { 0xF4, 0xF4, 0x80, 0x8F, 0x80, 0xBF, 0x80, 0xBF },
        };
        static const size_t lens[] = { 1, 2, 3, 3, 3, 3, 4, 4, 4 };
        size_t best = 0;
        bool whole = false;
        for (size_t row = 0; row < sizeof lens / sizeof lens[0]; row++) {
            size_t k = 0;
            while (k < lens[row] && i + k < len && in[i + k] >= table[row][2 * k] &&
                   in[i + k] <= table[row][2 * k + 1])
                k++;
            if (k > best) {
                best = k;
                whole = k == lens[row];
            }
        }
        if (whole) {
            memcpy(out + n, in + i, best);
            n += best;
        } else {
            memcpy(out + n, FFFD, 3);
            n += 3;
        }
        i += best > 0 ? best : 1;
    }
    return n;
}

static size_t naive_cut(const unsigned char *text, size_t len, const struct md_bytes *stops,
                        size_t stop_count)
{
    for (size_t end = 1; end <= len; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < stop_count; i++)
            if (stops[i].len <= end && stops[i].len > longest &&
                memcmp(text + end - stops[i].len, stops[i].data, stops[i].len) == 0)
                longest = stops[i].len;
        if (longest > 0)
            return end - longest;
    }
    return len;
}

/* Few different bytes, so that characters, broken characters and stops are all likely. */
static size_t random_bytes(struct rng *r, unsigned char *out, size_t max)
{
    static const unsigned char some[] = { 'a',  'b',  'a',  'b',  0xC3, 0xA9, 0xE2, 0x82,
                                          0xAC, 0xF0, 0x9F, 0xA6, 0x80, 0xED, 0xA0, 0xFF };
    size_t n = rng_below(r, (uint32_t)max + 1);
    uint32_t kinds = rng_below(r, 2) ? 2 : sizeof some;
    for (size_t i = 0; i < n; i++)
        out[i] = rng_below(r, 50) == 0 ? (unsigned char)rng_below(r, 256) : some[rng_below(r, kinds)];
    return n;
}

START_TEST(any_split_gives_the_same)
{
    static const char *const stop_list[] = { "ab",
                                             "aab",
                                             "ba",
                                             "bbbb",
                                             "a\xC3\xA9",
                                             "\xE2\x82\xAC",
                                             "\xF0\x9F\xA6\x80"
                                             "a",
                                             FFFD,
                                             FFFD "b",
                                             "abab",
                                             "aaaa" };
    struct rng r = rng_open("stream split");
    for (int round = 0; round < 30000; round++) {
        unsigned char in[64], text[192];
        size_t len = random_bytes(&r, in, sizeof in);
        struct md_bytes stops[3];
        size_t stop_count = rng_below(&r, 4);
        for (size_t i = 0; i < stop_count; i++)
            stops[i] = text_of(stop_list[rng_below(&r, sizeof stop_list / sizeof stop_list[0])]);
        size_t text_len = naive_decode(in, len, text), want = naive_cut(text, text_len, stops, stop_count);

        struct md_stream s;
        struct md_buf out;
        md_buf_init(&out, NULL, 4096);
        ck_assert_int_eq(md_stream_init(&s, NULL, stops, stop_count, NULL), MD_OK);
        uint32_t piece_max = 1 + rng_below(&r, 12);
        for (size_t at = 0, n; at < len; at += n) {
            n = rng_below(&r, piece_max + 1);
            if (n > len - at)
                n = len - at;
            ck_assert_int_eq(md_stream_push(&s, in + at, n, &out, NULL), MD_OK);
        }
        ck_assert_int_eq(md_stream_finish(&s, &out, NULL), MD_OK);
        ck_assert_msg(out.len == want && (want == 0 || memcmp(out.data, text, want) == 0),
                      "round %d: %zu bytes, want %zu", round, out.len, want);
        ck_assert(s.stopped == (want < text_len));
        ck_assert_int_eq(md_stream_finish(&s, &out, NULL), MD_OK); /* nothing is left */
        ck_assert_uint_eq(out.len, want);
        md_stream_done(&s);
        md_buf_done(&out);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stream");
    TCase *t = tcase_create("stream");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, b082_whole_characters);
    tcase_add_test(t, b091_stop_strings);
    tcase_add_test(t, bad_stops_are_refused);
    tcase_add_test(t, nul_is_a_character);
    tcase_add_test(t, longest_stop);
    tcase_add_test(t, any_split_gives_the_same);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
