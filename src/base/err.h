/* err.h - a status to branch on, a line to read.
 *
 * Every function that can fail returns enum md_status and takes `struct md_err *err` last.  The
 * caller owns err (on its stack) and may pass NULL.  Text: lower case, the failure first, the
 * subject in quotes, no full stop.  A bug is an assert, never a status; nothing that comes from
 * outside is ever asserted on.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_BASE_ERR_H
#define MD_BASE_ERR_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MD_MUST_USE __attribute__((warn_unused_result))
#define MD_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* name, HTTP status, gRPC code: one list for all fronts */
#define MD_STATUS_LIST(X)                                                                     \
    X(OK, 200, 0)                                                                             \
    X(INVALID, 400, 3)           /* the request or an argument is wrong: say which         */ \
    X(TOO_LARGE, 400, 8)         /* does not fit the context window                        */ \
    X(NOT_FOUND, 404, 5)         /* no such model, file or route                           */ \
    X(BUSY, 503, 14)             /* the queue is full: come again                          */ \
    X(UNSUPPORTED, 501, 12)      /* this engine, model or build cannot                     */ \
    X(CANCELLED, 499, 1)         /* the caller asked to stop; what was done is kept        */ \
    X(CLOSED, 409, 9)            /* the session is closed                                  */ \
    X(MANIFEST_MISMATCH, 409, 9) /* not the text, or not the KV, of that manifest */          \
    X(NO_MEMORY, 507, 8)         /* memory or a byte budget ran out                        */ \
    X(CORRUPT, 500, 15)          /* data failed its check                                  */ \
    X(IO, 500, 13)               /* the operating system said no                           */ \
    X(INTERNAL, 500, 13)         /* the engine failed; the state before the call stands    */ \
    X(SESSION_FATAL, 500, 10)    /* the KV state is unknown: close the session            */

enum md_status {
#define X(name, http, grpc) MD_##name,
    MD_STATUS_LIST(X)
#undef X
        MD_STATUS_COUNT
};

struct md_err {
    enum md_status status;
    char text[512];
};

/* Fill err (when not NULL) and return status, so that a failure is one line:
 *     return md_fail(err, MD_IO, "open '%s': %s", path, strerror(errno)); */
enum md_status md_fail(struct md_err *err, enum md_status status, const char *fmt, ...) MD_PRINTF(3, 4);
enum md_status md_vfail(struct md_err *err, enum md_status status, const char *fmt, va_list args)
    MD_PRINTF(3, 0);

/* "INVALID", "TOO_LARGE", ...: for logs.  Never NULL. */
const char *md_status_name(enum md_status status);
int md_status_http(enum md_status status);
int md_status_grpc(enum md_status status);

#ifdef __cplusplus
}
#endif
#endif
