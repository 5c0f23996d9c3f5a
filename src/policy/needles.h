/* needles.h - the texts that heads are measured with: three haystacks, what is hidden in them, and what is asked.  Pure: no
 * engine, clock, lock or I/O.
 *
 * A haystack is filler - prose, code or a chat log - and twelve lines in it: six *needles*, each with a *near-duplicate* that
 * differs in what is asked for.  A head that finds things gives its attention to the needle, when that is asked for, and
 * neither to it when nothing is asked nor to the near-duplicate (policy/calibrate.h).  All of it is written here, so that what is
 * measured depends on the model alone, and none of it stands in the texts of `modeld eval`.
 *
 * Whoever changes a word here changes what sets were measured with: count MD_NEEDLES_VERSION up.
 *
 * Threads: any; touches nothing but its arguments.
 * Source: haystacks that are continuous documents, near-duplicates and a null question: 2510.02219 (CoRe), 2506.09944
 * (QRHead). */
#ifndef MD_POLICY_NEEDLES_H
#define MD_POLICY_NEEDLES_H

#include "base/err.h"
#include "base/mem.h"

#include <stdint.h>

enum md_needles_kind { MD_NEEDLES_PROSE, MD_NEEDLES_CODE, MD_NEEDLES_CHAT, MD_NEEDLES_KINDS };
enum { MD_NEEDLES = 6, MD_NEEDLES_VERSION = 1 };

/* Lines without their ends. */
struct md_needle {
    const char *gold, *near, *question;
};
const struct md_needle *md_needle_at(enum md_needles_kind kind, int i); /* 0 <= i < MD_NEEDLES */

/* The question that asks nothing. */
const char *md_needles_null(void);

/* Which line stands in slot k of 2 * MD_NEEDLES: 0 ... MD_NEEDLES - 1 are needles, what follows their near-duplicates.  A
 * needle and its near-duplicate are never neighbours, and each comes first as often as the other. */
int md_needles_line_in(int slot);

/* Append piece n of the filler, some 40 to 100 words that end with an end of line.  The same kind and n give the same bytes.
 * MD_NO_MEMORY: the buffer is full; some of it may have been appended */
MD_MUST_USE enum md_status md_needles_filler(enum md_needles_kind kind, uint32_t n, struct md_buf *out,
                                             struct md_err *err);

#endif
