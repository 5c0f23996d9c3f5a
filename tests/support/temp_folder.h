/* temp_folder.h - folders for tests, under TMPDIR (/tmp without it).
 *
 * What fails here is said on stderr and ends the process, so that programs without libcheck can use it. */
#ifndef MD_TESTS_TEMP_FOLDER_H
#define MD_TESTS_TEMP_FOLDER_H

#include <stddef.h>

/* Make TMPDIR/modeld-WHAT-XXXXXX, a new and empty folder, and write its path to `out`. */
void md_temp_folder(char *out, size_t out_bytes, const char *what);
/* Remove all that is in it, links themselves and not what they lead to. */
void md_temp_folder_empty(const char *folder);
/* The same, and the folder. */
void md_temp_folder_remove(const char *folder);

#endif
