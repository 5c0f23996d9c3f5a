/* turns.h - a scripted conversation: JSON lines {"role":"...","content":"..."}, read whole and checked before
 * a model is loaded.
 *
 * A user or tool message is answered, unless the next line brings the answer itself (role assistant).  A blank
 * line forgets the messages so far, so that a script can branch from an early turn. */
#ifndef MD_COMMANDS_TURNS_H
#define MD_COMMANDS_TURNS_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>

struct md_turn {
    struct md_bytes content;
    const char *role; /* NULL: forget the messages so far */
    bool answered;    /* the model is asked after this one */
};
struct md_turns {
    struct md_turn *turns;
    size_t count, cap;
    struct md_arena memory; /* of the text */
};

/* Parse a whole script.
 *
 * ret_turns     md_turns_done; nothing of it stays on failure
 * MD_INVALID    a line is no such object (the text names it), or no message is to be answered
 * MD_NO_MEMORY */
MD_MUST_USE enum md_status md_turns_parse(struct md_bytes script, struct md_turns *ret_turns,
                                          struct md_err *err);
void md_turns_done(struct md_turns *t); /* accepts a zeroed one */

#endif
