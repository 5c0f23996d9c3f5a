/* fake.c - the fake engine: cells, timelines and the forward pass over them.
 *
 * A cell holds the keys and values of one token in all layers.  A timeline lists the cells of one sequence
 * by ascending position; that order is also the order of the attention sums.  A cell may stand in several.  Free cells are a stack: what
 * was freed last is used first, so cells are reused at once and out of order, as a real cache would.
 * The forward pass goes token by token: how tokens are cut into calls cannot change a bit. */
#include "engine/fake.h"

#include "engine/engine_ops.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_SEQS = 4,
    MAX_SEQS = 256, /* llama.cpp's limit, so that nobody gets used to more */
    DEFAULT_BATCH = 512,
    MAX_CELLS = 1 << 24,
    KV_MAGIC = 0x564b4146, /* "FAKV" */
    KV_VERSION = 1,
};

/* What stands before exported rows.  Never on disk as such: it has the byte order of the machine. */
struct kv_head {
    uint32_t magic, version;
    int32_t start, end;
    uint32_t row_floats, reserved;
    uint64_t model; /* fingerprint */
    uint64_t check; /* of the rows */
};

struct cell {
    int32_t pos;
    int32_t holders; /* timelines it stands in; 0: free */
};

struct entry {
    int32_t cell;
    bool hot; /* false: parked */
};

struct timeline {
    struct entry *at; /* by ascending position; room for cell_count */
    int32_t count;
};

struct fake {
    struct md_engine base;
    const struct md_alloc *alloc;
    const struct md_fake_model *model;
    struct md_fake_model *own_model; /* NULL: borrowed */
    size_t row_floats;               /* per cell: for each layer its keys, then its values */
    float *rows;
    struct cell *cells;
    int32_t *free_cells, free_count;
    struct timeline *seqs;
    struct entry *entries; /* memory of all timelines */

    /* work memory of the pass */
    float *x, *normed, *q, *mixed, *gate, *up; /* residual, its norm, queries, attention output, SwiGLU */
    float *turn;                               /* cos and sin of each rotary pair */
    float *scores, *logits;
    const float **seen; /* rows of the visible cells */
};

static const struct md_engine_ops fake_ops;

static struct fake *fake_of(struct md_engine *e)
{
    assert(e->ops == &fake_ops);
    return (struct fake *)e;
}

/* ---- cells and timelines ---- */

/* Index of the first entry at or behind pos. */
static int32_t find(const struct fake *f, const struct timeline *t, int32_t pos)
{
    int32_t low = 0, high = t->count;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (f->cells[t->at[mid].cell].pos < pos)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static float *row_of(const struct fake *f, int32_t cell)
{
    return f->rows + (size_t)cell * f->row_floats;
}

/* Make `cell` a hot entry of the timeline, at index `at`. */
static void insert(struct fake *f, struct timeline *t, int32_t at, int32_t cell)
{
    memmove(t->at + at + 1, t->at + at, (size_t)(t->count - at) * sizeof *t->at);
    t->at[at] = (struct entry){ .cell = cell, .hot = true };
    t->count++;
    f->cells[cell].holders++;
}

/* A hot cell for pos at index `at` of the timeline; the caller made sure that one is free. */
static int32_t add_cell(struct fake *f, struct timeline *t, int32_t at, int32_t pos)
{
    assert(f->free_count > 0);
    int32_t cell = f->free_cells[--f->free_count];
    f->cells[cell] = (struct cell){ .pos = pos };
    insert(f, t, at, cell);
    return cell;
}

static void remove_range(struct fake *f, struct timeline *t, struct md_range r)
{
    int32_t from = find(f, t, r.start), to = find(f, t, r.end);
    for (int32_t i = from; i < to; i++)
        if (--f->cells[t->at[i].cell].holders == 0)
            f->free_cells[f->free_count++] = t->at[i].cell;
    memmove(t->at + from, t->at + to, (size_t)(t->count - to) * sizeof *t->at);
    t->count -= to - from;
}

static void set_hot(struct fake *f, struct timeline *t, struct md_range r, bool hot)
{
    int32_t to = find(f, t, r.end);
    for (int32_t i = find(f, t, r.start); i < to; i++)
        t->at[i].hot = hot;
}

/* ---- the forward pass ---- */

/* Eight sums side by side: a compiler may use vectors without being allowed to reorder. */
static float dot(const float *a, const float *b, int32_t n)
{
    float sum[8] = { 0 };
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int32_t j = 0; j < 8; j++)
            sum[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static void multiply(float *out, const float *matrix, const float *in, int32_t rows, int32_t cols)
{
    for (int32_t i = 0; i < rows; i++)
        out[i] = dot(matrix + (size_t)i * (size_t)cols, in, cols);
}

static void rms_norm(float *out, const float *x, const float *weight, int32_t n, float eps)
{
    float scale = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (int32_t i = 0; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

/* In double: at position 100,000 a float angle is already off by a hundredth of a turn. */
static void fill_turn(struct fake *f, int32_t pos)
{
    const struct md_fake_dims *d = &f->model->dims;
    for (int32_t i = 0; i < d->head_dim / 2; i++) {
        double angle = pos * pow((double)d->rope_base, -2.0 * i / d->head_dim);
        f->turn[2 * i] = (float)cos(angle);
        f->turn[2 * i + 1] = (float)sin(angle);
    }
}

static void rotate(const struct fake *f, float *vectors, int32_t heads)
{
    const int32_t n = f->model->dims.head_dim;
    for (float *v = vectors; v < vectors + (size_t)heads * (size_t)n; v += n)
        for (int32_t i = 0; i < n; i += 2) {
            float a = v[i], b = v[i + 1], c = f->turn[i], s = f->turn[i + 1];
            v[i] = a * c - b * s;
            v[i + 1] = a * s + b * c;
        }
}

/* One query head over the visible rows; key_at and value_at are offsets in a row. */
static void attend(const struct fake *f, const float *q, int32_t seen, size_t key_at, size_t value_at,
                   float *out)
{
    const int32_t n = f->model->dims.head_dim;
    const float scale = 1.0f / sqrtf((float)n);
    float top = -INFINITY, sum = 0;
    for (int32_t i = 0; i < seen; i++) {
        f->scores[i] = dot(q, f->seen[i] + key_at, n) * scale;
        top = fmaxf(top, f->scores[i]);
    }
    memset(out, 0, (size_t)n * sizeof *out);
    for (int32_t i = 0; i < seen; i++) {
        const float w = expf(f->scores[i] - top), *value = f->seen[i] + value_at;
        sum += w;
        for (int32_t j = 0; j < n; j++)
            out[j] += w * value[j];
    }
    for (int32_t j = 0; j < n; j++)
        out[j] /= sum;
}

static void run_layer(struct fake *f, int32_t layer, float *row, int32_t seen)
{
    const struct md_fake_dims *d = &f->model->dims;
    const struct md_fake_layer *l = &f->model->layers[layer];
    const int32_t n = d->head_dim, kv = d->kv_heads * n, group = d->heads / d->kv_heads;
    const size_t key_at = (size_t)layer * 2 * (size_t)kv, value_at = key_at + (size_t)kv;

    rms_norm(f->normed, f->x, l->attn_norm, d->width, d->norm_eps);
    multiply(f->q, l->q, f->normed, d->heads * n, d->width);
    multiply(row + key_at, l->k, f->normed, kv, d->width);
    multiply(row + value_at, l->v, f->normed, kv, d->width);
    rotate(f, f->q, d->heads);
    rotate(f, row + key_at, d->kv_heads);
    for (int32_t h = 0; h < d->heads; h++) {
        size_t head = (size_t)(h / group) * (size_t)n;
        attend(f, f->q + (size_t)h * (size_t)n, seen, key_at + head, value_at + head,
               f->mixed + (size_t)h * (size_t)n);
    }
    for (int32_t i = 0; i < d->width; i++)
        f->x[i] += dot(l->o + (size_t)i * (size_t)(d->heads * n), f->mixed, d->heads * n);

    rms_norm(f->normed, f->x, l->ffn_norm, d->width, d->norm_eps);
    multiply(f->gate, l->gate, f->normed, d->ffn, d->width);
    multiply(f->up, l->up, f->normed, d->ffn, d->width);
    for (int32_t i = 0; i < d->ffn; i++)
        f->up[i] *= f->gate[i] / (1.0f + expf(-f->gate[i]));
    for (int32_t i = 0; i < d->width; i++)
        f->x[i] += dot(l->down + (size_t)i * (size_t)d->ffn, f->up, d->ffn);
}

/* The token at index `at` of the timeline, over the hot cells up to and with itself. */
static void run_token(struct fake *f, const struct timeline *t, int32_t at, md_token token)
{
    const struct md_fake_dims *d = &f->model->dims;
    int32_t seen = 0;
    for (int32_t i = 0; i <= at; i++)
        if (t->at[i].hot)
            f->seen[seen++] = row_of(f, t->at[i].cell);
    fill_turn(f, f->cells[t->at[at].cell].pos);
    memcpy(f->x, f->model->embed + (size_t)token * (size_t)d->width, (size_t)d->width * sizeof *f->x);
    for (int32_t layer = 0; layer < d->layers; layer++)
        run_layer(f, layer, row_of(f, t->at[at].cell), seen);
}

/* Compute tokens at start, start + 1, ...: at the end of a timeline or in a gap of it. */
static enum md_status run_tokens(struct fake *f, md_seq seq, int32_t start, const md_token *tokens,
                                 int32_t count, struct md_err *err)
{
    struct timeline *t = &f->seqs[seq];
    if (count > f->free_count)
        return md_fail(err, MD_NO_MEMORY, "%d tokens do not fit %d free cells", count, f->free_count);
    for (int32_t i = 0; i < count; i++) {
        if (md_engine_interrupted(&f->base)) {
            remove_range(f, t, (struct md_range){ start, start + i });
            return md_fail(err, MD_CANCELLED, "cancelled at token %d of %d", i, count);
        }
        int32_t at = find(f, t, start + i);
        add_cell(f, t, at, start + i);
        run_token(f, t, at, tokens[i]);
    }
    return MD_OK;
}

static enum md_status fake_prefill(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                                   int32_t count, struct md_err *err)
{
    return run_tokens(fake_of(e), seq, start, tokens, count, err);
}

static enum md_status fake_decode(struct md_engine *e, md_seq seq, int32_t pos, md_token token,
                                  const float **ret_logits, struct md_err *err)
{
    struct fake *f = fake_of(e);
    enum md_status s = run_tokens(f, seq, pos, &token, 1, err);
    if (s != MD_OK)
        return s;
    const struct md_fake_dims *d = &f->model->dims;
    rms_norm(f->normed, f->x, f->model->output_norm, d->width, d->norm_eps);
    multiply(f->logits, f->model->output, f->normed, d->vocab, d->width);
    *ret_logits = f->logits;
    return MD_OK;
}

static enum md_status fake_recompute(struct md_engine *e, md_seq seq, struct md_range r,
                                     const md_token *tokens, struct md_err *err)
{
    return run_tokens(fake_of(e), seq, r.start, tokens, md_range_len(r), err);
}

/* ---- KV surgery ---- */

static enum md_status fake_truncate(struct md_engine *e, md_seq seq, int32_t from, struct md_err *err)
{
    (void)err;
    struct fake *f = fake_of(e);
    remove_range(f, &f->seqs[seq], (struct md_range){ from, INT32_MAX });
    return MD_OK;
}

static int64_t fake_export_bytes(const struct md_engine *e, int32_t tokens)
{
    return (int64_t)sizeof(struct kv_head) + tokens * e->info.kv_bytes_per_token;
}

static enum md_status fake_export(struct md_engine *e, md_seq seq, struct md_range r, struct md_buf *ret_kv,
                                  struct md_err *err)
{
    const struct fake *f = fake_of(e);
    const struct timeline *t = &f->seqs[seq];
    const size_t row_bytes = f->row_floats * sizeof(float);
    enum md_status s = md_buf_reserve(ret_kv, (size_t)fake_export_bytes(e, md_range_len(r)), err);
    if (s != MD_OK)
        return s;
    uint8_t *rows = ret_kv->data + ret_kv->len + sizeof(struct kv_head), *next = rows;
    for (int32_t i = find(f, t, r.start), to = find(f, t, r.end); i < to; i++, next += row_bytes)
        memcpy(next, row_of(f, t->at[i].cell), row_bytes);
    const struct kv_head head = { .magic = KV_MAGIC,
                                  .version = KV_VERSION,
                                  .start = r.start,
                                  .end = r.end,
                                  .row_floats = (uint32_t)f->row_floats,
                                  .model = f->model->fingerprint,
                                  .check = md_fake_hash(0, rows, (size_t)(next - rows)) };
    memcpy(rows - sizeof head, &head, sizeof head);
    ret_kv->len += sizeof head + (size_t)(next - rows);
    return MD_OK;
}

static enum md_status fake_remove(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    (void)err;
    remove_range(fake_of(e), &fake_of(e)->seqs[seq], r);
    return MD_OK;
}

/* Everything about foreign bytes is checked before a cell is touched. */
static enum md_status check_kv(const struct fake *f, struct md_range r, struct md_bytes kv,
                               struct md_err *err)
{
    struct kv_head head;
    if (kv.data == NULL || kv.len < sizeof head)
        return md_fail(err, MD_CORRUPT, "exported KV is %zu bytes, too short for its header", kv.len);
    memcpy(&head, kv.data, sizeof head);
    if (head.magic != KV_MAGIC || head.version != KV_VERSION || head.reserved != 0)
        return md_fail(err, MD_CORRUPT, "exported KV does not begin as this engine writes it");
    if (head.model != f->model->fingerprint || head.row_floats != f->row_floats)
        return md_fail(err, MD_INVALID, "exported KV is of another model");
    if (head.start != r.start || head.end != r.end)
        return md_fail(err, MD_INVALID, "exported KV is of [%d, %d), not of [%d, %d)", head.start, head.end,
                       r.start, r.end);
    const size_t want = (size_t)md_range_len(r) * f->row_floats * sizeof(float);
    if (kv.len - sizeof head != want)
        return md_fail(err, MD_CORRUPT, "exported KV has %zu bytes of rows instead of %zu",
                       kv.len - sizeof head, want);
    if (md_fake_hash(0, (const uint8_t *)kv.data + sizeof head, want) != head.check)
        return md_fail(err, MD_CORRUPT, "exported KV of [%d, %d) fails its check", r.start, r.end);
    return MD_OK;
}

/* Turn the keys of a row by `distance` positions. */
static void turn_keys(struct fake *f, float *row, int32_t distance)
{
    const struct md_fake_dims *d = &f->model->dims;
    const size_t layer_floats = 2 * (size_t)d->kv_heads * (size_t)d->head_dim;
    fill_turn(f, distance);
    for (int32_t layer = 0; layer < d->layers; layer++)
        rotate(f, row + (size_t)layer * layer_floats, d->kv_heads);
}

static enum md_status fake_admit_moved(struct md_engine *e, md_seq seq, struct md_range r, int32_t from_start,
                                       struct md_bytes kv, struct md_err *err)
{
    struct fake *f = fake_of(e);
    struct timeline *t = &f->seqs[seq];
    enum md_status s = check_kv(f, (struct md_range){ from_start, from_start + md_range_len(r) }, kv, err);
    if (s != MD_OK)
        return s;
    if (md_range_len(r) > f->free_count)
        return md_fail(err, MD_NO_MEMORY, "%d tokens do not fit %d free cells", md_range_len(r),
                       f->free_count);
    const uint8_t *next = (const uint8_t *)kv.data + sizeof(struct kv_head);
    const size_t row_bytes = f->row_floats * sizeof(float);
    for (int32_t pos = r.start; pos < r.end; pos++, next += row_bytes) {
        float *row = row_of(f, add_cell(f, t, find(f, t, pos), pos));
        memcpy(row, next, row_bytes);
        if (r.start != from_start)
            turn_keys(f, row, r.start - from_start);
    }
    return MD_OK;
}

static enum md_status fake_admit(struct md_engine *e, md_seq seq, struct md_range r, struct md_bytes kv,
                                 struct md_err *err)
{
    return fake_admit_moved(e, seq, r, r.start, kv, err);
}

static enum md_status fake_share(struct md_engine *e, md_seq from, md_seq to, struct md_range r,
                                 struct md_err *err)
{
    (void)err;
    struct fake *f = fake_of(e);
    const struct timeline *source = &f->seqs[from];
    struct timeline *target = &f->seqs[to];
    int32_t at = find(f, target, r.start), end = find(f, source, r.end);
    for (int32_t i = find(f, source, r.start); i < end; i++, at++)
        insert(f, target, at, source->at[i].cell);
    return MD_OK;
}

static enum md_status fake_park(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    (void)err;
    set_hot(fake_of(e), &fake_of(e)->seqs[seq], r, false);
    return MD_OK;
}

static enum md_status fake_unpark(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    (void)err;
    set_hot(fake_of(e), &fake_of(e)->seqs[seq], r, true);
    return MD_OK;
}

/* ---- open and close ---- */

static void fake_close(struct md_engine *e)
{
    struct fake *f = fake_of(e);
    void *const owned[] = { f->rows, f->cells,  f->free_cells, f->seqs,   f->entries,
                            f->x,    f->normed, f->q,          f->mixed,  f->gate,
                            f->up,   f->turn,   f->scores,     f->logits, (void *)f->seen };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        md_free(f->alloc, owned[i]);
    md_fake_model_close(f->own_model);
    md_engine_done(e);
    md_free(f->alloc, f);
}

static const struct md_engine_ops fake_ops = {
    .name = "fake",
    .close = fake_close,
    .prefill = fake_prefill,
    .decode = fake_decode,
    .truncate = fake_truncate,
    .export_range = fake_export,
    .export_bytes = fake_export_bytes,
    .admit_range = fake_admit,
    .admit_moved = fake_admit_moved,
    .remove_range = fake_remove,
    .share = fake_share,
    .park = fake_park,
    .unpark = fake_unpark,
    .recompute_range = fake_recompute,
};

static void fill_info(struct fake *f, const struct md_fake_options *o)
{
    const struct md_fake_dims *d = &f->model->dims;
    struct md_engine_info *i = &f->base.info;
    *i = (struct md_engine_info){
        .engine = "fake",
        .type_k = "f32",
        .type_v = "f32",
        .vocab_count = d->vocab,
        .seq_count = o->seq_count != 0 ? o->seq_count : DEFAULT_SEQS,
        .cell_count = o->cell_count,
        .trained_tokens = d->trained_tokens,
        .batch_tokens = o->batch_tokens != 0 ? o->batch_tokens : DEFAULT_BATCH,
        .ubatch_tokens = 1,
        .kv_bytes_per_token = (int64_t)(f->row_floats * sizeof(float)),
        .model_bytes = (int64_t)(f->model->weight_count * sizeof(float)),
    };
    snprintf(i->model, sizeof i->model, "fake llama, %d layers of width %d, f32", d->layers, d->width);
    snprintf(i->identity, sizeof i->identity, "fake/%016llx/f32/f32",
             (unsigned long long)f->model->fingerprint);
}

static bool allocate(struct fake *f)
{
    const struct md_fake_dims *d = &f->model->dims;
    const size_t cells = (size_t)f->base.info.cell_count, seqs = (size_t)f->base.info.seq_count;
    const size_t q = (size_t)d->heads * (size_t)d->head_dim;
    const struct {
        void *pointer; /* where the address goes */
        size_t count, size;
    } all[] = {
        { &f->rows, cells * f->row_floats, sizeof(float) },
        { &f->cells, cells, sizeof *f->cells },
        { &f->free_cells, cells, sizeof *f->free_cells },
        { &f->seqs, seqs, sizeof *f->seqs },
        { &f->entries, cells * seqs, sizeof *f->entries },
        { &f->x, (size_t)d->width, sizeof(float) },
        { &f->normed, (size_t)d->width, sizeof(float) },
        { &f->q, q, sizeof(float) },
        { &f->mixed, q, sizeof(float) },
        { &f->gate, (size_t)d->ffn, sizeof(float) },
        { &f->up, (size_t)d->ffn, sizeof(float) },
        { &f->turn, (size_t)d->head_dim, sizeof(float) },
        { &f->scores, cells, sizeof(float) },
        { &f->logits, (size_t)d->vocab, sizeof(float) },
        { &f->seen, cells, sizeof *f->seen },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *p = md_calloc(f->alloc, all[i].count, all[i].size);
        if (p == NULL)
            return false;
        memcpy(all[i].pointer, &p, sizeof p);
    }
    for (size_t i = 0; i < seqs; i++)
        f->seqs[i].at = f->entries + i * cells;
    for (size_t i = 0; i < cells; i++)
        f->free_cells[i] = (int32_t)(cells - 1 - i); /* the first one taken is cell 0 */
    f->free_count = (int32_t)cells;
    return true;
}

static enum md_status check_options(const struct md_fake_options *o, struct md_err *err)
{
    if (o->cell_count < 1 || o->cell_count > MAX_CELLS)
        return md_fail(err, MD_INVALID, "fake engine: cell_count must be between 1 and %d, got %d", MAX_CELLS,
                       o->cell_count);
    if (o->seq_count < 0 || o->seq_count > MAX_SEQS)
        return md_fail(err, MD_INVALID, "fake engine: seq_count must be between 0 and %d, got %d", MAX_SEQS,
                       o->seq_count);
    if (o->batch_tokens < 0)
        return md_fail(err, MD_INVALID, "fake engine: batch_tokens must not be negative, got %d",
                       o->batch_tokens);
    return MD_OK;
}

enum md_status md_fake_open(const struct md_fake_model *model, const struct md_fake_options *options,
                            struct md_engine **ret_engine, struct md_err *err)
{
    const unsigned can = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_SPARSE_ATTENTION |
                         MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_POSITION_SHIFT | MD_CAP_SHARE;
    enum md_status s = check_options(options, err);
    if (s != MD_OK)
        return s;
    struct fake *f = md_calloc(options->alloc, 1, sizeof *f);
    if (f == NULL)
        return md_fail(err, MD_NO_MEMORY, "fake engine");
    f->base.ops = &fake_ops; /* so that close works from here on */
    f->alloc = options->alloc;
    f->model = model;
    if (model == NULL) {
        const struct md_fake_dims dims = md_fake_dims_default();
        s = md_fake_model_open(&dims, 1, f->alloc, &f->own_model, err);
        f->model = f->own_model;
    }
    if (s == MD_OK) {
        const struct md_fake_dims *d = &f->model->dims;
        f->row_floats = (size_t)d->layers * 2 * (size_t)d->kv_heads * (size_t)d->head_dim;
        fill_info(f, options);
        if (!allocate(f))
            s = md_fail(err, MD_NO_MEMORY, "fake engine: %d cells", options->cell_count);
    }
    unsigned caps = can & ~options->caps_off;
    if (!(caps & MD_CAP_COLD_STORE))
        caps &= ~(unsigned)MD_CAP_POSITION_SHIFT; /* nothing to put elsewhere */
    if (s == MD_OK)
        s = md_engine_init(&f->base, &fake_ops, caps, err);
    if (s != MD_OK) {
        fake_close(&f->base);
        return s;
    }
    *ret_engine = &f->base;
    return MD_OK;
}
