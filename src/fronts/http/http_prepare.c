/* The preparer: from a body to a queued job.  One at a time, in the order they came, off the loop. */
#include "fronts/http/http_front.h"

#include "base/clock.h"
#include "base/log.h"
#include "fronts/http/http_keep.h"

#include <stdio.h>
#include <string.h>

static enum md_status check_model(const struct md_http_service *service, struct md_bytes model,
                                  struct md_http_error *e)
{
    if (model.data == NULL || md_bytes_are(model, service->model) ||
        (service->alias != NULL && md_bytes_are(model, service->alias)) || md_bytes_are(model, "default"))
        return MD_OK;
    md_http_refuse(e, MD_NOT_FOUND, "model", "the model '%.200s' is not served here; served: '%s'",
                   (const char *)model.data, service->model);
    e->type = "invalid_request_error"; /* as OpenAI says it */
    e->code = "model_not_found";
    return MD_NOT_FOUND;
}

static enum md_status fits_window(int32_t prompt_tokens, bool at_least, int32_t window_tokens,
                                  struct md_http_error *e)
{
    if (prompt_tokens < window_tokens)
        return MD_OK;
    md_http_refuse(e, MD_TOO_LARGE, NULL,
                   "the prompt has %s%d tokens, the context window is %d: it must be shorter than the window",
                   at_least ? "at least " : "", prompt_tokens, window_tokens);
    e->type = "exceed_context_size_error";
    e->code = "context_length_exceeded";
    e->prompt_tokens = prompt_tokens;
    e->window_tokens = window_tokens;
    return MD_TOO_LARGE;
}

/* Which field is at fault when a chat cannot be rendered?  Without the tools it could. */
static const char *field_at_fault(const struct md_text *text, const struct md_chat_input *in)
{
    struct md_chat_input without = *in;
    struct md_chat_form *form = NULL;
    struct md_buf ignored;
    if (in->tools.len == 0)
        return "messages";
    without.tools = (struct md_bytes){ NULL, 0 };
    without.tool_choice = MD_TOOLS_NONE;
    md_buf_init(&ignored, NULL, MD_PROMPT_BYTES_MAX);
    enum md_status s = md_text_render_chat(text, &without, &ignored, &form, NULL);
    md_chat_form_unref(form);
    md_buf_done(&ignored);
    return s == MD_OK ? "tools" : "messages";
}

/* What binds the answer.  Asked of a chat too, whose rendering binds it: so it is known which field is wrong. */
static enum md_status bind_answer(const struct md_text *text, const struct md_http_request *r,
                                  struct md_chat_form **ret_form, struct md_http_error *e)
{
    struct md_err err;
    if (r->bound_by == NULL)
        return MD_OK;
    enum md_status s = md_text_constrain(text, r->in.json_schema, r->in.grammar, ret_form, &err);
    return s == MD_OK ? s : md_http_refuse(e, s, r->bound_by, "%s: %s", r->bound_by, err.text);
}

/* Text that cannot fit whatever its tokens are: how many they are at least. */
static enum md_status cannot_fit(const struct md_text *text, size_t bytes, int32_t window_tokens,
                                 struct md_http_error *e)
{
    const size_t least = bytes / (size_t)text->info.longest_piece_bytes;
    return fits_window(least < INT32_MAX ? (int32_t)least : INT32_MAX, true, window_tokens, e);
}

static enum md_status make_prompt(struct md_http *http, const struct md_http_request *r,
                                  int32_t window_tokens, struct md_prompt *ret, struct md_http_error *e)
{
    const struct md_text *text = http->service.text;
    const size_t bytes_max = md_prompt_bytes_max(text, window_tokens);
    const struct md_prompt_request chat = { .text = text,
                                            .input = r->in,
                                            .calls = http->calls_made,
                                            .labels = r->labels,
                                            .add_special = true,
                                            .bytes_max = bytes_max };
    const struct md_prompt_raw_request raw = {
        .text = text, .prompt = r->prompt, .add_special = true, .bytes_max = bytes_max
    };
    struct md_chat_form *form = NULL;
    struct md_err err;
    enum md_status s = bind_answer(text, r, &form, e);
    if (s != MD_OK)
        return s;
    if (r->prompt_ids != NULL)
        s = md_tokens_append(&ret->tokens, r->prompt_ids, r->prompt_id_count, &err);
    else
        s = r->chat ? md_prompt_render(&chat, NULL, ret, &err) : md_prompt_raw(&raw, NULL, ret, &err);
    if (s == MD_OK && !r->chat)
        ret->form = md_chat_form_ref(form);
    md_chat_form_unref(form);
    if (s == MD_TOO_LARGE && ret->bytes > bytes_max && text->info.longest_piece_bytes > 0)
        return cannot_fit(text, ret->bytes, window_tokens, e);
    if (s != MD_OK)
        return md_http_refuse(e, s, r->chat ? field_at_fault(text, &r->in) : "prompt", "%s", err.text);
    if (ret->tokens.count == 0)
        return md_http_refuse(e, MD_INVALID, r->chat ? "messages" : "prompt", "the prompt is empty");
    return fits_window(ret->tokens.count < INT32_MAX ? (int32_t)ret->tokens.count : INT32_MAX, false,
                       window_tokens, e);
}

void md_http_call_news(void *user)
{
    struct http_call *call = user;
    pthread_mutex_lock(&call->http->mu);
    call->ready = true;
    pthread_cond_signal(&call->http->pump_wake);
    pthread_mutex_unlock(&call->http->mu);
}

/* The turns of the prompt that made calls, and whoever adds that of the answer, which has half of the room.  Without memory
 * for the former a later process does without them. */
static enum md_status keep(struct http_call *call, const struct md_http_request *r,
                           const struct md_chat_parser *parser, struct md_chat_form *form,
                           struct md_buf *notes, struct md_keeper *ret_keeper, struct md_http_error *e)
{
    struct md_http *http = call->http;
    struct md_err err;
    *ret_keeper = (struct md_keeper){ 0 };
    if (!call->chat)
        return MD_OK;
    if (md_calls_write(http->calls_made, r->in.messages, r->in.count, MD_NOTES_BYTES_MAX / 2, notes, &err) !=
        MD_OK)
        md_log(MD_LOG_WARN, "http: the tool calls of a history are not kept: %s", err.text);
    enum md_status s = md_http_keep_open(http->service.text, form, parser, ret_keeper, &err);
    return s == MD_OK ? s : md_http_refuse(e, s, NULL, "%s", err.text);
}

static enum md_status submit(struct http_call *call, const struct md_http_request *r,
                             const struct md_prompt *prompt, const struct md_chat_parser *parser,
                             int32_t window_tokens, struct md_job **ret_job, struct md_http_error *e)
{
    const int32_t count = (int32_t)prompt->tokens.count, room = window_tokens - count;
    struct md_bytes stops[MD_STOP_MAX];
    size_t stop_count = 0;
    for (size_t i = 0; i < r->stop_count; i++)
        stops[stop_count++] = r->stops[i];
    for (size_t i = 0; prompt->form != NULL && i < prompt->form->stop_count; i++)
        stops[stop_count++] = prompt->form->stops[i];
    struct md_segment *segments = md_calloc(NULL, prompt->segment_count + 1, sizeof *segments);
    if (segments == NULL)
        return md_http_refuse(e, MD_NO_MEMORY, NULL, "%zu segments", prompt->segment_count);
    md_prompt_segments(prompt, segments);
    struct md_job_request request = {
        .kind = MD_JOB_RUN,
        .session = r->session,
        .client = md_http_api_client(r),
        .request = { .prompt = { .tokens = prompt->tokens.ids,
                                 .count = count,
                                 .segments = segments,
                                 .segment_count = prompt->segment_count },
                     .decode = { .max_tokens = r->max_tokens > room ? room : r->max_tokens,
                                 .sample = r->sample,
                                 .stops = stops,
                                 .stop_count = stop_count } },
        .want_progress = r->stream && r->return_progress,
        .notify = md_http_call_news,
        .notify_user = call,
    };
    request.request.decode.sample.form = prompt->form;
    struct md_err err;
    struct md_buf notes;
    md_buf_init(&notes, NULL, MD_CALLS_BYTES);
    enum md_status s = keep(call, r, parser, prompt->form, &notes, &request.keeper, e);
    request.request.notes = (struct md_bytes){ notes.data, notes.len };
    if (s != MD_OK) {
        md_buf_done(&notes);
        md_free(NULL, segments);
        return s;
    }
    s = md_worker_submit(call->http->service.worker, &request, ret_job, &err);
    md_buf_done(&notes);
    md_free(NULL, segments);
    if (s == MD_OK)
        return MD_OK;
    if (request.keeper.close != NULL)
        request.keeper.close(request.keeper.user);
    md_http_refuse(e, s == MD_CLOSED ? MD_BUSY : s, NULL, "%s", err.text);
    if (s == MD_BUSY)
        e->code = "queue_full";
    return s;
}

static bool is_gone(struct http_call *call)
{
    pthread_mutex_lock(&call->http->mu);
    bool gone = call->gone;
    pthread_mutex_unlock(&call->http->mu);
    return gone;
}

/* What a body becomes. */
struct prepared {
    struct md_http_request request;
    struct md_chat_form *form;
    struct md_chat_parser *parser;
    struct md_job *job;
};

static enum md_status open_parser(struct http_call *call, struct prepared *to, struct md_http_error *e)
{
    struct md_err err;
    /* a completion is never taken apart: what binds it says nothing of how it is read */
    struct md_chat_form *form = call->chat ? to->form : NULL;
    enum md_status s = md_chat_parser_open(form, md_http_pump_delta, call, &to->parser, &err);
    return s == MD_OK ? s : md_http_refuse(e, s, NULL, "%s", err.text);
}

/* Everything up to the job.  MD_CANCELLED: the client left in between. */
static enum md_status prepare(struct http_call *call, struct prepared *to, struct md_http_error *e)
{
    const struct md_http_service *service = &call->http->service;
    struct md_http_request *r = &to->request;
    enum md_status s = md_http_request_parse((char *)call->body.data, call->body.len, call->chat,
                                             service->text->info.vocab_count, &service->defaults, r, e);
    if (s != MD_OK)
        return s;
    struct md_prompt prompt = { 0 };
    int32_t window_tokens = md_worker_status(service->worker).pool.window_tokens;
    s = check_model(service, r->model, e);
    if (s == MD_OK && r->session != 0)
        s = md_http_api_find(service->worker, r->session, "modeld.session", e);
    if (s == MD_OK)
        s = make_prompt(call->http, r, window_tokens, &prompt, e);
    if (s == MD_OK) {
        to->form = md_chat_form_ref(prompt.form);
        s = open_parser(call, to, e);
    }
    if (s == MD_OK && is_gone(call))
        s = md_http_refuse(e, MD_CANCELLED, NULL, "the client left");
    if (s == MD_OK)
        s = submit(call, r, &prompt, to->parser, window_tokens, &to->job, e);
    md_prompt_done(&prompt);
    return s;
}

static void begin_reply(struct http_call *call, const struct md_http_request *r)
{
    call->stream = r->stream;
    call->return_progress = r->return_progress;
    call->head.created = md_clock_wall_s();
    call->head.model = call->http->service.model;
    call->head.chat = call->chat;
    call->head.include_usage = r->include_usage;
    call->phase = HTTP_RUN;
    call->ready = true; /* there may be news already */
    call->took_ns = call->wrote_ns = md_clock_mono_ns();
}

static void prepare_one(struct http_call *call)
{
    struct md_http *http = call->http;
    struct prepared to = { 0 };
    struct md_http_error e;
    enum md_status s =
        is_gone(call) ? md_http_refuse(&e, MD_CANCELLED, NULL, "the client left") : prepare(call, &to, &e);
    pthread_mutex_lock(&http->mu);
    call->job = to.job;
    call->form = to.form;
    call->parser = to.parser;
    if (s == MD_OK)
        begin_reply(call, &to.request);
    else
        md_http_call_fail(call, &e);
    md_http_call_drop_body(call);
    pthread_cond_signal(&http->pump_wake);
    pthread_mutex_unlock(&http->mu);
    md_http_request_done(&to.request);
}

void *md_http_prepare_main(void *user)
{
    struct md_http *http = user;
    pthread_mutex_lock(&http->mu);
    for (;;) {
        while (http->prepare_first == NULL && !http->closing)
            pthread_cond_wait(&http->prepare_wake, &http->mu);
        struct http_call *call = http->prepare_first;
        if (call == NULL)
            break; /* closing, and nothing is left: every call was given its end */
        http->prepare_first = call->next_to_prepare;
        if (http->closing)
            call->gone = true;
        pthread_mutex_unlock(&http->mu);
        /* stays in the pump's list, which holds it, until it is HTTP_DONE */
        if (call->route.target == HTTP_CHAT || call->route.target == HTTP_COMPLETION)
            prepare_one(call);
        else
            md_http_api_prepare(call);
        pthread_mutex_lock(&http->mu);
    }
    pthread_mutex_unlock(&http->mu);
    return NULL;
}
