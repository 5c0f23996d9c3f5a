/* The messages of a chat: roles, contents as text or as parts, tool calls and their results. */
#include "fronts/http/http_parser.h"

#include <stdio.h>
#include <string.h>

/* The text of an array of parts, joined. */
static enum md_status join_parts(struct http_parser *p, const char *where, yyjson_val *parts,
                                 struct md_bytes *ret)
{
    size_t total = 0;
    for (int pass = 0; pass < 2; pass++) {
        char *out = NULL;
        if (pass == 1) {
            out = md_arena_get(&p->r->arena, total + 1, 1);
            if (out == NULL)
                return md_http_parser_no_memory(p);
            *ret = (struct md_bytes){ out, total };
        }
        yyjson_arr_iter it = yyjson_arr_iter_with(parts);
        yyjson_val *part;
        while ((part = yyjson_arr_iter_next(&it)) != NULL) {
            yyjson_val *type = yyjson_obj_get(part, "type"), *text = yyjson_obj_get(part, "text");
            if (!yyjson_is_str(type))
                return md_http_refuse(p->e, MD_INVALID, where, "%s: a part has no type", where);
            if (!yyjson_equals_str(type, "text"))
                return md_http_refuse(p->e, MD_INVALID, where,
                                      "%s: parts of type '%.40s' are not supported, only text", where,
                                      yyjson_get_str(type));
            if (!yyjson_is_str(text))
                return md_http_refuse(p->e, MD_INVALID, where, "%s: a text part has no text", where);
            if (pass == 0)
                total += yyjson_get_len(text);
            else
                out = (char *)memcpy(out, yyjson_get_str(text), yyjson_get_len(text)) + yyjson_get_len(text);
        }
    }
    return MD_OK;
}

static enum md_status parse_content(struct http_parser *p, size_t index, yyjson_val *v, bool assistant,
                                    struct md_bytes *ret)
{
    char where[48];
    snprintf(where, sizeof where, "messages[%zu].content", index);
    if (yyjson_is_arr(v))
        return join_parts(p, where, v, ret);
    if (yyjson_is_null(v) && assistant) { /* what a client keeps of an answer that was a tool call only */
        *ret = (struct md_bytes){ "", 0 };
        return MD_OK;
    }
    if (!yyjson_is_str(v))
        return md_http_refuse(p->e, MD_INVALID, where,
                              "%s must be a string or an array of text parts, got %s", where,
                              v == NULL ? "nothing" : yyjson_get_type_desc(v));
    *ret = md_http_parser_bytes(v);
    return MD_OK;
}

static enum md_status bad_call(struct http_parser *p, const char *where, const char *what)
{
    return md_http_refuse(p->e, MD_INVALID, where, "%s: %s", where, what);
}

/* What an assistant asked for, as it was given to the client. */
static enum md_status parse_tool_calls(struct http_parser *p, size_t index, yyjson_val *v,
                                       struct md_bytes *ret)
{
    char where[48];
    snprintf(where, sizeof where, "messages[%zu].tool_calls", index);
    if (!yyjson_is_arr(v))
        return bad_call(p, where, "it must be an array");
    yyjson_arr_iter it = yyjson_arr_iter_with(v);
    yyjson_val *call;
    while ((call = yyjson_arr_iter_next(&it)) != NULL) {
        yyjson_val *id = yyjson_obj_get(call, "id"), *type = yyjson_obj_get(call, "type");
        yyjson_val *function = yyjson_obj_get(call, "function"), *name = yyjson_obj_get(function, "name");
        yyjson_val *arguments = yyjson_obj_get(function, "arguments");
        if (!yyjson_is_obj(call))
            return bad_call(p, where, "a call must be an object");
        if (type != NULL && !yyjson_equals_str(type, "function"))
            return bad_call(p, where, "the type of a call must be \"function\"");
        if (id != NULL && !yyjson_is_str(id))
            return bad_call(p, where, "the id of a call must be a string");
        if (!yyjson_is_str(name) || yyjson_get_len(name) == 0)
            return bad_call(p, where, "a call has no function.name");
        if (!yyjson_is_str(arguments) && !yyjson_is_obj(arguments))
            return bad_call(p, where, "function.arguments of a call must be a string or an object");
    }
    return md_http_parser_json(p, v, ret);
}

/* An optional string. */
static enum md_status parse_word(struct http_parser *p, size_t index, const char *key, yyjson_val *v,
                                 struct md_bytes *ret)
{
    char where[64];
    if (v == NULL || yyjson_is_null(v))
        return MD_OK;
    snprintf(where, sizeof where, "messages[%zu].%s", index, key);
    if (!yyjson_is_str(v))
        return md_http_refuse(p->e, MD_INVALID, where, "%s must be a string, got %s", where,
                              yyjson_get_type_desc(v));
    *ret = md_http_parser_bytes(v);
    return MD_OK;
}

enum { ROLE, CONTENT, TOOL_CALLS, TOOL_CALL_ID, NAME, REASONING, KEYS };
static const char *const message_keys[KEYS] = { "role",         "content", "tool_calls",
                                                "tool_call_id", "name",    "reasoning_content" };

/* The values of the known keys. */
static enum md_status find_values(struct http_parser *p, const char *where, yyjson_val *v,
                                  yyjson_val *ret_values[KEYS])
{
    yyjson_obj_iter it = yyjson_obj_iter_with(v);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        if (yyjson_equals_str(key, "function_call") && !md_http_parser_asks_nothing(value))
            return md_http_refuse(p->e, MD_UNSUPPORTED, where,
                                  "%s.function_call is not supported: use tool_calls", where);
        for (int k = 0; k < KEYS; k++)
            if (yyjson_equals_str(key, message_keys[k]))
                ret_values[k] = value;
    }
    return MD_OK;
}

static enum md_status parse_message(struct http_parser *p, size_t index, yyjson_val *v,
                                    struct md_chat_message *ret)
{
    char where[64];
    yyjson_val *values[KEYS] = { NULL };
    snprintf(where, sizeof where, "messages[%zu]", index);
    if (!yyjson_is_obj(v))
        return md_http_refuse(p->e, MD_INVALID, where, "%s must be an object, got %s", where,
                              yyjson_get_type_desc(v));
    enum md_status s = find_values(p, where, v, values);
    if (s != MD_OK)
        return s;
    if (!yyjson_is_str(values[ROLE]))
        return md_http_refuse(p->e, MD_INVALID, where, "%s.role must be a string", where);
    ret->role = md_http_parser_bytes(values[ROLE]);
    const bool assistant = yyjson_equals_str(values[ROLE], "assistant");
    const bool calls = !md_http_parser_asks_nothing(values[TOOL_CALLS]);
    if (calls && !assistant)
        return md_http_refuse(p->e, MD_INVALID, where, "%s: only an assistant's message may have tool_calls",
                              where);
    if (yyjson_equals_str(values[ROLE], "tool") && !yyjson_is_str(values[TOOL_CALL_ID])) {
        snprintf(where, sizeof where, "messages[%zu].tool_call_id", index);
        return md_http_refuse(p->e, MD_INVALID, where,
                              "%s must be a string: which call this is the result of", where);
    }
    if (calls)
        s = parse_tool_calls(p, index, values[TOOL_CALLS], &ret->tool_calls);
    if (s == MD_OK)
        s = parse_word(p, index, "tool_call_id", values[TOOL_CALL_ID], &ret->tool_call_id);
    if (s == MD_OK)
        s = parse_word(p, index, "name", values[NAME], &ret->name);
    if (s == MD_OK)
        s = parse_word(p, index, "reasoning_content", values[REASONING], &ret->reasoning_content);
    if (s != MD_OK)
        return s;
    if (calls && values[CONTENT] == NULL) {
        ret->content = (struct md_bytes){ "", 0 };
        return MD_OK;
    }
    return parse_content(p, index, values[CONTENT], assistant, &ret->content);
}

enum md_status md_http_parse_messages(struct http_parser *p, const char *name, yyjson_val *v)
{
    struct md_http_request *r = p->r;
    if (!yyjson_is_arr(v))
        return md_http_refuse(p->e, MD_INVALID, name, "messages must be an array, got %s",
                              yyjson_get_type_desc(v));
    size_t count = yyjson_arr_size(v);
    if (count == 0)
        return md_http_refuse(p->e, MD_INVALID, name, "messages is empty");
    if (count > MD_HTTP_MESSAGES_MAX)
        return md_http_refuse(p->e, MD_INVALID, name, "more than %d messages", MD_HTTP_MESSAGES_MAX);
    struct md_chat_message *messages = md_arena_get(&r->arena, count, sizeof *messages);
    if (messages == NULL)
        return md_http_parser_no_memory(p);
    yyjson_arr_iter it = yyjson_arr_iter_with(v);
    yyjson_val *item;
    while ((item = yyjson_arr_iter_next(&it)) != NULL) {
        enum md_status s = parse_message(p, r->in.count, item, &messages[r->in.count]);
        if (s != MD_OK)
            return s;
        r->in.count++;
    }
    r->in.messages = messages;
    return MD_OK;
}
