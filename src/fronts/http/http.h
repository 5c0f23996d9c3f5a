/* http.h - the HTTP front: what OpenAI's clients speak, on libmicrohttpd.
 *
 *   GET  /health               503 while loading, then 200 {"status":"ok"}
 *   GET  /v1/models            the one model, with its window
 *   POST /v1/chat/completions  the model's own chat template over `messages`
 *   POST /v1/completions       `prompt`: a string or an array of token ids
 *
 * and what modeld itself has to say (docs/sessions.md has the shapes):
 *
 *   GET    /api/status              the whole: hot, cold, queue; also /v1/status and /status
 *   GET    /api/capacity            what fits here now, as `modeld plan --json` has it
 *   GET    /api/sessions            every open conversation
 *   POST   /api/sessions            opens one: {} -> {"id":N}
 *   GET    /api/sessions/N          one in full: segments, map of blocks, residency report
 *   DELETE /api/sessions/N          closes it: {"id":N,"closed":true}
 *   POST   /api/sessions/N/branch   {"tokens":n} or {} -> {"id":M,"parent":N}
 *   GET    /api/snapshots           those in the folder, by name
 *   POST   /api/snapshots           {"session":N,"name":"x"}: writes one (session/snapshot.h)
 *   POST   /api/snapshots/restore   {"name":"x"}: into a new conversation; with "session":N that one becomes it
 *   POST   /api/snapshots/remove    {"name":"x"}
 *
 * GETs answer from published copies while the engine works; what opens, branches, closes, writes or restores waits its
 * turn in the queue as every request does.  A chat or completion is bound to a conversation by "modeld":{"session":N}, and goes on
 * with the one it is a continuation of where it names none; its reply says which in "modeld".
 *
 * It talks to session/worker.h and text/text.h and decides nothing about the KV.  Life: md_http_open
 * binds and answers /health before the model is loaded, so a port in use is known at once; md_http_attach
 * brings worker and text; md_http_close cancels what runs and joins its threads.
 *
 * Where a request leaves room, the rules are these:
 *   - JSON is UTF-8, at most MD_HTTP_DEPTH_MAX deep.  A lone surrogate escape becomes U+FFFD, as ill-formed
 *     output does; NUL (\u0000) is a character like any other; a key given twice in one object, however deep, is refused.
 *   - max_tokens 0 evaluates the prompt and gives no token, with finish_reason "length"; -1 means
 *     until the end of the text or of the window; null or absent is the default (md_http_defaults); more than
 *     fits is clamped.  max_completion_tokens wins over max_tokens.
 *   - What is asked for and not done (functions, logprobs ...) is refused by name, never ignored; keys that ask
 *     for nothing of the model (user, metadata ...) and unknown keys are ignored.
 *   - Tools that the model's template has no place for are refused, as are tools that may be called beside
 *     response_format, json_schema or grammar.  A result whose call is not in the history is accepted.
 *   - Answers of a chat are taken apart into content, reasoning_content and tool_calls (text/parser.h); turns
 *     that made calls are remembered, so that a history carries their exact text again (text/calls.h).
 *   - A client that closes its side of the connection, half or whole, is gone: its job is cancelled.
 *   - Host must be a loopback name, an address where it listens on all of them, or the host it was told to
 *     listen on; Origin, where there is one, must be of the same kind; POST must say application/json.
 *
 * Threads: open, attach and close from one thread; the rest from any.
 * Source: OpenAI's API and what its clients send; cases B041, B078-B099, B107. */
#ifndef MD_FRONTS_HTTP_HTTP_H
#define MD_FRONTS_HTTP_HTTP_H

#include "base/err.h"
#include "session/worker.h"
#include "text/text.h"

struct md_http;
struct md_buf;

enum {
    MD_HTTP_DEPTH_MAX = 100, /* nesting of JSON: tool schemas seen in the field need about 20 */
    MD_HTTP_PORT_DEFAULT = 8080,
    MD_HTTP_CONNECTIONS_DEFAULT = 512,
    MD_HTTP_HEADER_MS = 10 * 1000,    /* from the first byte (or connect) to the last header */
    MD_HTTP_BODY_MS = 60 * 1000,      /* from the last header to the last byte of the body */
    MD_HTTP_IDLE_MS = 75 * 1000,      /* a kept connection without a request */
    MD_HTTP_STALL_MS = 30 * 1000,     /* a reader that takes nothing of what waits for it */
    MD_HTTP_KEEPALIVE_MS = 15 * 1000, /* silence before a comment line is sent in a stream */
};

/* 0 and NULL mean the default. */
struct md_http_config {
    const char *host;        /* "127.0.0.1"; a numeric address or "localhost"; "*.sock": a Unix socket */
    int port;                /* 0..65535; 0 takes a free one, see md_http_port */
    size_t body_limit_bytes; /* 16 MiB; larger with the window when a service is attached */
    int connection_limit;
    int header_ms, body_ms, idle_ms, stall_ms, keepalive_ms;
};

/* What a request gets where it says nothing; md_http_defaults() is what the field expects. */
struct md_http_defaults {
    struct md_sample_params sample; /* bias is not used */
    int32_t max_tokens;             /* -1: until the end of the text or of the window */
};
struct md_http_defaults md_http_defaults(void);

/* What is served; all is borrowed and must outlive the front. */
struct md_http_service {
    struct md_worker *worker;
    const struct md_text *text;
    const char *model;          /* the name in /v1/models */
    const char *alias;          /* a second name for it; NULL: none */
    const char *engine;         /* "llama" */
    const char *engine_choice;  /* why that one, where the choice was modeld's; NULL or "": it was not */
    const char *engine_version; /* of its library, and where it computes; NULL or "": not known */
    const char *device;
    const char *type_k, *type_v;     /* of the KV, "f16"; NULL or "": not known */
    int32_t trained_tokens;          /* 0: unknown */
    int32_t attention_window_tokens; /* sliding window of windowed layers; 0: none */
    const char *xattention;          /* as in md_engine_info; NULL or "": the engine has none */
    const char *rope;                /* how positions are scaled, in words; NULL or "": not at all */
    const char *snapshots;           /* the folder, made when one is written; NULL: none, the routes say so */
    struct md_http_defaults defaults;
    /* Append the capacity report, a JSON object, as things stand.  Called on one thread, which is no other's: it may
     * read files.  NULL: there is none. */
    enum md_status (*capacity)(void *user, struct md_buf *out, struct md_err *err);
    void *capacity_user;
};

/* Bind, listen, and answer /health with 503.
 *
 * config       copied
 * MD_INVALID   port outside 0..65535, or a host that is no address of this machine
 * MD_IO        the address is in use (its text names it), or the system said no
 * MD_NO_MEMORY */
MD_MUST_USE enum md_status md_http_open(const struct md_http_config *config, struct md_http **ret_http,
                                        struct md_err *err);
/* The port it listens on; -1 on a Unix socket. */
int md_http_port(const struct md_http *http);
/* "http://127.0.0.1:8080" or "unix:PATH": for people. */
const char *md_http_url(const struct md_http *http);
/* Serve it from now on; once. */
void md_http_attach(struct md_http *http, const struct md_http_service *service);
/* Stop accepting, cancel what runs (streams end with an error event), join.  Accepts NULL.
 * Call it before md_worker_close. */
void md_http_close(struct md_http *http);

#endif
