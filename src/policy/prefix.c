/* prefix.c - see prefix.h.  Keys are made from the bytes of tokens as they lie in memory: they
 * must not be compared across byte orders, so that files that hold them are for machines of one. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "policy/prefix.h"

#include <assert.h>
#include <string.h>

/* Different seeds, so that no identity string can imitate a block. */
enum { ROOT_SEED = 1, CHAIN_SEED = 2, STATE_SEED = 3 };

size_t md_prefix_common(const md_token *a, size_t a_count, const md_token *b, size_t b_count)
{
    size_t n = a_count < b_count ? a_count : b_count, i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

struct md_key md_prefix_root(const char *identity)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(identity, strlen(identity), ROOT_SEED);
    return (struct md_key){ .hi = h.high64, .lo = h.low64 };
}

struct md_key md_prefix_state_parent(struct md_key parent)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(&parent, sizeof parent, STATE_SEED);
    return (struct md_key){ .hi = h.high64, .lo = h.low64 };
}

struct md_key md_prefix_chain(struct md_key parent, const md_token *tokens, size_t count)
{
    assert(tokens != NULL || count == 0);
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset_withSeed(&state, CHAIN_SEED);
    XXH3_128bits_update(&state, &parent, sizeof parent);
    if (count > 0)
        XXH3_128bits_update(&state, tokens, count * sizeof *tokens);
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    return (struct md_key){ .hi = h.high64, .lo = h.low64 };
}
