/* eval_chat.c - see eval_chat.h. */
#include "commands/eval_chat.h"

#include "session/prompt.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>

/* Stands in a rendered chat for the haystack's tokens. */
static const char haystack_mark[] = "[[modeld eval: the haystack]]";
static const char before_haystack[] = "Read the following text. You will be asked about it.\n\n";
static const char acknowledged[] =
    "I have read the text."; /* templates want users and models to take turns */
enum { PROMPT_BYTES_MAX = 1 << 20, SAID_BYTES_MAX = 4 << 20 };

static struct md_bytes words(const char *text)
{
    return (struct md_bytes){ text, strlen(text) };
}

void md_eval_chat_init(struct md_eval_chat *c, const struct md_text *text, const char *model,
                       const struct md_tokens *haystack)
{
    *c = (struct md_eval_chat){ .text = text, .model = model, .haystack = haystack };
    md_arena_init(&c->arena, NULL, SAID_BYTES_MAX);
}

void md_eval_chat_done(struct md_eval_chat *c)
{
    md_tokens_done(&c->prompt);
    md_arena_done(&c->arena);
    *c = (struct md_eval_chat){ 0 };
}

enum md_status md_eval_chat_say(struct md_eval_chat *c, const char *role, struct md_bytes text,
                                struct md_err *err)
{
    const char *copy = md_arena_strndup(&c->arena, text.data, text.len);
    if (copy == NULL)
        return md_fail(err, MD_NO_MEMORY, "a conversation of %zu messages", c->count + 1);
    assert(c->count < MD_EVAL_MESSAGES_MAX);
    c->messages[c->count++] = (struct md_chat_message){ .role = words(role), .content = { copy, text.len } };
    return MD_OK;
}

enum md_status md_eval_chat_begin(struct md_eval_chat *c, struct md_err *err)
{
    char first[sizeof before_haystack + sizeof haystack_mark];
    md_arena_done(&c->arena);
    md_arena_init(&c->arena, NULL, SAID_BYTES_MAX);
    c->count = 0;
    snprintf(first, sizeof first, "%s%s", before_haystack, haystack_mark);
    enum md_status s = md_eval_chat_say(c, "user", words(first), err);
    if (s == MD_OK && c->text->info.has_chat_template)
        s = md_eval_chat_say(c, "assistant", words(acknowledged), err);
    return s;
}

/* ---- text ---- */

static bool is_user(const struct md_chat_message *m)
{
    return md_bytes_are(m->role, "user");
}

/* Without a template: a text with questions and answers in it. */
static enum md_status render_plain(const struct md_eval_chat *c, struct md_buf *out, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (size_t i = 0; i < c->count && s == MD_OK; i++) {
        const struct md_chat_message *m = &c->messages[i];
        if (i > 0)
            s = md_buf_printf(out, err, "%s", is_user(m) ? "\n\nQuestion: " : " ");
        if (s == MD_OK)
            s = md_buf_append(out, m->content.data, m->content.len, err);
        if (s == MD_OK && i > 0 && is_user(m))
            s = md_buf_printf(out, err, "\nAnswer:");
    }
    return s;
}

static enum md_status render(const struct md_eval_chat *c, struct md_buf *out, struct md_err *err)
{
    if (!c->text->info.has_chat_template)
        return render_plain(c, out, err);
    struct md_chat_form *form = NULL;
    const struct md_chat_input in = { .messages = c->messages,
                                      .count = c->count,
                                      .add_generation_prompt = true };
    enum md_status s = md_text_render_chat(c->text, &in, out, &form, err);
    md_chat_form_unref(form);
    return s;
}

static enum md_status changed(const struct md_eval_chat *c, const char *who, struct md_err *err)
{
    return md_fail(err, MD_UNSUPPORTED,
                   "the %s of model '%.200s' changes what is said: the question cannot be told from the rest",
                   who, c->model);
}

/* ---- tokens ---- */

/* A template may take blanks from the ends of a message. */
static struct md_bytes trimmed(struct md_bytes b)
{
    const char *p = b.data;
    while (b.len > 0 && isspace((unsigned char)p[b.len - 1]))
        b.len--;
    while (b.len > 0 && isspace((unsigned char)*p)) {
        p++;
        b.len--;
    }
    return (struct md_bytes){ p, b.len };
}

/* Where each message behind the haystack ends in `rest`; the last one has what remains. */
static bool find_ends(const struct md_eval_chat *c, struct md_bytes rest, size_t *ends)
{
    const char *start = rest.data;
    size_t at = 0;
    for (size_t i = 1; i < c->count; i++) {
        const struct md_bytes said = trimmed(c->messages[i].content);
        const char *found =
            said.len > 0 ? memmem(start + at, rest.len - at, said.data, said.len) : start + at;
        if (found == NULL)
            return false;
        at = (size_t)(found - start) + said.len;
        ends[i - 1] = at;
    }
    ends[c->count - 2] = rest.len;
    return true;
}

/* What follows the haystack, with a segment for each message. */
static enum md_status add_rest(struct md_eval_chat *c, struct md_bytes rest, struct md_err *err)
{
    struct md_segment_label labels[MD_EVAL_MESSAGES_MAX];
    size_t ends[MD_EVAL_MESSAGES_MAX];
    const int32_t at = (int32_t)c->prompt.count;
    c->segment_count = 0;
    c->segments[c->segment_count++] = (struct md_segment){
        .range = { 0, at }, .kind = MD_SEGMENT_USER, .cls = MD_CLASS_VOLATILE, .name = "user"
    };
    if (c->count == 1)
        return md_text_tokenize(c->text, rest, false, true, &c->prompt, err);
    if (!find_ends(c, rest, ends))
        return changed(c, "chat template", err);
    for (size_t i = 1; i < c->count; i++)
        labels[i - 1] = md_segment_label_of(c->messages[i].role, false);
    const struct md_prompt_raw_request raw = {
        .text = c->text, .prompt = rest, .labels = labels, .byte_ends = ends, .count = c->count - 1
    };
    struct md_prompt p = { 0 };
    enum md_status s = md_prompt_raw(&raw, NULL, &p, err);
    if (s == MD_OK && p.segment_count != c->count - 1)
        s = changed(c, "tokenizer", err);
    if (s == MD_OK)
        s = md_tokens_append(&c->prompt, p.tokens.ids, p.tokens.count, err);
    if (s == MD_OK) {
        md_prompt_segments(&p, c->segments + 1);
        for (size_t i = 1; i < c->count; i++) {
            c->segments[i].range.start += at;
            c->segments[i].range.end += at;
        }
        c->segment_count = c->count;
    }
    md_prompt_done(&p);
    return s;
}

enum md_status md_eval_chat_render(struct md_eval_chat *c, struct md_err *err)
{
    struct md_buf out MD_CLEANUP(md_buf_done);
    md_buf_init(&out, NULL, PROMPT_BYTES_MAX);
    enum md_status s = render(c, &out, err);
    if (s != MD_OK)
        return s;
    const char *start = (const char *)out.data;
    const char *mark = out.len > 0 ? memmem(start, out.len, haystack_mark, strlen(haystack_mark)) : NULL;
    if (mark == NULL)
        return changed(c, "chat template", err);
    const char *rest = mark + strlen(haystack_mark);
    c->prompt.count = 0;
    s = md_text_tokenize(c->text, (struct md_bytes){ start, (size_t)(mark - start) }, true, true, &c->prompt,
                         err);
    c->haystack_at = (int32_t)c->prompt.count;
    if (s == MD_OK)
        s = md_tokens_append(&c->prompt, c->haystack->ids, c->haystack->count, err);
    return s == MD_OK ? add_rest(c, (struct md_bytes){ rest, out.len - (size_t)(rest - start) }, err) : s;
}

struct md_context md_eval_chat_context(const struct md_eval_chat *c)
{
    return (struct md_context){ c->prompt.ids, (int32_t)c->prompt.count, c->segments, c->segment_count };
}

struct md_context md_eval_chat_prefix(const struct md_eval_chat *c)
{
    return (struct md_context){ c->prompt.ids, c->segments[0].range.end, c->segments, 1 };
}
