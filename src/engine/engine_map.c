/* engine_map.c - see engine_map.h; and the questions of engine.h that it answers without an engine. */
#include "engine/engine_map.h"

#include <assert.h>
#include <string.h>

/* ---- life ---- */

enum md_status md_map_open(struct md_engine *e, struct md_err *err)
{
    const int32_t cells = e->info.cell_count;
    e->map = md_calloc(NULL, 1, sizeof *e->map + (size_t)e->info.seq_count * sizeof(struct md_seq_map));
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

void md_map_close(struct md_engine_map *map)
{
    if (map == NULL)
        return;
    for (int32_t i = 0; i < map->seq_count; i++)
        md_free(NULL, map->seqs[i].at);
    md_free(NULL, map->holders);
    md_free(NULL, map->free_cells);
    md_free(NULL, map);
}

/* ---- the map ---- */

struct md_seq_map *md_map_of(const struct md_engine *e, md_seq seq)
{
    return seq >= 0 && seq < e->map->seq_count ? &e->map->seqs[seq] : NULL;
}

enum md_pos_state md_map_state(const struct md_seq_map *m, int32_t pos)
{
    return pos < m->from || pos >= m->end ? MD_POS_ABSENT : m->at[pos - m->from].state;
}

bool md_map_all(const struct md_seq_map *m, struct md_range r, enum md_pos_state state)
{
    const int32_t start = r.start > m->from ? r.start : m->from, end = r.end < m->end ? r.end : m->end;
    if (state != MD_POS_ABSENT && (start > r.start || end < r.end))
        return false;
    for (int32_t p = start; p < end; p++)
        if (m->at[p - m->from].state != state)
            return false;
    return true;
}

/* The first position that is there; the sequence is not empty. */
static int32_t first_there(const struct md_seq_map *m)
{
    int32_t p = m->from;
    while (m->at[p - m->from].state == MD_POS_ABSENT)
        p++;
    return p;
}

/* Begin the array at `low`: what is there, from `first` on, moves along. */
static void begin_at(struct md_seq_map *m, int32_t low, int32_t first)
{
    const size_t count = m->end > 0 ? (size_t)(m->end - first) : 0,
                 to = count > 0 ? (size_t)(first - low) : 0;
    if (count > 0)
        memmove(m->at + to, m->at + (first - m->from), count * sizeof *m->at);
    memset(m->at, 0, to * sizeof *m->at); /* absent */
    memset(m->at + to + count, 0, (m->cap - to - count) * sizeof *m->at);
    m->from = low;
}

enum md_status md_map_reserve(struct md_seq_map *m, struct md_range r, struct md_err *err)
{
    if (r.start >= m->from && (size_t)(r.end - m->from) <= m->cap)
        return MD_OK;
    const int32_t first = m->end > 0 ? first_there(m) : r.start;
    const int32_t low = first < r.start ? first : r.start, high = r.end > m->end ? r.end : m->end;
    const size_t need = (size_t)(high - low);
    /* a quarter stays free, so that what is there does not move with every call */
    const size_t want = need <= m->cap - m->cap / 4 ? m->cap : need > m->cap ? need : m->cap + 1;
    void *at = m->at;
    if (!md_grow(NULL, &at, &m->cap, want, sizeof *m->at))
        return md_fail(err, MD_NO_MEMORY, "position map of %zu tokens", need);
    m->at = at;
    begin_at(m, low, first);
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

void md_map_set(struct md_engine *e, struct md_seq_map *m, struct md_range r, enum md_pos_state state)
{
    const int32_t start = r.start > m->from ? r.start : m->from; /* before it there is nothing to remove */
    assert(state == MD_POS_ABSENT || start == r.start);
    for (int32_t p = start; p < r.end; p++) {
        struct md_place *at = &m->at[p - m->from];
        if (at->state == MD_POS_ABSENT && state != MD_POS_ABSENT)
            at->cell = take_cell(e->map);
        else if (at->state != MD_POS_ABSENT && state == MD_POS_ABSENT)
            drop_cell(e->map, at->cell);
        at->state = state;
    }
    if (state != MD_POS_ABSENT && r.end > m->end)
        m->end = r.end;
    while (m->end > m->from && m->at[m->end - 1 - m->from].state == MD_POS_ABSENT)
        m->end--;
    if (m->end <= m->from)
        m->end = 0;
}

void md_map_share(struct md_engine *e, const struct md_seq_map *from, struct md_seq_map *to,
                  struct md_range r)
{
    for (int32_t p = r.start; p < r.end; p++) {
        to->at[p - to->from] = from->at[p - from->from];
        e->map->holders[to->at[p - to->from].cell]++;
    }
    if (r.end > to->end)
        to->end = r.end;
}

int32_t md_engine_end(const struct md_engine *e, md_seq seq)
{
    const struct md_seq_map *m = md_map_of(e, seq);
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
    const struct md_seq_map *m = md_map_of(e, seq);
    int32_t own = 0;
    for (int32_t p = m == NULL || r.start > m->from ? r.start : m->from; m != NULL && p < r.end && p < m->end;
         p++) {
        const struct md_place *at = &m->at[p - m->from];
        own += at->state != MD_POS_ABSENT && e->map->holders[at->cell] == 1;
    }
    return own;
}

bool md_engine_is_hot(const struct md_engine *e, md_seq seq, struct md_range r)
{
    const struct md_seq_map *m = md_map_of(e, seq);
    return m != NULL && r.start >= 0 && r.start < r.end && md_map_all(m, r, MD_POS_HOT);
}

bool md_engine_is_ready(const struct md_engine *e, md_seq seq)
{
    const struct md_seq_map *m = md_map_of(e, seq);
    return m != NULL && !m->lost_tail;
}
