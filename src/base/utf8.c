/* utf8.c - see utf8.h. */
#include "base/utf8.h"

#include <assert.h>

int md_utf8_step(const unsigned char *p, size_t len)
{
    assert(len > 0);
    unsigned char c = p[0], low = 0x80, high = 0xbf;
    int more;
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf) {
        more = 1;
    } else if (c >= 0xe0 && c <= 0xef) {
        more = 2;
        low = c == 0xe0 ? 0xa0 : 0x80;  /* not overlong */
        high = c == 0xed ? 0x9f : 0xbf; /* not a surrogate */
    } else if (c >= 0xf0 && c <= 0xf4) {
        more = 3;
        low = c == 0xf0 ? 0x90 : 0x80;
        high = c == 0xf4 ? 0x8f : 0xbf; /* not above U+10FFFF */
    } else {
        return -1;
    }
    for (int i = 1; i <= more; i++) {
        if ((size_t)i >= len || p[i] < low || p[i] > high)
            return -i;
        low = 0x80;
        high = 0xbf;
    }
    return more + 1;
}
