/* fake_tail.c - what the layers that are not global keep at the end of a sequence: windows of keys and values,
 * recurrent states; saving it and putting it back.
 *
 * A tail has room for its window and for what one call may add, so a call that is interrupted is taken back by
 * moving the end.  A recurrent state cannot go back: it is copied before each call. */
#include "engine/fake_internal.h"

#include <assert.h>
#include <string.h>

enum { STATE_MAGIC = 0x534b4146 }; /* "FAKS" */

static float *slot(const struct md_fake *f, const struct md_fake_tail *t, int32_t pos)
{
    return t->rows + (size_t)(pos % f->slots) * f->tail_floats;
}

float *md_fake_tail_push(const struct md_fake *f, struct md_fake_tail *t, int32_t pos)
{
    if (t->start == t->end)
        t->start = t->end = pos;
    assert(t->end == pos);
    t->end = pos + 1;
    if (t->start < t->end - f->slots)
        t->start = t->end - f->slots;
    return slot(f, t, pos);
}

int32_t md_fake_tail_near(const struct md_fake *f, const struct md_fake_tail *t)
{
    int32_t from = t->end - f->model->dims.window_tokens, count = 0;
    for (int32_t pos = from > t->start ? from : t->start; pos < t->end; pos++)
        f->near[count++] = slot(f, t, pos);
    return count;
}

void md_fake_tail_clear(const struct md_fake *f, struct md_fake_tail *t)
{
    t->start = t->end = 0;
    memset(t->state, 0, f->state_floats * sizeof *t->state);
}

void md_fake_tail_undo(struct md_fake_tail *t, int32_t end)
{
    t->end = end;
    if (t->start > end) /* there was nothing before */
        t->start = end;
}

/* The tail holds all that the token at `from` looks back to. */
static bool reaches(const struct md_fake *f, const struct md_fake_tail *t, int32_t from)
{
    const int32_t needed = from - f->model->dims.window_tokens + 1;
    return f->state_floats == 0 && from <= t->end && t->start <= (needed > 0 ? needed : 0);
}

int32_t md_fake_cut_point(const struct md_engine *e, md_seq seq, int32_t from)
{
    const struct md_fake *f = (const struct md_fake *)e;
    if (f->model->dims.tail_period == 0)
        return from;
    return reaches(f, &f->tails[seq], from) ? from : 0;
}

enum md_status md_fake_truncate(struct md_engine *e, md_seq seq, int32_t from, struct md_err *err)
{
    (void)err;
    struct md_fake *f = md_fake_of(e);
    struct md_fake_tail *t = &f->tails[seq];
    if (from > 0 && reaches(f, t, from))
        md_fake_tail_undo(t, from);
    else
        md_fake_tail_clear(f, t);
    md_fake_remove(f, &f->seqs[seq], (struct md_range){ from, INT32_MAX });
    return MD_OK;
}

/* ---- bytes ---- */

static size_t state_bytes(const struct md_fake *f, int32_t rows)
{
    return ((size_t)rows * f->tail_floats + f->state_floats) * sizeof(float);
}

int64_t md_fake_checkpoint_bytes(const struct md_engine *e)
{
    const struct md_fake *f = (const struct md_fake *)e;
    return (int64_t)(sizeof(struct md_fake_head) + state_bytes(f, f->model->dims.window_tokens));
}

enum md_status md_fake_checkpoint(struct md_engine *e, md_seq seq, struct md_buf *ret_state,
                                  struct md_err *err)
{
    const struct md_fake *f = md_fake_of(e);
    const struct md_fake_tail *t = &f->tails[seq];
    const size_t row_bytes = f->tail_floats * sizeof(float);
    enum md_status s = md_buf_reserve(ret_state, (size_t)md_fake_checkpoint_bytes(e), err);
    if (s != MD_OK)
        return s;
    const int32_t rows = md_fake_tail_near(f, t);
    uint8_t *first = ret_state->data + ret_state->len + sizeof(struct md_fake_head);
    for (int32_t i = 0; i < rows; i++)
        memcpy(first + (size_t)i * row_bytes, f->near[i], row_bytes);
    memcpy(first + (size_t)rows * row_bytes, t->state, f->state_floats * sizeof(float));
    const struct md_fake_head head = { .magic = STATE_MAGIC,
                                       .version = MD_FAKE_KV_VERSION,
                                       .start = t->end - rows,
                                       .end = t->end,
                                       .row_floats = (uint32_t)f->tail_floats,
                                       .state_floats = (uint32_t)f->state_floats,
                                       .model = f->model->fingerprint,
                                       .check = md_fake_hash(0, first, state_bytes(f, rows)) };
    memcpy(first - sizeof head, &head, sizeof head);
    ret_state->len += sizeof head + state_bytes(f, rows);
    return MD_OK;
}

/* Everything about foreign bytes is checked before a tail is touched. */
static enum md_status check_state(const struct md_fake *f, int32_t at, struct md_bytes state,
                                  struct md_fake_head *ret_head, struct md_err *err)
{
    struct md_fake_head head;
    if (state.data == NULL || state.len < sizeof head)
        return md_fail(err, MD_CORRUPT, "a saved state is %zu bytes, too short for its header", state.len);
    memcpy(&head, state.data, sizeof head);
    if (head.magic != STATE_MAGIC || head.version != MD_FAKE_KV_VERSION)
        return md_fail(err, MD_CORRUPT, "a saved state does not begin as this engine writes it");
    if (head.model != f->model->fingerprint || head.row_floats != f->tail_floats ||
        head.state_floats != f->state_floats)
        return md_fail(err, MD_INVALID, "the saved state is of another model");
    if (head.end != at)
        return md_fail(err, MD_INVALID, "the saved state is of position %d, not of %d", head.end, at);
    if (head.start < 0 || head.start > head.end || head.end - head.start > f->model->dims.window_tokens)
        return md_fail(err, MD_CORRUPT, "the saved state of position %d begins at %d", at, head.start);
    const size_t want = state_bytes(f, head.end - head.start);
    if (state.len - sizeof head != want)
        return md_fail(err, MD_CORRUPT, "the saved state of position %d has %zu bytes instead of %zu", at,
                       state.len - sizeof head, want);
    if (md_fake_hash(0, (const uint8_t *)state.data + sizeof head, want) != head.check)
        return md_fail(err, MD_CORRUPT, "the saved state of position %d fails its check", at);
    *ret_head = head;
    return MD_OK;
}

/* Bytes that were checked. */
static void load(const struct md_fake *f, struct md_fake_tail *t, const struct md_fake_head *head,
                 struct md_bytes state)
{
    const size_t row_bytes = f->tail_floats * sizeof(float);
    const uint8_t *next = (const uint8_t *)state.data + sizeof *head;
    md_fake_tail_clear(f, t);
    t->start = t->end = head->start;
    for (int32_t pos = head->start; pos < head->end; pos++, next += row_bytes)
        memcpy(md_fake_tail_push(f, t, pos), next, row_bytes);
    memcpy(t->state, next, f->state_floats * sizeof(float));
    t->end = head->end;
    if (f->tail_floats == 0)
        t->start = t->end - 1; /* not nothing */
}

enum md_status md_fake_rewind(struct md_engine *e, md_seq seq, int32_t at, struct md_bytes state,
                              struct md_err *err)
{
    struct md_fake *f = md_fake_of(e);
    struct md_fake_timeline *t = &f->seqs[seq];
    struct md_fake_head head;
    enum md_status s = check_state(f, at, state, &head, err);
    if (s != MD_OK)
        return s;
    if (t->count == 0) /* tail_only: its cells hold nothing but a position */
        for (int32_t pos = 0; pos < at; pos++)
            md_fake_add(f, t, pos, pos);
    md_fake_remove(f, t, (struct md_range){ at, INT32_MAX });
    load(f, &f->tails[seq], &head, state);
    return MD_OK;
}

static void copy_tail(const struct md_fake *f, struct md_fake_tail *to, const struct md_fake_tail *from)
{
    to->start = from->start;
    to->end = from->end;
    memcpy(to->rows, from->rows, (size_t)f->slots * f->tail_floats * sizeof(float));
    memcpy(to->state, from->state, f->state_floats * sizeof(float));
}

enum md_status md_fake_recompute(struct md_engine *e, md_seq seq, struct md_range r, const md_token *tokens,
                                 struct md_bytes state, struct md_err *err)
{
    struct md_fake *f = md_fake_of(e);
    struct md_fake_tail *own = &f->tails[seq], *aside = &f->tails[e->info.seq_count];
    struct md_fake_head head = { 0 };
    enum md_status s = state.len > 0 ? check_state(f, r.start, state, &head, err) : MD_OK;
    if (s != MD_OK)
        return s;
    copy_tail(f, aside, own);
    if (state.len > 0)
        load(f, own, &head, state);
    else
        md_fake_tail_clear(f, own);
    s = md_fake_run(f, seq, r.start, tokens, md_range_len(r), err);
    copy_tail(f, own, aside);
    return s;
}
