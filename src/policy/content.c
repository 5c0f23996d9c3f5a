/* content.c - see content.h.  Token i of n has the digit token + 1 and the weight BASE^(n-1-i): no digit is 0, so
 * that more tokens of id 0 are another text. */
#include "policy/content.h"

#include <assert.h>

static const uint64_t PRIME = (UINT64_C(1) << 61) - 1;
static const uint64_t BASE = UINT64_C(0x12d9f0a5c83b6e47); /* any number with many digits below the prime */

__extension__ typedef unsigned __int128 wide; /* both compilers have it on 64 bits */

static uint64_t times(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b; /* below 2^122: both halves are below 2^61 */
    uint64_t sum = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);
    return sum < PRIME ? sum : sum - PRIME;
}

static uint64_t digit(md_token t)
{
    return (uint64_t)(uint32_t)t + 1;
}

/* key * BASE + digit */
static uint64_t appended(uint64_t key, md_token t)
{
    uint64_t sum = times(key, BASE) + digit(t);
    return sum < PRIME ? sum : sum - PRIME;
}

uint64_t md_content_key(const md_token *tokens, size_t count)
{
    uint64_t key = 0;
    for (size_t i = 0; i < count; i++)
        key = appended(key, tokens[i]);
    return key;
}

struct md_content_roller md_content_roll_start(const md_token *tokens, size_t count)
{
    assert(tokens != NULL && count > 0);
    struct md_content_roller r = { .key = md_content_key(tokens, count), .weight = 1 };
    for (size_t i = 1; i < count; i++)
        r.weight = times(r.weight, BASE);
    return r;
}

void md_content_roll(struct md_content_roller *r, md_token out, md_token in)
{
    uint64_t gone = times(digit(out), r->weight);
    r->key = appended(r->key >= gone ? r->key - gone : r->key + PRIME - gone, in);
}
