/* The messages of a chat: roles, and contents as text or as parts. */
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

/* A message: role and content once each; what else it brings must ask for nothing. */
static enum md_status parse_message(struct http_parser *p, size_t index, yyjson_val *v,
                                    struct md_chat_message *ret)
{
    char where[48];
    snprintf(where, sizeof where, "messages[%zu]", index);
    if (!yyjson_is_obj(v))
        return md_http_refuse(p->e, MD_INVALID, where, "%s must be an object, got %s", where,
                              yyjson_get_type_desc(v));
    yyjson_val *role = NULL, *content = NULL, *key;
    yyjson_obj_iter it = yyjson_obj_iter_with(v);
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        yyjson_val *value = yyjson_obj_iter_get_val(key), **slot = NULL;
        if (yyjson_equals_str(key, "role"))
            slot = &role;
        else if (yyjson_equals_str(key, "content"))
            slot = &content;
        else if ((yyjson_equals_str(key, "tool_calls") || yyjson_equals_str(key, "tool_call_id") ||
                  yyjson_equals_str(key, "function_call")) &&
                 !md_http_parser_asks_nothing(value))
            return md_http_refuse(p->e, MD_UNSUPPORTED, where, "%s.%s is not supported yet", where,
                                  yyjson_get_str(key));
        if (slot != NULL && *slot != NULL)
            return md_http_refuse(p->e, MD_INVALID, where, "%s has %s twice", where, yyjson_get_str(key));
        if (slot != NULL)
            *slot = value;
    }
    if (!yyjson_is_str(role))
        return md_http_refuse(p->e, MD_INVALID, where, "%s.role must be a string", where);
    ret->role = md_http_parser_bytes(role);
    return parse_content(p, index, content, yyjson_equals_str(role, "assistant"), &ret->content);
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
    r->messages = md_arena_get(&r->arena, count, sizeof *r->messages);
    if (r->messages == NULL)
        return md_http_parser_no_memory(p);
    yyjson_arr_iter it = yyjson_arr_iter_with(v);
    yyjson_val *item;
    while ((item = yyjson_arr_iter_next(&it)) != NULL) {
        enum md_status s = parse_message(p, r->message_count, item, &r->messages[r->message_count]);
        if (s != MD_OK)
            return s;
        r->message_count++;
    }
    return MD_OK;
}
