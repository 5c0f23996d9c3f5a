/* worker.h - the one thread that owns engine and conversations, and the queue before it.
 *
 * Jobs run one at a time; at most queue_limit wait.  Whose turn it is, is decided by start-time fair queueing: of
 * two clients that both have jobs waiting each gets every second turn, however many the one has queued; the jobs of
 * one client keep their order.  Each job has its own
 * bounded queue of events: the worker waits for a slow reader up to a bound, then cancels that job, so a
 * reader that went to sleep holds up nobody for ever.  What there is to look at is a published copy: reading it
 * never waits for the engine.
 *
 * When no job has come for some seconds the worker does the pool's idle work (md_pool_idle), in steps that a job ends within a
 * micro-batch.
 *
 * Threads: every function may be called from any thread; a job is read by one thread.
 * Source of the queue: Goyal, Vin, Cheng, Start-time Fair Queueing, 1996; every job costs the same there. */
#ifndef MD_SESSION_WORKER_H
#define MD_SESSION_WORKER_H

#include "session/pool.h"
#include "session/session.h"
#include "session/snapshot.h"

struct md_worker;
struct md_job;

enum {
    MD_QUEUE_LIMIT = 16,          /* waiting jobs; one more gets MD_BUSY */
    MD_JOB_BYTES_MAX = 256 << 10, /* text not yet read by the front */
    MD_JOB_STALL_MS = 30 * 1000,  /* a reader that takes nothing for so long is given up */
};

enum md_job_kind {
    MD_JOB_RUN,    /* md_session_run; session 0: the one the prompt goes on with, else a new one */
    MD_JOB_OPEN,   /* md_pool_new, and it is kept */
    MD_JOB_ENSURE, /* md_session_ensure_prefix with prompt */
    MD_JOB_SUFFIX, /* md_session_prefill_suffix with prompt */
    MD_JOB_DECODE, /* md_session_decode */
    MD_JOB_BRANCH, /* md_session_branch at range.end (-1: all), and both are kept */
    MD_JOB_EVICT,  /* md_session_evict_range */
    MD_JOB_ADMIT,  /* md_session_admit_range */
    MD_JOB_ADMIT_AT_TAIL,
    MD_JOB_CLOSE,    /* md_session_close */
    MD_JOB_SNAPSHOT, /* md_session_snapshot */
    MD_JOB_RESTORE,  /* md_session_restore; session 0: into a new one, which is kept */
};

/* What a front lets the worker do with an answer before it is written to the disk, which comes before its last event.
 * Called on the worker's thread, without locks held; none may be NULL, but for all of them. */
struct md_keeper {
    void *user;
    void (*text)(void *user, struct md_bytes text); /* the answer, as its reader gets it */
    void (*ended)(void *user, const struct md_tokens *answer, struct md_buf *notes); /* see struct md_sink */
    void (*close)(void *user); /* once, by any thread, when the job is done with it */
};

/* What a front gives: all is copied but notify; the form of the sampling is referenced.  A session that is not there: MD_NOT_FOUND, in the last event. */
struct md_job_request {
    enum md_job_kind kind;
    int64_t session;
    struct md_request request; /* its prompt, its decode: as the kind needs */
    struct md_range range;
    struct md_sections_place place;            /* of snapshot and restore */
    bool tokens_only;                          /* of restore: md_session_restore_tokens */
    const struct md_snapshot_expected *expect; /* of restore: see there; its tokens are request.prompt's */
    struct md_keeper keeper;                   /* of run: the job's as soon as it is queued */
    bool fresh;                                /* of ensure: see there */
    int32_t keep; /* of suffix: see there; mind that 0 keeps nothing and -1 all */
    uint64_t
        client; /* whose job it is, for the queue's fairness; any number that is the same for the same one */
    bool want_progress;
    /* Called (by the worker, or by who cancels a job that waits; without locks held) whenever md_job_next may have
     * something new. */
    void (*notify)(void *user);
    void *notify_user;
};

enum md_event_kind {
    MD_EVENT_NONE,    /* nothing yet: wait for notify */
    MD_EVENT_STARTED, /* left the queue */
    MD_EVENT_PROGRESS,
    MD_EVENT_TEXT,
    MD_EVENT_DONE, /* the last one: result or error */
};
struct md_event {
    enum md_event_kind kind;
    struct md_progress progress;
    struct md_buf text;    /* MD_EVENT_TEXT: owned by the reader, md_buf_done */
    enum md_status status; /* MD_EVENT_DONE: MD_OK or the error */
    struct md_err err;
    int64_t session; /* MD_EVENT_DONE: the one it ran in, or made; 0: none */
    int32_t context; /* MD_EVENT_DONE: tokens of the context of the one it ran in, however it went */
    struct md_result
        result; /* MD_EVENT_DONE with MD_OK or MD_CANCELLED, of run and decode; with MD_OK, of snapshot,
                                tokens alone: those of the context.  md_result_done */
    struct md_prefill_status prefill; /* MD_EVENT_DONE with MD_OK, of ensure and suffix */
    int32_t tokens;                   /* likewise, of evict and admit */
    struct md_snapshot snapshot;      /* likewise, of snapshot and restore */
    struct md_buf notes;              /* likewise, of restore: md_session_notes; the reader's, md_buf_done */
};

/* Start the thread.  The pool is borrowed, and is used by the worker alone until close.
 * MD_NO_MEMORY, MD_IO (no thread). */
MD_MUST_USE enum md_status md_worker_open(struct md_pool *pool, int queue_limit,
                                          struct md_worker **ret_worker, struct md_err *err);
/* Cancel what runs and waits (their readers get MD_CANCELLED), join the thread.  Accepts NULL.
 * Jobs stay readable until released. */
void md_worker_close(struct md_worker *w);

/* Queue a request.  MD_BUSY: the queue is full (say Retry-After); MD_CLOSED: closing; MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_worker_submit(struct md_worker *w, const struct md_job_request *request,
                                            struct md_job **ret_job, struct md_err *err);
/* Take the next event without waiting.  After MD_EVENT_DONE: MD_EVENT_NONE for ever. */
void md_job_next(struct md_job *job, struct md_event *ret_event);
/* Wait up to timeout_ms (-1: for ever) for the next event; MD_EVENT_NONE on time-out. */
void md_job_wait(struct md_job *job, int timeout_ms, struct md_event *ret_event);
/* Stop it: a waiting job never starts, a running one ends within a micro-batch. */
void md_job_cancel(struct md_job *job);
/* Cancel if not done, and let go; notify is not called any more after this returns.  Accepts NULL. */
void md_job_release(struct md_job *job);

/* ---- looking at it: as published after the last chunk or block ---- */

struct md_worker_status {
    struct md_pool_status pool;
    int queued;
    int64_t running; /* the session whose job runs; 0: none runs, or it has none yet */
    bool busy;
};
struct md_worker_status md_worker_status(struct md_worker *w);
/* All conversations, in the order of opening, up to `cap`; returns how many there are. */
size_t md_worker_sessions(struct md_worker *w, struct md_session_status *out, size_t cap);

bool md_worker_has_session(struct md_worker *w, int64_t session);

/* The notes on the conversations that are open, one after the other: for who begins to serve what an earlier process
 * left.  Waits for the job that runs; take must not call the worker. */
void md_worker_notes(struct md_worker *w, void (*take)(void *user, int64_t session, struct md_bytes notes),
                     void *user);

/* ExplainContext: one conversation in full. */
struct md_explain {
    struct md_session_status status;
    struct md_block_view *blocks; /* see md_session_map */
    size_t block_count;
    struct md_segment *segments;
    size_t segment_count;
};
/* ret_explain  the caller's: md_explain_done
 * MD_NOT_FOUND  there is no such conversation; MD_NO_MEMORY */
MD_MUST_USE enum md_status md_worker_explain(struct md_worker *w, int64_t session,
                                             struct md_explain *ret_explain, struct md_err *err);
void md_explain_done(struct md_explain *e);

#endif
