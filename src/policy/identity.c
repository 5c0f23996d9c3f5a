#include "policy/identity.h"

#include <assert.h>

static bool may_continue(const struct md_identity_candidate *c)
{
    if (c->tape == 0)
        return false;
    if (c->common == c->tape)
        return true;
    return c->anchor > 0 ? c->common >= c->anchor : c->common >= c->tape - c->common;
}

static bool shares_more(const struct md_identity_candidate *a, const struct md_identity_candidate *b)
{
    return a->common != b->common ? a->common > b->common : a->last_used > b->last_used;
}

struct md_identity md_identity_of(const struct md_identity_candidate *candidates, size_t count)
{
    size_t nearest = count, continued = count;
    for (size_t i = 0; i < count; i++) {
        const struct md_identity_candidate *c = &candidates[i];
        assert(c->common >= 0 && c->common <= c->tape && c->anchor >= 0);
        if (c->common > 0 && (nearest == count || shares_more(c, &candidates[nearest])))
            nearest = i;
        if (may_continue(c) && (continued == count || shares_more(c, &candidates[continued])))
            continued = i;
    }
    bool is_new = continued == count;
    return (struct md_identity){ .is_new = is_new, .candidate = is_new ? nearest : continued };
}
