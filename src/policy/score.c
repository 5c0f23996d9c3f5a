/* score.c - see score.h.  Two passes over heads: clause by clause, which also finds each block's best clause, and
 * then over the mean of all rows.  Work arrays are of one head at a time. */
#include "policy/score.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct md_score_params md_score_defaults(void)
{
    return (struct md_score_params){ .pool_tokens = 1,
                                     .reduce = MD_SCORE_REDUCE_SUM,
                                     .fuse = MD_SCORE_FUSE_SUM,
                                     .weigh_by_share = true,
                                     .rows = MD_SCORE_ROWS_BOTH,
                                     .background = false,
                                     .cut_low = true,
                                     .rank_offset = 60 };
}

struct md_score_params md_score_measured(void)
{
    struct md_score_params p = md_score_defaults();
    p.pool_tokens = 7;
    p.reduce = MD_SCORE_REDUCE_MAX;
    p.weigh_by_share = false;
    return p;
}

/* ---- steps ---- */

/* To a multiple of 2^-40, by way of a number whose last bit is worth that: sums of these below 2^12 are exact, so
 * their order does not matter. */
static double to_grid(double x)
{
    const double carry = 6144; /* 1.5 * 2^(52 - 40) */
    return x + carry - carry;
}

void md_score_mean_rows(const float *mass, size_t clause_count, size_t token_count, size_t rows,
                        float *ret_mean)
{
    assert(rows > 0);
    for (size_t t = 0; t < token_count; t++) {
        double sum = 0;
        for (size_t c = 0; c < clause_count; c++)
            sum += to_grid((double)mass[c * token_count + t]);
        ret_mean[t] = (float)(sum / (double)rows);
    }
}

void md_score_move_background(float *background, const float *mean, size_t token_count, float share)
{
    for (size_t t = 0; t < token_count; t++)
        background[t] += share * (mean[t] - background[t]);
}

void md_score_subtract(float *tokens, const float *background, size_t count, bool cut_low)
{
    double sum = 0, squares = 0;
    for (size_t t = 0; t < count; t++) {
        tokens[t] -= background[t];
        sum += (double)tokens[t];
        squares += (double)tokens[t] * (double)tokens[t];
    }
    if (!cut_low || count == 0)
        return;
    const double mean = sum / (double)count, variance = squares / (double)count - mean * mean;
    const double least = mean - 2 * sqrt(variance > 0 ? variance : 0);
    for (size_t t = 0; t < count; t++)
        if ((double)tokens[t] < least)
            tokens[t] = 0;
}

/* The queue holds places whose values fall: its head is the largest within the window. */
void md_score_pool(const float *tokens, size_t count, int32_t width, int32_t *queue, float *ret)
{
    assert(width >= 1 && width % 2 == 1 && count <= INT32_MAX);
    const size_t half = (size_t)width / 2;
    size_t head = 0, tail = 0, next = 0;
    for (size_t i = 0; i < count; i++) {
        for (; next < count && next <= i + half; next++) {
            while (tail > head && tokens[queue[tail - 1]] <= tokens[next])
                tail--;
            queue[tail++] = (int32_t)next;
        }
        while ((size_t)queue[head] + half < i)
            head++;
        ret[i] = tokens[queue[head]];
    }
}

float md_score_reduce(const float *tokens, size_t count, enum md_score_reduce how)
{
    assert(count > 0);
    float most = tokens[0];
    double sum = 0;
    for (size_t t = 0; t < count; t++) {
        most = tokens[t] > most ? tokens[t] : most;
        sum += (double)tokens[t];
    }
    return how == MD_SCORE_REDUCE_MAX ? most : (float)sum;
}

/* ---- all of it ---- */

struct ranked {
    float score;
    size_t block;
};

struct work {
    const struct md_score_input *in;
    const struct md_score_params *params;
    size_t tokens;
    float *mass, *pooled, *all; /* [T]: of one head; the same, pooled; of all heads, weighed */
    int32_t *queue;             /* [T] */
    float *block, *best;        /* [B]: of one head; [H][B]: of the best clause */
    struct ranked *ranked;      /* [B] */
};

static int by_score(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

/* fused += weight * (offset + 1) / (offset + rank): 1 for the first. */
static void add_ranks(struct work *w, const float *scores, float weight, float *fused)
{
    size_t n = 0;
    for (size_t b = 0; b < w->in->block_count; b++)
        if (w->in->blocks[b].candidate && scores[b] > 0)
            w->ranked[n++] = (struct ranked){ scores[b], b };
    qsort(w->ranked, n, sizeof *w->ranked, by_score);
    const float offset = w->params->rank_offset;
    for (size_t i = 0, rank = 0; i < n; i++) {
        if (i == 0 || w->ranked[i].score != w->ranked[i - 1].score)
            rank = i + 1;
        fused[w->ranked[i].block] += weight * (offset + 1) / (offset + (float)rank);
    }
}

/* One ranking of one head joins what the others gave. */
static void fuse(struct work *w, const float *scores, float weight, float *fused)
{
    if (w->params->fuse == MD_SCORE_FUSE_RANK) {
        add_ranks(w, scores, weight, fused);
        return;
    }
    for (size_t b = 0; b < w->in->block_count; b++) {
        if (!w->in->blocks[b].candidate || scores[b] <= 0)
            continue;
        const float x = weight * scores[b];
        if (w->params->fuse == MD_SCORE_FUSE_SUM)
            fused[b] += x;
        else if (x > fused[b])
            fused[b] = x;
    }
}

/* From w->mass, which is a row's, to w->block. */
static void reduce_head(struct work *w, size_t head)
{
    const struct md_score_input *in = w->in;
    if (w->params->background)
        md_score_subtract(w->mass, in->background + head * w->tokens, w->tokens, w->params->cut_low);
    size_t at = 0;
    for (size_t b = 0, end; b < in->block_count; b = end) { /* a run without holes */
        size_t length = (size_t)in->blocks[b].tokens;
        for (end = b + 1; end < in->block_count &&
                          in->blocks[end].start == in->blocks[end - 1].start + in->blocks[end - 1].tokens;
             end++)
            length += (size_t)in->blocks[end].tokens;
        md_score_pool(w->mass + at, length, w->params->pool_tokens, w->queue, w->pooled + at);
        at += length;
    }
    at = 0;
    for (size_t b = 0; b < in->block_count; b++) {
        w->block[b] = in->blocks[b].candidate
                          ? md_score_reduce(w->pooled + at, (size_t)in->blocks[b].tokens, w->params->reduce)
                          : 0;
        at += (size_t)in->blocks[b].tokens;
    }
}

static void add_weighed(struct work *w, float weight)
{
    for (size_t t = 0; t < w->tokens; t++)
        w->all[t] += weight * w->mass[t];
}

static void find_peaks(const struct work *w, int32_t *peak_at)
{
    const float *all = w->all;
    for (size_t b = 0; b < w->in->block_count; b++) {
        const int32_t tokens = w->in->blocks[b].tokens;
        float most = 0;
        peak_at[b] = -1;
        for (int32_t t = 0; w->in->blocks[b].candidate && t < tokens; t++)
            if (all[t] > most) {
                most = all[t];
                peak_at[b] = t;
            }
        all += tokens;
    }
}

/* Weights of heads add up to 1.  clause == C: of all clauses, by their rows. */
static double share_of(const struct md_score_input *in, size_t head, size_t clause)
{
    const float *share = in->share + head * in->clause_count;
    if (clause < in->clause_count)
        return (double)share[clause];
    double sum = 0, rows = 0;
    for (size_t c = 0; c < in->clause_count; c++) {
        sum += to_grid((double)share[c] * (double)in->clause_rows[c]);
        rows += (double)in->clause_rows[c];
    }
    return sum / rows;
}

static float weight_of(const struct work *w, size_t head, size_t clause)
{
    const double share = share_of(w->in, head, clause);
    if (share <= 0)
        return 0;
    double all = 0;
    for (size_t h = 0; h < w->in->head_count; h++) {
        const double s = share_of(w->in, h, clause);
        all += w->params->weigh_by_share ? s : (double)(s > 0);
    }
    return (float)((w->params->weigh_by_share ? share : 1) / all);
}

static void score_clause(struct work *w, size_t clause, struct md_scores *to)
{
    const struct md_score_input *in = w->in;
    memset(w->all, 0, w->tokens * sizeof *w->all);
    for (size_t h = 0; h < in->head_count; h++) {
        const float weight = weight_of(w, h, clause);
        md_score_mean_rows(in->mass + (h * in->clause_count + clause) * w->tokens, 1, w->tokens,
                           in->clause_rows[clause], w->mass);
        add_weighed(w, weight);
        reduce_head(w, h);
        if (weight > 0)
            fuse(w, w->block, weight, to->clause + clause * in->block_count);
        float *best = w->best + h * in->block_count;
        for (size_t b = 0; b < in->block_count; b++)
            best[b] = w->block[b] > best[b] ? w->block[b] : best[b];
    }
    find_peaks(w, to->peak_at + clause * in->block_count);
}

static void score_all(struct work *w, struct md_scores *to)
{
    const struct md_score_input *in = w->in;
    const enum md_score_rows which = w->params->rows;
    size_t rows = 0;
    for (size_t c = 0; c < in->clause_count; c++)
        rows += in->clause_rows[c];
    memset(w->all, 0, w->tokens * sizeof *w->all);
    for (size_t h = 0; h < in->head_count; h++) {
        const float weight = weight_of(w, h, in->clause_count);
        if (weight <= 0)
            continue;
        to->heads_used++;
        md_score_mean_rows(in->mass + h * in->clause_count * w->tokens, in->clause_count, w->tokens, rows,
                           w->mass);
        add_weighed(w, weight);
        reduce_head(w, h);
        const float each = which == MD_SCORE_ROWS_BOTH ? weight / 2 : weight;
        if (which != MD_SCORE_ROWS_BEST)
            fuse(w, w->block, each, to->overall);
        if (which != MD_SCORE_ROWS_MEAN)
            fuse(w, w->best + h * in->block_count, each, to->overall);
    }
    find_peaks(w, to->peak_at + in->clause_count * in->block_count);
}

static void score_lists(struct work *w, struct md_scores *to)
{
    if (w->in->list_count == 0)
        return;
    if (w->params->fuse != MD_SCORE_FUSE_RANK) {
        memcpy(w->block, to->overall, w->in->block_count * sizeof *w->block);
        memset(to->overall, 0, w->in->block_count * sizeof *to->overall);
        add_ranks(w, w->block, 1, to->overall);
    }
    for (size_t i = 0; i < w->in->list_count; i++)
        add_ranks(w, w->in->lists[i].scores, w->in->lists[i].weight, to->listed);
}

/* ---- checks ---- */

static enum md_status check_params(const struct md_score_input *in, const struct md_score_params *p,
                                   struct md_err *err)
{
    if (in->block_count == 0 || in->head_count == 0 || in->clause_count == 0)
        return md_fail(err, MD_INVALID, "nothing to score by: %zu blocks, %zu heads, %zu clauses",
                       in->block_count, in->head_count, in->clause_count);
    if (p->pool_tokens < 1 || p->pool_tokens % 2 == 0 || p->pool_tokens > MD_SCORE_POOL_MOST)
        return md_fail(err, MD_INVALID, "width of pooling is not odd and within 1 and %d: %d",
                       MD_SCORE_POOL_MOST, p->pool_tokens);
    if (!(p->rank_offset >= 0 && p->rank_offset <= 1e6F))
        return md_fail(err, MD_INVALID, "offset of ranks is not within 0 and 1000000: %g",
                       (double)p->rank_offset);
    if (p->background && in->background == NULL)
        return md_fail(err, MD_INVALID, "a background is to be subtracted and there is none");
    return MD_OK;
}

static bool all_finite(const float *x, size_t count, float least)
{
    bool good = true;
    for (size_t i = 0; i < count; i++)
        good &= x[i] >= least && x[i] <= 1e30F;
    return good;
}

static enum md_status check_values(const struct md_score_input *in, const struct md_score_params *p,
                                   size_t tokens, struct md_err *err)
{
    for (size_t b = 0; b < in->block_count; b++)
        if (in->blocks[b].tokens < 1 || in->blocks[b].start < 0 ||
            in->blocks[b].start > INT32_MAX - in->blocks[b].tokens ||
            (b > 0 && in->blocks[b].start < in->blocks[b - 1].start + in->blocks[b - 1].tokens))
            return md_fail(err, MD_INVALID,
                           "block %zu at %d is empty, overlaps, is out of order or outside all positions", b,
                           in->blocks[b].start);
    for (size_t c = 0; c < in->clause_count; c++)
        if (in->clause_rows[c] < 1 || in->clause_rows[c] > MD_ATTENTION_ROWS_MOST)
            return md_fail(err, MD_INVALID, "rows of clause %zu are not within 1 and %d: %zu", c,
                           MD_ATTENTION_ROWS_MOST, in->clause_rows[c]);
    for (size_t h = 0; h < in->head_count; h++)
        if (!all_finite(in->mass + h * in->clause_count * tokens, in->clause_count * tokens, 0) ||
            !all_finite(in->share + h * in->clause_count, in->clause_count, 0) ||
            (p->background && !all_finite(in->background + h * tokens, tokens, -1e30F)))
            return md_fail(err, MD_INVALID,
                           "a mass, share or background of head %zu is no finite number, or below 0", h);
    for (size_t i = 0; i < in->list_count; i++)
        if (!all_finite(in->lists[i].scores, in->block_count, -1e30F) ||
            !(in->lists[i].weight > 0 && in->lists[i].weight <= 1e6F))
            return md_fail(err, MD_INVALID, "weight or a score of list %zu is no finite number", i);
    return MD_OK;
}

enum md_status md_score_blocks(const struct md_score_input *in, const struct md_score_params *params,
                               struct md_arena *arena, struct md_scores *ret_scores, struct md_err *err)
{
    enum md_status s = check_params(in, params, err);
    if (s != MD_OK)
        return s;
    const size_t tokens = md_attention_tokens(in->blocks, in->block_count), blocks = in->block_count;
    s = check_values(in, params, tokens, err);
    if (s != MD_OK)
        return s;
    struct work w = { .in = in, .params = params, .tokens = tokens };
    struct md_scores to = { .block_count = blocks,
                            .clause_count = in->clause_count,
                            .heads_asked = in->head_count,
                            .background_used = params->background };
    w.mass = md_arena_get(arena, tokens, sizeof *w.mass);
    w.pooled = md_arena_get(arena, tokens, sizeof *w.pooled);
    w.all = md_arena_get(arena, tokens, sizeof *w.all);
    w.queue = md_arena_get(arena, tokens, sizeof *w.queue);
    w.block = md_arena_get(arena, blocks, sizeof *w.block);
    w.best = md_arena_get(arena, in->head_count * blocks, sizeof *w.best);
    w.ranked = md_arena_get(arena, blocks, sizeof *w.ranked);
    to.clause = md_arena_get(arena, in->clause_count * blocks, sizeof *to.clause);
    to.overall = md_arena_get(arena, blocks, sizeof *to.overall);
    to.listed = md_arena_get(arena, blocks, sizeof *to.listed);
    to.peak_at = md_arena_get(arena, (in->clause_count + 1) * blocks, sizeof *to.peak_at);
    if (w.mass == NULL || w.pooled == NULL || w.all == NULL || w.queue == NULL || w.block == NULL ||
        w.best == NULL || w.ranked == NULL || to.clause == NULL || to.overall == NULL || to.listed == NULL ||
        to.peak_at == NULL)
        return md_fail(err, MD_NO_MEMORY, "scores of %zu blocks by %zu heads", blocks, in->head_count);
    for (size_t c = 0; c < in->clause_count; c++)
        score_clause(&w, c, &to);
    score_all(&w, &to);
    score_lists(&w, &to);
    *ret_scores = to;
    return MD_OK;
}
