/* client.h - one request to a daemon that runs, and its answer as JSON; over TCP or a Unix socket, with libcurl.
 *
 * Threads: one at a time. */
#ifndef MD_CLI_CLIENT_H
#define MD_CLI_CLIENT_H

#include "base/err.h"
#include "cli/answer.h"

#include <yyjson.h>

enum { MD_CLIENT_TIMEOUT_S = 30, MD_CLIENT_TIMEOUT_S_MAX = 86400 };

struct md_client {
    const char *address; /* "http://HOST:PORT", "unix:PATH" or "*.sock": as the user gave it, borrowed */
    long timeout_s;      /* for all of it, waiting in the daemon's queue included; 0: no limit */
};

/* Is that an address, its port and its length included?  MD_INVALID: its text says which ones there are. */
MD_MUST_USE enum md_status md_client_check(const struct md_client *c, struct md_err *err);

/* Make the request and read the answer.
 *
 * body     NULL: none; else JSON
 * expect   the members of the answer that are read: what listens there may be something else
 * ret_doc  an object; the caller's, yyjson_doc_free
 * MD_IO         nobody listens there, it did not answer in time, or what answers is not modeld
 * MD_NOT_FOUND, MD_INVALID, MD_INTERNAL  modeld refused, in its words
 * MD_NO_MEMORY */
MD_MUST_USE enum md_status md_client_call(const struct md_client *c, const char *method, const char *path,
                                          const char *body, const struct md_answer_field *expect,
                                          yyjson_doc **ret_doc, struct md_err *err);

#endif
