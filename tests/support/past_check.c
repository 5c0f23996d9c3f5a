#include "support/past_check.h"

#include "engine/fake.h"
#include "session/session_internal.h"
#include "support/scripted.h"

#include <check.h>
#include <string.h>

void past_open(struct rig *r, struct md_pool_config config, unsigned caps_off, int32_t seq_count,
               int32_t trained_tokens)
{
    config.past_window = true;
    ck_assert_msg(rig_try_open_trained(r, config, caps_off, seq_count, trained_tokens) == MD_OK, "%s",
                  r->err.text);
}

static struct md_engine *second_engine(const struct rig *r)
{
    struct md_fake_options options = { .cell_count = r->config.hot_tokens + 1, .seq_count = 1 };
    struct md_engine *e;
    ck_assert_int_eq(md_fake_open(r->model, &options, &e, NULL), MD_OK);
    return e;
}

/* The bytes of block i as it was at its own place, from wherever they are. */
static void own_bytes(struct md_session *s, size_t i, struct md_buf *kv)
{
    const struct md_hot *h = s->drive.hot;
    const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
    struct md_provenance ignored;
    kv->len = 0;
    if (s->tape.blocks[i].moved_by == 0)
        ck_assert_int_eq(md_engine_export_range(h->engine, s->drive.seq, ref.range, kv, NULL), MD_OK);
    else
        ck_assert_int_eq(md_cold_read(h->cold, &ref, MD_PROVENANCE_APPROXIMATE, kv, &ignored, NULL), MD_OK);
}

static void put(struct md_engine *e, const struct md_session *s, size_t i, const struct md_buf *kv)
{
    ck_assert_int_eq(md_engine_admit_moved(e, 0, md_tape_place(&s->tape, i), md_tape_range(&s->tape, i).start,
                                           (struct md_bytes){ kv->data, kv->len }, NULL),
                     MD_OK);
}

int past_check_moved(const struct rig *r, struct md_session *s)
{
    struct md_buf own, there, want;
    int moved = 0;
    if (md_tape_moved_tokens(&s->tape) == 0)
        return 0;
    struct md_engine *e = second_engine(r);
    md_buf_init(&own, NULL, SIZE_MAX / 2);
    md_buf_init(&there, NULL, SIZE_MAX / 2);
    md_buf_init(&want, NULL, SIZE_MAX / 2);
    for (size_t i = 0; i < md_tape_block_count(&s->tape); i++) {
        const struct md_range at = md_tape_place(&s->tape, i);
        if (s->tape.blocks[i].moved_by == 0)
            continue;
        own_bytes(s, i, &own);
        put(e, s, i, &own);
        there.len = want.len = 0;
        ck_assert_int_eq(md_engine_export_range(e, 0, at, &want, NULL), MD_OK);
        ck_assert_int_eq(md_engine_export_range(r->engine, s->drive.seq, at, &there, NULL), MD_OK);
        ck_assert_uint_eq(there.len, want.len);
        ck_assert_msg(memcmp(there.data, want.data, want.len) == 0, "block %zu at %d", i, at.start);
        moved++;
    }
    md_buf_done(&own);
    md_buf_done(&there);
    md_buf_done(&want);
    md_engine_close(e);
    return moved;
}

void past_check_answer(const struct rig *r)
{
    struct md_session *s = r->session;
    struct md_tape *t = &s->tape;
    struct md_buf kv;
    const float *logits;
    md_token best = 0;
    if (r->last.completion == 0)
        return;
    const int32_t last = t->count - 1, vocab = md_engine_info(r->engine)->vocab_count;
    struct md_engine *e = second_engine(r);
    md_buf_init(&kv, NULL, SIZE_MAX / 2);
    for (size_t i = 0; i < md_tape_block_count(t); i++) {
        if (t->blocks[i].state != MD_STATE_HOT)
            continue;
        own_bytes(s, i, &kv);
        put(e, s, i, &kv);
    }
    ck_assert_int_eq(md_engine_truncate(e, 0, last, NULL), MD_OK);
    ck_assert_int_eq(md_engine_decode(e, 0, last, &t->tokens[last], 1, &logits, NULL), MD_OK);
    for (md_token i = 1; i < vocab; i++)
        if (logits[i] > logits[best] && i != MD_SCRIPTED_END)
            best = i;
    ck_assert_int_eq(r->last.tokens.ids[r->last.completion - 1], best);
    md_buf_done(&kv);
    md_engine_close(e);
}

size_t past_least_cold(int32_t hot_tokens, int32_t block_tokens)
{
    struct rig r;
    rig_open(&r, rig_config(1024, 128, 1 << 20), 0);
    const size_t one = md_cold_block_bytes(md_engine_export_bytes(r.engine, block_tokens), block_tokens);
    rig_close(&r);
    return one * (size_t)(hot_tokens / block_tokens);
}
