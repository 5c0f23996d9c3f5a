/* conformance_tail_walk.c - a random walk over all that may happen to a sequence with a tail state, against a naive
 * model: which blocks are there, which states are saved, whether a token may follow.  Tokens are computed only while
 * nothing is missing, so at the end of a round the logits are those of a run that did nothing else. */
#include "support/conformance_run.h"

#include "support/rng.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 32, /* tokens, where windows have no more */
    BLOCK_MAX = 128,
    BLOCKS = 20,
    SAVED = 6,
    ROUNDS = 12,
    REAL_ROUNDS =
        2, /* of a real model, which is slow; or as many more as it takes to do all and to compare twice */
    STEPS = 80, /* of a round */
    OPERATIONS = 7,
    KV_LIMIT_BYTES = 64 << 20
};

static struct tail_walk {
    struct rng random;
    unsigned long long seed;
    int round, step;
    md_token text[BLOCKS * BLOCK_MAX];
    int32_t
        block; /* tokens of a block: where windows are wider all blocks are still half as much again as they have cells for */
    int32_t blocks; /* of text that is known */
    bool hot[BLOCKS];
    struct md_buf kv[BLOCKS]; /* of those that are not */
    bool ready;
    struct md_buf states[SAVED];
    int32_t state_at[SAVED]; /* 0: none */
    int done[OPERATIONS];
} w;

static int32_t pick(int32_t below)
{
    return (int32_t)rng_below(&w.random, (uint32_t)below);
}

static struct md_range range_of(int32_t block)
{
    return (struct md_range){ block * w.block, (block + 1) * w.block };
}

static int32_t end_of(void)
{
    int32_t n = w.blocks;
    while (n > 0 && !w.hot[n - 1])
        n--;
    return n * w.block;
}

static void come_in(int32_t block)
{
    w.ready = w.ready && range_of(block).end <= end_of();
    w.hot[block] = true;
    md_buf_done(&w.kv[block]);
}

static void admit(int32_t block)
{
    const struct md_bytes kv = { w.kv[block].data, w.kv[block].len };
    MD_CONF_OK(md_engine_admit_range(md_conf_engine(), 0, range_of(block), kv, err));
    come_in(block);
}

/* The text ends at block `count` now: what was saved of the rest is of another text. */
static void cut(int32_t count)
{
    for (int32_t b = count; b < w.blocks; b++) {
        w.hot[b] = false;
        md_buf_done(&w.kv[b]);
    }
    w.blocks = count;
    for (int i = 0; i < SAVED; i++)
        if (w.state_at[i] > count * w.block)
            w.state_at[i] = 0;
}

/* The first block that is missing from a random one on, around; -1: none. */
static int32_t some_missing(void)
{
    const int32_t from = w.blocks > 0 ? pick(w.blocks) : 0;
    for (int32_t i = 0; i < w.blocks; i++)
        if (!w.hot[(from + i) % w.blocks])
            return (from + i) % w.blocks;
    return -1;
}

static int saved_at(int32_t at)
{
    for (int i = 0; i < SAVED; i++)
        if (w.state_at[i] == at && at > 0)
            return i;
    return -1;
}

/* ---- steps; each does nothing where what it picked does not fit ---- */

static bool append(void)
{
    if (!w.ready || w.blocks == BLOCKS || end_of() != w.blocks * w.block)
        return false;
    if (some_missing() >= 0 && pick(6) != 0)
        return false; /* not at once: it takes all of them in */
    for (int32_t b = 0; b < w.blocks; b++)
        if (!w.hot[b])
            admit(b);
    const struct md_range r = range_of(w.blocks);
    memcpy(w.text + r.start, md_conf_subject->tokens + pick(md_conf_subject->token_count - w.block),
           w.block * sizeof *w.text);
    MD_CONF_OK(md_engine_prefill(md_conf_engine(), 0, r.start, w.text + r.start, w.block, err));
    w.hot[w.blocks++] = true;
    return true;
}

static bool save(void)
{
    const int i = pick(SAVED);
    if (!w.ready || end_of() == 0)
        return false;
    w.states[i].len = 0;
    MD_CONF_OK(md_engine_checkpoint(md_conf_engine(), 0, &w.states[i], err));
    w.state_at[i] = end_of();
    return true;
}

static bool evict(void)
{
    const int32_t b = w.blocks > 0 ? pick(w.blocks) : 0,
                  window = md_engine_info(md_conf_engine())->window_tokens;
    if (w.blocks == 0 || !w.hot[b])
        return false;
    const bool inside = range_of(b).end > end_of() - (window > 1 ? window : 1);
    md_buf_init(&w.kv[b], NULL, KV_LIMIT_BYTES);
    MD_CONF_OK(md_engine_evict_range(md_conf_engine(), 0, range_of(b), &w.kv[b], err));
    w.hot[b] = false;
    w.ready = end_of() == 0 || (w.ready && !inside);
    return true;
}

static bool admit_some(void)
{
    const int32_t b = some_missing();
    if (b < 0)
        return false;
    admit(b);
    return true;
}

static bool rewind_some(void)
{
    const int i = pick(SAVED);
    const int32_t at = w.state_at[i];
    if (at == 0 || at > end_of() || !w.hot[at / w.block - 1])
        return false;
    MD_CONF_OK(md_engine_rewind(md_conf_engine(), 0, at,
                                (struct md_bytes){ w.states[i].data, w.states[i].len }, err));
    cut(at / w.block);
    w.ready = true;
    return true;
}

static bool truncate_some(void)
{
    struct md_engine *e = md_conf_engine();
    const int32_t count = w.blocks > 0 ? pick(w.blocks) : 0, at = count * w.block;
    if (pick(6) != 0 || at >= end_of()) /* not so often that nothing grows */
        return false;
    const bool whole = md_engine_cut_point(e, 0, at) == at;
    MD_CONF_OK(md_engine_truncate(e, 0, at, err));
    cut(count);
    w.ready = end_of() == 0 || (w.ready && whole);
    return true;
}

static bool recompute(void)
{
    int32_t b = 0; /* the first one missing: others would see less than when they were computed */
    while (b < w.blocks && w.hot[b])
        b++;
    const int i = saved_at(b * w.block);
    if (b == w.blocks || (b > 0 && i < 0))
        return false;
    const struct md_bytes state =
        b > 0 ? (struct md_bytes){ w.states[i].data, w.states[i].len } : (struct md_bytes){ 0 };
    MD_CONF_OK(md_engine_recompute_range(md_conf_engine(), 0, range_of(b), w.text + b * w.block, state, err));
    come_in(b);
    return true;
}

/* ---- looking ---- */

static void check_map(void)
{
    struct md_engine *e = md_conf_engine();
    int32_t used = 0;
    for (int32_t b = 0; b < BLOCKS; b++) {
        ck_assert_msg(md_engine_is_hot(e, 0, range_of(b)) == (b < w.blocks && w.hot[b]),
                      "seed %llu, round %d, step %d: block %d", w.seed, w.round, w.step, b);
        used += b < w.blocks && w.hot[b] ? w.block : 0;
    }
    ck_assert_msg(md_engine_end(e, 0) == end_of() && md_engine_cells_used(e) == used,
                  "seed %llu, round %d, step %d: ends at %d with %d cells", w.seed, w.round, w.step,
                  md_engine_end(e, 0), md_engine_cells_used(e));
    ck_assert_msg(md_engine_is_ready(e, 0) == w.ready, "seed %llu, round %d, step %d: ready %d", w.seed,
                  w.round, w.step, md_engine_is_ready(e, 0));
}

/* Everything in its place, and the state of a saved point where none is there. */
static bool complete(void)
{
    int best = -1;
    for (int32_t b = 0; b < w.blocks; b++)
        if (!w.hot[b])
            admit(b);
    for (int i = 0; i < SAVED; i++)
        if (w.state_at[i] > 0 && (best < 0 || w.state_at[i] > w.state_at[best]))
            best = i;
    if (!w.ready && best >= 0) {
        const int32_t at = w.state_at[best];
        MD_CONF_OK(md_engine_rewind(md_conf_engine(), 0, at,
                                    (struct md_bytes){ w.states[best].data, w.states[best].len }, err));
        cut(at / w.block);
        w.ready = true;
    }
    return w.ready && w.blocks > 0;
}

static void check_logits(void)
{
    struct md_engine *e = md_conf_engine();
    float *got = md_conf_probe();
    const int32_t end = w.blocks * w.block;
    const float moved = md_conf_moved_tolerance(end); /* which begins */
    for (int32_t at = 0; at < end; at += w.block)
        MD_CONF_OK(md_engine_prefill(e, 0, at, w.text + at, w.block, err));
    float *want = md_conf_probe();
    const float d = md_conf_distance(want, got);
    ck_assert_msg(d <= moved, "seed %llu, round %d: logits at %d differ by %g", w.seed, w.round, end,
                  (double)d);
    free(want);
    free(got);
}

static bool one_step(int what)
{
    switch (what) {
    case 0: return append();
    case 1: return save();
    case 2: return rewind_some();
    case 3: return truncate_some();
    case 4: return evict();
    case 5: return admit_some();
    default: return recompute();
    }
}

static bool did_all(int operations)
{
    for (int what = 0; what < operations; what++)
        if (w.done[what] == 0)
            return false;
    return true;
}

void md_scenario_tail_walk(int unused)
{
    (void)unused;
    const unsigned caps = md_engine_caps(md_conf_engine());
    const int operations = !(caps & MD_CAP_REMOVE_MIDDLE) ? 4 : caps & MD_CAP_RECOMPUTE_RANGE ? 7 : 6;
    const int rounds = md_conf_is_real() ? REAL_ROUNDS : ROUNDS;
    int compared = 0;
    memset(&w, 0, sizeof w);
    w.random = rng_open("tail walk");
    w.seed = w.random.state;
    w.block = BLOCK + md_conf_wider() / 16;
    ck_assert_int_le(w.block, BLOCK_MAX);
    for (int i = 0; i < SAVED; i++)
        md_buf_init(&w.states[i], NULL, KV_LIMIT_BYTES);
    /* some more where too few of them ended in a sequence that can go on, or chance left an operation out */
    for (w.round = 0; w.round < rounds || ((compared < 2 || !did_all(operations)) && w.round < 8 * rounds);
         w.round++) {
        md_conf_begin();
        cut(0);
        w.ready = true;
        for (w.step = 0; w.step < STEPS; w.step++) {
            const int what = pick(4) == 0 ? 0 : pick(operations);
            w.done[what] += one_step(what);
            check_map();
        }
        if (complete()) {
            check_map();
            check_logits();
            compared++;
        }
    }
    for (int what = 0; what < operations; what++)
        ck_assert_msg(w.done[what] > 0, "seed %llu: operation %d was done %d times", w.seed, what,
                      w.done[what]);
    ck_assert_msg(compared > 1, "seed %llu: logits were compared %d times", w.seed, compared);
    cut(0);
    for (int i = 0; i < SAVED; i++)
        md_buf_done(&w.states[i]);
}
