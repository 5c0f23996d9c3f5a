/* bench.h - what `modeld bench` measures: one engine, or several side by side in one run.
 *
 * With several, every step is made by each of them before the next, and the one that begins changes from step to step: what
 * the machine does meanwhile (heat, other programs) hits them alike, so that their ratios mean something.  Only one
 * computes at a time, and it does not begin before the threads of the others sleep.
 *
 * Works on the engine alone: no session, so that what is measured is the mechanism.
 *
 * Threads: one at a time. */
#ifndef MD_COMMANDS_BENCH_H
#define MD_COMMANDS_BENCH_H

#include "engine/engine.h"

enum { MD_BENCH_ENGINES_MAX = 2, MD_BENCH_NEAR_TOKENS = 512, MD_BENCH_DECODE_TOKENS = 32 };

struct md_bench_speed {
    int64_t tokens, ns;
    int64_t bytes; /* of what was moved */
};

struct md_bench_figures {
    struct md_bench_speed near; /* prefill of the first MD_BENCH_NEAR_TOKENS; 0 tokens: there are no more */
    struct md_bench_speed prefill, deep; /* of all, and of the last step alone */
    struct md_bench_speed decode;
    struct md_bench_speed taken, restored; /* 0 tokens: this model's KV cannot be moved in parts */
    int64_t break_even_tokens;             /* md_restore_break_even_tokens */
};

/* `count` tokens to measure time with: real text is not needed, but equal tokens would be kind to no cache, so they differ. */
void md_bench_fill_tokens(md_token *tokens, int32_t count, int32_t vocab_count);

/* Fill sequence 0 of each engine, which is empty, up to `depth`, decode there, and move KV out and in again.
 *
 * count        1..MD_BENCH_ENGINES_MAX
 * depth        at least 256
 * ret_figures  one for each engine
 * errors       those of the calls of engine.h; with several engines the text says whose.  MD_INTERNAL also: threads of
 *              an engine that has nothing to do go on computing. */
MD_MUST_USE enum md_status md_bench_measure(struct md_engine *const *engines, int count, int32_t depth,
                                            int32_t decode_tokens, struct md_bench_figures *ret_figures,
                                            struct md_err *err);

/* 0 for what was not measured. */
double md_bench_tokens_per_second(const struct md_bench_speed *s);

/* bench_print.c: to standard output, of the same engines and figures. */
void md_bench_print_text(struct md_engine *const *engines, int count, int32_t depth,
                         const struct md_bench_figures *figures);
MD_MUST_USE enum md_status md_bench_print_json(struct md_engine *const *engines, int count, int32_t depth,
                                               const struct md_bench_figures *figures, struct md_err *err);

#endif
