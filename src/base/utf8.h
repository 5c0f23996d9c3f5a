/* utf8.h - where characters end.
 *
 * Threads: any; touches nothing but its arguments.  Source: the Unicode standard, table 3-7. */
#ifndef MD_BASE_UTF8_H
#define MD_BASE_UTF8_H

#include <stddef.h>

/* Bytes of the UTF-8 character at p, or minus the length of the maximal ill-formed part. */
int md_utf8_step(const unsigned char *p, size_t len);

#endif
