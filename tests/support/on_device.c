/* on_device.c - see on_device.h. */
#include "support/on_device.h"

#include <stdlib.h>

int32_t md_test_gpu_layers(void)
{
    const char *layers = getenv("MODELD_TEST_GPU_LAYERS");
    return layers == NULL ? 0 : (int32_t)atoi(layers);
}

float md_test_bound(float exact)
{
    const float rounded = 0.05f;
    return md_test_gpu_layers() != 0 && exact < rounded ? rounded : exact;
}
