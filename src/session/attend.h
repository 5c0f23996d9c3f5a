/* attend.h - what the last tokens of a conversation pay to its blocks: the heads that are asked, the keys of blocks kept for
 * them, and one scoring after the other.
 *
 * One for all conversations of a pool.  Who retrieves (retrieve.h) and who evicts by attention (observe.h) both ask it: they
 * decide what becomes of the scores, and this file of nothing.
 *
 *     watch -> a prefill or decode -> begin -> gather -> weigh -> score -> end
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_ATTEND_H
#define MD_SESSION_ATTEND_H

#include "policy/attention.h"
#include "policy/calibrate.h"
#include "policy/score.h"
#include "session/mirror.h"

struct md_attend;
struct md_attention_layer;
struct md_pool_config;
struct md_session;

/* May heads of this layer score?  A windowed one attends nothing that is far, and an engine may not export its keys. */
bool md_attend_is_scored(const struct md_attention_layer *l);

/* Open it for an engine, or say why there is none.
 *
 * heads    which ones are asked
 * ret_why  static text, where *ret_attend is NULL and the status MD_OK: this engine or configuration has none; else NULL
 * MD_INVALID  a number of heads out of its range; MD_NO_MEMORY */
MD_MUST_USE enum md_status md_attend_open(const struct md_pool_config *config, struct md_engine *engine,
                                          const struct md_calibrate_params *heads,
                                          struct md_attend **ret_attend, const char **ret_why,
                                          struct md_err *err);
void md_attend_close(struct md_attend *a); /* accepts NULL */
/* Which heads are asked from now on.  Keys of their layers are read out of KV again as they are asked for, within the budget there
 * was; what the last answer chose stays chosen and keeps its advantage, and profiles stay: they say what was attended, not which
 * head said so.
 *
 * set  copied
 * MD_INVALID    it has none, or one that this engine does not give; the text says which
 * MD_NO_MEMORY
 * State: on failure as before. */
MD_MUST_USE enum md_status md_attend_use(struct md_attend *a, const struct md_calibrate_set *set,
                                         struct md_err *err);
const struct md_calibrate_set *md_attend_heads(
    const struct md_attend *a); /* its own, until it is closed; of NULL: NULL */
struct md_mirror_stats md_attend_mirror(const struct md_attend *a); /* of NULL: zeroed */

/* From now on the engine keeps queries of these heads' layers, or none any more.  Errors of md_engine_watch. */
MD_MUST_USE enum md_status md_attend_watch(struct md_attend *a, struct md_err *err);
void md_attend_ignore(struct md_attend *a);

/* One scoring: the tokens from `from` to the end of the tape, all of the engine's last call, against whole blocks before them. */
struct md_attend_round {
    struct md_attend *attend;
    struct md_session *s;
    int32_t from;
    struct md_attention_block *places; /* blocks that have keys, in the order of the tape */
    size_t *index;                     /* of each: its number on the tape */
    size_t count;
    int32_t unscored;             /* blocks whose keys could not be had, or had no room */
    struct md_attention_input in; /* heads in the order of md_attend_heads() */
    const size_t *clause_rows;    /* of each of its clauses */
    struct md_attention_scores masses;
    const uint16_t **keys; /* of each block, all layers */
    struct md_arena arena, work;
};

void md_attend_begin(struct md_attend_round *q, struct md_attend *a, struct md_session *s, int32_t from);
/* Find the blocks and their keys.
 *
 * cold_too  also those that are not hot
 * Blocks that are held out by hand have no part.  Candidates are those that may leave or come: neither sinks, nor of the recent
 * window, nor pinned.
 * MD_NO_MEMORY, MD_SESSION_FATAL; a block whose keys cannot be had counts as unscored */
MD_MUST_USE enum md_status md_attend_gather(struct md_attend_round *q, bool cold_too, struct md_err *err);
/* What each head pays to each token; there is a block.
 *
 * clauses  parts of the rows, each scored for itself; none: all rows are one
 * Errors of md_engine_queries and md_attention_score. */
MD_MUST_USE enum md_status md_attend_weigh(struct md_attend_round *q,
                                           const struct md_attention_clause *clauses, size_t count,
                                           struct md_err *err);
/* Scores of the blocks, in the arena of the round.  Errors of md_score_blocks. */
MD_MUST_USE enum md_status md_attend_score(struct md_attend_round *q, const struct md_score_params *params,
                                           struct md_scores *ret_scores, struct md_err *err);
void md_attend_end(struct md_attend_round *q); /* frees what it took; accepts one that failed */

/* Hot whatever is chosen, as md_residency_plan will find. */
bool md_attend_is_protected(const struct md_session *s, size_t block);

#endif
