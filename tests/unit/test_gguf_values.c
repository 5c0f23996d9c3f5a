/* test_gguf_values.c - what the keys of a GGUF file say: each getter, each of its refusals, the text for
 * people, and files that change after they were opened. */
#include "host/gguf.h"
#include "support/fault_alloc.h"
#include "support/gguf_writer.h"
#include "support/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct md_gguf *f;
static struct md_err err;

static void open_and_done(struct gguf_writer *w)
{
    ck_assert_msg(gw_open(w, NULL, &f, &err) == MD_OK, "%s", err.text);
    gw_done(w);
}

static void close_file(void)
{
    md_gguf_close(f);
    f = NULL;
}

/* The last refusal has each of these words. */
static void said(const char *a, const char *b)
{
    ck_assert_msg(strstr(err.text, a) != NULL && strstr(err.text, b) != NULL, "%s", err.text);
}

START_TEST(integers)
{
    static const struct {
        enum md_gguf_type type;
        int64_t v;
    } all[] = { { MD_GGUF_U8, 255 },        { MD_GGUF_I8, -128 },        { MD_GGUF_U16, 65535 },
                { MD_GGUF_I16, -32768 },    { MD_GGUF_U32, 4294967295 }, { MD_GGUF_I32, INT32_MIN },
                { MD_GGUF_U64, INT64_MAX }, { MD_GGUF_I64, INT64_MIN },  { MD_GGUF_BOOL, 0 },
                { MD_GGUF_BOOL, 1 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct gguf_writer w;
        int64_t v = 77;
        gw_init(&w);
        gw_int(&w, "n", all[i].type, all[i].v);
        open_and_done(&w);
        ck_assert_int_eq(md_gguf_int(f, "n", INT64_MIN, INT64_MAX, &v, &err), MD_OK);
        ck_assert_int_eq(v, all[i].v);
        ck_assert_int_eq(md_gguf_int(f, "n", all[i].v, all[i].v, &v, &err), MD_OK);
        v = 77;
        if (all[i].v < INT64_MAX)
            ck_assert_int_eq(md_gguf_int(f, "n", all[i].v + 1, INT64_MAX, &v, &err), MD_INVALID);
        if (all[i].v > INT64_MIN)
            ck_assert_int_eq(md_gguf_int(f, "n", INT64_MIN, all[i].v - 1, &v, &err), MD_INVALID);
        ck_assert_int_eq(v, 77);
        close_file();
    }
}
END_TEST

START_TEST(integers_that_are_none)
{
    struct gguf_writer w;
    int64_t v = 77;
    gw_init(&w);
    gw_int(&w, "big", MD_GGUF_U64, -1);
    gw_int(&w, "two", MD_GGUF_BOOL, 2);
    gw_f32(&w, "real", 1);
    gw_string(&w, "text", "1");
    gw_ints(&w, "array", MD_GGUF_U32, (int64_t[]){ 1 }, 1);
    open_and_done(&w);
    ck_assert_int_eq(md_gguf_int(f, "big", INT64_MIN, INT64_MAX, &v, &err), MD_INVALID);
    said("key 'big'", "18446744073709551615 is not from");
    ck_assert_int_eq(md_gguf_int(f, "two", 0, 9, &v, &err), MD_INVALID);
    said("key 'two'", "a bool is 2");
    ck_assert_int_eq(md_gguf_int(f, "real", 0, 9, &v, &err), MD_INVALID);
    said("key 'real'", "expected an integer, found f32");
    ck_assert_int_eq(md_gguf_int(f, "text", 0, 9, &v, &err), MD_INVALID);
    said("key 'text'", "expected an integer, found string");
    ck_assert_int_eq(md_gguf_int(f, "array", 0, 9, &v, &err), MD_INVALID);
    said("key 'array'", "expected an integer, found an array of u32");
    ck_assert_int_eq(md_gguf_int(f, "none", 0, 9, &v, &err), MD_NOT_FOUND);
    said("key 'none'", "is not in");
    ck_assert_int_eq(v, 77);
    close_file();
}
END_TEST

START_TEST(integers_for_each_layer)
{
    struct gguf_writer w;
    int64_t v[4] = { 0 };
    const enum md_gguf_type types[] = { MD_GGUF_U8, MD_GGUF_I32, MD_GGUF_U64, MD_GGUF_BOOL };
    gw_init(&w);
    gw_u32(&w, "one", 4);
    for (int i = 0; i < 4; i++)
        gw_ints(&w, (char[]){ (char)('a' + i), '\0' }, types[i], (int64_t[]){ 1, 0, 1 }, 3);
    gw_ints(&w, "empty", MD_GGUF_U32, NULL, 0);
    gw_ints(&w, "minus", MD_GGUF_I32, (int64_t[]){ 1, -2 }, 2);
    gw_ints(&w, "bools", MD_GGUF_BOOL, (int64_t[]){ 1, 3 }, 2);
    gw_strings(&w, "text", (const char *[]){ "1" }, 1);
    gw_f32(&w, "real", 4);
    open_and_done(&w);
    ck_assert_int_eq(md_gguf_ints(f, "one", 0, 9, v, 4, &err), MD_OK);
    ck_assert(v[0] == 4 && v[1] == 4 && v[2] == 4 && v[3] == 4);
    for (int i = 0; i < 4; i++) {
        memset(v, 0x55, sizeof v);
        ck_assert_int_eq(md_gguf_ints(f, (char[]){ (char)('a' + i), '\0' }, 0, 9, v, 3, &err), MD_OK);
        ck_assert(v[0] == 1 && v[1] == 0 && v[2] == 1 && v[3] == 0x5555555555555555);
    }
    ck_assert_int_eq(md_gguf_ints(f, "empty", 0, 9, v, 0, &err), MD_OK);
    ck_assert_int_eq(md_gguf_ints(f, "empty", 0, 9, v, 4, &err), MD_INVALID);
    said("key 'empty'", "expected 4, found 0");
    ck_assert_int_eq(md_gguf_ints(f, "a", 0, 9, v, 2, &err), MD_INVALID);
    said("key 'a'", "expected 2, found 3");
    ck_assert_int_eq(md_gguf_ints(f, "a", 0, 9, v, 4, &err), MD_INVALID);
    said("key 'a'", "expected 4, found 3");
    ck_assert_int_eq(md_gguf_ints(f, "minus", 0, 9, v, 2, &err), MD_INVALID);
    said("key 'minus'", "-2 is not from 0 to 9");
    ck_assert_int_eq(md_gguf_ints(f, "one", 5, 9, v, 2, &err), MD_INVALID);
    said("key 'one'", "4 is not from 5 to 9");
    ck_assert_int_eq(md_gguf_ints(f, "bools", 0, 9, v, 2, &err), MD_INVALID);
    said("key 'bools'", "a bool is 3");
    ck_assert_int_eq(md_gguf_ints(f, "text", 0, 9, v, 1, &err), MD_INVALID);
    said("key 'text'", "found an array of string");
    ck_assert_int_eq(md_gguf_ints(f, "real", 0, 9, v, 1, &err), MD_INVALID);
    ck_assert_int_eq(md_gguf_ints(f, "none", 0, 9, v, 1, &err), MD_NOT_FOUND);
    close_file();
}
END_TEST

START_TEST(reals)
{
    struct gguf_writer w;
    double v = 77;
    gw_init(&w);
    gw_f32(&w, "half", 0.5f);
    gw_f64(&w, "tenth", 0.1);
    gw_f32(&w, "nan", NAN);
    gw_f32(&w, "inf", -INFINITY);
    gw_f64(&w, "inf64", INFINITY);
    gw_u32(&w, "int", 1);
    gw_array(&w, "array", MD_GGUF_F32, 1);
    gw_put_u32(&w, 0);
    open_and_done(&w);
    ck_assert(md_gguf_real(f, "half", &v, &err) == MD_OK && v == 0.5);
    ck_assert(md_gguf_real(f, "tenth", &v, &err) == MD_OK && v == 0.1);
    const char *wrong[] = { "nan", "inf", "inf64", "int", "array" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(md_gguf_real(f, wrong[i], &v, &err), MD_INVALID);
        said(wrong[i], i < 3 ? "is not a finite number" : "expected f32 or f64, found");
    }
    ck_assert_int_eq(md_gguf_real(f, "none", &v, &err), MD_NOT_FOUND);
    ck_assert(v == 0.1);
    close_file();
}
END_TEST

START_TEST(strings)
{
    struct gguf_writer w;
    char out[40];
    gw_init(&w);
    gw_string(&w, "name", "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82z"); /* 1, 2, 3 and 4 bytes, then one */
    gw_entry(&w, "nul", MD_GGUF_STRING);
    gw_put_u64(&w, 3);
    gw_put(&w, "a\0b", 3);
    gw_string(&w, "empty", "");
    gw_string(&w, "broken", "\x80\x80\x80\x80\x80\x80"); /* no character begins here */
    gw_u32(&w, "int", 1);
    gw_strings(&w, "array", (const char *[]){ "x" }, 1);
    open_and_done(&w);
    /* room for n bytes and the NUL: whole characters only */
    const size_t kept[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11 };
    for (size_t room = 0; room < sizeof kept / sizeof kept[0]; room++) {
        memset(out, 'x', sizeof out);
        ck_assert_int_eq(md_gguf_string(f, "name", out, room + 1, &err), MD_OK);
        ck_assert_uint_eq(strlen(out), kept[room]);
        ck_assert_int_eq(out[room + 1], 'x');
    }
    ck_assert_str_eq(out, "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82z");
    ck_assert_int_eq(md_gguf_string(f, "nul", out, sizeof out, &err), MD_OK);
    ck_assert_str_eq(out, "a?b");
    ck_assert_int_eq(md_gguf_string(f, "empty", out, 1, &err), MD_OK);
    ck_assert_str_eq(out, "");
    ck_assert_int_eq(md_gguf_string(f, "broken", out, 6, &err), MD_OK);
    ck_assert_str_eq(out, "\x80\x80\x80\x80\x80");
    ck_assert_int_eq(md_gguf_string(f, "int", out, sizeof out, &err), MD_INVALID);
    said("key 'int'", "expected a string, found u32");
    ck_assert_int_eq(md_gguf_string(f, "array", out, sizeof out, &err), MD_INVALID);
    said("key 'array'", "expected a string, found an array of string");
    ck_assert_int_eq(md_gguf_string(f, "none", out, sizeof out, &err), MD_NOT_FOUND);
    close_file();
}
END_TEST

/* Strings of all lengths around the reader's buffer, each byte by its place. */
enum { LONGEST = 50000 };
static char long_text[LONGEST + 1];

struct lengths {
    const size_t *next;
    int left;
};

static enum md_status check_long(void *user, const char *text, size_t len, struct md_err *e)
{
    struct lengths *l = user;
    ck_assert_uint_eq(len, *l->next++);
    ck_assert(memcmp(text, long_text, len) == 0);
    return --l->left == 0 ? md_fail(e, MD_CANCELLED, "enough") : MD_OK;
}

START_TEST(each_string)
{
    static const size_t lengths[] = { 0, 1, 16383, 16384, 16385, 3, 0, LONGEST, 7, 20000, 8000, 8384, 0 };
    enum { N = sizeof lengths / sizeof lengths[0] };
    struct gguf_writer w;
    struct fault_alloc a;
    for (size_t i = 0; i < LONGEST; i++)
        long_text[i] = (char)('a' + i * 7 % 26);
    gw_init(&w);
    gw_array(&w, "texts", MD_GGUF_STRING, N);
    for (int i = 0; i < N; i++) {
        gw_put_u64(&w, lengths[i]);
        gw_put(&w, long_text, lengths[i]);
    }
    gw_strings(&w, "none of them", NULL, 0);
    gw_string(&w, "text", "x");
    gw_u32(&w, "int", 1);
    fault_alloc_init(&a, 0);
    ck_assert_int_eq(gw_open(&w, &a.alloc, &f, &err), MD_OK);
    gw_done(&w);
    const size_t live = a.live_blocks;
    struct lengths l = { lengths, N + 1 };
    ck_assert_int_eq(md_gguf_each_string(f, "texts", check_long, &l, &err), MD_OK);
    ck_assert_int_eq(l.left, 1);
    l = (struct lengths){ lengths, 8 };
    ck_assert_int_eq(md_gguf_each_string(f, "texts", check_long, &l, &err), MD_CANCELLED);
    ck_assert_str_eq(err.text, "enough");
    fault_alloc_arm(&a, 1);
    l = (struct lengths){ lengths, N + 1 };
    ck_assert_int_eq(md_gguf_each_string(f, "texts", check_long, &l, &err), MD_NO_MEMORY);
    ck_assert_uint_eq(a.live_blocks, live);
    ck_assert_int_eq(md_gguf_each_string(f, "none of them", check_long, &l, &err), MD_OK);
    ck_assert_int_eq(md_gguf_each_string(f, "text", check_long, &l, &err), MD_INVALID);
    said("key 'text'", "expected an array of strings, found string");
    ck_assert_int_eq(md_gguf_each_string(f, "int", check_long, &l, &err), MD_INVALID);
    ck_assert_int_eq(md_gguf_each_string(f, "none", check_long, &l, &err), MD_NOT_FOUND);
    close_file();
    ck_assert_uint_eq(a.live_blocks, 0);
}
END_TEST

/* key, room, text */
static void shows(const char *key, size_t room, const char *text)
{
    char out[600];
    memset(out, 'x', sizeof out);
    md_gguf_value_text(f, md_gguf_find(f, key), out, room);
    ck_assert_str_eq(out, text);
    ck_assert(room == sizeof out || out[room] == 'x');
}

START_TEST(text_for_people)
{
    struct gguf_writer w;
    int64_t many[100], seven[] = { 1, 2, 3, 4, 5, 6, 7 };
    for (int i = 0; i < 100; i++)
        many[i] = i % 2;
    gw_init(&w);
    gw_u32(&w, "int", 12);
    gw_int(&w, "minus", MD_GGUF_I64, INT64_MIN);
    gw_int(&w, "big", MD_GGUF_U64, -1);
    gw_bool(&w, "yes", true);
    gw_int(&w, "two", MD_GGUF_BOOL, 2);
    gw_f32(&w, "real", 0.1f);
    gw_f64(&w, "real64", 0.1);
    gw_f32(&w, "nan", NAN);
    gw_string(&w, "text", "a\n\"\\\t\x1b[1m\x7f\xc2\x9b\xff\xc3\xa4");
    gw_string(&w, "long", "0123456789012345678901234567890123456789012345678901234567890123456789");
    gw_ints(&w, "ints", MD_GGUF_U32, seven, 7);
    gw_ints(&w, "many", MD_GGUF_BOOL, many, 100);
    gw_ints(&w, "empty", MD_GGUF_I8, NULL, 0);
    gw_strings(&w, "texts", (const char *[]){ "<s>", "0123456789012345678901234" }, 2);
    open_and_done(&w);
    shows("int", 600, "12");
    shows("minus", 600, "-9223372036854775808");
    shows("big", 600, "18446744073709551615");
    shows("yes", 600, "true");
    shows("two", 600, "?");
    shows("real", 600, "0.1");
    shows("real64", 600, "0.1");
    shows("nan", 600, "nan");
    shows("text", 600, "\"a\\n\\\"\\\\\\t\\x1b[1m\\x7f\\xc2\\x9b\\xff\xc3\xa4\"");
    shows("long", 600, "\"0123456789012345678901234567890123456789012345678901234567890123...\"");
    shows("ints", 600, "[1, 2, 3, 4, 5, 6, 7] (7 x u32)");
    shows("ints", 37, "[1, 2, 3, 4, 5, 6, 7] (7 x u32)");
    shows("ints", 24, "[1, 2, ...] (7 x u32)");
    shows("ints", 8, "[...] (");
    shows("empty", 600, "[] (0 x i8)");
    shows("texts", 600, "[\"<s>\", \"012345678901234567890123...\"] (2 x string)");
    char all[600];
    md_gguf_value_text(f, md_gguf_find(f, "many"), all, sizeof all);
    ck_assert_ptr_nonnull(strstr(all, "false, true, ...] (100 x bool)"));
    int commas = 0;
    for (const char *c = all; *c != '\0'; c++)
        commas += *c == ',';
    ck_assert_int_eq(commas, 64); /* as many are shown */
    close_file();
}
END_TEST

/* ---- the file changes while it is open ---- */

static void ask_all(enum md_status a, enum md_status b)
{
    int64_t v[3];
    double real;
    char text[20];
    struct lengths l = { NULL, 0 };
    const enum md_status got[] = { md_gguf_int(f, "int", 0, 9, v, &err),
                                   md_gguf_ints(f, "ints", 0, 9, v, 3, &err),
                                   md_gguf_real(f, "real", &real, &err),
                                   md_gguf_string(f, "text", text, sizeof text, &err),
                                   md_gguf_each_string(f, "texts", check_long, &l, &err) };
    for (size_t i = 0; i < sizeof got / sizeof got[0]; i++)
        ck_assert_msg(got[i] == a || got[i] == b, "%zu: %s", i, md_status_name(got[i]));
    for (size_t i = 0; i < md_gguf_entry_count(f); i++) {
        char out[100];
        md_gguf_value_text(f, md_gguf_entry_at(f, i), out, sizeof out);
        ck_assert(a != MD_IO || strcmp(out, "?") == 0);
    }
}

START_TEST(files_that_change)
{
    struct gguf_writer w;
    char path[200];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/gguf-changes", folder != NULL ? folder : "/tmp");
    gw_init(&w);
    gw_u32(&w, "int", 1);
    gw_ints(&w, "ints", MD_GGUF_U64, (int64_t[]){ 1, 2, 3 }, 3);
    gw_f32(&w, "real", 1);
    gw_string(&w, "text", "x");
    gw_strings(&w, "texts", (const char *[]){ "x", "y" }, 2);
    ck_assert_int_eq(gw_save(&w, path, NULL), MD_OK);
    ck_assert_int_eq(md_gguf_open(path, &f, &err), MD_OK);
    int fd = open(path, O_WRONLY);
    /* each length is now 2^64 - 1, and each number is too large */
    memset(w.buf.data, 0xff, w.buf.len);
    ck_assert_int_eq(pwrite(fd, w.buf.data, w.buf.len, 0), (ssize_t)w.buf.len);
    ask_all(MD_INVALID, MD_INVALID);
    said("10 are left in the metadata", "the file was changed");
    ck_assert_int_eq(ftruncate(fd, 30), 0);
    ask_all(MD_IO, MD_IO);
    said("the file was cut since it was opened", path);
    close(fd);
    unlink(path);
    close_file();
    gw_done(&w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf_values");
    TCase *t = tcase_create("gguf_values");
    tcase_add_test(t, integers);
    tcase_add_test(t, integers_that_are_none);
    tcase_add_test(t, integers_for_each_layer);
    tcase_add_test(t, reals);
    tcase_add_test(t, strings);
    tcase_add_test(t, each_string);
    tcase_add_test(t, text_for_people);
    tcase_add_test(t, files_that_change);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
