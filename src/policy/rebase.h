/* rebase.h - where in the engine the hot blocks of a tape stand, when the tape is longer than the window the model was
 * trained for.  Pure: no engine, clock, lock or I/O.
 *
 * The end of a tape keeps its positions for life: token i is computed at position i, however large i is, for all that
 * a model sees of positions are distances (RoPE).  What must not grow is the distance: no token may be evaluated that
 * is window tokens or more behind a token it attends.  So what is far is moved towards the end, and what was
 * computed last never moves.  Each hot block has a *place*, a range of positions of its length: its natural
 * place, which is its range on the tape, or a later one.
 *
 * The rule: places follow from which blocks are hot, and from the end of what is to be evaluated, and from nothing else:
 * not from where the blocks stand now.  So a conversation that was restarted, restored or went back and came again has
 * everything where one that ran on has it, and answers in the same words.
 *
 * Blocks move seldom and many at once all the same: the position that none may stand before is a multiple of the step, the
 * first that is near enough.  That needs room: tokens that are hot, those that come included, are at most
 * md_rebase_hot_most(window).
 *
 * Threads: any; touches nothing but its arguments.
 * Source: StreamingLLM (positions within the cache), arXiv 2309.17453; that the beginning moves, and not the end, is
 * this project's. */
#ifndef MD_POLICY_REBASE_H
#define MD_POLICY_REBASE_H

#include "base/err.h"
#include "base/types.h"

#include <stdbool.h>

enum {
    MD_REBASE_SHARE = 8,         /* the step is an eighth of the window */
    MD_REBASE_WINDOW_LEAST = 64, /* tokens: of a smaller window nothing is left to work with */
};

/* Tokens between two moves: what must move is put nearer than it must be by up to so many. */
int32_t md_rebase_step(int32_t window_tokens);
/* The largest hot set with which that can always be done: the window less the step. */
int32_t md_rebase_hot_most(int32_t window_tokens);

/* What decides whether a model and its settings can go past the window. */
struct md_rebase_facts {
    bool residency;
    int32_t trained_tokens; /* 0: unknown */
    int32_t hot_tokens;     /* the whole hot set; 0: not known yet */
    bool tail_state;        /* windowed or recurrent layers */
    bool can_move;          /* as far as is known, the engine puts exported KV at other positions */
    const char *type_k;     /* of keys: "f16" */
    int64_t cold_bytes,
        need_bytes; /* of the cold store, which keeps what is moved as it was; what the hot set needs there, headers counted */
    bool disk; /* there is a disk tier, where it may be kept as well */
};

/* May it be asked for?  The text says what to change.
 *
 * MD_INVALID      residency is off; the hot set is larger than md_rebase_hot_most, or than the cold store
 * MD_UNSUPPORTED  the window is unknown or below MD_REBASE_WINDOW_LEAST; the KV cannot be moved; there is no cold store */
MD_MUST_USE enum md_status md_rebase_check(const struct md_rebase_facts *f, struct md_err *err);

/* A block that shall be hot. */
struct md_rebase_block {
    int32_t start;  /* natural place; on the tape */
    int32_t length; /* above 0 */
};

/* Choose the places.
 *
 * blocks    ascending, not overlapping, none behind `end`
 * end       of the tape
 * incoming  tokens that will be evaluated before this is asked again; where it is few, a block's worth as far as there is
 *           room, so that calls of a token or two do not move to and fro what the next plan, for an answer, moves as well
 * window    as trained; step: of md_rebase_step
 * ret_places[count]  where each begins: in the order of the blocks, not overlapping, before `end`, none before its
 *                    natural place, none before end + incoming - window
 *
 * The bound is end + incoming - window, rounded up to a multiple of the step.  What begins before it stands from there on,
 * side by side, and pushes what is in its way.  A run of blocks that reaches to the end of the tape always stands at
 * its natural place, and where there is no room for the bound all that follows stands side by side up to the end.
 *
 * MD_INVALID    blocks overlap, are empty, out of order or behind the end; end or incoming below 0; step or window
 *               below 1
 * MD_TOO_LARGE  blocks and incoming together are more than the window
 * State: ret_places is undefined on failure. */
MD_MUST_USE enum md_status md_rebase_plan(const struct md_rebase_block *blocks, size_t count, int32_t end,
                                          int32_t incoming, int32_t window, int32_t step, int32_t *ret_places,
                                          struct md_err *err);

#endif
