/* exact_model.h - writes a fake model as a GGUF file, so that llama.cpp runs the very same weights.
 *
 * The vocabulary has 259 tokens, one per byte: <unk>, <s>, </s>, <0x00> ... <0xFF>; no first token is put
 * before a prompt.  All tensors are f32.  The chat template writes one line "role: content" per message. */
#ifndef MD_TESTS_EXACT_MODEL_H
#define MD_TESTS_EXACT_MODEL_H

#include "engine/fake_model.h"
#include "support/gguf_writer.h"

enum { MD_EXACT_TOKEN_OF_BYTE_0 = 3, MD_EXACT_TOKEN_END = 2 };

/* The model of the exact tests: md_fake_dims_exact(), seed 1. */
MD_MUST_USE enum md_status md_exact_model_open(struct md_fake_model **ret_model, struct md_err *err);

/* MD_INVALID  the model has another vocabulary than the 259 bytes
 * MD_IO       the file cannot be written; nothing is left of it */
MD_MUST_USE enum md_status md_exact_model_write(const struct md_fake_model *m, const char *path,
                                                struct md_err *err);
/* md_exact_model_open, and written to TMPDIR/modeld-WHAT-PID.gguf; its path goes to `out`.  The caller removes the file and
 * closes ret_model; on failure there is neither, and the reason is on standard error. */
bool md_exact_model_file(const char *what, struct md_fake_model **ret_model, char *out, size_t out_bytes);
/* The same of another model, which `open` makes. */
bool md_exact_model_file_of(const char *what,
                            enum md_status (*open)(struct md_fake_model **ret_model, struct md_err *err),
                            struct md_fake_model **ret_model, char *out, size_t out_bytes);
/* md_exact_model_write with more entries, which `more` puts. */
MD_MUST_USE enum md_status md_exact_model_write_with(const struct md_fake_model *m,
                                                     void (*more)(struct gguf_writer *w, void *user),
                                                     void *user, const char *path, struct md_err *err);
/* The entries of its vocabulary and template, for other files. */
void md_exact_model_vocabulary(struct gguf_writer *w);

/* The same model in two files, PREFIX-00001-of-00002.gguf and PREFIX-00002-of-00002.gguf. */
MD_MUST_USE enum md_status md_exact_model_write_parts(const struct md_fake_model *m, const char *prefix,
                                                      struct md_err *err);

#endif
