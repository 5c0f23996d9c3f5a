/* heads.h - where the heads that score come from: a file that an earlier calibration left, the table of known models, a
 * calibration that runs when nobody waits, and until then, or where that fails, the band.
 *
 * The order is that: who calibrated a model on this machine means it.  A file that is damaged, of another model or of another
 * version is told of, removed, and never used; one with a head that this engine does not give is told of, and stays.  A set is written when it was measured (host/file.h), so that what is killed
 * half way leaves the old file or none, and begins anew.
 *
 * Whoever gives his own retrieval parameters (md_pool_config.retrieve) has said which heads: then nothing of this happens.
 *
 * Threads: one at a time (the session's worker). */
#ifndef MD_SESSION_HEADS_H
#define MD_SESSION_HEADS_H

#include "engine/engine.h"
#include "policy/calibrate.h"

#include <stdbool.h>

struct md_pool;
struct md_heads;

enum md_heads_origin { MD_HEADS_SPREAD, MD_HEADS_TABLE, MD_HEADS_FILE, MD_HEADS_MEASURED };
enum md_heads_state {
    MD_HEADS_NONE,    /* nothing is scored */
    MD_HEADS_SETTLED, /* they stay: calibrated, unless the origin says that they are spread over the band */
    MD_HEADS_WAITING, /* a calibration begins when nobody waits for an answer */
    MD_HEADS_RUNNING, /* it has begun; the band is used */
    MD_HEADS_FAILED,  /* it has ended without a set, or this engine cannot; the band is used */
};
const char *md_heads_origin_name(enum md_heads_origin origin); /* "band", "table", "file", "measured" */
const char *md_heads_state_name(enum md_heads_state state);    /* "none", "settled", "waiting", ... */

struct md_heads_status {
    enum md_heads_origin origin;
    enum md_heads_state state;
    enum md_calibrate_source source; /* of the set in use */
    int32_t count;                   /* heads of it; 0: nothing is scored */
    int percent;                     /* of a calibration that runs */
    bool kept;                       /* the set in use is in the file */
    char why[256];                   /* it failed, or a file was not used or not written; "": none of these */
};

/* The key of a set for this engine's model. */
MD_MUST_USE enum md_status md_heads_key(const struct md_engine *engine, struct md_calibrate_key *ret_key,
                                        struct md_err *err);
/* Where its file lies among the files that are kept between runs (host/paths.h).  MD_INVALID: the path is too long. */
MD_MUST_USE enum md_status md_heads_file(const char *data_root, const struct md_engine *engine, char *out,
                                         size_t out_bytes, struct md_err *err);

/* For a pool that is being opened and has its retriever, or none.  What can be known now is in use afterwards.
 * MD_NO_MEMORY.  Other failures are logged, and leave the band. */
MD_MUST_USE enum md_status md_heads_open(struct md_pool *p, struct md_heads **ret_heads, struct md_err *err);
void md_heads_close(struct md_heads *h); /* before what the pool has; accepts NULL */

/* Is there work for when nobody waits?  False on NULL. */
bool md_heads_wants(const struct md_heads *h);
/* A step of it (md_calibrator_step).  At its end the set is in use and written; a failure is logged, but for MD_CALIBRATE_ANEW. */
void md_heads_step(struct md_heads *h, bool (*wanted)(void *user), void *user);
/* The set in use as text (policy/calibrate.h).  MD_NOT_FOUND: NULL; MD_NO_MEMORY */
MD_MUST_USE enum md_status md_heads_print(const struct md_heads *h, struct md_buf *buf, struct md_err *err);
struct md_heads_status md_heads_status(const struct md_heads *h); /* of NULL: none */

#endif
