/* The fields about tools, and those that bind or steer the answer: formats, grammars, the template's variables. */
#include "fronts/http/http_parser.h"

#include <stdio.h>
#include <string.h>

enum { EFFORT_MAX = 16 };

/* ---- tools ---- */

static bool is_name(yyjson_val *v)
{
    const char *p = yyjson_get_str(v);
    size_t len = yyjson_get_len(v);
    if (!yyjson_is_str(v) || len == 0 || len > MD_HTTP_TOOL_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') || (p[i] >= '0' && p[i] <= '9') ||
              p[i] == '_' || p[i] == '-'))
            return false;
    return true;
}

static yyjson_val *tool_name(yyjson_val *tool)
{
    return yyjson_obj_get(yyjson_obj_get(tool, "function"), "name");
}

static bool same_string(yyjson_val *a, yyjson_val *b)
{
    return yyjson_equals_strn(a, yyjson_get_str(b), yyjson_get_len(b));
}

static bool is_or_null(bool is, yyjson_val *v)
{
    return is || v == NULL || yyjson_is_null(v);
}

static enum md_status parse_tool(struct http_parser *p, size_t index, yyjson_val *tool)
{
    char where[64];
    yyjson_val *function = yyjson_obj_get(tool, "function"), *name = tool_name(tool);
    yyjson_val *description = yyjson_obj_get(function, "description");
    yyjson_val *parameters = yyjson_obj_get(function, "parameters");
    const char *part = "", *what = NULL;
    if (!yyjson_is_obj(tool))
        what = "must be an object";
    else if (!yyjson_equals_str(yyjson_obj_get(tool, "type"), "function"))
        part = ".type", what = "must be \"function\"";
    else if (!yyjson_is_obj(function))
        part = ".function", what = "must be an object";
    else if (!is_name(name))
        part = ".function.name", what = "must be 1 to 64 of the characters A-Z a-z 0-9 _ -";
    else if (!is_or_null(yyjson_is_str(description), description))
        part = ".function.description", what = "must be a string";
    else if (!is_or_null(yyjson_is_obj(parameters), parameters))
        part = ".function.parameters", what = "must be an object (a JSON schema)";
    snprintf(where, sizeof where, "tools[%zu]%s", index, part);
    return what == NULL ? MD_OK : md_http_refuse(p->e, MD_INVALID, where, "%s %s", where, what);
}

enum md_status md_http_parse_tools(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (md_http_parser_asks_nothing(v) && !yyjson_is_obj(v))
        return MD_OK;
    if (!yyjson_is_arr(v))
        return md_http_refuse(p->e, MD_INVALID, name, "tools must be an array, got %s",
                              yyjson_get_type_desc(v));
    if (yyjson_arr_size(v) > MD_HTTP_TOOLS_MAX)
        return md_http_refuse(p->e, MD_INVALID, name, "more than %d tools", MD_HTTP_TOOLS_MAX);
    yyjson_val *seen[MD_HTTP_TOOLS_MAX], *tool;
    size_t count = 0;
    yyjson_arr_iter it = yyjson_arr_iter_with(v);
    while ((tool = yyjson_arr_iter_next(&it)) != NULL) {
        enum md_status s = parse_tool(p, count, tool);
        if (s != MD_OK)
            return s;
        seen[count] = tool_name(tool);
        for (size_t i = 0; i < count; i++)
            if (same_string(seen[i], seen[count])) {
                char where[64];
                snprintf(where, sizeof where, "tools[%zu].function.name", count);
                return md_http_refuse(p->e, MD_INVALID, where, "%s: '%s' is the name of tools[%zu] already",
                                      where, yyjson_get_str(seen[i]), i);
            }
        count++;
    }
    p->tools = v;
    return md_http_parser_json(p, v, &p->r->in.tools);
}

enum md_status md_http_parse_tool_choice(struct http_parser *p, const char *name, yyjson_val *v)
{
    static const struct {
        const char *word;
        enum md_tool_choice choice;
    } words[] = { { "auto", MD_TOOLS_AUTO }, { "none", MD_TOOLS_NONE }, { "required", MD_TOOLS_REQUIRED } };
    struct md_chat_input *in = &p->r->in;
    p->tool_choice = v;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (yyjson_equals_str(v, words[i].word)) {
            in->tool_choice = words[i].choice;
            return MD_OK;
        }
    if (!yyjson_is_obj(v))
        return md_http_refuse(
            p->e, MD_INVALID, name,
            "tool_choice must be \"auto\", \"none\", \"required\" or an object that names a "
            "function");
    yyjson_val *type = yyjson_obj_get(v, "type"), *function = tool_name(v);
    if (!yyjson_equals_str(type, "function"))
        return md_http_refuse(p->e, MD_INVALID, "tool_choice.type", "tool_choice.type must be \"function\"");
    if (!is_name(function))
        return md_http_refuse(p->e, MD_INVALID, "tool_choice.function.name",
                              "tool_choice.function.name must be the name of a tool");
    in->tool_choice = MD_TOOLS_NAMED;
    in->tool_name = md_http_parser_bytes(function);
    return MD_OK;
}

static enum md_status check_choice(struct http_parser *p)
{
    const struct md_chat_input *in = &p->r->in;
    if (in->tool_choice != MD_TOOLS_REQUIRED && in->tool_choice != MD_TOOLS_NAMED)
        return MD_OK;
    if (p->tools == NULL)
        return md_http_refuse(p->e, MD_INVALID, "tool_choice",
                              "tool_choice asks for a call, and there are no tools");
    if (in->tool_choice == MD_TOOLS_REQUIRED)
        return MD_OK;
    yyjson_arr_iter it = yyjson_arr_iter_with(p->tools);
    yyjson_val *tool;
    while ((tool = yyjson_arr_iter_next(&it)) != NULL)
        if (same_string(tool_name(tool), tool_name(p->tool_choice)))
            return MD_OK;
    return md_http_refuse(p->e, MD_INVALID, "tool_choice.function.name",
                          "tool_choice names '%s', which is none of the tools",
                          (const char *)in->tool_name.data);
}

enum md_status md_http_check_tools(struct http_parser *p)
{
    const struct md_http_request *r = p->r;
    if (r->bound_by != NULL && p->tools != NULL && r->in.tool_choice != MD_TOOLS_NONE)
        return md_http_refuse(p->e, MD_INVALID, r->bound_by,
                              "%s and tools cannot be used together: with tool_choice \"none\" they can",
                              r->bound_by);
    return check_choice(p);
}

enum md_status md_http_parse_parallel(struct http_parser *p, const char *name, yyjson_val *v)
{
    return md_http_parser_bool(p, name, v, &p->r->in.parallel_tool_calls);
}

/* ---- what binds the answer ---- */

/* One thing may. */
static enum md_status bound_by(struct http_parser *p, const char *name)
{
    if (p->r->bound_by != NULL)
        return md_http_refuse(p->e, MD_INVALID, name, "%s and %s cannot be used together", name,
                              p->r->bound_by);
    p->r->bound_by = name;
    return MD_OK;
}

static enum md_status want_schema(struct http_parser *p, const char *name, const char *where, yyjson_val *v)
{
    if (!yyjson_is_obj(v))
        return md_http_refuse(p->e, MD_INVALID, where, "%s must be an object (a JSON schema), got %s", where,
                              v == NULL ? "nothing" : yyjson_get_type_desc(v));
    enum md_status s = bound_by(p, name);
    return s == MD_OK ? md_http_parser_json(p, v, &p->r->in.json_schema) : s;
}

enum md_status md_http_parse_json_schema(struct http_parser *p, const char *name, yyjson_val *v)
{
    return want_schema(p, name, name, v);
}

enum md_status md_http_parse_response_format(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (!yyjson_is_obj(v))
        return md_http_refuse(p->e, MD_INVALID, name, "response_format must be an object, got %s",
                              yyjson_get_type_desc(v));
    yyjson_val *type = yyjson_obj_get(v, "type"), *schema = yyjson_obj_get(v, "schema");
    if (yyjson_equals_str(type, "text"))
        return MD_OK;
    if (yyjson_equals_str(type, "json_object")) {
        if (!md_http_parser_asks_nothing(schema) || yyjson_is_arr(schema))
            return want_schema(p, name, "response_format.schema", schema);
        p->r->in.json_schema = (struct md_bytes){ "{}", 2 };
        return bound_by(p, name);
    }
    if (!yyjson_equals_str(type, "json_schema"))
        return md_http_refuse(p->e, MD_INVALID, "response_format.type",
                              "response_format.type must be \"text\", \"json_object\" or \"json_schema\"");
    yyjson_val *wrapper = yyjson_obj_get(v, "json_schema");
    if (!yyjson_is_obj(wrapper))
        return md_http_refuse(p->e, MD_INVALID, "response_format.json_schema",
                              "response_format.json_schema must be an object");
    return want_schema(p, name, "response_format.json_schema.schema", yyjson_obj_get(wrapper, "schema"));
}

enum md_status md_http_parse_grammar(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (!yyjson_is_str(v))
        return md_http_refuse(p->e, MD_INVALID, name, "grammar must be a string (GBNF), got %s",
                              yyjson_get_type_desc(v));
    if (yyjson_get_len(v) == 0)
        return MD_OK;
    p->r->in.grammar = md_http_parser_bytes(v);
    return bound_by(p, name);
}

/* ---- what steers the template ---- */

enum md_status md_http_parse_kwargs(struct http_parser *p, const char *name, yyjson_val *v)
{
    static const char *const ours[] = { "messages", "tools", "bos_token", "eos_token",
                                        "add_generation_prompt" };
    if (!yyjson_is_obj(v))
        return md_http_refuse(p->e, MD_INVALID, name, "chat_template_kwargs must be an object, got %s",
                              yyjson_get_type_desc(v));
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (yyjson_obj_get(v, ours[i]) != NULL)
            return md_http_refuse(p->e, MD_INVALID, name, "chat_template_kwargs may not set %s", ours[i]);
    yyjson_val *thinking = yyjson_obj_get(v, "enable_thinking");
    if (thinking != NULL) {
        bool on = false;
        enum md_status s = md_http_parser_bool(p, "chat_template_kwargs.enable_thinking", thinking, &on);
        if (s != MD_OK)
            return s;
        p->r->in.thinking = on ? MD_THINKING_ON : MD_THINKING_OFF;
    }
    return yyjson_obj_size(v) > 0 ? md_http_parser_json(p, v, &p->r->in.chat_template_kwargs) : MD_OK;
}

enum md_status md_http_parse_effort(struct http_parser *p, const char *name, yyjson_val *v)
{
    const char *word = yyjson_get_str(v);
    if (!yyjson_is_str(v) || word[0] == '\0' || yyjson_get_len(v) > EFFORT_MAX ||
        strspn(word, "abcdefghijklmnopqrstuvwxyz") != yyjson_get_len(v))
        return md_http_refuse(
            p->e, MD_INVALID, name,
            "reasoning_effort must be a word such as \"none\", \"low\", \"medium\", \"high\"");
    if (yyjson_equals_str(v, "none"))
        p->r->in.thinking = MD_THINKING_OFF;
    else
        p->r->in.reasoning_effort = md_http_parser_bytes(v);
    return MD_OK;
}
