#include "support/session_rig.h"

#include "engine/fake.h"
#include "support/scripted.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct md_pool_config rig_config(int32_t window, int32_t hot, size_t cold_bytes)
{
    return (struct md_pool_config){ .window_tokens = window,
                                    .hot_tokens = hot,
                                    .residency = hot > 0,
                                    .block_tokens = 16,
                                    .sink_tokens = 16,
                                    .recent_tokens = 32,
                                    .cold_bytes = cold_bytes };
}

static void open_parts(struct rig *r, const struct md_pool_config *c, unsigned caps_off)
{
    /* the scripted text tokenizes bytes to themselves and ends with token 256: the fake model has those */
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    struct md_script script = { .pieces = two, .count = 2 };
    struct md_fake_options options = { .cell_count = c->residency ? c->hot_tokens : c->window_tokens,
                                       .batch_tokens = 128,
                                       .caps_off = caps_off };
    struct md_fake_dims dims = md_fake_dims_default();
    struct md_engine *fake;
    if (options.cell_count < 1)
        options.cell_count = 1;
    dims.trained_tokens = RIG_TOKENS_MAX;
    ck_assert_int_eq(dims.vocab, MD_SCRIPTED_FIRST + 2);
    ck_assert_int_eq(md_fake_model_open(&dims, 1, NULL, &r->model, &r->err), MD_OK);
    ck_assert_int_eq(md_fake_open(r->model, &options, &fake, &r->err), MD_OK);
    ck_assert_int_eq(md_fault_open(fake, &r->fault, &r->engine, &r->err), MD_OK);
    ck_assert_int_eq(md_scripted_open(&script, NULL, &r->text, &r->err), MD_OK);
}

enum md_status rig_try_open(struct rig *r, struct md_pool_config config, unsigned caps_off)
{
    memset(r, 0, sizeof *r);
    r->config = config;
    r->cancel_after = -1;
    open_parts(r, &config, caps_off);
    enum md_status s = md_pool_open(&r->config, r->engine, r->text, &r->pool, &r->err);
    return s == MD_OK ? md_pool_new(r->pool, &r->session, &r->err) : s;
}

void rig_open(struct rig *r, struct md_pool_config config, unsigned caps_off)
{
    ck_assert_msg(rig_try_open(r, config, caps_off) == MD_OK, "%s", r->err.text);
}

void rig_close(struct rig *r)
{
    md_result_done(&r->last);
    md_pool_close(r->pool);
    md_engine_close(r->engine);
    md_text_close(r->text);
    md_fake_model_close(r->model);
    memset(r, 0, sizeof *r);
}

static void on_progress(void *user, const struct md_progress *p)
{
    struct rig *r = user;
    r->progress_calls++;
    int32_t cells = md_engine_cells_used(r->engine);
    r->hot_max = cells > r->hot_max ? cells : r->hot_max;
    r->broken = r->broken || !md_pool_check(r->pool) || p->cached + p->processed > p->total;
}

static bool on_cancelled(void *user)
{
    struct rig *r = user;
    return r->cancel_after >= 0 && r->cancel_after-- == 0 ? (r->cancel_after = 0, true) : false;
}

enum md_status rig_ask(struct rig *r, const md_token *prompt, int32_t count, int32_t max_tokens, bool may_end)
{
    const struct md_logit_bias no_end = { .token = MD_SCRIPTED_END, .bias = -1e9f };
    struct md_request q = {
        .prompt = { .tokens = prompt, .count = count },
        .decode = { .max_tokens = max_tokens, .sample = md_sample_defaults() },
    };
    struct md_sink sink = { .user = r, .progress = on_progress, .cancelled = on_cancelled };
    q.decode.sample.temperature = 0;
    q.decode.sample.bias = &no_end;
    q.decode.sample.bias_count = may_end ? 0 : 1;
    md_result_done(&r->last);
    r->last = (struct md_result){ 0 };
    enum md_status s = md_session_run(r->session, &q, &sink, &r->last, &r->err);
    ck_assert_msg(!r->broken, "an invariant did not hold while the request ran");
    ck_assert_msg(md_pool_check(r->pool), "an invariant does not hold after the request");
    const struct md_result *l = &r->last;
    if (s == MD_OK) { /* the counters of every request add up */
        ck_assert_int_eq(l->prompt, count);
        ck_assert_int_eq(l->cached + l->prefilled, l->prompt);
        ck_assert_int_le(l->restored, l->cached);
        ck_assert_int_le(l->lost, l->cached);
        ck_assert_int_le(l->recomputed, l->prefilled);
        ck_assert_int_le(l->hot, l->hot_limit);
        ck_assert_int_le(l->attended, l->hot_limit);
        ck_assert_int_eq((int)l->tokens.count, l->completion);
    }
    return s;
}

void rig_tokens(md_token *out, int32_t count, uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 1;
    for (int32_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = (md_token)((x >> 16) % 256);
    }
}

void rig_fresh_answer(const md_token *prompt, int32_t count, int32_t max_tokens, md_token *out)
{
    struct rig fresh;
    rig_open(&fresh, rig_config(count + max_tokens, 0, 0), 0);
    ck_assert_int_eq(rig_ask(&fresh, prompt, count, max_tokens, false), MD_OK);
    ck_assert_int_eq(fresh.last.completion, max_tokens);
    memcpy(out, fresh.last.tokens.ids, (size_t)max_tokens * sizeof *out);
    rig_close(&fresh);
}
