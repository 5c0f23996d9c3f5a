/* worker_view.h - what the worker publishes of each conversation: copies that can be read while it runs.
 *
 * Threads: one at a time (under the worker's lock). */
#ifndef MD_SESSION_WORKER_VIEW_H
#define MD_SESSION_WORKER_VIEW_H

#include "session/worker.h"

struct md_views {
    struct md_explain *items; /* in the order of opening */
    size_t count, cap;
};

/* Copy what has changed since the last time.  Without memory an old view stays: it is for looking only. */
void md_views_update(struct md_views *v, struct md_pool *pool);
void md_views_done(struct md_views *v);
/* The view of one, until the next update; NULL: there is none. */
const struct md_explain *md_views_find(const struct md_views *v, int64_t session);
/* A copy of one.  MD_NOT_FOUND, MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_views_copy(const struct md_views *v, int64_t session,
                                         struct md_explain *ret_explain, struct md_err *err);

#endif
