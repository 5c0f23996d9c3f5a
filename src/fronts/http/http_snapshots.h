/* http_snapshots.h - snapshots over HTTP: list, write, restore, remove.
 *
 * All are calls: the folder is read and files are removed on the preparer, what touches a conversation is a job of the
 * worker.  The folder is made when the first one is to be written; until then there are none, which is no error.
 *
 * Source: case B058 for names; host/sections.h for what a file is. */
#ifndef MD_FRONTS_HTTP_HTTP_SNAPSHOTS_H
#define MD_FRONTS_HTTP_HTTP_SNAPSHOTS_H

#include "base/err.h"
#include "base/mem.h"
#include "fronts/http/http_api.h"

/* On the preparer: the job in ret_job, or the whole reply appended to `reply`.
 *
 * MD_INVALID (a name, a field), MD_NOT_FOUND (no such conversation or snapshot), MD_UNSUPPORTED (no folder was given),
 * MD_BUSY, MD_NO_MEMORY, MD_IO: e is filled, and nothing was changed */
MD_MUST_USE enum md_status md_http_snapshots_prepare(struct http_call *call, struct md_buf *reply,
                                                     struct md_job **ret_job, struct md_http_error *e);
/* The reply to a job that is done, and well, into call->fresh.  MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_http_snapshots_done(struct http_call *call, const struct md_event *event);

#endif
