/* attention.h - how much attention the rows of a question pay to each token of the context.  Pure: no engine,
 * clock, lock or I/O.
 *
 * Queries and keys come from the engine's capture.  For each query head and each clause of the question this gives,
 * for each token, the sum over the clause's rows of the softmax weight (the *mass*) and its maximum (the *peak*).
 * The softmax is over candidate tokens alone: sinks, the recent window, the question's own blocks and template
 * cells are not candidates, and take nothing away from those that are.  What a head gave to candidates when all
 * given blocks count is its *share*: a head that sits on the sink found nothing, and is weighted down by it.
 *
 * It is softmax(scale * q . k) and nothing else: for a model that caps its logits, adds a bias of position or has
 * learned sinks it is not what the model computed.
 *
 * Threads: any; a call touches its arguments alone, so groups may be shared out over threads, each with an arena
 * and outputs of its own.
 * Source: query-focused retrieval heads (softmax mass of query tokens, per head) arXiv 2506.09944, in-context
 * re-ranking 2410.02642; heads of a KV group are not averaged, and the denominator leaves kept bands out:
 * kvmem/kvmem-qw3 docs/kvmem_utility_eval_plan.md; share: heads sit on the sink when they fail, 2404.15574.  The
 * running softmax: Milakov and Gimelshein, 1805.02867. */
#ifndef MD_POLICY_ATTENTION_H
#define MD_POLICY_ATTENTION_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MD_ATTENTION_ROWS_MOST = 4096,      /* of a question: the sums of mass stay well within f32 */
    MD_ATTENTION_LENGTH_MOST = 1024,    /* numbers in a key */
    MD_ATTENTION_CLAUSES_MOST = 64,     /* of a question */
    MD_ATTENTION_HEADS_MOST = 16384,    /* of one call */
    MD_ATTENTION_WORK_BYTES = 32 << 20, /* for an arena: some 80 rows at once over 100,000 tokens */
};

/* The largest magnitude of scale * query: with it no sum over MD_ATTENTION_LENGTH_MOST products with f16 numbers leaves f32. */
#define MD_ATTENTION_QUERY_LIMIT 1e30F

struct md_attention_block {
    int32_t start;  /* position of its first token */
    int32_t tokens; /* 1 or more */
    bool candidate; /* false: counts for the share only */
};

struct md_attention_head {
    const float *queries; /* row r is queries[r * stride ...], `length` numbers */
    size_t stride;        /* numbers from one row to the next: heads * length as engines give them */
    float scale;          /* what the model multiplies q . k by; usually 1 / sqrt(length) */
};

/* Query heads that share one key head of one layer: its keys are widened to f32 for all of them at once. */
struct md_attention_group {
    const uint16_t *const
        *keys; /* of each block: [tokens][length] as f16 bits, as the rows stand (after RoPE) */
    size_t length;
    const struct md_attention_head *heads;
    size_t head_count;
};

/* Rows [first, end) of the question.  Clauses may overlap: each is scored for itself. */
struct md_attention_clause {
    size_t first, end;
};

struct md_attention_input {
    const struct md_attention_block *blocks; /* in any order; outputs are in this one */
    size_t block_count;
    const struct md_attention_group *groups;
    size_t group_count;
    size_t row_count;
    const int32_t
        *positions; /* of each row: it sees no token behind its own position.  NULL: it sees all of them */
    const struct md_attention_clause *clauses;
    size_t clause_count;
};

/* Arrays of the caller's, overwritten.  H = heads of all groups, in their order; C = clauses; T =
 * md_attention_tokens.
 *
 * mass   [H][C][T]  0 for tokens that are not candidates; a row that sees a candidate adds 1 in all, any other 0
 * peak   [H][C][T]  or NULL: not wanted, which is a little faster
 * share  [H][C]     mean over the clause's rows of what candidates have of all that the row sees here: 0..1 */
struct md_attention_scores {
    float *mass, *peak, *share;
};

/* T: tokens of all blocks. */
size_t md_attention_tokens(const struct md_attention_block *blocks, size_t count);

/* Work memory when `rows` query rows of one group are worked on at once (rounded up to 16; clauses are padded to
 * 8).  Most of it is 4 bytes for each row and candidate token. */
size_t md_attention_work_bytes(const struct md_attention_input *in, size_t rows);

/* Score.
 *
 * work  what is free in it decides how many rows are worked on at once, at least 16 and at most all: the fewer, the
 *       more often keys are widened.  The results are the same but for the last bits of sums.  Nothing in it is
 *       used after the call: the caller empties it
 *
 * MD_INVALID    no block, group, head, row or clause; a figure is outside the limits above; a clause is empty or
 *               outside the rows; a scale is not finite and above 0; scale * query is no number or beyond
 *               MD_ATTENTION_QUERY_LIMIT (the text names head and row)
 * MD_CORRUPT    a key is infinite or no number (the text names the block)
 * MD_NO_MEMORY  the arena has not even room for 16 rows (the text says how much that is)
 * State: what is in the outputs is undefined on MD_CORRUPT, untouched on the others.
 * Ties and order: the same arguments and the same room give the same bits on the same machine. */
MD_MUST_USE enum md_status md_attention_score(const struct md_attention_input *in, struct md_arena *work,
                                              const struct md_attention_scores *ret_scores,
                                              struct md_err *err);

#endif
