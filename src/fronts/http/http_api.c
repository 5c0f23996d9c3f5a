/* http_api.c - see http_api.h. */
#include "fronts/http/http_api.h"

#include "base/clock.h"
#include "fronts/http/http_front.h"
#include "fronts/http/http_json.h"
#include "fronts/http/http_snapshots.h"
#include "fronts/http/http_view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include <yyjson.h>

/* ---- paths ---- */

static const char only_get[] = "GET, HEAD", only_post[] = "POST";
static const struct {
    const char *path;
    enum http_target target;
    const char *allow;
} paths[] = {
    { "/v1/chat/completions", HTTP_CHAT, only_post },
    { "/chat/completions", HTTP_CHAT, only_post },
    { "/v1/completions", HTTP_COMPLETION, only_post },
    { "/completions", HTTP_COMPLETION, only_post },
    { "/health", HTTP_HEALTH, only_get },
    { "/v1/health", HTTP_HEALTH, only_get },
    { "/v1/models", HTTP_MODELS, only_get },
    { "/models", HTTP_MODELS, only_get },
    { "/api/status", HTTP_STATUS, only_get },
    { "/v1/status", HTTP_STATUS, only_get },
    { "/status", HTTP_STATUS, only_get },
    { "/api/capacity", HTTP_CAPACITY, only_get },
    { "/api/sessions", HTTP_SESSIONS, "GET, HEAD, POST" },
    { "/api/snapshots", HTTP_SNAPSHOTS, "GET, HEAD, POST" },
    { "/api/snapshots/restore", HTTP_SNAPSHOT_RESTORE, only_post },
    { "/api/snapshots/remove", HTTP_SNAPSHOT_REMOVE, only_post },
};

/* "7" and "7/branch" behind "/api/sessions/": digits as they are printed, and no more than an id can have. */
static struct http_route session_route(const char *rest)
{
    const size_t digits = strspn(rest, "0123456789");
    struct http_route route = { .target = HTTP_NOWHERE };
    if (digits == 0 || digits > 18 || rest[0] == '0')
        return route;
    for (size_t i = 0; i < digits; i++)
        route.session = route.session * 10 + (rest[i] - '0');
    if (rest[digits] == '\0') {
        route.target = HTTP_SESSION;
        route.allow = "GET, HEAD, DELETE";
    } else if (strcmp(rest + digits, "/branch") == 0) {
        route.target = HTTP_BRANCH;
        route.allow = only_post;
    }
    return route;
}

struct http_route md_http_route(const char *path)
{
    static const char session[] = "/api/sessions/";
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (strcmp(path, paths[i].path) == 0)
            return (struct http_route){ .target = paths[i].target, .allow = paths[i].allow };
    if (strncmp(path, session, sizeof session - 1) == 0)
        return session_route(path + sizeof session - 1);
    return (struct http_route){ .target = HTTP_NOWHERE };
}

bool md_http_route_allows(const struct http_route *route, const char *method)
{
    const size_t len = strlen(method);
    for (const char *at = route->allow; at != NULL && *at != '\0'; at += strspn(at, ", ")) {
        const size_t word = strcspn(at, ",");
        if (word == len && memcmp(at, method, len) == 0)
            return true;
        at += word;
    }
    return false;
}

bool md_http_route_is_call(const struct http_route *route, const char *method)
{
    return (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) ||
           ((route->target == HTTP_CAPACITY || route->target == HTTP_SNAPSHOTS) &&
            md_http_route_allows(route, method));
}

/* ---- what is not there: what is missing first, then where to look ---- */

enum md_status md_http_api_no_route(struct md_http_error *e)
{
    return md_http_refuse(e, MD_NOT_FOUND, NULL,
                          "there is no such route: OpenAI's begin with /v1 (/v1/chat/completions, "
                          "/v1/completions, /v1/models), modeld's own with /api (/api/status, /api/sessions, "
                          "/api/snapshots)");
}

/* text: which, as the worker says it */
static enum md_status no_session(struct md_http_error *e, const char *param, const char *text)
{
    return md_http_refuse(e, MD_NOT_FOUND, param, "%s: GET /api/sessions lists those that are open", text);
}

enum md_status md_http_api_no_snapshot(const char *name, struct md_http_error *e)
{
    return md_http_refuse(e, MD_NOT_FOUND, "name",
                          "there is no snapshot '%s': GET /api/snapshots lists those that there are", name);
}

/* ---- looking ---- */

enum md_status md_http_api_get(const struct md_http *http, const struct http_route *route, struct md_buf *out,
                               struct md_http_error *e)
{
    const struct md_http_service *service = &http->service;
    struct md_err err = { 0 };
    enum md_status s;
    switch (route->target) {
    case HTTP_HEALTH: s = md_buf_printf(out, &err, "{\"status\":\"ok\"}"); break;
    case HTTP_MODELS:
        s = md_reply_models(out, service->model, service->alias,
                            md_worker_status(service->worker).pool.window_tokens, service->trained_tokens,
                            http->created, service->text->info.vocab_count, &err);
        break;
    case HTTP_STATUS: s = md_view_status(out, service, md_clock_mono_ns() - http->opened_ns, &err); break;
    case HTTP_SESSIONS: s = md_view_sessions(out, service, &err); break;
    case HTTP_SESSION: s = md_view_explain(out, service, route->session, &err); break;
    default: return md_http_api_no_route(e);
    }
    if (s == MD_NOT_FOUND)
        return no_session(e, NULL, err.text);
    return s == MD_OK ? s : md_http_refuse(e, s, NULL, "%s", err.text);
}

enum md_status md_http_api_find(struct md_worker *worker, int64_t session, const char *param,
                                struct md_http_error *e)
{
    char text[64];
    if (md_worker_has_session(worker, session))
        return MD_OK;
    snprintf(text, sizeof text, "there is no session %lld", (long long)session);
    return no_session(e, param, text);
}

/* ---- bodies ---- */

/* {"tokens": N}, or nothing of it.  Every key is known or wrong: these are our own. */
static enum md_status read_fields(yyjson_val *root, bool has_tokens, int32_t *ret_tokens,
                                  struct md_http_error *e)
{
    yyjson_obj_iter it = yyjson_obj_iter_with(root);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        if (!has_tokens || !yyjson_equals_str(key, "tokens")) {
            char field[32];
            snprintf(field, sizeof field, "%.31s", yyjson_get_str(key));
            return md_http_refuse(e, MD_INVALID, field, "the field '%s' is not known here: %s", field,
                                  has_tokens ? "it takes tokens" : "it takes none");
        }
        if (yyjson_is_null(value))
            continue;
        const double n = yyjson_get_num(value);
        if (!yyjson_is_num(value) || n != floor(n) || n < 0 || n > INT32_MAX)
            return md_http_refuse(
                e, MD_INVALID, "tokens",
                "tokens must be a whole number, 0 or more: how many of the first tokens the "
                "branch begins with");
        *ret_tokens = (int32_t)n;
    }
    return MD_OK;
}

enum md_status md_http_api_body(struct http_call *call, yyjson_doc **ret_doc, struct md_http_error *e)
{
    char *body = (char *)call->body.data;
    const size_t len = call->body.len;
    struct md_err err;
    yyjson_read_err why;
    *ret_doc = NULL;
    if (len == 0)
        return MD_OK;
    if (md_json_guard(body, len, MD_HTTP_DEPTH_MAX, &err) != MD_OK)
        return md_http_refuse(e, MD_INVALID, NULL, "%s", err.text);
    yyjson_doc *doc = yyjson_read_opts(body, len, YYJSON_READ_NOFLAG, NULL, &why);
    if (doc == NULL && why.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return md_http_refuse(e, MD_NO_MEMORY, NULL, "out of memory while reading the request");
    if (doc == NULL)
        return md_http_refuse(e, MD_INVALID, NULL, "the body is not valid JSON: %s at byte %zu", why.msg,
                              why.pos);
    yyjson_val *root = yyjson_doc_get_root(doc);
    char where[200];
    enum md_status s = MD_OK;
    if (!yyjson_is_obj(root))
        s = md_http_refuse(e, MD_INVALID, NULL, "the body must be a JSON object, got %s",
                           yyjson_get_type_desc(root));
    else if ((s = md_json_unique(root, where, sizeof where, &err)) != MD_OK)
        md_http_refuse(e, s, where, "%s", err.text);
    if (s == MD_OK)
        *ret_doc = doc;
    else
        yyjson_doc_free(doc);
    return s;
}

/* The body of a call that opens or branches.  ret_tokens: -1 where it says nothing. */
static enum md_status read_body(struct http_call *call, int32_t *ret_tokens, struct md_http_error *e)
{
    yyjson_doc *doc = NULL;
    *ret_tokens = -1;
    if (call->body.len > 0 && call->route.target == HTTP_SESSION)
        return md_http_refuse(e, MD_INVALID, NULL, "DELETE takes no body here, got %zu bytes",
                              call->body.len);
    enum md_status s = md_http_api_body(call, &doc, e);
    if (s == MD_OK && doc != NULL)
        s = read_fields(yyjson_doc_get_root(doc), call->route.target == HTTP_BRANCH, ret_tokens, e);
    yyjson_doc_free(doc);
    return s;
}

/* ---- calls ---- */

enum md_status md_http_api_submit(struct md_worker *worker, const struct md_job_request *request,
                                  struct md_job **ret_job, struct md_http_error *e)
{
    struct md_err err;
    enum md_status s = md_worker_submit(worker, request, ret_job, &err);
    if (s == MD_OK)
        return MD_OK;
    md_http_refuse(e, s, NULL, "%s", err.text);
    if (s == MD_BUSY)
        e->code = "queue_full";
    return s;
}

static enum md_status submit(struct http_call *call, int32_t tokens, struct md_job **ret_job,
                             struct md_http_error *e)
{
    const struct http_route *route = &call->route;
    struct md_worker *worker = call->http->service.worker;
    enum md_status s = route->session != 0 ? md_http_api_find(worker, route->session, NULL, e) : MD_OK;
    if (s != MD_OK)
        return s;
    const struct md_job_request request = {
        .kind = route->target == HTTP_SESSIONS ? MD_JOB_OPEN
                : route->target == HTTP_BRANCH ? MD_JOB_BRANCH
                                               : MD_JOB_CLOSE,
        .session = route->session,
        .range = { .start = 0, .end = tokens },
        .client = (uint64_t)route->session,
        .notify = md_http_call_news,
        .notify_user = call,
    };
    return md_http_api_submit(worker, &request, ret_job, e);
}

static enum md_status report_capacity(const struct md_http_service *service, struct md_buf *out,
                                      struct md_http_error *e)
{
    struct md_err err;
    if (service->capacity == NULL)
        return md_http_refuse(e, MD_UNSUPPORTED, NULL, "this server cannot tell its capacity");
    enum md_status s = service->capacity(service->capacity_user, out, &err);
    if (s == MD_OK)
        return MD_OK;
    /* whatever it was, the client did nothing wrong */
    return md_http_refuse(e, MD_IO, NULL, "%s", err.text);
}

/* The job, or the whole reply. */
static enum md_status prepare(struct http_call *call, struct md_buf *reply, struct md_job **ret_job,
                              struct md_http_error *e)
{
    int32_t tokens;
    switch (call->route.target) {
    case HTTP_CAPACITY: return report_capacity(&call->http->service, reply, e);
    case HTTP_SNAPSHOTS:
    case HTTP_SNAPSHOT_RESTORE:
    case HTTP_SNAPSHOT_REMOVE: return md_http_snapshots_prepare(call, reply, ret_job, e);
    default: break;
    }
    enum md_status s = read_body(call, &tokens, e);
    return s == MD_OK ? submit(call, tokens, ret_job, e) : s;
}

void md_http_api_prepare(struct http_call *call)
{
    struct md_http *http = call->http;
    struct md_http_error e;
    struct md_buf reply;
    struct md_job *job = NULL;
    md_buf_init(&reply, NULL, HTTP_REPLY_BYTES_MAX);
    enum md_status s = prepare(call, &reply, &job, &e);
    pthread_mutex_lock(&http->mu);
    if (s != MD_OK) {
        md_http_call_fail(call, &e);
    } else if (job != NULL) {
        call->job = job;
        call->phase = HTTP_RUN;
        call->ready = true; /* there may be news already */
    } else {
        call->out = reply;
        reply = (struct md_buf){ 0 };
        call->http_status = 200;
        call->phase = HTTP_DONE;
        md_http_call_resume(call);
    }
    md_http_call_drop_body(call);
    pthread_cond_signal(&http->pump_wake);
    pthread_mutex_unlock(&http->mu);
    md_buf_done(&reply);
}

enum md_status md_http_api_done(struct http_call *call, const struct md_event *event)
{
    const struct http_route *route = &call->route;
    if (route->target == HTTP_SNAPSHOTS || route->target == HTTP_SNAPSHOT_RESTORE)
        return md_http_snapshots_done(call, event);
    const char *more = route->target == HTTP_SESSION ? ",\"closed\":true" : "";
    enum md_status s = md_buf_printf(&call->fresh, NULL, "{\"id\":%lld%s", (long long)event->session, more);
    if (s == MD_OK && route->target == HTTP_BRANCH)
        s = md_buf_printf(&call->fresh, NULL, ",\"parent\":%lld", (long long)route->session);
    if (s == MD_OK)
        s = md_buf_append(&call->fresh, "}", 1, NULL);
    return s;
}

void md_http_api_failed(const struct http_call *call, enum md_status status, const char *text,
                        int64_t session, struct md_http_error *e)
{
    const struct http_route *route = &call->route;
    const bool restores = route->target == HTTP_SNAPSHOT_RESTORE;
    const bool names_session = (restores || route->target == HTTP_SNAPSHOTS) && route->session != 0;
    if (restores && status == MD_NOT_FOUND && !(names_session && session == 0))
        (void)md_http_api_no_snapshot(call->name, e);
    else if (status == MD_NOT_FOUND && session == 0) /* the worker looks for no other thing */
        (void)no_session(e, names_session ? "session" : NULL, text);
    else if (names_session && session == 0)
        md_http_refuse(e, status, NULL, "%s", text);
    else if (status == MD_INVALID && (restores || route->target == HTTP_BRANCH))
        md_http_refuse(e, status, restores ? "name" : "tokens", "%s", text);
    else
        md_http_refuse(e, status, NULL, "%s", text);
}

/* ---- whose request ---- */

uint64_t md_http_api_client(const struct md_http_request *r)
{
    enum { PROMPT_BYTES = 256 };
    if (r->session != 0)
        return (uint64_t)r->session;
    if (r->prompt_ids != NULL) {
        const size_t bytes = r->prompt_id_count * sizeof *r->prompt_ids;
        return XXH3_64bits(r->prompt_ids, bytes < PROMPT_BYTES ? bytes : PROMPT_BYTES);
    }
    if (!r->chat)
        return XXH3_64bits(r->prompt.data, r->prompt.len < PROMPT_BYTES ? r->prompt.len : PROMPT_BYTES);
    uint64_t hash = 0;
    for (size_t i = 0; i < r->in.count; i++) {
        const struct md_chat_message *m = &r->in.messages[i];
        hash = XXH3_64bits_withSeed(m->content.data, m->content.len, hash);
        if (r->labels != NULL ? r->labels[i].kind == MD_SEGMENT_USER
                              : m->role.len == 4 && memcmp(m->role.data, "user", 4) == 0)
            break; /* what follows grows with every turn */
    }
    return hash;
}
