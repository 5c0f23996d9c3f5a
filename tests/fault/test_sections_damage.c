/* test_sections_damage.c - a file of sections with each byte changed, cut, longer, with right hashes in wrong
 * places, and changed while it is open: never accepted, and the text says where.  B064 and B065 are cases of
 * the project's list. */
#include "host/sections_internal.h"
#include "support/run_suite.h"
#include "support/sections_folder.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- damage ---- */

/* All that a file can have in it: padding, none, an empty section. */
static void small_file(struct sections_spec *f)
{
    ss_begin(f, 1, SS_KIND);
    ss_section(f, "TAPE", 0, "abc", 3);
    ss_section(f, "KVKV", 0, NULL, 0);
    ss_section(f, "META", 0, "12345678", 8);
    ss_section(f, "A  B", 0, "0123456789", 10);
    ss_end(f);
}

static enum md_status open_saved(const void *data, size_t len, struct md_err *err)
{
    struct md_sections_reader *r = NULL;
    sf_save("k", data, len);
    *err = (struct md_err){ 0 };
    const enum md_status s = sf_open("k", INT64_MAX, &r, err);
    ck_assert((s == MD_OK) == (r != NULL));
    ck_assert(s == MD_OK || (err->status == s && strstr(err->text, sf_path("k")) != NULL));
    md_sections_close(r);
    return s;
}

START_TEST(each_byte_flipped)
{
    static const uint8_t masks[] = { 0x01, 0x80, 0x20, 0xff };
    struct sections_spec f;
    struct md_err err;
    small_file(&f);
    ck_assert_msg(open_saved(f.buf.data, f.buf.len, &err) == MD_OK, "%s", err.text);
    for (size_t i = 0; i < f.buf.len * sizeof masks; i++) {
        const size_t at = i / sizeof masks;
        const uint8_t good = f.buf.data[at];
        f.buf.data[at] ^= masks[i % sizeof masks];
        const enum md_status s = open_saved(f.buf.data, f.buf.len, &err);
        f.buf.data[at] = good;
        /* version and kind are numbers that could be meant; all else is damage */
        ck_assert_msg(s == (at >= 8 && at < 12    ? MD_UNSUPPORTED
                            : at >= 12 && at < 16 ? MD_INVALID
                                                  : MD_CORRUPT),
                      "byte %zu: %s: %s", at, md_status_name(s), err.text);
        ck_assert_msg(s != MD_CORRUPT || strstr(err.text, "byte ") != NULL, "%s", err.text);
    }
    ss_done(&f);
}
END_TEST

START_TEST(cut_and_added)
{
    struct sections_spec f;
    struct md_err err;
    small_file(&f);
    for (size_t len = 0; len < f.buf.len; len++)
        ck_assert_int_eq(open_saved(f.buf.data, len, &err), MD_CORRUPT);
    const size_t whole = f.buf.len;
    for (int i = 0; i < 64; i++) {
        ck_assert_int_eq(md_buf_append(&f.buf, i < 32 ? "" : "x", 1, NULL), MD_OK);
        ck_assert_int_eq(open_saved(f.buf.data, f.buf.len, &err), MD_CORRUPT);
    }
    f.buf.len = whole; /* its own end a second time */
    ck_assert_int_eq(md_buf_append(&f.buf, f.buf.data + whole - 48, 48, NULL), MD_OK);
    ck_assert_int_eq(open_saved(f.buf.data, f.buf.len, &err), MD_CORRUPT);
    ck_assert_msg(strstr(err.text, "it has an end at byte") != NULL, "%s", err.text);
    ss_done(&f);
}
END_TEST

/* Hashes that are right where they stand do not make a file right. */
static void wrong_padding(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, "abc", 3);
    f->buf.data[f->buf.len - 1] = 1;
    ss_end(f);
}

static void wrong_count(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, "abc", 3);
    f->count++;
    ss_end(f);
}

/* The end by itself is right, but one of its numbers is not. */
static void wrong_in_the_end(struct sections_spec *f, size_t at)
{
    uint8_t payload[24];
    ss_section(f, "TAPE", 0, "abc", 3);
    const size_t end_at = f->buf.len;
    ss_end(f);
    memcpy(payload, f->buf.data + end_at + 24, sizeof payload);
    payload[at] ^= 1;
    f->buf.len = end_at;
    ss_section(f, "END ", 0, payload, sizeof payload);
}

static void wrong_low_half(struct sections_spec *f)
{
    wrong_in_the_end(f, 15);
}

static void wrong_high_half(struct sections_spec *f)
{
    wrong_in_the_end(f, 16);
}

static void exchanged(struct sections_spec *f)
{
    uint8_t first[32];
    ss_section(f, "TAPE", 0, "abc", 3);
    ss_section(f, "META", 0, "def", 3);
    ss_end(f);
    memcpy(first, f->buf.data + 32, 32);
    memcpy(f->buf.data + 32, f->buf.data + 64, 32);
    memcpy(f->buf.data + 64, first, 32);
}

static void end_inside(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, "abc", 3);
    ss_end(f);
    ss_section(f, "TAPE", 0, "abc", 3);
    ss_end(f);
}

static void no_room_for_a_head(struct sections_spec *f)
{
    ck_assert_int_eq(md_buf_append(&f->buf, "\0\0\0\0\0\0\0\0", 8, NULL), MD_OK);
    ss_end(f);
}

static void no_padding(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, "abc", 3);
    f->buf.len -= 5;
    ss_end(f);
    f->buf.len = 32 + 24 + 3 + 48; /* the end has no need of any */
}

static void one_too_long(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, "12345678", 8);
    f->buf.data[32 + 8] = 9;
    ss_end(f);
}

static void length_of_64_bits(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, "12345678", 8);
    memset(f->buf.data + 32 + 8, 0xff, 8);
    ss_end(f);
}

static void reserved_set(struct sections_spec *f)
{
    f->buf.data[31] = 1;
    ss_end(f);
}

static void end_with_flags(struct sections_spec *f)
{
    ss_section(f, "END ", 1, "0123456789abcdef01234567", 24);
}

static void unknown_type(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, "abc", 3);
    ss_section(f, "LORA", 0, "abc", 3);
    ss_end(f);
}

static void no_text_for_a_type(struct sections_spec *f)
{
    ss_section(f, "\1\2\3\4", 0, "abc", 3);
    ss_end(f);
}

static void type_0(struct sections_spec *f)
{
    ss_section(f, "\0\0\0\0", 0, NULL, 0);
    ss_end(f);
}

static void with_flags(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0x80000000, "abc", 3);
    ss_end(f);
}

static void next_version(struct sections_spec *f)
{
    f->buf.data[8] = 2;
    ss_end(f);
}

static void other_kind(struct sections_spec *f)
{
    f->buf.data[12] = 8;
    ss_end(f);
}

static void other_file(struct sections_spec *f)
{
    memcpy(f->buf.data, "GGUF", 4);
    ss_end(f);
}

static const struct {
    const char *label;
    void (*fill)(struct sections_spec *f);
    enum md_status want;
    const char *text;
} wrong_files[] = {
    { "padding", wrong_padding, MD_CORRUPT, "section 'TAPE' ends with other bytes than 0 before byte 64" },
    { "count", wrong_count, MD_CORRUPT, "it has 1 sections, 2 by its end at byte 64" },
    { "low half", wrong_low_half, MD_CORRUPT, "the bytes before its end at byte 64 fail their checksum" },
    { "high half", wrong_high_half, MD_CORRUPT, "the bytes before its end at byte 64 fail their checksum" },
    { "order", exchanged, MD_CORRUPT, "the bytes before its end at byte 96 fail their checksum" },
    { "end inside", end_inside, MD_CORRUPT, "it has an end at byte 64 and goes on" },
    { "8 bytes", no_room_for_a_head, MD_CORRUPT, "no section fits between byte 32 and its end at 40" },
    { "no padding", no_padding, MD_CORRUPT, "it ends at byte 107, where no file can end" },
    { "one too long", one_too_long, MD_CORRUPT, "the section at byte 32 says 9 bytes, 8 are left" },
    { "64 bits", length_of_64_bits, MD_CORRUPT, "says 18446744073709551615 bytes, 8 are left" },
    { "reserved", reserved_set, MD_CORRUPT, "byte 31 is not 0" },
    { "end with flags", end_with_flags, MD_CORRUPT, "at byte 32 there is no end" },
    /* B065: never skipped, and named */
    { "unknown", unknown_type, MD_UNSUPPORTED,
      "has a section 'LORA' at byte 64, which this version does not know" },
    { "no text", no_text_for_a_type, MD_UNSUPPORTED, "has a section 0x04030201 at byte 32" },
    { "type 0", type_0, MD_UNSUPPORTED, "has a section 0x00000000 at byte 32" },
    { "flags", with_flags, MD_UNSUPPORTED, "section 'TAPE' at byte 32 has flags 0x80000000" },
    { "version", next_version, MD_UNSUPPORTED, "has version 2 of its format, this program reads version 1" },
    { "kind", other_kind, MD_INVALID, "is a file of kind 8, not 7" },
    { "other file", other_file, MD_CORRUPT, "no file of modeld" },
};

START_TEST(wrong_with_right_hashes)
{
    struct sections_spec f;
    struct md_err err;
    ss_begin(&f, 1, SS_KIND);
    wrong_files[_i].fill(&f);
    const enum md_status s = open_saved(f.buf.data, f.buf.len, &err);
    ck_assert_msg(s == wrong_files[_i].want && strstr(err.text, wrong_files[_i].text) != NULL, "%s: %s: %s",
                  wrong_files[_i].label, md_status_name(s), err.text);
    ss_done(&f);
}
END_TEST

/* B064: lengths of more than 31 and 32 bits, in files that are that long (sparse) and in one that is not. */
static const uint64_t huge[] = { (UINT64_C(1) << 31) + 5, (UINT64_C(1) << 32) + 5 };

START_TEST(sparse)
{
    struct sections_spec f;
    struct md_err err;
    struct md_sections_reader *r = NULL;
    ss_begin(&f, 1, SS_KIND);
    ss_section(&f, "KVKV", 0, "abcde", 5);
    memcpy(f.buf.data + 32 + 8, &huge[_i], 8);
    ss_end(&f);
    ck_assert_int_eq(open_saved(f.buf.data, f.buf.len, &err),
                     MD_CORRUPT); /* 5 bytes if 32 bits were looked at */
    char says[60];
    snprintf(says, sizeof says, "says %" PRIu64 " bytes, 8 are left", huge[_i]);
    ck_assert_msg(strstr(err.text, says) != NULL, "%s", err.text);

    sf_save("k", f.buf.data, 32 + 24); /* no end: the file goes on with zeros only */
    ck_assert_int_eq(truncate(sf_path("k"), 32 + 24 + (off_t)huge[_i]), 0);
    ck_assert_int_eq(sf_open("k", INT64_MAX, &r, &err), MD_CORRUPT);
    ck_assert_int_eq(truncate(sf_path("k"), 32 + 24 + (off_t)huge[_i] + 3 + 48), 0);
    ck_assert_int_eq(sf_open("k", INT64_MAX, &r, &err), MD_CORRUPT);
    snprintf(says, sizeof says, "at byte %" PRIu64 " there is no end", 32 + 24 + huge[_i] + 3);
    ck_assert_msg(strstr(err.text, says) != NULL, "%s", err.text);
    ck_assert_int_eq(sf_open("k", 1 << 20, &r, &err), MD_TOO_LARGE);
    ss_done(&f);
}
END_TEST

/* The same with a right end: all of it is read, and refused by the section's checksum.  In memory, where
 * holes cost nothing. */
START_TEST(sparse_with_an_end)
{
    struct sections_spec f;
    struct md_err err;
    struct md_sections_reader *r = NULL;
    const off_t end_at = 32 + 24 + (off_t)huge[_i] + 3;
    ss_begin(&f, 1, SS_KIND);
    ss_section(&f, "KVKV", 0, "abcde", 5);
    memcpy(f.buf.data + 32 + 8, &huge[_i], 8);
    const int fd = memfd_create("sparse", MFD_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, f.buf.data, 32 + 24, 0), 32 + 24);
    const size_t at = f.buf.len;
    ss_end(&f);
    ck_assert_int_eq(pwrite(fd, f.buf.data + at, 48, end_at), 48);
    const struct md_sections_path path = { "memory" };
    ck_assert_int_eq(md_sections_open_fd(NULL, fd, &path, SS_KIND, ss_known, 4, INT64_MAX, &r, &err),
                     MD_CORRUPT);
    ck_assert_msg(strstr(err.text, "section 'KVKV' at byte 32 fails its checksum") != NULL, "%s", err.text);
    ss_done(&f);
}
END_TEST

/* ---- what changes while it is open ---- */

static enum md_status read_over_all(struct md_sections_reader *r, struct md_err *err)
{
    uint32_t type = 1;
    int64_t bytes;
    enum md_status s = MD_OK;
    while (s == MD_OK && type != 0)
        s = md_sections_next(r, &type, &bytes, err);
    return s;
}

START_TEST(changed_while_open)
{
    struct sections_spec f, got;
    struct md_err err;
    struct md_sections_reader *r = NULL;
    uint32_t type;
    int64_t bytes;
    small_file(&f);
    sf_save("k", f.buf.data, f.buf.len);
    ck_assert_int_eq(sf_open("k", INT64_MAX, &r, &err), MD_OK);
    const int fd = open(sf_path("k"), O_RDWR | O_CLOEXEC);
    for (size_t at = 32; at < f.buf.len; at++) {
        const uint8_t bad = f.buf.data[at] ^ 0x04;
        ck_assert_int_eq(pwrite(fd, &bad, 1, (off_t)at), 1);
        md_sections_rewind(r);
        ck_assert_msg(read_over_all(r, &err) == MD_CORRUPT, "byte %zu", at);
        md_sections_rewind(r);
        ck_assert_int_eq(ss_read_all(r, 3, &got, &err), MD_CORRUPT);
        /* and so it stays: also once the byte is as it was */
        ck_assert_int_eq(pwrite(fd, f.buf.data + at, 1, (off_t)at), 1);
        struct md_err again;
        ck_assert_int_eq(md_sections_next(r, &type, &bytes, &again), MD_CORRUPT);
        ck_assert_int_eq(md_sections_read(r, &bytes, 1, &again), MD_CORRUPT);
        ck_assert_str_eq(again.text, err.text);
    }
    md_sections_rewind(r);
    ck_assert_int_eq(ss_read_all(r, 3, &got, &err), MD_OK);
    ck_assert_mem_eq(got.buf.data, f.buf.data, f.buf.len);
    ss_done(&got);

    /* the last read of a section is the one that tells */
    char out[8];
    ck_assert_int_eq(pwrite(fd, "X", 1, 32 + 24), 1);
    md_sections_rewind(r);
    ck_assert_int_eq(md_sections_next(r, &type, &bytes, &err), MD_OK);
    ck_assert_int_eq(md_sections_read(r, out, 2, &err), MD_OK);
    ck_assert_int_eq(md_sections_read(r, out, 1, &err), MD_CORRUPT);

    /* a type that nobody knows is never given out, though its checksum is not looked at yet */
    ck_assert_int_eq(pwrite(fd, "L", 1, 32), 1);
    md_sections_rewind(r);
    ck_assert_int_eq(md_sections_next(r, &type, &bytes, &err), MD_CORRUPT);
    ck_assert_msg(strstr(err.text, "has changed since it was opened, at byte 32") != NULL, "%s", err.text);

    ck_assert_int_eq(ftruncate(fd, (off_t)f.buf.len - 1), 0);
    md_sections_rewind(r);
    ck_assert_int_eq(read_over_all(r, &err), MD_CORRUPT);
    ck_assert_int_eq(ftruncate(fd, 40), 0);
    md_sections_rewind(r);
    ck_assert_int_eq(read_over_all(r, &err), MD_CORRUPT);
    ck_assert_msg(strstr(err.text, "it has become shorter and ends at byte 40") != NULL, "%s", err.text);
    close(fd);
    md_sections_close(r);
    ss_done(&f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sections_damage");
    TCase *t = tcase_create("sections_damage");
    tcase_add_checked_fixture(t, sf_setup, sf_teardown);
    tcase_add_test(t, each_byte_flipped);
    tcase_add_test(t, cut_and_added);
    tcase_add_loop_test(t, wrong_with_right_hashes, 0, sizeof wrong_files / sizeof wrong_files[0]);
    tcase_add_loop_test(t, sparse, 0, 2);
    tcase_add_loop_test(t, sparse_with_an_end, 0, 2);
    tcase_add_test(t, changed_while_open);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
