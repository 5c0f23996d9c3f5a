/* conformance_tail.c - scenarios of the tail state: what windowed layers and recurrent layers keep of the end of a
 * sequence, saved and put back.
 *
 * The right logits are those of a run that never did anything else but compute the same tokens in the same calls. */
#include "support/conformance_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KV_LIMIT_BYTES = 64 << 20,
    STEP = 32, /* tokens of a call: cuts fall on its multiples, so that calls are the same in both runs */
    POINTS = 5,
    BLOCK = 64,
    BLOCKS_MAX = 64
};

/* A position at which windows of 32 tokens were lost before, and the same for the windows of this model. */
static int32_t wide(int32_t position)
{
    return position + md_conf_wider();
}

/* The first shorter than any window, the last so far before the end that the windows of all of them are gone: 600 tokens; of a
 * real model 416, more than the 256 cells that its windows have beside themselves.  What stands before point(3) is in front of
 * the last window. */
static int32_t point(int i)
{
    static const int32_t points[POINTS] = { 32, 64, 160, 288, 416 }, real[POINTS] = { 32, 64, 96, 128, 224 };
    return i < 2 ? points[i] : wide(md_conf_is_real() ? real[i] : points[i]);
}

static int32_t long_end(void)
{
    return wide(md_conf_is_real() ? 640 : 1024);
}

/* Of another text. */
static const md_token *other_tokens(void)
{
    return md_conf_subject->tokens + wide(1100);
}

static struct md_bytes bytes_of(const struct md_buf *b)
{
    return (struct md_bytes){ b->data, b->len };
}

static bool has(unsigned cap)
{
    return (md_engine_caps(md_conf_engine()) & cap) != 0;
}

static void feed(int32_t start, const md_token *tokens, int32_t count)
{
    for (int32_t i = 0; i < count; i += STEP)
        MD_CONF_OK(md_engine_prefill(md_conf_engine(), 0, start + i, tokens + i,
                                     count - i < STEP ? count - i : STEP, err));
}

static void run_to(int32_t from, int32_t to)
{
    feed(from, md_conf_subject->tokens + from, to - from);
}

/* The checkpoint of the end. */
static void save(struct md_buf *state)
{
    md_buf_init(state, NULL, (size_t)md_engine_checkpoint_bytes(md_conf_engine()));
    MD_CONF_OK(md_engine_checkpoint(md_conf_engine(), 0, state, err));
    ck_assert_uint_gt(state->len, 0);
    ck_assert_int_le((int64_t)state->len, md_engine_checkpoint_bytes(md_conf_engine()));
}

static void rewind_to(int32_t at, const struct md_buf *state)
{
    MD_CONF_OK(md_engine_rewind(md_conf_engine(), 0, at, bytes_of(state), err));
    ck_assert_int_eq(md_engine_end(md_conf_engine(), 0), at);
    ck_assert(md_engine_is_ready(md_conf_engine(), 0));
}

static void export_of(struct md_range r, struct md_buf *kv)
{
    md_buf_init(kv, NULL, KV_LIMIT_BYTES);
    MD_CONF_OK(md_engine_export_range(md_conf_engine(), 0, r, kv, err));
}

/* Another text from the end on: short, so that the last token still looks back over it in every layer. */
static float *go_on(void)
{
    struct md_engine *e = md_conf_engine();
    const int32_t end = md_engine_end(e, 0), count = 5;
    const md_token *other = other_tokens();
    const size_t bytes = (size_t)md_engine_info(e)->vocab_count * sizeof(float);
    const float *logits = NULL;
    float *copy = malloc(bytes);
    ck_assert_ptr_nonnull(copy);
    feed(end, other, count);
    MD_CONF_OK(md_engine_decode(e, 0, end + count, &other[count], 1, &logits, err));
    memcpy(copy, logits, bytes);
    return copy;
}

/* The same where nothing but the first `at` tokens ever was. */
static float *fresh(int32_t at)
{
    md_conf_begin();
    run_to(0, at);
    return go_on();
}

/* Cells in another order, or tokens in other calls: `allowed` is md_conf_moved_tolerance. */
static void check_moved(const float *want, float *got, float allowed, const char *what, int32_t at)
{
    const float d = md_conf_distance(want, got);
    ck_assert_msg(d <= allowed, "%s at %d: logits differ by %g, allowed %g", what, at, (double)d,
                  (double)allowed);
    free(got);
}

/* The same calls, and cells in the same order. */
static void check(const float *want, float *got, const char *what, int32_t at)
{
    check_moved(want, got, md_conf_subject->same_tolerance, what, at);
}

static void all_to_points(struct md_buf states[POINTS])
{
    md_conf_begin();
    for (int i = 0; i < POINTS; i++) {
        run_to(i == 0 ? 0 : point(i - 1), point(i));
        save(&states[i]);
    }
    run_to(point(POINTS - 1), long_end());
}

static void drop(struct md_buf states[POINTS])
{
    for (int i = 0; i < POINTS; i++)
        md_buf_done(&states[i]);
}

void md_scenario_rewind_to_each_checkpoint(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    struct md_buf states[POINTS];
    float *want[POINTS] = { NULL };
    /* of a real model each second one, only from the last on, and then step by step */
    const int least = md_conf_is_real() ? POINTS - 1 : 0, step = md_conf_is_real() ? 2 : 1;
    for (int i = 0; i < POINTS; i += step)
        want[i] = fresh(point(i));
    md_conf_check_matters(want[2], want[4], "where the text goes on");
    for (int i = POINTS; i-- > least;) {
        all_to_points(states);
        ck_assert_int_eq(md_engine_end(e, 0), long_end());
        rewind_to(point(i), &states[i]);
        ck_assert_int_eq(md_engine_cells_used(e), point(i));
        check(want[i], go_on(), "rewound", point(i));
        rewind_to(point(i), &states[i]); /* a state may be used again, also from behind another text */
        check(want[i], go_on(), "rewound again", point(i));
        for (int k = i; k >= 0; k -= step) { /* and an older one behind a newer one */
            rewind_to(point(k), &states[k]);
            check(want[k], go_on(), "rewound step by step", point(k));
        }
        drop(states);
    }
    for (int i = 0; i < POINTS; i++)
        free(want[i]);
}

/* A rewind leaves the cold blocks before it alone: they come back in their places, in any order. */
void md_scenario_rewind_with_evicted_blocks(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    struct md_buf states[POINTS], kv[3];
    static const struct md_range out[] = { { 0, 32 }, { 64, 128 }, { 160, 192 } };
    const float moved = md_conf_moved_tolerance(point(4));
    float *want = fresh(point(4));
    all_to_points(states);
    for (int k = 0; k < 3; k++) {
        export_of(out[k], &kv[k]);
        MD_CONF_OK(md_engine_remove_range(e, 0, out[k], err));
    }
    ck_assert(md_engine_is_ready(e, 0));
    rewind_to(point(4), &states[4]);
    ck_assert_int_eq(md_engine_cells_used(e), point(4) - 128);
    float *without = go_on();
    md_conf_check_matters(want, without, "what was evicted");
    if (md_conf_is_real()) /* whose `moved` is large */
        ck_assert_msg(md_conf_distance(want, without) > moved,
                      "what was evicted moves the logits too little");
    free(without);
    rewind_to(point(4), &states[4]);
    for (int k = 3; k-- > 0;)
        MD_CONF_OK(md_engine_admit_range(e, 0, out[k], bytes_of(&kv[k]), err));
    ck_assert(md_engine_is_ready(e, 0)); /* they are not the end */
    check_moved(want, go_on(), moved, "evicted, rewound, admitted", point(4));

    drop(states);
    all_to_points(states); /* admitted before the rewind, a part of them evicted again */
    for (int k = 0; k < 3; k++)
        MD_CONF_OK(md_engine_remove_range(e, 0, out[k], err));
    for (int k = 0; k < 3; k++)
        MD_CONF_OK(md_engine_admit_range(e, 0, out[k], bytes_of(&kv[k]), err));
    struct md_buf again;
    export_of(out[1], &again);
    ck_assert_msg(again.len == kv[1].len && memcmp(again.data, kv[1].data, again.len) == 0,
                  "what came back is not what left");
    rewind_to(point(4), &states[4]);
    check(want, go_on(), "evicted, admitted, rewound", point(4));
    md_buf_done(&again);
    for (int k = 0; k < 3; k++)
        md_buf_done(&kv[k]);
    drop(states);
    free(want);
}

/* ---- not ready ---- */

static void check_refused(const char *label)
{
    struct md_engine *e = md_conf_engine();
    const int32_t end = md_engine_end(e, 0), used = md_engine_cells_used(e);
    const md_token token = md_conf_subject->tokens[0];
    const float *logits = NULL;
    struct md_buf state;
    struct md_err err = { 0 };
    ck_assert_msg(!md_engine_is_ready(e, 0), "%s: ready", label);
    ck_assert_int_eq(md_engine_prefill(e, 0, end, &token, 1, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "rewind it to a checkpoint first") != NULL, "%s: '%s'", label, err.text);
    ck_assert_int_eq(md_engine_decode(e, 0, end, &token, 1, &logits, NULL), MD_INVALID);
    md_buf_init(&state, NULL, (size_t)md_engine_checkpoint_bytes(e));
    ck_assert_int_eq(md_engine_checkpoint(e, 0, &state, NULL), MD_INVALID);
    ck_assert_uint_eq(state.len, 0);
    for (int32_t at = 1; at < end; at++)
        ck_assert_int_eq(md_engine_cut_point(e, 0, at), 0);
    ck_assert_int_eq(md_engine_end(e, 0), end);
    ck_assert_int_eq(md_engine_cells_used(e), used);
    md_buf_done(&state);
}

void md_scenario_no_token_follows_a_lost_state(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    struct md_buf states[POINTS];
    float *want = fresh(point(2));
    all_to_points(states);
    const int32_t at = wide(200); /* no checkpoint there, and long out of every window */
    ck_assert_int_eq(md_engine_cut_point(e, 0, at), 0);
    MD_CONF_OK(md_engine_truncate(e, 0, at, err));
    ck_assert_int_eq(md_engine_end(e, 0), at);
    ck_assert_int_eq(md_engine_cells_used(e), at);
    check_refused("cut too far back");
    MD_CONF_OK(md_engine_truncate(e, 0, at - 1, err));
    check_refused("cut once more");
    rewind_to(point(2), &states[2]);
    check(want, go_on(), "rewound after a cut", point(2));
    MD_CONF_OK(md_engine_truncate(e, 0, point(1), err)); /* a place that has one, without giving it */
    check_refused("cut at a checkpoint");
    MD_CONF_OK(md_engine_truncate(e, 0, 0, err));
    ck_assert(md_engine_is_ready(e, 0));
    run_to(0, point(2));
    check(want, go_on(), "emptied and computed", point(2));
    drop(states);
    free(want);
}

void md_scenario_lost_by_ranges(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const struct md_engine_info *info = md_engine_info(e);
    const int32_t at = point(3), window = info->window_tokens > 1 ? info->window_tokens : 1;
    struct md_buf state, all, tail;
    float *want = fresh(at);
    md_conf_begin();
    run_to(0, at);
    save(&state);
    const struct md_range last = { at - 1, at }, before = { at - window - 1, at - window },
                          first = { at - window, at - window + 1 };
    MD_CONF_OK(md_engine_remove_range(e, 0, before, err));
    ck_assert_msg(md_engine_is_ready(e, 0), "[%d, %d) is not in the window", before.start, before.end);
    MD_CONF_OK(md_engine_remove_range(e, 0, first, err));
    check_refused("the oldest of the window removed");
    MD_CONF_OK(md_engine_truncate(e, 0, 0, err));

    run_to(0, at);
    export_of(last, &tail);
    MD_CONF_OK(md_engine_remove_range(e, 0, last, err));
    ck_assert_int_eq(md_engine_end(e, 0), at - 1);
    check_refused("the last one removed");
    MD_CONF_OK(md_engine_admit_range(e, 0, last, bytes_of(&tail), err));
    check_refused("and admitted");
    rewind_to(at, &state);
    check(want, go_on(), "and rewound", at);

    MD_CONF_OK(md_engine_truncate(e, 0, 0, err));
    run_to(0, at);
    export_of((struct md_range){ 0, at }, &all);
    for (int32_t p = 0; p < at; p += BLOCK) /* from the front: the window goes last */
        MD_CONF_OK(
            md_engine_remove_range(e, 0, (struct md_range){ p, p + BLOCK < at ? p + BLOCK : at }, err));
    ck_assert_int_eq(md_engine_cells_used(e), 0);
    ck_assert(md_engine_is_ready(e, 0)); /* empty */
    MD_CONF_OK(md_engine_admit_range(e, 0, (struct md_range){ 0, at }, bytes_of(&all), err));
    check_refused("admitted into an empty one");
    MD_CONF_OK(md_engine_truncate(e, 0, 0, err));
    run_to(0, at); /* nothing of all that is left behind */
    check(want, go_on(), "emptied and computed", at);
    md_buf_done(&tail);
    md_buf_done(&all);
    md_buf_done(&state);
    free(want);
}

/* A sequence ends at its last position that is there, whatever was asked for; where nothing is left, nothing of the
 * state is either. */
void md_scenario_ends_beside_a_hole(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const struct md_range out = { 192, 224 };
    struct md_buf before, behind;
    struct md_err why = { 0 };
    float *want = fresh(out.start);
    md_conf_begin();
    run_to(0, out.start);
    save(&before);
    run_to(out.start, out.end);
    save(&behind);
    run_to(out.end, point(3));
    MD_CONF_OK(md_engine_remove_range(e, 0, out, err));
    ck_assert(md_engine_is_ready(e, 0));
    for (int32_t at = out.start + 1; at <= out.end; at++)
        ck_assert_int_eq(md_engine_cut_point(e, 0, at), 0);
    ck_assert_int_eq(md_engine_rewind(e, 0, out.end, bytes_of(&behind), &why), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(why.text, "is not hot"));
    ck_assert_int_eq(md_engine_end(e, 0), point(3));
    MD_CONF_OK(md_engine_truncate(e, 0, out.start + 5, err));
    ck_assert_int_eq(md_engine_end(e, 0), out.start);
    check_refused("cut in a hole");
    rewind_to(out.start, &before);
    check(want, go_on(), "cut in a hole and rewound", out.start);

    md_conf_begin();
    run_to(0, wide(160));
    MD_CONF_OK(md_engine_remove_range(e, 0, (struct md_range){ 0, 96 }, err));
    MD_CONF_OK(md_engine_truncate(e, 0, 96, err)); /* nothing is left */
    ck_assert_int_eq(md_engine_end(e, 0), 0);
    ck_assert(md_engine_is_ready(e, 0));
    run_to(0, out.start);
    check(want, go_on(), "cut behind a hole, and computed", out.start);

    md_conf_begin();
    run_to(0, wide(160));
    MD_CONF_OK(md_engine_remove_range(e, 0, (struct md_range){ 0, 96 }, err));
    MD_CONF_OK(md_engine_remove_range(e, 0, (struct md_range){ 96, wide(160) }, err));
    ck_assert(md_engine_end(e, 0) == 0 && md_engine_is_ready(e, 0));
    run_to(0, out.start);
    check(want, go_on(), "removed range by range, and computed", out.start);
    md_buf_done(&before);
    md_buf_done(&behind);
    free(want);
}

/* What was the end stands in the middle now, with the state that was saved there still in place. */
void md_scenario_admit_behind_the_end(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const int32_t at = point(3);
    const struct md_range more = { at, at + STEP }, last = { at - STEP, at };
    struct md_buf state, kv[2];
    float *want = fresh(at);
    md_conf_begin();
    run_to(0, at);
    save(&state);
    run_to(at, at + STEP);
    export_of(last, &kv[0]);
    export_of(more, &kv[1]);
    rewind_to(at, &state);
    MD_CONF_OK(md_engine_admit_range(e, 0, more, bytes_of(&kv[1]), err));
    check_refused("admitted behind the end");
    MD_CONF_OK(md_engine_remove_range(e, 0, last, err));
    check_refused("and what was the end removed");
    ck_assert_int_eq(md_engine_end(e, 0), at + STEP);
    ck_assert_int_eq(md_engine_cells_used(e), at);
    MD_CONF_OK(md_engine_admit_range(e, 0, last, bytes_of(&kv[0]), err));
    MD_CONF_OK(md_engine_truncate(e, 0, at, err)); /* the state of `at` was given up */
    check_refused("and cut there");
    rewind_to(at, &state);
    check(want, go_on(), "admitted behind the end, cut, rewound", at);
    md_buf_done(&kv[0]);
    md_buf_done(&kv[1]);
    md_buf_done(&state);
    free(want);
}

/* Tokens up to point(3), without `out`; the state of `at` on the way there. */
static void run_without(struct md_range out, int32_t at, struct md_buf *state, struct md_buf *kv)
{
    md_conf_begin();
    run_to(0, at);
    if (state != NULL)
        save(state);
    run_to(at, point(3));
    if (kv != NULL)
        export_of(out, kv);
    MD_CONF_OK(md_engine_remove_range(md_conf_engine(), 0, out, err));
    ck_assert(md_engine_is_ready(md_conf_engine(), 0));
}

static void cut_if_told(int32_t at, const float *want, const char *what)
{
    if (md_engine_cut_point(md_conf_engine(), 0, at) != at)
        return;
    MD_CONF_OK(md_engine_truncate(md_conf_engine(), 0, at, err));
    md_conf_settle(); /* cells as after a rewind, with what the cut left */
    check(want, go_on(), what, at);
}

/* A range that left may have taken with it what windows before the last one look back to: a cut there is either as
 * good as a rewind, or not a cut point.  The token at `at` still sees position `oldest`.  Real models run one of the three ranges,
 * that of which one token is seen; the exact and the tiny ones run all. */
void md_scenario_cut_behind_a_removed_range(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const int32_t window = md_engine_info(e)->window_tokens, at = point(3) - 64,
                  oldest = at - (window > 1 ? window : STEP) + 1;
    const int32_t ends[] = { oldest, oldest + 1, oldest + 15 }; /* just not seen, one seen, many */
    struct md_buf state, kv;
    const int first = md_conf_is_real() ? 1 : 0, last = md_conf_is_real() ? 1 : 2;
    for (int i = first; i <= last; i++) {
        const struct md_range out = { oldest - 1, ends[i] };
        run_without(out, at, &state, NULL);
        rewind_to(at, &state);
        float *want = go_on();
        run_without(out, at, NULL, NULL);
        cut_if_told(at, want, "cut");
        md_buf_done(&state);
        free(want);
    }
    const struct md_range out = { oldest - 1, oldest + 15 };
    run_without(out, at, &state, &kv);
    MD_CONF_OK(md_engine_admit_range(e, 0, out, bytes_of(&kv), err)); /* which brings no window back */
    rewind_to(at, &state);
    float *whole = go_on();
    run_without(out, at, NULL, NULL);
    MD_CONF_OK(md_engine_admit_range(e, 0, out, bytes_of(&kv), err));
    cut_if_told(at, whole, "admitted and cut");
    md_buf_done(&kv);
    md_buf_done(&state);
    free(whole);
}

/* ---- bytes ---- */

static void refuse(const char *label, int32_t at, struct md_bytes bytes)
{
    struct md_engine *e = md_conf_engine();
    struct md_err err = { 0 };
    struct md_conf_state before = md_conf_remember();
    enum md_status s = md_engine_rewind(e, 0, at, bytes, &err);
    ck_assert_msg(s == MD_CORRUPT || s == MD_INVALID, "%s: %s", label, md_status_name(s));
    ck_assert_msg(err.status == s && err.text[0] != '\0', "%s: no text says why", label);
    md_conf_check_unchanged(&before, label);
}

void md_scenario_wrong_states_change_nothing(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    struct md_buf states[POINTS], kv;
    all_to_points(states);
    md_conf_settle();
    const struct md_buf *good = &states[2];
    const int32_t at = point(2);
    uint8_t *copy = malloc(good->len + 1);
    ck_assert_ptr_nonnull(copy);
    refuse("nothing", at, (struct md_bytes){ 0 });
    refuse("position 0", 0, bytes_of(good));
    refuse("before 0", -1, bytes_of(good));
    refuse("behind the end", long_end() + 1, bytes_of(good));
    refuse("another position", point(3), bytes_of(good));
    refuse("one position off", at - 1, bytes_of(good));
    const size_t step = md_conf_is_real() ? 7 : 1, places = md_conf_is_real() ? 3 : 19; /* two probes each */
    for (size_t len = 0; len < good->len; len += 1 + good->len / 7)
        refuse("a part", at, (struct md_bytes){ good->data, len });
    memcpy(copy, good->data, good->len);
    copy[good->len] = 0;
    refuse("one byte more", at, (struct md_bytes){ copy, good->len + 1 });
    for (size_t byte = 0; byte < good->len; byte += byte < 48 ? step : 1 + good->len / places) {
        copy[byte] ^= 0x10;
        refuse("a changed bit", at, (struct md_bytes){ copy, good->len });
        copy[byte] ^= 0x10;
    }
    if (has(MD_CAP_COLD_STORE)) {
        export_of((struct md_range){ 0, at }, &kv);
        refuse("KV of a range", at, bytes_of(&kv));
        md_buf_done(&kv);
    }
    ck_assert_int_eq(md_engine_rewind(e, 1000, at, bytes_of(good), NULL), MD_INVALID);
    free(copy);
    drop(states);
}

/* ---- leaving and coming back ---- */

void md_scenario_leave_and_come_back(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const bool ranges = has(MD_CAP_COLD_STORE), alone = md_engine_info(e)->tail_only;
    const int32_t at = point(4);
    struct md_buf state, kv[BLOCKS_MAX];
    int n = 0;
    if (!ranges && !alone)
        return;
    const float moved = md_conf_moved_tolerance(at);
    float *want = fresh(at);
    md_conf_begin();
    run_to(0, at);
    save(&state);
    for (int32_t p = 0; ranges && p < at; p += BLOCK)
        export_of((struct md_range){ p, p + BLOCK < at ? p + BLOCK : at }, &kv[n++]);
    MD_CONF_OK(md_engine_truncate(e, 0, 0, err));
    feed(0, other_tokens(), 500); /* somebody else */
    MD_CONF_OK(md_engine_truncate(e, 0, 0, err));
    for (int i = n; i-- > 0;) {
        const int32_t p = i * BLOCK;
        MD_CONF_OK(md_engine_admit_range(e, 0, (struct md_range){ p, p + BLOCK < at ? p + BLOCK : at },
                                         bytes_of(&kv[i]), err));
    }
    if (ranges)
        check_refused("before the state");
    rewind_to(at, &state);
    ck_assert_int_eq(md_engine_cells_used(e), at);
    check_moved(want, go_on(), moved, "back", at);
    for (int i = 0; i < n; i++)
        md_buf_done(&kv[i]);
    md_buf_done(&state);
    free(want);
}

/* ---- recompute ---- */

static bool count_down(void *user)
{
    return --*(int *)user < 0;
}

/* Also where no token can follow. */
static void recompute_where_the_state_is_lost(struct md_range middle, const struct md_buf *before,
                                              const struct md_buf *last)
{
    struct md_engine *e = md_conf_engine();
    const float moved = md_conf_moved_tolerance(point(4));
    float *want = fresh(point(4));
    md_conf_begin();
    run_to(0, long_end());
    MD_CONF_OK(md_engine_truncate(e, 0, wide(600), err));
    MD_CONF_OK(md_engine_remove_range(e, 0, middle, err));
    MD_CONF_OK(md_engine_recompute_range(e, 0, middle, md_conf_subject->tokens + middle.start,
                                         bytes_of(before), err));
    check_refused("recomputed where the state is lost");
    rewind_to(point(4), last);
    check_moved(want, go_on(), moved, "recomputed and rewound", point(4));
    free(want);
}

void md_scenario_recompute_from_a_checkpoint(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    struct md_buf states[POINTS], kv, again;
    const struct md_range first = { 0, point(1) }, middle = { point(2), point(3) };
    const md_token *tokens = md_conf_subject->tokens;
    const float moved = md_conf_moved_tolerance(long_end());
    float *want = fresh(long_end());
    all_to_points(states);
    md_conf_settle();
    export_of(middle, &kv);
    MD_CONF_OK(md_engine_remove_range(e, 0, middle, err));
    const struct md_bytes none = { 0 };
    ck_assert_int_eq(md_engine_recompute_range(e, 0, middle, tokens + middle.start, none, NULL), MD_INVALID);
    ck_assert_int_eq(md_engine_recompute_range(e, 0, middle, tokens + middle.start, bytes_of(&states[3]),
                                               NULL),
                     MD_INVALID);
    states[2].data[states[2].len - 1] ^= 1;
    ck_assert_int_eq(md_engine_recompute_range(e, 0, middle, tokens + middle.start, bytes_of(&states[2]),
                                               NULL),
                     MD_CORRUPT);
    states[2].data[states[2].len - 1] ^= 1;
    for (int polls = 0; polls < 12; polls += 5) {
        struct md_conf_state before = md_conf_remember();
        int left = polls;
        md_engine_set_interrupt(e, count_down, &left);
        enum md_status s =
            md_engine_recompute_range(e, 0, middle, tokens + middle.start, bytes_of(&states[2]), NULL);
        md_engine_set_interrupt(e, NULL, NULL);
        ck_assert_msg(s == MD_CANCELLED, "raised at poll %d: %s", polls, md_status_name(s));
        md_conf_check_unchanged(&before, "interrupted");
    }
    MD_CONF_OK(md_engine_recompute_range(e, 0, middle, tokens + middle.start, bytes_of(&states[2]), err));
    export_of(middle, &again);
    ck_assert_uint_eq(kv.len, again.len);
    if (md_conf_subject->moved_tolerance == 0)
        ck_assert_msg(memcmp(kv.data, again.data, kv.len) == 0, "the range is not what it was");
    MD_CONF_OK(md_engine_remove_range(e, 0, first, err));
    ck_assert_int_eq(md_engine_recompute_range(e, 0, first, tokens, bytes_of(&states[0]), NULL), MD_INVALID);
    MD_CONF_OK(md_engine_recompute_range(e, 0, first, tokens, none, err));
    ck_assert(md_engine_is_ready(e, 0));
    ck_assert_int_eq(md_engine_cells_used(e), long_end());
    check_moved(want, go_on(), moved, "recomputed", long_end()); /* with the state of its own end */
    md_buf_done(&again);

    if (!md_conf_is_real())
        recompute_where_the_state_is_lost(middle, &states[2], &states[4]);
    md_buf_done(&kv);
    drop(states);
    free(want);
}
