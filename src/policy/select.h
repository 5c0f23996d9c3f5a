/* select.h - which blocks the scores bring in.  Pure: no engine, clock, lock or I/O.
 *
 * In: scores of policy/score, blocks, and how many tokens each class of the hot budget has.  Out: for each block
 * wanted or not, and why.  Wanted blocks are what md_residency_plan gets as MD_BLOCK_RETRIEVED; protected ones
 * (sink, recent, pinned) are never candidates here, and the budgets are of what they leave.
 *
 * Retrieval, in this order, until its tokens are used up:
 *   1. several clauses take turns: in each round each clause names its best block that is not in yet, and the
 *      round's blocks go in by score; up to clause_frac of the tokens.  So no clause takes all, and their order
 *      does not matter
 *   2. the best blocks of all, until the next one's score is below stop_frac of the median of those that are in:
 *      fewer blocks are fewer distractors
 *   A block whose attention is highest near a border brings that neighbour with it, the right one first: what an
 *   answer needs was cut there.
 *   3. an incumbent (wanted last time) that is out stays in place of the weakest newcomer unless that one is better
 *      by margin_frac, or the incumbent is out for the beaten_most-th time in a row; where there is room it stays
 *      as long
 * Then the newest blocks get the tokens of recency, and those with the best profile (policy/profile) its.
 *
 * Nothing is skipped for being too large: where a block does not fit, that phase ends.  So, with blocks of one
 * size, budgets of whole blocks, clause_frac 0, 1/2 or 1, and no lists, duplicates or incumbents, more retrieval
 * never drops a block.  Otherwise it may drop some: a larger budget lets clauses or lists have more, or another
 * copy.
 *
 * Deterministic: ties go to the lower index, and permuting the clauses changes nothing.
 *
 * Threads: any; touches nothing but its arguments.
 * Sources: budget classes and hard set: kvmem/kvmem-qw3 docs/kvmem_known_issues.md (KVMI-001); neighbours before
 * anything else: the same, KVMI-007; a set made for one question does not serve the next, so clauses take turns:
 * 2412.10319 (SCBench), 2505.23416 (KVzip); fewer distractors 2605.10828.  Shares, margins and the stop are this
 * project's, to be measured. */
#ifndef MD_POLICY_SELECT_H
#define MD_POLICY_SELECT_H

#include "base/err.h"
#include "base/mem.h"
#include "policy/score.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- budget classes ---- */

struct md_select_shares {
    float retrieval, recency, profile; /* of what protected blocks leave; together at most 1 */
    bool rest; /* what no class has goes to retrieval too; else the planner fills it as it always does */
};

/* 0.4, 0.2, 0.15, true: the rest is for the best. */
struct md_select_shares md_select_shares_defaults(void);

/* Tokens of each class. */
struct md_select_budget {
    int32_t retrieval, recency, profile;
};

/* hot_tokens  the whole hot set, room for an answer taken off by the caller; protected_tokens: of md_residency_plan
 *
 * When protected blocks take all, every class has 0 tokens.
 * MD_INVALID  a size is below 0, a share is outside 0..1, or they are more than 1 together */
MD_MUST_USE enum md_status md_select_budget(int32_t hot_tokens, int32_t protected_tokens,
                                            const struct md_select_shares *shares,
                                            struct md_select_budget *ret_budget, struct md_err *err);

/* ---- selection ---- */

struct md_select_params {
    float clause_frac;        /* of retrieval, for taking turns; with one clause there are none */
    int32_t neighbour_tokens; /* how near a border the highest token must be; 0: no neighbours */
    float stop_frac;          /* 0: never stops early */
    float margin_frac;        /* 0: incumbents have no advantage */
    int32_t beaten_most;      /* 1: a beaten incumbent leaves at once */
    bool drop_duplicates;     /* of blocks with the same text only the first and the newest may come in */
    float list_cap_frac;      /* of retrieval, for blocks that lists alone put there */
    float list_floor;         /* what a block must have of the heads for a list to count; 0: nothing */
};

/* 0.5, 24, 0, 0.15, 2, true, 0.25, 0: sums of mass fall off so steeply that any part of the median ends too soon */
struct md_select_params md_select_defaults(void);

struct md_select_block {
    bool incumbent; /* it was wanted last time */
    int32_t beaten; /* as the last selection gave it out */
    uint64_t
        text; /* hash of its tokens and their count; 0: not known.  Equal is taken for equal text: the worst of a wrong
                       guess is a block left out */
    float profile; /* policy/profile; 0 or less: none */
};

#define MD_SELECT_WHY_LIST(X)                                                                 \
    X(SCORE, "score")         /* wanted: one of the best                                  */  \
    X(CLAUSE, "clause")       /* a clause named it                                        */  \
    X(NEIGHBOUR, "neighbour") /* the highest token of the block beside it is at the border */ \
    X(LISTED, "listed")       /* a list more than the heads put it there                  */  \
    X(INCUMBENT, "incumbent") /* no challenger was better by the margin                   */  \
    X(RECENT, "recent")       /* among the newest                                         */  \
    X(PROFILE, "profile")     /* much attended in earlier turns                           */  \
    X(PROTECTED, "protected") /* not wanted from here on: no candidate, hot without us    */  \
    X(DUPLICATE, "duplicate") /* its text comes in with another block                     */  \
    X(NO_SCORE, "no score")   /* nothing pays attention to it                             */  \
    X(LOW, "low")             /* too far below those that are in                          */  \
    X(NO_ROOM, "no room")     /* the budget ended before it                               */  \
    X(DISPLACED, "displaced") /* an incumbent stayed in its place                         */

enum md_select_why {
#define X(name, text) MD_SELECT_##name,
    MD_SELECT_WHY_LIST(X)
#undef X
        MD_SELECT_WHY_COUNT
};

/* "score", "no room", ...: for what is shown. */
const char *md_select_why_text(enum md_select_why why);

struct md_select_verdict {
    bool wanted;
    enum md_select_why why;
    float score;    /* by which it was judged: a neighbour has that of the block that brought it */
    int32_t beaten; /* for the next selection: how often in a row an incumbent was out by score */
};

struct md_selection {
    struct md_select_verdict *blocks;    /* [count], owned by the arena */
    size_t counts[MD_SELECT_WHY_COUNT];  /* blocks by why */
    struct md_select_budget asked, used; /* tokens */
    size_t heads_asked, heads_used;      /* as the scores say: 0 used means that attention chose nothing */
    size_t clauses;
    bool stopped; /* by stop_frac, with tokens left */
};

/* Select.
 *
 * places  as scored: range and candidate (false: protected)
 * blocks  as many, scores->block_count
 * arena   owns ret_selection->blocks and work memory: some 45 bytes a block, and 20 for each clause and block
 *
 * MD_INVALID    a budget is below 0; a parameter is outside its range; a profile is no finite number; beaten is
 *               below 0
 * MD_NO_MEMORY  the arena is full
 * State: ret_selection untouched on failure. */
MD_MUST_USE enum md_status md_select_blocks(const struct md_attention_block *places,
                                            const struct md_select_block *blocks,
                                            const struct md_scores *scores,
                                            const struct md_select_budget *budget,
                                            const struct md_select_params *params, struct md_arena *arena,
                                            struct md_selection *ret_selection, struct md_err *err);

#endif
