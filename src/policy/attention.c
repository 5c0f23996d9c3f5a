/* attention.c - see attention.h.
 *
 * Query rows of a group are cut into strips of 8 that belong to one head and clause, and as many pairs of strips
 * are worked on at once as there is room for (a *tile*).  Block by block, keys are widened once a tile, and
 * exp(logit - the block's largest) is kept for each candidate; beside it a running softmax gives each row's own
 * largest and sum.  When all blocks are through, each kept value needs one factor more, which is the same for a row
 * and block, and is summed into the outputs.  So each product of a query and a key is computed once. */
#include "policy/attention.h"

#include "policy/attention_kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { STRIP = MD_ATTENTION_STRIP, PAIR = MD_ATTENTION_PAIR };

struct strip {
    size_t head; /* within the group */
    size_t clause, first, rows;
    int32_t earliest; /* of its rows' positions */
};

/* A row's softmax so far, over candidates and over the others. */
struct row {
    float most, outer_most;
    double sum, outer_sum; /* in units of e^most; 0: has seen none */
};

struct tile {
    const struct md_attention_input *in;
    const struct md_attention_kernel *kernel;
    struct strip *strips; /* of the whole group */
    struct row *rows;     /* [pairs][16] */
    float *queries;       /* [pairs][length][16], scaled */
    float *values;        /* candidates, block after block: [pairs][tokens][16] */
    float *factors;       /* [blocks][pairs][16]: the block's largest logit, then the factor of its values */
    float *keys, *outer;  /* of one block: widened; logits of a block that is no candidate */
    size_t pairs;         /* at once */
};

/* ---- sizes ---- */

struct sizes {
    size_t tokens, candidates, block_most, length_most, strips_most;
};

size_t md_attention_tokens(const struct md_attention_block *blocks, size_t count)
{
    size_t tokens = 0;
    for (size_t i = 0; i < count; i++)
        tokens += (size_t)blocks[i].tokens;
    return tokens;
}

static size_t strips_of_clauses(const struct md_attention_input *in)
{
    size_t strips = 0;
    for (size_t c = 0; c < in->clause_count; c++)
        strips += (in->clauses[c].end - in->clauses[c].first + STRIP - 1) / STRIP;
    return strips;
}

static struct sizes measure(const struct md_attention_input *in)
{
    struct sizes z = { 0 };
    for (size_t b = 0; b < in->block_count; b++) {
        const size_t tokens = (size_t)in->blocks[b].tokens;
        z.tokens += tokens;
        z.candidates += in->blocks[b].candidate ? tokens : 0;
        z.block_most = tokens > z.block_most ? tokens : z.block_most;
    }
    const size_t each = strips_of_clauses(in);
    for (size_t g = 0; g < in->group_count; g++) {
        const struct md_attention_group *group = &in->groups[g];
        z.length_most = group->length > z.length_most ? group->length : z.length_most;
        z.strips_most = each * group->head_count > z.strips_most ? each * group->head_count : z.strips_most;
    }
    return z;
}

/* What does not depend on the pairs, and what each pair takes more.  Seven allocations are rounded up to 16 bytes each. */
static size_t fixed_bytes(const struct sizes *z)
{
    return 7 * 16 + z->strips_most * sizeof(struct strip) +
           z->block_most * (z->length_most + PAIR) * sizeof(float);
}

static size_t pair_bytes(const struct sizes *z, size_t blocks)
{
    return PAIR * ((z->length_most + z->candidates + blocks) * sizeof(float) + sizeof(struct row));
}

static size_t pairs_of(size_t strips)
{
    return (strips + 1) / 2;
}

size_t md_attention_work_bytes(const struct md_attention_input *in, size_t rows)
{
    const struct sizes z = measure(in);
    const size_t most = pairs_of(z.strips_most);
    size_t pairs = rows / PAIR + (rows % PAIR != 0);
    pairs = pairs < 1 ? 1 : pairs > most ? most : pairs;
    return fixed_bytes(&z) + pairs * pair_bytes(&z, in->block_count);
}

/* ---- checks ---- */

static enum md_status check_counts(const struct md_attention_input *in, struct md_err *err)
{
    if (in->block_count == 0 || in->group_count == 0 || in->row_count == 0 || in->clause_count == 0)
        return md_fail(err, MD_INVALID, "nothing to score: %zu blocks, %zu groups, %zu rows, %zu clauses",
                       in->block_count, in->group_count, in->row_count, in->clause_count);
    if (in->row_count > MD_ATTENTION_ROWS_MOST)
        return md_fail(err, MD_INVALID, "%zu query rows are more than %d: score the last ones", in->row_count,
                       MD_ATTENTION_ROWS_MOST);
    if (in->clause_count > MD_ATTENTION_CLAUSES_MOST)
        return md_fail(err, MD_INVALID, "%zu clauses are more than %d: join some", in->clause_count,
                       MD_ATTENTION_CLAUSES_MOST);
    for (size_t c = 0; c < in->clause_count; c++)
        if (in->clauses[c].first >= in->clauses[c].end || in->clauses[c].end > in->row_count)
            return md_fail(err, MD_INVALID, "clause %zu is empty or outside the %zu rows: [%zu, %zu)", c,
                           in->row_count, in->clauses[c].first, in->clauses[c].end);
    int64_t tokens = 0;
    for (size_t b = 0; b < in->block_count; b++) {
        if (in->blocks[b].tokens < 1 || in->blocks[b].start < 0 ||
            in->blocks[b].start > INT32_MAX - in->blocks[b].tokens)
            return md_fail(err, MD_INVALID, "block %zu is empty or outside all positions: %d tokens at %d", b,
                           in->blocks[b].tokens, in->blocks[b].start);
        tokens += in->blocks[b].tokens;
    }
    if (tokens > INT32_MAX)
        return md_fail(err, MD_INVALID, "%lld tokens are more than positions", (long long)tokens);
    return MD_OK;
}

static enum md_status check_head(const struct md_attention_input *in, const struct md_attention_group *group,
                                 size_t head, struct md_err *err)
{
    const struct md_attention_head *h = &group->heads[head];
    if (!isfinite(h->scale) || h->scale <= 0)
        return md_fail(err, MD_INVALID, "scale of head %zu is not finite and above 0: %g", head,
                       (double)h->scale);
    for (size_t r = 0; r < in->row_count; r++) {
        const float *q = h->queries + r * h->stride;
        for (size_t i = 0; i < group->length; i++)
            if (!(fabsf(q[i] * h->scale) <= MD_ATTENTION_QUERY_LIMIT)) /* so that no number is refused too */
                return md_fail(err, MD_INVALID,
                               "query of head %zu, row %zu is no number that can be scored: %g", head, r,
                               (double)q[i]);
    }
    return MD_OK;
}

static enum md_status check_groups(const struct md_attention_input *in, struct md_err *err)
{
    size_t heads = 0;
    for (size_t g = 0; g < in->group_count; g++) {
        const struct md_attention_group *group = &in->groups[g];
        if (group->length < 1 || group->length > MD_ATTENTION_LENGTH_MOST)
            return md_fail(err, MD_INVALID, "length of keys of group %zu is not within 1 and %d: %zu", g,
                           MD_ATTENTION_LENGTH_MOST, group->length);
        if (group->head_count == 0 || group->head_count > MD_ATTENTION_HEADS_MOST - heads)
            return md_fail(err, MD_INVALID, "group %zu has no heads, or with it they are more than %d: %zu",
                           g, MD_ATTENTION_HEADS_MOST, group->head_count);
        heads += group->head_count;
        for (size_t h = 0; h < group->head_count; h++) {
            enum md_status s = check_head(in, group, h, err);
            if (s != MD_OK)
                return s;
        }
    }
    return MD_OK;
}

/* ---- a tile ---- */

static enum md_status take_memory(struct tile *t, const struct sizes *z, struct md_arena *work,
                                  struct md_err *err)
{
    const size_t room = work->limit_bytes - work->used_bytes, fixed = fixed_bytes(z);
    const size_t each = pair_bytes(z, t->in->block_count), most = pairs_of(z->strips_most);
    t->pairs = room > fixed ? (room - fixed) / each : 0;
    if (t->pairs == 0)
        return md_fail(err, MD_NO_MEMORY, "scoring needs %zu bytes of work memory and has %zu", fixed + each,
                       room);
    if (t->pairs > most)
        t->pairs = most;
    const size_t lanes = t->pairs * PAIR;
    t->strips = md_arena_get(work, z->strips_most, sizeof *t->strips);
    t->rows = md_arena_get(work, lanes, sizeof *t->rows);
    t->queries = md_arena_get(work, lanes * z->length_most, sizeof(float));
    t->values = md_arena_get(work, lanes * z->candidates, sizeof(float));
    t->factors = md_arena_get(work, lanes * t->in->block_count, sizeof(float));
    t->keys = md_arena_get(work, z->block_most * z->length_most, sizeof(float));
    t->outer = md_arena_get(work, z->block_most * PAIR, sizeof(float));
    if (t->strips == NULL || t->rows == NULL || t->queries == NULL || t->values == NULL ||
        t->factors == NULL || t->keys == NULL || t->outer == NULL)
        return md_fail(err, MD_NO_MEMORY, "scoring: %zu bytes of work memory", fixed + t->pairs * each);
    return MD_OK;
}

/* Returns how many there are. */
static size_t cut_strips(struct tile *t, const struct md_attention_group *group)
{
    const struct md_attention_input *in = t->in;
    size_t n = 0;
    for (size_t h = 0; h < group->head_count; h++)
        for (size_t c = 0; c < in->clause_count; c++)
            for (size_t r = in->clauses[c].first; r < in->clauses[c].end; r += STRIP) {
                const size_t left = in->clauses[c].end - r, rows = left < STRIP ? left : STRIP;
                int32_t earliest = INT32_MAX;
                for (size_t i = 0; in->positions != NULL && i < rows; i++)
                    if (in->positions[r + i] < earliest)
                        earliest = in->positions[r + i];
                t->strips[n++] = (struct strip){ h, c, r, rows, earliest };
            }
    return n;
}

/* Rows become lanes; lanes without a row are 0 and weigh nothing in the end. */
static void load_queries(struct tile *t, const struct md_attention_group *group, size_t first, size_t count)
{
    memset(t->queries, 0, pairs_of(count) * PAIR * group->length * sizeof(float));
    memset(t->rows, 0, pairs_of(count) * PAIR * sizeof *t->rows);
    for (size_t s = 0; s < count; s++) {
        const struct strip *strip = &t->strips[first + s];
        const struct md_attention_head *head = &group->heads[strip->head];
        float *to = t->queries + s / 2 * group->length * PAIR + s % 2 * STRIP;
        for (size_t r = 0; r < strip->rows; r++)
            for (size_t i = 0; i < group->length; i++)
                to[i * PAIR + r] = head->queries[(strip->first + r) * head->stride + i] * head->scale;
    }
}

/* Hides from a strip's lanes what is behind their positions. */
static void mask(const struct tile *t, const struct strip *strip, const struct md_attention_block *block,
                 float *logits)
{
    if (block->start + (block->tokens - 1) <= strip->earliest)
        return;
    for (size_t r = 0; r < strip->rows; r++) {
        const int64_t seen = (int64_t)t->in->positions[strip->first + r] - block->start + 1;
        for (int32_t i = seen > 0 ? (int32_t)(seen < block->tokens ? seen : block->tokens) : 0;
             i < block->tokens; i++)
            logits[(size_t)i * PAIR + r] = MD_ATTENTION_MASKED;
    }
}

/* A block's largest logit and its sum, in units of that, join those of the row. */
static void join(float *most, double *sum, float block_most, float block_sum)
{
    if (block_most <= MD_ATTENTION_MASKED)
        return; /* the row sees nothing of it */
    if (*sum == 0 || block_most > *most) {
        *sum = *sum == 0 ? 0 : *sum * exp((double)*most - (double)block_most);
        *most = block_most;
    }
    *sum += (double)block_sum * exp((double)block_most - (double)*most);
}

static enum md_status score_block(struct tile *t, const struct md_attention_group *group, size_t b,
                                  size_t offset, size_t first, size_t count, struct md_err *err)
{
    const struct md_attention_block *block = &t->in->blocks[b];
    const size_t tokens = (size_t)block->tokens;
    if (!t->kernel->widen(group->keys[b], tokens * group->length, t->keys))
        return md_fail(err, MD_CORRUPT, "a key of block %zu at %d is infinite or no number", b, block->start);
    for (size_t p = 0; p < pairs_of(count); p++) {
        float *logits = block->candidate ? t->values + (offset * t->pairs + p * tokens) * PAIR : t->outer;
        float *most = t->factors + (b * t->pairs + p) * PAIR, sum[PAIR];
        t->kernel->dots(t->queries + p * group->length * PAIR, t->keys, tokens, group->length, logits);
        for (size_t s = 2 * p; s < count && s < 2 * p + 2; s++)
            mask(t, &t->strips[first + s], block, logits + s % 2 * STRIP);
        t->kernel->soften(logits, tokens, most, sum);
        struct row *rows = t->rows + p * PAIR;
        for (size_t i = 0; i < PAIR; i++) {
            if (block->candidate)
                join(&rows[i].most, &rows[i].sum, most[i], sum[i]);
            else
                join(&rows[i].outer_most, &rows[i].outer_sum, most[i], sum[i]);
        }
    }
    return MD_OK;
}

/* Of the lanes of strip s: what turns values of a block into weights of the softmax. */
static void find_factors(struct tile *t, const struct strip *strip, size_t s)
{
    for (size_t b = 0; b < t->in->block_count; b++) {
        if (!t->in->blocks[b].candidate)
            continue;
        float *factor = t->factors + (b * t->pairs + s / 2) * PAIR + s % 2 * STRIP;
        for (size_t r = 0; r < STRIP; r++) {
            const struct row *row = &t->rows[s * STRIP + r];
            if (r >= strip->rows || row->sum == 0 || factor[r] <= MD_ATTENTION_MASKED)
                factor[r] = 0;
            else
                factor[r] = (float)(exp((double)factor[r] - (double)row->most) / row->sum);
        }
    }
}

static double share_of(const struct row *row)
{
    if (row->sum == 0)
        return 0;
    return row->outer_sum == 0
               ? 1
               : 1 / (1 + row->outer_sum / row->sum * exp((double)row->outer_most - (double)row->most));
}

/* Strips of the same head and clause are gathered together, so that their lanes are summed up once. */
static void gather(struct tile *t, size_t first, size_t count, size_t head_base,
                   const struct md_attention_scores *to, size_t token_count)
{
    const struct md_attention_input *in = t->in;
    for (size_t s = 0, end; s < count; s = end) {
        const struct strip *strip = &t->strips[first + s];
        const size_t out = (head_base + strip->head) * in->clause_count + strip->clause;
        const size_t clause_rows = in->clauses[strip->clause].end - in->clauses[strip->clause].first;
        double share = 0;
        for (end = s; end < count && t->strips[first + end].head == strip->head &&
                      t->strips[first + end].clause == strip->clause;
             end++) {
            find_factors(t, &t->strips[first + end], end);
            for (size_t r = 0; r < t->strips[first + end].rows; r++)
                share += share_of(&t->rows[end * STRIP + r]);
        }
        to->share[out] += (float)(share / (double)clause_rows);
        size_t at = 0, offset = 0;
        for (size_t b = 0; b < in->block_count; b++) {
            const size_t tokens = (size_t)in->blocks[b].tokens;
            if (in->blocks[b].candidate) {
                t->kernel->gather(t->values + offset * t->pairs * PAIR, tokens, s, end,
                                  t->factors + b * t->pairs * PAIR, to->mass + out * token_count + at,
                                  to->peak != NULL ? to->peak + out * token_count + at : NULL);
                offset += tokens;
            }
            at += tokens;
        }
    }
}

static enum md_status score_group(struct tile *t, const struct md_attention_group *group, size_t head_base,
                                  const struct md_attention_scores *to, size_t token_count,
                                  struct md_err *err)
{
    const size_t strips = cut_strips(t, group);
    for (size_t first = 0; first < strips; first += 2 * t->pairs) {
        const size_t left = strips - first, count = left < 2 * t->pairs ? left : 2 * t->pairs;
        load_queries(t, group, first, count);
        size_t offset = 0; /* candidate tokens so far */
        for (size_t b = 0; b < t->in->block_count; b++) {
            enum md_status s = score_block(t, group, b, offset, first, count, err);
            if (s != MD_OK)
                return s;
            offset += t->in->blocks[b].candidate ? (size_t)t->in->blocks[b].tokens : 0;
        }
        gather(t, first, count, head_base, to, token_count);
    }
    return MD_OK;
}

enum md_status md_attention_score(const struct md_attention_input *in, struct md_arena *work,
                                  const struct md_attention_scores *ret_scores, struct md_err *err)
{
    enum md_status s = check_counts(in, err);
    if (s == MD_OK)
        s = check_groups(in, err);
    if (s != MD_OK)
        return s;
    const struct sizes z = measure(in);
    struct tile t = { .in = in, .kernel = md_attention_kernel_best() };
    s = take_memory(&t, &z, work, err);
    if (s != MD_OK)
        return s;

    size_t heads = 0;
    for (size_t g = 0; g < in->group_count; g++)
        heads += in->groups[g].head_count;
    const size_t outputs = heads * in->clause_count;
    memset(ret_scores->mass, 0, outputs * z.tokens * sizeof(float));
    memset(ret_scores->share, 0, outputs * sizeof(float));
    if (ret_scores->peak != NULL)
        memset(ret_scores->peak, 0, outputs * z.tokens * sizeof(float));
    heads = 0;
    for (size_t g = 0; g < in->group_count && s == MD_OK; g++) {
        s = score_group(&t, &in->groups[g], heads, ret_scores, z.tokens, err);
        heads += in->groups[g].head_count;
    }
    return s;
}
