/* http_view.h - what there is to look at, as JSON: the whole, the list of conversations, one in full.
 *
 * Everything comes from the published copies of session/worker.h, so nothing here waits for the engine.  Tokens,
 * cells, blocks and bytes are integers, times have their unit in their name; what is not there is null.
 *
 * Threads: any.  Every function says with MD_NO_MEMORY that the buffer may hold a part and must be given up. */
#ifndef MD_FRONTS_HTTP_HTTP_VIEW_H
#define MD_FRONTS_HTTP_HTTP_VIEW_H

#include "base/err.h"
#include "base/mem.h"
#include "fronts/http/http.h"

/* GET /api/status.  uptime_ns: since the front was opened. */
MD_MUST_USE enum md_status md_view_status(struct md_buf *out, const struct md_http_service *service,
                                          int64_t uptime_ns, struct md_err *err);
/* GET /api/sessions: {"sessions":[...]}, in the order of opening. */
MD_MUST_USE enum md_status md_view_sessions(struct md_buf *out, const struct md_http_service *service,
                                            struct md_err *err);
/* GET /api/sessions/ID: the same of one, its segments, the map of its blocks, and the residency report under
 * the field names of the session protocol.
 *
 * MD_NOT_FOUND  there is no such conversation; nothing was written */
MD_MUST_USE enum md_status md_view_explain(struct md_buf *out, const struct md_http_service *service,
                                           int64_t session, struct md_err *err);

#endif
