#ifndef MD_POLICY_RESTORE_H
#define MD_POLICY_RESTORE_H
#include "base/types.h"
#include <stdbool.h>
enum md_tier { MD_TIER_HOST, MD_TIER_DISK };
struct md_restore {
    int x;
};
void md_restore_note_restore(struct md_restore *r, enum md_tier t, int64_t bytes, int64_t blocks, int64_t ns);
void md_restore_note_prefill(struct md_restore *r, int64_t tokens, int64_t ns);
bool md_restore_wins(const struct md_restore *r, enum md_tier t, int64_t bytes, int64_t tokens);
int32_t md_restore_break_even_tokens(const struct md_restore *r, enum md_tier t, int64_t bytes_per_token);
#endif
