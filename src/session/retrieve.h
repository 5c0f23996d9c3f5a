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
#include "session/mirror.h"
#include "session/session.h"

struct md_pool_config;
struct md_turn;

enum { MD_RETRIEVE_ROWS = 256 }; /* tokens of a question, at most: its last ones */

struct md_retrieve_params {
    int32_t
        passes; /* of scoring, each followed by another evaluation of the question where it brings anything: 1 or more */
    int32_t rows; /* tokens of a question, 1 to MD_RETRIEVE_ROWS */
    struct md_calibrate_params heads;
    struct md_score_params score;
    struct md_select_params select;
    struct md_select_shares shares;
};
/* 2, MD_RETRIEVE_ROWS, heads spread over the band, the others their own. */
struct md_retrieve_params md_retrieve_defaults(void);

/* Somebody who studies scores: told of each scoring, before anything is chosen by it.  All is borrowed for the call.
 *
 * in     what was scored; its groups have the heads in the order of `heads`
 * from   where the question begins; pass: 0, 1, ...
 * index  of each block of `in`: its number on the tape */
struct md_retrieve_observer {
    void (*seen)(void *user, const struct md_attention_input *in, const struct md_calibrate_set *heads,
                 const size_t *index, int32_t from, int32_t pass);
    void *user;
};

struct md_retriever;

/* Open it for an engine, or say why there is none.
 *
 * ret_why  static text, where *ret_retriever is NULL and the status MD_OK: this engine or configuration has none
 * MD_INVALID  a number of passes, rows or heads out of its range; MD_NO_MEMORY */
MD_MUST_USE enum md_status md_retriever_open(const struct md_pool_config *config,
                                             const struct md_engine *engine,
                                             struct md_retriever **ret_retriever, const char **ret_why,
                                             struct md_err *err);
void md_retriever_close(struct md_retriever *r); /* accepts NULL */
/* Which heads score from now on.  Keys of their layers are read out of KV again as they are asked for, within the budget there
 * was; what the last answer chose stays chosen and keeps its advantage, for it says what was hot, not which head said so.
 *
 * set  copied
 * MD_INVALID    it has none, or one that this engine does not give; the text says which
 * MD_NO_MEMORY
 * State: on failure as before. */
MD_MUST_USE enum md_status md_retriever_use(struct md_retriever *r, const struct md_engine *engine,
                                            const struct md_calibrate_set *set, struct md_err *err);
/* The set that is in use; NULL: there is no retriever. */
const struct md_calibrate_set *md_retriever_heads(const struct md_retriever *r);
/* NULL seen: nobody.  No effect on NULL. */
void md_retriever_observe(struct md_retriever *r, struct md_retrieve_observer observer);
struct md_mirror_stats md_retriever_mirror(const struct md_retriever *r);

/* Where the question begins for the answer that the turn is about, once that has begun; -1: nothing is to be retrieved.  Notes in
 * the turn's result whether it was due: a question of a few tokens, or a hot set without room for one, asks nothing. */
int32_t md_retrieve_from(struct md_turn *t);

/* The tape ends where the question begins: evaluate it, with what it asks for.
 *
 * ret_logits  of its last token
 * Errors of md_drive_make_room and the engine. */
MD_MUST_USE enum md_status md_retrieve_evaluate(struct md_turn *t, int32_t from, const float **ret_logits,
                                                struct md_err *err);

#endif
