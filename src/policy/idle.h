/* idle.h - which block of the conversations that are not live leaves next, when the live one needs its cells.  Pure.
 *
 * Threads: any; touches nothing but its arguments.  Source: longest unused first, the whole of it before the next. */
#ifndef MD_POLICY_IDLE_H
#define MD_POLICY_IDLE_H

#include "base/types.h"
#include "policy/residency.h"

/* A hot block of a session that is not live. */
struct md_idle_block {
    size_t session;            /* any number that names it */
    int64_t session_last_used; /* any clock; the same in all blocks of a session */
    enum md_cache_class cls;
    struct md_range range;
    int32_t own_cells; /* cells that are free once this block, and no other, has left: those nobody shares */
};

/* The next one to leave; count when there is none.  Of those that free cells: of the session longest unused (of two
 * the lower number); of that the more evictable class; of that the last one, for beginnings are what others may share.
 * Blocks that free nothing come after all others, in the same order.
 *
 * One at a time, for with each the rest may change: when a block leaves that had fewer own cells than tokens, those
 * that shared its cells own them now, or share them with fewer.  So the caller takes it out, counts anew what they
 * own, and asks again until it has the cells it needs.  Each block is named once at most, so this ends.  What the
 * live session shares frees nothing, whoever leaves, and is among the last. */
size_t md_idle_victim(const struct md_idle_block *blocks, size_t count);

#endif
