/* words_text.h - a text for the lookup model (lookup_model.h) that knows the needles of policy/needles.h.
 *
 * A needle's line, its near-duplicate's and its question are four tokens each, one of which is a mark; every other word is a token
 * below MD_WORDS_COMMON that depends on its letters.  The mark of a needle is that of its question, and of no near-duplicate: so
 * whoever looks up equal tokens finds the needle.  Or, with `same`, all lines and questions have one mark, which the question
 * that asks nothing has too: then nobody tells a needle from its near-duplicate.
 *
 * It has no chat template; sampling and pieces are those of a scripted text. */
#ifndef MD_TESTS_WORDS_TEXT_H
#define MD_TESTS_WORDS_TEXT_H

#include "text/text.h"

enum { MD_WORDS_COMMON = 16, MD_WORDS_NEAR = 18, MD_WORDS_GOLD = 24 };

MD_MUST_USE enum md_status md_words_open(bool same, struct md_text **ret_text, struct md_err *err);

#endif
