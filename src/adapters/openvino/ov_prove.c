/* ov_prove.c - an engine tries what it is about to promise: KV goes out, its place is spoiled, it comes back into other
 * rows, and the next logits are what they were.
 *
 * For devices on which nobody could test: how blocks lie there, what copies in and out of them do, and which of them a step
 * reads is taken from documents, and what does not hold would otherwise be seen as wrong text. */
#include "adapters/openvino/ov_engine.h"

#include "base/mem.h"
#include "engine/kv_blob.h"

#include <math.h>
#include <string.h>

/* The prompt fills two blocks and some rows.  What leaves begins and ends inside of blocks, so that its rows come to lie at
 * other places of other blocks: a mistaken order of numbers moves whole blocks right, and single rows wrong. */
enum { FIRST = 3, BEHIND = 7 };

struct proof {
    struct md_ov_engine *e;
    int32_t prompt; /* tokens */
    struct md_range out;
    float *logits[3]; /* with all, without what is out, with it again */
    struct md_buf before, after;
    int32_t *rows; /* where it lay */
};

enum { WITH, WITHOUT, AGAIN };

static md_token token_at(const struct md_ov_engine *e, int32_t pos)
{
    const int32_t most = e->base.info.vocab_count;
    return (md_token)((11 + (int64_t)pos * 7919) % most);
}

/* Logits behind one more token, which leaves again. */
static enum md_status look(struct proof *p, int which, struct md_err *err)
{
    struct md_ov_engine *e = p->e;
    const md_token next = token_at(e, p->prompt);
    const float *logits = NULL;
    enum md_status s = md_ov_engine_ops.decode(&e->base, 0, p->prompt, &next, 1, &logits, err);
    if (s == MD_OK)
        memcpy(p->logits[which], logits, (size_t)e->base.info.vocab_count * sizeof *logits);
    md_ov_rows_remove(&e->rows, 0, (struct md_range){ p->prompt, INT32_MAX });
    return s;
}

static enum md_status fill(struct proof *p, struct md_err *err)
{
    const int32_t most = p->e->base.info.batch_tokens;
    enum md_status s = MD_OK;
    for (int32_t at = 0; at < p->prompt && s == MD_OK;) {
        md_token tokens[64];
        int32_t n = 0;
        for (; n < most && n < 64 && at + n < p->prompt; n++)
            tokens[n] = token_at(p->e, at + n);
        s = md_ov_engine_ops.prefill(&p->e->base, 0, at, tokens, n, err);
        at += n;
    }
    return s;
}

/* The rows that are let go of get other numbers, finite ones: 0x3c3c is 1.06 as f16, 0x3c3c3c3c 0.0115 as f32. */
static enum md_status spoil(struct proof *p, struct md_err *err)
{
    struct md_ov_engine *e = p->e;
    uint8_t *row = md_calloc(NULL, 1, e->cache.token_bytes);
    if (row == NULL)
        return md_fail(err, MD_NO_MEMORY, "a row of KV");
    memset(row, 0x3c, e->cache.token_bytes);
    for (int32_t i = 0; i < md_range_len(p->out); i++)
        md_ov_cache_write(&e->cache, (struct md_ov_run){ p->rows[i], 1 }, row, 0, 1);
    md_free(NULL, row);
    return md_ov_cache_settle(&e->cache, err);
}

static enum md_status leave(struct proof *p, struct md_err *err)
{
    struct md_ov_engine *e = p->e;
    enum md_status s = md_ov_engine_ops.export_range(&e->base, 0, p->out, &p->before, err);
    if (s != MD_OK)
        return s;
    const struct md_ov_entry *entry = md_ov_rows_from(&e->rows, 0, p->out.start);
    for (int32_t i = 0; i < md_range_len(p->out); i++)
        p->rows[i] = entry[i].row;
    md_ov_rows_remove(&e->rows, 0, p->out);
    return spoil(p, err);
}

static enum md_status run(struct proof *p, struct md_err *err)
{
    struct md_ov_engine *e = p->e;
    enum md_status s = fill(p, err);
    if (s == MD_OK)
        s = look(p, WITH, err);
    if (s == MD_OK)
        s = leave(p, err);
    if (s == MD_OK)
        s = look(p, WITHOUT, err);
    if (s == MD_OK)
        s = md_ov_engine_ops.admit_range(&e->base, 0, p->out,
                                         (struct md_bytes){ p->before.data, p->before.len }, err);
    if (s == MD_OK)
        s = look(p, AGAIN, err);
    if (s == MD_OK)
        s = md_ov_engine_ops.export_range(&e->base, 0, p->out, &p->after, err);
    return s;
}

/* Largest difference from the first logits, as a share of the span of those; a number that is none counts as infinite. */
static float apart(const struct proof *p, int which)
{
    float least = INFINITY, most = -INFINITY, worst = 0;
    for (int32_t i = 0; i < p->e->base.info.vocab_count; i++) {
        const float a = p->logits[WITH][i], b = p->logits[which][i];
        if (!isfinite(a) || !isfinite(b))
            return INFINITY;
        least = fminf(least, a);
        most = fmaxf(most, a);
        worst = fmaxf(worst, fabsf(a - b));
    }
    return most > least ? worst / (most - least) : INFINITY;
}

/* The rows are added up in another order when they lie elsewhere: sums of f32 move by 1e-6, of f16 by 1e-3.  What is left
 * out moves the logits by more, or the trial would tell nothing. */
static enum md_status judge(const struct proof *p, struct md_err *err)
{
    const float bound = p->e->cache.type == MD_OV_F32 ? 1e-3f : 2e-2f, part = 0.25f;
    const float again = apart(p, AGAIN), without = apart(p, WITHOUT);
    const char *what = NULL;
    if (p->before.len != p->after.len || memcmp(p->before.data, p->after.data, p->before.len) != 0)
        what = "KV that was put back is other KV";
    else if (!(again <= bound))
        what = "logits are others when KV has been out";
    else if (!isfinite(without)) /* compared with infinity all would be small */
        what = "logits are no numbers when KV is out";
    else if (!(again < part * without)) /* both 0: KV counts for nothing */
        what = "logits hardly tell what KV is there";
    if (what == NULL)
        return MD_OK;
    return md_fail(err, MD_UNSUPPORTED,
                   "device '%.32s' was tried with this model and cannot be trusted: %s (off by %.2g of their "
                   "span, %.2g without it): use --device CPU",
                   p->e->base.info.device, what, (double)again, (double)without);
}

static enum md_status make(struct proof *p, struct md_err *err)
{
    bool there = true;
    md_buf_init(&p->before, NULL, SIZE_MAX / 2);
    md_buf_init(&p->after, NULL, SIZE_MAX / 2);
    for (int i = 0; i < 3; i++) {
        p->logits[i] = md_calloc(NULL, (size_t)p->e->base.info.vocab_count, sizeof *p->logits[i]);
        there = there && p->logits[i] != NULL;
    }
    p->rows = md_calloc(NULL, (size_t)md_range_len(p->out), sizeof *p->rows);
    return there && p->rows != NULL ? MD_OK : md_fail(err, MD_NO_MEMORY, "trying the device");
}

static void unmake(struct proof *p)
{
    for (int i = 0; i < 3; i++)
        md_free(NULL, p->logits[i]);
    md_free(NULL, p->rows);
    md_buf_done(&p->before);
    md_buf_done(&p->after);
}

enum md_status md_ov_prove(struct md_ov_engine *e, struct md_err *err)
{
    const int32_t block = e->cache.block_rows;
    struct proof p = { .e = e, .prompt = 2 * block + BEHIND, .out = { FIRST, FIRST + block + BEHIND } };
    struct md_err why = { 0 };
    if (e->base.info.cell_count < p.prompt + 1)
        return md_fail(err, MD_INVALID, "a device is tried with %d tokens: KV cells must be as many, got %d",
                       p.prompt + 1, e->base.info.cell_count);
    enum md_status s = make(&p, &why);
    if (s == MD_OK)
        s = run(&p, &why);
    if (s == MD_OK)
        s = judge(&p, &why);
    md_ov_rows_remove(&e->rows, 0, (struct md_range){ 0, INT32_MAX });
    unmake(&p);
    if (s == MD_OK || s == MD_NO_MEMORY || s == MD_UNSUPPORTED)
        return s == MD_OK ? MD_OK : md_fail(err, s, "%s", why.text);
    return md_fail(err, MD_UNSUPPORTED,
                   "device '%.32s' was tried with this model and failed (%.300s): use --device CPU",
                   e->base.info.device, why.text);
}
