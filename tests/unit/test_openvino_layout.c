/* How blocks lie in memory, and blocks that lie in a pool.  What is right is written down by the shapes themselves: number
 * i of row r of head h of a block is element [h][r][i] of an array, or [h][i][r] of one that lies across. */
#include "adapters/openvino/ov_cache.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* ---- what shapes say ---- */

static const struct {
    const char *label;
    struct md_ov_shape keys, values;
    bool hint;
    enum md_status want;
    int32_t rows;
    size_t key_bytes, value_bytes;
    bool across;
} rows[] = {
    /* SmolLM2 on the processor, as its plugin gave it: [blocks, 3, 32, 64] */
    { "cpu", { 3, { 32, 64 }, 2 }, { 3, { 32, 64 }, 2 }, false, MD_OK, 32, 128, 128, false },
    { "cpu u8", { 3, { 32, 72 }, 1 }, { 3, { 32, 72 }, 1 }, false, MD_OK, 32, 72, 72, false },
    /* and as a GPU's is described: keys [blocks, 3, 64, 16], values [blocks, 3, 16, 64] */
    { "gpu", { 3, { 64, 16 }, 2 }, { 3, { 16, 64 }, 2 }, true, MD_OK, 16, 128, 128, true },
    { "gpu, whatever the hint",
      { 3, { 64, 16 }, 2 },
      { 3, { 16, 64 }, 2 },
      false,
      MD_OK,
      16,
      128,
      128,
      true },
    { "heads of other sizes", { 2, { 24, 16 }, 4 }, { 2, { 16, 48 }, 4 }, true, MD_OK, 16, 96, 192, true },
    { "a GPU that does not", { 3, { 16, 64 }, 2 }, { 3, { 16, 64 }, 2 }, true, MD_OK, 16, 128, 128, false },
    { "square, by the hint", { 2, { 16, 16 }, 4 }, { 2, { 16, 16 }, 4 }, true, MD_OK, 16, 64, 64, true },
    { "square, on the processor",
      { 2, { 32, 32 }, 4 },
      { 2, { 32, 32 }, 4 },
      false,
      MD_OK,
      32,
      128,
      128,
      false },
    /* 8 bits by channel: scales behind the rows of a block of keys */
    { "by channel", { 3, { 64, 20 }, 1 }, { 3, { 16, 68 }, 1 }, true, MD_UNSUPPORTED, 0, 0, 0, false },
    { "other heads", { 3, { 32, 64 }, 2 }, { 2, { 32, 64 }, 2 }, false, MD_UNSUPPORTED, 0, 0, 0, false },
    { "no rows", { 3, { 0, 64 }, 2 }, { 3, { 0, 64 }, 2 }, false, MD_UNSUPPORTED, 0, 0, 0, false },
    { "too large", { 3, { 32, 1 << 20 }, 2 }, { 3, { 32, 64 }, 2 }, false, MD_UNSUPPORTED, 0, 0, 0, false },
};

START_TEST(layouts_are_found)
{
    struct md_ov_layout keys = { .rows = -1 }, values = { .rows = -1 };
    struct md_err err = { 0 };
    enum md_status s =
        md_ov_layout_find(&rows[_i].keys, &rows[_i].values, rows[_i].hint, &keys, &values, &err);
    ck_assert_msg(s == rows[_i].want, "%s: %s", rows[_i].label, err.text);
    if (s != MD_OK) {
        ck_assert(keys.rows == -1 && values.rows == -1 && strstr(err.text, "not known") != NULL);
        return;
    }
    ck_assert_msg(keys.rows == rows[_i].rows && values.rows == rows[_i].rows, "%s", rows[_i].label);
    ck_assert_msg(keys.row_bytes == rows[_i].key_bytes && values.row_bytes == rows[_i].value_bytes, "%s",
                  rows[_i].label);
    ck_assert_msg(keys.across == rows[_i].across && !values.across, "%s", rows[_i].label);
    ck_assert_int_eq(keys.number_bytes, rows[_i].keys.number_bytes);
}
END_TEST

/* ---- rows out and in ---- */

enum { ROWS = 4, LENGTH = 3 };

static const uint16_t behind[ROWS][LENGTH] = { { 10, 11, 12 },
                                               { 20, 21, 22 },
                                               { 30, 31, 32 },
                                               { 40, 41, 42 } },
                      across[LENGTH][ROWS] = { { 10, 20, 30, 40 }, { 11, 21, 31, 41 }, { 12, 22, 32, 42 } };

START_TEST(rows_of_both_layouts)
{
    const struct md_ov_layout l = { ROWS, sizeof(uint16_t), LENGTH * sizeof(uint16_t), _i == 1 };
    const void *const head = _i == 1 ? (const void *)across : (const void *)behind;
    for (int32_t from = 0; from < ROWS; from++)
        for (int32_t to = from + 1; to <= ROWS; to++) {
            uint16_t got[ROWS * LENGTH + 1], made[ROWS * LENGTH];
            const size_t bytes = (size_t)(to - from) * l.row_bytes;
            got[(to - from) * LENGTH] = 77;
            md_ov_layout_gather(&l, head, from, to - from, (uint8_t *)got);
            ck_assert_mem_eq(got, behind[from], bytes);
            ck_assert_int_eq(got[(to - from) * LENGTH], 77); /* nothing behind it */
            memcpy(made, head, sizeof made);                 /* scattering what is there changes nothing */
            md_ov_layout_scatter(&l, (uint8_t *)made, from, to - from, (const uint8_t *)behind[from]);
            ck_assert_mem_eq(made, head, sizeof made);
        }
    /* rows 0 and 1 into places 2 and 3 */
    uint16_t made[ROWS * LENGTH] = { 0 };
    static const uint16_t want_behind[] = { 0, 0, 0, 0, 0, 0, 10, 11, 12, 20, 21, 22 },
                          want_across[] = { 0, 0, 10, 20, 0, 0, 11, 21, 0, 0, 12, 22 };
    md_ov_layout_scatter(&l, (uint8_t *)made, 2, 2, (const uint8_t *)behind[0]);
    ck_assert_mem_eq(made, _i == 1 ? want_across : want_behind, sizeof made);
    ck_assert_uint_eq(md_ov_layout_head_bytes(&l), sizeof made);
}
END_TEST

/* ---- a pool ---- */

enum {
    BLOCKS = 5,
    HEADS = 2,
    BLOCK_ROWS = 16,
    NUMBERS = 6,
    PARTS = 4,
    BLOCK_COUNT_ROWS = BLOCKS * BLOCK_ROWS
};

struct pool {
    float at[BLOCKS][PARTS][HEADS * BLOCK_ROWS * NUMBERS]; /* as a device has it: keys across */
    int gets, puts, fail_at;                               /* of all calls, from 1 */
};

static bool fails(struct pool *p)
{
    return p->fail_at > 0 && p->gets + p->puts == p->fail_at;
}

static enum md_status get(void *user, int32_t block, uint8_t *ret_bytes, struct md_err *err)
{
    struct pool *p = user;
    p->gets++;
    if (fails(p))
        return md_fail(err, MD_INTERNAL, "the device is gone");
    memcpy(ret_bytes, p->at[block], sizeof p->at[block]);
    return MD_OK;
}

static enum md_status put(void *user, int32_t block, const uint8_t *bytes, struct md_err *err)
{
    struct pool *p = user;
    p->puts++;
    if (fails(p))
        return md_fail(err, MD_INTERNAL, "the device is gone");
    memcpy(p->at[block], bytes, sizeof p->at[block]);
    return MD_OK;
}

static float *element(struct pool *p, int part, int row, int head, int i)
{
    const int r = row % BLOCK_ROWS;
    float *head_at = p->at[row / BLOCK_ROWS][part] + head * BLOCK_ROWS * NUMBERS;
    return part % 2 == 0 ? head_at + i * BLOCK_ROWS + r : head_at + r * NUMBERS + i;
}

static float mark(int part, int row, int head, int i)
{
    return (float)(((part * BLOCK_COUNT_ROWS + row) * HEADS + head) * NUMBERS + i);
}

static struct md_ov_cache open_pooled(struct pool *p)
{
    static struct md_ov_facts facts;
    const struct md_ov_pool_ops ops = { get, put, p };
    const struct md_ov_layout values = { BLOCK_ROWS, sizeof(float), NUMBERS * sizeof(float), false };
    struct md_ov_layout keys = values;
    struct md_ov_cache c;
    keys.across = true;
    facts.layer_count = PARTS / 2;
    facts.block_rows = BLOCK_ROWS;
    for (int i = 0; i < PARTS / 2; i++)
        facts.layers[i] =
            (struct md_ov_layer){ .heads = HEADS, .key_length = NUMBERS, .keys = keys, .values = values };
    ck_assert_int_eq(md_ov_cache_init(&c, &facts, MD_OV_F32, BLOCKS, &ops, NULL), MD_OK);
    *p = (struct pool){ 0 };
    for (int part = 0; part < PARTS; part++)
        for (int row = 0; row < BLOCK_COUNT_ROWS; row++)
            for (int k = 0; k < HEADS * NUMBERS; k++)
                *element(p, part, row, k / NUMBERS, k % NUMBERS) = mark(part, row, k / NUMBERS, k % NUMBERS);
    return c;
}

static void check_pool(struct pool *p, const int *from)
{
    int wrong = 0;
    for (int part = 0; part < PARTS; part++)
        for (int row = 0; row < BLOCK_COUNT_ROWS; row++)
            for (int k = 0; k < HEADS * NUMBERS; k++)
                wrong += *element(p, part, row, k / NUMBERS, k % NUMBERS) !=
                         mark(part, from[row], k / NUMBERS, k % NUMBERS);
    ck_assert_int_eq(wrong, 0);
}

/* Rows moved, swapped, read and written at random, against a list of which is where; after each settle the pool has it. */
START_TEST(a_pool_follows)
{
    static struct pool p;
    static uint8_t bytes[BLOCK_ROWS * 2 * PARTS * HEADS * NUMBERS * sizeof(float)];
    struct md_ov_cache c = open_pooled(&p);
    struct rng random = rng_open("a pool");
    int from[BLOCK_COUNT_ROWS];
    for (int row = 0; row < BLOCK_COUNT_ROWS; row++)
        from[row] = row;
    for (int step = 0; step < 1000; step++) {
        const int a = (int)rng_below(&random, BLOCK_COUNT_ROWS),
                  b = (int)rng_below(&random, BLOCK_COUNT_ROWS);
        const int kind = (int)rng_below(&random, 4);
        if (kind == 0 && a != b) {
            md_ov_cache_move(&c, a, b);
            from[b] = from[a];
        } else if (kind == 1 && a != b) {
            md_ov_cache_swap(&c, a, b);
            const int first = from[a];
            from[a] = from[b];
            from[b] = first;
        } else if (kind == 2) { /* a whole block, or what is left of one, to another of as many rows */
            const int n = BLOCK_ROWS - (a % BLOCK_ROWS > b % BLOCK_ROWS ? a : b) % BLOCK_ROWS;
            int kept[BLOCK_ROWS];
            memcpy(kept, from + a, (size_t)n * sizeof *kept);
            md_ov_cache_read(&c, (struct md_ov_run){ a, n }, bytes, 0, n);
            md_ov_cache_write(&c, (struct md_ov_run){ b, n }, bytes, 0, n);
            memcpy(from + b, kept, (size_t)n * sizeof *kept);
        } else if (kind == 3) {
            ck_assert_int_eq(md_ov_cache_settle(&c, NULL), MD_OK);
            check_pool(&p, from);
            if (step % 2 == 0) { /* somebody else wrote, as a step does: what is at hand is old */
                md_ov_cache_forget(&c);
                for (int part = 0; part < PARTS; part++)
                    for (int k = 0; k < HEADS * NUMBERS; k++)
                        *element(&p, part, a, k / NUMBERS, k % NUMBERS) =
                            mark(part, b, k / NUMBERS, k % NUMBERS);
                from[a] = b;
            }
        }
    }
    md_ov_cache_done(&c);
    md_ov_cache_done(&c); /* twice is nothing */
}
END_TEST

/* A block that is written whole is not fetched; one at hand is not fetched again, and put back once. */
START_TEST(a_pool_is_asked_no_more_than_needed)
{
    static struct pool p;
    static uint8_t bytes[BLOCK_ROWS * PARTS * HEADS * NUMBERS * sizeof(float)];
    struct md_ov_cache c = open_pooled(&p);
    md_ov_cache_write(&c, (struct md_ov_run){ BLOCK_ROWS, BLOCK_ROWS }, bytes, 0, BLOCK_ROWS);
    ck_assert_int_eq(md_ov_cache_settle(&c, NULL), MD_OK);
    ck_assert_int_eq(md_ov_cache_settle(&c, NULL), MD_OK);
    ck_assert(p.gets == 0 && p.puts == 1);
    for (int i = 0; i < BLOCK_ROWS - 1; i++)
        md_ov_cache_swap(&c, i, BLOCK_ROWS + i);
    ck_assert(p.gets == 1 && p.puts == 1);
    ck_assert_int_eq(md_ov_cache_settle(&c, NULL), MD_OK);
    ck_assert(p.gets == 1 && p.puts == 3);
    md_ov_cache_done(&c);
}
END_TEST

/* Whichever call fails, settle says it, and goes on saying it; the pool is left alone then. */
START_TEST(a_pool_that_fails)
{
    static struct pool p;
    int nth = 1;
    for (bool met = true; met; nth++) {
        struct md_ov_cache c = open_pooled(&p);
        struct md_err err = { 0 };
        p.fail_at = nth;
        md_ov_cache_swap(&c, 1, 20);
        md_ov_cache_move(&c, 40, 60);
        enum md_status s = md_ov_cache_settle(&c, &err);
        met = p.gets + p.puts >= nth;
        ck_assert_int_eq(s, met ? MD_SESSION_FATAL : MD_OK);
        if (met) {
            const int calls = p.gets + p.puts;
            ck_assert_msg(strstr(err.text, "the device is gone") != NULL, "%s", err.text);
            ck_assert_int_eq(calls, nth);
            md_ov_cache_forget(&c);
            md_ov_cache_swap(&c, 1, 70);
            ck_assert_int_eq(md_ov_cache_settle(&c, NULL), MD_SESSION_FATAL);
            ck_assert_int_eq(p.gets + p.puts, calls);
        }
        md_ov_cache_done(&c);
    }
    ck_assert_int_eq(nth - 2, 7); /* four blocks out, three in again: one was only read */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openvino_layout");
    TCase *c = tcase_create("layout");
    tcase_add_loop_test(c, layouts_are_found, 0, sizeof rows / sizeof rows[0]);
    tcase_add_loop_test(c, rows_of_both_layouts, 0, 2);
    tcase_add_test(c, a_pool_follows);
    tcase_add_test(c, a_pool_is_asked_no_more_than_needed);
    tcase_add_test(c, a_pool_that_fails);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
