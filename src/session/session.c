/* session.c - one conversation and the path of a request: reuse, restore, prefill through the hot set,
 * decode.  What moves KV is drive.c; what decides is policy/. */
#include "session/session.h"

#include "base/clock.h"
#include "policy/prefix.h"
#include "session/cold.h"
#include "session/drive.h"
#include "session/tape.h"
#include "text/stream.h"

#include <assert.h>
#include <string.h>

struct md_session {
    struct md_session_config config;
    struct md_engine *engine; /* borrowed */
    struct md_text *text;     /* borrowed */
    struct md_tape tape;
    struct md_cold *cold;
    struct md_drive drive;
    struct md_err fatal; /* status MD_OK: alive */
    int64_t requests, prefilled_tokens, prefill_ns;
};

/* One request on its way: what the steps below share. */
struct run {
    struct md_session *s;
    const struct md_request *q;
    const struct md_sink *sink;
    struct md_result *result;
    struct md_sampler *sampler;
    struct md_stream stream;
    struct md_buf piece, out; /* bytes of one token; text that may be shown */
    int32_t kept;             /* prompt tokens, but for the last, that were on the tape when it came */
    int32_t completion_limit;
    int64_t start_ns;
};

const char *md_finish_name(enum md_finish f)
{
    static const char *const names[] = { "stop", "length", "cancelled" };
    assert((unsigned)f < sizeof names / sizeof names[0]);
    return names[f];
}

void md_result_done(struct md_result *r)
{
    md_tokens_done(&r->tokens);
}

/* ---- open and close ---- */

enum md_status md_session_check_config(const struct md_session_config *c, struct md_err *err)
{
    struct md_stream_policy ignored;
    if (c->window_tokens < 1)
        return md_fail(err, MD_INVALID, "--ctx-size must be at least 1, got %d", c->window_tokens);
    if (c->block_tokens < MD_BLOCK_TOKENS_MIN || c->block_tokens > MD_BLOCK_TOKENS_MAX)
        return md_fail(err, MD_INVALID, "--block-tokens must be between %d and %d, got %d",
                       MD_BLOCK_TOKENS_MIN, MD_BLOCK_TOKENS_MAX, c->block_tokens);
    if (!c->residency)
        return MD_OK;
    if (c->hot_tokens < 1)
        return md_fail(err, MD_INVALID, "--hot must be at least 1, got %d", c->hot_tokens);
    if (c->window_tokens <= c->hot_tokens)
        return MD_OK; /* everything fits: there are no sinks and no recent window */
    return md_residency_derive(c->hot_tokens, 0, c->block_tokens, c->sink_tokens, c->recent_tokens, &ignored,
                               err);
}

/* The rules that depend on what the engine has and can. */
static enum md_status check_engine(const struct md_session_config *c, const struct md_engine *e,
                                   struct md_err *err)
{
    const struct md_engine_info *info = md_engine_info(e);
    if (info->trained_tokens > 0 && c->window_tokens > info->trained_tokens)
        return md_fail(err, MD_INVALID, "--ctx-size %d is more than the %d tokens the model was trained for",
                       c->window_tokens, info->trained_tokens);
    if (c->residency && c->hot_tokens > info->cell_count)
        return md_fail(err, MD_INVALID, "--hot %d is more than the engine's %d KV cells", c->hot_tokens,
                       info->cell_count);
    if (!c->residency && c->window_tokens > info->cell_count)
        return md_fail(err, MD_INVALID,
                       "--ctx-size %d needs as many KV cells when residency is off, the engine has %d",
                       c->window_tokens, info->cell_count);
    if (c->residency && c->window_tokens > c->hot_tokens && !(md_engine_caps(e) & MD_CAP_REMOVE_MIDDLE))
        return md_fail(
            err, MD_UNSUPPORTED,
            "this model's KV cannot be evicted in parts: give --ctx-size and --hot the same value, "
            "at most what memory allows (they are %d and %d)",
            c->window_tokens, c->hot_tokens);
    return MD_OK;
}

static enum md_status derive_stream(struct md_session *s, struct md_err *err)
{
    const struct md_session_config *c = &s->config;
    const struct md_engine_info *info = md_engine_info(s->engine);
    if (!s->drive.gate.remove_middle || s->config.window_tokens <= s->drive.hot_limit)
        return MD_OK;
    int32_t window = info->window_tokens > 0 ? info->window_tokens + info->ubatch_tokens : 0;
    return md_residency_derive(c->hot_tokens, window, c->block_tokens, c->sink_tokens, c->recent_tokens,
                               &s->drive.stream, err);
}

enum md_status md_session_open(const struct md_session_config *config, struct md_engine *engine,
                               struct md_text *text, struct md_session **ret_session, struct md_err *err)
{
    enum md_status st = md_session_check_config(config, err);
    if (st == MD_OK)
        st = check_engine(config, engine, err);
    if (st != MD_OK)
        return st;
    struct md_session *s = md_calloc(config->alloc, 1, sizeof *s);
    if (s == NULL)
        return md_fail(err, MD_NO_MEMORY, "session");
    s->config = *config;
    s->engine = engine;
    s->text = text;
    md_tape_init(&s->tape, config->alloc, config->block_tokens,
                 md_prefix_root(md_engine_info(engine)->identity));
    unsigned caps = md_engine_caps(engine);
    s->drive = (struct md_drive){
        .engine = engine,
        .tape = &s->tape,
        .alloc = config->alloc,
        /* RecomputeRange alone would open the gate too (same partition, other mechanism), but no engine
         * without RemoveMiddle can carry it out yet, so it is not offered */
        .gate = { .remove_middle = config->residency && (caps & MD_CAP_REMOVE_MIDDLE),
                  .cold_store = caps & MD_CAP_COLD_STORE },
        .hot_limit = config->residency ? config->hot_tokens : config->window_tokens,
    };
    st = derive_stream(s, err);
    if (st == MD_OK)
        st = md_cold_open(config->alloc, config->residency ? config->cold_bytes : 0, &s->cold, err);
    s->drive.cold = s->cold;
    if (st == MD_OK)
        st = md_engine_truncate(engine, 0, 0, err);
    if (st != MD_OK) {
        md_session_close(s);
        return st;
    }
    *ret_session = s;
    return MD_OK;
}

void md_session_close(struct md_session *s)
{
    if (s == NULL)
        return;
    struct md_err ignored; /* the engine is emptied for its next user; a broken one is closed by its owner */
    if (s->fatal.status == MD_OK)
        (void)!md_engine_truncate(s->engine, 0, 0, &ignored);
    md_engine_set_interrupt(s->engine, NULL, NULL);
    md_cold_close(s->cold);
    md_tape_done(&s->tape);
    md_free(s->config.alloc, s);
}

/* ---- prefill ---- */

static bool cancelled(void *user)
{
    const struct md_sink *sink = user;
    return sink != NULL && sink->cancelled != NULL && sink->cancelled(sink->user);
}

static enum md_status check_cancel(const struct run *r, struct md_err *err)
{
    return cancelled((void *)r->sink) ? md_fail(err, MD_CANCELLED, "cancelled by the client") : MD_OK;
}

static void report_progress(const struct run *r)
{
    if (r->sink == NULL || r->sink->progress == NULL)
        return;
    const struct md_session *s = r->s;
    int32_t computed = s->drive.request.computed_tokens;
    md_drive_notice_lost(&r->s->drive); /* whoever looks now shall see what is */
    struct md_progress p = { .total = r->q->prompt_count,
                             .cached = s->tape.count > computed ? s->tape.count - computed : 0,
                             .processed = computed,
                             .elapsed_ns = md_clock_mono_ns() - r->start_ns };
    r->sink->progress(r->sink->user, &p);
}

/* How many tokens to prefill next: not more than the engine takes, nor so many that the whole middle of the hot
 * set would have to leave for them at once. */
static int32_t chunk_tokens(const struct md_session *s, int32_t todo)
{
    int32_t room = md_drive_free_tokens(&s->drive);
    int32_t n = md_engine_info(s->engine)->batch_tokens;
    if (s->drive.gate.remove_middle && room / 2 > s->tape.block_tokens)
        room /= 2;
    if (n > room)
        n = room;
    return n < todo ? n : todo;
}

/* The tokens that the engine has just computed join the tape, in reserved room.  Nothing was moved since, so what
 * they attended is what is hot. */
static void append_computed(struct md_session *s, const md_token *tokens, int32_t count)
{
    int32_t start = s->tape.count;
    struct md_tape_block fresh = { .state = MD_STATE_HOT,
                                   .cls = MD_CLASS_VOLATILE,
                                   .full = md_tape_all_attended(&s->tape, md_tape_block_count(&s->tape)) };
    md_tape_append(&s->tape, tokens, count, fresh);
    md_drive_mark(&s->drive, (struct md_range){ start, start + count }, MD_MARK_COMPUTED);
}

static enum md_status prefill_chunk(struct run *r, int32_t count, struct md_err *err)
{
    struct md_session *s = r->s;
    int32_t start = s->tape.count;
    const md_token *tokens = r->q->prompt + start;
    enum md_status st = md_tape_reserve(&s->tape, start + count, err);
    if (st != MD_OK)
        return st;
    int64_t t0 = md_clock_mono_ns();
    st = md_engine_prefill(s->engine, 0, start, tokens, count, err);
    s->drive.request.compute_ns += md_clock_mono_ns() - t0;
    if (st == MD_OK)
        append_computed(s, tokens, count);
    return st;
}

/* Free tokens asked of the planner before decoding: a block's worth, so that it is not asked per token. */
static int32_t decode_room(const struct md_session *s)
{
    int32_t room = md_drive_free_tokens(&s->drive);
    if (room > s->tape.block_tokens)
        room = s->tape.block_tokens;
    if (room > s->config.window_tokens - s->tape.count)
        room = s->config.window_tokens - s->tape.count; /* never more than can still come */
    return room < 1 ? 1 : room;
}

/* Bring the tape to the prompt without its last token, with the hot set that the answer will attend. */
static enum md_status prefill_prompt(struct run *r, struct md_err *err)
{
    struct md_session *s = r->s;
    const int32_t target = r->q->prompt_count - 1; /* the last token is decoded: its logits are needed */
    for (;;) {
        enum md_status st = check_cancel(r, err);
        if (st == MD_OK)
            st = md_drive_extend(&s->drive, r->q->prompt, target, err);
        if (st != MD_OK)
            return st;
        int32_t todo = target - s->tape.count, lost_from;
        int32_t count = todo > 0 ? chunk_tokens(s, todo) : 0;
        st = md_drive_make_room(&s->drive, todo > 0 ? count : decode_room(s), &lost_from, err);
        if (st == MD_OK && lost_from >= 0) {
            st = md_drive_cut(&s->drive, lost_from, err); /* its KV is gone for good: compute it again */
            if (st != MD_OK)
                return st;
            continue;
        }
        if (st == MD_OK && count > 0)
            st = prefill_chunk(r, count, err);
        report_progress(r);
        if (st != MD_OK || todo == 0)
            return st;
    }
}

/* ---- decode ---- */

/* Evaluate one token at the end of the tape. */
static enum md_status eval_token(struct run *r, md_token token, const float **ret_logits, struct md_err *err)
{
    struct md_session *s = r->s;
    int32_t pos = s->tape.count;
    enum md_status st = md_tape_reserve(&s->tape, pos + 1, err);
    if (st == MD_OK && md_engine_cells_used(s->engine) + 1 > s->drive.hot_limit) {
        int32_t lost_from; /* cannot be: what is protected here was hot a token ago */
        st = md_drive_make_room(&s->drive, decode_room(s), &lost_from, err);
        assert(st != MD_OK || lost_from < 0);
    }
    if (st == MD_OK)
        st = md_engine_decode(s->engine, 0, pos, token, ret_logits, err);
    if (st == MD_OK)
        append_computed(s, &token, 1);
    return st;
}

static enum md_status emit(struct run *r, bool last, struct md_err *err)
{
    enum md_status st = MD_OK;
    r->out.len = 0;
    if (!last)
        st = md_stream_push(&r->stream, r->piece.data, r->piece.len, &r->out, err);
    else
        st = md_stream_finish(&r->stream, &r->out, err);
    if (st == MD_OK && r->out.len > 0 && r->sink != NULL && r->sink->text != NULL &&
        !r->sink->text(r->sink->user, (struct md_bytes){ r->out.data, r->out.len }))
        return md_fail(err, MD_CANCELLED, "cancelled by the client");
    return st;
}

static enum md_status decode_loop(struct run *r, const float *logits, struct md_err *err)
{
    struct md_session *s = r->s;
    const int32_t vocab = md_engine_info(s->engine)->vocab_count;
    r->result->finish = MD_FINISH_LENGTH;
    while (r->result->completion < r->completion_limit) {
        md_token token;
        enum md_status st = check_cancel(r, err);
        if (st == MD_OK)
            st = md_sampler_sample(r->sampler, logits, vocab, &token, err);
        if (st != MD_OK)
            return st;
        if (r->result->completion == 0)
            r->result->first_token_ns = md_clock_mono_ns() - r->start_ns;
        if (md_text_is_end(s->text, token)) {
            r->result->finish = MD_FINISH_STOP;
            break;
        }
        r->piece.len = 0;
        st = md_tokens_append(&r->result->tokens, &token, 1, err);
        if (st == MD_OK)
            st = md_text_piece(s->text, token, md_chat_form_keeps(r->q->sample.form, token), &r->piece, err);
        if (st == MD_OK) {
            r->result->completion++;
            st = emit(r, false, err);
        }
        if (st != MD_OK)
            return st;
        if (r->stream.stopped) {
            r->result->finish = MD_FINISH_STOP;
            break;
        }
        if (r->result->completion == r->completion_limit)
            break; /* the last token needs no evaluation: nothing is sampled after it */
        st = eval_token(r, token, &logits, err);
        if (st != MD_OK)
            return st;
        r->result->decoded++;
    }
    return emit(r, true, err);
}

/* ---- the request ---- */

static enum md_status check_request(struct md_session *s, const struct md_request *q, struct md_err *err)
{
    const struct md_engine_info *info = md_engine_info(s->engine);
    if (s->fatal.status != MD_OK)
        return md_fail(err, MD_SESSION_FATAL, "the session is closed after: %.400s", s->fatal.text);
    if (q->prompt_count < 1)
        return md_fail(err, MD_INVALID, "the prompt is empty: send at least one token");
    if (q->prompt_count >= s->config.window_tokens)
        return md_fail(err, MD_TOO_LARGE,
                       "the prompt has %d tokens, the context window is %d with room for an answer",
                       q->prompt_count, s->config.window_tokens);
    if (q->max_tokens < -1)
        return md_fail(err, MD_INVALID, "max_tokens must be at least 0, or -1 for no limit, got %d",
                       q->max_tokens);
    for (int32_t i = 0; i < q->prompt_count; i++)
        if (q->prompt[i] < 0 || q->prompt[i] >= info->vocab_count)
            return md_fail(err, MD_INVALID, "token %d of the prompt is %d: the vocabulary has %d", i,
                           q->prompt[i], info->vocab_count);
    return md_sample_check(&q->sample, info->vocab_count, err);
}

static enum md_status run_open(struct run *r, struct md_err *err)
{
    struct md_session *s = r->s;
    const struct md_request *q = r->q;
    const struct md_alloc *alloc = s->config.alloc;
    r->result->tokens.alloc = alloc;
    md_buf_init(&r->piece, alloc, 1 << 20);
    md_buf_init(&r->out, alloc, 1 << 20);
    r->completion_limit = s->config.window_tokens - q->prompt_count;
    if (q->max_tokens >= 0 && q->max_tokens < r->completion_limit)
        r->completion_limit = q->max_tokens;
    enum md_status st = md_stream_init(&r->stream, alloc, q->stops, q->stop_count, err);
    if (st == MD_OK)
        st = md_sampler_open(s->text, &q->sample, &r->sampler, err);
    if (st != MD_OK)
        return st;
    int32_t look_back = q->sample.repeat_last_n < q->prompt_count ? q->sample.repeat_last_n : q->prompt_count;
    for (int32_t i = q->prompt_count - look_back; i < q->prompt_count; i++)
        md_sampler_accept(r->sampler, q->prompt[i]);
    s->drive.request = (struct md_drive_request){ .marks = md_calloc(alloc, (size_t)q->prompt_count, 1),
                                                  .mark_count = q->prompt_count };
    if (s->drive.request.marks == NULL) {
        s->drive.request.mark_count = 0;
        return md_fail(err, MD_NO_MEMORY, "request of %d tokens", q->prompt_count);
    }
    return MD_OK;
}

static enum md_status run_steps(struct run *r, struct md_err *err)
{
    struct md_session *s = r->s;
    const struct md_request *q = r->q;
    const float *logits = NULL;
    size_t common =
        md_prefix_common(s->tape.tokens, (size_t)s->tape.count, q->prompt, (size_t)q->prompt_count);
    r->kept = (int32_t)common < q->prompt_count ? (int32_t)common : q->prompt_count - 1;
    md_drive_touch(&s->drive, r->kept);
    enum md_status st = md_drive_cut(&s->drive, r->kept, err);
    if (st == MD_OK) {
        report_progress(r);
        st = prefill_prompt(r, err);
    }
    int64_t t0 = md_clock_mono_ns();
    if (st == MD_OK)
        st = eval_token(r, q->prompt[q->prompt_count - 1], &logits, err);
    if (st != MD_OK)
        return st;
    s->drive.request.compute_ns += md_clock_mono_ns() - t0;
    r->result->attended = md_engine_cells_used(s->engine);
    t0 = md_clock_mono_ns();
    st = decode_loop(r, logits, err);
    r->result->decode_ns = md_clock_mono_ns() - t0;
    return st;
}

static void fill_result(struct run *r)
{
    struct md_session *s = r->s;
    struct md_result *out = r->result;
    const struct md_drive_request *d = &s->drive.request;
    md_drive_notice_lost(&s->drive);
    out->prompt = r->q->prompt_count;
    int32_t reached = s->tape.count < out->prompt ? s->tape.count : out->prompt;
    for (int32_t i = 0; i < d->mark_count && i < reached; i++) {
        bool computed = d->marks[i] & MD_MARK_COMPUTED;
        out->prefilled += computed;
        out->recomputed += computed && i < r->kept;
        out->restored += !computed && (d->marks[i] & MD_MARK_RESTORED);
        out->lost += !computed && s->tape.blocks[i / s->tape.block_tokens].state == MD_STATE_LOST;
    }
    out->cached = reached - out->prefilled;
    out->dropped = d->dropped_tokens;
    out->hot = md_engine_cells_used(s->engine);
    out->hot_limit = s->drive.hot_limit;
    out->tape = s->tape.count;
    out->prefill_ns = d->compute_ns;
    s->prefilled_tokens += out->prefilled;
    s->prefill_ns += out->prefill_ns;
    out->restore_ns = d->restore_ns;
}

static void run_done(struct run *r)
{
    struct md_session *s = r->s;
    md_free(s->config.alloc, s->drive.request.marks);
    s->drive.request = (struct md_drive_request){ 0 };
    md_sampler_close(r->sampler);
    md_stream_done(&r->stream);
    md_buf_done(&r->piece);
    md_buf_done(&r->out);
}

enum md_status md_session_run(struct md_session *s, const struct md_request *request,
                              const struct md_sink *sink, struct md_result *ret_result, struct md_err *err)
{
    struct md_err local;
    struct md_result result = { 0 };
    struct run r = { .s = s, .q = request, .sink = sink, .result = &result, .start_ns = md_clock_mono_ns() };
    if (err == NULL)
        err = &local;
    enum md_status st = check_request(s, request, err);
    if (st != MD_OK)
        return st;
    s->requests++;
    md_engine_set_interrupt(s->engine, cancelled, (void *)sink);
    st = run_open(&r, err);
    if (st == MD_OK)
        st = run_steps(&r, err);
    md_engine_set_interrupt(s->engine, NULL, NULL);
    if (st == MD_CANCELLED)
        result.finish = MD_FINISH_CANCELLED;
    if (st == MD_SESSION_FATAL)
        s->fatal = *err;
    fill_result(&r);
    run_done(&r);
    if (st == MD_OK || st == MD_CANCELLED)
        *ret_result = result;
    else
        md_result_done(&result);
    return st;
}

/* ---- looking at it ---- */

struct md_session_status md_session_status(const struct md_session *s)
{
    const int32_t hot = md_tape_tokens_in(&s->tape, MD_STATE_HOT);
    return (struct md_session_status){
        .window_tokens = s->config.window_tokens,
        .hot_limit_tokens = s->drive.hot_limit,
        .block_tokens = s->tape.block_tokens,
        .sink_tokens = s->drive.stream.sink_tokens,
        .recent_tokens = s->drive.stream.recent_tokens,
        .residency = s->config.residency,
        .tape_tokens = s->tape.count,
        .hot_tokens = hot,
        .hot_bytes = md_engine_kv_bytes(s->engine, hot),
        .cold_tokens = md_tape_tokens_in(&s->tape, MD_STATE_COLD),
        .lost_tokens = md_tape_tokens_in(&s->tape, MD_STATE_LOST),
        .full_tokens = md_tape_full_tokens(&s->tape),
        .kv_bytes_per_token = md_engine_info(s->engine)->kv_bytes_per_token,
        .caps = md_engine_caps(s->engine),
        .cold = md_cold_stats(s->cold),
        .requests = s->requests,
        .prefilled_tokens = s->prefilled_tokens,
        .prefill_ns = s->prefill_ns,
        .evicted_blocks = s->drive.evicted_blocks,
        .restored_blocks = s->drive.restored_blocks,
        .recomputed_blocks = s->drive.recomputed_blocks,
        .dropped_blocks = s->drive.dropped_blocks,
    };
}

size_t md_session_map(const struct md_session *s, enum md_block_state *out, size_t cap)
{
    size_t count = md_tape_block_count(&s->tape);
    for (size_t i = 0; i < count && i < cap; i++)
        out[i] = s->tape.blocks[i].state;
    return count;
}

bool md_session_check(const struct md_session *s)
{
    return s->fatal.status != MD_OK || md_drive_check(&s->drive);
}
