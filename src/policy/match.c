#include "policy/match.h"

#include "policy/content.h"

#include <assert.h>

size_t md_match_blocks(const md_token *text, int32_t count, int32_t block_tokens, md_match_look_up look_up,
                       void *user, struct md_match *ret_matches)
{
    size_t found = 0;
    int32_t at = 0;
    assert(count >= 0 && block_tokens > 0);
    while (count - at >= block_tokens) { /* at the start, and behind each match, the window is laid anew */
        struct md_content_roller r = md_content_roll_start(text + at, (size_t)block_tokens);
        const struct md_match *before = found > 0 ? &ret_matches[found - 1] : NULL;
        const void *known = look_up(user, r.key, text + at, before);
        while (known == NULL && count - at > block_tokens) {
            md_content_roll(&r, text[at], text[at + block_tokens]);
            at++;
            known = look_up(user, r.key, text + at, NULL);
        }
        if (known == NULL)
            break;
        ret_matches[found++] = (struct md_match){ .start = at, .known = known };
        at += block_tokens;
    }
    return found;
}
