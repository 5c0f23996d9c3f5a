/* test_clause.c - a question falls into its sentences and lines.  Right values are by hand: in the texts below tokens end
 * at |, and clauses at #. */
#include "policy/clause.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <string.h>

enum { MOST = 512 };

/* Pieces and the clauses that are meant. */
static size_t read(const char *text, struct md_bytes *pieces, struct md_attention_clause *want,
                   size_t *ret_clauses)
{
    size_t n = 0, clauses = 0, first = 0;
    for (const char *at = text; *at != '\0'; at++) {
        const size_t len = strcspn(at, "|#");
        pieces[n++] = (struct md_bytes){ at, len };
        at += len;
        ck_assert(n < MOST && *at != '\0'); /* each piece is ended */
        if (*at != '#')
            continue;
        want[clauses++] = (struct md_attention_clause){ first, n };
        first = n;
    }
    ck_assert_uint_eq(first, n);
    *ret_clauses = clauses;
    return n;
}

static const char *const texts[] = {
    "What#",
    "#", /* one control token */
    "What| is| the| name| of| it|?#",
    /* two sentences; a template's end belongs to the last */
    "What| is| the| name| of| it|?# Who| has| written| the| first| one|?||\n||assistant|\n#",
    /* short ones belong to what follows */
    "Hi|!| What| is| the| name| of| it|?#",
    "user|\n|What| is| the| name|?# And| what| is| the| value|?#",
    /* no blank behind it: a number, a path, a call */
    "Is| pi| about| really| 3|.|14| or| a|.|b|?| no#",
    "Is| pi| about| really| 3|.|14| or| a|.|b|?#",
    /* quotes and brackets may close behind the mark, in its token or in one of their own */
    "He| said| to| me| \"|stop| now|.\"# Then| she| went| on| with| it|.#",
    "He| said| to| me| (|stop| now|.|)# Then| she| went| on| with| it|.#",
    "He| said| to| me| (|stop| now|)| Then| she| went| on| with| it|.#",
    /* lines and lists */
    "- a| b| c| d| e| f|\n#- g| h| i| j| k| l|\n#",
    "1|.| a| b| c| d|\n#2|.| e| f| g| h|\n#",
    "a| b| c| d| e| f|;# g| h| i| j| k| l|!\n\n#m| n| o| p| q| r#",
    /* fullwidth */
    "a|b|c|d|e|\xe3\x80\x82| |g#",
    "a|b|c|d|e|f\xef\xbc\x9f# |g|h|i|j|k#",
    /* too short at the end: joins what is before it */
    "What| is| the| name| of| it|?| Thank| you| much|.#",
};

START_TEST(splits)
{
    struct md_bytes pieces[MOST];
    struct md_attention_clause want[MOST], got[MD_CLAUSE_MOST];
    size_t count;
    const size_t n = read(texts[_i], pieces, want, &count);
    ck_assert_msg(md_clause_split(pieces, n, MD_CLAUSE_MOST, got) == count, "%s", texts[_i]);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(got[i].first == want[i].first && got[i].end == want[i].end,
                      "%s: clause %zu is %zu to %zu", texts[_i], i, got[i].first, got[i].end);
}
END_TEST

/* 20 lines of 6, and one that is not ended: the last ones stay as they are. */
START_TEST(the_first_ones_become_one)
{
    struct md_bytes pieces[126];
    struct md_attention_clause got[MD_CLAUSE_MOST];
    const size_t most = (size_t)_i;
    for (size_t i = 0; i < 126; i++)
        pieces[i] = (struct md_bytes){ i % 6 == 5 && i < 120 ? "x\n" : "x", i % 6 == 5 && i < 120 ? 2 : 1 };
    ck_assert_uint_eq(md_clause_split(pieces, 126, most, got), most);
    ck_assert_uint_eq(got[0].first, 0);
    ck_assert_uint_eq(got[0].end, 126 - 6 * (most - 1));
    for (size_t i = 1; i < most; i++) {
        ck_assert_uint_eq(got[i].first, got[i - 1].end);
        ck_assert_uint_eq(got[i].end, got[i].first + 6);
    }
}
END_TEST

/* Whatever the bytes are: each row is in one clause, in order, and none is short but where all is. */
START_TEST(any_bytes)
{
    static const char *const some[] = {
        "", "\n", " ", ".", "?", "a", "\"", " a", ".\n", "\xe3\x80", ")", "\0"
    };
    struct rng r = rng_open("clause");
    for (int round = 0; round < 20000; round++) {
        struct md_bytes pieces[200];
        struct md_attention_clause got[MD_CLAUSE_MOST];
        const size_t n = 1 + (size_t)rng_below(&r, 200);
        for (size_t i = 0; i < n; i++) {
            const char *of = some[rng_below(&r, sizeof some / sizeof *some)];
            pieces[i] = (struct md_bytes){ of, of == some[11] ? 1 : strlen(of) };
        }
        const size_t most = 1 + (size_t)rng_below(&r, MD_CLAUSE_MOST);
        const size_t count = md_clause_split(pieces, n, most, got);
        ck_assert(count >= 1 && count <= most);
        ck_assert(got[0].first == 0 && got[count - 1].end == n);
        for (size_t i = 0; i < count; i++) {
            ck_assert(got[i].end - got[i].first >= (n < MD_CLAUSE_LEAST ? n : MD_CLAUSE_LEAST));
            ck_assert(i == 0 || got[i].first == got[i - 1].end);
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("clause");
    TCase *t = tcase_create("clause");
    tcase_add_loop_test(t, splits, 0, sizeof texts / sizeof *texts);
    tcase_add_loop_test(t, the_first_ones_become_one, 1, MD_CLAUSE_MOST + 1);
    tcase_add_test(t, any_bytes);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
