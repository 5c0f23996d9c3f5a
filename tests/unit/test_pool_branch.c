/* test_pool_branch.c - conversations that begin with a part of another, and segments: classes, edits, turns.  On the
 * fake engine, whose KV is exact to the last bit. */
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <string.h>

enum {
    KEEP_ALL = 64 << 20,
    ANSWER = 8,
    TEXT = 1024,
    BLOCK = 16 /* of rig_config */,
    PARENT = 200,
    MORE = 20
};

static md_token text[TEXT];

static void fill(void)
{
    rig_tokens(text, TEXT, 1);
}

static struct md_block_view block_view(const struct md_session *s, int32_t position)
{
    static struct md_block_view map[TEXT / BLOCK];
    size_t count = md_session_map(s, map, TEXT / BLOCK), i = (size_t)(position / BLOCK);
    ck_assert_uint_lt(i, count);
    return map[i];
}

/* ---- branches ---- */

static void open_parent(struct rig *r, struct rig_talk *t)
{
    rig_open(r, rig_config(512, 512, KEEP_ALL), 0);
    *t = (struct rig_talk){ .s = r->session };
    ck_assert(rig_say(r, t, PARENT, 1, ANSWER));
}

START_TEST(a_closed_parent_leaves_what_its_branch_has_cold)
{
    struct rig r;
    static struct rig_talk parent, branch;
    int32_t tokens;
    open_parent(&r, &parent);
    ck_assert_int_eq(md_session_branch(parent.s, 100, &branch.s, &r.err), MD_OK);
    branch.count = 100;
    memcpy(branch.tokens, parent.tokens, 100 * sizeof *text);
    ck_assert(rig_say(&r, &branch, MORE, 5, ANSWER));
    ck_assert_int_eq(md_session_evict_range(branch.s, (struct md_range){ 0, 96 }, &tokens, &r.err), MD_OK);
    ck_assert_int_eq((int)md_pool_status(r.pool).cold.entry_count, 0); /* the parent has them */
    md_session_close(parent.s);
    ck_assert_int_eq((int)md_pool_status(r.pool).cold.token_count, 96);
    ck_assert_int_eq(md_session_admit_range(branch.s, (struct md_range){ 0, 96 }, &tokens, &r.err), MD_OK);
    ck_assert_int_eq(tokens, 96);
    ck_assert(rig_say(&r, &branch, MORE, 6, ANSWER));
    ck_assert_int_eq((int)md_session_status(branch.s).dropped_blocks, 0);
    rig_close(&r);
}
END_TEST

/* What a branch holds can be seen before it is used; nothing is copied, and the engine is not asked. */
START_TEST(a_branch_shows_what_it_shares)
{
    struct rig r;
    struct md_session *b;
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text, 200, ANSWER, false), MD_OK);
    const int32_t cells = md_engine_cells_used(r.engine);
    ck_assert_int_eq(md_session_branch(r.session, 150, &b, &r.err), MD_OK);
    const struct md_session_status st = md_session_status(b);
    ck_assert_int_eq(st.context_tokens, 150);
    ck_assert_int_eq(st.cold_tokens, 144); /* nine blocks of 16 */
    ck_assert_int_eq(md_engine_cells_used(r.engine), cells);
    ck_assert(md_pool_check(r.pool));
    rig_close(&r);
}
END_TEST

START_TEST(branches_that_cannot_be)
{
    struct rig r;
    static struct rig_talk parent;
    struct md_session *b = NULL;
    open_parent(&r, &parent);
    ck_assert_int_eq(md_session_branch(parent.s, PARENT + ANSWER + 1, &b, &r.err), MD_INVALID);
    ck_assert_msg(strstr(r.err.text, "208 tokens") != NULL && strstr(r.err.text, "209") != NULL, "%s",
                  r.err.text);
    ck_assert_int_eq(md_session_branch(parent.s, -2, &b, &r.err), MD_INVALID);
    ck_assert_ptr_null(b);
    ck_assert_int_eq(md_pool_status(r.pool).sessions, 1);
    rig_close(&r);
}
END_TEST

/* ---- segments ---- */

START_TEST(classes_reach_the_blocks_and_order_them)
{
    struct rig r;
    const struct md_segment segments[] = {
        { .range = { 100, 165 }, .cls = MD_CLASS_VOLATILE },
        { .range = { 165, 190 }, .cls = MD_CLASS_TASK_PINNED },
        { .range = { 190, 250 }, .cls = MD_CLASS_REPO_MAP },
        { .range = { 250, 600 }, .cls = MD_CLASS_VOLATILE },
    };
    const struct md_context prompt = { text, 600, segments, 4 };
    rig_open(&r, rig_config(1024, 192, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    for (int32_t at = 0; at < 600; at += BLOCK) {
        /* a block that two segments share is as dear as the dearer one; what none covers is volatile */
        int want = at >= 160 && at < 192   ? MD_CLASS_TASK_PINNED
                   : at >= 192 && at < 256 ? MD_CLASS_REPO_MAP
                                           : MD_CLASS_VOLATILE;
        ck_assert_int_eq(block_view(r.session, at).cls, want);
        if (want != MD_CLASS_VOLATILE)
            ck_assert_int_eq(block_view(r.session, at).state, MD_STATE_HOT);
        else if (at >= 16 && at < 500)
            ck_assert_int_eq(block_view(r.session, at).state, MD_STATE_COLD);
    }
    struct md_session_status st = md_session_status(r.session);
    ck_assert_int_eq(st.tokens_in_class[MD_CLASS_TASK_PINNED], 32);
    ck_assert_int_eq(st.tokens_in_class[MD_CLASS_REPO_MAP], 64);
    rig_close(&r);
    /* 16 sink, 32 recent, 32 pinned and a block for the answer leave 16 to 32 of the map, none of the rest */
    rig_open(&r, rig_config(1024, 112, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    ck_assert_int_eq(block_view(r.session, 160).state, MD_STATE_HOT);
    ck_assert_int_eq(block_view(r.session, 176).state, MD_STATE_HOT);
    ck_assert_int_eq(block_view(r.session, 192).state, MD_STATE_COLD); /* of equals the first leaves */
    rig_close(&r);
}
END_TEST

/* 100 stable tokens, 100 that say when they end, 60 of the user. */
static struct md_context three_segments(const md_token *tokens, struct md_segment *segments,
                                        enum md_invalidation when)
{
    segments[0] = (struct md_segment){ .range = { 0, 100 }, .stable = true, .cls = MD_CLASS_VOLATILE };
    segments[1] =
        (struct md_segment){ .range = { 100, 200 }, .invalidation = when, .cls = MD_CLASS_VOLATILE };
    segments[2] = (struct md_segment){ .range = { 200, 260 }, .cls = MD_CLASS_VOLATILE };
    return (struct md_context){ tokens, 260, segments, 3 };
}

static void edit_and_undo(int32_t hot, bool write_through, enum md_invalidation when)
{
    struct rig r;
    struct md_segment segments[3];
    md_token edited[260], want[ANSWER];
    const bool drops = when == MD_INVALIDATION_ON_EDIT;
    struct md_pool_config c = rig_config(512, hot, KEEP_ALL);
    c.write_through = write_through;
    memcpy(edited, text, sizeof edited);
    edited[150] ^= 1;
    const struct md_context first = three_segments(text, segments, when);
    const struct md_context second = { edited, 260, segments, 3 };
    rig_open(&r, c, 0);
    ck_assert_int_eq(rig_ask_segments(&r, &first, ANSWER), MD_OK);
    if (hot == 512)
        ck_assert_int_eq(md_session_evict_range(r.session, (struct md_range){ 96, 112 }, &(int32_t){ 0 },
                                                &r.err),
                         MD_OK); /* the block in which the segment begins is cold */
    ck_assert_int_eq(rig_ask_segments(&r, &second, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.breaker, 1);
    ck_assert_int_eq(r.last.cached, drops ? 100 : 150);
    ck_assert_int_eq(rig_ask_segments(&r, &first, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.cached, drops ? 100 : 259); /* dropped: it does not come back */
    if (rig_is_full(&r, r.session)) {
        rig_fresh_answer(text, 260, ANSWER, want);
        ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    }
    rig_close(&r);
}

START_TEST(what_ends_on_edit_does_not_come_back_when_it_is_undone)
{
    for (int write_through = 0; write_through < 2; write_through++)
        for (int32_t hot = 128; hot <= 512; hot += 384) {
            edit_and_undo(hot, write_through, MD_INVALIDATION_NONE);
            edit_and_undo(hot, write_through, MD_INVALIDATION_ON_EDIT);
        }
}
END_TEST

/* An edit that cuts the end of a message or leaves it out makes no token inside it different. */
START_TEST(what_ends_on_edit_ends_when_it_is_shortened_or_left_out)
{
    for (int left_out = 0; left_out < 2; left_out++) {
        struct rig r;
        struct md_segment segments[3], shorter[3];
        md_token edited[260];
        const int32_t gone = left_out ? 100 : 30;
        const struct md_context first = three_segments(text, segments, MD_INVALIDATION_ON_EDIT);
        memcpy(edited, text, sizeof edited);
        memcpy(edited + 200 - gone, text + 200, 60 * sizeof *edited);
        three_segments(edited, shorter, MD_INVALIDATION_ON_EDIT);
        shorter[1].range.end -= gone;
        shorter[2].range = (struct md_range){ 200 - gone, 260 - gone };
        struct md_context second = { edited, 260 - gone, shorter, 3 };
        if (left_out) {
            shorter[1] = shorter[2];
            second.segment_count = 2;
        }
        rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
        ck_assert_int_eq(rig_ask_segments(&r, &first, ANSWER), MD_OK);
        ck_assert_int_eq(rig_ask_segments(&r, &second, ANSWER), MD_OK);
        ck_assert_int_eq(r.last.cached, 100);
        ck_assert_int_eq(rig_ask_segments(&r, &first, ANSWER), MD_OK);
        ck_assert_int_eq(r.last.cached, 100); /* what was dropped does not come back */
        rig_close(&r);
    }
}
END_TEST

/* The text is out already when what is for one turn ends: what goes wrong there is not the answer's, and is made good. */
START_TEST(an_answer_stands_though_its_turn_cannot_be_ended)
{
    struct rig r;
    struct md_segment segments[3];
    const struct md_context prompt = three_segments(text, segments, MD_INVALIDATION_ON_TURN);
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    r.fault = (struct md_fault){ .op = MD_OP_TRUNCATE, .nth = 1, .status = MD_INTERNAL };
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.finish, MD_FINISH_LENGTH);
    ck_assert(r.fault.calls[MD_OP_TRUNCATE] > 0);
    ck_assert_int_gt(md_session_status(r.session).tape_tokens, 100);
    r.fault = (struct md_fault){ 0 };
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.cached, 100);
    ck_assert_int_eq(md_session_status(r.session).tape_tokens, 100);
    rig_close(&r);
}
END_TEST

START_TEST(what_ends_on_edit_here_is_still_there_for_others)
{
    struct rig r;
    struct md_segment segments[3];
    md_token edited[260], want[ANSWER];
    memcpy(edited, text, sizeof edited);
    edited[105] ^= 1; /* in the block in which the segment begins */
    const struct md_context first = three_segments(text, segments, MD_INVALIDATION_ON_EDIT);
    const struct md_context second = { edited, 260, segments, 3 };
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    struct md_session *a = r.session, *b = rig_new(&r);
    ck_assert_int_eq(rig_ask_segments(&r, &first, ANSWER), MD_OK);
    r.session = b;
    ck_assert_int_eq(rig_ask_segments(&r, &first, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 1);
    int32_t tokens;
    ck_assert_int_eq(md_session_evict_range(b, (struct md_range){ 80, 240 }, &tokens, &r.err), MD_OK);
    r.session = a;
    ck_assert_int_eq(rig_ask_segments(&r, &second, ANSWER), MD_OK);
    r.session = b;
    ck_assert_int_eq(md_session_admit_range(b, (struct md_range){ 80, 240 }, &tokens, &r.err), MD_OK);
    ck_assert_int_eq(tokens, 160);
    ck_assert_int_eq(rig_ask_segments(&r, &first, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 1);
    ck_assert_int_eq((int)md_session_status(b).dropped_blocks, 0);
    rig_fresh_answer(text, 260, ANSWER, want);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    rig_close(&r);
}
END_TEST

START_TEST(what_ends_with_the_turn_is_gone_after_it)
{
    for (int write_through = 0; write_through < 2; write_through++) {
        struct rig r;
        struct md_segment segments[3];
        md_token want[ANSWER];
        struct md_pool_config c = rig_config(512, 512, KEEP_ALL);
        c.write_through = write_through;
        const struct md_context prompt = three_segments(text, segments, MD_INVALIDATION_ON_TURN);
        rig_fresh_answer(text, 260, ANSWER, want);
        rig_open(&r, c, 0);
        for (int turn = 0; turn < 2; turn++) {
            ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER),
                             MD_OK); /* its counters add up all the same */
            ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
            ck_assert_int_eq(r.last.prefilled, turn == 0 ? 260 : 160);
            ck_assert_int_eq(r.last.attended, 260);
            ck_assert_int_eq(r.last.lost, 0);
            ck_assert_int_eq(md_session_status(r.session).tape_tokens, 100);
            ck_assert_int_eq(md_engine_cells_used(r.engine), 100);
        }
        rig_close(&r);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool branch");
    TCase *c = tcase_create("branch");
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_test(c, a_closed_parent_leaves_what_its_branch_has_cold);
    tcase_add_test(c, a_branch_shows_what_it_shares);
    tcase_add_test(c, branches_that_cannot_be);
    tcase_add_test(c, classes_reach_the_blocks_and_order_them);
    tcase_add_test(c, what_ends_on_edit_does_not_come_back_when_it_is_undone);
    tcase_add_test(c, what_ends_on_edit_ends_when_it_is_shortened_or_left_out);
    tcase_add_test(c, an_answer_stands_though_its_turn_cannot_be_ended);
    tcase_add_test(c, what_ends_on_edit_here_is_still_there_for_others);
    tcase_add_test(c, what_ends_with_the_turn_is_gone_after_it);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
