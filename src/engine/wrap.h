/* wrap.h - an engine around an engine, with a hook before and after each operation.
 *
 * It owns the inner engine and passes every call on; what the hooks do (trace.c logs, tests fail calls or
 * replace logits) is theirs.  Info and capabilities are those of the inner engine.
 *
 * Threads: as engine.h; hooks run on the calling thread. */
#ifndef MD_ENGINE_WRAP_H
#define MD_ENGINE_WRAP_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MD_ENGINE_OP_LIST(X)        \
    X(PREFILL, "prefill")           \
    X(DECODE, "decode")             \
    X(TRUNCATE, "truncate")         \
    X(EXPORT, "export_range")       \
    X(REMOVE, "remove_range")       \
    X(ADMIT, "admit_range")         \
    X(ADMIT_MOVED, "admit_moved")   \
    X(SHARE, "share")               \
    X(PARK, "park")                 \
    X(UNPARK, "unpark")             \
    X(RECOMPUTE, "recompute_range") \
    X(CHECKPOINT, "checkpoint")     \
    X(REWIND, "rewind")             \
    X(WATCH, "watch")               \
    X(QUERIES, "queries")           \
    X(KEYS, "keys")

enum md_engine_op {
#define X(name, text) MD_OP_##name,
    MD_ENGINE_OP_LIST(X)
#undef X
        MD_OP_COUNT
};

const char *md_engine_op_name(enum md_engine_op op);

/* One operation as the hooks see it. */
struct md_engine_call {
    enum md_engine_op op;
    md_seq seq;
    struct md_range r; /* positions concerned; truncate: [from, end); checkpoint: [end, end); rewind:
                                * [at, end); watch, queries: [0, 0), and seq is -1, as it is of keys */
    md_token token;    /* decode: the last one; otherwise -1 */
    size_t bytes; /* export, checkpoint: bytes written (after); admit, admit_moved, rewind, recompute, keys:
                                * bytes given */
    int32_t from_start;        /* admit_moved; otherwise -1 */
    md_seq to;                 /* share: the sequence that gets r; otherwise -1 */
    const float **logits;      /* decode, after MD_OK: what the caller will get; may be replaced */
    struct md_engine *wrapper; /* for md_engine_interrupted() */
};

struct md_engine_hooks {
    /* NULL: none.  Any status but MD_OK (with err filled) ends the call there; the inner engine is not
     * called and `after` is. */
    enum md_status (*before)(void *user, const struct md_engine_call *call, struct md_err *err);
    /* NULL: none.  `status` is that of the call, `elapsed_ns` what it took with `before`. */
    void (*after)(void *user, const struct md_engine_call *call, enum md_status status, int64_t elapsed_ns);
    /* NULL: none.  The wrapper closes: user may be freed. */
    void (*closed)(void *user);
    void *user;
};

/* Wrap `inner`, which must be empty: the wrapper keeps a position map of its own.
 *
 * inner  taken over, also on failure: then it is closed (and `closed` is called)
 *
 * MD_INVALID    inner holds KV
 * MD_NO_MEMORY  the wrapper */
MD_MUST_USE enum md_status md_engine_wrap(struct md_engine *inner, const struct md_engine_hooks *hooks,
                                          struct md_engine **ret_engine, struct md_err *err);

#ifdef __cplusplus
}
#endif
#endif
