/* profile.c - see profile.h. */
#include "policy/profile.h"

#include <assert.h>
#include <math.h>

enum md_status md_profile_turn(float *profile, const float *scores, size_t count, float decay,
                               struct md_err *err)
{
    if (!(decay >= 0 && decay <= 1))
        return md_fail(err, MD_INVALID, "decay of profiles is not within 0 and 1: %g", (double)decay);
    double sum = 0;
    for (size_t b = 0; b < count; b++) {
        /* a profile grows by at most 1 a turn */
        if (!isfinite(scores[b]) || !(fabsf(profile[b]) <= 1e30F))
            return md_fail(err, MD_INVALID, "profile or score of block %zu is no finite number: %g, %g", b,
                           (double)profile[b], (double)scores[b]);
        sum += scores[b] > 0 ? (double)scores[b] : 0;
    }
    for (size_t b = 0; b < count; b++)
        profile[b] =
            (float)((double)decay * (double)profile[b] + (scores[b] > 0 ? (double)scores[b] / sum : 0));
    return MD_OK;
}

float md_profile_mean(float profile, int32_t turns, float decay)
{
    enum { TURNS_MOST = 1024 }; /* with a decay of 1, which nobody has, more count as so many */
    double weight = 0, each = 1;
    assert(decay >= 0 && decay <= 1);
    for (int32_t i = 0; i < turns && i < TURNS_MOST && each > 1e-9; i++, each *= (double)decay)
        weight += each;
    return turns > 0 ? (float)((double)profile / weight) : profile;
}

void md_profile_scores(const float *profile, const int32_t *age_turns, size_t count, int32_t grace_turns,
                       float *ret)
{
    float most = 0;
    for (size_t b = 0; b < count; b++)
        most = profile[b] > most ? profile[b] : most;
    for (size_t b = 0; b < count; b++)
        ret[b] = age_turns != NULL && age_turns[b] < grace_turns ? most : profile[b];
}
