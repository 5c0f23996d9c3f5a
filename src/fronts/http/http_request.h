/* http_request.h - the body of a chat or completion request, every field checked, nothing evaluated.
 *
 * Strings are borrowed from the parsed document, which the request owns.  Threads: one at a time. */
#ifndef MD_FRONTS_HTTP_HTTP_REQUEST_H
#define MD_FRONTS_HTTP_HTTP_REQUEST_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "fronts/http/http.h"
#include "session/prompt.h"
#include "text/stream.h"
#include "text/text.h"

#include <stdbool.h>

enum {
    MD_HTTP_BIAS_MAX = 1024,
    MD_HTTP_MESSAGES_MAX = 65536,
    MD_HTTP_STOPS_MAX = 16, /* the rest of MD_STOP_MAX is for those of the chat template */
    MD_HTTP_TOOLS_MAX = 512,
    MD_HTTP_TOOL_NAME_MAX = 64,
};

/* Why a request is refused, ready for the reply.  Strings but message and param are literals. */
struct md_http_error {
    int http;
    const char *type;
    const char *code; /* NULL: null */
    char param[48];   /* empty: null */
    char message[640];
    int32_t prompt_tokens, window_tokens; /* for an overflow; else 0 */
};

struct md_http_request {
    struct md_arena arena;
    void *document;                        /* yyjson_doc */
    bool chat;                             /* else a completion */
    struct md_bytes model;                 /* data NULL: not given */
    int64_t session;                       /* the conversation it is bound to; 0: found by the text */
    struct md_chat_input in;               /* of a completion only what binds the answer */
    const struct md_segment_label *labels; /* of each message, by modeld.manifest; NULL: by their roles */
    const char *bound_by;   /* the field that json_schema or grammar came from; NULL: none did */
    struct md_bytes prompt; /* data NULL: prompt_ids */
    md_token *prompt_ids;
    size_t prompt_id_count;
    int32_t max_tokens; /* -1: no limit of its own */
    struct md_sample_params sample;
    struct md_bytes stops[MD_HTTP_STOPS_MAX];
    size_t stop_count;
    bool stream, include_usage, return_progress;
};

/* Parse and check a body.  It is changed in place (see md_json_guard).
 *
 * ret_request   valid only on MD_OK; md_http_request_done
 * ret_error     filled on any failure
 * MD_INVALID, MD_UNSUPPORTED (asks for what is not done yet), MD_NO_MEMORY */
MD_MUST_USE enum md_status md_http_request_parse(char *body, size_t len, bool chat, int32_t vocab_count,
                                                 const struct md_http_defaults *defaults,
                                                 struct md_http_request *ret_request,
                                                 struct md_http_error *ret_error);
void md_http_request_done(struct md_http_request *r); /* accepts a zeroed struct */

/* Fill an error; `param` may be NULL.  Returns status. */
enum md_status md_http_refuse(struct md_http_error *e, enum md_status status, const char *param,
                              const char *fmt, ...) MD_PRINTF(4, 5);

#endif
