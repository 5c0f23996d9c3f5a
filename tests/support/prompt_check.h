/* prompt_check.h - segments of prompts on a real tokenizer, held against a count of their bytes.
 *
 * A libcheck test calls these; what is wrong fails it. */
#ifndef MD_TESTS_PROMPT_CHECK_H
#define MD_TESTS_PROMPT_CHECK_H

#include "text/text.h"

/* A conversation of every kind of text, by the model's own template: each message has its segment, and it
 * ends before the first token that begins behind its content.  The tokens are those of the whole prompt. */
void prompt_check_chat(const struct md_text *text);
/* Raw texts, cut at every byte. */
void prompt_check_raw(const struct md_text *text);

#endif
