/* half.c - see half.h. */
#include "base/half.h"

#include <math.h>
#include <string.h>

float md_half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31u, fraction = half & 1023u;
    uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
    float value;
    if (exponent == 0) {
        value = ldexpf((float)fraction, -24);
        return sign != 0 ? -value : value;
    }
    if (exponent == 31)
        bits = sign | 0x7f800000u | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t md_half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u); /* not a number */
    if (bits >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u); /* from 65520 on, infinity included */
    if (bits < 0x38800000u)                /* below 2^-14: steps of 2^-24 */
        return (uint16_t)(sign | (uint16_t)lrintf(ldexpf(fabsf(value), 24)));
    bits += 0xfffu + (bits >> 13 & 1u);
    return (uint16_t)(sign | (uint16_t)((bits >> 13) - (112u << 10)));
}
