/* Two engines, one real model: SmolLM2 with all its weights in f32, so that neither of them rounds activations, says
 * the same in both, token for token.
 *
 * The f32 file is made here, of the types that the 4-bit file has (Q4_1, Q8_0, f32).  Source: ggml-common.h, block_q4_1
 * and block_q8_0. */
#include "adapters/llama/llama_backend.h"
#include "adapters/openvino/ov_backend.h"
#include "adapters/openvino/ov_cache.h"
#include "base/half.h"
#include "support/run_suite.h"
#include "text/text.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER = 32, PROMPTS = 4, CELLS = 512, BLOCK = 32, NAME_MAX_BYTES = 128 };

static char path[512];

/* ---- the f32 file ---- */

enum { TYPE_F32 = 0, TYPE_Q4_1 = 3, TYPE_Q8_0 = 8 };

static void get(FILE *f, void *to, size_t bytes)
{
    ck_assert_uint_eq(fread(to, 1, bytes, f), bytes);
}

static void put(FILE *f, const void *from, size_t bytes)
{
    ck_assert_uint_eq(fwrite(from, 1, bytes, f), bytes);
}

static uint64_t get_u64(FILE *f)
{
    uint64_t v = 0;
    get(f, &v, sizeof v);
    return v;
}

static void skip(FILE *f, uint64_t bytes)
{
    ck_assert_int_eq(fseeko(f, (off_t)bytes, SEEK_CUR), 0);
}

static void skip_value(FILE *f, uint32_t type)
{
    static const uint8_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    enum { STRING = 8, ARRAY = 9 };
    ck_assert_uint_lt(type, sizeof sizes);
    if (type == STRING) {
        skip(f, get_u64(f));
    } else if (type == ARRAY) {
        uint32_t of = 0;
        get(f, &of, sizeof of);
        for (uint64_t n = get_u64(f); n > 0; n--)
            skip_value(f, of);
    } else {
        skip(f, sizes[type]);
    }
}

struct tensor {
    char name[NAME_MAX_BYTES];
    uint64_t name_bytes, numbers, offset, dimensions[4];
    uint32_t dimension_count, type;
};

static void read_tensor(FILE *f, struct tensor *t)
{
    t->name_bytes = get_u64(f);
    ck_assert_uint_lt(t->name_bytes, sizeof t->name);
    get(f, t->name, t->name_bytes);
    get(f, &t->dimension_count, sizeof t->dimension_count);
    ck_assert_uint_le(t->dimension_count, 4);
    get(f, t->dimensions, t->dimension_count * sizeof t->dimensions[0]);
    get(f, &t->type, sizeof t->type);
    t->offset = get_u64(f);
    t->numbers = 1;
    for (uint32_t i = 0; i < t->dimension_count; i++)
        t->numbers *= t->dimensions[i];
    ck_assert_msg(t->type == TYPE_F32 || t->numbers % BLOCK == 0, "tensor of %" PRIu64 " numbers",
                  t->numbers);
}

static float half_at(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return md_half_to_float(half);
}

/* One block of 32 numbers; returns its bytes in the file. */
static size_t numbers_of(uint32_t type, const uint8_t *block, float *out)
{
    switch (type) {
    case TYPE_F32: memcpy(out, block, BLOCK * sizeof *out); return BLOCK * sizeof *out;
    case TYPE_Q4_1: /* scale, least, then two numbers a byte: the first half in the low bits */
        for (int i = 0; i < BLOCK / 2; i++) {
            out[i] = half_at(block) * (float)(block[4 + i] & 15) + half_at(block + 2);
            out[i + BLOCK / 2] = half_at(block) * (float)(block[4 + i] >> 4) + half_at(block + 2);
        }
        return 4 + BLOCK / 2;
    default:
        ck_assert_uint_eq(type, TYPE_Q8_0);
        for (int i = 0; i < BLOCK; i++)
            out[i] = half_at(block) * (float)(int8_t)block[2 + i];
        return 2 + BLOCK;
    }
}

static void write_numbers(FILE *in, FILE *out, uint64_t data_at, const struct tensor *t)
{
    float numbers[BLOCK];
    uint8_t block[BLOCK * sizeof(float)] = { 0 };
    static const size_t sizes[] = { [TYPE_F32] = BLOCK * sizeof(float), [TYPE_Q4_1] = 20, [TYPE_Q8_0] = 34 };
    ck_assert_int_eq(fseeko(in, (off_t)(data_at + t->offset), SEEK_SET), 0);
    for (uint64_t done = 0; done < t->numbers; done += BLOCK) {
        get(in, block, sizes[t->type]);
        ck_assert_uint_eq(numbers_of(t->type, block, numbers), sizes[t->type]);
        put(out, numbers, sizeof numbers);
    }
}

/* Header and entries as they are; then the tensors, one behind the other. */
static void write_f32(const char *from, const char *to)
{
    enum { ALIGNMENT = 32 };
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert_msg(in != NULL && out != NULL, "%s or %s cannot be opened", from, to);
    skip(in, 8); /* magic, version */
    const uint64_t count = get_u64(in), entries = get_u64(in);
    for (uint64_t i = 0; i < entries; i++) {
        uint32_t type = 0;
        skip(in, get_u64(in));
        get(in, &type, sizeof type);
        skip_value(in, type);
    }
    const size_t head_bytes = (size_t)ftello(in);
    uint8_t *head = malloc(head_bytes);
    struct tensor *tensors = calloc(count, sizeof *tensors);
    ck_assert(head != NULL && tensors != NULL && count < 1000);
    rewind(in);
    get(in, head, head_bytes);
    put(out, head, head_bytes);
    uint64_t offset = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct tensor *t = &tensors[i];
        const uint32_t f32 = TYPE_F32;
        read_tensor(in, t);
        put(out, &t->name_bytes, sizeof t->name_bytes);
        put(out, t->name, t->name_bytes);
        put(out, &t->dimension_count, sizeof t->dimension_count);
        put(out, t->dimensions, t->dimension_count * sizeof t->dimensions[0]);
        put(out, &f32, sizeof f32);
        put(out, &offset, sizeof offset);
        offset += t->numbers * sizeof(float);
        ck_assert(offset % ALIGNMENT == 0 && t->numbers % BLOCK == 0); /* so that nothing is padded */
    }
    const uint64_t data_at = ((uint64_t)ftello(in) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    while (ftello(out) % ALIGNMENT != 0)
        put(out, "", 1);
    for (uint64_t i = 0; i < count; i++)
        write_numbers(in, out, data_at, &tensors[i]);
    free(head);
    free(tensors);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

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
    write_f32(getenv("MODELD_TEST_MODEL"), path);
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
