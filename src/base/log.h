/* log.h - one line per event on standard error.  Only main, fronts, commands, cli and session log,
 * so that an error is logged once.  Threads: any (each line is one write). */
#ifndef MD_BASE_LOG_H
#define MD_BASE_LOG_H

#include "base/err.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum md_log_level { MD_LOG_ERROR, MD_LOG_WARN, MD_LOG_INFO, MD_LOG_DEBUG };

/* Lines above this level are dropped (default MD_LOG_WARN; `serve` sets MD_LOG_INFO, -v DEBUG). */
void md_log_set_level(enum md_log_level level);
enum md_log_level md_log_level(void);
/* Control characters are shown as question marks: a line stays one. */
void md_log(enum md_log_level level, const char *fmt, ...) MD_PRINTF(2, 3);

/* The same for a line that goes elsewhere: control characters, which may come from a model file, a request or whoever
 * answers, become question marks. */
void md_make_plain(char *line, size_t len);

/* "modeld run: TEXT" as one line on standard error, for a verb that ends with an error; control characters as there. */
void md_complain(const char *verb, const char *text);

#ifdef __cplusplus
}
#endif
#endif
