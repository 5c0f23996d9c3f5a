/* half.h - numbers of 16 bits (IEEE 754 binary16), as keys are kept and handed on.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_BASE_HALF_H
#define MD_BASE_HALF_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

float md_half_to_float(uint16_t half);
uint16_t md_half_of(float value); /* to the nearest, halves to even; too large: infinity */

#ifdef __cplusplus
}
#endif
#endif
