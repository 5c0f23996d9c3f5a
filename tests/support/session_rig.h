/* session_rig.h - a session on the fake engine, with real logits, for tests that talk in tokens. */
#ifndef MD_TESTS_SESSION_RIG_H
#define MD_TESTS_SESSION_RIG_H

#include "session/pool.h"
#include "support/fault_engine.h"

enum { RIG_TOKENS_MAX = 1 << 16 };

struct rig {
    struct md_fake_model *model;
    struct md_engine *engine;
    struct md_text *text;
    struct md_pool *pool;
    struct md_session *session; /* the first of it */
    struct md_fault fault;      /* faults of the engine: set it between requests */
    struct md_pool_config config;
    struct md_result last; /* of rig_ask; freed by the next and by rig_close */
    struct md_err err;
    /* what the sink saw */
    int progress_calls;
    int32_t hot_max;  /* the most cells ever used, as seen at each progress call */
    bool broken;      /* an invariant did not hold at some progress call */
    int cancel_after; /* polls until the sink cancels; -1: never */
};

/* Small figures: block 16, sinks 16, recent 32.  hot == 0: residency off with `window` cells. */
struct md_pool_config rig_config(int32_t window, int32_t hot, size_t cold_bytes);
/* Opens or fails the test. caps_off: as md_fake_options. */
void rig_open(struct rig *r, struct md_pool_config config, unsigned caps_off);
/* As above, but gives the status of md_pool_open. */
enum md_status rig_try_open(struct rig *r, struct md_pool_config config, unsigned caps_off);
void rig_close(struct rig *r);

/* One greedy request; its result in r->last.  The rig's end token is banned unless may_end. */
enum md_status rig_ask(struct rig *r, const md_token *prompt, int32_t count, int32_t max_tokens,
                       bool may_end);
/* count tokens that depend on `seed` alone. */
void rig_tokens(md_token *out, int32_t count, uint32_t seed);
/* The greedy answer of a session that never evicts and has seen nothing else. */
void rig_fresh_answer(const md_token *prompt, int32_t count, int32_t max_tokens, md_token *out);

#endif
