/* calibrator_measure.c - what a question pays to needles, and tokens that repeat to their copies.  See calibrator.h. */
#include "session/calibrator_internal.h"

#include "engine/attention.h"
#include "policy/attention.h"

enum { ARENA_BYTES_MAX = 256 << 20 };

/* One layer's heads over the blocks of the prompt. */
struct layer {
    struct md_calibrator *c;
    const struct md_attention_layer *of;
    struct md_calibrate_measure *to; /* of its first head */
    int64_t before;                  /* numbers of a token's keys of the group's layers before it */
    int32_t number, rows;
    struct md_attention_input in;
    struct md_attention_scores masses;
};

static int32_t prompt_count(const struct md_calibrator *c)
{
    return (int32_t)c->haystack.prompt.count;
}

/* All but the first block may be found: what models attend to when they find nothing is at the beginning. */
static enum md_status place_blocks(const struct md_calibrator *c, size_t count, struct md_arena *arena,
                                   struct md_attention_input *in, struct md_err *err)
{
    struct md_attention_block *blocks = md_arena_get(arena, count, sizeof *blocks);
    if (blocks == NULL)
        return md_fail(err, MD_NO_MEMORY, "places of %zu blocks", count);
    for (size_t i = 0; i < count; i++) {
        const struct md_range r = md_tape_range(&c->tape, i);
        const int32_t end = r.end < prompt_count(c) ? r.end : prompt_count(c);
        blocks[i] = (struct md_attention_block){ r.start, end - r.start, i > 0 };
    }
    in->blocks = blocks;
    in->block_count = count;
    return MD_OK;
}

/* The rows of a question together, those of tokens that repeat each for itself. */
static enum md_status make_clauses(const struct md_calibrator *c, int32_t rows, struct md_arena *arena,
                                   struct md_attention_input *in, struct md_err *err)
{
    const bool repeats = c->stage == MD_NEEDLES_KINDS;
    in->row_count = (size_t)rows;
    in->clause_count = repeats ? (size_t)rows : 1;
    struct md_attention_clause *clauses = md_arena_get(arena, in->clause_count, sizeof *clauses);
    if (clauses == NULL)
        return md_fail(err, MD_NO_MEMORY, "rows of a question");
    for (size_t i = 0; i < in->clause_count; i++)
        clauses[i] = repeats ? (struct md_attention_clause){ i, i + 1 }
                             : (struct md_attention_clause){ 0, in->row_count };
    in->clauses = clauses;
    return MD_OK;
}

/* The layer's heads, those that share keys together. */
static enum md_status make_groups(struct layer *l, const uint16_t *const *keys, struct md_arena *arena,
                                  struct md_err *err)
{
    const struct md_attention_layer *of = l->of;
    const int32_t per = of->query_heads / of->key_heads;
    struct md_attention_group *groups = md_arena_get(arena, (size_t)of->key_heads, sizeof *groups);
    struct md_attention_head *heads = md_arena_get(arena, (size_t)of->query_heads, sizeof *heads);
    struct md_queries q;
    enum md_status s = md_engine_queries(l->c->hot->engine, l->number, &q, err);
    if (s == MD_OK && (groups == NULL || heads == NULL))
        s = md_fail(err, MD_NO_MEMORY, "heads");
    for (int32_t kv = 0; kv < of->key_heads && s == MD_OK; kv++) {
        const uint16_t **at = md_arena_get(arena, l->in.block_count, sizeof *at);
        if (at == NULL)
            return md_fail(err, MD_NO_MEMORY, "keys of %zu blocks", l->in.block_count);
        for (size_t i = 0; i < l->in.block_count; i++)
            at[i] = keys[i] + (l->before + (int64_t)kv * of->length) * l->in.blocks[i].tokens;
        groups[kv] = (struct md_attention_group){ .keys = at,
                                                  .length = (size_t)of->length,
                                                  .heads = heads + (ptrdiff_t)kv * per,
                                                  .head_count = (size_t)per };
        for (int32_t h = kv * per; h < (kv + 1) * per; h++)
            heads[h] = (struct md_attention_head){ .queries = q.at + (int64_t)h * of->length,
                                                   .stride = (size_t)q.heads * (size_t)q.length,
                                                   .scale = of->scale };
    }
    l->in.groups = groups;
    l->in.group_count = (size_t)of->key_heads;
    return s;
}

static float sum_over(const float *mass, struct md_range r)
{
    float sum = 0;
    for (int32_t p = r.start; p < r.end; p++)
        sum += mass[p];
    return sum;
}

/* Of one head; mass: of each token of the prompt, of all rows together. */
static void add_question(const struct md_calibrator *c, const float *mass, float rows,
                         struct md_calibrate_measure *to)
{
    const struct md_haystack *h = &c->haystack;
    if (c->question < MD_NEEDLES) {
        to->gold += sum_over(mass, h->gold[c->question]) / rows;
        to->near += sum_over(mass, h->near[c->question]) / rows;
        return;
    }
    for (int i = 0; i < MD_NEEDLES; i++)
        to->null += sum_over(mass, h->gold[i]) / rows;
}

/* Of one head; mass: [row][token].  Up to twice what an even share gives counts nothing: that is found by looking nowhere. */
static void add_repeats(const struct md_calibrator *c, const float *mass, int32_t rows,
                        struct md_calibrate_measure *to)
{
    const int32_t tokens = prompt_count(c), first = md_tape_range(&c->tape, 0).end;
    for (int32_t row = 0; row < rows; row++, mass += tokens) {
        float same = 0, behind = 0;
        int32_t copies = 0;
        for (int32_t p = row; p + 1 < tokens; p += c->period) {
            if (p < first)
                continue; /* no candidate */
            copies++;
            same += mass[p];
            behind += mass[p + 1];
        }
        const float even = 2 * (float)copies / (float)(tokens - first);
        to->echo += (same - even) / (float)rows;
        to->induction += (behind - even) / (float)rows;
    }
}

static enum md_status measure_layer(struct layer *l, const uint16_t *const *keys, struct md_arena *arena,
                                    struct md_arena *work, struct md_err *err)
{
    const struct md_calibrator *c = l->c;
    const size_t tokens = md_attention_tokens(l->in.blocks, l->in.block_count),
                 heads = (size_t)l->of->query_heads, each = l->in.clause_count * tokens;
    enum md_status s = make_groups(l, keys, arena, err);
    l->masses.mass = md_arena_get(arena, heads * each, sizeof(float));
    l->masses.share = md_arena_get(arena, heads * l->in.clause_count, sizeof(float));
    if (s == MD_OK && (l->masses.mass == NULL || l->masses.share == NULL))
        s = md_fail(err, MD_NO_MEMORY, "masses of %zu tokens", tokens);
    if (s == MD_OK)
        s = md_attention_score(&l->in, work, &l->masses, err);
    for (size_t h = 0; h < heads && s == MD_OK; h++) {
        if (c->stage == MD_NEEDLES_KINDS)
            add_repeats(c, l->masses.mass + h * each, l->rows, &l->to[h]);
        else
            add_question(c, l->masses.mass + h * each, (float)l->rows, &l->to[h]);
    }
    return s;
}

enum md_status md_calibrator_measure(struct md_calibrator *c, const uint16_t *const *keys, size_t block_count,
                                     int32_t rows, struct md_err *err)
{
    const struct md_calibrator_group *g = &c->groups[c->group];
    int32_t ignored;
    const struct md_attention_layer *all = md_engine_attention(c->hot->engine, &ignored);
    int64_t before = 0;
    enum md_status s = MD_OK;
    for (int32_t i = g->first; i < g->end && s == MD_OK; i++) {
        struct layer l = { .c = c,
                           .of = &all[c->layers[i]],
                           .to = &c->measures[c->first_measure[i]],
                           .before = before,
                           .number = c->layers[i],
                           .rows = rows };
        struct md_arena arena, work;
        md_arena_init(&arena, c->hot->alloc, ARENA_BYTES_MAX);
        md_arena_init(&work, c->hot->alloc, MD_ATTENTION_WORK_BYTES);
        s = place_blocks(c, block_count, &arena, &l.in, err);
        if (s == MD_OK)
            s = make_clauses(c, rows, &arena, &l.in, err);
        if (s == MD_OK)
            s = measure_layer(&l, keys, &arena, &work, err);
        before += (int64_t)l.of->key_heads * l.of->length;
        md_arena_done(&work);
        md_arena_done(&arena);
    }
    return s;
}
