/* double_engine.c - see double_engine.h. */
#include "support/double_engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_WORDS = 2 }; /* the range, and the number of bytes that follow */

static struct double_engine *double_of(const struct md_engine *e)
{
    return (struct double_engine *)(uintptr_t)e;
}

static uint64_t *at(const struct double_engine *d, md_seq seq, int32_t pos)
{
    assert(pos >= 0 && pos < d->positions);
    return &d->kv[(size_t)seq * (size_t)d->positions + (size_t)pos];
}

uint64_t double_engine_kv(const struct double_engine *d, md_seq seq, int32_t pos)
{
    return *at(d, seq, pos);
}

static void double_close(struct md_engine *e)
{
    struct double_engine *d = double_of(e);
    md_engine_done(e);
    free(d->kv);
    free(d);
}

static void compute(struct double_engine *d, md_seq seq, int32_t pos, md_token token)
{
    *at(d, seq, pos) = ++d->computed << 32 | (uint32_t)(token * 31 + pos);
}

static enum md_status double_prefill(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                                     int32_t count, struct md_err *err)
{
    (void)err;
    for (int32_t i = 0; i < count; i++)
        compute(double_of(e), seq, start + i, tokens[i]);
    return MD_OK;
}

static enum md_status double_decode(struct md_engine *e, md_seq seq, int32_t start, const md_token *tokens,
                                    int32_t count, const float **ret_logits, struct md_err *err)
{
    (void)e, (void)seq, (void)start, (void)tokens, (void)count, (void)ret_logits;
    return md_fail(err, MD_UNSUPPORTED, "the double has no logits");
}

static enum md_status double_truncate(struct md_engine *e, md_seq seq, int32_t from, struct md_err *err)
{
    (void)err;
    for (int32_t pos = from; pos < md_engine_end(e, seq); pos++)
        *at(double_of(e), seq, pos) = 0;
    return MD_OK;
}

static int64_t payload_bytes(const struct double_engine *d, int32_t tokens)
{
    return (int64_t)(HEADER_WORDS * sizeof(uint64_t)) + tokens * (int64_t)d->bytes_per_token;
}

static int64_t double_export_bytes(const struct md_engine *e, int32_t tokens)
{
    return payload_bytes(double_of(e), tokens) + double_of(e)->bound_off;
}

static enum md_status double_export(struct md_engine *e, md_seq seq, struct md_range r, struct md_buf *ret_kv,
                                    struct md_err *err)
{
    struct double_engine *d = double_of(e);
    uint64_t words[512] = { (uint64_t)r.start << 32 | (uint32_t)r.end,
                            (uint64_t)payload_bytes(d, md_range_len(r)) };
    enum md_status s = d->fail_export;
    d->fail_export = MD_OK;
    if (s != MD_OK)
        return md_fail(err, s, "export fails on purpose");
    s = md_buf_append(ret_kv, words, HEADER_WORDS * sizeof *words, err);
    for (int32_t pos = r.start; pos < r.end && s == MD_OK; pos++) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            words[i] = *at(d, seq, pos);
        for (size_t left = d->bytes_per_token, n; left > 0 && s == MD_OK; left -= n) {
            n = left < sizeof words ? left : sizeof words;
            s = md_buf_append(ret_kv, words, n, err);
        }
    }
    return s;
}

static enum md_status double_remove(struct md_engine *e, md_seq seq, struct md_range r, struct md_err *err)
{
    (void)err;
    for (int32_t pos = r.start; pos < r.end; pos++)
        *at(double_of(e), seq, pos) = 0;
    return MD_OK;
}

static enum md_status double_admit_moved(struct md_engine *e, md_seq seq, struct md_range r,
                                         int32_t from_start, struct md_bytes kv, struct md_err *err)
{
    struct double_engine *d = double_of(e);
    enum md_status s = d->fail_admit;
    d->fail_admit = MD_OK;
    if (s != MD_OK)
        return md_fail(err, s, "admit fails on purpose");
    const uint64_t *words = kv.data;
    const int32_t from_end = from_start + md_range_len(r);
    if ((int64_t)kv.len != payload_bytes(d, md_range_len(r)) || words[1] != kv.len ||
        words[0] != ((uint64_t)from_start << 32 | (uint32_t)from_end))
        return md_fail(err, MD_CORRUPT, "these are not the bytes of [%d, %d)", from_start, from_end);
    size_t per_token = d->bytes_per_token / sizeof *words;
    for (int32_t i = 0; i < md_range_len(r); i++) {
        const uint64_t *token = words + HEADER_WORDS + (size_t)i * per_token;
        for (size_t k = 1; k < per_token; k++)
            if (token[k] != token[0])
                return md_fail(err, MD_CORRUPT, "KV of position %d is damaged", from_start + i);
    }
    for (int32_t i = 0; i < md_range_len(r); i++)
        *at(d, seq, r.start + i) = words[HEADER_WORDS + (size_t)i * per_token];
    return MD_OK;
}

static enum md_status double_admit(struct md_engine *e, md_seq seq, struct md_range r, struct md_bytes kv,
                                   struct md_err *err)
{
    return double_admit_moved(e, seq, r, r.start, kv, err);
}

static enum md_status double_share(struct md_engine *e, md_seq from, md_seq to, struct md_range r,
                                   struct md_err *err)
{
    (void)err;
    for (int32_t pos = r.start; pos < r.end; pos++)
        *at(double_of(e), to, pos) = *at(double_of(e), from, pos);
    return MD_OK;
}

static const struct md_engine_ops double_ops = {
    .name = "double",
    .close = double_close,
    .prefill = double_prefill,
    .decode = double_decode,
    .truncate = double_truncate,
    .export_range = double_export,
    .export_bytes = double_export_bytes,
    .admit_range = double_admit,
    .admit_moved = double_admit_moved,
    .remove_range = double_remove,
    .share = double_share,
};

struct double_engine *double_engine_open(unsigned caps, int32_t seq_count, int32_t positions,
                                         size_t bytes_per_token)
{
    assert(bytes_per_token >= 8 && bytes_per_token % 8 == 0);
    struct double_engine *d = calloc(1, sizeof *d);
    assert(d != NULL);
    d->kv = calloc((size_t)seq_count * (size_t)positions, sizeof *d->kv);
    assert(d->kv != NULL);
    d->positions = positions;
    d->bytes_per_token = bytes_per_token;
    d->base.info = (struct md_engine_info){ .engine = "double",
                                            .vocab_count = 1 << 20,
                                            .seq_count = seq_count,
                                            .cell_count = positions * seq_count,
                                            .batch_tokens = positions,
                                            .ubatch_tokens = positions,
                                            .kv_bytes_per_token = (int64_t)bytes_per_token };
    enum md_status s = md_engine_init(&d->base, &double_ops, caps, NULL);
    assert(s == MD_OK);
    (void)s;
    return d;
}
