/* prompt_check.h - segments of prompts on a real tokenizer, held against a count of their bytes.
 *
 * A libcheck test calls these; what is wrong fails it. */
#ifndef MD_TESTS_PROMPT_CHECK_H
#define MD_TESTS_PROMPT_CHECK_H

#include "session/prompt.h"

/* The segments tile all tokens in order, they have so many messages together, and only the last may have more than
 * its body. */
void prompt_check_tiles(const struct md_prompt *p, size_t messages);
/* A conversation of every kind of text, by the model's own template: each message has its segment, and it
 * ends before the first token that begins behind its content.  The tokens are those of the whole prompt. */
void prompt_check_chat(const struct md_text *text);
/* Of a tokenizer that puts a first token: it leads, once, whether a raw prompt begins with it (`spelled`) or not, and
 * in a chat whose template writes it. */
void prompt_check_first_token(const struct md_text *text, const char *spelled);
/* Raw texts, cut at every byte. */
void prompt_check_raw(const struct md_text *text);

#endif
