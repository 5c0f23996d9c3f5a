/* http_parser.h - what the two halves of the request parser share; for http_request.c and http_messages.c.
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
};
struct http_field {
    const char *name;
    enum md_status (*parse)(struct http_parser *p, const char *name, yyjson_val *v);
};

enum md_status md_http_parser_no_memory(struct http_parser *p);
struct md_bytes md_http_parser_bytes(yyjson_val *string);
/* null, [] and {}. */
bool md_http_parser_asks_nothing(yyjson_val *v);

/* http_messages.c */
enum md_status md_http_parse_messages(struct http_parser *p, const char *name, yyjson_val *v);

#endif
