/* coldstore.h - index and budget of the host cold store.  Pure: it knows what is stored and what must
 * go, never the bytes; session/cold.c owns those.
 *
 * An entry is one block's KV, found by chain key.  A hit is proven by comparing tokens, parent key and
 * start; a key that matches where they do not is a miss and is counted.  A look-up with a floor sees no
 * entry of a worse kind (provenance.h).  The budget counts what an entry really costs (bytes of KV, tokens,
 * headers) and is asked *before* memory is taken: used <= budget always holds, at every moment.
 *
 * Room is made by dropping the most evictable class first, within it the longest unused; an entry is
 * never dropped for one of a more evictable class (a churny volatile block displaces no task_pinned one).  One that
 * is held (md_coldstore_hold) is not dropped for any.
 *
 * Threads: one at a time.  Source: class before age is this
 * project's rule; cases B052, B070, B072, B073. */
#ifndef MD_POLICY_COLDSTORE_H
#define MD_POLICY_COLDSTORE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "policy/provenance.h"
#include "policy/residency.h"

enum md_coldstore_table { MD_BY_KEY, MD_BY_PARENT, MD_BY_CONTENT, MD_COLDSTORE_TABLES };

enum {
    /* What the index takes for an entry at most: a table has a pointer for each, and three while it doubles. */
    MD_COLDSTORE_INDEX_BYTES = MD_COLDSTORE_TABLES * 3 * sizeof(void *)
};

/* Embedded first in the caller's own struct, which carries the bytes.  The caller fills the upper part
 * and owns the memory; it must not move while it is in the index. */
struct md_cold_entry {
    struct md_key key, parent;
    int32_t start; /* position of the first token */
    const md_token *tokens;
    int32_t token_count;
    enum md_cache_class cls;
    struct md_provenance provenance;
    bool
        is_state; /* a checkpoint, which has no tokens of its own: it is found by its place, not by its content */
    size_t bytes;      /* what it costs the budget, headers counted */
    int32_t holds;     /* by how many it is held: above 0 it is nobody's victim; 0 at first */
    int64_t last_used; /* set by put and touch */
    /* the index's own */
    uint64_t content; /* content key of the tokens */
    struct md_cold_entry *next[MD_COLDSTORE_TABLES], *older, *newer;
};

struct md_coldstore_stats {
    size_t budget_bytes, used_bytes, peak_bytes; /* used: by entries; peak: with what was reserved */
    size_t reserved_bytes;                       /* of the budget, for what is no entry */
    size_t held_bytes;                           /* used, by entries that are held */
    int64_t entry_count, token_count;            /* now; tokens of blocks, not of checkpoints */
    int64_t stored, refused, dropped, hits, misses, collisions; /* since open */
};

struct md_coldstore;

/* budget_bytes 0 stores nothing.  MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_coldstore_open(const struct md_alloc *alloc, size_t budget_bytes,
                                             struct md_coldstore **ret_store, struct md_err *err);
/* The index must be empty (assert): take the entries out first with md_coldstore_any. */
void md_coldstore_close(struct md_coldstore *c); /* accepts NULL */

/* Would `bytes` of class cls fit, if the entries that may go for it went? */
bool md_coldstore_can_fit(const struct md_coldstore *c, size_t bytes, enum md_cache_class cls);
/* The next entry that must go before `bytes` of class cls fit; NULL when they fit now (or never will:
 * ask can_fit first).  The caller removes it, frees it, and asks again. */
struct md_cold_entry *md_coldstore_victim(const struct md_coldstore *c, size_t bytes,
                                          enum md_cache_class cls);

/* Take so many bytes of the budget, in all, for what is no entry and never goes.  They must be free (assert): ask victim
 * first, with what they are more than before. */
void md_coldstore_reserve(struct md_coldstore *c, size_t bytes);

/* Add a filled entry; counts as used now.
 *
 * MD_NO_MEMORY  it does not fit as things are, or the table could not grow: not added, counted refused
 * MD_INVALID    the same block (key, parent, start, tokens) is there already: not added */
MD_MUST_USE enum md_status md_coldstore_put(struct md_coldstore *c, struct md_cold_entry *entry,
                                            struct md_err *err);
/* The entry of this block or NULL; counts a hit, a miss, or a collision and a miss. */
struct md_cold_entry *md_coldstore_find(struct md_coldstore *c, struct md_key key, struct md_key parent,
                                        int32_t start, const md_token *tokens, int32_t token_count,
                                        enum md_provenance_kind floor);
/* As find, but of any provenance, and counts nothing. */
struct md_cold_entry *md_coldstore_peek(const struct md_coldstore *c, struct md_key key, struct md_key parent,
                                        int32_t start, const md_token *tokens, int32_t token_count);
/* Of the blocks that begin at `start` behind `parent`, the one that shares the most tokens with `tokens` from its
 * first on: for a history that leaves a known one inside a block.  NULL when none shares any.  Counts nothing.
 *
 * ret_common  how many; 1..min(token_count, that of the entry) */
struct md_cold_entry *md_coldstore_best(const struct md_coldstore *c, struct md_key parent, int32_t start,
                                        const md_token *tokens, int32_t token_count,
                                        enum md_provenance_kind floor, int32_t *ret_common);
/* Of the entries that begin at `start` behind `parent`, the longest that these tokens begin with; NULL: none.  Counts
 * nothing. */
struct md_cold_entry *md_coldstore_within(const struct md_coldstore *c, struct md_key parent, int32_t start,
                                          const md_token *tokens, int32_t token_count,
                                          enum md_provenance_kind floor);
/* An entry with exactly these tokens, wherever they stood, or NULL: of the best kind; of those the one that began
 * nearest to prefer_start; of those the one used last.  Counts a collision when the content key was there with other
 * tokens only, and else nothing: a search through a text misses at most of its places. */
struct md_cold_entry *md_coldstore_by_content(struct md_coldstore *c, uint64_t content,
                                              const md_token *tokens, int32_t token_count,
                                              int32_t prefer_start, enum md_provenance_kind floor);
/* Is it there, of any provenance?  Counts nothing. */
bool md_coldstore_has(const struct md_coldstore *c, struct md_key key, struct md_key parent, int32_t start,
                      const md_token *tokens, int32_t token_count);
/* Make it the most recently used of cls, which may be another class than it had: whoever uses it says what it is. */
void md_coldstore_touch(struct md_coldstore *c, struct md_cold_entry *entry, enum md_cache_class cls);
/* Hold it, or let it go again, once more or less: while anybody holds it, no other makes it go, of whatever class, and
 * whoever replaces it takes its holds over. */
void md_coldstore_hold(struct md_coldstore *c, struct md_cold_entry *entry);
void md_coldstore_release(struct md_coldstore *c, struct md_cold_entry *entry); /* it is held (assert) */
/* Take it out of the index; the caller frees it. */
void md_coldstore_remove(struct md_coldstore *c, struct md_cold_entry *entry, bool dropped);
struct md_cold_entry *md_coldstore_any(const struct md_coldstore *c); /* NULL when empty */
/* Now, on the clock of last_used: what is put or touched after this is later. */
int64_t md_coldstore_clock(const struct md_coldstore *c);

struct md_coldstore_stats md_coldstore_stats(const struct md_coldstore *c);
/* A refusal that was decided before put (no room, allocation failed). */
void md_coldstore_count_refused(struct md_coldstore *c);

/* All invariants (sums, order, buckets), for asserts and tests. */
bool md_coldstore_check(const struct md_coldstore *c);

#endif
