/* llama_log.c - the library's log lines.  They go to md_log at DEBUG, never straight to a terminal; the
 * first error of a call is kept for our own message.
 *
 * The library sends pieces of lines, from any thread: each thread puts its own together. */
#include "adapters/llama/llama_backend.h"
#include "adapters/llama/llama_internal.h"
#include "base/log.h"

#include <ctype.h>
#include <string.h>

struct capture {
    char line[512];
    size_t len;
    enum ggml_log_level level;
    char cause[384];
};

static _Thread_local struct capture capture;
static void (*hook)(void *user, const char *text);
static void *hook_user;

void md_llama_log_hook(void (*line)(void *user, const char *text), void *user)
{
    hook = line;
    hook_user = user;
}

/* "llama_model_load: error loading model: x" says x; everything before is the library's own business. */
static const char *without_prefix(const char *line)
{
    static const char *const noise[] = { "error loading model: ", "llama_model_loader: ",
                                         "failed to initialize the context: " };
    const char *p = line;
    while (isalnum((unsigned char)*p) || *p == '_' || *p == ':')
        p++;
    if (p > line + 1 && p[-1] == ':' && *p == ' ')
        line = p + 1;
    for (size_t i = 0; i < sizeof noise / sizeof noise[0]; i++) {
        if (strncmp(line, noise[i], strlen(noise[i])) == 0)
            line += strlen(noise[i]);
    }
    return line;
}

static void end_line(struct capture *c)
{
    c->line[c->len] = '\0';
    if (c->len == 0)
        return;
    if (c->level == GGML_LOG_LEVEL_ERROR && c->cause[0] == '\0')
        strncpy(c->cause, without_prefix(c->line), sizeof c->cause - 1);
    if (hook != NULL)
        hook(hook_user, c->line);
    md_log(MD_LOG_DEBUG, "llama.cpp: %s", c->line);
    c->len = 0;
}

static void on_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    struct capture *c = &capture;
    if (level != GGML_LOG_LEVEL_CONT) {
        end_line(c); /* a line that never got its end */
        c->level = level;
    }
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            end_line(c);
        else if (c->len < sizeof c->line - 1)
            c->line[c->len++] = *text;
    }
}

void md_llama_log_install(void)
{
    llama_log_set(on_log, NULL);
}

void md_llama_log_clear(void)
{
    capture.len = 0;
    memset(capture.cause, 0, sizeof capture.cause);
}

const char *md_llama_log_cause(void)
{
    end_line(&capture);
    return capture.cause[0] != '\0' ? capture.cause : "no reason given";
}
