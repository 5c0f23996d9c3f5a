/* lookup_model.h - a model made by hand, whose attention is known without computing it.
 *
 * Two layers, two heads of queries over one of keys, 64 numbers each.  Tokens of the bytes below MD_LOOKUP_TOKENS are
 * orthogonal: each lies in the first number of a rotary pair of its own, and keys and queries are copies of that.  So the
 * first head of a token at position p gives a token at position j, before softmax,
 *
 *     strength * cos((p - j) * speed of its pair)   where the token is the same, else 0
 *
 * with a strength of 2 in layer 0 and 4 in layer 1; the pairs beyond the first few turn by next to nothing.  The second
 * head asks for nothing: it shares evenly.  Layer 0 adds nothing to the text; layer 1 adds what its first head finds, and
 * the logit of a token, other than the last one, is in proportion to the share that its occurrences got there.
 *
 * Weights, GGUF file and fake engine are those of fake_model.h. */
#ifndef MD_TESTS_LOOKUP_MODEL_H
#define MD_TESTS_LOOKUP_MODEL_H

#include "engine/engine.h"
#include "engine/fake_model.h"

enum { MD_LOOKUP_TOKENS = 32, MD_LOOKUP_LAYERS = 2, MD_LOOKUP_CELLS = 512, MD_LOOKUP_STEP = 32 };

MD_MUST_USE enum md_status md_lookup_model_open(struct md_fake_model **ret_model, struct md_err *err);

/* Share of position j in the attention of position p; `bytes` are the tokens' bytes. */
double md_lookup_share(const uint8_t *bytes, int32_t layer, int32_t head, int32_t p, int32_t j);

/* Feed an engine that runs the model with text of known repeats, in micro-batches of MD_LOOKUP_STEP, and see that the
 * shares of every token's heads, by its queries and by keys from exported blocks, are as above, and that the logits say the
 * same.  Asserts with libcheck; prints what was off by how much. */
void md_lookup_check(struct md_engine *e, const char *name, double tolerance);

#endif
