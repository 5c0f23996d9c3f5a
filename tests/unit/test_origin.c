/* test_origin.c - who made a conversation that lies in a file (session/origin.h).  What is right: the bytes as the header
 * has them, and its rule of what may be used where. */
#include "session/origin.h"

#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 32 << 10 };

static struct md_engine_info here(void)
{
    return (struct md_engine_info){ .engine = "one",
                                    .version = "1.2",
                                    .device = "CPU",
                                    .model = "a model",
                                    .model_key = "gguf 1 2",
                                    .type_k = "f16",
                                    .type_v = "q8_0",
                                    .rope = "",
                                    .identity = "one 1.2|key|f16/q8_0|fa1" };
}

static struct md_bytes word(const char *text)
{
    return (struct md_bytes){ text, strlen(text) };
}

/* Of this engine, as bytes. */
static struct md_bytes written(const struct md_engine_info *info, struct md_buf *out)
{
    struct md_origin o;
    md_buf_init(out, NULL, BYTES_MAX);
    md_origin_of(info, &o);
    ck_assert_int_eq(md_origin_write(&o, out, NULL), MD_OK);
    return (struct md_bytes){ out->data, out->len };
}

START_TEST(bytes_are_as_documented)
{
    static const char want[] = "\1\0\0\0\3\0one\3\0001.2\3\0CPU\7\0a model\10\0gguf 1 2\3\0f16\4\0q8_0\0\0";
    const struct md_engine_info info = here();
    struct md_buf out;
    struct md_origin got;
    const struct md_bytes bytes = written(&info, &out);
    ck_assert_uint_eq(bytes.len, sizeof want - 1);
    ck_assert_mem_eq(bytes.data, want, sizeof want - 1);
    ck_assert_int_eq(md_origin_read(bytes, &got, NULL), MD_OK);
    ck_assert_str_eq(got.engine, "one");
    ck_assert_str_eq(got.version, "1.2");
    ck_assert_str_eq(got.device, "CPU");
    ck_assert_str_eq(got.model, "a model");
    ck_assert_str_eq(got.model_key, "gguf 1 2");
    ck_assert_str_eq(got.type_k, "f16");
    ck_assert_str_eq(got.type_v, "q8_0");
    ck_assert_str_eq(got.rope, "");
    md_buf_done(&out);
}
END_TEST

/* A model file may name itself as it likes: what is written can be read again. */
START_TEST(any_name_can_be_written)
{
    struct md_engine_info info = here();
    struct md_buf out;
    struct md_origin got;
    snprintf(info.model, sizeof info.model, "%s", "a\x1b[31m\xff\xc3\xbc\n\xc2\x85");
    const struct md_bytes bytes = written(&info, &out);
    ck_assert_int_eq(md_origin_read(bytes, &got, NULL), MD_OK);
    ck_assert_str_eq(got.model, "a?[31m?\xc3\xbc??");
    md_buf_done(&out);
    memset(info.model, 'm', sizeof info.model - 1); /* full, and its last character is cut */
    memcpy(info.model + sizeof info.model - 2, "\xc3", 2);
    ck_assert_int_eq(md_origin_read(written(&info, &out), &got, NULL), MD_OK);
    ck_assert_str_eq(got.model + sizeof got.model - 3, "m?");
    md_buf_done(&out);
}
END_TEST

START_TEST(cut_anywhere)
{
    const struct md_engine_info info = here();
    struct md_buf out;
    struct md_origin got;
    struct md_err err;
    const struct md_bytes bytes = written(&info, &out);
    for (size_t len = 0; len < bytes.len; len++) {
        void *copy = malloc(len + 1); /* so that a sanitizer sees who reads behind it */
        memcpy(copy, bytes.data, len);
        ck_assert_int_eq(md_origin_read((struct md_bytes){ copy, len }, &got, &err), MD_CORRUPT);
        ck_assert_ptr_nonnull(strstr(err.text, "ends"));
        free(copy);
    }
    ck_assert_int_eq(md_buf_append(&out, "", 1, NULL), MD_OK);
    ck_assert_int_eq(md_origin_read((struct md_bytes){ out.data, out.len }, &got, &err), MD_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.text, "follow"));
    md_buf_done(&out);
}
END_TEST

/* An engine's name put in front of the rest of a sound one. */
static enum md_status read_named(unsigned version, const char *name, size_t len, struct md_err *err)
{
    static uint8_t bytes[BYTES_MAX];
    const struct md_engine_info info = here();
    struct md_buf out;
    struct md_origin got;
    const struct md_bytes sound = written(&info, &out);
    bytes[0] = (uint8_t)version, bytes[1] = bytes[2] = bytes[3] = 0;
    bytes[4] = (uint8_t)len, bytes[5] = (uint8_t)(len >> 8);
    memcpy(bytes + 6, name, len);
    memcpy(bytes + 6 + len, (const uint8_t *)sound.data + 9, sound.len - 9);
    const enum md_status s = md_origin_read((struct md_bytes){ bytes, 6 + len + sound.len - 9 }, &got, err);
    md_buf_done(&out);
    return s;
}

START_TEST(what_is_refused)
{
    static char long_name[10 << 10];
    static const struct {
        const char *name;
        size_t len;
        enum md_status want;
    } rows[] = {
        { "0123456789012345678901234567890", 31, MD_OK },
        { "01234567890123456789012345678901", 32, MD_CORRUPT },
        { "", 0, MD_OK },
        { "a\0b", 3, MD_CORRUPT },
        { "a\nb", 3, MD_CORRUPT },
        { "\x1b[2J", 4, MD_CORRUPT },
        { "\x7f", 1, MD_CORRUPT },
        { "\xc2\x85", 2, MD_CORRUPT },
        { "\xc2\xa0", 2, MD_OK },
        { "\xff", 1, MD_CORRUPT },
        { "\xc3", 1, MD_CORRUPT },
        { "\xed\xa0\x80", 3, MD_CORRUPT },
        { "\xe2\x82\xac", 3, MD_OK },
    };
    struct md_err err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_msg(read_named(1, rows[i].name, rows[i].len, &err) == rows[i].want, "row %zu", i);
        for (const char *p = err.text; rows[i].want != MD_OK && *p != '\0'; p++)
            ck_assert_msg(*p >= 0x20 && *p < 0x7f, "row %zu is shown as it came", i);
    }
    memset(long_name, 'e', sizeof long_name);
    ck_assert_int_eq(read_named(1, long_name, sizeof long_name, &err), MD_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.text, "10240"));
    for (unsigned version = 0; version < 4; version++)
        ck_assert_int_eq(read_named(version, "x", 1, &err), version == 1 ? MD_OK : MD_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "version 3"));
}
END_TEST

/* The rule of origin.h, each thing that may differ on both sides of it. */
START_TEST(what_may_be_used_where)
{
    static const struct {
        const char *label;
        size_t at; /* of the member that is another there */
        const char *other;
        enum md_status kv, tokens;
        const char *says;
    } rows[] = {
#define OTHER(m) offsetof(struct md_engine_info, m)
        { "the same", OTHER(engine), "one", MD_OK, MD_OK, NULL },
        { "computed elsewhere", OTHER(device), "CUDA0", MD_OK, MD_OK, NULL },
        { "another engine", OTHER(engine), "two", MD_INVALID, MD_OK, "two 1.2 with f16/q8_0" },
        { "another version", OTHER(version), "1.3", MD_INVALID, MD_OK, "one 1.3 with f16/q8_0" },
        { "another KV type of keys", OTHER(type_k), "f32", MD_INVALID, MD_OK, "f32/q8_0" },
        { "another KV type of values", OTHER(type_v), "f32", MD_INVALID, MD_OK, "f16/f32" },
        { "another RoPE", OTHER(rope), "yarn x4", MD_INVALID, MD_OK, "yarn x4" },
        { "another model", OTHER(model_key), "gguf 3 4", MD_INVALID, MD_INVALID, "gguf 3 4" },
        { "of nobody knows which", OTHER(model_key), "", MD_INVALID, MD_INVALID, "another model" },
#undef OTHER
    };
    const struct md_engine_info ours = here();
    struct md_err err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_engine_info theirs = here();
        struct md_buf out;
        snprintf((char *)&theirs + rows[i].at, 9, "%s", rows[i].other);
        if (rows[i].kv != MD_OK)
            theirs.identity[0] = 'x';
        const struct md_bytes origin = written(&theirs, &out);
        const enum md_status kv = md_origin_judge(word(theirs.identity), &origin, &ours, false, &err);
        ck_assert_msg(kv == rows[i].kv, "%s: %s", rows[i].label, md_status_name(kv));
        ck_assert_msg(rows[i].says == NULL || strstr(err.text, rows[i].says) != NULL, "%s: %s", rows[i].label,
                      err.text);
        const bool hint = kv != MD_OK && strstr(err.text, "--tokens-only") != NULL;
        ck_assert_msg(hint == (kv != MD_OK && rows[i].tokens == MD_OK), "%s: %s", rows[i].label, err.text);
        ck_assert_msg(!hint || strstr(err.text, "one 1.2 with f16/q8_0") != NULL, "%s", err.text);
        ck_assert_int_eq(md_origin_judge(word(theirs.identity), &origin, &ours, true, &err), rows[i].tokens);
        md_buf_done(&out);
    }
}
END_TEST

/* What the origin has no member for is told from the identity; the line is one that is shown whole. */
START_TEST(the_line)
{
    struct md_engine_info ours = here(), theirs = here();
    struct md_buf out;
    struct md_err err;
    const struct md_bytes same = written(&theirs, &out);
    ck_assert_int_eq(md_origin_judge(word("one 1.2|key|f16/q8_0|fa0\x1b"), &same, &ours, false, &err),
                     MD_INVALID);
    ck_assert_msg(strstr(err.text, "('fa0?' there, 'fa1' here)") != NULL, "%s", err.text);
    md_buf_done(&out);
    memset(theirs.rope, 'r', sizeof theirs.rope - 1);
    memset(theirs.version, 'v', sizeof theirs.version - 1);
    memset(ours.rope, 's', sizeof ours.rope - 1);
    const struct md_bytes large = written(&theirs, &out);
    ck_assert_int_eq(md_origin_judge(word("x"), &large, &ours, false, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "computed again") != NULL && strlen(err.text) < 450, "%s", err.text);
    md_buf_done(&out);
}
END_TEST

/* Of a time before there were any, and one that contradicts the identity beside it. */
START_TEST(none_and_two)
{
    const struct md_engine_info ours = here();
    struct md_engine_info theirs = here();
    struct md_buf out;
    struct md_err err;
    for (int tokens_only = 0; tokens_only < 2; tokens_only++) {
        ck_assert_int_eq(md_origin_judge(word(ours.identity), NULL, &ours, tokens_only, &err), MD_OK);
        ck_assert_int_eq(md_origin_judge(word("two"), NULL, &ours, tokens_only, &err), MD_INVALID);
        ck_assert_msg(strstr(err.text, "'two'") != NULL && strstr(err.text, "too old") != NULL, "%s",
                      err.text);
        ck_assert_int_eq(md_origin_judge((struct md_bytes){ NULL, 0 }, NULL, &ours, tokens_only, &err),
                         MD_INVALID);
        for (int what = 0; what < 2; what++) {
            theirs = here();
            snprintf(what == 0 ? theirs.model_key : theirs.engine, 8, "other");
            const struct md_bytes origin = written(&theirs, &out);
            ck_assert_int_eq(md_origin_judge(word(ours.identity), &origin, &ours, tokens_only, &err),
                             MD_CORRUPT);
            md_buf_done(&out);
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("origin");
    TCase *c = tcase_create("origin");
    tcase_add_test(c, bytes_are_as_documented);
    tcase_add_test(c, any_name_can_be_written);
    tcase_add_test(c, cut_anywhere);
    tcase_add_test(c, what_is_refused);
    tcase_add_test(c, what_may_be_used_where);
    tcase_add_test(c, the_line);
    tcase_add_test(c, none_and_two);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
