/* http_reply.h - replies as bytes: JSON bodies and SSE events, appended to a buffer.
 *
 * Knows the shapes of the protocol and nothing of connections.  Every function is all or nothing only in
 * what it says: on MD_NO_MEMORY the buffer may hold a part, and the reply must be given up.
 *
 * Threads: any; they touch nothing but their arguments. */
#ifndef MD_FRONTS_HTTP_HTTP_REPLY_H
#define MD_FRONTS_HTTP_HTTP_REPLY_H

#include "base/err.h"
#include "base/mem.h"
#include "fronts/http/http_request.h"
#include "session/worker.h"
#include "text/parser.h"

/* What every chunk of one reply repeats. */
struct md_reply_head {
    char id[40];
    int64_t created; /* seconds since 1970 */
    const char *model;
    bool chat;
    int64_t session;    /* the conversation, once the job is done */
    bool include_usage; /* chunks before the last carry "usage": null */
};

/* {"error":{...}} */
MD_MUST_USE enum md_status md_reply_error(struct md_buf *out, const struct md_http_error *e,
                                          struct md_err *err);

/* One SSE event each; the first of a chat carries the role, that of a completion empty text. */
MD_MUST_USE enum md_status md_reply_first(struct md_buf *out, const struct md_reply_head *h,
                                          struct md_err *err);
MD_MUST_USE enum md_status md_reply_delta(struct md_buf *out, const struct md_reply_head *h,
                                          const struct md_chat_delta *delta, struct md_err *err);
MD_MUST_USE enum md_status md_reply_progress(struct md_buf *out, const struct md_reply_head *h,
                                             const struct md_progress *progress, struct md_err *err);
/* The chunk with finish_reason ("tool_calls" where some were made and nothing cut them off), usage if wanted, and
 * data: [DONE]. */
MD_MUST_USE enum md_status md_reply_last(struct md_buf *out, const struct md_reply_head *h,
                                         const struct md_chat_parser *answer, const struct md_result *result,
                                         struct md_err *err);
/* The error, where a stream has begun, and data: [DONE]: clients that wait for that wait no longer, and those that ask
 * for a finish_reason have none. */
MD_MUST_USE enum md_status md_reply_error_event(struct md_buf *out, const struct md_http_error *e,
                                                struct md_err *err);

/* The whole answer in one object. */
MD_MUST_USE enum md_status md_reply_whole(struct md_buf *out, const struct md_reply_head *h,
                                          const struct md_chat_parser *answer, const struct md_result *result,
                                          struct md_err *err);

/* /v1/models. */
MD_MUST_USE enum md_status md_reply_models(struct md_buf *out, const char *model, const char *alias,
                                           int32_t window_tokens, int32_t trained_tokens, int64_t created,
                                           int32_t vocab_count, struct md_err *err);

#endif
