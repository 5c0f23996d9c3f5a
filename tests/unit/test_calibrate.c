/* test_calibrate.c - which heads are chosen, by rows worked out beside them, and the text of a set: there and back,
 * and whatever else may stand in a file. */
#include "policy/calibrate.h"
#include "policy/heads_table.h"
#include "policy/needles.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct md_arena arena;

static void setup(void)
{
    md_arena_init(&arena, NULL, 1 << 20);
}

static void teardown(void)
{
    md_arena_done(&arena);
}

/* A model of 10 layers: the band is layers 3 to 7.  Scores by gold - null - near, halved outside the band:
 * 0.6, (0.9 - 0.1) / 2 = 0.4, 0.5 - 0.2 - 0.1 = 0.2, -0.1, 0.25 / 2 = 0.125 and 0.2 */
static const struct md_calibrate_measure measures[] = {
    { 7, 3, 0.7F, 0.1F, 0, 0.01F, 0.02F },  /* 0.6 */
    { 9, 0, 0.9F, 0.1F, 0, 0.9F, 0.3F },    /* 0.4 */
    { 4, 1, 0.5F, 0.2F, 0.1F, 0.2F, 0.5F }, /* 0.2 */
    { 3, 0, 0.2F, 0.3F, 0, 0, 0 },          /* -0.1 */
    { 2, 2, 0.25F, 0, 0, 0.1F, 0.1F },      /* 0.125 */
    { 4, 0, 0.25F, 0.05F, 0, 0.3F, 0.3F },  /* 0.2 */
};
enum { MEASURES = sizeof measures / sizeof measures[0] };

static void expect(const char *label, const struct md_calibrate_params *p, size_t count,
                   const int32_t (*want)[2])
{
    struct md_calibrate_set set;
    struct md_err err = { 0 };
    ck_assert_msg(md_calibrate_choose(measures, MEASURES, 10, p, &arena, &set, &err) == MD_OK, "%s: %s",
                  label, err.text);
    ck_assert_msg(set.count == count && set.source == p->source, "%s: %zu heads, wanted %zu", label,
                  set.count, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(set.heads[i].layer == want[i][0] && set.heads[i].head == want[i][1],
                      "%s: head %zu is %d.%d, wanted %d.%d", label, i, set.heads[i].layer, set.heads[i].head,
                      want[i][0], want[i][1]);
}

START_TEST(by_contrast)
{
    struct md_calibrate_params p = md_calibrate_defaults();
    static const double scores[] = { 0.6, 0.4, 0.2, -0.1, 0.125, 0.2 };
    for (size_t i = 0; i < MEASURES; i++)
        ck_assert(fabs((double)md_calibrate_score(&measures[i], 10, &p) - scores[i]) < 1e-6);
    expect("all that find", &p, 5, (const int32_t[][2]){ { 2, 2 }, { 4, 0 }, { 4, 1 }, { 7, 3 }, { 9, 0 } });
    p.heads = 3;
    p.outside_frac = 1; /* 0.8, 0.6 and 0.25: what is outside is not halved now */
    expect("three, no prior", &p, 3, (const int32_t[][2]){ { 2, 2 }, { 7, 3 }, { 9, 0 } });
    p.outside_frac = 0;
    p.heads = 1;
    expect("the best of the band", &p, 1, (const int32_t[][2]){ { 7, 3 } });
}
END_TEST

START_TEST(ties_go_to_the_lower_place)
{
    /* exactly alike: 0.5 - 0.25 */
    const struct md_calibrate_measure alike[] = { { 5, 1, 0.5F, 0.25F, 0, 0, 0 },
                                                  { 5, 0, 0.5F, 0.25F, 0, 0, 0 },
                                                  { 4, 2, 0.5F, 0.25F, 0, 0, 0 } };
    struct md_calibrate_params p = md_calibrate_defaults();
    struct md_calibrate_set set;
    p.heads = 2;
    ck_assert_int_eq(md_calibrate_choose(alike, 3, 10, &p, &arena, &set, NULL), MD_OK);
    ck_assert(set.count == 2 && set.heads[0].layer == 4 && set.heads[1].layer == 5 && set.heads[1].head == 0);
    ck_assert(set.heads[0].score == 0.25F && set.heads[1].score == 0.25F);
}
END_TEST

START_TEST(by_copying)
{
    /* 0.02; 0.9 / 2; 0.5; 0; 0.1 / 2; 0.3 */
    struct md_calibrate_params p = md_calibrate_defaults();
    p.source = MD_CALIBRATE_COPY;
    p.heads = 3;
    expect("the larger of echo and induction", &p, 3, (const int32_t[][2]){ { 4, 0 }, { 4, 1 }, { 9, 0 } });
}
END_TEST

START_TEST(by_band)
{
    /* 24 layers of 2 heads: 0.30 * 24 = 7.2 and 0.75 * 24 = 18, so layers 8 to 17, 20 heads; five of them are the
     * middles of five parts of 4: the 3rd, 7th, 11th, 15th and 19th, all of them head 0 */
    struct md_calibrate_measure all[48];
    for (int32_t i = 0; i < 48; i++)
        all[47 - i] = (struct md_calibrate_measure){ i / 2, i % 2, NAN, NAN, NAN, NAN, NAN };
    struct md_calibrate_params p = md_calibrate_defaults();
    struct md_calibrate_set set;
    p.source = MD_CALIBRATE_BAND;
    p.heads = 5;
    ck_assert_int_eq(md_calibrate_choose(all, 48, 24, &p, &arena, &set, NULL), MD_OK);
    ck_assert_uint_eq(set.count, 5);
    for (int32_t i = 0; i < 5; i++)
        ck_assert(set.heads[i].layer == 9 + 2 * i && set.heads[i].head == 0 && set.heads[i].score == 0);
    p.heads = 100;
    ck_assert_int_eq(md_calibrate_choose(all, 48, 24, &p, &arena, &set, NULL), MD_OK);
    ck_assert(set.count == 20 && set.heads[0].layer == 8 && set.heads[19].layer == 17 &&
              set.heads[19].head == 1);
}
END_TEST

START_TEST(bad_input_is_refused)
{
    for (int n = 0; n < 17; n++) {
        struct md_calibrate_params p = md_calibrate_defaults();
        struct md_calibrate_measure m[2] = { { 3, 1, 0.5F, 0, 0, NAN, NAN }, { 4, 1, 0.5F, 0, 0, NAN, NAN } };
        int32_t layers = 10;
        enum md_status want = MD_INVALID;
        switch (n) {
        case 0: want = MD_OK; break;
        case 1: p.heads = 0; break;
        case 2: p.heads = MD_CALIBRATE_HEADS_MOST + 1; break;
        case 3: layers = 0; break;
        case 4: layers = MD_CALIBRATE_LAYERS_MOST + 1; break;
        case 5: p.band_start = 0.8F; break;
        case 6: p.band_end = 1.1F; break;
        case 7: p.outside_frac = NAN; break;
        case 8: m[1].layer = 10; break;
        case 9: m[1].layer = -1; break;
        case 10: m[1].head = MD_CALIBRATE_WIDTH_MOST; break;
        case 11: m[1].layer = 3; break;                             /* twice */
        case 12: m[1].layer = 3, m[0].gold = m[1].gold = -1; break; /* twice, and neither is any good */
        case 13: m[1].near = INFINITY; break;
        case 14: p.source = MD_CALIBRATE_COPY; break; /* NaN there */
        case 15: m[0].gold = m[1].gold = 0, want = MD_NOT_FOUND; break;
        default: p.source = MD_CALIBRATE_BAND, m[0].layer = 0, m[1].layer = 9, want = MD_NOT_FOUND; break;
        }
        struct md_calibrate_set set;
        struct md_err err = { 0 };
        ck_assert_msg(md_calibrate_choose(m, 2, layers, &p, &arena, &set, &err) == want, "case %d: %s", n,
                      err.text);
    }
    const struct md_calibrate_params p = md_calibrate_defaults();
    struct md_calibrate_set set;
    struct md_arena none;
    md_arena_init(&none, NULL, 8);
    ck_assert_int_eq(md_calibrate_choose(measures, MEASURES, 10, &p, &none, &set, NULL), MD_NO_MEMORY);
}
END_TEST

/* ---- text ---- */

#define DIGEST "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
static const struct md_calibrate_key key = { DIGEST, 3 };

/* 0.25 is 3e800000, -2 is c0000000 */
#define GOOD                        \
    "modeld heads 1\nmodel " DIGEST \
    "\ncalibration 3\nsource copy\nheads 2\n4 11 3e800000\n10 0 c0000000\nend\n"

static enum md_status parse(const char *text, struct md_calibrate_set *set, struct md_err *err)
{
    return md_calibrate_parse((struct md_bytes){ text, strlen(text) }, &key, set, err);
}

START_TEST(text_there_and_back)
{
    struct md_calibrate_set set;
    struct md_err err = { 0 };
    ck_assert_msg(parse(GOOD, &set, &err) == MD_OK, "%s", err.text);
    ck_assert(set.source == MD_CALIBRATE_COPY && set.count == 2 && set.heads[0].layer == 4 &&
              set.heads[0].head == 11 && set.heads[0].score == 0.25F && set.heads[1].layer == 10 &&
              set.heads[1].score == -2);
    struct md_buf buf;
    md_buf_init(&buf, NULL, MD_CALIBRATE_TEXT_BYTES);
    ck_assert_int_eq(md_calibrate_print(&set, &key, &buf, NULL), MD_OK);
    ck_assert_uint_eq(buf.len, strlen(GOOD));
    ck_assert_mem_eq(buf.data, GOOD, buf.len);
    /* the largest set fits the limit */
    set.count = MD_CALIBRATE_HEADS_MOST;
    for (int32_t i = 0; i < MD_CALIBRATE_HEADS_MOST; i++)
        set.heads[i] = (struct md_calibrate_head){ 1000 + i / 256, 700 + i % 256, 0.1F };
    buf.len = 0;
    ck_assert_int_eq(md_calibrate_print(&set, &key, &buf, NULL), MD_OK);
    struct md_calibrate_set back;
    ck_assert_int_eq(md_calibrate_parse((struct md_bytes){ buf.data, buf.len }, &key, &back, NULL), MD_OK);
    ck_assert_uint_eq(back.count, set.count);
    ck_assert_mem_eq(back.heads, set.heads, sizeof set.heads);
    md_buf_done(&buf);
    md_buf_init(&buf, NULL, 100);
    ck_assert_int_eq(md_calibrate_print(&set, &key, &buf, NULL), MD_NO_MEMORY);
    const struct md_calibrate_key no_digest = { "0123", 1 };
    ck_assert_int_eq(md_calibrate_print(&set, &no_digest, &buf, NULL), MD_INVALID);
    md_buf_done(&buf);
}
END_TEST

#define HEADER "modeld heads 1\nmodel " DIGEST "\ncalibration 3\nsource copy\n"

START_TEST(other_text_is_refused)
{
    static const struct {
        const char *text;
        enum md_status want;
    } rows[] = {
        { HEADER "heads 0\nend\n", MD_OK },
        { "", MD_CORRUPT },
        { GOOD "x", MD_CORRUPT },
        { GOOD "\n", MD_CORRUPT },
        { "modeld heads 2\nwhatever follows", MD_UNSUPPORTED },
        { "modeld heads 01\n", MD_CORRUPT },
        { "modeld heads 99999999999999999999\n", MD_CORRUPT },
        { "modeld heads \n", MD_CORRUPT },
        { HEADER "heads 1\nend\n", MD_CORRUPT },
        { HEADER "heads 257\nend\n", MD_CORRUPT },
        { HEADER "heads 1\n4 11 3e80000\nend\n", MD_CORRUPT },
        { HEADER "heads 1\n4 11 3e8000000\nend\n", MD_CORRUPT },
        { HEADER "heads 1\n4 11 3E800000\nend\n", MD_CORRUPT },
        { HEADER "heads 1\n4 11 7f800000\nend\n", MD_CORRUPT }, /* infinite */
        { HEADER "heads 1\n4 11 7fc00000\nend\n", MD_CORRUPT }, /* no number */
        { HEADER "heads 1\n1024 11 3e800000\nend\n", MD_CORRUPT },
        { HEADER "heads 1\n4 1024 3e800000\nend\n", MD_CORRUPT },
        { HEADER "heads 1\n-4 11 3e800000\nend\n", MD_CORRUPT },
        { HEADER "heads 1\n4  11 3e800000\nend\n", MD_CORRUPT },
        { HEADER "heads 2\n4 11 3e800000\n4 11 3e800000\nend\n", MD_CORRUPT }, /* twice */
        { HEADER "heads 2\n4 11 3e800000\n3 12 3e800000\nend\n", MD_CORRUPT }, /* out of order */
        { "modeld heads 1\nmodel " DIGEST "\ncalibration 4\nsource copy\nheads 0\nend\n", MD_NOT_FOUND },
        { "modeld heads 1\nmodel 0"
          "0112233445566778899aabbccddeeff00112233445566778899aabbccddeef0"
          "\ncalibration 3\nsource copy\nheads 0\nend\n",
          MD_NOT_FOUND },
        { "modeld heads 1\nmodel 0"
          "0112233445566778899aabbccddeeff00112233445566778899aabbccddeeFf"
          "\ncalibration 3\nsource copy\nheads 0\nend\n",
          MD_CORRUPT },
        { "modeld heads 1\nmodel " DIGEST "\ncalibration 3\nsource copycat\nheads 0\nend\n", MD_CORRUPT },
        { "modeld heads 1\nmodel " DIGEST "\ncalibration 3\nsource \nheads 0\nend\n", MD_CORRUPT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_calibrate_set set;
        struct md_err err = { 0 };
        ck_assert_msg(parse(rows[i].text, &set, &err) == rows[i].want, "row %zu: %s", i, err.text);
    }
    static char large[MD_CALIBRATE_TEXT_BYTES + 1];
    struct md_calibrate_set set;
    ck_assert_int_eq(md_calibrate_parse((struct md_bytes){ large, sizeof large }, &key, &set, NULL),
                     MD_CORRUPT);
    ck_assert_int_eq(md_calibrate_parse((struct md_bytes){ NULL, 0 }, &key, &set, NULL), MD_CORRUPT);
}
END_TEST

/* Cut anywhere and with any byte changed it is refused, or is a good text of its own; never read past its end (the
 * copy is exactly as long, for the address sanitizer). */
START_TEST(damaged_text)
{
    struct rng rng = rng_open("damaged_text");
    const size_t len = strlen(GOOD);
    size_t taken = 0;
    for (int round = 0; round < 20000; round++) {
        struct md_buf buf;
        md_buf_init(&buf, NULL, len);
        const size_t n = round < (int)len ? (size_t)round : len;
        ck_assert(n == 0 || md_buf_append(&buf, GOOD, n, NULL) == MD_OK);
        if (n == len)
            buf.data[rng_below(&rng, (uint32_t)n)] = (uint8_t)rng_next(&rng);
        struct md_calibrate_set set = { 0 };
        const enum md_status s = md_calibrate_parse((struct md_bytes){ buf.data, n }, &key, &set, NULL);
        if (s == MD_OK) {
            struct md_buf again;
            md_buf_init(&again, NULL, MD_CALIBRATE_TEXT_BYTES);
            if (md_calibrate_print(&set, &key, &again, NULL) != MD_OK || again.len != n ||
                memcmp(again.data, buf.data, n) != 0)
                ck_abort_msg("round %d: taken, and printed otherwise", round);
            md_buf_done(&again);
            taken++;
        }
        md_buf_done(&buf);
    }
    ck_assert_uint_gt(taken, 0); /* a digit of a score is as good as another */
}
END_TEST

/* Each text of the table is what md_calibrate_print writes, of this version, found by its own key and by no other. */
START_TEST(the_table_is_whole)
{
    ck_assert_uint_ge(md_heads_table_count(), 2);
    for (size_t i = 0; i < md_heads_table_count(); i++) {
        const struct md_bytes text = md_heads_table_text(i);
        struct md_calibrate_key own = { .calibration = MD_NEEDLES_VERSION };
        struct md_calibrate_set set;
        struct md_buf again;
        struct md_err err = { 0 };
        const char *model = strstr(text.data, "\nmodel ");
        ck_assert_ptr_nonnull(model);
        memcpy(own.model, model + strlen("\nmodel "), MD_SHA256_HEX);
        ck_assert_msg(md_heads_table_find(&own, &set, &err) == MD_OK, "text %zu: %s", i, err.text);
        ck_assert(set.count > 0 && set.source != MD_CALIBRATE_BAND);
        md_buf_init(&again, NULL, MD_CALIBRATE_TEXT_BYTES);
        ck_assert_int_eq(md_calibrate_print(&set, &own, &again, &err), MD_OK);
        ck_assert_uint_eq(again.len, text.len);
        ck_assert_mem_eq(again.data, text.data, text.len);
        md_buf_done(&again);
        own.calibration++;
        ck_assert_int_eq(md_heads_table_find(&own, &set, &err), MD_NOT_FOUND);
        own.calibration--;
        own.model[5] = own.model[5] == 'a' ? 'b' : 'a';
        ck_assert_int_eq(md_heads_table_find(&own, &set, &err), MD_NOT_FOUND);
    }
    ck_assert_uint_eq(md_heads_table_text(md_heads_table_count()).len, 0);
}
END_TEST

/* Needles: each line stands in one slot, and not beside its other; a needle and its near-duplicate differ; filler is the same
 * each time, ends its lines, and has neither of them. */
START_TEST(needles_differ_from_their_near_duplicates)
{
    int seen[2 * MD_NEEDLES] = { 0 };
    for (int slot = 0; slot < 2 * MD_NEEDLES; slot++) {
        const int line = md_needles_line_in(slot), before = slot > 0 ? md_needles_line_in(slot - 1) : line;
        ck_assert_int_eq(seen[line]++, 0);
        ck_assert(slot == 0 || line % MD_NEEDLES != before % MD_NEEDLES);
    }
    for (int k = 0; k < MD_NEEDLES_KINDS; k++) {
        struct md_buf a, b;
        md_buf_init(&a, NULL, 1 << 20);
        md_buf_init(&b, NULL, 1 << 20);
        for (uint32_t n = 0; n < 100; n++) {
            ck_assert_int_eq(md_needles_filler((enum md_needles_kind)k, n, &a, NULL), MD_OK);
            ck_assert_int_eq(md_needles_filler((enum md_needles_kind)k, n, &b, NULL), MD_OK);
            ck_assert_int_eq(a.data[a.len - 1], '\n');
        }
        ck_assert_uint_eq(a.len, b.len);
        ck_assert_mem_eq(a.data, b.data, a.len);
        for (int i = 0; i < MD_NEEDLES; i++) {
            const struct md_needle *n = md_needle_at((enum md_needles_kind)k, i);
            ck_assert_str_ne(n->gold, n->near);
            ck_assert_ptr_null(memmem(a.data, a.len, n->gold, strlen(n->gold)));
            ck_assert_ptr_null(memmem(a.data, a.len, n->near, strlen(n->near)));
        }
        md_buf_done(&a);
        md_buf_done(&b);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("calibrate");
    TCase *c = tcase_create("calibrate");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, by_contrast);
    tcase_add_test(c, ties_go_to_the_lower_place);
    tcase_add_test(c, by_copying);
    tcase_add_test(c, by_band);
    tcase_add_test(c, bad_input_is_refused);
    tcase_add_test(c, text_there_and_back);
    tcase_add_test(c, other_text_is_refused);
    tcase_add_test(c, damaged_text);
    tcase_add_test(c, the_table_is_whole);
    tcase_add_test(c, needles_differ_from_their_near_duplicates);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
