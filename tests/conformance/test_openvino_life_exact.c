/* test_openvino_life_exact.c - engines that come and go: the same text each time, in one process and in others (B128), and
 * memory that stays level over many prompts and is given back (B122).  On the exact model, where a text that differs has a
 * cause. */
#include "adapters/openvino/ov_backend.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROMPT = 100, ANSWER = 50, TIMES = 5 };

static char path[512];
static struct md_fake_model *model;

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");
    struct md_err err = { 0 };
    snprintf(path, sizeof path, "%s/modeld-life-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
    ck_assert_msg(md_exact_model_open(&model, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_exact_model_write(model, path, &err) == MD_OK, "%s", err.text);
}

static void teardown(void)
{
    md_fake_model_close(model);
    unlink(path);
}

static struct md_engine *open_engine(int32_t cells, struct md_err *err)
{
    const struct md_open_params p = {
        .model_path = path, .cell_count = cells, .threads = 1, .flash_attn = -1
    };
    struct md_engine *e = NULL;
    return md_openvino_open(&p, &e, err) == MD_OK ? e : NULL;
}

/* False: something failed. */
static bool answer(md_token said[ANSWER], struct md_err *err)
{
    md_token tokens[PROMPT];
    const float *logits = NULL;
    struct md_engine *e = open_engine(256, err);
    md_subject_random_tokens(tokens, PROMPT);
    bool good = e != NULL && md_engine_decode(e, 0, 0, tokens, PROMPT, &logits, err) == MD_OK;
    for (int32_t n = 0; n < ANSWER && good; n++) {
        said[n] = 0;
        for (md_token t = 1; t < MD_FAKE_BYTE_VOCAB; t++)
            said[n] = logits[t] > logits[said[n]] ? t : said[n];
        good = n + 1 == ANSWER || md_engine_decode(e, 0, PROMPT + n, &said[n], 1, &logits, err) == MD_OK;
    }
    md_engine_close(e);
    return good;
}

/* In a process that has not loaded the library yet. */
static bool answer_elsewhere(md_token said[ANSWER], struct md_err *err)
{
    int ends[2], status = -1;
    if (pipe(ends) != 0)
        return false;
    const pid_t child = fork();
    if (child == 0) {
        const bool good = answer(said, err) && write(ends[1], said, ANSWER * sizeof *said) > 0;
        _exit(good ? 0 : 1);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], said, ANSWER * sizeof *said);
    close(ends[0]);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0 && got == ANSWER * sizeof *said;
}

START_TEST(b128_ten_equal_texts)
{
    md_token said[2 * TIMES][ANSWER];
    struct md_err err = { 0 };
    for (int i = 0; i < TIMES; i++) /* first, while this process is fresh too */
        ck_assert_msg(answer_elsewhere(said[i], &err), "process %d", i);
    for (int i = TIMES; i < 2 * TIMES; i++)
        ck_assert_msg(answer(said[i], &err), "%s", err.text);
    for (int i = 1; i < 2 * TIMES; i++)
        ck_assert_msg(memcmp(said[0], said[i], sizeof said[0]) == 0, "text %d is another", i);
    bool one = true;
    for (int n = 1; n < ANSWER; n++)
        one = one && said[0][n] == said[0][0];
    ck_assert_msg(!one, "a text of one token only says little");
}
END_TEST

/* Of this process, what is nobody else's. */
static long own_kib(void)
{
    char line[128];
    long kib = 0, n;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "Private_Dirty: %ld", &n) == 1 || sscanf(line, "Private_Clean: %ld", &n) == 1)
            kib += n;
    if (f != NULL)
        fclose(f);
    return kib;
}

/* What is right: the KV is taken when the engine opens, so nothing grows with prompts once each shape of step has been
 * seen. */
START_TEST(b122_level_over_fifty_prompts)
{
    enum { PROMPTS = 50, TOKENS = 2000, SEEN = 5, SLACK_KIB = 4 << 10 };
    static md_token tokens[PROMPTS + TOKENS];
    struct md_err err = { 0 };
    md_subject_random_tokens(tokens, PROMPTS + TOKENS);
    struct md_engine *e = open_engine(TOKENS, &err);
    ck_assert_msg(e != NULL, "%s", err.text);
    const long opened = own_kib();
    ck_assert_int_gt(opened, 0);
    long level = 0, most = 0;
    for (int i = 0; i < PROMPTS; i++) {
        for (int32_t at = 0, n; at < TOKENS; at += n) {
            n = TOKENS - at < MD_OPENVINO_BATCH ? TOKENS - at : MD_OPENVINO_BATCH;
            ck_assert_msg(md_engine_prefill(e, 0, at, tokens + i + at, n, &err) == MD_OK, "prompt %d: %s", i,
                          err.text);
        }
        ck_assert_int_eq(md_engine_cells_used(e), TOKENS);
        ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK);
        const long now = own_kib();
        level = i < SEEN && now > level ? now : level;
        most = now > most ? now : most;
    }
    ck_assert_msg(most <= level + SLACK_KIB, "%ld KiB after %d prompts, %ld at most", level, SEEN, most);
    const struct md_engine_info *info = md_engine_info(e);
    const long kv = (long)((info->kv_growing_bytes * info->cell_count + info->kv_fixed_bytes) >> 10);
    md_engine_close(e);
    const long closed = own_kib();
    printf("KiB: opened %ld, level %ld, most %ld, closed %ld, KV %ld\n", opened, level, most, closed, kv);
    ck_assert_msg(closed <= level - kv * 9 / 10, "%ld KiB of %ld are given back, KV has %ld", level - closed,
                  level, kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openvino, coming and going");
    TCase *t = tcase_create("life");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, b128_ten_equal_texts);
    tcase_add_test(t, b122_level_over_fifty_prompts);
    suite_add_tcase(suite, t);
    return md_run_suite(suite);
}
