/* bench_measure.c - see bench.h. */
#include "base/clock.h"
#include "commands/bench.h"
#include "policy/restore.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 64, DECODE_GROUP = 8 };

struct bench {
    struct md_engine *const *engines;
    int count;
    int32_t depth, decode_tokens;
    const md_token *tokens; /* depth, then decode_tokens */
    struct md_bench_figures *figures;
};

static void note(struct md_bench_speed *s, int64_t tokens, int64_t ns)
{
    s->tokens += tokens;
    s->ns += ns;
}

double md_bench_tokens_per_second(const struct md_bench_speed *s)
{
    return s->ns > 0 ? (double)s->tokens / ((double)s->ns / 1e9) : 0;
}

void md_bench_fill_tokens(md_token *tokens, int32_t count, int32_t vocab)
{
    uint32_t x = 1;
    for (int32_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u; /* Numerical Recipes' LCG: any spread of ids will do */
        tokens[i] = (md_token)(x >> 8) % (vocab > 512 ? vocab / 2 : vocab);
    }
}

/* ---- turns ---- */

/* The k-th to act in a round. */
static int turn_of(const struct bench *b, int32_t round, int k)
{
    return (int)((round + k) % b->count);
}

/* Which of several engines it was. */
static enum md_status blame(const struct bench *b, int i, enum md_status s, struct md_err *err)
{
    if (s == MD_OK || b->count == 1 || err == NULL)
        return s;
    const struct md_err why = *err;
    return md_fail(err, s, "engine '%s': %.440s", md_engine_info(b->engines[i])->engine, why.text);
}

/* Threads that wait for work may spin for a while, and take processors from the other engine: until this process uses
 * hardly any. */
static enum md_status wait_for_rest(const struct bench *b, struct md_err *err)
{
    enum { SLICES = 400 }; /* 2 s, and more where the machine is busy */
    const struct timespec slice = { 0, 5000000 };
    for (int i = 0; i < SLICES && b->count > 1; i++) {
        struct timespec used[2];
        const int64_t t0 = md_clock_mono_ns();
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[0]);
        nanosleep(&slice, NULL);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[1]);
        const int64_t ns =
            (used[1].tv_sec - used[0].tv_sec) * INT64_C(1000000000) + used[1].tv_nsec - used[0].tv_nsec;
        if (ns * 20 <= md_clock_mono_ns() - t0)
            return MD_OK;
    }
    return b->count == 1
               ? MD_OK
               : md_fail(err, MD_INTERNAL,
                         "an engine goes on computing when it has nothing to do, so that two cannot be "
                         "measured side by side: measure each alone (--engine)");
}

/* ---- steps ---- */

static void show_progress(const struct bench *b, int32_t done)
{
    int64_t ns = 0;
    for (int i = 0; i < b->count; i++)
        ns += b->figures[i].prefill.ns;
    const struct md_bench_speed all = { .tokens = (int64_t)done * b->count, .ns = ns };
    const double each = md_bench_tokens_per_second(&all) / b->count;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[Kprefill %d / %d tokens, %.0f tokens/s, %.0f s left", done, b->depth, each,
                each > 0 ? (b->depth - done) / each : 0);
}

static enum md_status prefill_step(const struct bench *b, int i, int32_t at, int32_t n, struct md_err *err)
{
    struct md_bench_figures *f = &b->figures[i];
    enum md_status s = wait_for_rest(b, err);
    if (s != MD_OK)
        return s;
    const int64_t t0 = md_clock_mono_ns();
    s = md_engine_prefill(b->engines[i], 0, at, b->tokens + at, n, err);
    const int64_t took = md_clock_mono_ns() - t0;
    note(&f->prefill, n, took);
    if (at + n <= MD_BENCH_NEAR_TOKENS && b->depth > MD_BENCH_NEAR_TOKENS)
        note(&f->near, n, took);
    f->deep = (struct md_bench_speed){ .tokens = n, .ns = took }; /* the last one is at depth */
    return blame(b, i, s, err);
}

/* In steps that all engines can take, one of which ends after MD_BENCH_NEAR_TOKENS. */
static enum md_status prefill(const struct bench *b, struct md_err *err)
{
    int32_t most = INT32_MAX;
    enum md_status s = MD_OK;
    for (int i = 0; i < b->count; i++)
        if (md_engine_info(b->engines[i])->batch_tokens < most)
            most = md_engine_info(b->engines[i])->batch_tokens;
    for (int32_t at = 0, n, round = 0; at < b->depth && s == MD_OK; at += n, round++) {
        n = b->depth - at < most ? b->depth - at : most;
        if (at < MD_BENCH_NEAR_TOKENS && at + n > MD_BENCH_NEAR_TOKENS)
            n = MD_BENCH_NEAR_TOKENS - at;
        for (int k = 0; k < b->count && s == MD_OK; k++)
            s = prefill_step(b, turn_of(b, round, k), at, n, err);
        show_progress(b, at + n);
    }
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    return s;
}

static enum md_status decode_step(const struct bench *b, int i, int32_t at, int32_t n, struct md_err *err)
{
    const float *logits;
    enum md_status s = wait_for_rest(b, err);
    if (s != MD_OK)
        return s;
    const int64_t t0 = md_clock_mono_ns();
    for (int32_t k = 0; k < n && s == MD_OK; k++)
        s = md_engine_decode(b->engines[i], 0, at + k, &b->tokens[at + k], 1, &logits, err);
    note(&b->figures[i].decode, n, md_clock_mono_ns() - t0);
    return blame(b, i, s, err);
}

/* Some tokens at a time: the first of them finds the weights out of the processor's caches. */
static enum md_status decode(const struct bench *b, struct md_err *err)
{
    const int32_t end = b->depth + b->decode_tokens;
    enum md_status s = MD_OK;
    for (int32_t at = b->depth, n, round = 0; at < end && s == MD_OK; at += n, round++) {
        n = end - at < DECODE_GROUP ? end - at : DECODE_GROUP;
        for (int k = 0; k < b->count && s == MD_OK; k++)
            s = decode_step(b, turn_of(b, round, k), at, n, err);
    }
    return s;
}

/* ---- moves ---- */

static bool can_move(const struct bench *b, int i)
{
    return (md_engine_caps(b->engines[i]) & MD_CAP_COLD_STORE) != 0;
}

static struct md_range block_at(const struct bench *b, int32_t block)
{
    const int32_t first = b->depth / 4 / BLOCK;
    return (struct md_range){ (first + block) * BLOCK, (first + block + 1) * BLOCK };
}

static enum md_status move_out(const struct bench *b, int i, int32_t block, struct md_buf *kv, bool counted,
                               struct md_err *err)
{
    const int64_t t0 = md_clock_mono_ns();
    md_buf_done(kv);
    md_buf_init(kv, NULL, (size_t)md_engine_export_bytes(b->engines[i], BLOCK));
    const enum md_status s = md_engine_evict_range(b->engines[i], 0, block_at(b, block), kv, err);
    if (counted) {
        note(&b->figures[i].taken, BLOCK, md_clock_mono_ns() - t0);
        b->figures[i].taken.bytes += (int64_t)kv->len;
    }
    return blame(b, i, s, err);
}

static enum md_status move_in(const struct bench *b, int i, int32_t block, const struct md_buf *kv,
                              bool counted, struct md_err *err)
{
    const int64_t t0 = md_clock_mono_ns();
    const enum md_status s = md_engine_admit_range(b->engines[i], 0, block_at(b, block),
                                                   (struct md_bytes){ kv->data, kv->len }, err);
    if (counted) {
        note(&b->figures[i].restored, BLOCK, md_clock_mono_ns() - t0);
        b->figures[i].restored.bytes += (int64_t)kv->len;
    }
    return blame(b, i, s, err);
}

/* Out and in again: every whole block between the first and the last quarter, one at a time as a session
 * moves them. */
static enum md_status move_blocks(const struct bench *b, struct md_err *err)
{
    const int32_t blocks = b->depth / 2 / BLOCK;
    struct md_buf *kv = calloc((size_t)blocks * (size_t)b->count, sizeof *kv);
    enum md_status s =
        kv == NULL ? md_fail(err, MD_NO_MEMORY, "list of %d blocks", blocks) : wait_for_rest(b, err);
    for (int pass = 0; pass < 2 && s == MD_OK; pass++) /* the first one brings in the memory */
        for (int way = 0; way < 2; way++)
            for (int32_t n = 0; n < blocks; n++)
                for (int k = 0; k < b->count && s == MD_OK; k++) {
                    const int i = turn_of(b, n, k);
                    struct md_buf *one = &kv[n * b->count + i];
                    if (can_move(b, i))
                        s = way == 0 ? move_out(b, i, n, one, pass == 1, err)
                                     : move_in(b, i, n, one, pass == 1, err);
                }
    for (int32_t i = 0; kv != NULL && i < blocks * b->count; i++)
        md_buf_done(&kv[i]);
    free(kv);
    return s;
}

/* From how many tokens on does bringing KV back beat computing it?  Blocks of several sizes, so that what a block costs
 * and what a byte costs can be told apart. */
static enum md_status find_break_even(const struct bench *b, int i, struct md_err *err)
{
    static const int32_t sizes[] = { 1, 4, 16, BLOCK };
    enum { TIMES = 8 };
    struct md_engine *e = b->engines[i];
    struct md_bench_figures *f = &b->figures[i];
    struct md_restore speeds = { 0 };
    enum md_status s = MD_OK;
    md_restore_note_prefill(&speeds, (int32_t)f->deep.tokens, f->deep.ns);
    for (int n = 0; n < TIMES * (int)(sizeof sizes / sizeof sizes[0]) && s == MD_OK; n++) {
        const int32_t size = sizes[n / TIMES], start = b->depth / 4;
        const struct md_range r = { start, start + size };
        struct md_buf kv;
        md_buf_init(&kv, NULL, (size_t)md_engine_export_bytes(e, size));
        s = md_engine_evict_range(e, 0, r, &kv, err);
        int64_t t0 = md_clock_mono_ns();
        if (s == MD_OK)
            s = md_engine_admit_range(e, 0, r, (struct md_bytes){ kv.data, kv.len }, err);
        md_restore_note_restore(&speeds, MD_TIER_HOST, (int64_t)kv.len, 1, md_clock_mono_ns() - t0);
        md_buf_done(&kv);
    }
    f->break_even_tokens =
        md_restore_break_even_tokens(&speeds, MD_TIER_HOST, md_engine_info(e)->kv_bytes_per_token);
    return blame(b, i, s, err);
}

enum md_status md_bench_measure(struct md_engine *const *engines, int count, int32_t depth,
                                int32_t decode_tokens, struct md_bench_figures *ret_figures,
                                struct md_err *err)
{
    assert(count >= 1 && count <= MD_BENCH_ENGINES_MAX);
    struct md_bench_figures figures[MD_BENCH_ENGINES_MAX] = { 0 };
    md_token *tokens = calloc((size_t)depth + (size_t)decode_tokens, sizeof *tokens);
    if (tokens == NULL)
        return md_fail(err, MD_NO_MEMORY, "%d tokens", depth);
    md_bench_fill_tokens(tokens, depth + decode_tokens, md_engine_info(engines[0])->vocab_count);
    const struct bench b = { engines, count, depth, decode_tokens, tokens, figures };
    enum md_status s = prefill(&b, err);
    if (s == MD_OK)
        s = decode(&b, err);
    if (s == MD_OK)
        s = move_blocks(&b, err);
    for (int i = 0; i < count && s == MD_OK; i++)
        if (figures[i].restored.tokens > 0)
            s = find_break_even(&b, i, err);
    free(tokens);
    for (int i = 0; i < count && s == MD_OK; i++)
        ret_figures[i] = figures[i];
    return s;
}
