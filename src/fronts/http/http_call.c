/* The life of a call: references, suspend and resume, its end. */
#include "fronts/http/http_front.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

/* As OpenAI names them; the others have ids for the log. */
static void name_call(struct http_call *call)
{
    struct md_http *http = call->http;
    const char *kind = call->chat ? "chatcmpl" : call->route.target == HTTP_COMPLETION ? "cmpl" : "call";
    snprintf(call->head.id, sizeof call->head.id, "%s-%llx-%llx", kind, (unsigned long long)http->created,
             (unsigned long long)++http->next_id);
}

struct http_call *md_http_call_new(struct md_http *http, struct MHD_Connection *connection,
                                   const struct http_route *route)
{
    struct http_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    call->http = http;
    http->call_count++;
    call->connection = connection;
    call->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    call->refs = 1;
    call->route = *route;
    call->chat = route->target == HTTP_CHAT;
    name_call(call);
    md_buf_init(&call->body, NULL, http->body_limit_bytes);
    md_buf_init(&call->fresh, NULL, HTTP_REPLY_BYTES_MAX);
    md_buf_init(&call->out, NULL, HTTP_REPLY_BYTES_MAX);
    return call;
}

void md_http_call_unref(struct http_call *call)
{
    assert(call->refs > 0);
    if (--call->refs > 0)
        return;
    assert(call->job == NULL && !call->listed);
    md_http_call_drop_body(call);
    call->http->call_count--;
    md_buf_done(&call->fresh);
    md_chat_parser_close(call->parser);
    md_chat_form_unref(call->form);
    md_buf_done(&call->out);
    free(call);
}

void md_http_call_suspend(struct http_call *call)
{
    assert(!call->suspended);
    call->suspended = true;
    MHD_suspend_connection(call->connection);
}

void md_http_call_resume(struct http_call *call)
{
    if (!call->suspended)
        return;
    call->suspended = false;
    MHD_resume_connection(call->connection);
}

void md_http_call_abandon(struct http_call *call)
{
    call->gone = true;
    if (call->fd >= 0)
        shutdown(call->fd, SHUT_RDWR); /* so that the loop, which may wait to write, wakes and closes */
    md_http_call_resume(call);
}

void md_http_call_begin(struct http_call *call)
{
    if (call->begun)
        return;
    call->begun = true;
    if (md_reply_first(&call->out, &call->head, NULL) != MD_OK)
        md_http_call_abandon(call);
}

void md_http_call_log(const struct http_call *call, const struct md_http_error *e)
{
    enum md_log_level level = MD_LOG_DEBUG;
    if (e->http == 503)
        level = call->gone ? MD_LOG_DEBUG : MD_LOG_INFO;
    else if (e->http >= 500 && e->http != 501)
        level = MD_LOG_ERROR;
    md_log(level, "http: %s: %d: %s", call->head.id, e->http, e->message);
}

void md_http_call_fail(struct http_call *call, const struct md_http_error *e)
{
    enum md_status s;
    md_http_call_log(call, e);
    if (call->begun) {
        s = md_reply_error_event(&call->out, e, NULL);
    } else {
        call->stream = false;
        call->out.len = 0;
        call->http_status = e->http;
        s = md_reply_error(&call->out, e, NULL);
    }
    call->phase = HTTP_DONE;
    call->took_ns = call->wrote_ns = md_clock_mono_ns();
    if (s != MD_OK)
        md_http_call_abandon(call);
    else
        md_http_call_resume(call);
}

void md_http_call_drop_body(struct http_call *call)
{
    call->http->body_bytes -= call->counted_bytes;
    call->counted_bytes = 0;
    md_buf_done(&call->body);
}

void md_http_call_list(struct http_call *call)
{
    struct md_http *http = call->http;
    assert(!call->listed);
    call->listed = true;
    call->refs++;
    call->prev = NULL;
    call->next = http->calls;
    if (http->calls != NULL)
        http->calls->prev = call;
    http->calls = call;
}

void md_http_call_unlist(struct http_call *call)
{
    assert(call->listed);
    call->listed = false;
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        call->http->calls = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
    md_http_call_unref(call);
}
