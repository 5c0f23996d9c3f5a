/* retrieve.c - see retrieve.h. */
#include "session/retrieve.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/attention.h"
#include "policy/content.h"
#include "session/session_internal.h"

#include <assert.h>
#include <string.h>

enum {
    LAYERS_MAX = MD_CALIBRATE_LAYERS_MOST,
    ROWS_LEAST = 8,            /* a question of fewer tokens asks nothing */
    PLAIN_ROWS = 64,           /* of a context without messages */
    ARENA_BYTES_MAX = 1 << 30, /* masses of 100,000 tokens and 128 heads take 50 MB */
};

struct md_retriever {
    const struct md_alloc *alloc;
    struct md_retrieve_params params;
    struct md_calibrate_set heads;
    int32_t layers[LAYERS_MAX], layer_count; /* that have one of them */
    struct md_mirror *mirror;
    struct md_retrieve_observer observer;
};

struct md_retrieve_params md_retrieve_defaults(void)
{
    struct md_retrieve_params p = { .passes = 2,
                                    .rows = MD_RETRIEVE_ROWS,
                                    .heads = md_calibrate_defaults(),
                                    .score = md_score_defaults(),
                                    .select = md_select_defaults(),
                                    .shares = md_select_shares_defaults() };
    p.heads.source = MD_CALIBRATE_BAND;
    p.heads.heads = 64;
    p.shares.profile = 0;
    return p;
}

/* ---- open ---- */

/* The layers that have one of the heads, ascending as those are. */
static int32_t list_layers(const struct md_calibrate_set *set, int32_t layers[LAYERS_MAX])
{
    int32_t count = 0;
    for (size_t i = 0; i < set->count; i++)
        if (count == 0 || layers[count - 1] != set->heads[i].layer)
            layers[count++] = set->heads[i].layer;
    return count;
}

static enum md_status choose_heads(struct md_retriever *r, const struct md_engine *e, struct md_err *err)
{
    int32_t layers;
    size_t count = 0;
    const struct md_attention_layer *of = md_engine_attention(e, &layers);
    struct md_arena arena;
    md_arena_init(&arena, r->alloc, ARENA_BYTES_MAX);
    for (int32_t i = 0; i < layers; i++)
        count += of[i].length > 0 ? (size_t)of[i].query_heads : 0;
    struct md_calibrate_measure *m = md_arena_get(&arena, count + 1, sizeof *m);
    enum md_status s = m == NULL ? md_fail(err, MD_NO_MEMORY, "heads of %d layers", layers) : MD_OK;
    count = 0;
    for (int32_t i = 0; s == MD_OK && i < layers; i++)
        for (int32_t h = 0; of[i].length > 0 && h < of[i].query_heads; h++)
            m[count++] = (struct md_calibrate_measure){ .layer = i, .head = h };
    if (s == MD_OK)
        s = md_calibrate_choose(m, count, layers, &r->params.heads, &arena, &r->heads, err);
    if (s == MD_OK)
        r->layer_count = list_layers(&r->heads, r->layers);
    md_arena_done(&arena);
    return s;
}

static const char *why_not(const struct md_pool_config *c, const struct md_engine *e)
{
    const unsigned caps = md_engine_caps(e);
    int32_t layers = 0;
    if (c->retrieval == MD_RETRIEVAL_OFF)
        return "off";
    if (!(caps & MD_CAP_ATTENTION_SCORES) || md_engine_attention(e, &layers) == NULL)
        return "the engine gives no scores of attention for this model and KV type";
    if (!c->residency || c->window_tokens <= c->hot_tokens)
        return "all of the context is hot";
    if (c->cold_bytes == 0)
        return "there is no cold store in memory";
    if (!(caps & MD_CAP_REMOVE_TAIL))
        return "this engine does not go back to the question";
    if (caps & MD_CAP_CHECKPOINT)
        return "windowed and recurrent layers of this engine do not go back to the question";
    return c->past_window ? "positions past the trained window are not scored" : NULL;
}

/* What a token's keys take: of the layers now in use, or of as many others as a set that is measured may have. */
static int64_t token_numbers(const struct md_retriever *r, const struct md_engine *e)
{
    int32_t layers;
    int64_t most = 0;
    const struct md_attention_layer *of = md_engine_attention(e, &layers);
    const int64_t now = md_mirror_token_numbers(e, r->layers, r->layer_count);
    for (int32_t i = 0; i < layers; i++)
        most =
            (int64_t)of[i].key_heads * of[i].length > most ? (int64_t)of[i].key_heads * of[i].length : most;
    const int64_t heads = (int64_t)md_calibrate_defaults().heads;
    most *= heads < layers ? heads : layers;
    return now > most ? now : most;
}

/* Room for the keys of a whole window, and never more than a part of what cold KV may take. */
static size_t mirror_budget(const struct md_retriever *r, const struct md_pool_config *c,
                            const struct md_engine *e)
{
    enum { PART = 4 };
    const size_t block =
        md_mirror_block_bytes(c->retrieve != NULL ? md_mirror_token_numbers(e, r->layers, r->layer_count)
                                                  : token_numbers(r, e),
                              c->block_tokens);
    const size_t blocks = (size_t)(c->window_tokens / c->block_tokens) + 1;
    return blocks > c->cold_bytes / PART / block ? c->cold_bytes / PART : blocks * block;
}

enum md_status md_retriever_open(const struct md_pool_config *config, const struct md_engine *engine,
                                 struct md_retriever **ret_retriever, const char **ret_why,
                                 struct md_err *err)
{
    *ret_retriever = NULL;
    *ret_why = why_not(config, engine);
    if (*ret_why != NULL)
        return MD_OK;
    const struct md_retrieve_params params =
        config->retrieve != NULL ? *config->retrieve : md_retrieve_defaults();
    if (params.passes < 1 || params.rows < 1 || params.rows > MD_RETRIEVE_ROWS)
        return md_fail(err, MD_INVALID,
                       "%d passes over %d tokens of a question: it takes 1 or more, over 1 to %d",
                       params.passes, params.rows, MD_RETRIEVE_ROWS);
    struct md_retriever *r = md_calloc(config->alloc, 1, sizeof *r);
    if (r == NULL)
        return md_fail(err, MD_NO_MEMORY, "retriever");
    r->alloc = config->alloc;
    r->params = params;
    enum md_status s = choose_heads(r, engine, err);
    if (s == MD_NOT_FOUND)
        *ret_why = "no layer between 30 and 75 % of the model's depth can be scored";
    if (s == MD_OK)
        s = md_mirror_open(config->alloc, engine, r->layers, r->layer_count, mirror_budget(r, config, engine),
                           &r->mirror, err);
    if (s == MD_OK)
        *ret_retriever = r;
    else
        md_retriever_close(r);
    return s == MD_NOT_FOUND ? MD_OK : s;
}

static enum md_status check_heads(const struct md_engine *e, const struct md_calibrate_set *set,
                                  struct md_err *err)
{
    int32_t layers;
    const struct md_attention_layer *of = md_engine_attention(e, &layers);
    for (size_t i = 0; i < set->count; i++) {
        const struct md_calibrate_head *h = &set->heads[i];
        if (h->layer < 0 || h->layer >= layers || h->head < 0 || of[h->layer].length == 0 ||
            h->head >= of[h->layer].query_heads)
            return md_fail(err, MD_INVALID, "this engine does not give head %d of layer %d", h->head,
                           h->layer);
        if (i > 0 && (h->layer < h[-1].layer || (h->layer == h[-1].layer && h->head <= h[-1].head)))
            return md_fail(err, MD_INVALID, "heads are not in order: %d of layer %d", h->head, h->layer);
    }
    return set->count > 0 ? MD_OK : md_fail(err, MD_INVALID, "a set of no heads");
}

enum md_status md_retriever_use(struct md_retriever *r, const struct md_engine *engine,
                                const struct md_calibrate_set *set, struct md_err *err)
{
    int32_t layers[LAYERS_MAX];
    struct md_mirror *mirror;
    enum md_status s = check_heads(engine, set, err);
    if (s != MD_OK)
        return s;
    const int32_t count = list_layers(set, layers);
    s = md_mirror_open(r->alloc, engine, layers, count, md_mirror_stats(r->mirror).budget_bytes, &mirror,
                       err);
    if (s != MD_OK)
        return s;
    md_mirror_close(r->mirror);
    r->mirror = mirror;
    r->heads = *set;
    r->layer_count = count;
    memcpy(r->layers, layers, sizeof layers);
    return MD_OK;
}

const struct md_calibrate_set *md_retriever_heads(const struct md_retriever *r)
{
    return r != NULL ? &r->heads : NULL;
}

void md_retriever_close(struct md_retriever *r)
{
    if (r == NULL)
        return;
    md_mirror_close(r->mirror);
    md_free(r->alloc, r);
}

void md_retriever_observe(struct md_retriever *r, struct md_retrieve_observer observer)
{
    if (r != NULL)
        r->observer = observer;
}

struct md_mirror_stats md_retriever_mirror(const struct md_retriever *r)
{
    return r == NULL ? (struct md_mirror_stats){ 0 } : md_mirror_stats(r->mirror);
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
    const int32_t block = s->tape.block_tokens, end = (int32_t)s->context.count - stream->recent_tokens;
    int32_t sum = 0;
    for (size_t i = (size_t)(stream->sink_tokens / block); (int32_t)(i + 1) * block <= end; i++)
        if (t->classes[i] == MD_CLASS_TASK_PINNED &&
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

int32_t md_retrieve_from(struct md_turn *t)
{
    const struct md_session *s = t->s;
    const struct md_pool *p = s->pool;
    const int32_t count = (int32_t)s->context.count, block = s->tape.block_tokens;
    if (p->retriever == NULL || count + block <= p->hot.limit_tokens)
        return -1;
    t->result.retrieval.due = true;
    int32_t rows = p->retriever->params.rows;
    const int32_t batch = md_engine_info(p->engine)->batch_tokens, room = question_room(t);
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

/* ---- scoring ---- */

/* One scoring: the blocks that have keys, in the order of the tape. */
struct round {
    struct md_turn *t;
    struct md_retriever *r;
    int32_t from, pass;
    struct md_arena arena, work;
    struct md_attention_block *places;
    struct md_select_block *blocks;
    const uint16_t **keys; /* of each, all layers */
    size_t *index;         /* of each: its block on the tape */
    size_t count;
    struct md_scores scores;
    struct md_selection selection;
};

/* Hot whatever is chosen: as md_residency_plan will find. */
static bool is_protected(const struct md_session *s, size_t i)
{
    const struct md_stream_policy *stream = &s->pool->hot.stream;
    const struct md_range r = md_tape_range(&s->tape, i);
    return r.start < stream->sink_tokens || r.end > (int32_t)s->context.count - stream->recent_tokens ||
           s->tape.blocks[i].cls == MD_CLASS_TASK_PINNED;
}

/* The keys of block i; NULL: they cannot be had, which loses nothing but its chance.  MD_SESSION_FATAL. */
static enum md_status keys_of(const struct round *q, size_t i, int64_t mark, const uint16_t **ret_keys,
                              struct md_err *err)
{
    struct md_session *s = q->t->s;
    const struct md_tape_block *b = &s->tape.blocks[i];
    const struct md_mirror_source from = { s->pool->engine, s->pool->cold, s->drive.seq,
                                           b->state == MD_STATE_HOT };
    const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
    *ret_keys = NULL;
    if (b->state == MD_STATE_LOST)
        return MD_OK;
    enum md_status st = md_mirror_keys(q->r->mirror, &from, &ref, mark, ret_keys, err);
    if (st != MD_OK)
        *ret_keys = NULL;
    return st == MD_SESSION_FATAL ? st : MD_OK;
}

static enum md_status gather(struct round *q, struct md_retrieval *out, struct md_err *err)
{
    struct md_session *s = q->t->s;
    const size_t count = (size_t)(q->from / s->tape.block_tokens); /* whole ones before the question */
    const int64_t mark = md_mirror_mark(q->r->mirror);
    q->places = md_arena_get(&q->arena, count + 1, sizeof *q->places);
    q->blocks = md_arena_get(&q->arena, count + 1, sizeof *q->blocks);
    q->keys = md_arena_get(&q->arena, count + 1, sizeof *q->keys);
    q->index = md_arena_get(&q->arena, count + 1, sizeof *q->index);
    if (q->places == NULL || q->blocks == NULL || q->keys == NULL || q->index == NULL)
        return md_fail(err, MD_NO_MEMORY, "scores of %zu blocks", count);
    out->unscored = 0;
    for (size_t i = 0; i < count; i++) {
        const struct md_tape_block *b = &s->tape.blocks[i];
        const struct md_range range = md_tape_range(&s->tape, i);
        if (b->held_out)
            continue;
        const uint16_t *keys;
        enum md_status st = keys_of(q, i, mark, &keys, err);
        if (st != MD_OK)
            return st;
        out->unscored += keys == NULL;
        if (keys == NULL)
            continue;
        q->places[q->count] =
            (struct md_attention_block){ range.start, md_range_len(range), !is_protected(s, i) };
        q->blocks[q->count] = (struct md_select_block){
            .incumbent = b->incumbent,
            .beaten = b->beaten,
            .text = md_content_key(s->tape.tokens + range.start, (size_t)md_range_len(range)),
        };
        q->keys[q->count] = keys;
        q->index[q->count++] = i;
    }
    out->scored = (int32_t)q->count;
    return MD_OK;
}

/* The heads of one layer that share key head `kv`, from heads->heads[*at] on. */
static enum md_status add_group(struct round *q, size_t *at, int64_t layer_at, struct md_attention_group *g,
                                struct md_attention_head *heads, struct md_err *err)
{
    const struct md_calibrate_set *set = &q->r->heads;
    const struct md_engine *e = q->t->s->pool->engine;
    const int32_t layer = set->heads[*at].layer, block = q->t->s->tape.block_tokens;
    int32_t ignored;
    const struct md_attention_layer *of = &md_engine_attention(e, &ignored)[layer];
    const int32_t per = of->query_heads / of->key_heads, kv = set->heads[*at].head / per;
    struct md_queries queries;
    enum md_status s = md_engine_queries((struct md_engine *)e, layer, &queries, err);
    const uint16_t **keys = md_arena_get(&q->arena, q->count, sizeof *keys);
    if (s == MD_OK && keys == NULL)
        s = md_fail(err, MD_NO_MEMORY, "keys of %zu blocks", q->count);
    if (s != MD_OK)
        return s;
    for (size_t i = 0; i < q->count; i++) /* all whole: see gather() */
        keys[i] = q->keys[i] + layer_at * block + (int64_t)kv * block * of->length;
    *g = (struct md_attention_group){ .keys = keys, .length = (size_t)of->length, .heads = heads };
    while (*at < set->count && set->heads[*at].layer == layer && set->heads[*at].head / per == kv)
        heads[g->head_count++] = (struct md_attention_head){
            .queries = queries.at + (int64_t)set->heads[(*at)++].head * of->length,
            .stride = (size_t)queries.heads * (size_t)queries.length,
            .scale = of->scale,
        };
    return MD_OK;
}

/* What each head makes of the question, as groups that share keys. */
static enum md_status make_groups(struct round *q, struct md_attention_input *in, struct md_err *err)
{
    const struct md_calibrate_set *set = &q->r->heads;
    int32_t ignored;
    const struct md_attention_layer *of = md_engine_attention(q->t->s->pool->engine, &ignored);
    struct md_attention_group *groups = md_arena_get(&q->arena, set->count, sizeof *groups);
    struct md_attention_head *heads = md_arena_get(&q->arena, set->count, sizeof *heads);
    if (groups == NULL || heads == NULL)
        return md_fail(err, MD_NO_MEMORY, "heads");
    int64_t layer_at = 0; /* numbers of a token before this layer's */
    int32_t layer = set->heads[0].layer;
    enum md_status s = MD_OK;
    for (size_t at = 0, n = 0; at < set->count && s == MD_OK; n = at) {
        if (set->heads[at].layer != layer) {
            layer_at += (int64_t)of[layer].key_heads * of[layer].length;
            layer = set->heads[at].layer;
        }
        s = add_group(q, &at, layer_at, &groups[in->group_count++], heads + n, err);
    }
    in->groups = groups;
    return s;
}

/* Attention of the question, then a score for each block. */
static enum md_status score(struct round *q, struct md_err *err)
{
    const size_t rows = (size_t)((int32_t)q->t->s->context.count - q->from);
    const struct md_attention_clause whole = { 0, rows };
    struct md_attention_input in = {
        .blocks = q->places, .block_count = q->count, .row_count = rows, .clauses = &whole, .clause_count = 1
    };
    enum md_status s = make_groups(q, &in, err);
    const size_t tokens = md_attention_tokens(q->places, q->count), heads = q->r->heads.count;
    struct md_attention_scores masses = { .mass = md_arena_get(&q->arena, heads * tokens, sizeof(float)),
                                          .share = md_arena_get(&q->arena, heads, sizeof(float)) };
    if (s == MD_OK && (masses.mass == NULL || masses.share == NULL))
        s = md_fail(err, MD_NO_MEMORY, "masses of %zu tokens", tokens);
    if (s == MD_OK && q->r->observer.seen != NULL)
        q->r->observer.seen(q->r->observer.user, &in, &q->r->heads, q->index, q->from, q->pass);
    if (s == MD_OK)
        s = md_attention_score(&in, &q->work, &masses, err);
    if (s != MD_OK)
        return s;
    const struct md_score_input said = { .blocks = q->places,
                                         .block_count = q->count,
                                         .head_count = heads,
                                         .clause_count = 1,
                                         .clause_rows = &rows,
                                         .mass = masses.mass,
                                         .share = masses.share };
    return md_score_blocks(&said, &q->r->params.score, &q->arena, &q->scores, err);
}

static enum md_status choose(struct round *q, struct md_err *err)
{
    const struct md_session *s = q->t->s;
    const int32_t rows = (int32_t)s->context.count - q->from;
    struct md_select_budget budget;
    enum md_status st = md_select_budget(s->pool->hot.limit_tokens - rows - s->tape.block_tokens,
                                         s->drive.protected_tokens, &q->r->params.shares, &budget, err);
    if (st == MD_OK)
        st = md_select_blocks(q->places, q->blocks, &q->scores, &budget, &q->r->params.select, &q->arena,
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
    for (size_t k = 0; k < q->count; k++) {
        struct md_tape_block *b = &tape->blocks[q->index[k]];
        const struct md_select_verdict *v = &q->selection.blocks[k];
        b->retrieved = v->wanted;
        b->why = (uint8_t)(1 + v->why);
        b->next_beaten = v->beaten; /* those that come in the next pass are judged as this one was */
        if (v->wanted && b->state != MD_STATE_HOT) {
            *ret_more = true;
            out->brought_tokens += md_range_len(md_tape_range(tape, q->index[k]));
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
    struct round q = { .t = t, .r = t->s->pool->retriever, .from = from, .pass = pass };
    const int64_t t0 = md_clock_mono_ns();
    *ret_more = false;
    md_arena_init(&q.arena, q.r->alloc, ARENA_BYTES_MAX);
    md_arena_init(&q.work, q.r->alloc, MD_ATTENTION_WORK_BYTES);
    enum md_status s = gather(&q, out, err);
    if (s == MD_OK && q.count > 0) {
        s = score(&q, err);
        if (s == MD_OK)
            s = choose(&q, err);
        if (s == MD_OK)
            take(&q, out, ret_more);
    }
    md_arena_done(&q.work);
    md_arena_done(&q.arena);
    out->score_ns += md_clock_mono_ns() - t0;
    return s;
}

/* ---- passes ---- */

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
static enum md_status go_back(struct md_turn *t, int32_t from, struct md_err *err)
{
    struct md_drive *d = &t->s->drive;
    const int64_t dropped = d->hot->dropped_tokens, blocks = d->dropped_blocks;
    enum md_status st = md_drive_cut(d, from, false, err);
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

enum md_status md_retrieve_evaluate(struct md_turn *t, int32_t from, const float **ret_logits,
                                    struct md_err *err)
{
    struct md_session *s = t->s;
    struct md_retriever *r = s->pool->retriever;
    struct md_retrieval *out = &t->result.retrieval;
    *out = (struct md_retrieval){ .due = true, .question = (int32_t)s->context.count - from };
    enum md_status st = md_engine_watch(s->pool->engine, r->layers, r->layer_count, err);
    if (st == MD_OK)
        st = evaluate(t, from, ret_logits, err);
    bool more = st == MD_OK;
    out->evaluations = 1;
    for (int32_t pass = 0; more && pass < r->params.passes; pass++) {
        st = md_turn_check_cancel(t->sink, err);
        if (st == MD_OK)
            st = score_and_choose(t, from, pass, out, &more, err);
        if (st != MD_OK || !more)
            break;
        st = go_back(t, from, err);
        if (st == MD_OK)
            st = evaluate(t, from, ret_logits, err);
        more = st == MD_OK;
        out->evaluations++;
    }
    if (st == MD_OK)
        keep_question(s, from);
    struct md_err ignored;
    (void)!md_engine_watch(s->pool->engine, NULL, 0, &ignored);
    md_log(MD_LOG_DEBUG,
           "retrieval: %d tokens asked, %d times; %d blocks scored, %d not; %d of %d heads; %d of %d tokens "
           "chosen, %d brought; %.0f ms",
           out->question, out->evaluations, out->scored, out->unscored, out->heads_used, out->heads_asked,
           out->chosen_tokens, out->asked_tokens, out->brought_tokens, (double)out->score_ns / 1e6);
    return st;
}
