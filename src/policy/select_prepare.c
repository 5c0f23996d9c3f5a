/* select_prepare.c - see select_internal.h: checks, lists within their cap, duplicates. */
#include "policy/select_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum md_status check(const struct md_select_work *w, struct md_err *err)
{
    const struct md_select_params *p = w->params;
    if (w->count > UINT32_MAX || w->scores->clause_count > MD_ATTENTION_CLAUSES_MOST)
        return md_fail(err, MD_INVALID, "%zu blocks or %zu clauses are too many", w->count,
                       w->scores->clause_count);
    const struct md_select_budget *b = w->budget;
    if (b->retrieval < 0 || b->recency < 0 || b->profile < 0 ||
        (int64_t)b->retrieval + b->recency + b->profile > INT32_MAX)
        return md_fail(err, MD_INVALID, "budgets are below 0, or too much: %d, %d, %d", b->retrieval,
                       b->recency, b->profile);
    if (!(p->clause_frac >= 0 && p->clause_frac <= 1) || !(p->stop_frac >= 0 && p->stop_frac <= 1) ||
        !(p->list_cap_frac >= 0 && p->list_cap_frac <= 1))
        return md_fail(err, MD_INVALID, "share of clauses, stop or lists is not within 0 and 1: %g, %g, %g",
                       (double)p->clause_frac, (double)p->stop_frac, (double)p->list_cap_frac);
    if (!(p->margin_frac >= 0 && p->margin_frac <= 100) || p->neighbour_tokens < 0 || p->beaten_most < 1 ||
        !(p->list_floor >= 0))
        return md_fail(err, MD_INVALID,
                       "margin, neighbour tokens or floor is below 0, or beaten_most below 1: %g, %d, %g, %d",
                       (double)p->margin_frac, p->neighbour_tokens, (double)p->list_floor, p->beaten_most);
    for (size_t i = 0; i < w->count; i++)
        if (!isfinite(w->blocks[i].profile) || w->blocks[i].beaten < 0)
            return md_fail(err, MD_INVALID, "profile of block %zu is no finite number, or beaten is below 0",
                           i);
    return MD_OK;
}

static enum md_status take_memory(struct md_select_work *w, struct md_arena *arena, struct md_err *err)
{
    const size_t clauses = w->scores->clause_count;
    w->excluded = md_arena_get(arena, w->count, sizeof *w->excluded);
    w->listed = md_arena_get(arena, w->count, sizeof *w->listed);
    w->judged = md_arena_get(arena, w->count, sizeof *w->judged);
    w->clause = md_arena_get(arena, clauses * w->count, sizeof *w->clause);
    w->verdicts = md_arena_get(arena, w->count, sizeof *w->verdicts);
    w->ranked = md_arena_get(arena, (clauses > 0 ? clauses : 1) * w->count, sizeof *w->ranked);
    w->sorted = md_arena_get(arena, w->count, sizeof *w->sorted);
    if (w->excluded == NULL || w->listed == NULL || w->judged == NULL || w->clause == NULL ||
        w->verdicts == NULL || w->ranked == NULL || w->sorted == NULL)
        return md_fail(err, MD_NO_MEMORY, "selection among %zu blocks", w->count);
    return MD_OK;
}

/* ---- lists ---- */

int md_select_by_score(const void *pa, const void *pb)
{
    const struct md_select_ranked *a = pa, *b = pb;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->block != b->block)
        return a->block < b->block ? -1 : 1;
    return a->peak < b->peak ? -1 : a->peak > b->peak;
}

/* Blocks that have more of lists than of the heads: the best of them keep it, as many as the cap has tokens for. */
static void cap_lists(struct md_select_work *w)
{
    const struct md_scores *s = w->scores;
    size_t n = 0;
    for (size_t b = 0; b < w->count; b++) {
        w->listed[b] = s->overall[b] >= w->params->list_floor ? s->listed[b] : 0;
        if (w->places[b].candidate && w->listed[b] > s->overall[b])
            w->ranked[n++] =
                (struct md_select_ranked){ .score = s->overall[b] + w->listed[b], .block = (uint32_t)b };
    }
    qsort(w->ranked, n, sizeof *w->ranked, md_select_by_score);
    int32_t left = md_select_part(w->budget->retrieval, w->params->list_cap_frac);
    bool over = false;
    for (size_t i = 0; i < n; i++) {
        const size_t b = w->ranked[i].block;
        over = over || w->places[b].tokens > left;
        if (over)
            w->listed[b] = 0;
        else
            left -= w->places[b].tokens;
    }
}

/* ---- duplicates ---- */

struct copy {
    uint64_t text;
    size_t block;
};

static int by_text(const void *pa, const void *pb)
{
    const struct copy *a = pa, *b = pb;
    if (a->text != b->text)
        return a->text < b->text ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

/* What any copy has is due to their text, so those that stay have the best of it. */
static void share_best(float *scores, const struct copy *copies, size_t count)
{
    float best = 0;
    for (size_t i = 0; i < count; i++)
        best = scores[copies[i].block] > best ? scores[copies[i].block] : best;
    scores[copies[0].block] = best;
    scores[copies[count - 1].block] = best;
}

static enum md_status drop_copies(struct md_select_work *w, struct md_arena *arena, struct md_err *err)
{
    struct copy *copies = md_arena_get(arena, w->count, sizeof *copies);
    if (copies == NULL)
        return md_fail(err, MD_NO_MEMORY, "duplicates among %zu blocks", w->count);
    size_t n = 0;
    for (size_t b = 0; b < w->count; b++)
        if (w->blocks[b].text != 0)
            copies[n++] = (struct copy){ w->blocks[b].text, b };
    qsort(copies, n, sizeof *copies, by_text);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && copies[end].text == copies[first].text; end++) {
        }
        share_best(w->judged, copies + first, end - first);
        for (size_t c = 0; c < w->scores->clause_count; c++)
            share_best(w->clause + c * w->count, copies + first, end - first);
        for (size_t i = first + 1; i + 1 < end; i++)
            w->excluded[copies[i].block] = true;
    }
    return MD_OK;
}

enum md_status md_select_prepare(struct md_select_work *w, struct md_arena *arena, struct md_err *err)
{
    enum md_status s = check(w, err);
    if (s == MD_OK)
        s = take_memory(w, arena, err);
    if (s != MD_OK)
        return s;
    cap_lists(w);
    for (size_t b = 0; b < w->count; b++)
        w->judged[b] = w->places[b].candidate ? w->scores->overall[b] + w->listed[b] : 0;
    memcpy(w->clause, w->scores->clause, w->scores->clause_count * w->count * sizeof *w->clause);
    return w->params->drop_duplicates ? drop_copies(w, arena, err) : MD_OK;
}
