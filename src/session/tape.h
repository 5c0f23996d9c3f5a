/* tape.h - the tokens of one conversation whose KV was computed, cut into blocks with their state.
 *
 * Bookkeeping only: no engine, no cold store.  Blocks are block_tokens long, the last one may be shorter;
 * block i covers [i * block_tokens, ...).  A block has a chain key over the tokens it has now.
 *
 * Threads: one at a time. */
#ifndef MD_SESSION_TAPE_H
#define MD_SESSION_TAPE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "policy/residency.h"
#include "session/cold.h"
#include "session/session.h"

struct md_tape_block {
    enum md_block_state state;
    enum md_cache_class cls;
    struct md_provenance provenance;
    bool retrieved; /* offered to the planner for this turn: its text is needed again */
    /* Of the last answer that retrieved (retrieve.h): it was wanted; how often in a row it was, and others were better;
     * 1 + enum md_select_why, 0: it was not judged. */
    bool incumbent;
    /* next: as the answer on its way has it, until md_turn_forget_retrieved takes it over. */
    int32_t beaten, next_beaten;
    uint8_t why;
    /* Where the hot set goes by attention (observe.h): what was paid to it, policy/profile; in how many scorings it might have
     * left.  aside: a plan let it go since the last question, and until the next one asks it comes after all others. */
    float profile;
    int32_t judged;
    bool aside;
    bool held_out; /* evicted by hand: the planner leaves it alone until it is admitted by hand */
    /* Past the trained window (policy/rebase.h): how far behind its range on the tape the engine has it.  0: at its own
     * place, or not hot.  Elsewhere it is a private copy of what the cold store has, which is held there. */
    int32_t moved_by;
    bool held; /* its cold copy is: while it is hot and moved, and on the way there */
};

struct md_tape {
    const struct md_alloc *alloc;
    int32_t block_tokens;
    struct md_key root;
    md_token *tokens;
    size_t token_cap;
    int32_t count;
    int32_t unchanged;   /* so many tokens are what they were when somebody last set this to count */
    int32_t scorings;    /* that its blocks' profiles are of; 0: nothing is known of what is attended */
    int32_t evaluated;   /* end of what was computed last, as far as it is still there */
    int32_t sparse_from; /* md_engine_info.sparse_from_tokens; md_tape_init says 0 */
    struct md_tape_block *blocks;
    struct md_key *keys; /* keys[i]: chain key over blocks 0..i-1; keys[0] = root; valid up to key_count */
    size_t block_cap, key_cap;
    size_t key_count;
};

void md_tape_init(struct md_tape *t, const struct md_alloc *alloc, int32_t block_tokens, struct md_key root);
void md_tape_done(struct md_tape *t);

static inline size_t md_tape_block_count(const struct md_tape *t)
{
    return ((size_t)t->count + (size_t)t->block_tokens - 1) / (size_t)t->block_tokens;
}
struct md_range md_tape_range(const struct md_tape *t, size_t block);
/* The positions of a hot block in the engine: what every call of the engine takes. */
struct md_range md_tape_place(const struct md_tape *t, size_t block);

/* Room for the tape to grow to `count` tokens: afterwards append cannot fail.  MD_NO_MEMORY: as before. */
MD_MUST_USE enum md_status md_tape_reserve(struct md_tape *t, int32_t count, struct md_err *err);
/* Add tokens at the end, in reserved room.  Blocks they begin get `fresh`; a block they lengthen stays hot
 * (assert) and has the worse provenance of both. */
void md_tape_append(struct md_tape *t, const md_token *tokens, int32_t count, struct md_tape_block fresh);
/* The same for tokens that were computed just now, in one call, over what is hot: what their blocks are follows from that.
 * With nothing before them, and as many as sparse_from says, they are bounded: they did not attend to all of the text. */
void md_tape_append_computed(struct md_tape *t, const md_token *tokens, int32_t count,
                             enum md_cache_class cls);
/* Shorten it to `count`; the block that is cut keeps its record, but is not held out any more. */
void md_tape_cut(struct md_tape *t, int32_t count);

/* What `count` of its blocks are worth keeping, for md_residency_plan: the shares that their profiles stand for, those that were not judged yet counting
 * as the best, those put aside as less than any other.
 *
 * index       their numbers
 * ret_scores  owned by the arena; NULL: nothing was scored, and they go by recency
 * MD_NO_MEMORY  the arena is full */
MD_MUST_USE enum md_status md_tape_scores(const struct md_tape *t, const size_t *index, size_t count,
                                          struct md_arena *arena, const float **ret_scores,
                                          struct md_err *err);

/* What names block i in the cold store, borrowed from the tape until it changes. */
struct md_cold_ref md_tape_ref(struct md_tape *t, size_t block);
/* The chain key over the whole blocks before `block`: the parent of whatever begins there. */
struct md_key md_tape_parent_key(struct md_tape *t, size_t block);

int32_t md_tape_tokens_in(const struct md_tape *t, enum md_block_state state);
/* Hot tokens that stand at another place than their own. */
int32_t md_tape_moved_tokens(const struct md_tape *t);
/* Tokens, hot or cold, whose KV is of this kind. */
int32_t md_tape_kind_tokens(const struct md_tape *t, enum md_provenance_kind kind);
/* What `block` is of when it is computed now, over what is hot before it: full when every block before it is hot, at its
 * own place and full, else the worst of those that are hot, bounded at least. */
struct md_provenance md_tape_provenance(const struct md_tape *t, size_t block);

#endif
