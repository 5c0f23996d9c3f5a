/* conformance_seqs.c - scenarios of several sequences in the same cells, and of KV put at other positions.
 *
 * What must be equal is compared with a run of its own: the same tokens given to an empty sequence in the
 * same calls, so that only the place of the cells differs. */
#include "support/conformance_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KV_LIMIT_BYTES = 64 << 20, PREFIX = 64 };

static struct md_bytes bytes_of(const struct md_buf *b)
{
    return (struct md_bytes){ b->data, b->len };
}

static struct md_range range(int32_t start, int32_t end)
{
    return (struct md_range){ start, end };
}

/* Tokens [from, from + count) of the subject at `start`. */
static void feed(md_seq seq, int32_t start, int32_t from, int32_t count)
{
    MD_CONF_OK(md_engine_prefill(md_conf_engine(), seq, start, md_conf_subject->tokens + from, count, err));
}

static void share(md_seq from, md_seq to, struct md_range r)
{
    MD_CONF_OK(md_engine_share(md_conf_engine(), from, to, r, err));
}

static void drop(md_seq seq, struct md_range r)
{
    MD_CONF_OK(md_engine_remove_range(md_conf_engine(), seq, r, err));
}

static void truncate_to(md_seq seq, int32_t from)
{
    MD_CONF_OK(md_engine_truncate(md_conf_engine(), seq, from, err));
}

static void export_of(md_seq seq, struct md_range r, struct md_buf *kv)
{
    md_buf_init(kv, NULL, KV_LIMIT_BYTES);
    MD_CONF_OK(md_engine_export_range(md_conf_engine(), seq, r, kv, err));
}

static void admit_moved(md_seq seq, struct md_range r, int32_t from_start, const struct md_buf *kv)
{
    MD_CONF_OK(md_engine_admit_moved(md_conf_engine(), seq, r, from_start, bytes_of(kv), err));
}

/* Cells used in all, and of sequence 0, 1 and 2 those that are theirs alone. */
static void check_cells(const char *label, int32_t used, int32_t own_0, int32_t own_1, int32_t own_2)
{
    const int32_t want[] = { own_0, own_1, own_2 };
    struct md_engine *e = md_conf_engine();
    ck_assert_msg(md_engine_cells_used(e) == used, "%s: %d cells used, not %d", label,
                  md_engine_cells_used(e), used);
    for (md_seq seq = 0; seq < 3; seq++) {
        const int32_t own = md_engine_own_cells(e, seq, range(0, INT32_MAX));
        ck_assert_msg(own == want[seq], "%s: sequence %d has %d cells alone, not %d", label, seq, own,
                      want[seq]);
    }
}

/* ---- sharing ---- */

/* Both go on from the prefix with tokens of their own; the other's are read from `from`. */
static void go_on(md_seq seq, int32_t from)
{
    feed(seq, PREFIX, from, 40);
    feed(seq, PREFIX + 40, from + 40, 20);
}

void md_scenario_share_a_prefix_and_diverge(int unused)
{
    (void)unused;
    const float moved = md_conf_moved_tolerance(PREFIX + 60);
    float *want[2];
    for (int i = 0; i < 2; i++) {
        md_conf_begin();
        feed(2, 0, 0, PREFIX);
        go_on(2, i == 0 ? PREFIX : 500);
        want[i] = md_conf_probe_of(2);
    }
    md_conf_check_matters(want[0], want[1], "another end");
    md_conf_begin();
    feed(0, 0, 0, PREFIX);
    share(0, 1, range(0, PREFIX));
    ck_assert(md_engine_is_hot(md_conf_engine(), 1, range(0, PREFIX)));
    go_on(0, PREFIX);
    go_on(1, 500);
    md_conf_check_probe_of(0, want[0], moved, "the first");
    md_conf_check_probe_of(1, want[1], moved, "the other");
    truncate_to(0, 30); /* through the shared part: the other keeps it */
    md_conf_check_probe_of(1, want[1], moved, "the other, after the first was cut");
    if (md_conf_subject->model != NULL) { /* a real model minds that the prefix comes in two pieces now */
        feed(0, 30, 30, PREFIX - 30);
        go_on(0, PREFIX);
        md_conf_check_probe_of(0, want[0], moved, "the first again");
    }
    truncate_to(0, 0);
    md_conf_check_probe_of(1, want[1], moved, "the other alone");
    free(want[0]);
    free(want[1]);
}

void md_scenario_shared_cells_are_counted_once(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    md_conf_begin();
    feed(0, 0, 0, 96);
    check_cells("one sequence", 96, 96, 0, 0);
    share(0, 1, range(0, 64));
    check_cells("shared", 96, 32, 0, 0);
    ck_assert_int_eq(md_engine_own_cells(e, 0, range(60, 70)), 6);
    ck_assert_int_eq(md_engine_own_cells(e, 0, range(-5, 64)), 0);
    ck_assert_int_eq(md_engine_own_cells(e, 1000, range(0, 64)), 0);
    share(1, 2, range(0, 32)); /* from the one that got it */
    check_cells("shared by three", 96, 32, 0, 0);
    feed(1, 64, 300, 16);
    check_cells("one goes on", 112, 32, 16, 0);
    truncate_to(0, 48);
    check_cells("the first is cut inside the shared part", 80, 0, 32, 0);
    truncate_to(1, 32);
    check_cells("so is the second", 48, 16, 0, 0);
    truncate_to(0, 0);
    check_cells("the first is empty", 32, 0, 0, 0);
    truncate_to(1, 0);
    check_cells("one is left", 32, 0, 0, 32);
    truncate_to(2, 0);
    check_cells("none", 0, 0, 0, 0);
}

void md_scenario_remove_from_one_of_two(int unused)
{
    (void)unused;
    md_conf_begin();
    feed(0, 0, 0, 96);
    share(0, 1, range(0, 96));
    float *want = md_conf_probe_of(1);
    drop(0, range(16, 48));
    check_cells("removed from the first", 96, 0, 32, 0);
    md_conf_check_probe_of(1, want, md_conf_subject->same_tolerance, "the other");
    float *without = md_conf_probe_of(0);
    md_conf_check_matters(want, without, "removing");
    share(1, 0, range(16, 48)); /* and back, from the other */
    check_cells("shared again", 96, 0, 0, 0);
    md_conf_check_probe_of(0, want, md_conf_subject->same_tolerance, "the first again");
    drop(1, range(16, 48)); /* the other way round */
    md_conf_check_probe_of(0, want, md_conf_subject->same_tolerance, "the first");
    md_conf_check_probe_of(1, without, md_conf_subject->same_tolerance, "the other without");
    drop(0, range(16, 48));
    check_cells("removed from both", 64, 0, 0, 0);
    free(want);
    free(without);
}

void md_scenario_park_in_one_of_two(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    md_conf_begin();
    feed(0, 0, 0, 96);
    share(0, 1, range(0, 96));
    float *want = md_conf_probe_of(1);
    MD_CONF_OK(md_engine_park(e, 0, range(8, 60), err));
    check_cells("parked in the first, hot in the other", 96, 0, 0, 0);
    md_conf_check_probe_of(1, want, md_conf_subject->same_tolerance, "the other");
    float *parked = md_conf_probe_of(0);
    md_conf_check_matters(want, parked, "parking");
    truncate_to(1, 40);
    check_cells("the other is cut", 96, 56, 0, 0);
    MD_CONF_OK(md_engine_unpark(e, 0, range(8, 60), err));
    md_conf_check_probe_of(0, want, md_conf_subject->same_tolerance, "shown again");
    MD_CONF_OK(md_engine_park(e, 0, range(8, 60), err));
    truncate_to(0, 20); /* takes parked ones, of which the other keeps its own */
    check_cells("the first is cut through what is parked", 40, 0, 20, 0);
    free(want);
    free(parked);
}

void md_scenario_export_of_a_shared_range(int unused)
{
    (void)unused;
    struct md_buf first, second;
    const struct md_range r = { 16, 32 };
    const float moved = md_conf_moved_tolerance(96);
    feed(0, 0, 0, 96);
    float *want = md_conf_probe_of(0);
    share(0, 1, range(0, 96));
    share(0, 2, range(0, 96));
    export_of(0, r, &first);
    export_of(1, r, &second);
    ck_assert_int_eq((int)first.len, (int)second.len);
    ck_assert_msg(memcmp(first.data, second.data, first.len) == 0, "one cell, two exports");
    check_cells("exported", 96, 0, 0, 0);
    drop(2, r);
    MD_CONF_OK(md_engine_admit_range(md_conf_engine(), 2, r, bytes_of(&first), err));
    check_cells("admitted into one", 112, 0, 0, 16); /* a copy that the others do not have */
    for (md_seq seq = 0; seq < 3; seq++)
        md_conf_check_probe_of(seq, want, moved, "a sequence");
    drop(2, r);
    check_cells("and out", 96, 0, 0, 0);
    free(want);
    md_buf_done(&first);
    md_buf_done(&second);
}

void md_scenario_recompute_in_one_of_two(int unused)
{
    (void)unused;
    const struct md_range r = { 20, 44 };
    const float moved = md_conf_moved_tolerance(96);
    feed(0, 0, 0, 96);
    share(0, 1, range(0, 96));
    float *want = md_conf_probe_of(1);
    drop(0, r);
    MD_CONF_OK(md_engine_recompute_range(md_conf_engine(), 0, r, md_conf_subject->tokens + r.start,
                                         (struct md_bytes){ 0 }, err));
    check_cells("recomputed", 120, 24, 24, 0);
    md_conf_check_probe_of(0, want, moved, "the first");
    md_conf_check_probe_of(1, want, md_conf_subject->same_tolerance, "the other");
    free(want);
}

/* The first, the last, and some between: whatever ids the library has for them must work. */
void md_scenario_all_sequences_share(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const int32_t count = md_engine_info(e)->seq_count;
    const float moved = md_conf_moved_tolerance(PREFIX);
    ck_assert_int_ge(count, 4); /* what these scenarios and sessions ask of an engine that can share */
    feed(0, 0, 0, PREFIX);
    float *want = md_conf_probe_of(0);
    for (md_seq seq = 1; seq < count; seq++)
        share(seq - 1, seq, range(0, PREFIX));
    ck_assert_int_eq(md_engine_cells_used(e), PREFIX);
    feed(count - 1, PREFIX, 500, 20);
    truncate_to(count - 1, PREFIX);
    if (md_engine_caps(e) & MD_CAP_SPARSE_ATTENTION) {
        MD_CONF_OK(md_engine_park(e, count - 1, range(0, 40), err));
        MD_CONF_OK(md_engine_unpark(e, count - 1, range(0, 40), err));
    }
    for (md_seq seq = 0; seq < count - 1; seq++)
        truncate_to(seq, 0);
    ck_assert_int_eq(md_engine_own_cells(e, count - 1, range(0, PREFIX)), PREFIX);
    md_conf_check_probe_of(count - 1, want, moved, "the last");
    free(want);
}

/* ---- moving ---- */

/* As md_conf_moved_tolerance, where keys were turned on the way: that rounds. */
static float turned_tolerance(int32_t end)
{
    const float moved = md_conf_moved_tolerance(end), turned = md_conf_subject->turned_tolerance;
    return turned > 0 ? turned : moved;
}

/* Attention depends on distances alone, so tokens computed at 0 and moved to 100 are tokens computed there. */
void md_scenario_moved_is_computed_there(int unused)
{
    static const int32_t starts[] = { 0, 5, 100, 1000 };
    (void)unused;
    for (size_t i = 1; i < sizeof starts / sizeof starts[0]; i++) {
        struct md_buf kv;
        md_conf_begin();
        feed(2, starts[i], 0, 60);
        float *want = md_conf_probe_of(2);
        feed(0, 0, 0, 60);
        export_of(0, range(0, 60), &kv);
        truncate_to(0, 0);
        admit_moved(1, range(starts[i], starts[i] + 60), 0, &kv);
        ck_assert_int_eq(md_engine_end(md_conf_engine(), 1), starts[i] + 60);
        check_cells("moved", 120, 0, 60, 60);
        md_conf_check_probe_of(1, want, md_conf_subject->turned_tolerance, "moved up");
        md_buf_done(&kv);
        export_of(2, range(starts[i], starts[i] + 60), &kv); /* and down */
        truncate_to(2, 0);
        admit_moved(2, range(0, 60), starts[i], &kv);
        feed(0, 0, 0, 60);
        float *low = md_conf_probe_of(0);
        md_conf_check_probe_of(2, low, md_conf_subject->turned_tolerance, "moved down");
        md_buf_done(&kv);
        free(want);
        free(low);
    }
}

void md_scenario_moved_there_and_back(int unused)
{
    (void)unused;
    const struct md_range r = { 32, 64 }, away = { 132, 164 };
    const float moved = turned_tolerance(96);
    struct md_buf kv, far;
    feed(0, 0, 0, 96);
    float *want = md_conf_probe_of(0);
    export_of(0, r, &kv);
    drop(0, r);
    float *without = md_conf_probe_of(0);
    md_conf_check_matters(want, without, "the block");
    for (int decode = 0; decode < 2; decode++) { /* pending when it is exported, or carried out */
        admit_moved(1, away, r.start, &kv);
        if (decode)
            free(md_conf_probe_of(1));
        export_of(1, away, &far);
        truncate_to(1, 0);
        admit_moved(0, r, away.start, &far);
        md_conf_check_probe_of(0, want, moved, decode ? "with a step in between" : "without one");
        drop(0, r);
        md_buf_done(&far);
    }
    admit_moved(0, r, r.start, &kv); /* by nothing */
    md_conf_check_probe_of(0, want, moved, "to where it was");
    free(want);
    free(without);
    md_buf_done(&kv);
}

static void check_same_positions(md_seq a, md_seq b)
{
    struct md_engine *e = md_conf_engine();
    ck_assert_int_eq(md_engine_end(e, a), md_engine_end(e, b));
    for (int32_t p = 0; p < md_engine_end(e, a); p++)
        ck_assert_msg(md_engine_is_hot(e, a, range(p, p + 1)) == md_engine_is_hot(e, b, range(p, p + 1)),
                      "position %d", p);
}

/* +7 and then -3 without a step in between must be +4. */
void md_scenario_b076_two_moves_are_one(int unused)
{
    (void)unused;
    const struct md_range block = { 32, 64 }, by_7 = { 39, 71 }, by_4 = { 36, 68 };
    const float moved = turned_tolerance(96);
    struct md_buf kv, once;
    feed(0, 0, 0, 64);
    export_of(0, block, &kv);
    share(0, 1, range(0, 32));
    share(0, 2, range(0, 32));
    admit_moved(2, by_4, block.start, &kv);
    float *want = md_conf_probe_of(2);
    admit_moved(1, by_7, block.start, &kv);
    float *at_7 = md_conf_probe_of(1);
    truncate_to(1, 32);
    admit_moved(1, by_7, block.start, &kv);
    export_of(1, by_7, &once); /* the turn is still to come */
    truncate_to(1, 32);
    admit_moved(1, by_4, by_7.start, &once);
    check_same_positions(1, 2);
    md_conf_check_probe_of(1, want, moved, "+7 and -3");
    if (md_conf_subject->model != NULL) /* a real model hardly minds so small a distance */
        ck_assert(md_conf_distance(want, at_7) > 10 * moved);
    free(want);
    free(at_7);
    md_buf_done(&kv);
    md_buf_done(&once);
}

/* Saved bytes come back as they were, whatever else is turned meanwhile and whatever lay in the cells. */
void md_scenario_b069_beside_a_move(int unused)
{
    (void)unused;
    const struct md_range r = { 32, 64 }, kept = { 64, 96 };
    struct md_buf saved, before, again;
    md_conf_begin();
    feed(0, 0, 0, 96);
    export_of(0, r, &saved);
    export_of(0, kept, &before);
    drop(0, r);
    admit_moved(1, range(200, 232), r.start, &saved);
    truncate_to(1, 0); /* its cells are free, not yet turned */
    MD_CONF_OK(md_engine_admit_range(md_conf_engine(), 0, r, bytes_of(&saved), err)); /* into them */
    admit_moved(2, range(300, 332), r.start, &saved);
    export_of(0, r, &again);
    ck_assert_msg(again.len == saved.len && memcmp(again.data, saved.data, saved.len) == 0,
                  "what came back is not what was saved");
    md_buf_done(&again);
    free(md_conf_probe_of(2)); /* carried out: what did not move must be as before */
    export_of(0, kept, &again);
    ck_assert_msg(again.len == before.len && memcmp(again.data, before.data, before.len) == 0,
                  "the turn touched what did not move");
    md_buf_done(&again);
    md_buf_done(&before);
    md_buf_done(&saved);
}

static bool always(void *user)
{
    (void)user;
    return true;
}

/* What is left to do for a move is done by the next step, also where that is told to stop. */
void md_scenario_interrupt_beside_a_move(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const float *logits;
    struct md_buf kv;
    md_conf_begin();
    feed(0, 0, 0, 96);
    float *other = md_conf_probe_of(0);
    export_of(0, range(0, 64), &kv);
    admit_moved(1, range(20, 84), 0, &kv);
    float *want = md_conf_probe_of(1);
    for (int i = 0; i < 3; i++) {
        truncate_to(1, 0);
        admit_moved(1, range(20, 84), 0, &kv);
        md_engine_set_interrupt(e, always, NULL);
        enum md_status s =
            i == 0 ? md_engine_prefill(e, 1, 84, md_conf_subject->tokens, 5, NULL)
                   : md_engine_decode(e, i - 1, i == 1 ? 96 : 84, (md_token[]){ 100 }, 1, &logits, NULL);
        md_engine_set_interrupt(e, NULL, NULL);
        ck_assert_int_eq(s, MD_CANCELLED);
        md_conf_check_probe_of(1, want, md_conf_subject->same_tolerance, "what was moved");
        md_conf_check_probe_of(0, other, md_conf_subject->same_tolerance, "what was not");
    }
    free(want);
    free(other);
    md_buf_done(&kv);
}

void md_scenario_move_with_all_cells_taken(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const int32_t cells = md_engine_info(e)->cell_count, most = md_engine_info(e)->batch_tokens;
    const struct md_range r = { 0, 32 }, away = { 7, 39 };
    struct md_buf kv, far;
    md_conf_begin();
    for (int32_t at = 0; at < cells - 32; at += most)
        feed(0, at, at, cells - 32 - at < most ? cells - 32 - at : most);
    export_of(0, r, &kv);
    admit_moved(1, away, r.start, &kv);
    ck_assert_int_eq(md_engine_cells_used(e), cells);
    struct md_err err = { 0 };
    ck_assert_int_eq(md_engine_admit_moved(e, 2, away, r.start, bytes_of(&kv), &err), MD_NO_MEMORY);
    if (md_engine_caps(e) & MD_CAP_SHARE) { /* which takes none */
        share(0, 2, range(0, 500));
        truncate_to(2, 0);
    }
    export_of(1, away, &far); /* no cell is free for a step that turns the keys */
    ck_assert_int_eq(md_engine_cells_used(e), cells);
    truncate_to(1, 0);
    admit_moved(1, r, away.start, &far);
    truncate_to(0, 32);
    float *want = md_conf_probe_of(0);
    md_conf_check_probe_of(1, want, md_conf_subject->turned_tolerance, "there and back");
    free(want);
    md_buf_done(&kv);
    md_buf_done(&far);
}
