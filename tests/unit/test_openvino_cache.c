/* Bytes of the KV cache, in and out, and keys that are turned; what is right is computed here in double. */
#include "adapters/openvino/ov_cache.h"
#include "base/half.h"
#include "support/run_suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- halves: IEEE 754 binary16 ---- */

START_TEST(every_half_comes_back)
{
    for (uint32_t h = 0; h <= UINT16_MAX; h++) {
        const float f = md_half_to_float((uint16_t)h);
        if (isnan(f))
            ck_assert_msg((h & 0x7c00u) == 0x7c00u && (h & 1023u) != 0, "%x is not a number", h);
        else
            ck_assert_msg(md_half_of(f) == h, "%x becomes %x", h, md_half_of(f));
    }
}
END_TEST

START_TEST(halves_are_rounded_to_the_nearest)
{
    static const struct {
        float value;
        uint16_t half;
    } rows[] = {
        { 1.0f, 0x3c00 },         { -2.0f, 0xc000 },    { 0x1.ffcp15f, 0x7bff }, /* 65504, the largest */
        { 65519.0f, 0x7bff },                           /* below the middle between it and the next */
        { 65520.0f, 0x7c00 },                           /* the middle: infinity, whose last bit is even */
        { 1e30f, 0x7c00 },        { 0x1p-24f, 0x0001 }, /* the smallest */
        { 0x1p-25f, 0x0000 },                           /* in the middle between it and 0 */
        { 0x1.8p-24f, 0x0002 },                         /* in the middle, to even */
        { 0x1.002p0f, 0x3c00 },                         /* in the middle, to even */
        { 0x1.006p0f, 0x3c02 },                         /* in the middle, to even */
        { 0x1.0021p0f, 0x3c01 },                        /* above it */
        { 0x1.ff8p-15f, 0x03ff },                       /* the largest below the normal ones */
        { 0x1.ffcp-15f, 0x0400 },                       /* in the middle, to even */
        { 0x1.fffp-15f, 0x0400 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg(md_half_of(rows[i].value) == rows[i].half, "%a becomes %x, not %x",
                      (double)rows[i].value, md_half_of(rows[i].value), rows[i].half);
    ck_assert(isnan(md_half_to_float(md_half_of(NAN))));
}
END_TEST

/* ---- rows ---- */

enum { LAYERS = 2, HEADS = 3, LENGTH = 8, BLOCKS = 3, ROWS = BLOCKS * MD_OV_BLOCK_ROWS };

static struct md_ov_facts facts;

static struct md_ov_cache open_cache(enum md_ov_type type)
{
    static const int32_t sizes[] = { [MD_OV_F32] = 4, [MD_OV_F16] = 2, [MD_OV_U8] = 1 };
    struct md_ov_cache c;
    const struct md_ov_layout layout = { .rows = MD_OV_BLOCK_ROWS,
                                         .number_bytes = sizes[type],
                                         .row_bytes = (size_t)(LENGTH * sizes[type]) };
    facts.layer_count = LAYERS;
    facts.block_rows = MD_OV_BLOCK_ROWS;
    for (int i = 0; i < LAYERS; i++)
        facts.layers[i] = (struct md_ov_layer){ .heads = HEADS,
                                                .key_length = LENGTH,
                                                .key_bytes = LENGTH * sizes[type],
                                                .value_bytes = LENGTH * sizes[type],
                                                .keys = layout,
                                                .values = layout,
                                                .windowed = i > 0 };
    ck_assert_int_eq(md_ov_cache_init(&c, &facts, type, BLOCKS, NULL, NULL), MD_OK);
    ck_assert_uint_eq(c.token_bytes, (size_t)(2 * LAYERS * HEADS * LENGTH * sizes[type]));
    return c;
}

/* Number i of a head of a row of a part: no two are equal. */
static float mark(int part, int row, int head, int i)
{
    return (float)(((part * ROWS + row) * HEADS + head) * LENGTH + i);
}

/* Where the library looks for it: [block, head, row in block, number]. */
static float *in_block(const struct md_ov_cache *c, int part, int row, int head, int i)
{
    const int block = row / MD_OV_BLOCK_ROWS, r = row % MD_OV_BLOCK_ROWS;
    float *numbers = (float *)(void *)c->parts[part].at;
    return numbers + ((block * HEADS + head) * MD_OV_BLOCK_ROWS + r) * LENGTH + i;
}

static struct md_ov_cache open_marked(void)
{
    struct md_ov_cache c = open_cache(MD_OV_F32);
    for (int p = 0; p < 2 * LAYERS; p++)
        for (int row = 0; row < ROWS; row++)
            for (int k = 0; k < HEADS * LENGTH; k++)
                *in_block(&c, p, row, k / LENGTH, k % LENGTH) = mark(p, row, k / LENGTH, k % LENGTH);
    return c;
}

/* Row `row` of the cache holds what was marked as row from[row]. */
static void check_rows(const struct md_ov_cache *c, const int *from)
{
    for (int p = 0; p < 2 * LAYERS; p++)
        for (int row = 0; row < ROWS; row++)
            for (int k = 0; k < HEADS * LENGTH; k++)
                ck_assert_float_eq(*in_block(c, p, row, k / LENGTH, k % LENGTH),
                                   mark(p, from[row], k / LENGTH, k % LENGTH));
}

/* Single rows and runs, up to a block's last row, in one export; its order is that of ov_cache.h. */
START_TEST(rows_are_read_and_written)
{
    enum { COUNT = 7 };
    static const struct md_ov_run out[] = { { 5, 1 }, { 30, 2 }, { 70, 4 } },
                                  in[] = { { 40, 3 }, { 0, 1 }, { 93, 3 } };
    static const int rows[COUNT] = { 5, 30, 31, 70, 71, 72, 73 };
    struct md_ov_cache c = open_marked();
    float kept[COUNT * 2 * LAYERS * HEADS * LENGTH];
    const float *at = kept;
    int from[ROWS], n = 0;
    ck_assert_uint_eq(sizeof kept, COUNT * c.token_bytes);
    for (size_t i = 0; i < sizeof out / sizeof out[0]; n += out[i++].count)
        md_ov_cache_read(&c, out[i], (uint8_t *)kept, n, COUNT);
    for (int p = 0; p < 2 * LAYERS; p++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < COUNT; i++)
                for (int k = 0; k < LENGTH; k++)
                    ck_assert_float_eq(*at++, mark(p, rows[i], h, k));

    for (int row = 0; row < ROWS; row++)
        from[row] = row;
    n = 0;
    for (size_t i = 0; i < sizeof in / sizeof in[0]; n += in[i++].count) {
        md_ov_cache_write(&c, in[i], (const uint8_t *)kept, n, COUNT);
        for (int k = 0; k < in[i].count; k++)
            from[in[i].row + k] = rows[n + k];
    }
    check_rows(&c, from);
    md_ov_cache_done(&c);
}
END_TEST

START_TEST(rows_are_moved_and_swapped)
{
    struct md_ov_cache c = open_marked();
    int from[ROWS];
    for (int row = 0; row < ROWS; row++)
        from[row] = row;
    md_ov_cache_swap(&c, 5, 70);
    md_ov_cache_move(&c, 5, 33);
    from[5] = from[33] = 70;
    from[70] = 5;
    check_rows(&c, from);
    md_ov_cache_done(&c);
    md_ov_cache_done(&c); /* twice is nothing */
}
END_TEST

/* ---- turning ---- */

static double turned(const float *key, const struct md_ov_turn *t, bool windowed, int i, int distance)
{
    const int half = t->length / 2, pair = t->halves ? i % half : i / 2;
    const bool second = t->halves ? i >= half : i % 2 == 1;
    const double angle = distance * pow(windowed ? t->base_window : t->base, -2.0 * pair / t->length);
    const double x = key[t->halves ? pair : 2 * pair], y = key[t->halves ? pair + half : 2 * pair + 1];
    if (i >= t->length)
        return key[i];
    return second ? x * sin(angle) + y * cos(angle) : x * cos(angle) - y * sin(angle);
}

static void check_turn(enum md_ov_type type, struct md_ov_turn turn, int distance, double tolerance)
{
    enum { COUNT = 3, NUMBERS = COUNT * 2 * LAYERS * HEADS * LENGTH };
    struct md_ov_cache c = open_cache(type);
    float before[NUMBERS], after[NUMBERS];
    uint16_t halves[NUMBERS];
    for (int i = 0; i < NUMBERS; i++)
        before[i] = (float)((i * 37) % 101 - 50) / 32.0f; /* halves hold it exactly */
    for (int i = 0; i < NUMBERS; i++)
        halves[i] = md_half_of(before[i]);
    memcpy(after, before, sizeof after);
    uint8_t *bytes = type == MD_OV_F32 ? (uint8_t *)after : (uint8_t *)halves;
    ck_assert_int_eq(md_ov_cache_turn(&c, &turn, bytes, COUNT, distance, NULL), MD_OK);
    for (int i = 0; i < NUMBERS; i++) {
        const int part = i / (COUNT * HEADS * LENGTH);
        const double want = part % 2 == 1
                                ? (double)before[i] /* values do not turn */
                                : turned(before + i / LENGTH * LENGTH, &turn, part > 1, i % LENGTH, distance);
        const float got = type == MD_OV_F32 ? after[i] : md_half_to_float(halves[i]);
        ck_assert_msg(fabs(want - (double)got) <= tolerance, "number %d: %g, not %g", i, (double)got, want);
    }
    md_ov_cache_done(&c);
}

START_TEST(keys_are_turned_and_values_are_not)
{
    for (int way = 0; way < 2; way++) {
        const struct md_ov_turn whole = { LENGTH, way == 1, 10000.0, 900.0 },
                                part = { LENGTH - 4, way == 1, 500.0, 500.0 };
        check_turn(MD_OV_F32, whole, 7, 1e-5);
        check_turn(MD_OV_F32, whole, -100000, 1e-5);
        check_turn(MD_OV_F32, part, 333, 1e-5);
        check_turn(MD_OV_F16, whole, 7, 2e-3);
        check_turn(MD_OV_F16, part, -9, 2e-3);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openvino_cache");
    TCase *c = tcase_create("cache");
    tcase_add_test(c, every_half_comes_back);
    tcase_add_test(c, halves_are_rounded_to_the_nearest);
    tcase_add_test(c, rows_are_read_and_written);
    tcase_add_test(c, rows_are_moved_and_swapped);
    tcase_add_test(c, keys_are_turned_and_values_are_not);
    suite_add_tcase(suite, c);
    return md_run_suite(suite);
}
