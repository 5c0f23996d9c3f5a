#ifndef MD_POLICY_IDENTITY_H
#define MD_POLICY_IDENTITY_H
#include "base/types.h"
#include <stdbool.h>
#include <stddef.h>
struct md_identity_candidate {
    int32_t common_tokens, tape_tokens, anchor_tokens;
    int64_t last_used;
};
struct md_identity_choice {
    bool continues;
    size_t index;
};
struct md_identity_choice md_identity_choose(const struct md_identity_candidate *c, size_t n,
                                             int32_t prompt_tokens);
#endif
