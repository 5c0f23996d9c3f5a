/* test_session.c - the request path: reuse, eviction, restore, branches, counters, refusals.  On the fake
 * engine, whose KV is exact to the last bit, so that "the same" means equal. */
#include "support/run_suite.h"
#include "support/rng.h"
#include "support/session_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MB = 1 << 20, KEEP_ALL = 64 * MB };

static md_token text_a[RIG_TOKENS_MAX], text_b[RIG_TOKENS_MAX];

static void join(md_token *out, const md_token *head, int32_t head_count, const md_token *tail,
                 int32_t tail_count)
{
    memcpy(out, head, (size_t)head_count * sizeof *out);
    memcpy(out + head_count, tail, (size_t)tail_count * sizeof *out);
}

/* ---- reuse ---- */

START_TEST(b054_next_turn_reuses_prompt_and_answer)
{
    struct rig r;
    md_token next[256];
    rig_open(&r, rig_config(1024, 0, 0), 0);
    rig_tokens(text_a, 256, 1);
    ck_assert_int_eq(rig_ask(&r, text_a, 100, 20, false), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 100);
    ck_assert_int_eq(r.last.completion, 20);
    ck_assert_int_eq(r.last.decoded, 19); /* the first one came from the prompt: it is no decode step */
    join(next, text_a, 100, r.last.tokens.ids, 20);
    rig_tokens(next + 120, 30, 2);
    ck_assert_int_eq(rig_ask(&r, next, 150, 5, false), MD_OK);
    ck_assert_int_eq(r.last.cached, 119); /* the last sampled token was never fed to the model */
    ck_assert_int_eq(r.last.prefilled, 31);
    rig_close(&r);
}
END_TEST

START_TEST(a_last_chunk_takes_one_step_with_its_last_token)
{
    struct rig r;
    const enum md_engine_op ops[] = { MD_OP_PREFILL, MD_OP_DECODE };
    static const enum md_status want[] = { MD_OK, MD_INTERNAL };
    rig_tokens(text_a, 140, 1);
    for (int i = 0; i < 2; i++) { /* a failing prefill is not noticed where none is made */
        rig_open(&r, rig_config(1024, 0, 0), 0);
        ck_assert_int_eq(rig_ask(&r, text_a, 100, 1, false), MD_OK);
        r.fault = (struct md_fault){ .op = ops[i], .nth = 1, .status = MD_INTERNAL };
        ck_assert_int_eq(rig_ask(&r, text_a, 140, 1, false), want[i]);
        if (want[i] == MD_OK) {
            ck_assert_int_eq(r.last.prefilled, 40);
            ck_assert_int_eq(r.progress.cached + r.progress.processed, 140);
            ck_assert_int_eq(r.progress.total, 140);
        }
        rig_close(&r);
    }
}
END_TEST

START_TEST(b047_same_prompt_three_times)
{
    struct rig r;
    md_token want[8];
    rig_tokens(text_a, 12, 3);
    rig_fresh_answer(text_a, 12, 8, want);
    struct md_pool_config c = rig_config(1024, 0, 0);
    c.block_tokens = MD_BLOCK_TOKENS_MIN;
    rig_open(&r, c, 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(rig_ask(&r, text_a, 12, 8, false), MD_OK);
        ck_assert_int_eq(r.last.prompt, 12);
        ck_assert_int_eq(r.last.prefilled, i == 0 ? 12 : 1); /* the last token is evaluated again */
        ck_assert_int_eq(r.last.recomputed, 0);              /* which is no loss */
        ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    }
    rig_close(&r);
}
END_TEST

START_TEST(b050_reuse_is_by_token_id)
{
    /* the answer was ids 2797, 5365 in the case; here: the history comes back with one id in place of two */
    struct rig r;
    md_token sent[256], want[8];
    rig_tokens(text_a, 60, 4);
    rig_open(&r, rig_config(1024, 0, 0), 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 60, 10, false), MD_OK);
    join(sent, text_a, 60, r.last.tokens.ids, 10);
    sent[63] = (sent[63] + 1) % 256; /* from here on the tokens differ */
    memmove(sent + 64, sent + 65, 5 * sizeof *sent);
    rig_fresh_answer(sent, 69, 8, want);
    ck_assert_int_eq(rig_ask(&r, sent, 69, 8, false), MD_OK);
    ck_assert_int_eq(r.last.cached, 63);
    ck_assert_int_eq(r.last.prefilled, 6);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    rig_close(&r);
}
END_TEST

/* ---- limits ---- */

START_TEST(b034_completion_fills_the_window)
{
    static const int32_t prompts[] = { 1, 255, 256, 511 };
    rig_tokens(text_a, 512, 5);
    for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++) {
        struct rig r;
        rig_open(&r, rig_config(512, 0, 0), 0);
        ck_assert_int_eq(rig_ask(&r, text_a, prompts[i], 100000, false), MD_OK);
        ck_assert_int_eq(r.last.completion, 512 - prompts[i]);
        ck_assert_int_eq(r.last.finish, MD_FINISH_LENGTH);
        rig_close(&r);
    }
}
END_TEST

START_TEST(b041_prompt_beyond_the_window_is_refused)
{
    static const int32_t prompts[] = { 512, 600 };
    rig_tokens(text_a, 600, 5);
    for (int residency = 0; residency < 2; residency++) {
        struct rig r;
        md_token want[4];
        rig_open(&r, rig_config(512, residency ? 128 : 0, KEEP_ALL), 0);
        for (size_t i = 0; i < 2; i++) {
            char number[16];
            snprintf(number, sizeof number, "%d", prompts[i]);
            ck_assert_int_eq(rig_ask(&r, text_a, prompts[i], 4, false), MD_TOO_LARGE);
            ck_assert_msg(strstr(r.err.text, number) != NULL && strstr(r.err.text, "512") != NULL, "%s",
                          r.err.text);
        }
        rig_fresh_answer(text_a, 50, 4, want); /* and the next good request is served */
        ck_assert_int_eq(rig_ask(&r, text_a, 50, 4, false), MD_OK);
        ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
        rig_close(&r);
    }
}
END_TEST

START_TEST(b032_generation_always_ends)
{
    for (int residency = 0; residency < 2; residency++) {
        struct rig r;
        rig_open(&r, rig_config(256, residency ? 96 : 0, KEEP_ALL), 0);
        rig_tokens(text_a, 20, 6);
        ck_assert_int_eq(rig_ask(&r, text_a, 20, -1, false), MD_OK);
        ck_assert_int_eq(r.last.finish, MD_FINISH_LENGTH);
        ck_assert_int_eq(r.last.prompt + r.last.completion, 256);
        rig_close(&r);
    }
}
END_TEST

START_TEST(bad_requests_change_nothing)
{
    struct rig r;
    md_token bad[] = { 1, 2, 259 }, worse[] = { 1, -1 };
    rig_open(&r, rig_config(256, 0, 0), 0);
    rig_tokens(text_a, 40, 7);
    ck_assert_int_eq(rig_ask(&r, text_a, 40, 2, false), MD_OK);
    ck_assert_int_eq(rig_ask(&r, bad, 0, 2, false), MD_INVALID);
    ck_assert_int_eq(rig_ask(&r, bad, 3, 2, false), MD_INVALID);
    ck_assert_msg(strstr(r.err.text, "259") != NULL, "%s", r.err.text);
    ck_assert_int_eq(rig_ask(&r, worse, 2, 2, false), MD_INVALID);
    ck_assert_int_eq(rig_ask(&r, text_a, 40, -2, false), MD_INVALID);
    ck_assert_int_eq(rig_ask(&r, text_a, 40, 2, false), MD_OK);
    ck_assert_int_eq(r.last.cached, 39);
    rig_close(&r);
}
END_TEST

START_TEST(b039_open_refuses_what_cannot_work)
{
    static const struct {
        const char *label;
        int32_t window, hot, block, sink, recent;
        const char *says; /* NULL: it opens */
    } rows[] = {
        { "hot = sink + recent + block", 512, 64, 16, 16, 32, NULL },
        { "one less", 512, 63, 16, 16, 32, "--hot" },
        { "defaults", 512, 128, 16, -1, -1, NULL },
        { "sink negative", 512, 128, 16, -2, 32, "sink" },
        { "sink huge", 512, 128, 16, INT32_MAX, 32, "--hot" },
        { "recent huge", 512, 128, 16, 16, INT32_MAX, "--hot" },
        { "recent 0", 512, 128, 16, 16, 0, "--recent" },
        { "sink 0", 512, 128, 16, 0, 32, NULL },
        { "block above the hot set", 512, 128, 4096, 16, 32, "--hot" },
        { "block 0", 512, 128, 0, 16, 32, "--block-tokens" },
        { "block -1", 512, 128, -1, 16, 32, "--block-tokens" },
        { "block huge", 512, 128, INT32_MAX, 16, 32, "--block-tokens" },
        { "window 0", 0, 128, 16, 16, 32, "--ctx-size" },
        { "window beyond training", RIG_TOKENS_MAX + 1, 128, 16, 16, 32, "--ctx-size" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r;
        struct md_pool_config c = rig_config(rows[i].window, rows[i].hot, KEEP_ALL);
        c.block_tokens = rows[i].block;
        c.sink_tokens = rows[i].sink;
        c.recent_tokens = rows[i].recent;
        enum md_status s = rig_try_open(&r, c, 0);
        if (rows[i].says == NULL)
            ck_assert_msg(s == MD_OK, "%s: %s", rows[i].label, r.err.text);
        else
            ck_assert_msg(s == MD_INVALID && strstr(r.err.text, rows[i].says) != NULL, "%s: %s",
                          rows[i].label, r.err.text);
        rig_close(&r);
    }
}
END_TEST

START_TEST(b039_short_prompt_with_large_sinks_keeps_everything)
{
    struct rig r;
    struct md_pool_config c = rig_config(2048, 512, KEEP_ALL);
    c.sink_tokens = 256;
    rig_open(&r, c, 0);
    rig_tokens(text_a, 100, 8);
    ck_assert_int_eq(rig_ask(&r, text_a, 100, 4, false), MD_OK);
    ck_assert_int_eq(r.last.attended, 100);
    rig_close(&r);
}
END_TEST

/* ---- two tiers ---- */

START_TEST(long_prompt_goes_through_a_small_hot_set)
{
    struct rig r;
    rig_open(&r, rig_config(8192, 256, KEEP_ALL), 0);
    rig_tokens(text_a, 4000, 9);
    ck_assert_int_eq(rig_ask(&r, text_a, 4000, 64, false), MD_OK);
    struct md_session_status st = md_session_status(r.session);
    ck_assert_int_le(r.hot_max, 256);
    ck_assert_int_eq(st.tape_tokens, 4063);
    ck_assert_int_eq(st.hot_tokens + st.cold_tokens, st.tape_tokens); /* every evicted block is cold */
    ck_assert_int_eq(st.lost_tokens, 0);
    ck_assert_int_eq(r.last.dropped, 0);
    ck_assert_int_eq((int)md_pool_status(r.pool).cold.token_count, st.cold_tokens);
    rig_close(&r);
}
END_TEST

START_TEST(b040_one_prompt_or_many_turns_same_hot_set)
{
    struct rig turns, once;
    static struct md_block_view map_turns[512], map_once[512];
    md_token prompt[3600];
    int32_t count = 0;
    rig_tokens(text_a, 3600, 10);
    rig_open(&turns, rig_config(8192, 512, KEEP_ALL), 0);
    while (count < 3000) { /* each turn: 97 new tokens, 7 generated */
        memcpy(prompt + count, text_a + count, 97 * sizeof *prompt);
        count += 97;
        ck_assert_int_eq(rig_ask(&turns, prompt, count, 7, false), MD_OK);
        memcpy(prompt + count, turns.last.tokens.ids, 7 * sizeof *prompt);
        count += 7;
    }
    count -= 7; /* the last turn's prompt */
    rig_open(&once, rig_config(8192, 512, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&once, prompt, count, 7, false), MD_OK);
    size_t n = md_session_map(turns.session, map_turns, 512);
    ck_assert_uint_eq(n, md_session_map(once.session, map_once, 512));
    ck_assert_mem_eq(map_turns, map_once, n * sizeof map_once[0]);
    ck_assert_int_eq(turns.last.attended, once.last.attended);
    const struct md_session_status a = md_session_status(turns.session), b = md_session_status(once.session);
    ck_assert(a.hot_tokens == b.hot_tokens && a.cold_tokens == b.cold_tokens);
    ck_assert_int_gt(b.cold_tokens, count - 512);
    ck_assert_int_eq(a.lost_tokens + b.lost_tokens, 0);
    rig_close(&turns);
    rig_close(&once);
}
END_TEST

START_TEST(branch_is_restored_and_the_old_branch_comes_back)
{
    struct rig r;
    md_token branch[1200];
    rig_open(&r, rig_config(8192, 256, KEEP_ALL), 0);
    rig_tokens(text_a, 3000, 13);
    rig_tokens(text_b, 40, 14);
    ck_assert_int_eq(rig_ask(&r, text_a, 3000, 8, false), MD_OK);
    ck_assert_int_eq(r.last.restored, 0);

    join(branch, text_a, 1000, text_b, 40); /* 1000 = 62 blocks and a half: the cut is inside a block */
    ck_assert_int_eq(rig_ask(&r, branch, 1040, 8, false), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 40);
    ck_assert_int_gt(r.last.restored, 100); /* the hot set before the branch was cold */
    ck_assert_int_eq(r.last.dropped, 0);

    ck_assert_int_eq(rig_ask(&r, text_a, 3000, 8, false), MD_OK); /* and back: all 3000 were kept */
    ck_assert_int_eq(r.last.prefilled, 1);
    ck_assert_int_eq(r.last.recomputed, 0);
    ck_assert_int_gt(r.last.restored, 100);
    ck_assert_int_eq(r.last.dropped, 0);
    rig_close(&r);
}
END_TEST

START_TEST(another_question_after_a_detour_costs_only_its_own_tokens)
{
    /* the histories part inside a block, and the live one has gone elsewhere meanwhile */
    struct rig r;
    md_token first[1100], second[1100], away[400], want[8];
    rig_tokens(text_a, 1000, 30);
    rig_tokens(text_b, 100, 31);
    join(first, text_a, 1000, text_b, 23);
    join(second, text_a, 1000, text_b + 50, 23);
    join(away, text_a, 300, text_b, 50);
    rig_fresh_answer(second, 1023, 8, want);
    for (int fits = 0; fits < 2; fits++) {
        rig_open(&r, rig_config(2048, fits ? 2048 : 256, KEEP_ALL), 0);
        ck_assert_int_eq(rig_ask(&r, first, 1023, 8, false), MD_OK);
        ck_assert_int_eq(rig_ask(&r, away, 350, 8, false), MD_OK);
        ck_assert_int_eq(rig_ask(&r, second, 1023, 8, false), MD_OK);
        ck_assert_int_eq(r.last.prefilled, 23);
        ck_assert_int_eq(r.last.dropped, 0);
        if (fits) { /* all of full provenance: exact */
            ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
            /* kept: [0, 300) of which [288, 300) is taken from the store with the rest of its block; the block
             * at 992 comes in whole, but its last 8 tokens are of the other question and computed */
            ck_assert_int_eq(r.last.restored, 1000 - 288);
        }
        ck_assert_int_eq(rig_ask(&r, first, 1023, 8, false),
                         MD_OK); /* the cut left the first question whole */
        ck_assert_int_eq(r.last.prefilled, 1);
        rig_close(&r);
    }
}
END_TEST

START_TEST(b117_says_how_many_tokens_were_hot)
{
    struct rig r;
    rig_open(&r, rig_config(8192, 128, KEEP_ALL), 0);
    rig_tokens(text_a, 3000, 17);
    ck_assert_int_eq(rig_ask(&r, text_a, 3000, 4, false), MD_OK);
    ck_assert_int_eq(r.last.prompt, 3000);
    ck_assert_int_ge(r.last.attended, 96);
    ck_assert_int_le(r.last.attended, 128);
    rig_close(&r);
}
END_TEST

START_TEST(b066_a_block_that_was_lost_alone_is_computed_in_place)
{
    struct rig r;
    md_token branch[1100];
    rig_open(&r, rig_config(8192, 256, KEEP_ALL), 0);
    rig_tokens(text_a, 2000, 19);
    ck_assert_int_eq(rig_ask(&r, text_a, 500, 4, false), MD_OK);
    /* one export fails for want of memory: that block alone is dropped */
    r.fault = (struct md_fault){ .op = MD_OP_EXPORT, .nth = 3, .status = MD_NO_MEMORY };
    ck_assert_int_eq(rig_ask(&r, text_a, 2000, 4, false), MD_OK);
    ck_assert_int_eq(r.fault.failed, 1);
    struct md_session_status st = md_session_status(r.session);
    ck_assert_int_eq(st.lost_tokens, 16);
    ck_assert_int_eq(r.last.dropped, 16);
    ck_assert_int_eq((int)md_pool_status(r.pool).cold.refused, 1);
    /* find it and branch right behind it, so that it is in the recent window and has to come back */
    static struct md_block_view map[512];
    size_t n = md_session_map(r.session, map, 512), lost = 0;
    while (lost < n && map[lost].state != MD_STATE_LOST)
        lost++;
    int32_t at = (int32_t)(lost + 1) * 16;
    join(branch, text_a, at, text_a + 1500, 20);
    ck_assert_int_eq(rig_ask(&r, branch, at + 20, 4, false), MD_OK);
    ck_assert_int_eq(r.last.recomputed, 16);
    ck_assert_int_eq(r.last.prefilled, 36);
    ck_assert_int_gt(r.last.restored, 0);
    ck_assert_int_eq((int)md_session_status(r.session).recomputed_blocks, 1);
    rig_close(&r);
}
END_TEST

START_TEST(tight_cold_budget_never_lies)
{
    /* a store of some blocks only: what it lets go is lost, what it has is cold, and requests go on */
    struct rig r;
    md_token branch[1300];
    rig_open(&r, rig_config(8192, 256, 200 * 1024), 0);
    rig_tokens(text_a, 3000, 20);
    for (int32_t at = 400; at <= 3000; at += 650) {
        ck_assert_int_eq(rig_ask(&r, text_a, at, 4, false), MD_OK);
        struct md_session_status st = md_session_status(r.session);
        ck_assert_uint_le(md_pool_status(r.pool).cold.peak_bytes, 200 * 1024);
        ck_assert_int_eq(st.hot_tokens + st.cold_tokens + st.lost_tokens, st.tape_tokens);
    }
    ck_assert_int_gt(md_session_status(r.session).lost_tokens, 0);
    join(branch, text_a, 1200, text_a + 2000, 33);
    ck_assert_int_eq(rig_ask(&r, branch, 1233, 4, false), MD_OK);
    ck_assert_int_gt(r.last.recomputed, 0);
    rig_close(&r);
}
END_TEST

START_TEST(a_branch_is_not_displaced_by_what_falls_off_for_it)
{
    /* The store holds some forty blocks: of 2000 tokens those of about [1100, 1740).  The branch at 1300 needs the
     * ones before it, the oldest in the store, while the hot blocks behind it go there. */
    struct rig r;
    md_token branch[1400];
    struct md_pool_config c = rig_config(4096, 256, KEEP_ALL);
    rig_tokens(text_a, 2000, 40);
    rig_open(&r, c, 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 2000, 1, false), MD_OK);
    size_t block_bytes =
        md_pool_status(r.pool).cold.used_bytes / (size_t)md_pool_status(r.pool).cold.entry_count;
    rig_close(&r);
    c.cold_bytes = 42 * block_bytes;
    rig_open(&r, c, 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 2000, 1, false), MD_OK);
    join(branch, text_a, 1300, text_a + 1700, 20);
    ck_assert_int_eq(rig_ask(&r, branch, 1320, 1, false), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 20);
    ck_assert_int_eq(r.last.recomputed, 0);
    ck_assert_int_gt(r.last.restored, 100);
    rig_close(&r);
}
END_TEST

START_TEST(what_is_cut_off_without_a_store_is_counted_dropped)
{
    struct rig r;
    rig_open(&r, rig_config(512, 512, 0), 0);
    rig_tokens(text_a, 100, 41);
    ck_assert_int_eq(rig_ask(&r, text_a, 100, 1, false), MD_OK);
    ck_assert_int_eq(rig_ask(&r, text_a, 51, 1, false), MD_OK); /* inside the block [48, 64) */
    ck_assert_int_eq(r.last.cached, 50);
    ck_assert_int_eq(r.last.dropped, 50); /* positions 50..99, the cut piece included */
    rig_close(&r);
}
END_TEST

START_TEST(same_text_after_another_beginning_is_not_the_same_kv)
{
    struct rig r;
    md_token a[300], b[300], want_a[8], want_b[8];
    rig_tokens(a, 300, 42);
    memcpy(b, a, sizeof b);
    b[3] ^= 1; /* all else is equal, block for block */
    rig_fresh_answer(a, 300, 8, want_a);
    rig_fresh_answer(b, 300, 8, want_b);
    ck_assert(memcmp(want_a, want_b, sizeof want_a) != 0);
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(rig_ask(&r, i % 2 == 0 ? a : b, 300, 8, false), MD_OK);
        ck_assert_mem_eq(r.last.tokens.ids, i % 2 == 0 ? want_a : want_b, sizeof want_a);
        ck_assert_int_eq(r.last.prefilled, i == 0 ? 300 : i == 1 ? 297 : 1);
    }
    rig_close(&r);
}
END_TEST

START_TEST(provenance_tells_exact_kv_from_the_rest)
{
    struct rig r;
    rig_tokens(text_a, 2000, 43);
    rig_open(&r, rig_config(4096, 512, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 400, 1, false), MD_OK);
    ck_assert_int_eq(md_session_status(r.session).tokens_of[MD_PROVENANCE_FULL],
                     400); /* nothing was out while it was computed */
    ck_assert_int_eq(rig_ask(&r, text_a, 2000, 1, false), MD_OK);
    int32_t full = md_session_status(r.session).tokens_of[MD_PROVENANCE_FULL];
    ck_assert_int_ge(full, 400);
    ck_assert_int_lt(full, 700); /* from the first eviction on it was computed over a part */
    ck_assert_int_eq(rig_ask(&r, text_a, 300, 1, false), MD_OK);
    ck_assert_int_eq(rig_ask(&r, text_a, 2000, 1, false), MD_OK);
    ck_assert_int_eq(md_session_status(r.session).tokens_of[MD_PROVENANCE_FULL],
                     full); /* it goes out and comes back with the block */
    rig_close(&r);

    /* a block that is lengthened after something went out is no longer exact as a whole */
    rig_open(&r, rig_config(4096, 256, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 200, 1, false), MD_OK);
    ck_assert_int_eq(md_session_status(r.session).tokens_of[MD_PROVENANCE_FULL], 200);
    ck_assert_int_eq(rig_ask(&r, text_a, 2000, 1, false), MD_OK);
    ck_assert_int_eq(md_session_status(r.session).tokens_of[MD_PROVENANCE_FULL], 192);
    rig_close(&r);

    /* lost and computed again from the first block on: exact again */
    rig_open(&r, rig_config(4096, 256, 0), 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 200, 1, false), MD_OK);
    ck_assert_int_eq(rig_ask(&r, text_a, 2000, 1, false), MD_OK);
    ck_assert_int_eq(rig_ask(&r, text_a, 200, 1, false), MD_OK);
    ck_assert_int_eq(md_session_status(r.session).tokens_of[MD_PROVENANCE_FULL], 200);
    rig_close(&r);
}
END_TEST

START_TEST(the_last_tokens_of_the_window_push_nothing_out)
{
    struct rig r;
    rig_tokens(text_a, 256, 44);
    rig_open(&r, rig_config(256, 256, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 250, 6, false), MD_OK);
    ck_assert_int_eq(r.last.attended,
                     250); /* a block's room for decoding is not made where 6 tokens can come */
    ck_assert_int_eq((int)md_session_status(r.session).evicted_blocks, 0);
    rig_close(&r);
}
END_TEST

START_TEST(lost_blocks_that_fit_the_hot_set_are_computed_again)
{
    /* 316 tokens through 256 cells lose some blocks; of the first 148 all fit, so none may be left out */
    struct rig r;
    md_token want[8];
    struct md_pool_config c = rig_config(512, 256, 0);
    c.block_tokens = c.sink_tokens = 8;
    c.recent_tokens = 16;
    rig_tokens(text_a, 316, 45);
    rig_fresh_answer(text_a, 148, 8, want);
    rig_open(&r, c, 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 316, 4, false), MD_OK);
    ck_assert_int_gt(md_session_status(r.session).lost_tokens, 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 148, 8, false), MD_OK);
    ck_assert_int_eq(r.last.attended, 148);
    ck_assert_int_eq(r.last.lost, 0);
    ck_assert_int_gt(r.last.recomputed, 0);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    rig_close(&r);
}
END_TEST

START_TEST(what_is_lost_is_counted_lost)
{
    struct rig r;
    rig_tokens(text_a, 2000, 46);
    rig_open(&r, rig_config(4096, 256, 0), 0);
    for (int i = 0; i < 2; i++) { /* the second time nothing is computed, and it is not claimed to be there */
        ck_assert_int_eq(rig_ask(&r, text_a, 2000, 1, false), MD_OK);
        ck_assert_int_eq(r.last.lost, i == 0 ? 0 : md_session_status(r.session).lost_tokens);
    }
    ck_assert_int_eq(r.last.prefilled, 1);
    ck_assert_int_gt(r.last.lost, 1500);
    rig_close(&r);
    /* a store of a few blocks lets others go: the status never calls cold what is not there */
    rig_open(&r, rig_config(4096, 256, 60 * 1024), 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 1000, 200, false), MD_OK);
    struct md_session_status st = md_session_status(r.session);
    ck_assert_int_eq(st.cold_tokens, (int)md_pool_status(r.pool).cold.token_count);
    ck_assert_int_eq(r.last.dropped, st.lost_tokens);
    rig_close(&r);
}
END_TEST

START_TEST(a_cold_block_the_engine_will_not_have_is_computed_again)
{
    static const enum md_status why[] = { MD_CORRUPT, MD_INTERNAL };
    for (int i = 0; i < 2; i++) {
        struct rig r;
        rig_tokens(text_a, 1000, 47);
        rig_open(&r, rig_config(2048, 256, KEEP_ALL), 0);
        ck_assert_int_eq(rig_ask(&r, text_a, 1000, 1, false), MD_OK);
        r.fault = (struct md_fault){ .op = MD_OP_ADMIT, .nth = 1, .from_then_on = true, .status = why[i] };
        ck_assert_msg(rig_ask(&r, text_a, 600, 1, false) == MD_OK, "%s", r.err.text);
        ck_assert_int_gt(r.fault.failed, 0);
        ck_assert_int_gt(r.last.recomputed, 0);
        ck_assert_int_gt(r.last.dropped, 0);
        rig_close(&r);
    }
}
END_TEST

/* Restored is what is back in the engine: not the one whose copy was cut short, nor those behind it. */
START_TEST(b069_restored_counts_what_is_back)
{
    struct rig r;
    rig_tokens(text_a, 1000, 48);
    rig_open(&r, rig_config(2048, 256, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ask(&r, text_a, 1000, 1, false), MD_OK);
    ck_assert_int_eq(r.fault.calls[MD_OP_ADMIT], 0);
    r.fault = (struct md_fault){ .op = MD_OP_ADMIT, .nth = 3, .status = MD_CANCELLED };
    ck_assert_int_eq(rig_ask(&r, text_a, 600, 1, false), MD_CANCELLED);
    ck_assert_int_eq(r.fault.calls[MD_OP_ADMIT], 3);
    ck_assert_int_eq((int)md_session_status(r.session).restored_blocks, 2);
    ck_assert_int_eq(r.last.restored, 2 * 16);
    ck_assert_int_eq(md_session_status(r.session).lost_tokens, 0); /* it is where it was */
    ck_assert_int_eq(rig_ask(&r, text_a, 600, 1, false), MD_OK);
    ck_assert_int_eq((int)md_session_status(r.session).restored_blocks, r.fault.calls[MD_OP_ADMIT] - 1);
    ck_assert_int_eq(r.last.recomputed + r.last.dropped, 0);
    rig_close(&r);
}
END_TEST

/* ---- engines that can do less ---- */

START_TEST(gates_engines_that_can_do_less)
{
    struct rig r;
    md_token want[4], branch[200];
    rig_tokens(text_a, 600, 21);
    rig_fresh_answer(text_a, 150, 4, want);

    /* nothing can be evicted: a window beyond the hot set is refused, not silently shrunk */
    ck_assert_int_eq(rig_try_open(&r, rig_config(512, 128, KEEP_ALL),
                                  MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_SPARSE_ATTENTION),
                     MD_UNSUPPORTED);
    ck_assert_msg(strstr(r.err.text, "--hot") != NULL, "%s", r.err.text);
    rig_close(&r);

    /* recurrent: not even a tail can be cut; a prompt that differs starts over and is right */
    rig_open(&r, rig_config(256, 256, KEEP_ALL),
             MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CAP_SPARSE_ATTENTION |
                 MD_CAP_RECOMPUTE_RANGE);
    join(branch, text_a, 100, text_a + 300, 50);
    ck_assert_int_eq(rig_ask(&r, branch, 150, 4, false), MD_OK);
    ck_assert_int_eq(rig_ask(&r, text_a, 150, 4, false), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 150);
    ck_assert_int_eq(r.last.recomputed, 100);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    rig_close(&r);

    /* only tails can be cut, but what is cut is kept: a branch that is left is found again */
    rig_open(&r, rig_config(512, 512, KEEP_ALL), MD_CAP_REMOVE_MIDDLE | MD_CAP_RECOMPUTE_RANGE);
    ck_assert_int_eq(rig_ask(&r, text_a, 150, 4, false), MD_OK);
    ck_assert_int_eq(rig_ask(&r, branch, 150, 4, false), MD_OK); /* leaves it at 100 */
    ck_assert_int_eq(rig_ask(&r, text_a, 150, 4, false), MD_OK);
    ck_assert_int_gt(r.last.restored, 0);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    rig_close(&r);

    /* no lossless export: evicting drops, and a lost recent block is computed again by prefill */
    rig_open(&r, rig_config(2048, 128, KEEP_ALL), MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE);
    ck_assert_int_eq(rig_ask(&r, text_a, 600, 4, false), MD_OK);
    ck_assert_int_gt(r.last.dropped, 400);
    ck_assert_int_eq(rig_ask(&r, text_a, 300, 4, false), MD_OK);
    ck_assert_int_gt(r.last.recomputed, 200);
    ck_assert_int_eq((int)md_session_status(r.session).recomputed_blocks, 0);
    rig_close(&r);
    rig_open(&r, rig_config(512, 512, KEEP_ALL), MD_CAP_COLD_STORE);
    ck_assert_int_eq(rig_ask(&r, text_a, 100, 1, false), MD_OK);
    ck_assert_int_eq(rig_ask(&r, text_a, 51, 1, false), MD_OK);
    ck_assert_int_eq(r.last.dropped, 50); /* what is cut off inside a block as well */
    rig_close(&r);
}
END_TEST

/* ---- cancel ---- */

/* RecomputeRange with a cold tier: the same partition by another mechanism (the tail is cut, and what is to stay
 * comes back behind the hole).  Without a cold tier neither can carry it out: refused at open. */
START_TEST(gate_without_remove_middle_gives_the_same_hot_set)
{
    struct rig whole, tails;
    static struct md_block_view map_whole[512], map_tails[512];
    rig_tokens(text_a, 1500, 77);
    rig_open(&whole, rig_config(4096, 256, KEEP_ALL), 0);
    rig_open(&tails, rig_config(4096, 256, KEEP_ALL), MD_CAP_REMOVE_MIDDLE);
    ck_assert(!(md_engine_caps(tails.engine) & MD_CAP_REMOVE_MIDDLE));
    for (int32_t count = 700; count <= 1500; count += 400) {
        ck_assert_int_eq(rig_ask(&whole, text_a, count, 20, false), MD_OK);
        ck_assert_int_eq(rig_ask(&tails, text_a, count, 20, false), MD_OK);
        ck_assert_mem_eq(whole.last.tokens.ids, tails.last.tokens.ids, 20 * sizeof(md_token));
        ck_assert_int_eq(whole.last.attended, tails.last.attended);
        ck_assert_int_eq(whole.last.prefilled, tails.last.prefilled);
    }
    size_t n = md_session_map(whole.session, map_whole, 512);
    ck_assert_uint_eq(n, md_session_map(tails.session, map_tails, 512));
    ck_assert_mem_eq(map_whole, map_tails, n * sizeof map_whole[0]);
    rig_close(&whole);
    rig_close(&tails);
    ck_assert_int_eq(rig_try_open(&tails, rig_config(4096, 256, 0), MD_CAP_REMOVE_MIDDLE), MD_UNSUPPORTED);
    rig_close(&tails);
}
END_TEST

START_TEST(cancel_keeps_what_was_computed)
{
    struct rig r;
    rig_open(&r, rig_config(8192, 256, KEEP_ALL), 0);
    rig_tokens(text_a, 3000, 22);
    r.cancel_after = 900;
    ck_assert_int_eq(rig_ask(&r, text_a, 3000, 4, false), MD_CANCELLED);
    ck_assert_int_eq(r.last.finish, MD_FINISH_CANCELLED);
    int32_t kept = md_session_status(r.session).tape_tokens;
    ck_assert_int_gt(kept, 100);
    ck_assert_int_lt(kept, 3000);
    ck_assert_int_eq(r.last.prefilled, kept);
    r.cancel_after = -1;
    ck_assert_int_eq(rig_ask(&r, text_a, 3000, 4, false), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 3000 - kept); /* the retry pays only for the rest */
    ck_assert_int_eq(r.last.recomputed, 0);
    rig_close(&r);
}
END_TEST

START_TEST(cancel_during_decode_keeps_the_tokens)
{
    struct rig r;
    rig_open(&r, rig_config(1024, 0, 0), 0);
    rig_tokens(text_a, 10, 23);
    r.cancel_after = 40;
    ck_assert_int_eq(rig_ask(&r, text_a, 10, 500, false), MD_CANCELLED);
    ck_assert_int_gt(r.last.completion, 3);
    ck_assert_int_lt(r.last.completion, 60);
    ck_assert_int_ge(md_session_status(r.session).tape_tokens, 10 + r.last.completion - 1);
    rig_close(&r);
}
END_TEST

/* ---- anything at all ---- */

/* Prompts that share prefixes with earlier ones in every way, budgets of all sizes: the counters add up and
 * the invariants hold (rig_ask checks them), nothing is lost when the store is large, and the hot set is
 * always what a fresh session of the same history would have. */
START_TEST(walk_of_random_branches)
{
    struct rng rng = rng_open("session walk");
    static md_token prompt[4096];
    for (int round = 0; round < 6; round++) {
        struct rig r;
        size_t cold = rng_below(&rng, 3) == 0 ? rng_below(&rng, 400) * 1024 : KEEP_ALL;
        int32_t hot = (int32_t)(64 + rng_below(&rng, 300)), count = 0;
        rig_open(&r, rig_config(4096, hot, cold), 0);
        for (int i = 0; i < 40; i++) {
            count = (int32_t)rng_below(&rng, (uint32_t)count + 1); /* cut anywhere */
            int32_t more = 1 + (int32_t)rng_below(&rng, rng_below(&rng, 4) == 0 ? 900 : 120);
            if (count + more > 3000)
                count = 0;
            rig_tokens(prompt + count, more, rng_below(&rng, 5)); /* few seeds: branches meet again */
            count += more;
            r.cancel_after = rng_below(&rng, 8) == 0 ? (int)rng_below(&rng, 600) : -1;
            enum md_status s = rig_ask(&r, prompt, count, (int32_t)rng_below(&rng, 30), false);
            ck_assert_msg(s == MD_OK || (s == MD_CANCELLED && r.cancel_after == 0), "%s", r.err.text);
            if (cold == KEEP_ALL) {
                ck_assert_int_eq(r.last.dropped, 0);
                ck_assert_int_eq(md_session_status(r.session).lost_tokens, 0);
            }
            if (s == MD_OK && r.last.completion > 0) {
                memcpy(prompt + count, r.last.tokens.ids, (size_t)r.last.completion * sizeof *prompt);
                count += r.last.completion;
            }
        }
        rig_close(&r);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("session");
    TCase *c = tcase_create("session");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, b054_next_turn_reuses_prompt_and_answer);
    tcase_add_test(c, a_last_chunk_takes_one_step_with_its_last_token);
    tcase_add_test(c, b047_same_prompt_three_times);
    tcase_add_test(c, b050_reuse_is_by_token_id);
    tcase_add_test(c, b034_completion_fills_the_window);
    tcase_add_test(c, b041_prompt_beyond_the_window_is_refused);
    tcase_add_test(c, b032_generation_always_ends);
    tcase_add_test(c, bad_requests_change_nothing);
    tcase_add_test(c, b039_open_refuses_what_cannot_work);
    tcase_add_test(c, b039_short_prompt_with_large_sinks_keeps_everything);
    tcase_add_test(c, long_prompt_goes_through_a_small_hot_set);
    tcase_add_test(c, b040_one_prompt_or_many_turns_same_hot_set);
    tcase_add_test(c, branch_is_restored_and_the_old_branch_comes_back);
    tcase_add_test(c, another_question_after_a_detour_costs_only_its_own_tokens);
    tcase_add_test(c, b117_says_how_many_tokens_were_hot);
    tcase_add_test(c, b066_a_block_that_was_lost_alone_is_computed_in_place);
    tcase_add_test(c, tight_cold_budget_never_lies);
    tcase_add_test(c, a_branch_is_not_displaced_by_what_falls_off_for_it);
    tcase_add_test(c, what_is_cut_off_without_a_store_is_counted_dropped);
    tcase_add_test(c, same_text_after_another_beginning_is_not_the_same_kv);
    tcase_add_test(c, provenance_tells_exact_kv_from_the_rest);
    tcase_add_test(c, the_last_tokens_of_the_window_push_nothing_out);
    tcase_add_test(c, lost_blocks_that_fit_the_hot_set_are_computed_again);
    tcase_add_test(c, what_is_lost_is_counted_lost);
    tcase_add_test(c, a_cold_block_the_engine_will_not_have_is_computed_again);
    tcase_add_test(c, b069_restored_counts_what_is_back);
    tcase_add_test(c, gates_engines_that_can_do_less);
    tcase_add_test(c, gate_without_remove_middle_gives_the_same_hot_set);
    tcase_add_test(c, cancel_keeps_what_was_computed);
    tcase_add_test(c, cancel_during_decode_keeps_the_tokens);
    tcase_add_test(c, walk_of_random_branches);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
