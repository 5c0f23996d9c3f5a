/* llama_chat.h - C doors to the C++ of llama-common: chat templates, and the library calls that can throw.
 * No exception leaves this file's .cc: every entry catches and returns a status. */
#ifndef MD_ADAPTERS_LLAMA_CHAT_H
#define MD_ADAPTERS_LLAMA_CHAT_H

#include "base/err.h"
#include "base/mem.h"
#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

struct llama_vocab;
struct md_chat_template;

/* Parse a template.  Succeeds for a broken one too: rendering then says what is wrong with it, so that a
 * model whose template this library cannot read still completes plain text.
 *
 * bos, eos  the texts of these tokens, "" for none
 * MD_NO_MEMORY */
MD_MUST_USE enum md_status md_chat_template_open(const char *source, const char *bos, const char *eos,
                                                 struct md_chat_template **ret_template, struct md_err *err);
void md_chat_template_close(struct md_chat_template *t); /* accepts NULL */

/* Append the rendered prompt.
 *
 * A template is a program that came with a model file, so it is bounded: CPU seconds, length of a
 * range(), depth of its macros.  Memory it takes between two of these checks is not.
 *
 * MD_INVALID    it raised (its own message), cannot be parsed, passed a bound, or left a message out
 * MD_NO_MEMORY  ret_prompt is as before, as on every failure
 * Threads: any; one render per template at a time, others wait. */
MD_MUST_USE enum md_status md_chat_template_render(struct md_chat_template *t,
                                                   const struct md_chat_message *messages, size_t count,
                                                   bool add_generation_prompt, struct md_buf *ret_prompt,
                                                   struct md_err *err);

/* llama_tokenize, which throws on some input.  ret_count as its result. */
MD_MUST_USE enum md_status md_llama_tokenize(const struct llama_vocab *vocab, const char *text, int32_t len,
                                             md_token *tokens, int32_t max, bool parse_special,
                                             int32_t *ret_count, struct md_err *err);
/* llama-common keeps a log of its own, which prints: silence it. */
void md_llama_common_quiet(void);

#ifdef __cplusplus
}
#endif
#endif
