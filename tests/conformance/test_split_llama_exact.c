/* A model in two files is the model: the same logits, and an identity that knows the weights of both. */
#include "adapters/llama/llama_backend.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/temp_folder.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char folder[160], whole[200], first[200], second[200], prefix[200];
static struct md_fake_model *model;

static void setup(void)
{
    struct md_err err = { 0 };
    md_temp_folder(folder, sizeof folder, "split");
    snprintf(whole, sizeof whole, "%s/whole.gguf", folder);
    snprintf(prefix, sizeof prefix, "%s/model", folder);
    snprintf(first, sizeof first, "%s/model-00001-of-00002.gguf", folder);
    snprintf(second, sizeof second, "%s/model-00002-of-00002.gguf", folder);
    ck_assert_int_eq(md_exact_model_open(&model, &err), MD_OK);
    ck_assert_msg(md_exact_model_write(model, whole, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_exact_model_write_parts(model, prefix, &err) == MD_OK, "%s", err.text);
}

static void teardown(void)
{
    md_fake_model_close(model);
    unlink(whole);
    unlink(first);
    unlink(second);
    rmdir(folder);
}

static struct md_engine *open_model(const char *path)
{
    const struct md_open_params p = { .model_path = path, .cell_count = 256, .threads = 1 };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_backend_llama.open(&p, &e, NULL, &err) == MD_OK, "%s", err.text);
    return e;
}

START_TEST(a_split_model_computes_as_the_whole)
{
    static struct md_model_facts a, b;
    struct md_engine *engines[] = { open_model(whole), open_model(first) };
    const float *logits[2];
    const int32_t vocab = md_engine_info(engines[0])->vocab_count;
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(md_engine_decode(engines[i], 0, 0, (md_token[]){ 70 }, 1, &logits[i], NULL), MD_OK);
    ck_assert_mem_eq(logits[0], logits[1],
                     (size_t)vocab * sizeof(float)); /* the same weights, the same code */
    for (int i = 0; i < 2; i++)
        md_engine_close(engines[i]);
    ck_assert_int_eq(md_backend_llama.probe(whole, &a, NULL), MD_OK);
    ck_assert_int_eq(md_backend_llama.probe(first, &b, NULL), MD_OK);
    ck_assert_mem_eq(&a.shape, &b.shape, sizeof a.shape);
    ck_assert_int_gt(b.file_bytes, a.file_bytes); /* both files and a second header */
}
END_TEST

START_TEST(its_identity_knows_the_later_part)
{
    char before[512], other = 1;
    struct md_engine *e = open_model(first);
    snprintf(before, sizeof before, "%s", md_engine_info(e)->identity);
    md_engine_close(e);
    e = open_model(first);
    ck_assert_str_eq(md_engine_info(e)->identity, before);
    md_engine_close(e);
    int fd = open(second, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, &other, 1, lseek(fd, 0, SEEK_END) / 2 + 100), 1); /* a weight */
    close(fd);
    e = open_model(first);
    ck_assert_str_ne(md_engine_info(e)->identity, before);
    md_engine_close(e);
}
END_TEST

START_TEST(a_part_that_is_missing_is_named)
{
    const struct md_open_params p = { .model_path = first, .cell_count = 256, .threads = 1 };
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    unlink(second);
    ck_assert_int_eq(md_backend_llama.open(&p, &e, NULL, &err), MD_NOT_FOUND);
    ck_assert_msg(strstr(err.text, "model-00002-of-00002.gguf") != NULL, "%s", err.text);
    ck_assert_msg(md_exact_model_write_parts(model, prefix, &err) == MD_OK, "%s", err.text);
    const struct md_open_params later = { .model_path = second, .cell_count = 256, .threads = 1 };
    ck_assert_int_eq(md_backend_llama.open(&later, &e, NULL, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "-00001-of-00002.gguf") != NULL, "%s", err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("split_llama_exact");
    TCase *c = tcase_create("split");
    tcase_add_unchecked_fixture(c, setup, teardown);
    tcase_add_test(c, a_split_model_computes_as_the_whole);
    tcase_add_test(c, its_identity_knows_the_later_part);
    tcase_add_test(c, a_part_that_is_missing_is_named);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}
