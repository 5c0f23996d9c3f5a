/* http_api.h - which path is what, and modeld's own routes: looking, opening, branching, closing, capacity; snapshots
 * have a file of their own (http_snapshots.h).
 *
 * What only looks (md_http_api_get) is answered on the loop: it reads published copies.  What changes something is a
 * job of the worker and waits its turn in the queue, and the capacity report and the list of snapshots read files:
 * these are calls, made on the preparer (md_http_api_prepare) and ended by the pump (md_http_api_done). */
#ifndef MD_FRONTS_HTTP_HTTP_API_H
#define MD_FRONTS_HTTP_HTTP_API_H

#include "base/err.h"
#include "base/mem.h"
#include "fronts/http/http_request.h"
#include "session/worker.h"

struct md_http;
struct http_call;
struct yyjson_doc;

enum { HTTP_API_BODY_BYTES_MAX = 64 << 10 };

enum http_target {
    HTTP_NOWHERE,
    HTTP_CHAT,
    HTTP_COMPLETION,
    HTTP_HEALTH,
    HTTP_MODELS,
    HTTP_STATUS,
    HTTP_CAPACITY,
    HTTP_SESSIONS,
    HTTP_SESSION,
    HTTP_BRANCH,
    HTTP_SNAPSHOTS,
    HTTP_SNAPSHOT_RESTORE,
    HTTP_SNAPSHOT_REMOVE,
};

struct http_route {
    enum http_target target;
    int64_t session;   /* of HTTP_SESSION and HTTP_BRANCH; of snapshots: the body's, 0 where it has none */
    const char *allow; /* its methods, as the header Allow has them; NULL: nowhere */
};

struct http_route md_http_route(const char *path);
bool md_http_route_allows(const struct http_route *route, const char *method);
/* Is it a call: what changes something or waits for something, by preparer, worker and pump?  A method that is served
 * nowhere is one as well: it may bring a body, which is read before it is refused. */
bool md_http_route_is_call(const struct http_route *route, const char *method);

/* The reply of a route that is no call.  MD_NOT_FOUND, MD_NO_MEMORY: e is filled. */
MD_MUST_USE enum md_status md_http_api_get(const struct md_http *http, const struct http_route *route,
                                           struct md_buf *out, struct md_http_error *e);
/* On the preparer: the job, or the whole reply, or the error of a call that is no chat and no completion. */
void md_http_api_prepare(struct http_call *call);
/* Under http->mu: the job of such a call is done, and well. */
MD_MUST_USE enum md_status md_http_api_done(struct http_call *call, const struct md_event *event);
/* The job of any call failed: the error of its reply.  text: what the job says; session: the one it ran in, or 0. */
void md_http_api_failed(const struct http_call *call, enum md_status status, const char *text,
                        int64_t session, struct md_http_error *e);

/* The body of such a call: a JSON object, or nothing at all.
 *
 * ret_doc  NULL: there is none; else the caller's, and its root is an object without a key given twice
 * MD_INVALID, MD_NO_MEMORY: e is filled */
MD_MUST_USE enum md_status md_http_api_body(struct http_call *call, struct yyjson_doc **ret_doc,
                                            struct md_http_error *e);
/* Queue its job.  MD_BUSY (with the code queue_full), MD_CLOSED, MD_NO_MEMORY: e is filled. */
MD_MUST_USE enum md_status md_http_api_submit(struct md_worker *worker, const struct md_job_request *request,
                                              struct md_job **ret_job, struct md_http_error *e);

/* Is that conversation open?  It may be closed before the job is run: the worker looks again.
 * MD_NOT_FOUND, MD_NO_MEMORY: e is filled. */
MD_MUST_USE enum md_status md_http_api_find(struct md_worker *worker, int64_t session, const char *param,
                                            struct md_http_error *e);
/* MD_NOT_FOUND, with where to look: a path that is none of ours, a snapshot that is not there. */
enum md_status md_http_api_no_route(struct md_http_error *e);
enum md_status md_http_api_no_snapshot(const char *name, struct md_http_error *e);
/* Whose request this is, for the queue: its conversation's; without one it goes by how it begins. */
uint64_t md_http_api_client(const struct md_http_request *r);

#endif
