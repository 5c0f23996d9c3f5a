/* test_device.c - --device on machines that are not here: what is asked, what there is, what is opened.  B124: an unknown
 * device is refused with those there are, one that was named never becomes the processor. */
#include "commands/device.h"
#include "support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const char no_npu[] = "nothing is computed there";

/* A card for display first, as libraries list them: two cards, an integrated one, a helper, and one that is refused. */
static struct md_machine several(void)
{
    static const struct {
        const char *kind, *id;
    } list[] = {
        { "igpu", "Vulkan0" }, { "gpu", "CUDA0" }, { "accel", "BLAS" }, { "gpu", "CUDA1" }, { "npu", "NPU" },
    };
    struct md_machine m = { 0 };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct md_device *d = &m.devices[m.device_count++];
        snprintf(d->kind, sizeof d->kind, "%s", list[i].kind);
        snprintf(d->id, sizeof d->id, "%s", list[i].id);
        d->refused = strcmp(list[i].kind, "npu") == 0 ? no_npu : NULL;
    }
    return m;
}

static const struct {
    const char *asked;
    int32_t gpu_layers; /* by -ngl */
    bool bare;          /* a machine with nothing but its processor */
    enum md_status want;
    const char *device; /* where it goes; NULL: the host */
    const char *named;  /* what the engine is told; NULL: nothing */
    int32_t layers;     /* that are opened */
    const char *says;
} rows[] = {
    { NULL, -1, false, MD_OK, "CUDA0", NULL, -1, NULL },
    { "AUTO", -1, false, MD_OK, "CUDA0", NULL, -1, NULL },
    { "auto", 0, false, MD_OK, NULL, NULL, 0, NULL },
    { "AUTO", -1, true, MD_OK, NULL, NULL, -1, NULL },
    { "CPU", -1, false, MD_OK, NULL, NULL, 0, NULL },
    { "cpu", 0, true, MD_OK, NULL, NULL, 0, NULL },
    { "CPU", 5, false, MD_INVALID, NULL, NULL, 5, "leave one out" },
    { "GPU", -1, false, MD_OK, "CUDA0", "CUDA0", -1, NULL },
    { "gpu.1", 7, false, MD_OK, "CUDA1", "CUDA1", 7, NULL },
    { "GPU.2", -1, false, MD_OK, "Vulkan0", "Vulkan0", -1, NULL },
    { "cuda1", -1, false, MD_OK, "CUDA1", "CUDA1", -1, NULL },
    { "GPU", 0, false, MD_INVALID, NULL, NULL, 0, "leave one out" },
    { "GPU.3", -1, false, MD_INVALID, NULL, NULL, -1, "there is CPU, Vulkan0, CUDA0, CUDA1:" },
    { "GPU.", -1, false, MD_INVALID, NULL, NULL, -1, "there is CPU, " },
    { "GPU.1x", -1, false, MD_INVALID, NULL, NULL, -1, "there is CPU, " },
    { "GPU.-1", -1, false, MD_INVALID, NULL, NULL, -1, "there is CPU, " },
    { "", -1, false, MD_INVALID, NULL, NULL, -1, "there is CPU, " },
    { "cuda", -1, false, MD_INVALID, NULL, NULL, -1, "there is CPU, " },
    { "BLAS", -1, false, MD_UNSUPPORTED, NULL, NULL, -1, "only helps the processor" },
    { "NPU", -1, false, MD_UNSUPPORTED, NULL, NULL, -1, "nothing is computed there" },
    { "GPU", -1, true, MD_INVALID, NULL, NULL, -1, "there is CPU: give" },
    { "GPU.7", -1, true, MD_INVALID, NULL, NULL, -1, "there is CPU: give" },
    { "NPU", -1, true, MD_INVALID, NULL, NULL, -1, "there is CPU: give" },
};

START_TEST(b124_named_devices)
{
    const struct md_machine bare = { 0 }, more = several(), *m = rows[_i].bare ? &bare : &more;
    struct md_open_params open = { .gpu_layers = rows[_i].gpu_layers };
    const struct md_device *d = NULL;
    struct md_err err = { 0 };
    enum md_status s = md_device_resolve(rows[_i].asked, "llama", m, &open, &d, &err);
    const char *got = d == NULL ? "the host" : d->id,
               *want = rows[_i].device == NULL ? "the host" : rows[_i].device;
    ck_assert_msg(s == rows[_i].want, "row %d: %s", _i, err.text);
    ck_assert_msg(strcmp(got, want) == 0, "row %d: %s", _i, got);
    ck_assert_msg(open.gpu_layers == rows[_i].layers, "row %d: %d layers", _i, open.gpu_layers);
    if (rows[_i].named == NULL)
        ck_assert_ptr_null(open.device);
    else
        ck_assert_str_eq(open.device, rows[_i].named);
    if (rows[_i].says != NULL)
        ck_assert_msg(strstr(err.text, rows[_i].says) != NULL, "row %d: %s", _i, err.text);
}
END_TEST

/* An engine that lists a card and computes nothing on it: the card is no accelerator, and GPU says why. */
START_TEST(b124_a_refused_card)
{
    struct md_machine m = { .device_count = 1 };
    struct md_open_params open = { .gpu_layers = -1 };
    const struct md_device *d = NULL;
    struct md_err err = { 0 };
    snprintf(m.devices[0].kind, sizeof m.devices[0].kind, "gpu");
    snprintf(m.devices[0].id, sizeof m.devices[0].id, "GPU.0");
    m.devices[0].refused = no_npu;
    ck_assert_ptr_null(md_device_accelerator(&m));
    ck_assert_int_eq(md_device_resolve("AUTO", "openvino", &m, &open, &d, &err), MD_OK);
    ck_assert_ptr_null(d);
    ck_assert_int_eq(md_device_resolve("GPU", "openvino", &m, &open, &d, &err), MD_UNSUPPORTED);
    ck_assert_msg(strstr(err.text, no_npu) != NULL && strstr(err.text, "there is CPU: give") != NULL, "%s",
                  err.text);
    ck_assert_int_eq(md_device_resolve("GPU.0", "openvino", &m, &open, &d, &err), MD_UNSUPPORTED);
}
END_TEST

/* An engine that spreads nothing: with AUTO as well it is told which one, the first card, never the one for display. */
START_TEST(b124_one_device)
{
    struct md_machine m = several();
    struct md_open_params open = { .gpu_layers = -1 };
    const struct md_device *d = NULL;
    m.one_device = true;
    ck_assert_int_eq(md_device_resolve("AUTO", "openvino", &m, &open, &d, NULL), MD_OK);
    ck_assert(d != NULL && open.device == d->id);
    ck_assert_str_eq(open.device, "CUDA0");
    open = (struct md_open_params){ 0 }; /* -ngl 0 */
    ck_assert_int_eq(md_device_resolve("AUTO", "openvino", &m, &open, &d, NULL), MD_OK);
    ck_assert(d == NULL && open.device == NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *t = tcase_create("device");
    tcase_add_loop_test(t, b124_named_devices, 0, sizeof rows / sizeof rows[0]);
    tcase_add_test(t, b124_a_refused_card);
    tcase_add_test(t, b124_one_device);
    suite_add_tcase(suite, t);
    return md_run_suite(suite);
}
