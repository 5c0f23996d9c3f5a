/* clause.h - a question as the parts it is made of.  Pure: no engine, clock, lock or I/O.
 *
 * A message often asks several things, or shows a text and asks about it.  Its mean attention is then that of most of
 * its tokens, not of those that ask; so each sentence, line and item of a list is a clause, scored for itself
 * (policy/score) and given its turn (policy/select).
 *
 * Threads: any; touches nothing but its arguments.
 * Source: what one question needs does not serve the next: 2412.10319 (SCBench); splitting at ends of sentences and
 * lines is this project's. */
#ifndef MD_POLICY_CLAUSE_H
#define MD_POLICY_CLAUSE_H

#include "base/types.h"
#include "policy/attention.h"

enum {
    MD_CLAUSE_LEAST =
        6, /* tokens: what is shorter belongs to what follows it, at the end to what is before it */
    MD_CLAUSE_MOST = 8
};

/* Split a question into clauses: every row is in exactly one.
 *
 * pieces  the text of each token, `count` of them, 1 or more (assert); a control token of a template may be empty.  A
 *         clause ends behind a line's end, and behind . ? ! ; (closing quotes and brackets may follow, and the
 *         fullwidth forms count) where a blank, a control token or the end of the question follows
 * most    1 to MD_CLAUSE_MOST (assert).  When there are more clauses, the first ones are one: what asks is mostly at
 *         the end
 * ret     room for `most`
 *
 * Returns how many there are, 1 or more. */
size_t md_clause_split(const struct md_bytes *pieces, size_t count, size_t most,
                       struct md_attention_clause *ret);

#endif
