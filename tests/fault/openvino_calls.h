/* openvino_calls.h - calls of OpenVINO that throw on request.
 *
 * The linker puts functions of openvino_calls.cc in place of those that the shim calls (--wrap, cmake/tests.cmake);
 * each throws when its turn has come, and else does what was asked.
 *
 * Threads: one at a time. */
#ifndef MD_TESTS_OPENVINO_CALLS_H
#define MD_TESTS_OPENVINO_CALLS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum openvino_throw {
    OPENVINO_THROWS_ITS_OWN, /* ov::Exception with a text of several lines */
    OPENVINO_THROWS_MEMORY,  /* std::bad_alloc */
    OPENVINO_THROWS_STRANGE, /* what is no exception of the standard library */
    OPENVINO_THROWS
};

/* The nth call of the library from now on throws, once; 0: none does.
 * after  it is done before that: a step has begun, a tensor is set; constructors always throw before */
void openvino_calls_arm(long nth, enum openvino_throw what, bool after);
/* The nth time that the shim itself asks for memory fails, once. */
void openvino_memory_arm(long nth);
/* The call that threw since the last arm of one; NULL: none has. */
const char *openvino_calls_threw(void);

#ifdef __cplusplus
}
#endif
#endif
