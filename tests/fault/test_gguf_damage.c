/* test_gguf_damage.c - a small GGUF file cut at each byte, with each byte damaged, and with each allocation
 * failing once: always a clean answer, nothing leaks, no file stays open. */
#include "host/gguf.h"
#include "support/fault_alloc.h"
#include "support/gguf_walk.h"
#include "support/gguf_writer.h"
#include "support/run_suite.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gguf_writer w;
static int descriptors;

static int open_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

/* Every type, an array of strings, and two tensors that end where the file ends. */
static void setup(void)
{
    gw_init(&w);
    gw_string(&w, "general.architecture", "llama");
    gw_u32(&w, "general.alignment", 8);
    w.alignment = 8;
    gw_int(&w, "i64", MD_GGUF_I64, -3);
    gw_int(&w, "u8", MD_GGUF_U8, 3);
    gw_f32(&w, "f32", 0.5f);
    gw_f64(&w, "f64", 0.5);
    gw_bool(&w, "bool", true);
    gw_ints(&w, "i16s", MD_GGUF_I16, (int64_t[]){ 1, 2, 3 }, 3);
    gw_strings(&w, "strings", (const char *[]){ "a", "", "abc" }, 3);
    gw_tensor(&w, "t", GW_Q4_0, (uint64_t[]){ 32, 4 }, 2, 72);
    gw_tensor(&w, "u", GW_F32, (uint64_t[]){ 2 }, 1, 8);
    gw_zeros(&w);
    struct md_gguf *f = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(gw_open(&w, NULL, &f, &err) == MD_OK, "%s", err.text); /* fills in the counts, too */
    gguf_walk(f);
    md_gguf_close(f);
    descriptors = open_descriptors();
}

static void teardown(void)
{
    ck_assert_int_eq(open_descriptors(), descriptors);
    gw_done(&w);
}

START_TEST(cut_at_each_byte)
{
    for (size_t len = 0; len < w.buf.len; len++) {
        struct fault_alloc a;
        struct md_err err = { 0 };
        struct md_gguf *f = NULL;
        fault_alloc_init(&a, 0);
        ck_assert_int_eq(gw_open_bytes(w.buf.data, len, &a.alloc, &f, &err), MD_INVALID);
        ck_assert_ptr_null(f);
        ck_assert_msg(strstr(err.text, "byte ") != NULL, "%s", err.text);
        ck_assert_uint_eq(a.live_blocks, 0);
    }
}
END_TEST

START_TEST(each_byte_damaged)
{
    static const uint8_t masks[] = { 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff };
    int accepted = 0;
    for (size_t i = 0; i < w.buf.len * sizeof masks; i++) {
        const size_t at = i / sizeof masks;
        const uint8_t good = w.buf.data[at];
        struct fault_alloc a;
        struct md_gguf *f = NULL;
        fault_alloc_init(&a, 0);
        w.buf.data[at] ^= masks[i % sizeof masks];
        enum md_status s = gw_open_bytes(w.buf.data, w.buf.len, &a.alloc, &f, NULL);
        w.buf.data[at] = good;
        ck_assert_msg(s == MD_OK || s == MD_INVALID || s == MD_UNSUPPORTED, "byte %zu: %s", at,
                      md_status_name(s));
        if (s == MD_OK) {
            gguf_walk(f);
            accepted++;
        }
        md_gguf_close(f);
        ck_assert_uint_eq(a.live_blocks, 0);
    }
    ck_assert_int_gt(accepted, 100); /* the values themselves, and the data */
}
END_TEST

/* Open, values and close; the file is as `path` says, or the one in memory. */
static bool a_run_with_faults(const char *path, long nth)
{
    struct fault_alloc a;
    struct md_gguf *f = NULL;
    struct md_err err = { 0 };
    fault_alloc_init(&a, nth);
    enum md_status s = path != NULL ? md_gguf_open_with(&a.alloc, path, &f, &err)
                                    : gw_open_bytes(w.buf.data, w.buf.len, &a.alloc, &f, &err);
    ck_assert_int_eq(s, a.failed ? MD_NO_MEMORY : MD_OK);
    ck_assert(a.failed == (f == NULL));
    ck_assert(!a.failed || strstr(err.text, "memory") != NULL);
    md_gguf_close(f);
    ck_assert_uint_eq(a.live_blocks, 0);
    ck_assert_int_eq(open_descriptors(), descriptors);
    return a.failed;
}

START_TEST(each_allocation_fails)
{
    long nth = 1;
    while (a_run_with_faults(NULL, nth))
        nth++;
    ck_assert_int_ge(nth, 7); /* object, path, keys, entries (twice), their order, tensors, their order */
}
END_TEST

START_TEST(each_allocation_fails_in_a_split_file)
{
    const char *tmp = getenv("TMPDIR");
    char paths[2][200];
    for (int i = 0; i < 2; i++) {
        struct gguf_writer part;
        snprintf(paths[i], sizeof paths[i], "%s/damage-%05d-of-00002.gguf", tmp != NULL ? tmp : "/tmp",
                 i + 1);
        gw_init(&part);
        gw_int(&part, "split.no", MD_GGUF_U16, i);
        gw_int(&part, "split.count", MD_GGUF_U16, 2);
        gw_int(&part, "split.tensors.count", MD_GGUF_I32, 2);
        gw_tensor(&part, i == 0 ? "a" : "b", GW_F32, (uint64_t[]){ 8 }, 1, 32);
        gw_zeros(&part);
        ck_assert_int_eq(gw_save(&part, paths[i], NULL), MD_OK);
        gw_done(&part);
    }
    long nth = 1;
    while (a_run_with_faults(paths[0], nth))
        nth++;
    ck_assert_int_ge(nth, 11); /* as above, and for the second part: its name, keys, entries, their order */
    unlink(paths[0]);
    unlink(paths[1]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf_damage");
    TCase *t = tcase_create("gguf_damage");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, cut_at_each_byte);
    tcase_add_test(t, each_byte_damaged);
    tcase_add_test(t, each_allocation_fails);
    tcase_add_test(t, each_allocation_fails_in_a_split_file);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
