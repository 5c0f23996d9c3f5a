/* test_prompt_llama.c - segments of prompts on the tokenizer of the exact model: one token per byte. */
#include "adapters/llama/llama_backend.h"
#include "support/exact_model.h"
#include "support/prompt_check.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

START_TEST(exact_model)
{
    char path[512];
    struct md_err err = { 0 };
    struct md_fake_model *model;
    struct md_text *text;
    snprintf(path, sizeof path, "%s/prompt-exact-%d.gguf",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp", (int)getpid());
    ck_assert_int_eq(md_exact_model_open(&model, &err), MD_OK);
    ck_assert_msg(md_exact_model_write(model, path, &err) == MD_OK, "%s", err.text);
    md_fake_model_close(model);
    const enum md_status s = md_llama_text_open(path, &text, &err);
    unlink(path);
    ck_assert_msg(s == MD_OK, "%s", err.text);
    prompt_check_chat(text);
    prompt_check_raw(text);
    md_text_close(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("prompt_llama");
    TCase *t = tcase_create("prompt_llama");
    tcase_add_test(t, exact_model);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
