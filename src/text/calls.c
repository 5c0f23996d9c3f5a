/* calls.c - see calls.h.  Entries hang in a hash by the id of their first call and in a list by last use. */
#include "text/calls.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <yyjson.h>

enum { BUCKETS = 1024, DEPTH_MAX = 200 };

struct entry {
    struct entry *next_in_bucket, *newer, *older;
    size_t bytes;                               /* of this allocation */
    struct md_bytes lead, raw, content, tokens; /* tokens: as bytes */
    size_t call_count;
    struct md_chat_call calls[]; /* then the bytes of all of it */
};

struct md_calls {
    const struct md_alloc *alloc;
    pthread_mutex_t mu;
    size_t limit_entries, limit_bytes, entries, bytes;
    struct entry *buckets[BUCKETS], *newest, *oldest;
};

enum md_status md_calls_open(size_t limit_entries, size_t limit_bytes, const struct md_alloc *alloc,
                             struct md_calls **ret_calls, struct md_err *err)
{
    struct md_calls *c = md_calloc(alloc, 1, sizeof *c);
    if (c == NULL)
        return md_fail(err, MD_NO_MEMORY, "remembered tool calls");
    c->alloc = alloc;
    c->limit_entries = limit_entries;
    c->limit_bytes = limit_bytes;
    pthread_mutex_init(&c->mu, NULL);
    *ret_calls = c;
    return MD_OK;
}

void md_calls_close(struct md_calls *c)
{
    if (c == NULL)
        return;
    for (struct entry *e = c->newest, *older; e != NULL; e = older) {
        older = e->older;
        md_free(c->alloc, e);
    }
    pthread_mutex_destroy(&c->mu);
    md_free(c->alloc, c);
}

/* ---- hash and list, under mu ---- */

static struct entry **bucket_of(struct md_calls *c, struct md_bytes id)
{
    const unsigned char *p = id.data;
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a; ids are our own, nobody chooses them to collide */
    for (size_t i = 0; i < id.len; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return &c->buckets[h % BUCKETS];
}

static struct entry *find_locked(struct md_calls *c, struct md_bytes id)
{
    struct entry *e = *bucket_of(c, id);
    while (e != NULL && !md_bytes_equal(e->calls[0].id, id))
        e = e->next_in_bucket;
    return e;
}

static void unlist_locked(struct md_calls *c, struct entry *e)
{
    *(e->newer != NULL ? &e->newer->older : &c->newest) = e->older;
    *(e->older != NULL ? &e->older->newer : &c->oldest) = e->newer;
}

static void list_locked(struct md_calls *c, struct entry *e)
{
    e->newer = NULL;
    e->older = c->newest;
    *(c->newest != NULL ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static void drop_locked(struct md_calls *c, struct entry *e)
{
    struct entry **at = bucket_of(c, e->calls[0].id);
    while (*at != e)
        at = &(*at)->next_in_bucket;
    *at = e->next_in_bucket;
    unlist_locked(c, e);
    c->entries--;
    c->bytes -= e->bytes;
    md_free(c->alloc, e);
}

/* ---- remember ---- */

static struct md_bytes put(char **at, struct md_bytes from)
{
    struct md_bytes to = { *at, from.len };
    if (from.len > 0)
        memcpy(*at, from.data, from.len);
    *at += from.len;
    return to;
}

static struct entry *entry_new(const struct md_alloc *alloc, const struct md_calls_turn *turn, size_t bytes)
{
    struct entry *e = md_calloc(alloc, 1, bytes);
    if (e == NULL)
        return NULL;
    char *at = (char *)&e->calls[turn->call_count];
    e->bytes = bytes;
    e->call_count = turn->call_count;
    e->tokens = put(&at, (struct md_bytes){ turn->tokens, turn->token_count * sizeof *turn->tokens });
    e->lead = put(&at, turn->lead);
    e->raw = put(&at, turn->raw);
    e->content = put(&at, turn->content);
    for (size_t i = 0; i < turn->call_count; i++)
        e->calls[i] = (struct md_chat_call){ put(&at, turn->calls[i].id), put(&at, turn->calls[i].name),
                                             put(&at, turn->calls[i].arguments) };
    return e;
}

enum md_status md_calls_remember(struct md_calls *c, const struct md_calls_turn *turn, struct md_err *err)
{
    size_t bytes = sizeof(struct entry) + turn->call_count * sizeof(struct md_chat_call) +
                   turn->token_count * sizeof(md_token) + turn->lead.len + turn->raw.len + turn->content.len;
    for (size_t i = 0; i < turn->call_count; i++)
        bytes += turn->calls[i].id.len + turn->calls[i].name.len + turn->calls[i].arguments.len;
    if (turn->call_count == 0 || bytes > c->limit_bytes || c->limit_entries == 0)
        return MD_OK;
    struct entry *e = entry_new(c->alloc, turn, bytes);
    if (e == NULL)
        return md_fail(err, MD_NO_MEMORY, "tool calls of %zu bytes", bytes);
    pthread_mutex_lock(&c->mu);
    struct entry *old = find_locked(c, e->calls[0].id);
    if (old != NULL)
        drop_locked(c, old);
    while (c->entries >= c->limit_entries || c->bytes + bytes > c->limit_bytes)
        drop_locked(c, c->oldest);
    struct entry **bucket = bucket_of(c, e->calls[0].id);
    e->next_in_bucket = *bucket;
    *bucket = e;
    list_locked(c, e);
    c->entries++;
    c->bytes += bytes;
    pthread_mutex_unlock(&c->mu);
    return MD_OK;
}

struct md_calls_stats md_calls_stats(struct md_calls *c)
{
    pthread_mutex_lock(&c->mu);
    struct md_calls_stats s = { c->entries, c->bytes };
    pthread_mutex_unlock(&c->mu);
    return s;
}

/* ---- equality ---- */

static bool same_number(yyjson_val *a, yyjson_val *b)
{
    if (yyjson_is_uint(a) && yyjson_is_uint(b))
        return yyjson_get_uint(a) == yyjson_get_uint(b);
    if (yyjson_is_sint(a) && yyjson_is_sint(b))
        return yyjson_get_sint(a) == yyjson_get_sint(b);
    return yyjson_get_num(a) == yyjson_get_num(b);
}

static bool same_value(yyjson_val *a, yyjson_val *b, int depth)
{
    if (yyjson_get_type(a) != yyjson_get_type(b) || depth > DEPTH_MAX)
        return false;
    if (yyjson_is_num(a))
        return same_number(a, b);
    if (yyjson_is_obj(a)) {
        yyjson_obj_iter in_a = yyjson_obj_iter_with(a), in_b = yyjson_obj_iter_with(b);
        yyjson_val *key, *other;
        if (yyjson_obj_size(a) != yyjson_obj_size(b))
            return false;
        while ((key = yyjson_obj_iter_next(&in_a)) != NULL) {
            other = yyjson_obj_iter_getn(&in_b, yyjson_get_str(key), yyjson_get_len(key));
            if (other == NULL || !same_value(yyjson_obj_iter_get_val(key), other, depth + 1))
                return false;
        }
        return true;
    }
    if (yyjson_is_arr(a)) {
        yyjson_arr_iter in_a = yyjson_arr_iter_with(a), in_b = yyjson_arr_iter_with(b);
        yyjson_val *item;
        if (yyjson_arr_size(a) != yyjson_arr_size(b))
            return false;
        while ((item = yyjson_arr_iter_next(&in_a)) != NULL)
            if (!same_value(item, yyjson_arr_iter_next(&in_b), depth + 1))
                return false;
        return true;
    }
    return yyjson_equals(a, b);
}

static bool same_json(struct md_bytes a, yyjson_val *b)
{
    yyjson_doc *doc = yyjson_read(a.data, a.len, YYJSON_READ_NOFLAG);
    bool same = doc != NULL && same_value(yyjson_doc_get_root(doc), b, 0);
    yyjson_doc_free(doc);
    return same;
}

bool md_json_same(struct md_bytes a, struct md_bytes b)
{
    if (md_bytes_equal(a, b))
        return true;
    yyjson_doc *doc = yyjson_read(b.data, b.len, YYJSON_READ_NOFLAG);
    bool same = doc != NULL && same_json(a, yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return same;
}

/* ---- render ---- */

static struct md_bytes text_of(yyjson_val *v)
{
    return yyjson_is_str(v) ? (struct md_bytes){ yyjson_get_str(v), yyjson_get_len(v) }
                            : (struct md_bytes){ "", 0 };
}

static bool same_call(const struct md_chat_call *ours, yyjson_val *theirs)
{
    yyjson_val *function = yyjson_obj_get(theirs, "function"), *args = yyjson_obj_get(function, "arguments");
    return md_bytes_equal(ours->id, text_of(yyjson_obj_get(theirs, "id"))) &&
           md_bytes_equal(ours->name, text_of(yyjson_obj_get(function, "name"))) &&
           (yyjson_is_str(args) ? md_json_same(ours->arguments, text_of(args))
                                : same_json(ours->arguments, args));
}

static bool same_calls(const struct entry *e, struct md_bytes content, yyjson_val *calls)
{
    if (e->call_count != yyjson_arr_size(calls) || !md_bytes_equal(e->content, content))
        return false;
    yyjson_arr_iter it = yyjson_arr_iter_with(calls);
    for (size_t i = 0; i < e->call_count; i++)
        if (!same_call(&e->calls[i], yyjson_arr_iter_next(&it)))
            return false;
    return true;
}

/* One message that may be rendered from its turn. */
struct stand_in {
    size_t index;
    struct md_bytes raw, whole; /* whole: lead and raw, which the prompt must then carry */
    struct md_calls_span span;
};

static bool copy_entry(const struct entry *e, struct md_arena *arena, struct stand_in *ret)
{
    md_token *tokens = md_arena_get(arena, e->tokens.len / sizeof *tokens + 1, sizeof *tokens);
    char *at = md_arena_get(arena, e->lead.len + e->raw.len + 1, 1);
    if (at == NULL || tokens == NULL)
        return false;
    if (e->tokens.len > 0)
        memcpy(tokens, e->tokens.data, e->tokens.len);
    ret->whole = (struct md_bytes){ at, e->lead.len + e->raw.len };
    put(&at, e->lead);
    ret->raw = put(&at, e->raw);
    ret->span = (struct md_calls_span){ .len = e->raw.len,
                                        .tokens = tokens,
                                        .token_count = e->tokens.len / sizeof *tokens };
    return true;
}

/* Fill in *ret if the turn that made these calls is known.  Out of memory: it is not. */
static bool recall(struct md_calls *c, const struct md_chat_message *m, struct md_arena *arena,
                   struct stand_in *ret)
{
    yyjson_doc *doc = yyjson_read(m->tool_calls.data, m->tool_calls.len, YYJSON_READ_NOFLAG);
    yyjson_val *calls = yyjson_doc_get_root(doc), *first = yyjson_arr_get_first(calls);
    pthread_mutex_lock(&c->mu);
    struct entry *e = first != NULL ? find_locked(c, text_of(yyjson_obj_get(first, "id"))) : NULL;
    bool found = e != NULL && same_calls(e, m->content, calls) && copy_entry(e, arena, ret);
    if (found) {
        unlist_locked(c, e);
        list_locked(c, e);
    }
    pthread_mutex_unlock(&c->mu);
    yyjson_doc_free(doc);
    return found;
}

/* Append the turn that these calls were read from, if it is known. */
static enum md_status write_known(struct md_calls *c, const struct md_chat_message *m, struct md_buf *out,
                                  struct md_err *err)
{
    yyjson_doc *doc = yyjson_read(m->tool_calls.data, m->tool_calls.len, YYJSON_READ_NOFLAG);
    yyjson_val *calls = yyjson_doc_get_root(doc), *first = yyjson_arr_get_first(calls);
    enum md_status s = MD_OK;
    pthread_mutex_lock(&c->mu);
    const struct entry *e = first != NULL ? find_locked(c, text_of(yyjson_obj_get(first, "id"))) : NULL;
    if (e != NULL && same_calls(e, m->content, calls)) {
        const struct md_calls_turn turn = { .lead = e->lead,
                                            .raw = e->raw,
                                            .tokens = e->tokens.data,
                                            .token_count = e->tokens.len / sizeof(md_token),
                                            .content = e->content,
                                            .calls = e->calls,
                                            .call_count = e->call_count };
        s = md_calls_write_turn(&turn, out, err);
    }
    pthread_mutex_unlock(&c->mu);
    yyjson_doc_free(doc);
    return s;
}

enum md_status md_calls_write(struct md_calls *c, const struct md_chat_message *messages, size_t count,
                              size_t limit_bytes, struct md_buf *out, struct md_err *err)
{
    const size_t start = out->len;
    size_t first = start, n = 0, cap = 0;
    size_t *ends = NULL; /* of the pieces */
    enum md_status s = MD_OK;
    for (size_t i = 0; i < count && s == MD_OK; i++) {
        const size_t before = out->len;
        void *grown = ends;
        if (messages[i].tool_calls.len == 0)
            continue;
        if (!md_grow(c->alloc, &grown, &cap, n + 1, sizeof *ends))
            s = md_fail(err, MD_NO_MEMORY, "%zu messages", count);
        ends = grown;
        if (s == MD_OK)
            s = write_known(c, &messages[i], out, err);
        if (s == MD_OK && out->len > before)
            ends[n++] = out->len;
    }
    for (size_t i = 0; i < n && s == MD_OK && out->len - first > limit_bytes; i++)
        first = ends[i]; /* the oldest go */
    md_free(c->alloc, ends);
    if (s != MD_OK) {
        out->len = start;
        return s;
    }
    if (first > start) {
        memmove(out->data + start, out->data + first, out->len - first);
        out->len -= first - start;
    }
    return MD_OK;
}

/* Keep those that the prompt carries, in order, and say where. */
static size_t keep_carried(struct md_bytes prompt, struct stand_in *all, size_t count)
{
    if (prompt.len == 0)
        return 0;
    const char *start = prompt.data, *at = start, *end = start + prompt.len;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const char *found = memmem(at, (size_t)(end - at), all[i].whole.data, all[i].whole.len);
        if (found == NULL)
            continue;
        at = found + all[i].whole.len;
        all[i].span.offset = (size_t)(at - start) - all[i].raw.len;
        all[kept++] = all[i];
    }
    return kept;
}

static enum md_status render_with(const struct md_text *t, const struct md_chat_input *in,
                                  struct md_chat_message *room, const struct stand_in *all, size_t count,
                                  struct md_buf *ret_prompt, struct md_chat_form **ret_form,
                                  struct md_err *err)
{
    struct md_chat_input changed = *in;
    memcpy(room, in->messages, in->count * sizeof *room);
    for (size_t i = 0; i < count; i++) {
        struct md_chat_message *m = &room[all[i].index];
        *m = (struct md_chat_message){ .role = m->role, .content = all[i].raw };
    }
    changed.messages = room;
    return md_text_render_chat(t, &changed, ret_prompt, ret_form, err);
}

/* With all of them, then with those that were carried; at last with none.  *count becomes how many. */
static enum md_status render_known(const struct md_text *t, const struct md_chat_input *in,
                                   struct md_chat_message *room, struct stand_in *all, size_t *count,
                                   struct md_buf *ret_prompt, struct md_chat_form **ret_form,
                                   struct md_err *err)
{
    while (*count > 0) {
        enum md_status s = render_with(t, in, room, all, *count, ret_prompt, ret_form, err);
        if (s == MD_NO_MEMORY)
            return s;
        if (s != MD_OK)
            break; /* it may want to see the calls that it has results of */
        size_t kept = keep_carried((struct md_bytes){ ret_prompt->data, ret_prompt->len }, all, *count);
        if (kept == *count)
            return MD_OK;
        *count = kept;
        ret_prompt->len = 0;
        md_chat_form_unref(*ret_form);
        *ret_form = NULL;
    }
    *count = 0;
    return md_text_render_chat(t, in, ret_prompt, ret_form, err);
}

enum md_status md_calls_render(struct md_calls *c, const struct md_text *t, const struct md_chat_input *in,
                               struct md_buf *ret_prompt, struct md_calls_spans *ret_spans,
                               struct md_chat_form **ret_form, struct md_err *err)
{
    size_t count = 0, with_calls = 0;
    assert(ret_prompt->len == 0);
    ret_spans->messages = in->messages;
    for (size_t i = 0; i < in->count; i++)
        with_calls += in->messages[i].tool_calls.len > 0;
    if (with_calls == 0)
        return md_text_render_chat(t, in, ret_prompt, ret_form, err);
    struct md_arena *arena = &ret_spans->arena;
    md_arena_init(arena, c->alloc, SIZE_MAX / 2); /* copies of what is remembered, which has its limit */
    struct stand_in *all = md_arena_get(arena, with_calls, sizeof *all);
    struct md_chat_message *room = md_arena_get(arena, in->count, sizeof *room);
    ret_spans->items = md_arena_get(arena, with_calls, sizeof *ret_spans->items);
    if (all == NULL || room == NULL || ret_spans->items == NULL)
        return md_fail(err, MD_NO_MEMORY, "%zu messages", in->count);
    for (size_t i = 0; i < in->count; i++) {
        if (in->messages[i].tool_calls.len == 0)
            continue;
        all[count].index = i;
        count += recall(c, &in->messages[i], arena, &all[count]);
    }
    enum md_status s = render_known(t, in, room, all, &count, ret_prompt, ret_form, err);
    for (size_t i = 0; i < count && s == MD_OK; i++)
        ret_spans->items[ret_spans->count++] = all[i].span;
    if (ret_spans->count > 0)
        ret_spans->messages = room;
    return s;
}

void md_calls_spans_done(struct md_calls_spans *s)
{
    md_arena_done(&s->arena);
    *s = (struct md_calls_spans){ 0 };
}

enum md_status md_calls_tokenize(const struct md_text *t, struct md_bytes prompt,
                                 const struct md_calls_spans *spans, bool add_special,
                                 struct md_tokens *ret_tokens, struct md_err *err)
{
    const char *text = prompt.len > 0 ? prompt.data : "";
    size_t at = 0;
    enum md_status s = MD_OK;
    for (size_t i = 0; i < spans->count && s == MD_OK; i++) {
        const struct md_calls_span *span = &spans->items[i];
        s = md_text_tokenize(t, (struct md_bytes){ text + at, span->offset - at }, add_special && i == 0,
                             true, ret_tokens, err);
        if (s == MD_OK)
            s = md_tokens_append(ret_tokens, span->tokens, span->token_count, err);
        at = span->offset + span->len;
    }
    if (s == MD_OK)
        s = md_text_tokenize(t, (struct md_bytes){ text + at, prompt.len - at },
                             add_special && spans->count == 0, true, ret_tokens, err);
    return s;
}
