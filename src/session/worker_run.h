/* worker_run.h - what a job does, on the worker's thread.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_WORKER_RUN_H
#define MD_SESSION_WORKER_RUN_H

#include "session/worker.h"

/* The conversation that a job is for, opened where it asks for that.  MD_NOT_FOUND, and those of the pool. */
MD_MUST_USE enum md_status md_worker_find(struct md_pool *pool, const struct md_job_request *q,
                                          struct md_session **ret_session, struct md_err *err);
/* Do it: fills end's members of its kind, and its context. */
MD_MUST_USE enum md_status md_worker_run(const struct md_job_request *q, struct md_session *s,
                                         const struct md_sink *sink, struct md_event *end,
                                         struct md_err *err);

#endif
