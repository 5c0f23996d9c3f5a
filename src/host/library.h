/* library.h - may a file be given to the dynamic linker?  That waits for a FIFO, and maps what the file's header says: of
 * a file that was cut, as a full disk leaves it, the process dies.  Threads: any. */
#ifndef MD_HOST_LIBRARY_H
#define MD_HOST_LIBRARY_H

#include "base/err.h"

/* Look at a shared library before dlopen, which is still to be asked: whether it is of this machine, and what it needs,
 * is not looked at.  Never waits.
 *
 * MD_NOT_FOUND  there is none
 * MD_INVALID    it is no regular file, no library, or shorter than its header says
 * MD_IO         it cannot be read */
MD_MUST_USE enum md_status md_library_check(const char *path, struct md_err *err);

#endif
