/* prompt_internal.h - what the parts of prompt.c share: ends in bytes (prompt_ends.c), ends in tokens
 * (prompt_align.c). */
#ifndef MD_SESSION_PROMPT_INTERNAL_H
#define MD_SESSION_PROMPT_INTERNAL_H

#include "session/prompt.h"

#define MD_PROMPT_END_UNKNOWN SIZE_MAX

/* Where the content of each message ends in `prompt`, ascending; MD_PROMPT_END_UNKNOWN where it is not found.
 * ret_exact: by markers.  MD_NO_MEMORY only. */
MD_MUST_USE enum md_status md_prompt_find_ends(const struct md_text *text, const struct md_chat_input *in,
                                               struct md_bytes prompt, const struct md_alloc *alloc,
                                               size_t *ret_ends, bool *ret_exact, struct md_err *err);

/* Where the tools section ends: behind it the prompt is as it is without tools.  0: there is none;
 * MD_PROMPT_END_UNKNOWN: nothing is as it is without.  MD_NO_MEMORY only. */
MD_MUST_USE enum md_status md_prompt_find_tools_end(const struct md_text *text,
                                                    const struct md_chat_input *in, struct md_bytes prompt,
                                                    const struct md_alloc *alloc, size_t *ret_end,
                                                    struct md_err *err);

/* How many tokens begin before each of `ends`, ascending places in `prompt`.
 * ret_aligned: false when the tokens cannot be laid along the prompt; ret_tokens then means nothing.
 * Errors of md_text_piece. */
MD_MUST_USE enum md_status md_prompt_align(const struct md_text *text, struct md_bytes prompt,
                                           const struct md_tokens *tokens, const size_t *ends, size_t count,
                                           const struct md_alloc *alloc, int32_t *ret_tokens,
                                           bool *ret_aligned, struct md_err *err);

#endif
