/* session.h - one conversation: its context, what of it is hot, and the calls of its contract.
 *
 *     EnsurePrefix -> PrefillSuffix (as often as wanted) -> Decode
 *
 * The *context* is the conversation in tokens: prefix, suffixes, answers.  The *tape* (session/tape.h) is what of it
 * has been computed.  Both calls bring the tape to the context but for its last token, which Decode evaluates, for its
 * logits are needed.  Whatever a new context shares with the tape is kept, generated tokens included; what it shares
 * with the cold store or with another conversation is restored or shared; the rest is prefilled in chunks through the
 * hot set.  What falls off goes cold.
 *
 * Counters (the same words in every front): prompt = cached + prefilled; restored is the part of cached
 * that came back from the cold store or another conversation for this request, moved the part of restored that stood
 * somewhere else (approximate); lost is the part of cached whose KV is gone and which was
 * neither attended nor computed again; recomputed is the part of prefilled whose KV had
 * been computed before and was lost; attended = hot tokens when the first token was sampled; dropped = KV
 * lost during this request, of whichever conversation, which must be computed again if it is wanted.
 *
 * A failure with MD_SESSION_FATAL means that the KV of this conversation is unknown: it is given up, every later
 * call returns MD_SESSION_FATAL with the first cause, and the other conversations go on.
 *
 * Threads: one at a time; session/worker.h gives it a thread of its own and a queue.
 * Source: ARCHITECTURE.md "A request". */
#ifndef MD_SESSION_SESSION_H
#define MD_SESSION_SESSION_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "policy/provenance.h"
#include "policy/segment.h"
#include "text/text.h"

struct md_pool;
struct md_session;

enum md_finish { MD_FINISH_STOP, MD_FINISH_LENGTH, MD_FINISH_CANCELLED };
const char *md_finish_name(enum md_finish f); /* "stop", "length", "cancelled" */

struct md_progress {
    int32_t total, cached, processed; /* prompt tokens; processed counts what had to be prefilled so far */
    int64_t elapsed_ns;
};

/* Where the results of a request go; every member may be NULL.  Called on the session's thread.
 * text returning false cancels the request. */
struct md_sink {
    void *user;
    void (*progress)(void *user, const struct md_progress *p);
    bool (*text)(void *user, struct md_bytes text);
    bool (*cancelled)(void *user); /* polled between chunks and inside the engine */
    /* The answer is whole, and is written to the disk next: the front may add to its notes (struct md_request). */
    void (*ended)(void *user, const struct md_tokens *answer, struct md_buf *notes);
};

enum { MD_SEGMENT_NAME_BYTES = 32 };

/* A stretch of a context that was given a kind; stable ones come first. */
struct md_segment {
    struct md_range range; /* tokens */
    enum md_segment_kind kind;
    enum md_cache_class cls;
    enum md_invalidation invalidation;
    bool stable;
    char name[MD_SEGMENT_NAME_BYTES]; /* the kind as it was given */
};
enum { MD_SEGMENTS_MAX = 65536 };

/* A context, or what follows one. */
struct md_context {
    const md_token *tokens; /* borrowed for the call, as the segments are */
    int32_t count;
    const struct md_segment *segments; /* ascending, within these tokens; what none covers is volatile */
    size_t segment_count;
};

struct md_decode {
    int32_t max_tokens; /* -1: until the end of the text or of the window; 0: nothing is sampled */
    struct md_sample_params sample;
    const struct md_bytes *stops; /* borrowed; see text/stream.h */
    size_t stop_count;
};

enum { MD_NOTES_BYTES_MAX = 1 << 20 };

struct md_request {
    struct md_context prompt;
    struct md_decode decode;
    /* The front's notes on the conversation, in place of those it had: bytes that nobody else reads, at most
     * MD_NOTES_BYTES_MAX.  They are written where the conversation is, both or none: to the disk, into a snapshot. */
    struct md_bytes notes;
};

/* What became of retrieval in an answer (retrieve.h). */
struct md_retrieval {
    bool due;                 /* not all of the context can be hot, and there is a retriever */
    int32_t question;         /* tokens that asked */
    int32_t evaluations;      /* of them */
    int32_t scored, unscored; /* blocks; unscored: their keys could not be had, or had no room */
    int32_t heads_asked,
        heads_used; /* used: gave something to a block that may come; 0: attention chose nothing */
    int32_t asked_tokens, chosen_tokens; /* what could be chosen for, and what was */
    int32_t brought_tokens;              /* of those chosen, what was not hot before */
    int64_t score_ns;                    /* scoring and choosing */
    const char
        *skipped; /* why it was due and nothing was scored after all; static text; NULL: it was not skipped */
};

/* What became of eviction by attention in a call (observe.h). */
struct md_eviction {
    bool due;                 /* it is in use, and something was computed */
    int32_t scorings, missed; /* missed: that failed, and changed nothing */
    int32_t unscored;         /* blocks, over all of them, whose keys could not be had, or had no room */
    int64_t score_ns;
};

struct md_result {
    enum md_finish finish;
    int32_t prompt, cached, prefilled, restored, moved, lost, recomputed, dropped, attended;
    int32_t tokens_of[MD_PROVENANCE_COUNT]; /* of the tape, hot and cold, after the request */
    struct md_retrieval retrieval;
    struct md_eviction eviction;
    int32_t breaker; /* the segment of the prompt in which it left what was known; -1: none did */
    char breaker_name[MD_SEGMENT_NAME_BYTES]; /* its kind */
    int32_t decoded;        /* tokens evaluated in decode_ns: one less than sampled, or as many */
    int32_t completion;     /* tokens sampled, an end token not counted */
    int32_t hot, hot_limit; /* of this conversation, after the request */
    int32_t tape;           /* tokens on the tape after the request */
    int64_t prefill_ns, decode_ns, restore_ns, first_token_ns; /* first_token_ns: from the start */
    int32_t durable;         /* tokens of the tape that outlive the process: see md_pool_config.disk */
    struct md_tokens tokens; /* the tokens sampled; the caller frees with md_result_done */
};
void md_result_done(struct md_result *r);

/* ---- the contract ---- */

/* What EnsurePrefix and PrefillSuffix did.  The context is resident from then on, whether hot or cold. */
struct md_prefill_status {
    int32_t reused;                      /* ensure: tokens that the old context had too */
    int32_t prefilled;                   /* the others */
    int32_t dropped;                     /* ensure: tokens of the old context that are not in the new one */
    int32_t suffix;                      /* suffix: tokens added */
    int32_t prefix, resident, available; /* after it; available: window - resident */
    struct md_result work;               /* what it took, as for a request; no tokens */
};

/* Make `prefix` the context; it may be empty.  What follows it on the tape stays there until the next call shows
 * whether it is wanted.
 *
 * fresh         nothing of the old context is used again: its KV is dropped, in the cold store too
 * MD_TOO_LARGE  it does not fit the window: both numbers in the text; nothing was changed
 * MD_INVALID    a token outside the vocabulary; nothing was changed
 * MD_CANCELLED  the context is what of the prefix was computed
 * MD_NO_MEMORY, MD_INTERNAL: likewise
 * MD_SESSION_FATAL: see above */
MD_MUST_USE enum md_status md_session_ensure_prefix(struct md_session *s, const struct md_context *prefix,
                                                    bool fresh, const struct md_sink *sink,
                                                    struct md_prefill_status *ret_status, struct md_err *err);
/* Append to the context.
 *
 * keep  how many tokens of the prefix stay; when these are not all, what lies behind them leaves the context before
 *       the suffix joins it.  -1: all.  MD_INVALID: the prefix has fewer.
 * An empty suffix appends nothing.  Other errors as above; the context is then as before. */
MD_MUST_USE enum md_status md_session_prefill_suffix(struct md_session *s, const struct md_context *suffix,
                                                     int32_t keep, const struct md_sink *sink,
                                                     struct md_prefill_status *ret_status,
                                                     struct md_err *err);
/* Sample an answer; it joins the context, token by token.
 *
 * ret_result    filled on MD_OK and on MD_CANCELLED (what was done until then); caller frees it
 * MD_TOO_LARGE  the context fills the window; MD_INVALID: it is empty, or a parameter is out of range; others as
 * above.  After a failure the context holds what was sampled. */
MD_MUST_USE enum md_status md_session_decode(struct md_session *s, const struct md_decode *decode,
                                             const struct md_sink *sink, struct md_result *ret_result,
                                             struct md_err *err);

/* All three at once, for fronts that bring a whole prompt: the context becomes the prompt, then Decode.
 *
 * MD_TOO_LARGE  the prompt leaves no room for an answer: both numbers in the text; nothing was changed
 * MD_INVALID    also: its notes are too long
 * the rest as above */
MD_MUST_USE enum md_status md_session_run(struct md_session *s, const struct md_request *request,
                                          const struct md_sink *sink, struct md_result *ret_result,
                                          struct md_err *err);

/* A new conversation that begins with the first `count` tokens of this one (-1: all).  Nothing is computed and no
 * KV is copied: both hold the same blocks until they differ.
 * MD_INVALID: count is out of range; MD_BUSY: as md_pool_new; MD_NO_MEMORY, MD_SESSION_FATAL */
MD_MUST_USE enum md_status md_session_branch(struct md_session *s, int32_t count,
                                             struct md_session **ret_branch, struct md_err *err);

/* Move the whole blocks within r out of the hot set, and leave them out until AdmitRange says otherwise: they stay
 * in the context, are cold where the store takes them, and are not attended.  The last block of the tape comes back
 * for as long as it is the last: what follows joins it.
 *
 * ret_tokens      how many tokens left; blocks that were not hot are only held out
 * MD_INVALID      r is not within the tape
 * MD_UNSUPPORTED  this engine cannot evict; MD_SESSION_FATAL, engine errors: blocks moved so far are moved */
MD_MUST_USE enum md_status md_session_evict_range(struct md_session *s, struct md_range r,
                                                  int32_t *ret_tokens, struct md_err *err);
/* Let the whole blocks within r into the hot set again, at their places.  They come at once where there is room
 * besides what is protected, else the planner decides.
 *
 * ret_tokens  how many tokens of r are hot afterwards */
MD_MUST_USE enum md_status md_session_admit_range(struct md_session *s, struct md_range r,
                                                  int32_t *ret_tokens, struct md_err *err);
/* Append the text of the whole blocks within r to the context, with their KV re-based to the end: approximate.
 *
 * MD_INVALID      r is not within the tape and the context
 * MD_UNSUPPORTED  the engine cannot re-base KV of this type
 * MD_NOT_FOUND    the KV of a block is lost; the blocks before it were appended
 * MD_TOO_LARGE    the window is full */
MD_MUST_USE enum md_status md_session_admit_at_tail(struct md_session *s, struct md_range r,
                                                    const struct md_sink *sink, int32_t *ret_tokens,
                                                    struct md_err *err);

/* End it and free it: its KV is dropped, hot and cold, but for what other conversations have too.  Accepts NULL. */
void md_session_close(struct md_session *s);

/* ---- looking at it ---- */

int64_t md_session_id(const struct md_session *s);
const md_token *md_session_context(const struct md_session *s, int32_t *ret_count);

/* The front's notes on it (struct md_request); borrowed until its next call. */
struct md_bytes md_session_notes(const struct md_session *s);

/* lost: the tokens are known, the KV is not */
enum md_block_state { MD_STATE_HOT, MD_STATE_COLD, MD_STATE_LOST };

struct md_session_status {
    int64_t id, parent;   /* parent: what it was branched from; 0: nothing */
    int64_t last_turn_ns; /* md_clock_mono_ns() of its last call */
    int32_t prefix_tokens, context_tokens;
    int32_t tape_tokens, hot_tokens, cold_tokens, lost_tokens;
    int32_t protected_tokens;   /* as the last plan had it */
    int32_t pinned_cold_tokens; /* task-pinned ones that the hot set has no room for */
    int32_t held_out_tokens;
    int32_t
        rebased_tokens; /* hot ones that stand nearer to the end than they were, past the trained window */
    int32_t
        durable_tokens; /* of the tape, that the disk had after the last call: also when it could not write then */
    int32_t tokens_of[MD_PROVENANCE_COUNT];
    int32_t tokens_in_class[MD_CLASS_COUNT];
    int64_t hot_bytes; /* KV the engine holds for hot_tokens, shared ones counted */
    /* since open, as evicted_blocks and what follows it */
    int64_t requests, prefill_calls, prefilled_tokens, prefill_ns, decode_calls, decoded_tokens;
    /* That what is worth keeping goes by, since it was opened, restored or branched: observe.h. */
    int32_t scorings;
    int64_t evicted_blocks, restored_blocks, shared_blocks, recomputed_blocks, dropped_blocks, moved_tokens,
        rebased_blocks;
    bool
        tokens_only; /* it was restored without its KV, and nothing was computed since: the next call computes it */
    bool fatal;
    char fatal_text[256];
    uint64_t changes; /* md_session_changes() */
};
struct md_session_status md_session_status(const struct md_session *s);
/* Grows with every change of what can be seen of it. */
uint64_t md_session_changes(const struct md_session *s);

/* One per block of the tape, in order, up to `cap`; returns the number of blocks. */
struct md_block_view {
    uint8_t state;      /* enum md_block_state */
    uint8_t cls;        /* enum md_cache_class */
    uint8_t provenance; /* enum md_provenance_kind */
    uint8_t why; /* enum md_select_why, of the last answer that retrieved; MD_SELECT_WHY_COUNT: none did */
    bool retrieved, held_out, rebased;
};
size_t md_session_map(const struct md_session *s, struct md_block_view *out, size_t cap);
/* The segments of its context; owned by the session, until its next call. */
const struct md_segment *md_session_segments(const struct md_session *s, size_t *ret_count);

#endif
