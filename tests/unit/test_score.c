/* test_score.c - from tokens to blocks: each step by hand, pooling against its definition, and clauses in any order. */
#include "policy/score.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct md_arena arena;

static void setup(void)
{
    md_arena_init(&arena, NULL, 8 << 20);
}

static void teardown(void)
{
    md_arena_done(&arena);
}

static void near(const char *label, float got, double want)
{
    ck_assert_msg(fabs((double)got - want) < 1e-5, "%s: %.7g, wanted %.7g", label, (double)got, want);
}

START_TEST(pooling_by_hand)
{
    /* width 3: the largest of each and its neighbours */
    const float in[] = { 0, 5, 1, 0, 0, 2 };
    const float want[] = { 5, 5, 5, 1, 2, 2 };
    float out[6];
    int32_t queue[6];
    md_score_pool(in, 6, 3, queue, out);
    ck_assert_mem_eq(out, want, sizeof want);
    md_score_pool(in, 6, 1, queue, out);
    ck_assert_mem_eq(out, in, sizeof in);
    md_score_pool(in, 6, 63, queue, out);
    for (int i = 0; i < 6; i++)
        ck_assert_float_eq(out[i], 5);
}
END_TEST

START_TEST(pooling_is_the_largest_of_the_window)
{
    struct rng rng = rng_open("pooling_is_the_largest_of_the_window");
    for (int round = 0; round < 500; round++) {
        enum { MOST = 80 };
        float in[MOST], out[MOST];
        int32_t queue[MOST];
        const size_t n = 1 + rng_below(&rng, MOST), half = rng_below(&rng, 40);
        for (size_t i = 0; i < n; i++)
            in[i] = (float)rng_below(&rng, 9) - 4;
        md_score_pool(in, n, 2 * (int32_t)half + 1, queue, out);
        bool good = true;
        for (size_t i = 0; i < n; i++) {
            float want = in[i];
            for (size_t j = i > half ? i - half : 0; j < n && j <= i + half; j++)
                want = in[j] > want ? in[j] : want;
            good &= out[i] == want;
        }
        ck_assert_msg(good, "round %d: %zu tokens, width %zu", round, n, 2 * half + 1);
    }
}
END_TEST

START_TEST(steps_by_hand)
{
    /* two clauses of three rows in all: (0.6 + 0.3) / 3 and (0 + 1.5) / 3 */
    const float mass[] = { 0.6F, 0, 0.3F, 1.5F };
    float mean[2], background[2] = { 0.1F, 0.1F };
    md_score_mean_rows(mass, 2, 2, 3, mean);
    near("mean", mean[0], 0.3);
    near("mean", mean[1], 0.5);
    /* 1 and 2^-24 lie half way between two floats; 2^-53 twice is enough to round up, when the small ones meet first */
    const float up[] = { 1, 0x1p-24F, 0x1p-53F, 0x1p-53F }, down[] = { 0x1p-53F, 0x1p-53F, 0x1p-24F, 1 };
    float one, other;
    md_score_mean_rows(up, 4, 1, 1, &one);
    md_score_mean_rows(down, 4, 1, 1, &other);
    ck_assert_float_eq(one, other);
    /* a quarter of the way from 0.1 to 0.3 and to 0.5 */
    md_score_move_background(background, mean, 2, 0.25F);
    near("background", background[0], 0.15);
    near("background", background[1], 0.2);
    /* nine tokens of 1 and one of -8: mean 0.1, deviation sqrt(7.3 - 0.01) = 2.7; below -5.3 is only the last */
    float tokens[10], nothing[10] = { 0 };
    for (int i = 0; i < 9; i++)
        tokens[i] = 1;
    tokens[9] = -8;
    md_score_subtract(tokens, nothing, 10, false);
    near("kept", tokens[9], -8);
    nothing[0] = 0.25F;
    md_score_subtract(tokens, nothing, 10, true);
    near("subtracted", tokens[0], 0.75);
    near("cut", tokens[9], 0);
    near("untouched", tokens[1], 1);
    const float three[] = { 1, 4, 2 };
    near("max", md_score_reduce(three, 3, MD_SCORE_REDUCE_MAX), 4);
    near("sum", md_score_reduce(three, 3, MD_SCORE_REDUCE_SUM), 7);
}
END_TEST

/* Three blocks of two tokens (the first is protected, the last stands behind a hole), two heads, one clause of two rows. */
static const struct md_attention_block places[] = {
    { 0, 2, false }, { 2, 2, true }, { 4, 2, true }, { 9, 2, true }
};
enum { BLOCKS = 4, TOKENS = 8, HEADS = 2 };
static const size_t two_rows = 2;
static const float masses[] = { 0,    0,    0.2F, 0.6F,
                                0,    0.2F, 1.0F, 0, /* head 0: rows give 0.3, 0.1 and 0.5 at most */
                                0,    0,    0.4F, 0.4F,
                                1.2F, 0,    0,    0 }; /* head 1: 0.2, 0.6 and 0 */
static const float shares[] = { 0.75F, 0.25F };

static struct md_score_input plain_input(void)
{
    return (struct md_score_input){ .blocks = places,
                                    .block_count = BLOCKS,
                                    .head_count = HEADS,
                                    .clause_count = 1,
                                    .clause_rows = &two_rows,
                                    .mass = masses,
                                    .share = shares };
}

static void scores_of(const struct md_score_input *in, const struct md_score_params *p, struct md_scores *to)
{
    struct md_err err = { 0 };
    ck_assert_msg(md_score_blocks(in, p, &arena, to, &err) == MD_OK, "%s", err.text);
}

START_TEST(fusing_by_hand)
{
    static const struct {
        const char *label;
        int32_t pool;
        enum md_score_reduce reduce;
        enum md_score_fuse fuse;
        bool weigh;
        float offset;
        double want[BLOCKS];
    } rows[] = {
        /* head 0 ranks blocks 3, 1, 2; head 1 ranks 2, 1, and gives 3 nothing.  Offset 0: 1, 1/2, 1/3 */
        { "ranks",
          1,
          MD_SCORE_REDUCE_MAX,
          MD_SCORE_FUSE_RANK,
          true,
          0,
          { 0, 0.75 / 2 + 0.25 / 2, 0.75 / 3 + 0.25, 0.75 } },
        { "ranks, all alike",
          1,
          MD_SCORE_REDUCE_MAX,
          MD_SCORE_FUSE_RANK,
          false,
          0,
          { 0, 0.5 / 2 + 0.5 / 2, 0.5 / 3 + 0.5, 0.5 } },
        { "ranks, offset 60",
          1,
          MD_SCORE_REDUCE_MAX,
          MD_SCORE_FUSE_RANK,
          true,
          60,
          { 0, 61.0 / 62, 0.75 * 61 / 63 + 0.25, 0.75 } },
        { "sums",
          1,
          MD_SCORE_REDUCE_MAX,
          MD_SCORE_FUSE_SUM,
          true,
          60,
          { 0, 0.75 * 0.3 + 0.25 * 0.2, 0.75 * 0.1 + 0.25 * 0.6, 0.75 * 0.5 } },
        { "the largest",
          1,
          MD_SCORE_REDUCE_MAX,
          MD_SCORE_FUSE_MAX,
          true,
          60,
          { 0, 0.75 * 0.3, 0.25 * 0.6, 0.75 * 0.5 } },
        { "sums of tokens",
          1,
          MD_SCORE_REDUCE_SUM,
          MD_SCORE_FUSE_SUM,
          true,
          60,
          { 0, 0.75 * 0.4 + 0.25 * 0.4, 0.75 * 0.1 + 0.25 * 0.6, 0.75 * 0.5 } },
        /* pooled by 3: the 0.3 at the end of block 1 lifts block 2, but nothing crosses the hole to block 3 */
        { "pooled",
          3,
          MD_SCORE_REDUCE_MAX,
          MD_SCORE_FUSE_SUM,
          true,
          60,
          { 0, 0.75 * 0.3 + 0.25 * 0.6, 0.75 * 0.3 + 0.25 * 0.6, 0.75 * 0.5 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_score_params p = md_score_defaults();
        p.pool_tokens = rows[i].pool;
        p.reduce = rows[i].reduce;
        p.fuse = rows[i].fuse;
        p.weigh_by_share = rows[i].weigh;
        p.rank_offset = rows[i].offset;
        struct md_scores s;
        const struct md_score_input in = plain_input();
        scores_of(&in, &p, &s);
        for (size_t b = 0; b < BLOCKS; b++) {
            /* with one clause the mean and the best clause are one ranking, and the clause is the whole */
            const double halves = rows[i].fuse == MD_SCORE_FUSE_MAX ? 0.5 : 1;
            near(rows[i].label, s.overall[b], rows[i].want[b] * halves);
            near(rows[i].label, s.clause[b], rows[i].want[b]);
            near("no lists", s.listed[b], 0);
        }
        ck_assert_uint_eq(s.heads_used, 2);
        /* highest of 0.75 * head 0 + 0.25 * head 1: second token of block 1, first of the others */
        static const int32_t peaks[] = { -1, 1, 0, 0 };
        ck_assert_mem_eq(s.peak_at, peaks, sizeof peaks);
        ck_assert_mem_eq(s.peak_at + BLOCKS, peaks, sizeof peaks);
    }
}
END_TEST

/* Two clauses of 1 and 3 rows over blocks of one token: means over 4 rows against the best clause. */
START_TEST(mean_and_best_clause)
{
    const struct md_attention_block each[] = { { 0, 1, true }, { 1, 1, true } };
    const size_t rows[] = { 1, 3 };
    const float mass[] = { 0.9F, 0.1F, 0.6F, 2.4F }, share[] = { 1, 1 };
    const struct md_score_input in = { .blocks = each,
                                       .block_count = 2,
                                       .head_count = 1,
                                       .clause_count = 2,
                                       .clause_rows = rows,
                                       .mass = mass,
                                       .share = share };
    struct md_score_params p = md_score_defaults();
    p.pool_tokens = 1;
    p.fuse = MD_SCORE_FUSE_SUM;
    static const struct {
        enum md_score_rows rows;
        double want[2];
    } want[] = { { MD_SCORE_ROWS_MEAN, { 1.5 / 4, 2.5 / 4 } },
                 { MD_SCORE_ROWS_BEST, { 0.9, 0.8 } },
                 { MD_SCORE_ROWS_BOTH, { (1.5 / 4 + 0.9) / 2, (2.5 / 4 + 0.8) / 2 } } };
    for (size_t i = 0; i < 3; i++) {
        struct md_scores s;
        p.rows = want[i].rows;
        scores_of(&in, &p, &s);
        near("block 0", s.overall[0], want[i].want[0]);
        near("block 1", s.overall[1], want[i].want[1]);
        near("clause 0", s.clause[0], 0.9);
        near("clause 1", s.clause[3], 0.8);
    }
}
END_TEST

START_TEST(backgrounds_and_lists)
{
    struct md_score_params p = md_score_defaults();
    struct md_score_input in = plain_input();
    struct md_scores s;
    p.reduce = MD_SCORE_REDUCE_MAX;
    p.rank_offset = 0;
    p.fuse = MD_SCORE_FUSE_SUM;
    /* what head 0 gives to block 3 in any case */
    float background[HEADS * TOKENS] = { 0 };
    background[6] = 0.45F;
    in.background = background;
    scores_of(&in, &p, &s);
    ck_assert(!s.background_used);
    near("not asked for", s.overall[3], 0.375);
    p.background = true;
    scores_of(&in, &p, &s);
    ck_assert(s.background_used);
    near("subtracted", s.overall[3], 0.75 * 0.05);
    /* a list names blocks 2 and 3 alike; the heads' order 3, 1, 2 becomes ranks 1, 1/2, 1/3 */
    const float named[] = { 9, 0, 7, 7 };
    const struct md_score_list list = { named, 0.5F };
    p.background = false;
    in.lists = &list;
    in.list_count = 1;
    scores_of(&in, &p, &s);
    static const double ranks[] = { 0, 0.5, 1.0 / 3, 1 }, listed[] = { 0, 0, 0.5, 0.5 };
    for (size_t b = 0; b < BLOCKS; b++) {
        near("ranked", s.overall[b], ranks[b]);
        near("listed", s.listed[b], listed[b]);
    }
}
END_TEST

/* A head that gives candidates nothing has no part; when none gives anything that is said. */
START_TEST(heads_on_the_sink)
{
    struct md_score_params p = md_score_defaults();
    struct md_score_input in = plain_input();
    struct md_scores s;
    const float one[] = { 0, 0.25F }, none[] = { 0, 0 };
    in.share = one;
    scores_of(&in, &p, &s);
    ck_assert_uint_eq(s.heads_asked, 2);
    ck_assert_uint_eq(s.heads_used, 1);
    in.share = none;
    scores_of(&in, &p, &s);
    ck_assert_uint_eq(s.heads_used, 0);
    for (size_t b = 0; b < BLOCKS; b++)
        ck_assert(s.overall[b] == 0 && s.clause[b] == 0 && s.peak_at[b] == -1);
}
END_TEST

/* Clauses in another order give the same scores to the bit, and their own with them. */
START_TEST(clauses_in_any_order)
{
    enum { B = 7, C = 3, H = 4, T = 5 * B };
    static const size_t orders[6][C] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                         { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    struct rng rng = rng_open("clauses_in_any_order");
    for (int round = 0; round < 200; round++) {
        struct md_attention_block each[B];
        float mass[H * C * T], share[H * C], overall[B], clause[C * B];
        int32_t peak_at[(C + 1) * B];
        size_t rows[C];
        for (int b = 0; b < B; b++)
            each[b] = (struct md_attention_block){ 5 * b, 5, b > 0 };
        for (int c = 0; c < C; c++)
            rows[c] = 1 + rng_below(&rng, 40);
        for (int i = 0; i < H * C * T; i++) /* of very different size, so that sums of floats would differ */
            mass[i] = i % T < 5 ? 0 : ldexpf((float)rng_below(&rng, 1 << 24), -24 - (int)rng_below(&rng, 20));
        for (int i = 0; i < H * C; i++)
            share[i] = (float)rng_below(&rng, 10007) / 10007;
        struct md_score_params p = md_score_defaults();
        p.pool_tokens = 3;
        p.fuse = round % 3 == 0 ? MD_SCORE_FUSE_SUM : MD_SCORE_FUSE_RANK;
        for (int o = 0; o < 6; o++) {
            float m[H * C * T], sh[H * C];
            size_t r[C];
            for (size_t c = 0; c < C; c++) {
                r[c] = rows[orders[o][c]];
                for (size_t h = 0; h < H; h++) {
                    sh[h * C + c] = share[h * C + orders[o][c]];
                    memcpy(m + (h * C + c) * T, mass + (h * C + orders[o][c]) * T, T * sizeof *m);
                }
            }
            const struct md_score_input in = { .blocks = each,
                                               .block_count = B,
                                               .head_count = H,
                                               .clause_count = C,
                                               .clause_rows = r,
                                               .mass = m,
                                               .share = sh };
            struct md_scores s;
            scores_of(&in, &p, &s);
            if (o == 0) {
                memcpy(overall, s.overall, sizeof overall);
                memcpy(clause, s.clause, sizeof clause);
                memcpy(peak_at, s.peak_at, sizeof peak_at);
            }
            ck_assert_mem_eq(s.overall, overall, sizeof overall);
            ck_assert_mem_eq(s.peak_at + C * B, peak_at + C * B, B * sizeof *peak_at);
            for (size_t c = 0; c < C; c++)
                ck_assert_mem_eq(s.clause + c * B, clause + orders[o][c] * B, B * sizeof *clause);
        }
        md_arena_done(&arena);
    }
}
END_TEST

START_TEST(bad_input_is_refused)
{
    for (int n = 0; n < 19; n++) {
        struct md_score_params p = md_score_defaults();
        struct md_score_input in = plain_input();
        struct md_attention_block b[BLOCKS];
        float mass[HEADS * TOKENS], share[HEADS], named[BLOCKS] = { 1 };
        struct md_score_list list = { named, 1 };
        size_t rows = 2;
        memcpy(b, places, sizeof b);
        memcpy(mass, masses, sizeof mass);
        memcpy(share, shares, sizeof share);
        in.blocks = b, in.mass = mass, in.share = share, in.clause_rows = &rows, in.lists = &list;
        in.list_count = 1;
        switch (n) {
        case 0: break;
        case 1: in.block_count = 0; break;
        case 2: in.head_count = 0; break;
        case 3: in.clause_count = 0; break;
        case 4: p.pool_tokens = 0; break;
        case 5: p.pool_tokens = 62; break;
        case 6: p.pool_tokens = MD_SCORE_POOL_MOST + 2; break;
        case 7: p.rank_offset = -1; break;
        case 8: p.background = true; break;
        case 9: b[2].start = 3; break;
        case 10: rows = 0; break;
        case 11: mass[9] = NAN; break;
        case 12: mass[9] = -0.1F; break;
        case 13: share[1] = INFINITY; break;
        case 14: named[2] = NAN; break;
        case 15: b[0].start = -1; break;
        case 16: b[BLOCKS - 2].start = b[BLOCKS - 1].start = INT32_MAX; break; /* no sum leaves 32 bits */
        case 17: b[1].tokens = INT32_MAX; break;
        default: list.weight = 0; break;
        }
        struct md_scores s;
        struct md_err err = { 0 };
        ck_assert_msg(md_score_blocks(&in, &p, &arena, &s, &err) == (n == 0 ? MD_OK : MD_INVALID),
                      "case %d: %s", n, err.text);
    }
    struct md_arena small;
    struct md_scores s;
    const struct md_score_input in = plain_input();
    const struct md_score_params p = md_score_defaults();
    md_arena_init(&small, NULL, 100);
    ck_assert_int_eq(md_score_blocks(&in, &p, &small, &s, NULL), MD_NO_MEMORY);
    md_arena_done(&small);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("score");
    TCase *c = tcase_create("score");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, pooling_by_hand);
    tcase_add_test(c, pooling_is_the_largest_of_the_window);
    tcase_add_test(c, steps_by_hand);
    tcase_add_test(c, fusing_by_hand);
    tcase_add_test(c, mean_and_best_clause);
    tcase_add_test(c, backgrounds_and_lists);
    tcase_add_test(c, heads_on_the_sink);
    tcase_add_test(c, clauses_in_any_order);
    tcase_add_test(c, bad_input_is_refused);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
