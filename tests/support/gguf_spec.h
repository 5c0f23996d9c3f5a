/* gguf_spec.h - the keys of a model file in one line of text. */
#ifndef MD_TESTS_GGUF_SPEC_H
#define MD_TESTS_GGUF_SPEC_H

#include "engine/backend.h"
#include "support/gguf_writer.h"

/* "key=8 key=i32:[1,0] key=f32:0.5 key=text:yarn": entries of the architecture, u32 unless said.  A line that
 * is none fails the running test. */
void gw_spec(struct gguf_writer *w, const char *arch, const char *spec);

/* What the backend makes of the written file, as its probe says; the writer is done with then. */
MD_MUST_USE enum md_status gw_probe(struct gguf_writer *w, const struct md_backend *backend,
                                    struct md_model_facts *ret_facts, struct md_err *err);
/* The same of a file with these entries; without an architecture where arch is NULL. */
MD_MUST_USE enum md_status gw_probe_spec(const struct md_backend *backend, const char *arch, const char *spec,
                                         struct md_model_facts *ret_facts, struct md_err *err);

#endif
