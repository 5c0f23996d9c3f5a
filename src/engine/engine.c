/* engine.c - the checked front of every engine: arguments, capabilities and the position map.
 *
 * The map knows the state of each position of each sequence, so a wrong call is refused here with the
 * same words for all engines, and an adapter only ever sees calls that make sense.  It is changed
 * after the adapter succeeded; the memory it needs for that is taken before. */
#include "engine/engine_map.h"
#include "engine/engine_ops.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- life ---- */

enum md_status md_engine_init(struct md_engine *e, const struct md_engine_ops *ops, unsigned caps,
                              struct md_err *err)
{
    /* what is claimed and what is there must agree, or we stop at start-up, not at the first long prompt */
    assert(ops->close != NULL && ops->prefill != NULL && ops->decode != NULL && ops->truncate != NULL);
    assert((ops->export_range == NULL) == (ops->admit_range == NULL));
    assert((ops->export_range == NULL) == (ops->export_bytes == NULL));
    assert((ops->park == NULL) == (ops->unpark == NULL));
    assert(!(caps & MD_CAP_COLD_STORE) || ops->export_range != NULL);
    assert(!(caps & MD_CAP_REMOVE_MIDDLE) || ops->remove_range != NULL);
    assert(!(caps & MD_CAP_POSITION_SHIFT) || (ops->admit_moved != NULL && (caps & MD_CAP_COLD_STORE)));
    assert(!(caps & MD_CAP_SHARE) || ops->share != NULL);
    assert(!(caps & MD_CAP_SPARSE_ATTENTION) || ops->park != NULL);
    assert(!(caps & MD_CAP_RECOMPUTE_RANGE) || ops->recompute_range != NULL);
    assert((ops->checkpoint == NULL) == (ops->rewind == NULL));
    assert((ops->checkpoint == NULL) == (ops->checkpoint_bytes == NULL));
    assert(!(caps & MD_CAP_CHECKPOINT) || (ops->checkpoint != NULL && (caps & MD_CAP_REMOVE_TAIL)));
    /* one sequence's tail state cannot be shared, moved or hidden with a range: nobody says what that would mean */
    assert(!(caps & MD_CAP_CHECKPOINT) ||
           !(caps & (MD_CAP_SHARE | MD_CAP_POSITION_SHIFT | MD_CAP_SPARSE_ATTENTION)));
    assert(!e->info.tail_only ||
           !(caps & (MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE | MD_CAP_RECOMPUTE_RANGE)));
    assert(!(caps & MD_CAP_ATTENTION_SCORES) ||
           (ops->keys != NULL && (caps & MD_CAP_COLD_STORE) && md_attention_any(&e->attention)));
    assert((ops->watch == NULL) == (ops->queries == NULL));
    assert(e->info.seq_count > 0 && e->info.cell_count > 0 && e->info.batch_tokens > 0);

    e->ops = ops;
    e->caps = caps;
    return md_map_open(e, err);
}

void md_engine_done(struct md_engine *e)
{
    md_map_close(e->map);
    e->map = NULL;
    md_attention_done(&e->attention);
}

void md_engine_close(struct md_engine *e)
{
    if (e != NULL)
        e->ops->close(e);
}

const struct md_engine_info *md_engine_info(const struct md_engine *e)
{
    return &e->info;
}

unsigned md_engine_caps(const struct md_engine *e)
{
    return e->caps;
}

void md_engine_caps_text(unsigned caps, char *out, size_t out_bytes)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {
        { MD_CAP_REMOVE_TAIL, "remove_tail" },
        { MD_CAP_REMOVE_MIDDLE, "remove_middle" },
        { MD_CAP_POSITION_SHIFT, "position_shift" },
        { MD_CAP_SPARSE_ATTENTION, "sparse_attention" },
        { MD_CAP_COLD_STORE, "cold_store" },
        { MD_CAP_RECOMPUTE_RANGE, "recompute_range" },
        { MD_CAP_ATTENTION_SCORES, "attention_scores" },
        { MD_CAP_SHARE, "share" },
        { MD_CAP_CHECKPOINT, "checkpoint" },
    };
    size_t used = 0;
    if (out_bytes > 0)
        out[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!(caps & names[i].bit) || used >= out_bytes)
            continue;
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used > 0 ? " " : "", names[i].name);
    }
}

void md_engine_set_interrupt(struct md_engine *e, bool (*raised)(void *user), void *user)
{
    e->interrupt = raised;
    e->interrupt_user = user;
}

/* ---- checks ---- */

static enum md_status check_seq(const struct md_engine *e, md_seq seq, struct md_seq_map **ret_m,
                                struct md_err *err)
{
    struct md_seq_map *m = md_map_of(e, seq);
    if (m == NULL)
        return md_fail(err, MD_INVALID, "sequence %d is not in [0, %d)", seq, e->map->seq_count);
    *ret_m = m;
    return MD_OK;
}

static enum md_status check_range(const struct md_engine *e, md_seq seq, struct md_range r,
                                  enum md_pos_state want, struct md_seq_map **ret_m, struct md_err *err)
{
    static const char *const names[] = { "absent", "hot", "parked" };
    enum md_status s = check_seq(e, seq, ret_m, err);
    if (s != MD_OK)
        return s;
    if (r.start < 0 || r.end <= r.start)
        return md_fail(err, MD_INVALID, "range [%d, %d) is empty or negative", r.start, r.end);
    if (!md_map_all(*ret_m, r, want))
        return md_fail(err, MD_INVALID, "range [%d, %d) of sequence %d is not wholly %s", r.start, r.end, seq,
                       names[want]);
    return MD_OK;
}

static enum md_status check_cells(const struct md_engine *e, int32_t count, struct md_err *err)
{
    if (count > e->map->free_count)
        return md_fail(err, MD_NO_MEMORY, "%d tokens do not fit the %d free KV cells of %d", count,
                       e->map->free_count, e->info.cell_count);
    return MD_OK;
}

static enum md_status check_tokens(const struct md_engine *e, const md_token *tokens, int32_t count,
                                   struct md_err *err)
{
    for (int32_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= e->info.vocab_count)
            return md_fail(err, MD_INVALID, "token %d is not in the vocabulary of %d", tokens[i],
                           e->info.vocab_count);
    return MD_OK;
}

static enum md_status check_append(const struct md_engine *e, md_seq seq, int32_t start,
                                   const md_token *tokens, int32_t count, struct md_seq_map **ret_m,
                                   struct md_err *err)
{
    enum md_status s = check_seq(e, seq, ret_m, err);
    if (s != MD_OK)
        return s;
    if (count < 1 || count > e->info.batch_tokens)
        return md_fail(err, MD_INVALID, "%d tokens in one call: 1 to %d are allowed", count,
                       e->info.batch_tokens);
    if (start < 0 || start > INT32_MAX - count)
        return md_fail(err, MD_INVALID, "position %d is out of range", start);
    if ((*ret_m)->end != 0 && start != (*ret_m)->end)
        return md_fail(err, MD_INVALID, "sequence %d ends at %d: tokens cannot start at %d", seq,
                       (*ret_m)->end, start);
    if ((*ret_m)->end != 0 && md_map_state(*ret_m, (*ret_m)->end - 1) != MD_POS_HOT)
        return md_fail(err, MD_INVALID, "the end of sequence %d is parked: unpark it before adding tokens",
                       seq);
    if ((*ret_m)->lost_tail)
        return md_fail(err, MD_INVALID,
                       "sequence %d has no state at its end: rewind it to a checkpoint first", seq);
    s = check_tokens(e, tokens, count, err);
    if (s == MD_OK)
        s = check_cells(e, count, err);
    if (s == MD_OK)
        s = md_map_reserve(*ret_m, (struct md_range){ start, start + count }, err);
    return s;
}

static enum md_status unsupported(const struct md_engine *e, const char *what, struct md_err *err)
{
    return md_fail(err, MD_UNSUPPORTED, "engine '%s' cannot %s with this model", e->info.engine, what);
}

/* ---- the calls ---- */

enum md_status md_engine_prefill(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                                 int32_t count, struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_append(e, seq, start, tokens, count, &m, err);
    if (s != MD_OK)
        return s;
    md_attention_begin(&e->attention, start);
    s = e->ops->prefill(e, seq, start, tokens, count, err);
    md_attention_end(&e->attention, s == MD_OK ? count : 0);
    if (s == MD_OK)
        md_map_set(e, m, (struct md_range){ start, start + count }, MD_POS_HOT);
    return s;
}

enum md_status md_engine_decode(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                                int32_t count, const float **ret_logits, struct md_err *err)
{
    struct md_seq_map *m = NULL;
    const float *logits = NULL;
    enum md_status s = check_append(e, seq, start, tokens, count, &m, err);
    if (s != MD_OK)
        return s;
    md_attention_begin(&e->attention, start);
    s = e->ops->decode(e, seq, start, tokens, count, &logits, err);
    md_attention_end(&e->attention, s == MD_OK ? count : 0);
    if (s != MD_OK)
        return s;
    md_map_set(e, m, (struct md_range){ start, start + count }, MD_POS_HOT);
    *ret_logits = logits;
    return MD_OK;
}

int32_t md_engine_cut_point(const struct md_engine *e, md_seq seq, int32_t from)
{
    assert(from >= 0 && from <= md_engine_end(e, seq));
    if (from == 0 || from == md_engine_end(e, seq))
        return from;
    const struct md_seq_map *m = md_map_of(e, seq);
    if (!(e->caps & MD_CAP_REMOVE_TAIL) || m->lost_tail)
        return 0;
    if ((e->caps & MD_CAP_CHECKPOINT) && md_map_state(m, from - 1) == MD_POS_ABSENT)
        return 0;
    return e->ops->cut_point == NULL ? from : e->ops->cut_point(e, seq, from);
}

/* Where the sequence ends when everything from `from` on is gone. */
static int32_t end_below(const struct md_seq_map *m, int32_t from)
{
    while (from > m->from && md_map_state(m, from - 1) == MD_POS_ABSENT)
        from--;
    return from > m->from ? from : 0;
}

enum md_status md_engine_truncate(struct md_engine *e, md_seq seq, int32_t from, struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_seq(e, seq, &m, err);
    if (s != MD_OK)
        return s;
    if (from < 0)
        return md_fail(err, MD_INVALID, "cannot truncate at position %d", from);
    if (from >= m->end)
        return MD_OK;
    if (from > 0 && !(e->caps & MD_CAP_REMOVE_TAIL))
        return unsupported(e, "remove a part of a sequence", err);
    const bool whole = md_engine_cut_point(e, seq, from) == from;
    if (!whole && !(e->caps & MD_CAP_CHECKPOINT))
        return md_fail(err, MD_UNSUPPORTED,
                       "the sequence cannot be cut at position %d: its windowed layers no longer hold what "
                       "comes before",
                       from);
    if (e->caps & MD_CAP_CHECKPOINT)
        from = end_below(m, from); /* nothing left: the tail state goes too */
    s = e->ops->truncate(e, seq, from, err);
    if (s != MD_OK)
        return s;
    md_map_set(e, m, (struct md_range){ from, m->end }, MD_POS_ABSENT);
    m->lost_tail = from > 0 && !whole;
    return MD_OK;
}

int64_t md_engine_export_bytes(const struct md_engine *e, int32_t tokens)
{
    return e->ops->export_bytes == NULL ? 0 : e->ops->export_bytes(e, tokens);
}

enum md_status md_engine_export_range(struct md_engine *e, md_seq seq, struct md_range r,
                                      struct md_buf *ret_kv, struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, MD_POS_HOT, &m, err);
    if (s != MD_OK)
        return s;
    if (!(e->caps & MD_CAP_COLD_STORE))
        return unsupported(e, "export KV without loss", err);
    const size_t before = ret_kv->len;
    s = md_buf_reserve(ret_kv, (size_t)md_engine_export_bytes(e, md_range_len(r)), err);
    if (s == MD_OK)
        s = e->ops->export_range(e, seq, r, ret_kv, err);
    if (s != MD_OK)
        ret_kv->len = before;
    return s;
}

enum md_status md_engine_remove_range(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, MD_POS_HOT, &m, err);
    if (s != MD_OK)
        return s;
    if (!(e->caps & MD_CAP_REMOVE_MIDDLE))
        return unsupported(e, "remove a range", err);
    const int32_t window = e->info.window_tokens > 1 ? e->info.window_tokens : 1;
    const bool in_window = r.end > m->end - window;
    s = e->ops->remove_range(e, seq, r, err);
    if (s != MD_OK)
        return s;
    md_map_set(e, m, r, MD_POS_ABSENT);
    if (e->caps & MD_CAP_CHECKPOINT)
        m->lost_tail = m->end > 0 && (m->lost_tail || in_window);
    return MD_OK;
}

enum md_status md_engine_evict_range(struct md_engine *e, md_seq seq, struct md_range r,
                                     struct md_buf *ret_kv, struct md_err *err)
{
    if (ret_kv == NULL || !(e->caps & MD_CAP_REMOVE_MIDDLE)) /* which says no before anything is exported */
        return md_engine_remove_range(e, seq, r, err);
    const size_t before = ret_kv->len;
    enum md_status s = md_engine_export_range(e, seq, r, ret_kv, err);
    if (s == MD_OK && (s = md_engine_remove_range(e, seq, r, err)) != MD_OK)
        ret_kv->len = before;
    return s;
}

/* r came in without its tail state; where it is the new end, the one that is there is of another. */
static void set_came(struct md_engine *e, struct md_seq_map *m, struct md_range r)
{
    if (e->caps & MD_CAP_CHECKPOINT)
        m->lost_tail = m->lost_tail || r.end > m->end;
    md_map_set(e, m, r, MD_POS_HOT);
}

/* What both ways in ask before the adapter is called. */
static enum md_status check_admit(struct md_engine *e, md_seq seq, struct md_range r,
                                  struct md_seq_map **ret_m, struct md_err *err)
{
    enum md_status s = check_range(e, seq, r, MD_POS_ABSENT, ret_m, err);
    if (s == MD_OK && !(e->caps & MD_CAP_COLD_STORE))
        return unsupported(e, "import KV", err);
    if (s == MD_OK)
        s = check_cells(e, md_range_len(r), err);
    return s == MD_OK ? md_map_reserve(*ret_m, r, err) : s;
}

enum md_status md_engine_admit_range(struct md_engine *e, md_seq seq, struct md_range r, struct md_bytes kv,
                                     struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_admit(e, seq, r, &m, err);
    if (s == MD_OK)
        s = e->ops->admit_range(e, seq, r, kv, err);
    if (s == MD_OK)
        set_came(e, m, r);
    return s;
}

static enum md_status check_can_move(const struct md_engine *e, struct md_err *err)
{
    if (e->caps & MD_CAP_POSITION_SHIFT)
        return MD_OK;
    if (strcmp(e->info.type_k, "f32") != 0 && strcmp(e->info.type_k, "f16") != 0)
        return md_fail(err, MD_UNSUPPORTED, "KV type %s cannot be repositioned", e->info.type_k);
    return unsupported(e, "reposition KV", err);
}

enum md_status md_engine_admit_moved(struct md_engine *e, md_seq seq, struct md_range r, int32_t from_start,
                                     struct md_bytes kv, struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_can_move(e, err);
    if (s == MD_OK)
        s = check_admit(e, seq, r, &m, err);
    if (s == MD_OK && (from_start < 0 || from_start > INT32_MAX - md_range_len(r)))
        s = md_fail(err, MD_INVALID, "KV cannot come from position %d", from_start);
    if (s == MD_OK)
        s = e->ops->admit_moved(e, seq, r, from_start, kv, err);
    if (s == MD_OK)
        set_came(e, m, r);
    return s;
}

enum md_status md_engine_share(struct md_engine *e, md_seq from, md_seq to, struct md_range r,
                               struct md_err *err)
{
    struct md_seq_map *source = NULL, *target = NULL;
    enum md_status s = check_range(e, from, r, MD_POS_HOT, &source, err);
    if (s == MD_OK && from == to)
        return md_fail(err, MD_INVALID, "sequence %d cannot share with itself", from);
    if (s == MD_OK)
        s = check_range(e, to, r, MD_POS_ABSENT, &target, err);
    if (s == MD_OK && !(e->caps & MD_CAP_SHARE))
        return unsupported(e, "share cells between sequences", err);
    if (s == MD_OK)
        s = md_map_reserve(target, r, err);
    if (s == MD_OK)
        s = e->ops->share(e, from, to, r, err);
    if (s == MD_OK)
        md_map_share(e, source, target, r);
    return s;
}

enum md_status md_engine_park(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, MD_POS_HOT, &m, err);
    if (s != MD_OK)
        return s;
    if (!(e->caps & MD_CAP_SPARSE_ATTENTION))
        return unsupported(e, "park a range", err);
    s = e->ops->park(e, seq, r, err);
    if (s == MD_OK)
        md_map_set(e, m, r, MD_POS_PARKED);
    return s;
}

enum md_status md_engine_unpark(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, MD_POS_PARKED, &m, err);
    if (s != MD_OK)
        return s;
    s = e->ops->unpark(e, seq, r, err);
    if (s == MD_OK)
        md_map_set(e, m, r, MD_POS_HOT);
    return s;
}

/* Where a range begins the tail state of its first token must be given, or there is none. */
static enum md_status check_state(const struct md_engine *e, int32_t at, struct md_bytes state,
                                  struct md_err *err)
{
    const bool wanted = (e->caps & MD_CAP_CHECKPOINT) && at > 0;
    if (wanted == (state.len > 0))
        return MD_OK;
    if (wanted)
        return md_fail(err, MD_INVALID, "tokens from position %d on need the state that was saved there", at);
    return md_fail(err, MD_INVALID, "there is no saved state for position %d of this model", at);
}

enum md_status md_engine_recompute_range(struct md_engine *e, md_seq seq, struct md_range r,
                                         const md_token *tokens, struct md_bytes state, struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, MD_POS_ABSENT, &m, err);
    if (s != MD_OK)
        return s;
    if (!(e->caps & MD_CAP_RECOMPUTE_RANGE))
        return unsupported(e, "compute a middle range again", err);
    if (r.start > 0 && !md_engine_is_hot(e, seq, (struct md_range){ r.start - 1, r.start }))
        return md_fail(err, MD_INVALID, "position %d before the range [%d, %d) is not hot", r.start - 1,
                       r.start, r.end);
    s = check_state(e, r.start, state, err);
    if (s == MD_OK)
        s = check_tokens(e, tokens, md_range_len(r), err);
    if (s == MD_OK)
        s = check_cells(e, md_range_len(r), err);
    if (s == MD_OK)
        s = md_map_reserve(m, r, err);
    if (s == MD_OK)
        s = e->ops->recompute_range(e, seq, r, tokens, state, err);
    if (s == MD_OK)
        set_came(e, m, r);
    return s;
}

/* ---- tail state ---- */

int64_t md_engine_checkpoint_bytes(const struct md_engine *e)
{
    return e->caps & MD_CAP_CHECKPOINT ? e->ops->checkpoint_bytes(e) : 0;
}

enum md_status md_engine_checkpoint(struct md_engine *e, md_seq seq, struct md_buf *ret_state,
                                    struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_seq(e, seq, &m, err);
    if (s != MD_OK)
        return s;
    if (!(e->caps & MD_CAP_CHECKPOINT))
        return unsupported(e, "save a state", err);
    if (m->end == 0)
        return md_fail(err, MD_INVALID, "sequence %d is empty: there is no state to save", seq);
    if (m->lost_tail)
        return md_fail(err, MD_INVALID, "sequence %d has no state at its end to save", seq);
    const size_t before = ret_state->len;
    s = md_buf_reserve(ret_state, (size_t)md_engine_checkpoint_bytes(e), err);
    if (s == MD_OK)
        s = e->ops->checkpoint(e, seq, ret_state, err);
    if (s != MD_OK)
        ret_state->len = before;
    return s;
}

static enum md_status check_rewind(struct md_engine *e, md_seq seq, int32_t at, struct md_seq_map *m,
                                   struct md_err *err)
{
    if (at > 0 && m->end == 0 && e->info.tail_only) {
        enum md_status s = check_cells(e, at, err);
        return s == MD_OK ? md_map_reserve(m, (struct md_range){ 0, at }, err) : s;
    }
    if (at < 1 || at > m->end)
        return md_fail(err, MD_INVALID, "sequence %d ends at %d: it cannot be rewound to position %d", seq,
                       m->end, at);
    if (md_map_state(m, at - 1) != MD_POS_HOT)
        return md_fail(err, MD_INVALID,
                       "sequence %d cannot be rewound to position %d: the one before it is not hot", seq, at);
    return MD_OK;
}

enum md_status md_engine_rewind(struct md_engine *e, md_seq seq, int32_t at, struct md_bytes state,
                                struct md_err *err)
{
    struct md_seq_map *m = NULL;
    enum md_status s = check_seq(e, seq, &m, err);
    if (s == MD_OK && !(e->caps & MD_CAP_CHECKPOINT))
        return unsupported(e, "put back a saved state", err);
    if (s == MD_OK)
        s = check_rewind(e, seq, at, m, err);
    if (s == MD_OK)
        s = check_state(e, at, state, err);
    if (s == MD_OK)
        s = e->ops->rewind(e, seq, at, state, err);
    if (s != MD_OK)
        return s;
    if (m->end == 0)
        md_map_set(e, m, (struct md_range){ 0, at }, MD_POS_HOT);
    md_map_set(e, m, (struct md_range){ at, m->end }, MD_POS_ABSENT);
    m->lost_tail = false;
    return MD_OK;
}
