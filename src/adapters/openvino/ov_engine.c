/* ov_engine.c - the operations of engine_ops.h: a step of the graph over rows that were brought together, and
 * everything else as changes of the map of rows, or copies of bytes. */
#include "adapters/openvino/ov_engine.h"

#include "engine/kv_blob.h"

#include <assert.h>

static struct md_ov_engine *engine_of(struct md_engine *e)
{
    assert(e->ops == &md_ov_engine_ops);
    return (struct md_ov_engine *)e;
}

/* ---- forward pass ---- */

static bool interrupted(void *user)
{
    return md_engine_interrupted(user);
}

/* Compute tokens at start.. over the hot rows before them, a micro-batch at a time.  On an error none is there.
 *
 * threshold  of the first step, if nothing is before it.  Behind a past the library looks at the tokens of the step alone
 *            when it chooses blocks, and leaves out what counts, whatever the threshold: see ov_backend.h */
static enum md_status run(struct md_ov_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                          int32_t count, float threshold, const float **ret_logits, struct md_err *err)
{
    const int32_t most = e->base.info.ubatch_tokens;
    enum md_status s = MD_OK;
    int32_t done = 0;
    while (done < count && s == MD_OK) {
        int32_t window_rows = 0;
        const int32_t n = md_ov_rows_step(&e->rows, seq, start + done,
                                          count - done < most ? count - done : most, &window_rows);
        s = md_ov_rows_arrange(&e->rows, seq, start + done, n, err);
        if (s != MD_OK)
            break;
        const struct md_ov_step step = { .tokens = tokens + done,
                                         .start = start + done,
                                         .count = n,
                                         .table = e->rows.table,
                                         .table_count = e->rows.table_count,
                                         .past = e->rows.past,
                                         .window_rows = window_rows,
                                         .threshold =
                                             e->rows.past == 0 && n > MD_OV_SPARSE_ROWS ? threshold : 0 };
        s = md_ov_cache_settle(&e->cache, err);
        if (s != MD_OK)
            break;
        s = md_ov_model_run(e->model, &step, e->base.interrupt != NULL ? interrupted : NULL, &e->base,
                            ret_logits, err);
        md_ov_cache_forget(&e->cache);
        if (s != MD_OK)
            break;
        md_ov_rows_adopt(&e->rows, seq, start + done, n);
        if (md_ov_attention_step(e, done, NULL) != MD_OK)
            md_attention_lose(&e->base.attention);
        done += n;
    }
    if (s != MD_OK)
        md_ov_rows_remove(&e->rows, seq, (struct md_range){ start, start + done });
    return s;
}

static enum md_status op_prefill(struct md_engine *base, md_seq seq, int32_t start, const md_token *tokens,
                                 int32_t count, struct md_err *err)
{
    const float *unwanted;
    return run(engine_of(base), seq, start, tokens, count, engine_of(base)->threshold, &unwanted, err);
}

static enum md_status op_decode(struct md_engine *base, md_seq seq, int32_t start, const md_token *tokens,
                                int32_t count, const float **ret_logits, struct md_err *err)
{
    return run(engine_of(base), seq, start, tokens, count, engine_of(base)->threshold, ret_logits, err);
}

/* What stands behind the range is no part of the step: it does not attend to it.  Never sparse: what was lost comes back as
 * exact as what is before it. */
static enum md_status op_recompute(struct md_engine *base, md_seq seq, struct md_range r,
                                   const md_token *tokens, struct md_bytes state, struct md_err *err)
{
    const float *unwanted;
    (void)state; /* there is none */
    return run(engine_of(base), seq, r.start, tokens, md_range_len(r), 0, &unwanted, err);
}

/* ---- surgery ---- */

static enum md_status op_truncate(struct md_engine *base, md_seq seq, int32_t from, struct md_err *err)
{
    (void)err;
    md_ov_rows_remove(&engine_of(base)->rows, seq, (struct md_range){ from, INT32_MAX });
    return MD_OK;
}

static enum md_status op_remove(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    (void)err;
    md_ov_rows_remove(&engine_of(base)->rows, seq, r);
    return MD_OK;
}

static enum md_status op_park(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    (void)err;
    md_ov_rows_set_hot(&engine_of(base)->rows, seq, r, false);
    return MD_OK;
}

static enum md_status op_unpark(struct md_engine *base, md_seq seq, struct md_range r, struct md_err *err)
{
    (void)err;
    md_ov_rows_set_hot(&engine_of(base)->rows, seq, r, true);
    return MD_OK;
}

static enum md_status op_share(struct md_engine *base, md_seq from, md_seq to, struct md_range r,
                               struct md_err *err)
{
    return md_ov_rows_share(&engine_of(base)->rows, from, to, r, err);
}

static size_t payload_bytes(const struct md_ov_engine *e, int32_t tokens)
{
    return e->cache.token_bytes * (size_t)tokens;
}

static int64_t op_export_bytes(const struct md_engine *base, int32_t tokens)
{
    return MD_KV_BLOB_HEADER_BYTES + (int64_t)payload_bytes((const struct md_ov_engine *)base, tokens);
}

/* As many of `count` entries, from the first on, as lie one behind the other in a block. */
static struct md_ov_run run_of(const struct md_ov_engine *e, const struct md_ov_entry *entry, int32_t count)
{
    struct md_ov_run run = { entry->row, 1 };
    const int32_t room = e->cache.block_rows - run.row % e->cache.block_rows;
    while (run.count < count && run.count < room && entry[run.count].row == run.row + run.count)
        run.count++;
    return run;
}

static enum md_status op_export(struct md_engine *base, md_seq seq, struct md_range r, struct md_buf *ret_kv,
                                struct md_err *err)
{
    struct md_ov_engine *e = engine_of(base);
    const int32_t count = md_range_len(r);
    const size_t payload = payload_bytes(e, count);
    enum md_status s = md_buf_reserve(ret_kv, MD_KV_BLOB_HEADER_BYTES + payload, err);
    if (s != MD_OK)
        return s;
    uint8_t *blob = ret_kv->data + ret_kv->len;
    const struct md_ov_entry *entry = md_ov_rows_from(&e->rows, seq, r.start);
    for (int32_t i = 0; i < count;) {
        const struct md_ov_run run = run_of(e, entry + i, count - i);
        md_ov_cache_read(&e->cache, run, blob + MD_KV_BLOB_HEADER_BYTES, i, count);
        i += run.count;
    }
    s = md_ov_cache_settle(&e->cache, err);
    if (s != MD_OK)
        return s;
    md_kv_blob_seal(blob, MD_KV_BLOB_RANGE, payload, r, e->identity_hash);
    ret_kv->len += MD_KV_BLOB_HEADER_BYTES + payload;
    return MD_OK;
}

/* Rows for r, with the bytes of an export of as many. */
static enum md_status take_in(struct md_ov_engine *e, md_seq seq, struct md_range r, const uint8_t *payload,
                              struct md_err *err)
{
    const int32_t count = md_range_len(r);
    enum md_status s = md_ov_rows_insert(&e->rows, seq, r, err);
    if (s != MD_OK)
        return s;
    const struct md_ov_entry *entry = md_ov_rows_from(&e->rows, seq, r.start);
    for (int32_t i = 0; i < count;) {
        const struct md_ov_run run = run_of(e, entry + i, count - i);
        md_ov_cache_write(&e->cache, run, payload, i, count);
        i += run.count;
    }
    return md_ov_cache_settle(&e->cache, err);
}

static enum md_status op_admit(struct md_engine *base, md_seq seq, struct md_range r, struct md_bytes kv,
                               struct md_err *err)
{
    struct md_ov_engine *e = engine_of(base);
    enum md_status s =
        md_kv_blob_check(kv, MD_KV_BLOB_RANGE, payload_bytes(e, md_range_len(r)), r, e->identity_hash, err);
    return s == MD_OK ? take_in(e, seq, r, (const uint8_t *)kv.data + MD_KV_BLOB_HEADER_BYTES, err) : s;
}

static enum md_status op_admit_moved(struct md_engine *base, md_seq seq, struct md_range r,
                                     int32_t from_start, struct md_bytes kv, struct md_err *err)
{
    struct md_ov_engine *e = engine_of(base);
    const int32_t count = md_range_len(r);
    const struct md_range from = { from_start, from_start + count };
    enum md_status s =
        md_kv_blob_check(kv, MD_KV_BLOB_RANGE, payload_bytes(e, count), from, e->identity_hash, err);
    if (s != MD_OK)
        return s;
    uint8_t *turned = md_realloc(NULL, NULL, payload_bytes(e, count)); /* kv is borrowed */
    if (turned == NULL)
        return md_fail(err, MD_NO_MEMORY, "turning the keys of %d tokens", count);
    memcpy(turned, (const uint8_t *)kv.data + MD_KV_BLOB_HEADER_BYTES, payload_bytes(e, count));
    if (r.start != from_start)
        s = md_ov_cache_turn(&e->cache, &e->turn, turned, count, r.start - from_start, err);
    if (s == MD_OK)
        s = take_in(e, seq, r, turned, err);
    md_free(NULL, turned);
    return s;
}

static void op_close(struct md_engine *base)
{
    if (base == NULL)
        return;
    struct md_ov_engine *e = (struct md_ov_engine *)base; /* ops may not be set yet */
    md_engine_done(base);
    md_ov_model_close(e->model); /* before the memory it writes to */
    md_ov_rows_done(&e->rows);
    md_ov_cache_done(&e->cache);
    md_free(NULL, e);
}

const struct md_engine_ops md_ov_engine_ops = {
    .name = "openvino",
    .close = op_close,
    .prefill = op_prefill,
    .decode = op_decode,
    .truncate = op_truncate,
    .export_range = op_export,
    .export_bytes = op_export_bytes,
    .admit_range = op_admit,
    .admit_moved = op_admit_moved,
    .remove_range = op_remove,
    .share = op_share,
    .park = op_park,
    .unpark = op_unpark,
    .recompute_range = op_recompute,
    .keys = md_ov_keys,
};
