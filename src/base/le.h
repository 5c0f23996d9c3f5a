/* le.h - numbers in bytes, little-endian, on any machine.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_BASE_LE_H
#define MD_BASE_LE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The lowest `bytes` (1 to 8) bytes of value. */
static inline void md_le_store(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static inline uint64_t md_le_load(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

#ifdef __cplusplus
}
#endif
#endif
