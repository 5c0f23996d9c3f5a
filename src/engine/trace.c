/* trace.c - see trace.h. */
#include "engine/trace.h"

#include "base/log.h"
#include "engine/wrap.h"

#include <stdio.h>

void md_trace_line(const struct md_engine_call *call, enum md_status status, int64_t elapsed_ns, char *out,
                   size_t out_bytes)
{
    const double ms = (double)elapsed_ns / 1e6;
    const int32_t tokens = md_range_len(call->r);
    char more[64] = "";
    if (call->op == MD_OP_EXPORT || call->op == MD_OP_ADMIT || call->op == MD_OP_CHECKPOINT ||
        call->op == MD_OP_REWIND || call->op == MD_OP_KEYS)
        snprintf(more, sizeof more, " %zu bytes", call->bytes);
    else if (call->op == MD_OP_ADMIT_MOVED)
        snprintf(more, sizeof more, " from %d %zu bytes", call->from_start, call->bytes);
    else if (call->op == MD_OP_SHARE)
        snprintf(more, sizeof more, " to seq %d", call->to);
    snprintf(out, out_bytes, "engine %s seq %d [%d, %d)%s %.3f ms, %.0f tokens/s: %s",
             md_engine_op_name(call->op), call->seq, call->r.start, call->r.end, more, ms,
             elapsed_ns > 0 ? tokens * 1e9 / (double)elapsed_ns : 0.0, md_status_name(status));
}

static void log_call(void *user, const struct md_engine_call *call, enum md_status status, int64_t elapsed_ns)
{
    (void)user;
    if (md_log_level() < MD_LOG_DEBUG)
        return;
    char line[256];
    md_trace_line(call, status, elapsed_ns, line, sizeof line);
    md_log(MD_LOG_DEBUG, "%s", line);
}

enum md_status md_trace_open(struct md_engine *inner, struct md_engine **ret_engine, struct md_err *err)
{
    const struct md_engine_hooks hooks = { .after = log_call };
    return md_engine_wrap(inner, &hooks, ret_engine, err);
}
