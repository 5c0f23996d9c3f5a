/* http_keep.c - see http_keep.h. */
#include "fronts/http/http_keep.h"

#include "base/log.h"

enum { RAW_BYTES_MAX = 64 << 20 }; /* of one answer: as a reply has */

struct keeper {
    const struct md_text *text;
    struct md_chat_form *form;
    struct md_chat_parser *parser;
    struct md_buf answer;
    bool lost; /* no memory for all of it */
};

static void keeper_close(void *user)
{
    struct keeper *k = user;
    if (k == NULL)
        return;
    md_chat_parser_close(k->parser);
    md_chat_form_unref(k->form);
    md_buf_done(&k->answer);
    md_free(NULL, k);
}

static void keeper_text(void *user, struct md_bytes text)
{
    struct keeper *k = user;
    k->lost = k->lost || md_buf_append(&k->answer, text.data, text.len, NULL) != MD_OK;
}

static enum md_status ignore_delta(void *user, const struct md_chat_delta *delta, struct md_err *err)
{
    (void)user, (void)delta, (void)err;
    return MD_OK;
}

enum md_status md_http_keep_turn(const struct md_text *text, const struct md_chat_form *form,
                                 const struct md_chat_parser *parser, const struct md_tokens *answer,
                                 struct md_buf *raw, struct md_chat_call *calls, struct md_calls_turn *ret,
                                 struct md_err *err)
{
    const size_t count = md_chat_parser_call_count(parser);
    enum md_status s = MD_OK;
    *ret = (struct md_calls_turn){ 0 };
    if (count == 0 || count > MD_CALLS_PER_TURN || form == NULL)
        return MD_OK;
    /* as the prompt of the next turn must carry it: control tokens too */
    for (size_t i = 0; i < answer->count && s == MD_OK; i++)
        s = md_text_piece(text, answer->ids[i], true, raw, err);
    for (size_t i = 0; i < count; i++)
        calls[i] = md_chat_parser_call(parser, i);
    if (s == MD_OK)
        *ret = (struct md_calls_turn){ .lead = form->lead,
                                       .raw = { raw->data, raw->len },
                                       .tokens = answer->ids,
                                       .token_count = answer->count,
                                       .content = md_chat_parser_content(parser),
                                       .calls = calls,
                                       .call_count = count };
    return s;
}

/* What goes wrong here costs the next process a computation, and nobody an answer. */
static void keeper_ended(void *user, const struct md_tokens *answer, struct md_buf *notes)
{
    struct keeper *k = user;
    struct md_chat_call calls[MD_CALLS_PER_TURN];
    struct md_calls_turn turn = { 0 };
    struct md_buf raw;
    struct md_err err;
    enum md_status s = k->lost ? md_fail(&err, MD_NO_MEMORY, "no memory for the answer") : MD_OK;
    md_buf_init(&raw, NULL, RAW_BYTES_MAX);
    if (s == MD_OK)
        s = md_chat_parser_push(k->parser, (struct md_bytes){ k->answer.data, k->answer.len }, &err);
    if (s == MD_OK)
        s = md_chat_parser_finish(k->parser, &err);
    if (s == MD_OK)
        s = md_http_keep_turn(k->text, k->form, k->parser, answer, &raw, calls, &turn, &err);
    if (s == MD_OK && turn.call_count > 0)
        s = md_calls_write_turn(&turn, notes, &err);
    if (s != MD_OK)
        md_log(MD_LOG_WARN, "http: the tool calls of an answer are not kept: %s", err.text);
    md_buf_done(&raw);
}

enum md_status md_http_keep_open(const struct md_text *text, struct md_chat_form *form,
                                 const struct md_chat_parser *parser, struct md_keeper *ret,
                                 struct md_err *err)
{
    *ret = (struct md_keeper){ 0 };
    if (form == NULL || !form->tools)
        return MD_OK;
    struct keeper *k = md_calloc(NULL, 1, sizeof *k);
    if (k == NULL)
        return md_fail(err, MD_NO_MEMORY, "keeper of an answer");
    k->text = text;
    k->form = md_chat_form_ref(form);
    md_buf_init(&k->answer, NULL, MD_PARSER_BYTES_MAX);
    enum md_status s = md_chat_parser_open(form, ignore_delta, NULL, &k->parser, err);
    if (s != MD_OK) {
        keeper_close(k);
        return s;
    }
    md_chat_parser_set_ids(k->parser, md_chat_parser_ids(parser));
    *ret = (struct md_keeper){ k, keeper_text, keeper_ended, keeper_close };
    return MD_OK;
}

void md_http_keep_take(struct md_calls *calls, const struct md_text *text, int64_t session,
                       struct md_bytes notes)
{
    struct md_err err;
    if (md_calls_read(calls, text, notes, &err) != MD_OK)
        md_log(MD_LOG_WARN, "http: the notes on conversation %lld are lost: %s", (long long)session,
               err.text);
}
