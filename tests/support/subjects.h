/* subjects.h - what the test programs of the conformance suite feed their engines. */
#ifndef MD_TESTS_SUBJECTS_H
#define MD_TESTS_SUBJECTS_H

#include "base/types.h"

/* Bytes in no order, as tokens of the 259-byte vocabulary. */
void md_subject_random_tokens(md_token *tokens, int32_t count);

#endif
