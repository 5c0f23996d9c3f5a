/* test_attention.c - attention mass against the formula, written out in double precision, and an example by hand. */
#include "policy/attention.h"
#include "policy/attention_kernel.h"
#include "support/fault_alloc.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS_MOST = 24, BLOCKS_MOST = 12, CLAUSES = 3, GROUPS_MOST = 3 };

/* One input with memory of its own, and what the formula says of it. */
struct subject {
    struct md_attention_block blocks[BLOCKS_MOST];
    uint16_t *keys[GROUPS_MOST][BLOCKS_MOST];
    const uint16_t *key_of[GROUPS_MOST][BLOCKS_MOST];
    struct md_attention_head heads[HEADS_MOST];
    struct md_attention_group groups[GROUPS_MOST];
    struct md_attention_clause clauses[CLAUSES];
    int32_t *positions;
    float *queries;
    struct md_attention_input in;
    size_t outputs, tokens;
    float *mass, *peak, *share;                 /* got */
    double *want_mass, *want_peak, *want_share; /* by the formula */
};

/* IEEE 754 binary16, as it is defined. */
static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static void *some(size_t count, size_t size)
{
    void *p = calloc(count > 0 ? count : 1, size);
    ck_assert_ptr_nonnull(p);
    return p;
}

static double logit(const struct md_attention_group *g, const struct md_attention_head *h, size_t row,
                    size_t b, size_t t)
{
    double dot = 0;
    for (size_t i = 0; i < g->length; i++)
        dot += (double)h->queries[row * h->stride + i] * half_value(g->keys[b][t * g->length + i]);
    return dot * (double)h->scale;
}

static bool sees(const struct md_attention_input *in, size_t row, size_t b, size_t t)
{
    return in->positions == NULL || in->blocks[b].start + (int32_t)t <= in->positions[row];
}

/* softmax(scale * q . k) of one row, added to one head and clause: the largest taken away, then straight from the formula. */
static void reference_row(struct subject *s, const struct md_attention_group *g, size_t head, size_t out,
                          size_t row, double *logits)
{
    const struct md_attention_input *in = &s->in;
    double most = -INFINITY, all_most = -INFINITY, sum = 0, all = 0, chosen = 0;
    for (size_t b = 0, at = 0; b < in->block_count; b++)
        for (size_t t = 0; t < (size_t)in->blocks[b].tokens; t++, at++) {
            logits[at] = sees(in, row, b, t) ? logit(g, &s->heads[head], row, b, t) : -INFINITY;
            all_most = fmax(all_most, logits[at]);
            if (in->blocks[b].candidate)
                most = fmax(most, logits[at]);
        }
    for (size_t b = 0, at = 0; b < in->block_count; b++)
        for (size_t t = 0; t < (size_t)in->blocks[b].tokens; t++, at++) {
            if (!isfinite(logits[at]))
                continue;
            all += exp(logits[at] - all_most);
            if (in->blocks[b].candidate) {
                sum += exp(logits[at] - most);
                chosen += exp(logits[at] - all_most);
            }
        }
    if (all > 0)
        s->want_share[out] += chosen / all;
    for (size_t b = 0, at = 0; b < in->block_count; b++)
        for (size_t t = 0; t < (size_t)in->blocks[b].tokens; t++, at++)
            if (in->blocks[b].candidate && isfinite(logits[at])) {
                const double weight = exp(logits[at] - most) / sum;
                s->want_mass[out * s->tokens + at] += weight;
                s->want_peak[out * s->tokens + at] = fmax(s->want_peak[out * s->tokens + at], weight);
            }
}

static void reference(struct subject *s)
{
    const struct md_attention_input *in = &s->in;
    double *logits = some(s->tokens, sizeof *logits);
    size_t head = 0;
    for (size_t g = 0; g < in->group_count; g++)
        for (size_t h = 0; h < in->groups[g].head_count; h++, head++)
            for (size_t c = 0; c < in->clause_count; c++) {
                const size_t out = head * in->clause_count + c;
                const size_t first = in->clauses[c].first, end = in->clauses[c].end;
                for (size_t row = first; row < end; row++)
                    reference_row(s, &in->groups[g], head, out, row, logits);
                s->want_share[out] /= (double)(end - first);
            }
    free(logits);
}

struct shape {
    size_t length, group_count, heads_each, rows, clauses, blocks;
    int32_t block_tokens, last_tokens;
    bool positions;
    double spread; /* of logits, about */
};

static void make(struct subject *s, struct rng *rng, const struct shape *shape)
{
    memset(s, 0, sizeof *s);
    int32_t at = 0;
    for (size_t b = 0; b < shape->blocks; b++) {
        const int32_t tokens = b + 1 < shape->blocks ? shape->block_tokens : shape->last_tokens;
        s->blocks[b] = (struct md_attention_block){ at, tokens, shape->blocks == 1 || rng_below(rng, 4) > 0 };
        at += tokens + (int32_t)rng_below(rng, 3);
    }
    const size_t heads = shape->group_count * shape->heads_each, stride = heads * shape->length;
    s->queries = some(shape->rows * stride, sizeof *s->queries);
    for (size_t i = 0; i < shape->rows * stride; i++)
        s->queries[i] = (float)rng_below(rng, 20001) / 10000 - 1;
    s->positions = some(shape->rows, sizeof *s->positions);
    for (size_t r = 0; r < shape->rows; r++)
        s->positions[r] = (int32_t)rng_below(rng, (uint32_t)at + 10) - 5;
    for (size_t h = 0; h < heads; h++)
        s->heads[h] = (struct md_attention_head){ s->queries + h * shape->length, stride,
                                                  (float)(shape->spread / sqrt((double)shape->length)) };
    for (size_t g = 0; g < shape->group_count; g++) {
        for (size_t b = 0; b < shape->blocks; b++) {
            const size_t n = (size_t)s->blocks[b].tokens * shape->length;
            s->keys[g][b] = some(n, sizeof(uint16_t));
            for (size_t i = 0; i < n; i++) /* any sign; subnormal ones and zeros too, 2 at most */
                s->keys[g][b][i] = (uint16_t)(rng_below(rng, 2) << 15 | rng_below(rng, 0x4001));
            s->key_of[g][b] = s->keys[g][b];
        }
        s->groups[g] = (struct md_attention_group){ s->key_of[g], shape->length,
                                                    s->heads + g * shape->heads_each, shape->heads_each };
    }
    for (size_t c = 0; c < shape->clauses; c++)
        s->clauses[c] = (struct md_attention_clause){ c * shape->rows / shape->clauses,
                                                      (c + 1) * shape->rows / shape->clauses };
    s->in = (struct md_attention_input){ s->blocks,   shape->blocks,
                                         s->groups,   shape->group_count,
                                         shape->rows, shape->positions ? s->positions : NULL,
                                         s->clauses,  shape->clauses };
    s->outputs = heads * shape->clauses;
    s->tokens = md_attention_tokens(s->blocks, shape->blocks);
    s->mass = some(s->outputs * s->tokens, sizeof *s->mass);
    s->peak = some(s->outputs * s->tokens, sizeof *s->peak);
    s->share = some(s->outputs, sizeof *s->share);
    s->want_mass = some(s->outputs * s->tokens, sizeof *s->want_mass);
    s->want_peak = some(s->outputs * s->tokens, sizeof *s->want_peak);
    s->want_share = some(s->outputs, sizeof *s->want_share);
    reference(s);
}

static void unmake(struct subject *s)
{
    for (size_t g = 0; g < GROUPS_MOST; g++)
        for (size_t b = 0; b < BLOCKS_MOST; b++)
            free(s->keys[g][b]);
    free(s->queries);
    free(s->positions);
    free(s->mass);
    free(s->peak);
    free(s->share);
    free(s->want_mass);
    free(s->want_peak);
    free(s->want_share);
}

static enum md_status score(struct subject *s, size_t work_bytes, struct md_err *err)
{
    const struct md_attention_scores to = { s->mass, s->peak, s->share };
    struct md_arena work;
    md_arena_init(&work, NULL, work_bytes);
    const enum md_status status = md_attention_score(&s->in, &work, &to, err);
    ck_assert_uint_le(work.used_bytes, work_bytes);
    md_arena_done(&work);
    return status;
}

static void compare(const char *label, size_t n, const float *got, size_t count, const double *want)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - want[i]) <= 1e-6 + 1e-4 * fabs(want[i])))
            ck_abort_msg("case %zu, %s %zu: %.9g, wanted %.9g", n, label, i, (double)got[i], want[i]);
}

static void check_subject(struct subject *s, size_t n, size_t work_bytes)
{
    struct md_err err = { 0 };
    memset(s->mass, 0xff, s->outputs * s->tokens * sizeof *s->mass); /* no numbers: must be overwritten */
    memset(s->peak, 0xff, s->outputs * s->tokens * sizeof *s->peak);
    memset(s->share, 0xff, s->outputs * sizeof *s->share);
    ck_assert_msg(score(s, work_bytes, &err) == MD_OK, "case %zu: %s", n, err.text);
    compare("mass", n, s->mass, s->outputs * s->tokens, s->want_mass);
    compare("peak", n, s->peak, s->outputs * s->tokens, s->want_peak);
    compare("share", n, s->share, s->outputs, s->want_share);
}

/* Length 1, scale 1, keys 0 and 1 (candidates) and 2 (not).  Row 0 asks ln 3: e^(q k) = 1, 3 and 9, so the
 * candidates have 1/4 and 3/4, and 4 of 13 of all.  Row 1 asks 0: 1, 1 and 1, so 1/2 and 1/2, and 2 of 3. */
START_TEST(by_hand)
{
    const float queries[] = { 1.0986123F, 0 };
    const uint16_t keys[] = { 0, 0x3c00 }, outer[] = { 0x4000 }; /* f16 of 0, 1 and 2 */
    const uint16_t *const key_of[] = { outer, keys };
    const struct md_attention_block blocks[] = { { 0, 1, false }, { 1, 2, true } };
    const struct md_attention_head head = { queries, 1, 1 };
    const struct md_attention_group group = { key_of, 1, &head, 1 };
    const struct md_attention_clause clauses[] = { { 0, 2 }, { 1, 2 } };
    const struct md_attention_input in = { blocks, 2, &group, 1, 2, NULL, clauses, 2 };
    float mass[6], peak[6], share[2];
    const struct md_attention_scores to = { mass, peak, share };
    static const double want_mass[] = { 0, 0.75, 1.25, 0, 0.5, 0.5 };
    static const double want_peak[] = { 0, 0.5, 0.75, 0, 0.5, 0.5 };
    static const double want_share[] = { (4.0 / 13 + 2.0 / 3) / 2, 2.0 / 3 };
    struct md_arena work;
    md_arena_init(&work, NULL, 1 << 20);
    ck_assert_uint_eq(md_attention_tokens(blocks, 2), 3);
    ck_assert_int_eq(md_attention_score(&in, &work, &to, NULL), MD_OK);
    compare("mass", 0, mass, 6, want_mass);
    compare("peak", 0, peak, 6, want_peak);
    compare("share", 0, share, 2, want_share);
    md_arena_done(&work);
}
END_TEST

START_TEST(sizes_at_their_borders)
{
    static const size_t lengths[] = { 1, 7, 48, 64, 80, 128, 256 };
    struct rng rng = rng_open("sizes_at_their_borders");
    size_t n = 0;
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
        for (size_t heads = 1; heads <= 8; heads++, n++) {
            static const size_t rows[] = { 1, 7, 8, 9, 16, 17, 33, 64 };
            const struct shape shape = { .length = lengths[l],
                                         .group_count = 1 + n % GROUPS_MOST,
                                         .heads_each = heads,
                                         .rows = rows[(n * 5 + l) % 8],
                                         .clauses = 1,
                                         .blocks = 1 + n % 4,
                                         .block_tokens = 1 + (int32_t)(n * 7 % 33),
                                         .last_tokens = 1 + (int32_t)(n % 5),
                                         .positions = n % 2 == 1,
                                         .spread = 3 };
            struct subject s;
            make(&s, &rng, &shape);
            check_subject(&s, n, 4 << 20);
            unmake(&s);
        }
    const struct shape least = { 64, 1, 1, 1, 1, 1, 1, 1, false, 1 };
    struct subject s;
    make(&s, &rng, &least);
    check_subject(&s, n, 4 << 20);
    ck_assert_float_eq(s.mass[0], 1);
    ck_assert_float_eq(s.share[0], 1);
    unmake(&s);
}
END_TEST

/* From the room for 16 rows to room for all: the same figures.  Large logits too: e^100 and more apart. */
START_TEST(clauses_and_little_memory)
{
    struct rng rng = rng_open("clauses_and_little_memory");
    for (size_t n = 0; n < 24; n++) {
        const struct shape shape = { .length = 32,
                                     .group_count = 2,
                                     .heads_each = 1 + n % 5,
                                     .rows = 3 + rng_below(&rng, 60),
                                     .clauses = 1 + n % CLAUSES,
                                     .blocks = 2 + n % 9,
                                     .block_tokens = 16,
                                     .last_tokens = 5,
                                     .positions = n % 3 > 0,
                                     .spread = n % 4 == 3 ? 60 : 2 };
        struct subject s;
        make(&s, &rng, &shape);
        const size_t least = md_attention_work_bytes(&s.in, 0),
                     most = md_attention_work_bytes(&s.in, 1 << 20);
        ck_assert_uint_eq(least, md_attention_work_bytes(&s.in, 16));
        struct md_err err;
        ck_assert_int_eq(score(&s, least - 1, &err), MD_NO_MEMORY);
        check_subject(&s, n, least);
        check_subject(&s, n, (least + most) / 2);
        check_subject(&s, n, most);
        unmake(&s);
    }
}
END_TEST

/* With room for all rows no tile begins in a clause, and a clause is scored as if it were alone, to the bit; and
 * without peaks masses are the same. */
START_TEST(a_clause_does_not_depend_on_the_others)
{
    struct rng rng = rng_open("a_clause_does_not_depend_on_the_others");
    const struct shape shape = { 64, 1, 3, 50, 3, 5, 64, 20, true, 2 };
    struct subject s;
    make(&s, &rng, &shape);
    check_subject(&s, 0, 4 << 20);
    for (size_t c = 0; c < 3; c++) {
        struct md_attention_input in = s.in;
        in.clauses = &s.clauses[c];
        in.clause_count = 1;
        float *mass = some(3 * s.tokens, sizeof *mass), share[3];
        const struct md_attention_scores to = { mass, NULL, share };
        struct md_arena work;
        md_arena_init(&work, NULL, 4 << 20);
        ck_assert_int_eq(md_attention_score(&in, &work, &to, NULL), MD_OK);
        for (size_t h = 0; h < 3; h++) {
            ck_assert_mem_eq(mass + h * s.tokens, s.mass + (h * 3 + c) * s.tokens, s.tokens * sizeof *mass);
            ck_assert_float_eq(share[h], s.share[h * 3 + c]);
        }
        md_arena_done(&work);
        free(mass);
    }
    unmake(&s);
}
END_TEST

START_TEST(bad_input_is_refused)
{
    struct rng rng = rng_open("bad_input_is_refused");
    const struct shape shape = { 16, 1, 2, 9, 2, 3, 8, 3, true, 2 };
    for (int n = 0; n < 22; n++) {
        struct subject s;
        make(&s, &rng, &shape);
        enum md_status want = MD_INVALID;
        switch (n) {
        case 0: s.in.block_count = 0; break;
        case 1: s.in.group_count = 0; break;
        case 2: s.in.row_count = 0; break;
        case 3: s.in.clause_count = 0; break;
        case 4: s.in.row_count = MD_ATTENTION_ROWS_MOST + 1; break;
        case 5: s.in.clause_count = MD_ATTENTION_CLAUSES_MOST + 1; break;
        case 6: s.clauses[1].end = 10; break;
        case 7: s.clauses[1].end = s.clauses[1].first; break;
        case 8: s.blocks[1].tokens = 0; break;
        case 9: s.blocks[1].start = -1; break;
        case 10: s.blocks[1].start = INT32_MAX - 7; break;
        case 11: s.groups[0].length = 0; break;
        case 12: s.groups[0].length = MD_ATTENTION_LENGTH_MOST + 1; break;
        case 13: s.groups[0].head_count = 0; break;
        case 14: s.heads[1].scale = 0; break;
        case 15: s.heads[1].scale = NAN; break;
        case 16: s.queries[40] = NAN; break;
        case 17: s.queries[40] = -INFINITY; break;
        case 18: s.queries[40] = 4e30F; break;                         /* times a scale of 0.5 */
        case 19: s.keys[0][1][127] = 0x7c00, want = MD_CORRUPT; break; /* infinite, in the last place */
        case 20: s.keys[0][2][0] = 0xfe00, want = MD_CORRUPT; break;   /* no number */
        default: s.queries[40] = 1.9e30F, s.keys[0][1][127] = 0x7bff, want = MD_OK; break; /* the largest */
        }
        struct md_err err = { 0 };
        ck_assert_msg(score(&s, 1 << 20, &err) == want, "case %d: %s", n, err.text);
        bool finite = true;
        for (size_t i = 0; want == MD_OK && i < s.outputs * s.tokens; i++)
            finite &= isfinite(s.mass[i]) && isfinite(s.peak[i]);
        ck_assert(finite);
        unmake(&s);
    }
}
END_TEST

START_TEST(each_allocation_may_fail)
{
    struct rng rng = rng_open("each_allocation_may_fail");
    const struct shape shape = { 64, 1, 2, 70, 2, 8, 64, 3, false, 2 };
    struct subject s;
    make(&s, &rng, &shape);
    enum md_status status = MD_NO_MEMORY;
    int nth = 1;
    for (; status != MD_OK; nth++) {
        struct fault_alloc f;
        struct md_arena work;
        fault_alloc_init(&f, nth);
        md_arena_init(&work, &f.alloc, 4 << 20);
        const struct md_attention_scores to = { s.mass, s.peak, s.share };
        status = md_attention_score(&s.in, &work, &to, NULL);
        ck_assert(status == MD_OK || (status == MD_NO_MEMORY && f.failed));
        md_arena_done(&work);
        ck_assert_uint_eq(f.live_blocks, 0);
    }
    ck_assert_int_gt(nth, 3);
    compare("mass", 0, s.mass, s.outputs * s.tokens, s.want_mass);
    unmake(&s);
}
END_TEST

/* Of all 65,536 numbers: what the definition of binary16 says; infinite ones and no numbers are told. */
START_TEST(halves_are_widened_exactly)
{
    const struct md_attention_kernel *kernels[] = { md_attention_kernel_plain(), md_attention_kernel_best() };
    for (int k = 0; k < 2; k++)
        for (uint32_t h = 0; h <= 0xffff; h++) {
            const size_t count = 1 + h % 11, place = h % count;
            uint16_t bits[11] = { 0 };
            float out[11];
            bits[place] = (uint16_t)h;
            const bool finite = (h & 0x7c00) != 0x7c00;
            bool good = kernels[k]->widen(bits, count, out) == finite;
            if (finite)
                good &= out[place] == (float)half_value((uint16_t)h) &&
                        (signbit(out[place]) != 0) == (h >> 15 != 0);
            if (!good) /* an assertion that holds is not free */
                ck_abort_msg("%s: %04x became %g", kernels[k]->name, (unsigned)h, (double)out[place]);
        }
}
END_TEST

/* exp is right to 3e-7 of its value down to e^-87, and 0 below. */
START_TEST(exponentials)
{
    const struct md_attention_kernel *kernels[] = { md_attention_kernel_plain(), md_attention_kernel_best() };
    for (int k = 0; k < 2; k++)
        for (int step = 0; step < 20000; step++) {
            const float x = -(float)step / 200;
            float logits[2 * 16] = { 0 }, most[16], sum[16];
            for (int i = 0; i < 16; i++)
                logits[16 + i] = x;
            kernels[k]->soften(logits, 2, most, sum);
            for (int i = 0; i < 16; i++) {
                const double want = x < -87 ? 0 : exp((double)x);
                if (fabs((double)logits[16 + i] - want) > 3e-7 * want || most[i] != 0 || logits[i] != 1 ||
                    sum[i] != 1 + logits[16 + i])
                    ck_abort_msg("%s: e^%g became %.9g, wanted %.9g", kernels[k]->name, (double)x,
                                 (double)logits[16 + i], want);
            }
        }
}
END_TEST

/* Lanes are rows: the sum over the numbers of a key, in any kernel, for odd counts of tokens too. */
START_TEST(dots_of_every_kernel)
{
    const struct md_attention_kernel *kernels[] = { md_attention_kernel_plain(), md_attention_kernel_best() };
    struct rng rng = rng_open("dots_of_every_kernel");
    enum { LENGTH = 48, TOKENS = 9 };
    float queries[LENGTH * 16], keys[TOKENS * LENGTH];
    for (size_t i = 0; i < LENGTH * 16; i++) /* small whole numbers: exact in every order */
        queries[i] = (float)rng_below(&rng, 21) - 10;
    for (size_t i = 0; i < TOKENS * LENGTH; i++)
        keys[i] = (float)rng_below(&rng, 21) - 10;
    for (int k = 0; k < 2; k++)
        for (size_t tokens = 1; tokens <= TOKENS; tokens++) {
            float logits[(TOKENS + 1) * 16];
            for (size_t i = 0; i < (TOKENS + 1) * 16; i++)
                logits[i] = 12345;
            kernels[k]->dots(queries, keys, tokens, LENGTH, logits);
            bool good = true;
            for (size_t t = 0; t < tokens; t++)
                for (size_t lane = 0; lane < 16; lane++) {
                    float want = 0;
                    for (size_t i = 0; i < LENGTH; i++)
                        want += queries[i * 16 + lane] * keys[t * LENGTH + i];
                    good &= logits[t * 16 + lane] == want;
                }
            for (size_t i = tokens * 16; i < (TOKENS + 1) * 16; i++)
                good &= logits[i] == 12345;
            ck_assert(good);
        }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("attention");
    TCase *c = tcase_create("attention");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, by_hand);
    tcase_add_test(c, sizes_at_their_borders);
    tcase_add_test(c, clauses_and_little_memory);
    tcase_add_test(c, a_clause_does_not_depend_on_the_others);
    tcase_add_test(c, bad_input_is_refused);
    tcase_add_test(c, each_allocation_may_fail);
    tcase_add_test(c, halves_are_widened_exactly);
    tcase_add_test(c, exponentials);
    tcase_add_test(c, dots_of_every_kernel);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
