/* test_restore.c - restore or compute: what is learned, what is decided, and that both calls agree. */
#include "policy/restore.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>
#include <string.h>

enum { KIB = 1024 };

/* One that was told `n` times of blocks of alternating sizes at a fixed and a per-byte time, and of a prefill. */
static struct md_restore told(int n, int64_t block_ns, double byte_ns, double token_ns)
{
    struct md_restore r = { 0 };
    for (int i = 0; i < n; i++) {
        int64_t bytes = (i % 4 < 2 ? 64 : 512) * KIB;
        md_restore_note_restore(&r, MD_TIER_DISK, 3 * bytes, 3,
                                3 * (block_ns + (int64_t)(byte_ns * (double)bytes)));
        md_restore_note_prefill(&r, 100, (int64_t)(100 * token_ns));
    }
    return r;
}

START_TEST(unknown_speeds_restore)
{
    struct md_restore r = { 0 };
    ck_assert(md_restore_wins(&r, MD_TIER_HOST, INT64_MAX, 0));
    ck_assert_int_eq(md_restore_break_even_tokens(&r, MD_TIER_HOST, INT64_MAX), 0);
    md_restore_note_prefill(&r, 1, 1);
    ck_assert(md_restore_wins(&r, MD_TIER_HOST, INT64_MAX, 0));
    md_restore_note_restore(&r, MD_TIER_DISK, 1000, 1, 1000000); /* the other tier */
    ck_assert(md_restore_wins(&r, MD_TIER_HOST, INT64_MAX, 0));
    ck_assert(!md_restore_wins(&r, MD_TIER_DISK, 1000, 1));
    md_restore_note_restore(&r, MD_TIER_HOST, 1000, 1, 1000000);
    ck_assert(!md_restore_wins(&r, MD_TIER_HOST, INT64_MAX, 0));
    memset(&r, 0, sizeof r);
    md_restore_note_restore(&r, MD_TIER_HOST, 1000, 1, 1000000);
    ck_assert(md_restore_wins(&r, MD_TIER_HOST, INT64_MAX, 0));
}
END_TEST

START_TEST(no_measure_is_none)
{
    struct md_restore r = { 0 }, none = { 0 };
    static const int64_t bad[][3] = { { 0, 1, 5 },  { 1, 0, 5 },  { -1, 1, 5 },
                                      { 1, -1, 5 }, { 1, 1, -1 }, { INT64_MIN, INT64_MIN, INT64_MIN } };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        md_restore_note_restore(&r, MD_TIER_HOST, bad[i][0], bad[i][1], bad[i][2]);
    md_restore_note_prefill(&r, 0, 5);
    md_restore_note_prefill(&r, -1, 5);
    md_restore_note_prefill(&r, 1, -5);
    ck_assert_mem_eq(&r, &none, sizeof r);
}
END_TEST

/* A block costs 1 ms and 2 ns a byte; a token of 1000 bytes costs 12000 ns to compute.  So n tokens are worth it from
 * 10^6 + 2000 n <= 12000 n on: n = 100. */
START_TEST(both_parts_are_learned)
{
    struct md_restore r = told(60, 1000000, 2, 12000);
    int64_t n = md_restore_break_even_tokens(&r, MD_TIER_DISK, 1000);
    ck_assert_msg(n >= 99 && n <= 101, "%lld", (long long)n);
    ck_assert(md_restore_wins(&r, MD_TIER_DISK, 102000, 102) &&
              !md_restore_wins(&r, MD_TIER_DISK, 98000, 98));
    ck_assert_int_eq(md_restore_break_even_tokens(&r, MD_TIER_DISK, 6100),
                     -1);                                     /* 12200 ns to bring a token */
    n = md_restore_break_even_tokens(&r, MD_TIER_DISK, 5000); /* 10^6 / (12000 - 10000) */
    ck_assert_msg(n >= 490 && n <= 510, "%lld", (long long)n);
    n = md_restore_break_even_tokens(&r, MD_TIER_DISK, 0); /* 10^6 / 12000 */
    ck_assert_msg(n >= 83 && n <= 85, "%lld", (long long)n);
}
END_TEST

/* Blocks of one size say nothing about the parts: all of the time counts by bytes, and at that size it is right. */
START_TEST(one_size_is_a_rate)
{
    struct md_restore r = { 0 };
    for (int i = 0; i < 50; i++) { /* noise whose line would fall steeply */
        bool more = i % 4 < 2;
        md_restore_note_restore(&r, MD_TIER_HOST, 100000 + more, 1, 50500 - more * 200);
        md_restore_note_prefill(&r, 10, 10000);
    }
    ck_assert(md_restore_wins(&r, MD_TIER_HOST, 100000, 52) &&
              !md_restore_wins(&r, MD_TIER_HOST, 100000, 50));
    ck_assert(md_restore_wins(&r, MD_TIER_HOST, 50000, 26) && !md_restore_wins(&r, MD_TIER_HOST, 50000, 25));
    ck_assert_int_eq(md_restore_break_even_tokens(&r, MD_TIER_HOST, 1000), 0);
    ck_assert_int_eq(md_restore_break_even_tokens(&r, MD_TIER_HOST, 2100), -1);
}
END_TEST

/* Neither part is below 0, whatever line fits best. */
START_TEST(no_part_is_below_0)
{
    struct md_restore over = { 0 }, under = { 0 };
    for (int i = 0; i < 60; i++) {
        bool small = i % 4 < 2;
        int64_t bytes = (small ? 64 : 512) * KIB;
        md_restore_note_restore(&over, MD_TIER_HOST, bytes, 1, small ? 10000 : 1000000);
        md_restore_note_restore(&under, MD_TIER_HOST, bytes, 1, small ? 1000000 : 100000);
        md_restore_note_prefill(&over, 1, 1000);
        md_restore_note_prefill(&under, 1, 1000);
    }
    /* 2.2 ns a byte and less than nothing a block: a rate then, of 505000 ns for 288 KiB at the mean */
    ck_assert(md_restore_wins(&over, MD_TIER_HOST, 512 * KIB, 1000));
    ck_assert(!md_restore_wins(&over, MD_TIER_HOST, 512 * KIB, 800));
    ck_assert_int_eq(md_restore_break_even_tokens(&over, MD_TIER_HOST, 1), 0);
    /* the more bytes the faster: a cost of the block then, of 550000 ns at the mean */
    ck_assert(md_restore_wins(&under, MD_TIER_HOST, INT64_MAX, 750));
    ck_assert(!md_restore_wins(&under, MD_TIER_HOST, 0, 350));
    for (int i = 0; i < 500; i++) /* computing is free, as bringing a byte is: the block alone decides */
        md_restore_note_prefill(&under, 1, 0);
    ck_assert_int_eq(md_restore_break_even_tokens(&under, MD_TIER_HOST, 1000), -1);
    ck_assert(!md_restore_wins(&under, MD_TIER_HOST, 0, INT64_MAX));
}
END_TEST

START_TEST(no_sum_wraps)
{
    struct md_restore r = { 0 };
    md_restore_note_restore(&r, MD_TIER_HOST, 1, 1,
                            INT64_MAX); /* 2^83 of the unit times 2^62 is 0 in 128 bits */
    md_restore_note_prefill(&r, 1, 1);
    ck_assert(!md_restore_wins(&r, MD_TIER_HOST, INT64_C(1) << 62, 1000));
    ck_assert_int_eq(md_restore_break_even_tokens(&r, MD_TIER_HOST, INT64_C(1) << 62), -1);
    md_restore_note_prefill(&r, 1, INT64_MAX);
    ck_assert(!md_restore_wins(&r, MD_TIER_HOST, INT64_C(1) << 62, 1)); /* of two the faster */
    md_restore_note_prefill(&r, 1, INT64_MAX);
    ck_assert(md_restore_wins(&r, MD_TIER_HOST, 1, INT64_C(1) << 62));
}
END_TEST

/* A wild measure at any place, the first ones too, moves the answer by nothing to speak of; the third in a row does. */
START_TEST(one_outlier_changes_nothing)
{
    for (int at = 0; at < 12; at++) {
        for (int which = 0; which < 3; which++) {
            struct md_restore r = { 0 };
            for (int i = 0; i < 12; i++) {
                int64_t restore = i == at && which == 0 ? 50000000 : i == at && which == 2 ? 0 : 50000;
                md_restore_note_restore(&r, MD_TIER_HOST, 100000, 1, restore);
                md_restore_note_prefill(&r, 10, i == at && which == 1 ? 10000000 : 10000);
                if (i < 1 || (i < 2 && which == 2)) /* of two the faster is taken */
                    continue;
                ck_assert_msg(md_restore_wins(&r, MD_TIER_HOST, 100000, 51), "at %d: %d", at, which);
                ck_assert_msg(!md_restore_wins(&r, MD_TIER_HOST, 100000, 49), "at %d: %d", at, which);
            }
        }
    }
    struct md_restore r = { 0 };
    for (int i = 0; i < 70; i++) { /* and what stays is learned */
        md_restore_note_restore(&r, MD_TIER_HOST, 100000, 1, i < 20 ? 50000 : 500000);
        md_restore_note_prefill(&r, 10, 10000);
    }
    ck_assert(md_restore_wins(&r, MD_TIER_HOST, 100000, 505) &&
              !md_restore_wins(&r, MD_TIER_HOST, 100000, 490));
}
END_TEST

/* Any measures: more tokens never lose, more bytes never win, and break_even is the border to the token. */
START_TEST(walk_of_any_measures)
{
    struct rng r = rng_open("restore");
    int finite = 0, never = 0, always = 0;
    for (int round = 0; round < 20000; round++) {
        struct md_restore m = { 0 };
        uint32_t notes = 1 + rng_below(&r, 12);
        for (uint32_t i = 0; i < notes; i++) {
            uint32_t cut = rng_below(&r, 63), cut2 = rng_below(&r, 63), cut3 = rng_below(&r, 63);
            if (rng_below(&r, 2)) /* numbers of this world, or of any */
                cut = 40 + cut % 20, cut2 = 40 + cut2 % 20, cut3 = 40 + cut3 % 20;
            int64_t a = (int64_t)(rng_next(&r) >> 1 >> cut), b = (int64_t)(rng_next(&r) >> 1 >> cut2),
                    c = (int64_t)(rng_next(&r) >> 1 >> cut3);
            md_restore_note_restore(&m, MD_TIER_HOST, a, 1 + rng_below(&r, 4), b);
            md_restore_note_prefill(&m, 1 + c / 1000, c);
        }
        int64_t per_token = (int64_t)(rng_next(&r) >> 1 >> (20 + rng_below(&r, 43)));
        int64_t n = md_restore_break_even_tokens(&m, MD_TIER_HOST, per_token);
        finite += n > 0;
        never += n < 0;
        always += n == 0;
        for (int k = 0; k < 8; k++) {
            int64_t tokens = (int64_t)(rng_next(&r) >> 1 >> rng_below(&r, 63));
            if (k < 4 && n > 0)
                tokens = n - 2 + k; /* about the border */
            if (tokens < 0 || (per_token > 0 && tokens > INT64_MAX / per_token - 2))
                continue;
            bool wins = md_restore_wins(&m, MD_TIER_HOST, per_token * tokens, tokens);
            ck_assert_msg(wins == (n >= 0 && tokens >= n) || (n < 0 && tokens == 0), "round %d: %lld of %lld",
                          round, (long long)tokens, (long long)n);
            if (wins)
                ck_assert(md_restore_wins(&m, MD_TIER_HOST, per_token * tokens, tokens + 1) &&
                          md_restore_wins(&m, MD_TIER_HOST, per_token * tokens / 2, tokens) &&
                          md_restore_wins(&m, MD_TIER_HOST, per_token * tokens, INT64_MAX));
            else
                ck_assert(!md_restore_wins(&m, MD_TIER_HOST, per_token * tokens, tokens - 1) &&
                          !md_restore_wins(&m, MD_TIER_HOST, INT64_MAX, tokens));
        }
        ck_assert(md_restore_wins(&m, MD_TIER_HOST, INT64_MIN, -5) ==
                  md_restore_wins(&m, MD_TIER_HOST, 0, 0));
    }
    ck_assert_msg(finite > 100 && never > 100 && always > 100, "%d %d %d", finite, never, always);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore");
    TCase *t = tcase_create("restore");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, unknown_speeds_restore);
    tcase_add_test(t, no_measure_is_none);
    tcase_add_test(t, both_parts_are_learned);
    tcase_add_test(t, one_size_is_a_rate);
    tcase_add_test(t, no_part_is_below_0);
    tcase_add_test(t, no_sum_wraps);
    tcase_add_test(t, one_outlier_changes_nothing);
    tcase_add_test(t, walk_of_any_measures);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
