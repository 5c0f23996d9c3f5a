/* llama_check.h - the rules of llama_check.c. */
#ifndef MD_ADAPTERS_LLAMA_CHECK_H
#define MD_ADAPTERS_LLAMA_CHECK_H

#include "adapters/llama/llama_arch.h"
#include "adapters/llama/llama_internal.h"
#include "host/gguf.h"

/* Refuse a file whose header the library would meet with an assertion.  `facts` are its layout, of an
 * architecture that the engine opens.
 *
 * MD_INVALID  with the key or tensor, what it says and what is needed
 * Threads: one at a time per file. */
MD_MUST_USE enum md_status md_llama_check(struct md_gguf *file, const struct md_llama_arch *arch,
                                          const struct md_model_facts *facts, struct md_err *err);

#endif
