/* subjects.h - what the test programs of the conformance suite feed their engines. */
#ifndef MD_TESTS_SUBJECTS_H
#define MD_TESTS_SUBJECTS_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "text/text.h"

/* Bytes in no order, as tokens of the 259-byte vocabulary. */
void md_subject_random_tokens(md_token *tokens, int32_t count);

/* At least `bytes` of plain English prose that does not repeat itself word by word: a log of a ship's cook,
 * made from a few dozen phrases, always the same. */
MD_MUST_USE enum md_status md_subject_prose(struct md_buf *ret_text, size_t bytes, struct md_err *err);
/* So much of it in tokens of a model.  MD_INVALID: they are fewer than `least`. */
MD_MUST_USE enum md_status md_subject_prose_tokens(const struct md_text *text, size_t bytes, size_t least,
                                                   struct md_tokens *ret_tokens, struct md_err *err);

#endif
