/* retrieve_back.h - a question is evaluated, taken back and evaluated again (session/retrieve.h), on engines whose windowed or
 * recurrent layers keep the end of a sequence only, and on others.
 *
 * The right values are logits of what was evaluated once, in a run in which nothing was ever taken back.  Asserts with libcheck. */
#ifndef MD_TESTS_RETRIEVE_BACK_H
#define MD_TESTS_RETRIEVE_BACK_H

#include "engine/engine.h"
#include "text/text.h"

enum { MD_RETRIEVE_BACK_CELLS = 320, MD_RETRIEVE_BACK_BATCH = 64 };

/* e     at least MD_RETRIEVE_BACK_CELLS cells, batches of MD_RETRIEVE_BACK_BATCH, scores of attention; empty; taken over
 * text  stays the caller's
 * tolerance  of logits */
void md_retrieve_back_check(struct md_engine *e, struct md_text *text, const char *name, float tolerance);

#endif
