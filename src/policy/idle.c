#include "policy/idle.h"

#include <assert.h>

static bool leaves_before(const struct md_idle_block *a, const struct md_idle_block *b)
{
    bool frees_a = a->own_cells > 0, frees_b = b->own_cells > 0;
    if (frees_a != frees_b)
        return frees_a;
    if (a->session_last_used != b->session_last_used)
        return a->session_last_used < b->session_last_used;
    if (a->session != b->session)
        return a->session < b->session;
    if (a->cls != b->cls)
        return a->cls > b->cls;
    return a->range.start > b->range.start;
}

size_t md_idle_victim(const struct md_idle_block *blocks, size_t count)
{
    size_t victim = count;
    for (size_t i = 0; i < count; i++) {
        assert(blocks[i].own_cells >= 0 && (unsigned)blocks[i].cls < MD_CLASS_COUNT);
        if (victim == count || leaves_before(&blocks[i], &blocks[victim]))
            victim = i;
    }
    return victim;
}
