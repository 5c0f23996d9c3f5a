/* profile.h - what was attended in earlier turns, as scores for md_residency_plan.  Pure: no engine, clock, lock or
 * I/O.
 *
 * A block's profile is the sum of its shares of the scores of each turn, halved from turn to turn.  It decides
 * which blocks that nobody asks for stay hot; it has no part in retrieval, where an old fact must count as much as
 * a new one. With no profile all scores are equal, and the planner goes by recency as it does without scores.
 *
 * Threads: any; touches nothing but its arguments.
 * Sources: accumulated attention 2306.14048 (H2O); decay within relevance loses old evidence (oldest quarter 1 of
 * 17 against 7): kvmem/kvmem-qw3 docs/kvmem_deltanet_retrieval_experimental.md.  The factor and the grace are this
 * project's. */
#ifndef MD_POLICY_PROFILE_H
#define MD_POLICY_PROFILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define MD_PROFILE_DECAY 0.5F

/* Its first scoring is the one that can judge it: a chunk of new text is half of what is not protected, so that with a second
 * one nothing but new text would stay. */
enum { MD_PROFILE_GRACE_TURNS = 1 };

/* One turn on: profile = decay * profile + score / sum of the scores above 0.  Scores of 0 or less add nothing, and
 * so does a turn without any above.
 *
 * profile  [count], of blocks that are new 0; changed in place
 *
 * MD_INVALID  decay is outside 0..1; a profile or score is no finite number, or a profile is beyond 1e30: profile
 *             is untouched */
MD_MUST_USE enum md_status md_profile_turn(float *profile, const float *scores, size_t count, float decay,
                                           struct md_err *err);

/* The share of a turn that a profile stands for: profile / (1 + decay + ... + decay^(turns - 1)), so that nothing is worth more for
 * having been there longer.  `turns` that it is of, 0: profile is.  decay as in md_profile_turn, within 0..1. */
float md_profile_mean(float profile, int32_t turns, float decay);

/* Scores for md_residency_plan.  A block younger than the grace has the highest profile of all, however little it
 * was attended: it has not had its turns yet.
 *
 * age_turns  turns since each block was new, 0 in its first; NULL: all are old
 * ret        [count]; finite when profiles are */
void md_profile_scores(const float *profile, const int32_t *age_turns, size_t count, int32_t grace_turns,
                       float *ret);

#endif
