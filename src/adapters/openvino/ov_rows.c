/* ov_rows.c - see ov_rows.h. */
#include "adapters/openvino/ov_rows.h"

#include <assert.h>

/* ---- life ---- */

enum md_status md_ov_rows_init(struct md_ov_rows *r, int32_t cells, int32_t block_rows, int32_t seq_count,
                               struct md_ov_mover mover, struct md_err *err)
{
    assert(cells > 0 && block_rows > 0 && cells % block_rows == 0 && seq_count > 0);
    const int32_t blocks = cells / block_rows + 1;
    const size_t rows = (size_t)blocks * (size_t)block_rows;
    *r = (struct md_ov_rows){
        .block_rows = block_rows, .block_count = blocks, .seq_count = seq_count, .mover = mover
    };
    r->seqs = md_calloc(NULL, (size_t)seq_count, sizeof *r->seqs);
    r->holders = md_calloc(NULL, rows, sizeof *r->holders);
    r->pos = md_calloc(NULL, rows, sizeof *r->pos);
    r->used = md_calloc(NULL, (size_t)blocks, sizeof *r->used);
    r->table = md_calloc(NULL, (size_t)blocks, sizeof *r->table);
    r->mine = md_calloc(NULL, rows, sizeof *r->mine);
    r->mine_in = md_calloc(NULL, (size_t)blocks, sizeof *r->mine_in);
    r->place_of = md_calloc(NULL, (size_t)blocks, sizeof *r->place_of);
    r->wait = md_calloc(NULL, rows, sizeof *r->wait);
    if (r->seqs != NULL && r->holders != NULL && r->pos != NULL && r->used != NULL && r->table != NULL &&
        r->mine != NULL && r->mine_in != NULL && r->place_of != NULL && r->wait != NULL)
        return MD_OK;
    md_ov_rows_done(r);
    return md_fail(err, MD_NO_MEMORY, "the map of %d KV cells", cells);
}

void md_ov_rows_done(struct md_ov_rows *r)
{
    for (int32_t i = 0; r->seqs != NULL && i < r->seq_count; i++)
        md_free(NULL, r->seqs[i].at);
    void *const owned[] = { r->seqs, r->holders, r->pos,      r->used, r->table,
                            r->mine, r->mine_in, r->place_of, r->wait };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        md_free(NULL, owned[i]);
    *r = (struct md_ov_rows){ 0 };
}

/* ---- entries ---- */

/* How many entries stand before pos. */
static size_t before(const struct md_ov_seq *s, int32_t pos)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (s->at[middle].pos < pos)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct md_ov_entry *md_ov_rows_from(const struct md_ov_rows *r, int32_t seq, int32_t pos)
{
    return r->seqs[seq].at + before(&r->seqs[seq], pos);
}

static enum md_status reserve(struct md_ov_seq *s, int32_t more, struct md_err *err)
{
    void *at = s->at;
    if (!md_grow(NULL, &at, &s->cap, s->count + (size_t)more, sizeof *s->at))
        return md_fail(err, MD_NO_MEMORY, "the map of a sequence of %zu cells", s->count + (size_t)more);
    s->at = at;
    return MD_OK;
}

/* Room for `count` entries where those from pos on begin; reserved before. */
static struct md_ov_entry *open_gap(struct md_ov_seq *s, int32_t pos, int32_t count)
{
    const size_t at = before(s, pos);
    assert(s->count + (size_t)count <= s->cap);
    memmove(s->at + at + count, s->at + at, (s->count - at) * sizeof *s->at);
    s->count += (size_t)count;
    return s->at + at;
}

static void hold(struct md_ov_rows *r, int32_t row, int32_t pos)
{
    if (r->holders[row]++ == 0)
        r->used[row / r->block_rows]++;
    r->pos[row] = pos;
}

static void let_go(struct md_ov_rows *r, int32_t row)
{
    assert(r->holders[row] > 0);
    if (--r->holders[row] == 0)
        r->used[row / r->block_rows]--;
}

/* The next free row: of blocks with at most `used` rows taken, from `row` on; -1: there is none. */
static int32_t free_row(const struct md_ov_rows *r, int32_t row, int32_t used)
{
    const int32_t rows = r->block_count * r->block_rows;
    while (row < rows) {
        if (r->used[row / r->block_rows] > used)
            row = (row / r->block_rows + 1) * r->block_rows;
        else if (r->holders[row] > 0)
            row++;
        else
            return row;
    }
    return -1;
}

enum md_status md_ov_rows_insert(struct md_ov_rows *r, int32_t seq, struct md_range range, struct md_err *err)
{
    const int32_t count = md_range_len(range);
    enum md_status s = reserve(&r->seqs[seq], count, err);
    if (s != MD_OK)
        return s;
    struct md_ov_entry *e = open_gap(&r->seqs[seq], range.start, count);
    int32_t row = 0, done = 0;
    for (int32_t b = 0; b < r->block_count && done < count; b++) /* blocks that nobody has, first */
        for (row = b * r->block_rows; r->used[b] == row - b * r->block_rows && done < count; row++) {
            e[done] = (struct md_ov_entry){ range.start + done, row, true };
            hold(r, row, range.start + done);
            done++;
            if (row + 1 == (b + 1) * r->block_rows)
                break;
        }
    for (row = 0; done < count; done++) {
        row = free_row(r, row, r->block_rows - 1);
        assert(row >= 0);
        e[done] = (struct md_ov_entry){ range.start + done, row, true };
        hold(r, row, range.start + done);
    }
    return MD_OK;
}

void md_ov_rows_remove(struct md_ov_rows *r, int32_t seq, struct md_range range)
{
    struct md_ov_seq *s = &r->seqs[seq];
    const size_t first = before(s, range.start), end = before(s, range.end);
    if (first == end)
        return; /* an empty sequence has no memory to move in */
    for (size_t i = first; i < end; i++)
        let_go(r, s->at[i].row);
    memmove(s->at + first, s->at + end, (s->count - end) * sizeof *s->at);
    s->count -= end - first;
}

void md_ov_rows_set_hot(struct md_ov_rows *r, int32_t seq, struct md_range range, bool hot)
{
    struct md_ov_seq *s = &r->seqs[seq];
    const size_t end = before(s, range.end);
    for (size_t i = before(s, range.start); i < end; i++)
        s->at[i].hot = hot;
}

enum md_status md_ov_rows_share(struct md_ov_rows *r, int32_t from, int32_t to, struct md_range range,
                                struct md_err *err)
{
    const struct md_ov_seq *source = &r->seqs[from];
    const size_t first = before(source, range.start), count = before(source, range.end) - first;
    if (count == 0)
        return MD_OK;
    enum md_status s = reserve(&r->seqs[to], (int32_t)count, err);
    if (s != MD_OK)
        return s;
    struct md_ov_entry *e = open_gap(&r->seqs[to], range.start, (int32_t)count);
    for (size_t i = 0; i < count; i++) {
        e[i] = source->at[first + i];
        hold(r, e[i].row, e[i].pos);
    }
    return MD_OK;
}

/* ---- arranging ---- */

/* Each sequence that has rows a or b has the other one from now on. */
static void exchange_names(struct md_ov_rows *r, int32_t a, int32_t b)
{
    const bool both = r->holders[b] > 0 && r->pos[a] != r->pos[b];
    for (int32_t i = 0; i < r->seq_count; i++) {
        struct md_ov_seq *s = &r->seqs[i];
        struct md_ov_entry *of[2] = { NULL, NULL }; /* looked up before any is changed */
        const int32_t positions[2] = { r->pos[a], r->pos[b] };
        for (int k = 0; k < (both ? 2 : 1); k++) {
            const size_t at = before(s, positions[k]);
            if (at < s->count && s->at[at].pos == positions[k])
                of[k] = &s->at[at];
        }
        for (int k = 0; k < 2; k++)
            if (of[k] != NULL && (of[k]->row == a || of[k]->row == b))
                of[k]->row = of[k]->row == a ? b : a;
    }
}

/* Row `from`, which is held, goes to `to`, and what is there comes back. */
static void exchange(struct md_ov_rows *r, int32_t from, int32_t to)
{
    const int32_t holders = r->holders[to], pos = r->pos[to];
    if (holders > 0)
        r->mover.swap(r->mover.user, from, to);
    else
        r->mover.move(r->mover.user, from, to);
    exchange_names(r, from, to);
    if (holders == 0) {
        r->used[from / r->block_rows]--;
        r->used[to / r->block_rows]++;
    }
    r->holders[to] = r->holders[from];
    r->pos[to] = r->pos[from];
    r->holders[from] = holders;
    r->pos[from] = pos;
}

/* Note the rows that the step attends to; returns how many. */
static int32_t mark_mine(struct md_ov_rows *r, const struct md_ov_seq *s, int32_t limit)
{
    int32_t count = 0;
    memset(r->mine, 0, (size_t)r->block_count * (size_t)r->block_rows * sizeof *r->mine);
    memset(r->mine_in, 0, (size_t)r->block_count * sizeof *r->mine_in);
    for (size_t i = 0; i < s->count && s->at[i].pos < limit; i++)
        if (s->at[i].hot) {
            r->mine[s->at[i].row] = true;
            r->mine_in[s->at[i].row / r->block_rows]++;
            count++;
        }
    return count;
}

enum { NOT_TAKEN = -1, WHOLE = -2 }; /* place_of: else the block's place among those that are filled up */

/* Blocks that are wholly ours come first, in the order of their last positions: what stands in order stays so. */
static void take_whole(struct md_ov_rows *r, const struct md_ov_seq *s, int32_t limit)
{
    r->table_count = 0;
    for (int32_t b = 0; b < r->block_count; b++)
        r->place_of[b] = NOT_TAKEN;
    for (size_t i = before(s, limit); i-- > 0;) {
        const int32_t b = s->at[i].row / r->block_rows;
        if (s->at[i].hot && r->mine_in[b] == r->block_rows && r->place_of[b] == NOT_TAKEN) {
            r->place_of[b] = WHOLE;
            r->table[r->table_count++] = b;
        }
    }
    for (int32_t i = 0; i < r->table_count / 2; i++) {
        const int32_t b = r->table[i];
        r->table[i] = r->table[r->table_count - 1 - i];
        r->table[r->table_count - 1 - i] = b;
    }
}

/* `wanted` blocks more, those first where the most is ours and the least is strange: there the fewest rows move. */
static void take_more(struct md_ov_rows *r, int32_t wanted)
{
    const int32_t whole = r->table_count;
    for (int32_t gain = r->block_rows; gain >= -r->block_rows && r->table_count < whole + wanted; gain--)
        for (int32_t b = 0; b < r->block_count && r->table_count < whole + wanted; b++)
            if (r->place_of[b] == NOT_TAKEN && 2 * r->mine_in[b] - r->used[b] == gain) {
                r->place_of[b] = r->table_count - whole;
                r->table[r->table_count++] = b;
            }
    assert(r->table_count == whole + wanted); /* the block more than cells sees to that */
}

/* Row number `i` of the taken blocks from `whole` on. */
static int32_t taken_row(const struct md_ov_rows *r, int32_t whole, int32_t i)
{
    return r->table[whole + i / r->block_rows] * r->block_rows + i % r->block_rows;
}

/* Fill the first `count` rows of the taken blocks with ours. */
static void fill(struct md_ov_rows *r, const struct md_ov_seq *s, int32_t limit, int32_t whole, int32_t count)
{
    int32_t waiting = 0, slot = 0;
    for (size_t i = 0; i < s->count && s->at[i].pos < limit; i++) {
        const int32_t row = s->at[i].row, place = r->place_of[row / r->block_rows];
        const bool there = place >= 0 && place * r->block_rows + row % r->block_rows < count;
        if (s->at[i].hot && place != WHOLE && !there)
            r->wait[waiting++] = row;
    }
    for (int32_t i = 0; i < waiting; i++, slot++) {
        while (r->mine[taken_row(r, whole, slot)])
            slot++;
        assert(slot < count);
        exchange(r, r->wait[i], taken_row(r, whole, slot));
    }
}

/* Nothing of others stays in rows [from, to) of the taken blocks. */
static void clear(struct md_ov_rows *r, int32_t whole, int32_t from, int32_t to)
{
    int32_t free = 0;
    for (int32_t i = from; i < to; i++) {
        const int32_t row = taken_row(r, whole, i);
        if (r->holders[row] == 0)
            continue;
        while ((free = free_row(r, free, r->block_rows - 1)) >= 0 && r->place_of[free / r->block_rows] >= 0)
            free = (free / r->block_rows + 1) * r->block_rows;
        assert(free >= 0);
        exchange(r, row, free);
    }
}

/* What windowed layers see stands last among what is there, in the order of positions. */
static void order_window(struct md_ov_rows *r, const struct md_ov_seq *s, int32_t limit)
{
    int32_t slot = r->past;
    for (size_t i = before(s, limit); i-- > 0 && s->at[i].pos > limit - r->window;) {
        if (!s->at[i].hot)
            continue;
        const int32_t row = taken_row(r, 0, --slot);
        if (s->at[i].row != row)
            exchange(r, s->at[i].row, row);
    }
}

int32_t md_ov_rows_step(const struct md_ov_rows *r, int32_t seq, int32_t start, int32_t count,
                        int32_t *ret_window_rows)
{
    const struct md_ov_seq *s = &r->seqs[seq];
    const size_t end = before(s, start);
    size_t first = before(s, start - r->window + 1); /* of the window of the token that is looked at */
    bool older = false;                              /* it has rows before its window */
    int32_t sees = 1, n = 0;
    if (r->window == 0)
        return count;
    for (size_t i = 0; i < end; i++) {
        older = older || (s->at[i].hot && i < first);
        sees += s->at[i].hot && i >= first;
    }
    *ret_window_rows = older ? sees : r->window; /* all that there is, when nothing is older */
    for (n = 1; n < count; n++) {
        const int32_t leaves = start + n - r->window; /* a position */
        const bool is_entry = first < end && s->at[first].pos == leaves;
        const bool was_there = leaves >= start || (is_entry && s->at[first].hot);
        first += is_entry;
        sees += !was_there;
        if (was_there && !older) {
            older = true;
            *ret_window_rows = sees;
        }
        if (older && sees != *ret_window_rows)
            break;
    }
    return n;
}

enum md_status md_ov_rows_arrange(struct md_ov_rows *r, int32_t seq, int32_t limit, int32_t count,
                                  struct md_err *err)
{
    struct md_ov_seq *s = &r->seqs[seq];
    enum md_status status = reserve(s, count, err);
    if (status != MD_OK)
        return status;
    r->past = mark_mine(r, s, limit);
    take_whole(r, s, limit);
    const int32_t whole = r->table_count, loose = r->past - whole * r->block_rows;
    const int32_t wanted = (loose + count + r->block_rows - 1) / r->block_rows;
    take_more(r, wanted);
    fill(r, s, limit, whole, loose);
    clear(r, whole, loose, wanted * r->block_rows);
    if (r->window > 0)
        order_window(r, s, limit);
    return MD_OK;
}

void md_ov_rows_adopt(struct md_ov_rows *r, int32_t seq, int32_t start, int32_t count)
{
    struct md_ov_entry *e = open_gap(&r->seqs[seq], start, count);
    for (int32_t i = 0; i < count; i++) {
        e[i] = (struct md_ov_entry){ start + i, taken_row(r, 0, r->past + i), true };
        assert(r->holders[e[i].row] == 0);
        hold(r, e[i].row, start + i);
    }
}

void md_ov_rows_check(const struct md_ov_rows *r)
{
    const int32_t rows = r->block_count * r->block_rows;
    int64_t held = 0, entries = 0, used = 0;
    for (int32_t i = 0; i < r->seq_count; i++) {
        const struct md_ov_seq *s = &r->seqs[i];
        for (size_t k = 0; k < s->count; k++) {
            assert(k == 0 || s->at[k - 1].pos < s->at[k].pos);
            assert(s->at[k].row >= 0 && s->at[k].row < rows && r->holders[s->at[k].row] > 0);
            assert(r->pos[s->at[k].row] == s->at[k].pos);
        }
        entries += (int64_t)s->count;
    }
    for (int32_t row = 0; row < rows; row++) {
        held += r->holders[row];
        used += r->holders[row] > 0;
    }
    assert(held == entries);
    for (int32_t b = 0; b < r->block_count; b++)
        used -= r->used[b];
    assert(used == 0);
}
