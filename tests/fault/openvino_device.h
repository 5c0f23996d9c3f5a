/* openvino_device.h - a GPU and an NPU that are not there: the library is made to list them, and what a GPU is asked for is
 * done by the processor.
 *
 * The linker puts functions of openvino_device.cc in place of those that the shim calls (--wrap, cmake/tests.cmake).
 * Tensors of the GPU are memory of the host, full of what is no number; a region of one is copied in and out of it.  So the
 * shim's calls are seen to be made, in order and with what they need; that a GPU answers in this way is not.
 *
 * Threads: one at a time. */
#ifndef MD_TESTS_OPENVINO_DEVICE_H
#define MD_TESTS_OPENVINO_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the GPU was asked for since the last call of openvino_device_reset. */
struct openvino_device_calls {
    int32_t compiled, tensors, ins, outs;
    bool unknown_setting; /* it was compiled with a setting that it does not know */
};
extern struct openvino_device_calls openvino_device_calls;

void openvino_device_reset(void);
/* From now on the GPU tells nothing of itself: each question fails.  Or it tells again. */
void openvino_device_silent(bool silent);

#ifdef __cplusplus
}
#endif
#endif
