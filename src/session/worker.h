/* worker.h - the one thread that owns engine and session, and the queue before it.
 *
 * Requests run first in, first out, one at a time; at most queue_limit wait.  Each job has its own
 * bounded queue of events: the worker waits for a slow reader up to a bound, then cancels that job, so a
 * reader that went to sleep holds up nobody for ever.  Status is a published copy: reading it never waits
 * for the engine.
 *
 * Threads: every function may be called from any thread; a job is read by one thread. */
#ifndef MD_SESSION_WORKER_H
#define MD_SESSION_WORKER_H

#include "session/session.h"

struct md_worker;
struct md_job;

enum {
    MD_QUEUE_LIMIT = 16,          /* waiting requests; one more gets MD_BUSY */
    MD_JOB_BYTES_MAX = 256 << 10, /* text not yet read by the front */
    MD_JOB_STALL_MS = 30 * 1000,  /* a reader that takes nothing for so long is given up */
};

/* What a front gives: all is copied but notify; the form of the sampling is referenced.  prompt: tokens, ready. */
struct md_job_request {
    struct md_request request;
    bool want_progress;
    /* Called (by the worker, without locks held) whenever md_job_next may have something new. */
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
    struct md_result result; /* MD_EVENT_DONE with MD_OK or MD_CANCELLED: md_result_done */
};

/* Start the thread.  The session is borrowed, and is used by the worker alone until close.
 * MD_NO_MEMORY, MD_IO (no thread). */
MD_MUST_USE enum md_status md_worker_open(struct md_session *session, int queue_limit,
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

struct md_worker_status {
    struct md_session_status session;
    int queued;
    bool running;
};
struct md_worker_status md_worker_status(struct md_worker *w);
/* The hot/cold map as published after the last chunk or block; as md_session_map. */
size_t md_worker_map(struct md_worker *w, enum md_block_state *out, size_t cap);

#endif
