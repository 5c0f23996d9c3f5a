/* store.h - conversations that outlive the process: after each call what the disk has not yet is written, at the start
 * all are open again.
 *
 * A commit writes blocks first and the record (record.h) last, with the notes on it, each file whole, so that a kill at any moment leaves the
 * conversation as its last commit had it.  What a record names and the disk has no room for is lost to the next process.
 *
 * Threads: one at a time (the worker's). */
#ifndef MD_SESSION_STORE_H
#define MD_SESSION_STORE_H

#include "session/pool.h"
#include "session/record.h"

/* Write it.  No effect without a disk, or on one that was given up.  What the disk would not have stays in memory:
 * durable_tokens of its status and its results are then those of the last commit that was whole, as far as the conversation
 * still begins with them; a line in the log says why; when the engine failed so that its KV is unknown, it is given up. */
void md_store_commit(struct md_session *s);

/* Open all that the disk has.  Those that do not fit the window are left on the disk, closed.
 * MD_IO, MD_NO_MEMORY */
MD_MUST_USE enum md_status md_store_open_all(struct md_pool *p, struct md_err *err);

/* Could s become what the record says?  Errors as md_session_load. */
MD_MUST_USE enum md_status md_session_check_record(const struct md_session *s, const struct md_record *record,
                                                   struct md_err *err);
/* Make a conversation with an empty tape what the record says.  Its blocks are cold where the store has them, else lost.
 *
 * MD_INVALID    of another block size than the pool's, or a token that the vocabulary does not have
 * MD_TOO_LARGE  it does not fit the window: both numbers in the text
 * MD_NO_MEMORY; s is as before on all of them */
MD_MUST_USE enum md_status md_session_load(struct md_session *s, const struct md_record *record,
                                           struct md_err *err);

#endif
