/* fallback.c - see fallback.h. */
#include "text/fallback.h"

#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static const char open_tag[] = "<tool_call>", close_tag[] = "</tool_call>";
enum { OPEN = sizeof open_tag - 1, CLOSE = sizeof close_tag - 1, DEPTH_MAX = 512 };

/* yyjson reads without recursion, but it writes what we hand back to clients: keep that flat. */
static bool flat_enough(const char *p, size_t len)
{
    int depth = 0, deepest = 0;
    for (size_t i = 0; i < len; i++) {
        depth += p[i] == '{' || p[i] == '[' ? 1 : p[i] == '}' || p[i] == ']' ? -1 : 0;
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest <= DEPTH_MAX;
}

static yyjson_val *first_of(yyjson_val *object, const char *const *keys)
{
    for (size_t i = 0; keys[i] != NULL; i++) {
        yyjson_val *v = yyjson_obj_get(object, keys[i]);
        if (v != NULL)
            return v;
    }
    return NULL;
}

static enum md_status keep(struct md_chat_parsed *ret, const char *data, size_t len,
                           struct md_bytes *ret_bytes, struct md_err *err)
{
    char *copy = md_arena_strndup(&ret->arena, data, len);
    if (copy == NULL)
        return md_fail(err, MD_NO_MEMORY, "a tool call of %zu bytes", len);
    *ret_bytes = (struct md_bytes){ copy, len };
    return MD_OK;
}

static enum md_status keep_arguments(struct md_chat_parsed *ret, yyjson_val *v, struct md_bytes *ret_bytes,
                                     struct md_err *err)
{
    if (v == NULL || yyjson_is_null(v) || yyjson_equals_str(v, ""))
        return keep(ret, "{}", 2, ret_bytes, err);
    if (yyjson_is_str(v))
        return keep(ret, yyjson_get_str(v), yyjson_get_len(v), ret_bytes, err);
    size_t len;
    char *json = yyjson_val_write(v, YYJSON_WRITE_NOFLAG, &len);
    if (json == NULL)
        return md_fail(err, MD_NO_MEMORY, "arguments of a tool call");
    enum md_status s = keep(ret, json, len, ret_bytes, err);
    free(json);
    return s;
}

/* *ret_call.name stays empty when it is none. */
static enum md_status read_call(struct md_chat_parsed *ret, const char *json, size_t len,
                                struct md_chat_call *ret_call, struct md_err *err)
{
    static const char *const names[] = { "name", "tool_name", NULL }, *const inner[] = { "name", NULL };
    static const char *const arguments[] = { "arguments", "parameters", NULL };
    *ret_call = (struct md_chat_call){ 0 };
    if (!flat_enough(json, len))
        return MD_OK;
    yyjson_doc *doc = yyjson_read(json, len, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(doc), *function = yyjson_obj_get(root, "function");
    yyjson_val *name = yyjson_is_obj(function) ? first_of(function, inner) : first_of(root, names);
    yyjson_val *args = first_of(yyjson_is_obj(function) ? function : root, arguments);
    enum md_status s = MD_OK;
    if (yyjson_is_str(name) && yyjson_get_len(name) > 0) {
        s = keep_arguments(ret, args, &ret_call->arguments, err);
        if (s == MD_OK)
            s = keep(ret, yyjson_get_str(name), yyjson_get_len(name), &ret_call->name, err);
    }
    yyjson_doc_free(doc);
    return s;
}

enum md_status md_chat_fallback(struct md_bytes text, struct md_chat_parsed *ret, struct md_err *err)
{
    const char *at = text.data, *end = at + text.len;
    size_t cap = 0, content_len = 0;
    for (const char *p = at; (p = memmem(p, (size_t)(end - p), open_tag, OPEN)) != NULL; p += OPEN)
        cap++;
    md_arena_init(&ret->arena, NULL, 4 * text.len + (1 << 16) + cap * sizeof *ret->calls);
    char *content = md_arena_get(&ret->arena, text.len + 1, 1);
    ret->calls = md_arena_get(&ret->arena, cap + 1, sizeof *ret->calls);
    if (content == NULL || ret->calls == NULL)
        return md_fail(err, MD_NO_MEMORY, "tool calls in %zu bytes", text.len);
    while (at < end) {
        const char *open = memmem(at, (size_t)(end - at), open_tag, OPEN);
        const char *close = open != NULL ? memmem(open, (size_t)(end - open), close_tag, CLOSE) : NULL;
        const char *next = end, *until = end;
        if (close != NULL) {
            struct md_chat_call call;
            enum md_status s = read_call(ret, open + OPEN, (size_t)(close - open) - OPEN, &call, err);
            if (s != MD_OK)
                return s;
            next = close + CLOSE;
            until = call.name.len > 0 ? open : next;
            if (call.name.len > 0)
                ret->calls[ret->call_count++] = call;
        }
        memcpy(content + content_len, at, (size_t)(until - at));
        content_len += (size_t)(until - at);
        at = next;
    }
    ret->content = (struct md_bytes){ content, content_len };
    return MD_OK;
}
