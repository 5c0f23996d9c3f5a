/* session.h - one conversation: its tape, what of it is hot, and the path of a request.
 *
 * The tape is every token whose KV was computed, in order, generated ones included, up to the logical
 * window.  A request brings a whole prompt; what it shares with the tape is reused, what it shares with
 * the cold store is restored, the rest is prefilled in chunks through the hot set, and the answer joins
 * the tape.  A prompt that differs cuts the tape at the common prefix; what falls off goes cold.
 *
 * Counters (the same words in every front): prompt = cached + prefilled; restored is the part of cached
 * that came back from the cold store for this request; lost is the part of cached whose KV is gone and which was
 * neither attended nor computed again; recomputed is the part of prefilled whose KV had
 * been computed before and was lost; attended = hot tokens when the first token was sampled; dropped = KV
 * lost during this request, which must be computed again if it is wanted.
 *
 * Threads: one at a time; session/worker.h gives it a thread of its own and a queue.
 * Source: ARCHITECTURE.md "A request". */
#ifndef MD_SESSION_SESSION_H
#define MD_SESSION_SESSION_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "engine/engine.h"
#include "policy/coldstore.h"
#include "policy/residency.h"
#include "text/text.h"

struct md_session;

struct md_session_config {
    int32_t window_tokens; /* the logical window: prompt + answer never exceed it */
    int32_t hot_tokens;    /* hot set, <= engine cells; ignored when residency is off */
    bool residency;        /* off: nothing is evicted, the window is min(window_tokens, engine cells) */
    int32_t block_tokens;  /* default 64 */
    int32_t sink_tokens, recent_tokens; /* -1: hot/16 and hot/4 */
    size_t cold_bytes;                  /* budget of the cold store; 0 = none: what is evicted is dropped */
    const struct md_alloc *alloc;       /* NULL: the C heap */
};

enum { MD_BLOCK_TOKENS_DEFAULT = 64, MD_BLOCK_TOKENS_MIN = 8, MD_BLOCK_TOKENS_MAX = 4096 };

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
};

struct md_request {
    const md_token *prompt; /* borrowed */
    int32_t prompt_count;
    int32_t max_tokens; /* -1: until the end of the text or of the window; 0: prefill only */
    struct md_sample_params sample;
    const struct md_bytes *stops; /* borrowed; see text/stream.h */
    size_t stop_count;
};

struct md_result {
    enum md_finish finish;
    int32_t prompt, cached, prefilled, restored, lost, recomputed, dropped, attended;
    int32_t decoded;        /* tokens evaluated in decode_ns: one less than sampled, or as many */
    int32_t completion;     /* tokens sampled, an end token not counted */
    int32_t hot, hot_limit; /* after the request */
    int32_t tape;           /* tokens on the tape after the request */
    int64_t prefill_ns, decode_ns, restore_ns, first_token_ns; /* first_token_ns: from the start */
    struct md_tokens tokens; /* the tokens sampled; the caller frees with md_result_done */
};
void md_result_done(struct md_result *r);

/* The rules that need no engine, so that they can be told before a model is loaded: sizes of window, hot set,
 * blocks, sinks and recent window.  MD_INVALID: as md_session_open. */
MD_MUST_USE enum md_status md_session_check_config(const struct md_session_config *config,
                                                   struct md_err *err);

/* Open a conversation on sequence 0 of the engine.  Engine and text are borrowed and must outlive it.
 *
 * MD_INVALID      a rule of the configuration is broken: the text names the flag and the value that works
 * MD_UNSUPPORTED  the window is larger than the hot set and this engine cannot evict
 * MD_NO_MEMORY, and those of md_engine_truncate */
MD_MUST_USE enum md_status md_session_open(const struct md_session_config *config, struct md_engine *engine,
                                           struct md_text *text, struct md_session **ret_session,
                                           struct md_err *err);
void md_session_close(struct md_session *s); /* accepts NULL; the engine's sequence is emptied */

/* Run one request to its end.
 *
 * ret_result    filled on MD_OK and on MD_CANCELLED (what was done until then); caller frees it
 * MD_TOO_LARGE  prompt_count >= window: both numbers in the text; nothing was changed
 * MD_INVALID    empty prompt, a token outside the vocabulary, a parameter out of range; nothing was changed
 * MD_CANCELLED  the sink said so: the tape is valid and keeps what was computed
 * MD_NO_MEMORY, MD_INTERNAL: the request failed; the tape is valid, shorter perhaps, and serves the next
 * MD_SESSION_FATAL: the KV is unknown; every later call returns the same */
MD_MUST_USE enum md_status md_session_run(struct md_session *s, const struct md_request *request,
                                          const struct md_sink *sink, struct md_result *ret_result,
                                          struct md_err *err);

/* ---- looking at it ---- */

enum md_block_state { MD_STATE_HOT, MD_STATE_COLD, MD_STATE_LOST };

struct md_session_status {
    int32_t window_tokens, hot_limit_tokens, block_tokens, sink_tokens, recent_tokens;
    bool residency;
    int32_t tape_tokens, hot_tokens, cold_tokens,
        lost_tokens;            /* cold: on this tape; the store may hold more */
    int32_t full_tokens;        /* hot or cold, and computed while everything before was attended: exact KV */
    int64_t kv_bytes_per_token; /* of the cold store and of exports */
    int64_t hot_bytes;          /* KV the engine holds for hot_tokens */
    unsigned caps;
    struct md_coldstore_stats cold;
    int64_t prefilled_tokens, prefill_ns; /* since open, as the next ones */
    int64_t requests, evicted_blocks, restored_blocks, recomputed_blocks, dropped_blocks; /* since open */
};
struct md_session_status md_session_status(const struct md_session *s);
/* One state per block of the tape, in order, up to `cap`; returns the number of blocks. */
size_t md_session_map(const struct md_session *s, enum md_block_state *out, size_t cap);
/* All invariants of tape, engine map and cold store, for asserts and tests. */
bool md_session_check(const struct md_session *s);

#endif
