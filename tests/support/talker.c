#include "support/talker.h"

#include "engine/wrap.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void after_call(void *user, const struct md_engine_call *call, enum md_status status,
                       int64_t elapsed_ns)
{
    struct talker *t = user;
    (void)elapsed_ns;
    if (call->op != MD_OP_DECODE || status != MD_OK || t->steps >= TALKER_STEPS_MAX)
        return;
    const int32_t count = md_engine_info(call->wrapper)->vocab_count;
    if (t->logits != NULL && t->steps < t->logits_steps)
        memcpy(t->logits + (size_t)t->steps * (size_t)count, *call->logits, (size_t)count * sizeof(float));
    float best = -INFINITY, second = -INFINITY;
    for (int32_t i = 0; i < count; i++) {
        float x = (*call->logits)[i];
        for (int b = 0; b < t->banned_count; b++)
            x = i == t->banned[b] ? -INFINITY : x;
        if (x > best) {
            second = best;
            best = x;
        } else if (x > second) {
            second = x;
        }
    }
    t->gap[t->steps++] = best - second;
}

void talker_watch(struct talker *t, struct md_engine **engine)
{
    const struct md_engine_hooks hooks = { .after = after_call, .user = t };
    struct md_engine *inner = *engine;
    *engine = NULL;
    if (md_engine_wrap(inner, &hooks, engine, &t->err) != MD_OK)
        abort(); /* outside of a test */
}

void talker_open(struct talker *t, struct md_engine *engine, struct md_text *text,
                 struct md_pool_config config)
{
    t->engine = engine;
    t->text = text;
    t->config = config;
    t->cells_max = t->progress_calls = t->steps = 0;
    t->cold_max = 0;
    t->broken = false;
    t->last = (struct md_result){ 0 };
    ck_assert_msg(md_pool_open(&t->config, engine, text, &t->pool, &t->err) == MD_OK, "%s", t->err.text);
    ck_assert_int_eq(md_pool_new(t->pool, &t->session, &t->err), MD_OK);
}

void talker_close(struct talker *t)
{
    md_result_done(&t->last);
    t->last = (struct md_result){ 0 };
    md_pool_close(t->pool);
    t->session = NULL;
}

static void on_progress(void *user, const struct md_progress *p)
{
    struct talker *t = user;
    int32_t cells = md_engine_cells_used(t->engine);
    size_t cold = md_pool_status(t->pool).cold.used_bytes;
    t->progress_calls++;
    t->cells_max = cells > t->cells_max ? cells : t->cells_max;
    t->cold_max = cold > t->cold_max ? cold : t->cold_max;
    t->broken = t->broken || !md_pool_check(t->pool) || p->cached + p->processed > p->total;
}

enum md_status talker_ask(struct talker *t, const md_token *prompt, int32_t count, int32_t max_tokens)
{
    struct md_logit_bias ban[4];
    struct md_request q = {
        .prompt = { .tokens = prompt, .count = count },
        .decode = { .max_tokens = max_tokens, .sample = md_sample_defaults() },
    };
    struct md_sink sink = { .user = t, .progress = on_progress };
    for (int i = 0; i < t->banned_count; i++)
        ban[i] = (struct md_logit_bias){ t->banned[i], -100 };
    q.decode.sample.temperature = 0;
    q.decode.sample.bias = ban;
    q.decode.sample.bias_count = (size_t)t->banned_count;
    md_result_done(&t->last);
    t->last = (struct md_result){ 0 };
    t->steps = 0;
    enum md_status s = md_session_run(t->session, &q, &sink, &t->last, &t->err);
    ck_assert_msg(!t->broken, "an invariant did not hold while the request ran");
    ck_assert_msg(md_pool_check(t->pool), "an invariant does not hold after the request");
    const struct md_result *l = &t->last;
    if (s != MD_OK)
        return s;
    ck_assert_int_eq(l->prompt, count);
    ck_assert_int_eq(l->cached + l->prefilled, l->prompt);
    ck_assert_int_le(l->restored, l->cached);
    ck_assert_int_le(l->recomputed, l->prefilled);
    ck_assert_int_le(l->hot, l->hot_limit);
    ck_assert_int_le(l->attended, l->hot_limit);
    ck_assert_int_eq((int)l->tokens.count, l->completion);
    return s;
}
