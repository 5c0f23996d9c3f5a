/* test_gguf_split.c - models in several files, as llama.cpp names and marks them. */
#include "host/gguf.h"
#include "support/gguf_walk.h"
#include "support/gguf_writer.h"
#include "support/run_suite.h"
#include "support/temp_folder.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PARTS = 3 };

static char folder[160];
static struct md_err err;
static struct md_gguf *f;

static const char *part_path(int part, int count)
{
    static char paths[2][200]; /* so that one call can name two */
    static int which;
    char *path = paths[which = !which];
    snprintf(path, sizeof paths[0], "%s/m-%05d-of-%05d.gguf", folder, part, count);
    return path;
}

/* What a part says of itself; types too, for ggml takes no others. */
struct says {
    int no, count, tensors;
    enum md_gguf_type no_type, count_type, tensors_type;
};

static struct says right(int part)
{
    return (struct says){ part, PARTS, 4, MD_GGUF_U16, MD_GGUF_U16, MD_GGUF_I32 };
}

/* Part 0 has no tensor, part 1 one and part 2 three; an alignment of its own in part 2. */
static void write_part(int part, struct says says, const char *tensor)
{
    struct gguf_writer w;
    if (part == 0)
        gw_base12(&w);
    else
        gw_init(&w);
    if (says.no >= 0)
        gw_int(&w, "split.no", says.no_type, says.no);
    if (says.count >= 0)
        gw_int(&w, "split.count", says.count_type, says.count);
    if (says.tensors >= 0)
        gw_int(&w, "split.tensors.count", says.tensors_type, says.tensors);
    if (part == 2) {
        gw_u32(&w, "general.alignment", 64);
        w.alignment = 64;
    }
    const int tensors = part == 0 ? 0 : part * 2 - 1;
    for (int i = 0; i < tensors; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s%d", tensor, i);
        gw_tensor(&w, name, GW_F32, (uint64_t[]){ 8 }, 1, 32);
    }
    gw_zeros(&w);
    ck_assert_int_eq(gw_save(&w, part_path(part + 1, PARTS), NULL), MD_OK);
    gw_done(&w);
}

static void write_all(void)
{
    const char *tensors[] = { "", "b", "c" };
    for (int i = 0; i < PARTS; i++)
        write_part(i, right(i), tensors[i]);
}

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

static void refused(const char *path, enum md_status status, const char *a, const char *b)
{
    const int before = open_descriptors();
    ck_assert_msg(md_gguf_open(path, &f, &err) == status, "%s", err.text);
    ck_assert_msg(strstr(err.text, a) != NULL && strstr(err.text, b) != NULL, "%s", err.text);
    ck_assert_int_eq(open_descriptors(), before);
}

static void setup(void)
{
    md_temp_folder(folder, sizeof folder, "gguf-split");
    write_all();
}

static void teardown(void)
{
    for (int i = 1; i <= PARTS; i++)
        unlink(part_path(i, PARTS));
    rmdir(folder);
}

START_TEST(all_parts)
{
    const int before = open_descriptors();
    ck_assert_msg(md_gguf_open(part_path(1, PARTS), &f, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(open_descriptors(), before + 1); /* only the first, for values */
    ck_assert_int_eq(md_gguf_part_count(f), PARTS);
    ck_assert_str_eq(md_gguf_path(f), part_path(1, PARTS));
    ck_assert_uint_eq(md_gguf_tensor_count(f), 4);
    ck_assert_int_eq(md_gguf_tensor_bytes(f), 4 * 32);
    ck_assert_uint_eq(md_gguf_entry_count(f), 9);
    ck_assert_uint_eq(md_gguf_alignment(f), 32);
    const struct md_gguf_tensor *t = md_gguf_tensor_at(f, 3);
    ck_assert_str_eq(t->name, "c2");
    ck_assert_int_eq(t->part, 2);
    ck_assert_uint_eq(t->offset % 64, 0);
    ck_assert_uint_eq(t->offset - md_gguf_tensor_at(f, 2)->offset, 64);
    gguf_walk(f);
    md_gguf_close(f);
}
END_TEST

static uint64_t fingerprint(void)
{
    uint64_t hash = 0;
    ck_assert_msg(md_gguf_open(part_path(1, PARTS), &f, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_gguf_fingerprint(f, &hash, &err) == MD_OK, "%s", err.text);
    md_gguf_close(f);
    return hash;
}

/* The last byte of each is one of a weight, or of padding. */
START_TEST(one_byte_of_any_part_is_another_model)
{
    const uint64_t whole = fingerprint();
    ck_assert_uint_eq(fingerprint(), whole);
    for (int i = 1; i <= PARTS; i++) {
        FILE *file = fopen(part_path(i, PARTS), "r+b");
        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fseek(file, -1, SEEK_END), 0);
        ck_assert_int_eq(fputc(1, file), 1);
        ck_assert_int_eq(fclose(file), 0);
        ck_assert_msg(fingerprint() != whole, "part %d", i);
        write_all();
        ck_assert_uint_eq(fingerprint(), whole);
    }
}
END_TEST

START_TEST(missing_parts)
{
    unlink(part_path(2, PARTS));
    refused(part_path(1, PARTS), MD_NOT_FOUND, "part 2 of 3 is missing", part_path(2, PARTS));
    write_all();
    unlink(part_path(3, PARTS));
    refused(part_path(1, PARTS), MD_NOT_FOUND, "part 3 of 3 is missing", part_path(3, PARTS));
}
END_TEST

START_TEST(later_parts)
{
    refused(part_path(2, PARTS), MD_INVALID, "split.no 1 of 3 is not the first", "-00001-of-00003.gguf");
    refused(part_path(3, PARTS), MD_INVALID, "split.no 2 of 3 is not the first", "-00001-of-00003.gguf");
}
END_TEST

START_TEST(parts_that_disagree)
{
    struct says s = right(2);
    s.no = 1;
    write_part(2, s, "c");
    refused(part_path(1, PARTS), MD_INVALID, "split.no 1 and split.count 3, expected 2 and 3",
            "-00003-of-00003.gguf");
    s = right(2);
    s.count = 4;
    write_part(2, s, "c");
    refused(part_path(1, PARTS), MD_INVALID, "split.no 2 and split.count 4", "-00003-of-00003.gguf");
    s = right(2);
    s.no = s.count = -1;
    write_part(2, s, "c");
    refused(part_path(1, PARTS), MD_INVALID, "split.no -1", "-00003-of-00003.gguf");
    write_part(2, right(2), "b"); /* b0 is in part 2 too */
    refused(part_path(1, PARTS), MD_INVALID, "tensor 'b0' is there twice", "of part 3");
    write_all();
    ck_assert_int_eq(truncate(part_path(2, PARTS), 60), 0);
    refused(part_path(1, PARTS), MD_INVALID, "in the file", "-00002-of-00003.gguf");
}
END_TEST

START_TEST(a_first_part_that_is_wrong)
{
    struct says s = right(0);
    s.tensors = 5;
    write_part(0, s, "");
    refused(part_path(1, PARTS), MD_INVALID, "split.tensors.count is 5", "the parts have 4");
    s.tensors = -1;
    write_part(0, s, "");
    refused(part_path(1, PARTS), MD_INVALID, "split.tensors.count is -1", "the parts have 4");
    s = right(0);
    s.tensors_type = MD_GGUF_U32;
    write_part(0, s, "");
    refused(part_path(1, PARTS), MD_INVALID, "key 'split.tensors.count'", "u32, but i32 is required");
    s = right(0);
    s.no_type = MD_GGUF_I32;
    write_part(0, s, "");
    refused(part_path(1, PARTS), MD_INVALID, "key 'split.no'", "i32, but u16 is required");
    s = right(0);
    s.count_type = MD_GGUF_U8;
    write_part(0, s, "");
    refused(part_path(1, PARTS), MD_INVALID, "key 'split.count'", "u8, but u16 is required");
    s = right(0);
    s.no = -1;
    write_part(0, s, "");
    refused(part_path(1, PARTS), MD_INVALID, "split.no -1 of 3 is not the first", "");
    s = right(0);
    s.count = 4; /* the name says 3 */
    write_part(0, s, "");
    refused(part_path(1, PARTS), MD_INVALID, "does not end in -00001-of-00004.gguf", "-00001-of-00003.gguf");
    s.count = 1025;
    write_part(0, s, "");
    refused(part_path(1, PARTS), MD_INVALID, "1025 parts, at most 1024", "");
    for (int count = 0; count < 2; count++) { /* llama.cpp: not split, whatever the rest says */
        s = right(0);
        s.count = count;
        write_part(0, s, "");
        ck_assert_int_eq(md_gguf_open(part_path(1, PARTS), &f, &err), MD_OK);
        ck_assert_int_eq(md_gguf_part_count(f), 1);
        md_gguf_close(f);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf_split");
    TCase *t = tcase_create("gguf_split");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, all_parts);
    tcase_add_test(t, one_byte_of_any_part_is_another_model);
    tcase_add_test(t, missing_parts);
    tcase_add_test(t, later_parts);
    tcase_add_test(t, parts_that_disagree);
    tcase_add_test(t, a_first_part_that_is_wrong);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
