/* test_pool_ranges.c - KV moved by hand (EvictRange, AdmitRange, AdmitAtTail) and text that is known from elsewhere
 * (--reuse).  On the fake engine, whose KV is exact to the last bit. */
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <string.h>

enum { KEEP_ALL = 64 << 20, ANSWER = 8, TEXT = 2048, BLOCK = 16 /* of rig_config */ };

static md_token text[TEXT];

static void fill(void)
{
    rig_tokens(text, TEXT, 1);
}

static int32_t evict(struct rig *r, int32_t start, int32_t end)
{
    int32_t tokens = -1;
    ck_assert_msg(md_session_evict_range(r->session, (struct md_range){ start, end }, &tokens, &r->err) ==
                      MD_OK,
                  "%s", r->err.text);
    ck_assert(md_pool_check(r->pool));
    return tokens;
}

static int32_t admit(struct rig *r, int32_t start, int32_t end)
{
    int32_t tokens = -1;
    ck_assert_msg(md_session_admit_range(r->session, (struct md_range){ start, end }, &tokens, &r->err) ==
                      MD_OK,
                  "%s", r->err.text);
    ck_assert(md_pool_check(r->pool));
    return tokens;
}

static struct md_block_view block_view(const struct rig *r, int32_t position)
{
    static struct md_block_view map[TEXT / BLOCK];
    size_t count = md_session_map(r->session, map, TEXT / BLOCK), i = (size_t)(position / BLOCK);
    ck_assert_uint_lt(i, count);
    return map[i];
}

/* ---- out and in again ---- */

START_TEST(what_is_held_out_stays_out_and_is_not_attended)
{
    struct rig r;
    md_token prompt[600];
    int32_t count = 200;
    memcpy(prompt, text, sizeof prompt);
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, prompt, count, ANSWER, false), MD_OK);
    ck_assert_int_eq(evict(&r, 32, 96), 64);
    ck_assert_int_eq(evict(&r, 32, 96), 0); /* it is out */
    for (int turn = 0; turn < 3; turn++) {
        memcpy(prompt + count, r.last.tokens.ids, ANSWER * sizeof *prompt);
        count += ANSWER + 20;
        ck_assert_int_eq(rig_ask(&r, prompt, count, ANSWER, false), MD_OK);
        ck_assert_int_eq(r.last.prefilled, 21);
        ck_assert_int_eq(r.last.attended, count - 64);
        ck_assert_int_eq(r.last.restored, 0);
        struct md_session_status st = md_session_status(r.session);
        ck_assert_int_eq(st.held_out_tokens, 64);
        ck_assert_int_eq(st.cold_tokens, 64);
        ck_assert_int_eq(block_view(&r, 32).state, MD_STATE_COLD);
        ck_assert(block_view(&r, 95).held_out && !block_view(&r, 96).held_out);
        /* what was computed meanwhile knows that it did not see everything */
        ck_assert_int_eq(block_view(&r, count - 1).provenance, MD_PROVENANCE_BOUNDED);
    }
    ck_assert_int_eq(admit(&r, 0, 200), 192);
    count += 1;
    ck_assert_int_eq(rig_ask(&r, prompt, count, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.attended, count);
    rig_close(&r);
}
END_TEST

START_TEST(held_out_in_a_small_hot_set_makes_room_for_others)
{
    struct rig r;
    rig_open(&r, rig_config(1024, 128, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text, 400, 1, false), MD_OK);
    ck_assert_int_eq(block_view(&r, 0).state, MD_STATE_HOT); /* a sink */
    ck_assert_int_eq(evict(&r, 0, 16), 16);
    ck_assert_int_eq(rig_ask(&r, text, 420, 1, false), MD_OK);
    ck_assert_int_eq(block_view(&r, 0).state, MD_STATE_COLD);
    ck_assert_int_ge(r.last.attended, 96);
    /* one that the planner would not have asks for its place, at the cost of others that are not protected */
    ck_assert_int_eq(block_view(&r, 200).state, MD_STATE_COLD);
    ck_assert_int_eq(admit(&r, 192, 224), 32);
    ck_assert_int_eq(block_view(&r, 200).state, MD_STATE_HOT);
    ck_assert(block_view(&r, 200).retrieved);
    ck_assert_int_le(md_engine_cells_used(r.engine), 128);
    /* all at once cannot be: what is there is counted */
    int32_t hot = admit(&r, 0, 420);
    ck_assert_int_eq(hot, md_session_status(r.session).hot_tokens);
    ck_assert_int_le(hot, 128);
    ck_assert_int_eq(rig_ask(&r, text, 440, 1, false), MD_OK);
    ck_assert_int_eq(r.last.recomputed + r.last.dropped, 0);
    rig_close(&r);
}
END_TEST

/* AdmitRange is for the next answer, whichever calls lead to it, and for no other. */
START_TEST(what_was_admitted_is_attended_by_the_next_answer)
{
    for (int suffix = 0; suffix < 2; suffix++) {
        struct rig r;
        rig_open(&r, rig_config(1024, 128, KEEP_ALL), 0);
        ck_assert_int_eq(rig_ensure(&r, text, 420), MD_OK);
        ck_assert_int_eq(block_view(&r, 200).state, MD_STATE_COLD);
        ck_assert_int_eq(admit(&r, 192, 224), 32);
        if (suffix)
            ck_assert_int_eq(rig_suffix(&r, text + 420, 10), MD_OK);
        ck_assert_int_eq(rig_decode(&r, 2), MD_OK);
        ck_assert_int_eq(block_view(&r, 192).state, MD_STATE_HOT);
        ck_assert_int_eq(block_view(&r, 208).state, MD_STATE_HOT);
        ck_assert_int_eq(rig_suffix(&r, text + 500, 40), MD_OK);
        ck_assert_int_eq(block_view(&r, 200).state, MD_STATE_COLD);
        ck_assert(!block_view(&r, 200).retrieved);
        rig_close(&r);
    }
}
END_TEST

/* Text that is sent again behind others is offered with its suffix and attended by the answer to it. */
START_TEST(what_is_offered_with_a_suffix_is_attended_by_the_answer)
{
    struct rig r;
    rig_open(&r, rig_config(1024, 128, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 420), MD_OK);
    ck_assert_int_eq(block_view(&r, 200).state, MD_STATE_COLD);
    ck_assert_int_eq(rig_suffix(&r, text + 192, 20), MD_OK); /* [192, 208) is a block */
    ck_assert_int_eq(rig_decode(&r, 1), MD_OK);
    ck_assert_int_eq(block_view(&r, 192).state, MD_STATE_HOT);
    rig_close(&r);
}
END_TEST

START_TEST(ranges_by_whole_blocks_and_bad_ones)
{
    struct rig r;
    static const struct md_range bad[] = { { -1, 16 },      { 16, 16 },       { 32, 16 },
                                           { 0, 100 },      { 0, INT32_MAX }, { INT32_MAX, INT32_MAX },
                                           { INT32_MIN, 5 } };
    int32_t tokens = -1;
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 100), MD_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(md_session_evict_range(r.session, bad[i], &tokens, &r.err), MD_INVALID);
        ck_assert_msg(strstr(r.err.text, "99 tokens") != NULL, "%s", r.err.text);
        ck_assert_int_eq(md_session_admit_range(r.session, bad[i], &tokens, &r.err), MD_INVALID);
        ck_assert_int_eq(md_session_admit_at_tail(r.session, bad[i], NULL, &tokens, &r.err), MD_INVALID);
    }
    ck_assert_int_eq(tokens, -1);
    ck_assert_int_eq(evict(&r, 5, 15), 0);
    ck_assert_int_eq(evict(&r, 5, 31), 0);
    ck_assert_int_eq(evict(&r, 5, 47), 16); /* [16, 32) */
    ck_assert_int_eq(admit(&r, 17, 32), 0);
    ck_assert_int_eq(block_view(&r, 16).state, MD_STATE_COLD);
    ck_assert_int_eq(admit(&r, 16, 32), 16);
    rig_close(&r);
    /* an engine that cannot */
    rig_open(&r, rig_config(512, 512, KEEP_ALL), MD_CAP_REMOVE_MIDDLE | MD_CAP_POSITION_SHIFT);
    ck_assert_int_eq(rig_ensure(&r, text, 100), MD_OK);
    ck_assert_int_eq(md_session_evict_range(r.session, (struct md_range){ 0, 16 }, &tokens, &r.err),
                     MD_UNSUPPORTED);
    ck_assert_int_eq(md_session_admit_at_tail(r.session, (struct md_range){ 0, 16 }, NULL, &tokens, &r.err),
                     MD_UNSUPPORTED);
    ck_assert_int_eq(md_engine_cells_used(r.engine), 99);
    rig_close(&r);
}
END_TEST

START_TEST(what_follows_a_cut_inside_a_held_out_block_is_attended)
{
    struct rig r;
    md_token prompt[300];
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text, 200, 1, false), MD_OK);
    (void)evict(&r, 64, 96);
    memcpy(prompt, text, 70 * sizeof *prompt);
    rig_tokens(prompt + 70, 230, 7);
    ck_assert_int_eq(rig_ask(&r, prompt, 300, 1, false), MD_OK);
    ck_assert_int_eq(r.last.attended, 300); /* nobody said that this text should stay out */
    ck_assert_int_eq(md_session_status(r.session).held_out_tokens, 0);
    rig_close(&r);
}
END_TEST

START_TEST(holding_out_what_is_cold_can_be_seen)
{
    struct rig r;
    rig_open(&r, rig_config(1024, 128, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text, 400, 1, false), MD_OK);
    ck_assert_int_eq(block_view(&r, 200).state, MD_STATE_COLD);
    uint64_t changes = md_session_changes(r.session);
    ck_assert_int_eq(evict(&r, 192, 208), 0);
    ck_assert_uint_ne(md_session_changes(r.session), changes); /* so that it is published */
    changes = md_session_changes(r.session);
    (void)admit(&r, 192, 208);
    ck_assert_uint_ne(md_session_changes(r.session), changes);
    rig_close(&r);
}
END_TEST

/* ---- pinned and lost ---- */

/* A conversation without a cold store whose pinned blocks do not all fit: which do depends on how much is coming.  The
 * figures are those of random ones that failed. */
struct pinned_case {
    int32_t hot, first, count, window, answer;
    unsigned caps_off;
    int32_t pinned[9]; /* where they begin; ends with 0 */
};

static enum md_status ask_pinned(struct rig *r, const struct pinned_case *c)
{
    struct md_segment segments[9];
    struct md_context p = { .tokens = text, .count = c->first, .segments = segments };
    rig_open(r, rig_config(c->window, c->hot, 0), c->caps_off);
    for (; c->pinned[p.segment_count] != 0; p.segment_count++)
        segments[p.segment_count] =
            (struct md_segment){ .range = { c->pinned[p.segment_count], c->pinned[p.segment_count] + BLOCK },
                                 .cls = MD_CLASS_TASK_PINNED };
    ck_assert_msg(rig_ask_segments(r, &p, 1) == MD_OK, "%s", r->err.text);
    p.count = c->count;
    r->cancel_after = 20000; /* polls: some thousands are asked for */
    return rig_ask_segments(r, &p, c->answer);
}

START_TEST(pinned_blocks_that_come_and_go_are_computed_again_once)
{
    static const struct pinned_case cases[] = {
        { 126, 269, 397, 398, 1, MD_CAP_RECOMPUTE_RANGE, { 96, 144, 192, 240 } },
        { 168, 276, 354, 358, 1, 0, { 16, 32, 64, 80, 112, 160, 192, 224 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig r;
        ck_assert_msg(ask_pinned(&r, &cases[i]) == MD_OK, "%s", r.err.text);
        ck_assert_int_gt(r.last.recomputed, 0);
        ck_assert(md_pool_check(r.pool) && !r.broken);
        rig_close(&r);
    }
}
END_TEST

START_TEST(pinned_blocks_that_would_fit_again_while_it_answers_stay_lost)
{
    static const struct pinned_case c = { 97, 224, 270, 313, -1, 0, { 16, 64, 112, 128, 176, 192 } };
    struct rig r;
    ck_assert_msg(ask_pinned(&r, &c) == MD_OK, "%s", r.err.text);
    ck_assert_int_eq(r.last.completion, c.window - c.count);
    ck_assert(md_pool_check(r.pool) && !r.broken);
    rig_close(&r);
}
END_TEST

/* 160 tokens, all hot, and a cold store with room for so many blocks. */
static void open_with_store_of(struct rig *r, size_t blocks, unsigned caps_off)
{
    rig_open(r, rig_config(512, 512, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(r, text, 160), MD_OK);
    (void)evict(r, 0, 16);
    const size_t block_bytes = md_pool_status(r->pool).cold.used_bytes;
    rig_close(r);
    rig_open(r, rig_config(512, 512, blocks * block_bytes), caps_off);
    ck_assert_int_eq(rig_ensure(r, text, 160), MD_OK);
}

/* The first block is lost and, on this engine, cannot be computed in its place; the four behind it are cold. */
START_TEST(a_lost_block_does_not_keep_others_from_coming)
{
    struct rig r;
    open_with_store_of(&r, 4, MD_CAP_RECOMPUTE_RANGE);
    (void)evict(&r, 0, 16);
    (void)evict(&r, 32, 96);
    ck_assert_int_eq(admit(&r, 0, 159), 159 - 16);
    ck_assert_int_eq(block_view(&r, 0).state, MD_STATE_LOST);
    ck_assert_int_eq(block_view(&r, 32).state, MD_STATE_HOT);
    rig_close(&r);
}
END_TEST

/* ---- at the tail ---- */

/* An export turns the keys of all that was moved before it, so that one between each two moves made re-sent text
 * cost as much as computing it.  Blocks [16, 112) are hot: six exports come before the first move. */
START_TEST(bytes_are_fetched_before_the_first_block_moves)
{
    struct rig r;
    int32_t tokens = -1;
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 160), MD_OK);
    r.fault = (struct md_fault){ .op = MD_OP_ADMIT_MOVED, .nth = 1, .status = MD_INTERNAL };
    ck_assert_int_eq(md_session_admit_at_tail(r.session, (struct md_range){ 16, 112 }, NULL, &tokens, &r.err),
                     MD_INTERNAL);
    ck_assert_int_eq(r.fault.calls[MD_OP_EXPORT], 6);
    r.fault = (struct md_fault){ 0 };
    ck_assert_int_eq(md_session_admit_at_tail(r.session, (struct md_range){ 16, 112 }, NULL, &tokens, &r.err),
                     MD_OK);
    ck_assert_int_eq(tokens, 96);
    ck_assert_int_eq(r.fault.calls[MD_OP_ADMIT_MOVED], 6);
    rig_close(&r);
}
END_TEST

/* The store has room for three of the six blocks: each copy pushes out the one before it, and they come all the same. */
START_TEST(blocks_come_to_the_tail_through_a_small_store)
{
    struct rig r;
    int32_t tokens = -1;
    open_with_store_of(&r, 3, 0);
    ck_assert_msg(md_session_admit_at_tail(r.session, (struct md_range){ 16, 112 }, NULL, &tokens, &r.err) ==
                      MD_OK,
                  "%s", r.err.text);
    ck_assert_int_eq(tokens, 96);
    const uint64_t changes = md_session_changes(r.session); /* whoever looks sees that it was used */
    (void)admit(&r, 0, 16);
    ck_assert(md_session_changes(r.session) > changes);
    rig_close(&r);
}
END_TEST

START_TEST(re_sent_text_is_fetched_before_the_first_block_moves)
{
    struct rig r;
    md_token again[300];
    struct md_pool_config c = rig_config(512, 512, KEEP_ALL);
    c.reuse = MD_REUSE_APPROXIMATE;
    rig_open(&r, c, 0);
    memcpy(again, text, 160 * sizeof *again); /* its six blocks [16, 112) once more behind 164 */
    rig_tokens(again + 160, 4, 77);
    memcpy(again + 164, text + 16, 96 * sizeof *again);
    again[260] = 1;
    ck_assert_int_eq(rig_ask(&r, again, 160, 0, false), MD_OK);
    r.fault = (struct md_fault){ .op = MD_OP_ADMIT_MOVED, .nth = 1, .status = MD_INTERNAL };
    ck_assert_int_eq(rig_ask(&r, again, 261, 0, false), MD_INTERNAL);
    ck_assert_int_eq(r.fault.calls[MD_OP_EXPORT], 6);
    rig_close(&r);
}
END_TEST

/* Sinks, recent window and a block are what a hot set must hold; a piece of a block in front of the recent window leaves
 * less than a block then.  Right is what the configuration was accepted for: every prompt is served. */
START_TEST(re_sent_text_that_has_no_room_is_computed)
{
    for (int32_t more = 1; more <= 16; more++) {
        struct rig r;
        md_token again[300];
        struct md_pool_config c = rig_config(512, 48, KEEP_ALL);
        c.reuse = MD_REUSE_APPROXIMATE;
        c.sink_tokens = c.recent_tokens = 16;
        rig_open(&r, c, 0);
        memcpy(again, text, 160 * sizeof *again);
        rig_tokens(again + 160, more, 77);
        memcpy(again + 160 + more, text + 16, 96 * sizeof *again);
        again[256 + more] = 1;
        ck_assert_int_eq(rig_ask(&r, again, 160, 0, false), MD_OK);
        ck_assert_msg(rig_ask(&r, again, 257 + more, 1, false) == MD_OK, "%d more: %s", more, r.err.text);
        ck_assert_int_eq(r.last.moved, more == 16 ? 96 : 0); /* side by side there is room for each in turn */
        rig_close(&r);
    }
}
END_TEST

START_TEST(lost_text_cannot_be_admitted_at_the_tail)
{
    struct rig r;
    int32_t tokens = -1, count;
    rig_open(&r, rig_config(256, 256, 0), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 100), MD_OK);
    (void)evict(&r, 16, 64);
    ck_assert_int_eq(md_session_admit_at_tail(r.session, (struct md_range){ 16, 64 }, NULL, &tokens, &r.err),
                     MD_NOT_FOUND);
    ck_assert_msg(strstr(r.err.text, "block at 16") != NULL, "%s", r.err.text);
    (void)md_session_context(r.session, &count);
    ck_assert_int_eq(count, 100);
    ck_assert_int_eq(rig_decode(&r, ANSWER), MD_OK);
    rig_close(&r);
}
END_TEST

static bool always(void *user)
{
    (void)user;
    return true;
}

/* The tape has fallen behind (its block is lost): what is computed first can be cancelled. */
START_TEST(admitting_at_the_tail_can_be_cancelled)
{
    struct rig r;
    int32_t tokens = -1;
    const struct md_sink sink = { .cancelled = always };
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 160), MD_OK);
    ck_assert_int_eq(md_session_admit_at_tail(r.session, (struct md_range){ 16, 112 }, &sink, &tokens,
                                              &r.err),
                     MD_CANCELLED);
    ck_assert(md_pool_check(r.pool));
    ck_assert_int_eq(rig_decode(&r, ANSWER), MD_OK);
    rig_close(&r);
}
END_TEST

START_TEST(what_follows_a_prefix_is_not_admitted_at_the_tail)
{
    struct rig r;
    int32_t tokens = -1;
    rig_open(&r, rig_config(256, 256, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 200), MD_OK);
    ck_assert_int_eq(rig_ensure(&r, text, 50), MD_OK); /* the tape is still of 199 tokens */
    ck_assert_int_eq(md_session_admit_at_tail(r.session, (struct md_range){ 32, 64 }, NULL, &tokens, &r.err),
                     MD_INVALID);
    ck_assert_msg(strstr(r.err.text, "context of 50") != NULL, "%s", r.err.text);
    ck_assert_int_eq(rig_decode(&r, ANSWER), MD_OK);
    rig_close(&r);
}
END_TEST

/* ---- known from elsewhere ---- */

START_TEST(full_reuse_takes_only_what_saw_everything)
{
    static const enum md_reuse modes[] = { MD_REUSE_PLACE, MD_REUSE_FULL };
    for (size_t i = 0; i < 2; i++) {
        struct rig r;
        struct md_pool_config c = rig_config(1024, 128, KEEP_ALL);
        c.reuse = modes[i];
        rig_open(&r, c, 0);
        ck_assert_int_eq(rig_ask(&r, text, 600, 1, false), MD_OK);
        int32_t full = r.last.tokens_of[MD_PROVENANCE_FULL];
        ck_assert_int_gt(full, 40);
        ck_assert_int_lt(full, 128);
        r.session = rig_new(&r); /* the same text in another conversation */
        ck_assert_int_eq(rig_ask(&r, text, 600, 1, false), MD_OK);
        if (modes[i] == MD_REUSE_FULL)
            ck_assert_int_eq(r.last.cached, full);
        else
            ck_assert_int_eq(r.last.prefilled, 1);
        rig_close(&r);
    }
}
END_TEST

static struct md_context with_clock(md_token *prompt, int32_t clock_at, struct md_segment *segments,
                                    uint32_t time)
{
    memcpy(prompt, text, 220 * sizeof *prompt);
    rig_tokens(prompt + clock_at + 4, 6, time); /* "now: 09:14:03": 4 tokens, and 6 that change */
    segments[0] = (struct md_segment){ .range = { 0, 20 }, .cls = MD_CLASS_VOLATILE, .name = "now" };
    segments[1] = (struct md_segment){ .range = { 20, 120 }, .stable = true, .name = "system" };
    segments[2] = (struct md_segment){ .range = { 120, 200 }, .cls = MD_CLASS_VOLATILE, .name = "history" };
    segments[3] = (struct md_segment){ .range = { 200, 220 }, .cls = MD_CLASS_VOLATILE, .name = "end" };
    return (struct md_context){ prompt, 220, segments, 4 };
}

START_TEST(b044_a_clock_in_front_breaks_reuse_and_is_named)
{
    for (int approximate = 0; approximate < 2; approximate++) {
        struct rig r;
        md_token prompt[220], want[ANSWER];
        struct md_segment segments[4];
        struct md_pool_config c = rig_config(512, 512, KEEP_ALL);
        c.reuse = approximate ? MD_REUSE_APPROXIMATE : MD_REUSE_PLACE;
        rig_open(&r, c, 0);
        for (uint32_t time = 1; time <= 3; time++) {
            struct md_context p = with_clock(prompt, 0, segments, time);
            ck_assert_int_eq(rig_ask_segments(&r, &p, ANSWER), MD_OK);
            ck_assert_int_eq(r.last.breaker, time == 1 ? -1 : 0);
            ck_assert_str_eq(r.last.breaker_name, time == 1 ? "" : "now");
            if (time == 1)
                continue;
            if (!approximate) { /* everything behind it is computed again, and right */
                ck_assert_int_eq(r.last.cached, 4);
                ck_assert_int_eq(r.last.prefilled, 216);
                rig_fresh_answer(prompt, 220, ANSWER, want);
                ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
            } else { /* the changed block, and what is in no whole block at the end */
                ck_assert_int_eq(r.last.moved, 192); /* [16, 208) */
                ck_assert_int_eq(r.last.prefilled, 12 + 12);
            }
        }
        for (uint32_t time = 4; time <= 6; time++) { /* the clock last: all before it stays */
            struct md_context p = with_clock(prompt, 200, segments, time);
            ck_assert_int_eq(rig_ask_segments(&r, &p, ANSWER), MD_OK);
            if (time > 4) {
                ck_assert_int_eq(r.last.prefilled, 16);
                ck_assert_int_eq(r.last.breaker, 3);
                ck_assert_str_eq(r.last.breaker_name, "end");
            }
        }
        rig_close(&r);
    }
}
END_TEST

/* Without an id the prompt is taken for a new conversation, for its first own text differs.  The report names the clock all
 * the same: it left the conversation that it is most like there. */
START_TEST(b044_the_breaker_of_a_new_conversation_is_named_too)
{
    struct rig r;
    md_token prompt[220];
    struct md_segment segments[4];
    struct md_session *first, *second;
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    struct md_context p = with_clock(prompt, 0, segments, 1);
    struct md_request q = { .prompt = p, .decode = { .max_tokens = 1, .sample = md_sample_defaults() } };
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &q, &first, &r.err), MD_OK);
    r.session = first;
    ck_assert_int_eq(rig_ask_segments(&r, &p, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.breaker, -1); /* it is like nothing */
    q.prompt = p = with_clock(prompt, 0, segments, 2);
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &q, &second, &r.err), MD_OK);
    ck_assert(second != first);
    r.session = second;
    ck_assert_int_eq(rig_ask_segments(&r, &p, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.breaker, 0);
    ck_assert_str_eq(r.last.breaker_name, "now");
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool ranges");
    TCase *c = tcase_create("ranges");
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_test(c, what_is_held_out_stays_out_and_is_not_attended);
    tcase_add_test(c, held_out_in_a_small_hot_set_makes_room_for_others);
    tcase_add_test(c, what_was_admitted_is_attended_by_the_next_answer);
    tcase_add_test(c, what_is_offered_with_a_suffix_is_attended_by_the_answer);
    tcase_add_test(c, ranges_by_whole_blocks_and_bad_ones);
    tcase_add_test(c, pinned_blocks_that_come_and_go_are_computed_again_once);
    tcase_add_test(c, pinned_blocks_that_would_fit_again_while_it_answers_stay_lost);
    tcase_add_test(c, what_follows_a_cut_inside_a_held_out_block_is_attended);
    tcase_add_test(c, holding_out_what_is_cold_can_be_seen);
    tcase_add_test(c, a_lost_block_does_not_keep_others_from_coming);
    tcase_add_test(c, bytes_are_fetched_before_the_first_block_moves);
    tcase_add_test(c, blocks_come_to_the_tail_through_a_small_store);
    tcase_add_test(c, re_sent_text_is_fetched_before_the_first_block_moves);
    tcase_add_test(c, re_sent_text_that_has_no_room_is_computed);
    tcase_add_test(c, lost_text_cannot_be_admitted_at_the_tail);
    tcase_add_test(c, admitting_at_the_tail_can_be_cancelled);
    tcase_add_test(c, what_follows_a_prefix_is_not_admitted_at_the_tail);
    tcase_add_test(c, full_reuse_takes_only_what_saw_everything);
    tcase_add_test(c, b044_a_clock_in_front_breaks_reuse_and_is_named);
    tcase_add_test(c, b044_the_breaker_of_a_new_conversation_is_named_too);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
