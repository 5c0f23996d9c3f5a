/* Two engines, one real model: SmolLM2 with all its weights in f32, so that neither of them rounds activations, says
 * the same in both, token for token.
 *
 * The f32 file is made here (support/f32_file.h). */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "support/f32_file.h"
#include "support/run_suite.h"
#include "text/text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER = 32, PROMPTS = 4, CELLS = 512 };

static char path[512];

/* ---- the answers ---- */

static const char *const questions[PROMPTS] = {
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a short story about a cook and a captain who find an old map in a kitchen drawer.",
    "List the first five prime numbers and say what makes a number prime.",
};

static void answer_all(bool openvino, md_token answers[PROMPTS][ANSWER])
{
    const struct md_open_params p = { .model_path = path,
                                      .cell_count = CELLS,
                                      .flash_attn = openvino ? -1 : 0, /* llama.cpp's rounds f32 KV to f16 */
                                      .type_k = "f32",
                                      .type_v = "f32" };
    struct md_err err = { 0 };
    struct md_engine *e = NULL;
    struct md_text *text = NULL;
    enum md_status s = md_llama_text_open(path, &text, &err);
    if (s == MD_OK)
        s = openvino ? md_openvino_open(&p, &e, &err) : md_backend_llama.open(&p, &e, NULL, &err);
    ck_assert_msg(s == MD_OK, "%s", err.text);
    for (int i = 0; i < PROMPTS; i++) {
        char prompt[512];
        struct md_tokens t = { 0 };
        const float *logits = NULL;
        snprintf(prompt, sizeof prompt, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n",
                 questions[i]);
        s = md_text_tokenize(text, (struct md_bytes){ prompt, strlen(prompt) }, false, true, &t, &err);
        ck_assert_msg(s == MD_OK, "%s", err.text);
        const int32_t count = (int32_t)t.count;
        ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK);
        for (int k = 0; k < ANSWER; k++) {
            s = k == 0 ? md_engine_decode(e, 0, 0, t.ids, count, &logits, &err)
                       : md_engine_decode(e, 0, count + k - 1, &answers[i][k - 1], 1, &logits, &err);
            ck_assert_msg(s == MD_OK, "%s", err.text);
            md_token best = 0;
            for (md_token v = 1; v < md_engine_info(e)->vocab_count; v++)
                best = logits[v] > logits[best] ? v : best;
            answers[i][k] = best;
        }
        md_tokens_done(&t);
    }
    md_engine_close(e);
    md_text_close(text);
}

START_TEST(the_same_greedy_answers)
{
    static md_token answers[2][PROMPTS][ANSWER];
    md_f32_file_write(getenv("MODELD_TEST_MODEL"), path);
    answer_all(false, answers[0]);
    answer_all(true, answers[1]);
    for (int i = 0; i < PROMPTS; i++)
        for (int k = 0; k < ANSWER; k++)
            ck_assert_msg(answers[0][i][k] == answers[1][i][k], "prompt %d, token %d: %d and %d", i, k,
                          answers[0][i][k], answers[1][i][k]);
    ck_assert_int_ne(answers[0][1][20], answers[0][2][20]); /* they are answers to questions */
}
END_TEST

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    if (getenv("MODELD_TEST_MODEL") == NULL) {
        fprintf(stderr, "MODELD_TEST_MODEL names no model file: set it to SmolLM2 (tests/run.sh does)\n");
        return 1;
    }
    snprintf(path, sizeof path, "%s/modeld-f32-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
    Suite *suite = suite_create("openvino_llama_smollm");
    TCase *c = tcase_create("two engines");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, the_same_greedy_answers);
    suite_add_tcase(suite, c);
    const int failed = md_run_suite_here(suite);
    unlink(path);
    return failed;
}
