/* kv_shape.h - how many bytes the KV cache of a model takes, layer by layer, and the inversion: how many
 * tokens a number of bytes holds.  Pure: no engine, file or clock.
 *
 * A KV cache is made of cells, one per token.  What a cell costs differs by layer (heads, lengths), by the
 * KV type of keys and of values, and by kind: a windowed layer (sliding window attention) has only as many
 * cells as its window needs, a recurrent one has a state per sequence instead, some have nothing of their
 * own.  An adapter fills a shape as its engine will allocate; everything here then equals that to the byte.
 *
 * The numbers of a shape are at least 0 and may be as large as a file declares them: byte counts end at 2^60
 * (1 EiB), which fits nowhere, instead of wrapping.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_POLICY_KV_SHAPE_H
#define MD_POLICY_KV_SHAPE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MD_CELL_UNIT = 256,      /* cells come in units of so many */
    MD_LAYERS_MAX = 512,     /* llama.cpp's limit */
    MD_CONTEXT_MAX = 1 << 30 /* the largest context that is counted */
};

/* ---- KV types ---- */

/* name, values in a block, bytes of a block: the layouts of ggml-common.h (a q8_0 block is 32 bytes and an
 * f16 scale; q5_1 and q4_1 have a scale and a minimum, q5_0 and q5_1 four bytes of fifth bits). */
#define MD_KV_TYPE_LIST(X)  \
    X(F32, "f32", 1, 4)     \
    X(F16, "f16", 1, 2)     \
    X(BF16, "bf16", 1, 2)   \
    X(Q8_0, "q8_0", 32, 34) \
    X(Q5_1, "q5_1", 32, 24) \
    X(Q5_0, "q5_0", 32, 22) \
    X(Q4_1, "q4_1", 32, 20) \
    X(Q4_0, "q4_0", 32, 18) \
    X(IQ4_NL, "iq4_nl", 32, 18)

enum md_kv_type {
#define MD_KV_TYPE_ENUM(id, name, values, bytes) MD_KV_##id,
    MD_KV_TYPE_LIST(MD_KV_TYPE_ENUM)
#undef MD_KV_TYPE_ENUM
        MD_KV_LISTED, /* so many are ggml's */
    MD_KV_U8 =
        MD_KV_LISTED, /* OpenVINO's: a byte for each number, and for each row of a head what stands below */
    MD_KV_TYPE_COUNT
};

enum { MD_KV_U8_HEAD_BYTES = 8 }; /* a scale and a zero point, f32 each, whatever the length of the head */

const char *md_kv_type_name(enum md_kv_type t);
const char *md_kv_type_names(void); /* ggml's, for messages: "f32 f16 bf16 q8_0 ..." */
bool md_kv_type_is_quantized(enum md_kv_type t);
int32_t md_kv_type_block(enum md_kv_type t); /* values in a block: a head must be a multiple of it */

/* One of ggml's.  NULL is f16.  MD_INVALID: unknown; the text names `which` ("keys", "values") and all types. */
MD_MUST_USE enum md_status md_kv_type_find(const char *name, const char *which, enum md_kv_type *ret_type,
                                           struct md_err *err);

/* Bytes of `values` numbers, rounded up to whole blocks; without what u8 has for each head. */
int64_t md_kv_type_bytes(enum md_kv_type t, int64_t values);

/* ---- shape ---- */

struct md_kv_layer {
    int32_t kv_heads;                 /* 0: no attention here                                       */
    int32_t key_length, value_length; /* of one head                                                */
    int32_t window;                   /* tokens it attends to by the model's own account; 0: all    */
    bool window_cells;   /* the engine gives it cells for its window only, not for the whole context */
    bool keys_only;      /* latent attention (MLA): values are read out of the keys                  */
    bool shared;         /* uses the KV of another layer: no bytes of its own                        */
    int64_t state_bytes; /* recurrent state of one sequence                                          */
};

struct md_kv_shape {
    int32_t layer_count;
    struct md_kv_layer layers[MD_LAYERS_MAX];
};

/* How the engine is opened, as far as it changes bytes. */
struct md_kv_mode {
    enum md_kv_type type_k, type_v;
    int32_t seq_count, ubatch_tokens; /* both at least 1 */
    bool window_full;                 /* windowed layers get as many cells as the others            */
    bool values_padded;               /* each layer's values take the room of the widest layer's,   *
                                       * those of layers without heads too (llama-kv-cache.cpp)     */
};

/* Tokens rounded up to whole units of cells. */
int32_t md_kv_pad(int32_t tokens);

/* Cells of a layer when the engine is opened for `context` tokens (0..2^30).
 *
 * Windowed: pad(min(pad(context), window * seq_count + ubatch)); a window of 0 is none.
 * Source: llama-kv-cache-iswa.cpp (size_swa). */
int64_t md_kv_layer_cells(const struct md_kv_layer *l, const struct md_kv_mode *mode, int32_t context);
/* Bytes of keys, values and state of one layer.  `shape` is asked for the widest values. */
int64_t md_kv_layer_bytes(const struct md_kv_shape *shape, int32_t layer, const struct md_kv_mode *mode,
                          int32_t context);
/* All layers together: what the engine allocates. */
int64_t md_kv_bytes(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int32_t context);
/* Bytes one more token costs while no window has been reached: what a cell holds over all layers. */
int64_t md_kv_bytes_per_token(const struct md_kv_shape *shape, const struct md_kv_mode *mode);
/* Bytes one more token costs beyond every window: only layers without one still grow. */
int64_t md_kv_growing_bytes(const struct md_kv_shape *shape, const struct md_kv_mode *mode);
/* Bytes of the largest single tensor, keys or values of one layer. */
int64_t md_kv_largest_tensor(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int32_t context);

/* What stands beside the KV and grows with it: so many bytes for each cell of a context; at most 2^60. */
int64_t md_kv_extra_bytes(int64_t extra_per_cell, int32_t context);

/* The most tokens, at most limit, whose KV fits in `budget` bytes: a multiple of 256, or limit itself.
 *
 * extra_per_cell  bytes beside the KV that grow with the context (attention masks); 0: none
 * max_tensor      no single tensor may be larger; 0: any size
 * So bytes(tokens) <= budget < bytes(tokens + 256), unless limit is reached or nothing grows. */
int32_t md_kv_tokens(const struct md_kv_shape *shape, const struct md_kv_mode *mode, int64_t budget,
                     int64_t extra_per_cell, int64_t max_tensor, int32_t limit);

/* MD_UNSUPPORTED: a head's length is not a multiple of the type's block (the text names the layer). */
MD_MUST_USE enum md_status md_kv_check_types(const struct md_kv_shape *shape, const struct md_kv_mode *mode,
                                             struct md_err *err);

/* ---- the simple summary: equal layers, no padding ---- */

/* Global and windowed layers that cost the same per token.
 * Source: modeld/capacity: LayerKVProfile. */
struct md_kv_profile {
    int32_t global_layers, windowed_layers, window; /* window in tokens; 0: all layers are global */
    int64_t per_layer_kv_bytes;                     /* of one token, keys and values               */
};

int64_t md_kv_profile_dense(const struct md_kv_profile *p);    /* bytes per token before the window */
int64_t md_kv_profile_marginal(const struct md_kv_profile *p); /* bytes per token beyond it         */
int64_t md_kv_profile_bytes(const struct md_kv_profile *p, int64_t context);
/* Tokens that fit in `budget` bytes.  Nothing grows: limit, but at least the window. */
int64_t md_kv_profile_tokens(const struct md_kv_profile *p, int64_t budget, int64_t limit);
/* Of a shape: the layers with KV, and the dense bytes per token divided among them (rounded up). */
struct md_kv_profile md_kv_profile_of(const struct md_kv_shape *shape, const struct md_kv_mode *mode);

#endif
