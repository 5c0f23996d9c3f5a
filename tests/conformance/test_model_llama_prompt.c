/* Segments of prompts on the tokenizers and templates of the three test models: byte pairs (SmolLM2, Qwen) and
 * sentencepiece with its spaces and a first token (Gemma).  Vocabularies only. */
#include "adapters/llama/llama_backend.h"
#include "support/prompt_check.h"
#include "support/run_suite.h"

#include <check.h>
#include <unistd.h>

static const char *const models[] = { ".deps/models/smollm2.gguf", ".deps/models/gemma3-270m.gguf",
                                      ".deps/models/qwen2.5-coder-0.5b.gguf" };

START_TEST(model)
{
    struct md_err err = { 0 };
    struct md_text *text;
    ck_assert_msg(access(models[_i], R_OK) == 0, "'%s' is missing: tools/setup.sh model NAME", models[_i]);
    ck_assert_msg(md_llama_text_open(models[_i], &text, &err) == MD_OK, "%s", err.text);
    prompt_check_chat(text);
    prompt_check_raw(text);
    md_text_close(text);
}
END_TEST

/* The case: model G, which adds id 2; raw `<bos>Hi`, `Hi` and a chat.  (Model S: test_model_llama_text_smollm.c.) */
START_TEST(b049_one_first_token_on_gemma)
{
    struct md_err err = { 0 };
    struct md_text *text;
    ck_assert_msg(md_llama_text_open(models[1], &text, &err) == MD_OK, "%s", err.text);
    ck_assert(text->info.adds_bos && text->info.bos == 2);
    prompt_check_first_token(text, "<bos>");
    md_text_close(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("model_llama_prompt");
    TCase *t = tcase_create("prompt");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, model, 0, (int)(sizeof models / sizeof models[0]));
    tcase_add_test(t, b049_one_first_token_on_gemma);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
