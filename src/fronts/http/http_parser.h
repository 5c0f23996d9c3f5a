/* http_parser.h - what the parts of the request parser share: http_request.c, http_messages.c, http_tools.c,
 * http_manifest.c.
 *
 * Threads: one at a time. */
#ifndef MD_FRONTS_HTTP_HTTP_PARSER_H
#define MD_FRONTS_HTTP_HTTP_PARSER_H

#include "fronts/http/http_request.h"

#include <yyjson.h>

/* One field: its value has the checked type when parse is called; null never reaches it. */
struct http_parser {
    struct md_http_request *r;
    struct md_http_error *e;
    int32_t vocab_count;
    bool has_completion_limit;
    yyjson_val *tools, *tool_choice; /* held against each other when both are there */
    yyjson_val *manifest;            /* speaks of the messages, which may come later */
};
struct http_field {
    const char *name;
    enum md_status (*parse)(struct http_parser *p, const char *name, yyjson_val *v);
};

enum md_status md_http_parser_no_memory(struct http_parser *p);
struct md_bytes md_http_parser_bytes(yyjson_val *string);
enum md_status md_http_parser_bool(struct http_parser *p, const char *name, yyjson_val *v, bool *ret);
/* null, [] and {}. */
bool md_http_parser_asks_nothing(yyjson_val *v);

/* The value as JSON text, in the arena of the request. */
enum md_status md_http_parser_json(struct http_parser *p, yyjson_val *v, struct md_bytes *ret);

/* http_tools.c */
enum md_status md_http_parse_tools(struct http_parser *p, const char *name, yyjson_val *v);
enum md_status md_http_parse_tool_choice(struct http_parser *p, const char *name, yyjson_val *v);
enum md_status md_http_parse_parallel(struct http_parser *p, const char *name, yyjson_val *v);
enum md_status md_http_parse_response_format(struct http_parser *p, const char *name, yyjson_val *v);
enum md_status md_http_parse_json_schema(struct http_parser *p, const char *name, yyjson_val *v);
enum md_status md_http_parse_grammar(struct http_parser *p, const char *name, yyjson_val *v);
enum md_status md_http_parse_kwargs(struct http_parser *p, const char *name, yyjson_val *v);
enum md_status md_http_parse_effort(struct http_parser *p, const char *name, yyjson_val *v);
/* When all fields are read: what they say of each other. */
enum md_status md_http_check_tools(struct http_parser *p);

/* http_manifest.c: when the messages are read. */
enum md_status md_http_check_manifest(struct http_parser *p);

/* http_messages.c */
enum md_status md_http_parse_messages(struct http_parser *p, const char *name, yyjson_val *v);

#endif
