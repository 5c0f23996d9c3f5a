/* eval_dump.h - what every head pays to every token when a question is scored, for studies of scoring that need no model.
 *
 * A file of records, one for each scoring.  Each is a line of JSON, then `bytes` bytes: f32 of this machine, share[H][C],
 * then mass[H][C][T] (policy/attention.h).  The line has
 *
 *     trial, length, depth, order, turn, needle   of the item (eval.h)
 *     pass        0, 1, ...: how often blocks had been brought in before
 *     from, rows  where the question begins, its tokens
 *     question    its text, with what the template puts around it
 *     starts, tokens, candidates, hot, texts      of each block, in its order: T is the sum of `tokens`.  Of a text that is
 *                 cut inside a letter, and of what else is no UTF-8, bytes are shown as `?`
 *     spans       [[start, end], ...] of the needle, in positions
 *     heads       [[layer, head], ...]: H of them
 *     clauses     rows of each, from the end of the question: C of them, the first is all
 *
 * Threads: one at a time. */
#ifndef MD_COMMANDS_EVAL_DUMP_H
#define MD_COMMANDS_EVAL_DUMP_H

#include "commands/eval.h"
#include "session/retrieve.h"

/* What is asked; all is borrowed until the next one. */
struct md_eval_dumped {
    struct md_session *session;      /* whose scoring it is */
    const struct md_eval_item *item; /* its order, turn, needle and spans are set */
    const struct md_text *text;
    const md_token *prompt;
    int32_t prompt_count;
};

struct md_eval_dump {
    FILE *file; /* NULL: nothing is written */
    const struct md_eval_settings *settings;
    struct md_eval_unit unit;
    struct md_eval_dumped what;
    struct md_err failed; /* the first failure; status MD_OK: none */
};

/* A new file.  MD_INVALID: there is something at that name already; MD_IO */
MD_MUST_USE enum md_status md_eval_dump_open(const char *path, struct md_eval_dump *ret, struct md_err *err);
/* MD_IO: what was written last did not reach the disk; or the first failure since it was opened.  Accepts one without a file. */
MD_MUST_USE enum md_status md_eval_dump_close(struct md_eval_dump *d, struct md_err *err);
/* For a configuration that a policy has made: all heads are scored.  So what is brought in, and what stays where attention says it,
 * is chosen by all of them, too: not what the policy alone would have. */
void md_eval_dump_configure(struct md_pool_config *config);
void md_eval_dump_next(struct md_eval_dump *d, const struct md_eval_dumped *what);
/* The first failure since it was opened. */
MD_MUST_USE enum md_status md_eval_dump_check(const struct md_eval_dump *d, struct md_err *err);
/* What md_pool_observe_retrieval is given: `user` of it is the dump. */
struct md_retrieve_observer md_eval_dump_observer(struct md_eval_dump *d);

#endif
