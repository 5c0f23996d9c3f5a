/* llama_engine.h - what the three files of the engine share: its operations (llama_engine.c), the tail state
 * (llama_tail.c), opening and measuring (llama_engine_open.c).
 *
 * A sequence id of the library is a tag on cells; copying and removing tags moves no bytes, and a cell with the tags
 * of two sequences is shared by them.  A user's sequence s owns two ids, live (attended) and parked (kept, not
 * attended); one more, scratch, is empty between calls and is where ranges are exported, imported, turned to other
 * positions and recomputed. */
#ifndef MD_ADAPTERS_LLAMA_ENGINE_H
#define MD_ADAPTERS_LLAMA_ENGINE_H

#include "adapters/llama/llama_internal.h"
#include "engine/engine_ops.h"

struct md_llama_engine {
    struct md_engine base;
    struct md_llama_model *model;
    struct llama_context *ctx;
    llama_memory_t mem;
    struct llama_batch batch; /* one micro-batch, refilled */
    llama_seq_id scratch;     /* -1: this model has no use for one */
    int64_t export_fixed_bytes,
        export_token_bytes; /* measured at open; an export of n is exactly this long */
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

#endif
