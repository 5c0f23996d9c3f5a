/* select.c - see select.h.  The phases write verdicts one after another; a block that is wanted stays so, but for
 * newcomers that an incumbent displaces.  select_prepare.c makes of scores, duplicates and lists the one number by
 * which blocks are judged. */
#include "policy/select.h"

#include "policy/select_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct md_select_params md_select_defaults(void)
{
    return (struct md_select_params){ .clause_frac = 0.5F,
                                      .neighbour_tokens = 24,
                                      .stop_frac = 0,
                                      .margin_frac = 0.15F,
                                      .beaten_most = 2,
                                      .drop_duplicates = true,
                                      .list_cap_frac = 0.25F,
                                      .list_floor = 0 };
}

struct md_select_shares md_select_shares_defaults(void)
{
    return (struct md_select_shares){ .retrieval = 0.4F, .recency = 0.2F, .profile = 0.15F, .rest = true };
}

const char *md_select_why_text(enum md_select_why why)
{
    static const char *const texts[] = {
#define X(name, text) text,
        MD_SELECT_WHY_LIST(X)
#undef X
    };
    assert((unsigned)why < MD_SELECT_WHY_COUNT);
    return texts[why];
}

static bool is_share(float x)
{
    return x >= 0 && x <= 1; /* a NaN is not */
}

enum md_status md_select_budget(int32_t hot_tokens, int32_t protected_tokens,
                                const struct md_select_shares *shares, struct md_select_budget *ret_budget,
                                struct md_err *err)
{
    if (hot_tokens < 0 || protected_tokens < 0)
        return md_fail(err, MD_INVALID, "hot or protected tokens are below 0: %d, %d", hot_tokens,
                       protected_tokens);
    const double all = (double)shares->retrieval + (double)shares->recency + (double)shares->profile;
    if (!is_share(shares->retrieval) || !is_share(shares->recency) || !is_share(shares->profile) ||
        all > 1 + 1e-6) /* three shares of one third are 1 */
        return md_fail(
            err, MD_INVALID,
            "shares of retrieval, recency and profile are not within 0 and 1, all together: %g, %g, %g",
            (double)shares->retrieval, (double)shares->recency, (double)shares->profile);
    const int32_t left = hot_tokens > protected_tokens ? hot_tokens - protected_tokens : 0;
    const int32_t recency = md_select_part(left, shares->recency);
    const int32_t profile = md_select_part(left, shares->profile);
    const int32_t rest = left - recency - profile, least = md_select_part(left, shares->retrieval);
    *ret_budget = (struct md_select_budget){ shares->rest || least > rest ? rest : least, recency, profile };
    assert(ret_budget->retrieval >= 0);
    return MD_OK;
}

/* A share written as a decimal is a little off as a float: what is within a thousandth of a whole token is that token. */
int32_t md_select_part(int32_t tokens, float share)
{
    const int32_t part = (int32_t)floor((double)tokens * (double)share + 1e-3);
    return part < tokens ? part : tokens;
}

/* ---- what goes in ---- */

static bool is_eligible(const struct md_select_work *w, size_t b)
{
    return w->places[b].candidate && !w->excluded[b];
}

/* Room for it?  Then it is in. */
static bool take(struct md_select_work *w, size_t b, enum md_select_why why, float score)
{
    const int32_t tokens = w->places[b].tokens;
    assert(is_eligible(w, b) && !w->verdicts[b].wanted);
    if (tokens > w->limit - w->used)
        return false;
    w->used += tokens;
    w->verdicts[b].wanted = true;
    w->verdicts[b].why = why;
    w->verdicts[b].score = score;
    return true;
}

static bool touches(const struct md_select_work *w, size_t left)
{
    return w->places[left].start + w->places[left].tokens == w->places[left + 1].start;
}

/* The neighbours that block b brings, by where it has most in this row of peaks.  False: no room for one. */
static bool take_neighbours(struct md_select_work *w, size_t b, size_t row)
{
    const int32_t near = w->params->neighbour_tokens, peak = w->scores->peak_at[row * w->count + b];
    if (near == 0 || peak < 0)
        return true;
    const float score = w->verdicts[b].score;
    if (w->places[b].tokens - peak <= near && b + 1 < w->count && touches(w, b) && is_eligible(w, b + 1) &&
        !w->verdicts[b + 1].wanted && !take(w, b + 1, MD_SELECT_NEIGHBOUR, score))
        return false;
    return peak >= near || b == 0 || !touches(w, b - 1) || !is_eligible(w, b - 1) ||
           w->verdicts[b - 1].wanted || take(w, b - 1, MD_SELECT_NEIGHBOUR, score);
}

/* ---- clauses take turns ---- */

/* The eligible blocks with a score, best first; returns how many. */
static size_t rank(const struct md_select_work *w, const float *scores, struct md_select_ranked *ret)
{
    size_t n = 0;
    for (size_t b = 0; b < w->count; b++)
        if (is_eligible(w, b) && scores[b] > 0)
            ret[n++] = (struct md_select_ranked){ .score = scores[b], .block = (uint32_t)b };
    qsort(ret, n, sizeof *ret, md_select_by_score);
    return n;
}

/* A clause's list is walked once.  What it brought in stands at the list's head, packed, so that the median is at hand. */
struct turn {
    struct md_select_ranked *list;
    size_t count, next, brought;
};

/* The clause's best block that is not in: false when it has none, or is done. */
static bool name_one(const struct md_select_work *w, struct turn *t, uint32_t clause,
                     struct md_select_ranked *ret)
{
    while (t->next < t->count && w->verdicts[t->list[t->next].block].wanted)
        t->next++;
    if (t->next == t->count)
        return false;
    *ret = t->list[t->next];
    ret->clause = clause;
    ret->peak = w->scores->peak_at[clause * w->count + ret->block];
    return t->brought == 0 || ret->score >= w->params->stop_frac * t->list[(t->brought - 1) / 2].score;
}

static void take_turns(struct md_select_work *w)
{
    const size_t clauses = w->scores->clause_count;
    struct turn turns[MD_ATTENTION_CLAUSES_MOST];
    struct md_select_ranked named[MD_ATTENTION_CLAUSES_MOST];
    for (size_t c = 0; c < clauses; c++) {
        turns[c] = (struct turn){ .list = w->ranked + c * w->count };
        turns[c].count = rank(w, w->clause + c * w->count, turns[c].list);
    }
    for (;;) {
        size_t n = 0;
        for (size_t c = 0; c < clauses; c++)
            n += name_one(w, &turns[c], (uint32_t)c, &named[n]);
        if (n == 0)
            return;
        qsort(named, n, sizeof *named, md_select_by_score);
        for (size_t i = 0; i < n; i++) {
            const size_t b = named[i].block;
            struct turn *t = &turns[named[i].clause];
            if (!w->verdicts[b].wanted && !take(w, b, MD_SELECT_CLAUSE, w->judged[b]))
                return;
            t->list[t->brought++] = named[i]; /* also when another clause of this round has brought it */
        }
        /* neighbours when all of the round are in: they must not depend on who was first */
        for (size_t i = 0; i < n; i++)
            if (!take_neighbours(w, named[i].block, named[i].clause))
                return;
    }
}

/* ---- the best of all ---- */

/* Scores of what is in, in order, to see the median. */
static void insert(float *sorted, size_t count, float score)
{
    size_t i = count;
    for (; i > 0 && sorted[i - 1] > score; i--)
        sorted[i] = sorted[i - 1];
    sorted[i] = score;
}

static void take_best(struct md_select_work *w)
{
    size_t in = 0;
    for (size_t b = 0; b < w->count; b++)
        if (w->verdicts[b].wanted && w->verdicts[b].why == MD_SELECT_CLAUSE)
            insert(w->sorted, in++, w->judged[b]);
    const size_t n = rank(w, w->judged, w->ranked);
    for (size_t i = 0; i < n; i++) {
        const size_t b = w->ranked[i].block;
        if (!w->verdicts[b].wanted) {
            /* the lower one of two middles: it stops later */
            if (in > 0 && w->judged[b] < w->params->stop_frac * w->sorted[(in - 1) / 2]) {
                w->stopped_at = w->judged[b];
                w->stopped = true;
                return;
            }
            const bool listed = w->listed[b] > w->scores->overall[b];
            if (!take(w, b, listed ? MD_SELECT_LISTED : MD_SELECT_SCORE, w->judged[b]))
                return;
        }
        if (w->verdicts[b].why != MD_SELECT_CLAUSE) /* a neighbour counts from here on, by its own score */
            insert(w->sorted, in++, w->judged[b]);
        if (!take_neighbours(w, b, w->scores->clause_count))
            return;
    }
}

/* ---- incumbents ---- */

/* A newcomer that may be displaced: who a clause named may not, its best block would be lost.  Weakest first, and a
 * neighbour before the block that brought it. */
static bool is_weaker(const struct md_select_work *w, size_t a, size_t b)
{
    const struct md_select_verdict *x = &w->verdicts[a], *y = &w->verdicts[b];
    if (x->score != y->score)
        return x->score < y->score;
    if ((x->why == MD_SELECT_NEIGHBOUR) != (y->why == MD_SELECT_NEIGHBOUR))
        return x->why == MD_SELECT_NEIGHBOUR;
    return a > b;
}

static size_t weakest_newcomer(const struct md_select_work *w)
{
    size_t weakest = w->count;
    for (size_t b = 0; b < w->count; b++)
        if (w->verdicts[b].wanted && !w->blocks[b].incumbent && w->verdicts[b].why != MD_SELECT_CLAUSE &&
            (weakest == w->count || is_weaker(w, b, weakest)))
            weakest = b;
    return weakest;
}

/* Incumbent b is out by score: keep it? */
static bool keep(struct md_select_work *w, size_t b)
{
    if (w->blocks[b].beaten >= w->params->beaten_most - 1)
        return false;
    if (take(w, b, MD_SELECT_INCUMBENT, w->judged[b]))
        return true;
    const size_t c = weakest_newcomer(w);
    if (c == w->count || w->verdicts[c].score >= (1 + w->params->margin_frac) * w->judged[b] ||
        w->used - w->places[c].tokens + w->places[b].tokens > w->limit)
        return false;
    w->used -= w->places[c].tokens;
    w->verdicts[c].wanted = false;
    w->verdicts[c].why = MD_SELECT_DISPLACED;
    return take(w, b, MD_SELECT_INCUMBENT, w->judged[b]);
}

static void keep_incumbents(struct md_select_work *w)
{
    size_t n = 0; /* the strongest first; all that are out, those without a score as well */
    for (size_t b = 0; b < w->count; b++)
        if (w->blocks[b].incumbent && is_eligible(w, b) && !w->verdicts[b].wanted)
            w->ranked[n++] = (struct md_select_ranked){ .score = w->judged[b], .block = (uint32_t)b };
    qsort(w->ranked, n, sizeof *w->ranked, md_select_by_score);
    for (size_t i = 0; i < n; i++) {
        const size_t b = w->ranked[i].block;
        if (w->params->margin_frac > 0 && keep(w, b))
            w->verdicts[b].beaten = w->blocks[b].beaten + 1;
    }
}

/* ---- recency and profile ---- */

static void take_newest(struct md_select_work *w)
{
    int32_t left = w->budget->recency;
    for (size_t b = w->count; b-- > 0;) {
        if (!w->places[b].candidate)
            continue;
        left -= w->places[b].tokens; /* also of what is in: the newest are the newest */
        if (left < 0)
            return;
        if (is_eligible(w, b) && !w->verdicts[b].wanted && !take(w, b, MD_SELECT_RECENT, w->judged[b]))
            return;
    }
}

static void take_profile(struct md_select_work *w)
{
    for (size_t b = 0; b < w->count; b++)
        w->sorted[b] = w->blocks[b].profile;
    const size_t n = rank(w, w->sorted, w->ranked);
    for (size_t i = 0; i < n; i++) {
        const size_t b = w->ranked[i].block;
        if (!w->verdicts[b].wanted && !take(w, b, MD_SELECT_PROFILE, w->judged[b]))
            return;
    }
}

/* ---- all of it ---- */

static void open_verdicts(struct md_select_work *w)
{
    for (size_t b = 0; b < w->count; b++)
        w->verdicts[b] = (struct md_select_verdict){ .why = !w->places[b].candidate ? MD_SELECT_PROTECTED
                                                            : w->excluded[b]        ? MD_SELECT_DUPLICATE
                                                            : w->judged[b] > 0      ? MD_SELECT_NO_ROOM
                                                                                    : MD_SELECT_NO_SCORE,
                                                     .score = w->judged[b] };
}

static void close_verdicts(struct md_select_work *w, struct md_selection *to)
{
    for (size_t b = 0; b < w->count; b++) {
        struct md_select_verdict *v = &w->verdicts[b];
        if (!v->wanted && v->why == MD_SELECT_NO_ROOM && w->stopped && w->judged[b] <= w->stopped_at)
            v->why = MD_SELECT_LOW;
        to->counts[v->why]++;
    }
}

enum md_status md_select_blocks(const struct md_attention_block *places, const struct md_select_block *blocks,
                                const struct md_scores *scores, const struct md_select_budget *budget,
                                const struct md_select_params *params, struct md_arena *arena,
                                struct md_selection *ret_selection, struct md_err *err)
{
    struct md_select_work w = { .places = places,
                                .blocks = blocks,
                                .scores = scores,
                                .budget = budget,
                                .params = params,
                                .count = scores->block_count };
    enum md_status s = md_select_prepare(&w, arena, err);
    if (s != MD_OK)
        return s;
    struct md_selection to = { .blocks = w.verdicts,
                               .asked = *budget,
                               .heads_asked = scores->heads_asked,
                               .heads_used = scores->heads_used,
                               .clauses = scores->clause_count };
    open_verdicts(&w);
    if (scores->clause_count > 1) {
        w.limit = md_select_part(budget->retrieval, params->clause_frac);
        take_turns(&w);
    }
    w.limit = budget->retrieval;
    take_best(&w);
    keep_incumbents(&w);
    to.used.retrieval = w.used;
    w.limit = w.used + budget->recency;
    take_newest(&w);
    to.used.recency = w.used - to.used.retrieval;
    w.limit = w.used + budget->profile;
    take_profile(&w);
    to.used.profile = w.used - to.used.retrieval - to.used.recency;
    to.stopped = w.stopped;
    close_verdicts(&w, &to);
    assert(to.used.retrieval <= budget->retrieval && to.used.recency <= budget->recency &&
           to.used.profile <= budget->profile);
    *ret_selection = to;
    return MD_OK;
}
