/* pool.h - all conversations of one engine, and what they share.
 *
 * Threads: one at a time; session/worker.h gives it a thread of its own and a queue. */
#ifndef MD_SESSION_POOL_H
#define MD_SESSION_POOL_H

#include "engine/engine.h"
#include "policy/coldstore.h"
#include "session/heads.h"
#include "session/session.h"
struct md_retrieve_params; /* retrieve.h */
struct md_retrieve_observer;

/* What KV may be used again. */
enum md_reuse {
    MD_REUSE_PLACE,       /* that of the same text at the same place, however it was computed: the default */
    MD_REUSE_FULL,        /* only what was computed while everything before it was attended: exact */
    MD_REUSE_APPROXIMATE, /* also that of the same text elsewhere, re-based */
    MD_REUSE_COUNT
};
const char *md_reuse_name(enum md_reuse reuse); /* "place", "full", "approximate": as flags have it */

/* Who leaves the hot set first, within a class (policy/residency.h). */
enum md_evict {
    MD_EVICT_RECENCY, /* the oldest: sinks and the newest stay (T1) */
    MD_EVICT_ATTENTION, /* what was attended least (T2, observe.h), where the engine gives scores of attention */
    MD_EVICT_COUNT
};
const char *md_evict_name(enum md_evict evict); /* "recency", "attention": as flags have it */

/* Whether blocks come back because the question attends to them (retrieve.h). */
enum md_retrieval_mode {
    MD_RETRIEVAL_OFF,
    MD_RETRIEVAL_AUTO, /* where the engine gives scores of attention */
};

/* Heads that score are measured where nothing is known about the model (heads.h). */
enum md_calibrate_mode {
    MD_CALIBRATE_OFF,
    MD_CALIBRATE_IDLE, /* by md_pool_idle */
    MD_CALIBRATE_ANEW, /* likewise, also where something is known */
};

struct md_pool_config {
    int32_t window_tokens; /* the logical window: prompt + answer of a conversation never exceed it */
    /* The window may be larger than the one the model was trained for: what is far is moved towards the end
     * (policy/rebase.h).  What that does to the answers is the model's affair. */
    bool past_window;
    int32_t hot_tokens;   /* hot set of all together, <= engine cells; ignored when residency is off */
    bool residency;       /* off: nothing is evicted, the window is min(window_tokens, engine cells) */
    int32_t block_tokens; /* default 64 */
    int32_t sink_tokens, recent_tokens; /* -1: hot/16 and hot/4 */
    /* Budget of the cold store, and of the keys that are scored; 0 = none: what is evicted is dropped. */
    size_t cold_bytes;
    bool write_through; /* copy whole blocks to the cold store at once, not when they leave */
    enum md_reuse reuse;
    enum md_evict evict;
    enum md_retrieval_mode retrieval;
    const struct md_retrieve_params
        *retrieve; /* borrowed; NULL: md_retrieve_defaults().  For both: heads, and length of a question */
    enum md_calibrate_mode calibrate;
    const char *heads_file;       /* where measured heads are kept; copied; NULL: nowhere */
    int32_t checkpoint_tokens;    /* most tokens between two checkpoints (state.h); 0: MD_CHECKPOINT_TOKENS */
    struct md_disk *disk;         /* borrowed; NULL: what is kept goes with the process */
    int32_t session_limit;        /* open conversations; 0: MD_SESSIONS_DEFAULT */
    const struct md_alloc *alloc; /* NULL: the C heap */
};

enum { MD_BLOCK_TOKENS_DEFAULT = 64, MD_BLOCK_TOKENS_MIN = 8, MD_BLOCK_TOKENS_MAX = 4096 };
enum { MD_SESSIONS_DEFAULT = 64, MD_SESSIONS_MAX = 4096 };

/* The rules that need no engine, so that they can be told before a model is loaded: sizes of window, hot set,
 * blocks, sinks and recent window, number of conversations.  MD_INVALID: as md_pool_open. */
MD_MUST_USE enum md_status md_pool_check_config(const struct md_pool_config *config, struct md_err *err);

/* Engine, text and disk are borrowed and must outlive it; the engine is emptied.  What the disk has is open again.
 *
 * MD_INVALID      a rule of the configuration is broken: the text names the flag and the value that works
 * MD_UNSUPPORTED  the window is larger than the hot set and this engine cannot evict; or approximate reuse or past_window,
 *                 and the engine cannot re-base KV of this type; or past_window, and the trained window is not known
 * MD_NO_MEMORY, and those of md_engine_truncate */
MD_MUST_USE enum md_status md_pool_open(const struct md_pool_config *config, struct md_engine *engine,
                                        struct md_text *text, struct md_pool **ret_pool, struct md_err *err);
/* Closes every conversation; the disk keeps them.  Accepts NULL; the engine is left empty. */
void md_pool_close(struct md_pool *p);

/* Open a conversation.  When as many are open as may be, one makes way, unless it is kept: a fatal one before
 * others, a bound one after them, of those the one that was idle longest.  What it had goes cold and is found again by
 * its text.  MD_BUSY: all are kept, fatal or not; MD_NO_MEMORY */
MD_MUST_USE enum md_status md_pool_new(struct md_pool *p, struct md_session **ret_session,
                                       struct md_err *err);
/* As md_pool_new, for what may still fail: nobody makes way yet, so that one more than may be is open, and its id is told
 * nobody.  Then md_pool_take_back follows, or md_pool_make_way.  Errors of md_pool_new. */
MD_MUST_USE enum md_status md_pool_new_beside(struct md_pool *p, struct md_session **ret_session,
                                              struct md_err *err);
/* It stays: its id is never used again, also not by a later process, and where more are open than may be, another makes
 * way for it. */
void md_pool_make_way(struct md_session *s);
/* Close it as if it had never been opened: the next one gets its id. */
void md_pool_take_back(struct md_session *s);
/* The conversation of that id; NULL: there is none. */
struct md_session *md_pool_find(struct md_pool *p, int64_t id);
/* The one that a whole prompt goes on with (policy/identity.h), else a new one.  A request that md_session_run would
 * refuse opens none and gets that error; others as md_pool_new. */
MD_MUST_USE enum md_status md_pool_find_by_prompt(struct md_pool *p, const struct md_request *request,
                                                  struct md_session **ret_session, struct md_err *err);
/* From now on it is not closed to make room for another. */
void md_pool_keep(struct md_session *s);
/* Somebody sends its id: from now on no prompt without it goes on with this conversation, and those that nobody sends
 * the ids of are closed before it. */
void md_pool_bind(struct md_session *s);
/* All of them, in the order of opening: NULL gives the first, the last gives NULL. */
struct md_session *md_pool_next(struct md_pool *p, const struct md_session *after);

/* Is there work for when nobody waits for an answer? */
bool md_pool_wants_idle(const struct md_pool *p);
/* Do a little of it: some seconds at most on a slow machine, less when `wanted` (NULL: nobody) says that somebody waits.  It
 * may take cells from conversations that are not live, as another conversation would.  How it went is in md_pool_status. */
void md_pool_idle(struct md_pool *p, bool (*wanted)(void *user), void *user);

/* md_heads_print of its heads. */
MD_MUST_USE enum md_status md_pool_print_heads(const struct md_pool *p, struct md_buf *buf,
                                               struct md_err *err);

/* See which cold blocks have gone, so that what is shown afterwards is so. */
void md_pool_notice_lost(struct md_pool *p);

struct md_pool_status {
    int32_t window_tokens, hot_limit_tokens, block_tokens, sink_tokens, recent_tokens;
    int32_t trained_tokens; /* 0: unknown */
    bool residency, write_through, past_window;
    enum md_reuse reuse;
    int32_t sessions, session_limit;
    int32_t hot_cells;          /* in use, all together, shared ones once */
    int64_t kv_bytes_per_token; /* of the cold store and of exports */
    int64_t hot_bytes;          /* KV the engine holds for hot_cells */
    unsigned caps;
    const char *diagnostic;       /* why nothing is evicted, where nothing is; NULL */
    enum md_evict evict;          /* asked for */
    const char *not_by_attention; /* why it goes by recency where attention was asked for; NULL */
    const char *no_retrieval;     /* why nothing is retrieved, where nothing is; NULL */
    struct md_heads_status heads;
    size_t mirror_budget_bytes, mirror_bytes;       /* keys that are scored: allowed, kept */
    struct md_coldstore_stats cold, disk;           /* of the memory, of the disk */
    int64_t requests, prefilled_tokens, prefill_ns; /* since open, of closed ones too */
    int64_t break_even_tokens;                      /* md_restore_break_even_tokens of the host tier */
};
/* Tell somebody of each scoring from now on; no effect where nothing is retrieved. */
void md_pool_observe_retrieval(struct md_pool *p, const struct md_retrieve_observer *observer);

struct md_pool_status md_pool_status(const struct md_pool *p);
const struct md_pool_config *md_pool_config(const struct md_pool *p);

/* All invariants of tapes, engine map and cold store, for asserts and tests. */
bool md_pool_check(const struct md_pool *p);

#endif
