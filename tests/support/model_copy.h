/* model_copy.h - damaged or altered copies of a model file.  Failures fail the running test. */
#ifndef MD_TESTS_MODEL_COPY_H
#define MD_TESTS_MODEL_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Copy `model` to a new file and write `len` bytes of data `skip` bytes behind the first place in its
 * metadata where `after` stands.
 *
 * out_path  ends in XXXXXX, which is replaced (mkstemp); the caller unlinks it */
void md_copy_patched(const char *model, char *out_path, const char *after, size_t skip, const void *data,
                     size_t len);
/* The first `keep` bytes of `model`. */
void md_copy_cut(const char *model, char *out_path, int64_t keep);

#endif
