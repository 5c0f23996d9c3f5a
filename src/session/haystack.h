/* haystack.h - the texts that heads are measured with (policy/needles.h) as tokens: a prompt that ends behind the haystack, and
 * what each question adds to it.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_SESSION_HAYSTACK_H
#define MD_SESSION_HAYSTACK_H

#include "policy/needles.h"
#include "text/text.h"

enum {
    MD_HAYSTACK_TOKENS = 1536,     /* of a prompt, where there is room for so many */
    MD_HAYSTACK_LEAST = 384,       /* fewer tell nothing about finding things */
    MD_HAYSTACK_QUESTION = 256,    /* most tokens of a question with what the template puts around it */
    MD_HAYSTACK_COPY_ROWS = 64,    /* rows that are measured where tokens repeat */
    MD_HAYSTACK_COPY_LEAST = 32,   /* different tokens that repeat: a byte-level vocabulary has some 60 */
    MD_HAYSTACK_COPY_PERIOD = 256, /* the most of them */
};

struct md_haystack {
    struct md_tokens prompt;
    struct md_range gold[MD_NEEDLES], near[MD_NEEDLES]; /* in the prompt */
    struct md_tokens questions[MD_NEEDLES + 1]; /* what follows the prompt; the last one asks nothing */
};
void md_haystack_done(struct md_haystack *h); /* accepts a zeroed one */

/* As a chat where the model has a template that leaves what users say as it is, else as plain text.
 *
 * tokens         of the prompt, at most; less by what does not make another piece of filler
 * MD_TOO_LARGE   needles and what stands around them take more than half of it, or a question more than
 *                MD_HAYSTACK_QUESTION
 * MD_UNSUPPORTED the tokenizer makes nothing of needles or filler
 * MD_NO_MEMORY, errors of md_text_tokenize; then there is nothing to free */
MD_MUST_USE enum md_status md_haystack_build(const struct md_text *text, enum md_needles_kind kind,
                                             int32_t tokens, const struct md_alloc *alloc,
                                             struct md_haystack *ret, struct md_err *err);

/* Tokens that repeat: ret_prompt is a period, all of it different tokens in no order, twice; what
 * follows is its first tokens, MD_HAYSTACK_COPY_ROWS of them or all.
 *
 * ret_period  of tokens: MD_HAYSTACK_COPY_LEAST to MD_HAYSTACK_COPY_PERIOD, and no more than a third of `tokens`
 * MD_TOO_LARGE  the texts have fewer different tokens than that, or `tokens` leaves no room
 * others as above */
MD_MUST_USE enum md_status md_haystack_repeat(const struct md_text *text, int32_t tokens,
                                              const struct md_alloc *alloc, struct md_tokens *ret_prompt,
                                              int32_t *ret_period, struct md_err *err);

#endif
