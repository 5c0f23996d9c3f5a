/* contract_run.c - see contract_run.h.  A failed assert leaves the scenario at once; what it had allocated is then
 * lost, but for the pool, which the next one must not find. */
#include "support/contract_run.h"

#include "policy/prefix.h"
#include "support/run_suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES_MAX = 64, MAP_MAX = 128, KV_LIMIT_BYTES = 64 << 20 };

struct ct ct;

/* ---- what was answered ---- */

struct note {
    md_token *prompt;
    int32_t count, steps;
    md_token answer[CT_ANSWER];
    float *logits; /* of each step */
};
static struct note notes[NOTES_MAX];
static int note_count;

/* The steps of the request that runs. */
static struct {
    int32_t steps;
    float *logits;
} heard;

/* Over all scenarios, to be told at the end. */
static struct {
    int answers, steps, sure;
    float worst, least_changed; /* least_changed: the widest gap at which another token was best */
} proven;

static size_t vocab(void)
{
    return (size_t)md_engine_info(ct.engine)->vocab_count;
}

static void after_call(void *user, const struct md_engine_call *call, enum md_status status,
                       int64_t elapsed_ns)
{
    (void)user, (void)elapsed_ns;
    if (call->op != MD_OP_DECODE || status != MD_OK)
        return;
    if (heard.steps < CT_ANSWER)
        memcpy(heard.logits + (size_t)heard.steps * vocab(), *call->logits, vocab() * sizeof(float));
    heard.steps++;
}

static void *checked(void *p)
{
    ck_assert_ptr_nonnull(p);
    return p;
}

static void note_answer(const md_token *prompt, int32_t count)
{
    const size_t bytes = (size_t)heard.steps * vocab() * sizeof(float);
    ck_assert_int_lt(note_count, NOTES_MAX);
    struct note *n = &notes[note_count++];
    *n = (struct note){ .count = count, .steps = heard.steps };
    n->prompt = checked(malloc((size_t)count * sizeof *prompt));
    n->logits = checked(malloc(bytes));
    memcpy(n->prompt, prompt, (size_t)count * sizeof *prompt);
    memcpy(n->logits, heard.logits, bytes);
    memcpy(n->answer, ct.last.tokens.ids, (size_t)heard.steps * sizeof *n->answer);
}

static void forget_notes(void)
{
    for (int i = 0; i < note_count; i++) {
        free(notes[i].prompt);
        free(notes[i].logits);
    }
    note_count = 0;
}

static bool is_end(md_token token)
{
    for (int i = 0; i < ct.subject->end_count; i++)
        if (ct.subject->ends[i] == token)
            return true;
    return false;
}

static md_token best_of(const float *logits, float *ret_gap)
{
    float best = -INFINITY, second = -INFINITY;
    md_token token = -1;
    for (md_token i = 0; i < (md_token)vocab(); i++) {
        if (is_end(i))
            continue;
        if (logits[i] > best) {
            second = best;
            best = logits[i];
            token = i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    *ret_gap = best - second;
    return token;
}

static void prove_step(const struct note *n, int32_t step, const float *want)
{
    const float *got = n->logits + (size_t)step * vocab();
    float worst = 0, gap, ignored;
    for (size_t i = 0; i < vocab(); i++)
        worst = fmaxf(worst, fabsf(got[i] - want[i]));
    const md_token dense = best_of(want, &gap), had = best_of(got, &ignored);
    proven.steps++;
    proven.worst = fmaxf(proven.worst, worst);
    if (dense != had)
        proven.least_changed = fmaxf(proven.least_changed, gap);
    if (ct.subject->tolerance >= 0) {
        ck_assert_msg(worst <= ct.subject->tolerance, "step %d behind %d tokens: logits differ by %g", step,
                      n->count, (double)worst);
        proven.sure++;
    } else if (gap > ct.subject->sure_gap) {
        ck_assert_msg(dense == had, "step %d behind %d tokens: token %d, dense %d by %g", step, n->count, had,
                      dense, (double)gap);
        proven.sure++;
    }
}

/* Nothing of the session takes part in this: the engine alone, each text in one go or behind what it has in common
 * with the one before. */
static struct {
    struct md_engine *engine;
    md_token tokens[CT_TALK_TOKENS];
    int32_t count;
} dense;

static const float *dense_step(md_token token)
{
    const float *logits = NULL;
    CT_OK(md_engine_decode(dense.engine, 0, dense.count, &token, 1, &logits, &ct.err));
    dense.tokens[dense.count++] = token;
    return logits;
}

static int32_t common_with(const struct note *n)
{
    int32_t common =
        (int32_t)md_prefix_common(dense.tokens, (size_t)dense.count, n->prompt, (size_t)n->count - 1);
    return md_engine_cut_point(dense.engine, 0, common);
}

static void dense_cut(int32_t count)
{
    CT_OK(md_engine_truncate(dense.engine, 0, count, &ct.err));
    dense.count = count;
}

static void prove(const struct note *n)
{
    const int32_t batch = md_engine_info(dense.engine)->batch_tokens;
    dense_cut(common_with(n));
    while (dense.count < n->count - 1) {
        int32_t left = n->count - 1 - dense.count, count = left < batch ? left : batch;
        CT_OK(md_engine_prefill(dense.engine, 0, dense.count, n->prompt + dense.count, count, &ct.err));
        memcpy(dense.tokens + dense.count, n->prompt + dense.count, (size_t)count * sizeof *dense.tokens);
        dense.count += count;
    }
    prove_step(n, 0, dense_step(n->prompt[n->count - 1]));
    for (int32_t step = 1; step < n->steps; step++)
        prove_step(n, step, dense_step(n->answer[step - 1]));
    proven.answers++;
}

static void prove_all(void)
{
    bool done[NOTES_MAX] = { false };
    const int sure_before = proven.sure, steps_before = proven.steps;
    for (int round = 0; round < note_count; round++) {
        int next = -1;
        for (int i = 0; i < note_count; i++) /* the one that is cheapest now */
            if (!done[i] && (next < 0 || common_with(&notes[i]) > common_with(&notes[next])))
                next = i;
        done[next] = true;
        prove(&notes[next]);
    }
    if (dense.engine == ct.engine)
        dense_cut(0);
    ck_assert_msg(4 * (proven.sure - sure_before) >= proven.steps - steps_before,
                  "of %d steps %d were sure: too few to prove anything", proven.steps - steps_before,
                  proven.sure - sure_before);
    forget_notes();
}

/* ---- the pool ---- */

void ct_assert_ok(enum md_status s, const char *call)
{
    ck_assert_msg(s == MD_OK, "%s: %s: %s", call, md_status_name(s), ct.err.text);
}

struct md_pool_config ct_config(int32_t window, int32_t hot, size_t cold_bytes)
{
    return (struct md_pool_config){ .window_tokens = window,
                                    .hot_tokens = hot,
                                    .residency = true,
                                    .block_tokens = CT_BLOCK,
                                    .sink_tokens = 16,
                                    .recent_tokens = CT_RECENT,
                                    .cold_bytes = cold_bytes,
                                    .checkpoint_tokens = CT_CHECKPOINT };
}

static void forget_last(void)
{
    md_result_done(&ct.last);
    ct.last = (struct md_result){ 0 };
}

void ct_open(struct md_pool_config config)
{
    ct.config = config;
    ct.cells_max = 0;
    CT_OK(md_pool_open(&ct.config, ct.engine, ct.subject->text, &ct.pool, &ct.err));
    ct.s = ct_new();
}

static void close_pool(void)
{
    forget_last();
    md_pool_close(ct.pool);
    ct.pool = NULL;
    ct.s = NULL;
}

void ct_close(void)
{
    close_pool();
    ck_assert_int_eq(md_engine_cells_used(ct.engine), 0);
    prove_all();
}

struct md_session *ct_new(void)
{
    struct md_session *s = NULL;
    CT_OK(md_pool_new(ct.pool, &s, &ct.err));
    return s;
}

bool ct_goes_back(void)
{
    return (md_engine_caps(ct.engine) & MD_CAP_CHECKPOINT) != 0;
}

void ct_costs(int32_t prefilled, int32_t want)
{
    const int32_t most = want + (ct_goes_back() ? CT_CHECKPOINT : 0);
    ck_assert_msg(prefilled >= want && prefilled <= most, "%d tokens prefilled, not %d%s", prefilled, want,
                  ct_goes_back() ? " and those behind a checkpoint" : "");
}

bool ct_is_whole(void)
{
    return ct_goes_back() && !(md_engine_caps(ct.engine) & MD_CAP_COLD_STORE);
}

int32_t ct_hot(int32_t hot)
{
    const struct md_engine_info *i = md_engine_info(ct.engine);
    const int32_t window = i->window_tokens > 0 ? i->window_tokens + i->ubatch_tokens : 0;
    const int32_t recent = (window + CT_BLOCK - 1) / CT_BLOCK * CT_BLOCK;
    return recent > CT_RECENT ? hot + recent - CT_RECENT : hot;
}

bool ct_is_slow(void)
{
    return ct.subject->slow;
}

bool ct_half_will_do(void)
{
    return ct_is_slow() && md_engine_info(ct.engine)->seq_count == 1;
}

const md_token *ct_text(int32_t from)
{
    return ct.subject->tokens + from;
}

/* ---- the calls ---- */

static void on_progress(void *user, const struct md_progress *p)
{
    const int32_t cells = md_engine_cells_used(ct.engine);
    (void)user;
    ct.cells_max = cells > ct.cells_max ? cells : ct.cells_max;
    ct.broken = ct.broken || !md_pool_check(ct.pool) || p->cached + p->processed > p->total;
}

static const struct md_sink sink = { .progress = on_progress };

static struct md_decode greedy(int32_t answer)
{
    static struct md_logit_bias bans[MD_CONTRACT_ENDS];
    struct md_decode d = { .max_tokens = answer, .sample = md_sample_defaults() };
    for (int i = 0; i < ct.subject->end_count; i++)
        bans[i] = (struct md_logit_bias){ .token = ct.subject->ends[i], .bias = -1e9f };
    d.sample.temperature = 0;
    d.sample.bias = bans;
    d.sample.bias_count = (size_t)ct.subject->end_count;
    return d;
}

/* What holds of the counters of every call. */
static void check_counters(const struct md_result *l)
{
    ck_assert_msg(!ct.broken, "an invariant did not hold while the request ran");
    ck_assert_msg(md_pool_check(ct.pool), "an invariant does not hold after the request");
    ck_assert_int_le(l->restored, l->cached);
    ck_assert_int_le(l->moved, l->restored);
    ck_assert_int_le(l->lost, l->cached);
    ck_assert_int_le(l->recomputed, l->prefilled);
    ck_assert_int_le(l->hot, l->hot_limit);
    ck_assert_int_le(l->attended, l->hot_limit);
    ck_assert_int_le(ct.cells_max, ct.config.hot_tokens);
    ck_assert_int_le(md_engine_cells_used(ct.engine), ct.config.hot_tokens);
}

bool ct_is_full(void)
{
    struct md_session_status st = md_session_status(ct.s);
    return ct.last.attended == ct.last.prompt && st.tokens_of[MD_PROVENANCE_FULL] == st.tape_tokens;
}

static enum md_status answered(enum md_status s, const md_token *prompt, int32_t count, int32_t answer)
{
    const struct md_result *l = &ct.last;
    check_counters(l);
    if (s != MD_OK)
        return s;
    ck_assert_int_eq(l->prompt, count);
    ck_assert_int_eq(l->cached + l->prefilled, count);
    ck_assert_int_eq((int)l->tokens.count, l->completion);
    ck_assert_int_le(l->completion, answer);
    if (answer > 0) /* the last token of the prompt, and all of the answer but its last */
        ck_assert_int_eq(heard.steps, l->completion);
    if (ct_is_full() && l->completion > 0 && l->completion <= CT_ANSWER)
        note_answer(prompt, count);
    return s;
}

enum md_status ct_ask(const md_token *prompt, int32_t count, int32_t answer)
{
    const struct md_request q = { .prompt = { .tokens = prompt, .count = count }, .decode = greedy(answer) };
    forget_last();
    heard.steps = 0;
    return answered(md_session_run(ct.s, &q, &sink, &ct.last, &ct.err), prompt, count, answer);
}

enum md_status ct_decode(int32_t answer)
{
    static md_token context[CT_TALK_TOKENS]; /* what was said before the answer joined it */
    const struct md_decode d = greedy(answer);
    int32_t count;
    const md_token *now = md_session_context(ct.s, &count);
    ck_assert_int_le(count, CT_TALK_TOKENS);
    if (count > 0)
        memcpy(context, now, (size_t)count * sizeof *context);
    forget_last();
    heard.steps = 0;
    return answered(md_session_decode(ct.s, &d, &sink, &ct.last, &ct.err), context, count, answer);
}

static enum md_status prefilled(enum md_status s)
{
    if (s != MD_OK)
        return s;
    check_counters(&ct.did.work);
    ck_assert_int_eq(ct.did.resident, ct_context_count());
    ck_assert_int_eq(ct.did.resident + ct.did.available, ct.config.window_tokens);
    return s;
}

enum md_status ct_ensure(const md_token *tokens, int32_t count)
{
    const struct md_context c = { .tokens = tokens, .count = count };
    return prefilled(md_session_ensure_prefix(ct.s, &c, false, &sink, &ct.did, &ct.err));
}

enum md_status ct_suffix(const md_token *tokens, int32_t count)
{
    const struct md_context c = { .tokens = tokens, .count = count };
    return prefilled(md_session_prefill_suffix(ct.s, &c, -1, &sink, &ct.did, &ct.err));
}

void ct_says(const char *a, const char *b)
{
    ck_assert_msg(strstr(ct.err.text, a) != NULL && strstr(ct.err.text, b) != NULL, "%s", ct.err.text);
}

int32_t ct_context_count(void)
{
    int32_t count;
    (void)md_session_context(ct.s, &count);
    return count;
}

int32_t ct_evict(int32_t start, int32_t end)
{
    int32_t tokens = -1;
    CT_OK(md_session_evict_range(ct.s, (struct md_range){ start, end }, &tokens, &ct.err));
    ck_assert(md_pool_check(ct.pool));
    return tokens;
}

int32_t ct_admit(int32_t start, int32_t end)
{
    int32_t tokens = -1;
    CT_OK(md_session_admit_range(ct.s, (struct md_range){ start, end }, &tokens, &ct.err));
    ck_assert(md_pool_check(ct.pool));
    return tokens;
}

struct md_block_view ct_block(int32_t position)
{
    static struct md_block_view map[MAP_MAX];
    size_t count = md_session_map(ct.s, map, MAP_MAX), i = (size_t)(position / CT_BLOCK);
    ck_assert_uint_lt(i, count);
    ck_assert_uint_le(count, MAP_MAX);
    return map[i];
}

struct md_buf ct_export(int32_t count)
{
    struct md_buf kv;
    md_buf_init(&kv, NULL, KV_LIMIT_BYTES);
    for (int32_t at = 0; at < count; at += CT_BLOCK) {
        struct md_range block = { at, at + CT_BLOCK < count ? at + CT_BLOCK : count };
        CT_OK(md_engine_export_range(ct.engine, 0, block, &kv, &ct.err));
    }
    return kv;
}

void ct_same_bytes(struct md_buf *before, struct md_buf *after)
{
    ck_assert_uint_gt(before->len, 0);
    ck_assert_uint_eq(before->len, after->len);
    ck_assert_msg(memcmp(before->data, after->data, before->len) == 0, "the KV is not what it was");
    md_buf_done(before);
    md_buf_done(after);
}

/* ---- several ---- */

struct ct_talk *ct_talk_open(int number, int32_t count)
{
    static struct ct_talk talks[CT_TALKS];
    ck_assert_int_lt(number, CT_TALKS);
    struct ct_talk *t = &talks[number];
    t->s = number == 0 ? ct.s : ct_new();
    t->count = count;
    memcpy(t->said, ct_text(0), (size_t)count * sizeof *t->said);
    return t;
}

bool ct_say(struct ct_talk *t, int32_t count, int32_t from)
{
    ck_assert_int_le(t->count + count + CT_ANSWER, CT_TALK_TOKENS);
    memcpy(t->said + t->count, ct_text(from), (size_t)count * sizeof *t->said);
    t->count += count;
    ct.s = t->s;
    CT_OK(ct_ask(t->said, t->count, CT_ANSWER));
    ck_assert_int_eq(ct.last.completion, CT_ANSWER);
    memcpy(t->said + t->count, ct.last.tokens.ids, CT_ANSWER * sizeof *t->said);
    t->count += CT_ANSWER;
    return ct_is_full();
}

/* ---- the table ---- */

static const struct {
    TTest test;
    unsigned caps;
} scenarios[] = {
#define X(name, caps) { { #name, md_contract_##name, __FILE__, __LINE__ }, (unsigned)(caps) },
    MD_CONTRACT_LIST(X)
#undef X
};

static void before_scenario(void)
{
    md_run_timed_begin();
    ct.fault = (struct md_fault){ 0 };
    ct.broken = false;
}

static void after_scenario(void) /* also one that failed */
{
    if (ct_is_slow())
        md_run_timed_end();
    if (ct.pool != NULL)
        close_pool();
    forget_notes();
}

static unsigned what_it_has(void)
{
    const bool small = ct_hot(96) <= 128, hands_over = (md_engine_caps(ct.engine) & MD_CAP_SHARE) ||
                                                       md_engine_info(ct.engine)->seq_count == 1;
    const bool keeps = (md_engine_caps(ct.engine) & (MD_CAP_COLD_STORE | MD_CAP_CHECKPOINT)) != 0;
    return md_engine_caps(ct.engine) | (keeps ? MD_CONTRACT_KEEPS : 0u) |
           (small ? MD_CONTRACT_SMALL_HOT : 0u) | (hands_over ? MD_CONTRACT_TAKES_OVER : 0u);
}

static Suite *suite_of(const struct md_contract_subject *subject)
{
    const unsigned has = what_it_has();
    char text[160];
    Suite *suite = suite_create(subject->name);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        const unsigned missing = scenarios[i].caps & ~has;
        if (missing != 0) {
            md_engine_caps_text(missing, text, sizeof text);
            printf("# %s: left out, the engine lacks %s%s%s%s\n", scenarios[i].test.name, text,
                   missing & MD_CONTRACT_KEEPS ? " a way to keep what leaves" : "",
                   missing & MD_CONTRACT_SMALL_HOT ? " windows that fit a small hot set" : "",
                   missing & MD_CONTRACT_TAKES_OVER ? " a way to hand over what is hot" : "");
            continue;
        }
        TCase *tcase = tcase_create(scenarios[i].test.name); /* so that CK_RUN_CASE=NAME runs one */
        suite_add_tcase(suite, tcase);
        tcase_add_checked_fixture(tcase, before_scenario, after_scenario);
        _tcase_add_test(tcase, &scenarios[i].test, 0, 0, 0, 1);
    }
    return suite;
}

int md_contract_run(const struct md_contract_subject *subject)
{
    const struct md_engine_hooks hooks = { .after = after_call };
    ct = (struct ct){ .subject = subject };
    memset(&proven, 0, sizeof proven);
    dense.count = 0;
    enum md_status s = md_fault_open(subject->engine, &ct.fault, &ct.engine, &ct.err);
    if (s == MD_OK)
        s = md_engine_wrap(ct.engine, &hooks, &ct.engine, &ct.err);
    if (s != MD_OK) {
        fprintf(stderr, "%s: %s\n", subject->name, ct.err.text);
        return 1;
    }
    dense.engine = subject->dense != NULL ? subject->dense : ct.engine;
    const struct md_engine_info *info = md_engine_info(ct.engine);
    printf("# %s: %s; %d cells, %d sequences\n", subject->name, info->model, info->cell_count,
           info->seq_count);
    heard.logits = malloc(CT_ANSWER * vocab() * sizeof(float));
    /* where a tail state is saved and put back conversations take turns on one */
    const int32_t sequences = ct_goes_back() ? 1 : MD_CONTRACT_SEQUENCES;
    int failed = 1;
    if (heard.logits != NULL && info->cell_count >= MD_CONTRACT_CELLS && info->seq_count >= sequences)
        failed = md_run_suite_here(suite_of(subject));
    else
        fprintf(stderr, "%s: no memory, or the engine is too small for the scenarios\n", subject->name);
    printf("# %s: %d answers proven, %d steps, %d of them sure; logits differ by %g at most, another token "
           "was best "
           "by %g at most\n",
           subject->name, proven.answers, proven.steps, proven.sure, (double)proven.worst,
           (double)proven.least_changed);
    free(heard.logits);
    md_engine_close(ct.engine);
    md_engine_close(subject->dense);
    return failed;
}
