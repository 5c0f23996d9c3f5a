/* prompt.c - see prompt.h. */
#include "session/prompt.h"

#include "policy/prefix.h"
#include "session/prompt_internal.h"

#include <assert.h>
#include <string.h>

static const char by_prefixes[] =
    "the template writes marked text otherwise: segments end with whole messages, not with their contents";
static const char some_merged[] =
    "the ends of some messages were not found in the prompt: they share a segment "
    "with the next";
static const char tools_not_found[] = "no end of the tools section was found: it is part of its neighbour";
static const char not_aligned[] =
    "the tokenizer does not keep the bytes of the prompt: all of it is one segment";

void md_prompt_done(struct md_prompt *p)
{
    md_tokens_done(&p->tokens);
    md_chat_form_unref(p->form);
    md_arena_done(&p->arena);
    *p = (struct md_prompt){ 0 };
}

/* ---- labels ---- */

static struct md_bytes word(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

void md_prompt_labels(const struct md_chat_message *messages, size_t count,
                      struct md_segment_label *ret_labels)
{
    bool leading = true;
    for (size_t i = 0; i < count; i++) {
        const struct md_bytes role = messages[i].role;
        const bool system = md_bytes_are(role, "system") || md_bytes_are(role, "developer");
        leading = leading && system;
        ret_labels[i] = md_segment_label_of(system ? word("system") : role, leading);
        if (!leading)
            ret_labels[i].cls = MD_CLASS_VOLATILE;
    }
}

/* What a segment of several messages is: the first one's kind, as dear as the dearest, stable if all are. */
static void join(struct md_segment_label *a, const struct md_segment_label *b)
{
    a->cls = b->cls < a->cls ? b->cls : a->cls;
    a->stable = a->stable && b->stable;
    if (b->invalidation != a->invalidation)
        a->invalidation = MD_INVALIDATION_NONE;
}

/* ---- from places in bytes to segments ---- */

struct work {
    struct md_prompt p;
    size_t *ends; /* of the segments' bodies, and what the tokens are cut by */
    const struct md_alloc *alloc;
    struct md_err *err;
};

size_t md_prompt_bytes_max(const struct md_text *text, int32_t window_tokens)
{
    const size_t longest = (size_t)text->info.longest_piece_bytes, window = (size_t)window_tokens;
    return longest > 0 && window > 0 && window < MD_PROMPT_BYTES_MAX / longest ? window * longest - 1
                                                                               : MD_PROMPT_BYTES_MAX;
}

static enum md_status no_memory(struct work *w, size_t count)
{
    return md_fail(w->err, MD_NO_MEMORY, "prompt of %zu segments", count);
}

/* Room for `count` segments. */
static enum md_status start(struct work *w, size_t count, const struct md_alloc *alloc, struct md_err *err)
{
    *w = (struct work){ .alloc = alloc, .err = err };
    w->p.tokens.alloc = alloc;
    size_t limit; /* for segments and copies of their names */
    if (count > INT32_MAX / 2 || __builtin_mul_overflow(count + 1, 2 * sizeof *w->p.segments, &limit))
        return no_memory(w, count);
    md_arena_init(&w->p.arena, alloc, limit + MD_PROMPT_BYTES_MAX);
    w->p.segments = md_arena_get(&w->p.arena, count + 1, sizeof *w->p.segments);
    w->ends = md_calloc(alloc, count + 1, sizeof *w->ends);
    return w->p.segments != NULL && w->ends != NULL ? MD_OK : no_memory(w, count);
}

static enum md_status finish(struct work *w, enum md_status s, struct md_prompt *ret)
{
    md_free(w->alloc, w->ends);
    ret->bytes = w->p.bytes;
    if (s == MD_OK)
        *ret = w->p;
    else
        md_prompt_done(&w->p);
    return s;
}

static enum md_status check_bytes(struct work *w, size_t bytes, size_t most)
{
    if (most == 0 || most > MD_PROMPT_BYTES_MAX)
        most = MD_PROMPT_BYTES_MAX;
    w->p.bytes = bytes;
    return bytes <= most
               ? MD_OK
               : md_fail(w->err, MD_TOO_LARGE, "the prompt has %zu bytes, more than %zu", bytes, most);
}

static void add(struct work *w, const struct md_segment_label *label, size_t first, size_t count, size_t end)
{
    w->ends[w->p.segment_count] = end;
    w->p.segments[w->p.segment_count++] = (struct md_prompt_segment){ .label = *label,
                                                                      .first_message = (int32_t)first,
                                                                      .message_count = (int32_t)count };
}

static enum md_status tokenize(struct work *w, const struct md_text *text, struct md_bytes prompt,
                               const struct md_calls_spans *spans, bool add_special)
{
    enum md_status s = md_calls_tokenize(text, prompt, spans, add_special, &w->p.tokens, w->err);
    if (s == MD_OK && w->p.tokens.count > INT32_MAX)
        s = md_fail(w->err, MD_TOO_LARGE, "the prompt has more than %d tokens", INT32_MAX);
    return s;
}

/* All segments become one: nobody knows where they end. */
static void merge_all(struct work *w)
{
    struct md_prompt_segment *all = w->p.segments;
    for (size_t i = 1; i < w->p.segment_count; i++) {
        join(&all[0].label, &all[i].label);
        all[0].message_count += all[i].message_count;
    }
    w->p.segment_count = 1;
    w->p.diagnostic = not_aligned;
}

/* Names of neighbours that are the same are copied once. */
static enum md_status own_names(struct work *w)
{
    struct md_bytes from = { 0 }, own = { 0 };
    for (size_t i = 0; i < w->p.segment_count; i++) {
        struct md_bytes *name = &w->p.segments[i].label.name;
        if (own.data == NULL || name->len != from.len ||
            (from.len > 0 && memcmp(name->data, from.data, from.len) != 0)) {
            from = *name;
            own = (struct md_bytes){ md_arena_strndup(&w->p.arena, name->data, name->len), name->len };
        }
        if (own.data == NULL)
            return no_memory(w, w->p.segment_count);
        *name = own;
    }
    return MD_OK;
}

/* Segments and the ends of their bodies are there; now their tokens. */
static enum md_status cut(struct work *w, const struct md_text *text, struct md_bytes prompt)
{
    struct md_prompt *p = &w->p;
    const int32_t count = (int32_t)p->tokens.count;
    bool aligned = false;
    int32_t *ends = md_calloc(w->alloc, p->segment_count, sizeof *ends);
    if (ends == NULL)
        return no_memory(w, p->segment_count);
    enum md_status s = md_prompt_align(text, prompt, &p->tokens, w->ends, p->segment_count, w->alloc, ends,
                                       &aligned, w->err);
    if (s == MD_OK && !aligned) {
        merge_all(w);
        ends[0] = count;
    }
    int32_t at = 0;
    for (size_t i = 0; i < p->segment_count && s == MD_OK; i++) {
        struct md_prompt_segment *g = &p->segments[i];
        g->tokens = (struct md_range){ at, i + 1 < p->segment_count ? ends[i] : count };
        g->body_tokens = ends[i] - at;
        g->hash = md_prefix_chain((struct md_key){ 0 }, p->tokens.ids + at, (size_t)g->body_tokens);
        at = g->tokens.end;
    }
    md_free(w->alloc, ends);
    return s == MD_OK ? own_names(w) : s;
}

/* ---- chat messages ---- */

/* The segments of messages that end at `at`, with the tools section where it ends inside one. */
static void gather(struct work *w, const struct md_segment_label *labels, const size_t *at, size_t count,
                   size_t tools_end, size_t prompt_len)
{
    static const char tools_name[] = "tools";
    struct md_segment_label tools = md_segment_label_of(word(tools_name), true);
    struct md_segment_label label = { 0 };
    size_t first = 0;
    bool placed = tools_end == 0;
    for (size_t i = 0; i < count; i++) {
        const bool last = i + 1 == count;
        if (first == i)
            label = labels[i];
        else
            join(&label, &labels[i]);
        if (at[i] == MD_PROMPT_END_UNKNOWN && !last) {
            w->p.diagnostic = some_merged;
            continue;
        }
        const size_t end = at[i] == MD_PROMPT_END_UNKNOWN ? prompt_len : at[i];
        if (!placed && tools_end <= end) { /* behind what is not stable, nothing is */
            tools.stable = w->p.segment_count == 0 || w->p.segments[w->p.segment_count - 1].label.stable;
            add(w, &tools, first, 0, tools_end);
            placed = true;
        }
        add(w, &label, first, i + 1 - first, end);
        first = i + 1;
    }
    if (!placed)
        w->p.diagnostic = tools_not_found;
}

static enum md_status labels_of(const struct md_prompt_request *r, const struct md_alloc *alloc,
                                struct md_segment_label **ret, struct md_err *err)
{
    *ret = md_calloc(alloc, r->input.count, sizeof **ret);
    if (*ret == NULL)
        return md_fail(err, MD_NO_MEMORY, "labels of %zu messages", r->input.count);
    if (r->labels != NULL)
        memcpy(*ret, r->labels, r->input.count * sizeof **ret);
    else
        md_prompt_labels(r->input.messages, r->input.count, *ret);
    return MD_OK;
}

/* Where segments end, and what they are.  in: the messages as they were rendered. */
static enum md_status divide(struct work *w, const struct md_prompt_request *r,
                             const struct md_chat_input *in, struct md_bytes prompt)
{
    bool exact = false;
    size_t tools_end = 0;
    struct md_segment_label *labels = NULL;
    size_t *ends = md_calloc(w->alloc, in->count, sizeof *ends);
    enum md_status s = ends != NULL ? labels_of(r, w->alloc, &labels, w->err) : no_memory(w, in->count);
    if (s == MD_OK)
        s = md_prompt_find_ends(r->text, in, prompt, w->alloc, ends, &exact, w->err);
    if (s == MD_OK && in->tools.len > 0)
        s = md_prompt_find_tools_end(r->text, in, prompt, w->alloc, &tools_end, w->err);
    if (s == MD_OK) {
        w->p.diagnostic = exact ? NULL : by_prefixes;
        gather(w, labels, ends, in->count, tools_end, prompt.len);
    }
    md_free(w->alloc, ends);
    md_free(w->alloc, labels);
    return s;
}

/* The text of the prompt, and its tokens; *in becomes what was rendered. */
static enum md_status render(struct work *w, const struct md_prompt_request *r, struct md_buf *rendered,
                             struct md_calls_spans *spans, struct md_chat_input *in)
{
    enum md_status s;
    if (r->calls != NULL) {
        s = md_calls_render(r->calls, r->text, in, rendered, spans, &w->p.form, w->err);
        in->messages = spans->messages;
    } else {
        s = md_text_render_chat(r->text, in, rendered, &w->p.form, w->err);
    }
    if (s == MD_OK)
        s = check_bytes(w, rendered->len, r->bytes_max);
    if (s == MD_OK)
        s = tokenize(w, r->text, (struct md_bytes){ rendered->data, rendered->len }, spans, r->add_special);
    return s;
}

enum md_status md_prompt_render(const struct md_prompt_request *r, const struct md_alloc *alloc,
                                struct md_prompt *ret, struct md_err *err)
{
    struct work w;
    struct md_buf rendered;
    struct md_calls_spans spans = { 0 };
    struct md_chat_input in = r->input;
    if (in.count == 0)
        return md_fail(err, MD_INVALID, "a chat needs at least one message");
    md_buf_init(&rendered, alloc, MD_PROMPT_BYTES_MAX);
    enum md_status s = start(&w, in.count + 1, alloc, err);
    if (s == MD_OK)
        s = render(&w, r, &rendered, &spans, &in);
    const struct md_bytes prompt = { rendered.data, rendered.len };
    if (s == MD_OK)
        s = divide(&w, r, &in, prompt);
    if (s == MD_OK)
        s = cut(&w, r->text, prompt);
    md_calls_spans_done(&spans);
    md_buf_done(&rendered);
    return finish(&w, s, ret);
}

/* ---- raw text ---- */

static enum md_status check_ends(const struct md_prompt_raw_request *r, struct md_err *err)
{
    size_t at = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (r->byte_ends[i] < at)
            return md_fail(err, MD_INVALID, "segment %zu ends at byte %zu, the one before it at %zu", i,
                           r->byte_ends[i], at);
        at = r->byte_ends[i];
    }
    if (r->count > 0 && at != r->prompt.len)
        return md_fail(err, MD_INVALID, "%zu segments end at byte %zu, the prompt has %zu", r->count, at,
                       r->prompt.len);
    return MD_OK;
}

enum md_status md_prompt_raw(const struct md_prompt_raw_request *r, const struct md_alloc *alloc,
                             struct md_prompt *ret, struct md_err *err)
{
    const struct md_calls_spans none = { 0 };
    struct work w;
    enum md_status s = check_ends(r, err);
    if (s != MD_OK)
        return s;
    s = start(&w, r->count, alloc, err);
    if (s == MD_OK)
        s = check_bytes(&w, r->prompt.len, r->bytes_max);
    if (s == MD_OK)
        s = tokenize(&w, r->text, r->prompt, &none, r->add_special);
    for (size_t i = 0; i < r->count && s == MD_OK; i++)
        add(&w, &r->labels[i], i, 1, r->byte_ends[i]);
    if (s == MD_OK && r->count > 0)
        s = cut(&w, r->text, r->prompt);
    return finish(&w, s, ret);
}

void md_prompt_segments(const struct md_prompt *p, struct md_segment *ret)
{
    for (size_t i = 0; i < p->segment_count; i++) {
        const struct md_segment_label *l = &p->segments[i].label;
        ret[i] = (struct md_segment){ .range = p->segments[i].tokens,
                                      .kind = l->kind,
                                      .cls = l->cls,
                                      .invalidation = l->invalidation,
                                      .stable = l->stable };
        const struct md_bytes name =
            l->name.len < sizeof ret[i].name ? l->name : word(md_segment_kind_name(l->kind));
        memcpy(ret[i].name, name.data, name.len);
    }
}
