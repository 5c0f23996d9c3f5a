/* print.h - what commands write: JSON documents, sizes and counts for people.  Threads: one at a time. */
#ifndef MD_COMMANDS_PRINT_H
#define MD_COMMANDS_PRINT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

/* Write doc to standard output with a newline, and free it.  pretty: for people to read too.  Strings that are
 * not UTF-8 (names of files, keys of models) are written with U+FFFD in the place of what is not.
 * MD_NO_MEMORY, also for a doc that ran out of it while it was built; MD_IO standard output. */
MD_MUST_USE enum md_status md_print_json(yyjson_mut_doc *doc, bool pretty, struct md_err *err);
/* Flush standard output: a full disk is an error like any other. */
MD_MUST_USE enum md_status md_print_flush(struct md_err *err);

/* The text of doc, which is freed: see above.  ret_text is the caller's to free.  MD_NO_MEMORY likewise. */
MD_MUST_USE enum md_status md_write_json(yyjson_mut_doc *doc, bool pretty, char **ret_text,
                                         struct md_err *err);

/* Words of a model file or a file name as a terminal may have them: see md_gguf_escape.  Returns out. */
const char *md_plain_text(const char *text, char *out, size_t out_bytes);
/* "93.8 MiB", "1.25 GiB", "512 bytes" */
const char *md_size_text(int64_t bytes, char *out, size_t out_bytes);
/* "131,072" */
const char *md_count_text(int64_t n, char *out, size_t out_bytes);

#endif
