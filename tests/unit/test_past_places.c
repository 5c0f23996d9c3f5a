/* test_past_places.c - where blocks stand past the trained window, on the fake engine: a thousand ways to the same end, and
 * each hot block stands where it stands for one who came there in one piece.
 *
 * What is right is told by a conversation of another pool that was asked once; why it must be so: policy/rebase.h. */
#include "session/session_internal.h"
#include "support/past_check.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum {
    TRAINED = 256,
    HOT = 160,
    WINDOW = 1200,
    KEEP_ALL = 64 << 20,
    BLOCK = 16, /* of rig_config */
    END = 700,
    ANSWERS =
        60, /* tokens of the longest answer: over blocks, so that plans are made while it is given, too */
    BLOCKS_MAX = WINDOW / BLOCK + 1,
    WAYS = 1000
};

static md_token text[WINDOW], other[WINDOW];

/* Where each block of a tape stands; -1: nowhere. */
struct places {
    size_t count;
    int32_t at[BLOCKS_MAX];
};

static struct places places_of(const struct md_session *s)
{
    struct places p = { .count = md_tape_block_count(&s->tape) };
    for (size_t i = 0; i < p.count; i++)
        p.at[i] = s->tape.blocks[i].state == MD_STATE_HOT ? md_tape_place(&s->tape, i).start : -1;
    return p;
}

static void ask(struct rig *r, const md_token *prompt, int32_t count, int32_t answer)
{
    enum md_status s = rig_ask(r, prompt, count, answer, false);
    ck_assert_msg(s == MD_OK, "%s: %s", md_status_name(s), r->err.text);
}

/* One step on the way: a turn that ends anywhere, before the end or behind it; a text that is edited; a block that is
 * called by hand; another conversation, which leaves fewer cells; or this one begins anew. */
static void step(struct rig *r, struct rng *rng, struct md_session *aside, int64_t *hands)
{
    static md_token edited[WINDOW];
    struct md_session *s = r->session;
    const int32_t count = 20 + (int32_t)rng_below(rng, END + 200), from = (int32_t)rng_below(rng, END);
    const int32_t tape = md_session_status(s).tape_tokens;
    int32_t tokens;
    switch (rng_below(rng, 7)) {
    case 0: ck_assert_int_eq(rig_ensure(r, text, count), MD_OK); break;
    case 1:
        memcpy(edited, text, sizeof edited);
        rig_tokens(edited + from, 60, 7 + rng_below(rng, 50));
        ask(r, edited, from + 60, 5);
        break;
    case 2:
        if (tape <= 2 * BLOCK)
            break;
        const int32_t start = (int32_t)rng_below(rng, (uint32_t)(tape / BLOCK - 1)) * BLOCK;
        ck_assert_int_eq(md_session_admit_range(s, (struct md_range){ start, start + BLOCK }, &tokens,
                                                &r->err),
                         MD_OK);
        *hands += tokens;
        break;
    case 3:
        r->session = aside;
        ask(r, other, 20 + (int32_t)rng_below(rng, 500), 10);
        r->session = s;
        break;
    case 4:
        if (rng_below(rng, 4) == 0) {
            md_session_close(s);
            r->session = rig_new(r);
        }
        break;
    default: ask(r, text, count, (int32_t)rng_below(rng, 60));
    }
}

/* For answers of 1, 2, ... tokens. */
static void in_one_piece(struct places *before, struct places want[ANSWERS])
{
    for (int n = 1; n <= ANSWERS; n++) {
        struct rig r;
        past_open(&r, rig_config(WINDOW, HOT, KEEP_ALL), 0, 4, TRAINED);
        ask(&r, text, END - 1, 1);
        *before = places_of(r.session);
        ask(&r, text, END, n);
        want[n - 1] = places_of(r.session);
        ck_assert_int_gt(want[n - 1].at[0], 0);
        rig_close(&r);
    }
    ck_assert_int_ne(want[0].at[0], want[ANSWERS - 1].at[0]);
}

/* The bound moves once in a step, an eighth of the window, and then at most all blocks with it.  Each of these calls makes
 * one plan for its token and one for an answer: when the two did not agree it was 30 times as many. */
START_TEST(calls_of_one_token_move_no_more_than_others)
{
    const int64_t steps = (WINDOW - TRAINED) / (TRAINED / 8) + 1;
    struct rig r;
    past_open(&r, rig_config(WINDOW, HOT, KEEP_ALL), 0, 4, TRAINED);
    for (int32_t count = 1; count < WINDOW; count++)
        ck_assert_int_eq(rig_ensure(&r, text, count), MD_OK);
    const int64_t moved = md_session_status(r.session).rebased_blocks;
    ck_assert_msg(moved > 0 && moved <= steps * (HOT / BLOCK), "%lld blocks were moved in %lld steps",
                  (long long)moved, (long long)steps);
    rig_close(&r);
}
END_TEST

START_TEST(the_way_does_not_matter)
{
    static struct places before, want[ANSWERS];
    struct rng rng = rng_open("past places");
    struct rig r;
    int64_t hands = 0;
    in_one_piece(&before, want);
    past_open(&r, rig_config(WINDOW, HOT, KEEP_ALL), 0, 4, TRAINED);
    struct md_session *aside = rig_new(&r), *small = rig_new(&r);
    for (int way = 0; way < WAYS; way++) {
        const int32_t answer = 1 + (int32_t)rng_below(&rng, ANSWERS);
        for (int n = (int)rng_below(&rng, 6); n > 0; n--)
            step(&r, &rng, aside, &hands);
        ask(&r, text, END - 2, 1); /* what was called by hand was for this one */
        ask(&r, text, END - 1, 1);
        const struct places there = places_of(r.session);
        ck_assert_msg(memcmp(&there, &before, sizeof there) == 0, "way %d: before the last turn", way);
        if (rng_below(&rng, 2) == 0) { /* so little that it stays in what a plan leaves free */
            struct md_session *s = r.session;
            r.session = small;
            ask(&r, other, 1 + (int32_t)rng_below(&rng, 4), 1);
            r.session = s;
        }
        ask(&r, text, END, answer);
        const struct places got = places_of(r.session), *p = &want[answer - 1];
        ck_assert_uint_eq(got.count, p->count);
        for (size_t i = 0; i < got.count; i++)
            ck_assert_msg(got.at[i] == p->at[i], "way %d, answer of %d: block %zu stands at %d, wanted %d",
                          way, answer, i, got.at[i], p->at[i]);
        ck_assert(md_pool_check(r.pool));
    }
    printf("%d ways, %lld tokens called by hand\n", WAYS, (long long)hands);
    ck_assert_int_gt(hands, 1000);
    rig_close(&r);
}
END_TEST

static void fill(void)
{
    rig_tokens(text, WINDOW, 1);
    rig_tokens(other, WINDOW, 2);
}

int main(void)
{
    Suite *s = suite_create("past places");
    TCase *c = tcase_create("places");
    tcase_set_timeout(c, 300);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_test(c, the_way_does_not_matter);
    tcase_add_test(c, calls_of_one_token_move_no_more_than_others);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
