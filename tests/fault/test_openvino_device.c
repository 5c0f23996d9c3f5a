/* test_openvino_device.c - the path to a GPU, with the processor in its place (openvino_device.h): what is told of devices,
 * what is asked of one, and that the engine there does what it does on the processor.
 *
 * What is right: KV and logits of the same tokens on the processor, in memory of ours. */
#include "adapters/openvino/ov_backend.h"
#include "adapters/openvino/ov_engine.h"
#include "openvino_device.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"
#include "support/tiny_models.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 256, PROMPT = 150, LAYERS = 4, KV_LIMIT_BYTES = 64 << 20 };

static char path[512], windowed[512];
static struct md_fake_model *model;
static md_token tokens[PROMPT + 1];

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");
    ck_assert(md_exact_model_file("device", &model, path, sizeof path));
    snprintf(windowed, sizeof windowed, "%s/modeld-device-%ld-w.gguf", tmp != NULL ? tmp : "/tmp",
             (long)getpid());
    ck_assert_int_eq(md_tiny_model_write(&md_tiny_windowed, windowed, NULL), MD_OK);
    md_subject_random_tokens(tokens, PROMPT + 1);
}

static void teardown(void)
{
    md_fake_model_close(model);
    unlink(path);
    unlink(windowed);
}

static struct md_open_params params_of(const char *device)
{
    return (struct md_open_params){ .model_path = path,
                                    .cell_count = CELLS,
                                    .threads = 1,
                                    .gpu_layers = -1,
                                    .flash_attn = -1,
                                    .type_k = "f32",
                                    .device = device };
}

static struct md_engine *open_on(const char *device)
{
    const struct md_open_params p = params_of(device);
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(md_openvino_open(&p, &e, &err) == MD_OK, "%s", err.text);
    return e;
}

START_TEST(what_is_told_of_devices)
{
    struct md_machine m = { 0 };
    struct md_err err = { 0 };
    ck_assert_msg(md_openvino_machine(&m, &err) == MD_OK, "%s", err.text);
    ck_assert(m.device_count == 2 && m.gpu_offload && m.one_device);
    const struct md_device *gpu = &m.devices[0], *npu = &m.devices[1];
    ck_assert_str_eq(gpu->id, "GPU");
    ck_assert_str_eq(gpu->kind, "gpu");
    ck_assert_str_eq(gpu->description, "a card of the test");
    ck_assert_str_eq(gpu->can, "FP32 FP16 INT8");
    ck_assert_int_eq(gpu->total_bytes, (int64_t)8 << 30);
    ck_assert_int_eq(gpu->free_bytes, (int64_t)8 << 30);
    ck_assert_int_eq(gpu->max_allocation_bytes, (int64_t)4 << 30);
    ck_assert(gpu->refused == NULL && !gpu->shares_host);
    ck_assert_str_eq(npu->kind, "npu");
    ck_assert(npu->refused != NULL && strstr(npu->refused, "attention over blocks") != NULL);
}
END_TEST

/* A card with a driver that is broken takes nothing from who computes on the processor. */
START_TEST(a_device_that_tells_nothing)
{
    struct md_machine m = { 0 };
    struct md_err err = { 0 };
    openvino_device_silent(true);
    ck_assert_msg(md_openvino_machine(&m, &err) == MD_OK, "%s", err.text);
    openvino_device_silent(false);
    ck_assert_int_eq(m.device_count, 2);
    ck_assert_str_eq(m.devices[0].id, "GPU");
    ck_assert_msg(strstr(m.devices[0].description, "as the test wants it") != NULL, "%s",
                  m.devices[0].description);
    ck_assert(m.devices[0].total_bytes == 0 && m.devices[0].can[0] == '\0');
}
END_TEST

struct seen {
    struct md_buf kv;
    float logits[MD_FAKE_BYTE_VOCAB];
    char identity[sizeof((struct md_engine_info *)0)->identity];
};

/* A prompt, a piece out of its middle and back, which does not begin or end where blocks do. */
static void work(struct md_engine *e, struct seen *ret)
{
    const struct md_range middle = { 21, 85 };
    const float *logits = NULL;
    struct md_err err = { 0 };
    md_buf_init(&ret->kv, NULL, KV_LIMIT_BYTES);
    ck_assert_msg(md_engine_prefill(e, 0, 0, tokens, PROMPT, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_engine_evict_range(e, 0, middle, &ret->kv, &err) == MD_OK, "%s", err.text);
    const struct md_bytes kv = { ret->kv.data, ret->kv.len };
    ck_assert_msg(md_engine_admit_range(e, 0, middle, kv, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_engine_decode(e, 0, PROMPT, tokens + PROMPT, 1, &logits, &err) == MD_OK, "%s", err.text);
    memcpy(ret->logits, logits, sizeof ret->logits);
    snprintf(ret->identity, sizeof ret->identity, "%s", md_engine_info(e)->identity);
}

/* The shim's own block, which nothing has been written to yet: what is there must be finite, and is zero. */
static void check_zeroed(const struct md_engine *base)
{
    const struct md_ov_engine *e = (const struct md_ov_engine *)base;
    const size_t size = md_ov_model_facts(e->model)->block_bytes;
    uint8_t *got = malloc(size), *zeros = calloc(1, size);
    ck_assert(got != NULL && zeros != NULL);
    ck_assert_int_eq(md_ov_model_get(e->model, e->cache.block_count - 1, got, NULL), MD_OK);
    ck_assert(memcmp(got, zeros, size) == 0);
    free(got);
    free(zeros);
}

START_TEST(a_gpu_does_as_the_processor_does)
{
    struct seen cpu, gpu;
    float apart = 0;
    openvino_device_reset();
    struct md_engine *e = open_on(NULL);
    work(e, &cpu);
    ck_assert_str_eq(md_engine_info(e)->xattention, "off");
    ck_assert_int_eq(openvino_device_calls.compiled + openvino_device_calls.tensors, 0);
    md_engine_close(e);

    e = open_on("GPU");
    const struct openvino_device_calls opened = openvino_device_calls;
    ck_assert(opened.compiled == 1 && !opened.unknown_setting);
    ck_assert_int_eq(opened.tensors, 2 * LAYERS);
    ck_assert(opened.ins > 2 * LAYERS && opened.outs > 0); /* zeros, and the trial */
    ck_assert_str_eq(md_engine_info(e)->device, "GPU");
    ck_assert_str_eq(md_engine_info(e)->xattention, "unavailable: for the CPU only");
    check_zeroed(e);
    work(e, &gpu);
    ck_assert_int_eq(openvino_device_calls.tensors, opened.tensors);
    /* the header has the identity, what is behind it is the KV */
    ck_assert_uint_eq(cpu.kv.len, gpu.kv.len);
    const size_t header =
        (size_t)md_engine_export_bytes(e, 1) - (size_t)md_engine_info(e)->kv_bytes_per_token;
    ck_assert(memcmp(cpu.kv.data + header, gpu.kv.data + header, cpu.kv.len - header) == 0);
    for (int i = 0; i < MD_FAKE_BYTE_VOCAB; i++)
        apart = fmaxf(apart, fabsf(cpu.logits[i] - gpu.logits[i]));
    ck_assert_msg(apart <= 1e-3f, "%g", (double)apart);

    /* KV of the one is none of the other */
    ck_assert(strcmp(cpu.identity, gpu.identity) != 0);
    ck_assert_int_eq(md_engine_truncate(e, 0, 0, NULL), MD_OK);
    ck_assert_int_ne(md_engine_admit_range(e, 0, (struct md_range){ 21, 85 },
                                           (struct md_bytes){ cpu.kv.data, cpu.kv.len }, NULL),
                     MD_OK);
    md_engine_close(e);
    md_buf_done(&cpu.kv);
    md_buf_done(&gpu.kv);
}
END_TEST

START_TEST(what_a_gpu_is_not_asked)
{
    static const struct {
        const char *device, *type;
        int32_t layers;
        bool windows;
        double xattention;
        const char *says;
    } rows[] = {
        { "GPU", "u8", -1, false, 0, "u8 is one of the processor" },
        { "GPU", "f16", 3, false, 0, "all layers on one device" },
        { "GPU", "f16", -1, true, 0, "layers with a window cannot be run on 'GPU'" },
        { "NPU", "f16", -1, false, 0, "attention over blocks" },
        { "GPU", "f16", -1, false, 0.9, "XAttention is for the CPU" },
        { "GPU", "f16", -1, false, 1, "use --device CPU instead of 'GPU'" },
        { "GPU.1", "f16", -1, false, 0, "no device 'GPU.1' here; there is CPU, GPU" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_open_params p = params_of(rows[i].device);
        struct md_engine *e = NULL;
        struct md_err err = { 0 };
        p.type_k = rows[i].type;
        p.gpu_layers = rows[i].layers;
        p.xattention = rows[i].xattention;
        p.model_path = rows[i].windows ? windowed : path;
        openvino_device_reset();
        ck_assert_int_eq(md_openvino_open(&p, &e, &err), MD_UNSUPPORTED);
        ck_assert_msg(strstr(err.text, rows[i].says) != NULL, "row %zu: %s", i, err.text);
        ck_assert_int_eq(openvino_device_calls.compiled, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openvino, a device");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 300);
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_test(t, what_is_told_of_devices);
    tcase_add_test(t, a_device_that_tells_nothing);
    tcase_add_test(t, a_gpu_does_as_the_processor_does);
    tcase_add_test(t, what_a_gpu_is_not_asked);
    suite_add_tcase(suite, t);
    return md_run_suite_here(suite);
}
