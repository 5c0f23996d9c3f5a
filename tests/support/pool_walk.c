/* pool_walk.c - see pool_walk.h. */
#include "support/pool_walk.h"

#include <check.h>
#include <string.h>

enum {
    BLOCK = 16,    /* of rig_config */
    NO_HANDS = 50, /* steps of a round without an eviction by hand, so that what must be full can be told */
};

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

int32_t walk_below(struct walk *w, int32_t n)
{
    return n <= 0 ? 0 : (int32_t)rng_below(&w->rng, (uint32_t)n);
}

static void new_tokens(struct walk *w, md_token *out, int32_t count)
{
    rig_tokens(out, count, (uint32_t)walk_below(w, 4)); /* few texts: conversations meet again */
}

/* ---- what holds ---- */

static void check_talk(struct walk *w, const struct walk_talk *t)
{
    int32_t count, kinds = 0;
    const md_token *context = md_session_context(t->s, &count);
    ck_assert_int_eq(count, t->count);
    ck_assert_int_le(count, w->f->window);
    if (count > 0)
        ck_assert_mem_eq(context, t->tokens, (size_t)count * sizeof *context);
    const struct md_session_status st = md_session_status(t->s);
    ck_assert_int_eq(st.hot_tokens + st.cold_tokens + st.lost_tokens, st.tape_tokens);
    for (int k = 0; k < MD_PROVENANCE_COUNT; k++)
        kinds += st.tokens_of[k];
    ck_assert_int_eq(kinds + st.lost_tokens, st.tape_tokens);
    if (!w->loses) {
        ck_assert_int_eq(st.lost_tokens, 0);
        ck_assert_int_eq((int)st.dropped_blocks, 0);
    }
    if (w->f->check != NULL)
        w->f->check(w, t);
}

static void check_all(struct walk *w)
{
    const struct md_pool_status p = md_pool_status(w->r.pool);
    ck_assert(md_pool_check(w->r.pool));
    ck_assert_uint_le(p.cold.peak_bytes, w->r.config.cold_bytes);
    ck_assert_int_le(p.hot_cells, p.hot_limit_tokens);
    for (int i = 0; i < w->f->talks; i++)
        if (w->talks[i].s != NULL)
            check_talk(w, &w->talks[i]);
}

static bool went(struct walk *w, enum md_status s)
{
    ck_assert_msg(s == MD_OK || (s == MD_CANCELLED && w->r.cancel_after == 0), "%s", w->r.err.text);
    return s == MD_OK;
}

/* What Decode or Run said joins the list. */
static void heard(struct walk *w, struct walk_talk *t, bool whole)
{
    const struct md_tokens *said = &w->r.last.tokens;
    if (whole && said->count > 0)
        w->f->answered(w, t);
    for (size_t i = 0; i < said->count; i++)
        t->tokens[t->count++] = said->ids[i];
}

/* The kinds of provenance that a call reports, against a count over the blocks, and against what the walk knows: where
 * nothing was ever out of the hot set nor moved, all is full; and the first block, which has nothing before it, is so
 * wherever it was computed in its place. */
static void check_kinds(struct walk *w, const struct walk_talk *t, const struct md_result *said)
{
    static struct md_block_view map[WALK_WINDOW_MAX / BLOCK + 1];
    const size_t count = md_session_map(t->s, map, sizeof map / sizeof map[0]);
    const struct md_session_status st = md_session_status(t->s);
    int32_t kinds[MD_PROVENANCE_COUNT] = { 0 }, tape = 0, lost = 0;
    for (size_t i = 0; i < count; i++) {
        const int32_t tokens = smaller(st.tape_tokens - (int32_t)i * BLOCK, BLOCK);
        tape += tokens;
        if (map[i].state == MD_STATE_LOST)
            lost += tokens;
        else
            kinds[map[i].provenance] += tokens;
    }
    ck_assert_int_eq(said->tape, tape);
    for (int k = 0; k < MD_PROVENANCE_COUNT; k++)
        ck_assert_int_eq(said->tokens_of[k], kinds[k]);
    if (w->r.config.reuse == MD_REUSE_APPROXIMATE)
        return;
    ck_assert_int_eq(said->tokens_of[MD_PROVENANCE_APPROXIMATE], 0);
    ck_assert_int_ge(said->tokens_of[MD_PROVENANCE_FULL], smaller(tape, BLOCK) - lost);
    if (w->parts)
        return;
    ck_assert_int_eq(said->tokens_of[MD_PROVENANCE_FULL], tape);
    w->all_full++;
}

/* ---- the calls ---- */

/* The first part of what some conversation said, and something new. */
static void say_something(struct walk *w, struct walk_talk *t, int32_t room)
{
    const struct walk_figures *f = w->f;
    const struct walk_talk *o =
        &w->talks[walk_below(w, 4) == 0 ? walk_below(w, f->talks) : (int32_t)(t - w->talks)];
    int32_t keep = f->keep(w, o);
    int32_t more = 1 + walk_below(w, walk_below(w, f->long_one_in) == 0 ? f->long_most : f->new_most);
    if (keep + more > room)
        keep = walk_below(w, room - more + 1);
    memmove(t->tokens, o->tokens, (size_t)keep * sizeof *t->tokens);
    new_tokens(w, t->tokens + keep, more);
    t->count = keep + more;
}

static int32_t answer_tokens(struct walk *w, int32_t count)
{
    return walk_below(w, smaller(w->f->window - count, w->f->answer_most) + 1);
}

void walk_run(struct walk *w, struct walk_talk *t)
{
    say_something(w, t, w->f->window - 1);
    int32_t answer = answer_tokens(w, t->count);
    bool ok = went(w, rig_ask(&w->r, t->tokens, t->count, answer, false));
    heard(w, t, ok);
    if (ok)
        check_kinds(w, t, &w->r.last);
}

void walk_ensure(struct walk *w, struct walk_talk *t)
{
    if (walk_below(w, 2) == 0 && t->count > 1)
        t->count = 1 + walk_below(w, t->count); /* a prefix of what there is: the tail stays on the tape */
    else
        say_something(w, t, w->f->window);
    if (!went(w, rig_ensure(&w->r, t->tokens, t->count))) {
        int32_t count;
        (void)md_session_context(t->s, &count); /* what was computed: some first part, as check_all sees */
        ck_assert_int_le(count, t->count);
        t->count = count;
        return;
    }
    check_kinds(w, t, &w->r.did.work);
}

void walk_suffix(struct walk *w, struct walk_talk *t)
{
    int32_t more = walk_below(w, smaller(w->f->window - t->count + 1, w->f->suffix_below));
    new_tokens(w, t->tokens + t->count, more);
    if (!went(w, rig_suffix(&w->r, t->tokens + t->count, more)))
        return;
    t->count += more;
    if (more > 0) /* an empty one does nothing, and says so */
        check_kinds(w, t, &w->r.did.work);
}

void walk_decode(struct walk *w, struct walk_talk *t)
{
    if (t->count == 0 || t->count == w->f->window)
        return;
    bool ok = went(w, rig_decode(&w->r, answer_tokens(w, t->count)));
    heard(w, t, ok);
    if (ok)
        check_kinds(w, t, &w->r.last);
}

void walk_branch(struct walk *w, struct walk_talk *t)
{
    struct walk_talk *b = &w->talks[walk_below(w, w->f->talks)];
    const bool at_end = w->f->branch_at_end && walk_below(w, 2) == 0;
    int32_t count = at_end ? t->count : walk_below(w, t->count + 1);
    if (b->s != NULL)
        return;
    ck_assert_int_eq(md_session_branch(t->s, count, &b->s, &w->r.err), MD_OK);
    memcpy(b->tokens, t->tokens, (size_t)count * sizeof *b->tokens);
    b->count = count;
}

void walk_range(struct walk *w, struct walk_talk *t)
{
    int32_t tape = md_session_status(t->s).tape_tokens, tokens = -1;
    if (tape == 0)
        return;
    int32_t start = walk_below(w, tape);
    struct md_range r = { start, start + 1 + walk_below(w, smaller(tape - start, w->f->range_most)) };
    bool evicts = walk_below(w, w->f->evict_one_in) == 0 && w->step >= NO_HANDS;
    enum md_status s = evicts ? md_session_evict_range(t->s, r, &tokens, &w->r.err)
                              : md_session_admit_range(t->s, r, &tokens, &w->r.err);
    ck_assert_msg(s == MD_OK, "%s", w->r.err.text);
    ck_assert(tokens >= 0 && tokens <= md_range_len(r));
    w->parts = w->parts || evicts;
}

void walk_at_tail(struct walk *w, struct walk_talk *t)
{
    int32_t tape = md_session_status(t->s).tape_tokens, tokens = 0, before;
    if (tape > t->count)
        tape = t->count; /* what follows the context after EnsurePrefix is not meant */
    if (tape < 2 * BLOCK || w->r.config.reuse != MD_REUSE_APPROXIMATE)
        return;
    int32_t start = walk_below(w, tape - BLOCK), more = tape - start - (BLOCK - 1);
    struct md_range r = { start, start + BLOCK + walk_below(w, smaller(more, w->f->at_tail_more)) };
    enum md_status s = md_session_admit_at_tail(t->s, r, NULL, &tokens, &w->r.err);
    ck_assert_msg(s == MD_OK || s == MD_TOO_LARGE || s == MD_NOT_FOUND, "%s", w->r.err.text);
    (void)md_session_context(t->s, &before);
    tokens = before - t->count; /* where it stopped is said by the context */
    memcpy(t->tokens + t->count, t->tokens + (start + BLOCK - 1) / BLOCK * BLOCK,
           (size_t)tokens * sizeof *t->tokens);
    t->count += tokens;
}

/* ---- rounds ---- */

static void step(struct walk *w)
{
    const struct walk_figures *f = w->f;
    struct walk_talk *t = &w->talks[walk_below(w, f->talks)];
    if (t->s == NULL) {
        t->s = rig_new(&w->r);
        t->count = 0;
    } else if (walk_below(w, f->close_one_in) == 0) {
        md_session_close(t->s);
        t->s = NULL;
        t->count = 0;
        return;
    }
    w->r.session = t->s;
    w->r.cancel_after = walk_below(w, 8) == 0 ? walk_below(w, 60) : -1;
    f->calls[walk_below(w, f->call_count)](w, t);
    w->r.cancel_after = -1;
}

static void one_round(struct walk *w, int round)
{
    const struct walk_figures *f = w->f;
    fault_alloc_init(&w->heap, 0);
    f->open(w, round);
    w->parts = w->loses || w->r.config.hot_tokens < f->window;
    memset(w->talks, 0, sizeof w->talks);
    w->talks[0].s = w->r.session;
    for (w->step = 0; w->step < f->steps; w->step++) {
        step(w);
        check_all(w);
    }
    for (int i = 0; i < f->talks; i++)
        md_session_close(w->talks[i].s);
    ck_assert_int_eq(md_engine_cells_used(w->r.engine), 0);
    ck_assert_int_eq(md_pool_status(w->r.pool).sessions, 0);
    ck_assert_uint_eq(md_pool_status(w->r.pool).cold.held_bytes, 0);
    rig_close(&w->r);
    ck_assert_uint_eq(w->heap.live_bytes, 0); /* the bytes of the cold store among them */
}

void walk_rounds(struct walk *w, const struct walk_figures *f)
{
    ck_assert(f->talks <= WALK_TALKS_MAX && f->window <= WALK_WINDOW_MAX);
    w->f = f;
    w->rng = rng_open(f->name);
    for (int round = 0; round < f->rounds; round++)
        one_round(w, round);
}
