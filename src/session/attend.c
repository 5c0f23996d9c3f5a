/* attend.c - see attend.h. */
#include "session/attend.h"

#include "engine/attention.h"
#include "session/session_internal.h"

#include <assert.h>
#include <string.h>

enum {
    LAYERS_MAX = MD_CALIBRATE_LAYERS_MOST,
    ARENA_BYTES_MAX =
        1 << 30, /* of one scoring; masses of one clause take 51 MB with 200,000 tokens and 64 heads */
};

struct md_attend {
    const struct md_alloc *alloc;
    struct md_engine *engine; /* borrowed */
    struct md_calibrate_set heads;
    int32_t layers[LAYERS_MAX], layer_count; /* that have one of them */
    struct md_mirror *mirror;
};

/* ---- open ---- */

bool md_attend_is_scored(const struct md_attention_layer *l)
{
    return l->length > 0 && !l->windowed;
}

/* The layers that have one of the heads, ascending as those are. */
static int32_t list_layers(const struct md_calibrate_set *set, int32_t layers[LAYERS_MAX])
{
    int32_t count = 0;
    for (size_t i = 0; i < set->count; i++)
        if (count == 0 || layers[count - 1] != set->heads[i].layer)
            layers[count++] = set->heads[i].layer;
    return count;
}

static enum md_status choose_heads(struct md_attend *a, const struct md_calibrate_params *params,
                                   struct md_err *err)
{
    int32_t layers;
    size_t count = 0;
    const struct md_attention_layer *of = md_engine_attention(a->engine, &layers);
    struct md_arena arena;
    md_arena_init(&arena, a->alloc, ARENA_BYTES_MAX);
    for (int32_t i = 0; i < layers; i++)
        count += md_attend_is_scored(&of[i]) ? (size_t)of[i].query_heads : 0;
    struct md_calibrate_measure *m = md_arena_get(&arena, count + 1, sizeof *m);
    enum md_status s = m == NULL ? md_fail(err, MD_NO_MEMORY, "heads of %d layers", layers) : MD_OK;
    count = 0;
    for (int32_t i = 0; s == MD_OK && i < layers; i++)
        for (int32_t h = 0; md_attend_is_scored(&of[i]) && h < of[i].query_heads; h++)
            m[count++] = (struct md_calibrate_measure){ .layer = i, .head = h };
    if (s == MD_OK)
        s = md_calibrate_choose(m, count, layers, params, &arena, &a->heads, err);
    if (s == MD_OK)
        a->layer_count = list_layers(&a->heads, a->layers);
    md_arena_done(&arena);
    return s;
}

static const char *why_not(const struct md_pool_config *c, const struct md_engine *e)
{
    const unsigned caps = md_engine_caps(e);
    int32_t layers = 0;
    if (md_engine_info(e)->tail_only)
        return "a model of recurrent or windowed layers alone has no keys of what is far";
    if (!(caps & MD_CAP_ATTENTION_SCORES) || md_engine_attention(e, &layers) == NULL)
        return "the engine gives no scores of attention for this model and KV type";
    if (!c->residency || c->window_tokens <= c->hot_tokens)
        return "all of the context is hot";
    if (c->cold_bytes == 0)
        return "there is no cold store in memory";
    if (!(caps & MD_CAP_REMOVE_TAIL))
        return "this engine does not go back to the question";
    return c->past_window ? "positions past the trained window are not scored" : NULL;
}

/* What a token's keys take: of the layers now in use, or of as many others as a set that is measured may have. */
static int64_t token_numbers(const struct md_attend *a, bool measured_too)
{
    int32_t layers;
    int64_t most = 0;
    const struct md_attention_layer *of = md_engine_attention(a->engine, &layers);
    const int64_t now = md_mirror_token_numbers(a->engine, a->layers, a->layer_count);
    for (int32_t i = 0; i < layers; i++)
        if (md_attend_is_scored(&of[i]) && (int64_t)of[i].key_heads * of[i].length > most)
            most = (int64_t)of[i].key_heads * of[i].length;
    const int64_t heads = (int64_t)md_calibrate_defaults().heads;
    most *= heads < layers ? heads : layers;
    return now > most || !measured_too ? now : most;
}

enum md_status md_attend_open(const struct md_pool_config *config, struct md_engine *engine,
                              const struct md_calibrate_params *heads, struct md_attend **ret_attend,
                              const char **ret_why, struct md_err *err)
{
    *ret_attend = NULL;
    *ret_why = why_not(config, engine);
    if (*ret_why != NULL)
        return MD_OK;
    struct md_attend *a = md_calloc(config->alloc, 1, sizeof *a);
    if (a == NULL)
        return md_fail(err, MD_NO_MEMORY, "heads to score with");
    a->alloc = config->alloc;
    a->engine = engine;
    enum md_status s = choose_heads(a, heads, err);
    if (s == MD_NOT_FOUND)
        *ret_why = "no layer between 30 and 75 % of the model's depth can be scored";
    if (s == MD_OK)
        s = md_mirror_open(config->alloc, engine, a->layers, a->layer_count,
                           md_mirror_budget(token_numbers(a, config->retrieve == NULL), config->block_tokens,
                                            config->window_tokens, config->cold_bytes),
                           &a->mirror, err);
    if (s == MD_OK)
        *ret_attend = a;
    else
        md_attend_close(a);
    return s == MD_NOT_FOUND ? MD_OK : s;
}

static enum md_status check_heads(const struct md_engine *e, const struct md_calibrate_set *set,
                                  struct md_err *err)
{
    int32_t layers;
    const struct md_attention_layer *of = md_engine_attention(e, &layers);
    for (size_t i = 0; i < set->count; i++) {
        const struct md_calibrate_head *h = &set->heads[i];
        if (h->layer < 0 || h->layer >= layers || h->head < 0 || !md_attend_is_scored(&of[h->layer]) ||
            h->head >= of[h->layer].query_heads)
            return md_fail(err, MD_INVALID, "this engine does not give head %d of layer %d", h->head,
                           h->layer);
        if (i > 0 && (h->layer < h[-1].layer || (h->layer == h[-1].layer && h->head <= h[-1].head)))
            return md_fail(err, MD_INVALID, "heads are not in order: %d of layer %d", h->head, h->layer);
    }
    return set->count > 0 ? MD_OK : md_fail(err, MD_INVALID, "a set of no heads");
}

enum md_status md_attend_use(struct md_attend *a, const struct md_calibrate_set *set, struct md_err *err)
{
    int32_t layers[LAYERS_MAX];
    struct md_mirror *mirror;
    enum md_status s = check_heads(a->engine, set, err);
    if (s != MD_OK)
        return s;
    const int32_t count = list_layers(set, layers);
    s = md_mirror_open(a->alloc, a->engine, layers, count, md_mirror_stats(a->mirror).budget_bytes, &mirror,
                       err);
    if (s != MD_OK)
        return s;
    md_mirror_close(a->mirror);
    a->mirror = mirror;
    a->heads = *set;
    a->layer_count = count;
    memcpy(a->layers, layers, sizeof layers);
    return MD_OK;
}

void md_attend_close(struct md_attend *a)
{
    if (a == NULL)
        return;
    md_mirror_close(a->mirror);
    md_free(a->alloc, a);
}

const struct md_calibrate_set *md_attend_heads(const struct md_attend *a)
{
    return a != NULL ? &a->heads : NULL;
}

struct md_mirror_stats md_attend_mirror(const struct md_attend *a)
{
    return a == NULL ? (struct md_mirror_stats){ 0 } : md_mirror_stats(a->mirror);
}

enum md_status md_attend_watch(struct md_attend *a, struct md_err *err)
{
    return md_engine_watch(a->engine, a->layers, a->layer_count, err);
}

void md_attend_ignore(struct md_attend *a)
{
    struct md_err ignored;
    (void)!md_engine_watch(a->engine, NULL, 0, &ignored);
}

/* ---- the blocks ---- */

bool md_attend_is_protected(const struct md_session *s, size_t block)
{
    return s->tape.blocks[block].cls == MD_CLASS_TASK_PINNED ||
           md_stream_flags(md_tape_range(&s->tape, block), s->tape.count, s->pool->hot.stream) != 0;
}

void md_attend_begin(struct md_attend_round *q, struct md_attend *a, struct md_session *s, int32_t from)
{
    assert(from >= 0 && from < s->tape.count);
    *q = (struct md_attend_round){ .attend = a, .s = s, .from = from };
    md_arena_init(&q->arena, a->alloc, ARENA_BYTES_MAX);
    md_arena_init(&q->work, a->alloc, MD_ATTENTION_WORK_BYTES);
}

void md_attend_end(struct md_attend_round *q)
{
    md_arena_done(&q->work);
    md_arena_done(&q->arena);
}

/* The keys of block i; NULL: they cannot be had, which loses nothing but its chance.  MD_SESSION_FATAL. */
static enum md_status keys_of(const struct md_attend_round *q, size_t i, int64_t mark,
                              const uint16_t **ret_keys, struct md_err *err)
{
    struct md_session *s = q->s;
    const struct md_tape_block *b = &s->tape.blocks[i];
    const struct md_mirror_source from = { q->attend->engine, s->pool->cold, s->drive.seq,
                                           b->state == MD_STATE_HOT };
    const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
    *ret_keys = NULL;
    if (b->state == MD_STATE_LOST)
        return MD_OK;
    enum md_status st = md_mirror_keys(q->attend->mirror, &from, &ref, mark, ret_keys, err);
    if (st != MD_OK)
        *ret_keys = NULL;
    return st == MD_SESSION_FATAL ? st : MD_OK;
}

enum md_status md_attend_gather(struct md_attend_round *q, bool cold_too, struct md_err *err)
{
    struct md_tape *t = &q->s->tape;
    const size_t count = (size_t)(q->from / t->block_tokens); /* whole ones before the rows */
    const int64_t mark = md_mirror_mark(q->attend->mirror);
    q->places = md_arena_get(&q->arena, count + 1, sizeof *q->places);
    q->keys = md_arena_get(&q->arena, count + 1, sizeof *q->keys);
    q->index = md_arena_get(&q->arena, count + 1, sizeof *q->index);
    if (q->places == NULL || q->keys == NULL || q->index == NULL)
        return md_fail(err, MD_NO_MEMORY, "scores of %zu blocks", count);
    for (size_t i = 0; i < count; i++) {
        const struct md_range range = md_tape_range(t, i);
        if (t->blocks[i].held_out || (!cold_too && t->blocks[i].state != MD_STATE_HOT))
            continue;
        const uint16_t *keys;
        enum md_status st = keys_of(q, i, mark, &keys, err);
        if (st != MD_OK)
            return st;
        q->unscored += keys == NULL;
        if (keys == NULL)
            continue;
        q->places[q->count] =
            (struct md_attention_block){ range.start, md_range_len(range), !md_attend_is_protected(q->s, i) };
        q->keys[q->count] = keys;
        q->index[q->count++] = i;
    }
    return MD_OK;
}

/* ---- what is paid to them ---- */

/* The heads of one layer that share key head `kv`, from heads->heads[*at] on. */
static enum md_status add_group(struct md_attend_round *q, size_t *at, int64_t layer_at,
                                struct md_attention_group *g, struct md_attention_head *heads,
                                struct md_err *err)
{
    const struct md_calibrate_set *set = &q->attend->heads;
    struct md_engine *e = q->attend->engine;
    const int32_t layer = set->heads[*at].layer, block = q->s->tape.block_tokens;
    int32_t ignored;
    const struct md_attention_layer *of = &md_engine_attention(e, &ignored)[layer];
    const int32_t per = of->query_heads / of->key_heads, kv = set->heads[*at].head / per;
    struct md_queries queries;
    enum md_status s = md_engine_queries(e, layer, &queries, err);
    const uint16_t **keys = md_arena_get(&q->arena, q->count, sizeof *keys);
    if (s == MD_OK && keys == NULL)
        s = md_fail(err, MD_NO_MEMORY, "keys of %zu blocks", q->count);
    if (s != MD_OK)
        return s;
    assert(queries.start <= q->from && queries.start + queries.rows == q->s->tape.count);
    const int64_t row = (int64_t)queries.heads * queries.length;
    for (size_t i = 0; i < q->count; i++) /* all whole: see md_attend_gather() */
        keys[i] = q->keys[i] + layer_at * block + (int64_t)kv * block * of->length;
    *g = (struct md_attention_group){ .keys = keys, .length = (size_t)of->length, .heads = heads };
    while (*at < set->count && set->heads[*at].layer == layer && set->heads[*at].head / per == kv)
        heads[g->head_count++] = (struct md_attention_head){
            .queries =
                queries.at + (q->from - queries.start) * row + (int64_t)set->heads[(*at)++].head * of->length,
            .stride = (size_t)row,
            .scale = of->scale,
        };
    return MD_OK;
}

/* What each head makes of the rows, as groups that share keys. */
static enum md_status make_groups(struct md_attend_round *q, struct md_err *err)
{
    const struct md_calibrate_set *set = &q->attend->heads;
    int32_t ignored;
    const struct md_attention_layer *of = md_engine_attention(q->attend->engine, &ignored);
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
        s = add_group(q, &at, layer_at, &groups[q->in.group_count++], heads + n, err);
    }
    q->in.groups = groups;
    return s;
}

/* The clauses, and how many rows each has. */
static enum md_status put_clauses(struct md_attend_round *q, const struct md_attention_clause *clauses,
                                  size_t count, struct md_err *err)
{
    struct md_attention_clause *own = md_arena_get(&q->arena, count + 1, sizeof *own);
    size_t *rows = md_arena_get(&q->arena, count + 1, sizeof *rows);
    if (own == NULL || rows == NULL)
        return md_fail(err, MD_NO_MEMORY, "%zu clauses", count);
    own[0] = (struct md_attention_clause){ 0, q->in.row_count };
    for (size_t i = 0; i < count; i++)
        own[i] = clauses[i];
    q->in.clauses = own;
    q->in.clause_count = count > 0 ? count : 1;
    for (size_t i = 0; i < q->in.clause_count; i++)
        rows[i] = own[i].end - own[i].first;
    q->clause_rows = rows;
    return MD_OK;
}

enum md_status md_attend_weigh(struct md_attend_round *q, const struct md_attention_clause *clauses,
                               size_t count, struct md_err *err)
{
    q->in = (struct md_attention_input){ .blocks = q->places,
                                         .block_count = q->count,
                                         .row_count = (size_t)(q->s->tape.count - q->from) };
    enum md_status s = put_clauses(q, clauses, count, err);
    if (s == MD_OK)
        s = make_groups(q, err);
    if (s != MD_OK)
        return s;
    const size_t tokens = md_attention_tokens(q->places, q->count),
                 shares = q->attend->heads.count * q->in.clause_count;
    q->masses = (struct md_attention_scores){ .mass = md_arena_get(&q->arena, shares * tokens, sizeof(float)),
                                              .share = md_arena_get(&q->arena, shares, sizeof(float)) };
    if (q->masses.mass == NULL || q->masses.share == NULL)
        return md_fail(err, MD_NO_MEMORY, "masses of %zu tokens", tokens);
    return md_attention_score(&q->in, &q->work, &q->masses, err);
}

enum md_status md_attend_score(struct md_attend_round *q, const struct md_score_params *params,
                               struct md_scores *ret_scores, struct md_err *err)
{
    const struct md_score_input said = { .blocks = q->places,
                                         .block_count = q->count,
                                         .head_count = q->attend->heads.count,
                                         .clause_count = q->in.clause_count,
                                         .clause_rows = q->clause_rows,
                                         .mass = q->masses.mass,
                                         .share = q->masses.share };
    return md_score_blocks(&said, params, &q->arena, ret_scores, err);
}
