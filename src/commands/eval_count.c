/* eval_count.c - what came of it, counted.  See eval.h. */
#include "commands/eval.h"

#include <limits.h>

static bool is_in(const struct md_eval_cell *c, const struct md_eval_result *r)
{
    return r->unit.policy == c->policy && r->unit.length == c->length;
}

static bool is_of(const struct md_eval_cell *c, const struct md_eval_item *i)
{
    return (c->depth == MD_EVAL_ANY || i->depth == c->depth) &&
           (c->order == MD_EVAL_ANY || i->order == c->order);
}

struct md_eval_cell md_eval_count(const struct md_eval_result *results, size_t count, int policy, int length,
                                  int depth, int order)
{
    struct md_eval_cell c = { .policy = policy, .length = length, .depth = depth, .order = order };
    for (size_t r = 0; r < count; r++) {
        for (int i = 0; i < results[r].count && is_in(&c, &results[r]); i++) {
            const struct md_eval_item *item = &results[r].items[i];
            if (!is_of(&c, item))
                continue;
            c.total++;
            c.recalled += item->recalled;
            c.found += item->found;
            c.seconds += item->seconds;
        }
    }
    return c;
}

int md_eval_depths(const struct md_eval_result *results, size_t count, int out[MD_EVAL_DEPTHS_MAX])
{
    bool there[MD_EVAL_DEPTHS_MAX] = { false }, spread = false;
    int n = 0;
    for (size_t r = 0; r < count; r++)
        for (int i = 0; i < results[r].count; i++)
            if (results[r].items[i].depth == MD_EVAL_SPREAD)
                spread = true;
            else
                there[results[r].items[i].depth] = true;
    if (spread) /* chains: all of them are */
        out[n++] = MD_EVAL_SPREAD;
    for (int d = 0; d < MD_EVAL_DEPTHS_MAX && !spread; d++)
        if (there[d])
            out[n++] = d;
    return n;
}

/* ---- ranks ---- */

/* How many ranks are `most` or less, their sum, and the least that is more. */
struct tally {
    int count;
    int64_t sum;
    int32_t next; /* INT32_MAX: there is none */
};

static struct tally tally(const struct md_eval_result *results, size_t count, const struct md_eval_cell *c,
                          bool first, int32_t most)
{
    struct tally t = { .next = INT32_MAX };
    for (size_t r = 0; r < count; r++)
        for (int i = 0; i < results[r].count && is_in(c, &results[r]); i++) {
            const struct md_eval_item *item = &results[r].items[i];
            const int32_t rank = first ? item->first_rank : item->rank;
            if (rank == 0 || !is_of(c, item))
                continue;
            if (rank > most) {
                t.next = rank < t.next ? rank : t.next;
                continue;
            }
            t.count++;
            t.sum += rank;
        }
    return t;
}

struct md_eval_ranks md_eval_rank_count(const struct md_eval_result *results, size_t count,
                                        const struct md_eval_cell *cell, bool first)
{
    const struct tally all = tally(results, count, cell, first, INT32_MAX);
    struct md_eval_ranks ranks = { .count = all.count };
    if (all.count == 0)
        return ranks;
    ranks.mean = (double)all.sum / all.count;
    struct tally t = { .next = 1 };
    while ((int64_t)t.count * 10 < (int64_t)all.count * 9) {
        ranks.p90 = t.next;
        t = tally(results, count, cell, first, ranks.p90);
    }
    return ranks;
}

/* ---- rotations ---- */

static bool has_chosen(const struct md_eval_item *i)
{
    return i->blocks != NULL && strchr(i->blocks, MD_EVAL_CHOSEN_BLOCK) != NULL;
}

static double jaccard(const struct md_eval_item *a, const struct md_eval_item *b)
{
    const bool chosen = has_chosen(a) || has_chosen(b);
    int both = 0, either = 0;
    for (const char *p = a->blocks, *q = b->blocks; p != NULL && q != NULL && *p != '\0' && *q != '\0';
         p++, q++) {
        const bool in_a = chosen ? *p == MD_EVAL_CHOSEN_BLOCK : *p != MD_EVAL_COLD_BLOCK;
        const bool in_b = chosen ? *q == MD_EVAL_CHOSEN_BLOCK : *q != MD_EVAL_COLD_BLOCK;
        both += in_a && in_b;
        either += in_a || in_b;
    }
    return either > 0 ? (double)both / either : 1;
}

/* Every two items of a haystack that ask for the same needle; those of one order differ. */
static void add_pairs(const struct md_eval_result *r, struct md_eval_rotations *out)
{
    for (int i = 0; i < r->count; i++)
        for (int k = i + 1; k < r->count; k++) {
            if (r->items[i].needle != r->items[k].needle)
                continue;
            const double j = jaccard(&r->items[i], &r->items[k]);
            out->jaccard_mean += j;
            out->jaccard_least = out->pairs == 0 || j < out->jaccard_least ? j : out->jaccard_least;
            out->pairs++;
        }
}

static void widen(int part, int total, bool first, double *least, double *most)
{
    const double share = total > 0 ? (double)part / total : 0;
    *least = first || share < *least ? share : *least;
    *most = first || share > *most ? share : *most;
}

struct md_eval_rotations md_eval_rotation_count(const struct md_eval_result *results, size_t count,
                                                int policy, int length, int orders)
{
    struct md_eval_rotations out = { .orders = orders };
    for (size_t r = 0; r < count; r++)
        if (results[r].unit.policy == policy && results[r].unit.length == length)
            add_pairs(&results[r], &out);
    if (out.pairs > 0)
        out.jaccard_mean /= out.pairs;
    for (int o = 0; o < orders; o++) {
        const struct md_eval_cell c = md_eval_count(results, count, policy, length, MD_EVAL_ANY, o);
        widen(c.found, c.total, o == 0, &out.found_least, &out.found_most);
        widen(c.recalled, c.total, o == 0, &out.recall_least, &out.recall_most);
    }
    return out;
}
