/* observe.h - eviction by attention (T2): what the newest tokens attend to stays hot.
 *
 * Each scoring adds to the profiles of a conversation's blocks (policy/profile: halved from scoring to scoring) the shares of the
 * attention that some tokens, the last ones of an evaluation, pay to those that may leave.  The plan lets the lowest go first,
 * within a class (md_tape_scores, policy/residency).  There are two kinds:
 *
 * - While a prompt is read, after a chunk behind which blocks must leave: its last MD_OBSERVE_ROWS tokens score the blocks that
 *   are hot, so that it costs (tokens x hot set) as the prefill itself does.  What the plan then lets go is put aside: its score
 *   brings it in no more, only room that nothing else takes.  So between two questions a block leaves once at most.
 * - Before an answer, where not all can be hot: the end of the last message, as retrieve.h has it, scores all blocks, hot and
 *   cold, nothing is aside any more, and the plan that follows may bring cold ones in.  Where attention also retrieves, its first
 *   scoring is that.
 *
 * Profiles are the session's and of what was observed in this process: a restart, a restored snapshot and a branch begin without,
 * and go by recency (exactly as T1) until the next scoring.  A scoring that fails leaves the profiles as they were, is counted
 * and logged, and the call goes on.
 *
 * Threads: one at a time (the worker's).
 * Source: accumulated attention 2306.14048 (H2O); the last tokens as a window of observation 2404.14469 (SnapKV).  That cold blocks
 * come back at a question is this project's: nothing is thrown away here. */
#ifndef MD_SESSION_OBSERVE_H
#define MD_SESSION_OBSERVE_H

#include "session/attend.h"

struct md_turn;

enum { MD_OBSERVE_ROWS = 16 }; /* of a chunk: enough to agree, few enough to cost next to nothing */

/* A chunk of `count` of `todo` tokens is evaluated next: shall it be observed?  Then the engine keeps its queries. */
void md_observe_before(struct md_turn *t, int32_t count, int32_t todo);
/* It was: score.  MD_SESSION_FATAL. */
MD_MUST_USE enum md_status md_observe_after(struct md_turn *t, struct md_err *err);
/* It was not: nothing is kept any more. */
void md_observe_drop(struct md_turn *t);

/* The call is over: what it took, for the log. */
void md_observe_report(const struct md_turn *t);

/* Where the question begins that is to be observed before the answer that the turn is about; -1: none is. */
int32_t md_observe_from(const struct md_turn *t);
/* The tape ends where the question begins: bring it to the context but for its last token, with what that shall attend.  What is
 * lost stays so until the next turn.  Errors of md_drive_make_room and the engine. */
MD_MUST_USE enum md_status md_observe_question(struct md_turn *t, struct md_err *err);

/* The question was scored for retrieval: q is weighed.  MD_SESSION_FATAL. */
MD_MUST_USE enum md_status md_observe_retrieval(struct md_turn *t, struct md_attend_round *q,
                                                struct md_err *err);

#endif
