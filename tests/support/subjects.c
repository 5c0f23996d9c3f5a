#include "support/subjects.h"

#include "support/exact_model.h"

void md_subject_random_tokens(md_token *tokens, int32_t count)
{
    uint32_t random = 20;
    for (int32_t i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        tokens[i] = MD_EXACT_TOKEN_OF_BYTE_0 + (md_token)(random >> 24);
    }
}
