/* test_pool_walk.c - random calls on a few conversations against plain lists of tokens: contexts are what was said,
 * answers over full KV are those of fresh runs, budgets hold at every step, and at the end nothing is left. */
#include "support/pool_walk.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>

enum { WINDOW = 400, KEEP_ALL = 64 << 20, TIGHT = 60 << 10, ANSWER_MOST = 30, FRESH_EVERY = 20 };

static int compared; /* answers held against fresh runs */
static int answers;

static void open_round(struct walk *w, int round)
{
    bool fits = walk_below(w, 2) == 0 || round == 0; /* once at least all of it stays hot */
    struct md_pool_config c =
        rig_config(WINDOW, fits ? WINDOW : 96 + 16 * walk_below(w, 8), round % 2 ? TIGHT : KEEP_ALL);
    c.write_through = round / 2 % 2;
    c.reuse = (enum md_reuse)(round / 4 % 3);
    w->loses = round % 2 == 1 || c.reuse == MD_REUSE_FULL;
    c.alloc = &w->heap.alloc;
    unsigned caps_off = walk_below(w, 5) == 0 ? MD_CAP_SHARE : 0;
    rig_open_seqs(&w->r, c, caps_off, 1 + walk_below(w, 4));
}

static int32_t keep(struct walk *w, const struct walk_talk *o)
{
    return walk_below(w, 3) > 0 ? o->count : walk_below(w, o->count + 1);
}

/* Some are held against a fresh run. */
static void answered(struct walk *w, const struct walk_talk *t)
{
    const struct md_tokens *said = &w->r.last.tokens;
    md_token want[ANSWER_MOST];
    if (!rig_is_full(&w->r, t->s) || answers++ % FRESH_EVERY != 0)
        return;
    rig_fresh_answer(t->tokens, t->count, (int32_t)said->count, want);
    ck_assert_mem_eq(said->ids, want, said->count * sizeof *want);
    compared++;
}

START_TEST(ten_thousand_random_calls)
{
    static walk_call *const calls[] = { walk_run,    walk_run,   walk_run,    walk_ensure, walk_suffix,
                                        walk_decode, walk_range, walk_branch, walk_at_tail };
    static const struct walk_figures figures = { .name = "pool walk",
                                                 .rounds = 20,
                                                 .steps = 500,
                                                 .talks = 6,
                                                 .window = WINDOW,
                                                 .calls = calls,
                                                 .call_count = sizeof calls / sizeof calls[0],
                                                 .close_one_in = 25,
                                                 .answer_most = ANSWER_MOST,
                                                 .new_most = 40,
                                                 .long_one_in = 5,
                                                 .long_most = 200,
                                                 .suffix_below = 60,
                                                 .range_most = INT32_MAX, /* all that follows */
                                                 .evict_one_in = 2,
                                                 .at_tail_more = INT32_MAX,
                                                 .open = open_round,
                                                 .keep = keep,
                                                 .answered = answered };
    static struct walk w;
    walk_rounds(&w, &figures);
    printf("%d of %d full answers compared, %d calls had to be full\n", compared, answers, w.all_full);
    ck_assert_int_gt(w.all_full, 10);
    ck_assert_int_gt(compared, 20);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool walk");
    TCase *c = tcase_create("walk");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, ten_thousand_random_calls);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
