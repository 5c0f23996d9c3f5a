/* test_prefix.c - common prefixes and chain keys. */
#include "policy/prefix.h"
#include "support/run_suite.h"

#include <check.h>
#include <string.h>

START_TEST(common)
{
    static const struct {
        const char *label, *a, *b;
        size_t want;
    } rows[] = {
        { "both empty", "", "", 0 },
        { "one empty", "abc", "", 0 },
        { "equal", "abc", "abc", 3 },
        { "a is longer", "abcd", "abc", 3 },
        { "b is longer", "ab", "abc", 2 },
        { "first differs", "xbc", "abc", 0 },
        { "middle differs", "axc", "abc", 1 },
        { "last differs", "abx", "abc", 2 },
        { "equal again after a difference", "abXde", "abYde", 2 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        md_token a[8], b[8];
        size_t na = strlen(rows[i].a), nb = strlen(rows[i].b);
        for (size_t k = 0; k < na; k++)
            a[k] = rows[i].a[k];
        for (size_t k = 0; k < nb; k++)
            b[k] = rows[i].b[k];
        ck_assert_msg(md_prefix_common(a, na, b, nb) == rows[i].want, "%s", rows[i].label);
        ck_assert_msg(md_prefix_common(b, nb, a, na) == rows[i].want, "%s, turned", rows[i].label);
    }
    ck_assert_uint_eq(md_prefix_common(NULL, 0, NULL, 0), 0);
}
END_TEST

START_TEST(chain_key_depends_on_all_before)
{
    md_token t[64];
    for (int i = 0; i < 64; i++)
        t[i] = i * 7;
    struct md_key root = md_prefix_root("model A, f16"), other = md_prefix_root("model A, q8_0");
    struct md_key one = md_prefix_chain(root, t, 32), two = md_prefix_chain(one, t + 32, 32);
    ck_assert(md_key_equal(one, md_prefix_chain(md_prefix_root("model A, f16"), t, 32)));
    ck_assert(!md_key_equal(root, other));
    ck_assert(!md_key_equal(one, md_prefix_chain(other, t, 32)));
    ck_assert(!md_key_equal(one, md_prefix_chain(root, t, 31)));
    ck_assert(!md_key_equal(one, two) && !md_key_equal(one, root));
    ck_assert(!md_key_equal(two, md_prefix_chain(root, t + 32, 32)));
    ck_assert(!md_key_equal(root, md_prefix_chain(root, t, 0)));
    ck_assert(!md_key_equal(root, md_prefix_root("")));

    struct md_key other_hi = { .hi = root.hi ^ 1, .lo = root.lo },
                  other_lo = { .hi = root.hi, .lo = root.lo ^ 1 };
    ck_assert(!md_key_equal(one, md_prefix_chain(other_hi, t, 32)));
    ck_assert(!md_key_equal(one, md_prefix_chain(other_lo, t, 32)));
    struct md_key swapped = { .hi = root.lo, .lo = root.hi }; /* both halves of the parent count, in place */
    ck_assert(!md_key_equal(one, md_prefix_chain(swapped, t, 32)));
    for (int i = 0; i < 64; i++) { /* and every bit of every token */
        for (int bit = 0; bit < 31; bit += 6) {
            t[i] ^= 1 << bit;
            struct md_key k = md_prefix_chain(md_prefix_chain(root, t, 32), t + 32, 32);
            ck_assert_msg(!md_key_equal(k, two), "token %d bit %d", i, bit);
            ck_assert(k.hi != two.hi && k.lo != two.lo);
            t[i] ^= 1 << bit;
        }
    }
    for (int i = 0; i + 1 < 32; i++) { /* and their order */
        md_token keep = t[i];
        t[i] = t[i + 1];
        t[i + 1] = keep;
        ck_assert(!md_key_equal(one, md_prefix_chain(root, t, 32)));
        t[i + 1] = t[i];
        t[i] = keep;
    }
}
END_TEST

/* No block can be made whose key is that of an identity: other seeds, though the bytes are the same. */
START_TEST(an_identity_is_no_block)
{
    char identity[17] = "sixteen bytes ok";
    struct md_key parent;
    memcpy(&parent, identity, sizeof parent);
    ck_assert(!md_key_equal(md_prefix_root(identity), md_prefix_chain(parent, NULL, 0)));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("prefix");
    TCase *t = tcase_create("prefix");
    tcase_add_test(t, common);
    tcase_add_test(t, chain_key_depends_on_all_before);
    tcase_add_test(t, an_identity_is_no_block);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
