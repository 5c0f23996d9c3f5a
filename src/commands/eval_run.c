/* eval_run.c - policies of `modeld eval`, the model open for one of them, and one unit of it.  See eval.h. */
#include "commands/eval_ask.h"
#include "commands/eval_dump.h"

#include "commands/sizing.h"

#include <assert.h>
#include <stdlib.h>

enum { ARENA_BYTES_MAX = 4 << 20 };
/* Around a haystack, and of each question, with what a template puts around it; the exact model has one token a byte. */
enum { AROUND_TOKENS = 512, QUESTION_TOKENS = 384 };

/* ---- policies ---- */

static void by_place(struct md_pool_config *config)
{
    config->evict = MD_EVICT_RECENCY;
    config->retrieval = MD_RETRIEVAL_OFF;
}

static void with_retrieval(struct md_pool_config *config)
{
    config->evict = MD_EVICT_RECENCY;
    config->retrieval = MD_RETRIEVAL_AUTO;
}

static void by_attention(struct md_pool_config *config)
{
    config->evict = MD_EVICT_ATTENTION;
    config->retrieval = MD_RETRIEVAL_OFF;
}

static void by_attention_with_retrieval(struct md_pool_config *config)
{
    config->evict = MD_EVICT_ATTENTION;
    config->retrieval = MD_RETRIEVAL_AUTO;
}

/* --dump: the policy, but with all heads scored. */
static void dump_with_retrieval(struct md_pool_config *config)
{
    with_retrieval(config);
    md_eval_dump_configure(config);
}

static void dump_by_attention_with_retrieval(struct md_pool_config *config)
{
    by_attention_with_retrieval(config);
    md_eval_dump_configure(config);
}

static const char needs_scores[] = "scores of attention for this model and KV type";

const struct md_eval_policy md_eval_policies[] = {
    { .name = "dense", .all_hot = true, .by_place = true, .configure = by_place },
    { .name = "t1", .by_place = true, .configure = by_place },
    { .name = "t1-retrieval",
      .caps = MD_CAP_ATTENTION_SCORES,
      .needs = needs_scores,
      .retrieves = true,
      .configure = with_retrieval,
      .configure_dump = dump_with_retrieval },
    { .name = "t2", .caps = MD_CAP_ATTENTION_SCORES, .needs = needs_scores, .configure = by_attention },
    { .name = "t2-retrieval",
      .caps = MD_CAP_ATTENTION_SCORES,
      .needs = needs_scores,
      .retrieves = true,
      .configure = by_attention_with_retrieval,
      .configure_dump = dump_by_attention_with_retrieval },
    { .name = NULL },
};

/* ---- the order of things ---- */

int md_eval_unit_count(const struct md_eval_settings *s)
{
    return s->policy_count * s->length_count * s->trials * s->depth_count;
}

struct md_eval_unit md_eval_unit_at(const struct md_eval_settings *s, int i)
{
    struct md_eval_unit u = { .depth = i % s->depth_count };
    i /= s->depth_count;
    u.trial = i % s->trials;
    i /= s->trials;
    u.length = i % s->length_count;
    u.policy = i / s->length_count;
    return u;
}

int md_eval_item_count(const struct md_eval_settings *s)
{
    return s->all_orders ? s->needles * s->needles : s->needles;
}

int md_eval_asked(const struct md_eval_settings *s, int order, int turn)
{
    return (order + turn) % s->needles;
}

const char *md_eval_asking_name(enum md_eval_asking how)
{
    static const char *const names[] = { "turns", "alone", "together" };
    assert((unsigned)how < MD_EVAL_ASKING_COUNT);
    return names[how];
}

void md_eval_result_done(struct md_eval_result *r)
{
    for (int i = 0; i < r->count; i++)
        md_free(NULL, r->items[i].blocks);
    md_free(NULL, r->items);
    *r = (struct md_eval_result){ 0 };
}

/* ---- open and close ---- */

static int32_t longest(const struct md_eval_settings *s)
{
    int32_t most = 0;
    for (int i = 0; i < s->length_count; i++)
        most = s->lengths[i] > most ? s->lengths[i] : most;
    return most;
}

/* The flags as the stack is opened with them.  `hot_tokens` 0: all of the window. */
static enum md_status sized(const struct md_options *o, const struct md_eval_settings *s, int32_t hot_tokens,
                            struct md_options *ret, struct md_err *err)
{
    const int64_t questions = s->asking == MD_EVAL_ALONE ? 1 : s->needles; /* in one conversation */
    const int64_t window =
        (int64_t)longest(s) + AROUND_TOKENS + questions * (QUESTION_TOKENS + MD_EVAL_ANSWER_TOKENS);
    if (window > INT32_MAX)
        return md_fail(err, MD_TOO_LARGE, "--length %d and its questions are more than any window",
                       longest(s));
    *ret = *o;
    ret->ctx_size = window;
    ret->hot = hot_tokens == 0 || hot_tokens > window ? window : hot_tokens;
    ret->min_hot_context = 0;
    ret->retrieval = "off";
    for (int i = 0; i < s->policy_count; i++)
        if (s->policies[i]->caps & MD_CAP_ATTENTION_SCORES)
            ret->retrieval =
                "auto"; /* the engine is asked for scores; the policy says whether they are used */
    return MD_OK;
}

static enum md_status check_window(const struct md_options *o, const struct md_backend *backends,
                                   const struct md_eval_settings *s, struct md_err *err)
{
    struct md_sizing z;
    enum md_status st = md_sizing_resolve(o, backends, NULL, &z, err);
    if (st == MD_OK)
        st = md_sizing_check_model(&z, err);
    if (st != MD_OK)
        return st;
    if (z.facts.trained_tokens > 0 && o->ctx_size > z.facts.trained_tokens)
        return md_fail(
            err, MD_TOO_LARGE,
            "--length %d with its questions needs a window of %lld tokens, the model was trained for %d: "
            "lower --length or --needles",
            longest(s), (long long)o->ctx_size, z.facts.trained_tokens);
    return MD_OK;
}

enum md_status md_eval_check(const struct md_options *o, const struct md_backend *backends,
                             const struct md_eval_settings *settings, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (int i = 0; i < settings->policy_count && s == MD_OK; i++) {
        const struct md_eval_policy *p = settings->policies[i];
        struct md_options mine;
        s = sized(o, settings, p->all_hot ? 0 : settings->hot_tokens, &mine, err);
        if (s == MD_OK)
            s = check_window(&mine, backends, settings, err);
        if (s == MD_OK)
            s = md_stack_check(&mine, backends, p->configure, err);
    }
    return s;
}

static enum md_status check_policy(const struct md_eval_policy *p, const struct md_engine *e,
                                   struct md_err *err)
{
    if ((md_engine_caps(e) & p->caps) != p->caps)
        return md_fail(err, MD_UNSUPPORTED, "--policy %s: engine '%s' does not give %s: leave it out",
                       p->name, md_engine_info(e)->engine, p->needs);
    return MD_OK;
}

/* A policy that chooses, and a pool that does not: that would be measured as a selector that works.  Where all can be hot there is
 * nothing to choose. */
static enum md_status check_pool(const struct md_eval_policy *p, const struct md_stack *s, struct md_err *err)
{
    const struct md_pool_status pool = md_pool_status(s->pool);
    const char *why = pool.not_by_attention;
    if (md_pool_config(s->pool)->retrieval != MD_RETRIEVAL_OFF && why == NULL)
        why = pool.no_retrieval;
    return why == NULL || s->hot_tokens >= s->window_tokens
               ? MD_OK
               : md_fail(err, MD_UNSUPPORTED, "--policy %s: %s: leave it out", p->name, why);
}

enum md_status md_eval_open(const struct md_options *o, const struct md_backend *backends,
                            const struct md_eval_settings *settings, int policy, struct md_eval_dump *dump,
                            struct md_eval_bench *ret, struct md_err *err)
{
    const struct md_eval_policy *p = settings->policies[policy];
    struct md_eval_bench b = { .settings = settings, .policy = policy, .filler_trial = -1, .dump = dump };
    struct md_options mine;
    const bool all_hot = p->all_hot || settings->dense_prefill;
    md_buf_init(&b.text, NULL, MD_EVAL_TEXT_BYTES_MAX + (1 << 20));
    enum md_status s = sized(o, settings, all_hot ? 0 : settings->hot_tokens, &mine, err);
    if (s == MD_OK)
        s = md_stack_open_with(&mine, backends, dump != NULL ? p->configure_dump : p->configure, &b.stack,
                               err);
    for (int i = 0; i < settings->policy_count && s == MD_OK; i++)
        s = check_policy(settings->policies[i], b.stack.engine, err);
    if (s == MD_OK)
        s = check_pool(p, &b.stack, err);
    if (s == MD_OK)
        *ret = b;
    else
        md_stack_close(&b.stack);
    return s;
}

void md_eval_close(struct md_eval_bench *b)
{
    md_eval_filler_done(&b->filler);
    md_buf_done(&b->text);
    md_stack_close(&b->stack);
    *b = (struct md_eval_bench){ .policy = -1, .filler_trial = -1 };
}

/* ---- the haystack ---- */

static uint64_t trial_seed(const struct md_eval_settings *s, int trial)
{
    struct md_eval_rng r = md_eval_rng(s->seed, 'T', (uint64_t)trial);
    return md_eval_next(&r);
}

static struct md_bytes filler_text(const struct md_eval_bench *b)
{
    return b->settings->file != NULL ? b->settings->contents : (struct md_bytes){ b->text.data, b->text.len };
}

/* As much as the longest haystack takes: a token has some 4 bytes in most texts; where that is not enough, twice as much. */
static enum md_status write_filler(struct md_eval_bench *b, int trial, struct md_err *err)
{
    const struct md_eval_settings *s = b->settings;
    const size_t need = (size_t)longest(s);
    enum md_status st = MD_OK;
    for (size_t bytes = need + 4096; st == MD_OK; bytes *= 2) {
        if (bytes > MD_EVAL_TEXT_BYTES_MAX)
            bytes = MD_EVAL_TEXT_BYTES_MAX;
        b->text.len = 0;
        md_eval_filler_done(&b->filler);
        st = md_eval_text_write(s->text, trial_seed(s, trial), bytes, &b->text, err);
        if (st == MD_OK)
            st = md_eval_filler_read(b->stack.text, filler_text(b), &b->filler, err);
        if (st == MD_OK && b->filler.tokens.count >= need)
            break;
        if (st == MD_OK && bytes == MD_EVAL_TEXT_BYTES_MAX)
            st = md_fail(err, MD_TOO_LARGE, "--length %zu: the longest text that is written has %zu tokens",
                         need, b->filler.tokens.count);
    }
    return st;
}

static enum md_status prepare_filler(struct md_eval_bench *b, int trial, struct md_err *err)
{
    if (b->filler_trial == trial || (b->settings->file != NULL && b->filler_trial >= 0))
        return MD_OK;
    enum md_status s = b->settings->file != NULL
                           ? md_eval_filler_read(b->stack.text, b->settings->contents, &b->filler, err)
                           : write_filler(b, trial, err);
    b->filler_trial = s == MD_OK ? trial : -1;
    return s;
}

/* ---- a unit ---- */

/* Needles, and the haystack with them in it. */
static enum md_status plant(struct md_eval_bench *b, struct md_eval_unit unit, struct md_arena *arena,
                            struct md_eval_needle *needles, struct md_eval_haystack *haystack,
                            struct md_err *err)
{
    const struct md_eval_settings *set = b->settings;
    const struct md_eval_spec spec = { .task = set->task,
                                       .near_duplicates = set->near_duplicates,
                                       .count = set->needles,
                                       .depth = set->depths[unit.depth],
                                       .seed = trial_seed(set, unit.trial) };
    enum md_status s = prepare_filler(b, unit.trial, err);
    if (s == MD_OK)
        s = md_eval_needles(&spec, filler_text(b), arena, needles, err);
    if (s == MD_OK)
        s = md_eval_haystack_build(b->stack.text, &b->filler, set->lengths[unit.length], needles,
                                   set->needles, haystack, err);
    return s;
}

enum md_status md_eval_rehearse(struct md_eval_bench *b, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (int l = 0; l < b->settings->length_count && s == MD_OK; l++) {
        const struct md_eval_unit unit = { .policy = b->policy, .length = l };
        struct md_eval_needle needles[MD_EVAL_NEEDLES_MAX];
        struct md_eval_haystack haystack = { 0 };
        struct md_arena arena;
        md_arena_init(&arena, NULL, ARENA_BYTES_MAX);
        s = plant(b, unit, &arena, needles, &haystack, err);
        md_eval_haystack_done(&haystack);
        md_arena_done(&arena);
    }
    return s;
}

enum md_status md_eval_run(struct md_eval_bench *b, struct md_eval_unit unit, struct md_eval_result *ret,
                           struct md_err *err)
{
    struct md_eval_needle needles[MD_EVAL_NEEDLES_MAX];
    struct md_eval_haystack haystack = { 0 };
    struct md_eval_result out = { .unit = unit };
    struct md_arena arena;
    const int items = md_eval_item_count(b->settings);
    assert(unit.policy == b->policy);
    if (b->dump != NULL)
        b->dump->unit = unit;
    md_arena_init(&arena, NULL, ARENA_BYTES_MAX);
    out.items = md_calloc(NULL, (size_t)items, sizeof *out.items);
    enum md_status s =
        out.items != NULL ? MD_OK : md_fail(err, MD_NO_MEMORY, "%d needles to be asked for", items);
    if (s == MD_OK)
        s = plant(b, unit, &arena, needles, &haystack, err);
    if (s == MD_OK)
        s = md_eval_ask(b, needles, &haystack, &out, err);
    md_eval_haystack_done(&haystack);
    md_arena_done(&arena);
    if (s == MD_OK && b->dump != NULL)
        s = md_eval_dump_check(b->dump, err);
    if (s == MD_OK)
        *ret = out;
    else
        md_eval_result_done(&out);
    return s;
}
