/* contract_text.c - text and manifest into tokens: see contract.h. */
#include "session/contract_internal.h"

#include "policy/prefix.h"
#include "session/manifest_json.h"

#include <string.h>

void md_contract_text_close(struct md_contract_text *t)
{
    if (t == NULL)
        return;
    const struct md_alloc *alloc = t->arena.alloc;
    md_manifest_done(&t->manifest);
    md_tokens_done(&t->tokens);
    md_arena_done(&t->arena);
    md_free(alloc, t);
}

enum md_status md_contract_too_large(const struct md_contract_overflow *what,
                                     struct md_contract_overflow *ret_over, struct md_err *err)
{
    *ret_over = *what;
    return md_fail(err, MD_TOO_LARGE, "%s: %d tokens besides %d do not fit the context window of %d",
                   what->stage, what->additional, what->resident, what->window);
}

/* ---- segments as messages ---- */

static bool is_message(const struct md_manifest_segment *g)
{
    return g->label.kind == MD_SEGMENT_SYSTEM || g->label.kind == MD_SEGMENT_USER ||
           g->label.kind == MD_SEGMENT_ASSISTANT || g->label.kind == MD_SEGMENT_TOOL;
}

static bool is_control(const struct md_manifest_segment *g)
{
    return g->label.kind == MD_SEGMENT_BOS || g->label.kind == MD_SEGMENT_ASSISTANT_PROMPT;
}

static size_t stable_count(const struct md_manifest *m)
{
    size_t n = 0;
    while (n < m->segment_count && m->segments[n].label.stable)
        n++;
    return n;
}

static size_t count_messages(const struct md_manifest *m, size_t from, size_t to)
{
    size_t n = 0;
    for (; from < to; from++)
        n += is_message(&m->segments[from]);
    return n;
}

/* Segments [from, to) as messages with their labels.  text begins at byte `base` of the whole. */
static enum md_status read_messages(const struct md_manifest *m, size_t from, size_t to, struct md_bytes text,
                                    int64_t base, struct md_chat_message *ret,
                                    struct md_segment_label *labels, struct md_err *err)
{
    for (; from < to; from++) {
        const struct md_manifest_segment *g = &m->segments[from];
        if (is_control(g))
            continue;
        if (!is_message(g))
            return md_fail(err, MD_INVALID,
                           "segments[%zu] is '%.*s', between messages: a template has no place for it", from,
                           (int)(g->label.name.len < 60 ? g->label.name.len : 60),
                           (const char *)g->label.name.data);
        const char *role = md_segment_kind_name(g->label.kind);
        *ret++ = (struct md_chat_message){
            .role = { role, strlen(role) },
            .content = { (const char *)text.data + (g->byte_start - base),
                         (size_t)(g->byte_end - g->byte_start) },
            .tool_calls = g->tool_calls_json,
            .tool_call_id = g->tool_call_id,
        };
        *labels = g->label;
        labels++->name = (struct md_bytes){ role, strlen(role) };
    }
    return MD_OK;
}

/* The tokens of segments [from, to), the first message of which is number `message` of the prompt.  A message that
 * shares a segment of the prompt with the one before it has none of its own. */
static void message_ranges(const struct md_manifest *m, size_t from, size_t to, const struct md_prompt *p,
                           size_t message, int32_t at, struct md_range *ret)
{
    size_t k = 0;
    for (size_t i = from; i < to; i++) {
        ret[i] = (struct md_range){ at, at };
        if (!is_message(&m->segments[i]))
            continue;
        while (k < p->segment_count &&
               (p->segments[k].message_count == 0 || (size_t)p->segments[k].first_message < message))
            k++;
        if (k < p->segment_count && (size_t)p->segments[k].first_message == message)
            ret[i] = p->segments[k].tokens;
        at = ret[i].end;
        message++;
    }
}

/* Likewise of segments that were taken by their bytes; `at`: tokens before the first. */
static void raw_ranges(const struct md_prompt *p, size_t from, size_t to, int32_t at, struct md_range *ret)
{
    for (size_t i = from; i < to; i++) {
        ret[i] = (struct md_range){ at, at };
        if (i - from < p->segment_count)
            ret[i].end += md_range_len(p->segments[i - from].tokens);
        at = ret[i].end;
    }
}

/* ---- prompts ---- */

/* What a call is made with. */
struct make {
    const struct md_contract *c;
    const struct md_manifest *m;
    struct md_contract_call *call;
    struct md_contract_overflow *over;
    struct md_err *err;
    struct md_prompt p;
};

static enum md_status no_memory(const struct make *k, size_t count)
{
    return md_fail(k->err, MD_NO_MEMORY, "%zu segments", count);
}

/* The window may be filled to the last token. */
static size_t bytes_max(const struct md_contract *c)
{
    return md_prompt_bytes_max(c->text, c->window < INT32_MAX ? c->window + 1 : c->window);
}

static enum md_status too_long(struct make *k, enum md_status s)
{
    const int32_t longest = k->c->text->info.longest_piece_bytes;
    if (s != MD_TOO_LARGE || longest <= 0 || k->p.bytes <= bytes_max(k->c))
        return s;
    const size_t least = k->p.bytes / (size_t)longest;
    return md_contract_too_large(&(struct md_contract_overflow){ .stage = k->call->stage,
                                                                 .resident = k->c->resident,
                                                                 .additional = least < INT32_MAX
                                                                                   ? (int32_t)least
                                                                                   : INT32_MAX,
                                                                 .window = k->c->window },
                                 k->over, k->err);
}

static bool adds_special(const struct md_manifest *m)
{
    return md_manifest_is_zero(m) || m->id.add_bos;
}

static enum md_status render(struct make *k, const struct md_chat_input *in,
                             const struct md_segment_label *labels)
{
    const struct md_prompt_request r = { .text = k->c->text,
                                         .input = *in,
                                         .labels = labels,
                                         .add_special = adds_special(k->m),
                                         .bytes_max = bytes_max(k->c) };
    return too_long(k, md_prompt_render(&r, k->c->alloc, &k->p, k->err));
}

/* Text as it is, by the segments [from, to), whose first byte is `base`. */
static enum md_status take_raw(struct make *k, struct md_bytes text, size_t from, size_t to, int64_t base,
                               bool add_special)
{
    const struct md_alloc *alloc = k->c->alloc;
    const size_t count = to - from;
    struct md_segment_label *labels = md_calloc(alloc, count + 1, sizeof *labels);
    size_t *ends = md_calloc(alloc, count + 1, sizeof *ends);
    enum md_status s = labels != NULL && ends != NULL ? MD_OK : no_memory(k, count);
    for (size_t i = 0; i < count && s == MD_OK; i++) {
        labels[i] = k->m->segments[from + i].label;
        ends[i] = (size_t)(k->m->segments[from + i].byte_end - base);
    }
    if (s == MD_OK) {
        const struct md_prompt_raw_request r = { .text = k->c->text,
                                                 .prompt = text,
                                                 .add_special = add_special,
                                                 .bytes_max = bytes_max(k->c),
                                                 .labels = labels,
                                                 .byte_ends = ends,
                                                 .count = count };
        s = too_long(k, md_prompt_raw(&r, alloc, &k->p, k->err));
    }
    md_free(alloc, labels);
    md_free(alloc, ends);
    return s;
}

/* The job's prompt: the call's tokens from `from` on, and what of the prompt's segments lies there; the prompt begins
 * at token `start` of them. */
static enum md_status fill_job(struct make *k, int32_t from, int32_t start)
{
    struct md_contract_call *call = k->call;
    struct md_context *to = &call->job.request.prompt;
    call->segments = md_calloc(k->c->alloc, k->p.segment_count + 1, sizeof *call->segments);
    if (call->segments == NULL)
        return no_memory(k, k->p.segment_count);
    md_prompt_segments(&k->p, call->segments);
    size_t n = 0;
    for (size_t i = 0; i < k->p.segment_count; i++) {
        struct md_segment g = call->segments[i];
        g.range.start += start - from;
        g.range.end += start - from;
        if (g.range.start < 0)
            g.range.start = 0;
        if (g.range.end > 0 || (g.range.end == 0 && from == 0))
            call->segments[n++] = g;
    }
    *to = (struct md_context){ .tokens = call->tokens.ids + (call->tokens.ids != NULL ? from : 0),
                               .count = (int32_t)call->tokens.count - from,
                               .segments = call->segments,
                               .segment_count = n };
    return MD_OK;
}

/* ---- EnsurePrefix ---- */

static enum md_status copy_bytes(struct md_arena *a, struct md_bytes from, struct md_bytes *ret,
                                 struct md_err *err)
{
    const char *copy = md_arena_strndup(a, from.len > 0 ? from.data : "", from.len);
    if (copy == NULL)
        return md_fail(err, MD_NO_MEMORY, "text of %zu bytes", from.len);
    *ret = (struct md_bytes){ copy, from.len };
    return MD_OK;
}

/* The texts and the messages of a prefix; what a message borrows of the manifest is copied, for the manifest is
 * replaced by that of the suffix. */
static enum md_status new_text(const struct make *k, const struct md_contract_prefix *in,
                               struct md_contract_text **ret)
{
    const struct md_alloc *alloc = k->c->alloc;
    const size_t segments = stable_count(k->m), messages = count_messages(k->m, 0, segments);
    struct md_contract_text *t = md_calloc(alloc, 1, sizeof *t);
    if (t == NULL)
        return no_memory(k, segments);
    *ret = t; /* closed by the call, whatever happens */
    md_arena_init(&t->arena, alloc, 2 * (in->text.len + in->tools.len) + 2 * (size_t)MD_MANIFEST_MEMORY_MAX);
    t->tokens.alloc = alloc;
    t->messages = md_arena_get(&t->arena, messages + 1, sizeof *t->messages);
    t->ranges = md_arena_get(&t->arena, segments + 1, sizeof *t->ranges);
    t->labels = md_arena_get(&t->arena, messages + 1, sizeof *t->labels);
    if (t->messages == NULL || t->ranges == NULL || t->labels == NULL)
        return no_memory(k, segments);
    enum md_status s = copy_bytes(&t->arena, in->text, &t->text, k->err);
    if (s == MD_OK)
        s = copy_bytes(&t->arena, in->tools, &t->tools, k->err);
    if (s == MD_OK && messages > 0)
        s = read_messages(k->m, 0, segments, t->text, 0, t->messages, t->labels, k->err);
    for (size_t i = 0; i < messages && s == MD_OK; i++) {
        struct md_chat_message *m = &t->messages[i];
        if (m->tool_calls.len > 0)
            s = copy_bytes(&t->arena, m->tool_calls, &m->tool_calls, k->err);
        if (s == MD_OK && m->tool_call_id.len > 0)
            s = copy_bytes(&t->arena, m->tool_call_id, &m->tool_call_id, k->err);
    }
    t->message_count = messages;
    t->range_count = segments;
    return s;
}

enum md_status md_contract_make_prefix(const struct md_contract *c, const struct md_contract_prefix *in,
                                       struct md_contract_call *call, struct md_contract_overflow *over,
                                       struct md_err *err)
{
    struct make k = { .c = c, .m = in->manifest, .call = call, .over = over, .err = err };
    enum md_status s = new_text(&k, in, &call->prefix);
    struct md_contract_text *t = call->prefix;
    if (s == MD_OK && t->message_count == 0 && in->tools.len > 0)
        s = md_fail(err, MD_INVALID, "tools without messages: only a template can write them");
    if (s == MD_OK && t->message_count > 0) {
        const struct md_chat_input chat = {
            .messages = t->messages, .count = t->message_count, .tools = t->tools, .parallel_tool_calls = true
        };
        s = render(&k, &chat, t->labels);
    } else if (s == MD_OK) {
        s = take_raw(&k, t->text, 0, t->range_count, 0, adds_special(k.m));
    }
    if (s == MD_OK && t->message_count > 0)
        message_ranges(k.m, 0, t->range_count, &k.p, 0, 0, t->ranges);
    else if (s == MD_OK)
        raw_ranges(&k.p, 0, t->range_count, 0, t->ranges);
    if (s == MD_OK && k.p.tokens.count > (size_t)c->window)
        s = md_contract_too_large(&(struct md_contract_overflow){ call->stage, c->resident,
                                                                  (int32_t)k.p.tokens.count, c->window },
                                  over, err);
    if (s == MD_OK)
        s = md_tokens_append(&t->tokens, k.p.tokens.ids, k.p.tokens.count, err);
    if (s == MD_OK) {
        call->tokens = k.p.tokens;
        k.p.tokens = (struct md_tokens){ 0 };
        s = fill_job(&k, 0, 0);
    }
    if (s == MD_OK)
        s = md_manifest_digest(k.m, c->alloc, call->digest, err);
    if (s == MD_OK)
        s = md_manifest_token_hash(t->tokens.ids, t->tokens.count, call->token_hash, err);
    md_prompt_done(&k.p);
    return s;
}

/* ---- PrefillSuffix ---- */

/* What is written by the template: the messages of prefix and suffix. */
static enum md_status render_suffix(struct make *k, const struct md_contract_suffix *in, size_t from)
{
    const struct md_contract_text *t = k->c->prefix;
    const struct md_alloc *alloc = k->c->alloc;
    const size_t first = t != NULL ? t->message_count : 0, to = k->m->segment_count,
                 count = first + count_messages(k->m, from, to);
    struct md_chat_message *messages = md_calloc(alloc, count + 1, sizeof *messages);
    struct md_segment_label *labels = md_calloc(alloc, count + 1, sizeof *labels);
    enum md_status s = messages != NULL && labels != NULL ? MD_OK : no_memory(k, count);
    for (size_t i = 0; i < first && s == MD_OK; i++) {
        messages[i] = t->messages[i];
        labels[i] = t->labels[i];
    }
    if (s == MD_OK)
        s = read_messages(k->m, from, to, in->text, k->m->stable_bytes, messages + first, labels + first,
                          k->err);
    if (s == MD_OK) {
        const struct md_chat_input chat = { .messages = messages,
                                            .count = count,
                                            .add_generation_prompt = true,
                                            .tools = t != NULL ? t->tools : (struct md_bytes){ NULL, 0 },
                                            .parallel_tool_calls = true,
                                            .thinking = in->thinking == MD_THINKING_OFF ? MD_THINKING_OFF
                                                                                        : MD_THINKING_ON,
                                            .reasoning_effort = in->reasoning_effort };
        s = render(k, &chat, labels);
    }
    md_free(alloc, messages);
    md_free(alloc, labels);
    return s;
}

/* The manifest with the tokens of its segments, counted from the start of the prefix: those that are the prefix's own
 * come from there where the two have the same segments. */
static enum md_status enrich(struct make *k, struct md_manifest *m, size_t from, bool written,
                             struct md_err *err)
{
    const struct md_contract_text *t = k->c->prefix;
    const size_t n = m->segment_count;
    const int32_t prefix = t != NULL ? (int32_t)t->tokens.count : 0;
    struct md_range *ranges = md_calloc(k->c->alloc, n + 1, sizeof *ranges);
    if (ranges == NULL)
        return no_memory(k, n);
    int32_t at = 0;
    if (written && t != NULL && count_messages(m, 0, from) == t->message_count)
        message_ranges(m, 0, from, &k->p, 0, 0, ranges);
    else if (!written && t != NULL && t->range_count == from)
        memcpy(ranges, t->ranges, from * sizeof *ranges);
    if (from > 0)
        at = ranges[from - 1].end;
    if (written)
        message_ranges(m, from, n, &k->p, t != NULL ? t->message_count : 0, at, ranges);
    else
        raw_ranges(&k->p, from, n, prefix, ranges);
    enum md_status s = md_manifest_set_tokens(m, ranges, k->call->tokens.ids, k->call->tokens.count, err);
    md_free(k->c->alloc, ranges);
    return s;
}

/* Prefix and suffix in tokens; *ret_keep: how many of the prefix's stay. */
static enum md_status join_tokens(struct make *k, bool written, int32_t *ret_keep)
{
    const struct md_contract_text *t = k->c->prefix;
    const md_token *ids = t != NULL ? t->tokens.ids : NULL;
    const size_t count = t != NULL ? t->tokens.count : 0;
    struct md_tokens *to = &k->call->tokens;
    to->alloc = k->c->alloc;
    *ret_keep = (int32_t)(written ? md_prefix_common(ids, count, k->p.tokens.ids, k->p.tokens.count) : count);
    enum md_status s = written ? MD_OK : md_tokens_append(to, ids, count, k->err);
    return s == MD_OK ? md_tokens_append(to, k->p.tokens.ids, k->p.tokens.count, k->err) : s;
}

enum md_status md_contract_make_suffix(const struct md_contract *c, const struct md_contract_suffix *in,
                                       struct md_contract_call *call, struct md_contract_overflow *over,
                                       struct md_err *err)
{
    struct make k = { .c = c, .m = in->manifest, .call = call, .over = over, .err = err };
    const struct md_contract_text *t = c->prefix;
    const size_t from = stable_count(k.m), prefix = t != NULL ? t->tokens.count : 0;
    const bool messages = t != NULL && t->message_count > 0, empty = t == NULL || t->text.len == 0;
    /* a template may write it where it wrote the prefix, or where there is none */
    const bool written = (messages && in->text.len == 0) ||
                         ((messages || empty) && count_messages(k.m, from, k.m->segment_count) > 0);
    int32_t keep = 0;
    enum md_status s = written ? render_suffix(&k, in, from)
                               : take_raw(&k, in->text, from, k.m->segment_count, k.m->stable_bytes,
                                          prefix == 0 && adds_special(k.m));
    if (s == MD_OK)
        s = join_tokens(&k, written, &keep);
    if (s == MD_OK && call->tokens.count > INT32_MAX)
        s = md_fail(err, MD_TOO_LARGE, "more than %d tokens", INT32_MAX);
    const bool cuts = (size_t)keep < prefix;
    const int32_t base = cuts ? keep : c->resident, more = (int32_t)call->tokens.count - keep;
    if (s == MD_OK && more > c->window - base)
        s = md_contract_too_large(&(struct md_contract_overflow){ call->stage, base, more, c->window }, over,
                                  err);
    if (s == MD_OK)
        s = fill_job(&k, keep, written ? 0 : (int32_t)prefix);
    if (s == MD_OK && !md_manifest_is_zero(in->manifest))
        s = enrich(&k, in->manifest, from, written, err);
    if (s == MD_OK)
        s = md_manifest_digest(in->manifest, c->alloc, call->digest, err);
    if (s == MD_OK) {
        call->job.keep = cuts ? keep : -1;
        call->form = md_chat_form_ref(k.p.form);
    }
    md_prompt_done(&k.p);
    return s;
}
