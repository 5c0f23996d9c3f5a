/* fake.c - the fake engine: cells and timelines; opening it.
 *
 * A cell holds the keys and values of one token in all global layers.  A timeline lists the cells of one sequence
 * by ascending position; that order is also the order of the attention sums.  A cell may stand in several.  Free
 * cells are a stack: what was freed last is used first, so cells are reused at once and out of order, as a real
 * cache would. */
#include "engine/fake_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_SEQS = 4,
    MAX_SEQS = 256, /* llama.cpp's limit, so that nobody gets used to more */
    DEFAULT_BATCH = 512,
    MAX_CELLS = 1 << 24,
    KV_MAGIC = 0x564b4146, /* "FAKV" */
};

static const struct md_engine_ops fake_ops;

struct md_fake *md_fake_of(struct md_engine *e)
{
    assert(e->ops == &fake_ops);
    return (struct md_fake *)e;
}

/* ---- cells and timelines ---- */

int32_t md_fake_find(const struct md_fake *f, const struct md_fake_timeline *t, int32_t pos)
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

float *md_fake_row(const struct md_fake *f, int32_t cell)
{
    return f->rows + (size_t)cell * f->row_floats;
}

/* Make `cell` a hot entry of the timeline, at index `at`. */
static void insert(struct md_fake *f, struct md_fake_timeline *t, int32_t at, int32_t cell)
{
    memmove(t->at + at + 1, t->at + at, (size_t)(t->count - at) * sizeof *t->at);
    t->at[at] = (struct md_fake_entry){ .cell = cell, .hot = true };
    t->count++;
    f->cells[cell].holders++;
}

int32_t md_fake_add(struct md_fake *f, struct md_fake_timeline *t, int32_t at, int32_t pos)
{
    assert(f->free_count > 0);
    int32_t cell = f->free_cells[--f->free_count];
    f->cells[cell] = (struct md_fake_cell){ .pos = pos };
    insert(f, t, at, cell);
    return cell;
}

void md_fake_remove(struct md_fake *f, struct md_fake_timeline *t, struct md_range r)
{
    int32_t from = md_fake_find(f, t, r.start), to = md_fake_find(f, t, r.end);
    for (int32_t i = from; i < to; i++)
        if (--f->cells[t->at[i].cell].holders == 0)
            f->free_cells[f->free_count++] = t->at[i].cell;
    memmove(t->at + from, t->at + to, (size_t)(t->count - to) * sizeof *t->at);
    t->count -= to - from;
}

static void set_hot(struct md_fake *f, struct md_fake_timeline *t, struct md_range r, bool hot)
{
    int32_t to = md_fake_find(f, t, r.end);
    for (int32_t i = md_fake_find(f, t, r.start); i < to; i++)
        t->at[i].hot = hot;
}

/* ---- the forward pass ---- */

static enum md_status fake_prefill(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                                   int32_t count, struct md_err *err)
{
    return md_fake_run(md_fake_of(e), seq, start, tokens, count, err);
}

static enum md_status fake_decode(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                                  int32_t count, const float **ret_logits, struct md_err *err)
{
    struct md_fake *f = md_fake_of(e);
    enum md_status s = md_fake_run(f, seq, start, tokens, count, err);
    if (s == MD_OK)
        *ret_logits = md_fake_logits(f);
    return s;
}

/* ---- KV surgery ---- */

static int64_t fake_export_bytes(const struct md_engine *e, int32_t tokens)
{
    return (int64_t)sizeof(struct md_fake_head) + tokens * e->info.kv_bytes_per_token;
}

static enum md_status fake_export(struct md_engine *e, md_seq seq, struct md_range r, struct md_buf *ret_kv,
                                  struct md_err *err)
{
    const struct md_fake *f = md_fake_of(e);
    const struct md_fake_timeline *t = &f->seqs[seq];
    const size_t row_bytes = f->row_floats * sizeof(float);
    enum md_status s = md_buf_reserve(ret_kv, (size_t)fake_export_bytes(e, md_range_len(r)), err);
    if (s != MD_OK)
        return s;
    uint8_t *rows = ret_kv->data + ret_kv->len + sizeof(struct md_fake_head), *next = rows;
    for (int32_t i = md_fake_find(f, t, r.start), to = md_fake_find(f, t, r.end); i < to;
         i++, next += row_bytes)
        memcpy(next, md_fake_row(f, t->at[i].cell), row_bytes);
    const struct md_fake_head head = { .magic = KV_MAGIC,
                                       .version = MD_FAKE_KV_VERSION,
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
    struct md_fake *f = md_fake_of(e);
    md_fake_remove(f, &f->seqs[seq], r);
    if (f->seqs[seq].count == 0)
        md_fake_tail_clear(f, &f->tails[seq]);
    return MD_OK;
}

enum md_status md_fake_check_kv(const struct md_fake *f, struct md_range r, struct md_bytes kv,
                                struct md_err *err)
{
    struct md_fake_head head;
    if (kv.data == NULL || kv.len < sizeof head)
        return md_fail(err, MD_CORRUPT, "exported KV is %zu bytes, too short for its header", kv.len);
    memcpy(&head, kv.data, sizeof head);
    if (head.magic != KV_MAGIC || head.version != MD_FAKE_KV_VERSION || head.state_floats != 0)
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

static enum md_status fake_admit_moved(struct md_engine *e, md_seq seq, struct md_range r, int32_t from_start,
                                       struct md_bytes kv, struct md_err *err)
{
    struct md_fake *f = md_fake_of(e);
    struct md_fake_timeline *t = &f->seqs[seq];
    enum md_status s =
        md_fake_check_kv(f, (struct md_range){ from_start, from_start + md_range_len(r) }, kv, err);
    if (s != MD_OK)
        return s;
    if (md_range_len(r) > f->free_count)
        return md_fail(err, MD_NO_MEMORY, "%d tokens do not fit %d free cells", md_range_len(r),
                       f->free_count);
    const uint8_t *next = (const uint8_t *)kv.data + sizeof(struct md_fake_head);
    const size_t row_bytes = f->row_floats * sizeof(float);
    for (int32_t pos = r.start; pos < r.end; pos++, next += row_bytes) {
        float *row = md_fake_row(f, md_fake_add(f, t, md_fake_find(f, t, pos), pos));
        memcpy(row, next, row_bytes);
        if (r.start != from_start)
            md_fake_turn(f, row, r.start - from_start);
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
    struct md_fake *f = md_fake_of(e);
    const struct md_fake_timeline *source = &f->seqs[from];
    struct md_fake_timeline *target = &f->seqs[to];
    int32_t at = md_fake_find(f, target, r.start), end = md_fake_find(f, source, r.end);
    for (int32_t i = md_fake_find(f, source, r.start); i < end; i++, at++)
        insert(f, target, at, source->at[i].cell);
    return MD_OK;
}

static enum md_status fake_park(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    (void)err;
    set_hot(md_fake_of(e), &md_fake_of(e)->seqs[seq], r, false);
    return MD_OK;
}

static enum md_status fake_unpark(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    (void)err;
    set_hot(md_fake_of(e), &md_fake_of(e)->seqs[seq], r, true);
    return MD_OK;
}

/* ---- open and close ---- */

static void fake_close(struct md_engine *e)
{
    struct md_fake *f = md_fake_of(e);
    void *const owned[] = { f->rows,  f->cells,       f->free_cells, f->seqs,         f->entries,
                            f->x,     f->normed,      f->q,          f->kv,           f->mixed,
                            f->gate,  f->up,          f->turn,       f->scores,       f->logits,
                            f->tails, f->tail_memory, f->undo_state, (void *)f->seen, (void *)f->near };
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
    .truncate = md_fake_truncate,
    .cut_point = md_fake_cut_point,
    .export_range = fake_export,
    .export_bytes = fake_export_bytes,
    .admit_range = fake_admit,
    .admit_moved = fake_admit_moved,
    .remove_range = fake_remove,
    .share = fake_share,
    .park = fake_park,
    .unpark = fake_unpark,
    .recompute_range = md_fake_recompute,
    .checkpoint = md_fake_checkpoint,
    .checkpoint_bytes = md_fake_checkpoint_bytes,
    .rewind = md_fake_rewind,
    .keys = md_fake_keys,
};

/* Which layer keeps what, and where. */
static void place_layers(struct md_fake *f)
{
    const struct md_fake_dims *d = &f->model->dims;
    const size_t kv = (size_t)d->kv_heads * (size_t)d->head_dim;
    for (int32_t i = 0; i < d->layers; i++) {
        struct md_fake_layer_at *at = &f->layers[i];
        const bool global = d->tail_period == 0 || (i + 1) % d->tail_period == 0;
        at->kind = global ? MD_FAKE_GLOBAL : d->window_tokens > 0 ? MD_FAKE_WINDOWED : MD_FAKE_RECURRENT;
        size_t *sum = global ? &f->row_floats : d->window_tokens > 0 ? &f->tail_floats : &f->state_floats;
        at->at = *sum;
        *sum += at->kind == MD_FAKE_RECURRENT ? kv * (size_t)d->head_dim : 2 * kv;
    }
}

static void fill_info(struct md_fake *f, const struct md_fake_options *o)
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
        .window_tokens = d->window_tokens,
        .tail_only = f->row_floats == 0,
        .batch_tokens = o->batch_tokens != 0 ? o->batch_tokens : DEFAULT_BATCH,
        .ubatch_tokens = 1,
        .kv_bytes_per_token = (int64_t)(f->row_floats * sizeof(float)),
        .model_bytes = (int64_t)(f->model->weight_count * sizeof(float)),
    };
    f->slots = i->window_tokens + i->batch_tokens;
    if (o->name != NULL)
        snprintf(i->engine, sizeof i->engine, "%s", o->name);
    if (d->tail_period > 0) {
        const size_t tail = (size_t)f->slots * f->tail_floats + f->state_floats;
        i->kv_growing_bytes = i->kv_bytes_per_token;
        i->kv_fixed_bytes = (int64_t)(tail * sizeof(float)) * i->seq_count;
    }
    snprintf(i->model, sizeof i->model, "fake llama, %d layers of width %d, f32", d->layers, d->width);
    snprintf(i->model_key, sizeof i->model_key, "fake %016llx", (unsigned long long)f->model->fingerprint);
    snprintf(i->identity, sizeof i->identity, "%s/%016llx/f32/f32", i->engine,
             (unsigned long long)f->model->fingerprint);
}

/* What the tails point at; one more is put aside in a recompute. */
static void place_tails(struct md_fake *f)
{
    const size_t rows = (size_t)f->slots * f->tail_floats, each = rows + f->state_floats;
    for (int32_t i = 0; i <= f->base.info.seq_count; i++) {
        f->tails[i].rows = f->tail_memory + (size_t)i * each;
        f->tails[i].state = f->tails[i].rows + rows;
    }
}

static bool allocate(struct md_fake *f)
{
    const struct md_fake_dims *d = &f->model->dims;
    const size_t cells = (size_t)f->base.info.cell_count, seqs = (size_t)f->base.info.seq_count;
    const size_t q = (size_t)d->heads * (size_t)d->head_dim, slots = (size_t)f->slots;
    const size_t tail = slots * f->tail_floats + f->state_floats;
    const struct {
        void *pointer; /* where the address goes */
        size_t count, size;
    } all[] = {
        { &f->rows, cells * f->row_floats + 1, sizeof(float) }, /* there may be none */
        { &f->cells, cells, sizeof *f->cells },
        { &f->free_cells, cells, sizeof *f->free_cells },
        { &f->seqs, seqs, sizeof *f->seqs },
        { &f->entries, cells * seqs, sizeof *f->entries },
        { &f->tails, seqs + 1, sizeof *f->tails },
        { &f->tail_memory, (seqs + 1) * tail + 1, sizeof(float) },
        { &f->undo_state, f->state_floats + 1, sizeof(float) },
        { &f->x, (size_t)d->width, sizeof(float) },
        { &f->normed, (size_t)d->width, sizeof(float) },
        { &f->q, q, sizeof(float) },
        { &f->kv, 2 * (size_t)d->kv_heads * (size_t)d->head_dim, sizeof(float) },
        { &f->mixed, q, sizeof(float) },
        { &f->gate, (size_t)d->ffn, sizeof(float) },
        { &f->up, (size_t)d->ffn, sizeof(float) },
        { &f->turn, (size_t)d->head_dim, sizeof(float) },
        { &f->scores, cells > slots ? cells : slots, sizeof(float) },
        { &f->logits, (size_t)d->vocab, sizeof(float) },
        { &f->seen, cells, sizeof *f->seen },
        { &f->near, slots, sizeof *f->near },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *p = md_calloc(f->alloc, all[i].count, all[i].size);
        if (p == NULL)
            return false;
        memcpy(all[i].pointer, &p, sizeof p);
    }
    for (size_t i = 0; i < seqs; i++)
        f->seqs[i].at = f->entries + i * cells;
    place_tails(f);
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
    if (o->batch_tokens < 0 || o->batch_tokens > MAX_CELLS)
        return md_fail(err, MD_INVALID, "fake engine: batch_tokens must be between 0 and %d, got %d",
                       MAX_CELLS, o->batch_tokens);
    return MD_OK;
}

/* A tail state is not shared, moved or hidden, and without checkpoints it forbids all that would lose it. */
static unsigned caps_of(const struct md_fake *f, unsigned off, bool attention)
{
    const unsigned always = MD_CAP_REMOVE_TAIL, ranges = MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE;
    const unsigned dense = MD_CAP_SPARSE_ATTENTION | MD_CAP_POSITION_SHIFT | MD_CAP_SHARE;
    unsigned caps = always | ranges | MD_CAP_RECOMPUTE_RANGE;
    if (f->model->dims.tail_period == 0)
        caps |= dense;
    else if (off & MD_CAP_CHECKPOINT)
        caps = f->state_floats > 0 ? 0 : always;
    else
        caps = MD_CAP_CHECKPOINT | (f->row_floats > 0 ? caps : always);
    caps &= ~off;
    if (!(caps & MD_CAP_COLD_STORE))
        caps &= ~(unsigned)MD_CAP_POSITION_SHIFT; /* nothing to put elsewhere */
    if (attention && (caps & MD_CAP_COLD_STORE))
        caps |= MD_CAP_ATTENTION_SCORES & ~off;
    if (!(caps & MD_CAP_REMOVE_TAIL))
        caps &= ~(unsigned)MD_CAP_CHECKPOINT;
    return caps;
}

enum md_status md_fake_open(const struct md_fake_model *model, const struct md_fake_options *options,
                            struct md_engine **ret_engine, struct md_err *err)
{
    enum md_status s = check_options(options, err);
    if (s != MD_OK)
        return s;
    struct md_fake *f = md_calloc(options->alloc, 1, sizeof *f);
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
        place_layers(f);
        fill_info(f, options);
        if (!allocate(f))
            s = md_fail(err, MD_NO_MEMORY, "fake engine: %d cells", options->cell_count);
    }
    if (s == MD_OK && options->attention)
        s = md_fake_attention(f, err);
    if (s == MD_OK)
        s = md_engine_init(&f->base, &fake_ops, caps_of(f, options->caps_off, options->attention), err);
    if (s != MD_OK) {
        fake_close(&f->base);
        return s;
    }
    *ret_engine = &f->base;
    return MD_OK;
}
