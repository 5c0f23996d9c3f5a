/* talker.h - a session on a real engine, for tests that talk in tokens: greedy answers, what the sink saw, and
 * how sure each step was. */
#ifndef MD_TESTS_TALKER_H
#define MD_TESTS_TALKER_H

#include "session/pool.h"

enum { TALKER_STEPS_MAX = 1024 };

struct talker {
    struct md_engine *engine; /* borrowed */
    struct md_text *text;     /* borrowed */
    struct md_pool *pool;
    struct md_session *session; /* the first of it */
    struct md_pool_config config;
    struct md_result last; /* of talker_ask; freed by the next and by talker_close */
    struct md_err err;
    int32_t cells_max; /* most cells used at any progress call, since open */
    size_t cold_max;   /* most bytes in the cold store, likewise */
    int progress_calls;
    bool broken;        /* an invariant did not hold at some progress call */
    md_token banned[4]; /* end tokens that cannot come */
    int banned_count;
    /* The decode steps of the last request, as talker_watch sees them: gap of the best two logits. */
    float gap[TALKER_STEPS_MAX];
    int steps;
    float *logits; /* NULL, or room for those of its first logits_steps steps */
    int logits_steps;
};

/* Wrap the engine so that t sees its logits; before talker_open, once for each engine.  t must outlive it. */
void talker_watch(struct talker *t, struct md_engine **engine);
void talker_open(struct talker *t, struct md_engine *engine, struct md_text *text,
                 struct md_pool_config config);
void talker_close(struct talker *t);
/* One greedy request; its counters are checked.  Its result in t->last. */
enum md_status talker_ask(struct talker *t, const md_token *prompt, int32_t count, int32_t max_tokens);

#endif
