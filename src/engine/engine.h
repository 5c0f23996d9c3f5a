/* engine.h - an engine holds the KV cache of sequences and runs the forward pass.  For its users
 * (session, commands); adapters include engine_ops.h as well.
 *
 * A sequence is named by a small id, [0, info.seq_count).  Each of its positions is in one state:
 *
 *     absent    no KV here (never computed, evicted, truncated)
 *     hot       KV here, attended by what is evaluated next
 *     parked    KV here, not attended; its cells count against info.cell_count as hot ones do
 *
 * The functions below keep that map themselves and check every argument against it, so an adapter
 * is called with valid ranges only, and all engines refuse the same mistakes with the same words.
 * Removing a range leaves a hole, admitting fills exactly that hole; admit_moved puts it elsewhere.
 *
 * Some models keep more than the KV of positions (MD_CAP_CHECKPOINT): windowed layers have cells for their last
 * window only, recurrent layers have a state.  That is the *tail state* of a sequence.  It belongs to the end of
 * the sequence and cannot be had for an earlier position, unless it was saved there (md_engine_checkpoint).  What
 * is exported, removed and admitted in ranges is the KV of the other layers, the global ones.  A sequence whose
 * tail state is not that of its end is not *ready*: its KV can be moved, but no token can follow until
 * md_engine_rewind puts a saved state back.  On engines without the capability every sequence is always ready.
 *
 * A cell may be held by several sequences (md_engine_share), at the same position in each; it is counted
 * once and is free again when the last of them lets it go.  What one sequence does to it - truncate, remove,
 * park - is not seen by the others.
 *
 * What the tokens attended to - queries of the last call, keys in exported bytes - is told by attention.h, where it was
 * asked for.
 *
 * Errors common to all calls: MD_INVALID (range, sequence or state wrong; nothing changed),
 * MD_UNSUPPORTED (the capability is not there; nothing changed), MD_NO_MEMORY (cells or heap; the KV
 * is as before), MD_INTERNAL (the library failed; the KV is as before), MD_SESSION_FATAL (the KV is
 * unknown; close the engine).
 *
 * Threads: an engine belongs to one thread at a time; only the interrupt may be raised by another.
 * Source: llama.h (return codes of llama_decode and the state after each). */
#ifndef MD_ENGINE_ENGINE_H
#define MD_ENGINE_ENGINE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct md_engine;
typedef int32_t md_seq;

/* What the engine really executes for this model and KV type: bits of md_engine_caps(). */
enum md_cap {
    MD_CAP_REMOVE_TAIL = 1 << 0,      /* truncate; how far back says md_engine_cut_point()        */
    MD_CAP_REMOVE_MIDDLE = 1 << 1,    /* remove_range anywhere, the rest unchanged                */
    MD_CAP_POSITION_SHIFT = 1 << 2,   /* exported KV can be put at other positions: admit_moved   */
    MD_CAP_SPARSE_ATTENTION = 1 << 3, /* any subset of blocks can be attended: park and unpark    */
    MD_CAP_COLD_STORE = 1 << 4,       /* export_range gives bytes that admit_range puts back exactly */
    MD_CAP_RECOMPUTE_RANGE = 1 << 5,  /* a middle range can be computed again in its place        */
    MD_CAP_ATTENTION_SCORES = 1 << 6, /* queries and keys can be had and scored: attention.h      */
    MD_CAP_SHARE = 1 << 7,            /* a range can be hot in several sequences without a copy   */
    MD_CAP_CHECKPOINT = 1 << 8,       /* there is a tail state, which can be saved and put back   */
};

/* Facts fixed at open.  Strings are NUL-terminated. */
struct md_engine_info {
    char engine[32];    /* "llama", "openvino", "fake"                                           */
    char version[96];   /* of the library that computes; "": none                                */
    char device[96];    /* where it computes: "CPU", or the cards that have layers               */
    char model[128];    /* description for people: architecture, size, quantisation              */
    char model_key[64]; /* the model's file, by its bytes: what tokens mean, the same on every engine  */
    char identity[448]; /* what KV depends on: model, engine, KV types, RoPE; root of chain keys */
    char rope[160];     /* how positions are scaled (md_rope_text); "": not at all               */
    char xattention
        [96]; /* "off", the threshold that is in force ("0.9"), or "unavailable: why"; "": it has none */
    int32_t
        sparse_from_tokens; /* a prefill or decode of so many tokens and more, with nothing hot before it, leaves out
                                   a part of what its tokens should attend to (xattention); 0: none does */
    char type_k[8], type_v[8]; /* KV cache types by their ggml names: "f16", "q8_0"               */
    bool lossy_kv;             /* the KV type rounds what the model computed (quantised)                */
    int32_t vocab_count;
    int32_t seq_count;          /* sequences a user may name                                           */
    int32_t cell_count;         /* physical KV cells, all sequences together (llama_n_ctx)             */
    int32_t trained_tokens;     /* context window the model was trained for; 0 = unknown              */
    int32_t window_tokens;      /* sliding window of windowed layers; 0 = no such layers              */
    bool tail_only;             /* no KV of positions: the tail state is all there is (recurrent models) */
    int32_t batch_tokens;       /* largest prefill call                                                */
    int32_t ubatch_tokens;      /* micro-batch: how much one cancel may still compute                  */
    int64_t kv_bytes_per_token; /* all layers, as exported, without the few header bytes          */
    int64_t kv_growing_bytes, kv_fixed_bytes; /* what hot tokens take: so much each, and windows and states,
                                                 which are there however many; both 0: all grows */
    int64_t model_bytes;
};

/* Opening is the adapter's affair (adapters/NAME): it returns an engine in this form. */
const struct md_engine_info *md_engine_info(const struct md_engine *e);
unsigned md_engine_caps(const struct md_engine *e);
/* One word per set bit, for reports: "remove_tail remove_middle ...". */
void md_engine_caps_text(unsigned caps, char *out, size_t out_bytes);
void md_engine_close(struct md_engine *e); /* accepts NULL */

/* ---- what is where (the map; no engine call) ---- */

int32_t md_engine_end(const struct md_engine *e, md_seq seq); /* last hot or parked position + 1; 0 = empty */
int64_t md_engine_kv_bytes(const struct md_engine *e, int32_t tokens); /* of KV that so many hot ones take */
int32_t md_engine_cells_used(const struct md_engine *e); /* hot + parked, all sequences, shared ones once */
/* Cells that would be free if r were removed from seq: hot or parked there and in no other sequence.  r may
 * reach over holes and past the end. */
int32_t md_engine_own_cells(const struct md_engine *e, md_seq seq, struct md_range r);
bool md_engine_is_hot(const struct md_engine *e, md_seq seq, struct md_range r); /* every position of r */
/* The sequence holds the tail state that its next token needs.  An empty one does.  Not ready after: truncate at a
 * position that is not its own cut point; admit_range, admit_moved or recompute_range of what ends behind the end;
 * remove_range of any of the last max(1, window_tokens) positions.  Ready again by rewind, or when emptied. */
bool md_engine_is_ready(const struct md_engine *e, md_seq seq);

/* ---- forward pass ---- */

/* Compute KV for `count` tokens at positions start, start+1, ...; they attend to the hot positions
 * before them.  start must be md_engine_end(), or anything from 0 when the sequence is empty; the last
 * position must be hot, not parked, and the sequence ready.  Where nothing is hot before them and they are
 * info.sparse_from_tokens or more, they attend to a part of each other only: their KV is not exact.
 *
 * count  1..batch_tokens
 * MD_CANCELLED  the interrupt was raised: none of these tokens is in the KV
 * MD_NO_MEMORY  count exceeds the free cells */
MD_MUST_USE enum md_status md_engine_prefill(struct md_engine *e, md_seq seq, int32_t start,
                                             const md_token *tokens, int32_t count, struct md_err *err);

/* Compute `count` tokens as prefill does and return the logits of what follows the last of them: one token in a decode
 * step; the end of a prompt in one, so that its last token costs no pass over the weights of its own.
 *
 * ret_logits  vocab_count floats, owned by the engine, valid until its next prefill or decode */
MD_MUST_USE enum md_status md_engine_decode(struct md_engine *e, md_seq seq, int32_t start,
                                            const md_token *tokens, int32_t count, const float **ret_logits,
                                            struct md_err *err);

/* Polled during prefill and decode; true makes the call return MD_CANCELLED soon.  NULL: none. */
void md_engine_set_interrupt(struct md_engine *e, bool (*raised)(void *user), void *user);

/* ---- KV surgery ---- */

/* The position nearest to `from`, at or before it, at which the sequence can be cut now and go on: `from` itself
 * on most engines; 0, which always works, without MD_CAP_REMOVE_TAIL, when the windowed layers no longer hold
 * what the token at `from` attends to, when there is a recurrent state, when the sequence is not ready, or when
 * its end would be another (there is a tail state, and position from - 1 is absent).
 * from: 0..md_engine_end(). */
int32_t md_engine_cut_point(const struct md_engine *e, md_seq seq, int32_t from);
/* Forget everything from position `from` on.  Where `from` is not its own cut point: with MD_CAP_CHECKPOINT the
 * sequence is not ready afterwards (a rewind cuts and keeps it ready), otherwise MD_UNSUPPORTED. */
MD_MUST_USE enum md_status md_engine_truncate(struct md_engine *e, md_seq seq, int32_t from,
                                              struct md_err *err);

/* Append the bytes of r (all hot) to ret_kv; nothing else changes.  They are opaque to everyone but the
 * admit calls, and hold nothing of the tail state.  The needed room is reserved exactly beforehand (md_engine_export_bytes); on an error ret_kv is
 * as long as before. */
MD_MUST_USE enum md_status md_engine_export_range(struct md_engine *e, md_seq seq, struct md_range r,
                                                  struct md_buf *ret_kv, struct md_err *err);
/* Upper bound of the bytes export_range appends for `tokens` tokens, headers included. */
int64_t md_engine_export_bytes(const struct md_engine *e, int32_t tokens);
/* Take r (all hot) out of the sequence; the cells that no other sequence holds are free. */
MD_MUST_USE enum md_status md_engine_remove_range(struct md_engine *e, md_seq seq, struct md_range r,
                                                  struct md_err *err);
/* Export r, then remove it: both or, on an error, nothing.  ret_kv NULL: only remove. */
MD_MUST_USE enum md_status md_engine_evict_range(struct md_engine *e, md_seq seq, struct md_range r,
                                                 struct md_buf *ret_kv, struct md_err *err);

/* Put kv (an export of the same range) back at its place.  r must be absent.  The tail state stays as it is.
 * MD_CORRUPT: the bytes fail their check; MD_INVALID: they are of another range, model or KV type. */
MD_MUST_USE enum md_status md_engine_admit_range(struct md_engine *e, md_seq seq, struct md_range r,
                                                 struct md_bytes kv, struct md_err *err);
/* As admit_range, with kv exported from [from_start, from_start + length of r): its keys are turned to the
 * positions of r.  What the tokens saw when they were computed stays in the KV; only distances are new.
 * MD_UNSUPPORTED also: keys of another type than f16 and f32 cannot be turned. */
MD_MUST_USE enum md_status md_engine_admit_moved(struct md_engine *e, md_seq seq, struct md_range r,
                                                 int32_t from_start, struct md_bytes kv, struct md_err *err);

/* Make r (all hot in `from`, absent in `to`, another sequence) hot in `to` as well: the same cells, none is
 * taken. */
MD_MUST_USE enum md_status md_engine_share(struct md_engine *e, md_seq from, md_seq to, struct md_range r,
                                           struct md_err *err);

/* Hide r (all hot) from attention without moving it, and show it again. */
MD_MUST_USE enum md_status md_engine_park(struct md_engine *e, md_seq seq, struct md_range r,
                                          struct md_err *err);
MD_MUST_USE enum md_status md_engine_unpark(struct md_engine *e, md_seq seq, struct md_range r,
                                            struct md_err *err);

/* Compute an absent middle range again in its place: its tokens attend to the hot positions before r.
 * Position r.start - 1 must be hot, or r.start be 0.  The sequence's own tail state is afterwards as before, and
 * also after an error.
 *
 * state  with MD_CAP_CHECKPOINT and r.start > 0 the checkpoint taken at r.start, else empty (MD_INVALID)
 * MD_CANCELLED           r is absent as before
 * MD_CORRUPT, MD_INVALID as md_engine_rewind says of `state`; r is absent as before */
MD_MUST_USE enum md_status md_engine_recompute_range(struct md_engine *e, md_seq seq, struct md_range r,
                                                     const md_token *tokens, struct md_bytes state,
                                                     struct md_err *err);

/* ---- tail state: MD_CAP_CHECKPOINT ---- */

/* Append the tail state of the sequence, which is that of md_engine_end(), to ret_state; nothing else changes.
 * Room for md_engine_checkpoint_bytes() is reserved beforehand; on an error ret_state is as long as before.
 *
 * The state depends on the tokens before it.  Of whose text it is, is not in it: that the tokens are the same
 * where it is put back is the caller's to know.
 * MD_INVALID  the sequence is empty or not ready */
MD_MUST_USE enum md_status md_engine_checkpoint(struct md_engine *e, md_seq seq, struct md_buf *ret_state,
                                                struct md_err *err);
/* Upper bound of the bytes of one checkpoint; 0 without the capability. */
int64_t md_engine_checkpoint_bytes(const struct md_engine *e);
/* Cut the sequence at `at` and put back the tail state that was saved there: it is ready.  The KV of positions
 * before `at` stays as it is, holes included; what was parked or hot behind is forgotten.
 *
 * at     0 < at <= md_engine_end(), and position at - 1 is hot.  With info.tail_only also on an empty sequence, of
 *        which [0, at) is then hot
 * state  of md_engine_checkpoint at `at`
 * MD_CORRUPT        the bytes fail their check; nothing changed
 * MD_INVALID        `at` is out of range, or they are of another position, model or KV type; nothing changed
 * MD_NO_MEMORY      tail_only: [0, at) exceeds the free cells; nothing changed
 * MD_SESSION_FATAL  the library failed half way */
MD_MUST_USE enum md_status md_engine_rewind(struct md_engine *e, md_seq seq, int32_t at,
                                            struct md_bytes state, struct md_err *err);

#ifdef __cplusplus
}
#endif
#endif
