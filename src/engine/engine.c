/* engine.c - the checked front of every engine: arguments, capabilities and the position map.
 *
 * The map knows the state of each position of each sequence, so a wrong call is refused here with the
 * same words for all engines, and an adapter only ever sees calls that make sense.  It is changed
 * after the adapter succeeded; the memory it needs for that is taken before. */
#include "engine/engine.h"
#include "engine/engine_ops.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum pos_state { POS_ABSENT, POS_HOT, POS_PARKED };

struct place {
    int32_t cell; /* number of its cell, unless absent */
    enum pos_state state;
};

struct seq_map {
    struct place *at; /* positions [0, cap) */
    size_t cap;
    int32_t end; /* last position that is not absent, + 1 */
};

/* Cells have numbers of our own: which of them positions share is all that matters here, not where an adapter
 * keeps them. */
struct md_engine_map {
    int32_t *holders;                /* of each cell: how many sequences hold it */
    int32_t *free_cells, free_count; /* numbers that nobody holds */
    int32_t seq_count;
    struct seq_map seqs[];
};

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
    assert(!(caps & MD_CAP_ATTENTION_SCORES)); /* no operation carries it out yet, so nobody may claim it */
    assert(e->info.seq_count > 0 && e->info.cell_count > 0 && e->info.batch_tokens > 0);

    e->ops = ops;
    e->caps = caps;
    const int32_t cells = e->info.cell_count;
    e->map = md_calloc(NULL, 1, sizeof *e->map + (size_t)e->info.seq_count * sizeof(struct seq_map));
    if (e->map == NULL)
        return md_fail(err, MD_NO_MEMORY, "position map of the engine");
    e->map->seq_count = e->info.seq_count;
    e->map->holders = md_calloc(NULL, (size_t)cells, sizeof *e->map->holders);
    e->map->free_cells = md_calloc(NULL, (size_t)cells, sizeof *e->map->free_cells);
    if (e->map->holders == NULL || e->map->free_cells == NULL)
        return md_fail(err, MD_NO_MEMORY, "cell map of %d cells", cells);
    for (int32_t i = 0; i < cells; i++)
        e->map->free_cells[e->map->free_count++] = cells - 1 - i;
    return MD_OK;
}

void md_engine_done(struct md_engine *e)
{
    if (e->map == NULL)
        return;
    for (int32_t i = 0; i < e->map->seq_count; i++)
        free(e->map->seqs[i].at);
    free(e->map->holders);
    free(e->map->free_cells);
    free(e->map);
    e->map = NULL;
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

/* ---- the map ---- */

static struct seq_map *map_of(const struct md_engine *e, md_seq seq)
{
    return seq >= 0 && seq < e->map->seq_count ? &e->map->seqs[seq] : NULL;
}

static bool all_in_state(const struct seq_map *m, struct md_range r, enum pos_state state)
{
    if (r.end > m->end)
        return state == POS_ABSENT &&
               (r.start >= m->end || all_in_state(m, (struct md_range){ r.start, m->end }, state));
    for (int32_t p = r.start; p < r.end; p++)
        if (m->at[p].state != state)
            return false;
    return true;
}

static enum md_status map_reserve(struct seq_map *m, int32_t end, struct md_err *err)
{
    size_t old = m->cap;
    void *at = m->at;
    if (!md_grow(NULL, &at, &m->cap, (size_t)end, sizeof *m->at))
        return md_fail(err, MD_NO_MEMORY, "position map of %d tokens", end);
    m->at = at;
    memset(m->at + old, 0, (m->cap - old) * sizeof *m->at); /* absent */
    return MD_OK;
}

static int32_t take_cell(struct md_engine_map *map)
{
    assert(map->free_count > 0);
    int32_t cell = map->free_cells[--map->free_count];
    assert(map->holders[cell] == 0);
    map->holders[cell] = 1;
    return cell;
}

static void drop_cell(struct md_engine_map *map, int32_t cell)
{
    assert(map->holders[cell] > 0);
    if (--map->holders[cell] == 0)
        map->free_cells[map->free_count++] = cell;
}

/* With map_share the only place that changes the map. */
static void map_set(struct md_engine *e, struct seq_map *m, struct md_range r, enum pos_state state)
{
    for (int32_t p = r.start; p < r.end; p++) {
        struct place *at = &m->at[p];
        if (at->state == POS_ABSENT && state != POS_ABSENT)
            at->cell = take_cell(e->map);
        else if (at->state != POS_ABSENT && state == POS_ABSENT)
            drop_cell(e->map, at->cell);
        at->state = state;
    }
    if (state != POS_ABSENT && r.end > m->end)
        m->end = r.end;
    while (m->end > 0 && m->at[m->end - 1].state == POS_ABSENT)
        m->end--;
}

static void map_share(struct md_engine *e, const struct seq_map *from, struct seq_map *to, struct md_range r)
{
    for (int32_t p = r.start; p < r.end; p++) {
        to->at[p] = from->at[p];
        e->map->holders[to->at[p].cell]++;
    }
    if (r.end > to->end)
        to->end = r.end;
}

int32_t md_engine_end(const struct md_engine *e, md_seq seq)
{
    const struct seq_map *m = map_of(e, seq);
    return m == NULL ? 0 : m->end;
}

int64_t md_engine_kv_bytes(const struct md_engine *e, int32_t tokens)
{
    const struct md_engine_info *i = &e->info;
    if (i->kv_growing_bytes == 0 && i->kv_fixed_bytes == 0)
        return tokens * i->kv_bytes_per_token;
    return tokens * i->kv_growing_bytes + i->kv_fixed_bytes;
}

int32_t md_engine_cells_used(const struct md_engine *e)
{
    return e->info.cell_count - e->map->free_count;
}

int32_t md_engine_own_cells(const struct md_engine *e, md_seq seq, struct md_range r)
{
    const struct seq_map *m = map_of(e, seq);
    int32_t own = 0;
    for (int32_t p = r.start < 0 ? 0 : r.start; m != NULL && p < r.end && p < m->end; p++)
        own += m->at[p].state != POS_ABSENT && e->map->holders[m->at[p].cell] == 1;
    return own;
}

bool md_engine_is_hot(const struct md_engine *e, md_seq seq, struct md_range r)
{
    const struct seq_map *m = map_of(e, seq);
    return m != NULL && r.start >= 0 && r.start < r.end && all_in_state(m, r, POS_HOT);
}

/* ---- checks ---- */

static enum md_status check_seq(const struct md_engine *e, md_seq seq, struct seq_map **ret_m,
                                struct md_err *err)
{
    struct seq_map *m = map_of(e, seq);
    if (m == NULL)
        return md_fail(err, MD_INVALID, "sequence %d is not in [0, %d)", seq, e->map->seq_count);
    *ret_m = m;
    return MD_OK;
}

static enum md_status check_range(const struct md_engine *e, md_seq seq, struct md_range r,
                                  enum pos_state want, struct seq_map **ret_m, struct md_err *err)
{
    static const char *const names[] = { "absent", "hot", "parked" };
    enum md_status s = check_seq(e, seq, ret_m, err);
    if (s != MD_OK)
        return s;
    if (r.start < 0 || r.end <= r.start)
        return md_fail(err, MD_INVALID, "range [%d, %d) is empty or negative", r.start, r.end);
    if (!all_in_state(*ret_m, r, want))
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
                                   const md_token *tokens, int32_t count, struct seq_map **ret_m,
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
    if ((*ret_m)->end != 0 && (*ret_m)->at[(*ret_m)->end - 1].state != POS_HOT)
        return md_fail(err, MD_INVALID, "the end of sequence %d is parked: unpark it before adding tokens",
                       seq);
    s = check_tokens(e, tokens, count, err);
    if (s == MD_OK)
        s = check_cells(e, count, err);
    if (s == MD_OK)
        s = map_reserve(*ret_m, start + count, err);
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
    struct seq_map *m = NULL;
    enum md_status s = check_append(e, seq, start, tokens, count, &m, err);
    if (s == MD_OK)
        s = e->ops->prefill(e, seq, start, tokens, count, err);
    if (s == MD_OK)
        map_set(e, m, (struct md_range){ start, start + count }, POS_HOT);
    return s;
}

enum md_status md_engine_decode(struct md_engine *e, md_seq seq, int32_t pos, md_token token,
                                const float **ret_logits, struct md_err *err)
{
    struct seq_map *m = NULL;
    const float *logits = NULL;
    enum md_status s = check_append(e, seq, pos, &token, 1, &m, err);
    if (s == MD_OK)
        s = e->ops->decode(e, seq, pos, token, &logits, err);
    if (s != MD_OK)
        return s;
    map_set(e, m, (struct md_range){ pos, pos + 1 }, POS_HOT);
    *ret_logits = logits;
    return MD_OK;
}

int32_t md_engine_cut_point(const struct md_engine *e, md_seq seq, int32_t from)
{
    assert(from >= 0 && from <= md_engine_end(e, seq));
    if (from == 0 || from == md_engine_end(e, seq))
        return from;
    if (!(e->caps & MD_CAP_REMOVE_TAIL))
        return 0;
    return e->ops->cut_point == NULL ? from : e->ops->cut_point(e, seq, from);
}

enum md_status md_engine_truncate(struct md_engine *e, md_seq seq, int32_t from, struct md_err *err)
{
    struct seq_map *m = NULL;
    enum md_status s = check_seq(e, seq, &m, err);
    if (s != MD_OK)
        return s;
    if (from < 0)
        return md_fail(err, MD_INVALID, "cannot truncate at position %d", from);
    if (from >= m->end)
        return MD_OK;
    if (from > 0 && !(e->caps & MD_CAP_REMOVE_TAIL))
        return unsupported(e, "remove a part of a sequence", err);
    if (md_engine_cut_point(e, seq, from) != from)
        return md_fail(err, MD_UNSUPPORTED,
                       "the sequence cannot be cut at position %d: its windowed layers no longer hold what "
                       "comes before",
                       from);
    s = e->ops->truncate(e, seq, from, err);
    if (s == MD_OK)
        map_set(e, m, (struct md_range){ from, m->end }, POS_ABSENT);
    return s;
}

int64_t md_engine_export_bytes(const struct md_engine *e, int32_t tokens)
{
    return e->ops->export_bytes == NULL ? 0 : e->ops->export_bytes(e, tokens);
}

enum md_status md_engine_export_range(struct md_engine *e, md_seq seq, struct md_range r,
                                      struct md_buf *ret_kv, struct md_err *err)
{
    struct seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, POS_HOT, &m, err);
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
    struct seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, POS_HOT, &m, err);
    if (s != MD_OK)
        return s;
    if (!(e->caps & MD_CAP_REMOVE_MIDDLE))
        return unsupported(e, "remove a range", err);
    s = e->ops->remove_range(e, seq, r, err);
    if (s == MD_OK)
        map_set(e, m, r, POS_ABSENT);
    return s;
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

/* What both ways in ask before the adapter is called. */
static enum md_status check_admit(struct md_engine *e, md_seq seq, struct md_range r, struct seq_map **ret_m,
                                  struct md_err *err)
{
    enum md_status s = check_range(e, seq, r, POS_ABSENT, ret_m, err);
    if (s == MD_OK && !(e->caps & MD_CAP_COLD_STORE))
        return unsupported(e, "import KV", err);
    if (s == MD_OK)
        s = check_cells(e, md_range_len(r), err);
    return s == MD_OK ? map_reserve(*ret_m, r.end, err) : s;
}

enum md_status md_engine_admit_range(struct md_engine *e, md_seq seq, struct md_range r, struct md_bytes kv,
                                     struct md_err *err)
{
    struct seq_map *m = NULL;
    enum md_status s = check_admit(e, seq, r, &m, err);
    if (s == MD_OK)
        s = e->ops->admit_range(e, seq, r, kv, err);
    if (s == MD_OK)
        map_set(e, m, r, POS_HOT);
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
    struct seq_map *m = NULL;
    enum md_status s = check_can_move(e, err);
    if (s == MD_OK)
        s = check_admit(e, seq, r, &m, err);
    if (s == MD_OK && (from_start < 0 || from_start > INT32_MAX - md_range_len(r)))
        s = md_fail(err, MD_INVALID, "KV cannot come from position %d", from_start);
    if (s == MD_OK)
        s = e->ops->admit_moved(e, seq, r, from_start, kv, err);
    if (s == MD_OK)
        map_set(e, m, r, POS_HOT);
    return s;
}

enum md_status md_engine_share(struct md_engine *e, md_seq from, md_seq to, struct md_range r,
                               struct md_err *err)
{
    struct seq_map *source = NULL, *target = NULL;
    enum md_status s = check_range(e, from, r, POS_HOT, &source, err);
    if (s == MD_OK && from == to)
        return md_fail(err, MD_INVALID, "sequence %d cannot share with itself", from);
    if (s == MD_OK)
        s = check_range(e, to, r, POS_ABSENT, &target, err);
    if (s == MD_OK && !(e->caps & MD_CAP_SHARE))
        return unsupported(e, "share cells between sequences", err);
    if (s == MD_OK)
        s = map_reserve(target, r.end, err);
    if (s == MD_OK)
        s = e->ops->share(e, from, to, r, err);
    if (s == MD_OK)
        map_share(e, source, target, r);
    return s;
}

enum md_status md_engine_park(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    struct seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, POS_HOT, &m, err);
    if (s != MD_OK)
        return s;
    if (!(e->caps & MD_CAP_SPARSE_ATTENTION))
        return unsupported(e, "park a range", err);
    s = e->ops->park(e, seq, r, err);
    if (s == MD_OK)
        map_set(e, m, r, POS_PARKED);
    return s;
}

enum md_status md_engine_unpark(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    struct seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, POS_PARKED, &m, err);
    if (s != MD_OK)
        return s;
    s = e->ops->unpark(e, seq, r, err);
    if (s == MD_OK)
        map_set(e, m, r, POS_HOT);
    return s;
}

enum md_status md_engine_recompute_range(struct md_engine *e, md_seq seq, struct md_range r,
                                         const md_token *tokens, struct md_err *err)
{
    struct seq_map *m = NULL;
    enum md_status s = check_range(e, seq, r, POS_ABSENT, &m, err);
    if (s != MD_OK)
        return s;
    if (!(e->caps & MD_CAP_RECOMPUTE_RANGE))
        return unsupported(e, "compute a middle range again", err);
    if (r.start > 0 && !md_engine_is_hot(e, seq, (struct md_range){ r.start - 1, r.start }))
        return md_fail(err, MD_INVALID, "position %d before the range [%d, %d) is not hot", r.start - 1,
                       r.start, r.end);
    s = check_tokens(e, tokens, md_range_len(r), err);
    if (s == MD_OK)
        s = check_cells(e, md_range_len(r), err);
    if (s == MD_OK)
        s = map_reserve(m, r.end, err);
    if (s == MD_OK)
        s = e->ops->recompute_range(e, seq, r, tokens, err);
    if (s == MD_OK)
        map_set(e, m, r, POS_HOT);
    return s;
}
