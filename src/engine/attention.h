/* attention.h - what an engine tells of its attention: queries of the tokens just evaluated, and keys of any range
 * that was exported.  With MD_CAP_ATTENTION_SCORES; for whoever ranks blocks by what a message attends to.
 *
 * In layer l, query head h of a token attends to position p with the weight
 *
 *     softmax over the visible positions p of  scale * sum over i of q[h][i] * k[h * key_heads / query_heads][p][i]
 *
 * where q and k are as the engine's own attention takes them: normed and turned to their positions, q also multiplied
 * by what the model multiplies it by beforehand.  Keys are not kept beside the KV: they are read out of the bytes of an
 * export, so that they are exactly those that were attended (as the KV type holds them), hot or cold.
 *
 * The capability is there only where it was asked for when the engine was opened (struct md_open_params), and only for
 * layers in which it was found to work then.  Engines compute what they compute without, to the bit.  What it costs:
 * `llama` runs its graph as ever until layers are watched, and then stops at each of these to read; the graph of
 * `openvino` gives the queries of all layers from the opening on, watched or not.
 *
 * Errors common to all calls: MD_UNSUPPORTED (the capability is not there), MD_INVALID as said below; nothing is
 * changed, and no call touches the KV.
 *
 * Threads: as engine.h. */
#ifndef MD_ENGINE_ATTENTION_H
#define MD_ENGINE_ATTENTION_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct md_engine;

struct md_attention_layer {
    int32_t query_heads, key_heads; /* key_heads divides query_heads */
    int32_t
        length; /* numbers of one head of queries and keys; 0: the layer cannot be watched: it has no keys of its
                     * own, they are not in exports, or its weights are not the above (sinks, soft caps, ALiBi) */
    float scale;
    bool windowed; /* only the last info.window_tokens positions are visible */
};

/* The model's layers, ret_count of them; fixed when the engine is open.  NULL and 0 without the capability. */
const struct md_attention_layer *md_engine_attention(const struct md_engine *e, int32_t *ret_count);

/* From now on queries of these layers are kept by prefill and decode; what was kept before is gone.
 *
 * layers  `count` of them, in rising order, each of length above 0; 0: none
 * MD_INVALID    layers that are not there, cannot be watched, or are not in order
 * MD_NO_MEMORY  room for the queries of info.batch_tokens tokens
 * After an error all is as before. */
MD_MUST_USE enum md_status md_engine_watch(struct md_engine *e, const int32_t *layers, int32_t count,
                                           struct md_err *err);

struct md_queries {
    const float *at;     /* number i of head h of row r stands at (r * heads + h) * length + i */
    int32_t start, rows; /* row r is the token at position start + r */
    int32_t heads, length;
};

/* Queries of the last prefill or decode, of all its tokens.  Other calls change nothing about them.
 *
 * ret_queries  owned by the engine, until its next prefill, decode or watch
 * MD_INVALID   the layer is not watched, or no prefill or decode came to its end since it is (a call that was refused
 *              before anything was computed does not count; one that was interrupted or failed does) */
MD_MUST_USE enum md_status md_engine_queries(struct md_engine *e, int32_t layer,
                                             struct md_queries *ret_queries, struct md_err *err);

/* How many numbers md_engine_keys gives for `tokens` positions; layers as there, which must be valid. */
size_t md_engine_keys_count(const struct md_engine *e, const int32_t *layers, int32_t count, int32_t tokens);

/* Keys of layers in `kv`, an export of r, as they stand at the positions of r.
 *
 * layers    `count` of them, in any order
 * ret_keys  md_engine_keys_count() numbers of 16 bits (base/half.h): for each layer in turn [key head][position][number];
 *           what it holds after an error means nothing
 * MD_CORRUPT    the bytes fail their check
 * MD_INVALID    they are of another range, model or KV type; layers that are not there or cannot be watched
 * MD_NO_MEMORY  one row of work memory */
MD_MUST_USE enum md_status md_engine_keys(const struct md_engine *e, struct md_range r, struct md_bytes kv,
                                          const int32_t *layers, int32_t count, uint16_t *ret_keys,
                                          struct md_err *err);

#ifdef __cplusplus
}
#endif
#endif
