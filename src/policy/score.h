/* score.h - from attention on tokens to a score for each block.  Pure: no engine, clock, lock or I/O.
 *
 * In: the masses that policy/attention made, [head][clause][token].  Out: a fused score for each block, for the
 * question as a whole and for each of its clauses, and where in each block attention is highest.  What is selected
 * by them is policy/select's.  Each step has a switch, because which of them pay is settled by experiments; the
 * defaults are what found most (docs/quality.md), not what the sources advise.
 *
 * Per head and clause: mass of a row (mean over the clause's rows), less a background, pooled over neighbouring
 * tokens, reduced to blocks.  Over clauses, the mean of all rows and the best clause are two rankings.  Heads are
 * fused by sums or, as the sources do it because shares of different heads and lengths do not compare, by reciprocal
 * rank.
 *
 * A block that has nothing (a score of 0 or less) has no rank and gets nothing.  Equal scores have equal rank.  No
 * result depends on the order of the clauses, to the bit: what is summed over clauses is first rounded to multiples
 * of 2^-40, and sums of those are exact.
 *
 * Threads: any; touches nothing but its arguments.
 * Sources: pooling 2404.14469 (SnapKV) and 2502.14051 (RocketKV, width 63); null question and the cut at two
 * deviations 2410.02642 (ICR) and 2506.09944 (QRHead); reciprocal rank fusion: Cormack, Clarke and Buettcher, SIGIR
 * 2009 (its constant 60); ranks for long contexts 2607.01538; weight by share 2404.15574; mean and best part both:
 * kvmem/kvmem-qw3 docs/kvmem_utility_eval_plan.md. */
#ifndef MD_POLICY_SCORE_H
#define MD_POLICY_SCORE_H

#include "base/err.h"
#include "base/mem.h"
#include "policy/attention.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum md_score_reduce { MD_SCORE_REDUCE_MAX, MD_SCORE_REDUCE_SUM }; /* tokens of a block to one number */
enum md_score_fuse { MD_SCORE_FUSE_RANK, MD_SCORE_FUSE_SUM, MD_SCORE_FUSE_MAX };   /* heads to one number */
enum md_score_rows { MD_SCORE_ROWS_BOTH, MD_SCORE_ROWS_MEAN, MD_SCORE_ROWS_BEST }; /* clauses to rankings */

enum { MD_SCORE_POOL_MOST = 1023 };

struct md_score_params {
    int32_t pool_tokens; /* width of the maximum, odd: 1 is no pooling.  Not across holes in the tape */
    enum md_score_reduce reduce;
    enum md_score_fuse fuse;
    bool weigh_by_share; /* heads by what they give to candidates at all, per clause; else all alike */
    enum md_score_rows rows;
    bool background;   /* subtract it: then it must be given */
    bool cut_low;      /* with it: tokens below mean - 2 deviations count nothing */
    float rank_offset; /* of reciprocal ranks: 1 / (offset + rank), ranks from 1 */
};

/* No pooling, sum, sum, weighed, both, no background (it costs a pass and has to earn it), cut_low, offset 60: for heads of which
 * nothing is known. */
struct md_score_params md_score_defaults(void);
/* Pool 7, max, sum, not weighed, else the same: for heads that were measured (policy/calibrate.h).  Both are what found most
 * needles; figures are in docs/quality.md. */
struct md_score_params md_score_measured(void);

/* One more ranking of blocks, such as words in common: fused by reciprocal rank.  Where heads are not fused by
 * rank, their result becomes one ranking of weight 1 when there is such a list. */
struct md_score_list {
    const float *scores; /* [blocks], finite; 0 or less: not named */
    float weight;        /* above 0; the heads together have 1 */
};

struct md_score_input {
    const struct md_attention_block *blocks; /* those of md_attention_score, ascending by start */
    size_t block_count, head_count, clause_count;
    const size_t *clause_rows; /* [C]: rows of each clause, 1 or more */
    const float *mass;         /* [H][C][T]; peaks may stand in for masses, each clause then being of 1 row */
    const float *share;        /* [H][C] */
    const float *
        background; /* NULL, or [H][T]: mass of a row of a null question (md_score_mean_rows), or a running mean */
    const struct md_score_list *lists;
    size_t list_count;
};

/* Owned by the arena.  With rank fusion 1 is a block that is first everywhere. */
struct md_scores {
    size_t block_count, clause_count;
    float *clause;  /* [C][B]: of each clause alone; lists have no part in it */
    float *overall; /* [B]: of the heads */
    float *listed;  /* [B]: what the lists add to it */
    int32_t *
        peak_at; /* [C + 1][B]: token of the block that has most, before pooling; the last row is of all clauses.
                         -1: none has any */
    size_t heads_asked, heads_used; /* used: gave something to a candidate */
    bool background_used;
};

/* MD_INVALID    no block, head or clause; blocks out of order or outside all positions; a parameter outside its range; a background is asked
 *               for and not given; a mass, share or list score is no finite number, or a mass or share is below 0
 *               (the text says which)
 * MD_NO_MEMORY  the arena is full: it takes 16 bytes a token, 4 a head and block, 8 a clause and block, and some
 * State: ret_scores untouched on failure. When no head gave anything, heads_used is 0 and all scores are 0: the
 * caller says so, and does not go on as if it had asked for nothing. */
MD_MUST_USE enum md_status md_score_blocks(const struct md_score_input *in,
                                           const struct md_score_params *params, struct md_arena *arena,
                                           struct md_scores *ret_scores, struct md_err *err);

/* ---- the steps, each for itself ---- */

/* Mass of a row: sum over clauses / rows of all, [T].  What a null question gives by it is the background of that head. */
void md_score_mean_rows(const float *mass, size_t clause_count, size_t token_count, size_t rows,
                        float *ret_mean);
/* background moves towards `mean` by `share` (1: becomes it): a running mean over questions, [T]. */
void md_score_move_background(float *background, const float *mean, size_t token_count, float share);
/* tokens -= background; cut_low: then those below mean - 2 deviations are 0. */
void md_score_subtract(float *tokens, const float *background, size_t count, bool cut_low);
/* ret[i] = the largest of tokens[i - width / 2 .. i + width / 2] within [0, count).  queue: work, [count]. */
void md_score_pool(const float *tokens, size_t count, int32_t width, int32_t *queue, float *ret);
float md_score_reduce(const float *tokens, size_t count, enum md_score_reduce how);

#endif
