/* test_past_walk.c - random calls on a few conversations far past the trained window, against plain lists of tokens:
 * contexts are what was said, what is moved is its own bytes moved once, answers are those over what is hot, nothing is
 * lost where the store has room, budgets hold, and at the end nothing is left. */
#include "support/past_check.h"
#include "support/pool_walk.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>

enum { WINDOW = 2500, KEEP_ALL = 64 << 20, BLOCK = 16 };

static int moved, answers;

static void open_round(struct walk *w, int round)
{
    const int32_t trained = 144 + 16 * walk_below(w, 10);
    const int32_t most = trained - trained / 8, hot = most - walk_below(w, most - 96);
    const bool tight = round % 3 == 2;
    struct md_pool_config c =
        rig_config(WINDOW, hot,
                   tight ? past_least_cold(hot, BLOCK) + (size_t)walk_below(w, 1 << 18) : KEEP_ALL);
    c.write_through = round / 2 % 2;
    c.reuse = (enum md_reuse)(round % 4 == 3   ? MD_REUSE_FULL
                              : round % 4 == 2 ? MD_REUSE_APPROXIMATE
                                               : MD_REUSE_PLACE);
    w->loses = tight || c.reuse == MD_REUSE_FULL;
    c.alloc = &w->heap.alloc;
    past_open(&w->r, c, walk_below(w, 5) == 0 ? MD_CAP_SHARE : 0, 1 + walk_below(w, 4), trained);
}

/* Mostly all of it. */
static int32_t keep(struct walk *w, const struct walk_talk *o)
{
    const int32_t back = walk_below(w, 3) == 0 ? walk_below(w, o->count + 1) : walk_below(w, 60);
    return walk_below(w, 3) > 0 ? o->count : o->count > back ? o->count - back : 0;
}

static void answered(struct walk *w, const struct walk_talk *t)
{
    (void)t;
    past_check_answer(&w->r);
    answers++;
}

static void check_moved(struct walk *w, const struct walk_talk *t)
{
    moved += past_check_moved(&w->r, t->s);
}

START_TEST(random_calls)
{
    static walk_call *const calls[] = { walk_run,    walk_run,   walk_run,   walk_ensure, walk_suffix,
                                        walk_decode, walk_range, walk_range, walk_branch, walk_at_tail };
    static const struct walk_figures figures = { .name = "past walk",
                                                 .rounds = 12,
                                                 .steps = 150,
                                                 .talks = 5,
                                                 .window = WINDOW,
                                                 .calls = calls,
                                                 .call_count = sizeof calls / sizeof calls[0],
                                                 .close_one_in = 30,
                                                 .answer_most = 40,
                                                 .new_most = 40,
                                                 .long_one_in = 3,
                                                 .long_most = 500,
                                                 .suffix_below = 300,
                                                 .branch_at_end = true,
                                                 .range_most = 120,
                                                 .evict_one_in = 3,
                                                 .at_tail_more = 200,
                                                 .open = open_round,
                                                 .keep = keep,
                                                 .answered = answered,
                                                 .check = check_moved };
    static struct walk w;
    walk_rounds(&w, &figures);
    printf("%d moved blocks and %d answers compared\n", moved, answers);
    ck_assert_int_gt(moved, 1000);
    ck_assert_int_gt(answers, 200);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("past walk");
    TCase *c = tcase_create("walk");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, random_calls);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
