/* test_segment.c - kinds, names and default classes of segments, and the class of a block. */
#include "policy/segment.h"
#include "support/rng.h"
#include "support/run_suite.h"

#include <check.h>
#include <string.h>

static struct md_bytes text(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

#define NONE MD_CLASS_COUNT
enum { PINNED = MD_CLASS_TASK_PINNED, MAP = MD_CLASS_REPO_MAP, VOL = MD_CLASS_VOLATILE };

/* The protocol's table: order of kinds and default classes (stable, volatile). */
static const struct {
    const char *name;
    enum md_segment_kind kind;
    int rank;
    int stable, not_stable;
} kinds[] = {
    { "bos", MD_SEGMENT_BOS, 0, PINNED, VOL },
    { "system", MD_SEGMENT_SYSTEM, 1, PINNED, PINNED },
    { "tools", MD_SEGMENT_TOOLS, 2, PINNED, PINNED },
    { "repo_rules", MD_SEGMENT_REPO_RULES, 3, PINNED, PINNED },
    { "repo_map", MD_SEGMENT_REPO_MAP, 4, MAP, MAP },
    { "pinned", MD_SEGMENT_PINNED, 5, MAP, MAP },
    { "diff", MD_SEGMENT_DIFF, 6, VOL, VOL },
    { "terminal", MD_SEGMENT_TERMINAL, 7, VOL, VOL },
    { "user", MD_SEGMENT_USER, 8, VOL, VOL },
    { "assistant", MD_SEGMENT_ASSISTANT, 8, VOL, VOL },
    { "tool", MD_SEGMENT_TOOL, 8, VOL, VOL },
    { "assistant_prompt", MD_SEGMENT_ASSISTANT_PROMPT, 8, VOL, VOL },
    { "now", MD_SEGMENT_OTHER, 8, PINNED, VOL },
    { "System", MD_SEGMENT_OTHER, 8, PINNED, VOL }, /* kinds are words of the protocol */
    { "", MD_SEGMENT_OTHER, 8, PINNED, VOL },
    { "systemx", MD_SEGMENT_OTHER, 8, PINNED, VOL },
};

START_TEST(kinds_and_their_classes)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const enum md_segment_kind k = md_segment_kind_parse(text(kinds[i].name));
        ck_assert_msg(k == kinds[i].kind, "%s: %d", kinds[i].name, k);
        ck_assert_int_eq(md_segment_rank(k), kinds[i].rank);
        ck_assert_int_eq(md_segment_class(k, true, NONE), kinds[i].stable);
        ck_assert_int_eq(md_segment_class(k, false, NONE), kinds[i].not_stable);
        for (int c = 0; c < MD_CLASS_COUNT; c++)
            for (int stable = 0; stable < 2; stable++)
                ck_assert_int_eq(md_segment_class(k, stable, (enum md_cache_class)c), c);
        if (k != MD_SEGMENT_OTHER)
            ck_assert_str_eq(md_segment_kind_name(k), kinds[i].name);
        const struct md_segment_label l = md_segment_label_of(text(kinds[i].name), true);
        ck_assert(l.kind == k && (int)l.cls == kinds[i].stable && l.stable && l.name.data == kinds[i].name);
    }
    ck_assert_str_eq(md_segment_kind_name(MD_SEGMENT_OTHER), "other");
    ck_assert_int_eq(md_segment_kind_parse((struct md_bytes){ 0 }), MD_SEGMENT_OTHER);
    ck_assert_int_eq(md_segment_kind_parse((struct md_bytes){ "user\0", 5 }), MD_SEGMENT_OTHER);
}
END_TEST

START_TEST(names_in_any_case)
{
    static const char *const classes[] = { "task_pinned", "repo_map", "volatile" };
    static const char *const hints[] = { "none", "on_edit", "on_turn" };
    struct md_err err;
    for (int i = 0; i < 3; i++) {
        enum md_cache_class c = NONE;
        enum md_invalidation h = (enum md_invalidation)9;
        ck_assert_str_eq(md_cache_class_name((enum md_cache_class)i), classes[i]);
        ck_assert_str_eq(md_invalidation_name((enum md_invalidation)i), hints[i]);
        ck_assert_int_eq(md_cache_class_parse(text(classes[i]), "f", &c, NULL), MD_OK);
        ck_assert_int_eq(md_invalidation_parse(text(hints[i]), "f", &h, NULL), MD_OK);
        ck_assert(c == (enum md_cache_class)i && h == (enum md_invalidation)i);
    }
    enum md_cache_class c = NONE;
    ck_assert_int_eq(md_cache_class_parse(text(" \tRepo_MAP\r\n"), "f", &c, NULL), MD_OK);
    ck_assert_int_eq(c, MAP);
    enum md_invalidation h = MD_INVALIDATION_NONE;
    ck_assert_int_eq(md_invalidation_parse(text("On_Turn "), "f", &h, NULL), MD_OK);
    ck_assert_int_eq(h, MD_INVALIDATION_ON_TURN);

    static const char *const wrong[] = { "",          " ",           "repo map", "volatil",
                                         "volatilee", "task-pinned", "on_edit2" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(md_cache_class_parse(text(wrong[i]), "segments[3].cache_class", &c, &err),
                         MD_INVALID);
        ck_assert_ptr_nonnull(
            strstr(err.text, "segments[3].cache_class must be task_pinned, repo_map or volat"));
        ck_assert_int_eq(md_invalidation_parse(text(wrong[i]), "segments[3].invalidation", &h, &err),
                         MD_INVALID);
        ck_assert_ptr_nonnull(
            strstr(err.text, "segments[3].invalidation must be none, on_edit or on_turn, got '"));
    }
    ck_assert(c == MD_CLASS_REPO_MAP && h == MD_INVALIDATION_ON_TURN); /* untouched */
}
END_TEST

START_TEST(class_of_a_block)
{
    /* system [0,10) pinned, an empty one, map [10,25), turn [30,40) volatile, rules [40,41) pinned */
    static const struct md_segment_span spans[] = {
        { { 0, 10 }, MD_CLASS_TASK_PINNED }, { { 10, 10 }, MD_CLASS_TASK_PINNED },
        { { 10, 25 }, MD_CLASS_REPO_MAP },   { { 25, 25 }, MD_CLASS_TASK_PINNED },
        { { 30, 40 }, MD_CLASS_VOLATILE },   { { 40, 41 }, MD_CLASS_TASK_PINNED },
    };
    static const struct {
        struct md_range block;
        int want;
    } rows[] = {
        { { 0, 8 }, PINNED }, { { 8, 16 }, PINNED },  { { 9, 10 }, PINNED },   { { 10, 16 }, MAP },
        { { 16, 24 }, MAP },  { { 20, 30 }, MAP },    { { 24, 32 }, MAP },     { { 25, 30 }, VOL },
        { { 26, 36 }, VOL },  { { 32, 40 }, VOL },    { { 32, 41 }, PINNED },  { { 40, 48 }, PINNED },
        { { 41, 48 }, VOL },  { { 0, 100 }, PINNED }, { { 11, 100 }, PINNED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg((int)md_segment_block_class(rows[i].block, spans, sizeof spans / sizeof spans[0]) ==
                          rows[i].want,
                      "row %zu", i);
    ck_assert_int_eq(md_segment_block_class((struct md_range){ 0, 8 }, NULL, 0), VOL);
}
END_TEST

/* Against what the words say, token by token. */
START_TEST(class_of_a_block_walk)
{
    enum { SPANS = 40, TOKENS = 200 };
    struct rng r = rng_open("class_of_a_block");
    for (int round = 0; round < 2000; round++) {
        struct md_segment_span spans[SPANS];
        int cls[TOKENS];
        int32_t at = 0;
        size_t n = 0;
        for (int i = 0; i < TOKENS; i++)
            cls[i] = VOL;
        for (; n < SPANS && at < TOKENS; n++) {
            const int32_t start = at + (int32_t)rng_below(&r, 4);
            int32_t end = start + (int32_t)rng_below(&r, 12);
            end = end > TOKENS ? TOKENS : end;
            spans[n] = (struct md_segment_span){ { start, end < start ? start : end },
                                                 (enum md_cache_class)rng_below(&r, 3) };
            for (int32_t t = start; t < end; t++)
                cls[t] = (int)spans[n].cls;
            at = spans[n].range.end;
        }
        for (int32_t b = 0; b < TOKENS; b += 8) {
            int want = VOL;
            for (int32_t t = b; t < b + 8; t++)
                want = cls[t] < want ? cls[t] : want;
            ck_assert_msg((int)md_segment_block_class((struct md_range){ b, b + 8 }, spans, n) == want,
                          "round %d block %d", round, b);
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("segment");
    TCase *t = tcase_create("segment");
    tcase_add_test(t, kinds_and_their_classes);
    tcase_add_test(t, names_in_any_case);
    tcase_add_test(t, class_of_a_block);
    tcase_add_test(t, class_of_a_block_walk);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
