/* The pump: events of jobs into replies, and an eye on clients and deadlines. */
#include "fronts/http/http_front.h"

#include "base/clock.h"
#include "base/log.h"
#include "fronts/http/http_keep.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static int64_t ms(int64_t n)
{
    return n * 1000000;
}

/* ---- events ---- */

/* session: the one that the job ran in, or 0 */
static void done_with_error(struct http_call *call, enum md_status status, const char *text, int64_t session)
{
    struct md_http_error e;
    if (status == MD_CANCELLED)
        md_http_refuse(&e, status, NULL, "%s",
                       call->http->closing ? "the server is shutting down" : "the request was cancelled");
    else
        md_http_api_failed(call, status, text, session, &e);
    if (status == MD_TOO_LARGE)
        e.code = "context_length_exceeded";
    md_http_call_fail(call, &e);
}

/* A delta of the answer, into what the event adds. */
enum md_status md_http_pump_delta(void *user, const struct md_chat_delta *delta, struct md_err *err)
{
    struct http_call *call = user;
    return call->stream ? md_reply_delta(&call->fresh, &call->head, delta, err) : MD_OK;
}

/* The exact text of the turn, which the worker has got kept by now (http_keep.h). */
static enum md_status remember_calls(struct http_call *call, const struct md_result *result)
{
    struct md_chat_call calls[MD_CALLS_PER_TURN];
    struct md_calls_turn turn;
    struct md_buf raw;
    md_buf_init(&raw, NULL, HTTP_REPLY_BYTES_MAX);
    enum md_status s = md_http_keep_turn(call->http->service.text, call->form, call->parser, &result->tokens,
                                         &raw, calls, &turn, NULL);
    if (s == MD_OK && turn.call_count > 0)
        s = md_calls_remember(call->http->calls_made, &turn, NULL);
    md_buf_done(&raw);
    return s;
}

static enum md_status done_with_result(struct http_call *call, const struct md_result *result)
{
    enum md_status s = md_chat_parser_finish(call->parser, NULL);
    if (s == MD_OK)
        s = remember_calls(call, result);
    if (s == MD_OK && call->stream)
        s = md_reply_last(&call->fresh, &call->head, call->parser, result, NULL);
    else if (s == MD_OK)
        s = md_reply_whole(&call->fresh, &call->head, call->parser, result, NULL);
    return s;
}

/* What an event adds to the reply.  Without http->mu: reading an answer takes time. */
static enum md_status read_event(struct http_call *call, const struct md_event *event)
{
    call->fresh.len = 0;
    if (event->kind == MD_EVENT_PROGRESS && call->stream && call->return_progress)
        return md_reply_progress(&call->fresh, &call->head, &event->progress, NULL);
    if (event->kind == MD_EVENT_TEXT)
        return md_chat_parser_push(call->parser, (struct md_bytes){ event->text.data, event->text.len },
                                   NULL);
    if (event->kind != MD_EVENT_DONE || event->status != MD_OK)
        return MD_OK;
    call->head.session = event->session;
    if (event->notes.len > 0)
        md_http_keep_take(call->http->calls_made, call->http->service.text, event->session,
                          (struct md_bytes){ event->notes.data, event->notes.len });
    return call->route.target == HTTP_CHAT || call->route.target == HTTP_COMPLETION
               ? done_with_result(call, &event->result)
               : md_http_api_done(call, event);
}

/* The event, and what was read of it, into the call.  Under http->mu. */
static void take_event(struct http_call *call, struct md_event *event, enum md_status s)
{
    size_t before = call->out.len;
    if (s == MD_OK && call->stream && call->fresh.len > 0)
        md_http_call_begin(call);
    if (s == MD_OK)
        s = md_buf_append(&call->out, call->fresh.data, call->fresh.len, NULL);
    if (event->kind == MD_EVENT_TEXT)
        md_buf_done(&event->text);
    if (s != MD_OK) {
        done_with_error(call, s, s == MD_NO_MEMORY ? "no memory for the answer" : "the answer cannot be read",
                        event->session);
    } else if (event->kind == MD_EVENT_DONE && event->status == MD_OK) {
        call->http_status = 200;
        call->phase = HTTP_DONE;
    } else if (event->kind == MD_EVENT_DONE) {
        done_with_error(call, event->status, event->err.text, event->session);
    }
    if (event->kind == MD_EVENT_DONE && (event->status == MD_OK || event->status == MD_CANCELLED))
        md_result_done(&event->result);
    if (event->kind == MD_EVENT_DONE)
        md_buf_done(&event->notes);
    if (call->out.len > before) {
        call->wrote_ns = md_clock_mono_ns();
        if (before == call->out_at)
            call->took_ns = call->wrote_ns; /* nothing was waiting: the reader's time starts now */
    }
}

/* Under http->mu, which is let go around the calls into the worker; the list holds the call meanwhile. */
static void run_call(struct http_call *call)
{
    pthread_mutex_t *mu = &call->http->mu;
    while (call->phase == HTTP_RUN && !call->gone && call->ready) {
        if (call->out.len - call->out_at > HTTP_OUT_HIGH_BYTES)
            return;          /* still ready: the loop wakes the pump when it has taken some */
        call->ready = false; /* before asking: news that comes while we look sets it again */
        struct md_event event;
        do {
            pthread_mutex_unlock(mu);
            md_job_next(call->job, &event);
            enum md_status s = read_event(call, &event);
            pthread_mutex_lock(mu);
            if (event.kind == MD_EVENT_NONE)
                break;
            take_event(call, &event, s);
            if (call->out.len - call->out_at > HTTP_OUT_HIGH_BYTES)
                call->ready = true;
        } while (call->phase == HTTP_RUN && !call->gone && !call->ready);
        if (call->phase == HTTP_DONE || (call->stream && call->out_at < call->out.len))
            md_http_call_resume(call);
    }
}

/* The server stops: end the jobs, so that each reply gets its end.  Once for each call. */
static void cancel_all(struct md_http *http)
{
    for (struct http_call *call = http->calls; call != NULL; call = call->next)
        if (call->phase == HTTP_RUN && !call->cancelled) {
            call->cancelled = true;
            pthread_mutex_unlock(&http->mu);
            md_job_cancel(call->job);
            pthread_mutex_lock(&http->mu);
        }
}

/* Let go of the job of a call that is over. */
static void finish_call(struct http_call *call)
{
    struct md_job *job = call->job;
    call->job = NULL;
    call->phase = HTTP_DONE;
    pthread_mutex_unlock(&call->http->mu);
    md_job_release(job); /* cancels it; waits for a notify that is under way, which needs mu */
    pthread_mutex_lock(&call->http->mu);
    md_http_call_unlist(call);
}

/* ---- what libmicrohttpd does not look after ---- */

/* A client that closed, half or whole.  A suspended connection is not polled by the loop. */
static bool has_left(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static void look_after(struct http_call *call, int64_t now)
{
    const struct md_http_config *c = &call->http->config;
    size_t waiting = call->out.len - call->out_at;
    if (call->gone)
        return;
    if (call->fd >= 0 && has_left(call->fd)) {
        md_http_call_abandon(call);
    } else if (call->stream && !call->begun && call->phase == HTTP_RUN) {
        if (now - call->wrote_ns > ms(HTTP_BEGIN_MS)) {
            md_http_call_begin(call);
            call->wrote_ns = call->took_ns = now;
            md_http_call_resume(call);
        }
    } else if (waiting > 0 && call->stream && now - call->took_ns > ms(c->stall_ms)) {
        md_log(MD_LOG_INFO, "http: %s: the client does not read: given up", call->head.id);
        md_http_call_abandon(call);
    } else if (waiting == 0 && call->stream && call->phase == HTTP_RUN &&
               now - call->wrote_ns > ms(c->keepalive_ms)) {
        static const char comment[] = ": keep-alive\n\n";
        if (md_buf_append(&call->out, comment, sizeof comment - 1, NULL) != MD_OK)
            md_http_call_abandon(call);
        call->wrote_ns = call->took_ns = now;
        md_http_call_resume(call);
    }
}

static void tick(struct md_http *http, int64_t now)
{
    for (struct http_call *call = http->calls; call != NULL; call = call->next)
        look_after(call, now);
    for (struct http_conn *conn = http->conns; conn != NULL; conn = conn->next)
        if (conn->deadline_ns != 0 && now > conn->deadline_ns) {
            conn->deadline_ns = 0;
            shutdown(conn->fd, SHUT_RDWR); /* the loop sees the end and closes it */
        }
}

/* Wait for news, at most until the next tick is due. */
static void wait_for_news(struct md_http *http, int64_t next_tick_ns)
{
    if (http->calls == NULL && http->conns == NULL) {
        pthread_cond_wait(&http->pump_wake, &http->mu);
        return;
    }
    struct timespec until = { .tv_sec = (time_t)(next_tick_ns / 1000000000),
                              .tv_nsec = (long)(next_tick_ns % 1000000000) };
    pthread_cond_timedwait(&http->pump_wake, &http->mu, &until); /* made with CLOCK_MONOTONIC */
}

static bool has_work(const struct md_http *http)
{
    for (const struct http_call *call = http->calls; call != NULL; call = call->next) {
        if (call->phase == HTTP_DONE || (call->phase == HTTP_RUN && call->gone))
            return true;
        if (call->phase == HTTP_RUN && call->ready && call->out.len - call->out_at <= HTTP_OUT_HIGH_BYTES)
            return true;
    }
    return false;
}

void *md_http_pump_main(void *user)
{
    struct md_http *http = user;
    int64_t next_tick = md_clock_mono_ns();
    pthread_mutex_lock(&http->mu);
    while (!http->closing || http->calls != NULL) {
        int64_t now = md_clock_mono_ns();
        if (now >= next_tick) {
            tick(http, now);
            next_tick = now + ms(HTTP_TICK_MS);
        }
        if (http->closing)
            cancel_all(http);
        if (!has_work(http))
            wait_for_news(http, next_tick);
        /* only the pump takes calls off the list, so `next` stays good while mu is let go */
        for (struct http_call *call = http->calls, *next; call != NULL; call = next) {
            run_call(call);
            next = call->next;
            if (call->phase == HTTP_DONE || (call->phase == HTTP_RUN && call->gone))
                finish_call(call);
        }
    }
    pthread_mutex_unlock(&http->mu);
    return NULL;
}
