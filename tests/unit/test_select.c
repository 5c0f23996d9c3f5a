/* test_select.c - which blocks come in: each rule by a small example worked out beside it, then properties on random input. */
#include "policy/select.h"
#include "policy/profile.h"
#include "policy/residency.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 24, CLAUSES = 3, BLOCK = 64 };

static struct md_arena arena;

/* Blocks of 64 tokens side by side, all candidates, nothing else switched on; attention is highest in their middle. */
struct setting {
    struct md_attention_block places[MOST];
    struct md_select_block blocks[MOST];
    float overall[MOST], listed[MOST], clause[CLAUSES * MOST];
    int32_t peak_at[(CLAUSES + 1) * MOST];
    size_t count, clauses;
    struct md_select_budget budget;
    struct md_select_params params;
};

static struct setting setting(size_t count, const float *overall, int32_t retrieval_blocks)
{
    struct setting s = { .count = count, .clauses = 1, .budget = { retrieval_blocks * BLOCK, 0, 0 } };
    s.params = md_select_defaults();
    s.params.stop_frac = 0;
    for (size_t b = 0; b < count; b++) {
        s.places[b] = (struct md_attention_block){ (int32_t)b * BLOCK, BLOCK, true };
        s.overall[b] = overall[b];
        s.clause[b] = overall[b];
    }
    for (size_t i = 0; i < (CLAUSES + 1) * MOST; i++)
        s.peak_at[i] = BLOCK / 2;
    return s;
}

static struct md_selection select_of(struct setting *s)
{
    const struct md_scores scores = { .block_count = s->count,
                                      .clause_count = s->clauses,
                                      .clause = s->clause,
                                      .overall = s->overall,
                                      .listed = s->listed,
                                      .peak_at = s->peak_at,
                                      .heads_asked = 16,
                                      .heads_used = 12 };
    struct md_selection to;
    struct md_err err = { 0 };
    ck_assert_msg(md_select_blocks(s->places, s->blocks, &scores, &s->budget, &s->params, &arena, &to,
                                   &err) == MD_OK,
                  "%s", err.text);
    return to;
}

/* One letter a block: what it is in for, or a small one, why it is not. */
static const char letters[] = "SCNLIRPpdzlrx";

static void expect(const char *label, struct setting *s, const char *want)
{
    const struct md_selection to = select_of(s);
    char got[MOST + 1] = { 0 };
    for (size_t b = 0; b < s->count; b++) {
        got[b] = letters[to.blocks[b].why];
        ck_assert_int_eq(to.blocks[b].wanted, to.blocks[b].why < MD_SELECT_PROTECTED);
    }
    ck_assert_msg(strcmp(got, want) == 0, "%s: %s, wanted %s", label, got, want);
}

static void setup(void)
{
    ck_assert_uint_eq(sizeof letters - 1, MD_SELECT_WHY_COUNT);
    md_arena_init(&arena, NULL, 64 << 20);
}

static void teardown(void)
{
    md_arena_done(&arena);
}

START_TEST(budgets_by_hand)
{
    static const struct {
        const char *label;
        int32_t hot, kept;
        struct md_select_shares shares;
        enum md_status status;
        struct md_select_budget want;
    } rows[] = {
        /* 800 are left: 0.2 and 0.15 of them are 160 and 120, and 520 the rest; without the rest 0.4 is 320 */
        { "the rest", 1000, 200, { 0.4F, 0.2F, 0.15F, true }, MD_OK, { 520, 160, 120 } },
        { "no rest", 1000, 200, { 0.4F, 0.2F, 0.15F, false }, MD_OK, { 320, 160, 120 } },
        { "recency 0 is 0", 1000, 200, { 0.4F, 0, 0, false }, MD_OK, { 320, 0, 0 } },
        { "0.35 is a little less as a float", 100, 0, { 0.4F, 0.35F, 0, false }, MD_OK, { 40, 35, 0 } },
        { "all", 1000, 0, { 0.5F, 0.3F, 0.2F, false }, MD_OK, { 500, 300, 200 } },
        { "protected ones take all", 1000, 1000, { 0.4F, 0.2F, 0.15F, true }, MD_OK, { 0, 0, 0 } },
        { "and more", 1000, 3000, { 0.4F, 0.2F, 0.15F, true }, MD_OK, { 0, 0, 0 } },
        { "one left", 1001, 1000, { 0.4F, 0.2F, 0.15F, true }, MD_OK, { 1, 0, 0 } },
        { "more than all", 1000, 0, { 0.5F, 0.3F, 0.21F, true }, MD_INVALID, { 0, 0, 0 } },
        { "below 0", 1000, 0, { 0.5F, -0.1F, 0, true }, MD_INVALID, { 0, 0, 0 } },
        { "no number", 1000, 0, { NAN, 0, 0, true }, MD_INVALID, { 0, 0, 0 } },
        { "no hot set", -1, 0, { 0.4F, 0.2F, 0.15F, true }, MD_INVALID, { 0, 0, 0 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_select_budget b = { 0, 0, 0 };
        ck_assert_msg(md_select_budget(rows[i].hot, rows[i].kept, &rows[i].shares, &b, NULL) ==
                              rows[i].status &&
                          b.retrieval == rows[i].want.retrieval && b.recency == rows[i].want.recency &&
                          b.profile == rows[i].want.profile,
                      "%s: %d, %d, %d", rows[i].label, b.retrieval, b.recency, b.profile);
    }
    const struct md_select_shares d = md_select_shares_defaults();
    struct md_select_budget b;
    ck_assert_int_eq(md_select_budget(1000, 200, &d, &b, NULL), MD_OK);
    ck_assert(b.retrieval == 520 && b.recency == 160 && b.profile == 120);
}
END_TEST

START_TEST(the_best_come_in)
{
    const float scores[] = { 0.9F, 0.2F, 0, 0.8F, 0.2F, 0.7F };
    struct setting s = setting(6, scores, 3);
    expect("three", &s, "SrzSrS");
    s.budget.retrieval += BLOCK - 1;
    expect("no part of a block", &s, "SrzSrS");
    s.budget.retrieval += 1;
    expect("of two alike the first", &s, "SSzSrS");
    s.budget.retrieval = 100 * BLOCK;
    expect("not without a score", &s, "SSzSSS");
    s.places[0].candidate = false;
    expect("never a protected one", &s, "pSzSSS");
    s.budget.retrieval = 0;
    expect("nothing", &s, "przrrr");
    s.budget.retrieval = 3 * BLOCK;
    s.places[3].tokens = BLOCK / 2; /* 0.8 takes 32, 0.7 takes 64, 0.2 takes 64 */
    expect("in tokens", &s, "pSzSrS");
    const struct md_selection to = select_of(&s);
    ck_assert(to.asked.retrieval == 192 && to.used.retrieval == 160 && to.counts[MD_SELECT_SCORE] == 3 &&
              to.counts[MD_SELECT_NO_ROOM] == 1 && to.heads_asked == 16 && to.heads_used == 12 &&
              to.clauses == 1);
    ck_assert_str_eq(md_select_why_text(MD_SELECT_NO_ROOM), "no room");
}
END_TEST

/* In: 1, 0.9, 0.8 (median 0.9, 15 % of it 0.135); 0.5 comes in (middles 0.9 and 0.8: the lower, 0.12); 0.125 does
 * (median 0.8: 0.12); 0.05 does not (middles 0.8 and 0.5: 0.075), nor what is below it. */
START_TEST(low_ones_stay_out)
{
    const float scores[] = { 0.05F, 1, 0.9F, 0.125F, 0.04F, 0.8F, 0.5F };
    struct setting s = setting(7, scores, 100);
    s.params.stop_frac = 0.15F;
    expect("stopped", &s, "lSSSlSS");
    ck_assert(select_of(&s).stopped);
    s.params.stop_frac = 0;
    expect("not stopped", &s, "SSSSSSS");
    ck_assert(!select_of(&s).stopped);
}
END_TEST

START_TEST(neighbours)
{
    const float scores[] = { 0, 0.1F, 0.9F, 0, 0.2F, 0 };
    struct setting s = setting(6, scores, 3);
    expect("in the middle", &s, "zSSzSz");
    s.peak_at[MOST + 2] = 40; /* rows are of `count` blocks: this one is not read */
    s.peak_at[6 + 2] = BLOCK - 24;
    expect("24 from the end", &s, "zrSNSz");
    s.peak_at[6 + 2] = BLOCK - 25;
    expect("25 from the end", &s, "zSSzSz");
    s.peak_at[6 + 2] = 23;
    expect("the 24th token", &s, "zNSzSz");
    s.peak_at[6 + 2] = 24;
    expect("the 25th", &s, "zSSzSz");
    s.peak_at[6 + 2] = 0;
    s.places[1].start -= 1;
    expect("not over a hole", &s, "zSSzSz");
    s.places[1].start += 1;
    s.places[1].candidate = false;
    expect("not a protected one", &s, "zpSzSz");
    s.places[1].candidate = true;
    s.params.neighbour_tokens = 0;
    expect("switched off", &s, "zSSzSz");
    s.params.neighbour_tokens = 40; /* the middle is near both */
    s.peak_at[6 + 2] = 32;
    s.budget.retrieval = 2 * BLOCK;
    expect("the right one first", &s, "zrSNrz");
    s.budget.retrieval = BLOCK;
    expect("no room", &s, "zrSzrz");
    ck_assert_float_eq(select_of(&s).blocks[2].score, 0.9F);
    s.budget.retrieval = 2 * BLOCK;
    ck_assert_float_eq(select_of(&s).blocks[3].score, 0.9F);
}
END_TEST

/* Clause 0 has the best of all; half of four blocks is for turns: one each. */
START_TEST(clauses_take_turns)
{
    const float overall[] = { 0.9F, 0.8F, 0.7F, 0.6F, 0.1F, 0.05F };
    const float second[] = { 0, 0, 0, 0, 1, 0.5F };
    struct setting s = setting(6, overall, 4);
    s.clauses = 2;
    memcpy(s.clause + 6, second, sizeof second);
    expect("one each, then the best", &s, "CSSrCr");
    s.params.clause_frac = 0;
    expect("no turns", &s, "SSSSrr");
    s.params.clause_frac = 1;
    expect("all by turns: 1 and 0.9, then 0.8 and 0.5", &s, "CCrrCC");
    s.budget.retrieval = 3 * BLOCK;
    expect("the round's better one", &s, "CCrrCr");
    s.params.stop_frac = 0.6F; /* 0.5 is below 0.6 of 1 */
    expect("a clause that has no more", &s, "CCrrCr");
    s.budget.retrieval = 4 * BLOCK;
    expect("leaves its turns to the other", &s, "CCCrCr");
    s.params.stop_frac = 0;
    s.budget.retrieval = 3 * BLOCK;
    s.peak_at[6 + 4] = 0; /* of clause 1 */
    expect("neighbours of a clause", &s, "CrrNCr");
    memcpy(s.clause + 6, overall, sizeof overall);
    expect("both name the same", &s, "CCCrrr");
    /* clause 1 brings 2, then not 0, which is in, but 4, then 5: of 1, 0.2 and 0.1 the middle is 0.2, and 0.025 is
     * not below a tenth of it; of the first three on its list it is 0.3 */
    const float none[] = { 0, 0, 0, 0, 0, 0, 0 };
    const float one[] = { 1, 0.9F, 0, 0, 0, 0, 0 }, other[] = { 0.3F, 0, 1, 0, 0.2F, 0.1F, 0.025F };
    s = setting(7, none, 7);
    s.clauses = 2;
    s.params.clause_frac = 1;
    s.params.stop_frac = 0.1F;
    memcpy(s.clause, one, sizeof one);
    memcpy(s.clause + 7, other, sizeof other);
    expect("the median of what a clause brought", &s, "CCCzCCC");
}
END_TEST

/* The list puts blocks 3, 4 and 5 there; a quarter of eight blocks is two of them. */
START_TEST(lists_have_a_cap)
{
    const float overall[] = { 0.9F, 0.5F, 0.4F, 0, 0.1F, 0.05F, 0.3F, 0.2F };
    struct setting s = setting(8, overall, 8);
    s.listed[1] = 0.5F; /* no more than the heads: no matter of the cap */
    s.listed[3] = 0.6F, s.listed[4] = 0.6F, s.listed[5] = 0.6F;
    expect("the best two of the list", &s, "SSSzLLSS");
    ck_assert_float_eq(select_of(&s).blocks[1].score, 1);
    s.params.list_cap_frac = 0;
    expect("none, by the list", &s, "SSSzSSSS");
    s.params.list_cap_frac = 1;
    expect("all", &s, "SSSLLLSS");
    s.params.list_floor = 0.05F;
    expect("but with something of the heads", &s, "SSSzLLSS");
    s.params.list_floor = 0;
    s.params.list_cap_frac =
        0.25F; /* 128 tokens: 100 of block 4, not 64 of block 5, and so not 20 of block 3 */
    s.places[4].tokens = 100;
    s.places[3].tokens = 20;
    expect("what does not fit ends it", &s, "SSSzLSSS");
}
END_TEST

START_TEST(duplicates)
{
    const float overall[] = { 0.1F, 0.2F, 0.9F, 0.3F, 0.2F, 0.25F };
    struct setting s = setting(6, overall, 3);
    s.blocks[0].text = s.blocks[2].text = s.blocks[4].text = 7;
    s.blocks[3].text = 8;
    expect("the first and the newest, by the best of their text", &s, "SrdSSr");
    s.params.drop_duplicates = false;
    expect("switched off", &s, "rrSSrS");
    s.params.drop_duplicates = true;
    s.places[4].candidate = false;
    expect("a protected one counts as the newest", &s, "SrdSpS");
    s.places[4].candidate = true;
    s.blocks[2].text = s.blocks[4].text = 0;
    expect("unknown is no text", &s, "rrSSrS");
    const float first[] = { 0, 0, 0, 0, 0, 0.9F }, second[] = { 0, 0, 1, 0, 0, 0 };
    s = setting(6, overall, 2);
    s.blocks[0].text = s.blocks[2].text = s.blocks[4].text = 7;
    s.clauses = 2;
    s.params.clause_frac = 1;
    memcpy(s.clause, first, sizeof first);
    memcpy(s.clause + 6, second, sizeof second);
    expect("for a clause too", &s, "CrdrrC");
}
END_TEST

/* Two of these come in.  Block 2 was wanted last time. */
START_TEST(incumbents)
{
    const float overall[] = { 0.9F, 0.57F, 0.5F, 0.1F };
    struct setting s = setting(4, overall, 2);
    s.blocks[2].incumbent = true;
    expect("0.57 is less than 1.15 * 0.5", &s, "SxIr");
    ck_assert_int_eq(select_of(&s).blocks[2].beaten, 1);
    s.blocks[2].beaten = 1;
    expect("for the second time", &s, "SSrr");
    s.blocks[2].beaten = 0;
    s.places[1].tokens = BLOCK / 2;
    s.budget.retrieval -= BLOCK / 2;
    expect("a whole block has no room in place of half a one", &s, "SSrr");
    s.places[1].tokens = BLOCK;
    s.budget.retrieval += BLOCK / 2;
    s.overall[1] = 0.58F;
    expect("0.58 is more", &s, "SSrr");
    s.overall[1] = 0.57F;
    s.params.margin_frac = 0;
    expect("no advantage", &s, "SSrr");
    s.params.margin_frac = 0.15F;
    s.params.beaten_most = 1;
    expect("no patience", &s, "SSrr");
    s.params.beaten_most = 2;
    s.blocks[1].incumbent = true;
    s.blocks[1].beaten = 1;
    expect("incumbents do not displace each other", &s, "SSrr");
    ck_assert_int_eq(select_of(&s).blocks[1].beaten, 0); /* it is in by score */
    s.blocks[1].incumbent = false;
    s.blocks[1].beaten = 0;
    s.blocks[2].incumbent = false;
    s.blocks[3].incumbent = true;
    s.overall[3] = 0;
    expect("nothing is beaten by all", &s, "SSrz");
    s.budget.retrieval = 4 * BLOCK;
    expect("but stays once where there is room", &s, "SSSI");
    s.blocks[3].beaten = 1;
    expect("and not again", &s, "SSSz");
    /* what a clause named is not displaced: of 2 blocks for turns and two clauses that is both */
    s = setting(4, overall, 2);
    s.blocks[2].incumbent = true;
    s.clauses = 2;
    s.params.clause_frac = 1;
    const float second[] = { 0, 1, 0, 0 };
    memcpy(s.clause + 4, second, sizeof second);
    expect("a clause's", &s, "CCrr");
}
END_TEST

START_TEST(recency_and_profile)
{
    const float overall[] = { 0.1F, 0.9F, 0, 0.8F, 0, 0.05F };
    struct setting s = setting(6, overall, 2);
    s.budget.recency = 2 * BLOCK;
    expect("the newest", &s, "rSzSRR");
    s.places[5].candidate = false;
    expect("of those that are not protected; what is in counts", &s, "rSzSRp");
    s.blocks[0].profile = 0.2F, s.blocks[2].profile = 0.3F, s.blocks[4].profile = 5;
    s.budget.profile = BLOCK;
    expect("the most attended of the others", &s, "rSPSRp");
    s.budget.profile = 2 * BLOCK;
    expect("two of them", &s, "PSPSRp");
    s.blocks[0].profile = 0;
    expect("none without a profile", &s, "rSPSRp");
    const struct md_selection to = select_of(&s);
    ck_assert(to.used.retrieval == 128 && to.used.recency == 64 && to.used.profile == 64 &&
              to.asked.profile == 128);
}
END_TEST

START_TEST(bad_input_is_refused)
{
    const float overall[] = { 0.5F, 0.6F };
    for (int n = 0; n < 16; n++) {
        struct setting s = setting(2, overall, 2);
        switch (n) {
        case 0: break;
        case 1: s.budget.retrieval = -1; break;
        case 2: s.budget.recency = -1; break;
        case 3: s.budget.profile = INT32_MAX; break;
        case 4: s.params.clause_frac = 1.1F; break;
        case 5: s.params.clause_frac = NAN; break;
        case 6: s.params.stop_frac = -0.1F; break;
        case 7: s.params.list_cap_frac = 2; break;
        case 8: s.params.margin_frac = -1; break;
        case 9: s.params.neighbour_tokens = -1; break;
        case 10: s.params.beaten_most = 0; break;
        case 11: s.params.list_floor = NAN; break;
        case 12: s.blocks[1].profile = INFINITY; break;
        case 13: s.blocks[1].beaten = -1; break;
        case 14: s.clauses = MD_ATTENTION_CLAUSES_MOST + 1; break;
        default: s.params.margin_frac = NAN; break;
        }
        const struct md_scores scores = { .block_count = 2,
                                          .clause_count = s.clauses,
                                          .clause = s.clause,
                                          .overall = s.overall,
                                          .listed = s.listed,
                                          .peak_at = s.peak_at };
        struct md_selection to;
        ck_assert_msg(md_select_blocks(s.places, s.blocks, &scores, &s.budget, &s.params, &arena, &to,
                                       NULL) == (n == 0 ? MD_OK : MD_INVALID),
                      "case %d", n);
    }
    struct setting s = setting(2, overall, 2);
    const struct md_scores scores = { .block_count = 2,
                                      .clause_count = 1,
                                      .clause = s.clause,
                                      .overall = s.overall,
                                      .listed = s.listed,
                                      .peak_at = s.peak_at };
    struct md_selection to;
    for (size_t bytes = 0;; bytes += 16) {
        struct md_arena small;
        md_arena_init(&small, NULL, bytes);
        const enum md_status status =
            md_select_blocks(s.places, s.blocks, &scores, &s.budget, &s.params, &small, &to, NULL);
        md_arena_done(&small);
        ck_assert(status == MD_OK || status == MD_NO_MEMORY);
        if (status == MD_OK) {
            ck_assert_uint_gt(bytes, 32);
            break;
        }
    }
}
END_TEST

/* ---- properties ---- */

static float some_score(struct rng *r)
{
    return rng_below(r, 4) == 0 ? 0 : (float)(1 + rng_below(r, 40)) / 40; /* ties are frequent */
}

static struct setting random_setting(struct rng *r)
{
    const float nothing[MOST] = { 0 };
    struct setting s = setting(1 + rng_below(r, MOST), nothing, (int32_t)rng_below(r, MOST));
    s.clauses = 1 + rng_below(r, CLAUSES);
    s.params.stop_frac = rng_below(r, 2) ? 0.15F : 0;
    s.params.neighbour_tokens = rng_below(r, 3) ? 24 : 0;
    for (size_t b = 0; b < s.count; b++) {
        s.places[b].candidate = rng_below(r, 5) > 0;
        s.overall[b] = some_score(r);
    }
    for (size_t i = 0; i < s.clauses * s.count; i++)
        s.clause[i] = some_score(r);
    for (size_t i = 0; i < (s.clauses + 1) * s.count; i++)
        s.peak_at[i] = (int32_t)rng_below(r, BLOCK + 1) - 1;
    return s;
}

static void decorate(struct rng *r, struct setting *s)
{
    s->budget.retrieval += (int32_t)rng_below(r, BLOCK);
    s->budget.recency = (int32_t)rng_below(r, 4 * BLOCK);
    s->budget.profile = (int32_t)rng_below(r, 4 * BLOCK);
    s->params.clause_frac = (float)rng_below(r, 11) / 10;
    int32_t at = 0;
    for (size_t b = 0; b < s->count; b++) {
        s->places[b].start = at;
        s->places[b].tokens = rng_below(r, 3) ? BLOCK : 1 + (int32_t)rng_below(r, BLOCK);
        at += s->places[b].tokens + (rng_below(r, 6) == 0);
        s->listed[b] = rng_below(r, 3) ? 0 : some_score(r);
        s->blocks[b] = (struct md_select_block){ .incumbent = rng_below(r, 3) == 0,
                                                 .beaten = (int32_t)rng_below(r, 2),
                                                 .text = rng_below(r, 2) ? 0 : 1 + rng_below(r, 4),
                                                 .profile = (float)rng_below(r, 5) - 1 };
    }
}

START_TEST(budgets_hold_and_counts_agree)
{
    struct rng rng = rng_open("budgets_hold_and_counts_agree");
    for (int round = 0; round < 3000; round++) {
        struct setting s = random_setting(&rng);
        decorate(&rng, &s);
        const struct md_selection to = select_of(&s);
        int32_t used = 0;
        size_t counted = 0, by_why[MD_SELECT_WHY_COUNT] = { 0 };
        bool good = true;
        for (size_t b = 0; b < s.count; b++) {
            used += to.blocks[b].wanted ? s.places[b].tokens : 0;
            good &= !to.blocks[b].wanted || s.places[b].candidate;
            good &= to.blocks[b].wanted == (to.blocks[b].why < MD_SELECT_PROTECTED);
            good &= (to.blocks[b].why == MD_SELECT_PROTECTED) == !s.places[b].candidate;
            by_why[to.blocks[b].why]++;
        }
        for (int w = 0; w < MD_SELECT_WHY_COUNT; w++) {
            good &= by_why[w] == to.counts[w];
            counted += by_why[w];
        }
        good &= counted == s.count && used == to.used.retrieval + to.used.recency + to.used.profile;
        good &= to.used.retrieval <= s.budget.retrieval && to.used.recency <= s.budget.recency &&
                to.used.profile <= s.budget.profile;
        ck_assert_msg(good, "round %d", round);
        md_arena_done(&arena);
    }
}
END_TEST

START_TEST(clauses_in_any_order)
{
    static const size_t orders[6][CLAUSES] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                               { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    struct rng rng = rng_open("clauses_in_any_order");
    for (int round = 0; round < 2000; round++) {
        struct setting s = random_setting(&rng);
        decorate(&rng, &s);
        for (size_t i = 0; s.clauses < CLAUSES && i < (size_t)CLAUSES * s.count; i++)
            s.clause[i] = some_score(&rng);
        for (size_t i = 0; s.clauses < CLAUSES && i < (size_t)(CLAUSES + 1) * s.count; i++)
            s.peak_at[i] = (int32_t)rng_below(&rng, BLOCK + 1) - 1;
        s.clauses = CLAUSES;
        const struct md_selection first = select_of(&s);
        for (int o = 1; o < 6; o++) {
            struct setting other = s;
            for (size_t c = 0; c < CLAUSES; c++) {
                memcpy(other.clause + c * s.count, s.clause + orders[o][c] * s.count,
                       s.count * sizeof *s.clause);
                memcpy(other.peak_at + c * s.count, s.peak_at + orders[o][c] * s.count,
                       s.count * sizeof *s.peak_at);
            }
            const struct md_selection to = select_of(&other);
            bool same = true;
            for (size_t b = 0; b < s.count; b++)
                same &=
                    to.blocks[b].wanted == first.blocks[b].wanted && to.blocks[b].why == first.blocks[b].why;
            ck_assert_msg(same, "round %d, order %d", round, o);
        }
        md_arena_done(&arena);
    }
}
END_TEST

/* Blocks of one size, whole blocks of budget, half for clauses, neither lists, duplicates nor incumbents: see select.h. */
START_TEST(more_room_drops_nothing)
{
    struct rng rng = rng_open("more_room_drops_nothing");
    for (int round = 0; round < 1000; round++) {
        struct setting s = random_setting(&rng);
        bool before[MOST] = { false };
        for (int32_t n = 0; n <= MOST; n++) {
            s.budget.retrieval = n * BLOCK;
            const struct md_selection to = select_of(&s);
            bool kept = true;
            for (size_t b = 0; b < s.count; b++) {
                kept &= to.blocks[b].wanted || !before[b];
                before[b] = to.blocks[b].wanted;
            }
            ck_assert_msg(kept, "round %d: with %d blocks one is lost", round, n);
        }
        md_arena_done(&arena);
    }
}
END_TEST

/* ---- profiles ---- */

START_TEST(profiles_by_hand)
{
    /* scores 3 and 1 of 4: half of what was, and 0.75 and 0.25 */
    float profile[] = { 1, 0.5F, 0.25F };
    const float scores[] = { 3, 1, -2 }, none[] = { 0, 0, 0 };
    ck_assert_int_eq(md_profile_turn(profile, scores, 3, MD_PROFILE_DECAY, NULL), MD_OK);
    ck_assert(profile[0] == 1.25F && profile[1] == 0.5F && profile[2] == 0.125F);
    ck_assert_int_eq(md_profile_turn(profile, none, 3, MD_PROFILE_DECAY, NULL), MD_OK);
    ck_assert(profile[0] == 0.625F && profile[1] == 0.25F && profile[2] == 0.0625F);
    const float bad[] = { 1, NAN, 1 };
    ck_assert_int_eq(md_profile_turn(profile, bad, 3, MD_PROFILE_DECAY, NULL), MD_INVALID);
    ck_assert_int_eq(md_profile_turn(profile, scores, 3, 1.5F, NULL), MD_INVALID);
    ck_assert(profile[0] == 0.625F && profile[1] == 0.25F && profile[2] == 0.0625F);
    const int32_t age[] = { 5, 1, 2 };
    float out[3];
    md_profile_scores(profile, age, 3, 2, out);
    ck_assert(out[0] == 0.625F && out[1] == 0.625F && out[2] == 0.0625F);
    md_profile_scores(profile, NULL, 3, 2, out);
    ck_assert_mem_eq(out, profile, sizeof out);
}
END_TEST

/* The planner goes by profiles; with none it does what it does without scores. */
START_TEST(profiles_and_the_planner)
{
    struct rng rng = rng_open("profiles_and_the_planner");
    const struct md_residency_gate gate = { .remove_middle = true };
    const struct md_stream_policy stream = { BLOCK, BLOCK };
    for (int round = 0; round < 200; round++) {
        struct md_block blocks[MOST];
        float profile[MOST] = { 0 }, scores[MOST];
        int32_t age[MOST];
        for (int b = 0; b < MOST; b++) {
            blocks[b] =
                (struct md_block){ { b * BLOCK, (b + 1) * BLOCK }, MD_CLASS_VOLATILE, 0, rng_below(&rng, 6) };
            age[b] = (int32_t)rng_below(&rng, 4);
        }
        const int32_t budget = (int32_t)rng_below(&rng, MOST) * BLOCK;
        struct md_plan t1, t2;
        ck_assert_int_eq(md_residency_plan(blocks, MOST, NULL, budget, stream, gate, &arena, &t1, NULL),
                         MD_OK);
        md_profile_scores(profile, age, MOST, MD_PROFILE_GRACE_TURNS, scores);
        ck_assert_int_eq(md_residency_plan(blocks, MOST, scores, budget, stream, gate, &arena, &t2, NULL),
                         MD_OK);
        ck_assert_mem_eq(t1.hot, t2.hot, MOST * sizeof *t1.hot);
        /* one that was attended is the last of the old ones to leave: with room for it beside sink and recent it stays */
        const size_t attended = 1 + rng_below(&rng, MOST - 2);
        float turn[MOST] = { 0 };
        turn[attended] = 1;
        ck_assert_int_eq(md_profile_turn(profile, turn, MOST, MD_PROFILE_DECAY, NULL), MD_OK);
        md_profile_scores(profile, NULL, MOST, 0, scores);
        ck_assert_int_eq(md_residency_plan(blocks, MOST, scores, 3 * BLOCK, stream, gate, &arena, &t2, NULL),
                         MD_OK);
        ck_assert(t2.hot[attended] && t2.hot_tokens == 3 * BLOCK);
        md_arena_done(&arena);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("select");
    TCase *c = tcase_create("select");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, budgets_by_hand);
    tcase_add_test(c, the_best_come_in);
    tcase_add_test(c, low_ones_stay_out);
    tcase_add_test(c, neighbours);
    tcase_add_test(c, clauses_take_turns);
    tcase_add_test(c, lists_have_a_cap);
    tcase_add_test(c, duplicates);
    tcase_add_test(c, incumbents);
    tcase_add_test(c, recency_and_profile);
    tcase_add_test(c, bad_input_is_refused);
    tcase_add_test(c, budgets_hold_and_counts_agree);
    tcase_add_test(c, clauses_in_any_order);
    tcase_add_test(c, more_room_drops_nothing);
    tcase_add_test(c, profiles_by_hand);
    tcase_add_test(c, profiles_and_the_planner);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
