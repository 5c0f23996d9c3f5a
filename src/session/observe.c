/* observe.c - see observe.h. */
#include "session/observe.h"

#include "base/clock.h"
#include "base/log.h"
#include "policy/profile.h"
#include "session/session_internal.h"

#include <assert.h>

enum { ROWS_LEAST = 8 }; /* fewer say little of what is needed */

/* Attention mass itself: nothing is pooled, ranked or left out. */
static struct md_score_params plain_mass(void)
{
    struct md_score_params p = md_score_defaults();
    p.pool_tokens = 1;
    p.reduce = MD_SCORE_REDUCE_SUM;
    p.fuse = MD_SCORE_FUSE_SUM;
    p.rows = MD_SCORE_ROWS_MEAN;
    p.weigh_by_share = true;
    p.background = false;
    return p;
}

/* ---- what a scoring does ---- */

/* All profiles are a turn older, and blocks that had a part in it have one scoring more.  A block that was to have one and whose
 * keys could not be had stays as it was: of that nothing was said. */
static void take(struct md_attend_round *q, const float *profile, bool question)
{
    struct md_tape *t = &q->s->tape;
    const size_t whole = (size_t)(q->from / t->block_tokens);
    size_t at = 0; /* of those that have keys, in the order of the tape */
    for (size_t i = 0; i < md_tape_block_count(t); i++) {
        struct md_tape_block *b = &t->blocks[i];
        while (at < q->count && q->index[at] < i)
            at++;
        const bool scored = at < q->count && q->index[at] == i,
                   asked = i < whole && !b->held_out && (question || b->state == MD_STATE_HOT);
        if (question)
            b->aside = false;
        if (scored || !asked)
            b->profile = profile[i];
        b->judged += scored && q->places[at].candidate;
    }
    t->scorings++;
}

/* A round that is weighed, into the profiles. */
static enum md_status add_shares(struct md_attend_round *q, bool question, struct md_err *err)
{
    const struct md_tape *t = &q->s->tape;
    const size_t count = md_tape_block_count(t);
    const struct md_score_params params = plain_mass();
    struct md_scores scores;
    float *profile = md_arena_get(&q->arena, count, sizeof *profile);
    float *shares = md_arena_get(&q->arena, count, sizeof *shares);
    if (profile == NULL || shares == NULL)
        return md_fail(err, MD_NO_MEMORY, "profiles of %zu blocks", count);
    enum md_status s = md_attend_score(q, &params, &scores, err);
    if (s != MD_OK)
        return s;
    for (size_t i = 0; i < count; i++) {
        profile[i] = t->blocks[i].profile;
        shares[i] = 0;
    }
    for (size_t k = 0; k < q->count; k++)
        shares[q->index[k]] = scores.overall[k];
    s = md_profile_turn(profile, shares, count, MD_PROFILE_DECAY, err);
    if (s == MD_OK)
        take(q, profile, question);
    return s;
}

/* What becomes of a scoring that ended so.  One that failed changes nothing but a figure. */
static enum md_status account(struct md_turn *t, enum md_status s, const struct md_attend_round *q,
                              int64_t since_ns, const struct md_err *err)
{
    struct md_eviction *out = &t->result.eviction;
    out->score_ns += md_clock_mono_ns() - since_ns;
    out->unscored += q->unscored;
    out->scorings += s == MD_OK;
    out->missed += s != MD_OK;
    if (s != MD_OK && s != MD_SESSION_FATAL && out->missed == 1)
        md_log(MD_LOG_WARN,
               "eviction by attention: a scoring failed, and what stays hot goes by those before: %s",
               err->text);
    return s == MD_SESSION_FATAL ? s : MD_OK;
}

/* The last `rows` tokens of the tape were evaluated just now, and were watched. */
static enum md_status observe(struct md_turn *t, int32_t rows, bool question, struct md_err *err)
{
    struct md_session *s = t->s;
    struct md_attend_round q;
    struct md_err why = { 0 };
    const int64_t t0 = md_clock_mono_ns();
    md_attend_begin(&q, s->pool->attend, s, s->tape.count - rows);
    enum md_status st = md_attend_gather(&q, question, &why);
    if (st == MD_OK && q.count > 0)
        st = md_attend_weigh(&q, NULL, 0, &why);
    if (st == MD_OK && q.count > 0)
        st = add_shares(&q, question, &why);
    md_attend_end(&q);
    md_attend_ignore(s->pool->attend);
    st = account(t, st, &q, t0, &why);
    if (st != MD_OK && err != NULL)
        *err = why;
    return st;
}

static bool watch(struct md_turn *t)
{
    struct md_err why = { 0 };
    const struct md_attend_round none = { 0 };
    const enum md_status s = md_attend_watch(t->s->pool->attend, &why);
    if (s !=
        MD_OK) /* it is refused, and changes nothing: not even then is anything of the session at stake */
        (void)!account(t, s == MD_SESSION_FATAL ? MD_INTERNAL : s, &none, md_clock_mono_ns(), &why);
    return s == MD_OK;
}

/* ---- while a prompt is read ---- */

void md_observe_before(struct md_turn *t, int32_t count, int32_t todo)
{
    const struct md_session *s = t->s;
    const struct md_hot *h = &s->pool->hot;
    t->observing = false;
    t->observed_from = s->tape.count;
    if (!h->by_attention)
        return;
    int32_t next = todo - count < count ? todo - count : count;
    if (next <= 0)
        next = s->tape.block_tokens;
    t->result.eviction.due = true;
    if (count >= ROWS_LEAST && md_tape_tokens_in(&s->tape, MD_STATE_HOT) + count + next > h->limit_tokens)
        t->observing = watch(t);
}

enum md_status md_observe_after(struct md_turn *t, struct md_err *err)
{
    const struct md_session *s = t->s;
    if (!t->observing)
        return MD_OK;
    t->observing = false;
    const int32_t computed = s->tape.evaluated - t->observed_from;
    return observe(t, computed < MD_OBSERVE_ROWS ? computed : MD_OBSERVE_ROWS, false, err);
}

void md_observe_drop(struct md_turn *t)
{
    if (t->observing)
        md_attend_ignore(t->s->pool->attend);
    t->observing = false;
}

void md_observe_report(const struct md_turn *t)
{
    const struct md_eviction *e = &t->result.eviction;
    const struct md_drive *d = &t->s->drive;
    if (e->due)
        md_log(
            MD_LOG_DEBUG,
            "eviction by attention: %d scorings, %d failed, %d blocks without keys; %.0f ms, beside %.0f of "
            "prefill; so far %lld blocks went cold and %lld came back",
            e->scorings, e->missed, e->unscored, (double)e->score_ns / 1e6,
            (double)t->result.prefill_ns / 1e6, (long long)d->evicted_blocks, (long long)d->restored_blocks);
}

/* ---- before an answer ---- */

int32_t md_observe_from(const struct md_turn *t)
{
    const struct md_session *s = t->s;
    const struct md_pool *p = s->pool;
    const int32_t count = (int32_t)s->context.count;
    if (!p->hot.by_attention || t->ask_from >= 0 || count + s->tape.block_tokens <= p->hot.limit_tokens)
        return -1;
    return md_retrieve_question(t, p->question_rows);
}

enum md_status md_observe_question(struct md_turn *t, struct md_err *err)
{
    struct md_session *s = t->s;
    const int32_t count = (int32_t)s->context.count - 1 - s->tape.count;
    int32_t lost_from;
    assert(count > 0 && s->pool->hot.by_attention);
    s->drive.request.went_back = s->drive.request.stays = true;
    t->result.eviction.due = true;
    enum md_status st = md_turn_check_cancel(t->sink, err);
    if (st == MD_OK)
        st = md_drive_make_room(&s->drive, count, &lost_from, err);
    if (st != MD_OK)
        return st;
    const bool watched = watch(t);
    st = md_turn_prefill_chunk(t, count, err);
    if (st == MD_OK && watched)
        st = observe(t, count, true, err);
    else if (watched)
        md_attend_ignore(s->pool->attend);
    if (st == MD_OK)
        st = md_drive_make_room(&s->drive, md_turn_decode_room(s), &lost_from, err);
    if (st == MD_OK)
        md_turn_report_progress(t);
    return st;
}

enum md_status md_observe_retrieval(struct md_turn *t, struct md_attend_round *q, struct md_err *err)
{
    struct md_err why = { 0 };
    if (!t->s->pool->hot.by_attention)
        return MD_OK;
    t->result.eviction.due = true;
    const int64_t t0 = md_clock_mono_ns();
    const struct md_attend_round counted = { .unscored = q->unscored };
    const enum md_status s = account(t, add_shares(q, true, &why), &counted, t0, &why);
    if (s != MD_OK && err != NULL)
        *err = why;
    return s;
}
