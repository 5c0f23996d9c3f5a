/* prompt_ends.c - see prompt_internal.h: where in a rendered prompt the contents of its messages end. */
#include "session/prompt_internal.h"

#include <stdio.h>
#include <string.h>

/* A marker is "qzmd", a try, "i", the number of a message, "e".  It overlaps itself nowhere (q stands only at its
 * start), so one that is in no content and not in the prompt is found where it was put and nowhere else. */
enum {
    MARK_HEAD = 4 + 8 + 1, /* bytes of what all markers of a rendering share */
    MARK_BYTES = MARK_HEAD + 8 + 1,
    SLACK = 64, /* of a buffer, for those who write a NUL behind their text */
    TRIES = 16  /* somebody who sends all of these gets coarse segments */
};

/* Not the first rendering: of its form nobody wants to know. */
static enum md_status render_again(const struct md_text *text, const struct md_chat_input *in,
                                   struct md_buf *ret)
{
    struct md_chat_form *form = NULL;
    enum md_status s = md_text_render_chat(text, in, ret, &form, NULL);
    md_chat_form_unref(form);
    return s;
}

static bool contains(struct md_bytes text, const char *what, size_t len)
{
    return text.len >= len && memmem(text.data, text.len, what, len) != NULL;
}

/* Choose the head of the markers.  False: all tries are in the texts. */
static bool choose_head(const struct md_chat_input *in, struct md_bytes prompt, char head[MARK_HEAD + 1])
{
    for (unsigned i = 0; i < TRIES; i++) {
        snprintf(head, MARK_HEAD + 1, "qzmd%08xi", i);
        bool found = contains(prompt, head, MARK_HEAD);
        for (size_t m = 0; m < in->count && !found; m++)
            found = contains(in->messages[m].content, head, MARK_HEAD);
        if (!found)
            return true;
    }
    return false;
}

/* The length of a content without the blanks at its end: a template may trim them, and a marker behind them
 * would keep them.  0: nothing would remain, and an empty content may be left out. */
static size_t trimmed(struct md_bytes content)
{
    const char *p = content.data;
    size_t len = content.len;
    while (len > 0 && (p[len - 1] == ' ' || (p[len - 1] >= '\t' && p[len - 1] <= '\r')))
        len--;
    return len;
}

struct marked {
    struct md_chat_message *messages;
    struct md_buf contents;
};

/* The messages with a marker in each content; those without text stay as they are.  MD_NO_MEMORY. */
static enum md_status mark(const struct md_chat_input *in, const char *head, const struct md_alloc *alloc,
                           struct marked *m, struct md_err *err)
{
    size_t total = 0;
    for (size_t i = 0; i < in->count; i++)
        if (__builtin_add_overflow(total, in->messages[i].content.len + MARK_BYTES, &total))
            return md_fail(err, MD_NO_MEMORY, "marked messages");
    m->messages = md_calloc(alloc, in->count, sizeof *m->messages);
    md_buf_init(&m->contents, alloc, total + 1); /* and a NUL */
    enum md_status s = md_buf_reserve(&m->contents, total + 1, err);
    if (m->messages == NULL)
        return md_fail(err, MD_NO_MEMORY, "marked messages");
    for (size_t i = 0; i < in->count && s == MD_OK; i++) {
        const struct md_bytes content = in->messages[i].content;
        const size_t len = trimmed(content), at = m->contents.len;
        m->messages[i] = in->messages[i];
        if (len == 0)
            continue;
        s = md_buf_append(&m->contents, content.data, len, err);
        if (s == MD_OK)
            s = md_buf_printf(&m->contents, err, "%s%08xe", head, (unsigned)i);
        if (s == MD_OK)
            s = md_buf_append(&m->contents, (const char *)content.data + len, content.len - len, err);
        m->messages[i].content = (struct md_bytes){ m->contents.data + at, m->contents.len - at };
    }
    return s;
}

/* The number in the marker at p, or -1. */
static int64_t marker_index(const uint8_t *p, size_t len)
{
    int64_t v = 0;
    if (len < MARK_BYTES || p[MARK_BYTES - 1] != 'e')
        return -1;
    for (size_t i = MARK_HEAD; i < MARK_BYTES - 1; i++) {
        const bool digit = p[i] >= '0' && p[i] <= '9';
        if (!digit && (p[i] < 'a' || p[i] > 'f'))
            return -1;
        v = v << 4 | (digit ? p[i] - '0' : p[i] - 'a' + 10);
    }
    return v;
}

/* A content ends at `at`; the blanks behind its text are its own where the prompt has all of them there. */
static size_t with_blanks(struct md_bytes prompt, size_t at, struct md_bytes content)
{
    const size_t len = trimmed(content), more = content.len - len;
    if (more <= prompt.len - at &&
        memcmp((const char *)prompt.data + at, (const char *)content.data + len, more) == 0)
        return at + more;
    return at;
}

/* Read the ends off the marked rendering.  False: it is not the prompt with all markers in their order. */
static bool read_markers(const struct md_chat_input *in, struct md_bytes prompt, const struct md_buf *marked,
                         const char *head, size_t *ends)
{
    const uint8_t *p = prompt.data, *q = marked->data;
    size_t at = 0, from = 0, next = 0,
           last = 0; /* place in the prompt and in the other; message; end before */
    for (;;) {
        const uint8_t *found =
            from < marked->len ? memmem(q + from, marked->len - from, head, MARK_HEAD) : NULL;
        const size_t to = found != NULL ? (size_t)(found - q) : marked->len, n = to - from;
        if (n > prompt.len - at || (n > 0 && memcmp(p + at, q + from, n) != 0))
            return false;
        at += n;
        for (; next < in->count && trimmed(in->messages[next].content) == 0; next++)
            ends[next] = last;
        if (found == NULL)
            return next == in->count && at == prompt.len;
        if (marker_index(found, marked->len - to) != (int64_t)next || next == in->count)
            return false;
        last = ends[next] = with_blanks(prompt, at, in->messages[next].content);
        next++;
        from = to + MARK_BYTES;
    }
}

/* From here on a rendering that fails finds nothing, and that is no failure of the prompt.  Its buffer is taken
 * at once, so that MD_NO_MEMORY means ours. */

static enum md_status ends_by_markers(const struct md_text *text, const struct md_chat_input *in,
                                      struct md_bytes prompt, const struct md_alloc *alloc, size_t *ends,
                                      bool *ret_found, struct md_err *err)
{
    char head[MARK_HEAD + 1];
    struct marked m = { 0 };
    struct md_buf out;
    *ret_found = false;
    if (!choose_head(in, prompt, head))
        return MD_OK;
    /* A template that writes more than it wrote for the plain messages is not the one we look for. */
    md_buf_init(&out, alloc, prompt.len + in->count * (size_t)MARK_BYTES + SLACK);
    enum md_status s = mark(in, head, alloc, &m, err);
    if (s == MD_OK) {
        s = md_buf_reserve(&out, out.limit_bytes, err);
        struct md_chat_input marked = *in;
        marked.messages = m.messages;
        const enum md_status rendered = s == MD_OK ? render_again(text, &marked, &out) : s;
        *ret_found = rendered == MD_OK && read_markers(in, prompt, &out, head, ends);
    }
    md_free(alloc, m.messages);
    md_buf_done(&m.contents);
    md_buf_done(&out);
    return s;
}

static enum md_status ends_by_prefixes(const struct md_text *text, const struct md_chat_input *in,
                                       struct md_bytes prompt, const struct md_alloc *alloc, size_t *ends,
                                       struct md_err *err)
{
    struct md_buf out;
    struct md_chat_input prefix = *in;
    size_t last = 0;
    enum md_status s = MD_OK;
    prefix.add_generation_prompt = false;
    md_buf_init(&out, alloc, prompt.len + SLACK);
    for (size_t i = 0; i < in->count; i++)
        ends[i] = MD_PROMPT_END_UNKNOWN;
    s = md_buf_reserve(&out, out.limit_bytes, err);
    for (size_t i = 0; i < in->count && i < MD_PROMPT_PREFIX_RENDERS && s == MD_OK; i++) {
        out.len = 0;
        prefix.count = i + 1;
        if (render_again(text, &prefix, &out) == MD_OK && out.len >= last && out.len <= prompt.len &&
            memcmp(out.data, prompt.data, out.len) == 0)
            last = ends[i] = out.len;
    }
    md_buf_done(&out);
    return s;
}

enum md_status md_prompt_find_ends(const struct md_text *text, const struct md_chat_input *in,
                                   struct md_bytes prompt, const struct md_alloc *alloc, size_t *ret_ends,
                                   bool *ret_exact, struct md_err *err)
{
    *ret_exact = true;
    memset(ret_ends, 0, in->count * sizeof *ret_ends);
    if (prompt.len == 0)
        return MD_OK;
    enum md_status s = ends_by_markers(text, in, prompt, alloc, ret_ends, ret_exact, err);
    if (s == MD_OK && !*ret_exact)
        s = ends_by_prefixes(text, in, prompt, alloc, ret_ends, err);
    return s;
}

enum md_status md_prompt_find_tools_end(const struct md_text *text, const struct md_chat_input *in,
                                        struct md_bytes prompt, const struct md_alloc *alloc, size_t *ret_end,
                                        struct md_err *err)
{
    const uint8_t *p = prompt.data;
    struct md_chat_input without = *in;
    struct md_buf out;
    *ret_end = 0;
    without.tools = without.tool_name = (struct md_bytes){ NULL, 0 };
    without.tool_choice = MD_TOOLS_NONE;
    if (prompt.len == 0)
        return MD_OK;
    md_buf_init(&out, alloc, 2 * prompt.len + SLACK); /* some say more when there are no tools */
    enum md_status s = md_buf_reserve(&out, out.limit_bytes, err);
    if (s == MD_OK && render_again(text, &without, &out) == MD_OK) {
        size_t same = 0;
        while (same < prompt.len && same < out.len &&
               p[prompt.len - 1 - same] == out.data[out.len - 1 - same])
            same++;
        *ret_end = same > 0 ? prompt.len - same : MD_PROMPT_END_UNKNOWN;
    } else {
        *ret_end = MD_PROMPT_END_UNKNOWN;
    }
    md_buf_done(&out);
    return s;
}
