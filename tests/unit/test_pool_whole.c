/* test_pool_whole.c - conversations with a model of recurrent layers alone, or of windows alone: each is in the engine whole
 * or not at all, and comes back from its checkpoints (session/whole.h).  On the fake engine, exact to the last bit.
 *
 * What is right: answers of rig_fresh_answer; costs that follow from where checkpoints are: 64 apart (rig_config), and
 * where a turn ends, which is one token behind its prompt for each token of its answer but the last. */
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <string.h>

enum { KEEP_ALL = 64 << 20, ANSWER = 6, TEXT = 1024, EVERY = 64, CELLS = 1024 };

static const enum rig_model models[] = { RIG_RECURRENT, RIG_WINDOWS_ALONE };
enum { MODELS = sizeof models / sizeof models[0] };

static md_token text[TEXT];
static struct rig r;
static struct rig_talk talks[3];

static void setup(void)
{
    rig_tokens(text, TEXT, 1);
    memset(talks, 0, sizeof talks);
}

static void open_rig(int model, size_t cold_bytes, int32_t seq_count)
{
    rig_use_model(models[model]);
    rig_open_seqs(&r, rig_config(CELLS, CELLS, cold_bytes), 0, seq_count);
}

/* The whole tape is hot, or nothing of it. */
static bool is_hot(const struct md_session *s)
{
    const struct md_session_status st = md_session_status(s);
    ck_assert(st.hot_tokens == 0 || st.hot_tokens == st.tape_tokens);
    return st.hot_tokens > 0;
}

static size_t stored(void)
{
    return md_pool_status(r.pool).cold.entry_count;
}

START_TEST(what_is_claimed)
{
    open_rig(_i, KEEP_ALL, 2);
    const unsigned caps = md_pool_status(r.pool).caps;
    ck_assert_uint_eq(caps, MD_CAP_REMOVE_TAIL | MD_CAP_CHECKPOINT);
    ck_assert(md_engine_info(r.engine)->tail_only);
    rig_close(&r);
}
END_TEST

/* Three on two sequences, and on cells for two: the one that was idle longest leaves, and comes back for the price of what
 * is new. */
START_TEST(conversations_make_way_as_a_whole)
{
    for (int32_t seqs = 1; seqs <= 3; seqs++) {
        open_rig(_i, KEEP_ALL, seqs);
        for (int k = 0; k < 3; k++)
            talks[k] = (struct rig_talk){ .s = k == 0 ? r.session : rig_new(&r) };
        for (int turn = 0; turn < 9; turn++) {
            struct rig_talk *t = &talks[turn % 3];
            const int32_t new_tokens = turn < 3 ? 340 : 21;
            const bool was_hot = is_hot(t->s);
            ck_assert(rig_say(&r, t, turn < 3 ? 340 : 20, 10 + (uint32_t)turn, ANSWER));
            ck_assert_int_eq(r.last.prefilled, new_tokens);
            ck_assert_int_eq(r.last.restored, was_hot ? 0 : r.last.cached);
            ck_assert_int_eq(r.last.lost + r.last.dropped + r.last.recomputed, 0);
            ck_assert(is_hot(t->s));
            for (int k = 0; k < 3 && turn >= 2; k++) /* where they are not hot all of them is cold */
                ck_assert(is_hot(talks[k].s) || md_session_status(talks[k].s).cold_tokens ==
                                                    md_session_status(talks[k].s).tape_tokens);
        }
        ck_assert_int_le(md_engine_cells_used(r.engine), CELLS);
        ck_assert_int_gt(md_session_status(talks[0].s).restored_blocks, 0);
        rig_close(&r);
    }
}
END_TEST

/* The end of a turn is 300 + ANSWER - 1; checkpoints before it at multiples of 64, and where the
 * answer begins: 299. */
START_TEST(an_edit_goes_back_to_the_last_checkpoint)
{
    static const struct {
        int32_t edit, from;
    } rows[] = { { 299, 299 }, { 298, 256 }, { 257, 256 }, { 256, 256 },
                 { 255, 192 }, { 64, 64 },   { 63, 0 },    { 0, 0 } };
    md_token want[ANSWER], prompt[300];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_rig(_i, KEEP_ALL, 1);
        memcpy(prompt, text, sizeof prompt);
        ck_assert_int_eq(rig_ask(&r, prompt, 300, ANSWER, false), MD_OK);
        prompt[rows[i].edit] ^= 1;
        ck_assert_int_eq(rig_ask(&r, prompt, 300, ANSWER, false), MD_OK);
        if (models[_i] == RIG_RECURRENT || rows[i].edit < 200) /* windows are still there near the end */
            ck_assert_int_eq(r.last.cached, rows[i].from);
        rig_fresh_answer(prompt, 300, ANSWER, want);
        ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
        prompt[rows[i].edit] ^=
            1; /* and back: the first one's end was kept, and is what an answer without its end says */
        ck_assert_int_eq(rig_ask(&r, prompt, 300, ANSWER, false), MD_OK);
        ck_assert_int_ge(r.last.cached, 256);
        ck_assert_int_eq(r.last.dropped, 0);
        rig_close(&r);
    }
}
END_TEST

/* Text that an "on_edit" segment takes with it is not kept: neither hot nor in the store. */
START_TEST(what_shall_not_be_kept_is_not)
{
    struct md_segment segments[] = {
        { .range = { 0, 100 }, .kind = MD_SEGMENT_SYSTEM, .cls = MD_CLASS_VOLATILE, .stable = true },
        { .range = { 100, 300 },
          .kind = MD_SEGMENT_USER,
          .cls = MD_CLASS_VOLATILE,
          .invalidation = MD_INVALIDATION_ON_EDIT },
    };
    md_token prompt[300];
    memcpy(prompt, text, sizeof prompt);
    const struct md_context c = { prompt, 300, segments, 2 };
    open_rig(_i, KEEP_ALL, 1);
    ck_assert_int_eq(rig_ask_segments(&r, &c, ANSWER), MD_OK);
    prompt[250] ^= 1;
    ck_assert_int_eq(rig_ask_segments(&r, &c, ANSWER), MD_OK);
    ck_assert_int_le(r.last.cached, 100);
    ck_assert_int_ge(r.last.dropped, 205);
    prompt[250] ^= 1;
    ck_assert_int_eq(rig_ask_segments(&r, &c, ANSWER), MD_OK);
    ck_assert_int_le(r.last.cached, 100);
    rig_close(&r);
}
END_TEST

START_TEST(a_closed_conversation_leaves_what_its_branch_has)
{
    struct md_session *branch;
    md_token want[ANSWER];
    open_rig(_i, KEEP_ALL, 1);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    struct md_session *parent = r.session;
    ck_assert_int_eq(md_session_branch(parent, 200, &branch, &r.err), MD_OK);
    ck_assert_int_eq(md_session_status(branch).cold_tokens, 192); /* known at once, to a checkpoint */
    md_session_close(parent);
    ck_assert_uint_eq(stored(), 3); /* at 64, 128, 192: those behind were of the parent alone */
    r.session = branch;
    ck_assert_int_eq(rig_ask(&r, text, 230, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.cached, 192);
    rig_fresh_answer(text, 230, ANSWER, want);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    md_session_close(branch);
    ck_assert_uint_eq(stored(), 0);
    r.session = rig_new(&r);
    ck_assert_int_eq(rig_ask(&r, text, 230, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.cached, 0);
    rig_close(&r);
}
END_TEST

/* Without room for any state all is computed again, said to be dropped, and right. */
START_TEST(without_room_nothing_is_claimed)
{
    md_token want[ANSWER];
    open_rig(_i, 0, 1);
    talks[0].s = r.session;
    talks[1].s = rig_new(&r);
    for (int turn = 0; turn < 4; turn++) {
        struct rig_talk *t = &talks[turn % 2], *other = &talks[(turn + 1) % 2];
        const int32_t known = t->count;
        ck_assert(rig_say(&r, t, 100, (uint32_t)turn, ANSWER));
        ck_assert_int_eq(r.last.cached, 0);
        ck_assert_int_eq(r.last.recomputed, known > 0 ? known - 1 : 0);
        const struct md_session_status st = md_session_status(other->s);
        ck_assert_int_eq(st.hot_tokens + st.cold_tokens, 0);
        ck_assert_int_eq(st.lost_tokens, st.tape_tokens);
    }
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    rig_fresh_answer(text, 100, ANSWER, want);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    rig_close(&r);
}
END_TEST

/* Room for two states or so: what is lost is said to be lost, and the rest is cold as far as a state reaches. */
START_TEST(with_little_room_the_counters_are_true)
{
    open_rig(_i, KEEP_ALL, 1);
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    const size_t room = md_pool_status(r.pool).cold.used_bytes / stored() * 5 / 2;
    rig_close(&r);
    open_rig(_i, room, 1);
    for (int k = 0; k < 3; k++)
        talks[k].s = k == 0 ? r.session : rig_new(&r);
    for (int turn = 0; turn < 12; turn++) {
        struct rig_talk *t = &talks[(turn * 7 / 2) % 3];
        const struct md_session_status before = md_session_status(t->s);
        ck_assert(rig_say(&r, t, 90, (uint32_t)turn, ANSWER));
        /* what was there was used: the last token of the answer is never on the tape */
        ck_assert_int_eq(r.last.cached / 16, (before.hot_tokens + before.cold_tokens) / 16);
    }
    rig_close(&r);
}
END_TEST

START_TEST(a_fatal_failure_ends_one)
{
    static const enum md_engine_op ops[] = { MD_OP_CHECKPOINT, MD_OP_REWIND, MD_OP_TRUNCATE };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        open_rig(_i, KEEP_ALL, 1);
        talks[0] = (struct rig_talk){ .s = r.session };
        talks[1] = (struct rig_talk){ .s = rig_new(&r) };
        for (int k = 0; k < 2; k++)
            ck_assert(rig_say(&r, &talks[k], 100, 3 + (uint32_t)k, ANSWER));
        r.fault = (struct md_fault){ .op = ops[i], .nth = 1, .status = MD_SESSION_FATAL };
        r.session = talks[0].s;
        const enum md_status s = rig_ask(&r, talks[0].tokens, talks[0].count, ANSWER, false);
        ck_assert_int_eq(r.fault.failed, 1);
        r.fault = (struct md_fault){ 0 };
        const bool first = md_session_status(talks[0].s).fatal, second = md_session_status(talks[1].s).fatal;
        ck_assert(first != second && (s == MD_SESSION_FATAL) == first);
        ck_assert(rig_say(&r, &talks[first ? 1 : 0], 20, 4, ANSWER));
        rig_close(&r);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool_whole");
    TCase *c = tcase_create("whole");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_loop_test(c, what_is_claimed, 0, MODELS);
    tcase_add_loop_test(c, conversations_make_way_as_a_whole, 0, MODELS);
    tcase_add_loop_test(c, an_edit_goes_back_to_the_last_checkpoint, 0, MODELS);
    tcase_add_loop_test(c, what_shall_not_be_kept_is_not, 0, MODELS);
    tcase_add_loop_test(c, a_closed_conversation_leaves_what_its_branch_has, 0, MODELS);
    tcase_add_loop_test(c, without_room_nothing_is_claimed, 0, MODELS);
    tcase_add_loop_test(c, with_little_room_the_counters_are_true, 0, MODELS);
    tcase_add_loop_test(c, a_fatal_failure_ends_one, 0, MODELS);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
