/* pool_walk.h - random calls on a few conversations of one pool, against plain lists of tokens.
 *
 * Held after each call: contexts are what was said; hot, cold and lost tokens make up the tape, and so do the kinds of
 * provenance, which results report as the blocks have them, all full where nothing was ever out; nothing is lost in a round that may lose nothing; budgets hold.  Held at the end of a round: no cell, session,
 * cold byte or heap byte is left.  A program adds its figures, how a round is opened, and what proves an answer.
 *
 * Threads: one; all of it fails the test by libcheck. */
#ifndef MD_TESTS_POOL_WALK_H
#define MD_TESTS_POOL_WALK_H

#include "support/fault_alloc.h"
#include "support/rng.h"
#include "support/session_rig.h"

enum { WALK_TALKS_MAX = 6, WALK_WINDOW_MAX = 2500 };

/* A conversation; tokens[0, count) is what its context must be. */
struct walk_talk {
    struct md_session *s; /* NULL: not open */
    md_token tokens[WALK_WINDOW_MAX];
    int32_t count;
};

struct walk {
    const struct walk_figures *f;
    struct rig r;
    struct rng rng;
    struct walk_talk talks[WALK_TALKS_MAX];
    struct fault_alloc heap;
    bool
        loses; /* KV may be lost: a tight budget, or a mode in which some of what is stored is not used again */
    bool parts;   /* something may have been computed over a part of what stands before it */
    int step;     /* of the round */
    int all_full; /* calls after which all had to be full */
};

/* A call on w->r.session, which is that of t; what is said in it joins t. */
typedef void walk_call(struct walk *w, struct walk_talk *t);
walk_call walk_run, walk_ensure, walk_suffix, walk_decode, walk_range, walk_branch, walk_at_tail;

/* All but branch_at_end are in tokens, or count what happens once in so many times. */
struct walk_figures {
    const char *name; /* beside the seed */
    int rounds, steps, talks;
    int32_t window;
    walk_call *const *calls; /* each as likely as the others: what stands there twice is twice as likely */
    int call_count;
    int32_t close_one_in; /* steps that close their conversation */
    int32_t answer_most;
    int32_t new_most, long_one_in, long_most; /* what a prompt adds: new_most at most, or long_most */
    int32_t suffix_below;
    bool branch_at_end; /* half of all branches are; else all of them are anywhere */
    int32_t range_most, evict_one_in;
    int32_t at_tail_more; /* after the first 15, so that there is a whole block */

    /* Open w->r for this round, with a heap of w->heap.alloc, and say whether it loses. */
    void (*open)(struct walk *w, int round);
    /* So many first tokens of what was said in `o` begin the next prompt. */
    int32_t (*keep)(struct walk *w, const struct walk_talk *o);
    /* Prove the answer in w->r.last, which was not cut off and is not in t yet. */
    void (*answered)(struct walk *w, const struct walk_talk *t);
    /* What else holds of an open conversation after a call; NULL: nothing. */
    void (*check)(struct walk *w, const struct walk_talk *t);
};

/* All rounds; `w` is as large as it looks: make it static. */
void walk_rounds(struct walk *w, const struct walk_figures *f);
/* A random number in [0, n); 0 for n <= 0. */
int32_t walk_below(struct walk *w, int32_t n);

#endif
