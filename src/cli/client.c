#include "cli/client.h"

#include "base/mem.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

enum { ANSWER_BYTES_MAX = 64 << 20, CONNECT_TIMEOUT_S = 10, ADDRESS_BYTES_MAX = 512 };

/* ---- addresses ---- */

struct place {
    const char *socket; /* NULL: TCP */
    int base_len;       /* of the address without slashes at its end */
};

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* What libcurl would say only when it is asked to go there: host names, ports, addresses in brackets. */
static enum md_status check_url(const char *address, struct md_err *err)
{
    CURLU *url = curl_url();
    char *port = NULL;
    if (url == NULL)
        return md_fail(err, MD_NO_MEMORY, "read the address");
    CURLUcode code = curl_url_set(url, CURLUPART_URL, address, 0);
    if (code == CURLUE_OK)
        code = curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
    if (code == CURLUE_OK && atoi(port) == 0)
        code = CURLUE_BAD_PORT_NUMBER;
    curl_free(port);
    curl_url_cleanup(url);
    if (code == CURLUE_OUT_OF_MEMORY)
        return md_fail(err, MD_NO_MEMORY, "read the address");
    if (code == CURLUE_BAD_PORT_NUMBER)
        return md_fail(err, MD_INVALID, "the port of the address '%.200s' is no number from 1 to 65535",
                       address);
    if (code != CURLUE_OK)
        return md_fail(err, MD_INVALID, "the address '%.200s' is not known: %s", address,
                       curl_url_strerror(code));
    return MD_OK;
}

static enum md_status find_place(const struct md_client *c, struct place *ret, struct md_err *err)
{
    static const char unix_prefix[] = "unix:", http_prefix[] = "http://";
    const char *a = c->address;
    struct place p = { .base_len = (int)strlen(a) };
    if (strncmp(a, unix_prefix, sizeof unix_prefix - 1) == 0)
        p.socket = a + sizeof unix_prefix - 1;
    else if (strstr(a, "://") == NULL && ends_with(a, ".sock"))
        p.socket = a;
    while (p.base_len > 0 && a[p.base_len - 1] == '/')
        p.base_len--;
    const size_t host = sizeof http_prefix - 1;
    const bool http = strncmp(a, http_prefix, host) == 0 && p.base_len > (int)host &&
                      strcspn(a + host, "/?#@ ") >= (size_t)p.base_len - host;
    if ((p.socket != NULL && p.socket[0] == '\0') || (p.socket == NULL && !http))
        return md_fail(err, MD_INVALID,
                       "the address '%.200s' is not known: give http://HOST:PORT, unix:PATH or a path that "
                       "ends in .sock",
                       a);
    /* the path of a request comes behind the one, a socket has room for the other */
    const size_t most = p.socket == NULL ? ADDRESS_BYTES_MAX : sizeof((struct sockaddr_un *)0)->sun_path - 1;
    const size_t bytes = p.socket == NULL ? strlen(a) : strlen(p.socket);
    if (bytes > most)
        return md_fail(err, MD_INVALID, "the address '%.40s...' has %zu bytes, more than %zu", a, bytes,
                       most);
    enum md_status s = p.socket == NULL ? check_url(a, err) : MD_OK;
    if (s == MD_OK)
        *ret = p;
    return s;
}

enum md_status md_client_check(const struct md_client *c, struct md_err *err)
{
    struct place p;
    return find_place(c, &p, err);
}

/* ---- the request ---- */

static size_t take(char *data, size_t size, size_t count, void *user)
{
    return md_buf_append(user, data, size * count, NULL) == MD_OK ? size * count : 0;
}

/* Everything that is set for each request.  The address is http alone, there is nothing to follow, and a proxy has
 * no business between a user and their own daemon. */
static bool set_up(CURL *curl, const struct md_client *c, const struct place *p, const char *url,
                   struct md_buf *answer)
{
    return curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, p->socket) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_TIMEOUT, c->timeout_s) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer) == CURLE_OK;
}

static enum md_status why_not(CURLcode code, const struct md_client *c, const char *words, struct md_err *err)
{
    switch (code) {
    case CURLE_COULDNT_CONNECT:
        return md_fail(
            err, MD_IO,
            "nobody listens at %.200s: start the daemon (modeld serve -m MODEL), or say where it is "
            "with --connect or MODELD_CONNECT",
            c->address);
    case CURLE_OPERATION_TIMEDOUT:
        return md_fail(
            err, MD_IO,
            "no answer from %.200s in time: it may be at work on something long; --timeout gives it "
            "more than %ld s",
            c->address, c->timeout_s);
    case CURLE_OUT_OF_MEMORY: return md_fail(err, MD_NO_MEMORY, "out of memory while asking the daemon");
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
        return md_fail(err, MD_IO, "%.200s ended the connection without an answer", c->address);
    case CURLE_WRITE_ERROR: /* only `take` writes */
        return md_fail(err, MD_IO, "what listens at %.200s is not modeld: its answer has more than %d MiB",
                       c->address, ANSWER_BYTES_MAX >> 20);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        return md_fail(err, MD_IO, "what listens at %.200s is not modeld: %.100s", c->address,
                       words[0] != '\0' ? words : curl_easy_strerror(code));
    default:
        return md_fail(err, MD_IO, "ask %.200s: %.200s", c->address,
                       words[0] != '\0' ? words : curl_easy_strerror(code));
    }
}

static enum md_status fetch(CURL *curl, const struct md_client *c, const struct place *p, const char *method,
                            const char *path, const char *body, struct md_buf *answer, long *ret_http,
                            struct md_err *err)
{
    char url[1024], words[CURL_ERROR_SIZE] = "";
    if (p->socket != NULL)
        snprintf(url, sizeof url, "http://localhost%s", path);
    else
        snprintf(url, sizeof url, "%.*s%s", p->base_len, c->address, path); /* find_place has looked */
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    bool ok = headers != NULL && set_up(curl, c, p, url, answer) &&
              curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, words) == CURLE_OK &&
              curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
              (body == NULL || curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body) == CURLE_OK) &&
              curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method) == CURLE_OK;
    const CURLcode code = ok ? curl_easy_perform(curl) : CURLE_OUT_OF_MEMORY;
    curl_slist_free_all(headers);
    if (code != CURLE_OK)
        return why_not(code, c, words, err);
    *ret_http = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_http);
    return MD_OK;
}

/* ---- the answer ---- */

/* Its words, where it is modeld that refuses.  Others speak of errors in the same form; of what modeld has they know
 * nothing, and say so with a 404 of their own. */
static enum md_status judge(const struct md_client *c, long http, yyjson_doc *doc,
                            const struct md_answer_field *expect, struct md_err *err)
{
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *message = yyjson_obj_get(yyjson_obj_get(root, "error"), "message");
    char why[300];
    if (http == 200)
        return md_answer_check(root, expect, why, sizeof why)
                   ? MD_OK
                   : md_fail(err, MD_IO, "what listens at %.200s is not modeld, or another version of it: %s",
                             c->address, why);
    const char *words = yyjson_is_str(message) ? yyjson_get_str(message) : "";
    const bool no_session = http == 404 && strstr(words, "there is no session") == words;
    const bool no_snapshot = http == 404 && strstr(words, "there is no snapshot") == words;
    if (words[0] == '\0' || (http == 404 && !no_session && !no_snapshot))
        return md_fail(err, MD_IO,
                       "what listens at %.200s is not modeld, or another version of it: its answer (HTTP "
                       "%ld) is another",
                       c->address, http);
    /* it says which route lists them; here it is a verb */
    const char *end = words + strlen(words);
    for (const char *at = strstr(words, ": GET /api/"); at != NULL && (no_session || no_snapshot);
         at = strstr(at + 1, ": GET /api/"))
        end = at;
    return md_fail(err,
                   no_session || no_snapshot ? MD_NOT_FOUND
                   : http == 400             ? MD_INVALID
                                             : MD_INTERNAL,
                   "%.*s%s", end - words < 450 ? (int)(end - words) : 450, words,
                   no_session    ? " (`modeld ps` lists them)"
                   : no_snapshot ? " (`modeld snapshots` lists them)"
                   : http == 503 ? ": try again later"
                                 : "");
}

enum md_status md_client_call(const struct md_client *c, const char *method, const char *path,
                              const char *body, const struct md_answer_field *expect, yyjson_doc **ret_doc,
                              struct md_err *err)
{
    struct place place;
    struct md_buf answer;
    yyjson_doc *doc = NULL;
    long http = 0;
    enum md_status s = find_place(c, &place, err);
    if (s != MD_OK)
        return s;
    CURL *curl = curl_global_init(CURL_GLOBAL_NOTHING) == CURLE_OK ? curl_easy_init() : NULL;
    if (curl == NULL)
        return md_fail(err, MD_NO_MEMORY, "libcurl does not start");
    md_buf_init(&answer, NULL, ANSWER_BYTES_MAX);
    s = fetch(curl, c, &place, method, path, body, &answer, &http, err);
    if (s == MD_OK) {
        doc = answer.len > 0 ? yyjson_read((const char *)answer.data, answer.len, YYJSON_READ_NOFLAG) : NULL;
        s = judge(c, http, doc, expect, err);
    }
    curl_easy_cleanup(curl);
    md_buf_done(&answer);
    if (s == MD_OK)
        *ret_doc = doc;
    else
        yyjson_doc_free(doc);
    return s;
}
