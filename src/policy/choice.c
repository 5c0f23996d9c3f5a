#include "policy/choice.h"

#include <assert.h>

static bool is_measured(struct md_choice_speed s)
{
    return s.prefill > 0 && s.decode > 0;
}

double md_choice_seconds(struct md_choice_speed speed, int32_t window_tokens)
{
    if (!is_measured(speed) || window_tokens <= 0)
        return 0;
    const double written = (double)window_tokens / MD_CHOICE_WRITTEN_ONE_IN;
    return ((double)window_tokens - written) / speed.prefill + written / speed.decode;
}

size_t md_choice_resolve(const struct md_choice_engine *engines, size_t count, enum md_choice_why *ret_why)
{
    size_t first = count, usable = 0;
    bool measured = true;
    assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        if (!engines[i].usable)
            continue;
        first = first == count ? i : first;
        measured = measured && is_measured(engines[i].speed);
        usable++;
    }
    *ret_why = usable == 0   ? MD_CHOICE_NONE
               : usable == 1 ? MD_CHOICE_ONLY
               : !measured   ? MD_CHOICE_UNMEASURED
                             : MD_CHOICE_EVEN;
    if (*ret_why != MD_CHOICE_EVEN)
        return usable == 0 ? 0 : first;
    /* the share of a window does not depend on its length: any will do */
    size_t best = first;
    for (size_t i = first + 1; i < count; i++)
        if (engines[i].usable &&
            md_choice_seconds(engines[i].speed, 1000) < md_choice_seconds(engines[best].speed, 1000))
            best = i;
    const double margin = 1 + MD_CHOICE_MARGIN_PERCENT / 100.0;
    if (best == first || md_choice_seconds(engines[best].speed, 1000) * margin >=
                             md_choice_seconds(engines[first].speed, 1000))
        return first;
    *ret_why = MD_CHOICE_FASTER;
    return best;
}
