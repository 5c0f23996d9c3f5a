/* llama_chat.h - C doors to the C++ of llama-common: chat templates, and the library calls that can throw.
 * No exception leaves this file's .cc: every entry catches and returns a status. */
#ifndef MD_ADAPTERS_LLAMA_CHAT_H
#define MD_ADAPTERS_LLAMA_CHAT_H

#include "base/err.h"
#include "base/mem.h"
#include "text/form.h"

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

/* Append the rendered prompt, and say how the answer is to be read (NULL: it is plain text and bound by nothing).
 *
 * A template is a program that came with a model file, so it is bounded: CPU seconds, length of a
 * range(), depth of its macros.  Memory it takes between two of these checks is not.
 *
 * vocab         for the grammar and for tokens that are part of the text; NULL: neither (tests)
 * MD_INVALID    it raised (its own message), cannot be parsed, passed a bound, left a message or a tool out;
 *               a schema or a grammar that cannot be used
 * MD_NO_MEMORY
 * After a failure the caller sets ret_prompt back.  Threads: any; one render per template at a time, others wait. */
MD_MUST_USE enum md_status md_chat_template_render(struct md_chat_template *t,
                                                   const struct llama_vocab *vocab,
                                                   const struct md_chat_input *in, struct md_buf *ret_prompt,
                                                   struct md_chat_form **ret_form, struct md_err *err);

/* As md_text_constrain. */
MD_MUST_USE enum md_status md_llama_constrain(const struct llama_vocab *vocab, struct md_bytes json_schema,
                                              struct md_bytes grammar, struct md_chat_form **ret_form,
                                              struct md_err *err);

/* ---- the grammar of one answer ---- */

struct md_llama_grammar;
struct llama_token_data_array;

/* A new one, at its beginning; NULL in *ret_grammar when the form binds nothing.  form may be NULL. */
MD_MUST_USE enum md_status md_llama_grammar_open(const struct md_chat_form *form,
                                                 struct md_llama_grammar **ret_grammar, struct md_err *err);
void md_llama_grammar_close(struct md_llama_grammar *g); /* accepts NULL */
/* Logits of what it forbids become -INFINITY.  MD_INTERNAL: the library gave up. */
MD_MUST_USE enum md_status md_llama_grammar_apply(struct md_llama_grammar *g,
                                                  struct llama_token_data_array *candidates,
                                                  struct md_err *err);
MD_MUST_USE enum md_status md_llama_grammar_accept(struct md_llama_grammar *g, md_token token,
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
