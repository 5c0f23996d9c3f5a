/* llama_engine.h - what the files of the engine share: its operations (llama_engine.c), the tail state (llama_tail.c),
 * what it tells of attention (llama_attention.c, llama_keys.c), opening and measuring (llama_engine_open.c).
 *
 * A sequence id of the library is a tag on cells; copying and removing tags moves no bytes, and a cell with the tags
 * of two sequences is shared by them.  A user's sequence s owns two ids, live (attended) and parked (kept, not
 * attended); one more, scratch, is empty between calls and is where ranges are exported, imported, turned to other
 * positions and recomputed. */
#ifndef MD_ADAPTERS_LLAMA_ENGINE_H
#define MD_ADAPTERS_LLAMA_ENGINE_H

#include "adapters/llama/llama_internal.h"
#include "engine/engine_ops.h"

/* What is known of the attention of each layer: see llama_attention.c. */
struct md_llama_attention {
    struct {
        const struct ggml_tensor *cache;   /* its keys, in the context's memory; NULL: not seen */
        const struct ggml_tensor *product; /* keys times queries, while that is learned */
        int32_t place;                     /* of its keys among those of an export */
        bool taken;                        /* in this step */
    } * layers;
    int32_t layer_count; /* 0: nothing was asked */
    int32_t row, count;  /* of the step that runs: its first row in the call, its tokens; row -1: none does */
    bool learning;
};

struct md_llama_engine {
    struct md_engine base;
    struct md_llama_model *model;
    struct llama_context *ctx;
    llama_memory_t mem;
    struct llama_batch batch; /* one micro-batch, refilled */
    llama_seq_id scratch;     /* -1: this model has no use for one */
    int64_t export_fixed_bytes,
        export_token_bytes; /* measured at open; an export of n is exactly this long */
    size_t cell_bytes; /* of a cell in an export; 0: an export is not laid out as llama_keys.c knows it */
    uint64_t identity_hash;
    bool turn_pending; /* keys of moved cells wait to be turned: see settle() */
    bool unstoppable;  /* what runs now must not be interrupted */

    /* tail state: see llama_tail.c */
    bool window_cells;   /* windowed layers have cells for their window only */
    bool recurrent;      /* there are recurrent layers: pure, or beside attention */
    int32_t window_from; /* windowed layers may lack positions before this one */
    struct md_buf nothing,
        first; /* the library's state of an empty sequence; of one with a token at position 0 */
    int64_t state_fixed_bytes, state_token_bytes; /* measured at open; one of n tokens is at most this long */

    struct md_llama_attention attention;
};

static inline struct md_llama_engine *md_llama_engine_of(struct md_engine *e)
{
    return (struct md_llama_engine *)e;
}

static inline llama_seq_id md_llama_live(const struct md_llama_engine *e, md_seq seq)
{
    return e->scratch + 1 + seq;
}

/* ---- llama_engine.c ---- */

extern const struct md_engine_ops md_llama_engine_ops;

/* Compute tokens at start.. in id, a micro-batch at a time so that an interrupt is met soon.  On an error none of
 * them is there. */
MD_MUST_USE enum md_status md_llama_run(struct md_llama_engine *e, llama_seq_id id, int32_t start,
                                        const md_token *tokens, int32_t count, bool logits,
                                        struct md_err *err);
/* The steps alone: 0, or the code of the one that failed (2: interrupted).  Those before it stay. */
int md_llama_steps(struct md_llama_engine *e, llama_seq_id id, int32_t start, const md_token *tokens,
                   int32_t count, bool logits);
/* What a code of llama_decode is in our words; the KV is as before. */
enum md_status md_llama_step_failed(int code, struct md_err *err);
bool md_llama_abort_now(void *engine); /* for the library */
void md_llama_forget(struct md_llama_engine *e, llama_seq_id id);
/* Give `to` the tags of r in `from`. */
bool md_llama_tag(struct md_llama_engine *e, llama_seq_id from, llama_seq_id to, struct md_range r);
/* Bytes of an export of so many tokens, without our header. */
int64_t md_llama_payload_bytes(const struct md_llama_engine *e, int32_t tokens);

/* ---- llama_tail.c: engines with a tail state; arguments as engine_ops.h has them ---- */

static inline bool md_llama_has_tail(const struct md_llama_engine *e)
{
    return e->nothing.len > 0;
}

/* What the library writes behind the first part of a sequence without windows and states. */
size_t md_llama_tail_rest_bytes(const struct md_llama_engine *e);
int32_t md_llama_tail_cut_point(const struct md_llama_engine *e, md_seq seq, int32_t from);
MD_MUST_USE enum md_status md_llama_tail_truncate(struct md_llama_engine *e, md_seq seq, int32_t from,
                                                  struct md_err *err);
/* `end` is the sequence's; all: nothing else of it is there. */
MD_MUST_USE enum md_status md_llama_tail_remove(struct md_llama_engine *e, md_seq seq, struct md_range r,
                                                int32_t end, bool all, struct md_err *err);
MD_MUST_USE enum md_status md_llama_tail_export(struct md_llama_engine *e, md_seq seq, struct md_range r,
                                                struct md_buf *ret_kv, struct md_err *err);
MD_MUST_USE enum md_status md_llama_tail_admit(struct md_llama_engine *e, md_seq seq, struct md_range r,
                                               int32_t end, struct md_bytes kv, struct md_err *err);
/* ready: the sequence has a state, that of `end`, which it has afterwards too. */
MD_MUST_USE enum md_status md_llama_tail_recompute(struct md_llama_engine *e, md_seq seq, struct md_range r,
                                                   const md_token *tokens, struct md_bytes state, int32_t end,
                                                   bool ready, struct md_err *err);
int64_t md_llama_checkpoint_bytes(const struct md_llama_engine *e);
MD_MUST_USE enum md_status md_llama_checkpoint(struct md_llama_engine *e, md_seq seq, int32_t end,
                                               struct md_buf *ret_state, struct md_err *err);
MD_MUST_USE enum md_status md_llama_rewind(struct md_llama_engine *e, md_seq seq, int32_t at,
                                           struct md_bytes state, struct md_err *err);

/* While the engine opens: begin before the first token, then one token in each of two calls. */
MD_MUST_USE enum md_status md_llama_tail_begin(struct md_llama_engine *e, struct md_err *err);
MD_MUST_USE enum md_status md_llama_tail_measure(struct md_llama_engine *e, int32_t end, struct md_err *err);
/* Everything above is done with the two tokens and found to do what it says. */
bool md_llama_tail_works(struct md_llama_engine *e, bool ranges);
void md_llama_tail_done(struct md_llama_engine *e);

/* ---- llama_attention.c ---- */

/* For the library, of a context whose attention is asked for; user: the engine. */
bool md_llama_on_node(struct ggml_tensor *t, bool ask, void *user);
/* Around a step of a call: the row it begins at, and how many it has. */
void md_llama_attention_step(struct md_llama_engine *e, int32_t row, int32_t count);
void md_llama_attention_stepped(struct md_llama_engine *e);
/* While the engine opens, and is empty: compute a few tokens, learn from the graph, and look for the keys in an export;
 * adds the capability where some layer can be watched.  Empty again afterwards.  MD_NO_MEMORY: the heap */
MD_MUST_USE enum md_status md_llama_attention_open(struct md_llama_engine *e, const struct md_kv_shape *shape,
                                                   unsigned *caps, struct md_err *err);
void md_llama_attention_done(struct md_llama_engine *e);

/* ---- llama_keys.c ---- */

/* An export of r, taken apart. */
struct md_llama_export {
    struct md_range r;
    const uint8_t *cells, *blocks, *blocks_end;
    size_t cell_bytes;
    int32_t layer_count;
};
/* False: the payload is not laid out so.  It must outlive x. */
bool md_llama_keys_open(struct md_llama_export *x, const uint8_t *payload, size_t len, struct md_range r,
                        size_t cell_bytes);
/* Which position of r row number `row` is; -1: none of them. */
int32_t md_llama_keys_index(const struct md_llama_export *x, int32_t row);
/* The rows of the layer at `place`; NULL: they are not there. */
const uint8_t *md_llama_keys_block(const struct md_llama_export *x, int32_t place, enum ggml_type *ret_type,
                                   size_t *ret_row_bytes);
/* While the engine opens: how its exports have their cells, from one of r. */
void md_llama_cells_learn(struct md_llama_engine *e, const struct md_buf *kv, struct md_range r);
/* Bytes that pass their checksum may still be anybody's.  MD_CORRUPT: they do not have a cell for each position of r, which
 * the library would not survive; what it reads behind the cells of the first layers it checks itself. */
MD_MUST_USE enum md_status md_llama_cells_check(const struct md_llama_engine *e, const uint8_t *payload,
                                                size_t len, struct md_range r, struct md_err *err);
enum md_status md_llama_keys(const struct md_engine *base, struct md_range r, struct md_bytes kv,
                             const int32_t *layers, int32_t count, uint16_t *ret_keys, struct md_err *err);

#endif
