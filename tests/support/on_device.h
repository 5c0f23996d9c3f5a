/* on_device.h - where tests that can run on an accelerator do (tools/device-check.sh).
 *
 * MODELD_TEST_GPU_LAYERS  layers there, -1 all; unset: the processor, as ever
 * Kernels of accelerators multiply f32 with fewer bits (TF32 has 10), so that bounds are wider there: 0.05, far below what a wrong
 * set of tokens makes of the exact model's logits, which is 0.4 at least. */
#ifndef MD_TESTS_ON_DEVICE_H
#define MD_TESTS_ON_DEVICE_H

#include <stdint.h>

int32_t md_test_gpu_layers(void);
/* The bound of a test that has `exact` on the processor. */
float md_test_bound(float exact);

#endif
