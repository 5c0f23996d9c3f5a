#include "base/err.h"

#include <assert.h>
#include <stdio.h>

enum md_status md_vfail(struct md_err *err, enum md_status status, const char *fmt, va_list args)
{
    assert(status != MD_OK);
    if (err != NULL) {
        err->status = status;
        vsnprintf(err->text, sizeof err->text, fmt, args);
    }
    return status;
}

enum md_status md_fail(struct md_err *err, enum md_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    md_vfail(err, status, fmt, args);
    va_end(args);
    return status;
}

const char *md_status_name(enum md_status status)
{
    static const char *const names[] = {
#define X(name, http, grpc) #name,
        MD_STATUS_LIST(X)
#undef X
    };
    assert((unsigned)status < MD_STATUS_COUNT);
    return names[status];
}

int md_status_http(enum md_status status)
{
    static const int codes[] = {
#define X(name, http, grpc) http,
        MD_STATUS_LIST(X)
#undef X
    };
    assert((unsigned)status < MD_STATUS_COUNT);
    return codes[status];
}

int md_status_grpc(enum md_status status)
{
    static const int codes[] = {
#define X(name, http, grpc) grpc,
        MD_STATUS_LIST(X)
#undef X
    };
    assert((unsigned)status < MD_STATUS_COUNT);
    return codes[status];
}
