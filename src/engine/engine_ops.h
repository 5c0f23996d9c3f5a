/* engine_ops.h - what an adapter implements.  Users include engine.h only.
 *
 * An adapter embeds struct md_engine as its first member, fills info, and calls md_engine_init with
 * its const table.  The calls arrive checked (see engine.h): ranges are valid and in the stated
 * state, cells suffice, sequences exist.  On any status but MD_SESSION_FATAL the KV must be as
 * before the call.  The base keeps the position map; an adapter never touches it. */
#ifndef MD_ENGINE_ENGINE_OPS_H
#define MD_ENGINE_ENGINE_OPS_H

#include "engine/attention.h"
#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct md_engine_ops {
    const char *name;
    void (*close)(struct md_engine *e); /* required; accepts a half-built engine; frees e itself */

    /* Required. */
    enum md_status (*prefill)(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                              int32_t count, struct md_err *err);
    enum md_status (*decode)(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                             int32_t count, const float **ret_logits, struct md_err *err);
    enum md_status (*truncate)(struct md_engine *e, md_seq seq, int32_t from, struct md_err *err);
    /* NULL: any position, with MD_CAP_REMOVE_TAIL.  Else see md_engine_cut_point(); 0 < from < end, and the
     * sequence is ready. */
    int32_t (*cut_point)(const struct md_engine *e, md_seq seq, int32_t from);

    /* All or none, with MD_CAP_COLD_STORE.  An export only reads. */
    enum md_status (*export_range)(struct md_engine *e, md_seq seq, struct md_range r, struct md_buf *ret_kv,
                                   struct md_err *err);
    int64_t (*export_bytes)(const struct md_engine *e, int32_t tokens);
    enum md_status (*admit_range)(struct md_engine *e, md_seq seq, struct md_range r, struct md_bytes kv,
                                  struct md_err *err);
    /* With MD_CAP_POSITION_SHIFT, which needs MD_CAP_COLD_STORE. */
    enum md_status (*admit_moved)(struct md_engine *e, md_seq seq, struct md_range r, int32_t from_start,
                                  struct md_bytes kv, struct md_err *err);

    /* With MD_CAP_REMOVE_MIDDLE.  Cells that another sequence holds stay there.  When nothing of the sequence is
     * left its tail state goes too. */
    enum md_status (*remove_range)(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err);

    /* With MD_CAP_SHARE.  From then on truncate, remove and park concern one of the two sequences. */
    enum md_status (*share)(struct md_engine *e, md_seq from, md_seq to, struct md_range r,
                            struct md_err *err);

    /* Both or neither, with MD_CAP_SPARSE_ATTENTION. */
    enum md_status (*park)(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err);
    enum md_status (*unpark)(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err);

    /* With MD_CAP_RECOMPUTE_RANGE.  state: not empty if and only if MD_CAP_CHECKPOINT is claimed and
     * r.start > 0. */
    enum md_status (*recompute_range)(struct md_engine *e, md_seq seq, struct md_range r,
                                      const md_token *tokens, struct md_bytes state, struct md_err *err);

    /* All or none, with MD_CAP_CHECKPOINT, which needs MD_CAP_REMOVE_TAIL: truncate is then called for any
     * position.  The base knows which sequences are ready.  checkpoint: of one that is, and not empty.  rewind:
     * cuts at `at` as well, also one that is not ready; foreign bytes are the adapter's to check, before anything
     * is changed. */
    enum md_status (*checkpoint)(struct md_engine *e, md_seq seq, struct md_buf *ret_state,
                                 struct md_err *err);
    int64_t (*checkpoint_bytes)(const struct md_engine *e);
    enum md_status (*rewind)(struct md_engine *e, md_seq seq, int32_t at, struct md_bytes state,
                             struct md_err *err);

    /* With MD_CAP_ATTENTION_SCORES, which needs MD_CAP_COLD_STORE.  keys: layers are valid and have keys; the bytes are
     * foreign.  watch and queries: both or neither, for an engine that keeps queries itself; without, the base keeps
     * what is put in md_attention_room(). */
    enum md_status (*keys)(const struct md_engine *e, struct md_range r, struct md_bytes kv,
                           const int32_t *layers, int32_t count, uint16_t *ret_keys, struct md_err *err);
    enum md_status (*watch)(struct md_engine *e, const int32_t *layers, int32_t count, struct md_err *err);
    enum md_status (*queries)(struct md_engine *e, int32_t layer, struct md_queries *ret_queries,
                              struct md_err *err);
};

/* Kept by attention.c; zeroed: nothing is known of any layer. */
struct md_attention {
    struct md_attention_layer *layers; /* the adapter fills them in before md_engine_init */
    int32_t layer_count;
    bool *watched;       /* of each layer */
    float **rooms;       /* of each layer; NULL: not watched.  The array NULL: none is */
    int32_t start, rows; /* of the last prefill or decode; 0 rows: it did not come to its end */
    bool open;           /* one runs */
    bool lost;           /* and its queries could not be had */
};

struct md_engine {
    const struct md_engine_ops *ops;
    unsigned caps; /* bits of enum md_cap */
    struct md_engine_info info;
    bool (*interrupt)(void *user); /* NULL: never */
    void *interrupt_user;
    struct md_engine_map *map; /* owned by engine.c */
    struct md_attention attention;
};

/* Check the table against the claimed capabilities (a mismatch is a bug: assert) and make the map.
 * info must be filled first.  MD_NO_MEMORY: the map; the adapter closes itself. */
MD_MUST_USE enum md_status md_engine_init(struct md_engine *e, const struct md_engine_ops *ops, unsigned caps,
                                          struct md_err *err);
/* Free the map and what is known of attention; adapters call it from close.  Accepts an engine that was never initialised (zeroed). */
void md_engine_done(struct md_engine *e);

static inline bool md_engine_interrupted(const struct md_engine *e)
{
    return e->interrupt != NULL && e->interrupt(e->interrupt_user);
}

/* ---- attention ---- */

/* Zeroed layers.  MD_NO_MEMORY: there are none */
MD_MUST_USE enum md_status md_attention_init(struct md_attention *a, int32_t layer_count, struct md_err *err);
void md_attention_done(struct md_attention *a);      /* accepts a zeroed struct */
bool md_attention_any(const struct md_attention *a); /* there is a layer that can be watched */
/* Around each prefill and decode of the adapter: engine.c does it. */
void md_attention_begin(struct md_attention *a, int32_t start);
void md_attention_end(struct md_attention *a, int32_t rows);
/* The queries of the running call cannot be had, all else goes on: there are none then. */
void md_attention_lose(struct md_attention *a);
/* Where the queries of row `row` of the running prefill or decode go, those of the next rows behind it.  NULL: they are
 * not wanted. */
float *md_attention_room(const struct md_engine *e, int32_t layer, int32_t row);

#ifdef __cplusplus
}
#endif
#endif
