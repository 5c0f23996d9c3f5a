/* identity.h - which open conversation does a whole prompt continue?  Pure.
 *
 * Clients send the whole history each time and no name for it.  What is one conversation's own begins with its first
 * user message: what stands before that (system text, tools) is the same for all conversations of a client, and says
 * nothing.  So a prompt continues a conversation when it agrees with it as far as the end of that message, the anchor:
 *
 *   the next turn, an answer that is made again, an earlier turn that was edited   reach past it: continued
 *   another first message behind the same system text, or a history that the client replaced by a summary of it
 *                                                                                  do not: a new one
 *
 * Without an anchor (a plain completion) half of the tape must be there.  A tape that is whole at the beginning of the
 * prompt is continued whatever its anchor says: nothing of it is lost by that.
 *
 * Threads: any; touches nothing but its arguments.  Source: the rules are this project's. */
#ifndef MD_POLICY_IDENTITY_H
#define MD_POLICY_IDENTITY_H

#include "base/types.h"

/* An open conversation, in tokens. */
struct md_identity_candidate {
    int32_t common;    /* prefix that its tape and the prompt have in common */
    int32_t tape;      /* at least common; 0: empty, which is nobody's and never continued */
    int32_t anchor;    /* end of its first user message (kind `user`, not stable); 0: not known */
    int64_t last_used; /* any clock */
};

struct md_identity {
    bool is_new;
    size_t
        candidate; /* continued; or when new, the one that shares the most with the prompt, count when none does */
};

/* Of those that may be continued the one with the longest common prefix, of equals the one used last, of those the
 * first.  `shares the most` goes by the same order. */
struct md_identity md_identity_of(const struct md_identity_candidate *candidates, size_t count);

#endif
