/* reuse.h - what of a prompt is known already: at its place (by chain keys), or elsewhere (by content).
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_REUSE_H
#define MD_SESSION_REUSE_H

#include "session/drive.h"

/* Lengthen the tape with what the cold store and other conversations know of a prompt whose prefix it is, as cold
 * blocks; only a last block that the store knows in part comes in, to be cut.  Nothing at or behind `limit` is
 * taken, nor what is computed faster than brought back (policy/restore.h); without a sequence whole blocks only.
 * Errors of the engine, MD_NO_MEMORY: the tape is valid, but may no longer be a prefix of the prompt. */
MD_MUST_USE enum md_status md_reuse_extend(struct md_drive *d, const md_token *prompt, int32_t limit,
                                           struct md_err *err);

/* Whole blocks whose text stands, somewhere else, in [from, limit) of a prompt. */
struct md_reuse_found {
    int32_t start;       /* where the text stands in the prompt */
    int32_t known_start; /* where its KV was computed */
};
struct md_reuse_matches {
    const struct md_alloc *alloc;
    struct md_reuse_found *items; /* ascending, not overlapping */
    size_t count, cap;
};
/* Find them.  own_only: on the tape of d itself; otherwise in the cold store as well.  MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_reuse_find(struct md_drive *d, const md_token *prompt, int32_t from,
                                         int32_t limit, bool own_only, struct md_reuse_matches *ret_matches,
                                         struct md_err *err);
void md_reuse_matches_done(struct md_reuse_matches *m);

/* Text that is sent again at the tail: offer its old blocks to the planner for this turn. */
void md_reuse_offer(struct md_drive *d, const struct md_reuse_matches *m);

/* Append `count` blocks of text, the first of which stands at the end of the tape and each other behind the one before
 * it, their KV re-based from elsewhere, as hot.  Room for them has been made.  All bytes are fetched before the first
 * block moves: an export turns the keys of all that was moved before it, which costs as much for many as for one.
 *
 * ret_done  how many; fewer than count: the next one is not there any more.  MD_NO_MEMORY, engine errors: after
 *           *ret_done of them */
MD_MUST_USE enum md_status md_reuse_append_moved(struct md_drive *d, const md_token *prompt,
                                                 const struct md_reuse_found *found, size_t count,
                                                 size_t *ret_done, struct md_err *err);
#endif
