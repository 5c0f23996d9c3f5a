/* retrieve.h - before an answer: which blocks do the tokens that ask attend to?  Those come in.
 *
 * The end of the last message, the *question*, is evaluated over the hot set as it is; its queries score all blocks of the
 * tape, hot and cold (mirror.h, policy/attention, score, select); those chosen come in; and the question is evaluated again, for it
 * has not seen them: as often as there are passes.  The answer attends what was chosen last, and keeps it to its end.
 *
 * Nothing of this happens where the whole context is hot anyway.  Where it cannot happen, the reason is told (md_pool_status), and
 * so is, for each answer, what was asked for and what was used: that attention chose nothing is never silent.
 *
 * Threads: one at a time (the worker's).
 * Source: the whole question, two passes, budget classes: the sources of policy/score.h and policy/select.h. */
#ifndef MD_SESSION_RETRIEVE_H
#define MD_SESSION_RETRIEVE_H

#include "policy/calibrate.h"
#include "policy/select.h"
#include "session/session.h"

struct md_attend;
struct md_pool_config;
struct md_turn;

enum { MD_RETRIEVE_ROWS = 256 }; /* tokens of a question, at most: its last ones */

struct md_retrieve_params {
    int32_t
        passes; /* of scoring, each followed by another evaluation of the question where it brings anything: 1 or more */
    int32_t rows; /* tokens of a question, 1 to MD_RETRIEVE_ROWS */
    struct md_calibrate_params heads;
    struct md_score_params score,
        score_measured; /* with heads spread over the band, and with measured ones */
    struct md_select_params select;
    struct md_select_shares shares;
};
/* 2, MD_RETRIEVE_ROWS, heads spread over the band, the others their own. */
struct md_retrieve_params md_retrieve_defaults(void);

/* Somebody who studies scores: told of each scoring, before anything is chosen by it.  All is borrowed for the call; either may
 * be NULL.
 *
 * in     what is scored; its groups have the heads in the order of `heads`
 * from   where the question begins; pass: 0, 1, ...
 * index  of each block of `in`: its number on the tape
 * judged: the same blocks' scores, when they are there */
struct md_retrieve_observer {
    void (*seen)(void *user, const struct md_attention_input *in, const struct md_calibrate_set *heads,
                 const size_t *index, int32_t from, int32_t pass);
    void (*judged)(void *user, const struct md_attention_block *blocks, const struct md_scores *scores,
                   int32_t pass);
    void *user;
};

struct md_retriever;

/* attend  borrowed; outlives it
 * MD_INVALID  a number of passes or rows out of its range; MD_NO_MEMORY */
MD_MUST_USE enum md_status md_retriever_open(const struct md_pool_config *config, struct md_attend *attend,
                                             struct md_retriever **ret_retriever, struct md_err *err);
void md_retriever_close(struct md_retriever *r); /* accepts NULL */
/* No effect on NULL. */
void md_retriever_observe(struct md_retriever *r, struct md_retrieve_observer observer);

/* Where the question begins for the answer that the turn is about, once that has begun; -1: nothing is to be retrieved.  Notes in
 * the turn's result whether it was due: a question of a few tokens, or a hot set without room for one, asks nothing. */
int32_t md_retrieve_from(struct md_turn *t);

/* Where the question of a turn begins that is the end of the last message, at most `rows` tokens: as many as one call of the engine
 * takes, and as can be hot together.  -1: those are too few to ask anything. */
int32_t md_retrieve_question(const struct md_turn *t, int32_t rows);

/* The tape ends where the question begins: evaluate it, with what it asks for.  An engine with a tail state (engine.h) goes
 * back by a checkpoint that is taken first and kept for the call; where there is no memory for it the question is evaluated
 * once over what is hot, and the turn's result says so (struct md_retrieval.skipped).  So it does when a scoring fails, be it for
 * memory: the answer then goes by what was hot so far.
 *
 * ret_logits  of its last token
 * Errors of md_drive_make_room and the engine. */
MD_MUST_USE enum md_status md_retrieve_evaluate(struct md_turn *t, int32_t from, const float **ret_logits,
                                                struct md_err *err);

#endif
