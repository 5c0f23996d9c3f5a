/* conformance_walk.c - a long random walk over four sequences against a naive model: for each position of each
 * sequence its state, which token's KV it is and which cell, in plain arrays.  Every step compares ends, states
 * and counts of cells; every so often the logits of one sequence are those of the reference pass over exactly
 * the tokens that it attends. */
#include "support/conformance_run.h"

#include "support/reference.h"
#include "support/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEQS = 4,
    POSITIONS = 160, /* of a sequence */
    ENTRIES = 320,   /* tokens computed or moved until all starts over: what the reference pass can bear */
    SAVED = 6,       /* exports kept */
    STEPS = 2000,
    RUN = 12, /* longest range of a step */
    LOOK = 20,
    KV_LIMIT_BYTES = 64 << 20
};

enum state { ABSENT, HOT, PARKED };

struct saved {
    struct md_buf kv;
    int32_t start, count; /* 0: none */
    int32_t entry[RUN];
};

static struct walk {
    struct rng random;
    unsigned long long seed;
    int step;
    enum state state[SEQS][POSITIONS];
    int32_t entry[SEQS][POSITIONS], cell[SEQS][POSITIONS];
    int32_t cells; /* numbers given out so far: a new one for each token that takes a cell */
    struct md_ref_token tokens[ENTRIES + 1];
    bool sees[ENTRIES + 1][ENTRIES + 1];
    int32_t entries;
    struct saved saved[SAVED];
    int done[9], looked, started_over;
} w;

static int32_t pick(int32_t below)
{
    return (int32_t)rng_below(&w.random, (uint32_t)below);
}

static int32_t end_of(md_seq seq)
{
    int32_t end = POSITIONS;
    while (end > 0 && w.state[seq][end - 1] == ABSENT)
        end--;
    return end;
}

/* A range of positions in `state`, from the first one at or behind a random position; empty when there is none. */
static struct md_range some_range(md_seq seq, enum state state)
{
    const int32_t from = pick(POSITIONS), most = 1 + pick(RUN);
    int32_t start = from;
    while (w.state[seq][start] != state)
        if ((start = (start + 1) % POSITIONS) == from)
            return (struct md_range){ 0, 0 };
    struct md_range r = { start, start };
    while (r.end < POSITIONS && r.end - start < most && w.state[seq][r.end] == state)
        r.end++;
    return r;
}

static void put(md_seq seq, int32_t pos, int32_t entry, int32_t cell)
{
    w.state[seq][pos] = HOT;
    w.entry[seq][pos] = entry;
    w.cell[seq][pos] = cell;
}

static void take_away(md_seq seq, struct md_range r)
{
    for (int32_t p = r.start; p < r.end; p++)
        w.state[seq][p] = ABSENT;
}

static bool is_elsewhere(md_seq seq, int32_t cell)
{
    for (md_seq other = 0; other < SEQS; other++)
        for (int32_t p = 0; other != seq && p < POSITIONS; p++)
            if (w.state[other][p] != ABSENT && w.cell[other][p] == cell)
                return true;
    return false;
}

/* ---- steps; each does nothing where what it picked does not fit ---- */

static bool step_prefill(md_seq seq)
{
    const int32_t start = end_of(seq), count = 1 + pick(8);
    if (start + count >= POSITIONS || (start > 0 && w.state[seq][start - 1] != HOT) ||
        w.entries + count > ENTRIES)
        return false;
    md_token tokens[8];
    for (int32_t i = 0; i < count; i++) {
        const int32_t n = w.entries++;
        tokens[i] = md_conf_subject->tokens[pick(md_conf_subject->token_count)];
        w.tokens[n] = (struct md_ref_token){ tokens[i], start + i, start + i };
        memset(w.sees[n], 0, sizeof w.sees[n]);
        put(seq, start + i, n, w.cells++);
        for (int32_t p = 0; p <= start + i; p++)
            if (w.state[seq][p] == HOT)
                w.sees[n][w.entry[seq][p]] = true;
    }
    MD_CONF_OK(md_engine_prefill(md_conf_engine(), seq, start, tokens, count, err));
    return true;
}

static bool step_share(md_seq from, md_seq to)
{
    struct md_range r = some_range(from, HOT);
    int32_t end = r.start;
    while (end < r.end && w.state[to][end] == ABSENT)
        end++;
    r.end = end;
    if (from == to || r.end == r.start)
        return false;
    MD_CONF_OK(md_engine_share(md_conf_engine(), from, to, r, err));
    for (int32_t p = r.start; p < r.end; p++)
        put(to, p, w.entry[from][p], w.cell[from][p]);
    return true;
}

static bool step_remove(md_seq seq)
{
    const struct md_range r = some_range(seq, HOT);
    if (r.end == r.start)
        return false;
    MD_CONF_OK(md_engine_remove_range(md_conf_engine(), seq, r, err));
    take_away(seq, r);
    return true;
}

static bool step_export(md_seq seq)
{
    const struct md_range r = some_range(seq, HOT);
    struct saved *s = &w.saved[pick(SAVED)];
    if (r.end == r.start)
        return false;
    md_buf_done(&s->kv);
    md_buf_init(&s->kv, NULL, KV_LIMIT_BYTES);
    s->start = r.start;
    s->count = md_range_len(r);
    for (int32_t p = r.start; p < r.end; p++)
        s->entry[p - r.start] = w.entry[seq][p];
    if (pick(2) == 0) {
        MD_CONF_OK(md_engine_export_range(md_conf_engine(), seq, r, &s->kv, err));
    } else {
        MD_CONF_OK(md_engine_evict_range(md_conf_engine(), seq, r, &s->kv, err));
        take_away(seq, r);
    }
    return true;
}

static bool all_absent(md_seq seq, struct md_range r)
{
    if (r.start < 0 || r.end >= POSITIONS)
        return false;
    for (int32_t p = r.start; p < r.end; p++)
        if (w.state[seq][p] != ABSENT)
            return false;
    return true;
}

/* Into any sequence, whichever it came from. */
static bool step_admit(md_seq seq)
{
    const struct saved *s = &w.saved[pick(SAVED)];
    const struct md_range r = { s->start, s->start + s->count };
    if (s->count == 0 || !all_absent(seq, r))
        return false;
    MD_CONF_OK(
        md_engine_admit_range(md_conf_engine(), seq, r, (struct md_bytes){ s->kv.data, s->kv.len }, err));
    for (int32_t i = 0; i < s->count; i++)
        put(seq, r.start + i, s->entry[i], w.cells++);
    return true;
}

/* What is moved was computed where it was and is seen where it is: an entry of its own. */
static bool step_move(md_seq seq)
{
    const struct saved *s = &w.saved[pick(SAVED)];
    const int32_t start = pick(POSITIONS);
    const struct md_range r = { start, start + s->count };
    if (s->count == 0 || !all_absent(seq, r) || w.entries + s->count > ENTRIES)
        return false;
    MD_CONF_OK(md_engine_admit_moved(md_conf_engine(), seq, r, s->start,
                                     (struct md_bytes){ s->kv.data, s->kv.len }, err));
    for (int32_t i = 0; i < s->count; i++) {
        const int32_t n = w.entries++, old = s->entry[i];
        w.tokens[n] = w.tokens[old];
        w.tokens[n].pos = r.start + i;
        memcpy(w.sees[n], w.sees[old], sizeof w.sees[n]);
        put(seq, r.start + i, n, w.cells++);
    }
    return true;
}

static bool step_park(md_seq seq, bool back)
{
    const struct md_range r = some_range(seq, back ? PARKED : HOT);
    if (r.end == r.start)
        return false;
    if (back)
        MD_CONF_OK(md_engine_unpark(md_conf_engine(), seq, r, err));
    else
        MD_CONF_OK(md_engine_park(md_conf_engine(), seq, r, err));
    for (int32_t p = r.start; p < r.end; p++)
        w.state[seq][p] = back ? HOT : PARKED;
    return true;
}

static bool step_truncate(md_seq seq)
{
    const int32_t from = pick(end_of(seq) + 1);
    MD_CONF_OK(md_engine_truncate(md_conf_engine(), seq, from, err));
    take_away(seq, (struct md_range){ from, POSITIONS });
    return true;
}

/* ---- looking ---- */

static void check_map(void)
{
    struct md_engine *e = md_conf_engine();
    int32_t used = 0;
    for (md_seq seq = 0; seq < SEQS; seq++) {
        int32_t own = 0;
        const struct md_range r = { pick(POSITIONS), POSITIONS };
        ck_assert_msg(md_engine_end(e, seq) == end_of(seq), "seed %llu, step %d: sequence %d ends at %d",
                      w.seed, w.step, seq, md_engine_end(e, seq));
        for (int32_t p = 0; p < POSITIONS; p++) {
            ck_assert_msg(md_engine_is_hot(e, seq, (struct md_range){ p, p + 1 }) == (w.state[seq][p] == HOT),
                          "seed %llu, step %d: position %d of sequence %d", w.seed, w.step, p, seq);
            if (w.state[seq][p] == ABSENT)
                continue;
            bool elsewhere = is_elsewhere(seq, w.cell[seq][p]), counted = false;
            for (md_seq before = 0; before < seq; before++) /* a cell has one position in all of them */
                counted = counted || (w.state[before][p] != ABSENT && w.cell[before][p] == w.cell[seq][p]);
            used += !counted;
            own += !elsewhere && p >= r.start;
        }
        ck_assert_msg(md_engine_own_cells(e, seq, r) == own,
                      "seed %llu, step %d: %d cells of [%d, ...) are sequence %d's alone, not %d", w.seed,
                      w.step, md_engine_own_cells(e, seq, r), r.start, seq, own);
    }
    ck_assert_msg(md_engine_cells_used(e) == used, "seed %llu, step %d: %d cells used, not %d", w.seed,
                  w.step, md_engine_cells_used(e), used);
}

static void check_logits(md_seq seq)
{
    const int32_t end = end_of(seq), n = w.entries + 1;
    if (end == 0 || w.state[seq][end - 1] != HOT)
        return;
    float *got = md_conf_probe_of(seq);
    w.tokens[n - 1] = (struct md_ref_token){ md_conf_subject->tokens[end], end, end };
    memset(w.sees[n - 1], 0, sizeof w.sees[n - 1]);
    w.sees[n - 1][n - 1] = true;
    for (int32_t p = 0; p < end; p++)
        if (w.state[seq][p] == HOT)
            w.sees[n - 1][w.entry[seq][p]] = true;
    bool *sees = calloc((size_t)n * (size_t)n, sizeof *sees);
    float *want = calloc((size_t)md_conf_subject->model->dims.vocab, sizeof *want);
    ck_assert(sees != NULL && want != NULL);
    for (int32_t i = 0; i < n; i++)
        memcpy(sees + (size_t)i * (size_t)n, w.sees[i], (size_t)n * sizeof *sees);
    ck_assert(md_reference_logits(md_conf_subject->model, w.tokens, sees, n, want));
    const float d = md_conf_distance(got, want);
    ck_assert_msg(d <= md_conf_subject->reference_tolerance,
                  "seed %llu, step %d: sequence %d differs from the reference pass by %g", w.seed, w.step,
                  seq, (double)d);
    w.looked++;
    free(sees);
    free(want);
    free(got);
}

static void start_over(void)
{
    for (md_seq seq = 0; seq < SEQS; seq++) {
        MD_CONF_OK(md_engine_truncate(md_conf_engine(), seq, 0, err));
        take_away(seq, (struct md_range){ 0, POSITIONS });
    }
    for (int i = 0; i < SAVED; i++)
        w.saved[i].count = 0;
    w.entries = 0;
    w.started_over++;
}

static bool one_step(int what)
{
    const md_seq seq = pick(SEQS);
    switch (what) {
    case 0: return step_prefill(seq);
    case 1: return step_share(seq, pick(SEQS));
    case 2: return step_remove(seq);
    case 3: return step_export(seq);
    case 4: return step_admit(seq);
    case 5: return step_move(seq);
    case 6: return step_park(seq, false);
    case 7: return step_park(seq, true);
    default: return pick(4) == 0 && step_truncate(seq); /* not so often that nothing grows */
    }
}

void md_scenario_walk_of_four_sequences(int unused)
{
    (void)unused;
    const bool moves = md_engine_caps(md_conf_engine()) & MD_CAP_POSITION_SHIFT;
    memset(&w, 0, sizeof w);
    w.random = rng_open("walk of four sequences");
    w.seed = w.random.state;
    md_conf_begin();
    for (w.step = 0; w.step < STEPS;) {
        const int what = pick(9);
        if (w.entries > ENTRIES - 2 * RUN)
            start_over();
        if ((what == 5 && !moves) || !one_step(what))
            continue;
        w.done[what]++;
        w.step++;
        check_map();
        if (w.step % LOOK == 0)
            check_logits(pick(SEQS));
    }
    for (int what = 0; what < 9; what++)
        ck_assert_msg(w.done[what] > 20 || (what == 5 && !moves), "operation %d was done %d times", what,
                      w.done[what]);
    ck_assert_msg(w.looked > 40 && w.started_over < 40, "logits were compared %d times, %d starts", w.looked,
                  w.started_over);
    for (int i = 0; i < SAVED; i++)
        md_buf_done(&w.saved[i].kv);
}
