/* test_fuzz_corpus.c - what the fuzzers begin with, run once through their targets by the usual compiler. */
#include "support/run_suite.h"

#define LLVMFuzzerTestOneInput fuzz_gguf
#include "fuzz/fuzz_gguf.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_manifest
#include "fuzz/fuzz_manifest.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_record
#include "fuzz/fuzz_record.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_snapshot
#define one_file fuzz_one_snapshot
#include "fuzz/fuzz_snapshot.c"
#undef one_file
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_sections
#include "fuzz/fuzz_sections.c"
#undef LLVMFuzzerTestOneInput

#include <check.h>
#include <dirent.h>
#include <stdio.h>

/* Run each file of tests/fuzz/corpus/NAME; returns how many `good` accepts. */
static int run_corpus(const char *name, int (*target)(const uint8_t *, size_t),
                      bool (*good)(const uint8_t *, size_t))
{
    static uint8_t bytes[4096];
    char folder[100], path[400];
    int files = 0, accepted = 0;
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
    DIR *d = opendir(folder);
    ck_assert_msg(d != NULL, "'%s': run from the top of the checkout", folder);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = fopen(path, "rb");
        ck_assert_msg(f != NULL, "%s", path);
        const size_t len = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        ck_assert_msg(len > 0 && len <= 2048, "'%s' is not small", path);
        ck_assert_int_eq(target(bytes, len), 0);
        accepted += good(bytes, len);
        files++;
    }
    closedir(d);
    ck_assert_msg(files >= 10, "only %d files in '%s'", files, folder);
    return accepted;
}

static bool is_gguf(const uint8_t *data, size_t len)
{
    struct md_gguf *f = NULL;
    const bool good = gw_open_bytes(data, len, NULL, &f, NULL) == MD_OK;
    md_gguf_close(f);
    return good;
}

START_TEST(gguf)
{
    /* A corpus that is all refused would lead the fuzzer nowhere. */
    ck_assert_int_ge(run_corpus("gguf", fuzz_gguf, is_gguf), 10);
}
END_TEST

static bool is_manifest(const uint8_t *data, size_t len)
{
    struct md_manifest m = { 0 };
    const bool good = md_manifest_read((struct md_bytes){ data, len }, NULL, &m, NULL) == MD_OK;
    md_manifest_done(&m);
    return good;
}

START_TEST(manifest)
{
    ck_assert_int_ge(run_corpus("manifest", fuzz_manifest, is_manifest), 10);
}
END_TEST

static bool is_record(const uint8_t *data, size_t len)
{
    struct md_record r;
    const bool good = md_record_read(data, len, NULL, &r, NULL) == MD_OK;
    md_record_done(&r);
    return good;
}

START_TEST(record)
{
    ck_assert_int_ge(run_corpus("record", fuzz_record, is_record), 10);
}
END_TEST

static bool is_sections(const uint8_t *data, size_t len)
{
    struct md_sections_reader *r = NULL;
    const bool good = ss_open_bytes(data, len, &r, NULL, NULL) == MD_OK;
    md_sections_close(r);
    return good;
}

START_TEST(sections)
{
    ck_assert_int_ge(run_corpus("sections", fuzz_sections, is_sections), 10);
}
END_TEST

static bool is_snapshot(const uint8_t *data, size_t len)
{
    return fuzz_one_snapshot(data, len, SN_DENSE) || fuzz_one_snapshot(data, len, SN_WINDOWED);
}

START_TEST(snapshot)
{
    ck_assert_int_ge(run_corpus("snapshot", fuzz_snapshot, is_snapshot), 10);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fuzz_corpus");
    TCase *t = tcase_create("fuzz_corpus");
    tcase_add_test(t, gguf);
    tcase_add_test(t, manifest);
    tcase_add_test(t, record);
    tcase_add_test(t, sections);
    tcase_add_test(t, snapshot);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
