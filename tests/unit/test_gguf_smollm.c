/* test_gguf_smollm.c - the GGUF reader on a real model, and B008 on damaged copies of it. */
#include "host/gguf.h"
#include "support/gguf_walk.h"
#include "support/model_copy.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *model(void)
{
    const char *path = getenv("MODELD_TEST_MODEL");
    ck_assert_msg(path != NULL, "MODELD_TEST_MODEL names no model");
    return path;
}

/* The file is 98,362,432 bytes (deps/), and its keys are as the cases describe model S. */
START_TEST(what_smollm_says)
{
    struct md_gguf *f;
    struct md_err err;
    int64_t v;
    char text[40];
    double real;
    ck_assert_msg(md_gguf_open(model(), &f, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(md_gguf_file_bytes(f), 98362432);
    ck_assert_int_eq(md_gguf_string(f, "general.architecture", text, sizeof text, &err), MD_OK);
    ck_assert_str_eq(text, "llama");
    ck_assert(md_gguf_int(f, "llama.block_count", 1, 512, &v, &err) == MD_OK && v == 30);
    ck_assert(md_gguf_int(f, "llama.attention.head_count_kv", 1, 512, &v, &err) == MD_OK && v == 3);
    ck_assert(md_gguf_int(f, "llama.context_length", 1, INT32_MAX, &v, &err) == MD_OK && v == 8192);
    ck_assert(md_gguf_real(f, "llama.rope.freq_base", &real, &err) == MD_OK && real == 100000);
    ck_assert_uint_eq(md_gguf_find(f, "tokenizer.ggml.tokens")->count, 49152);
    ck_assert_uint_eq(md_gguf_data_offset(f) % 32, 0);
    const size_t last = md_gguf_tensor_count(f) - 1;
    const struct md_gguf_tensor *t = md_gguf_tensor_at(f, last);
    ck_assert_uint_eq(t->offset + (uint64_t)t->bytes, 98362432);
    gguf_walk(f);
    md_gguf_close(f);
}
END_TEST

static void refused(const char *path, const char *a, const char *b)
{
    struct md_gguf *f = NULL;
    struct md_err err = { 0 };
    ck_assert_int_eq(md_gguf_open(path, &f, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, a) != NULL && strstr(err.text, b) != NULL, "%s", err.text);
    unlink(path);
}

START_TEST(b008_cut_copies)
{
    const int64_t whole = 98362432;
    const int64_t lengths[] = { whole - 1, whole - 4096, whole / 2, 100, 0 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const char *tmp = getenv("TMPDIR");
        char path[200], has[60];
        snprintf(path, sizeof path, "%s/cut.XXXXXX", tmp != NULL ? tmp : "/tmp");
        md_copy_cut(model(), path, lengths[i]);
        snprintf(has, sizeof has, "file has %lld bytes, tensor '", (long long)lengths[i]);
        refused(path, i < 3 ? has : "bytes", i < 3 ? "' needs " : "left in the file");
    }
}
END_TEST

START_TEST(b008_a_tensor_far_away)
{
    const char *tmp = getenv("TMPDIR");
    char path[200];
    struct md_gguf *f;
    ck_assert_int_eq(md_gguf_open(model(), &f, NULL), MD_OK);
    const struct md_gguf_tensor *t = md_gguf_tensor_at(f, 0);
    const uint64_t far = t->offset - md_gguf_data_offset(f) + (UINT64_C(1) << 40);
    snprintf(path, sizeof path, "%s/far.XXXXXX", tmp != NULL ? tmp : "/tmp");
    /* behind the name: dimensions, then the type, then the offset */
    md_copy_patched(model(), path, t->name, 4 + 8 * t->dimension_count + 4, &far, sizeof far);
    md_gguf_close(f);
    refused(path, "file has 98362432 bytes, tensor 'token_embd.weight' needs ", "1099");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf_smollm");
    TCase *t = tcase_create("gguf_smollm");
    tcase_add_test(t, what_smollm_says);
    tcase_add_test(t, b008_cut_copies);
    tcase_add_test(t, b008_a_tensor_far_away);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
