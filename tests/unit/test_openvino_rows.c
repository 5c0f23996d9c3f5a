/* The map of rows against a naive one: each sequence is a list of positions with a stamp, and the bytes of a row are
 * its stamp.  Whatever comes, goes and is shared, a step must find the stamps of exactly what it attends to. */
#include "adapters/openvino/ov_rows.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4, CELLS = 40, SEQS = 4, POSITIONS = 48, ROWS = CELLS + BLOCK, WINDOWS = 4 };

static struct md_ov_rows rows;
static int32_t bytes[ROWS]; /* what stands in each row */
static int moves, steps;

/* 0: absent; else the stamp */
static struct {
    int32_t stamp;
    bool hot;
} naive[SEQS][POSITIONS];
static int32_t next_stamp;

static void move_row(void *user, int32_t from, int32_t to)
{
    (void)user;
    moves++;
    bytes[to] = bytes[from];
    bytes[from] = -1; /* nobody may read it there any more */
}

static void swap_rows(void *user, int32_t a, int32_t b)
{
    (void)user;
    moves++;
    const int32_t kept = bytes[a];
    bytes[a] = bytes[b];
    bytes[b] = kept;
}

static void setup(void)
{
    const struct md_ov_mover mover = { move_row, swap_rows, NULL };
    ck_assert_int_eq(md_ov_rows_init(&rows, CELLS, BLOCK, SEQS, mover, NULL), MD_OK);
    memset(bytes, 0xff, sizeof bytes);
    memset(naive, 0, sizeof naive);
    next_stamp = 1;
    moves = steps = 0;
}

static void teardown(void)
{
    md_ov_rows_done(&rows);
}

static int32_t end_of(int32_t seq)
{
    int32_t end = POSITIONS;
    while (end > 0 && naive[seq][end - 1].stamp == 0)
        end--;
    return end;
}

/* Cells that somebody has, shared ones once: as the base counts them. */
static int32_t cells_used(void)
{
    int32_t count = 0;
    for (int32_t s = 0; s < SEQS; s++)
        for (int32_t p = 0; p < POSITIONS; p++) {
            bool first = naive[s][p].stamp != 0;
            for (int32_t other = 0; other < s; other++)
                first = first && naive[other][p].stamp != naive[s][p].stamp;
            count += first;
        }
    return count;
}

/* Every sequence has what it should have, and nothing else. */
static void check_all(void)
{
    md_ov_rows_check(&rows);
    for (int32_t s = 0; s < SEQS; s++) {
        size_t at = 0;
        for (int32_t p = 0; p < POSITIONS; p++) {
            if (naive[s][p].stamp == 0)
                continue;
            ck_assert_uint_lt(at, rows.seqs[s].count);
            const struct md_ov_entry *e = &rows.seqs[s].at[at++];
            ck_assert_int_eq(e->pos, p);
            ck_assert_int_eq(e->hot, naive[s][p].hot);
            ck_assert_msg(bytes[e->row] == naive[s][p].stamp, "sequence %d, position %d: %d instead of %d", s,
                          p, bytes[e->row], naive[s][p].stamp);
        }
        ck_assert_uint_eq(at, rows.seqs[s].count);
    }
}

/* In windowed layers token number k of the step sees `sees` rows, itself the last: the hot ones of its window. */
static void check_window(int32_t seq, int32_t start, int32_t k, int32_t sees)
{
    int32_t wanted = 0, found = 0;
    for (int32_t p = start + k; p >= 0 && p > start + k - rows.window; p--)
        wanted += p >= start || naive[seq][p].hot ? naive[seq][p].stamp : 0;
    for (int32_t i = rows.past + k; i >= 0 && i > rows.past + k - sees; i--)
        found += bytes[rows.table[i / BLOCK] * BLOCK + i % BLOCK];
    ck_assert_msg(wanted == found, "window %d of position %d: the stamps are %d, not %d", rows.window,
                  start + k, found, wanted);
}

/* One of `count` tokens from `start` on over what is hot before it. */
static void one_step(int32_t seq, int32_t start, int32_t count, int32_t sees)
{
    int32_t past = 0, sum = 0;
    ck_assert_int_eq(md_ov_rows_arrange(&rows, seq, start, count, NULL), MD_OK);
    for (int32_t p = 0; p < start; p++)
        if (naive[seq][p].stamp != 0 && naive[seq][p].hot) {
            past++;
            sum += naive[seq][p].stamp;
        }
    ck_assert_int_eq(rows.past, past);
    ck_assert_int_eq(rows.table_count, (past + count + BLOCK - 1) / BLOCK);
    check_all();
    for (int32_t i = 0; i < past + count; i++) {
        int32_t *row = &bytes[rows.table[i / BLOCK] * BLOCK + i % BLOCK];
        if (i < past) { /* each stamp is there once: stamps differ, and so do rows */
            sum -= *row;
            continue;
        }
        ck_assert_int_eq(rows.holders[row - bytes], 0); /* nobody's KV is written over */
        *row = next_stamp;
        naive[seq][start + i - past].stamp = next_stamp++;
        naive[seq][start + i - past].hot = true;
        if (rows.window > 0)
            check_window(seq, start, i - past, sees);
    }
    ck_assert_int_eq(sum, 0);
    md_ov_rows_adopt(&rows, seq, start, count);
    check_all();
}

/* As few steps as windows allow. */
static void step(int32_t seq, int32_t start, int32_t count)
{
    while (count > 0) {
        int32_t sees = 0;
        const int32_t n = md_ov_rows_step(&rows, seq, start, count, &sees);
        ck_assert(n >= 1 && n <= count && (rows.window > 0 || n == count));
        steps++;
        one_step(seq, start, n, sees);
        start += n;
        count -= n;
    }
}

static void drop(int32_t seq, struct md_range r)
{
    md_ov_rows_remove(&rows, seq, r);
    for (int32_t p = r.start; p < r.end && p < POSITIONS; p++)
        naive[seq][p].stamp = 0;
}

/* ---- what sessions do moves nothing ---- */

START_TEST(whole_blocks_stay_where_they_are)
{
    step(0, 0, 16);
    step(1, 0, 8);
    drop(0, (struct md_range){ 4, 12 });
    step(0, 16, 6);
    for (int32_t i = 0; i < 6; i++)
        step(0, 22 + i, 1);
    ck_assert_int_eq(md_ov_rows_insert(&rows, 0, (struct md_range){ 4, 8 }, NULL), MD_OK);
    const struct md_ov_entry *e = md_ov_rows_from(&rows, 0, 4);
    for (int32_t i = 0; i < 4; i++) {
        bytes[e[i].row] = next_stamp;
        naive[0][4 + i].stamp = next_stamp++;
        naive[0][4 + i].hot = true;
    }
    step(0, 28, 3);
    step(1, 8, 1);
    ck_assert_int_eq(moves, 0);
}
END_TEST

START_TEST(a_hole_in_a_block_is_closed)
{
    step(0, 0, 16);
    drop(0, (struct md_range){ 5, 7 });
    step(0, 16, 1);
    ck_assert_int_gt(moves, 0);
    ck_assert_int_le(moves, 2); /* two of its rows fill the two free ones, or go to a block of their own */
}
END_TEST

/* Windows of 8: rows in order cost no step, a hole costs one where it leaves the window, and none before there is
 * anything older. */
START_TEST(a_window_with_a_hole)
{
    rows.window = 8;
    step(0, 0, 16);
    step(0, 16, 4);
    ck_assert_int_eq(steps, 2);
    ck_assert_int_eq(moves, 0);
    drop(0, (struct md_range){ 14, 16 });
    step(0, 20, 10); /* [20, 22) see six older ones, 22 sees seven, from 23 on all are there */
    ck_assert_int_eq(steps, 2 + 3);
    step(1, 0, 6);
    drop(1, (struct md_range){ 2, 4 });
    step(1, 6, 6);
    ck_assert_int_eq(steps, 2 + 3 + 1 + 3);
}
END_TEST

/* Every cell is taken, and no block belongs to one sequence alone: the block more than cells is enough. */
START_TEST(every_cell_in_turn)
{
    step(0, 0, CELLS / 2);
    step(1, 0, CELLS / 2);
    for (int32_t p = 0; p < CELLS / 2; p += 2) {
        drop(0, (struct md_range){ p, p + 1 });
        drop(1, (struct md_range){ p + 1, p + 2 });
    }
    step(2, 0, CELLS / 2);
    ck_assert_int_eq(cells_used(), CELLS);
    drop(2, (struct md_range){ 0, 1 });
    step(0, CELLS / 2, 1);
    drop(2, (struct md_range){ 1, 2 });
    step(1, CELLS / 2, 1);
    ck_assert_int_eq(cells_used(), CELLS);
}
END_TEST

/* ---- anything ---- */

static struct md_range some_range(struct rng *r, int32_t end)
{
    const int32_t a = (int32_t)rng_below(r, (uint32_t)end), b = (int32_t)rng_below(r, (uint32_t)end);
    return a < b ? (struct md_range){ a, b + 1 } : (struct md_range){ b, a + 1 };
}

static void share_some(struct rng *r, int32_t from, int32_t to)
{
    const int32_t end = end_of(from);
    if (end == 0 || from == to)
        return;
    const struct md_range range = some_range(r, end);
    drop(to, range);
    ck_assert_int_eq(md_ov_rows_share(&rows, from, to, range, NULL), MD_OK);
    for (int32_t p = range.start; p < range.end; p++)
        naive[to][p] = naive[from][p];
}

/* Tokens at the end, or in a hole. */
static void compute_some(struct rng *r, int32_t seq)
{
    const int32_t end = end_of(seq);
    int32_t start = end, most = POSITIONS - end;
    if (end > 0 && rng_below(r, 2) == 0) {
        start = (int32_t)rng_below(r, (uint32_t)end);
        for (most = 0; start + most < end && naive[seq][start + most].stamp == 0;)
            most++;
    }
    if (most > CELLS - cells_used())
        most = CELLS - cells_used();
    if (most > 0)
        step(seq, start, 1 + (int32_t)rng_below(r, (uint32_t)most));
}

START_TEST(random_walk)
{
    static const int32_t windows[WINDOWS] = { 0, 1, 5, 16 };
    struct rng r = rng_open("walk of rows");
    rows.window = windows[_i];
    for (int i = 0; i < 10000; i++) {
        const int32_t seq = (int32_t)rng_below(&r, SEQS), end = end_of(seq);
        const struct md_range range = end > 0 ? some_range(&r, end) : (struct md_range){ 0, 1 };
        switch (rng_below(&r, 6)) {
        case 0: drop(seq, range); break;
        case 1: drop(seq, (struct md_range){ range.start, INT32_MAX }); break;
        case 2:
        case 3: {
            const bool hot = rng_below(&r, 2) == 0;
            md_ov_rows_set_hot(&rows, seq, range, hot);
            for (int32_t p = range.start; p < range.end; p++)
                naive[seq][p].hot = hot;
            break;
        }
        case 4: share_some(&r, seq, (int32_t)rng_below(&r, SEQS)); break;
        default: compute_some(&r, seq);
        }
        check_all();
    }
    ck_assert_int_gt(moves, 500);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openvino_rows");
    TCase *c = tcase_create("rows");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, whole_blocks_stay_where_they_are);
    tcase_add_test(c, a_hole_in_a_block_is_closed);
    tcase_add_test(c, every_cell_in_turn);
    tcase_add_test(c, a_window_with_a_hole);
    tcase_add_loop_test(c, random_walk, 0, WINDOWS);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
