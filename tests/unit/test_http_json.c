/* The two ends of JSON in the HTTP front, and requests that a hostile client mangles. */
#include "fronts/http/http.h"
#include "fronts/http/http_json.h"
#include "fronts/http/http_reply.h"
#include "fronts/http/http_request.h"
#include "support/run_suite.h"
#include "support/rng.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

/* ---- the guard ---- */

START_TEST(b085_guard_makes_surrogates_whole)
{
    static const struct {
        const char *label, *json, *want;
    } rows[] = {
        { "lone high", "\"\\ud83d\"", "\"\\ufffd\"" },
        { "lone low", "\"a\\ude00b\"", "\"a\\ufffdb\"" },
        { "a pair stays", "\"\\ud83d\\ude00\"", "\"\\ud83d\\ude00\"" },
        { "upper case pair", "\"\\uD83D\\uDE00\"", "\"\\uD83D\\uDE00\"" },
        { "high before a pair", "\"\\ud83d\\ud83d\\ude00\"", "\"\\ufffd\\ud83d\\ude00\"" },
        { "low before high", "\"\\ude00\\ud83d\"", "\"\\ufffd\\ufffd\"" },
        { "high before a plain escape", "\"\\ud83d\\n\"", "\"\\ufffd\\n\"" },
        { "an escaped backslash", "\"\\\\ud83d\"", "\"\\\\ud83d\"" },
        { "outside a string", "\\ud83d", "\\ud83d" },
        { "cut short", "\"\\ud83", "\"\\ud83" },
        { "cut within the second", "\"\\ud83d\\ude0", "\"\\ufffd\\ude0" },
        { "no hex", "\"\\ud8zz\"", "\"\\ud8zz\"" },
        { "not a surrogate", "\"\\u20ac\\u0000\"", "\"\\u20ac\\u0000\"" },
        { "backslash at the end", "\"\\", "\"\\" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t len = strlen(rows[i].json);
        char *json = malloc(len + 1); /* exact, so that a sanitizer sees a step too far */
        memcpy(json, rows[i].json, len + 1);
        ck_assert_int_eq(md_json_guard(json, len, 5, NULL), MD_OK);
        ck_assert_msg(strcmp(json, rows[i].want) == 0, "%s: got %s", rows[i].label, json);
        free(json);
    }
}
END_TEST

START_TEST(b086_guard_bounds_depth_and_numbers)
{
    static const struct {
        const char *label, *json;
        enum md_status want;
    } rows[] = {
        { "three of three", "[[[]]]", MD_OK },
        { "four of three", "[[[[", MD_INVALID },
        { "objects and arrays alike", "{\"a\":[{\"b\":{", MD_INVALID },
        { "side by side", "[[],[],[],[]]", MD_OK },
        { "within a string", "[\"[[[[[[\"]", MD_OK },
        { "behind an escaped quote", "[\"\\\"[[[[\"]", MD_OK },
        { "closed too often", "]]]]]", MD_OK }, /* the parser's affair */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char json[64];
        strcpy(json, rows[i].json);
        enum md_status got = md_json_guard(json, strlen(json), 3, NULL);
        ck_assert_msg(got == rows[i].want, "%s: got %d", rows[i].label, got);
    }
    for (int digits = MD_JSON_NUMBER_MAX; digits <= MD_JSON_NUMBER_MAX + 1; digits++) {
        char json[MD_JSON_NUMBER_MAX + 1];
        memset(json, '7', sizeof json);
        ck_assert_int_eq(md_json_guard(json, (size_t)digits, 3, NULL),
                         digits > MD_JSON_NUMBER_MAX ? MD_INVALID : MD_OK);
    }
}
END_TEST

START_TEST(key_before_names_the_place)
{
    static const struct {
        const char *json;
        size_t offset;
        const char *want;
    } rows[] = {
        { "{\"a\":1,\"temperature\":NaN}", 21, "temperature" },
        { "{\"a\":1,\"b\":{\"c\":x", 15, "b" }, /* the outermost */
        { "{\"a\":[\"b\",x", 10, "a" },
        { "{\"a\":\"q\\\":x\",\"b\":x", 17, "b" },
        { "x", 0, "" },
        { "{\"<script>\":x", 12, "" }, /* not a plain word: not repeated */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_bytes key = md_json_key_before(rows[i].json, strlen(rows[i].json), rows[i].offset);
        ck_assert_msg(key.len == strlen(rows[i].want) &&
                          (key.len == 0 || memcmp(key.data, rows[i].want, key.len) == 0),
                      "%s: got %.*s", rows[i].json, (int)key.len, key.len ? (const char *)key.data : "");
    }
}
END_TEST

/* ---- the writer ---- */

START_TEST(b084_writer_repairs_text)
{
    static const struct {
        const char *label, *bytes, *want;
    } rows[] = {
        { "plain", "abc", "\"abc\"" },
        { "empty", "", "\"\"" },
        { "quotes and backslash", "\"\\", "\"\\\"\\\\\"" },
        { "control", "\n\t\x01\x7f", "\"\\n\\u0009\\u0001\\u007f\"" },
        { "whole characters", "\xc3\xa9\xe2\x82\xac\xf0\x9f\xa6\x80",
          "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\xa6\x80\"" },
        { "a head alone", "\xf0\x9f\xa6", "\"\xef\xbf\xbd\"" },
        { "a head before a letter",
          "\xe2\x82"
          "A",
          "\"\xef\xbf\xbd"
          "A\"" },
        { "tails alone", "\x80\xbf", "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
        { "overlong", "\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
        { "a surrogate", "\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
        { "too large", "\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_buf out;
        md_buf_init(&out, NULL, 1000);
        ck_assert_int_eq(md_json_put_string(&out, (struct md_bytes){ rows[i].bytes, strlen(rows[i].bytes) },
                                            NULL),
                         MD_OK);
        ck_assert_msg(out.len == strlen(rows[i].want) && memcmp(out.data, rows[i].want, out.len) == 0,
                      "%s: got %.*s", rows[i].label, (int)out.len, (const char *)out.data);
        md_buf_done(&out);
    }
}
END_TEST

/* Whatever bytes go in, a strict parser takes what comes out; and what was whole comes back the same. */
START_TEST(b084_writer_random_bytes)
{
    struct rng rng = rng_open("http_json");
    for (int round = 0; round < 20000; round++) {
        unsigned char bytes[40];
        size_t len = rng_below(&rng, sizeof bytes + 1);
        for (size_t i = 0; i < len; i++)
            bytes[i] =
                (unsigned char)(rng_below(&rng, 2) ? rng_below(&rng, 256) : 0x80 + rng_below(&rng, 128));
        struct md_buf out;
        md_buf_init(&out, NULL, 1000);
        ck_assert_int_eq(md_json_put_string(&out, (struct md_bytes){ bytes, len }, NULL), MD_OK);
        yyjson_doc *doc = yyjson_read((const char *)out.data, out.len, 0);
        ck_assert_msg(doc != NULL, "round %d: %.*s", round, (int)out.len, (const char *)out.data);
        yyjson_doc_free(doc);
        md_buf_done(&out);
    }
}
END_TEST

START_TEST(b084_error_is_json_whatever_it_says)
{
    struct md_http_error e;
    char long_text[2000];
    memset(long_text, 'a', sizeof long_text - 1);
    for (size_t i = 1; i + 3 < sizeof long_text;
         i += 3) /* characters of three bytes: one is cut at the end */
        memcpy(long_text + i, "\xe2\x82\xac", 3);
    long_text[sizeof long_text - 1] = '\0';
    md_http_refuse(&e, MD_INVALID, "a\"b\xff", "%s", long_text);
    struct md_buf out;
    md_buf_init(&out, NULL, 10000);
    ck_assert_int_eq(md_reply_error(&out, &e, NULL), MD_OK);
    yyjson_doc *doc = yyjson_read((const char *)out.data, out.len, 0);
    ck_assert_ptr_nonnull(doc);
    ck_assert_ptr_nonnull(yyjson_ptr_get(yyjson_doc_get_root(doc), "/error/message"));
    yyjson_doc_free(doc);
    md_buf_done(&out);
}
END_TEST

/* ---- requests ---- */

static const char request[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"i\","
    "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"user\",\"content\":"
    "[{\"type\":\"text\",\"text\":\"a\\u00e9\"},{\"type\":\"text\",\"text\":\"b\"}]}],\"max_tokens\":5,"
    "\"temperature\":0.5,\"top_k\":3,\"stop\":[\"x\",\"yz\"],\"logit_bias\":{\"1\":-100,\"2\":1.5},"
    "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"seed\":7,\"tools\":[{\"type\":"
    "\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],\"tool_choice\":{\"type\":\"function\","
    "\"function\":{"
    "\"name\":\"f\"}},\"n\":1}";

START_TEST(request_is_read_whole)
{
    char body[sizeof request];
    struct md_http_request r;
    struct md_http_error e = { 0 };
    memcpy(body, request, sizeof request);
    const struct md_http_defaults defaults = md_http_defaults();
    ck_assert_msg(md_http_request_parse(body, sizeof request - 1, true, 10, &defaults, &r, &e) == MD_OK, "%s",
                  e.message);
    ck_assert(r.model.len == 1 && r.in.count == 2 && r.stop_count == 2 && r.sample.bias_count == 2);
    ck_assert(r.in.messages[1].content.len == 4 && memcmp(r.in.messages[1].content.data,
                                                          "a\xc3\xa9"
                                                          "b",
                                                          4) == 0);
    ck_assert(r.in.messages[0].tool_calls.len > 2 && r.in.messages[0].content.len == 0);
    ck_assert(r.in.tools.len > 2 && r.in.tool_choice == MD_TOOLS_NAMED && r.in.tool_name.len == 1);
    ck_assert(r.stream && r.include_usage && !r.return_progress && r.max_tokens == 5);
    ck_assert(r.sample.temperature == 0.5f && r.sample.top_k == 3 && r.sample.seed == 7);
    ck_assert(r.sample.bias[0].token == 1 && r.sample.bias[1].bias == 1.5f);
    md_http_request_done(&r);
}
END_TEST

/* Bytes changed, dropped and doubled: read or refused, never worse, and a refusal says why. */
START_TEST(b084_mangled_requests)
{
    struct rng rng = rng_open("http_json");
    int read = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        char *body = malloc(sizeof request);
        size_t len = sizeof request - 1;
        memcpy(body, request, sizeof request);
        for (uint32_t n = 1 + (uint32_t)rng_below(&rng, 3); n > 0; n--) {
            size_t at = rng_below(&rng, (uint32_t)len);
            switch (rng_below(&rng, 3)) {
            case 0: body[at] = (char)rng_below(&rng, 256); break;
            case 1: body[at] = "{}[]\",:\\0-nt"[rng_below(&rng, 12)]; break;
            default: len = at + 1; break;
            }
        }
        body = realloc(body, len);
        struct md_http_request r = { 0 };
        struct md_http_error e = { 0 };
        const struct md_http_defaults defaults = md_http_defaults();
        enum md_status s = md_http_request_parse(body, len, true, 10, &defaults, &r, &e);
        if (s == MD_OK)
            read++;
        else
            refused++;
        ck_assert(s == MD_OK || (e.http >= 400 && e.message[0] != '\0' && e.type != NULL));
        md_http_request_done(&r);
        free(body);
    }
    ck_assert_msg(read > 100 && refused > 1000, "%d read, %d refused", read, refused);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_json");
    TCase *tc = tcase_create("all");
    suite_add_tcase(suite, tc);
    tcase_add_test(tc, b085_guard_makes_surrogates_whole);
    tcase_add_test(tc, b086_guard_bounds_depth_and_numbers);
    tcase_add_test(tc, key_before_names_the_place);
    tcase_add_test(tc, b084_writer_repairs_text);
    tcase_add_test(tc, b084_writer_random_bytes);
    tcase_add_test(tc, b084_error_is_json_whatever_it_says);
    tcase_add_test(tc, request_is_read_whole);
    tcase_add_test(tc, b084_mangled_requests);
    return md_run_suite(suite);
}
