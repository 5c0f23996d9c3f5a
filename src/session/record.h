/* record.h - a conversation written down, all but its KV: context, segments, tape, and how each block came to be.
 *
 * The bytes say nothing of a model: who keeps them says whose they are (snapshot.h, store.h).  They are little-endian
 * and name their own version.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_RECORD_H
#define MD_SESSION_RECORD_H

#include "session/session.h"

/* What is said of a block of the tape. */
struct md_record_block {
    enum md_cache_class cls;
    struct md_provenance provenance;
    bool lost;     /* its KV was gone when it was written */
    bool held_out; /* see md_session_evict_range */
};

/* A record that was read.  Arrays are its own. */
struct md_record {
    struct md_arena arena;
    int64_t id, parent;
    bool kept, bound; /* see pool.h */
    bool bare; /* its tokens alone were restored, and nothing was computed since (snapshot.h): all is lost */
    int32_t block_tokens, prefix_count;
    struct md_context context;
    const md_token *tape;
    int32_t tape_count;
    const struct md_record_block *blocks; /* (tape_count + block_tokens - 1) / block_tokens of them */
    size_t block_count;
};

/* Append the record of a conversation.  MD_NO_MEMORY: out is as long as before. */
MD_MUST_USE enum md_status md_record_write(const struct md_session *s, struct md_buf *out,
                                           struct md_err *err);

/* Take bytes apart, whoever wrote them: every count, range and value is checked but for the tokens, which the
 * vocabulary knows (md_session_load).
 *
 * ret             valid only on MD_OK; md_record_done
 * MD_CORRUPT      they are no record: the text says what is wrong, and where
 * MD_UNSUPPORTED  of another version
 * MD_NO_MEMORY    never more than a few times `len` is taken */
MD_MUST_USE enum md_status md_record_read(const void *bytes, size_t len, const struct md_alloc *alloc,
                                          struct md_record *ret, struct md_err *err);
void md_record_done(struct md_record *r); /* accepts a zeroed struct */

#endif
