/* test_pool_walk.c - random calls on a few conversations against plain lists of tokens: contexts are what was said,
 * answers over full KV are those of fresh runs, budgets hold at every step, and at the end nothing is left. */
#include "support/fault_alloc.h"
#include "support/rng.h"
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum {
    ROUNDS = 20,
    STEPS = 500,
    WINDOW = 400,
    TALKS = 6,
    KEEP_ALL = 64 << 20,
    TIGHT = 60 << 10,
    FRESH_EVERY = 20
};

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
    size_t budget;
    bool
        loses; /* KV may be lost: a tight budget, or a mode in which some of what is stored is not used again */
    int compared; /* answers held against fresh runs */
    int answers;
};

static int32_t below(struct walk *w, int32_t n)
{
    return n <= 0 ? 0 : (int32_t)rng_below(&w->rng, (uint32_t)n);
}

static void new_tokens(struct walk *w, md_token *out, int32_t count)
{
    rig_tokens(out, count, (uint32_t)below(w, 4)); /* few texts: conversations meet again */
}

static void check_all(struct walk *w)
{
    struct md_pool_status p = md_pool_status(w->r.pool);
    ck_assert(md_pool_check(w->r.pool));
    ck_assert_uint_le(p.cold.peak_bytes, w->budget);
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
        int32_t kinds = 0;
        for (int k = 0; k < MD_PROVENANCE_COUNT; k++)
            kinds += st.tokens_of[k];
        ck_assert_int_eq(kinds + st.lost_tokens, st.tape_tokens);
        if (!w->loses) {
            ck_assert_int_eq(st.lost_tokens, 0);
            ck_assert_int_eq((int)st.dropped_blocks, 0);
        }
    }
}

static bool went(struct walk *w, enum md_status s)
{
    ck_assert_msg(s == MD_OK || (s == MD_CANCELLED && w->r.cancel_after == 0), "%s", w->r.err.text);
    return s == MD_OK;
}

/* What Decode or Run said joins the list; some of it is held against a fresh run. */
static void heard(struct walk *w, struct talk *t, bool whole)
{
    const struct md_tokens *said = &w->r.last.tokens;
    md_token want[32];
    const int32_t n = (int32_t)said->count;
    if (whole && n > 0 && rig_is_full(&w->r, t->s) && w->answers++ % FRESH_EVERY == 0) {
        rig_fresh_answer(t->tokens, t->count, n, want);
        ck_assert_mem_eq(said->ids, want, (size_t)n * sizeof *want);
        w->compared++;
    }
    for (int32_t i = 0; i < n; i++)
        t->tokens[t->count++] = said->ids[i];
}

static int32_t answer_tokens(struct walk *w, int32_t count)
{
    int32_t most = WINDOW - count < 30 ? WINDOW - count : 30;
    return below(w, most + 1);
}

/* The first part of what some conversation said, and something new. */
static void say_something(struct walk *w, struct talk *t, int32_t room)
{
    const struct talk *o = &w->talks[below(w, 4) == 0 ? below(w, TALKS) : (int32_t)(t - w->talks)];
    int32_t keep = below(w, 3) > 0 ? o->count : below(w, o->count + 1);
    int32_t more = 1 + below(w, below(w, 5) == 0 ? 200 : 40);
    if (keep + more > room)
        keep = below(w, room - more + 1);
    memmove(t->tokens, o->tokens, (size_t)keep * sizeof *t->tokens);
    new_tokens(w, t->tokens + keep, more);
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
        (void)md_session_context(t->s,
                                 &count); /* what was computed: some first part, as check_all will see */
        ck_assert_int_le(count, t->count);
        t->count = count;
    }
}

static void do_suffix(struct walk *w, struct talk *t)
{
    int32_t more = below(w, WINDOW - t->count < 60 ? WINDOW - t->count + 1 : 60);
    new_tokens(w, t->tokens + t->count, more);
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
    int32_t count = below(w, t->count + 1);
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
    int32_t start = below(w, tape);
    struct md_range r = { start, start + 1 + below(w, tape - start) };
    bool admits = below(w, 2) == 0;
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
    int32_t start = below(w, tape - 16);
    struct md_range r = { start, start + 16 + below(w, tape - start - 15) };
    enum md_status s = md_session_admit_at_tail(t->s, r, NULL, &tokens, &w->r.err);
    ck_assert_msg(s == MD_OK || s == MD_TOO_LARGE || s == MD_NOT_FOUND, "%s", w->r.err.text);
    (void)md_session_context(t->s, &before);
    tokens = before - t->count; /* where it stopped is said by the context */
    memcpy(t->tokens + t->count, t->tokens + (start + 15) / 16 * 16, (size_t)tokens * sizeof *t->tokens);
    t->count += tokens;
}

static void step(struct walk *w)
{
    static void (*const calls[])(struct walk *, struct talk *) = { do_run,    do_run,    do_run,
                                                                   do_ensure, do_suffix, do_decode,
                                                                   do_range,  do_branch, do_at_tail };
    struct talk *t = &w->talks[below(w, TALKS)];
    if (t->s == NULL) {
        t->s = rig_new(&w->r);
        t->count = 0;
    } else if (below(w, 25) == 0) {
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
    bool fits = below(w, 2) == 0;
    struct md_pool_config c =
        rig_config(WINDOW, fits ? WINDOW : 96 + 16 * below(w, 8), round % 2 ? TIGHT : KEEP_ALL);
    c.write_through = round / 2 % 2;
    c.reuse = (enum md_reuse)(round / 4 % 3);
    w->budget = c.cold_bytes;
    w->loses = round % 2 == 1 || c.reuse == MD_REUSE_FULL;
    fault_alloc_init(&w->heap, 0);
    c.alloc = &w->heap.alloc;
    unsigned caps_off = below(w, 5) == 0 ? MD_CAP_SHARE : 0;
    rig_open_seqs(&w->r, c, caps_off, 1 + below(w, 4));
    memset(w->talks, 0, sizeof w->talks);
    w->talks[0].s = w->r.session;
}

START_TEST(ten_thousand_random_calls)
{
    static struct walk w;
    w.rng = rng_open("pool walk");
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
        rig_close(&w.r);
        ck_assert_uint_eq(w.heap.live_bytes, 0); /* the bytes of the cold store among them */
    }
    printf("%d of %d full answers compared\n", w.compared, w.answers);
    ck_assert_int_gt(w.compared, 20);
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
