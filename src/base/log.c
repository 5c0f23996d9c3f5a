#include "base/log.h"

#include <stdatomic.h>
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
    line[n++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, n); /* a lost log line must not stop the daemon */
    (void)ignored;
}
