/* test_pool.c - many conversations over one engine: what they share, what switching costs, who makes way.  On the
 * fake engine, whose KV is exact to the last bit, so that "as a fresh run" means equal. */
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_ALL = 64 << 20, ANSWER = 8 };

static struct rig_talk talks[64];

/* A conversation that begins with `count` tokens of rig_tokens(seed); r's first session for the first. */
static struct rig_talk *talk_open(struct rig *r, int i, int32_t count, uint32_t seed)
{
    struct rig_talk *t = &talks[i];
    t->s = i == 0 ? r->session : rig_new(r);
    t->count = count;
    rig_tokens(t->tokens, count, seed);
    return t;
}

START_TEST(a_shared_piece_of_a_block_does_not_leave_with_the_other)
{
    struct rig r;
    md_token prompt[56];
    int32_t tokens;
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    struct rig_talk *a = talk_open(&r, 0, 0, 0), *b = talk_open(&r, 1, 0, 0);
    ck_assert(rig_say(&r, a, 100, 1, ANSWER));
    memcpy(prompt, a->tokens, 36 * sizeof *prompt); /* 2 blocks and 4 tokens */
    rig_tokens(prompt + 36, 20, 2);
    r.session = b->s;
    r.cancel_after = 0; /* what is known has joined the tape, nothing was planned yet */
    ck_assert_int_eq(rig_ask(&r, prompt, 56, ANSWER, false), MD_CANCELLED);
    ck_assert_int_eq(md_session_status(b->s).tape_tokens, 36);
    r.cancel_after = -1;
    ck_assert_int_eq(md_session_evict_range(a->s, (struct md_range){ 32, 48 }, &tokens, &r.err), MD_OK);
    ck_assert_int_eq(rig_ask(&r, prompt, 56, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 20);
    ck_assert_int_eq(r.last.dropped, 0);
    rig_close(&r);
}
END_TEST

/* Two idle ones share a copy of what the live one has computed for itself: together they make way for it. */
START_TEST(a_copy_that_idle_ones_share_makes_way)
{
    struct rig r;
    struct md_session *c, *d;
    md_token prompt[95];
    rig_open(&r, rig_config(95, 96, KEEP_ALL), 0);
    struct md_session *live = r.session;
    rig_tokens(prompt, 95, 3);
    ck_assert_int_eq(rig_ask(&r, prompt, 40, 24, false), MD_OK);
    memcpy(prompt + 40, r.last.tokens.ids, 24 * sizeof *prompt);
    r.session = c = rig_new(&r);
    ck_assert_int_eq(rig_ask(&r, prompt, 40, 24, false),
                     MD_OK); /* the same words: 40 shared, 23 of its own */
    ck_assert_mem_eq(prompt + 40, r.last.tokens.ids, 24 * sizeof *prompt);
    ck_assert_int_eq(md_session_branch(c, -1, &d, &r.err), MD_OK);
    r.session = d;
    ck_assert_int_eq(rig_decode(&r, 1), MD_OK);
    r.session = live;
    ck_assert_msg(rig_ask(&r, prompt, 94, 1, false) == MD_OK, "%s", r.err.text);
    ck_assert_int_eq(r.last.prefilled, 30); /* the 64th token is the branch's */
    rig_close(&r);
}
END_TEST

/* ---- switching ---- */

/* One fits the hot set, all do not: switching brings back what left, exactly. */
static void switch_between(int count, int32_t seq_count, int32_t hot, unsigned caps_off, bool write_through)
{
    struct rig r;
    struct md_pool_config c = rig_config(hot, hot, KEEP_ALL);
    c.write_through = write_through;
    rig_open_seqs(&r, c, caps_off, seq_count);
    for (int i = 0; i < count; i++)
        talk_open(&r, i, 37, 1);
    int restored = 0;
    for (int turn = 0; turn < 5 * count; turn++) {
        struct rig_talk *t = &talks[turn * 7 % count]; /* 7 is prime to every count used here */
        int32_t tape = t->count - 1;
        ck_assert(rig_say(&r, t, 20, (uint32_t)turn, ANSWER));
        if (turn >= count)
            ck_assert_int_eq(r.last.prefilled, t->count - ANSWER - tape);
        ck_assert_int_eq(r.last.recomputed, 0);
        ck_assert_int_eq(r.last.dropped, 0);
        ck_assert_int_le(r.hot_max, hot);
        restored += r.last.restored > 0;
    }
    ck_assert_int_gt(restored, 2 * count);
    rig_close(&r);
}

START_TEST(more_conversations_than_sequences)
{
    switch_between(5, 2, 512, 0, false);
    switch_between(5, 1, 1024, 0, false);
}
END_TEST

START_TEST(the_longest_idle_lends_its_sequence)
{
    struct rig r;
    rig_open_seqs(&r, rig_config(1024, 1024, KEEP_ALL), 0, 2);
    for (int i = 0; i < 3; i++)
        talk_open(&r, i, 0, 0);
    ck_assert(rig_say(&r, &talks[1], 40, 1, ANSWER));
    ck_assert(rig_say(&r, &talks[0], 40, 2, ANSWER));
    ck_assert(rig_say(&r, &talks[2], 40, 3, ANSWER)); /* 1 was live longest ago */
    ck_assert_int_eq(md_session_status(talks[1].s).hot_tokens, 0);
    ck_assert_int_eq(md_session_status(talks[1].s).cold_tokens, 47);
    ck_assert_int_eq(md_session_status(talks[0].s).hot_tokens, 47);
    rig_close(&r);
}
END_TEST

START_TEST(an_engine_that_cannot_share_loses_nothing)
{
    switch_between(3, 4, 256, MD_CAP_SHARE, false);
    switch_between(5, 2, 256, MD_CAP_SHARE, false);
}
END_TEST

START_TEST(sixty_four_conversations_at_once)
{
    switch_between(64, 4, 512, 0, false);
    switch_between(64, 0, 4096, 0, true);
}
END_TEST

/* ---- engines that can do less ---- */

START_TEST(an_engine_that_cannot_evict_still_switches)
{
    static const unsigned less[] = {
        MD_CAP_REMOVE_MIDDLE,
        MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE,
        MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE,
        MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_SHARE,
        MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_REMOVE_TAIL,
        MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_REMOVE_TAIL | MD_CAP_SHARE,
        MD_CAP_RECOMPUTE_RANGE,
        MD_CAP_RECOMPUTE_RANGE | MD_CAP_COLD_STORE,
    };
    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++)
        for (int32_t seqs = 1; seqs <= 4; seqs += 3) {
            struct rig r;
            rig_open_seqs(&r, rig_config(256, 256, KEEP_ALL), less[i], seqs);
            for (int k = 0; k < 3; k++)
                talk_open(&r, k, 37, 1);
            for (uint32_t turn = 0; turn < 15; turn++) {
                bool exact = rig_say(&r, &talks[turn * 7 % 3], 20, turn, ANSWER);
                ck_assert_msg(exact && r.last.lost == 0,
                              "caps %zu, %d sequences, turn %u: %d of %d attended, %d lost", i, seqs, turn,
                              r.last.attended, r.last.prompt, r.last.lost);
            }
            rig_close(&r);
        }
}
END_TEST

/* Holes need no shift: nothing is ever put at another position, and the windows beyond which one would be needed are
 * not to be had. */
START_TEST(b036_an_engine_that_cannot_shift_works_by_holes)
{
    struct rig r;
    md_token text[1200], prompt[1200];
    rig_tokens(text, 1200, 1);
    rig_open(&r, rig_config(1024, 128, KEEP_ALL), MD_CAP_POSITION_SHIFT);
    ck_assert_int_eq(rig_ask(&r, text, 900, ANSWER, false), MD_OK);
    memcpy(prompt, text, 400 * sizeof *prompt); /* a part of it again, behind another beginning */
    memcpy(prompt + 400, text + 37, 200 * sizeof *prompt);
    ck_assert_int_eq(rig_ask(&r, prompt, 600, ANSWER, false), MD_OK);
    ck_assert_int_eq(rig_ask(&r, text, 900, 124, false), MD_OK); /* to the end of the window */
    ck_assert_int_eq(r.last.prompt + r.last.completion, 1024);
    ck_assert_int_eq(r.last.moved + r.last.dropped + r.last.recomputed, 0);
    struct md_session_status st = md_session_status(r.session);
    ck_assert_int_ge((int)st.evicted_blocks, (1024 - 128) / 16);
    ck_assert_int_gt((int)st.restored_blocks, 0);
    ck_assert_int_eq(st.hot_tokens + st.cold_tokens, st.tape_tokens);
    int32_t tokens;
    ck_assert_int_eq(md_session_admit_at_tail(r.session, (struct md_range){ 0, 64 }, NULL, &tokens, &r.err),
                     MD_UNSUPPORTED);
    ck_assert_msg(strstr(r.err.text, "repositioned") != NULL, "%s", r.err.text);
    ck_assert_int_gt(r.fault.calls[MD_OP_ADMIT], 0); /* the wrapper does see what is admitted */
    ck_assert_int_eq(r.fault.calls[MD_OP_ADMIT_MOVED], 0);
    ck_assert(!(md_pool_status(r.pool).caps & MD_CAP_POSITION_SHIFT)); /* the field of the status */
    rig_close(&r);
    /* past the trained window; to move text all the same */
    struct md_pool_config c = rig_config(RIG_TOKENS_MAX + 1, 128, KEEP_ALL);
    ck_assert_int_eq(rig_try_open(&r, c, MD_CAP_POSITION_SHIFT), MD_INVALID);
    ck_assert_msg(strstr(r.err.text, "65536") != NULL && strstr(r.err.text, "65537") != NULL, "%s",
                  r.err.text);
    rig_close(&r);
    c = rig_config(1024, 128, KEEP_ALL);
    c.reuse = MD_REUSE_APPROXIMATE;
    ck_assert_int_eq(rig_try_open(&r, c, MD_CAP_POSITION_SHIFT), MD_UNSUPPORTED);
    ck_assert_msg(strstr(r.err.text, "--reuse approximate") != NULL, "%s", r.err.text);
    rig_close(&r);
    /* residency off: overflow at the limit */
    rig_open(&r, rig_config(256, 0, 0), MD_CAP_POSITION_SHIFT);
    ck_assert_int_eq(rig_ask(&r, text, 200, 1000, false), MD_OK);
    ck_assert_int_eq(r.last.completion, 56);
    ck_assert_int_eq(r.last.finish, MD_FINISH_LENGTH);
    ck_assert_int_eq(rig_ask(&r, text, 256, 1, false), MD_TOO_LARGE);
    ck_assert_int_eq(r.fault.calls[MD_OP_ADMIT_MOVED], 0);
    rig_close(&r);
}
END_TEST

/* ---- who makes way ---- */

START_TEST(at_the_limit_the_longest_idle_makes_way_and_is_found_again)
{
    struct rig r;
    struct md_pool_config c = rig_config(512, 512, KEEP_ALL);
    c.session_limit = 3;
    rig_open(&r, c, 0);
    for (int i = 0; i < 3; i++)
        talk_open(&r, i, 0, 0);
    for (uint32_t i = 0; i < 3; i++)
        rig_say(&r, &talks[i], 60, i, ANSWER);
    rig_say(&r, &talks[0], 10, 9, ANSWER); /* now 1 is idle longest */
    int64_t gone = md_session_id(talks[1].s), stays = md_session_id(talks[0].s);
    struct rig_talk *d = talk_open(&r, 3, 0, 0);
    ck_assert_int_eq(md_pool_status(r.pool).sessions, 3);
    ck_assert_ptr_null(md_pool_find(r.pool, gone));
    ck_assert_ptr_eq(md_pool_find(r.pool, stays), talks[0].s);
    ck_assert_int_eq((int)md_session_id(d->s), 4); /* 1, 2 and 3 are taken, the one that is gone too */
    md_pool_keep(d->s);
    /* its text: all but the last token of the answer, which was never evaluated, and one of what is asked now */
    md_token want[ANSWER];
    rig_fresh_answer(talks[1].tokens, talks[1].count, ANSWER, want);
    r.session = d->s;
    ck_assert_int_eq(rig_ask(&r, talks[1].tokens, talks[1].count, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 1);
    ck_assert_int_eq(r.last.cached, 67);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    rig_close(&r);
}
END_TEST

START_TEST(kept_conversations_are_never_closed)
{
    struct rig r;
    struct md_session *s;
    struct md_pool_config c = rig_config(512, 512, KEEP_ALL);
    c.session_limit = 2;
    rig_open(&r, c, 0);
    struct rig_talk *a = talk_open(&r, 0, 0, 0), *b = talk_open(&r, 1, 0, 0);
    md_pool_keep(a->s);
    rig_say(&r, a, 30, 1, ANSWER);
    rig_say(&r, b, 30, 2, ANSWER);
    int64_t b_id = md_session_id(b->s);
    b = talk_open(&r, 1, 0, 0); /* b makes way, though a is idle longer */
    ck_assert_ptr_eq(md_pool_find(r.pool, 1), a->s);
    ck_assert_int_gt((int)md_session_id(b->s), (int)b_id);
    md_pool_keep(b->s);
    rig_say(&r, b, 30, 3, ANSWER);
    ck_assert_int_eq(md_pool_new(r.pool, &s, &r.err), MD_BUSY);
    ck_assert_msg(strstr(r.err.text, "2 sessions") != NULL, "%s", r.err.text);
    /* a fatal one that somebody knows by its id stays, so that he hears the cause */
    r.fault = (struct md_fault){ .op = MD_OP_DECODE, .nth = 1, .status = MD_SESSION_FATAL };
    r.session = a->s;
    rig_tokens(b->tokens, 20, 4);
    ck_assert_int_eq(rig_ask(&r, b->tokens, 20, ANSWER, false), MD_SESSION_FATAL);
    ck_assert_int_eq(md_pool_new(r.pool, &s, &r.err), MD_BUSY);
    ck_assert_ptr_eq(md_pool_find(r.pool, 1), a->s);
    md_session_close(a->s);
    ck_assert_int_eq(md_pool_new(r.pool, &s, &r.err), MD_OK);
    rig_close(&r);
}
END_TEST

START_TEST(a_branch_at_the_limit_does_not_close_its_parent)
{
    struct rig r;
    struct md_session *branch;
    struct md_pool_config c = rig_config(512, 512, KEEP_ALL);
    c.session_limit = 2;
    rig_open(&r, c, 0);
    struct rig_talk *a = talk_open(&r, 0, 0, 0), *b = talk_open(&r, 1, 0, 0);
    rig_say(&r, a, 30, 1, ANSWER);
    rig_say(&r, b, 30, 2, ANSWER);
    ck_assert_int_eq(md_session_branch(a->s, -1, &branch, &r.err), MD_OK); /* a is idle longest */
    ck_assert_ptr_eq(md_pool_find(r.pool, 1), a->s);
    ck_assert_ptr_null(md_pool_find(r.pool, 2));
    ck_assert_int_eq((int)md_session_status(branch).parent, 1);
    md_session_close(branch);
    c.session_limit = 1; /* and where there is no other, it is refused */
    rig_close(&r);
    rig_open(&r, c, 0);
    a = talk_open(&r, 0, 0, 0);
    rig_say(&r, a, 30, 1, ANSWER);
    ck_assert_int_eq(md_session_branch(a->s, -1, &branch, &r.err), MD_BUSY);
    rig_say(&r, a, 30, 2, ANSWER);
    rig_close(&r);
}
END_TEST

START_TEST(closing_leaves_nothing_behind)
{
    for (int i = 0; i < 12; i++) {
        struct rig r;
        struct md_pool_config c = rig_config(1024, i % 2 == 0 ? 1024 : 128, KEEP_ALL);
        c.write_through = i / 2 % 2;
        c.reuse = (enum md_reuse)(i / 4);
        rig_open(&r, c, 0);
        for (int k = 0; k < 3; k++)
            talk_open(&r, k, 37, 1);
        for (uint32_t turn = 0; turn < 12; turn++)
            (void)rig_say(&r, &talks[turn * 7 % 3], 70, turn, ANSWER);
        md_session_close(talks[1].s);
        (void)rig_say(&r, &talks[0], 10, 50, ANSWER);
        (void)rig_say(&r, &talks[2], 10, 51, ANSWER);
        md_session_close(talks[2].s);
        md_session_close(talks[0].s);
        ck_assert_int_eq(md_engine_cells_used(r.engine), 0);
        ck_assert_msg(md_pool_status(r.pool).cold.entry_count == 0, "%d: %d blocks are still cold", i,
                      (int)md_pool_status(r.pool).cold.entry_count);
        rig_close(&r);
    }
}
END_TEST

/* ---- whose prompt is it ---- */

START_TEST(a_prompt_goes_to_the_conversation_it_continues)
{
    struct rig r;
    struct md_session *s;
    md_token prompt[300];
    struct md_segment segments[] = {
        { .range = { 0, 100 }, .kind = MD_SEGMENT_SYSTEM, .stable = true },
        { .range = { 100, 140 }, .kind = MD_SEGMENT_USER, .cls = MD_CLASS_VOLATILE },
    };
    const struct md_decode decode = { .max_tokens = 1, .sample = md_sample_defaults() };
    struct md_request first = { .prompt = { prompt, 140, segments, 2 }, .decode = decode },
                      next = { .prompt = { prompt, 200, segments, 2 }, .decode = decode };
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    rig_tokens(prompt, 300, 1);
    /* an empty one belongs to nobody */
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &first, &s, &r.err), MD_OK);
    ck_assert_ptr_ne(s, r.session);
    r.session = s;
    ck_assert_int_eq(rig_ask_segments(&r, &first.prompt, ANSWER), MD_OK);
    memcpy(prompt + 140, r.last.tokens.ids, ANSWER * sizeof *prompt);
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &next, &s, &r.err), MD_OK); /* the next turn */
    ck_assert_ptr_eq(s, r.session);
    prompt[150] ^= 1; /* another answer, and what follows it */
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &next, &s, &r.err), MD_OK);
    ck_assert_ptr_eq(s, r.session);
    const md_token good = prompt[199];
    prompt[199] = -1; /* one that nobody could run opens none */
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &next, &s, &r.err), MD_INVALID);
    ck_assert_int_eq(md_pool_status(r.pool).sessions, 2);
    prompt[199] = good;
    prompt[110] ^= 1; /* the same system text before another first message */
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &next, &s, &r.err), MD_OK);
    ck_assert_ptr_ne(s, r.session);
    ck_assert_int_eq((int)md_session_id(s), 3);
    prompt[110] ^= 1;
    r.fault = (struct md_fault){ .op = MD_OP_DECODE, .nth = 1, .status = MD_SESSION_FATAL };
    ck_assert_int_eq(rig_ask_segments(&r, &next.prompt, ANSWER),
                     MD_SESSION_FATAL); /* nothing goes on with a dead one */
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &next, &s, &r.err), MD_OK);
    ck_assert_int_eq((int)md_session_id(s), 4);
    rig_close(&r);
}
END_TEST

/* A map of the repository that two chats send first is no sign that the one goes on with the other. */
START_TEST(what_stands_before_many_conversations_is_none)
{
    struct rig r;
    struct md_session *s;
    md_token prompt[300];
    struct md_segment segments[] = {
        { .range = { 0, 40 }, .kind = MD_SEGMENT_SYSTEM, .stable = true },
        { .range = { 40, 140 }, .kind = MD_SEGMENT_REPO_MAP, .cls = MD_CLASS_REPO_MAP },
        { .range = { 140, 200 }, .kind = MD_SEGMENT_USER, .cls = MD_CLASS_VOLATILE },
    };
    const struct md_decode decode = { .max_tokens = 1, .sample = md_sample_defaults() };
    const struct md_request q = { .prompt = { prompt, 200, segments, 3 }, .decode = decode };
    rig_open(&r, rig_config(1024, 1024, KEEP_ALL), 0);
    rig_tokens(prompt, 300, 1);
    ck_assert_int_eq(rig_ask_segments(&r, &q.prompt, ANSWER), MD_OK);
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &q, &s, &r.err), MD_OK);
    ck_assert_ptr_eq(s, r.session);
    prompt[150] ^= 1;
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &q, &s, &r.err), MD_OK);
    ck_assert_ptr_ne(s, r.session);
    rig_close(&r);
}
END_TEST

/* Whoever sends an id is not disturbed by who sends none, and those that nobody sends are closed first. */
START_TEST(a_bound_conversation_is_not_found_and_goes_last)
{
    struct rig r;
    struct md_session *s;
    md_token prompt[200];
    struct md_segment segments[] = { { .range = { 0, 140 }, .kind = MD_SEGMENT_USER } };
    const struct md_request q = { .prompt = { prompt, 200, segments, 1 },
                                  .decode = { .max_tokens = 1, .sample = md_sample_defaults() } };
    struct md_pool_config c = rig_config(1024, 1024, KEEP_ALL);
    c.session_limit = 2;
    rig_open(&r, c, 0);
    rig_tokens(prompt, 200, 1);
    ck_assert_int_eq(rig_ask_segments(&r, &q.prompt, ANSWER), MD_OK);
    md_pool_bind(r.session);
    ck_assert_int_eq(md_pool_find_by_prompt(r.pool, &q, &s, &r.err), MD_OK);
    ck_assert_ptr_ne(s, r.session);
    r.session = s;
    ck_assert_int_eq(rig_ask_segments(&r, &q.prompt, ANSWER), MD_OK); /* the bound one is idle longest now */
    ck_assert_int_eq(r.last.prefilled, 1);
    ck_assert_int_eq(md_pool_new(r.pool, &s, &r.err), MD_OK);
    ck_assert_ptr_nonnull(md_pool_find(r.pool, 1));
    ck_assert_ptr_null(md_pool_find(r.pool, 2));
    md_pool_bind(s);
    ck_assert_int_eq(md_pool_new(r.pool, &s, &r.err), MD_OK); /* all are bound: idle longest */
    ck_assert_ptr_null(md_pool_find(r.pool, 1));
    rig_close(&r);
}
END_TEST

/* The store has room for one of the two: what the other one loses is told by the request that takes its place, and seen
 * before anybody asks for it again. */
START_TEST(losses_of_others_are_seen_and_counted)
{
    struct rig r;
    rig_open(&r, rig_config(1024, 128, 96 << 10), 0);
    struct md_session *a = r.session, *b = rig_new(&r);
    md_token prompt[500];
    rig_tokens(prompt, 500, 1);
    ck_assert_int_eq(rig_ask(&r, prompt, 250, ANSWER, false), MD_OK);
    const struct md_session_status before = md_session_status(a);
    ck_assert_int_gt(before.cold_tokens, 100);
    ck_assert_int_eq(r.last.dropped, 0);
    r.session = b;
    ck_assert_int_eq(rig_ask(&r, prompt + 250, 250, ANSWER, false), MD_OK);
    md_pool_notice_lost(r.pool);
    const struct md_session_status after = md_session_status(a), own = md_session_status(b);
    ck_assert_int_gt(after.lost_tokens, 0);
    ck_assert_int_eq(after.lost_tokens + own.lost_tokens, r.last.dropped);
    ck_assert_int_eq(after.hot_tokens + after.cold_tokens + after.lost_tokens, after.tape_tokens);
    rig_close(&r);
}
END_TEST

START_TEST(more_segments_than_there_may_be)
{
    struct rig r;
    md_token prompt[20];
    struct md_segment *many = calloc(MD_SEGMENTS_MAX + 1, sizeof *many);
    struct md_context q = { prompt, 20, many, MD_SEGMENTS_MAX };
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    rig_tokens(prompt, 20, 1);
    ck_assert_int_eq(rig_ask_segments(&r, &q, ANSWER), MD_OK);
    q.segment_count++;
    ck_assert_int_eq(rig_ask_segments(&r, &q, ANSWER), MD_INVALID);
    ck_assert_msg(strstr(r.err.text, "65536 are allowed") != NULL, "%s", r.err.text);
    free(many);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool");
    TCase *c = tcase_create("pool");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, a_shared_piece_of_a_block_does_not_leave_with_the_other);
    tcase_add_test(c, a_copy_that_idle_ones_share_makes_way);
    tcase_add_test(c, more_conversations_than_sequences);
    tcase_add_test(c, the_longest_idle_lends_its_sequence);
    tcase_add_test(c, an_engine_that_cannot_share_loses_nothing);
    tcase_add_test(c, sixty_four_conversations_at_once);
    tcase_add_test(c, an_engine_that_cannot_evict_still_switches);
    tcase_add_test(c, b036_an_engine_that_cannot_shift_works_by_holes);
    tcase_add_test(c, at_the_limit_the_longest_idle_makes_way_and_is_found_again);
    tcase_add_test(c, kept_conversations_are_never_closed);
    tcase_add_test(c, a_branch_at_the_limit_does_not_close_its_parent);
    tcase_add_test(c, closing_leaves_nothing_behind);
    tcase_add_test(c, what_stands_before_many_conversations_is_none);
    tcase_add_test(c, a_bound_conversation_is_not_found_and_goes_last);
    tcase_add_test(c, losses_of_others_are_seen_and_counted);
    tcase_add_test(c, more_segments_than_there_may_be);
    tcase_add_test(c, a_prompt_goes_to_the_conversation_it_continues);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
