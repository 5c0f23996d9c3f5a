/* test_manifest_json.c - manifests from JSON that nobody vouches for, and the canonical form. */
#include "session/manifest_json.h"
#include "support/fault_alloc.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static struct md_bytes text(const char *s)
{
    return (struct md_bytes){ s, strlen(s) };
}

static bool equal(struct md_bytes a, const char *b)
{
    return a.len == strlen(b) && (a.len == 0 || memcmp(a.data, b, a.len) == 0);
}

static void read_ok(const char *json, struct md_manifest *m)
{
    struct md_err err = { 0 };
    ck_assert_msg(md_manifest_read(text(json), NULL, m, &err) == MD_OK, "%s: %s", json, err.text);
}

static void expect_written(const struct md_manifest *m, const char *want)
{
    struct md_buf out;
    md_buf_init(&out, NULL, 1 << 20);
    ck_assert_int_eq(md_manifest_write(m, &out, NULL), MD_OK);
    ck_assert_msg(out.len == strlen(want) && memcmp(out.data, want, out.len) == 0, "%.*s", (int)out.len,
                  (char *)out.data);
    md_buf_done(&out);
}

/* All fields, in the protocol's order. */
static const char canonical[] =
    "{\"profile_id\":\"p\",\"backend\":\"llamacpp\",\"backend_version\":\"v\",\"model_digest\":\"d\","
    "\"prompt_format\":\"chatml\",\"prompt_template_digest\":\"t\",\"runtime_digest\":\"r\\u003c1\\u003e\","
    "\"add_bos\":true,\"stable_bytes\":25,\"total_bytes\":31,\"stable_byte_hash\":\"sb\","
    "\"stable_token_hash\":\"st\",\"volatile_token_hash\":\"vt\",\"segments\":["
    "{\"kind\":\"now\",\"stable\":true,\"cache_class\":\" "
    "Repo_Map\",\"invalidation\":\"ON_TURN\",\"byte_start\":0,"
    "\"byte_end\":25,\"byte_hash\":\"h\",\"token_end\":7,\"token_hash\":\"th\",\"tool_calls_json\":\"[{"
    "\\\"a\\\":1}]\","
    "\"tool_call_id\":\"c1\"},"
    "{\"kind\":\"user\",\"stable\":false,\"byte_start\":25,\"byte_end\":31,\"byte_hash\":\"\",\"token_"
    "start\":7,"
    "\"token_end\":9}]}";

START_TEST(all_fields)
{
    struct md_manifest m;
    read_ok(canonical, &m);
    ck_assert(equal(m.id.profile_id, "p") && equal(m.id.runtime_digest, "r<1>") && m.id.add_bos);
    ck_assert(m.stable_bytes == 25 && m.total_bytes == 31 && equal(m.volatile_token_hash, "vt"));
    const struct md_manifest_segment *g = m.segments;
    ck_assert(m.segment_count == 2 && equal(g[0].label.name, "now") && g[0].label.kind == MD_SEGMENT_OTHER);
    /* the class as it was given and what it means */
    ck_assert(equal(g[0].cache_class, " Repo_Map") && g[0].label.cls == MD_CLASS_REPO_MAP);
    ck_assert(equal(g[0].invalidation, "ON_TURN") && g[0].label.invalidation == MD_INVALIDATION_ON_TURN);
    ck_assert(g[0].tokens.start == 0 && g[0].tokens.end == 7 && equal(g[0].tool_calls_json, "[{\"a\":1}]"));
    ck_assert(g[1].cache_class.len == 0 && g[1].label.cls == MD_CLASS_VOLATILE && !g[1].label.stable);
    expect_written(&m, canonical);
    md_manifest_done(&m);
}
END_TEST

START_TEST(what_is_not_there_and_what_is_not_known)
{
    /* The zero value of every field that is always written: the protocol's rules for what may be left out. */
    static const char empty[] =
        "{\"backend\":\"\",\"prompt_format\":\"\",\"prompt_template_digest\":\"\",\"runtime_digest\":\"\","
        "\"add_bos\":false,\"stable_bytes\":0,\"total_bytes\":0,\"stable_byte_hash\":\"\"}";
    static const char *const rows[] = {
        "{}",
        " {\n\t} ",
        "{\"segments\":null}",
        "{\"segments\":[]}",
        "{\"backend\":null,\"add_bos\":null,\"total_bytes\":null,\"x\":[[[[{\"y\":{}}]]]],\"kind\":7}",
        "{\"x\":1,\"x\":2,\"backends\":\"no\",\"backen\":1}", /* unknown ones may be there twice */
    };
    struct md_manifest m;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        read_ok(rows[i], &m);
        ck_assert(md_manifest_is_zero(&m));
        expect_written(&m, empty);
        md_manifest_done(&m);
    }
    read_ok("{\"BackEnd\":\"b\",\"TOTAL_BYTES\":3,\"Segments\":[{\"Kind\":\"k\",\"BYTE_END\":3}]}", &m);
    ck_assert(equal(m.id.backend, "b") && m.total_bytes == 3 && m.segments[0].byte_end == 3);
    md_manifest_done(&m);
}
END_TEST

START_TEST(go_escapes)
{
    /* s = 'q"\\/\b\f\n\r\t\x00\x1f\x7f<>&\u2028\u2029\u2027é€😀\ufffd';  o = {"backend": s, "prompt_format": "",
     * "prompt_template_digest": "", "runtime_digest": "", "add_bos": False, "stable_bytes": 0, "total_bytes": 0,
     * "stable_byte_hash": ""}.  hashlib.sha256(json.dumps(o, ensure_ascii=False, separators=(",", ":"))
     * .replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")
     * .replace("\u2029", "\\u2029").encode()).hexdigest()  (Python escapes the rest as Go does) */
    static const char name[] = "q\"\\/\b\f\n\r\t\0\x1f\x7f<>&\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xa7"
                               "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbd";
    struct md_manifest m = { .id.backend = { name, sizeof name - 1 } };
    char digest[MD_SHA256_HEX + 1];
    ck_assert_int_eq(md_manifest_digest(&m, NULL, digest, NULL), MD_OK);
    ck_assert_str_eq(digest, "61ee3bc2c8d5528de160782a202c72c886bf42b8beec9e478759d76053941b59");
}
END_TEST

START_TEST(each_bad_byte_is_replaced)
{
    /* Go's encoder decodes rune by rune: a byte that begins no character is one \ufffd, and the next byte is
     * looked at anew (documented at unicode/utf8.DecodeRune: width 1 for invalid encodings). */
    static const struct {
        const char *bytes, *written;
    } rows[] = {
        { "a\xff"
          "b",
          "a\\ufffdb" },
        { "\x80", "\\ufffd" },
        { "\xe2\x82", "\\ufffd\\ufffd" },   /* cut */
        { "\xe2\x82x", "\\ufffd\\ufffdx" }, /* broken off */
        { "\xc0\xaf", "\\ufffd\\ufffd" },   /* overlong */
        { "\xe0\x80\xaf", "\\ufffd\\ufffd\\ufffd" },
        { "\xf0\x8f\xbf\xbf", "\\ufffd\\ufffd\\ufffd\\ufffd" },
        { "\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd" },            /* a surrogate */
        { "\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd" }, /* above U+10FFFF */
        { "\xf5\x80\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd" },
        { "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf" }, /* good */
        { "\xe0\xa0\x80\xc2\x80\xf0\x90\x80\x80", "\xe0\xa0\x80\xc2\x80\xf0\x90\x80\x80" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_manifest m = { .id.backend = text(rows[i].bytes) };
        char want[300];
        snprintf(want, sizeof want,
                 "{\"backend\":\"%s\",\"prompt_format\":\"\",\"prompt_template_digest\":\"\",\"runtime_"
                 "digest\":\"\","
                 "\"add_bos\":false,\"stable_bytes\":0,\"total_bytes\":0,\"stable_byte_hash\":\"\"}",
                 rows[i].written);
        expect_written(&m, want);
    }
}
END_TEST

#define SEG(fields) "{\"total_bytes\":9,\"segments\":[{\"kind\":\"a\",\"byte_end\":2}," fields "]}"

static const struct {
    const char *json, *part;
} refused[] = {
    { "", "not JSON: " },
    { "{", "not JSON: " },
    { "{\"backend\":\"\xff\"}", "not JSON: invalid UTF-8 encoding in string at byte 12" },
    { "{\"backend\":\"\\ud800\"}", "not JSON: " },
    { "{} x", "not JSON: " },
    { "[]", "a manifest must be an object, got array" },
    { "null", "a manifest must be an object, got null" },
    { "{\"backend\":1}", "backend must be a string, got uint" },
    { "{\"add_bos\":\"true\"}", "add_bos must be true or false, got string" },
    { "{\"total_bytes\":\"1\"}", "total_bytes must be a whole number, got string" },
    { "{\"total_bytes\":1.0}", "total_bytes must be a whole number, got real" },
    { "{\"total_bytes\":1e2}", "total_bytes must be a whole number, got real" },
    { "{\"total_bytes\":-1}", "total_bytes must be between 0 and 1099511627776, got -1" },
    { "{\"total_bytes\":1099511627777}",
      "total_bytes must be between 0 and 1099511627776, got 1099511627777" },
    { "{\"total_bytes\":18446744073709551615}", "got 18446744073709551615" },
    { "{\"total_bytes\":18446744073709551616}", "total_bytes must be a whole number, got real" },
    { "{\"stable_bytes\":1}", "stable_bytes must be between 0 and total_bytes (0), got 1" },
    { "{\"backend\":\"a\",\"backend\":\"b\"}", "backend is there twice" },
    { "{\"backend\":\"a\",\"BACKEND\":null}", "backend is there twice" },
    { "{\"segments\":{}}", "segments must be an array, got object" },
    { "{\"segments\":[3]}", "segments[0] must be an object, got uint" },
    { SEG("{}"), "segments[1].kind is missing" },
    { SEG("{\"kind\":\"\"}"), "segments[1].kind is missing" },
    { SEG("{\"kind\":5}"), "segments[1].kind must be a string, got uint" },
    { SEG("{\"kind\":\"b\",\"Kind\":\"b\"}"), "segments[1].kind is there twice" },
    { SEG("{\"kind\":\"b\",\"stable\":1}"), "segments[1].stable must be true or false, got uint" },
    { SEG("{\"kind\":\"b\",\"byte_start\":-2}"),
      "segments[1].byte_start must be between 0 and 1099511627776, got -2" },
    { SEG("{\"kind\":\"b\",\"byte_start\":1,\"byte_end\":3}"),
      "segments[1].byte_start is 1, inside the segment before" },
    { SEG("{\"kind\":\"b\",\"byte_start\":5,\"byte_end\":3}"),
      "segments[1].byte_end is 3, before its start at 5" },
    { SEG("{\"kind\":\"b\",\"byte_start\":5,\"byte_end\":10}"), "segments[1].byte_end is 10, more than 9" },
    { SEG("{\"kind\":\"b\",\"byte_start\":2,\"byte_end\":2,\"token_end\":2147483648}"),
      "segments[1].token_end must be between 0 and 2147483647, got 2147483648" },
    { SEG("{\"kind\":\"b\",\"byte_start\":2,\"byte_end\":2,\"token_start\":-1}"),
      "segments[1].token_start must be" },
    { SEG("{\"kind\":\"b\",\"byte_start\":2,\"byte_end\":2,\"token_start\":5,\"token_end\":4}"),
      "segments[1].token_end is 4, before its start at 5" },
    { SEG("{\"kind\":\"b\",\"byte_start\":2,\"byte_end\":2,\"token_start\":2,\"token_end\":4},"
          "{\"kind\":\"c\",\"byte_start\":2,\"byte_end\":2,\"token_start\":3,\"token_end\":4}"),
      "segments[2].token_start is 3, inside the segment before it" },
    { SEG("{\"kind\":\"b\",\"byte_start\":2,\"byte_end\":2,\"cache_class\":\"hot\"}"),
      "segments[1].cache_class must be task_pinned, repo_map or volatile, got 'hot'" },
    { SEG("{\"kind\":\"b\",\"byte_start\":2,\"byte_end\":2,\"invalidation\":\"  \"}"),
      "segments[1].invalidation must be none, on_edit or on_turn, got '  '" },
    { "{\"x\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}", "nested deeper than 16 levels at byte 20" },
};

START_TEST(refusals)
{
    struct md_manifest m = { .stable_bytes = 77 };
    struct md_err err = { 0 };
    enum md_status s = md_manifest_read(text(refused[_i].json), NULL, &m, &err);
    ck_assert_msg(s == MD_INVALID && strstr(err.text, refused[_i].part) != NULL, "%s: %s '%s'",
                  refused[_i].json, md_status_name(s), err.text);
    ck_assert_int_eq(m.stable_bytes, 77);
}
END_TEST

START_TEST(deep_enough)
{
    struct md_manifest m;
    read_ok("{\"x\":[[[[[[[[[[[[[[[\"[[[[[[[[[[[[\\\"[[\"]]]]]]]]]]]]]]]}", &m);
    md_manifest_done(&m);
}
END_TEST

/* `count` times `item` between head and tail. */
static struct md_bytes repeated(const char *head, const char *item, size_t count, const char *tail)
{
    const size_t n = strlen(item);
    char *json = malloc(strlen(head) + n * count + strlen(tail) + 1), *p = stpcpy(json, head);
    for (size_t i = 0; i < count; i++)
        p = memcpy(p, item, n), p += n;
    p = stpcpy(p, tail);
    return (struct md_bytes){ json, (size_t)(p - json) };
}

static enum md_status read_free(struct md_bytes json, struct md_manifest *m, struct md_err *err)
{
    enum md_status s = md_manifest_read(json, NULL, m, err);
    free((void *)json.data);
    return s;
}

START_TEST(sizes)
{
    struct md_manifest m;
    struct md_err err;
    ck_assert_int_eq(read_free(repeated("{\"segments\":[{\"kind\":\"a\"}", ",{\"kind\":\"b\"}", 4095, "]}"),
                               &m, &err),
                     MD_OK);
    ck_assert_uint_eq(m.segment_count, 4096);
    md_manifest_done(&m);
    ck_assert_int_eq(read_free(repeated("{\"segments\":[{\"kind\":\"a\"}", ",{\"kind\":\"b\"}", 4096, "]}"),
                               &m, &err),
                     MD_INVALID);
    ck_assert_str_eq(err.text, "segments: 4097 are more than 4096");
    ck_assert_int_eq(read_free(repeated("{\"backend\":\"", "b", 4096, "\"}"), &m, &err), MD_OK);
    md_manifest_done(&m);
    ck_assert_int_eq(read_free(repeated("{\"backend\":\"", "b", 4097, "\"}"), &m, &err), MD_INVALID);
    ck_assert_str_eq(err.text, "backend has 4097 bytes, more than 4096");
    ck_assert_int_eq(read_free(repeated("{\"segments\":[{\"kind\":\"a\",\"tool_calls_json\":\"", "b", 5000,
                                        "\"}]}"),
                               &m, &err),
                     MD_OK);
    ck_assert_uint_eq(m.segments[0].tool_calls_json.len, 5000);
    md_manifest_done(&m);
    ck_assert_int_eq(read_free(repeated("{\"x\":[1", ",1", MD_MANIFEST_JSON_VALUES_MAX, "]}"), &m, &err),
                     MD_INVALID);
    ck_assert_str_eq(err.text, "a manifest of more than 262144 values");
    ck_assert_int_eq(read_free(repeated("{\"x\":\"", "x", MD_MANIFEST_JSON_MAX, "\"}"), &m, &err),
                     MD_INVALID);
    ck_assert_str_eq(err.text, "a manifest of 16777224 bytes is larger than 16777216");
}
END_TEST

START_TEST(a_value_of_a_document)
{
    static const char json[] = "{\"Manifest\":{\"backend\":\"b\"},\"Text\":\"t\"}";
    yyjson_doc *doc = yyjson_read(json, sizeof json - 1, 0);
    struct md_manifest m;
    ck_assert_ptr_nonnull(doc);
    ck_assert_int_eq(md_manifest_read_value(yyjson_obj_get(yyjson_doc_get_root(doc), "Manifest"), NULL, &m,
                                            NULL),
                     MD_OK);
    ck_assert_int_eq(md_manifest_read_value(yyjson_obj_get(yyjson_doc_get_root(doc), "Text"), NULL, &m, NULL),
                     MD_INVALID);
    ck_assert_int_eq(md_manifest_read_value(NULL, NULL, &m, NULL), MD_INVALID);
    yyjson_doc_free(doc);
    ck_assert(equal(m.id.backend, "b"));
    md_manifest_done(&m);
}
END_TEST

START_TEST(a_full_buffer_changes_nothing)
{
    struct md_manifest m;
    struct md_buf out;
    read_ok(canonical, &m);
    md_buf_init(&out, NULL, sizeof canonical + 1);
    ck_assert_int_eq(md_buf_append(&out, "abc", 3, NULL), MD_OK);
    ck_assert_int_eq(md_manifest_write(&m, &out, NULL), MD_NO_MEMORY);
    ck_assert_uint_eq(out.len, 3);
    md_buf_done(&out);
    md_manifest_done(&m);
}
END_TEST

START_TEST(allocations_fail)
{
    enum md_status s = MD_NO_MEMORY;
    int runs = 0;
    struct md_bytes json =
        repeated("{\"segments\":[{\"kind\":\"a\",\"tool_calls_json\":\"", "b", 40000, "\"}]}");
    for (long nth = 1; s != MD_OK; nth++, runs++) {
        struct fault_alloc f;
        struct md_manifest m = { .stable_bytes = 77 };
        fault_alloc_init(&f, nth);
        s = md_manifest_read(json, &f.alloc, &m, NULL);
        ck_assert(s == (f.failed ? MD_NO_MEMORY : MD_OK));
        ck_assert(s == MD_OK ? m.segment_count == 1 : s == MD_NO_MEMORY && m.stable_bytes == 77);
        if (s == MD_OK)
            md_manifest_done(&m);
        ck_assert_uint_eq(f.live_blocks, 0);
    }
    ck_assert_int_ge(runs, 4);
    free((void *)json.data);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("manifest_json");
    TCase *t = tcase_create("manifest_json");
    tcase_add_test(t, all_fields);
    tcase_add_test(t, what_is_not_there_and_what_is_not_known);
    tcase_add_test(t, go_escapes);
    tcase_add_test(t, each_bad_byte_is_replaced);
    tcase_add_loop_test(t, refusals, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(t, deep_enough);
    tcase_add_test(t, sizes);
    tcase_add_test(t, a_value_of_a_document);
    tcase_add_test(t, a_full_buffer_changes_nothing);
    tcase_add_test(t, allocations_fail);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
