/* states_suite.h - conversations on engines with a tail state, beside KV of positions or alone: edits, switches, branches, restarts and
 * snapshots go back to a checkpoint and compute no more than the rest, and the answers are those of conversations that never
 * were anything else.  An engine without such a state can go back anywhere, and does it all as well.
 *
 * What is right: the logits of a conversation of its own in a pool of its own, over the same engine; counts of tokens that
 * follow from what was asked and the distance of the checkpoints. */
#ifndef MD_TESTS_STATES_SUITE_H
#define MD_TESTS_STATES_SUITE_H

#include "engine/engine.h"
#include "text/text.h"

enum { MD_STATES_CELLS = 1024, MD_STATES_BATCH = 64, MD_STATES_TOKENS = 8192 };

struct md_states_subject {
    const char *name;
    struct md_engine *
        engine; /* MD_STATES_CELLS cells, one sequence or more, batches of MD_STATES_BATCH; md_states_watch'ed */
    struct md_text *text;
    const md_token
        *tokens; /* MD_STATES_TOKENS of them, none of which ends an answer, and their neighbours (x ^ 1) */
    md_token end;
    float tolerance; /* of its logits; 0: exact */
};

/* Before the engine is put into a subject: the suite sees its logits from then on. */
void md_states_watch(struct md_engine **engine);
/* Returns the number of failures. */
int md_states_run(const struct md_states_subject *subject);

#endif
