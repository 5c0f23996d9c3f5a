#include "policy/restore.h"
void md_restore_note_restore(struct md_restore *r, enum md_tier t, int64_t bytes, int64_t blocks, int64_t ns)
{
    (void)r;
    (void)t;
    (void)bytes;
    (void)blocks;
    (void)ns;
}
void md_restore_note_prefill(struct md_restore *r, int64_t tokens, int64_t ns)
{
    (void)r;
    (void)tokens;
    (void)ns;
}
bool md_restore_wins(const struct md_restore *r, enum md_tier t, int64_t bytes, int64_t tokens)
{
    (void)r;
    (void)t;
    (void)bytes;
    (void)tokens;
    return true;
}
int32_t md_restore_break_even_tokens(const struct md_restore *r, enum md_tier t, int64_t b)
{
    (void)r;
    (void)t;
    (void)b;
    return 0;
}
