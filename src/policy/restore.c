/* restore.c - see restore.h.  Learning is in floating point; deciding is in whole numbers of 128 bits, where sums are
 * exact, so that wins and break_even agree to the token. */
#include "policy/restore.h"

#include <assert.h>

enum { FRACTION_BITS = 20 }; /* speeds are counted in 2^-20 ns */

static const double WEIGHT = 1.0 / 8;    /* of a new measure */
static const double ONE_SIZE = 1.0 / 64; /* sizes that vary less say nothing about the parts: (1/8)^2 */
static const double COST_MAX = 0x1p62;   /* of a byte, a token or a block, in 2^-20 ns; more is as bad */

__extension__ typedef unsigned __int128 wide;

/* ---- learning ---- */

static double pace(const double *measure)
{
    return measure[1] / measure[0];
}

/* Index of the middle one of the last three by time per size; of two the faster, for what is wild is slow. */
static int middle(const struct md_restore_line *l)
{
    double a = pace(l->last[0]);
    if (l->count == 1)
        return 0;
    double b = pace(l->last[1]);
    if (l->count == 2)
        return a <= b ? 0 : 1;
    double c = pace(l->last[2]);
    if ((b <= a && a <= c) || (c <= a && a <= b))
        return 0;
    return (a <= b && b <= c) || (c <= b && b <= a) ? 1 : 2;
}

static void note(struct md_restore_line *l, double size, double ns)
{
    bool begins = l->count < 3; /* nothing fades yet: the first ones must not stick */
    for (int i = 2; i > 0; i--)
        for (int k = 0; k < 2; k++)
            l->last[i][k] = l->last[i - 1][k];
    l->last[0][0] = size;
    l->last[0][1] = ns;
    l->count += begins;
    const double *m = l->last[middle(l)];
    if (begins) {
        l->size = m[0];
        l->ns = m[1];
        return;
    }
    double off_size = m[0] - l->size, off_ns = m[1] - l->ns;
    l->size += WEIGHT * off_size;
    l->ns += WEIGHT * off_ns;
    l->size_var = (1 - WEIGHT) * (l->size_var + WEIGHT * off_size * off_size);
    l->cov = (1 - WEIGHT) * (l->cov + WEIGHT * off_size * off_ns);
}

void md_restore_note_restore(struct md_restore *r, enum md_restore_tier tier, int64_t bytes, int64_t blocks,
                             int64_t ns)
{
    assert((unsigned)tier < MD_TIER_COUNT);
    if (bytes > 0 && blocks > 0 && ns >= 0)
        note(&r->tiers[tier], (double)bytes / (double)blocks, (double)ns / (double)blocks);
}

void md_restore_note_prefill(struct md_restore *r, int64_t tokens, int64_t ns)
{
    if (tokens > 0 && ns >= 0)
        note(&r->prefill, 1, (double)ns / (double)tokens);
}

/* ---- deciding ---- */

/* In 2^-20 ns. */
struct costs {
    wide block, byte, token;
};

static wide scaled(double ns)
{
    double cost = ns * (1 << FRACTION_BITS);
    return (wide)(cost < COST_MAX ? cost : COST_MAX);
}

/* The line through the measures: neither part is below 0, and at the mean size it says the mean time. */
static void split(const struct md_restore_line *l, double *ret_fixed, double *ret_slope)
{
    double slope = l->ns / l->size, fixed = 0;
    if (l->size_var > ONE_SIZE * l->size * l->size) {
        double steep = l->cov / l->size_var;
        slope = steep < 0 ? 0 : steep < slope ? steep : slope;
        fixed = l->ns - slope * l->size;
    }
    *ret_fixed = fixed > 0 ? fixed : 0;
    *ret_slope = slope;
}

/* False: a speed is not known. */
static bool costs_of(const struct md_restore *r, enum md_restore_tier tier, struct costs *ret)
{
    assert((unsigned)tier < MD_TIER_COUNT);
    double block, byte;
    if (r->tiers[tier].count == 0 || r->prefill.count == 0)
        return false;
    split(&r->tiers[tier], &block, &byte);
    *ret = (struct costs){ scaled(block), scaled(byte), scaled(r->prefill.ns) };
    return true;
}

static wide positive(int64_t n)
{
    return n > 0 ? (wide)n : 0;
}

/* Each product is below 2^62 * 2^63, each sum below 2^126. */
bool md_restore_wins(const struct md_restore *r, enum md_restore_tier tier, int64_t bytes, int64_t tokens)
{
    struct costs c;
    return !costs_of(r, tier, &c) || c.block + c.byte * positive(bytes) <= c.token * positive(tokens);
}

int64_t md_restore_break_even_tokens(const struct md_restore *r, enum md_restore_tier tier,
                                     int64_t bytes_per_token)
{
    struct costs c;
    if (!costs_of(r, tier, &c))
        return 0;
    wide restored = c.byte * positive(bytes_per_token);
    if (restored > c.token || (restored == c.token && c.block > 0))
        return -1;
    if (c.block == 0)
        return 0;
    wide saved = c.token - restored;
    return (int64_t)((c.block + saved - 1) / saved); /* at most 2^62 */
}
