/* hot.c - see hot.h. */
#include "session/hot.h"

#include "policy/prefix.h"

#include <assert.h>

/* ---- blocks that several have ---- */

/* Tokens of block i of d that come first and are those of the range, when both stand behind the same text. */
static int32_t common_tokens(const struct md_drive *d, size_t i, struct md_key parent, const md_token *tokens,
                             int32_t count)
{
    if (i >= md_tape_block_count(d->tape) || !md_key_equal(md_tape_parent_key(d->tape, i), parent))
        return 0;
    struct md_range r = md_tape_range(d->tape, i);
    return (int32_t)md_prefix_common(d->tape->tokens + r.start, (size_t)md_range_len(r), tokens,
                                     (size_t)count);
}

struct md_hot_match md_hot_best(const struct md_hot *h, const struct md_drive *d, struct md_key parent,
                                int32_t start, const md_token *tokens, int32_t count)
{
    struct md_hot_match best = { 0 };
    if (!(md_engine_caps(h->engine) & MD_CAP_SHARE))
        return best;
    size_t i = (size_t)(start / d->tape->block_tokens);
    for (const struct md_drive *o = h->drives; o != NULL; o = o->next) {
        if (o == d || o->seq < 0 || i >= md_tape_block_count(o->tape))
            continue;
        const struct md_tape_block *b = &o->tape->blocks[i];
        if (b->state != MD_STATE_HOT || b->moved_by != 0 || !md_provenance_accepted(b->provenance, h->floor))
            continue;
        int32_t common = common_tokens(o, i, parent, tokens, count);
        if (common < best.common || common == 0 ||
            (common == best.common && b->provenance.kind >= best.provenance.kind))
            continue;
        struct md_range r = md_tape_range(o->tape, i);
        best = (struct md_hot_match){ .drive = o,
                                      .tokens = o->tape->tokens + r.start,
                                      .count = md_range_len(r),
                                      .common = common,
                                      .provenance = b->provenance };
    }
    return best;
}

bool md_hot_is_wanted(const struct md_hot *h, const struct md_drive *d, const struct md_cold_ref *ref)
{
    size_t i = (size_t)(ref->range.start / d->tape->block_tokens);
    int32_t count = md_range_len(ref->range);
    for (const struct md_drive *o = h->drives; o != NULL; o = o->next)
        if (o != d && common_tokens(o, i, ref->parent, ref->tokens, count) == count)
            return true;
    return false;
}
