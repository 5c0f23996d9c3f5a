/* parser.c - see parser.h.  The text so far is kept whole.  `mode` says what its end is known to be: in PLAIN and
 * THINKING what follows is content or reasoning up to the next marker, and is not parsed. */
#include "text/parser.h"

#include "base/le.h"
#include "text/fallback.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum mode { UNKNOWN, PLAIN, THINKING };
static const char open_tag[] = "<tool_call>";
enum { OPEN_BYTES = sizeof open_tag - 1 };
enum { TAIL_BYTES = 64 }; /* of the end of a text: so much tells whether it ends in its content */

struct call {
    char id[MD_CALL_ID_BYTES];
    struct md_buf name, arguments; /* what has come out */
    bool begun;
};

struct md_chat_parser {
    struct md_chat_form *form;
    md_chat_delta_fn *on_delta;
    void *user;
    struct md_buf text;
    enum mode mode;
    size_t shown; /* in PLAIN and THINKING: how much of text has come out or been read */
    size_t read_bytes;
    struct md_buf content, reasoning;
    struct call *calls;
    size_t call_count, call_cap;
    struct md_call_ids ids;
};

struct md_call_ids md_call_ids_new(void)
{
    static _Atomic uint32_t made; /* what is left to tell them apart where the system has no randomness */
    struct md_call_ids ids = { 0 };
    if (getrandom(ids.seed, sizeof ids.seed, 0) != sizeof ids.seed)
        md_le_store(ids.seed + 4, ++made, 4);
    return ids;
}

void md_call_ids_name(const struct md_call_ids *ids, size_t index, char id[MD_CALL_ID_BYTES])
{
    unsigned char name[MD_CALL_SEED_BYTES];
    memcpy(name, ids->seed, sizeof name);
    md_le_store(name, md_le_load(name, 4) + index, 4);
    memcpy(id, "call_", 5);
    for (size_t i = 0; i < sizeof name; i++)
        snprintf(id + 5 + 2 * i, 3, "%02x", name[i]);
}

enum md_status md_chat_parser_open(struct md_chat_form *form, md_chat_delta_fn *on_delta, void *user,
                                   struct md_chat_parser **ret_parser, struct md_err *err)
{
    struct md_chat_parser *p = calloc(1, sizeof *p);
    if (p == NULL)
        return md_fail(err, MD_NO_MEMORY, "chat parser");
    p->form = md_chat_form_ref(form);
    p->on_delta = on_delta;
    p->user = user;
    p->mode = form == NULL ? PLAIN : UNKNOWN;
    p->ids = md_call_ids_new();
    md_buf_init(&p->text, NULL, MD_PARSER_BYTES_MAX);
    md_buf_init(&p->content, NULL, MD_PARSER_BYTES_MAX);
    md_buf_init(&p->reasoning, NULL, MD_PARSER_BYTES_MAX);
    *ret_parser = p;
    return MD_OK;
}

void md_chat_parser_close(struct md_chat_parser *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->call_count; i++) {
        md_buf_done(&p->calls[i].name);
        md_buf_done(&p->calls[i].arguments);
    }
    free(p->calls);
    md_buf_done(&p->text);
    md_buf_done(&p->content);
    md_buf_done(&p->reasoning);
    md_chat_form_unref(p->form);
    free(p);
}

/* ---- what comes out ---- */

static struct md_bytes bytes_of(const struct md_buf *b)
{
    return (struct md_bytes){ b->data, b->len };
}

static enum md_status give(struct md_chat_parser *p, struct md_buf *given, enum md_delta_kind kind,
                           size_t index, const void *data, size_t len, struct md_err *err)
{
    if (len == 0)
        return MD_OK;
    enum md_status s = md_buf_append(given, data, len, err);
    const struct md_chat_delta d = { .kind = kind, .index = index, .text = { data, len } };
    return s == MD_OK ? p->on_delta(p->user, &d, err) : s;
}

/* Bring what was given up to `now`.  What has come out stays: a reading that says otherwise waits, and at the end
 * adds what differs. */
static enum md_status advance(struct md_chat_parser *p, struct md_buf *given, enum md_delta_kind kind,
                              size_t index, struct md_bytes now, bool final, struct md_err *err)
{
    const unsigned char *data = now.data;
    size_t same = 0;
    while (same < given->len && same < now.len && given->data[same] == data[same])
        same++;
    if (same < given->len) {
        if (!final)
            return MD_OK;
        while (same > 0 && same < now.len && (data[same] & 0xC0) == 0x80)
            same--; /* from the start of a character */
    }
    return same == now.len ? MD_OK : give(p, given, kind, index, data + same, now.len - same, err);
}

static enum md_status add_call(struct md_chat_parser *p, struct md_err *err)
{
    void *calls = p->calls;
    if (!md_grow(NULL, &calls, &p->call_cap, p->call_count + 1, sizeof *p->calls))
        return md_fail(err, MD_NO_MEMORY, "%zu tool calls", p->call_count);
    p->calls = calls;
    struct call *c = &p->calls[p->call_count++];
    *c = (struct call){ 0 };
    md_call_ids_name(&p->ids, p->call_count - 1, c->id);
    md_buf_init(&c->name, NULL, MD_PARSER_BYTES_MAX);
    md_buf_init(&c->arguments, NULL, MD_PARSER_BYTES_MAX);
    return MD_OK;
}

static enum md_status begin_call(struct md_chat_parser *p, size_t index, struct md_bytes name,
                                 struct md_err *err)
{
    struct call *c = &p->calls[index];
    enum md_status s = md_buf_append(&c->name, name.data, name.len, err);
    if (s != MD_OK)
        return s;
    c->begun = true;
    const struct md_chat_delta d = {
        .kind = MD_DELTA_CALL, .index = index, .id = { c->id, strlen(c->id) }, .name = name
    };
    return p->on_delta(p->user, &d, err);
}

/* A call is begun when its name can grow no more: its arguments have begun, another call has, or it is over. */
static enum md_status take_call(struct md_chat_parser *p, size_t index, const struct md_chat_call *call,
                                bool last, bool final, struct md_err *err)
{
    enum md_status s = MD_OK;
    if (call->name.len == 0 || (!p->calls[index].begun && call->arguments.len == 0 && last && !final))
        return MD_OK;
    if (!p->calls[index].begun)
        s = begin_call(p, index, call->name, err);
    if (s == MD_OK)
        s = advance(p, &p->calls[index].arguments, MD_DELTA_ARGUMENTS, index, call->arguments, final, err);
    return s;
}

/* What of the content is before a tag, whole or begun, of a call that the form may not have known: that is told at
 * the end, and held back until then. */
static struct md_bytes before_tag(const struct md_chat_parser *p, struct md_bytes content)
{
    const char *data = content.data;
    if (!p->form->tools || content.len == 0)
        return content;
    const char *tag = memmem(data, content.len, open_tag, OPEN_BYTES);
    if (tag != NULL)
        return (struct md_bytes){ data, (size_t)(tag - data) };
    size_t begun = content.len < OPEN_BYTES ? content.len : OPEN_BYTES - 1;
    while (begun > 0 && memcmp(data + content.len - begun, open_tag, begun) != 0)
        begun--;
    return (struct md_bytes){ data, content.len - begun };
}

static enum md_status take(struct md_chat_parser *p, const struct md_chat_parsed *now, bool final,
                           struct md_err *err)
{
    enum md_status s = advance(p, &p->reasoning, MD_DELTA_REASONING, 0, now->reasoning, final, err);
    if (s == MD_OK)
        s = advance(p, &p->content, MD_DELTA_CONTENT, 0, final ? now->content : before_tag(p, now->content),
                    final, err);
    for (size_t i = 0; i < now->call_count && s == MD_OK; i++) {
        if (i == p->call_count)
            s = add_call(p, err);
        if (s == MD_OK)
            s = take_call(p, i, &now->calls[i], i + 1 == now->call_count, final, err);
    }
    return s;
}

/* ---- reading ---- */

/* Do text and part end in the same bytes? */
static bool ends_in(struct md_bytes text, struct md_bytes part)
{
    size_t n = part.len < TAIL_BYTES ? part.len : TAIL_BYTES;
    return n > 0 && n <= text.len &&
           memcmp((const char *)text.data + text.len - n, (const char *)part.data + part.len - n, n) == 0;
}

/* What is the end of the text?  Known only when all of it has come out. */
static enum mode mode_after(const struct md_chat_parser *p, const struct md_chat_parsed *now)
{
    const struct md_bytes text = bytes_of(&p->text);
    if (!p->form->markers_known || now->call_count > 0 ||
        !md_bytes_equal(now->content, bytes_of(&p->content)) ||
        !md_bytes_equal(now->reasoning, bytes_of(&p->reasoning)))
        return UNKNOWN;
    if (now->content.len > 0)
        return ends_in(text, now->content) ? PLAIN : UNKNOWN;
    return ends_in(text, now->reasoning) ? THINKING : UNKNOWN;
}

static bool may_read(const struct md_chat_parser *p)
{
    return p->read_bytes + p->text.len <= MD_PARSER_TIMES * p->text.len + MD_PARSER_FREE_BYTES;
}

/* Take apart what has come so far.  A text that does not fit yet may fit later. */
static enum md_status read_so_far(struct md_chat_parser *p, struct md_err *err)
{
    struct md_chat_parsed now = { 0 };
    struct md_err ignored;
    p->read_bytes += p->text.len;
    enum md_status s = p->form->ops->parse(p->form, bytes_of(&p->text), false, &now, &ignored);
    if (s == MD_OK) {
        s = take(p, &now, false, err);
        p->mode = mode_after(p, &now);
        p->shown = p->text.len;
    } else if (s != MD_NO_MEMORY) {
        s = MD_OK;
    } else {
        s = md_fail(err, s, "%s", ignored.text);
    }
    md_arena_done(&now.arena);
    return s;
}

/* Where in text, from `from` on, a marker stands or begins; *ret_whole: it is all there.  text.len: nowhere. */
static size_t find_marker(const struct md_chat_form *f, struct md_bytes text, size_t from, bool *ret_whole)
{
    const char *data = text.data;
    for (size_t i = from; i < text.len; i++)
        for (size_t m = 0; m < f->marker_count; m++) {
            size_t n = f->markers[m].len, there = text.len - i;
            if (memcmp(data + i, f->markers[m].data, n < there ? n : there) == 0) {
                *ret_whole = n <= there;
                return i;
            }
        }
    return text.len;
}

/* Let pass what is before the next marker; past one, the mode is not known any more. */
static enum md_status pass(struct md_chat_parser *p, struct md_err *err)
{
    bool whole = false;
    const struct md_bytes text = bytes_of(&p->text);
    size_t to = p->form == NULL ? text.len : find_marker(p->form, text, p->shown, &whole);
    struct md_buf *given = p->mode == PLAIN ? &p->content : &p->reasoning;
    enum md_delta_kind kind = p->mode == PLAIN ? MD_DELTA_CONTENT : MD_DELTA_REASONING;
    enum md_status s = give(p, given, kind, 0, (const char *)text.data + p->shown, to - p->shown, err);
    p->shown = to;
    if (whole)
        p->mode = UNKNOWN;
    return s;
}

enum md_status md_chat_parser_push(struct md_chat_parser *p, struct md_bytes text, struct md_err *err)
{
    if (text.len == 0)
        return MD_OK;
    enum md_status s = md_buf_append(&p->text, text.data, text.len, err);
    if (s == MD_OK && p->mode != UNKNOWN)
        s = pass(p, err);
    if (s == MD_OK && p->mode == UNKNOWN && may_read(p))
        s = read_so_far(p, err);
    return s;
}

/* What is left of `text` when the form has found no calls in it: those in tags, and the rest. */
static enum md_status take_rest(struct md_chat_parser *p, struct md_chat_parsed *now, struct md_bytes text,
                                struct md_err *err)
{
    struct md_chat_parsed tagged = { 0 };
    enum md_status s = MD_OK;
    now->content = text;
    if (before_tag(p, text).len < text.len && p->call_count == 0)
        s = md_chat_fallback(text, &tagged, err);
    if (tagged.call_count > 0) {
        now->content = tagged.content;
        now->calls = tagged.calls;
        now->call_count = tagged.call_count;
    }
    if (s == MD_OK)
        s = take(p, now, true, err);
    md_arena_done(&tagged.arena);
    return s;
}

enum md_status md_chat_parser_finish(struct md_chat_parser *p, struct md_err *err)
{
    struct md_chat_parsed now = { 0 };
    struct md_err why;
    if (p->form == NULL || p->text.len == 0)
        return MD_OK;
    p->read_bytes += p->text.len;
    enum md_status s = p->form->ops->parse(p->form, bytes_of(&p->text), true, &now, &why);
    if (s != MD_OK && s != MD_INVALID) {
        s = md_fail(err, s, "%s", why.text);
    } else if (s == MD_OK && now.call_count > 0) {
        s = take(p, &now, true, err);
    } else {
        bool nothing = now.content.len == 0 && now.reasoning.len == 0;
        struct md_bytes rest = s == MD_OK && !nothing ? now.content : bytes_of(&p->text);
        if (s != MD_OK)
            now.reasoning = bytes_of(&p->reasoning);
        s = take_rest(p, &now, rest, err);
    }
    md_arena_done(&now.arena);
    return s;
}

/* ---- looking at it ---- */

struct md_bytes md_chat_parser_content(const struct md_chat_parser *p)
{
    return bytes_of(&p->content);
}

struct md_bytes md_chat_parser_reasoning(const struct md_chat_parser *p)
{
    return bytes_of(&p->reasoning);
}

size_t md_chat_parser_call_count(const struct md_chat_parser *p)
{
    size_t count = 0; /* what was not begun is not known to anyone */
    while (count < p->call_count && p->calls[count].begun)
        count++;
    return count;
}

struct md_chat_call md_chat_parser_call(const struct md_chat_parser *p, size_t index)
{
    const struct call *c = &p->calls[index];
    return (struct md_chat_call){ .id = { c->id, strlen(c->id) },
                                  .name = bytes_of(&c->name),
                                  .arguments = bytes_of(&c->arguments) };
}

struct md_call_ids md_chat_parser_ids(const struct md_chat_parser *p)
{
    return p->ids;
}

void md_chat_parser_set_ids(struct md_chat_parser *p, struct md_call_ids ids)
{
    p->ids = ids;
}

size_t md_chat_parser_read_bytes(const struct md_chat_parser *p)
{
    return p->read_bytes;
}
