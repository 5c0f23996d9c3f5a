/* attention_bench_main.c - how fast policy/attention scores on this machine: 16 query heads of 4 key heads, 64
 * rows, 100,000 tokens in blocks of 64, 64 numbers a key, one thread.
 *
 * usage: attention_bench [TOKENS]
 *
 * Times are of the processor, so that what else runs on the machine is left out as far as it can be.
 * Prints a line for the whole call, and one for the multiplications alone with each kernel that this machine has. */
#include "policy/attention.h"
#include "policy/attention_kernel.h"
#include "support/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCK = 64, LENGTH = 64, ROWS = 64, GROUPS = 4, HEADS = 4, RUNS = 3 };

static double seconds_since(clock_t start)
{
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static void *or_end(void *p)
{
    if (p == NULL) {
        fputs("attention_bench: out of memory\n", stderr);
        exit(1);
    }
    return p;
}

/* Of one kernel over one block, again and again: a pair of strips by 64 tokens. */
static void time_kernel(const struct md_attention_kernel *kernel)
{
    static float queries[LENGTH * MD_ATTENTION_PAIR], keys[BLOCK * LENGTH], logits[BLOCK * MD_ATTENTION_PAIR];
    static uint16_t bits[BLOCK * LENGTH];
    enum { TIMES = 40000 };
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++)
        queries[i] = (float)(i % 7) - 3;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        keys[i] = (float)(i % 5) - 2;
    clock_t start = clock();
    for (int i = 0; i < TIMES; i++) {
        keys[i % BLOCK] += 1;
        kernel->dots(queries, keys, BLOCK, LENGTH, logits);
    }
    const double dots = seconds_since(start);
    float most[MD_ATTENTION_PAIR], sum[MD_ATTENTION_PAIR];
    start = clock();
    for (int i = 0; i < TIMES; i++)
        kernel->soften(logits, BLOCK, most, sum);
    const double soften = seconds_since(start);
    start = clock();
    for (int i = 0; i < TIMES; i++) {
        bits[i % BLOCK]++;
        (void)kernel->widen(bits, BLOCK * LENGTH, keys);
    }
    const double widen = seconds_since(start);
    const double each = (double)TIMES * BLOCK / 1e9;
    printf("attention kernel %-5s: %.1f G multiply-adds/s, %.2f G exp/s, %.2f G f16/s\n", kernel->name,
           each * LENGTH * MD_ATTENTION_PAIR / dots, each * MD_ATTENTION_PAIR / soften,
           each * LENGTH / widen);
}

static void time_call(size_t tokens)
{
    const size_t blocks = (tokens + BLOCK - 1) / BLOCK, outputs = (size_t)GROUPS * HEADS;
    struct md_attention_block *block = or_end(calloc(blocks, sizeof *block));
    const uint16_t **keys[GROUPS];
    struct rng rng = { 1 };
    for (size_t b = 0; b < blocks; b++)
        block[b] = (struct md_attention_block){ (int32_t)(b * BLOCK), BLOCK, b > 0 };
    for (int g = 0; g < GROUPS; g++) {
        keys[g] = or_end(calloc(blocks, sizeof *keys[g]));
        for (size_t b = 0; b < blocks; b++) {
            uint16_t *k = or_end(malloc(sizeof *k * BLOCK * LENGTH));
            for (size_t i = 0; i < (size_t)BLOCK * LENGTH; i++) /* of magnitude 0.25 to 2 */
                k[i] = (uint16_t)((rng_next(&rng) & 0x87ff) + 0x3400);
            keys[g][b] = k;
        }
    }
    float *queries = or_end(calloc(outputs * ROWS * LENGTH, sizeof *queries));
    for (size_t i = 0; i < outputs * ROWS * LENGTH; i++)
        queries[i] = (float)rng_below(&rng, 2001) / 1000 - 1;
    struct md_attention_head heads[GROUPS][HEADS];
    struct md_attention_group groups[GROUPS];
    for (size_t g = 0; g < GROUPS; g++) {
        for (size_t h = 0; h < HEADS; h++)
            heads[g][h] =
                (struct md_attention_head){ queries + (g * HEADS + h) * LENGTH, outputs * LENGTH, 0.125F };
        groups[g] = (struct md_attention_group){ keys[g], LENGTH, heads[g], HEADS };
    }
    const struct md_attention_clause whole = { 0, ROWS };
    const struct md_attention_input in = { .blocks = block,
                                           .block_count = blocks,
                                           .groups = groups,
                                           .group_count = GROUPS,
                                           .row_count = ROWS,
                                           .clauses = &whole,
                                           .clause_count = 1 };
    const size_t all = md_attention_tokens(block, blocks);
    struct md_attention_scores scores = { .mass = or_end(calloc(outputs * all, sizeof(float))),
                                          .peak = or_end(calloc(outputs * all, sizeof(float))),
                                          .share = or_end(calloc(outputs, sizeof(float))) };
    double best = 0;
    struct md_err err;
    for (int run = 0; run < RUNS; run++) {
        struct md_arena work;
        md_arena_init(&work, NULL, MD_ATTENTION_WORK_BYTES);
        const clock_t start = clock();
        if (md_attention_score(&in, &work, &scores, &err) != MD_OK) {
            fprintf(stderr, "attention_bench: %s\n", err.text);
            exit(1);
        }
        const double took = seconds_since(start);
        best = run == 0 || took < best ? took : best;
        md_arena_done(&work);
    }
    printf("attention of %zu heads x %d rows over %zu tokens x %d: %.2f s (best of %d, one thread), "
           "%.1f G multiply-adds/s\n",
           outputs, ROWS, all, LENGTH, best, RUNS,
           (double)outputs * ROWS * (double)all * LENGTH / best / 1e9);
    for (int g = 0; g < GROUPS; g++) {
        for (size_t b = 0; b < blocks; b++)
            free((void *)keys[g][b]);
        free(keys[g]);
    }
    free(queries);
    free(block);
    free(scores.mass);
    free(scores.peak);
    free(scores.share);
}

int main(int argc, char **argv)
{
    const long tokens = argc > 1 ? strtol(argv[1], NULL, 10) : 100000;
    if (tokens < 1 || tokens > 10000000) {
        fputs("usage: attention_bench [TOKENS], 1 to 10000000\n", stderr);
        return 2;
    }
    time_call((size_t)tokens);
    time_kernel(md_attention_kernel_plain());
    if (md_attention_kernel_best() != md_attention_kernel_plain())
        time_kernel(md_attention_kernel_best());
    return 0;
}
