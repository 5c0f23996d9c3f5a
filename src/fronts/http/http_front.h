/* http_front.h - what the files of this front share: the front, its connections, its calls.
 *
 * Three threads.  The *loop* is libmicrohttpd's: it takes bytes in, hands bytes out, and never waits.
 * The *preparer* turns one body after the other into tokens and queues it (long texts take seconds there).
 * The *pump* reads the events of jobs, writes replies, and looks every HTTP_TICK_MS after what libmicrohttpd
 * does not: clients that left while their connection was suspended, and deadlines.
 *
 * A call is one request that is not answered on the loop: one with a body, a DELETE, a GET of the capacity or of the
 * snapshots.
 * Connection, pump list and reply each hold a reference.  Every field of a call is under http->mu, but that the
 * preparer reads the body it was given, and only the pump takes events from the job, reads its answer (parser, fresh)
 * and lets go of it.
 * Lock order: http->mu, then libmicrohttpd's own.  No call into the worker is made with http->mu held. */
#ifndef MD_FRONTS_HTTP_HTTP_FRONT_H
#define MD_FRONTS_HTTP_HTTP_FRONT_H

#include "fronts/http/http.h"
#include "fronts/http/http_api.h"
#include "fronts/http/http_reply.h"
#include "fronts/http/http_request.h"
#include "host/sections.h"
#include "text/calls.h"
#include "text/parser.h"

#include <microhttpd.h>
#include <pthread.h>

enum {
    HTTP_TICK_MS = 200, /* how late a departed client is noticed; the rule says within 1 s */
    HTTP_BEGIN_MS = 50, /* a stream waits so long for its first news: what fails at once has a status */
    HTTP_OUT_HIGH_BYTES = 64 << 10,  /* above this the pump leaves events in the job's own bounded queue */
    HTTP_REPLY_BYTES_MAX = 64 << 20, /* one reply: text of a whole window, every byte escaped, is less */
    HTTP_BODIES_AT_ONCE = 4,         /* all bodies together: so many times the limit of one */
};

enum http_phase {
    HTTP_BODY,    /* taking the body in */
    HTTP_PREPARE, /* waiting for the preparer, or with it */
    HTTP_RUN,     /* a job is queued or runs */
    HTTP_DONE,    /* out is complete */
};

struct http_call {
    struct md_http *http;
    struct MHD_Connection *connection;
    int fd; /* -1 when the connection is over */
    int refs;
    enum http_phase phase;
    struct http_route route;
    bool chat;            /* HTTP_CHAT */
    bool looks;           /* GET or HEAD */
    bool suspended, gone; /* gone: nobody reads any more */
    bool listed, ready;   /* in http->calls; the job may have news */
    bool cancelled;       /* the server is closing and has told the job */
    bool refused;         /* answered by hand, before the end of its body */
    struct md_buf body;
    size_t counted_bytes; /* of http->body_bytes */

    struct md_job *job;
    struct md_reply_head head;
    bool stream, return_progress;
    bool begun;                            /* the first event of the stream is in out: the status is 200 */
    char name[MD_SECTIONS_NAME_BYTES + 1]; /* of a snapshot: the preparer's, then the pump's */
    bool tokens_only;                      /* of its restore; the preparer's */
    struct md_chat_form *form;             /* how the answer is read */
    struct md_chat_parser *parser;         /* the answer so far; the pump's, as what follows */
    struct md_buf fresh;                   /* what the last event adds to out */

    int http_status; /* of a reply that is not a stream */
    struct md_buf out;
    size_t out_at; /* how much of it the loop has taken */
    int64_t wrote_ns, took_ns;
    struct http_call *next, *prev, *next_to_prepare;
};

struct http_conn {
    int fd;
    int64_t deadline_ns; /* 0: none */
    struct http_conn *next, *prev;
};

struct md_http {
    struct md_http_config config; /* defaults filled in; host is `host` */
    char host[256], url[300];
    bool is_unix, any_address, unlink_at_end;
    int listen_fd, port;
    int64_t created, opened_ns;
    struct MHD_Daemon *daemon;
    pthread_t pump, preparer;
    bool has_pump, has_preparer;

    pthread_mutex_t mu;
    pthread_cond_t pump_wake, prepare_wake;
    bool closing;
    bool attached; /* service is set and does not change any more */
    struct md_http_service service;
    size_t body_limit_bytes, body_bytes;
    int call_count;
    struct http_conn *conns;
    struct http_call *calls, *prepare_first, *prepare_last;
    uint64_t next_id;
    struct md_calls *calls_made; /* has a lock of its own */
};

/* ---- http_call.c: under http->mu ---- */
struct http_call *md_http_call_new(struct md_http *http, struct MHD_Connection *connection,
                                   const struct http_route *route);
void md_http_call_unref(struct http_call *call);
void md_http_call_suspend(struct http_call *call); /* from a callback of the loop only */
void md_http_call_resume(struct http_call *call);
/* Nobody reads: cut the connection.  The pump cancels the job. */
void md_http_call_abandon(struct http_call *call);
/* Put the first event of a stream into out, unless it is there. */
void md_http_call_begin(struct http_call *call);
/* Finish a call with an error: a reply, or the last events of a stream that has begun.  Logs it. */
void md_http_call_fail(struct http_call *call, const struct md_http_error *e);
/* One line with the id of the call: what failed here is an error, what there was no room for is worth knowing, what
 * was asked wrongly is the client's affair. */
void md_http_call_log(const struct http_call *call, const struct md_http_error *e);
/* The body is read, or will not be. */
void md_http_call_drop_body(struct http_call *call);
void md_http_call_list(struct http_call *call);
void md_http_call_unlist(struct http_call *call);

/* ---- http_loop.c ---- */
enum MHD_Result md_http_handle(void *user, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_len, void **con);
void md_http_completed(void *user, struct MHD_Connection *connection, void **con,
                       enum MHD_RequestTerminationCode why);
void md_http_connected(void *user, struct MHD_Connection *connection, void **socket_context,
                       enum MHD_ConnectionNotificationCode what);

/* ---- http_guard.c ---- */
/* Host, Origin, framing and content type.  Returns false with the error filled. */
bool md_http_guard(const struct md_http *http, struct MHD_Connection *connection, const char *method,
                   struct md_http_error *e);

/* ---- http_prepare.c, http_pump.c ---- */
void md_http_call_news(void *call); /* the notify of its job: takes http->mu */
void *md_http_prepare_main(void *http);
void *md_http_pump_main(void *http);
md_chat_delta_fn md_http_pump_delta; /* of a call's parser */

#endif
