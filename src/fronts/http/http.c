/* Opening and closing the front: the socket, the threads, the defaults. */
#include "fronts/http/http_front.h"

#include "base/clock.h"
#include "base/log.h"
#include "fronts/http/http_keep.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    BODY_BYTES_DEFAULT = 16 << 20,
    BODY_BYTES_PER_TOKEN = 32,    /* a window of tokens as text, escaped, or as ids, with room */
    CONNECTION_BYTES = 32 << 10,  /* libmicrohttpd's memory for one connection: bounds its headers */
    SOCKET_SEND_BYTES = 64 << 10, /* what the kernel holds for a client that does not read (it doubles it) */
    LISTEN_BACKLOG = 128,
    FLUSH_MS = 1000, /* at the end: time for the last bytes of replies */
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static enum md_status configure(struct md_http *http, const struct md_http_config *config, struct md_err *err)
{
    struct md_http_config *c = &http->config;
    *c = *config;
    const char *host = config->host == NULL ? "127.0.0.1" : config->host;
    if (strlen(host) >= sizeof http->host || host[0] == '\0')
        return md_fail(err, MD_INVALID, "the host '%.40s' is empty or too long", host);
    snprintf(http->host, sizeof http->host, "%s", host);
    http->is_unix = ends_with(host, ".sock");
    if (!http->is_unix && (c->port < 0 || c->port > 65535))
        return md_fail(err, MD_INVALID, "the port must be 0 (any free one) to 65535, got %d", c->port);
    c->host = http->host;
    c->connection_limit = c->connection_limit > 0 ? c->connection_limit : MD_HTTP_CONNECTIONS_DEFAULT;
    c->header_ms = c->header_ms > 0 ? c->header_ms : MD_HTTP_HEADER_MS;
    c->body_ms = c->body_ms > 0 ? c->body_ms : MD_HTTP_BODY_MS;
    c->idle_ms = c->idle_ms > 0 ? c->idle_ms : MD_HTTP_IDLE_MS;
    c->stall_ms = c->stall_ms > 0 ? c->stall_ms : MD_HTTP_STALL_MS;
    c->keepalive_ms = c->keepalive_ms > 0 ? c->keepalive_ms : MD_HTTP_KEEPALIVE_MS;
    http->body_limit_bytes = c->body_limit_bytes > 0 ? c->body_limit_bytes : BODY_BYTES_DEFAULT;
    return MD_OK;
}

/* ---- the socket ---- */

static enum md_status bind_unix(struct md_http *http, struct md_err *err)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    if (strlen(http->host) >= sizeof to.sun_path)
        return md_fail(err, MD_INVALID, "the socket path '%s' is longer than %zu bytes", http->host,
                       sizeof to.sun_path - 1);
    strcpy(to.sun_path, http->host);
    http->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (http->listen_fd < 0)
        return md_fail(err, MD_IO, "socket: %s", strerror(errno));
    struct stat st;
    if (lstat(http->host, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            return md_fail(err, MD_IO, "'%s' is there already and is no socket", http->host);
        int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int alive = probe >= 0 && connect(probe, (struct sockaddr *)&to, sizeof to) == 0;
        if (probe >= 0)
            close(probe);
        if (alive)
            return md_fail(err, MD_IO, "the socket '%s' is in use by another server", http->host);
        unlink(http->host); /* its server died */
    }
    mode_t old = umask(0177);
    int failed = bind(http->listen_fd, (struct sockaddr *)&to, sizeof to);
    int why = errno;
    umask(old);
    if (failed != 0)
        return md_fail(err, MD_IO, "bind '%s': %s", http->host, strerror(why));
    http->port = -1;
    http->unlink_at_end = true;
    snprintf(http->url, sizeof http->url, "unix:%s", http->host);
    return MD_OK;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
}

static bool is_any(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
    return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr == INADDR_ANY;
}

static enum md_status bind_address(struct md_http *http, const struct addrinfo *to, struct md_err *err)
{
    int port = http->config.port, on = 1;
    http->listen_fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (http->listen_fd < 0)
        return md_fail(err, MD_IO, "socket: %s", strerror(errno));
    /* connections of a server that has just ended (TIME_WAIT) do not block the next one */
    setsockopt(http->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(http->listen_fd, to->ai_addr, to->ai_addrlen) != 0) {
        if (errno == EADDRINUSE)
            return md_fail(err, MD_IO,
                           "port %d on %s is in use by another program: choose another with --port, "
                           "or 0 for any free one",
                           port, http->host);
        return md_fail(err, MD_IO, "cannot listen on %s port %d: %s", http->host, port, strerror(errno));
    }
    struct sockaddr_storage mine;
    socklen_t len = sizeof mine;
    if (getsockname(http->listen_fd, (struct sockaddr *)&mine, &len) != 0)
        return md_fail(err, MD_IO, "getsockname: %s", strerror(errno));
    bool v6 = mine.ss_family == AF_INET6;
    http->port =
        ntohs(v6 ? ((struct sockaddr_in6 *)&mine)->sin6_port : ((struct sockaddr_in *)&mine)->sin_port);
    http->any_address = is_any(to->ai_addr);
    if (!is_loopback(to->ai_addr))
        md_log(MD_LOG_WARN, "http: listening on %s, which other machines may reach, without a key",
               http->host);
    snprintf(http->url, sizeof http->url, v6 ? "http://[%s]:%d" : "http://%s:%d", http->host, http->port);
    return MD_OK;
}

static enum md_status bind_tcp(struct md_http *http, struct md_err *err)
{
    const struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
                                    .ai_socktype = SOCK_STREAM };
    struct addrinfo *to = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", http->config.port);
    const char *host = strcmp(http->host, "localhost") == 0 ? "127.0.0.1" : http->host;
    if (getaddrinfo(host, port, &hints, &to) != 0)
        return md_fail(err, MD_INVALID, "the host '%s' is no numeric address, 'localhost' or '*.sock'",
                       http->host);
    enum md_status s = bind_address(http, to, err);
    freeaddrinfo(to);
    return s;
}

/* ---- open, attach, close ---- */

static void log_of_library(void *user, const char *format, va_list args) MD_PRINTF(2, 0);
static void log_of_library(void *user, const char *format, va_list args)
{
    char line[300];
    (void)user;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = '\0';
    md_log(MD_LOG_DEBUG, "http: %s", line); /* every broken request of a client ends up here */
}

/* No path of ours has anything escaped in it: "/api/sessions/7%00x" is not session 7. */
static size_t leave_escaped(void *user, struct MHD_Connection *connection, char *text)
{
    (void)user;
    (void)connection;
    return strlen(text);
}

static enum md_status start(struct md_http *http, struct md_err *err)
{
    const int send_bytes = SOCKET_SEND_BYTES; /* accepted sockets inherit it */
    setsockopt(http->listen_fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    if (listen(http->listen_fd, LISTEN_BACKLOG) != 0)
        return md_fail(err, MD_IO, "listen on %s: %s", http->url, strerror(errno));
    if (pthread_create(&http->pump, NULL, md_http_pump_main, http) != 0)
        return md_fail(err, MD_IO, "cannot start a thread");
    http->has_pump = true;
    if (pthread_create(&http->preparer, NULL, md_http_prepare_main, http) != 0)
        return md_fail(err, MD_IO, "cannot start a thread");
    http->has_preparer = true;
    http->daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
                             MHD_USE_ITC | MHD_USE_ERROR_LOG,
                         0, NULL, NULL, md_http_handle, http, MHD_OPTION_EXTERNAL_LOGGER, log_of_library,
                         NULL, /* first: it counts at once */
                         MHD_OPTION_LISTEN_SOCKET, http->listen_fd, MHD_OPTION_NOTIFY_COMPLETED,
                         md_http_completed, http, MHD_OPTION_NOTIFY_CONNECTION, md_http_connected, http,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->config.connection_limit,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(http->config.idle_ms / 1000 + 1),
                         MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL,
                         MHD_OPTION_END);
    if (http->daemon == NULL)
        return md_fail(err, MD_IO, "cannot start the HTTP server on %s", http->url);
    return MD_OK;
}

enum md_status md_http_open(const struct md_http_config *config, struct md_http **ret_http,
                            struct md_err *err)
{
    struct md_http *http = calloc(1, sizeof *http);
    if (http == NULL)
        return md_fail(err, MD_NO_MEMORY, "the HTTP front");
    http->listen_fd = -1;
    http->created = md_clock_wall_s();
    http->opened_ns = md_clock_mono_ns();
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&http->mu, NULL);
    pthread_cond_init(&http->pump_wake, &monotonic);
    pthread_cond_init(&http->prepare_wake, NULL);
    pthread_condattr_destroy(&monotonic);
    enum md_status s = configure(http, config, err);
    if (s == MD_OK)
        s = md_calls_open(MD_CALLS_ENTRIES, MD_CALLS_BYTES, NULL, &http->calls_made, err);
    if (s == MD_OK)
        s = http->is_unix ? bind_unix(http, err) : bind_tcp(http, err);
    if (s == MD_OK)
        s = start(http, err);
    if (s != MD_OK) {
        md_http_close(http);
        return s;
    }
    *ret_http = http;
    return MD_OK;
}

int md_http_port(const struct md_http *http)
{
    return http->port;
}

const char *md_http_url(const struct md_http *http)
{
    return http->url;
}

struct taking {
    struct md_calls *calls;
    const struct md_text *text;
};

static void take_notes(void *user, int64_t session, struct md_bytes notes)
{
    const struct taking *t = user;
    md_http_keep_take(t->calls, t->text, session, notes);
}

void md_http_attach(struct md_http *http, const struct md_http_service *service)
{
    int32_t window = md_worker_status(service->worker).pool.window_tokens;
    /* nobody asks for a prompt before it is attached */
    md_worker_notes(service->worker, take_notes, &(struct taking){ http->calls_made, service->text });
    pthread_mutex_lock(&http->mu);
    http->service = *service;
    if (http->config.body_limit_bytes == 0 && (size_t)window * BODY_BYTES_PER_TOKEN > http->body_limit_bytes)
        http->body_limit_bytes = (size_t)window * BODY_BYTES_PER_TOKEN;
    http->attached = true;
    pthread_mutex_unlock(&http->mu);
}

/* The loop sends what is in the buffers; a client that does not read gets FLUSH_MS of it. */
static void flush_replies(struct md_http *http)
{
    const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };
    for (int i = 0; i < FLUSH_MS / 10; i++) {
        pthread_mutex_lock(&http->mu);
        int left = http->call_count;
        pthread_mutex_unlock(&http->mu);
        if (left == 0)
            return;
        nanosleep(&pause, NULL);
    }
}

void md_http_close(struct md_http *http)
{
    if (http == NULL)
        return;
    if (http->daemon != NULL)
        MHD_quiesce_daemon(http->daemon);
    pthread_mutex_lock(&http->mu);
    http->closing = true;
    pthread_cond_signal(&http->pump_wake);
    pthread_cond_signal(&http->prepare_wake);
    pthread_mutex_unlock(&http->mu);
    if (http->has_preparer)
        pthread_join(http->preparer, NULL);
    if (http->has_pump)
        pthread_join(http->pump, NULL);
    if (http->daemon != NULL) {
        flush_replies(http);
        MHD_stop_daemon(http->daemon); /* every call is done, so no connection is suspended */
    }
    if (http->listen_fd >= 0)
        close(http->listen_fd);
    if (http->unlink_at_end)
        unlink(http->host);
    md_calls_close(http->calls_made);
    pthread_cond_destroy(&http->pump_wake);
    pthread_cond_destroy(&http->prepare_wake);
    pthread_mutex_destroy(&http->mu);
    free(http);
}
