/* hot.h - what all conversations of one engine share: its cells, the cold store, the plan's figures.
 *
 * Each open conversation has a drive.  One is live: the planner makes its hot set, and it may use
 * every cell.  The KV of the others stays in the cells that are left, under sequences of their own, so that
 * switching back costs nothing; when the live one needs room, theirs goes cold, the longest idle first
 * (policy/idle.h).  Blocks with the same text before and in them are held once, wherever the engine can share
 * cells (MD_CAP_SHARE).  There may be more conversations than sequences: the longest idle one lends its own.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_HOT_H
#define MD_SESSION_HOT_H

#include "engine/engine.h"
#include "policy/provenance.h"
#include "policy/residency.h"
#include "policy/restore.h"
#include "session/cold.h"
#include "session/tape.h"

struct md_drive;

struct md_hot {
    struct md_engine *engine; /* borrowed */
    struct md_cold *cold;     /* borrowed */
    const struct md_alloc *alloc;
    struct md_stream_policy stream;
    struct md_residency_gate gate;
    int32_t limit_tokens; /* cells, all conversations together */
    int32_t past_window;  /* conversations go on past a trained window of so many tokens; 0: they do not */
    enum md_provenance_kind floor; /* the worst KV that is reused */
    bool by_attention;             /* who leaves goes by what was attended (observe.h), where that is known */
    bool write_through;            /* whole blocks are copied to the cold store when they are computed */
    struct md_restore speeds;
    struct md_drive *drives; /* all that are open */
    int64_t clock;           /* counts turns: the time of last_live */
    int64_t dropped_tokens;  /* lost since open, of all of them */
    int64_t losses;          /* counts blocks that were lost where somebody had them hot */
};

/* What a request has moved; set by the session at its start. */
struct md_drive_request {
    uint8_t *marks; /* one byte per position of the prompt: bits of enum md_mark; borrowed */
    int32_t mark_count;
    int32_t computed_tokens; /* positions marked MD_MARK_COMPUTED so far */
    bool went_back;          /* to compute a lost block that its class alone protects: no other does that */
    bool stays;              /* nothing is computed from a lost block on, whatever protects it */
    int64_t restore_ns, compute_ns;
};
enum md_mark { MD_MARK_COMPUTED = 1, MD_MARK_RESTORED = 2, MD_MARK_MOVED = 4 };

struct md_drive {
    struct md_hot *hot; /* borrowed */
    struct md_drive *next;
    md_seq seq;           /* -1: nothing of it is in the engine */
    int64_t last_live;    /* hot->clock of its last turn */
    struct md_tape *tape; /* borrowed */
    /* Classes of the blocks of the prompt that is on its way, for blocks still to come; borrowed. */
    const enum md_cache_class *classes;
    size_t class_count;
    const bool
        *held_out; /* likewise, of the first blocks: those that leave again when others have joined them */
    size_t held_out_count;
    struct md_drive_request request;
    int64_t evicted_blocks, restored_blocks, shared_blocks, recomputed_blocks,
        dropped_blocks;     /* since open */
    int64_t moved_tokens;   /* restored at another place, since open */
    int64_t rebased_blocks; /* brought nearer, past the trained window, since open */
    int32_t pinned_cold,
        protected_tokens; /* of the last plan: task-pinned ones that found no room; protected ones */
    int32_t room_end;     /* the last plan made room for tokens up to here */
    int64_t losses_seen;  /* how many had been lost anywhere when its cold blocks were last looked at */
    struct md_err fatal;  /* why it was given up; status MD_OK: it was not */
    uint64_t changes;     /* counts changes of states: whoever shows them looks again */
    bool unseen;          /* no conversation: what it loses, whenever that is, is not told as dropped */
};

/* The hot block of another conversation that begins at `start`, a block border, behind `parent`, and shares the
 * most tokens with those given; of two that share as much the one of better provenance.  Its shared part can be
 * shared into d's sequence: one that stands at another place than its own is nobody's.  drive NULL: none. */
struct md_hot_match {
    const struct md_drive *drive;
    const md_token *tokens; /* of the block, borrowed until its tape changes */
    int32_t count, common;
    struct md_provenance provenance;
};
struct md_hot_match md_hot_best(const struct md_hot *h, const struct md_drive *d, struct md_key parent,
                                int32_t start, const md_token *tokens, int32_t count);

/* Is the block on the tape of another open conversation, hot or not? */
bool md_hot_is_wanted(const struct md_hot *h, const struct md_drive *d, const struct md_cold_ref *ref);

#endif
