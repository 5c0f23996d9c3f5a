/* test_rebase.c - where hot blocks stand past the trained window: rows worked out by hand, and conversations that go on
 * for long against an oracle that pushes one position at a time. */
#include "policy/rebase.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 64, BLOCK = 16 };

START_TEST(the_step_and_the_hot_set_are_the_window)
{
    static const struct {
        int32_t window, step, most;
    } rows[] = { { 8192, 1024, 7168 }, { 256, 32, 224 }, { 100, 12, 88 }, { 9, 1, 8 }, { 2, 1, 1 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(md_rebase_step(rows[i].window), rows[i].step);
        ck_assert_int_eq(md_rebase_hot_most(rows[i].window), rows[i].most);
    }
}
END_TEST

/* window 100, step 12 */
START_TEST(places_by_hand)
{
    static const struct {
        const char *label;
        int32_t end, incoming;
        size_t count;
        struct md_rebase_block blocks[4];
        int32_t want[4];
    } rows[] = {
        { "nothing", 500, 10, 0, { { 0 } }, { 0 } },
        { "within the window all stand where they are",
          90,
          10,
          3,
          { { 0, 16 }, { 32, 16 }, { 80, 10 } },
          { 0, 32, 80 } },
        { "one more, and the first moves by the step", 91, 10, 2, { { 0, 16 }, { 80, 11 } }, { 12, 80 } },
        { "what it meets is pushed, what is behind is not",
          91,
          10,
          4,
          { { 0, 16 }, { 16, 16 }, { 60, 16 }, { 80, 11 } },
          { 12, 28, 60, 80 } },
        { "it stays until it is too far again", 102, 10, 2, { { 0, 16 }, { 80, 16 } }, { 12, 80 } },
        { "and goes on", 103, 10, 2, { { 0, 16 }, { 80, 16 } }, { 24, 80 } },
        { "the end and what comes count together", 83, 30, 2, { { 0, 16 }, { 80, 3 } }, { 24, 80 } },
        { "those that are far stand side by side",
          300,
          10,
          3,
          { { 0, 16 }, { 64, 16 }, { 284, 16 } },
          { 216, 232, 284 } },
        { "and push what is in their way",
          300,
          10,
          4,
          { { 0, 16 }, { 64, 16 }, { 240, 16 }, { 284, 16 } },
          { 216, 232, 248, 284 } },
        { "the end is never pushed: the ones before it give way",
          300,
          10,
          4,
          { { 0, 32 }, { 64, 16 }, { 240, 16 }, { 278, 22 } },
          { 214, 246, 262, 278 } },
        { "a run up to the end stands at home", 190, 10, 2, { { 100, 16 }, { 116, 74 } }, { 100, 116 } },
        { "a hot set as large as it may be: side by side",
          1000,
          4,
          2,
          { { 0, 72 }, { 988, 12 } },
          { 912, 988 } },
        { "larger than that: as near as there is room",
          1000,
          4,
          2,
          { { 0, 84 }, { 988, 12 } },
          { 904, 988 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t places[4] = { -1, -1, -1, -1 };
        struct md_err err = { 0 };
        ck_assert_msg(md_rebase_plan(rows[i].blocks, rows[i].count, rows[i].end, rows[i].incoming, 100, 12,
                                     places, &err) == MD_OK,
                      "%s: %s", rows[i].label, err.text);
        for (size_t k = 0; k < rows[i].count; k++)
            ck_assert_msg(places[k] == rows[i].want[k], "%s: block %zu stands at %d, wanted %d",
                          rows[i].label, k, places[k], rows[i].want[k]);
    }
}
END_TEST

START_TEST(bad_input_is_refused)
{
    static const struct {
        const char *label;
        enum md_status want;
        int32_t end, incoming, window, step;
        struct md_rebase_block blocks[2];
    } rows[] = {
        { "fits exactly", MD_OK, 100, 4, 36, 1, { { 0, 16 }, { 84, 16 } } },
        { "one over", MD_TOO_LARGE, 100, 5, 36, 1, { { 0, 16 }, { 84, 16 } } },
        { "overlap", MD_INVALID, 100, 4, 90, 1, { { 0, 16 }, { 15, 16 } } },
        { "empty", MD_INVALID, 100, 4, 90, 1, { { 0, 0 }, { 15, 16 } } },
        { "behind the end", MD_INVALID, 100, 4, 90, 1, { { 0, 16 }, { 85, 16 } } },
        { "no window", MD_INVALID, 100, 4, 0, 1, { { 0, 16 }, { 80, 16 } } },
        { "no step", MD_INVALID, 100, 4, 90, 0, { { 0, 16 }, { 80, 16 } } },
        { "less than nothing comes", MD_INVALID, 100, -1, 90, 1, { { 0, 16 }, { 80, 16 } } },
        { "the largest positions", MD_OK, INT32_MAX, 4, 90, 1, { { 0, 16 }, { INT32_MAX - 16, 16 } } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t places[2];
        ck_assert_msg(md_rebase_plan(rows[i].blocks, 2, rows[i].end, rows[i].incoming, rows[i].window,
                                     rows[i].step, places, NULL) == rows[i].want,
                      "%s", rows[i].label);
    }
}
END_TEST

START_TEST(what_may_be_asked_for)
{
    const struct md_rebase_facts good = { .residency = true,
                                          .trained_tokens = 8192,
                                          .hot_tokens = 7168,
                                          .can_move = true,
                                          .type_k = "f16",
                                          .cold_bytes = 1000,
                                          .need_bytes = 1000 };
    struct md_rebase_facts f[] = { good, good, good, good, good, good, good, good, good, good, good, good };
    static const struct {
        enum md_status want;
        const char *says;
    } rows[] = {
        { MD_OK, "" },
        { MD_INVALID, "--hot 7169 is more than the 7168" },
        { MD_INVALID, "needs --residency on" },
        { MD_UNSUPPORTED, "does not say what window it was trained for" },
        { MD_UNSUPPORTED, "63 tokens is too small" },
        { MD_UNSUPPORTED, "windowed or recurrent layers" },
        { MD_UNSUPPORTED, "keys of type q8_0 cannot be moved" },
        { MD_UNSUPPORTED, "the KV of this model cannot be moved" },
        { MD_UNSUPPORTED, "needs a cold store" },
        { MD_INVALID, "needs 1000 bytes for a hot set of 7168 tokens, and --mem-cold is 999" },
        { MD_OK, "" },
        { MD_OK, "" },
    };
    f[1].hot_tokens++;
    f[2].residency = false;
    f[3].trained_tokens = 0;
    f[4].trained_tokens = 63;
    f[5].tail_state = true;
    f[6].type_k = "q8_0";
    f[7].can_move = false;
    f[8].cold_bytes = 0;
    f[9].cold_bytes = 999;
    f[10].cold_bytes = 0;
    f[10].disk = true; /* which keeps it */
    f[11].type_k = "f32";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_err err = { 0 };
        ck_assert_int_eq(md_rebase_check(&f[i], &err), rows[i].want);
        ck_assert_msg(strstr(err.text, rows[i].says) != NULL, "row %zu: %s", i, err.text);
    }
}
END_TEST

/* ---- a conversation that goes on ---- */

/* The least places that keep the order and the bound, found by pushing one position at a time; then each back to where
 * all behind it still fit before the end. */
static void oracle(const struct md_rebase_block *b, size_t count, int32_t end, int32_t least, int32_t *x)
{
    bool pushed = true;
    for (size_t i = 0; i < count; i++)
        x[i] = b[i].start;
    while (pushed) {
        pushed = false;
        for (size_t i = 0; i < count; i++)
            if (x[i] < least || (i > 0 && x[i] < x[i - 1] + b[i - 1].length)) {
                x[i]++;
                pushed = true;
            }
    }
    for (size_t i = 0; i < count; i++) {
        int32_t behind = 0;
        for (size_t k = i; k < count; k++)
            behind += b[k].length;
        x[i] = x[i] > end - behind ? end - behind : x[i];
    }
}

struct talk {
    int32_t window, step, end;
    int32_t place[4096 / BLOCK]; /* of each block of the tape; -1: not hot */
};

/* Which blocks shall be hot: the first, the last ones, and some between, as many as may be. */
static size_t choose(struct rng *rng, const struct talk *t, int32_t incoming, struct md_rebase_block *out)
{
    const int32_t blocks = (t->end + BLOCK - 1) / BLOCK;
    int32_t left = t->window - t->step - incoming;
    static bool wanted[4096 / BLOCK];
    for (int32_t i = 0; i < blocks; i++) {
        const int32_t k = i == 0 ? 0 : i <= 2 ? blocks - i : 0;
        wanted[i] = t->place[i] >= 0 && rng_below(rng, 8) > 0;
        wanted[k] = true;
    }
    for (int n = (int)rng_below(rng, 4); n > 0; n--)
        wanted[rng_below(rng, (uint32_t)blocks)] = true;
    for (int32_t i = blocks; i-- > 0;) { /* from the end, but the first always */
        const int32_t len = i == blocks - 1 ? t->end - i * BLOCK : BLOCK;
        const bool fits = len + (i > 0 ? BLOCK : 0) <= left;
        wanted[i] = wanted[i] && fits;
        left -= wanted[i] ? len : 0;
    }
    size_t n = 0;
    for (int32_t i = 0; i < blocks; i++)
        if (wanted[i])
            out[n++] = (struct md_rebase_block){ i * BLOCK, i == blocks - 1 ? t->end - i * BLOCK : BLOCK };
    return n;
}

static void check_places(const struct talk *t, int32_t incoming, const struct md_rebase_block *b, size_t n,
                         const int32_t *got)
{
    const int32_t nearest = t->end + incoming - t->window;
    int32_t want[BLOCKS], least = 0, run = t->end;
    while (least < nearest)
        least += t->step;
    oracle(b, n, t->end, least, want);
    ck_assert_mem_eq(got, want, n * sizeof *want);
    for (size_t i = n; i-- > 0;) {
        ck_assert_int_ge(got[i], b[i].start);
        ck_assert_int_ge(got[i], nearest);
        ck_assert_int_le(got[i] + b[i].length, i + 1 < n ? got[i + 1] : t->end);
        if (b[i].start + b[i].length == run) { /* a run up to the end stands at home */
            ck_assert_int_eq(got[i], b[i].start);
            run = b[i].start;
        }
    }
}

START_TEST(conversations_that_go_on)
{
    struct rng rng = rng_open("rebase");
    static struct talk t;
    int64_t moves = 0, plans = 0;
    for (int round = 0; round < 30; round++) {
        t.window = 128 + (int32_t)rng_below(&rng, 300);
        t.step = md_rebase_step(t.window);
        t.end = 1;
        memset(t.place, -1, sizeof t.place);
        while (t.end < 4000) {
            struct md_rebase_block b[BLOCKS];
            int32_t places[BLOCKS];
            const int32_t incoming = 1 + (int32_t)rng_below(&rng, 40);
            const size_t n = choose(&rng, &t, incoming, b);
            ck_assert_int_eq(md_rebase_plan(b, n, t.end, incoming, t.window, t.step, places, NULL), MD_OK);
            check_places(&t, incoming, b, n, places);
            static int32_t before[4096 / BLOCK];
            memcpy(before, t.place, sizeof before);
            memset(t.place, -1, sizeof t.place);
            for (size_t i = 0; i < n; i++) {
                t.place[b[i].start / BLOCK] = places[i];
                moves += before[b[i].start / BLOCK] >= 0 && before[b[i].start / BLOCK] != places[i];
            }
            plans++;
            for (int32_t i = (t.end + BLOCK - 1) / BLOCK; i * BLOCK < t.end + incoming; i++)
                t.place[i] = i * BLOCK; /* what was computed stands at home */
            t.end += incoming;
            if (rng_below(&rng, 50) == 0) { /* a cut: what stands behind it has left */
                t.end -= (int32_t)rng_below(&rng, (uint32_t)t.end);
                for (int32_t i = (t.end + BLOCK - 1) / BLOCK; i < 4096 / BLOCK; i++)
                    t.place[i] = -1;
            }
        }
    }
    printf("%lld moves in %lld plans\n", (long long)moves, (long long)plans);
    ck_assert_int_gt(moves, 10000);
}
END_TEST

/* A thousand ways to the same end, in pieces of any size with other blocks hot on the way: the last plan is the same. */
START_TEST(the_way_does_not_matter)
{
    struct rng rng = rng_open("rebase ways");
    struct talk t = { .window = 300, .step = md_rebase_step(300) };
    const struct md_rebase_block last[] = {
        { 0, 32 }, { 96, 16 }, { 1600, 32 }, { 1840, 16 }, { 1872, 128 }
    };
    enum { LAST = sizeof last / sizeof last[0], END = 2000, COMES = 20 };
    int32_t want[LAST];
    ck_assert_int_eq(md_rebase_plan(last, LAST, END, COMES, t.window, t.step, want, NULL), MD_OK);
    ck_assert_int_eq(want[0], 1739); /* 47 * 37, the first multiple of the step that is 1720 or more */
    for (int way = 0; way < 1000; way++) {
        int32_t places[BLOCKS] = { 0 };
        memset(t.place, -1, sizeof t.place);
        for (t.end = 1; t.end < END;) {
            struct md_rebase_block b[BLOCKS];
            const int32_t left = END - t.end, most = left < 100 ? left : 100;
            const int32_t incoming = 1 + (int32_t)rng_below(&rng, (uint32_t)most);
            const size_t n = choose(&rng, &t, incoming, b);
            ck_assert_int_eq(md_rebase_plan(b, n, t.end, incoming, t.window, t.step, places, NULL), MD_OK);
            t.end += incoming;
        }
        /* into the array that has the last places, as one who goes on would */
        ck_assert_int_eq(md_rebase_plan(last, LAST, END, COMES, t.window, t.step, places, NULL), MD_OK);
        ck_assert_mem_eq(places, want, sizeof want);
    }
}
END_TEST

/* With nothing coming and going, what is far moves once in a step. */
START_TEST(moves_are_rare)
{
    const int32_t window = 8192, step = md_rebase_step(window), hot = 2048;
    struct md_rebase_block b[2] = { { 0, 128 }, { 0, hot - 128 } };
    int32_t before = 0;
    int moves = 0;
    for (int32_t end = hot; end < 200000; end += 16) {
        int32_t places[2];
        b[1].start = end - (hot - 128);
        ck_assert_int_eq(md_rebase_plan(b, 2, end, 16, window, step, places, NULL), MD_OK);
        ck_assert_int_eq(places[1], b[1].start);
        moves += places[0] != before;
        before = places[0];
    }
    ck_assert_int_ge(moves, (200000 - window) / (step + 16));
    ck_assert_int_le(moves, (200000 - window) / step + 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rebase");
    TCase *c = tcase_create("places");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, the_step_and_the_hot_set_are_the_window);
    tcase_add_test(c, places_by_hand);
    tcase_add_test(c, bad_input_is_refused);
    tcase_add_test(c, what_may_be_asked_for);
    tcase_add_test(c, conversations_that_go_on);
    tcase_add_test(c, the_way_does_not_matter);
    tcase_add_test(c, moves_are_rare);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
