/* test_content.c - content keys and the roller. */
#include "policy/content.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>
#include <string.h>

enum { TEXT = 4000 };

static const uint64_t prime = (UINT64_C(1) << 61) - 1;

/* The roller says of each place what the key of the tokens there is. */
static void assert_rolls(const md_token *text, size_t count)
{
    struct md_content_roller r = md_content_roll_start(text, count);
    for (size_t at = 0;; at++) {
        ck_assert_msg(r.key == md_content_key(text + at, count), "at %zu of %zu", at, count);
        ck_assert(r.key < prime);
        if (at + count == TEXT)
            return;
        md_content_roll(&r, text[at], text[at + count]);
    }
}

START_TEST(rolling_is_hashing)
{
    static const uint32_t kinds[] = { 1, 2, 50000, UINT32_MAX }; /* so many different tokens */
    static const size_t counts[] = { 1, 2, 7, 64, TEXT };
    static md_token text[TEXT];
    struct rng r = rng_open("content");
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (size_t i = 0; i < TEXT; i++)
            text[i] =
                kinds[k] == UINT32_MAX ? (md_token)(uint32_t)rng_next(&r) : (md_token)rng_below(&r, kinds[k]);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            assert_rolls(text, counts[c]);
    }
    for (size_t i = 0; i < TEXT; i++)
        text[i] = rng_below(&r, 2) ? INT32_MIN : -1; /* no vocabulary has them, and they are no matter */
    assert_rolls(text, 64);
}
END_TEST

START_TEST(a_key_is_of_all_tokens_and_their_order)
{
    md_token t[65] = { 0 };
    for (size_t n = 0; n < 64; n++) /* length counts where all tokens are 0 */
        for (size_t m = 0; m < n; m++)
            ck_assert(md_content_key(t, n) != md_content_key(t, m));
    for (int i = 0; i < 64; i++)
        t[i] = i * 7;
    uint64_t key = md_content_key(t, 64);
    for (int i = 0; i < 64; i++) {
        for (int bit = 0; bit < 32; bit++) {
            t[i] ^= (md_token)(1U << bit);
            ck_assert_msg(md_content_key(t, 64) != key, "token %d bit %d", i, bit);
            t[i] ^= (md_token)(1U << bit);
        }
        if (i == 63)
            break;
        md_token keep = t[i];
        t[i] = t[i + 1];
        t[i + 1] = keep;
        ck_assert_msg(md_content_key(t, 64) != key, "tokens %d and %d", i, i + 1);
        t[i + 1] = t[i];
        t[i] = keep;
    }
    ck_assert_uint_eq(md_content_key(t, 64), key);
}
END_TEST

/* The low bits choose the bucket: 4096 texts that differ in one token spread over 4096 buckets about as chance would
 * (which leaves 1/e of them empty and has 8 in one now and then). */
START_TEST(low_bits_spread)
{
    static int bucket[4096];
    md_token t[64] = { 0 };
    int most = 0, used = 0;
    for (int i = 0; i < 4096; i++) {
        t[20] = i;
        int *b = &bucket[md_content_key(t, 64) & 4095];
        used += *b == 0;
        ++*b;
        most = *b > most ? *b : most;
    }
    ck_assert_msg(most <= 12 && used > 2000, "%d in one, %d used", most, used);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("content");
    TCase *t = tcase_create("content");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, rolling_is_hashing);
    tcase_add_test(t, a_key_is_of_all_tokens_and_their_order);
    tcase_add_test(t, low_bits_spread);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
