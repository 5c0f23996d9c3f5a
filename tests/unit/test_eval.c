/* test_eval.c - the text, the needles, the scoring and the order of questions of `modeld eval`: all without a model. */
#include "commands/eval_ask.h"
#include "session/retrieve.h"
#include "support/run_suite.h"

#include <check.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- text ---- */

static struct md_buf written(enum md_eval_text kind, uint64_t seed, size_t bytes)
{
    struct md_buf b;
    struct md_err err;
    md_buf_init(&b, NULL, 4 << 20);
    ck_assert_msg(md_eval_text_write(kind, seed, bytes, &b, &err) == MD_OK, "%s", err.text);
    ck_assert_uint_ge(b.len, bytes);
    return b;
}

/* The hashes were recorded when the words were chosen: another one means that figures of before cannot be compared. */
START_TEST(text_is_the_same_everywhere)
{
    static const uint64_t want[MD_EVAL_TEXT_COUNT] = { UINT64_C(0xfa493ab9b7eb1021),
                                                       UINT64_C(0xa98e1455cfe4daa9),
                                                       UINT64_C(0xd2911802fb7d497c),
                                                       UINT64_C(0x1507c7e7f120b78e) };
    for (int k = 0; k < MD_EVAL_TEXT_COUNT; k++) {
        struct md_buf b = written((enum md_eval_text)k, 7, 20000),
                      more = written((enum md_eval_text)k, 7, 50000),
                      other = written((enum md_eval_text)k, 8, 20000);
        const uint64_t got = md_eval_hash((struct md_bytes){ b.data, b.len });
        ck_assert_msg(got == want[k], "%s: 0x%016" PRIx64, md_eval_text_name((enum md_eval_text)k), got);
        ck_assert_mem_eq(more.data, b.data, b.len); /* more is more of the same */
        ck_assert_mem_ne(other.data, b.data, 200);
        ck_assert_int_eq(b.data[b.len - 1], '\n'); /* whole pieces */
        for (size_t i = 0; i < b.len; i++)
            ck_assert(b.data[i] == '\n' || (b.data[i] >= ' ' && b.data[i] <= '~'));
        md_buf_done(&b);
        md_buf_done(&more);
        md_buf_done(&other);
    }
}
END_TEST

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Cut in place at any of `ends`; what is shorter than `least` is no sentence. */
static void assert_all_differ(struct md_buf *b, const char *ends, size_t least)
{
    size_t count = 0;
    char **list = calloc(b->len, sizeof *list), *rest;
    b->data[b->len - 1] = '\0';
    for (char *p = strtok_r((char *)b->data, ends, &rest); p != NULL; p = strtok_r(NULL, ends, &rest))
        if (strlen(p) >= least)
            list[count++] = p + strspn(p, " ");
    ck_assert_uint_gt(count, 1000);
    qsort(list, count, sizeof *list, by_text);
    for (size_t i = 1; i < count; i++)
        ck_assert_msg(strcmp(list[i - 1], list[i]) != 0, "twice: '%s'", list[i]);
    free(list);
}

START_TEST(no_sentence_comes_twice)
{
    struct md_buf b = written(MD_EVAL_PROSE, 3, 400000);
    assert_all_differ(&b, ".\n", 4);
    md_buf_done(&b);
    b = written(MD_EVAL_CHAT, 3, 400000);
    assert_all_differ(&b, "\n", 4);
    md_buf_done(&b);
    b = written(MD_EVAL_PAIRS, 3, 400000);
    assert_all_differ(&b, ":\n", 8); /* keys; values have five digits and a blank */
    md_buf_done(&b);
    b = written(MD_EVAL_CODE, 3, 400000);
    char *names = calloc(b.len, 1), *end = names; /* of functions, one a line */
    for (char *p = (char *)b.data;
         (p = memmem(p, b.len - (size_t)(p - (char *)b.data), "static int ", 11)) != NULL;) {
        p += 11;
        const size_t n = strcspn(p, "(");
        memcpy(end, p, n);
        end[n] = '\n';
        end += n + 1;
    }
    struct md_buf list = { .data = (uint8_t *)names, .len = (size_t)(end - names) };
    assert_all_differ(&list, "\n", 4);
    free(names);
    md_buf_done(&b);
}
END_TEST

START_TEST(text_has_a_limit)
{
    struct md_buf b;
    md_buf_init(&b, NULL, 1000);
    ck_assert_int_eq(md_eval_text_write(MD_EVAL_PROSE, 1, MD_EVAL_TEXT_BYTES_MAX + 1, &b, NULL), MD_INVALID);
    ck_assert_uint_eq(b.len, 0);
    ck_assert_int_eq(md_eval_text_write(MD_EVAL_PROSE, 1, 5000, &b, NULL), MD_NO_MEMORY);
    md_buf_done(&b);
}
END_TEST

/* SplitMix64 from state 1234567: the values of the reference program at prng.di.unimi.it. */
START_TEST(chance_is_splitmix)
{
    static const uint64_t want[] = { UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                     UINT64_C(9817491932198370423) };
    struct md_eval_rng r = { 1234567 };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        ck_assert_uint_eq(md_eval_next(&r), want[i]);
    for (int i = 0; i < 1000; i++)
        ck_assert_uint_lt(md_eval_below(&r, 7), 7);
}
END_TEST

/* ---- needles ---- */

struct kit {
    struct md_eval_spec spec;
    struct md_buf hay;
    struct md_arena arena;
    struct md_eval_needle n[MD_EVAL_NEEDLES_MAX];
};

static void kit_fill(struct kit *k)
{
    struct md_err err;
    md_arena_init(&k->arena, NULL, 1 << 20);
    const enum md_status s =
        md_eval_needles(&k->spec, (struct md_bytes){ k->hay.data, k->hay.len }, &k->arena, k->n, &err);
    ck_assert_msg(s == MD_OK, "%s", err.text);
}

/* As many needles as there are, unless count says. */
static struct kit kit_open(enum md_eval_task task, bool near, int count, uint64_t seed)
{
    struct kit k = { .spec = { .task = task,
                               .near_duplicates = near,
                               .count = count > 0 ? count : md_eval_task_most(task, near),
                               .depth = MD_EVAL_SPREAD,
                               .seed = seed } };
    k.hay = written(md_eval_task_text(task), seed, 100000);
    kit_fill(&k);
    return k;
}

static void kit_close(struct kit *k)
{
    md_arena_done(&k->arena);
    md_buf_done(&k->hay);
}

static bool in_hay(const struct kit *k, const char *word)
{
    return memmem(k->hay.data, k->hay.len, word, strlen(word)) != NULL;
}

static int times_in(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
        n++;
    return n;
}

START_TEST(values_are_nowhere_else)
{
    for (int task = 0; task < MD_EVAL_TASK_COUNT; task++)
        for (uint64_t seed = 1; seed <= 5; seed++) {
            struct kit k = kit_open((enum md_eval_task)task, seed == 2 && task == MD_EVAL_NEEDLE, 0, seed);
            for (int i = 0; i < k.spec.count; i++) {
                const struct md_eval_needle *n = &k.n[i];
                ck_assert_int_eq(n->part_count, task == MD_EVAL_VT ? MD_EVAL_PARTS_MAX : 1);
                ck_assert_msg(!in_hay(&k, n->value), "'%s' is in the text", n->value);
                ck_assert(task == MD_EVAL_NEEDLE || !in_hay(&k, n->key));
                ck_assert_int_eq(times_in(n->parts[0], n->value), 1);
                ck_assert_int_ge(times_in(n->parts[n->part_count - 1], n->key), 1);
                ck_assert_int_eq(times_in(n->question, n->value), 0);
                for (int j = 0; j < k.spec.count; j++) /* nor in another needle, nor in its question */
                    for (int p = 0; j != i && p < k.n[j].part_count; p++)
                        ck_assert_msg(times_in(k.n[j].parts[p], n->value) == 0, "'%s' and '%s'", n->parts[0],
                                      k.n[j].parts[p]);
                for (int j = 0; j < i; j++)
                    ck_assert_msg(strcmp(k.n[j].question, n->question) != 0, "twice: %s", n->question);
            }
            kit_close(&k);
        }
}
END_TEST

/* What is drawn when the first draw stands in the text. */
START_TEST(a_value_of_the_text_is_not_taken)
{
    for (int task = 0; task < MD_EVAL_TASK_COUNT; task++) {
        struct kit k = kit_open((enum md_eval_task)task, false, 1, 9);
        char first[64];
        snprintf(first, sizeof first, "%s", k.n[0].value);
        ck_assert_int_eq(md_buf_append(&k.hay, first, strlen(first), NULL), MD_OK);
        md_arena_done(&k.arena);
        kit_fill(&k);
        ck_assert_str_ne(k.n[0].value, first);
        kit_close(&k);
    }
}
END_TEST

/* `text` with the first `word` out of it. */
static void without(const char *text, const char *word, char *out, size_t bytes)
{
    const char *at = strstr(text, word);
    ck_assert_ptr_nonnull(at);
    snprintf(out, bytes, "%.*s|%s", (int)(at - text), text, at + strlen(word));
}

START_TEST(near_duplicates_differ_in_key_and_value_alone)
{
    struct kit k = kit_open(MD_EVAL_NEEDLE, true, 0, 4);
    char first[200] = "", question[200] = "";
    for (int i = 0; i < k.spec.count; i++) {
        char a[200], b[200];
        without(k.n[i].parts[0], k.n[i].key, a, sizeof a);
        without(a, k.n[i].value, b, sizeof b);
        without(k.n[i].question, k.n[i].key, a, sizeof a);
        if (i == 0) {
            snprintf(first, sizeof first, "%s", b);
            snprintf(question, sizeof question, "%s", a);
        }
        ck_assert_str_eq(b, first);
        ck_assert_str_eq(a, question);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(k.n[j].key, k.n[i].key);
    }
    kit_close(&k);
    k = kit_open(MD_EVAL_NEEDLE, false, 0, 4); /* and the others share neither what it is nor whose */
    for (int i = 0; i < k.spec.count; i++)
        for (int j = 0; j < i; j++) {
            const char *a = strstr(k.n[i].key, " of the "), *b = strstr(k.n[j].key, " of the ");
            ck_assert_str_ne(a, b);
            ck_assert(a - k.n[i].key != b - k.n[j].key ||
                      strncmp(k.n[i].key, k.n[j].key, (size_t)(a - k.n[i].key)) != 0);
        }
    kit_close(&k);
}
END_TEST

/* Followed as a reader would: from the name that is asked for, line by line, to a number. */
START_TEST(chains_lead_to_their_value)
{
    struct kit k = kit_open(MD_EVAL_VT, false, 8, 5);
    for (int i = 0; i < k.spec.count; i++) {
        char name[16], right[16] = "";
        ck_assert_int_eq(sscanf(strstr(k.n[i].question, "VAR "), "VAR %15[A-Z]", name), 1);
        for (int step = 0; step < MD_EVAL_PARTS_MAX; step++) {
            int lines = 0;
            for (int j = 0; j < k.spec.count; j++)
                for (int p = 0; p < k.n[j].part_count; p++) {
                    char left[16], text[16];
                    if (sscanf(k.n[j].parts[p], "VAR %15[A-Z] = VAR %15[A-Z].", left, text) != 2)
                        ck_assert_int_eq(sscanf(k.n[j].parts[p], "VAR %15[A-Z] = %15[0-9].", left, text), 2);
                    if (strcmp(left, name) == 0) {
                        lines++;
                        snprintf(right, sizeof right, "%s", text);
                    }
                }
            ck_assert_msg(lines == 1, "%s is assigned %d times", name, lines);
            snprintf(name, sizeof name, "%s", right);
        }
        ck_assert_str_eq(right, k.n[i].value);
    }
    kit_close(&k);
}
END_TEST

/* Words of four letters or more, in lower case, with blanks around. */
static void words_of(const char *text, char *out)
{
    size_t n = 0;
    out[n++] = ' ';
    for (const char *p = text; *p != '\0';) {
        size_t len = 0;
        while (isalpha((unsigned char)p[len]))
            len++;
        for (size_t i = 0; len >= 4 && i < len; i++)
            out[n++] = (char)tolower((unsigned char)p[i]);
        if (len >= 4)
            out[n++] = ' ';
        p += len > 0 ? len : 1;
    }
    out[n] = '\0';
}

START_TEST(questions_about_code_share_no_word_with_it)
{
    struct kit k = kit_open(MD_EVAL_CODE_NEEDLE, false, 0, 6);
    for (int i = 0; i < k.spec.count; i++) {
        char line[300], question[400], word[64];
        words_of(k.n[i].parts[0], line);
        words_of(k.n[i].question, question);
        for (char *rest, *p = strtok_r(question, " ", &rest); p != NULL; p = strtok_r(NULL, " ", &rest)) {
            snprintf(word, sizeof word, " %s ", p);
            ck_assert_msg(strstr(line, word) == NULL, "'%s' is in '%s'", p, k.n[i].parts[0]);
        }
    }
    kit_close(&k);
}
END_TEST

START_TEST(needles_stand_where_they_are_said_to)
{
    struct kit k = kit_open(MD_EVAL_NEEDLE, false, 4, 1);
    static const int percents[] = { 13, 38, 63, 88 }; /* (i + 1/2) / 4, rounded */
    for (int i = 0; i < 4; i++) {
        ck_assert_double_eq(k.n[i].depths[0], (i + 0.5) / 4);
        ck_assert_int_eq(k.n[i].depth, percents[i]);
    }
    kit_close(&k);
    k = kit_open(MD_EVAL_VT, false, 2, 1);
    for (int p = 0; p < MD_EVAL_PARTS_MAX; p++) /* A B A B ... */
        for (int i = 0; i < 2; i++)
            ck_assert_double_eq(k.n[i].depths[p], (2 * p + i + 0.5) / (2 * MD_EVAL_PARTS_MAX));
    ck_assert_int_eq(k.n[0].depth, MD_EVAL_SPREAD);
    kit_close(&k);
    k = kit_open(MD_EVAL_KEYS, false, 1, 1);
    char value[32];
    snprintf(value, sizeof value, "%s", k.n[0].value);
    md_arena_done(&k.arena);
    k.spec.depth = 75;
    kit_fill(&k);
    ck_assert_double_eq(k.n[0].depths[0], 0.75);
    ck_assert_int_eq(k.n[0].depth, 75);
    ck_assert_str_eq(k.n[0].value, value); /* depth moves it and changes nothing else */
    kit_close(&k);
}
END_TEST

START_TEST(a_seed_gives_the_same_needles)
{
    static const uint64_t want[MD_EVAL_TASK_COUNT] = { UINT64_C(0x4fc8a21f2b08d272),
                                                       UINT64_C(0x07a7cc3acc740228),
                                                       UINT64_C(0xbf60021ac8946602),
                                                       UINT64_C(0x854e097220d66c55) };
    for (int task = 0; task < MD_EVAL_TASK_COUNT; task++) {
        struct kit k = kit_open((enum md_eval_task)task, false, 6, 11),
                   other = kit_open((enum md_eval_task)task, false, 6, 12);
        struct md_buf all;
        md_buf_init(&all, NULL, 1 << 16);
        for (int i = 0; i < 6; i++)
            for (int p = 0; p < k.n[i].part_count; p++)
                ck_assert_int_eq(md_buf_printf(&all, NULL, "%s\n%s\n", k.n[i].parts[p], k.n[i].question),
                                 MD_OK);
        const uint64_t got = md_eval_hash((struct md_bytes){ all.data, all.len });
        ck_assert_msg(got == want[task], "%s: 0x%016" PRIx64, md_eval_task_name((enum md_eval_task)task),
                      got);
        ck_assert_str_ne(k.n[0].value, other.n[0].value);
        md_buf_done(&all);
        kit_close(&k);
        kit_close(&other);
    }
}
END_TEST

/* ---- order ---- */

START_TEST(every_rotation_asks_everything_once)
{
    struct md_eval_settings s = { .needles = 5, .all_orders = true };
    int at[5][5] = { { 0 } }; /* needle, turn */
    ck_assert_int_eq(md_eval_item_count(&s), 25);
    for (int order = 0; order < 5; order++) {
        int seen = 0;
        for (int turn = 0; turn < 5; turn++) {
            const int n = md_eval_asked(&s, order, turn);
            seen |= 1 << n;
            at[n][turn]++;
            ck_assert_int_eq(md_eval_asked(&s, order, (turn + 1) % 5),
                             (n + 1) % 5); /* a rotation, not a shuffle */
        }
        ck_assert_int_eq(seen, 31);
    }
    for (int i = 0; i < 25; i++)
        ck_assert_int_eq(at[i / 5][i % 5], 1); /* each is the first, the second, ... once */
    s.all_orders = false;
    ck_assert_int_eq(md_eval_item_count(&s), 5);
}
END_TEST

START_TEST(units_are_all_different)
{
    const struct md_eval_settings s = { .policy_count = 2, .length_count = 3, .trials = 4, .depth_count = 5 };
    bool seen[2][3][4][5] = { false };
    ck_assert_int_eq(md_eval_unit_count(&s), 120);
    for (int i = 0; i < 120; i++) {
        const struct md_eval_unit u = md_eval_unit_at(&s, i);
        ck_assert(!seen[u.policy][u.length][u.trial][u.depth]);
        seen[u.policy][u.length][u.trial][u.depth] = true;
        ck_assert_int_eq(u.policy, i / 60); /* a model is opened once for each policy */
    }
}
END_TEST

/* ---- scoring ---- */

START_TEST(what_counts_as_found)
{
    static const struct {
        const char *answer, *value;
        bool want;
    } rows[] = {
        { "heron-4417", "heron-4417", true },   { "The password is **Heron-4417**.", "heron-4417", true },
        { "HERON-4417", "heron-4417", true },   { "heron-441", "heron-4417", false },
        { "heron-44170", "heron-4417", false }, { "xheron-4417", "heron-4417", false },
        { "heron 4417", "heron-4417", false },  { "", "48213", false },
        { "48,213", "48213", false },           { "148213", "48213", false },
        { "148213 48213", "48213", true }, /* a wrong place does not hide a right one */
        { "=48213;", "48213", true },           { "the deep\n\t mine", "deep mine", true },
        { "the deepmine", "deep mine", false }, { "deep", "deep mine", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg(md_eval_found((struct md_bytes){ rows[i].answer, strlen(rows[i].answer) },
                                    rows[i].value) == rows[i].want,
                      "'%s' in '%s'", rows[i].value, rows[i].answer);
}
END_TEST

/* R. G. Newcombe, Statistics in Medicine 17 (1998) 857, table I, method 3 (the score interval), 95 %, to four places. */
START_TEST(wilson_of_newcombes_table)
{
    static const struct {
        int found, total;
        double low, high;
    } rows[] = {
        { 81, 263, 0.2553, 0.3662 },
        { 15, 148, 0.0624, 0.1605 },
        { 0, 20, 0.0000, 0.1611 },
        { 1, 29, 0.0061, 0.1718 },
        { 20, 20, 0.8389, 1.0000 }, /* the third, mirrored */
        { 0, 0, 0, 1 },             /* nothing is known */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct md_eval_interval w = md_eval_wilson(rows[i].found, rows[i].total);
        ck_assert_double_eq_tol(w.low, rows[i].low, 0.00005);
        ck_assert_double_eq_tol(w.high, rows[i].high, 0.00005);
    }
}
END_TEST

/* ---- counting ---- */

START_TEST(cells_count_their_own)
{
    struct md_eval_item a[] = { { .order = 0, .depth = 10, .recalled = true, .found = true, .seconds = 1 },
                                { .order = 0, .depth = 90, .recalled = true, .seconds = 2 },
                                { .order = 1, .depth = 10, .found = true, .seconds = 4 } };
    struct md_eval_item b[] = { { .order = 0, .depth = 10, .recalled = true, .found = true, .seconds = 8 } };
    const struct md_eval_result r[] = { { .unit = { .policy = 0 }, .items = a, .count = 3 },
                                        { .unit = { .policy = 1 }, .items = b, .count = 1 } };
    struct md_eval_cell c = md_eval_count(r, 2, 0, 0, 10, 0);
    ck_assert(c.total == 1 && c.recalled == 1 && c.found == 1 && c.seconds == 1);
    c = md_eval_count(r, 2, 0, 0, 10, MD_EVAL_ANY);
    ck_assert(c.total == 2 && c.recalled == 1 && c.found == 2 && c.seconds == 5);
    c = md_eval_count(r, 2, 0, 0, MD_EVAL_ANY, MD_EVAL_ANY);
    ck_assert(c.total == 3 && c.recalled == 2 && c.found == 2 && c.seconds == 7);
    ck_assert_int_eq(md_eval_count(r, 2, 1, 0, MD_EVAL_ANY, MD_EVAL_ANY).total, 1);
    ck_assert_int_eq(md_eval_count(r, 2, 0, 1, MD_EVAL_ANY, MD_EVAL_ANY).total, 0);
    int depths[MD_EVAL_DEPTHS_MAX];
    ck_assert_int_eq(md_eval_depths(r, 2, depths), 2);
    ck_assert(depths[0] == 10 && depths[1] == 90);
    b[0].depth = MD_EVAL_SPREAD;
    ck_assert_int_eq(md_eval_depths(&r[1], 1, depths), 1);
    ck_assert_int_eq(depths[0], MD_EVAL_SPREAD);
}
END_TEST

/* The order by hand: 0.9 of block 4, 0.5 of 1 and 2 (1 first), 0 of 3; block 0 is no candidate.  A list counts as a score does. */
START_TEST(ranks_of_blocks)
{
    const struct md_attention_block blocks[] = {
        { 0, 10, false }, { 10, 10, true }, { 20, 10, true }, { 40, 10, true }, { 50, 10, true }
    };
    float overall[] = { 9, 0.5F, 0.25F, 0, 0.9F }, listed[] = { 0, 0, 0.25F, 0, 0 };
    const struct md_scores scores = { .block_count = 5, .overall = overall, .listed = listed };
    static const struct {
        struct md_range spans[2];
        int count;
        int32_t want;
    } rows[] = {
        { { { 50, 60 } }, 1, 1 },
        { { { 10, 20 } }, 1, 2 },
        { { { 19, 21 } }, 1, 3 }, /* both blocks: the worse */
        { { { 20, 21 } }, 1, 3 },
        { { { 49, 51 } }, 1, 4 },
        { { { 50, 51 }, { 10, 11 } }, 2, 2 },
        { { { 0, 10 } }, 1, 0 },  /* hot whatever is chosen */
        { { { 5, 15 } }, 1, 2 },  /* its other half counts */
        { { { 30, 40 } }, 1, 0 }, /* in no block that was scored */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg(md_eval_rank(blocks, &scores, rows[i].spans, rows[i].count) == rows[i].want,
                      "row %zu: %d", i, md_eval_rank(blocks, &scores, rows[i].spans, rows[i].count));
}
END_TEST

/* Ranks 1 to 10 and two items without: mean 5.5, and nine of ten are 9 or less; with 40 in the place of 9, 8 of 10 are below 10. */
START_TEST(ranks_are_counted)
{
    struct md_eval_item items[12] = { 0 };
    struct md_eval_result r = { .items = items, .count = 12 };
    const struct md_eval_cell all = { .depth = MD_EVAL_ANY, .order = MD_EVAL_ANY };
    for (int i = 0; i < 10; i++) {
        items[i].rank = 10 - i;
        items[i].first_rank = i == 3 ? 7 : 0;
        items[i].order = i % 2;
    }
    struct md_eval_ranks k = md_eval_rank_count(&r, 1, &all, false);
    ck_assert(k.count == 10 && k.p90 == 9);
    ck_assert_double_eq(k.mean, 5.5);
    items[1].rank = 40;
    ck_assert_int_eq(md_eval_rank_count(&r, 1, &all, false).p90, 10);
    k = md_eval_rank_count(&r, 1, &all, true);
    ck_assert(k.count == 1 && k.p90 == 7 && k.mean == 7);
    const struct md_eval_cell even = { .depth = MD_EVAL_ANY, .order = 0 },
                              other = { .length = 1, .depth = MD_EVAL_ANY };
    ck_assert_int_eq(md_eval_rank_count(&r, 1, &even, false).count, 5);
    ck_assert_int_eq(md_eval_rank_count(&r, 1, &other, false).count, 0);
}
END_TEST

/* Two needles, two orders.  Needle 0: chosen {2,3} and {3,4}, one of three alike; needle 1: nothing chosen, hot {0} and {0,1}.  Found
 * 2 of 2 and 1 of 2; recall 1 of 2 and 1 of 2. */
START_TEST(rotations_are_compared)
{
    static char maps[][8] = { "h.cc.h", "h.....", "hh....", "hh.cc." };
    struct md_eval_item items[] = {
        { .order = 0, .needle = 0, .found = true, .recalled = true, .blocks = maps[0] },
        { .order = 0, .needle = 1, .found = true, .blocks = maps[1] },
        { .order = 1, .needle = 1, .recalled = true, .blocks = maps[2] },
        { .order = 1, .needle = 0, .found = true, .blocks = maps[3] },
    };
    const struct md_eval_result r[] = { { .items = items, .count = 4 }, { .unit = { .policy = 1 } } };
    const struct md_eval_rotations x = md_eval_rotation_count(r, 2, 0, 0, 2);
    ck_assert(x.orders == 2 && x.pairs == 2);
    ck_assert_double_eq_tol(x.jaccard_mean, (1.0 / 3 + 0.5) / 2, 1e-12);
    ck_assert_double_eq_tol(x.jaccard_least, 1.0 / 3, 1e-12);
    ck_assert(x.found_least == 0.5 && x.found_most == 1 && x.recall_least == 0.5 && x.recall_most == 0.5);
    items[3].blocks = maps[2]; /* chosen for one order alone: nothing is alike */
    ck_assert_double_eq(md_eval_rotation_count(r, 2, 0, 0, 2).jaccard_least, 0);
}
END_TEST

/* A dump of a policy differs from it by the heads and nothing else: docs/quality.md. */
START_TEST(a_dump_keeps_its_policy)
{
    int retrieving = 0;
    for (const struct md_eval_policy *p = md_eval_policies; p->name != NULL; p++) {
        struct md_pool_config alone = { .evict = MD_EVICT_COUNT }, dumped = alone;
        ck_assert((p->configure_dump != NULL) == p->retrieves);
        if (!p->retrieves)
            continue;
        p->configure(&alone);
        p->configure_dump(&dumped);
        ck_assert_msg(dumped.evict == alone.evict && alone.evict != MD_EVICT_COUNT, "%s", p->name);
        ck_assert_msg(dumped.retrieval == MD_RETRIEVAL_AUTO && alone.retrieval == MD_RETRIEVAL_AUTO, "%s",
                      p->name);
        ck_assert_ptr_null(alone.retrieve);
        ck_assert_int_eq(dumped.retrieve->heads.heads, MD_CALIBRATE_HEADS_MOST);
        retrieving++;
    }
    ck_assert_int_eq(retrieving, 2);
}
END_TEST

/* What a model file says of itself is text, whatever it is. */
START_TEST(names_cannot_break_the_map)
{
    struct md_engine_info engine = { .engine = "fake", .model = "<b>&\"\x01\xff</b>" };
    struct md_eval_item item = { .depth = 50 };
    const struct md_eval_result r = { .items = &item, .count = 1 };
    const struct md_eval_settings s = {
        .policies = { &md_eval_policies[0] }, .policy_count = 1, .lengths = { 64 }, .length_count = 1
    };
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    ck_assert_int_eq(md_eval_map_write(f, &s, &engine, &r, 1, NULL), MD_OK);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "&lt;b&gt;&amp;\"??&lt;/b&gt;"));
    ck_assert_ptr_nonnull(strstr(text, "50 %"));
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("eval");
    TCase *t = tcase_create("eval");
    tcase_add_test(t, text_is_the_same_everywhere);
    tcase_add_test(t, no_sentence_comes_twice);
    tcase_add_test(t, text_has_a_limit);
    tcase_add_test(t, chance_is_splitmix);
    tcase_add_test(t, values_are_nowhere_else);
    tcase_add_test(t, a_value_of_the_text_is_not_taken);
    tcase_add_test(t, near_duplicates_differ_in_key_and_value_alone);
    tcase_add_test(t, chains_lead_to_their_value);
    tcase_add_test(t, questions_about_code_share_no_word_with_it);
    tcase_add_test(t, needles_stand_where_they_are_said_to);
    tcase_add_test(t, a_seed_gives_the_same_needles);
    tcase_add_test(t, every_rotation_asks_everything_once);
    tcase_add_test(t, units_are_all_different);
    tcase_add_test(t, what_counts_as_found);
    tcase_add_test(t, wilson_of_newcombes_table);
    tcase_add_test(t, cells_count_their_own);
    tcase_add_test(t, ranks_of_blocks);
    tcase_add_test(t, ranks_are_counted);
    tcase_add_test(t, rotations_are_compared);
    tcase_add_test(t, a_dump_keeps_its_policy);
    tcase_add_test(t, names_cannot_break_the_map);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
