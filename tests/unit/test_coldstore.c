/* test_coldstore.c - the index of the cold store: B052, B072, B073, by content, and a walk against a naive store. */
#include "policy/coldstore.h"
#include "policy/content.h"
#include "support/fault_alloc.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, TOKENS = 4 };

/* An entry with its tokens; key and tokens from `id`, so that equal ids are equal blocks. */
struct item {
    struct md_cold_entry entry;
    md_token tokens[TOKENS];
};

static void fill(struct item *it, int id, size_t bytes, enum md_cache_class cls)
{
    memset(it, 0, sizeof *it);
    for (int i = 0; i < TOKENS; i++)
        it->tokens[i] = id + i;
    it->entry = (struct md_cold_entry){ .key = { (uint64_t)id * 977, (uint64_t)id },
                                        .parent = { 1, (uint64_t)id },
                                        .start = id * TOKENS,
                                        .tokens = it->tokens,
                                        .token_count = TOKENS,
                                        .cls = cls,
                                        .bytes = bytes };
}

static struct md_coldstore *store_of(size_t budget)
{
    struct md_coldstore *c;
    ck_assert_int_eq(md_coldstore_open(NULL, budget, &c, NULL), MD_OK);
    return c;
}

static struct md_cold_entry *find(struct md_coldstore *c, const struct item *it)
{
    return md_coldstore_find(c, it->entry.key, it->entry.parent, it->entry.start, it->tokens, TOKENS,
                             MD_PROVENANCE_APPROXIMATE);
}

static bool has(const struct md_coldstore *c, const struct item *it)
{
    return md_coldstore_has(c, it->entry.key, it->entry.parent, it->entry.start, it->tokens, TOKENS);
}

static void empty(struct md_coldstore *c)
{
    struct md_cold_entry *e;
    while ((e = md_coldstore_any(c)) != NULL) {
        md_coldstore_remove(c, e, false);
        ck_assert(md_coldstore_check(c));
    }
    ck_assert_uint_eq(md_coldstore_stats(c).used_bytes, 0);
    ck_assert_int_eq(md_coldstore_stats(c).token_count, 0);
    md_coldstore_close(c);
}

/* As session/cold does: make room, then put.  Returns whether it is in. */
static bool store(struct md_coldstore *c, struct item *it)
{
    if (!md_coldstore_can_fit(c, it->entry.bytes, it->entry.cls)) {
        md_coldstore_count_refused(c);
        return false;
    }
    struct md_cold_entry *v;
    while ((v = md_coldstore_victim(c, it->entry.bytes, it->entry.cls)) != NULL)
        md_coldstore_remove(c, v, true);
    ck_assert_int_eq(md_coldstore_put(c, &it->entry, NULL), MD_OK);
    return true;
}

/* Held: no class displaces it, it counts, and it goes as any other when all have let it go. */
START_TEST(what_is_held_stays)
{
    struct md_coldstore *c = store_of(300);
    struct item a, b, pinned, more;
    fill(&a, 1, 100, MD_CLASS_VOLATILE);
    fill(&b, 2, 100, MD_CLASS_VOLATILE);
    fill(&pinned, 3, 200, MD_CLASS_TASK_PINNED);
    fill(&more, 4, 100, MD_CLASS_TASK_PINNED);
    ck_assert(store(c, &a) && store(c, &b));
    md_coldstore_hold(c, &a.entry);
    md_coldstore_hold(c, &a.entry);
    ck_assert(md_coldstore_check(c));
    ck_assert_uint_eq(md_coldstore_stats(c).held_bytes, 100);
    ck_assert(md_coldstore_can_fit(c, 200, MD_CLASS_TASK_PINNED));
    ck_assert(!md_coldstore_can_fit(c, 201, MD_CLASS_TASK_PINNED));
    ck_assert(store(c, &pinned)); /* b went for it, though it is newer */
    ck_assert(has(c, &a) && !has(c, &b));
    md_coldstore_touch(c, &a.entry, MD_CLASS_REPO_MAP);
    md_coldstore_release(c, &a.entry);
    ck_assert(!md_coldstore_can_fit(c, 201, MD_CLASS_TASK_PINNED)); /* held once more */
    md_coldstore_release(c, &a.entry);
    ck_assert(md_coldstore_check(c));
    ck_assert_uint_eq(md_coldstore_stats(c).held_bytes, 0);
    ck_assert_ptr_eq(md_coldstore_victim(c, 100, MD_CLASS_REPO_MAP),
                     &a.entry); /* in the class it was given */
    ck_assert(store(c, &more) && !has(c, &a));
    md_coldstore_hold(c, &more.entry);
    empty(c);
}
END_TEST

START_TEST(put_find_remove)
{
    struct md_coldstore *c = store_of(1000);
    struct item a, again;
    fill(&a, 3, 100, MD_CLASS_VOLATILE);
    fill(&again, 3, 100, MD_CLASS_VOLATILE);
    ck_assert_ptr_null(md_coldstore_any(c));
    ck_assert_ptr_null(find(c, &a));
    ck_assert_int_eq(md_coldstore_put(c, &a.entry, NULL), MD_OK);
    ck_assert_int_eq(md_coldstore_put(c, &again.entry, NULL), MD_INVALID); /* there already */
    ck_assert(md_coldstore_check(c));
    ck_assert_ptr_eq(find(c, &again), &a.entry); /* found by content */
    ck_assert(has(c, &a));
    struct md_coldstore_stats s = md_coldstore_stats(c);
    ck_assert(s.used_bytes == 100 && s.entry_count == 1 && s.token_count == TOKENS && s.stored == 1);
    ck_assert(s.hits == 1 && s.misses == 1 && s.collisions == 0 && s.refused == 0); /* has counts nothing */
    md_coldstore_remove(c, &a.entry, true);
    ck_assert(!has(c, &a));
    s = md_coldstore_stats(c);
    ck_assert(s.used_bytes == 0 && s.peak_bytes == 100 && s.dropped == 1 && s.entry_count == 0);
    empty(c);
}
END_TEST

START_TEST(b052_collision_is_a_miss_and_counted)
{
    static const struct {
        const char *label;
        int token, parent, start, count;
    } rows[] = {
        { "another last token", 1, 0, 0, 0 },
        { "another parent", 0, 1, 0, 0 },
        { "another place", 0, 0, 1, 0 },
        { "fewer tokens", 0, 0, 0, -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_coldstore *c = store_of(1000);
        struct item a, b;
        fill(&a, 3, 100, MD_CLASS_VOLATILE);
        b = a; /* the same key */
        b.entry.tokens = b.tokens;
        b.tokens[TOKENS - 1] += rows[i].token;
        b.entry.parent.hi += (uint64_t)rows[i].parent;
        b.entry.start += rows[i].start;
        b.entry.token_count += rows[i].count;
        ck_assert_int_eq(md_coldstore_put(c, &a.entry, NULL), MD_OK);
        struct md_cold_entry *e = md_coldstore_find(c, b.entry.key, b.entry.parent, b.entry.start, b.tokens,
                                                    b.entry.token_count, MD_PROVENANCE_APPROXIMATE);
        ck_assert_msg(e == NULL, "%s", rows[i].label);
        struct md_coldstore_stats s = md_coldstore_stats(c);
        ck_assert_msg(s.collisions == 1 && s.misses == 1 && s.hits == 0, "%s", rows[i].label);

        /* both may lie there, and each is found */
        ck_assert_msg(md_coldstore_put(c, &b.entry, NULL) == MD_OK, "%s", rows[i].label);
        ck_assert(md_coldstore_check(c));
        ck_assert_ptr_eq(find(c, &a), &a.entry);
        e = md_coldstore_find(c, b.entry.key, b.entry.parent, b.entry.start, b.tokens, b.entry.token_count,
                              MD_PROVENANCE_APPROXIMATE);
        ck_assert_ptr_eq(e, &b.entry);
        ck_assert_int_eq(md_coldstore_stats(c).collisions, 1);
        md_coldstore_remove(c, &a.entry, false);
        ck_assert(!has(c, &a));
        empty(c);
    }
}
END_TEST

/* Blocks of other keys in the same chain of the table are passed, and are no collisions. */
START_TEST(b052_other_keys_are_no_collision)
{
    enum { N = 200 };
    static struct item items[N];
    struct md_coldstore *c = store_of(N);
    for (int i = 0; i < N; i++) {
        fill(&items[i], i, 1, MD_CLASS_VOLATILE);
        items[i].entry.key = (struct md_key){ 0, (uint64_t)i << 32 }; /* all in the first bucket */
        if (i % 2 == 0)
            ck_assert_int_eq(md_coldstore_put(c, &items[i].entry, NULL), MD_OK);
    }
    for (int i = 0; i < N; i++)
        ck_assert_ptr_eq(find(c, &items[i]), i % 2 == 0 ? &items[i].entry : NULL);
    struct md_coldstore_stats s = md_coldstore_stats(c);
    ck_assert(s.hits == N / 2 && s.misses == N / 2 && s.collisions == 0);
    empty(c);
}
END_TEST

START_TEST(b072_budget_zero_and_smaller_than_one_block)
{
    static const size_t budgets[] = { 0, 99 };
    for (size_t i = 0; i < 2; i++) {
        struct md_coldstore *c = store_of(budgets[i]);
        struct item a;
        struct md_err err;
        fill(&a, 1, 100, MD_CLASS_TASK_PINNED);
        ck_assert(!md_coldstore_can_fit(c, 100, MD_CLASS_TASK_PINNED));
        ck_assert_ptr_null(md_coldstore_victim(c, 100, MD_CLASS_TASK_PINNED));
        ck_assert_int_eq(md_coldstore_put(c, &a.entry, &err), MD_NO_MEMORY);
        ck_assert_ptr_nonnull(strstr(err.text, "100"));
        ck_assert(!has(c, &a));
        struct md_coldstore_stats s = md_coldstore_stats(c);
        ck_assert(s.stored == 0 && s.refused == 1 && s.peak_bytes == 0 && s.budget_bytes == budgets[i]);
        empty(c);
    }
    struct md_coldstore *c = store_of(100); /* the other side of the edge */
    struct item a;
    fill(&a, 1, 100, MD_CLASS_VOLATILE);
    ck_assert(store(c, &a));
    empty(c);
}
END_TEST

START_TEST(b073_used_is_never_above_the_budget)
{
    struct md_coldstore *c = store_of((size_t)64 * MIB);
    struct item big, items[10];
    fill(&big, 100, (size_t)80 * MIB, MD_CLASS_VOLATILE);
    ck_assert(!store(c, &big));
    ck_assert_uint_eq(md_coldstore_stats(c).used_bytes, 0);
    for (int i = 0; i < 10; i++) {
        fill(&items[i], i, (size_t)20 * MIB, MD_CLASS_VOLATILE);
        ck_assert(store(c, &items[i]));
        ck_assert(md_coldstore_check(c));
        ck_assert_uint_eq(md_coldstore_stats(c).used_bytes, (size_t)(i < 3 ? i + 1 : 3) * 20 * MIB);
    }
    struct md_coldstore_stats s = md_coldstore_stats(c);
    ck_assert(s.refused == 1 && s.stored == 10 && s.dropped == 7 && s.peak_bytes == (size_t)60 * MIB);
    ck_assert(has(c, &items[9]) && has(c, &items[7]) && !has(c, &items[6]));
    ck_assert(!md_coldstore_can_fit(c, SIZE_MAX, MD_CLASS_TASK_PINNED)); /* no sum wraps */
    empty(c);
}
END_TEST

START_TEST(room_is_made_by_class_then_age)
{
    struct md_coldstore *c = store_of(600);
    struct item it[6];
    static const enum md_cache_class cls[] = { MD_CLASS_REPO_MAP, MD_CLASS_VOLATILE, MD_CLASS_TASK_PINNED,
                                               MD_CLASS_VOLATILE, MD_CLASS_REPO_MAP, MD_CLASS_VOLATILE };
    for (int i = 0; i < 6; i++) {
        fill(&it[i], i, 100, cls[i]);
        ck_assert(store(c, &it[i]));
    }
    md_coldstore_touch(c, &it[1].entry,
                       MD_CLASS_VOLATILE); /* now the newest of its class: 3 and 5 are older */
    ck_assert(md_coldstore_check(c));

    ck_assert_ptr_null(md_coldstore_victim(c, 0, MD_CLASS_VOLATILE));
    ck_assert(md_coldstore_can_fit(c, 300, MD_CLASS_VOLATILE) &&
              !md_coldstore_can_fit(c, 301, MD_CLASS_VOLATILE));
    ck_assert(md_coldstore_can_fit(c, 500, MD_CLASS_REPO_MAP) &&
              !md_coldstore_can_fit(c, 501, MD_CLASS_REPO_MAP));
    ck_assert(md_coldstore_can_fit(c, 600, MD_CLASS_TASK_PINNED) &&
              !md_coldstore_can_fit(c, 601, MD_CLASS_TASK_PINNED));

    static const int leave[] = { 3, 5, 1, 0, 4, 2 }; /* for the strongest class: all of them, in this order */
    for (int i = 0; i < 6; i++) {
        struct md_cold_entry *v = md_coldstore_victim(c, 600, MD_CLASS_TASK_PINNED);
        ck_assert_ptr_eq(v, &it[leave[i]].entry);
        ck_assert_ptr_eq(md_coldstore_any(c), v);
        if (i == 3) /* only stronger ones are left: a volatile block displaces none of them */
            ck_assert_ptr_null(md_coldstore_victim(c, 600, MD_CLASS_VOLATILE));
        if (i == 5)
            ck_assert_ptr_null(md_coldstore_victim(c, 600, MD_CLASS_REPO_MAP));
        md_coldstore_remove(c, v, true);
        ck_assert(md_coldstore_check(c));
    }
    ck_assert_ptr_null(md_coldstore_victim(c, 600, MD_CLASS_TASK_PINNED));
    empty(c);
}
END_TEST

START_TEST(best_is_the_block_that_shares_most)
{
    static const md_token sets[][6] = { { 1, 2, 3, 4, 5, 6 }, { 1, 2, 3, 9, 9, 9 }, { 1, 2, 3 }, { 7, 7 } };
    static const int32_t counts[] = { 6, 6, 3, 2 };
    static const struct {
        const char *label;
        md_token wanted[6];
        int32_t count, common, best; /* index into sets; -1: none */
    } rows[] = {
        { "whole block", { 1, 2, 3, 4, 5, 6 }, 6, 6, 0 },
        { "whole block, less wanted", { 1, 2, 3, 9, 9, 9 }, 5, 5, 1 },
        { "leaves it inside", { 1, 2, 3, 9, 0, 0 }, 6, 4, 1 },
        { "as much as the short one: no cut", { 1, 2, 3, 0, 0, 0 }, 6, 3, 2 },
        { "shares two", { 1, 2, 0, 0, 0, 0 }, 6, 2, 2 },
        { "the other first token", { 7, 7, 7, 0, 0, 0 }, 6, 2, 3 },
        { "none", { 8, 1, 2, 3, 4, 5 }, 6, 0, -1 },
    };
    struct md_cold_entry e[4], stranger;
    struct md_coldstore *c = store_of(1000);
    const struct md_key parent = { 5, 5 }, other = { 5, 5 + 64 }; /* one chain of the table, another parent */
    for (int i = 0; i < 4; i++) {
        e[i] = (struct md_cold_entry){ .key = { 9, (uint64_t)i },
                                       .parent = parent,
                                       .start = 64,
                                       .tokens = sets[i],
                                       .token_count = counts[i],
                                       .cls = MD_CLASS_VOLATILE,
                                       .bytes = 10 };
        ck_assert_int_eq(md_coldstore_put(c, &e[i], NULL), MD_OK);
    }
    stranger = (struct md_cold_entry){ .key = { 8, 8 },
                                       .parent = other,
                                       .start = 64,
                                       .tokens = rows[6].wanted,
                                       .token_count = 6,
                                       .cls = MD_CLASS_VOLATILE,
                                       .bytes = 10 };
    ck_assert_int_eq(md_coldstore_put(c, &stranger, NULL), MD_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t common = -1;
        struct md_cold_entry *got = md_coldstore_best(c, parent, 64, rows[i].wanted, rows[i].count,
                                                      MD_PROVENANCE_APPROXIMATE, &common);
        ck_assert_msg(common == rows[i].common, "%s: %d", rows[i].label, common);
        ck_assert_msg(got == (rows[i].best < 0 ? NULL : &e[rows[i].best]), "%s", rows[i].label);
    }
    int32_t common;
    e[0].provenance.kind = MD_PROVENANCE_BOUNDED; /* the best one is not good enough for the floor */
    ck_assert(md_coldstore_best(c, parent, 64, sets[0], 6, MD_PROVENANCE_BOUNDED, &common) == &e[0]);
    ck_assert(md_coldstore_best(c, parent, 64, sets[0], 6, MD_PROVENANCE_FULL, &common) == &e[2]);
    ck_assert_int_eq(common, 3);
    ck_assert(md_coldstore_best(c, parent, 65, sets[0], 6, MD_PROVENANCE_APPROXIMATE, &common) ==
              NULL); /* elsewhere is another block */
    ck_assert(md_coldstore_best(c, (struct md_key){ 6, 5 }, 64, sets[0], 6, MD_PROVENANCE_APPROXIMATE,
                                &common) == NULL);
    empty(c);
}
END_TEST

/* ---- by content ---- */

static struct md_cold_entry *by_content(struct md_coldstore *c, const md_token *tokens, int32_t count,
                                        int32_t prefer, enum md_provenance_kind floor)
{
    return md_coldstore_by_content(c, md_content_key(tokens, (size_t)count), tokens, count, prefer, floor);
}

/* Short names for tables. */
#define F MD_PROVENANCE_FULL
#define BD MD_PROVENANCE_BOUNDED
#define A MD_PROVENANCE_APPROXIMATE

/* The same tokens at other places, behind other texts. */
START_TEST(by_content_finds_the_best_of_the_same_tokens)
{
    static const struct {
        int32_t start;
        enum md_provenance_kind kind;
    } have[] = { { 64, BD }, { 640, BD }, { 0, A }, { 704, BD }, { 4096, F } };
    static const struct {
        const char *label;
        int32_t prefer;
        enum md_provenance_kind floor;
        size_t gone; /* entries taken from the end before */
        int want;    /* index into have; -1: none */
    } rows[] = {
        { "the better kind, however far", 0, A, 0, 4 },
        { "full alone will do", 0, F, 0, 4 },
        { "the nearest of a kind", 500, A, 1, 1 },
        { "the nearest, from behind", INT32_MAX, A, 1, 3 },
        { "the nearest, from before", INT32_MIN, A, 1, 0 },
        { "as near: used last", 672, A, 1, 3 },
        { "a nearer one of a lesser kind", 0, A, 1, 0 },
        { "below the floor", 0, F, 1, -1 },
        { "the last is below the floor", 0, BD, 5, -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_coldstore *c = store_of(1000);
        struct item it[5], other;
        const size_t count = 5 - rows[i].gone;
        for (size_t k = 0; k < 5; k++) {
            fill(&it[k], 1, 10, MD_CLASS_VOLATILE);
            it[k].entry.start = have[k].start;
            it[k].entry.parent.hi = k;
            it[k].entry.provenance.kind = have[k].kind;
            ck_assert_int_eq(md_coldstore_put(c, &it[k].entry, NULL), MD_OK);
        }
        fill(&other, 2, 10, MD_CLASS_VOLATILE);
        ck_assert_int_eq(md_coldstore_put(c, &other.entry, NULL), MD_OK);
        for (size_t k = 4; k >= count && k < 5; k--)
            md_coldstore_remove(c, &it[k].entry, false);
        ck_assert(md_coldstore_check(c));
        struct md_cold_entry *e = by_content(c, it[0].tokens, TOKENS, rows[i].prefer, rows[i].floor);
        ck_assert_msg(e == (rows[i].want < 0 ? NULL : &it[rows[i].want].entry), "%s", rows[i].label);
        if (rows[i].prefer == 672) { /* the other of the two that are as near */
            md_coldstore_touch(c, &it[1].entry, it[1].entry.cls);
            ck_assert_ptr_eq(by_content(c, it[0].tokens, TOKENS, 672, A), &it[1].entry);
        }
        struct md_coldstore_stats s = md_coldstore_stats(c);
        ck_assert(s.hits == 0 && s.misses == 0 && s.collisions == 0);
        ck_assert_ptr_null(by_content(c, it[0].tokens, TOKENS - 1, 0, A)); /* a part of it is another text */
        empty(c);
    }
}
END_TEST

__extension__ typedef __int128 wide;

/* Two texts of two tokens with the same content key, which Euclid finds: with B the weight of the first of two,
 * x * B = y modulo the prime, both small (the remainders of (prime, B) fall while their factors rise). */
static void colliding(md_token *a, md_token *b)
{
    const wide prime = ((wide)1 << 61) - 1;
    const md_token one[] = { 1, 0 }, zero[] = { 0, 0 };
    wide weight = (wide)md_content_key(one, 2) - (wide)md_content_key(zero, 2);
    wide r0 = prime, r1 = weight < 0 ? weight + prime : weight, x0 = 0, x1 = 1;
    while (r1 > INT32_MAX) {
        wide q = r0 / r1, r = r0 - q * r1, x = x0 - q * x1;
        r0 = r1, r1 = r, x0 = x1, x1 = x;
    }
    ck_assert(x1 > -INT32_MAX && x1 < INT32_MAX && x1 != 0);
    a[0] = x1 > 0 ? (md_token)x1 : 0; /* a - b = (x, -y), which is worth 0 */
    b[0] = x1 > 0 ? 0 : (md_token)-x1;
    a[1] = 0;
    b[1] = (md_token)r1;
}

START_TEST(b052_content_collision_is_a_miss_and_counted)
{
    struct md_coldstore *c = store_of(1000);
    struct item a, b;
    fill(&a, 1, 10, MD_CLASS_VOLATILE);
    fill(&b, 2, 10, MD_CLASS_VOLATILE);
    a.entry.token_count = b.entry.token_count = 2;
    colliding(a.tokens, b.tokens);
    ck_assert(a.tokens[0] != b.tokens[0]);
    ck_assert_uint_eq(md_content_key(a.tokens, 2), md_content_key(b.tokens, 2));
    ck_assert_int_eq(md_coldstore_put(c, &a.entry, NULL), MD_OK);
    ck_assert_ptr_null(by_content(c, b.tokens, 2, 0, MD_PROVENANCE_APPROXIMATE));
    ck_assert_int_eq(md_coldstore_stats(c).collisions, 1);

    /* both may lie there, and each is found */
    ck_assert_int_eq(md_coldstore_put(c, &b.entry, NULL), MD_OK);
    ck_assert_ptr_eq(by_content(c, a.tokens, 2, 0, MD_PROVENANCE_APPROXIMATE), &a.entry);
    ck_assert_ptr_eq(by_content(c, b.tokens, 2, 0, MD_PROVENANCE_APPROXIMATE), &b.entry);
    md_coldstore_remove(c, &a.entry, false);
    ck_assert_ptr_null(by_content(c, a.tokens, 2, 0, MD_PROVENANCE_APPROXIMATE));
    ck_assert_ptr_eq(by_content(c, b.tokens, 2, 0, MD_PROVENANCE_APPROXIMATE), &b.entry);
    ck_assert_int_eq(md_coldstore_stats(c).collisions, 2);
    /* should a shorter block ever have the key of a longer one: a collision as well */
    ck_assert_ptr_null(
        md_coldstore_by_content(c, b.entry.content, b.tokens, 1, 0, MD_PROVENANCE_APPROXIMATE));
    ck_assert_int_eq(md_coldstore_stats(c).collisions, 3);
    empty(c);
}
END_TEST

/* ---- what it takes ---- */

/* At its worst, while the tables double, the index takes no more than its entries were charged for it. */
START_TEST(b073_the_index_is_counted)
{
    enum { N = 3000 };
    struct fault_alloc heap;
    struct md_coldstore *c;
    struct item *it = calloc(N, sizeof *it);
    fault_alloc_init(&heap, 0);
    ck_assert_int_eq(md_coldstore_open(&heap.alloc, N, &c, NULL), MD_OK);
    size_t empty_bytes = heap.live_bytes;
    for (int i = 0; i < N; i++) {
        fill(&it[i], i, 1, MD_CLASS_VOLATILE);
        ck_assert_int_eq(md_coldstore_put(c, &it[i].entry, NULL), MD_OK);
        ck_assert_uint_le(heap.peak_bytes, empty_bytes + (size_t)(i + 1) * MD_COLDSTORE_INDEX_BYTES);
        fault_alloc_arm(&heap, 0);
    }
    while (md_coldstore_any(c) != NULL)
        md_coldstore_remove(c, md_coldstore_any(c), false);
    empty(c);
    free(it);
}
END_TEST

START_TEST(many_entries_grow_the_table)
{
    enum { N = 5000 };
    struct md_coldstore *c = store_of(N);
    struct item *it = calloc(N, sizeof *it);
    for (int i = 0; i < N; i++) {
        fill(&it[i], i, 1, i % MD_CLASS_COUNT);
        ck_assert_int_eq(md_coldstore_put(c, &it[i].entry, NULL), MD_OK);
    }
    ck_assert(md_coldstore_check(c));
    for (int i = 0; i < N; i++)
        ck_assert_ptr_eq(find(c, &it[i]), &it[i].entry);
    ck_assert_int_eq(md_coldstore_stats(c).hits, N);
    for (int i = 0; i < N; i += 2)
        md_coldstore_remove(c, &it[i].entry, false);
    ck_assert(md_coldstore_check(c));
    for (int i = 0; i < N; i++)
        ck_assert(has(c, &it[i]) == (i % 2 == 1));
    while (md_coldstore_any(c) != NULL)
        md_coldstore_remove(c, md_coldstore_any(c), false);
    empty(c);
    free(it);
}
END_TEST

/* ---- the walk ---- */

enum { IDS = 60, BUDGET = 1000 };

/* The naive store: an array, a time of use for each, sums made anew each time. */
struct naive {
    bool in[IDS];
    int64_t used_at[IDS], now;
};

static size_t naive_used(const struct naive *n, const struct item *it)
{
    size_t sum = 0;
    for (int i = 0; i < IDS; i++)
        sum += n->in[i] ? it[i].entry.bytes : 0;
    return sum;
}

static int naive_victim(const struct naive *n, const struct item *it, enum md_cache_class cls)
{
    int worst = -1;
    for (int i = 0; i < IDS; i++)
        if (n->in[i] && it[i].entry.cls >= cls &&
            (worst < 0 || it[i].entry.cls > it[worst].entry.cls ||
             (it[i].entry.cls == it[worst].entry.cls && n->used_at[i] < n->used_at[worst])))
            worst = i;
    return worst;
}

/* Would it fit if all that may go for it went? */
static bool naive_can_fit(const struct naive *n, const struct item *it, int id)
{
    size_t stays = 0;
    for (int i = 0; i < IDS; i++)
        stays += n->in[i] && it[i].entry.cls < it[id].entry.cls ? it[i].entry.bytes : 0;
    return stays + it[id].entry.bytes <= BUDGET;
}

static void naive_store(struct naive *n, const struct item *it, int id)
{
    if (!naive_can_fit(n, it, id))
        return;
    while (naive_used(n, it) + it[id].entry.bytes > BUDGET)
        n->in[naive_victim(n, it, it[id].entry.cls)] = false;
    n->in[id] = true;
    n->used_at[id] = ++n->now;
}

START_TEST(walk_against_naive)
{
    struct rng r = rng_open("coldstore walk");
    struct md_coldstore *c = store_of(BUDGET);
    struct naive n = { 0 };
    struct item it[IDS];
    for (int i = 0; i < IDS; i++) { /* ids 2k and 2k+1 share a key: every second look-up passes a collision */
        fill(&it[i], i, 1 + rng_below(&r, 120), rng_below(&r, MD_CLASS_COUNT));
        it[i].entry.key.lo = it[i].entry.key.hi = (uint64_t)i / 2;
        it[i].entry.provenance.kind = rng_below(&r, MD_PROVENANCE_COUNT);
    }
    for (int step = 0; step < 20000; step++) {
        int id = (int)rng_below(&r, IDS);
        struct md_cold_entry *e = find(c, &it[id]);
        ck_assert_msg((e != NULL) == n.in[id], "step %d: id %d", step, id);
        enum md_provenance_kind floor = rng_below(&r, MD_PROVENANCE_COUNT);
        bool good = n.in[id] && it[id].entry.provenance.kind <= floor;
        ck_assert_ptr_eq(by_content(c, it[id].tokens, TOKENS, 0, floor), good ? &it[id].entry : NULL);
        switch (rng_below(&r, 4)) {
        case 0:
        case 1:
            if (e != NULL)
                break;
            naive_store(&n, it, id);
            ck_assert_msg(store(c, &it[id]) == n.in[id], "step %d: id %d", step, id);
            break;
        case 2:
            if (e != NULL) {
                md_coldstore_touch(c, e, rng_below(&r, MD_CLASS_COUNT)); /* another class, perhaps */
                n.used_at[id] = ++n.now;
            }
            break;
        default:
            if (e != NULL)
                md_coldstore_remove(c, e, false);
            n.in[id] = false;
        }
        ck_assert_msg(md_coldstore_check(c), "step %d", step);
        ck_assert_uint_eq(md_coldstore_stats(c).used_bytes, naive_used(&n, it));
        for (int i = 0; i < IDS; i++)
            ck_assert_msg(has(c, &it[i]) == n.in[i], "step %d: id %d", step, i);
    }
    struct md_coldstore_stats s = md_coldstore_stats(c);
    ck_assert(s.hits + s.misses == 20000 && s.collisions > 0 && s.refused > 0 && s.dropped > 0);
    empty(c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("coldstore");
    TCase *t = tcase_create("coldstore");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, put_find_remove);
    tcase_add_test(t, what_is_held_stays);
    tcase_add_test(t, b052_collision_is_a_miss_and_counted);
    tcase_add_test(t, b052_other_keys_are_no_collision);
    tcase_add_test(t, b072_budget_zero_and_smaller_than_one_block);
    tcase_add_test(t, b073_used_is_never_above_the_budget);
    tcase_add_test(t, room_is_made_by_class_then_age);
    tcase_add_test(t, best_is_the_block_that_shares_most);
    tcase_add_test(t, by_content_finds_the_best_of_the_same_tokens);
    tcase_add_test(t, b052_content_collision_is_a_miss_and_counted);
    tcase_add_test(t, b073_the_index_is_counted);
    tcase_add_test(t, many_entries_grow_the_table);
    tcase_add_test(t, walk_against_naive);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
