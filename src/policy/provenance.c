/* provenance.c - see provenance.h.  Digests are made from numbers as they lie in memory: for this machine's run. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "policy/provenance.h"

#include <assert.h>

/* Different seeds, so that a set and a pair of sets do not meet. */
enum { SET_SEED = 3, PAIR_SEED = 4 };

static uint64_t never_0(uint64_t digest)
{
    return digest != 0 ? digest : 1;
}

struct md_provenance md_provenance_worse(struct md_provenance earlier, struct md_provenance later)
{
    if (earlier.kind != later.kind)
        return earlier.kind > later.kind ? earlier : later;
    if (earlier.attended != later.attended) {
        uint64_t pair[] = { earlier.attended, later.attended };
        earlier.attended = never_0(XXH3_64bits_withSeed(pair, sizeof pair, PAIR_SEED));
    }
    return earlier;
}

static uint64_t with_run(const struct md_attended *a)
{
    uint64_t link[] = { a->digest, (uint32_t)a->run.start, (uint32_t)a->run.end };
    return XXH3_64bits_withSeed(link, sizeof link, SET_SEED);
}

void md_attended_add(struct md_attended *a, struct md_range r)
{
    assert(r.start >= a->run.end && r.end >= r.start);
    if (r.end == r.start)
        return;
    if (a->run.end == r.start && a->run.end > a->run.start) {
        a->run.end = r.end;
        return;
    }
    if (a->run.end > a->run.start)
        a->digest = with_run(a);
    a->run = r;
}

uint64_t md_attended_digest(const struct md_attended *a)
{
    return never_0(with_run(a)); /* the empty run of an empty set counts as well */
}
