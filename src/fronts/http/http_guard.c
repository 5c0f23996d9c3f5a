/* What is refused before any work: wrong hosts, foreign origins, ambiguous framing, other content types. */
#include "fronts/http/http_front.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The name in "name", "name:port", "[v6]", "[v6]:port"; false when it is none of these. */
static bool split_host(const char *host, char *name, size_t name_bytes)
{
    const char *start = host, *end, *rest;
    if (host[0] == '[') {
        start = host + 1;
        end = strchr(start, ']');
        if (end == NULL)
            return false;
        rest = end + 1;
    } else {
        end = rest = host + strcspn(host, ":");
    }
    if (*rest == ':')
        rest += 1 + strspn(rest + 1, "0123456789");
    size_t len = (size_t)(end - start);
    if (*rest != '\0' || len == 0 || len >= name_bytes)
        return false;
    memcpy(name, start, len);
    name[len] = '\0';
    return true;
}

/* Names cannot be trusted (DNS rebinding); addresses can: a page from elsewhere has another one. */
static bool host_allowed(const struct md_http *http, const char *host)
{
    char name[256];
    struct in_addr v4;
    struct in6_addr v6;
    if (!split_host(host, name, sizeof name))
        return false;
    if (strcasecmp(name, "localhost") == 0 || strcasecmp(name, http->host) == 0)
        return true;
    if (inet_pton(AF_INET, name, &v4) == 1)
        return http->any_address || (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, name, &v6) == 1)
        return http->any_address || IN6_IS_ADDR_LOOPBACK(&v6);
    return false;
}

static bool origin_allowed(const struct md_http *http, const char *origin)
{
    if (strncasecmp(origin, "http://", 7) == 0)
        return host_allowed(http, origin + 7);
    if (strncasecmp(origin, "https://", 8) == 0)
        return host_allowed(http, origin + 8);
    return false; /* "null" too: a sandboxed page or a file */
}

struct counts {
    int hosts, lengths, encodings, origins;
    bool blank_in_name;
};
static enum MHD_Result count_header(void *user, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct counts *c = user;
    (void)kind;
    (void)value;
    c->blank_in_name = c->blank_in_name || strpbrk(key, " \t") != NULL;
    c->origins += strcasecmp(key, MHD_HTTP_HEADER_ORIGIN) == 0;
    c->hosts += strcasecmp(key, MHD_HTTP_HEADER_HOST) == 0;
    c->lengths += strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    c->encodings += strcasecmp(key, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
    return MHD_YES;
}

static bool refuse(struct md_http_error *e, int http_status, const char *text)
{
    md_http_refuse(e, MD_INVALID, NULL, "%s", text);
    e->http = http_status;
    return false;
}

/* application/json, with or without parameters. */
static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    if (type == NULL || strncasecmp(type, json, sizeof json - 1) != 0)
        return false;
    char next = type[sizeof json - 1];
    return next == '\0' || next == ';' || next == ' ' || next == '\t';
}

bool md_http_guard(const struct md_http *http, struct MHD_Connection *connection, const char *method,
                   struct md_http_error *e)
{
    struct counts c = { 0 };
    MHD_get_connection_values(connection, MHD_HEADER_KIND, count_header, &c);
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    /* "Content-Length : 60" is another header to the library and a length to others (RFC 9112, 5.1) */
    if (c.blank_in_name)
        return refuse(e, 400, "a header name holds a blank");
    if (c.origins > 1)
        return refuse(e, 400, "more than one Origin header");
    if (c.hosts > 1)
        return refuse(e, 400, "more than one Host header");
    /* two ideas of where a body ends are how requests are smuggled */
    if (c.lengths > 1 || (c.lengths > 0 && c.encodings > 0) || c.encodings > 1)
        return refuse(e, 400, "more than one Content-Length or Transfer-Encoding");
    const char *encoding =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
    if (encoding != NULL && strcasecmp(encoding, "chunked") != 0) /* the library would read until the end */
        return refuse(e, 400, "a Transfer-Encoding other than chunked is not understood here");
    if (!http->is_unix && host == NULL)
        return refuse(e, 400, "no Host header");
    if (!http->is_unix && !host_allowed(http, host))
        return refuse(e, 403,
                      "this Host is not served: use a loopback name or the address the server listens on");
    if (origin != NULL && !origin_allowed(http, origin))
        return refuse(e, 403, "requests from this Origin are not allowed");
    if (strcmp(method, MHD_HTTP_METHOD_POST) == 0 &&
        !is_json(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE)))
        return refuse(e, 415, "the Content-Type must be application/json");
    return true;
}
