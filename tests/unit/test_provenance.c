/* test_provenance.c - kinds of KV, digests of what was attended, and what a tape says of its blocks. */
#include "policy/provenance.h"
#include "session/tape.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>
#include <string.h>

/* Short names for tables. */
#define F MD_PROVENANCE_FULL
#define BD MD_PROVENANCE_BOUNDED
#define A MD_PROVENANCE_APPROXIMATE

START_TEST(the_worse_of_two)
{
    static const struct {
        struct md_provenance a, b;
        enum md_provenance_kind kind;
        uint64_t attended; /* 0 with a kind that is not full: a new digest of both */
    } rows[] = {
        { { F, 0 }, { F, 0 }, F, 0 },    { { F, 0 }, { BD, 5 }, BD, 5 },  { { BD, 5 }, { F, 0 }, BD, 5 },
        { { BD, 5 }, { BD, 5 }, BD, 5 }, { { BD, 5 }, { A, 6 }, A, 6 },   { { A, 6 }, { BD, 5 }, A, 6 },
        { { A, 6 }, { F, 0 }, A, 6 },    { { BD, 5 }, { BD, 6 }, BD, 0 }, { { A, 5 }, { A, 6 }, A, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_provenance w = md_provenance_worse(rows[i].a, rows[i].b);
        ck_assert_msg(w.kind == rows[i].kind, "row %zu", i);
        if (rows[i].attended != 0 || w.kind == F)
            ck_assert_msg(w.attended == rows[i].attended, "row %zu", i);
        else
            ck_assert_msg(w.attended != 0 && w.attended != rows[i].a.attended &&
                              w.attended != rows[i].b.attended,
                          "row %zu", i);
    }
    struct md_provenance p = { BD, 5 }, q = { BD, 6 }, pq = md_provenance_worse(p, q);
    ck_assert_uint_eq(pq.attended, md_provenance_worse(p, q).attended);
    /* three parts of two makings are neither of the two */
    struct md_provenance pqp = md_provenance_worse(pq, p);
    ck_assert(pqp.attended != p.attended && pqp.attended != q.attended && pqp.attended != pq.attended);
}
END_TEST

START_TEST(accepted_from_the_floor_up)
{
    for (enum md_provenance_kind have = 0; have < MD_PROVENANCE_COUNT; have++)
        for (enum md_provenance_kind floor = 0; floor < MD_PROVENANCE_COUNT; floor++)
            ck_assert(md_provenance_accepted((struct md_provenance){ have, 1 }, floor) == (have <= floor));
    ck_assert(F < BD && BD < A);
}
END_TEST

static uint64_t digest(const struct md_range *ranges, size_t count)
{
    struct md_attended a = { 0 };
    for (size_t i = 0; i < count; i++)
        md_attended_add(&a, ranges[i]);
    return md_attended_digest(&a);
}

/* Sets of up to 12 positions, each cut up at random: equal digests for equal sets, others for others. */
START_TEST(a_digest_is_of_a_set)
{
    enum { BITS = 12, SETS = 1 << BITS };
    static uint64_t of[SETS];
    struct rng r = rng_open("attended");
    for (int round = 0; round < 3; round++) {
        for (uint32_t set = 0; set < SETS; set++) {
            struct md_range ranges[3 * BITS];
            size_t n = 0;
            for (int32_t i = 0; i < BITS; i++) {
                if (!(set >> i & 1))
                    continue;
                if (n > 0 && ranges[n - 1].end == i && rng_below(&r, 2)) {
                    ranges[n - 1].end = i + 1;
                    continue;
                }
                if (rng_below(&r, 3) == 0)
                    ranges[n++] = (struct md_range){ i, i }; /* empty */
                ranges[n++] = (struct md_range){ i, i + 1 };
            }
            if (rng_below(&r, 3) == 0)
                ranges[n++] = (struct md_range){ BITS + 1, BITS + 1 };
            uint64_t d = digest(ranges, n);
            ck_assert(d != 0 && (round == 0 || d == of[set]));
            of[set] = d;
        }
    }
    int equal = 0;
    for (uint32_t a = 0; a < SETS; a++)
        for (uint32_t b = 0; b < a; b++)
            equal += of[a] == of[b];
    ck_assert_int_eq(equal, 0);
}
END_TEST

/* ---- tape ---- */

static struct md_tape tape_of(int32_t count)
{
    static const md_token tokens[256];
    struct md_tape t;
    md_tape_init(&t, NULL, 8, (struct md_key){ 1, 2 });
    ck_assert_int_eq(md_tape_reserve(&t, 256, NULL), MD_OK);
    if (count > 0)
        md_tape_append_computed(&t, tokens, count, MD_CLASS_VOLATILE);
    return t;
}

static void compute(struct md_tape *t, int32_t count)
{
    static const md_token tokens[256];
    md_tape_append_computed(t, tokens, count, MD_CLASS_VOLATILE);
}

START_TEST(a_tape_knows_what_its_blocks_attended)
{
    struct md_tape t = tape_of(36); /* four blocks of 8 and a half one */
    ck_assert_int_eq(md_tape_kind_tokens(&t, MD_PROVENANCE_FULL), 36);
    t.blocks[1].state = MD_STATE_COLD;
    compute(&t, 2); /* the rest of block 4 saw less than its start */
    ck_assert_int_eq(t.blocks[4].provenance.kind, BD);
    static const struct md_range before4[] = { { 0, 8 }, { 16, 32 } };
    ck_assert_uint_eq(t.blocks[4].provenance.attended, digest(before4, 2));
    compute(&t, 10); /* two more of it, and a block behind it */
    ck_assert_uint_eq(t.blocks[4].provenance.attended, digest(before4, 2));
    static const struct md_range before5[] = { { 0, 8 }, { 16, 40 } };
    ck_assert(t.blocks[5].provenance.kind == BD && t.blocks[5].provenance.attended == digest(before5, 2));
    ck_assert(md_tape_kind_tokens(&t, MD_PROVENANCE_FULL) == 32 && md_tape_kind_tokens(&t, BD) == 16);

    t.blocks[1].state = MD_STATE_HOT; /* all hot, but what is computed now is over bounded KV */
    compute(&t, 8);
    static const struct md_range before6[] = { { 0, 48 } };
    ck_assert(t.blocks[6].provenance.kind == BD && t.blocks[6].provenance.attended == digest(before6, 1));

    t.blocks[2].provenance = (struct md_provenance){ A, 9 }; /* came from another text */
    compute(&t, 8);
    ck_assert_int_eq(t.blocks[7].provenance.kind, A);
    t.blocks[2].state = MD_STATE_COLD; /* what is not attended taints nothing */
    t.blocks[7].state = MD_STATE_LOST;
    compute(&t, 4);
    ck_assert_int_eq(t.blocks[8].provenance.kind, BD);
    ck_assert_int_eq(md_tape_kind_tokens(&t, A), 8); /* lost ones are of no kind */
    md_tape_done(&t);
}
END_TEST

/* An engine that leaves things out of a long first call: what it computed is bounded, from the first block on, and all that is
 * computed over it; of a short one, and of a long one behind it, nothing is. */
START_TEST(a_sparse_first_call_is_bounded)
{
    enum { FROM = 20 };
    struct md_tape t = tape_of(0);
    t.sparse_from = FROM;
    compute(&t, FROM);
    ck_assert_int_eq(md_tape_kind_tokens(&t, BD), FROM);
    ck_assert_uint_eq(t.blocks[0].provenance.attended, digest(NULL, 0)); /* nothing was before it */
    compute(&t, 3 * FROM);
    compute(&t, 1);
    ck_assert_int_eq(md_tape_kind_tokens(&t, BD), 4 * FROM + 1);
    md_tape_cut(&t, 0); /* and once more, from nothing */
    compute(&t, FROM - 1);
    compute(&t, 3 * FROM);
    ck_assert_int_eq(md_tape_kind_tokens(&t, MD_PROVENANCE_FULL), 4 * FROM - 1);
    md_tape_done(&t);
}
END_TEST

/* Token by token or all at once: the same history over the same hot set has the same digests. */
START_TEST(a_digest_does_not_depend_on_the_chunks)
{
    struct md_tape once = tape_of(24), bits = tape_of(24);
    once.blocks[1].state = bits.blocks[1].state = MD_STATE_COLD;
    compute(&once, 20);
    for (int i = 0; i < 20; i++)
        compute(&bits, 1);
    for (size_t i = 0; i < md_tape_block_count(&once); i++) {
        ck_assert_int_eq(once.blocks[i].provenance.kind, i < 3 ? F : BD);
        ck_assert_int_eq(once.blocks[i].provenance.kind, bits.blocks[i].provenance.kind);
        ck_assert_uint_eq(once.blocks[i].provenance.attended, bits.blocks[i].provenance.attended);
    }
    bits.blocks[0].state = MD_STATE_COLD; /* the set changes inside a block: it is of both */
    uint64_t first = bits.blocks[5].provenance.attended;
    compute(&bits, 1);
    static const struct md_range now[] = { { 16, 40 } };
    ck_assert(bits.blocks[5].provenance.attended != first &&
              bits.blocks[5].provenance.attended != digest(now, 1));
    md_tape_done(&once);
    md_tape_done(&bits);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("provenance");
    TCase *t = tcase_create("provenance");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_worse_of_two);
    tcase_add_test(t, accepted_from_the_floor_up);
    tcase_add_test(t, a_digest_is_of_a_set);
    tcase_add_test(t, a_tape_knows_what_its_blocks_attended);
    tcase_add_test(t, a_sparse_first_call_is_bounded);
    tcase_add_test(t, a_digest_does_not_depend_on_the_chunks);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
