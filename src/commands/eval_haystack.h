/* eval_haystack.h - from text and needles to tokens of an exact length, and which of them are the needles.
 *
 * The text is made tokens once, as a whole; needles go between its paragraphs, else between its lines, else where they must, each
 * as a line of its own with the same empty line behind it as a paragraph has.
 *
 * Threads: any; touches nothing but its arguments, and a text is made for that. */
#ifndef MD_COMMANDS_EVAL_HAYSTACK_H
#define MD_COMMANDS_EVAL_HAYSTACK_H

#include "base/types.h"
#include "commands/eval_tasks.h"
#include "text/text.h"

/* Text as tokens, and where its paragraphs and lines end.  Zero it before use; md_eval_filler_done. */
struct md_eval_filler {
    struct md_tokens tokens;
    uint8_t *breaks; /* of each token: how many ends of lines the text has behind it in a row, 2 at most */
    size_t longest;  /* its longest run of such ends: 1 where lines stand without empty ones between */
};
void md_eval_filler_done(struct md_eval_filler *f);
/* MD_NO_MEMORY, errors of md_text_tokenize; then there is nothing to free */
MD_MUST_USE enum md_status md_eval_filler_read(const struct md_text *text, struct md_bytes bytes,
                                               struct md_eval_filler *ret, struct md_err *err);

/* Text and needles together.  Zero it before use; md_eval_haystack_done. */
struct md_eval_haystack {
    struct md_tokens tokens;
    /* of each needle's parts, in `tokens`: the line, without its end where that is a token of its own */
    struct md_range spans[MD_EVAL_NEEDLES_MAX][MD_EVAL_PARTS_MAX];
};
void md_eval_haystack_done(struct md_eval_haystack *h);

/* A haystack of `length` tokens: the beginning of the text, and the needles in it.  Where one stands at no end of a line,
 * one more end of a line is put before it, which the length does not count.
 *
 * MD_INVALID    the needles take more than half of the length (the text says the least that works), or the text is too
 *               short (it says how many tokens it has and how many are needed)
 * MD_NO_MEMORY, errors of md_text_tokenize; then there is nothing to free */
MD_MUST_USE enum md_status md_eval_haystack_build(const struct md_text *text,
                                                  const struct md_eval_filler *filler, int32_t length,
                                                  const struct md_eval_needle *needles, int count,
                                                  struct md_eval_haystack *ret, struct md_err *err);

#endif
