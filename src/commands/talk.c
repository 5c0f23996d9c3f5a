#include "commands/talk.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HISTORY_BYTES_MAX = 256 << 20, TEXT_BYTES_MAX = 64 << 20 };

static atomic_bool interrupted; /* one conversation per process: set by its signal handler */

void md_talk_interrupt(void)
{
    atomic_store(&interrupted, true);
}

enum md_status md_talk_open(struct md_talk *t, struct md_stack *stack, const struct md_options *o,
                            struct md_err *err)
{
    *t = (struct md_talk){ .stack = stack,
                           .sampling = md_stack_sampling(o),
                           .system = o->system,
                           .max_tokens = (int32_t)o->predict,
                           .show_progress = isatty(STDERR_FILENO) };
    md_arena_init(&t->memory, NULL, HISTORY_BYTES_MAX);
    return md_pool_new(stack->pool, &t->session, err);
}

void md_talk_close(struct md_talk *t)
{
    md_session_close(t->session);
    md_arena_done(&t->memory);
    md_free(NULL, t->messages);
    *t = (struct md_talk){ 0 };
}

enum md_status md_talk_add(struct md_talk *t, const char *role, struct md_bytes content, struct md_err *err)
{
    void *messages = t->messages;
    int grown = md_grow(NULL, &messages, &t->cap, t->count + 1, sizeof *t->messages);
    t->messages = messages;
    char *role_copy = md_arena_strndup(&t->memory, role, strlen(role));
    char *text = md_arena_strndup(&t->memory, content.data, content.len);
    if (!grown || role_copy == NULL || text == NULL)
        return md_fail(err, MD_NO_MEMORY, "history of %zu messages", t->count + 1);
    t->messages[t->count++] =
        (struct md_chat_message){ .role = { role_copy, strlen(role) }, .content = { text, content.len } };
    return MD_OK;
}

enum md_status md_talk_start(struct md_talk *t, struct md_err *err)
{
    t->count = 0;
    md_arena_done(&t->memory);
    if (t->system == NULL)
        return MD_OK;
    return md_talk_add(t, "system", (struct md_bytes){ t->system, strlen(t->system) }, err);
}

/* ---- what is shown while it runs ---- */

struct show {
    struct md_talk *talk;
    struct md_buf text;
    bool progress_line; /* there is a line to wipe */
    int write_errno;    /* standard output takes no more: 0 while it does */
};

static void wipe_progress(struct show *s)
{
    if (s->progress_line)
        fputs("\r\033[K", stderr);
    s->progress_line = false;
}

static void on_progress(void *user, const struct md_progress *p)
{
    struct show *s = user;
    double seconds = (double)p->elapsed_ns / 1e9;
    int32_t todo = p->total - p->cached - p->processed;
    if (!s->talk->show_progress || seconds < 0.5 || todo <= 1)
        return; /* nothing to see yet, or nothing left */
    double speed = p->processed / seconds;
    fprintf(stderr, "\r\033[Kprefill %d / %d tokens (%d reused), %.0f tokens/s, %.0f s left",
            p->cached + p->processed, p->total, p->cached, speed, speed > 0 ? todo / speed : 0);
    s->progress_line = true;
}

static bool on_text(void *user, struct md_bytes text)
{
    struct show *s = user;
    wipe_progress(s);
    if (s->talk->show_text) {
        fwrite(text.data, 1, text.len, stdout);
        if (fflush(stdout) != 0) { /* the disk is full, or the reader of our pipe is gone */
            s->write_errno = errno;
            return false;
        }
    }
    return md_buf_append(&s->text, text.data, text.len, NULL) == MD_OK;
}

static bool on_cancelled(void *user)
{
    (void)user;
    return atomic_load_explicit(&interrupted, memory_order_relaxed);
}

static enum md_status run_tokens(struct md_talk *t, const struct md_tokens *prompt, struct md_bytes *ret_text,
                                 struct md_result *ret_result, struct md_err *err)
{
    struct show show = { .talk = t };
    struct md_sink sink = {
        .user = &show, .progress = on_progress, .text = on_text, .cancelled = on_cancelled
    };
    struct md_request q = { .prompt = { .tokens = prompt->ids, .count = (int32_t)prompt->count },
                            .decode = { .max_tokens = t->max_tokens, .sample = t->sampling } };
    md_buf_init(&show.text, NULL, TEXT_BYTES_MAX);
    atomic_store(&interrupted, false);
    enum md_status s = md_session_run(t->session, &q, &sink, ret_result, err);
    wipe_progress(&show);
    if (show.write_errno != 0 && s == MD_CANCELLED) {
        md_result_done(ret_result);
        *ret_result = (struct md_result){ 0 };
        s = md_fail(err, MD_IO, "write standard output: %s", strerror(show.write_errno));
    }
    if (s == MD_OK || s == MD_CANCELLED) {
        char *text = md_arena_strndup(&t->memory, (const char *)show.text.data, show.text.len);
        if (text == NULL) {
            md_result_done(ret_result);
            *ret_result = (struct md_result){ 0 };
            s = md_fail(err, MD_NO_MEMORY, "answer of %zu bytes", show.text.len);
        } else {
            *ret_text = (struct md_bytes){ text, show.text.len };
        }
    }
    md_buf_done(&show.text);
    return s;
}

static enum md_status tokenize_and_run(struct md_talk *t, struct md_bytes prompt, bool special,
                                       struct md_bytes *ret_text, struct md_result *ret_result,
                                       struct md_err *err)
{
    struct md_tokens tokens MD_CLEANUP(md_tokens_done) = { 0 };
    enum md_status s = md_text_tokenize(t->stack->text, prompt, true, special, &tokens, err);
    if (s == MD_OK && tokens.count > INT32_MAX)
        s = md_fail(err, MD_TOO_LARGE, "the prompt has %zu tokens", tokens.count);
    return s == MD_OK ? run_tokens(t, &tokens, ret_text, ret_result, err) : s;
}

enum md_status md_talk_answer(struct md_talk *t, struct md_bytes *ret_text, struct md_result *ret_result,
                              struct md_err *err)
{
    struct md_buf prompt MD_CLEANUP(md_buf_done);
    struct md_err add_err;
    md_buf_init(&prompt, NULL, TEXT_BYTES_MAX);
    struct md_chat_form *form = NULL; /* thoughts are shown as they come: nothing is read out of the answer */
    const struct md_chat_input in = { .messages = t->messages,
                                      .count = t->count,
                                      .add_generation_prompt = true };
    enum md_status s = md_text_render_chat(t->stack->text, &in, &prompt, &form, err);
    md_chat_form_unref(form);
    if (s == MD_OK)
        s = tokenize_and_run(t, (struct md_bytes){ prompt.data, prompt.len }, true, ret_text, ret_result,
                             err);
    if (s != MD_OK && s != MD_CANCELLED)
        return s;
    if (s == MD_CANCELLED && ret_text->len == 0)
        return s; /* stopped before it said anything */
    enum md_status added = md_talk_add(t, "assistant", *ret_text, &add_err);
    if (added != MD_OK) {
        md_result_done(ret_result);
        *ret_result = (struct md_result){ 0 };
        return md_fail(err, added, "%s", add_err.text);
    }
    return s;
}

enum md_status md_talk_complete(struct md_talk *t, struct md_bytes prompt, struct md_bytes *ret_text,
                                struct md_result *ret_result, struct md_err *err)
{
    return tokenize_and_run(t, prompt, false, ret_text, ret_result, err);
}
