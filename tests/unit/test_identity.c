/* test_identity.c - which conversation a prompt continues.  Rows are texts of one letter a token: S system, u user,
 * a answer; digits tell messages apart. */
#include "policy/identity.h"
#include "policy/prefix.h"
#include "support/run_suite.h"

#include <check.h>
#include <string.h>

enum { CANDIDATES_MAX = 4, NEW = -1 };

/* The first user message of a text ends with the first '.'; none: no anchor. */
static struct md_identity_candidate candidate_of(const char *tape, const char *prompt, int64_t last_used)
{
    md_token a[64], b[64];
    size_t na = strlen(tape), nb = strlen(prompt);
    for (size_t i = 0; i < na; i++)
        a[i] = tape[i];
    for (size_t i = 0; i < nb; i++)
        b[i] = prompt[i];
    const char *dot = strchr(tape, '.');
    return (struct md_identity_candidate){ .common = (int32_t)md_prefix_common(a, na, b, nb),
                                           .tape = (int32_t)na,
                                           .anchor = dot != NULL ? (int32_t)(dot - tape) + 1 : 0,
                                           .last_used = last_used };
}

START_TEST(rows_of_histories)
{
    static const struct {
        const char *label, *prompt;
        const char *tapes[CANDIDATES_MAX]; /* used last: the later ones, unless `turned` */
        bool turned;
        int want;    /* continued; NEW */
        int nearest; /* when new: shares the most; NEW: none */
    } rows[] = {
        { "nothing open", "SSSu1.", { 0 }, 0, NEW, NEW },
        { "the next turn", "SSSu1.a1u2.", { "SSSu1.a1" }, 0, 0, 0 },
        { "the same prompt again", "SSSu1.", { "SSSu1.a1" }, 0, 0, 0 },
        { "same system text, another first message", "SSSSSSu2.", { "SSSSSSu1.a1" }, 0, NEW, 0 },
        { "the first message goes on otherwise", "SSSu1, and more.", { "SSSu1.a1" }, 0, NEW, 0 },
        { "the first message was edited", "SSSx1.a1u2.", { "SSSu1.a1u2.a2" }, 0, NEW, 0 },
        { "the last answer is made again", "SSSu1.a1u2.", { "SSSu1.a1u2.a2" }, 0, 0, 0 },
        { "the first answer is made again", "SSSu1.", { "SSSu1.a1u2.a2u3.a3" }, 0, 0, 0 },
        { "an earlier user turn was edited", "SSSu1.a1x2.", { "SSSu1.a1u2.a2u3.a3u4.a4" }, 0, 0, 0 },
        { "compaction: the history was replaced",
          "SSSSSSSSsummary u5.",
          { "SSSSSSSSu1.a1u2.a2" },
          0,
          NEW,
          0 },
        { "nothing in common", "SSSu1.", { "TTTu1.a1" }, 0, NEW, NEW },
        { "an empty one is nobody's", "SSSu1.", { "" }, 0, NEW, NEW },
        { "the other conversation", "SSSu1.a1u2.", { "SSSu1.a1", "SSSv1.b1" }, 0, 0, 0 },
        { "two branches: the longer prefix",
          "SSSu1.a1u2.a2u3.",
          { "SSSu1.a1u2.a2", "SSSu1.a1x2." },
          0,
          0,
          0 },
        { "the longer prefix, though cut", "SSSu1.a1u2.a2u3.", { "SSSu1.a1", "SSSu1.a1u2.xx" }, 0, 1, 0 },
        { "two that share as much: used last", "SSSu1.a1z", { "SSSu1.a1u2.", "SSSu1.a1u3." }, 0, 1, 0 },
        { "the same, turned", "SSSu1.a1z", { "SSSu1.a1u2.", "SSSu1.a1u3." }, 1, 0, 0 },
        { "new: shares the most", "SSSu9.", { "SSTu1.", "SSSu1.", "STTu1." }, 0, NEW, 1 },
        { "new: as much, used last", "SSSx9.", { "SSSu1.", "SSSv1.", "STTu1." }, 0, NEW, 1 },
        { "new: as much, turned", "SSSx9.", { "SSSu1.", "SSSv1.", "STTu1." }, 1, NEW, 0 },
        { "a longer one that may not be", "SSSSu1.", { "SSSSu2.a", "SS" }, 0, 1, 0 },
        { "no anchor: all of it", "once upon", { "once" }, 0, 0, 0 },
        { "no anchor: half of it", "once more", { "once up" }, 0, 0, 0 },
        { "no anchor: less than half", "once more", { "once upon a time" }, 0, NEW, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_identity_candidate c[CANDIDATES_MAX];
        size_t n = 0;
        for (; n < CANDIDATES_MAX && rows[i].tapes[n] != NULL; n++)
            c[n] = candidate_of(rows[i].tapes[n], rows[i].prompt, rows[i].turned ? -(int64_t)n : (int64_t)n);
        struct md_identity got = md_identity_of(c, n);
        ck_assert_msg(got.is_new == (rows[i].want == NEW), "%s", rows[i].label);
        int which = got.is_new ? rows[i].nearest : rows[i].want;
        ck_assert_msg(got.candidate == (which == NEW ? n : (size_t)which), "%s: %zu", rows[i].label,
                      got.candidate);
    }
}
END_TEST

/* The borders in numbers. */
START_TEST(borders)
{
    static const struct {
        struct md_identity_candidate c;
        bool is_new;
    } rows[] = {
        { { 10, 50, 10, 0 }, false },
        { { 9, 50, 10, 0 }, true },
        { { 11, 50, 10, 0 }, false },
        { { 25, 50, 0, 0 }, false },
        { { 24, 50, 0, 0 }, true },
        { { 25, 51, 0, 0 }, true },
        { { 26, 51, 0, 0 }, false },
        { { 50, 50, 60, 0 }, false }, /* whole, though short of its anchor */
        { { 49, 50, 60, 0 }, true },
        { { 0, 0, 0, 0 }, true },
        { { 1, 1, 0, 0 }, false },
        { { 0, 1, 0, 0 }, true },
        { { 2000000000, INT32_MAX, 0, 0 }, false },
        { { 1, INT32_MAX, 1, 0 }, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg(md_identity_of(&rows[i].c, 1).is_new == rows[i].is_new, "row %zu", i);
    struct md_identity_candidate equal[] = { { 20, 30, 10, 7 }, { 20, 40, 10, 7 } };
    ck_assert_uint_eq(md_identity_of(equal, 2).candidate, 0); /* the first */
    equal[1].last_used = INT64_MAX;
    equal[0].last_used = INT64_MIN;
    ck_assert_uint_eq(md_identity_of(equal, 2).candidate, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("identity");
    TCase *t = tcase_create("identity");
    tcase_add_test(t, rows_of_histories);
    tcase_add_test(t, borders);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
