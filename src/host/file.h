/* file.h - reading a small file whole.  Threads: any. */
#ifndef MD_HOST_FILE_H
#define MD_HOST_FILE_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>

/* Append the bytes of a regular file of at most `most` bytes to b.  Never waits: a FIFO is refused, not read.
 *
 * ret_missing  true: there is no such file, which is MD_OK, and b is as before
 * MD_INVALID   larger than that; the text has both numbers
 * MD_IO        not a regular file, or it cannot be read        MD_NO_MEMORY */
MD_MUST_USE enum md_status md_file_read(const char *path, int most, struct md_buf *b, bool *ret_missing,
                                        struct md_err *err);

#endif
