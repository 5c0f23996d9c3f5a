/* provenance.h - how the KV of a block came to be, which says how far it may be trusted.  Pure values.
 *
 * KV of a token depends on everything the token attended while it was computed, and each of those on what it
 * attended.  So a block is no better than the worst of the blocks it was computed over.
 *
 * Threads: any; touches nothing but its arguments.  Source: the kinds and their order are this project's. */
#ifndef MD_POLICY_PROVENANCE_H
#define MD_POLICY_PROVENANCE_H

#include "base/types.h"

/* Higher is worse. */
enum md_provenance_kind {
    MD_PROVENANCE_FULL, /* everything before it was attended: exact                                      */
    MD_PROVENANCE_BOUNDED, /* only a part was, because the rest was cold or the engine left out what hardly counts
                              (md_engine_info.xattention), or all of it, but some of that was bounded       */
    MD_PROVENANCE_APPROXIMATE, /* its positions were re-based, or it was computed behind another text, or over
                                  KV of which that is true                                                      */
    MD_PROVENANCE_COUNT
};

/* Zeroed: full. */
struct md_provenance {
    enum md_provenance_kind kind;
    uint64_t
        attended; /* digest of what was hot before the block when it was computed, also where less of it was attended; 0
                     when full, and only then */
};

/* Is it of this kind or a better one? */
static inline bool md_provenance_accepted(struct md_provenance have, enum md_provenance_kind floor)
{
    return have.kind <= floor;
}

/* That of a block made of two parts, `earlier` before or under `later`: the worse of them.  Of two of one kind
 * that attended different sets, a digest of both. */
struct md_provenance md_provenance_worse(struct md_provenance earlier, struct md_provenance later);

/* Digest of a set of positions, given as ranges.  The same set has the same digest however it is cut: ranges
 * that touch are one.  Never 0, not for the empty set either.  Begins zeroed. */
struct md_attended {
    uint64_t digest; /* of the ranges before `run` */
    struct md_range run;
};
/* Add a range; at or behind all before it (assert).  An empty one is nothing. */
void md_attended_add(struct md_attended *a, struct md_range r);
uint64_t md_attended_digest(const struct md_attended *a);

#endif
