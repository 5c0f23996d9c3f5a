#include "base/log.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int current_level = MD_LOG_WARN;

void md_log_set_level(enum md_log_level level)
{
    atomic_store(&current_level, (int)level);
}

enum md_log_level md_log_level(void)
{
    return (enum md_log_level)atomic_load(&current_level);
}

void md_make_plain(char *line, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)line[i], next = i + 1 < len ? (unsigned char)line[i + 1] : 0;
        const bool begins_c1 = c == 0xc2 && next >= 0x80 && next < 0xa0; /* U+009B is ESC [ in one */
        if (c < ' ' || c == 0x7f || begins_c1)
            line[i] = '?';
    }
}

void md_log(enum md_log_level level, const char *fmt, ...)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };
    if ((int)level > atomic_load(&current_level))
        return;
    char line[1024];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s ", now.tv_nsec / 1000000, names[level]);
    va_list args;
    va_start(args, fmt);
    int m = vsnprintf(line + n, sizeof line - n, fmt, args);
    va_end(args);
    n = m < 0 ? n : n + (size_t)m;
    if (n > sizeof line - 2)
        n = sizeof line - 2;
    md_make_plain(line, n);
    line[n++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, n); /* a lost log line must not stop the daemon */
    (void)ignored;
}

void md_complain(const char *verb, const char *text)
{
    char line[sizeof((struct md_err *)0)->text];
    snprintf(line, sizeof line, "%s", text);
    md_make_plain(line, strlen(line));
    fprintf(stderr, "modeld %s: %s\n", verb, line);
}
