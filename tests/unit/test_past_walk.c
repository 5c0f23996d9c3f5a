/* test_past_walk.c - random calls on a few conversations far past the trained window, against plain lists of tokens:
 * contexts are what was said, what is moved is its own bytes moved once, answers are those over what is hot, nothing is
 * lost where the store has room, budgets hold, and at the end nothing is left. */
#include "support/fault_alloc.h"
#include "support/past_check.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 12, STEPS = 150, WINDOW = 2500, TALKS = 5, KEEP_ALL = 64 << 20, BLOCK = 16 };

/* A conversation; tokens[0, count) is what its context must be. */
struct talk {
    struct md_session *s; /* NULL: not open */
    md_token tokens[WINDOW];
    int32_t count;
};

struct walk {
    struct rig r;
    struct rng rng;
    struct talk talks[TALKS];
    struct fault_alloc heap;
    int32_t trained;
    bool loses; /* a small store, or a mode in which some of what is stored is not used again */
    int moved, answers;
};

static int32_t below(struct walk *w, int32_t n)
{
    return n <= 0 ? 0 : (int32_t)rng_below(&w->rng, (uint32_t)n);
}

static void check_all(struct walk *w)
{
    struct md_pool_status p = md_pool_status(w->r.pool);
    ck_assert(md_pool_check(w->r.pool));
    ck_assert_uint_le(p.cold.peak_bytes, w->r.config.cold_bytes);
    ck_assert_int_le(p.hot_cells, p.hot_limit_tokens);
    for (int i = 0; i < TALKS; i++) {
        const struct talk *t = &w->talks[i];
        int32_t count;
        if (t->s == NULL)
            continue;
        const md_token *context = md_session_context(t->s, &count);
        ck_assert_int_eq(count, t->count);
        if (count > 0)
            ck_assert_mem_eq(context, t->tokens, (size_t)count * sizeof *context);
        struct md_session_status st = md_session_status(t->s);
        ck_assert_int_eq(st.hot_tokens + st.cold_tokens + st.lost_tokens, st.tape_tokens);
        if (!w->loses) {
            ck_assert_int_eq(st.lost_tokens, 0);
            ck_assert_int_eq((int)st.dropped_blocks, 0);
        }
        w->moved += past_check_moved(&w->r, t->s);
    }
}

static bool went(struct walk *w, enum md_status s)
{
    ck_assert_msg(s == MD_OK || (s == MD_CANCELLED && w->r.cancel_after == 0), "%s", w->r.err.text);
    return s == MD_OK;
}

static void heard(struct walk *w, struct talk *t, bool whole)
{
    const struct md_tokens *said = &w->r.last.tokens;
    if (whole && said->count > 0) {
        past_check_answer(&w->r);
        w->answers++;
    }
    for (size_t i = 0; i < said->count; i++)
        t->tokens[t->count++] = said->ids[i];
}

static int32_t answer_tokens(struct walk *w, int32_t count)
{
    int32_t most = WINDOW - count < 40 ? WINDOW - count : 40;
    return below(w, most + 1);
}

/* The first part of what some conversation said, mostly all of its own, and something new. */
static void say_something(struct walk *w, struct talk *t, int32_t room)
{
    const struct talk *o = &w->talks[below(w, 4) == 0 ? below(w, TALKS) : (int32_t)(t - w->talks)];
    const int32_t back = below(w, 3) == 0 ? below(w, o->count + 1) : below(w, 60);
    int32_t keep = below(w, 3) > 0 ? o->count : o->count > back ? o->count - back : 0;
    int32_t more = 1 + below(w, below(w, 3) == 0 ? 500 : 40);
    if (keep + more > room)
        keep = below(w, room - more + 1);
    memmove(t->tokens, o->tokens, (size_t)keep * sizeof *t->tokens);
    rig_tokens(t->tokens + keep, more, (uint32_t)below(w, 4));
    t->count = keep + more;
}

/* ---- the calls ---- */

static void do_run(struct walk *w, struct talk *t)
{
    say_something(w, t, WINDOW - 1);
    int32_t answer = answer_tokens(w, t->count);
    bool ok = went(w, rig_ask(&w->r, t->tokens, t->count, answer, false));
    heard(w, t, ok);
}

static void do_ensure(struct walk *w, struct talk *t)
{
    if (below(w, 2) == 0 && t->count > 1)
        t->count = 1 + below(w, t->count); /* a prefix of what there is: the tail stays on the tape */
    else
        say_something(w, t, WINDOW);
    if (!went(w, rig_ensure(&w->r, t->tokens, t->count))) {
        int32_t count;
        (void)md_session_context(t->s, &count); /* what was computed */
        ck_assert_int_le(count, t->count);
        t->count = count;
    }
}

static void do_suffix(struct walk *w, struct talk *t)
{
    int32_t more = below(w, WINDOW - t->count < 300 ? WINDOW - t->count + 1 : 300);
    rig_tokens(t->tokens + t->count, more, (uint32_t)below(w, 4));
    if (went(w, rig_suffix(&w->r, t->tokens + t->count, more)))
        t->count += more;
}

static void do_decode(struct walk *w, struct talk *t)
{
    if (t->count == 0 || t->count == WINDOW)
        return;
    bool ok = went(w, rig_decode(&w->r, answer_tokens(w, t->count)));
    heard(w, t, ok);
}

static void do_branch(struct walk *w, struct talk *t)
{
    struct talk *b = &w->talks[below(w, TALKS)];
    int32_t count = below(w, 2) == 0 ? t->count : below(w, t->count + 1);
    if (b->s != NULL)
        return;
    ck_assert_int_eq(md_session_branch(t->s, count, &b->s, &w->r.err), MD_OK);
    memcpy(b->tokens, t->tokens, (size_t)count * sizeof *b->tokens);
    b->count = count;
}

static void do_range(struct walk *w, struct talk *t)
{
    int32_t tape = md_session_status(t->s).tape_tokens, tokens = -1;
    if (tape == 0)
        return;
    int32_t start = below(w, tape), most = tape - start < 120 ? tape - start : 120;
    struct md_range r = { start, start + 1 + below(w, most) };
    bool admits = below(w, 3) > 0;
    enum md_status s = admits ? md_session_admit_range(t->s, r, &tokens, &w->r.err)
                              : md_session_evict_range(t->s, r, &tokens, &w->r.err);
    ck_assert_msg(s == MD_OK, "%s", w->r.err.text);
    ck_assert(tokens >= 0 && tokens <= md_range_len(r));
}

static void do_at_tail(struct walk *w, struct talk *t)
{
    int32_t tape = md_session_status(t->s).tape_tokens, tokens = 0, before;
    if (tape > t->count)
        tape = t->count; /* what follows the context after EnsurePrefix is not meant */
    if (tape < 32 || w->r.config.reuse != MD_REUSE_APPROXIMATE)
        return;
    int32_t start = below(w, tape - 16), most = tape - start - 15 < 200 ? tape - start - 15 : 200;
    struct md_range r = { start, start + 16 + below(w, most) };
    enum md_status s = md_session_admit_at_tail(t->s, r, NULL, &tokens, &w->r.err);
    ck_assert_msg(s == MD_OK || s == MD_TOO_LARGE || s == MD_NOT_FOUND, "%s", w->r.err.text);
    (void)md_session_context(t->s, &before);
    tokens = before - t->count; /* where it stopped is said by the context */
    memcpy(t->tokens + t->count, t->tokens + (start + 15) / 16 * 16, (size_t)tokens * sizeof *t->tokens);
    t->count += tokens;
}

static void step(struct walk *w)
{
    static void (*const calls[])(struct walk *, struct talk *) = { do_run,    do_run,    do_run,   do_ensure,
                                                                   do_suffix, do_decode, do_range, do_range,
                                                                   do_branch, do_at_tail };
    struct talk *t = &w->talks[below(w, TALKS)];
    if (t->s == NULL) {
        t->s = rig_new(&w->r);
        t->count = 0;
    } else if (below(w, 30) == 0) {
        md_session_close(t->s);
        t->s = NULL;
        t->count = 0;
        return;
    }
    w->r.session = t->s;
    w->r.cancel_after = below(w, 8) == 0 ? below(w, 60) : -1;
    calls[below(w, sizeof calls / sizeof calls[0])](w, t);
    w->r.cancel_after = -1;
}

static void walk_open(struct walk *w, int round)
{
    w->trained = 144 + 16 * below(w, 10);
    const int32_t most = w->trained - w->trained / 8, hot = most - below(w, most - 96);
    const bool tight = round % 3 == 2;
    struct md_pool_config c =
        rig_config(WINDOW, hot, tight ? past_least_cold(hot, BLOCK) + (size_t)below(w, 1 << 18) : KEEP_ALL);
    c.write_through = round / 2 % 2;
    c.reuse = (enum md_reuse)(round % 4 == 3   ? MD_REUSE_FULL
                              : round % 4 == 2 ? MD_REUSE_APPROXIMATE
                                               : MD_REUSE_PLACE);
    w->loses = tight || c.reuse == MD_REUSE_FULL;
    fault_alloc_init(&w->heap, 0);
    c.alloc = &w->heap.alloc;
    past_open(&w->r, c, below(w, 5) == 0 ? MD_CAP_SHARE : 0, 1 + below(w, 4), w->trained);
    memset(w->talks, 0, sizeof w->talks);
    w->talks[0].s = w->r.session;
}

START_TEST(random_calls)
{
    static struct walk w;
    w.rng = rng_open("past walk");
    for (int round = 0; round < ROUNDS; round++) {
        walk_open(&w, round);
        for (int i = 0; i < STEPS; i++) {
            step(&w);
            check_all(&w);
        }
        for (int i = 0; i < TALKS; i++)
            md_session_close(w.talks[i].s);
        ck_assert_int_eq(md_engine_cells_used(w.r.engine), 0);
        ck_assert_int_eq(md_pool_status(w.r.pool).sessions, 0);
        ck_assert_uint_eq(md_pool_status(w.r.pool).cold.held_bytes, 0);
        rig_close(&w.r);
        ck_assert_uint_eq(w.heap.live_bytes, 0);
    }
    printf("%d moved blocks and %d answers compared\n", w.moved, w.answers);
    ck_assert_int_gt(w.moved, 1000);
    ck_assert_int_gt(w.answers, 200);
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
