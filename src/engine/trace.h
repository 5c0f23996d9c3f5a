/* trace.h - an engine that logs each operation of the engine inside it, with what it took.
 *
 * One line at MD_LOG_DEBUG per call: operation, sequence, range, bytes, milliseconds, tokens/s, status.
 * Nothing of a prompt is logged, only positions and counts. */
#ifndef MD_ENGINE_TRACE_H
#define MD_ENGINE_TRACE_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* inner  taken over, also on failure; must be empty.  Errors as md_engine_wrap. */
MD_MUST_USE enum md_status md_trace_open(struct md_engine *inner, struct md_engine **ret_engine,
                                         struct md_err *err);

/* The line of one call, for the log and its test. */
struct md_engine_call;
void md_trace_line(const struct md_engine_call *call, enum md_status status, int64_t elapsed_ns, char *out,
                   size_t out_bytes);

#ifdef __cplusplus
}
#endif
#endif
