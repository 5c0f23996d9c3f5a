/* test_eval_resume.c - the file of `modeld eval --resume`: what is read back is what was written, whatever cut it. */
#include "commands/eval.h"
#include "support/run_suite.h"
#include "support/temp_folder.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[256], path[300];
static struct md_options flags;
static struct md_engine_info engine;
static struct md_bytes heads;
static struct md_eval_settings settings;
static struct md_err err;

static void setup(void)
{
    md_temp_folder(folder, sizeof folder, "eval-resume");
    snprintf(path, sizeof path, "%s/done.jsonl", folder);
    flags = (struct md_options){ .block_tokens = 64, .sink = -1, .recent = -1 };
    engine = (struct md_engine_info){ .engine = "fake", .version = "1", .identity = "a model|f16" };
    heads = (struct md_bytes){ 0 };
    settings = (struct md_eval_settings){ .needles = 2,
                                          .trials = 2,
                                          .policies = { &md_eval_policies[0], &md_eval_policies[1] },
                                          .policy_count = 2,
                                          .lengths = { 1000, 2000 },
                                          .length_count = 2,
                                          .depths = { MD_EVAL_SPREAD },
                                          .depth_count = 1,
                                          .hot_tokens = 512,
                                          .seed = 5 };
}

static void teardown(void)
{
    md_temp_folder_remove(folder);
}

static enum md_status open_it(struct md_eval_resume *r)
{
    return md_eval_resume_open(path, &settings, &flags, &engine, heads, r, &err);
}

static void open_ok(struct md_eval_resume *r)
{
    ck_assert_msg(open_it(r) == MD_OK, "%s", err.text);
}

static void add(struct md_eval_resume *r, int policy, int length, int trial)
{
    static char blocks[] = "h.c.";
    struct md_eval_item items[2] = {
        { .turn = 0,
          .question = 27,
          .evaluations = 2,
          .heads_used = 16,
          .first_rank = 9,
          .rank = 4,
          .blocks = blocks,
          .depth = 25,
          .recalled = true,
          .prompt = 1100,
          .attended = 500,
          .spans = { { 3, 19 } },
          .part_count = 1,
          .seconds = 0.25,
          .value = "heron-4417",
          .answer = "one \"two\"\n" },
        { .turn = 1,
          .needle = 1,
          .depth = 75,
          .found = true,
          .prompt = 1150,
          .attended = 510 + trial,
          .spans = { { 40, 50 }, { 60, 61 } },
          .part_count = 2,
          .seconds = 1.5 },
    };
    const struct md_eval_result result = { .unit = { policy, length, 0, trial }, .items = items, .count = 2 };
    ck_assert_msg(md_eval_resume_add(r, &settings, &result, &err) == MD_OK, "%s", err.text);
}

static void begin(void)
{
    struct md_eval_resume r;
    open_ok(&r);
    ck_assert_uint_eq(r.count, 0);
    add(&r, 0, 1, 0);
    add(&r, 1, 0, 1);
    md_eval_resume_close(&r);
}

/* The bytes of the file, with a NUL behind them. */
static char *contents(size_t *ret_len)
{
    FILE *f = fopen(path, "rbe");
    char *text = calloc(1, 1 << 16);
    ck_assert_ptr_nonnull(f);
    *ret_len = fread(text, 1, (1 << 16) - 1, f);
    fclose(f);
    return text;
}

static void write_bytes(const char *text, size_t len)
{
    FILE *f = fopen(path, "wbe");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, len, f), len);
    fclose(f);
}

START_TEST(what_was_written_is_read)
{
    struct md_eval_resume r;
    begin();
    open_ok(&r);
    ck_assert_uint_eq(r.count, 2);
    const struct md_eval_unit missing = { 1, 1, 0, 1 }, there = { 1, 0, 0, 1 };
    ck_assert_ptr_null(md_eval_resume_find(&r, &missing));
    const struct md_eval_result *got = md_eval_resume_find(&r, &there);
    ck_assert(got != NULL && got->count == 2);
    const struct md_eval_item *a = &got->items[0], *b = &got->items[1];
    ck_assert(a->recalled && !a->found && a->depth == 25 && a->prompt == 1100 && a->attended == 500);
    ck_assert(a->part_count == 1 && a->spans[0].start == 3 && a->spans[0].end == 19);
    ck_assert_double_eq(a->seconds, 0.25);
    ck_assert_str_eq(a->value, "heron-4417");
    ck_assert_str_eq(a->answer, "one \"two\"\n");
    ck_assert(a->question == 27 && a->evaluations == 2 && a->heads_used == 16);
    ck_assert(a->first_rank == 9 && a->rank == 4 && b->rank == 0);
    ck_assert_str_eq(a->blocks, "h.c.");
    ck_assert_ptr_null(b->blocks);
    ck_assert(!b->recalled && b->found && b->turn == 1 && b->needle == 1 && b->attended == 511);
    ck_assert(b->part_count == 2 && b->spans[1].start == 60);
    md_eval_resume_close(&r);
}
END_TEST

/* Cut somewhere, and beside each end of a line, as a kill may: whole lines count, the rest is written again behind them. */
START_TEST(cut_anywhere)
{
    size_t len, after;
    begin();
    char *whole = contents(&len);
    for (size_t cut = 0; cut <= len; cut++) {
        struct md_eval_resume r;
        size_t lines = 0;
        if (cut % 97 != 0 && whole[cut] != '\n' && (cut == 0 || whole[cut - 1] != '\n'))
            continue;
        for (size_t i = 0; i < cut; i++)
            lines += whole[i] == '\n';
        write_bytes(whole, cut);
        open_ok(&r);
        ck_assert_uint_eq(r.count, lines > 0 ? lines - 1 : 0);
        if (r.count < 1)
            add(&r, 0, 1, 0);
        if (r.count < 2)
            add(&r, 1, 0, 1);
        md_eval_resume_close(&r);
        char *now = contents(&after);
        ck_assert_str_eq(now, whole);
        free(now);
    }
    free(whole);
}
END_TEST

static void assert_refused(const char *says)
{
    struct md_eval_resume r;
    size_t before, after;
    char *old = contents(&before);
    ck_assert_int_eq(open_it(&r), MD_INVALID);
    ck_assert_msg(strstr(err.text, says) != NULL, "'%s' lacks '%s'", err.text, says);
    char *now = contents(&after);
    ck_assert_uint_eq(before, after); /* it is left as it is */
    ck_assert_mem_eq(old, now, before);
    free(old);
    free(now);
}

START_TEST(other_questions_are_refused)
{
    begin();
    settings.seed = 6;
    assert_refused("'seed'");
    settings.seed = 5;
    settings.lengths[1] = 2001;
    assert_refused("'lengths'");
    settings.lengths[1] = 2000;
    settings.hot_tokens = 513;
    assert_refused("'hot'");
    settings.hot_tokens = 512;
    settings.dense_prefill = true;
    assert_refused("'prefill'");
    settings.dense_prefill = false;
    flags.recent = 128;
    assert_refused("'--recent'");
    flags.recent = -1;
    flags.threads = 3;
    assert_refused("'--threads'");
    flags.threads = 0;
    flags.rope_scale = 2;
    assert_refused("'--rope-scale'");
    flags.rope_scale = 0;
    settings.asking = MD_EVAL_ALONE;
    assert_refused("'ask'");
    settings.asking = MD_EVAL_TURNS;
    settings.near_duplicates = true;
    assert_refused("'kind'");
    settings.near_duplicates = false;
    flags.mem_cold = 1 << 20; /* changes no answer */
    flags.json = true;
    struct md_eval_resume same;
    open_ok(&same);
    md_eval_resume_close(&same);
    snprintf(engine.identity, sizeof engine.identity, "another model|f16");
    assert_refused("'model'");
    snprintf(engine.identity, sizeof engine.identity, "a model|f16");
    static const char one[] = "heads of a file", other[] = "heads of a table";
    heads = (struct md_bytes){ one, sizeof one - 1 };
    assert_refused("'heads'");
    heads = (struct md_bytes){ 0 };
    settings.file = "book.txt";
    settings.contents = (struct md_bytes){ "abc", 3 };
    assert_refused("'haystack'");
    settings.file = NULL;
    struct md_eval_resume r;
    open_ok(&r); /* all is as it was */
    md_eval_resume_close(&r);
    unlink(path);
    heads = (struct md_bytes){ one, sizeof one - 1 };
    begin();
    open_ok(&r);
    ck_assert_uint_eq(r.count, 2);
    md_eval_resume_close(&r);
    heads = (struct md_bytes){ other, sizeof other - 1 };
    assert_refused("'heads'");
}
END_TEST

START_TEST(other_files_are_refused)
{
    static const char *const texts[] = { "a letter\n", "no end of a line", "{\"a\":1}\n", "[]\n", "\n" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_bytes(texts[i], strlen(texts[i]));
        assert_refused("is not a file of");
    }
    size_t len;
    unlink(path);
    begin();
    char *whole = contents(&len), *second = strchr(whole, '\n') + 1;
    second[4] = '#';
    write_bytes(whole, len);
    assert_refused("is damaged");
    free(whole);
}
END_TEST

/* The first line as another program writes it, its end gone: nothing that is added later is lost. */
START_TEST(the_first_line_in_other_bytes)
{
    struct md_eval_resume r;
    size_t len;
    open_ok(&r);
    md_eval_resume_close(&r);
    char *line = contents(&len);
    line[len - 1] = ' '; /* the end of the line */
    write_bytes(line, len);
    free(line);
    open_ok(&r);
    add(&r, 0, 1, 0);
    md_eval_resume_close(&r);
    open_ok(&r);
    ck_assert_uint_eq(r.count, 1);
    md_eval_resume_close(&r);
}
END_TEST

/* Lines that are whole, of things that were not asked: no report would count them, or where they do not belong.  What is asked
 * comes from `settings`: two questions in one order. */
START_TEST(items_that_were_not_asked)
{
    static const char *const changes[][2] = {
        { "\"order\":0", "\"order\":1" },         { "\"turn\":1", "\"turn\":0" },
        { "\"needle\":1", "\"needle\":0" },       { "\"depth\":25", "\"depth\":-2" },
        { "\"depth\":25", "\"depth\":101" },      { "\"seconds\":0.25", "\"seconds\":-1.0" },
        { "\"prompt\":1100", "\"prompt\":-110" }, { "\"attended\":500", "\"attended\":-50" },
        { "\"rank\":4", "\"rank\":-4" },
    };
    size_t len;
    begin();
    char *whole = contents(&len), changed[1 << 16];
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const char *at = strstr(whole, changes[i][0]), *behind = at + strlen(changes[i][0]);
        ck_assert_msg(at != NULL, "%s", changes[i][0]);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - whole), whole, changes[i][1], behind);
        write_bytes(changed, strlen(changed));
        assert_refused("is damaged");
    }
    settings.needles = 1; /* a depth that is asked for is that of the needle */
    settings.depths[0] = 25;
    unlink(path);
    struct md_eval_resume r;
    struct md_eval_item item = { .depth = 37 };
    const struct md_eval_result result = { .items = &item, .count = 1 };
    open_ok(&r);
    ck_assert_int_eq(md_eval_resume_add(&r, &settings, &result, &err), MD_OK);
    md_eval_resume_close(&r);
    assert_refused("is damaged");
    free(whole);
}
END_TEST

START_TEST(one_writer_at_a_time)
{
    struct md_eval_resume r, other;
    begin();
    open_ok(&r);
    ck_assert_int_eq(open_it(&other), MD_BUSY);
    md_eval_resume_close(&r);
    open_ok(&r);
    md_eval_resume_close(&r);
    snprintf(path, sizeof path, "%s/no/such/folder", folder);
    ck_assert_int_eq(open_it(&r), MD_IO);
}
END_TEST

START_TEST(no_file_is_no_memory)
{
    struct md_eval_resume r;
    const struct md_eval_result result = { 0 };
    const struct md_eval_unit unit = { 0 };
    ck_assert_int_eq(md_eval_resume_open(NULL, &settings, &flags, &engine, heads, &r, &err), MD_OK);
    ck_assert_int_eq(md_eval_resume_add(&r, &settings, &result, &err), MD_OK);
    ck_assert_ptr_null(md_eval_resume_find(&r, &unit));
    md_eval_resume_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("eval_resume");
    TCase *t = tcase_create("eval_resume");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_was_written_is_read);
    tcase_add_test(t, cut_anywhere);
    tcase_add_test(t, other_questions_are_refused);
    tcase_add_test(t, other_files_are_refused);
    tcase_add_test(t, the_first_line_in_other_bytes);
    tcase_add_test(t, items_that_were_not_asked);
    tcase_add_test(t, one_writer_at_a_time);
    tcase_add_test(t, no_file_is_no_memory);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
