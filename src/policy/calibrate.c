/* calibrate.c - see calibrate.h: the choice.  calibrate_text.c has the text. */
#include "policy/calibrate.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct md_calibrate_params md_calibrate_defaults(void)
{
    return (struct md_calibrate_params){ .source = MD_CALIBRATE_CONTRAST,
                                         .heads = 16,
                                         .band_start = 0.30F,
                                         .band_end = 0.75F,
                                         .outside_frac = 0.5F };
}

static bool is_in_band(int32_t layer, int32_t layers, const struct md_calibrate_params *p)
{
    const double depth = (double)layer / (double)layers;
    return depth >= (double)p->band_start && depth < (double)p->band_end;
}

float md_calibrate_score(const struct md_calibrate_measure *m, int32_t layers,
                         const struct md_calibrate_params *p)
{
    float score = 0;
    switch (p->source) {
    case MD_CALIBRATE_CONTRAST: score = m->gold - m->null - m->near; break;
    case MD_CALIBRATE_COPY: score = m->echo > m->induction ? m->echo : m->induction; break;
    case MD_CALIBRATE_BAND: return is_in_band(m->layer, layers, p) ? 1 : 0;
    }
    return score > 0 && !is_in_band(m->layer, layers, p) ? score * p->outside_frac : score;
}

static enum md_status check_params(const struct md_calibrate_params *p, int32_t layers, struct md_err *err)
{
    if (p->heads < 1 || p->heads > MD_CALIBRATE_HEADS_MOST)
        return md_fail(err, MD_INVALID, "heads to choose are not within 1 and %d: %zu",
                       MD_CALIBRATE_HEADS_MOST, p->heads);
    if (layers < 1 || layers > MD_CALIBRATE_LAYERS_MOST)
        return md_fail(err, MD_INVALID, "layers are not within 1 and %d: %d", MD_CALIBRATE_LAYERS_MOST,
                       layers);
    if (!(p->band_start >= 0 && p->band_start < p->band_end && p->band_end <= 1) ||
        !(p->outside_frac >= 0 && p->outside_frac <= 1))
        return md_fail(err, MD_INVALID, "band or weight outside it is not within 0 and 1: %g to %g, %g",
                       (double)p->band_start, (double)p->band_end, (double)p->outside_frac);
    return MD_OK;
}

/* What is not read need not be a number. */
static bool is_measured(const struct md_calibrate_measure *m, enum md_calibrate_source source)
{
    switch (source) {
    case MD_CALIBRATE_CONTRAST:
        return isfinite(m->gold) && isfinite(m->null) && isfinite(m->near) &&
               isfinite(m->gold - m->null - m->near);
    case MD_CALIBRATE_COPY: return isfinite(m->echo) && isfinite(m->induction);
    case MD_CALIBRATE_BAND: break;
    }
    return true;
}

static int by_place(const void *pa, const void *pb)
{
    const struct md_calibrate_head *a = pa, *b = pb;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return a->head < b->head ? -1 : a->head > b->head;
}

static int by_score(const void *pa, const void *pb)
{
    const struct md_calibrate_head *a = pa, *b = pb;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return by_place(pa, pb);
}

/* Of n heads in order, `wanted` that are as far from each other as can be: the middles of as many equal parts. */
static size_t spread(struct md_calibrate_head *heads, size_t n, size_t wanted)
{
    if (n <= wanted)
        return n;
    for (size_t i = 0; i < wanted; i++)
        heads[i] = heads[(2 * i + 1) * n / (2 * wanted)];
    return wanted;
}

enum md_status md_calibrate_choose(const struct md_calibrate_measure *measures, size_t count, int32_t layers,
                                   const struct md_calibrate_params *params, struct md_arena *arena,
                                   struct md_calibrate_set *ret_set, struct md_err *err)
{
    enum md_status s = check_params(params, layers, err);
    if (s != MD_OK)
        return s;
    struct md_calibrate_head *heads = md_arena_get(arena, count, sizeof *heads);
    if (heads == NULL)
        return md_fail(err, MD_NO_MEMORY, "choice among %zu heads", count);
    for (size_t i = 0; i < count; i++) {
        const struct md_calibrate_measure *m = &measures[i];
        if (m->layer < 0 || m->layer >= layers || m->head < 0 || m->head >= MD_CALIBRATE_WIDTH_MOST)
            return md_fail(err, MD_INVALID, "no such head: layer %d of %d, head %d", m->layer, layers,
                           m->head);
        if (!is_measured(m, params->source))
            return md_fail(err, MD_INVALID, "a measure of layer %d, head %d is no finite number", m->layer,
                           m->head);
        heads[i] = (struct md_calibrate_head){ m->layer, m->head, md_calibrate_score(m, layers, params) };
    }
    qsort(heads, count, sizeof *heads, by_place);
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 &&
            by_place(&heads[i - 1], &heads[i]) == 0) /* n <= i: what stands there is still the one before */
            return md_fail(err, MD_INVALID, "layer %d, head %d was measured twice", heads[i].layer,
                           heads[i].head);
        if (heads[i].score > 0)
            heads[n++] = heads[i];
    }
    if (n == 0)
        return md_fail(err, MD_NOT_FOUND, "none of %zu heads finds anything: choose by another source",
                       count);
    if (params->source == MD_CALIBRATE_BAND) {
        n = spread(heads, n, params->heads);
        for (size_t i = 0; i < n; i++)
            heads[i].score = 0;
    } else {
        qsort(heads, n, sizeof *heads, by_score);
        n = n < params->heads ? n : params->heads;
        qsort(heads, n, sizeof *heads, by_place);
    }
    ret_set->source = params->source;
    ret_set->count = n;
    for (size_t i = 0; i < n; i++)
        ret_set->heads[i] = heads[i];
    return MD_OK;
}
