/* conformance_errors.c - scenarios in which a call fails and must leave everything as it was, and a random
 * walk over all operations. */
#include "support/conformance_run.h"

#include "engine/wrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KV_LIMIT_BYTES = 64 << 20 };

/* What most of these begin with: 96 tokens, [32, 48) parked (where the engine can), [64, 80) in kv; where there is a
 * tail state more tokens, so that the hole is not in the last window. */
static void three_states(struct md_buf *kv)
{
    md_conf_begin();
    md_buf_init(kv, NULL, KV_LIMIT_BYTES);
    md_conf_prefill(0, md_engine_caps(md_conf_engine()) & MD_CAP_CHECKPOINT ? 160 + md_conf_wider() : 96, 48);
    if (md_engine_caps(md_conf_engine()) & MD_CAP_SPARSE_ATTENTION)
        md_conf_park((struct md_range){ 32, 48 });
    md_conf_evict((struct md_range){ 64, 80 }, kv);
    md_conf_settle();
}

static enum md_status call(enum md_engine_op op, md_seq seq, struct md_range r, const struct md_buf *kv,
                           struct md_err *err)
{
    struct md_engine *e = md_conf_engine();
    const md_token *tokens = md_conf_subject->tokens;
    const float *logits;
    struct md_buf out;
    enum md_status s = MD_INTERNAL;
    switch (op) {
    case MD_OP_PREFILL: return md_engine_prefill(e, seq, r.start, tokens, r.end - r.start, err);
    case MD_OP_DECODE: return md_engine_decode(e, seq, r.start, &tokens[0], 1, &logits, err);
    case MD_OP_TRUNCATE: return md_engine_truncate(e, seq, r.start, err);
    case MD_OP_EXPORT:
        md_buf_init(&out, NULL, KV_LIMIT_BYTES);
        s = md_engine_export_range(e, seq, r, &out, err);
        ck_assert_msg(out.len == 0, "a failed export_range wrote %zu bytes", out.len);
        md_buf_done(&out);
        return s;
    case MD_OP_REMOVE: return md_engine_remove_range(e, seq, r, err);
    case MD_OP_ADMIT: return md_engine_admit_range(e, seq, r, (struct md_bytes){ kv->data, kv->len }, err);
    case MD_OP_PARK: return md_engine_park(e, seq, r, err);
    case MD_OP_UNPARK: return md_engine_unpark(e, seq, r, err);
    case MD_OP_RECOMPUTE: return md_engine_recompute_range(e, seq, r, tokens, (struct md_bytes){ 0 }, err);
    default: return s;
    }
}

void md_scenario_wrong_arguments_change_nothing(int unused)
{
    static const struct {
        const char *label;
        enum md_engine_op op;
        md_seq seq;
        struct md_range r;
    } rows[] = {
        { "prefill in the middle", MD_OP_PREFILL, 0, { 50, 60 } },
        { "prefill into the hole", MD_OP_PREFILL, 0, { 64, 80 } },
        { "prefill behind a gap", MD_OP_PREFILL, 0, { 97, 99 } },
        { "prefill before 0", MD_OP_PREFILL, 0, { -1, 3 } },
        { "prefill of nothing", MD_OP_PREFILL, 0, { 96, 96 } },
        { "prefill of less than nothing", MD_OP_PREFILL, 0, { 96, 90 } },
        { "prefill over the batch", MD_OP_PREFILL, 0, { 96, 1000000 } },
        { "prefill at the last position there is", MD_OP_PREFILL, 0, { INT32_MAX - 1, INT32_MAX } },
        { "prefill of no sequence", MD_OP_PREFILL, -1, { 0, 4 } },
        { "prefill of a sequence too many", MD_OP_PREFILL, 1000, { 0, 4 } },
        { "decode of what is there", MD_OP_DECODE, 0, { 95, 96 } },
        { "decode behind a gap", MD_OP_DECODE, 0, { 97, 98 } },
        { "decode of no sequence", MD_OP_DECODE, -1, { 96, 97 } },
        { "truncate before 0", MD_OP_TRUNCATE, 0, { -1, 0 } },
        { "truncate of no sequence", MD_OP_TRUNCATE, 1000, { 0, 0 } },
        { "export of nothing", MD_OP_EXPORT, 0, { 10, 10 } },
        { "export upside down", MD_OP_EXPORT, 0, { 20, 10 } },
        { "export before 0", MD_OP_EXPORT, 0, { -1, 10 } },
        { "export of a hole", MD_OP_EXPORT, 0, { 64, 80 } },
        { "export across a hole", MD_OP_EXPORT, 0, { 60, 70 } },
        { "export past the end", MD_OP_EXPORT, 0, { 90, 97 } },
        { "export of everything there is", MD_OP_EXPORT, 0, { 0, INT32_MAX } },
        { "export of a parked range", MD_OP_EXPORT, 0, { 32, 48 } },
        { "export into a parked range", MD_OP_EXPORT, 0, { 30, 34 } },
        { "export of no sequence", MD_OP_EXPORT, -1, { 0, 10 } },
        { "export of an empty sequence", MD_OP_EXPORT, 1, { 0, 10 } },
        { "remove of nothing", MD_OP_REMOVE, 0, { 10, 10 } },
        { "remove upside down", MD_OP_REMOVE, 0, { 20, 10 } },
        { "remove before 0", MD_OP_REMOVE, 0, { -1, 10 } },
        { "remove of a hole", MD_OP_REMOVE, 0, { 64, 80 } },
        { "remove across a hole", MD_OP_REMOVE, 0, { 60, 70 } },
        { "remove past the end", MD_OP_REMOVE, 0, { 90, 97 } },
        { "remove of everything there is", MD_OP_REMOVE, 0, { 0, INT32_MAX } },
        { "remove of a parked range", MD_OP_REMOVE, 0, { 32, 48 } },
        { "remove into a parked range", MD_OP_REMOVE, 0, { 30, 34 } },
        { "remove of no sequence", MD_OP_REMOVE, -1, { 0, 10 } },
        { "remove of an empty sequence", MD_OP_REMOVE, 1, { 0, 10 } },
        { "admit over what is there", MD_OP_ADMIT, 0, { 10, 26 } },
        { "admit half over what is there", MD_OP_ADMIT, 0, { 56, 72 } },
        { "admit over a parked range", MD_OP_ADMIT, 0, { 32, 48 } },
        { "admit of nothing", MD_OP_ADMIT, 0, { 64, 64 } },
        { "admit before 0", MD_OP_ADMIT, 0, { -16, 0 } },
        { "admit elsewhere", MD_OP_ADMIT, 0, { 100, 116 } },
        { "admit of a part", MD_OP_ADMIT, 0, { 64, 72 } },
        { "admit of no sequence", MD_OP_ADMIT, -1, { 64, 80 } },
        { "park of a hole", MD_OP_PARK, 0, { 64, 80 } },
        { "park of what is parked", MD_OP_PARK, 0, { 32, 48 } },
        { "park past the end", MD_OP_PARK, 0, { 90, 100 } },
        { "park of nothing", MD_OP_PARK, 0, { 5, 5 } },
        { "unpark of what is hot", MD_OP_UNPARK, 0, { 0, 10 } },
        { "unpark half of what is hot", MD_OP_UNPARK, 0, { 40, 52 } },
        { "unpark of a hole", MD_OP_UNPARK, 0, { 64, 80 } },
        { "recompute of what is there", MD_OP_RECOMPUTE, 0, { 10, 20 } },
        { "recompute half of what is there", MD_OP_RECOMPUTE, 0, { 60, 70 } },
        { "recompute with a gap before it", MD_OP_RECOMPUTE, 0, { 70, 80 } },
        { "recompute behind the end", MD_OP_RECOMPUTE, 0, { 100, 110 } },
    };
    (void)unused;
    struct md_buf kv;
    three_states(&kv);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].op == MD_OP_RECOMPUTE && !(md_engine_caps(md_conf_engine()) & MD_CAP_RECOMPUTE_RANGE))
            continue;
        struct md_err err = { 0 };
        struct md_conf_state before = md_conf_remember();
        const enum md_status s = call(rows[i].op, rows[i].seq, rows[i].r, &kv, &err);
        ck_assert_msg(s == MD_INVALID, "%s: %s instead of INVALID", rows[i].label, md_status_name(s));
        ck_assert_msg(err.status == s && err.text[0] != '\0', "%s: no text says why", rows[i].label);
        md_conf_check_unchanged(&before, rows[i].label);
    }
    const md_token foreign[] = { -1, INT32_MIN, md_engine_info(md_conf_engine())->vocab_count, INT32_MAX };
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        const float *logits;
        struct md_conf_state before = md_conf_remember();
        ck_assert_int_eq(md_engine_prefill(md_conf_engine(), 0, 96, &foreign[i], 1, NULL), MD_INVALID);
        ck_assert_int_eq(md_engine_decode(md_conf_engine(), 0, 96, &foreign[i], 1, &logits, NULL),
                         MD_INVALID);
        md_conf_check_unchanged(&before, "a token that does not exist");
    }
    md_conf_admit((struct md_range){ 64, 80 }, (struct md_bytes){ kv.data, kv.len });
    md_conf_check_reference("after all of them");
    md_buf_done(&kv);
}

/* Sequence 1 holds [0, 32) with 0, and 20 tokens of its own behind. */
void md_scenario_wrong_sharing_and_moving_change_nothing(int unused)
{
    static const struct {
        const char *label;
        md_seq from, to; /* of a share; from -1: move into `to` */
        struct md_range r;
        int32_t from_start;
        enum md_status want;
    } rows[] = {
        { "share with itself", 0, 0, { 0, 10 }, 0, MD_INVALID },
        { "share of nothing", 0, 2, { 5, 5 }, 0, MD_INVALID },
        { "share upside down", 0, 2, { 10, 5 }, 0, MD_INVALID },
        { "share before 0", 0, 2, { -1, 5 }, 0, MD_INVALID },
        { "share of a parked range", 0, 2, { 32, 48 }, 0, MD_INVALID },
        { "share of a hole", 0, 2, { 60, 70 }, 0, MD_INVALID },
        { "share past the end", 0, 2, { 90, 97 }, 0, MD_INVALID },
        { "share of an empty sequence", 2, 0, { 0, 10 }, 0, MD_INVALID },
        { "share over what is there", 0, 1, { 48, 64 }, 0, MD_INVALID },
        { "share over what is shared", 0, 1, { 0, 10 }, 0, MD_INVALID },
        { "share of no sequence", 1000, 2, { 0, 10 }, 0, MD_INVALID },
        { "share with no sequence", 0, 1000, { 0, 10 }, 0, MD_INVALID },
        { "share with less than no sequence", 0, -1, { 0, 10 }, 0, MD_INVALID },
        { "move of other bytes", -1, 2, { 0, 16 }, 63, MD_INVALID },
        { "move of a part", -1, 2, { 0, 15 }, 64, MD_INVALID },
        { "move from before 0", -1, 2, { 0, 16 }, -1, MD_INVALID },
        { "move from behind all positions", -1, 2, { 0, 16 }, INT32_MAX - 3, MD_INVALID },
        { "move before 0", -1, 2, { -1, 15 }, 64, MD_INVALID },
        { "move of nothing", -1, 2, { 4, 4 }, 64, MD_INVALID },
        { "move over what is there", -1, 0, { 70, 86 }, 64, MD_INVALID },
        { "move over a parked range", -1, 0, { 32, 48 }, 64, MD_INVALID },
        { "move into no sequence", -1, 1000, { 0, 16 }, 64, MD_INVALID },
    };
    (void)unused;
    struct md_engine *e = md_conf_engine();
    struct md_buf kv;
    three_states(&kv);
    MD_CONF_OK(md_engine_share(e, 0, 1, (struct md_range){ 0, 32 }, err));
    MD_CONF_OK(md_engine_prefill(e, 1, 32, md_conf_subject->tokens + 200, 20, err));
    float *other = md_conf_probe_of(1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct md_err err = { 0 };
        struct md_conf_state before = md_conf_remember();
        const struct md_bytes bytes = { kv.data, kv.len };
        enum md_status s = rows[i].from < 0 ? md_engine_admit_moved(e, rows[i].to, rows[i].r,
                                                                    rows[i].from_start, bytes, &err)
                                            : md_engine_share(e, rows[i].from, rows[i].to, rows[i].r, &err);
        ck_assert_msg(s == rows[i].want, "%s: %s", rows[i].label, md_status_name(s));
        ck_assert_msg(err.status == s && err.text[0] != '\0', "%s: no text says why", rows[i].label);
        ck_assert_int_eq(md_engine_end(e, 1), 52);
        ck_assert_int_eq(md_engine_end(e, 2), 0);
        md_conf_check_unchanged(&before, rows[i].label);
        md_conf_check_probe_of(1, other, md_conf_subject->same_tolerance, rows[i].label);
    }
    struct md_err err = { 0 };
    kv.data[kv.len - 1] ^= 1;
    ck_assert_int_eq(md_engine_admit_moved(e, 2, (struct md_range){ 0, 16 }, 64,
                                           (struct md_bytes){ kv.data, kv.len }, &err),
                     MD_CORRUPT);
    ck_assert_int_eq(md_engine_end(e, 2), 0);
    free(other);
    md_buf_done(&kv);
}

void md_scenario_damaged_bytes_change_nothing(int unused)
{
    (void)unused;
    struct md_buf kv;
    three_states(&kv);
    const size_t len = kv.len;
    const struct {
        const char *label;
        size_t len;  /* given */
        size_t flip; /* byte that is changed; SIZE_MAX: none */
    } rows[] = {
        { "nothing", 0, SIZE_MAX },       { "one byte", 1, SIZE_MAX },
        { "half", len / 2, SIZE_MAX },    { "one byte short", len - 1, SIZE_MAX },
        { "first byte changed", len, 0 }, { "one byte more", len + 1, SIZE_MAX },
    };
    uint8_t *bytes = malloc(len + 1);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memcpy(bytes, kv.data, len);
        bytes[len] = 0;
        if (rows[i].flip != SIZE_MAX)
            bytes[rows[i].flip] ^= 0x40;
        struct md_err err = { 0 };
        struct md_conf_state before = md_conf_remember();
        enum md_status s = md_engine_admit_range(md_conf_engine(), 0, (struct md_range){ 64, 80 },
                                                 (struct md_bytes){ bytes, rows[i].len }, &err);
        ck_assert_msg(s == MD_CORRUPT || s == MD_INVALID, "%s: %s", rows[i].label, md_status_name(s));
        ck_assert_msg(err.text[0] != '\0', "%s: no text says why", rows[i].label);
        md_conf_check_unchanged(&before, rows[i].label);
    }
    md_conf_admit((struct md_range){ 64, 80 }, (struct md_bytes){ kv.data, kv.len });
    md_conf_check_reference("the good bytes");
    free(bytes);
    md_buf_done(&kv);
}

void md_scenario_full_export_buffer_changes_nothing(int unused)
{
    (void)unused;
    struct md_buf kv, small;
    three_states(&kv);
    md_buf_init(&small, NULL, (size_t)md_engine_export_bytes(md_conf_engine(), 16) - 1);
    struct md_conf_state before = md_conf_remember();
    struct md_err err = { 0 };
    ck_assert_int_eq(md_engine_evict_range(md_conf_engine(), 0, (struct md_range){ 0, 16 }, &small, &err),
                     MD_NO_MEMORY);
    ck_assert_int_eq((int)small.len, 0);
    md_conf_check_unchanged(&before, "no room for the bytes");
    md_conf_evict((struct md_range){ 0, 8 }, &small); /* half of it fits */
    md_conf_admit((struct md_range){ 0, 8 }, (struct md_bytes){ small.data, small.len });
    md_conf_check_reference("half of it");
    md_buf_done(&small);
    md_buf_done(&kv);
}

void md_scenario_full_cells(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const int32_t cells = md_engine_info(e)->cell_count, most = md_engine_info(e)->batch_tokens;
    const struct md_range r = { 10, 42 };
    struct md_buf kv;
    const float *logits;
    ck_assert_int_lt(cells + 40, md_conf_subject->token_count);
    md_buf_init(&kv, NULL, KV_LIMIT_BYTES);
    md_conf_begin();
    md_conf_prefill(0, cells - 1, most);
    float *want = md_conf_probe();
    ck_assert_int_eq(md_engine_prefill(e, 0, cells - 1, md_conf_subject->tokens, 2, NULL), MD_NO_MEMORY);
    ck_assert_int_eq(md_engine_cells_used(e), cells - 1);
    md_conf_prefill(cells - 1, cells, 1); /* the very last cell */
    ck_assert_int_eq(md_engine_decode(e, 0, cells, &md_conf_subject->tokens[0], 1, &logits, NULL),
                     MD_NO_MEMORY);
    ck_assert_int_eq(md_engine_end(e, 0), cells);

    md_conf_evict(r, &kv);
    md_conf_prefill(cells, cells + 32, 32); /* takes the cells of r */
    ck_assert_int_eq(md_engine_cells_used(e), cells);
    ck_assert_int_eq(md_engine_admit_range(e, 0, r, (struct md_bytes){ kv.data, kv.len }, NULL),
                     MD_NO_MEMORY);
    ck_assert_int_eq(md_engine_cells_used(e), cells);
    md_conf_truncate(cells - 1);
    md_conf_admit(r, (struct md_bytes){ kv.data, kv.len }); /* the next call works */
    float *got = md_conf_probe();
    const float d = md_conf_distance(want, got);
    ck_assert_msg(d <= md_conf_subject->moved_tolerance, "logits differ by %g", (double)d);
    free(want);
    free(got);
    md_buf_done(&kv);
}

/* ---- interrupt ---- */

struct alarm_after {
    int polls_left;
};

static bool raised(void *user)
{
    struct alarm_after *a = user;
    return a->polls_left-- <= 0;
}

/* An engine that polls by time may be done before it was raised. */
static bool came_too_late(const struct alarm_after *a)
{
    return md_conf_subject->polls_by_time && a->polls_left >= 0;
}

void md_scenario_interrupt(int unused)
{
    (void)unused;
    struct md_engine *e = md_conf_engine();
    const float *logits;
    /* more than a micro-batch, where a call may have more */
    const int32_t batch = md_engine_info(e)->batch_tokens, some = md_conf_is_real() ? 300 : 600;
    const int32_t count = batch < some ? batch : some;
    md_conf_begin();
    md_conf_prefill(0, 64, 64);
    struct md_conf_mark at_64 = md_conf_mark(0);
    struct alarm_after counting = { INT32_MAX };
    md_engine_set_interrupt(e, raised, &counting);
    MD_CONF_OK(md_engine_prefill(e, 0, 64, md_conf_subject->tokens + 64, count, err));
    md_engine_set_interrupt(e, NULL, NULL);
    md_conf_return(&at_64); /* as if it had not been: no notes of it */
    md_conf_mark_done(&at_64);
    /* at the start, soon, and when whole micro-batches are done that must go again */
    const int polls[] = { 0, 1, 7, (int)((int64_t)(INT32_MAX - counting.polls_left) * 9 / 10) };
    for (size_t i = 0; i < (md_conf_subject->starts_only ? 1 : sizeof polls / sizeof polls[0]); i++) {
        struct md_conf_state before = md_conf_remember();
        struct md_conf_mark mark = md_conf_mark(0);
        struct alarm_after alarm = { polls[i] };
        struct md_err err = { 0 };
        md_engine_set_interrupt(e, raised, &alarm);
        enum md_status s = md_engine_prefill(e, 0, 64, md_conf_subject->tokens + 64, count, &err);
        if (s == MD_OK && came_too_late(&alarm))
            md_conf_return(&mark);
        else
            ck_assert_msg(s == MD_CANCELLED, "raised at poll %d: %s", polls[i], md_status_name(s));
        md_conf_mark_done(&mark);
        alarm.polls_left = 0;
        s = md_engine_decode(e, 0, 64, &md_conf_subject->tokens[64], 1, &logits, &err);
        ck_assert_msg(s == MD_CANCELLED, "decode: %s", md_status_name(s));
        md_engine_set_interrupt(e, NULL, NULL);
        md_conf_check_unchanged(&before, "interrupted");
    }
    for (int i = 1; md_conf_subject->starts_only && i < 9; i += 7) { /* too late: the step is done */
        struct md_conf_state before = md_conf_remember();
        struct md_conf_mark mark = md_conf_mark(0);
        struct alarm_after alarm = { i };
        md_engine_set_interrupt(e, raised, &alarm);
        MD_CONF_OK(md_engine_prefill(e, 0, 64, md_conf_subject->tokens + 64, count, err));
        md_engine_set_interrupt(e, NULL, NULL);
        md_conf_return(&mark);
        md_conf_mark_done(&mark);
        md_conf_check_unchanged(&before, "done and taken back");
    }
    md_conf_prefill(64, 164, 100);
    md_conf_check_reference("the next call works");
    struct alarm_after never = { INT32_MAX };
    md_engine_set_interrupt(e, raised, &never);
    md_conf_prefill(164, 180, 16);
    ck_assert_msg(never.polls_left < INT32_MAX, "the interrupt was not polled");
    md_conf_check_reference("polled but not raised");
    md_engine_set_interrupt(e, NULL, NULL);
}

void md_scenario_interrupt_of_a_recompute(int unused)
{
    const struct md_range r = { 20, 60 };
    (void)unused;
    struct md_engine *e = md_conf_engine();
    md_conf_begin();
    md_conf_prefill(0, 100, 100);
    md_conf_evict(r, NULL);
    for (int polls = 0; polls < 20; polls += 6) {
        struct md_conf_state before = md_conf_remember();
        struct alarm_after alarm = { polls };
        md_engine_set_interrupt(e, raised, &alarm);
        enum md_status s = md_engine_recompute_range(e, 0, r, md_conf_subject->tokens + r.start,
                                                     (struct md_bytes){ 0 }, NULL);
        md_engine_set_interrupt(e, NULL, NULL);
        if (s == MD_OK && came_too_late(&alarm))
            MD_CONF_OK(md_engine_remove_range(e, 0, r, err));
        else
            ck_assert_msg(s == MD_CANCELLED, "raised at poll %d: %s", polls, md_status_name(s));
        md_conf_check_unchanged(&before, "interrupted");
    }
    md_conf_recompute(r);
    md_conf_check_reference("the next call works");
}

/* ---- random walk ---- */

enum { WALK_BLOCK = 8, WALK_BLOCKS = 64, WALK_TOKENS = 420, WALK_STEPS = 400 };
enum block_state { HOT, PARKED, SAVED, DROPPED };

struct walk {
    uint64_t random;
    int32_t computed; /* tokens given to the engine: what the reference pass has to bear */
    enum block_state state[WALK_BLOCKS];
    struct md_buf kv[WALK_BLOCKS];
};

static int32_t pick(struct walk *w, int32_t below)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((w->random >> 33) % (uint64_t)below);
}

static struct md_range block_range(int32_t b)
{
    return (struct md_range){ b * WALK_BLOCK, (b + 1) * WALK_BLOCK };
}

/* One step on block b, which lies wholly before the last, always hot, tokens. */
static void walk_block(struct walk *w, int32_t b)
{
    const struct md_range r = block_range(b);
    const bool hot_before = b == 0 || w->state[b - 1] == HOT;
    switch (w->state[b]) {
    case HOT:
        switch (pick(w, 3)) {
        case 0:
            md_conf_park(r);
            w->state[b] = PARKED;
            break;
        case 1:
            md_conf_evict(r, &w->kv[b]);
            w->state[b] = SAVED;
            break;
        default:
            md_conf_evict(r, NULL);
            w->state[b] = DROPPED;
            break;
        }
        return;
    case PARKED: md_conf_unpark(r); break;
    case SAVED: md_conf_admit(r, (struct md_bytes){ w->kv[b].data, w->kv[b].len }); break;
    case DROPPED:
        if (!hot_before || w->computed > WALK_TOKENS)
            return;
        md_conf_recompute(r);
        w->computed += WALK_BLOCK;
        break;
    }
    md_buf_done(&w->kv[b]);
    w->state[b] = HOT;
}

static void walk_append(struct walk *w, int32_t end)
{
    int32_t n = 1 + pick(w, 20);
    if (w->computed + n > WALK_TOKENS || end + n > WALK_BLOCKS * WALK_BLOCK)
        return;
    md_conf_prefill(end, end + n, 1 + pick(w, 20));
    w->computed += n;
}

static void walk_truncate(struct walk *w, int32_t blocks)
{
    if (blocks < 6)
        return;
    int32_t b = blocks - 1 - pick(w, 3);
    if (w->state[b - 1] != HOT) /* the end must be hot */
        return;
    for (int32_t i = b; i < WALK_BLOCKS; i++) {
        md_buf_done(&w->kv[i]);
        w->state[i] = HOT;
    }
    md_conf_truncate(b * WALK_BLOCK);
}

static void walk_step(struct walk *w)
{
    const int32_t end = md_engine_end(md_conf_engine(), 0), blocks = end / WALK_BLOCK - 1;
    const int32_t what = pick(w, 10);
    if (what < 2 || blocks < 3)
        walk_append(w, end);
    else if (what == 2)
        walk_truncate(w, blocks);
    else
        walk_block(w, pick(w, blocks));
}

void md_scenario_random_walk(int unused)
{
    (void)unused;
    const char *given = getenv("MODELD_TEST_SEED");
    struct walk w = { .random = given != NULL ? strtoull(given, NULL, 10) : 1 };
    char label[64];
    for (int32_t i = 0; i < WALK_BLOCKS; i++)
        md_buf_init(&w.kv[i], NULL, KV_LIMIT_BYTES);
    md_conf_begin();
    md_conf_prefill(0, 3 * WALK_BLOCK, 10);
    w.computed = 3 * WALK_BLOCK;
    const unsigned long long seed = w.random;
    for (int step = 0; step < WALK_STEPS; step++) {
        walk_step(&w);
        snprintf(label, sizeof label, "seed %llu, step %d", seed, step);
        if (step % 25 == 24)
            md_conf_check_reference(label);
    }
    ck_assert_msg(w.computed > 300, "the walk went nowhere: %d tokens", w.computed);
    for (int32_t i = 0; i < WALK_BLOCKS; i++)
        md_buf_done(&w.kv[i]);
}
