/* Callbacks of libmicrohttpd's loop: routing, bodies in, replies out.  Nothing here waits. */
#include "fronts/http/http_front.h"

#include "base/clock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- replies that are ready ---- */

/* Frees nothing of `body` on failure; takes it over on success. */
/* allow: the methods of the route, for a 405. */
static enum MHD_Result send_buf(struct MHD_Connection *connection, int status, const char *allow,
                                struct md_buf *body)
{
    static char none[1];
    bool owned = body->data != NULL;
    struct MHD_Response *r =
        MHD_create_response_from_buffer(body->len, owned ? (void *)body->data : none,
                                        owned ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (r == NULL)
        return MHD_NO;
    *body = (struct md_buf){ 0 };
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json; charset=utf-8");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (status == 503)
        MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "5");
    if (status == 501) /* OpenAI's SDKs try a 5xx again unless told that it is in vain */
        MHD_add_response_header(r, "x-should-retry", "false");
    if (status == 405 && allow != NULL)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, allow);
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)status, r);
    MHD_destroy_response(r);
    return result;
}

/* In the first call for a request this also ends the connection: libmicrohttpd reads no body after it. */
static enum MHD_Result send_error(struct MHD_Connection *connection, const struct md_http_error *e,
                                  const char *allow)
{
    struct md_buf body;
    md_buf_init(&body, NULL, HTTP_REPLY_BYTES_MAX);
    enum MHD_Result result = MHD_NO;
    if (md_reply_error(&body, e, NULL) == MD_OK)
        result = send_buf(connection, e->http, allow, &body);
    md_buf_done(&body);
    return result;
}

static enum MHD_Result send_refusal(struct MHD_Connection *connection, int http_status, enum md_status status,
                                    const char *text)
{
    struct md_http_error e;
    md_http_refuse(&e, status, NULL, "%s", text);
    e.http = http_status;
    return send_error(connection, &e, NULL);
}

/* The route is not there, or not for this method.  Returns false with the error filled. */
static bool check_route(const struct http_route *route, const char *method, struct md_http_error *e)
{
    if (route->target == HTTP_NOWHERE) {
        (void)md_http_api_no_route(e);
        return false;
    }
    if (md_http_route_allows(route, method))
        return true;
    md_http_refuse(e, MD_INVALID, NULL, "this method is not served here: use %s", route->allow);
    e->http = 405;
    return false;
}

/* ---- GET ---- */

static enum MHD_Result get(struct md_http *http, struct MHD_Connection *connection,
                           const struct http_route *route, const char *method)
{
    struct md_http_error e;
    if (!check_route(route, method, &e))
        return send_error(connection, &e, route->allow);

    pthread_mutex_lock(&http->mu);
    bool attached = http->attached, closing = http->closing;
    pthread_mutex_unlock(&http->mu);
    if (!attached || closing)
        return send_refusal(connection, 503, MD_BUSY, closing ? "shutting down" : "loading the model");

    struct md_buf body;
    md_buf_init(&body, NULL, HTTP_REPLY_BYTES_MAX);
    enum MHD_Result result = md_http_api_get(http, route, &body, &e) == MD_OK
                                 ? send_buf(connection, 200, NULL, &body)
                                 : send_error(connection, &e, NULL);
    md_buf_done(&body);
    return result;
}

/* ---- calls: the body ---- */

static void set_deadline(struct MHD_Connection *connection, int from_now_ms)
{
    struct http_conn *conn =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (conn != NULL)
        conn->deadline_ns = from_now_ms == 0 ? 0 : md_clock_mono_ns() + (int64_t)from_now_ms * 1000000;
}

/* libmicrohttpd takes a reply before the body or after it, not within.  So this one goes out by hand, the
 * rest of the body is thrown away for a while (closing at once would reset the connection before the
 * client has read why), and then the connection ends. */
static void refuse_within_body(struct http_call *call, int http_status, const char *text)
{
    struct md_http_error e;
    struct md_buf body, reply;
    md_http_refuse(&e, http_status == 503 ? MD_BUSY : MD_INVALID, NULL, "%s", text);
    e.http = http_status;
    md_http_call_log(call, &e);
    md_buf_init(&body, NULL, HTTP_REPLY_BYTES_MAX);
    md_buf_init(&reply, NULL, HTTP_REPLY_BYTES_MAX);
    enum md_status s = md_reply_error(&body, &e, NULL);
    if (s == MD_OK)
        s = md_buf_printf(&reply, NULL,
                          "HTTP/1.1 %d %s\r\nContent-Type: application/json; charset=utf-8\r\n%s"
                          "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                          http_status, MHD_get_reason_phrase_for((unsigned)http_status),
                          http_status == 503 ? "Retry-After: 5\r\n" : "", body.len);
    if (s == MD_OK)
        s = md_buf_append(&reply, body.data, body.len, NULL);
    if (s != MD_OK ||
        send(call->fd, reply.data, reply.len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)reply.len)
        call->gone = true;
    md_buf_done(&body);
    md_buf_done(&reply);
    shutdown(call->fd, SHUT_WR);
    call->refused = true;
    md_http_call_drop_body(call);
    set_deadline(call->connection, 2000);
}

static const char too_many_at_once[] =
    "the bodies of other requests take the memory there is for them: try again later";

/* Our own routes take small bodies. */
static size_t body_limit(const struct http_call *call)
{
    const struct md_http *http = call->http;
    const bool large = call->route.target == HTTP_CHAT || call->route.target == HTTP_COMPLETION ||
                       http->body_limit_bytes < HTTP_API_BODY_BYTES_MAX;
    return large ? http->body_limit_bytes : HTTP_API_BODY_BYTES_MAX;
}

/* Under http->mu. */
static enum MHD_Result take_body(struct http_call *call, const char *upload, size_t *upload_len)
{
    struct md_http *http = call->http;
    size_t len = *upload_len;
    *upload_len = 0;
    if (call->refused || call->phase == HTTP_DONE) /* thrown away */
        return call->gone ? MHD_NO : MHD_YES;
    const size_t limit = body_limit(call);
    bool too_large = len > limit - call->body.len;
    bool no_room = len > http->body_limit_bytes * HTTP_BODIES_AT_ONCE - http->body_bytes;
    if (too_large) {
        char text[96];
        snprintf(text, sizeof text, "the body has more than %zu bytes, which is the limit", limit);
        refuse_within_body(call, 413, text);
    } else if (no_room || md_buf_append(&call->body, upload, len, NULL) != MD_OK) {
        refuse_within_body(call, 503, too_many_at_once);
    } else {
        call->counted_bytes += len;
        http->body_bytes += len;
    }
    return MHD_YES;
}

/* The body is whole: hand it to the preparer.  Under http->mu. */
static void body_ends(struct http_call *call)
{
    struct md_http *http = call->http;
    set_deadline(call->connection, 0);
    call->phase = HTTP_PREPARE;
    md_http_call_list(call);
    call->next_to_prepare = NULL;
    if (http->prepare_first == NULL)
        http->prepare_first = call;
    else
        http->prepare_last->next_to_prepare = call;
    http->prepare_last = call;
    md_http_call_suspend(call);
    pthread_cond_signal(&http->prepare_wake);
    pthread_cond_signal(&http->pump_wake);
}

/* ---- calls: the reply ---- */

static ssize_t read_stream(void *user, uint64_t pos, char *to, size_t max)
{
    struct http_call *call = user;
    struct md_http *http = call->http;
    (void)pos;
    ssize_t n;
    pthread_mutex_lock(&http->mu);
    size_t waiting = call->out.len - call->out_at;
    if (call->gone) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (waiting > 0) {
        n = (ssize_t)(waiting < max ? waiting : max);
        memcpy(to, call->out.data + call->out_at, (size_t)n);
        call->out_at += (size_t)n;
        call->took_ns = md_clock_mono_ns();
        if (call->out_at == call->out.len)
            call->out_at = call->out.len = 0;
        if (call->ready && waiting > HTTP_OUT_HIGH_BYTES)
            pthread_cond_signal(&http->pump_wake);
    } else if (call->phase == HTTP_DONE) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        md_http_call_suspend(call);
        n = 0;
    }
    pthread_mutex_unlock(&http->mu);
    return n;
}

static void stream_over(void *user)
{
    struct http_call *call = user;
    struct md_http *http = call->http;
    pthread_mutex_lock(&http->mu);
    md_http_call_unref(call);
    pthread_mutex_unlock(&http->mu);
}

/* Replies are queued without http->mu: libmicrohttpd holds its lock of a reply while it calls read_stream. */
static enum MHD_Result begin_stream(struct http_call *call)
{
    struct md_http *http = call->http;
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, read_stream, call, stream_over);
    if (r == NULL)
        return MHD_NO;
    pthread_mutex_lock(&http->mu);
    call->refs++; /* until stream_over */
    pthread_mutex_unlock(&http->mu);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream; charset=utf-8");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no"); /* proxies hold streams back otherwise */
    enum MHD_Result result = MHD_queue_response(call->connection, 200, r);
    MHD_destroy_response(r);
    return result;
}

/* After the body, and whenever the connection is resumed. */
static enum MHD_Result answer(struct http_call *call)
{
    struct md_http *http = call->http;
    bool over, stream, whole;
    pthread_mutex_lock(&http->mu);
    over = call->gone || call->refused || (call->phase == HTTP_BODY && http->closing);
    stream = call->stream && call->phase >= HTTP_RUN;
    whole = !call->stream && call->phase == HTTP_DONE; /* from here `out` does not change */
    if (!over && call->phase == HTTP_BODY)
        body_ends(call);
    else if (!over && !stream && !whole)
        md_http_call_suspend(call); /* woken for nothing */
    pthread_mutex_unlock(&http->mu);
    if (over)
        return MHD_NO;
    if (stream)
        return begin_stream(call);
    return whole ? send_buf(call->connection, call->http_status, call->route.allow, &call->out) : MHD_YES;
}

/* A call is refused, yet its body is read and thrown away first: a connection that is closed with unread
 * bytes in it is reset, and the client never sees why. */
static enum MHD_Result refuse_after_body(struct http_call *call, int http_status, enum md_status status,
                                         const char *text)
{
    struct md_http_error e;
    md_http_refuse(&e, status, NULL, "%s", text);
    e.http = http_status;
    md_http_call_fail(call, &e);
    return MHD_YES;
}

/* Under http->mu. */
static enum MHD_Result check_length(struct http_call *call)
{
    struct md_http *http = call->http;
    struct MHD_Connection *connection = call->connection;
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    bool waits = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT) != NULL;
    unsigned long long bytes = length == NULL ? 0 : strtoull(length, NULL, 10);
    if (bytes > body_limit(call)) {
        char text[96];
        snprintf(text, sizeof text, "the body has %llu bytes, the limit is %zu bytes", bytes,
                 body_limit(call));
        if (waits) /* for leave to send it */
            return send_refusal(connection, 413, MD_INVALID, text);
        refuse_within_body(call, 413, text);
    } else if (bytes > http->body_limit_bytes * HTTP_BODIES_AT_ONCE - http->body_bytes) {
        return refuse_after_body(call, 503, MD_BUSY, too_many_at_once);
    }
    return MHD_YES;
}

/* Under http->mu.  `refusal`: what md_http_guard found, or NULL. */
static enum MHD_Result begin_call(struct md_http *http, struct MHD_Connection *connection,
                                  const struct http_route *route, const char *method,
                                  const struct md_http_error *refusal, void **con)
{
    struct http_call *call = md_http_call_new(http, connection, route);
    struct md_http_error e;
    if (call == NULL)
        return MHD_NO;
    *con = call;
    call->looks = strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    set_deadline(connection, http->config.body_ms);
    if (refusal != NULL && refusal->http == 400) { /* where its body would end is not sure */
        refuse_within_body(call, 400, refusal->message);
        return MHD_YES;
    }
    if (refusal != NULL)
        return refuse_after_body(call, refusal->http, MD_INVALID, refusal->message);
    if (!check_route(route, method, &e))
        return refuse_after_body(call, e.http, e.http == 405 ? MD_INVALID : MD_NOT_FOUND, e.message);
    if (!http->attached || http->closing)
        return refuse_after_body(call, 503, MD_BUSY, http->closing ? "shutting down" : "loading the model");
    return check_length(call);
}

/* ---- the callbacks ---- */

/* What *con is between the two calls for a GET: a reply given in the first one would end the connection. */
static char get_seen;

enum MHD_Result md_http_handle(void *user, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_len, void **con)
{
    struct md_http *http = user;
    struct http_call *call = *con;
    bool upload_ended = *upload_len == 0;
    struct md_http_error e;
    enum MHD_Result result;
    (void)version;
    const struct http_route route = md_http_route(url);
    if (*con == &get_seen) {
        *upload_len = 0; /* a GET with a body: it means nothing here */
        return upload_ended ? get(http, connection, &route, method) : MHD_YES;
    }
    bool refused = call == NULL && !md_http_guard(http, connection, method, &e);
    bool is_call = md_http_route_is_call(&route, method);
    if (refused && !is_call)
        return send_error(connection, &e, NULL);
    if (!is_call) {
        *con = &get_seen;
        return MHD_YES;
    }
    if (call != NULL && upload_ended)
        return answer(call);
    pthread_mutex_lock(&http->mu);
    if (call == NULL)
        result = begin_call(http, connection, &route, method, refused ? &e : NULL, con);
    else
        result = take_body(call, upload, upload_len);
    pthread_mutex_unlock(&http->mu);
    return result;
}

void md_http_completed(void *user, struct MHD_Connection *connection, void **con,
                       enum MHD_RequestTerminationCode why)
{
    struct md_http *http = user;
    struct http_call *call = *con == &get_seen ? NULL : *con;
    (void)why;
    *con = NULL;
    pthread_mutex_lock(&http->mu);
    set_deadline(connection, http->config.idle_ms);
    if (call != NULL) {
        call->gone = true;
        call->fd = -1;
        call->connection = NULL;
        md_http_call_unref(call);
        pthread_cond_signal(&http->pump_wake);
    }
    pthread_mutex_unlock(&http->mu);
}

void md_http_connected(void *user, struct MHD_Connection *connection, void **socket_context,
                       enum MHD_ConnectionNotificationCode what)
{
    struct md_http *http = user;
    struct http_conn *conn = *socket_context;
    pthread_mutex_lock(&http->mu);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        conn = calloc(1, sizeof *conn); /* without one the connection has no deadline, and works */
        if (conn != NULL) {
            conn->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
            conn->deadline_ns = md_clock_mono_ns() + (int64_t)http->config.header_ms * 1000000;
            conn->next = http->conns;
            if (http->conns != NULL)
                http->conns->prev = conn;
            http->conns = conn;
            *socket_context = conn;
            pthread_cond_signal(&http->pump_wake);
        }
    } else if (conn != NULL) {
        if (conn->prev != NULL)
            conn->prev->next = conn->next;
        else
            http->conns = conn->next;
        if (conn->next != NULL)
            conn->next->prev = conn->prev;
        *socket_context = NULL;
        free(conn);
    }
    pthread_mutex_unlock(&http->mu);
}
