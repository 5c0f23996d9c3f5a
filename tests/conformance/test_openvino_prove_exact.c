/* An engine that tries itself before it is used, and devices that do not do what they should.  No such device is here: the
 * processor is tried, as it is and with faults put between it and the engine, each of which would otherwise be seen
 * as wrong text.
 *
 * What is right: KV put back is the KV that left, and then the logits are those of before (engine_ops.h). */
#include "adapters/openvino/ov_backend.h"
#include "adapters/openvino/ov_engine.h"
#include "support/exact_model.h"
#include "support/run_suite.h"
#include "support/subjects.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 128 };

static char path[512];
static struct md_fake_model *model;

static void setup(void)
{
    ck_assert(md_exact_model_file("prove", &model, path, sizeof path));
}

static void teardown(void)
{
    md_fake_model_close(model);
    unlink(path);
}

static enum md_status open_with(int32_t cells, const char *type, const char *device, bool pooled,
                                struct md_engine **ret, struct md_err *err)
{
    const struct md_open_params p = { .model_path = path,
                                      .cell_count = cells,
                                      .threads = 1,
                                      .flash_attn = -1,
                                      .type_k = type,
                                      .device = device };
    return md_ov_engine_open(&p, pooled, ret, err);
}

static struct md_ov_engine *open_engine(const char *type, bool pooled)
{
    struct md_engine *e = NULL;
    struct md_err err = { 0 };
    ck_assert_msg(open_with(CELLS, type, NULL, pooled, &e, &err) == MD_OK, "%s", err.text);
    return (struct md_ov_engine *)e;
}

START_TEST(the_processor_stands_the_trial)
{
    static const char *const types[] = { "f32", "f16", "u8" };
    struct md_err err = { 0 };
    struct md_ov_engine *e = open_engine(types[_i % 3], _i >= 3);
    for (int i = 0; i < 2; i++) { /* it leaves nothing behind */
        ck_assert_msg(md_ov_prove(e, &err) == MD_OK, "%s: %s", types[_i % 3], err.text);
        ck_assert_int_eq(md_engine_cells_used(&e->base), 0);
        for (int32_t b = 0; b < e->rows.block_count; b++)
            ck_assert_int_eq(e->rows.used[b], 0);
    }
    md_engine_close(&e->base);
}
END_TEST

/* What is in memory of ours and what is in a pool is the same KV: the bytes of the one go into the other. */
START_TEST(a_pool_holds_what_memory_holds)
{
    md_token tokens[CELLS];
    struct md_buf kv[2];
    float logits[2][MD_FAKE_BYTE_VOCAB];
    struct md_err err = { 0 };
    md_subject_random_tokens(tokens, CELLS);
    for (int i = 0; i < 2; i++) {
        const float *got = NULL;
        struct md_ov_engine *e = open_engine("f32", i == 1);
        md_buf_init(&kv[i], NULL, 64 << 20);
        ck_assert_msg(md_engine_prefill(&e->base, 0, 0, tokens, 100, &err) == MD_OK, "%s", err.text);
        ck_assert_int_eq(md_engine_export_range(&e->base, 0, (struct md_range){ 9, 91 }, &kv[i], NULL),
                         MD_OK);
        ck_assert_int_eq(md_engine_decode(&e->base, 0, 100, tokens + 100, 1, &got, NULL), MD_OK);
        memcpy(logits[i], got, sizeof logits[i]);
        md_engine_close(&e->base);
    }
    ck_assert_uint_eq(kv[0].len, kv[1].len);
    ck_assert(memcmp(kv[0].data, kv[1].data, kv[0].len) == 0);
    ck_assert(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);
    md_buf_done(&kv[0]);
    md_buf_done(&kv[1]);
}
END_TEST

/* ---- devices that do not ---- */

enum fault {
    NONE,
    FORGETS_A_PUT, /* of the first block */
    LOSES_A_BIT,   /* of what is fetched */
    MIXES_BLOCKS,  /* puts into the block beside it */
    STALE,         /* gives what the block held when it was first asked */
    KEYS_ACROSS,   /* keys lie in another way than is thought */
    VALUES_ACROSS,
    FAILS_TO_GET,
    FAILS_TO_PUT,
    IGNORES_PAST, /* logits do not depend on KV, which is kept and moved as it should be */
    NONE_WITHOUT, /* logits that are no numbers while KV is out */
    FAULTS
};
static const char *const names[] = { "none",         "forgets a put", "loses a bit",       "mixes blocks",
                                     "stale",        "keys across",   "values across",     "fails to get",
                                     "fails to put", "ignores past",  "no numbers without" };

/* ---- steps, in place of the shim's: cmake/tests.cmake wraps them ---- */

static enum fault step_fault; /* the others leave steps as they are */
static int32_t looks;         /* steps of one token: with all KV, without some, with it again */

enum md_status __real_md_ov_model_run(struct md_ov_model *m, const struct md_ov_step *step,
                                      bool (*stop)(void *user), void *user, const float **ret_logits,
                                      struct md_err *err);
enum md_status __wrap_md_ov_model_run(struct md_ov_model *m, const struct md_ov_step *step,
                                      bool (*stop)(void *user), void *user, const float **ret_logits,
                                      struct md_err *err);
enum md_status __wrap_md_ov_model_run(struct md_ov_model *m, const struct md_ov_step *step,
                                      bool (*stop)(void *user), void *user, const float **ret_logits,
                                      struct md_err *err)
{
    static float other[MD_FAKE_BYTE_VOCAB];
    const enum md_status s = __real_md_ov_model_run(m, step, stop, user, ret_logits, err);
    if (s != MD_OK || step->count != 1)
        return s;
    looks++;
    if (step_fault == IGNORES_PAST &&
        looks == 1) /* one token at one place: without a past it is always this */
        memcpy(other, *ret_logits, sizeof other);
    for (int i = 0; step_fault == NONE_WITHOUT && i < MD_FAKE_BYTE_VOCAB; i++)
        other[i] = NAN;
    if ((step_fault == IGNORES_PAST && looks > 1) || (step_fault == NONE_WITHOUT && looks == 2))
        *ret_logits = other;
    return s;
}

/* ---- copies ---- */

struct faulty {
    struct md_ov_pool_ops real;
    enum fault fault;
    size_t block_bytes;
    uint8_t *first[8]; /* of each block: what it held when it was first asked; NULL: not yet */
};

static enum md_status get(void *user, int32_t block, uint8_t *ret_bytes, struct md_err *err)
{
    struct faulty *f = user;
    if (f->fault == FAILS_TO_GET)
        return md_fail(err, MD_INTERNAL, "get KV from the device: as the test wants it");
    enum md_status s = f->real.get(f->real.user, block, ret_bytes, err);
    if (f->fault == LOSES_A_BIT)
        ret_bytes[f->block_bytes / 2] ^= 1;
    if (f->fault == STALE && f->first[block] != NULL)
        memcpy(ret_bytes, f->first[block], f->block_bytes);
    if (f->fault == STALE && f->first[block] == NULL) {
        f->first[block] = malloc(f->block_bytes);
        memcpy(f->first[block], ret_bytes, f->block_bytes);
    }
    return s;
}

static enum md_status put(void *user, int32_t block, const uint8_t *bytes, struct md_err *err)
{
    struct faulty *f = user;
    if (f->fault == FAILS_TO_PUT)
        return md_fail(err, MD_INTERNAL, "put KV onto the device: as the test wants it");
    if (f->fault == FORGETS_A_PUT)
        return MD_OK;
    return f->real.put(f->real.user, f->fault == MIXES_BLOCKS ? block ^ 1 : block, bytes, err);
}

START_TEST(a_device_that_does_not)
{
    const enum fault fault = (enum fault)(_i % FAULTS);
    const char *type = _i < FAULTS ? "f32" : "f16";
    struct md_ov_engine *e = open_engine(type, true);
    struct faulty f = { .real = e->cache.stage->pool,
                        .fault = fault,
                        .block_bytes = md_ov_model_facts(e->model)->block_bytes };
    struct md_err err = { 0 };
    e->cache.stage->pool = (struct md_ov_pool_ops){ get, put, &f };
    md_ov_cache_forget(&e->cache);
    for (int32_t i = 0; i < e->cache.part_count; i++)
        e->cache.parts[i].layout.across = fault == (i % 2 == 0 ? KEYS_ACROSS : VALUES_ACROSS);
    step_fault = fault;
    looks = 0;
    enum md_status s = md_ov_prove(e, &err);
    step_fault = NONE;
    printf("# %s, %s: %s\n", type, names[fault], s == MD_OK ? "stands" : err.text);
    ck_assert_msg(s == (fault == NONE ? MD_OK : MD_UNSUPPORTED), "%s: %s", names[fault], err.text);
    if (s != MD_OK)
        ck_assert_msg(strstr(err.text, "use --device CPU") != NULL && strchr(err.text, '\n') == NULL, "%s",
                      err.text);
    if (fault == FAILS_TO_GET || fault == FAILS_TO_PUT)
        ck_assert_msg(strstr(err.text, "as the test wants it") != NULL, "%s", err.text);
    if (fault == IGNORES_PAST || fault == NONE_WITHOUT) { /* KV and what is computed with it are right */
        ck_assert_msg(strstr(err.text, fault == IGNORES_PAST ? "hardly tell what KV" : "no numbers") != NULL,
                      "%s", err.text);
        ck_assert_int_eq(looks, 3);
    }
    ck_assert_int_eq(md_engine_cells_used(&e->base), 0);
    md_engine_close(&e->base);
    for (int i = 0; i < 8; i++)
        free(f.first[i]);
}
END_TEST

/* ---- what is refused before anything is read ---- */

START_TEST(what_cannot_be_opened)
{
    static const struct {
        const char *device, *type;
        int32_t cells;
        bool pooled;
        enum md_status want;
        const char *says;
    } rows[] = {
        { "GPU.7", "f16", 64, true, MD_UNSUPPORTED, "no device 'GPU.7' here; there is CPU" },
        { "GPU.7", "u8", 64, true, MD_UNSUPPORTED, "u8 is one of the processor" },
        { "NPU", "f16", 64, true, MD_UNSUPPORTED, "no attention over blocks" },
        { "TPU", "f16", 64, true, MD_UNSUPPORTED, "on a CPU or a GPU only" },
        { "CPU", "f32", 64, true, MD_INVALID, "tried with 72 tokens" },
        { "CPU", "f32", 64, false, MD_OK, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_engine *e = NULL;
        struct md_err err = { 0 };
        enum md_status s = open_with(rows[i].cells, rows[i].type, rows[i].device, rows[i].pooled, &e, &err);
        ck_assert_msg(s == rows[i].want, "%s: %s: %s", rows[i].device, md_status_name(s), err.text);
        ck_assert_msg(rows[i].says == NULL || strstr(err.text, rows[i].says) != NULL, "%s", err.text);
        md_engine_close(e);
    }
}
END_TEST

static const struct md_ov_device present[] = {
    { .id = "CPU" }, { .id = "GPU.0" }, { .id = "GPU.1" }, { .id = "NPU" }
};

START_TEST(devices_that_are_asked)
{
    static const struct {
        const char *asked;
        int32_t count; /* of those present */
        enum md_status want;
        const char *says;
    } rows[] = {
        { "CPU", 4, MD_OK, NULL },
        { "GPU.1", 4, MD_OK, NULL },
        { "GPU", 4, MD_UNSUPPORTED, "no device 'GPU' here; there is CPU, GPU.0, GPU.1" },
        { "GPU.1", 2, MD_UNSUPPORTED, "there is CPU, GPU.0" },
        { "NPU", 4, MD_UNSUPPORTED, "attention over blocks" },
        { "NPU", 2, MD_UNSUPPORTED, "no device 'NPU' here" },
        { "GPUS", 4, MD_UNSUPPORTED, "no device" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_err err = { 0 };
        enum md_status s = md_ov_check_there(present, rows[i].count, rows[i].asked, &err);
        ck_assert_msg(s == rows[i].want, "%s: %s", rows[i].asked, err.text);
        ck_assert_msg(rows[i].says == NULL || strstr(err.text, rows[i].says) != NULL, "%s", err.text);
    }
    ck_assert_ptr_null(md_ov_refusal("GPU"));
    ck_assert_ptr_nonnull(md_ov_refusal("GPUX"));
    ck_assert_ptr_nonnull(md_ov_refusal("NPU.1"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openvino, a device is tried");
    TCase *t = tcase_create("prove");
    tcase_set_timeout(t, 300);
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, the_processor_stands_the_trial, 0, 6);
    tcase_add_test(t, a_pool_holds_what_memory_holds);
    tcase_add_loop_test(t, a_device_that_does_not, 0, 2 * FAULTS);
    tcase_add_test(t, what_cannot_be_opened);
    tcase_add_test(t, devices_that_are_asked);
    suite_add_tcase(suite, t);
    return md_run_suite_here(suite);
}
