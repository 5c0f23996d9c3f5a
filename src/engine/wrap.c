/* wrap.c - see wrap.h.  The inner engine is called through its checked front, so that the two position maps
 * go the same way or the difference shows at once. */
#include "engine/wrap.h"

#include "base/clock.h"
#include "engine/engine_ops.h"

#include <assert.h>
#include <string.h>

struct wrap {
    struct md_engine base;
    struct md_engine *inner;
    struct md_engine_hooks hooks;
};

static const struct md_engine_ops wrap_ops;

const char *md_engine_op_name(enum md_engine_op op)
{
    static const char *const names[] = {
#define X(name, text) text,
        MD_ENGINE_OP_LIST(X)
#undef X
    };
    return (unsigned)op < MD_OP_COUNT ? names[op] : "unknown";
}

static struct wrap *wrap_of(struct md_engine *e)
{
    assert(e->ops == &wrap_ops);
    return (struct wrap *)e;
}

/* Between begin and end stands the inner call. */
struct running {
    struct md_engine_call call;
    int64_t since_ns;
};

static enum md_status begin(struct wrap *w, struct running *run, struct md_err *err)
{
    run->since_ns = md_clock_mono_ns();
    run->call.wrapper = &w->base;
    md_engine_set_interrupt(w->inner, w->base.interrupt, w->base.interrupt_user);
    return w->hooks.before == NULL ? MD_OK : w->hooks.before(w->hooks.user, &run->call, err);
}

static enum md_status end(struct wrap *w, struct running *run, enum md_status s)
{
    if (w->hooks.after != NULL)
        w->hooks.after(w->hooks.user, &run->call, s, md_clock_mono_ns() - run->since_ns);
    return s;
}

static struct running running_of(enum md_engine_op op, md_seq seq, struct md_range r)
{
    return (
        struct running){ .call = { .op = op, .seq = seq, .r = r, .token = -1, .from_start = -1, .to = -1 } };
}

static enum md_status wrap_prefill(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                                   int32_t count, struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_PREFILL, seq, (struct md_range){ start, start + count });
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_prefill(w->inner, seq, start, tokens, count, err);
    return end(w, &run, s);
}

static enum md_status wrap_decode(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                                  int32_t count, const float **ret_logits, struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_DECODE, seq, (struct md_range){ start, start + count });
    run.call.token = tokens[count - 1];
    run.call.logits = ret_logits;
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_decode(w->inner, seq, start, tokens, count, ret_logits, err);
    return end(w, &run, s);
}

static enum md_status wrap_truncate(struct md_engine *e, md_seq seq, int32_t from, struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_TRUNCATE, seq, (struct md_range){ from, md_engine_end(e, seq) });
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_truncate(w->inner, seq, from, err);
    return end(w, &run, s);
}

static int32_t wrap_cut_point(const struct md_engine *e, md_seq seq, int32_t from)
{
    return md_engine_cut_point(((const struct wrap *)e)->inner, seq, from);
}

static enum md_status wrap_export(struct md_engine *e, md_seq seq, struct md_range r, struct md_buf *ret_kv,
                                  struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_EXPORT, seq, r);
    size_t before = ret_kv->len;
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_export_range(w->inner, seq, r, ret_kv, err);
    run.call.bytes = ret_kv->len - before;
    return end(w, &run, s);
}

static enum md_status wrap_remove(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_REMOVE, seq, r);
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_remove_range(w->inner, seq, r, err);
    return end(w, &run, s);
}

static enum md_status wrap_admit(struct md_engine *e, md_seq seq, struct md_range r, struct md_bytes kv,
                                 struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_ADMIT, seq, r);
    run.call.bytes = kv.len;
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_admit_range(w->inner, seq, r, kv, err);
    return end(w, &run, s);
}

static enum md_status wrap_admit_moved(struct md_engine *e, md_seq seq, struct md_range r, int32_t from_start,
                                       struct md_bytes kv, struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_ADMIT_MOVED, seq, r);
    run.call.bytes = kv.len;
    run.call.from_start = from_start;
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_admit_moved(w->inner, seq, r, from_start, kv, err);
    return end(w, &run, s);
}

static enum md_status wrap_share(struct md_engine *e, md_seq from, md_seq to, struct md_range r,
                                 struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_SHARE, from, r);
    run.call.to = to;
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_share(w->inner, from, to, r, err);
    return end(w, &run, s);
}

static enum md_status wrap_park(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_PARK, seq, r);
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_park(w->inner, seq, r, err);
    return end(w, &run, s);
}

static enum md_status wrap_unpark(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_UNPARK, seq, r);
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_unpark(w->inner, seq, r, err);
    return end(w, &run, s);
}

static enum md_status wrap_recompute(struct md_engine *e, md_seq seq, struct md_range r,
                                     const md_token *tokens, struct md_bytes state, struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_RECOMPUTE, seq, r);
    run.call.bytes = state.len;
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_recompute_range(w->inner, seq, r, tokens, state, err);
    return end(w, &run, s);
}

static enum md_status wrap_checkpoint(struct md_engine *e, md_seq seq, struct md_buf *ret_state,
                                      struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    const int32_t at = md_engine_end(e, seq);
    struct running run = running_of(MD_OP_CHECKPOINT, seq, (struct md_range){ at, at });
    const size_t before = ret_state->len;
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_checkpoint(w->inner, seq, ret_state, err);
    run.call.bytes = ret_state->len - before;
    return end(w, &run, s);
}

static enum md_status wrap_rewind(struct md_engine *e, md_seq seq, int32_t at, struct md_bytes state,
                                  struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    const int32_t last = md_engine_end(e, seq);
    struct running run = running_of(MD_OP_REWIND, seq, (struct md_range){ at, last > at ? last : at });
    run.call.bytes = state.len;
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_rewind(w->inner, seq, at, state, err);
    return end(w, &run, s);
}

static enum md_status wrap_watch(struct md_engine *e, const int32_t *layers, int32_t count,
                                 struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_WATCH, -1, (struct md_range){ 0 });
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_watch(w->inner, layers, count, err);
    return end(w, &run, s);
}

static enum md_status wrap_queries(struct md_engine *e, int32_t layer, struct md_queries *ret_queries,
                                   struct md_err *err)
{
    struct wrap *w = wrap_of(e);
    struct running run = running_of(MD_OP_QUERIES, -1, (struct md_range){ 0 });
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_queries(w->inner, layer, ret_queries, err);
    return end(w, &run, s);
}

/* The hooks count and note, which changes the wrapper but nothing of the engine. */
static enum md_status wrap_keys(const struct md_engine *e, struct md_range r, struct md_bytes kv,
                                const int32_t *layers, int32_t count, uint16_t *ret_keys, struct md_err *err)
{
    struct wrap *w = (struct wrap *)(uintptr_t)e;
    struct running run = running_of(MD_OP_KEYS, -1, r);
    run.call.bytes = kv.len;
    enum md_status s = begin(w, &run, err);
    if (s == MD_OK)
        s = md_engine_keys(w->inner, r, kv, layers, count, ret_keys, err);
    return end(w, &run, s);
}

static int64_t wrap_checkpoint_bytes(const struct md_engine *e)
{
    return md_engine_checkpoint_bytes(((const struct wrap *)e)->inner);
}

static int64_t wrap_export_bytes(const struct md_engine *e, int32_t tokens)
{
    return md_engine_export_bytes(((const struct wrap *)e)->inner, tokens);
}

static void wrap_close(struct md_engine *e)
{
    struct wrap *w = wrap_of(e);
    md_engine_close(w->inner);
    if (w->hooks.closed != NULL)
        w->hooks.closed(w->hooks.user);
    md_engine_done(e);
    md_free(NULL, w);
}

/* One table for all: what the inner engine lacks is not claimed, so its entry is never called. */
static const struct md_engine_ops wrap_ops = {
    .name = "wrap",
    .close = wrap_close,
    .prefill = wrap_prefill,
    .decode = wrap_decode,
    .truncate = wrap_truncate,
    .cut_point = wrap_cut_point,
    .export_range = wrap_export,
    .export_bytes = wrap_export_bytes,
    .admit_range = wrap_admit,
    .admit_moved = wrap_admit_moved,
    .remove_range = wrap_remove,
    .share = wrap_share,
    .park = wrap_park,
    .unpark = wrap_unpark,
    .recompute_range = wrap_recompute,
    .checkpoint = wrap_checkpoint,
    .checkpoint_bytes = wrap_checkpoint_bytes,
    .rewind = wrap_rewind,
    .keys = wrap_keys,
    .watch = wrap_watch,
    .queries = wrap_queries,
};

/* The wrapper knows the layers as the inner engine does. */
static enum md_status copy_attention(struct wrap *w, struct md_err *err)
{
    int32_t count = 0;
    const struct md_attention_layer *layers = md_engine_attention(w->inner, &count);
    if (count == 0)
        return MD_OK;
    enum md_status s = md_attention_init(&w->base.attention, count, err);
    if (s == MD_OK)
        memcpy(w->base.attention.layers, layers, (size_t)count * sizeof *layers);
    return s;
}

enum md_status md_engine_wrap(struct md_engine *inner, const struct md_engine_hooks *hooks,
                              struct md_engine **ret_engine, struct md_err *err)
{
    struct wrap *w = md_calloc(NULL, 1, sizeof *w);
    if (w == NULL) {
        md_engine_close(inner);
        if (hooks->closed != NULL)
            hooks->closed(hooks->user);
        return md_fail(err, MD_NO_MEMORY, "engine wrapper");
    }
    w->base.ops = &wrap_ops;
    w->inner = inner;
    w->hooks = *hooks;
    w->base.info = *md_engine_info(inner);
    enum md_status s = MD_OK;
    if (md_engine_cells_used(inner) != 0)
        s = md_fail(err, MD_INVALID, "engine '%s' already holds KV and cannot be wrapped",
                    w->base.info.engine);
    if (s == MD_OK)
        s = copy_attention(w, err);
    if (s == MD_OK)
        s = md_engine_init(&w->base, &wrap_ops, md_engine_caps(inner), err);
    if (s != MD_OK) {
        wrap_close(&w->base);
        return s;
    }
    *ret_engine = &w->base;
    return MD_OK;
}
