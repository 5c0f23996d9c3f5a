/* test_gguf.c - opening GGUF files: the cases B001 B003 B005 B006 B007 B008 B017, and each refusal of
 * host/gguf.h.  Values are in test_gguf_values.c, split files in test_gguf_split.c. */
#include "host/gguf.h"
#include "support/fault_alloc.h"
#include "support/gguf_walk.h"
#include "support/gguf_writer.h"
#include "support/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* The file is refused with this status, and the text has each of `words` (separated by |).  At most
 * `peak` bytes were asked for on the way, and none is left. */
static void refused_within(struct gguf_writer *w, size_t peak, enum md_status status, const char *words)
{
    struct fault_alloc a;
    struct md_err err = { 0 };
    struct md_gguf *f = NULL;
    char all[256];
    fault_alloc_init(&a, 0);
    ck_assert_int_eq(gw_open(w, &a.alloc, &f, &err), status);
    ck_assert_ptr_null(f);
    ck_assert_uint_eq(a.live_blocks, 0);
    ck_assert_uint_le(a.peak_bytes, peak);
    snprintf(all, sizeof all, "%s", words);
    for (char *word = strtok(all, "|"); word != NULL; word = strtok(NULL, "|"))
        ck_assert_msg(strstr(err.text, word) != NULL, "no '%s' in: %s", word, err.text);
    gw_done(w);
}

static void refused(struct gguf_writer *w, const char *words)
{
    refused_within(w, MIB, MD_INVALID, words);
}

static struct md_gguf *opened(struct gguf_writer *w)
{
    struct md_err err = { 0 };
    struct md_gguf *f = NULL;
    ck_assert_msg(gw_open(w, NULL, &f, &err) == MD_OK, "%s", err.text);
    gguf_walk(f);
    gw_done(w);
    return f;
}

/* ---- the cases ---- */

START_TEST(b001_empty_key)
{
    struct gguf_writer w;
    gw_raw(&w, "47475546 03000000 0000000000000000 0100000000000000 0000000000000000 04000000 07000000");
    ck_assert_uint_eq(w.buf.len, 40);
    refused(&w, "entry 0: the key is empty|byte 24");
}
END_TEST

START_TEST(b003_string_longer_than_the_file)
{
    const char head[] = "47475546 03000000 0000000000000000 0100000000000000 0100000000000000 61 08000000 ";
    const char *lengths[] = { "FFFFFFFFFFFFFF7F", "0100000000000000" }; /* 2^63-1; bytes left + 1 */
    const char *words[] = { "key 'a'|9223372036854775807 bytes|0 are left|byte 45", "1 bytes|0 are left" };
    for (int i = 0; i < 2; i++) {
        struct timespec a, b;
        struct gguf_writer w;
        char hex[200];
        snprintf(hex, sizeof hex, "%s%s", head, lengths[i]);
        gw_raw(&w, hex);
        ck_assert_uint_eq(w.buf.len, 45);
        clock_gettime(CLOCK_MONOTONIC, &a);
        refused(&w, words[i]); /* within 1 MiB */
        clock_gettime(CLOCK_MONOTONIC, &b);
        ck_assert_int_lt((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000, 100);
    }
}
END_TEST

START_TEST(b005_counts_that_cannot_be)
{
    struct gguf_writer w;
    gw_raw(&w, "47475546 03000000 0000000000000000 0000000000000080");
    refused_within(&w, 64 << 10, MD_INVALID, "9223372036854775808 entries|0 bytes are left|byte 16");
    gw_raw(&w, "47475546 03000000 0000000000010000 0000000000000000");
    refused_within(&w, 64 << 10, MD_INVALID, "1099511627776 tensors|0 bytes are left|byte 8");
    /* 40 bytes are room for one tensor or three entries, not for both */
    gw_init(&w);
    gw_put(&w, (char[40]){ 0 }, 40);
    w.tensors = 1;
    w.entries = 2;
    refused(&w, "2 entries|1 tensors|40 bytes are left");
}
END_TEST

START_TEST(b006_shapes_that_cannot_be)
{
    static const struct {
        uint64_t dimensions[5];
        uint32_t count;
        const char *words;
    } all[] = {
        { { 64, 0, 8 }, 3, "tensor 'blk.0.w'|[64, 0, 8]|empty dimension" },
        { { 0 }, 1, "tensor 'blk.0.w'|[0]|empty dimension" },
        { { 2, 2, 2, 2, 2 }, 5, "tensor 'blk.0.w'|[2, 2, 2, 2, 2]|at most 4" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct gguf_writer w;
        gw_init(&w);
        gw_tensor(&w, "blk.0.w", GW_F16, all[i].dimensions, all[i].count, 64);
        gw_zeros(&w);
        refused(&w, all[i].words);
    }
}
END_TEST

START_TEST(b007_alignment)
{
    struct gguf_writer w;
    gw_base12(&w);
    gw_u32(&w, "general.alignment", 0);
    refused(&w, "general.alignment|0 is not a power of two");
    gw_base12(&w);
    gw_u32(&w, "general.alignment", 24);
    refused(&w, "general.alignment|24 is not a power of two");
    gw_base12(&w);
    gw_u32(&w, "general.alignment", 0x80000000);
    refused(&w, "data would begin at 2147483648|alignment 2147483648|file has 296 bytes");
    gw_base12(&w);
    gw_int(&w, "general.alignment", MD_GGUF_I32, 32);
    refused(&w, "key 'general.alignment'|i32|u32 is required");
    gw_base12(&w);
    gw_ints(&w, "general.alignment", MD_GGUF_U32, (int64_t[]){ 32 }, 1);
    refused(&w, "key 'general.alignment'|array of u32|u32 is required");

    gw_base12(&w);
    gw_u32(&w, "general.alignment", 64);
    w.alignment = 64;
    gw_tensor(&w, "a", GW_F32, (uint64_t[]){ 3 }, 1, 12);
    gw_tensor(&w, "b", GW_F32, (uint64_t[]){ 3 }, 1, 12);
    gw_zeros(&w);
    struct md_gguf *f = opened(&w);
    ck_assert_uint_eq(md_gguf_alignment(f), 64);
    ck_assert_uint_eq(md_gguf_data_offset(f) % 64, 0);
    ck_assert_uint_eq(md_gguf_tensor_at(f, 1)->offset, md_gguf_data_offset(f) + 64);
    md_gguf_close(f);

    gw_base12(&w); /* ggml takes it, the format does not */
    gw_u32(&w, "general.alignment", 4);
    refused(&w, "4 is not a power of two from 8 on");
}
END_TEST

/* Two tensors whose data ends where the file ends. */
static void two_tensors(struct gguf_writer *w)
{
    gw_base12(w);
    gw_tensor(w, "first", GW_F16, (uint64_t[]){ 64, 40 }, 2, 5120);
    gw_tensor(w, "last", GW_Q4_0, (uint64_t[]){ 512 }, 1, 288);
    gw_zeros(w);
}

START_TEST(b008_files_that_were_cut)
{
    struct gguf_writer w;
    two_tensors(&w);
    const size_t whole = w.buf.len;
    ck_assert_uint_eq(whole % 32, 0);
    char words[100];
    const struct {
        size_t len;
        const char *tensor;
        size_t needs;
    } cuts[] = { { whole - 1, "last", whole },
                 { whole - 4096, "first", whole - 288 },
                 { 0, NULL, 0 },
                 { whole / 2, "first", whole - 288 },
                 { 100, NULL, 0 } };
    gw_done(&w);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        two_tensors(&w);
        w.buf.len = cuts[i].len;
        snprintf(words, sizeof words, "file has %zu bytes|tensor '%s' needs %zu", cuts[i].len, cuts[i].tensor,
                 cuts[i].needs);
        refused(&w, cuts[i].tensor != NULL ? words : "left in the file");
    }
    gw_base12(&w);
    gw_tensor_at(&w, "far", GW_F32, (uint64_t[]){ 8 }, 1, UINT64_C(1) << 40);
    w.data_bytes = 32;
    gw_zeros(&w); /* data begins at 320, 1,099,511,627,776 and 32 bytes behind it */
    refused(&w, "file has 352 bytes, tensor 'far' needs 1099511628128");
}
END_TEST

START_TEST(b017_nested_arrays)
{
    struct gguf_writer w;
    gw_raw(&w, "47475546 03000000 0000000000000000 0100000000000000 0100000000000000 61 09000000 "
               "09000000 0100000000000000 09000000 0100000000000000");
    ck_assert_uint_eq(w.buf.len, 61);
    refused(&w, "key 'a'|nested arrays are not supported|byte 37");

    gw_init(&w);
    gw_array(&w, "a", MD_GGUF_ARRAY, 1);
    for (int i = 0; i < 100000; i++) {
        gw_put_u32(&w, MD_GGUF_ARRAY);
        gw_put_u64(&w, 1);
    }
    refused(&w, "nested arrays are not supported");
}
END_TEST

/* ---- what is right ---- */

START_TEST(what_a_file_has)
{
    struct gguf_writer w;
    two_tensors(&w);
    struct md_gguf *f = opened(&w);
    ck_assert_uint_eq(md_gguf_version(f), 3);
    ck_assert_int_eq(md_gguf_part_count(f), 1);
    ck_assert_uint_eq(md_gguf_entry_count(f), 6);
    /* 24 + (8 + 20 + 4) + length of the string */
    const struct md_gguf_entry *e = md_gguf_find(f, "general.architecture");
    ck_assert_ptr_eq(e, md_gguf_entry_at(f, 0));
    ck_assert_uint_eq(e->offset, 56);
    ck_assert_int_eq(e->type, MD_GGUF_STRING);
    ck_assert_ptr_null(md_gguf_find(f, "llama.block_coun"));
    ck_assert_ptr_null(md_gguf_find(f, ""));
    ck_assert_uint_eq(md_gguf_tensor_count(f), 2);
    const struct md_gguf_tensor *t = md_gguf_tensor_at(f, 1);
    ck_assert_str_eq(t->name, "last");
    ck_assert_str_eq(t->type, "q4_0");
    ck_assert_uint_eq(t->dimension_count, 1);
    ck_assert_uint_eq(t->dimensions[0], 512);
    ck_assert_uint_eq(t->dimensions[3], 1);
    ck_assert_int_eq(t->bytes, 288); /* 16 blocks of 18 bytes */
    ck_assert_uint_eq(t->offset, md_gguf_data_offset(f) + 5120);
    ck_assert_int_eq(md_gguf_tensor_bytes(f), 5408);
    md_gguf_close(f);
    md_gguf_close(NULL);
}
END_TEST

START_TEST(files_without_tensors)
{
    struct gguf_writer w;
    gw_base12(&w);
    ck_assert_uint_eq(w.buf.len, 263); /* as the cases say */
    struct md_gguf *f = opened(&w);
    ck_assert_uint_eq(md_gguf_data_offset(f), 263); /* not padded: there is no data */
    md_gguf_close(f);

    gw_init(&w); /* 24 bytes, nothing in it */
    f = opened(&w);
    ck_assert_uint_eq(md_gguf_entry_count(f), 0);
    ck_assert_ptr_null(md_gguf_find(f, "general.architecture"));
    md_gguf_close(f);

    gw_init(&w);
    w.buf.data[4] = 2;
    f = opened(&w);
    ck_assert_uint_eq(md_gguf_version(f), 2);
    md_gguf_close(f);
}
END_TEST

/* number, name, bytes of 256 values: written down from ggml 0.4.0's ggml_type_name and ggml_row_size. */
START_TEST(tensor_types)
{
    static const struct {
        uint32_t number;
        const char *name;
        int64_t bytes;
    } all[] = {
        { 0, "f32", 1024 },    { 1, "f16", 512 },     { 2, "q4_0", 144 },    { 3, "q4_1", 160 },
        { 6, "q5_0", 176 },    { 7, "q5_1", 192 },    { 8, "q8_0", 272 },    { 9, "q8_1", 288 },
        { 10, "q2_K", 84 },    { 11, "q3_K", 110 },   { 12, "q4_K", 144 },   { 13, "q5_K", 176 },
        { 14, "q6_K", 210 },   { 15, "q8_K", 292 },   { 16, "iq2_xxs", 66 }, { 17, "iq2_xs", 74 },
        { 18, "iq3_xxs", 98 }, { 19, "iq1_s", 50 },   { 20, "iq4_nl", 144 }, { 21, "iq3_s", 110 },
        { 22, "iq2_s", 82 },   { 23, "iq4_xs", 136 }, { 24, "i8", 256 },     { 25, "i16", 512 },
        { 26, "i32", 1024 },   { 27, "i64", 2048 },   { 28, "f64", 2048 },   { 29, "iq1_m", 56 },
        { 30, "bf16", 512 },   { 34, "tq1_0", 54 },   { 35, "tq2_0", 66 },   { 39, "mxfp4", 136 },
        { 40, "nvfp4", 144 },  { 41, "q1_0", 36 },    { 42, "q2_0", 72 },
    };
    size_t known = 0;
    for (uint32_t number = 0; number < 60; number++) {
        struct gguf_writer w;
        gw_init(&w);
        gw_tensor(&w, "x", number, (uint64_t[]){ 256 }, 1, 2048);
        gw_zeros(&w);
        if (known == sizeof all / sizeof all[0] || number != all[known].number) {
            refused(&w, "tensor 'x'|is not known or no longer in use");
            continue;
        }
        struct md_gguf *f = opened(&w);
        ck_assert_str_eq(md_gguf_tensor_at(f, 0)->type, all[known].name);
        ck_assert_int_eq(md_gguf_tensor_at(f, 0)->bytes, all[known].bytes);
        md_gguf_close(f);
        known++;
    }
    ck_assert_uint_eq(known, 35);
    struct gguf_writer w;
    gw_init(&w);
    gw_tensor(&w, "x", UINT32_MAX, (uint64_t[]){ 256 }, 1, 2048);
    gw_zeros(&w);
    refused(&w, "tensor type 4294967295");
}
END_TEST

/* ---- what is refused ---- */

START_TEST(not_this_format)
{
    static const struct {
        const char *hex;
        enum md_status status;
        const char *words;
    } all[] = {
        { "50 4B 03 04 0000000000000000 0000000000000000 00000000", MD_INVALID,
          "not a GGUF file|PK\\x03\\x04" },
        { "46 55 47 47 00000003 0000000000000000 0000000000000000", MD_INVALID, "big-endian" },
        { "47475546 00000003 0000000000000000 0000000000000000", MD_INVALID, "big-endian|0x03000000" },
        { "47475546 00000002 0000000000000000 0000000000000000", MD_INVALID, "big-endian" },
        { "47475546 00000000 0000000000000000 0000000000000000", MD_UNSUPPORTED, "version 0|2 and 3" },
        { "47475546 01000000 0000000000000000 0000000000000000", MD_UNSUPPORTED, "version 1|2 and 3" },
        { "47475546 04000000 0000000000000000 0000000000000000", MD_UNSUPPORTED, "version 4|2 and 3" },
        { "47475546 03000000 0000000000000000 00000000000000", MD_INVALID, "16 bytes, 15 are left" },
        { "47475546 03", MD_INVALID, "version needs 4 bytes, 1 are left" },
        { "474755", MD_INVALID, "magic needs 4 bytes, 3 are left" },
        { "", MD_INVALID, "magic needs 4 bytes, 0 are left" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct gguf_writer w;
        gw_raw(&w, all[i].hex);
        refused_within(&w, MIB, all[i].status, all[i].words);
    }
}
END_TEST

START_TEST(entries_that_cannot_be)
{
    struct gguf_writer w;
    gw_init(&w);
    gw_entry(&w, "k", 13);
    gw_put_u64(&w, 0);
    refused(&w, "key 'k'|value type 13 is not known");
    gw_init(&w);
    gw_array(&w, "k", 99, 1);
    gw_put_u64(&w, 0);
    refused(&w, "key 'k'|value type 99 is not known");
    gw_init(&w);
    gw_array(&w, "k", MD_GGUF_U64, 3);
    gw_put(&w, (char[23]){ 0 }, 23);
    refused(&w, "key 'k'|3 x u64|23 bytes are left");
    gw_init(&w);
    gw_array(&w, "k", MD_GGUF_F64, UINT64_C(1) << 61); /* x 8 is 0 in 64 bits */
    refused(&w, "key 'k'|2305843009213693952 x f64|0 bytes are left");
    gw_init(&w);
    gw_array(&w, "k", MD_GGUF_STRING, 2);
    gw_put_string(&w, "0123456789");
    refused(&w, "key 'k'|length of a string needs 8 bytes, 0 are left");
    gw_init(&w);
    gw_array(&w, "k", MD_GGUF_STRING, 1);
    gw_put_u64(&w, UINT64_MAX);
    refused(&w, "key 'k'|18446744073709551615 bytes, 0 are left");

    gw_init(&w); /* a key longer than the file, and one with a NUL inside */
    gw_put_u64(&w, 1000);
    gw_put_string(&w, "k");
    w.entries = 1;
    refused(&w, "entry 0|key needs 1000 bytes, 9 are left");
    gw_init(&w);
    gw_put_u64(&w, UINT64_MAX);
    gw_put_string(&w, "k");
    w.entries = 1;
    refused(&w, "entry 0|key needs 18446744073709551615 bytes, 9 are left");
    gw_init(&w);
    gw_u32(&w, "first", 1);
    gw_put_u64(&w, 3);
    gw_put(&w, "a\0b", 3);
    gw_put_u32(&w, MD_GGUF_U32);
    gw_put_u32(&w, 0);
    w.entries++;
    refused(&w, "entry 1|NUL byte|a\\x00b");

    gw_base12(&w);
    gw_u32(&w, "llama.block_count", 12);
    refused(&w, "key 'llama.block_count'|twice|first at byte 98|byte 292");
}
END_TEST

START_TEST(tensors_that_cannot_be)
{
    static const struct {
        const char *name;
        uint32_t type, count;
        uint64_t dimensions[8];
        uint64_t offset;
        const char *words;
    } all[] = {
        { "", GW_F32, 1, { 8 }, 0, "tensor 0|name is empty" },
        { "x", GW_F32, 2, { 1ull << 32, 1ull << 31 }, 0, "tensor 'x'|[4294967296, 2147483648]|over 2^63" },
        { "x", GW_F32, 1, { UINT64_MAX }, 0, "tensor 'x'|[18446744073709551615]|over 2^63" },
        { "x", GW_F32, 2, { 1ull << 61, 2 }, 0, "tensor 'x'|[2305843009213693952, 2]|f32|over 2^63 bytes" },
        { "x", GW_Q4_0, 2, { 33, 32 }, 0, "tensor 'x'|[33, 32]|blocks of 32 (q4_0)" },
        { "x", GW_Q4_0, 0, { 0 }, 0, "tensor 'x'|[]|blocks of 32" },
        { "x", GW_F32, 8, { 1, 1, 1, 1, 1, 1, 1, 1 }, 0, "tensor 'x'|8 dimensions, at most 4" },
        { "x", GW_F32, 1, { 8 }, 16, "tensor 'x'|16 is not a multiple of the alignment 32" },
        { "x", GW_F32, 1, { 8 }, 32, "tensor 'x'|offset 32|ends at 0" },
        { "x", GW_F32, 1, { 8 }, UINT64_MAX - 31, "tensor 'x' needs 18446744073709551615" },
        { "x", GW_F32, 1, { 1000 }, 0, "file has 160 bytes, tensor 'x' needs 4064" },
    };
    struct gguf_writer w;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        gw_init(&w);
        gw_tensor_at(&w, all[i].name, all[i].type, all[i].dimensions, all[i].count, all[i].offset);
        w.data_bytes = 96;
        gw_zeros(&w);
        refused(&w, all[i].words);
    }
    gw_init(&w); /* over another */
    gw_tensor(&w, "x", GW_F32, (uint64_t[]){ 9 }, 1, 36);
    gw_tensor_at(&w, "y", GW_F32, (uint64_t[]){ 8 }, 1, 32);
    gw_zeros(&w);
    refused(&w, "tensor 'y'|offset 32|ends at 64");
    gw_init(&w);
    gw_tensor(&w, "x\n", GW_F32, (uint64_t[]){ 8 }, 1, 32);
    gw_tensor(&w, "x\n", GW_F32, (uint64_t[]){ 8 }, 1, 32);
    gw_zeros(&w); /* 24 + 2 x 34 bytes: data at 96 */
    refused(&w, "tensor 'x\\n' is there twice|byte 96 of part 1|byte 128 of part 1");
    gw_init(&w); /* so many dimensions are not even read */
    gw_put_string(&w, "x");
    gw_put_u32(&w, UINT32_MAX);
    gw_put_u64(&w, 0);
    gw_put_u64(&w, 0);
    w.tensors = 1;
    refused(&w, "tensor 'x'|4294967295 dimensions, at most 4");
}
END_TEST

/* ---- limits: the largest that is taken, and one more ---- */

static void one_key(struct gguf_writer *w, size_t len)
{
    char *key = calloc(1, len + 1);
    ck_assert_ptr_nonnull(key);
    memset(key, 'k', len);
    gw_init(w);
    gw_u32(w, key, 1);
    free(key);
}

static void one_tensor(struct gguf_writer *w, int name_len)
{
    char name[100];
    snprintf(name, sizeof name, "%0*d", name_len, 0);
    gw_init(w);
    gw_tensor(w, name, GW_F32, (uint64_t[]){ 8 }, 1, 32);
    gw_zeros(w);
}

static void one_array(struct gguf_writer *w, size_t count)
{
    void *zeros = calloc(1, count);
    ck_assert_ptr_nonnull(zeros);
    gw_init(w);
    gw_array(w, "k", MD_GGUF_U8, count);
    gw_put(w, zeros, count);
    free(zeros);
}

START_TEST(limits)
{
    struct gguf_writer w;
    one_key(&w, 65535);
    md_gguf_close(opened(&w));
    one_key(&w, 65536);
    refused(&w, "entry 0|key of 65536 bytes, at most 65535");
    one_tensor(&w, 63);
    md_gguf_close(opened(&w));
    one_tensor(&w, 64);
    refused(&w, "tensor 0|name of 64 bytes, at most 63");
    one_array(&w, 1 << 24);
    md_gguf_close(opened(&w));
    one_array(&w, (1 << 24) + 1);
    refused(&w, "key 'k'|array of 16777217 elements, at most 16777216");
}
END_TEST

static double seconds_since(const struct timespec *a)
{
    struct timespec b;
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double)(b.tv_sec - a->tv_sec) + 1e-9 * (double)(b.tv_nsec - a->tv_nsec);
}

/* Names with a long common beginning: comparing each with each would take minutes. */
static void many(struct gguf_writer *w, int entries, int tensors)
{
    char name[64];
    gw_init(w);
    for (int i = 0; i < entries; i++) {
        snprintf(name, sizeof name, "a.long.beginning.that.all.the.keys.have.%d", i);
        gw_int(w, name, MD_GGUF_U8, 1);
    }
    for (int i = 0; i < tensors; i++) {
        snprintf(name, sizeof name, "a.long.beginning.that.all.names.have.%d", i);
        gw_tensor(w, name, GW_F32, (uint64_t[]){ 8 }, 1, 32);
    }
    gw_zeros(w);
}

START_TEST(many_entries_and_tensors)
{
    struct gguf_writer w;
    struct timespec a;
    struct md_gguf *f = NULL;
    many(&w, 65536, 65536);
    clock_gettime(CLOCK_MONOTONIC, &a);
    ck_assert_int_eq(gw_open(&w, NULL, &f, NULL), MD_OK);
    ck_assert_uint_eq(md_gguf_entry_count(f), 65536);
    ck_assert_uint_eq(md_gguf_tensor_count(f), 65536);
    md_gguf_close(f);
    for (int i = 0; i < 20; i++) { /* and each of these costs nothing */
        w.tensors = 1 << 20;
        ck_assert_int_eq(gw_open(&w, NULL, &f, NULL), MD_INVALID);
    }
    ck_assert_double_lt(seconds_since(&a), 5); /* measured: 0.3 */
    gw_done(&w);
    many(&w, 65537, 0);
    refused(&w, "65537 entries, at most 65536");
    many(&w, 0, 65537);
    refused(&w, "65537 tensors, at most 65536");
}
END_TEST

/* A vocabulary costs time, not memory: 256k tokens, and what is taken is a few keys' worth. */
START_TEST(a_large_vocabulary)
{
    enum { TOKENS = 262144 };
    struct gguf_writer w;
    struct fault_alloc a;
    struct timespec t;
    struct md_gguf *f = NULL;
    gw_base12(&w);
    gw_array(&w, "tokenizer.ggml.tokens", MD_GGUF_STRING, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        gw_put_string(&w, "token");
    fault_alloc_init(&a, 0);
    clock_gettime(CLOCK_MONOTONIC, &t);
    ck_assert_int_eq(gw_open(&w, &a.alloc, &f, NULL), MD_OK);
    ck_assert_double_lt(seconds_since(&t), 2); /* measured: 0.01 */
    ck_assert_uint_le(a.peak_bytes, 64 << 10);
    ck_assert_uint_eq(md_gguf_find(f, "tokenizer.ggml.tokens")->count, TOKENS);
    md_gguf_close(f);
    ck_assert_uint_eq(a.live_blocks, 0);
    gw_done(&w);
}
END_TEST

/* ---- files ---- */

static void in_folder(char *path, size_t path_bytes, const char *name)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, path_bytes, "%s/%s", folder != NULL ? folder : "/tmp", name);
}

/* A hole of 300 MiB as the value of a key: the header would pass its limit, though the file is larger. */
START_TEST(a_header_over_its_limit)
{
    struct gguf_writer w;
    struct md_err err = { 0 };
    struct md_gguf *f = NULL;
    char path[200];
    in_folder(path, sizeof path, "gguf-large");
    gw_init(&w);
    gw_entry(&w, "k", MD_GGUF_STRING);
    gw_put_u64(&w, 300 << 20);
    w.entries = 1;
    ck_assert_int_eq(gw_save(&w, path, NULL), MD_OK);
    gw_done(&w);
    ck_assert_int_eq(truncate(path, (off_t)400 << 20), 0);
    ck_assert_int_eq(md_gguf_open(path, &f, &err), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "key 'k': a string needs 314572800 bytes"));
    ck_assert_ptr_nonnull(strstr(err.text, "256 MiB that a header may have"));
    unlink(path);
}
END_TEST

START_TEST(what_is_not_a_file)
{
    struct md_err err = { 0 };
    struct md_gguf *f = NULL;
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    char fifo[200], path[300];
    in_folder(fifo, sizeof fifo, "gguf-fifo");
    in_folder(at.sun_path, sizeof at.sun_path, "gguf-socket");
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert(mkfifo(fifo, 0600) == 0 && bind(s, (struct sockaddr *)&at, sizeof at) == 0);
    const char *all[] = { "/", fifo, at.sun_path, "/dev/null", "/dev/zero" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ck_assert_msg(md_gguf_open(all[i], &f, &err) == MD_INVALID, "%s", all[i]);
        ck_assert_ptr_nonnull(strstr(err.text, all[i]));
        ck_assert_ptr_nonnull(strstr(err.text, "is not a file"));
    }
    close(s);
    unlink(at.sun_path);
    unlink(fifo);

    ck_assert_int_eq(md_gguf_open(fifo, &f, &err), MD_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, fifo));
    ck_assert_int_eq(md_gguf_open("", &f, &err), MD_NOT_FOUND);
    ck_assert_int_eq(md_gguf_open("/dev/null/x", &f, &err), MD_NOT_FOUND);
    memset(path, 'x', sizeof path - 1); /* a name is at most 255 bytes */
    path[sizeof path - 1] = '\0';
    ck_assert_int_eq(md_gguf_open(path, &f, &err), MD_IO);
    ck_assert_int_eq(md_gguf_open("/proc/self/mem", &f, &err), MD_INVALID); /* a file of no bytes */
    ck_assert_ptr_null(f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf");
    TCase *t = tcase_create("gguf");
    tcase_add_test(t, b001_empty_key);
    tcase_add_test(t, b003_string_longer_than_the_file);
    tcase_add_test(t, b005_counts_that_cannot_be);
    tcase_add_test(t, b006_shapes_that_cannot_be);
    tcase_add_test(t, b007_alignment);
    tcase_add_test(t, b008_files_that_were_cut);
    tcase_add_test(t, b017_nested_arrays);
    tcase_add_test(t, what_a_file_has);
    tcase_add_test(t, files_without_tensors);
    tcase_add_test(t, tensor_types);
    tcase_add_test(t, not_this_format);
    tcase_add_test(t, entries_that_cannot_be);
    tcase_add_test(t, tensors_that_cannot_be);
    tcase_add_test(t, limits);
    tcase_add_test(t, many_entries_and_tensors);
    tcase_add_test(t, a_large_vocabulary);
    tcase_add_test(t, a_header_over_its_limit);
    suite_add_tcase(s, t);
    t = tcase_create("what might wait for ever");
    tcase_set_timeout(t, 20);
    tcase_add_test(t, what_is_not_a_file);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
