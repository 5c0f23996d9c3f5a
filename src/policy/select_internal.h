/* select_internal.h - what select.c and select_prepare.c share. */
#ifndef MD_POLICY_SELECT_INTERNAL_H
#define MD_POLICY_SELECT_INTERNAL_H

#include "policy/select.h"

struct md_select_ranked {
    float score;
    uint32_t block;
    /* of what a clause names: */
    uint32_t clause;
    int32_t peak; /* of two clauses that name the same block by the same score, which is which */
};

/* For qsort: best first, then by block. */
int md_select_by_score(const void *a, const void *b);

struct md_select_work {
    const struct md_attention_block *places;
    const struct md_select_block *blocks;
    const struct md_scores *scores;
    const struct md_select_budget *budget;
    const struct md_select_params *params;
    size_t count;

    bool *excluded; /* a duplicate that stays out */
    float *listed;  /* what lists add, those over their cap and below the floor left out */
    float *judged;  /* the score: heads and lists; kept duplicates have the best of their text */
    float *clause;  /* [C][B]: the same of each clause, without lists */
    struct md_select_verdict *verdicts;
    struct md_select_ranked *ranked; /* [C][B]: work */
    float *sorted;                   /* work */

    int32_t limit, used; /* tokens of the phase, and of all so far */
    bool stopped;
    float stopped_at;
};

/* Checks everything, takes memory, and fills in excluded, listed, judged and clause.  Errors are those of md_select_blocks. */
MD_MUST_USE enum md_status md_select_prepare(struct md_select_work *w, struct md_arena *arena,
                                             struct md_err *err);

/* Whole tokens of a share. */
int32_t md_select_part(int32_t tokens, float share);

#endif
