/* http_reply.c - see http_reply.h.  Written by hand: the shapes are few, and a stream sends one per token. */
#include "fronts/http/http_reply.h"

#include "fronts/http/http_json.h"

#include <string.h>

static struct md_bytes text_of(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

/* Run the next append only while all went well. */
#define THEN(s, call) ((s) == MD_OK ? (call) : (s))

/* ---- errors ---- */

static enum md_status put_or_null(struct md_buf *out, const char *s, struct md_err *err)
{
    return s == NULL || s[0] == '\0' ? md_buf_append(out, "null", 4, err)
                                     : md_json_put_string(out, text_of(s), err);
}

enum md_status md_reply_error(struct md_buf *out, const struct md_http_error *e, struct md_err *err)
{
    enum md_status s = md_buf_printf(out, err, "{\"error\":{\"message\":");
    s = THEN(s, md_json_put_string(out, text_of(e->message), err));
    s = THEN(s, md_buf_printf(out, err, ",\"type\":\"%s\",\"code\":", e->type));
    s = THEN(s, put_or_null(out, e->code, err));
    s = THEN(s, md_buf_printf(out, err, ",\"param\":"));
    s = THEN(s, put_or_null(out, e->param, err));
    if (e->window_tokens > 0)
        s = THEN(s, md_buf_printf(out, err, ",\"n_prompt_tokens\":%d,\"n_ctx\":%d", e->prompt_tokens,
                                  e->window_tokens));
    return THEN(s, md_buf_printf(out, err, "}}"));
}

enum md_status md_reply_error_event(struct md_buf *out, const struct md_http_error *e, struct md_err *err)
{
    enum md_status s = md_buf_printf(out, err, "data: ");
    s = THEN(s, md_reply_error(out, e, err));
    return THEN(s, md_buf_printf(out, err, "\n\ndata: [DONE]\n\n"));
}

/* ---- chunks ---- */

/* {"id":...,"object":...,"created":...,"model":... */
static enum md_status put_head(struct md_buf *out, const struct md_reply_head *h, bool chunk,
                               struct md_err *err)
{
    const char *object = h->chat ? (chunk ? "chat.completion.chunk" : "chat.completion") : "text_completion";
    enum md_status s =
        md_buf_printf(out, err, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", h->id, object,
                      (long long)h->created);
    return THEN(s, md_json_put_string(out, text_of(h->model), err));
}

static enum md_status begin_chunk(struct md_buf *out, const struct md_reply_head *h, struct md_err *err)
{
    enum md_status s = md_buf_printf(out, err, "data: ");
    s = THEN(s, put_head(out, h, true, err));
    return THEN(s, md_buf_printf(out, err, ",\"choices\":[{\"index\":0,%s", h->chat ? "\"delta\":{" : ""));
}

/* Up to the end of choices; the chunk's own brace stays open. */
static enum md_status end_choice(struct md_buf *out, const struct md_reply_head *h, const char *finish,
                                 struct md_err *err)
{
    enum md_status s = md_buf_printf(out, err, "%s,\"logprobs\":null,\"finish_reason\":", h->chat ? "}" : "");
    s = THEN(s, put_or_null(out, finish, err));
    return THEN(s, md_buf_printf(out, err, "}]%s", h->include_usage ? ",\"usage\":null" : ""));
}

/* A choice that says nothing; a completion has its text always. */
static enum md_status empty_choice(struct md_buf *out, const struct md_reply_head *h, const char *finish,
                                   struct md_err *err)
{
    enum md_status s = begin_chunk(out, h, err);
    s = THEN(s, md_buf_printf(out, err, h->chat ? "" : "\"text\":\"\""));
    return THEN(s, end_choice(out, h, finish, err));
}

enum md_status md_reply_first(struct md_buf *out, const struct md_reply_head *h, struct md_err *err)
{
    enum md_status s = begin_chunk(out, h, err);
    s = THEN(s,
             md_buf_printf(out, err, h->chat ? "\"role\":\"assistant\",\"content\":\"\"" : "\"text\":\"\""));
    s = THEN(s, end_choice(out, h, NULL, err));
    return THEN(s, md_buf_printf(out, err, "}\n\n"));
}

/* {"name":...,"arguments":...} of a call, behind what comes before it. */
static enum md_status put_call(struct md_buf *out, const struct md_chat_call *call, struct md_err *err)
{
    enum md_status s = md_buf_printf(out, err, "\"id\":");
    s = THEN(s, md_json_put_string(out, call->id, err));
    s = THEN(s, md_buf_printf(out, err, ",\"type\":\"function\",\"function\":{\"name\":"));
    s = THEN(s, md_json_put_string(out, call->name, err));
    s = THEN(s, md_buf_printf(out, err, ",\"arguments\":"));
    s = THEN(s, md_json_put_string(out, call->arguments, err));
    return THEN(s, md_buf_printf(out, err, "}}"));
}

static enum md_status put_delta(struct md_buf *out, const struct md_reply_head *h,
                                const struct md_chat_delta *d, struct md_err *err)
{
    const struct md_chat_call begun = { .id = d->id, .name = d->name, .arguments = { "", 0 } };
    enum md_status s = MD_OK;
    switch (d->kind) {
    case MD_DELTA_CONTENT: s = md_buf_printf(out, err, h->chat ? "\"content\":" : "\"text\":"); break;
    case MD_DELTA_REASONING: s = md_buf_printf(out, err, "\"reasoning_content\":"); break;
    case MD_DELTA_CALL:
        s = md_buf_printf(out, err, "\"tool_calls\":[{\"index\":%zu,", d->index);
        s = THEN(s, put_call(out, &begun, err));
        return THEN(s, md_buf_printf(out, err, "]"));
    case MD_DELTA_ARGUMENTS:
        s = md_buf_printf(out, err, "\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", d->index);
        s = THEN(s, md_json_put_string(out, d->text, err));
        return THEN(s, md_buf_printf(out, err, "}}]"));
    }
    return THEN(s, md_json_put_string(out, d->text, err));
}

enum md_status md_reply_delta(struct md_buf *out, const struct md_reply_head *h,
                              const struct md_chat_delta *delta, struct md_err *err)
{
    enum md_status s = begin_chunk(out, h, err);
    s = THEN(s, put_delta(out, h, delta, err));
    s = THEN(s, end_choice(out, h, NULL, err));
    return THEN(s, md_buf_printf(out, err, "}\n\n"));
}

enum md_status md_reply_progress(struct md_buf *out, const struct md_reply_head *h,
                                 const struct md_progress *progress, struct md_err *err)
{
    enum md_status s = empty_choice(out, h, NULL, err);
    /* clients divide processed by total: what came from the cache counts as processed */
    return THEN(s, md_buf_printf(out, err,
                                 ",\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,"
                                 "\"time_ms\":%lld}}\n\n",
                                 progress->total, progress->cached, progress->cached + progress->processed,
                                 (long long)(progress->elapsed_ns / 1000000)));
}

/* ---- figures ---- */

static enum md_status put_usage(struct md_buf *out, const struct md_result *r, struct md_err *err)
{
    return md_buf_printf(out, err,
                         "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
                         "\"prompt_tokens_details\":{\"cached_tokens\":%d}}",
                         r->prompt, r->completion, r->prompt + r->completion, r->cached);
}

static double per_second(int32_t count, int64_t ns)
{
    return ns > 0 ? count * 1e9 / (double)ns : 0;
}

/* What it left: the segment of the prompt in which that parted from what was known. */
static enum md_status put_breaker(struct md_buf *out, const struct md_result *r, struct md_err *err)
{
    if (r->breaker < 0)
        return md_buf_printf(out, err, ",\"breaker\":null");
    enum md_status s = md_buf_printf(out, err, ",\"breaker\":{\"segment\":%d,\"kind\":", r->breaker);
    s = THEN(s, md_json_put_string(out, text_of(r->breaker_name), err));
    return THEN(s, md_buf_printf(out, err, "}"));
}

/* What the question brought back, where not all of the context could be hot. */
static enum md_status put_retrieval(struct md_buf *out, const struct md_retrieval *r, struct md_err *err)
{
    if (!r->due)
        return md_buf_printf(out, err, ",\"retrieval\":null");
    return md_buf_printf(out, err,
                         ",\"retrieval\":{\"question_tokens\":%d,\"evaluations\":%d,\"scored_blocks\":%d,"
                         "\"unscored_blocks\":%d,\"heads\":%d,\"heads_used\":%d,\"asked_tokens\":%d,"
                         "\"chosen_tokens\":%d,\"brought_tokens\":%d,\"score_ms\":%.3f}",
                         r->question, r->evaluations, r->scored, r->unscored, r->heads_asked, r->heads_used,
                         r->asked_tokens, r->chosen_tokens, r->brought_tokens, (double)r->score_ns / 1e6);
}

/* What eviction by attention took, where it is in use and something was computed. */
static enum md_status put_eviction(struct md_buf *out, const struct md_eviction *e, struct md_err *err)
{
    if (!e->due)
        return md_buf_printf(out, err, ",\"eviction\":null");
    return md_buf_printf(
        out, err, ",\"eviction\":{\"scorings\":%d,\"missed\":%d,\"unscored_blocks\":%d,\"score_ms\":%.3f}",
        e->scorings, e->missed, e->unscored, (double)e->score_ns / 1e6);
}

static enum md_status put_figures(struct md_buf *out, const struct md_reply_head *h,
                                  const struct md_result *r, struct md_err *err)
{
    enum md_status s = md_buf_printf(
        out, err,
        "\"timings\":{\"cache_n\":%d,\"prompt_n\":%d,\"prompt_ms\":%.3f,\"prompt_per_second\":%.3f,"
        "\"predicted_n\":%d,\"predicted_ms\":%.3f,\"predicted_per_second\":%.3f}",
        r->cached, r->prefilled, (double)r->prefill_ns / 1e6, per_second(r->prefilled, r->prefill_ns),
        r->completion, (double)r->decode_ns / 1e6, per_second(r->decoded, r->decode_ns));
    s = THEN(s,
             md_buf_printf(out, err,
                           ",\"modeld\":{\"session\":%lld,\"restored_tokens\":%d,\"moved_tokens\":%d,"
                           "\"lost_tokens\":%d,\"recomputed_tokens\":%d,\"dropped_tokens\":%d,"
                           "\"attended_tokens\":%d,\"hot_tokens\":%d,\"hot_limit_tokens\":%d,"
                           "\"durable_tokens\":%d,\"restore_ms\":%.3f",
                           (long long)h->session, r->restored, r->moved, r->lost, r->recomputed, r->dropped,
                           r->attended, r->hot, r->hot_limit, r->durable, (double)r->restore_ns / 1e6));
    s = THEN(s,
             md_buf_printf(out, err, ",\"provenance_tokens\":{\"full\":%d,\"bounded\":%d,\"approximate\":%d}",
                           r->tokens_of[MD_PROVENANCE_FULL], r->tokens_of[MD_PROVENANCE_BOUNDED],
                           r->tokens_of[MD_PROVENANCE_APPROXIMATE]));
    s = THEN(s, put_breaker(out, r, err));
    s = THEN(s, put_retrieval(out, &r->retrieval, err));
    s = THEN(s, put_eviction(out, &r->eviction, err));
    return THEN(s, md_buf_printf(out, err, "}"));
}

static const char *finish_reason(const struct md_chat_parser *answer, const struct md_result *result)
{
    return result->finish == MD_FINISH_STOP && md_chat_parser_call_count(answer) > 0
               ? "tool_calls"
               : md_finish_name(result->finish);
}

enum md_status md_reply_last(struct md_buf *out, const struct md_reply_head *h,
                             const struct md_chat_parser *answer, const struct md_result *result,
                             struct md_err *err)
{
    enum md_status s = empty_choice(out, h, finish_reason(answer, result), err);
    s = THEN(s, md_buf_printf(out, err, ","));
    s = THEN(s, put_figures(out, h, result, err));
    s = THEN(s, md_buf_printf(out, err, "}\n\n"));
    if (h->include_usage) {
        s = THEN(s, md_buf_printf(out, err, "data: "));
        s = THEN(s, put_head(out, h, true, err));
        s = THEN(s, md_buf_printf(out, err, ",\"choices\":[],"));
        s = THEN(s, put_usage(out, result, err));
        s = THEN(s, md_buf_printf(out, err, "}\n\n"));
    }
    return THEN(s, md_buf_printf(out, err, "data: [DONE]\n\n"));
}

/* The message of a chat: content is null where there are only calls. */
static enum md_status put_message(struct md_buf *out, const struct md_chat_parser *answer, struct md_err *err)
{
    const struct md_bytes content = md_chat_parser_content(answer),
                          reasoning = md_chat_parser_reasoning(answer);
    const size_t calls = md_chat_parser_call_count(answer);
    enum md_status s = md_buf_printf(out, err, "\"message\":{\"role\":\"assistant\",\"content\":");
    s = THEN(s, content.len == 0 && calls > 0 ? put_or_null(out, NULL, err)
                                              : md_json_put_string(out, content, err));
    if (reasoning.len > 0) {
        s = THEN(s, md_buf_printf(out, err, ",\"reasoning_content\":"));
        s = THEN(s, md_json_put_string(out, reasoning, err));
    }
    for (size_t i = 0; i < calls; i++) {
        const struct md_chat_call call = md_chat_parser_call(answer, i);
        s = THEN(s, md_buf_printf(out, err, i == 0 ? ",\"tool_calls\":[{" : ",{"));
        s = THEN(s, put_call(out, &call, err));
    }
    return THEN(s, md_buf_printf(out, err, calls > 0 ? "]}" : "}"));
}

enum md_status md_reply_whole(struct md_buf *out, const struct md_reply_head *h,
                              const struct md_chat_parser *answer, const struct md_result *result,
                              struct md_err *err)
{
    enum md_status s = put_head(out, h, false, err);
    s = THEN(s, md_buf_printf(out, err, ",\"choices\":[{\"index\":0,"));
    if (h->chat) {
        s = THEN(s, put_message(out, answer, err));
    } else {
        s = THEN(s, md_buf_printf(out, err, "\"text\":"));
        s = THEN(s, md_json_put_string(out, md_chat_parser_content(answer), err));
    }
    s = THEN(s, md_buf_printf(out, err, ",\"logprobs\":null,\"finish_reason\":\"%s\"}],",
                              finish_reason(answer, result)));
    s = THEN(s, put_usage(out, result, err));
    s = THEN(s, md_buf_printf(out, err, ","));
    s = THEN(s, put_figures(out, h, result, err));
    return THEN(s, md_buf_printf(out, err, "}"));
}

/* ---- what is served ---- */

enum md_status md_reply_models(struct md_buf *out, const char *model, const char *alias,
                               int32_t window_tokens, int32_t trained_tokens, int64_t created,
                               int32_t vocab_count, struct md_err *err)
{
    enum md_status s = md_buf_printf(out, err, "{\"object\":\"list\",\"data\":[{\"id\":");
    s = THEN(s, md_json_put_string(out, text_of(model), err));
    s = THEN(s, md_buf_printf(out, err, ",\"aliases\":["));
    if (alias != NULL)
        s = THEN(s, md_json_put_string(out, text_of(alias), err));
    return THEN(s, md_buf_printf(out, err,
                                 "],\"object\":\"model\",\"created\":%lld,\"owned_by\":\"modeld\","
                                 "\"context_length\":%d,\"max_model_len\":%d,"
                                 "\"meta\":{\"n_ctx\":%d,\"n_ctx_train\":%d,\"n_vocab\":%d}}]}",
                                 (long long)created, window_tokens, window_tokens, window_tokens,
                                 trained_tokens, vocab_count));
}
