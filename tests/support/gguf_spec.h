/* gguf_spec.h - the keys of a model file in one line of text. */
#ifndef MD_TESTS_GGUF_SPEC_H
#define MD_TESTS_GGUF_SPEC_H

#include "support/gguf_writer.h"

/* "key=8 key=i32:[1,0] key=f32:0.5 key=text:yarn": entries of the architecture, u32 unless said.  A line that
 * is none fails the running test. */
void gw_spec(struct gguf_writer *w, const char *arch, const char *spec);

#endif
