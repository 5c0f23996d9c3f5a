/* retrieve.c - see retrieve.h. */
#include "session/retrieve.h"

#include "base/clock.h"
#include "base/log.h"
#include "policy/clause.h"
#include "policy/content.h"
#include "session/attend.h"
#include "session/observe.h"
#include "session/session_internal.h"
#include "session/state.h"

#include <assert.h>

enum {
    ROWS_LEAST = 8,  /* a question of fewer tokens asks nothing */
    PLAIN_ROWS = 32, /* of a context without messages */
    QUESTION_BYTES_MAX = 1 << 20,
    MASS_BYTES_MAX = 128 << 20, /* of all clauses: 100,000 tokens and 16 heads have 51 MB with eight */
};

struct md_retriever {
    const struct md_alloc *alloc;
    struct md_retrieve_params params;
    struct md_attend *attend; /* borrowed */
    struct md_retrieve_observer observer;
};

struct md_retrieve_params md_retrieve_defaults(void)
{
    struct md_retrieve_params p = { .passes = 2,
                                    .rows = MD_RETRIEVE_ROWS,
                                    .heads = md_calibrate_defaults(),
                                    .score = md_score_defaults(),
                                    .score_measured = md_score_measured(),
                                    .select = md_select_defaults(),
                                    .shares = md_select_shares_defaults() };
    p.heads.source = MD_CALIBRATE_BAND;
    p.heads.heads = 64;
    p.shares.profile = 0;
    return p;
}

/* ---- open ---- */

enum md_status md_retriever_open(const struct md_pool_config *config, struct md_attend *attend,
                                 struct md_retriever **ret_retriever, struct md_err *err)
{
    const struct md_retrieve_params params =
        config->retrieve != NULL ? *config->retrieve : md_retrieve_defaults();
    if (params.passes < 1 || params.rows < 1 || params.rows > MD_RETRIEVE_ROWS)
        return md_fail(err, MD_INVALID,
                       "%d passes over %d tokens of a question: it takes 1 or more, over 1 to %d",
                       params.passes, params.rows, MD_RETRIEVE_ROWS);
    struct md_retriever *r = md_calloc(config->alloc, 1, sizeof *r);
    if (r == NULL)
        return md_fail(err, MD_NO_MEMORY, "retriever");
    *r = (struct md_retriever){ .alloc = config->alloc, .params = params, .attend = attend };
    *ret_retriever = r;
    return MD_OK;
}

void md_retriever_close(struct md_retriever *r)
{
    if (r != NULL)
        md_free(r->alloc, r);
}

void md_retriever_observe(struct md_retriever *r, struct md_retrieve_observer observer)
{
    if (r != NULL)
        r->observer = observer;
}

/* ---- the question ---- */

/* Where the last message of a user or a tool begins; without messages, a few tokens before the end. */
static int32_t last_message(const struct md_session *s)
{
    const int32_t count = (int32_t)s->context.count;
    for (size_t i = s->segment_count; i-- > 0;)
        if (s->segments[i].kind == MD_SEGMENT_USER || s->segments[i].kind == MD_SEGMENT_TOOL)
            return s->segments[i].range.start;
    return count > PLAIN_ROWS ? count - PLAIN_ROWS : 0;
}

/* Task-pinned tokens between the sinks and the recent window, when the whole context is on the tape. */
static int32_t pinned_tokens(const struct md_turn *t)
{
    const struct md_session *s = t->s;
    const struct md_stream_policy *stream = &s->pool->hot.stream;
    const int32_t block = s->tape.block_tokens, end = (int32_t)s->context.count;
    int32_t sum = 0;
    for (size_t i = 0; (int32_t)(i + 1) * block <= end; i++)
        if (t->classes[i] == MD_CLASS_TASK_PINNED &&
            md_stream_flags((struct md_range){ (int32_t)i * block, (int32_t)(i + 1) * block }, end,
                            *stream) == 0 &&
            !(i < md_tape_block_count(&s->tape) && s->tape.blocks[i].held_out))
            sum += block;
    return sum;
}

/* Tokens that can be hot besides the sinks, the recent window and a block of the answer.  What is pinned makes way for one
 * block, as in md_drive_free_tokens. */
static int32_t question_room(const struct md_turn *t)
{
    const struct md_session *s = t->s;
    const struct md_hot *h = &s->pool->hot;
    const int32_t block = s->tape.block_tokens;
    const int32_t most = h->limit_tokens - h->stream.sink_tokens - h->stream.recent_tokens - block;
    const int32_t least = most < block ? most : block, room = most - pinned_tokens(t);
    return room > least ? room : least;
}

int32_t md_retrieve_question(const struct md_turn *t, int32_t rows)
{
    const struct md_session *s = t->s;
    const int32_t count = (int32_t)s->context.count, block = s->tape.block_tokens;
    const int32_t batch = md_engine_info(s->pool->engine)->batch_tokens, room = question_room(t);
    rows = rows < batch ? rows : batch;
    rows = rows < room ? rows : room;
    if (rows > count - last_message(s))
        rows = count - last_message(s);
    /* where it begins inside a block, the recent window before it begins inside one too, and has the whole of it */
    const int32_t over = (count - rows) % block;
    if (rows + over > room)
        rows -= block - over;
    return rows < ROWS_LEAST ? -1 : count - rows;
}

int32_t md_retrieve_from(struct md_turn *t)
{
    const struct md_pool *p = t->s->pool;
    if (p->retriever == NULL || (int32_t)t->s->context.count + t->s->tape.block_tokens <= p->hot.limit_tokens)
        return -1;
    t->result.retrieval.due = true;
    return md_retrieve_question(t, p->retriever->params.rows);
}

/* ---- scoring ---- */

struct round {
    struct md_turn *t;
    struct md_retriever *r;
    int32_t pass;
    struct md_attend_round seen;
    struct md_scores scores;
    struct md_selection selection;
};

/* What the question asks, one thing at a time; of a very long context as many as masses have room for. */
static enum md_status split(const struct round *q, struct md_attention_clause *ret_clauses, size_t *ret_count,
                            struct md_err *err)
{
    const struct md_session *s = q->t->s;
    const md_token *ids = s->context.ids + q->seen.from;
    const size_t rows = s->context.count - (size_t)q->seen.from;
    struct md_bytes pieces[MD_RETRIEVE_ROWS];
    size_t ends[MD_RETRIEVE_ROWS];
    MD_CLEANUP(md_buf_done) struct md_buf text;
    md_buf_init(&text, q->r->alloc, QUESTION_BYTES_MAX);
    for (size_t i = 0; i < rows; i++) {
        enum md_status st = md_text_piece(s->pool->text, ids[i], false, &text, err);
        if (st != MD_OK)
            return st;
        ends[i] = text.len;
    }
    for (size_t i = 0, at = 0; i < rows; at = ends[i++])
        pieces[i] = (struct md_bytes){ (const char *)text.data + at, ends[i] - at };
    const size_t each = md_attend_heads(q->seen.attend)->count *
                        md_attention_tokens(q->seen.places, q->seen.count) * sizeof(float);
    size_t most = 1; /* clauses */
    while (most < MD_CLAUSE_MOST && (most + 1) * each <= MASS_BYTES_MAX)
        most++;
    *ret_count = md_clause_split(pieces, rows, most, ret_clauses);
    return MD_OK;
}

/* Attention of the question, then a score for each block. */
static enum md_status score(struct round *q, struct md_err *err)
{
    const struct md_attend_round *seen = &q->seen;
    const struct md_retrieve_params *p = &q->r->params;
    const bool measured = md_attend_heads(seen->attend)->source != MD_CALIBRATE_BAND;
    struct md_attention_clause clauses[MD_CLAUSE_MOST];
    size_t count;
    enum md_status s = split(q, clauses, &count, err);
    if (s == MD_OK)
        s = md_attend_weigh(&q->seen, clauses, count, err);
    if (s == MD_OK && q->r->observer.seen != NULL)
        q->r->observer.seen(q->r->observer.user, &seen->in, md_attend_heads(seen->attend), seen->index,
                            seen->from, q->pass);
    if (s == MD_OK && q->pass == 0)
        s = md_observe_retrieval(q->t, &q->seen, err);
    if (s == MD_OK)
        s = md_attend_score(&q->seen, measured ? &p->score_measured : &p->score, &q->scores, err);
    if (s == MD_OK && q->r->observer.judged != NULL)
        q->r->observer.judged(q->r->observer.user, seen->places, &q->scores, q->pass);
    return s;
}

static enum md_status choose(struct round *q, struct md_err *err)
{
    struct md_session *s = q->t->s;
    const struct md_attend_round *seen = &q->seen;
    const int32_t rows = (int32_t)s->context.count - seen->from;
    struct md_select_budget budget;
    struct md_select_block *blocks = md_arena_get(&q->seen.arena, seen->count, sizeof *blocks);
    if (blocks == NULL)
        return md_fail(err, MD_NO_MEMORY, "choice of %zu blocks", seen->count);
    for (size_t k = 0; k < seen->count; k++) {
        const struct md_tape_block *b = &s->tape.blocks[seen->index[k]];
        const struct md_range range = md_tape_range(&s->tape, seen->index[k]);
        blocks[k] = (struct md_select_block){
            .incumbent = b->incumbent,
            .beaten = b->beaten,
            .text = md_content_key(s->tape.tokens + range.start, (size_t)md_range_len(range)),
        };
    }
    enum md_status st = md_select_budget(s->pool->hot.limit_tokens - rows - s->tape.block_tokens,
                                         s->drive.protected_tokens, &q->r->params.shares, &budget, err);
    if (st == MD_OK)
        st = md_select_blocks(seen->places, blocks, &q->scores, &budget, &q->r->params.select, &q->seen.arena,
                              &q->selection, err);
    return st;
}

/* What was chosen, for the planner and for what is shown.  *ret_more: some of it is not hot. */
static void take(struct round *q, struct md_retrieval *out, bool *ret_more)
{
    struct md_tape *tape = &q->t->s->tape;
    *ret_more = false;
    q->t->s->chose = true;
    for (size_t i = 0; i < md_tape_block_count(tape); i++) {
        tape->blocks[i].retrieved = false;
        tape->blocks[i].why = 0;
    }
    for (size_t k = 0; k < q->seen.count; k++) {
        struct md_tape_block *b = &tape->blocks[q->seen.index[k]];
        const struct md_select_verdict *v = &q->selection.blocks[k];
        b->retrieved = v->wanted;
        b->why = (uint8_t)(1 + v->why);
        b->next_beaten = v->beaten; /* those that come in the next pass are judged as this one was */
        if (v->wanted && b->state != MD_STATE_HOT) {
            *ret_more = true;
            out->brought_tokens += md_range_len(md_tape_range(tape, q->seen.index[k]));
        }
    }
    const struct md_select_budget *asked = &q->selection.asked, *used = &q->selection.used;
    out->asked_tokens = asked->retrieval + asked->recency + asked->profile;
    out->chosen_tokens = used->retrieval + used->recency + used->profile;
    out->heads_asked = (int32_t)q->selection.heads_asked;
    out->heads_used = (int32_t)q->selection.heads_used;
}

static enum md_status score_and_choose(struct md_turn *t, int32_t from, int32_t pass,
                                       struct md_retrieval *out, bool *ret_more, struct md_err *err)
{
    struct round q = { .t = t, .r = t->s->pool->retriever, .pass = pass };
    const int64_t t0 = md_clock_mono_ns();
    *ret_more = false;
    md_attend_begin(&q.seen, q.r->attend, t->s, from);
    enum md_status s = md_attend_gather(&q.seen, true, err);
    out->scored = (int32_t)q.seen.count;
    out->unscored = q.seen.unscored;
    if (s == MD_OK && q.seen.count > 0) {
        s = score(&q, err);
        if (s == MD_OK)
            s = choose(&q, err);
        if (s == MD_OK)
            take(&q, out, ret_more);
    }
    md_attend_end(&q.seen);
    out->score_ns += md_clock_mono_ns() - t0;
    return s;
}

/* ---- passes ---- */

/* The tail state where the question begins, for going back; on engines without one nothing. */
static enum md_status keep_state(struct md_turn *t, int32_t from, struct md_buf *ret_state,
                                 struct md_err *err)
{
    const struct md_hot *h = &t->s->pool->hot;
    md_buf_init(ret_state, h->alloc, SIZE_MAX / 2);
    if (!md_state_is_kept(h))
        return MD_OK;
    enum md_status st = md_state_read(&t->s->drive, from, ret_state, err);
    if (st == MD_NO_MEMORY) {
        t->result.retrieval.skipped = "there is no memory for a checkpoint of the question";
        md_log(MD_LOG_WARN, "retrieval is skipped for this answer: %s", t->result.retrieval.skipped);
        return MD_OK;
    }
    return st;
}

static enum md_status evaluate(struct md_turn *t, int32_t from, const float **ret_logits, struct md_err *err)
{
    struct md_session *s = t->s;
    const int32_t count = (int32_t)s->context.count - from;
    int32_t lost_from;
    enum md_status st = md_tape_reserve(&s->tape, from + count, err);
    if (st == MD_OK)
        st = md_drive_make_room(&s->drive, count + md_turn_decode_room(s), &lost_from, err);
    if (st == MD_OK)
        st = md_engine_decode(s->pool->engine, s->drive.seq, from, s->context.ids + from, count, ret_logits,
                              err);
    return st == MD_OK ? md_drive_append_computed(&s->drive, s->context.ids + from, count, err) : st;
}

/* Back to where the question begins.  It is computed again at once: nothing is lost. */
static enum md_status go_back(struct md_turn *t, int32_t from, const struct md_buf *state, struct md_err *err)
{
    struct md_drive *d = &t->s->drive;
    const int64_t dropped = d->hot->dropped_tokens, blocks = d->dropped_blocks;
    enum md_status st = state->len > 0
                            ? md_drive_cut_rewound(d, from, (struct md_bytes){ state->data, state->len }, err)
                            : md_drive_cut(d, from, false, err);
    assert(st != MD_OK || t->s->tape.count == from);
    d->hot->dropped_tokens = dropped;
    d->dropped_blocks = blocks;
    return st;
}

/* Through a long answer the question stays as long as what was chosen for it. */
static void keep_question(struct md_session *s, int32_t from)
{
    for (size_t i = (size_t)(from / s->tape.block_tokens); i < md_tape_block_count(&s->tape); i++)
        s->tape.blocks[i].retrieved = true;
}

/* What fails in a scoring costs an answer what it would have brought, not the answer: the question is evaluated, over what is hot.
 * Returns what is to be told all the same. */
static enum md_status skip(struct md_retrieval *out, enum md_status failed, const char *why,
                           const struct md_err *cause, struct md_err *err)
{
    if (failed == MD_CANCELLED || failed == MD_SESSION_FATAL) {
        if (err != NULL)
            *err = *cause;
        return failed;
    }
    md_log(MD_LOG_WARN, "retrieval: %s, and the answer goes by what is hot: %s", why, cause->text);
    out->skipped = why;
    return MD_OK;
}

/* What the question attends to comes in, and it is evaluated again, as often as there are passes. */
static enum md_status bring(struct md_turn *t, int32_t from, const struct md_buf *state,
                            const float **ret_logits, struct md_err *err)
{
    struct md_retrieval *out = &t->result.retrieval;
    const int32_t passes = t->s->pool->retriever->params.passes;
    enum md_status st = MD_OK;
    bool more = true;
    for (int32_t pass = 0; st == MD_OK && more && pass < passes; pass++) {
        struct md_err cause = { 0 };
        st = md_turn_check_cancel(t->sink, err);
        if (st != MD_OK)
            break;
        st = score_and_choose(t, from, pass, out, &more, &cause);
        if (st != MD_OK) {
            st = skip(out, st, "a scoring failed", &cause, err);
            break;
        }
        if (!more)
            break;
        st = go_back(t, from, state, err);
        if (st == MD_OK)
            st = evaluate(t, from, ret_logits, err);
        out->evaluations++;
    }
    if (st == MD_OK)
        keep_question(t->s, from);
    return st;
}

enum md_status md_retrieve_evaluate(struct md_turn *t, int32_t from, const float **ret_logits,
                                    struct md_err *err)
{
    struct md_session *s = t->s;
    struct md_retriever *r = s->pool->retriever;
    struct md_retrieval *out = &t->result.retrieval;
    struct md_buf state MD_CLEANUP(md_buf_done) = { 0 };
    *out = (struct md_retrieval){ .due = true, .question = (int32_t)s->context.count - from };
    enum md_status st = keep_state(t, from, &state, err);
    if (st == MD_OK && out->skipped == NULL) {
        struct md_err cause = { 0 };
        st = md_attend_watch(r->attend, &cause);
        if (st != MD_OK)
            st = skip(out, st, "its queries could not be kept", &cause, err);
    }
    if (st == MD_OK)
        st = evaluate(t, from, ret_logits, err);
    out->evaluations = 1;
    if (st == MD_OK && out->skipped == NULL)
        st = bring(t, from, &state, ret_logits, err);
    md_attend_ignore(r->attend);
    md_log(MD_LOG_DEBUG,
           "retrieval: %d tokens asked, %d times; %d blocks scored, %d not; %d of %d heads; %d of %d tokens "
           "chosen, %d brought; %.0f ms",
           out->question, out->evaluations, out->scored, out->unscored, out->heads_used, out->heads_asked,
           out->chosen_tokens, out->asked_tokens, out->brought_tokens, (double)out->score_ns / 1e6);
    return st;
}
