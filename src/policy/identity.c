#include "policy/identity.h"
struct md_identity_choice md_identity_choose(const struct md_identity_candidate *c, size_t n,
                                             int32_t prompt_tokens)
{
    struct md_identity_choice r = { 0 };
    int32_t best = 0;
    (void)prompt_tokens;
    for (size_t i = 0; i < n; i++) {
        int32_t k = c[i].common_tokens;
        bool ok = k > 0 && (k == c[i].tape_tokens ||
                            (c[i].anchor_tokens > 0 ? k >= c[i].anchor_tokens : 2 * k >= c[i].tape_tokens));
        if (ok && k > best) {
            best = k;
            r.continues = true;
            r.index = i;
        }
    }
    return r;
}
