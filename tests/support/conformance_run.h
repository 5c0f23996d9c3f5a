/* conformance_run.h - the hands of the scenarios: each step is done on the engine under test, asserted to
 * succeed, and noted, so that the reference pass can say what the logits must be.
 *
 * Steps concern sequence 0; the token at position p is subject.tokens[p] unless said otherwise.  Scenarios of
 * several sequences call the engine themselves. */
#ifndef MD_TESTS_CONFORMANCE_RUN_H
#define MD_TESTS_CONFORMANCE_RUN_H

#include "support/conformance.h"

enum { MD_CONF_GREEDY_MAX = 64 };

/* The subject under test, and its engine. */
extern const struct md_subject *md_conf_subject;
struct md_engine *md_conf_engine(void);

void md_conf_begin(void); /* empty engine, no interrupt, empty notes */

/* A real model: no weights to compare with, and slow. */
bool md_conf_is_real(void);
/* By how much the window of the model is wider than 32 tokens, which those of the tiny models are and the positions
 * of the scenarios are made for; in whole steps of 32, 0 without windows.  What must lie in front of the last
 * window gets so many more tokens behind it. */
int32_t md_conf_wider(void);

/* Asserts MD_OK and shows err.text otherwise. */
#define MD_CONF_OK(call)                                                                          \
    do {                                                                                          \
        struct md_err err_ = { 0 };                                                               \
        struct md_err *err = &err_;                                                               \
        enum md_status status_ = (call);                                                          \
        ck_assert_msg(status_ == MD_OK, "%s: %s: %s", #call, md_status_name(status_), err->text); \
    } while (0)

/* ---- steps ---- */

void md_conf_prefill(int32_t from, int32_t to, int32_t chunk);
/* Other tokens than those of the subject at these positions, noted as well. */
void md_conf_prefill_tokens(int32_t start, const md_token *tokens, int32_t count, int32_t chunk);
void md_conf_truncate(int32_t from);
/* Exported bytes are appended to kv, a buffer of the scenario; NULL drops them. */
void md_conf_evict(struct md_range r, struct md_buf *kv);
void md_conf_admit(struct md_range r, struct md_bytes kv);
void md_conf_park(struct md_range r);
void md_conf_unpark(struct md_range r);
void md_conf_recompute(struct md_range r);
void md_conf_recompute_from(struct md_range r, struct md_bytes state);

/* ---- coming back ---- */

/* The end of a sequence and, where there is a tail state, that. */
struct md_conf_mark {
    md_seq seq;
    int32_t at;
    struct md_buf state; /* empty where a cut is enough */
};
struct md_conf_mark md_conf_mark(md_seq seq);
/* Forget what came since; the mark may be used again. */
void md_conf_return(struct md_conf_mark *m);
void md_conf_mark_done(struct md_conf_mark *m);
/* Of a model that rounds: put the windows of sequence 0 back once, after which they lie in the order of positions, as
 * they do after each probe; so that the first probe can be compared with the next to the bit. */
void md_conf_settle(void);

/* ---- looking ---- */

/* Logits after one more token at the end, which is then taken away again.  The caller frees them. */
float *md_conf_probe(void);
float *md_conf_probe_of(md_seq seq);
/* Compare a new probe with `want`. */
void md_conf_check_probe_of(md_seq seq, const float *want, float tolerance, const char *label);
/* Probe, and compare with the reference pass over exactly the hot entries (if the weights are known). */
void md_conf_check_reference(const char *label);
float md_conf_distance(const float *a, const float *b);
/* Asserts that two sets give clearly different logits: otherwise the scenario tests nothing. */
void md_conf_check_matters(const float *a, const float *b, const char *what);
md_token md_conf_best(const float *logits, float *ret_gap); /* gap between the best two */
struct md_conf_answer {
    int32_t count;
    md_token tokens[MD_CONF_GREEDY_MAX], seconds[MD_CONF_GREEDY_MAX]; /* the best two */
    float gaps
        [MD_CONF_GREEDY_MAX]; /* between them; where another answer is followed, between that one's best two */
};
/* `count` greedy tokens from the next subject token on; the engine is then as before. */
struct md_conf_answer md_conf_greedy(int32_t count);
/* What would be chosen at each step of `other`, whose tokens are fed: so one step where both choices are
 * right does not end the comparison. */
struct md_conf_answer md_conf_follow(const struct md_conf_answer *other);
/* The most that the gap of a step is another in `b`, which followed `a`. */
float md_conf_gap_moved(const struct md_conf_answer *a, const struct md_conf_answer *b);
/* Equal at each step where the best two of `want` are more than `gap` apart; there must be `least` such. */
void md_conf_check_answers(const struct md_conf_answer *want, const struct md_conf_answer *got, float gap,
                           int32_t least, const char *label);

/* How far logits may differ after cells moved: the tolerance of the subject or, on a model that rounds, the
 * largest spread of three batchings of about [0, end), measured once.  The scenario begins
 * with it: the engine is empty afterwards. */
float md_conf_moved_tolerance(int32_t end);
/* Before the first scenario of another engine. */
void md_conf_forget_measured(void);
/* The same for the gaps of `said`, which was generated behind [0, end): how far they may be others where the tokens before
 * were computed in other calls.  What was in the engine is then gone. */
float md_conf_gap_tolerance(int32_t end, const struct md_conf_answer *said);

/* The state that a failed call must leave alone. */
struct md_conf_state {
    int32_t end, cells_used;
    uint64_t map; /* hash of which positions are hot */
    float *logits;
};
struct md_conf_state md_conf_remember(void);
/* Asserts that everything is as remembered; frees it. */
void md_conf_check_unchanged(struct md_conf_state *before, const char *label);

#endif
