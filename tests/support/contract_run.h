/* contract_run.h - the hands of the scenarios of contract_suite.h: one pool over the subject's engine, the
 * conversation that is spoken to, and the proof of its answers. */
#ifndef MD_TESTS_CONTRACT_RUN_H
#define MD_TESTS_CONTRACT_RUN_H

#include "session/pool.h"
#include "support/contract_suite.h"
#include "support/fault_engine.h"

#include <check.h>

enum {
    CT_BLOCK = 16,
    CT_CHECKPOINT = 64,
    CT_RECENT = 32,
    CT_ANSWER = 8,
    CT_WINDOW = 512,
    CT_KEEP_ALL = 64 << 20,
    CT_TALK_TOKENS = 1024,
    CT_TALKS = 6
};

struct ct {
    const struct md_contract_subject *subject;
    struct md_engine *engine; /* the subject's, under a wrapper that fails on request and one that listens */
    struct md_fault fault;
    struct md_pool *pool;
    struct md_pool_config config;
    struct md_session *s;         /* the one that is spoken to */
    struct md_result last;        /* of ct_ask and ct_decode */
    struct md_prefill_status did; /* of ct_ensure and ct_suffix */
    struct md_err err;
    int32_t cells_max; /* most cells used at any progress call since ct_open */
    bool broken;       /* an invariant did not hold at some progress call */
};
extern struct ct ct;

/* Sinks 16, recent CT_RECENT, checkpoints CT_CHECKPOINT apart, as much cold store as is wanted. */
struct md_pool_config ct_config(int32_t window, int32_t hot, size_t cold_bytes);
/* A pool with one conversation. */
void ct_open(struct md_pool_config config);
/* Close it, and prove what was answered: see contract_suite.h. */
void ct_close(void);
struct md_session *ct_new(void);
/* The engine has a tail state: a cut goes back to the last checkpoint before it, where the engine cannot be cut at once. */
bool ct_goes_back(void);
/* What had to be prefilled where `want` tokens are new: those, and where it goes back what stands between a checkpoint and
 * them. */
void ct_costs(int32_t prefilled, int32_t want);
/* A tail state is all it has. */
bool ct_is_whole(void);
/* A hot set of `hot`, and what a window needs that is wider than CT_RECENT. */
int32_t ct_hot(int32_t hot);
/* A real model takes minutes: of many cases that differ little, some. */
bool ct_is_slow(void);
/* And with one sequence, where each turn is a switch, half of them say as much. */
bool ct_half_will_do(void);
const md_token *ct_text(int32_t from);

/* ---- one conversation: the calls on ct.s, greedy; counters and invariants are checked after each ---- */

enum md_status ct_ask(const md_token *prompt, int32_t count, int32_t answer);
enum md_status ct_ensure(const md_token *tokens, int32_t count);
enum md_status ct_suffix(const md_token *tokens, int32_t count);
enum md_status ct_decode(int32_t answer);
/* Asserts MD_OK and shows the error. */
#define CT_OK(call) ct_assert_ok((call), #call)
void ct_assert_ok(enum md_status s, const char *call);
/* Asserts that the error names both. */
void ct_says(const char *a, const char *b);
/* The last answer attended all there was, computed over all there was: it will be proven. */
bool ct_is_full(void);
int32_t ct_context_count(void);
int32_t ct_evict(int32_t start, int32_t end); /* returns the tokens that left */
int32_t ct_admit(int32_t start, int32_t end); /* returns the tokens that are hot */
struct md_block_view ct_block(int32_t position);
/* KV of [0, count) of the pool's first conversation, block by block; md_buf_done. */
struct md_buf ct_export(int32_t count);
void ct_same_bytes(struct md_buf *before, struct md_buf *after); /* frees both */

/* ---- several ---- */

struct ct_talk {
    struct md_session *s;
    md_token said[CT_TALK_TOKENS];
    int32_t count;
};
/* Begin with the first `count` tokens of the subject; number 0 is the pool's first conversation. */
struct ct_talk *ct_talk_open(int number, int32_t count);
/* Say `count` tokens of the subject more and hear CT_ANSWER, which join; returns ct_is_full. */
bool ct_say(struct ct_talk *t, int32_t count, int32_t from);

#endif
