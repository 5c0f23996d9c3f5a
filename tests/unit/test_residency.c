/* test_residency.c - the planner and the derived sizes: B039, B077, and a walk against a naive planner. */
#include "policy/residency.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS_MAX = 40, B = 64 };

static const struct md_residency_gate open_gate = { .remove_middle = true };
static struct md_arena arena;

static void setup(void)
{
    md_arena_init(&arena, NULL, 1 << 20);
}

static void teardown(void)
{
    md_arena_done(&arena);
}

/* 16 volatile blocks of B tokens, all last used at the same time. */
static void sixteen(struct md_block *blocks)
{
    for (int i = 0; i < 16; i++)
        blocks[i] = (struct md_block){ .range = { i * B, (i + 1) * B }, .cls = MD_CLASS_VOLATILE };
}

/* "#" hot, "." not, one per block. */
static const char *picture(const struct md_plan *plan, size_t count)
{
    static char text[BLOCKS_MAX + 1];
    for (size_t i = 0; i < count; i++)
        text[i] = plan->hot[i] ? '#' : '.';
    text[count] = '\0';
    return text;
}

static struct md_plan plan_scored(struct md_block *blocks, size_t count, const float *scores, int32_t budget,
                                  struct md_stream_policy stream, struct md_residency_gate gate)
{
    struct md_plan plan;
    struct md_err err;
    enum md_status s = md_residency_plan(blocks, count, scores, budget, stream, gate, &arena, &plan, &err);
    ck_assert_msg(s == MD_OK, "%s", err.text);
    return plan;
}

static struct md_plan plan_ok(struct md_block *blocks, size_t count, int32_t budget,
                              struct md_stream_policy stream, struct md_residency_gate gate)
{
    return plan_scored(blocks, count, NULL, budget, stream, gate);
}

START_TEST(b077_equal_scores_leave_from_the_oldest)
{
    static const struct {
        const char *label;
        int32_t budget, sink, recent;
        const char *want;
        bool over;
    } rows[] = {
        { "budget of 8 blocks", 8 * B, B, 2 * B, "#........#######", false },
        { "one token less", 8 * B - 1, B, 2 * B, "#.........######", false },
        { "one token more", 8 * B + 1, B, 2 * B, "#........#######", false },
        { "all fit", 16 * B, B, 2 * B, "################", false },
        { "all but one token", 16 * B - 1, B, 2 * B, "#.##############", false },
        { "just the protected", 3 * B, B, 2 * B, "#.............##", false },
        { "sinks alone too many", 8 * B, 10 * B, 2 * B, "##########....##", true },
        { "everything protected", 8 * B, 16 * B, 16 * B, "################", true },
        { "budget 0", 0, B, 2 * B, "#.............##", true },
        { "budget 0, none protected", 0, 0, 0, "................", false },
        { "a sink block is cut", 3 * B, B + 1, B, "##.............#", false },
        { "a recent block is cut", 3 * B, B, B + 1, "#.............##", false },
        { "b039 sinks past the prompt", B, INT32_MAX, B, "################", true },
        { "b039 recent past the prompt", B, B, INT32_MAX, "################", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_block blocks[16];
        sixteen(blocks);
        struct md_plan p = plan_ok(blocks, 16, rows[i].budget,
                                   (struct md_stream_policy){ rows[i].sink, rows[i].recent }, open_gate);
        ck_assert_msg(strcmp(picture(&p, 16), rows[i].want) == 0, "%s: %s", rows[i].label, picture(&p, 16));
        ck_assert_msg(p.over_budget == rows[i].over, "%s", rows[i].label);
        ck_assert_msg((p.diagnostic != NULL) == rows[i].over, "%s", rows[i].label);
        ck_assert_int_eq(p.total_tokens, 16 * B);
        ck_assert_msg(p.over_budget == (p.hot_tokens > rows[i].budget), "%s", rows[i].label);
        float equal[16];
        for (int k = 0; k < 16; k++)
            equal[k] = k % 2 ? 0.0F : -0.0F;
        p = plan_scored(blocks, 16, equal, rows[i].budget,
                        (struct md_stream_policy){ rows[i].sink, rows[i].recent }, open_gate);
        ck_assert_msg(strcmp(picture(&p, 16), rows[i].want) == 0, "%s, scored", rows[i].label);
    }
}
END_TEST

START_TEST(b077_age_breaks_ties)
{
    struct md_block blocks[16];
    sixteen(blocks);
    for (int i = 0; i < 16; i++)
        blocks[i].last_used = i == 5 ? -7 : i == 9 ? 1 : 100; /* 5 is the longest unused, then 9 */
    struct md_plan p = plan_ok(blocks, 16, 13 * B, (struct md_stream_policy){ B, 2 * B }, open_gate);
    ck_assert_str_eq(picture(&p, 16), "#.###.###.######");
}
END_TEST

START_TEST(b077_pinned_over_budget_ends)
{
    struct md_block blocks[16];
    sixteen(blocks);
    for (int i = 3; i < 12; i++)
        blocks[i].flags = MD_BLOCK_PINNED;
    struct md_plan p = plan_ok(blocks, 16, 8 * B, (struct md_stream_policy){ 2 * B, 2 * B }, open_gate);
    ck_assert_str_eq(picture(&p, 16), "##.#########..##");
    ck_assert(p.over_budget);
    ck_assert_int_eq(p.protected_tokens, 13 * B);
    ck_assert_int_eq(p.hot_tokens, 13 * B);
    ck_assert_ptr_nonnull(strstr(p.diagnostic, "pinned blocks alone exceed"));
}
END_TEST

START_TEST(classes_leave_in_order)
{
    struct md_block blocks[16];
    sixteen(blocks);
    blocks[4].cls = blocks[5].cls = MD_CLASS_REPO_MAP;
    blocks[6].cls = MD_CLASS_TASK_PINNED;
    for (int i = 0; i < 16; i++)
        blocks[i].last_used = i == 4 ? 0 : i == 6 ? -1 : 50; /* old, but of a class that stays longer */
    struct md_stream_policy stream = { B, 2 * B };
    /* three: the last resort, what only its class protects */
    static const char *const want[] = { "#.............##", "#.....#.......##", "#....##.......##",
                                        "#...###.......##", "#...###......###", "#...###.....####" };
    for (int32_t n = 3; n <= 8; n++) {
        struct md_plan p = plan_ok(blocks, 16, n * B, stream, open_gate);
        ck_assert_msg(strcmp(picture(&p, 16), want[n - 3]) == 0, "%d blocks: %s", n, picture(&p, 16));
        ck_assert(!p.over_budget && p.pinned_cold_tokens == (n == 3 ? B : 0));
        ck_assert((p.diagnostic != NULL) == (n == 3));
    }
}
END_TEST

/* Blocks 0 (sink), 14 and 15 (recent) stay whatever they score. */
START_TEST(b077_lower_scores_leave_first)
{
    struct md_block blocks[16];
    float scores[16];
    struct md_stream_policy stream = { B, 2 * B };
    sixteen(blocks);
    for (int i = 0; i < 16; i++) {
        blocks[i].last_used = i; /* the later ones would stay */
        scores[i] = i == 0 || i > 13 ? -FLT_MAX : (float)-i;
    }
    scores[12] = FLT_MAX;
    scores[11] = -FLT_MAX;
    scores[10] = FLT_TRUE_MIN; /* any finite number is one, and above 0 */
    scores[9] = 0;
    struct md_plan p = plan_scored(blocks, 16, scores, 8 * B, stream, open_gate);
    ck_assert_str_eq(picture(&p, 16),
                     "###......##.#.##"); /* 11 13 8 7 6 5 4 3 have left; -2, -1, 0 ... stay */
    p = plan_scored(blocks, 16, scores, 5 * B, stream, open_gate);
    ck_assert_str_eq(picture(&p, 16), "#.........#.#.##");
    blocks[11].cls = MD_CLASS_REPO_MAP; /* the worst score of all, and a class that stays longer */
    p = plan_scored(blocks, 16, scores, 4 * B, stream, open_gate);
    ck_assert_str_eq(picture(&p, 16), "#..........#..##");
    scores[3] = scores[4] = -100; /* equal scores: by age */
    blocks[4].last_used = -1;
    p = plan_scored(blocks, 16, scores, 15 * B, stream, open_gate);
    ck_assert_str_eq(picture(&p, 16), "####.###########");
}
END_TEST

START_TEST(retrieved_blocks_leave_last)
{
    struct md_block blocks[16];
    float scores[16] = { 0 };
    struct md_stream_policy stream = { B, 2 * B };
    sixteen(blocks);
    blocks[3].flags = blocks[7].flags = blocks[8].flags = MD_BLOCK_RETRIEVED;
    blocks[5].cls = blocks[7].cls = MD_CLASS_REPO_MAP;
    scores[3] = -5;
    static const char *const want[] = { "#.............##", "#......#......##", "#......##.....##",
                                        "#..#...##.....##", "#..#.#.##.....##" };
    for (int32_t n = 3; n <= 7; n++) {
        struct md_plan p = plan_scored(blocks, 16, scores, n * B, stream, open_gate);
        ck_assert_msg(strcmp(picture(&p, 16), want[n - 3]) == 0, "%d blocks: %s", n, picture(&p, 16));
        ck_assert(!p.over_budget); /* never protected: what does not fit leaves */
        ck_assert_int_eq(p.protected_tokens, 3 * B);
        ck_assert(blocks[3].flags == MD_BLOCK_RETRIEVED); /* the flag is the caller's */
    }
}
END_TEST

START_TEST(b039_scores_out_of_range)
{
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        for (int at = 0; at < 16; at += 5) {
            struct md_block blocks[16];
            float scores[16] = { 0 };
            struct md_plan plan = { .hot_tokens = 77 };
            struct md_err err;
            char name[32];
            sixteen(blocks);
            scores[at] = bad[i];
            enum md_status s =
                md_residency_plan(blocks, 16, scores, 16 * B, (struct md_stream_policy){ B, B }, open_gate,
                                  &arena, &plan, &err);
            snprintf(name, sizeof name, "block %d at %d", at, at * B);
            ck_assert_msg(s == MD_INVALID && plan.hot_tokens == 77, "%g at %d", (double)bad[i], at);
            ck_assert_msg(strstr(err.text, name) != NULL && strstr(err.text, "score") != NULL, "%s",
                          err.text);
        }
    }
}
END_TEST

START_TEST(stream_flags_follow_the_tape)
{
    struct md_block blocks[16];
    sixteen(blocks);
    plan_ok(blocks, 14, 14 * B, (struct md_stream_policy){ B, 2 * B }, open_gate);
    ck_assert(blocks[0].flags == MD_BLOCK_SINK && blocks[11].flags == 0 &&
              blocks[12].flags == MD_BLOCK_RECENT);
    blocks[15].range.end -= B - 1; /* the last one partial: recent counts from its end */
    plan_ok(blocks, 16, 16 * B, (struct md_stream_policy){ 0, B }, open_gate);
    ck_assert(blocks[0].flags == 0 && blocks[12].flags == 0 && blocks[13].flags == 0);
    ck_assert(blocks[14].flags == MD_BLOCK_RECENT && blocks[15].flags == MD_BLOCK_RECENT);
}
END_TEST

START_TEST(gate)
{
    static const struct {
        const char *label;
        struct md_residency_gate gate;
        bool shut;
    } rows[] = {
        { "nothing", { false, false, false }, true },
        { "remove", { true, false, false }, false },
        { "recompute without cold", { false, true, false }, true },
        { "cold without recompute", { false, false, true }, true },
        { "recompute with cold", { false, true, true }, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_block blocks[16];
        sixteen(blocks);
        struct md_plan p = plan_ok(blocks, 16, 8 * B, (struct md_stream_policy){ B, 2 * B }, rows[i].gate);
        ck_assert_msg(p.gate_shut == rows[i].shut && p.over_budget == rows[i].shut, "%s", rows[i].label);
        ck_assert_msg((p.diagnostic != NULL) == rows[i].shut, "%s", rows[i].label);
        ck_assert_msg(p.hot_tokens == (rows[i].shut ? 16 : 8) * B, "%s", rows[i].label);
    }
}
END_TEST

START_TEST(bad_input_is_refused)
{
    static const struct {
        const char *label;
        struct md_range a, b;
        int32_t budget, sink, recent;
        const char *says;
    } rows[] = {
        { "budget below 0", { 0, 8 }, { 8, 16 }, -1, 0, 0, "-1" },
        { "sink below 0", { 0, 8 }, { 8, 16 }, 16, -1, 0, "sink" },
        { "recent below 0", { 0, 8 }, { 8, 16 }, 16, 0, -1, "recent" },
        { "overlap by one", { 0, 8 }, { 7, 16 }, 16, 0, 0, "overlaps" },
        { "the same twice", { 0, 8 }, { 0, 8 }, 16, 0, 0, "overlaps" },
        { "out of order", { 8, 16 }, { 0, 8 }, 16, 0, 0, "order" },
        { "empty", { 0, 8 }, { 8, 8 }, 16, 0, 0, "empty" },
        { "inside out", { 0, 8 }, { 16, 8 }, 16, 0, 0, "empty" },
        { "before the tape", { -8, 0 }, { 8, 16 }, 16, 0, 0, "order" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_block blocks[2] = { { .range = rows[i].a }, { .range = rows[i].b } };
        struct md_plan plan = { .hot_tokens = 77 };
        struct md_err err;
        enum md_status s = md_residency_plan(blocks, 2, NULL, rows[i].budget,
                                             (struct md_stream_policy){ rows[i].sink, rows[i].recent },
                                             open_gate, &arena, &plan, &err);
        ck_assert_msg(s == MD_INVALID && plan.hot_tokens == 77, "%s", rows[i].label);
        ck_assert_msg(strstr(err.text, rows[i].says) != NULL, "%s: %s", rows[i].label, err.text);
    }
    struct md_block gap[2] = { { .range = { 0, 8 } }, { .range = { 100, 108 } } }; /* a gap is no mistake */
    ck_assert_int_eq(plan_ok(gap, 2, 16, (struct md_stream_policy){ 0, 0 }, open_gate).total_tokens, 16);
    ck_assert_int_eq(plan_ok(NULL, 0, 0, (struct md_stream_policy){ 8, 8 }, open_gate).hot_tokens, 0);
}
END_TEST

START_TEST(b039_derive)
{
    static const struct {
        const char *label;
        int32_t hot, window, block, sink, recent;
        enum md_status want;
        int32_t want_sink, want_recent;
        const char *says;
    } rows[] = {
        { "defaults", 2048, 0, 64, -1, -1, MD_OK, 128, 512, NULL },
        { "defaults, rounded up", 2049, 0, 32, -1, -1, MD_OK, 128, 512, NULL },
        { "asked for, rounded up", 512, 0, 64, 1, 65, MD_OK, 64, 128, NULL },
        { "no sinks", 512, 0, 64, 0, 64, MD_OK, 0, 64, NULL },
        { "tiny hot, tiny block", 4, 0, 1, -1, -1, MD_OK, 1, 1, NULL },
        { "window wins over recent", 2048, 700, 64, -1, -1, MD_OK, 128, 704, NULL },
        { "recent wins over window", 2048, 300, 64, -1, -1, MD_OK, 128, 512, NULL },
        { "just enough", 256, 0, 64, 64, 128, MD_OK, 64, 128, NULL },
        { "one too few", 255, 0, 64, 64, 128, MD_INVALID, 0, 0, "smallest that works is 256" },
        { "defaults, just enough", 192, 0, 64, -1, -1, MD_OK, 64, 64, NULL },
        { "defaults, one too few", 191, 0, 64, -1, -1, MD_INVALID, 0, 0, "smallest that works is 192" },
        { "defaults that must climb", 1000, 0, 512, -1, -1, MD_INVALID, 0, 0, "smallest that works is 1536" },
        { "block over hot", 64, 0, 128, 0, 1, MD_INVALID, 0, 0, "smallest that works is 256" },
        { "window over hot", 1024, 1024, 64, -1, -1, MD_INVALID, 0, 0, "smallest that works is 1216" },
        { "hot 0", 0, 0, 64, -1, -1, MD_INVALID, 0, 0, "--hot must be at least 1, got 0" },
        { "hot -1", -1, 0, 64, -1, -1, MD_INVALID, 0, 0, "--hot must be at least 1, got -1" },
        { "hot as large as can be", INT32_MAX, 0, 64, -1, -1, MD_OK, 134217728, 536870912, NULL },
        { "window -1", 512, -1, 64, -1, -1, MD_INVALID, 0, 0, "window" },
        { "block 0", 512, 0, 0, -1, -1, MD_INVALID, 0, 0, "--block-tokens must be at least 1, got 0" },
        { "block -1", 512, 0, -1, -1, -1, MD_INVALID, 0, 0, "--block-tokens must be at least 1, got -1" },
        { "block 2147483647", 512, 0, INT32_MAX, -1, -1, MD_INVALID, 0, 0, "no --hot is large enough" },
        { "sink -2", 512, 0, 64, -2, -1, MD_INVALID, 0, 0, "--sink" },
        { "sink 2147483647", 512, 0, 64, INT32_MAX, -1, MD_INVALID, 0, 0, "no --hot is large enough" },
        { "recent -2", 512, 0, 64, -1, -2, MD_INVALID, 0, 0, "--recent" },
        { "recent 0", 512, 0, 64, -1, 0, MD_INVALID, 0, 0, "--recent must be at least 1" },
        { "recent 2147483647", 512, 0, 64, -1, INT32_MAX, MD_INVALID, 0, 0, "no --hot is large enough" },
        { "both, which wrap to -2", 512, 0, 64, INT32_MAX, INT32_MAX, MD_INVALID, 0, 0,
          "no --hot is large enough" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_stream_policy p = { -5, -5 };
        struct md_err err = { 0 };
        enum md_status s = md_residency_derive(rows[i].hot, rows[i].window, rows[i].block, rows[i].sink,
                                               rows[i].recent, &p, &err);
        ck_assert_msg(s == rows[i].want, "%s: %s %s", rows[i].label, md_status_name(s), err.text);
        if (s == MD_OK)
            ck_assert_msg(p.sink_tokens == rows[i].want_sink && p.recent_tokens == rows[i].want_recent,
                          "%s: %d %d", rows[i].label, p.sink_tokens, p.recent_tokens);
        else
            ck_assert_msg(p.sink_tokens == -5 && strstr(err.text, rows[i].says) != NULL, "%s: %s",
                          rows[i].label, err.text);
    }
}
END_TEST

/* What the text of a refusal promises holds: that --hot works, and one less does not. */
START_TEST(b039_the_smallest_hot_is_the_smallest)
{
    for (int32_t block = 1; block <= 200; block += 13) {
        for (int32_t window = 0; window <= 300; window += 150) {
            int32_t least = 1;
            struct md_stream_policy p;
            struct md_err err;
            enum md_status s = md_residency_derive(1, window, block, -1, -1, &p, &err);
            ck_assert_int_eq(s, MD_INVALID);
            long long said = atoll(strrchr(err.text, ' '));
            while (md_residency_derive(least, window, block, -1, -1, &p, NULL) != MD_OK)
                least++;
            ck_assert_int_eq(least, said);
        }
    }
}
END_TEST

/* ---- the walk ---- */

/* Does block i leave before block j, i before j on the tape?  The rule read off the header. */
static bool leaves_first(const struct md_block *b, const float *scores, size_t i, size_t j)
{
    bool kept_i = b[i].flags & MD_BLOCK_RETRIEVED, kept_j = b[j].flags & MD_BLOCK_RETRIEVED;
    if (kept_i != kept_j)
        return kept_j;
    if (b[i].cls != b[j].cls)
        return b[i].cls > b[j].cls;
    if (scores != NULL && scores[i] != scores[j])
        return scores[i] < scores[j];
    return b[i].last_used <= b[j].last_used;
}

/* Without care for speed: look for the one that must leave next, again and again. */
static void naive(const struct md_block *b, size_t n, const float *scores, int32_t budget,
                  struct md_stream_policy sp, bool *hot)
{
    int64_t end = b[n - 1].range.end, sum = 0;
    bool guarded[BLOCKS_MAX], flagged[BLOCKS_MAX];
    for (size_t i = 0; i < n; i++) {
        flagged[i] = (b[i].flags & MD_BLOCK_PINNED) ||
                     md_range_overlaps(b[i].range, (struct md_range){ 0, sp.sink_tokens }) ||
                     (b[i].range.start < end && b[i].range.end > end - sp.recent_tokens);
        guarded[i] = flagged[i] || b[i].cls == MD_CLASS_TASK_PINNED;
        hot[i] = true;
        sum += md_range_len(b[i].range);
    }
    while (sum > budget) {
        int worst = -1;
        for (int i = (int)n - 1; i >= 0; i--) {
            if (!hot[i] || guarded[i])
                continue;
            if (worst < 0 || leaves_first(b, scores, (size_t)i, (size_t)worst))
                worst = i;
        }
        for (int i = 0; worst < 0 && i < (int)n; i++) /* the last resort: the last of those */
            for (int k = i; hot[i] && !flagged[i] && k < (int)n; k++)
                worst = hot[k] && !flagged[k] ? k : worst;
        if (worst < 0)
            return;
        hot[worst] = false;
        sum -= md_range_len(b[worst].range);
    }
}

START_TEST(walk_against_naive)
{
    struct rng r = rng_open("residency walk");
    for (int round = 0; round < 20000; round++) {
        struct md_block blocks[BLOCKS_MAX];
        float scores[BLOCKS_MAX], *given = rng_below(&r, 3) == 0 ? NULL : scores;
        size_t n = 1 + rng_below(&r, BLOCKS_MAX);
        int32_t at = 0;
        for (size_t i = 0; i < n; i++) {
            at += rng_below(&r, 10) == 0 ? (int32_t)rng_below(&r, 20) : 0;
            int32_t len = 1 + (int32_t)rng_below(&r, 9);
            blocks[i] = (struct md_block){
                .range = { at, at + len },
                .cls = rng_below(&r, 8) == 0 ? MD_CLASS_TASK_PINNED : 1 + rng_below(&r, 2),
                .flags = rng_below(&r, 16), /* retrieved, and stale SINK and RECENT among them */
                .last_used = rng_below(&r, 6)
            };
            if (rng_below(&r, 2))
                blocks[i].flags &= ~(unsigned)MD_BLOCK_PINNED;
            scores[i] = (float)rng_below(&r, 4) - 1.5F;
            at += len;
        }
        struct md_stream_policy sp = { (int32_t)rng_below(&r, 30), (int32_t)rng_below(&r, 30) };
        int32_t budget = (int32_t)rng_below(&r, 200);
        bool want[BLOCKS_MAX];
        naive(blocks, n, given, budget, sp, want);
        struct md_plan p = plan_scored(blocks, n, given, budget, sp, open_gate);
        int32_t hot = 0;
        for (size_t i = 0; i < n; i++) {
            ck_assert_msg(p.hot[i] == want[i], "round %d: block %zu of %zu", round, i, n);
            hot += want[i] ? md_range_len(blocks[i].range) : 0;
        }
        ck_assert(p.hot_tokens == hot && p.over_budget == (hot > budget));
        md_arena_done(&arena);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("residency");
    TCase *t = tcase_create("residency");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, b077_equal_scores_leave_from_the_oldest);
    tcase_add_test(t, b077_age_breaks_ties);
    tcase_add_test(t, b077_lower_scores_leave_first);
    tcase_add_test(t, retrieved_blocks_leave_last);
    tcase_add_test(t, b039_scores_out_of_range);
    tcase_add_test(t, b077_pinned_over_budget_ends);
    tcase_add_test(t, classes_leave_in_order);
    tcase_add_test(t, stream_flags_follow_the_tape);
    tcase_add_test(t, gate);
    tcase_add_test(t, bad_input_is_refused);
    tcase_add_test(t, b039_derive);
    tcase_add_test(t, b039_the_smallest_hot_is_the_smallest);
    tcase_add_test(t, walk_against_naive);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
