/* reference.h - the forward pass as the papers write it: no cache, no cells, doubles, whole layers at once.
 *
 * Each token says which entries of the list it attends to.  If an engine gives the same logits, it attended
 * exactly this set.  Shares the weights with the fake engine and no line of code. */
#ifndef MD_TESTS_REFERENCE_H
#define MD_TESTS_REFERENCE_H

#include "engine/fake_model.h"

struct md_ref_token {
    md_token token;
    int32_t pos;      /* where the others see it: of its keys */
    int32_t asked_at; /* where it was computed: of its queries; another one when its KV was moved since */
};

/* Logits of what follows the last of `count` tokens.  Windowed layers see of that only what is in the window;
 * recurrent layers see what stands in the list before them.
 *
 * sees        count * count: entry i attends to entry j where sees[i * count + j].  Each sees itself, or one
 *             that was moved sees what it was before.
 *             Entries may share a position (a range that was computed twice), as long as no entry sees both.
 * ret_logits  vocab floats
 * Returns false when memory ran out. */
MD_MUST_USE bool md_reference_logits(const struct md_fake_model *m, const struct md_ref_token *tokens,
                                     const bool *sees, int32_t count, float *ret_logits);
/* Queries of one layer, turned to where they were computed, and its keys, turned to where the others see them.
 *
 * ret_queries  count * heads * head_dim floats: those of a token one behind the other
 * ret_keys     count * kv_heads * head_dim floats, likewise; NULL: they are not wanted */
MD_MUST_USE bool md_reference_attention(const struct md_fake_model *m, const struct md_ref_token *tokens,
                                        const bool *sees, int32_t count, int32_t layer, float *ret_queries,
                                        float *ret_keys);

#endif
