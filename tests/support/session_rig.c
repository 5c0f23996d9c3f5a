#include "support/session_rig.h"

#include "engine/attention.h"
#include "engine/fake.h"
#include "session/session_internal.h"
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
                                    .cold_bytes = cold_bytes,
                                    .checkpoint_tokens = 64 };
}

static const struct {
    const char *name;
    int32_t tail_period, window_tokens; /* as md_fake_dims */
} models[RIG_MODEL_COUNT] = {
    [RIG_DENSE] = { "dense", 0, 0 },         [RIG_WINDOWED] = { "windowed", 2, 32 },
    [RIG_HYBRID] = { "hybrid", 2, 0 },       [RIG_WINDOWS_ALONE] = { "windows alone", 8, 32 },
    [RIG_RECURRENT] = { "recurrent", 8, 0 },
};
static enum rig_model used = RIG_DENSE;

void rig_use_model(enum rig_model model)
{
    used = model;
}

const char *rig_model_name(enum rig_model model)
{
    return models[model].name;
}

static const char *engine_name;

void rig_use_engine(const char *name)
{
    engine_name = name;
}

static void open_parts(struct rig *r, const struct md_pool_config *c, unsigned caps_off, int32_t seq_count,
                       int32_t trained_tokens)
{
    /* the scripted text tokenizes bytes to themselves and ends with token 256: the fake model has those */
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    struct md_script script = { .pieces = two, .count = 2 };
    struct md_fake_options options = { .cell_count = c->residency ? c->hot_tokens : c->window_tokens,
                                       .seq_count = seq_count,
                                       /* windows keep what one call may take back: it shall get lost */
                                       .batch_tokens = models[used].tail_period > 0 ? 32 : 128,
                                       .caps_off = caps_off,
                                       .name = engine_name,
                                       .attention = c->retrieval == MD_RETRIEVAL_AUTO ||
                                                    c->evict == MD_EVICT_ATTENTION };
    struct md_fake_dims dims = md_fake_dims_default();
    struct md_engine *fake;
    if (options.cell_count < 1)
        options.cell_count = 1;
    dims.trained_tokens = trained_tokens;
    dims.tail_period = models[used].tail_period;
    dims.window_tokens = models[used].window_tokens;
    ck_assert_int_eq(dims.vocab, MD_SCRIPTED_FIRST + 2);
    ck_assert_int_eq(md_fake_model_open(&dims, 1, NULL, &r->model, &r->err), MD_OK);
    ck_assert_int_eq(md_fake_open(r->model, &options, &fake, &r->err), MD_OK);
    ck_assert_int_eq(md_fault_open(fake, &r->fault, &r->engine, &r->err), MD_OK);
    ck_assert_int_eq(md_scripted_open(&script, NULL, &r->text, &r->err), MD_OK);
}

enum md_status rig_try_open_trained(struct rig *r, struct md_pool_config config, unsigned caps_off,
                                    int32_t seq_count, int32_t trained_tokens)
{
    memset(r, 0, sizeof *r);
    r->config = config;
    r->cancel_after = -1;
    open_parts(r, &config, caps_off, seq_count, trained_tokens);
    enum md_status s = md_pool_open(&r->config, r->engine, r->text, &r->pool, &r->err);
    return s == MD_OK ? md_pool_new(r->pool, &r->session, &r->err) : s;
}

enum md_status rig_try_open(struct rig *r, struct md_pool_config config, unsigned caps_off)
{
    return rig_try_open_trained(r, config, caps_off, 0, RIG_TOKENS_MAX);
}

void rig_open(struct rig *r, struct md_pool_config config, unsigned caps_off)
{
    rig_open_seqs(r, config, caps_off, 0);
}

void rig_open_seqs(struct rig *r, struct md_pool_config config, unsigned caps_off, int32_t seq_count)
{
    ck_assert_msg(rig_try_open_trained(r, config, caps_off, seq_count, RIG_TOKENS_MAX) == MD_OK, "%s",
                  r->err.text);
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

struct md_session *rig_new(struct rig *r)
{
    struct md_session *s;
    ck_assert_msg(md_pool_new(r->pool, &s, &r->err) == MD_OK, "%s", r->err.text);
    return s;
}

static void on_progress(void *user, const struct md_progress *p)
{
    struct rig *r = user;
    r->progress_calls++;
    r->progress = *p;
    int32_t cells = md_engine_cells_used(r->engine);
    r->hot_max = cells > r->hot_max ? cells : r->hot_max;
    r->broken = r->broken || !md_pool_check(r->pool) || p->cached + p->processed > p->total;
}

static bool on_cancelled(void *user)
{
    struct rig *r = user;
    return r->cancel_after >= 0 && r->cancel_after-- == 0 ? (r->cancel_after = 0, true) : false;
}

static void on_ended(void *user, const struct md_tokens *answer, struct md_buf *notes)
{
    const struct rig *r = user;
    (void)answer;
    if (r->adds != NULL)
        (void)!md_buf_append(notes, r->adds, strlen(r->adds), NULL); /* all or nothing */
}

static struct md_sink sink_of(struct rig *r)
{
    return (
        struct md_sink){ .user = r, .progress = on_progress, .cancelled = on_cancelled, .ended = on_ended };
}

static struct md_decode greedy(int32_t max_tokens, bool may_end)
{
    static const struct md_logit_bias no_end = { .token = MD_SCRIPTED_END, .bias = -1e9f };
    struct md_decode d = { .max_tokens = max_tokens, .sample = md_sample_defaults() };
    d.sample.temperature = 0;
    d.sample.bias = &no_end;
    d.sample.bias_count = may_end ? 0 : 1;
    return d;
}

static void check_after(const struct rig *r)
{
    ck_assert_msg(!r->broken, "an invariant did not hold while the request ran");
    ck_assert_msg(md_pool_check(r->pool), "an invariant does not hold after the request");
}

/* What holds for the counters of every request. */
static void check_result(const struct md_result *l)
{
    ck_assert_int_le(l->restored, l->cached);
    ck_assert_int_le(l->moved, l->restored);
    ck_assert_int_le(l->lost, l->cached);
    ck_assert_int_le(l->recomputed, l->prefilled);
    ck_assert_int_le(l->hot, l->hot_limit);
    ck_assert_int_le(l->attended, l->hot_limit);
}

static void forget_last(struct rig *r)
{
    md_result_done(&r->last);
    r->last = (struct md_result){ 0 };
}

static enum md_status check_answer(const struct rig *r, enum md_status s, int32_t prompt)
{
    const struct md_result *l = &r->last;
    check_after(r);
    if (s != MD_OK)
        return s;
    check_result(l);
    ck_assert_int_eq(l->prompt, prompt);
    ck_assert_int_eq(l->cached + l->prefilled, l->prompt);
    ck_assert_int_eq((int)l->tokens.count, l->completion);
    return s;
}

static enum md_status ask(struct rig *r, const struct md_context *prompt, int32_t max_tokens, bool may_end)
{
    struct md_request q = { .prompt = *prompt, .decode = greedy(max_tokens, may_end) };
    struct md_sink sink = sink_of(r);
    if (r->notes != NULL)
        q.notes = (struct md_bytes){ r->notes, strlen(r->notes) };
    forget_last(r);
    return check_answer(r, md_session_run(r->session, &q, &sink, &r->last, &r->err), prompt->count);
}

enum md_status rig_ask(struct rig *r, const md_token *prompt, int32_t count, int32_t max_tokens, bool may_end)
{
    return ask(r, &(struct md_context){ .tokens = prompt, .count = count }, max_tokens, may_end);
}

enum md_status rig_ask_segments(struct rig *r, const struct md_context *prompt, int32_t max_tokens)
{
    return ask(r, prompt, max_tokens, false);
}

static enum md_status check_prefill(const struct rig *r, enum md_status s)
{
    const struct md_prefill_status *d = &r->did;
    int32_t context;
    (void)md_session_context(r->session, &context);
    check_after(r);
    if (s != MD_OK)
        return s;
    check_result(&d->work);
    ck_assert_int_eq(d->resident, context);
    ck_assert_int_eq(d->resident + d->available, r->config.window_tokens);
    return s;
}

enum md_status rig_ensure(struct rig *r, const md_token *tokens, int32_t count)
{
    const struct md_context c = { .tokens = tokens, .count = count };
    struct md_sink sink = sink_of(r);
    return check_prefill(r, md_session_ensure_prefix(r->session, &c, false, &sink, &r->did, &r->err));
}

enum md_status rig_suffix(struct rig *r, const md_token *tokens, int32_t count)
{
    const struct md_context c = { .tokens = tokens, .count = count };
    struct md_sink sink = sink_of(r);
    return check_prefill(r, md_session_prefill_suffix(r->session, &c, -1, &sink, &r->did, &r->err));
}

enum md_status rig_decode(struct rig *r, int32_t max_tokens)
{
    const struct md_decode d = greedy(max_tokens, false);
    struct md_sink sink = sink_of(r);
    int32_t context;
    forget_last(r);
    (void)md_session_context(r->session, &context);
    return check_answer(r, md_session_decode(r->session, &d, &sink, &r->last, &r->err), context);
}

struct rig_seen rig_look(const struct rig *r, struct md_session *other)
{
    return (struct rig_seen){ other,
                              { md_session_status(r->session), md_session_status(other) },
                              md_pool_status(r->pool) };
}

void rig_check_same(const struct rig *r, const struct rig_seen *before)
{
    const struct rig_seen now = rig_look(r, before->other);
    const struct md_coldstore_stats *cold = &now.pool.cold, *was = &before->pool.cold;
    ck_assert(md_pool_check(r->pool));
    for (int i = 0; i < 2; i++) {
        const struct md_session_status *a = &before->s[i], *b = &now.s[i];
        ck_assert_int_eq(a->id, b->id);
        ck_assert_int_eq(a->context_tokens, b->context_tokens);
        ck_assert_int_eq(a->tape_tokens, b->tape_tokens);
        ck_assert_int_eq(a->hot_tokens, b->hot_tokens);
        ck_assert_int_eq(a->cold_tokens, b->cold_tokens);
        ck_assert_int_eq(a->lost_tokens, b->lost_tokens);
        ck_assert_int_eq(a->dropped_blocks, b->dropped_blocks);
    }
    ck_assert_int_eq(now.pool.sessions, before->pool.sessions);
    ck_assert_int_eq(now.pool.hot_cells, before->pool.hot_cells);
    ck_assert_uint_eq(cold->used_bytes, was->used_bytes);
    ck_assert_int_eq(cold->entry_count, was->entry_count);
    ck_assert_int_eq(cold->dropped, was->dropped);
    ck_assert_int_eq(cold->refused, was->refused);
}

void rig_block_keys(const struct rig *r, int32_t layer, size_t i, uint16_t *out)
{
    struct md_session *s = r->session;
    const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
    struct md_provenance ignored;
    struct md_buf kv;
    md_buf_init(&kv, NULL, 1 << 24);
    if (s->tape.blocks[i].state == MD_STATE_HOT)
        ck_assert_int_eq(md_engine_export_range(r->engine, s->drive.seq, ref.range, &kv, NULL), MD_OK);
    else
        ck_assert_int_eq(md_cold_read(r->pool->cold, &ref, MD_PROVENANCE_APPROXIMATE, &kv, &ignored, NULL),
                         MD_OK);
    ck_assert_int_eq(md_engine_keys(r->engine, ref.range, (struct md_bytes){ kv.data, kv.len }, &layer, 1,
                                    out, NULL),
                     MD_OK);
    md_buf_done(&kv);
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

bool rig_is_full(const struct rig *r, const struct md_session *s)
{
    struct md_session_status st = md_session_status(s);
    return r->last.attended == r->last.prompt && st.tokens_of[MD_PROVENANCE_FULL] == st.tape_tokens;
}

bool rig_say(struct rig *r, struct rig_talk *t, int32_t count, uint32_t seed, int32_t answer)
{
    md_token want[RIG_ANSWER_MAX];
    ck_assert_int_le(answer, RIG_ANSWER_MAX);
    ck_assert_int_le(t->count + count + answer, RIG_TALK_TOKENS);
    rig_tokens(t->tokens + t->count, count, seed);
    t->count += count;
    r->session = t->s;
    enum md_status s = rig_ask(r, t->tokens, t->count, answer, false);
    ck_assert_msg(s == MD_OK, "%s: %s", md_status_name(s), r->err.text);
    bool full = rig_is_full(r, t->s);
    if (full) {
        rig_fresh_answer(t->tokens, t->count, answer, want);
        ck_assert_mem_eq(r->last.tokens.ids, want, (size_t)answer * sizeof *want);
    }
    memcpy(t->tokens + t->count, r->last.tokens.ids, (size_t)answer * sizeof *want);
    t->count += answer;
    return full;
}
