/* checkpoint.c - see checkpoint.h. */
#include "policy/checkpoint.h"

#include <assert.h>

int32_t md_checkpoint_next(int32_t last, int32_t from, int32_t limit, int32_t distance, const int32_t *ends,
                           size_t count)
{
    assert(last <= from && from <= limit && distance > 0);
    int32_t due = distance < limit - last ? last + distance : limit;
    if (due <= from) /* it should have been taken before: at the next chance */
        due = from < limit ? from + 1 : limit;
    for (size_t i = 0; i < count && ends[i] <= due; i++)
        if (ends[i] > from && ends[i] - last >= md_checkpoint_least(distance))
            return ends[i];
    return due;
}
