/* file.h - reading a small file whole, and replacing it.  Threads: any. */
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

/* Write a file whole: beside its place, to the disk, then renamed into it, 0600.  Whoever reads the name finds the old bytes or the
 * new ones, also when the process is killed or the power fails, and when other processes
 * write it too: each has a name beside it, PATH.PID, which one that is killed leaves.  One thread of a process at a time.  The folders above
 * must be there.
 *
 * MD_INVALID  the path is too long     MD_IO  the text says what failed; the old file is as it was */
MD_MUST_USE enum md_status md_file_replace(const char *path, struct md_bytes bytes, struct md_err *err);

#endif
