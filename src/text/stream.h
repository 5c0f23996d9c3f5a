/* stream.h - from token pieces to text that may be shown: whole UTF-8 characters, cut at stop strings.
 *
 * Bytes go in as tokens give them; text comes out as soon as it can no longer be part of an
 * unfinished character or of a stop string that has begun.  What is held back comes out at the end.
 * A maximal ill-formed part becomes one U+FFFD (Unicode 15, section 3.9, "substitution of maximal
 * subparts"), so the joined deltas equal the non-streamed text.
 *
 * Threads: one at a time. */
#ifndef MD_TEXT_STREAM_H
#define MD_TEXT_STREAM_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>

enum { MD_STOP_MAX = 20, MD_STOP_BYTES_MAX = 1024 }; /* stop strings per request, bytes of each */

struct md_stream {
    struct md_buf held;    /* valid text that may still be the start of a stop string */
    unsigned char part[4]; /* an unfinished character */
    size_t part_len;
    const struct md_bytes *stops; /* borrowed */
    size_t stop_count;
    bool stopped; /* a stop string was found: nothing more comes out */
};

/* stops are borrowed until done; MD_INVALID when one is empty, too long or not UTF-8, or there are too many.
 * The stop string that is complete first wins; of two that end together the longer. */
MD_MUST_USE enum md_status md_stream_init(struct md_stream *s, const struct md_alloc *alloc,
                                          const struct md_bytes *stops, size_t stop_count,
                                          struct md_err *err);
/* Feed bytes; what may be shown is appended to ret_text.  After s->stopped, input is ignored.
 * MD_NO_MEMORY: stream and ret_text are as before the call. */
MD_MUST_USE enum md_status md_stream_push(struct md_stream *s, const void *bytes, size_t len,
                                          struct md_buf *ret_text, struct md_err *err);
/* The end of the text: release what is held. */
MD_MUST_USE enum md_status md_stream_finish(struct md_stream *s, struct md_buf *ret_text, struct md_err *err);
void md_stream_done(struct md_stream *s);

#endif
