/* http_api.h - which path is what, and modeld's own routes: looking, opening, branching, closing, capacity.
 *
 * What only looks (md_http_api_get) is answered on the loop: it reads published copies.  What changes something is a
 * job of the worker and waits its turn in the queue, and the capacity report reads the header of the model and the
 * memory of the machine: these are calls, made on the preparer (md_http_api_prepare) and ended by the pump
 * (md_http_api_done). */
#ifndef MD_FRONTS_HTTP_HTTP_API_H
#define MD_FRONTS_HTTP_HTTP_API_H

#include "base/err.h"
#include "base/mem.h"
#include "fronts/http/http_request.h"
#include "session/worker.h"

struct md_http;
struct http_call;

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
};

struct http_route {
    enum http_target target;
    int64_t session;   /* of HTTP_SESSION and HTTP_BRANCH */
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
MD_MUST_USE enum md_status md_http_api_done(struct http_call *call, int64_t session);

/* Is that conversation open?  It may be closed before the job is run: the worker looks again.
 * MD_NOT_FOUND, MD_NO_MEMORY: e is filled. */
MD_MUST_USE enum md_status md_http_api_find(struct md_worker *worker, int64_t session, const char *param,
                                            struct md_http_error *e);
/* Whose request this is, for the queue: its conversation's; without one it goes by how it begins. */
uint64_t md_http_api_client(const struct md_http_request *r);

#endif
