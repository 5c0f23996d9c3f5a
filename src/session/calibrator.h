/* calibrator.h - measures which heads of the open model find things, in small steps, beside the conversations.
 *
 * Three haystacks (haystack.h) are prefilled one after the other, each whole and hot; on each its needles are asked for, and
 * nothing; the queries of a question and the keys of the haystack give what each head pays to needle and near-duplicate
 * (policy/attention.h), and policy/calibrate.h chooses.  Where no head tells a needle from its near-duplicate, tokens that
 * repeat are measured as well, and copying heads are chosen.
 *
 * It is a conversation that nobody sees: a tape and a drive of its own, so that cells are shared as among conversations.  It is
 * the first that makes way: between two steps it counts as unused for the longest.  What of it went cold comes back at the next
 * step, and what was lost is computed again.  Its text has names of its own in the cold store, and leaves it at the end.
 *
 * Cost: some 1,536 tokens for each haystack and 7 questions of some 40, once for each group of layers that fits WATCH bytes (one
 * for small models); keys of a group's layers for one haystack.
 *
 * Threads: one at a time (the session's worker). */
#ifndef MD_SESSION_CALIBRATOR_H
#define MD_SESSION_CALIBRATOR_H

#include "policy/calibrate.h"
#include "session/hot.h"
#include "text/text.h"

struct md_calibrator;

/* Can heads of this engine be measured at all?  For who would otherwise wait for it.
 *
 * MD_UNSUPPORTED  it gives no scores of attention, cannot go back to where a question begins, or attends long text in parts only */
MD_MUST_USE enum md_status md_calibrator_check(const struct md_engine *e, struct md_err *err);

/* hot and text are borrowed and must outlive it.
 *
 * MD_UNSUPPORTED  as md_calibrator_check
 * MD_TOO_LARGE    the hot set or the trained window has no room for a haystack of MD_HAYSTACK_LEAST tokens and a question; the
 *                 text has the numbers
 * MD_NO_MEMORY */
MD_MUST_USE enum md_status md_calibrator_open(struct md_hot *hot, const struct md_text *text,
                                              int32_t block_tokens, struct md_calibrator **ret_calibrator,
                                              struct md_err *err);
/* What it has hot and cold goes.  Accepts NULL. */
void md_calibrator_close(struct md_calibrator *c);

/* Go on by a step: texts made tokens, a chunk prefilled, or a question asked of a group of layers.
 *
 * wanted    polled while the engine computes; true: somebody waits, end soon.  NULL: nobody does
 * ret_done  nothing is left to do: md_calibrator_result
 *
 * MD_CANCELLED      `wanted` said so; this step is done again by the next call
 * MD_NOT_FOUND      no head finds anything, copying heads neither
 * MD_TOO_LARGE      the texts do not fit (md_haystack_build), or are no longer than the first block
 * MD_UNSUPPORTED    the tokenizer makes nothing of them
 * MD_BUSY           its text was lost too often to come to an end
 * MD_SESSION_FATAL  the engine lost this sequence; others of the engine: it cannot go on
 * After any but MD_OK and MD_CANCELLED only close is of use.  The conversations are in order whatever happens. */
MD_MUST_USE enum md_status md_calibrator_step(struct md_calibrator *c, bool (*wanted)(void *user), void *user,
                                              bool *ret_done, struct md_err *err);

/* Share of the work that is done. */
int md_calibrator_percent(const struct md_calibrator *c);
/* After the last step. */
const struct md_calibrate_set *md_calibrator_result(const struct md_calibrator *c);
/* All heads that were measured, in the order of layers; of the contrast, and of copying where that was needed. */
const struct md_calibrate_measure *md_calibrator_measures(const struct md_calibrator *c, size_t *ret_count);

#endif
