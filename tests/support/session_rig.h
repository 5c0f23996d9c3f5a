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
    struct md_result last;        /* of rig_ask and rig_decode; freed by the next and by rig_close */
    struct md_prefill_status did; /* of rig_ensure and rig_suffix */
    struct md_err err;
    /* what the sink saw */
    int progress_calls;
    struct md_progress progress; /* the last one */
    int32_t hot_max;             /* the most cells ever used, as seen at each progress call */
    bool broken;                 /* an invariant did not hold at some progress call */
    int cancel_after;            /* polls until the sink cancels; -1: never */
    /* the front's: notes that come with each request, and what each answer adds to them; NULL: none */
    const char *notes, *adds;
};

/* What the fake engine's model has: attention that sees everything; windows of 32 tokens, or recurrent layers, in every
 * second layer; or one of these in all of them.  All but the first have a tail state (engine.h). */
enum rig_model { RIG_DENSE, RIG_WINDOWED, RIG_HYBRID, RIG_WINDOWS_ALONE, RIG_RECURRENT, RIG_MODEL_COUNT };
/* For all rigs opened from now on in this process, those of rig_fresh_answer too; RIG_DENSE at the start. */
void rig_use_model(enum rig_model model);
const char *rig_model_name(enum rig_model model);
/* Likewise, an engine of another name, whose KV of the same model is another's; NULL: "fake". */
void rig_use_engine(const char *name);

/* Small figures: block 16, sinks 16, recent 32, checkpoints 64 apart.  hot == 0: residency off with `window` cells.  Opened with
 * retrieval on, the engine gives scores of attention. */
struct md_pool_config rig_config(int32_t window, int32_t hot, size_t cold_bytes);
/* Opens or fails the test. caps_off: as md_fake_options. */
void rig_open(struct rig *r, struct md_pool_config config, unsigned caps_off);
/* On an engine with so many sequences. */
void rig_open_seqs(struct rig *r, struct md_pool_config config, unsigned caps_off, int32_t seq_count);
/* On one whose model was trained for so many tokens; 0: it does not say.  Gives the status of md_pool_open. */
enum md_status rig_try_open_trained(struct rig *r, struct md_pool_config config, unsigned caps_off,
                                    int32_t seq_count, int32_t trained_tokens);
/* As above, but gives the status of md_pool_open. */
enum md_status rig_try_open(struct rig *r, struct md_pool_config config, unsigned caps_off);
void rig_close(struct rig *r);
/* Another conversation. */
struct md_session *rig_new(struct rig *r);

/* One greedy request; its result in r->last.  The rig's end token is banned unless may_end. */
enum md_status rig_ask(struct rig *r, const md_token *prompt, int32_t count, int32_t max_tokens,
                       bool may_end);
/* The same with segments. */
enum md_status rig_ask_segments(struct rig *r, const struct md_context *prompt, int32_t max_tokens);
/* The calls of the contract on r->session, greedy, with the rig's sink. */
enum md_status rig_ensure(struct rig *r, const md_token *tokens, int32_t count);
enum md_status rig_suffix(struct rig *r, const md_token *tokens, int32_t count);
enum md_status rig_decode(struct rig *r, int32_t max_tokens);
/* What a call that fails may not change, of r->session and of another conversation; and that it did not. */
struct rig_seen {
    struct md_session *other;
    struct md_session_status s[2];
    struct md_pool_status pool;
};
struct rig_seen rig_look(const struct rig *r, struct md_session *other);
void rig_check_same(const struct rig *r, const struct rig_seen *before);
/* The keys of block i of one layer as its KV has them, hot or cold: [key heads][tokens][length]. */
void rig_block_keys(const struct rig *r, int32_t layer, size_t i, uint16_t *out);
/* count tokens that depend on `seed` alone. */
void rig_tokens(md_token *out, int32_t count, uint32_t seed);
/* The greedy answer of a session that never evicts and has seen nothing else. */
void rig_fresh_answer(const md_token *prompt, int32_t count, int32_t max_tokens, md_token *out);

/* ---- several conversations ---- */

enum { RIG_TALK_TOKENS = 4096, RIG_ANSWER_MAX = 64 };

/* One of them, and what was said in it. */
struct rig_talk {
    struct md_session *s;
    md_token tokens[RIG_TALK_TOKENS];
    int32_t count;
};
/* Say `count` more tokens, those of rig_tokens(seed), and hear the answer, which joins t.  Where the KV is full
 * (rig_is_full) it is that of a fresh run.  Fails the test when it is not, or when the request fails.
 * Returns whether it was compared. */
bool rig_say(struct rig *r, struct rig_talk *t, int32_t count, uint32_t seed, int32_t answer);
/* The last request attended all there is, computed over all there was: exact. */
bool rig_is_full(const struct rig *r, const struct md_session *s);

#endif
