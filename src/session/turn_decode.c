/* turn_decode.c - the answer of a turn: the rest of the context is evaluated, then tokens are sampled, one step after the
 * other.  See session_internal.h. */
#include "session/session_internal.h"

#include "base/clock.h"
#include "session/state.h"
#include "text/stream.h"

#include <assert.h>

/* What sampling needs besides the turn. */
struct decode {
    struct md_turn *t;
    struct md_sampler *sampler;
    struct md_stream stream;
    const struct md_chat_form *form;
    struct md_buf piece, out; /* bytes of one token; text that may be shown */
    int32_t limit;
};

/* Evaluate what of the context is not on the tape: its last token, or its last chunk. */
static enum md_status eval_last(struct md_turn *t, const float **ret_logits, struct md_err *err)
{
    struct md_session *s = t->s;
    const int32_t start = s->tape.count, count = (int32_t)s->context.count - start;
    const md_token *tokens = s->context.ids + start;
    assert(count > 0);
    enum md_status st = md_tape_reserve(&s->tape, start + count, err);
    /* where plans are made follows from the tape, not from what others leave free: so does what the answer attends */
    if (st == MD_OK && start + count > s->drive.room_end) {
        assert(count == 1); /* room for a chunk was made when it was left to this */
        int32_t lost_from;  /* cannot be: sinks and recent window were hot a token ago */
        st = md_drive_make_room(&s->drive, md_turn_decode_room(s), &lost_from, err);
        assert(st != MD_OK || lost_from < 0);
    }
    assert(st != MD_OK || md_drive_reaches(&s->drive, count));
    if (st == MD_OK)
        st = md_engine_decode(s->pool->engine, s->drive.seq, start, tokens, count, ret_logits, err);
    if (st == MD_OK)
        st = md_drive_append_computed(&s->drive, tokens, count, err);
    if (st == MD_OK && md_state_is_kept(&s->pool->hot) &&
        s->tape.count - t->checkpoint >= s->pool->config.checkpoint_tokens) {
        t->checkpoint = s->tape.count;
        st = md_state_save(&s->drive, err);
    }
    return st;
}

static enum md_status emit(struct decode *d, bool last, struct md_err *err)
{
    const struct md_sink *sink = d->t->sink;
    enum md_status st = MD_OK;
    d->out.len = 0;
    if (!last)
        st = md_stream_push(&d->stream, d->piece.data, d->piece.len, &d->out, err);
    else
        st = md_stream_finish(&d->stream, &d->out, err);
    if (st == MD_OK && d->out.len > 0 && sink != NULL && sink->text != NULL &&
        !sink->text(sink->user, (struct md_bytes){ d->out.data, d->out.len }))
        return md_fail(err, MD_CANCELLED, "cancelled by the client");
    return st;
}

/* A sampled token joins answer, context and text. */
static enum md_status take_token(struct decode *d, md_token token, struct md_err *err)
{
    struct md_session *s = d->t->s;
    struct md_result *result = &d->t->result;
    d->piece.len = 0;
    enum md_status st =
        md_text_piece(s->pool->text, token, md_chat_form_keeps(d->form, token), &d->piece, err);
    if (st == MD_OK)
        st = md_tokens_append(&result->tokens, &token, 1, err);
    if (st == MD_OK)
        st = md_tokens_append(&s->context, &token, 1, err);
    if (st != MD_OK)
        return st;
    result->completion++;
    return emit(d, false, err);
}

static enum md_status decode_loop(struct decode *d, const float *logits, struct md_err *err)
{
    struct md_session *s = d->t->s;
    struct md_result *result = &d->t->result;
    const int32_t vocab = md_engine_info(s->pool->engine)->vocab_count;
    result->finish = MD_FINISH_LENGTH;
    while (result->completion < d->limit) {
        md_token token;
        enum md_status st = md_turn_check_cancel(d->t->sink, err);
        if (st == MD_OK)
            st = md_sampler_sample(d->sampler, logits, vocab, &token, err);
        if (st != MD_OK)
            return st;
        if (result->completion == 0)
            result->first_token_ns = md_clock_mono_ns() - d->t->start_ns;
        if (md_text_is_end(s->pool->text, token)) {
            result->finish = MD_FINISH_STOP;
            break;
        }
        st = take_token(d, token, err);
        if (st != MD_OK)
            return st;
        if (d->stream.stopped) {
            result->finish = MD_FINISH_STOP;
            break;
        }
        if (result->completion == d->limit)
            break; /* the last token needs no evaluation: nothing is sampled after it */
        st = eval_last(d->t, &logits, err);
        if (st != MD_OK)
            return st;
        result->decoded++;
    }
    return emit(d, true, err);
}

static enum md_status decode_open(struct decode *d, const struct md_decode *q, struct md_err *err)
{
    struct md_session *s = d->t->s;
    const struct md_alloc *alloc = s->pool->config.alloc;
    const int32_t count = (int32_t)s->context.count;
    md_buf_init(&d->piece, alloc, 1 << 20);
    md_buf_init(&d->out, alloc, 1 << 20);
    d->limit = s->pool->config.window_tokens - count;
    if (q->max_tokens >= 0 && q->max_tokens < d->limit)
        d->limit = q->max_tokens;
    enum md_status st = md_stream_init(&d->stream, alloc, q->stops, q->stop_count, err);
    if (st == MD_OK)
        st = md_sampler_open(s->pool->text, &q->sample, &d->sampler, err);
    if (st != MD_OK)
        return st;
    int32_t look_back = q->sample.repeat_last_n < count ? q->sample.repeat_last_n : count;
    for (int32_t i = count - look_back; i < count; i++)
        md_sampler_accept(d->sampler, s->context.ids[i]);
    return MD_OK;
}

enum md_status md_turn_decode(struct md_turn *t, const struct md_decode *q, struct md_err *err)
{
    struct md_session *s = t->s;
    struct decode d = { .t = t, .form = q->sample.form };
    const float *logits = NULL;
    enum md_status st = decode_open(&d, q, err);
    /* an answer cannot go back: what is lost stays so until the next turn */
    s->drive.request.went_back = s->drive.request.stays = true;
    const int32_t rest = (int32_t)s->context.count - s->tape.count;
    int64_t t0 = md_clock_mono_ns();
    if (st == MD_OK)
        st = t->ask_from >= 0 ? md_retrieve_evaluate(t, t->ask_from, &logits, err)
                              : eval_last(t, &logits, err);
    if (st == MD_OK) {
        const int64_t ns = md_clock_mono_ns() - t0;
        s->drive.request.compute_ns += ns;
        if (rest > 1) {
            const struct md_retrieval *asked = &t->result.retrieval;
            const int32_t times = asked->evaluations > 0 ? asked->evaluations : 1;
            md_restore_note_prefill(&s->pool->hot.speeds, rest * times, ns - asked->score_ns);
            md_turn_report_progress(t);
        }
        s->decode_calls++;
        t->result.attended = md_tape_tokens_in(&s->tape, MD_STATE_HOT);
        t0 = md_clock_mono_ns();
        st = decode_loop(&d, logits, err);
        t->result.decode_ns = md_clock_mono_ns() - t0;
        s->decoded_tokens += t->result.decoded;
    }
    t->decoded = st == MD_OK;
    md_sampler_close(d.sampler);
    md_stream_done(&d.stream);
    md_buf_done(&d.piece);
    md_buf_done(&d.out);
    return st;
}
