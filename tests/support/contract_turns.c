/* contract_turns.c - scenarios of one conversation: EnsurePrefix, PrefillSuffix, Decode and whole prompts, what is
 * known again, prompts and answers larger than the hot set. */
#include "support/contract_run.h"

#include "policy/prefix.h"

#include <string.h>

static void check_did(int32_t reused, int32_t prefilled, int32_t dropped, int32_t suffix, int32_t prefix)
{
    ck_assert_int_eq(ct.did.reused, reused);
    ck_assert_int_eq(ct.did.prefilled, prefilled);
    ck_assert_int_eq(ct.did.dropped, dropped);
    ck_assert_int_eq(ct.did.suffix, suffix);
    ck_assert_int_eq(ct.did.prefix, prefix);
}

/* The context is these tokens, and the answer over it will be proven. */
static void decode_over(const md_token *tokens, int32_t count)
{
    int32_t have;
    const md_token *context = md_session_context(ct.s, &have);
    ck_assert_int_eq(have, count);
    ck_assert_mem_eq(context, tokens, (size_t)count * sizeof *tokens);
    CT_OK(ct_decode(CT_ANSWER));
    ck_assert_int_eq(ct.last.completion, CT_ANSWER);
    ck_assert(ct_is_full());
    ck_assert_int_eq(ct_context_count(), count + CT_ANSWER); /* the answer joins the context */
}

static int32_t append_answer(md_token *all, int32_t count)
{
    memcpy(all + count, ct.last.tokens.ids, CT_ANSWER * sizeof *all);
    return count + CT_ANSWER;
}

/* `count` tokens, the first `head` those that all of these have, the rest from elsewhere. */
static const md_token *joined(md_token *out, int32_t head, int32_t from, int32_t tail)
{
    memcpy(out, ct_text(0), (size_t)head * sizeof *out);
    memcpy(out + head, ct_text(from), (size_t)tail * sizeof *out);
    return out;
}

/* ---- the three calls ---- */

void md_contract_prefix_suffix_decode_is_a_run(int unused)
{
    (void)unused;
    md_token by_calls[CT_ANSWER];
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    CT_OK(ct_ensure(ct_text(0), 100));
    CT_OK(ct_suffix(ct_text(100), 55));
    decode_over(ct_text(0), 155);
    memcpy(by_calls, ct.last.tokens.ids, sizeof by_calls);
    ck_assert_int_eq(ct.last.prefilled, 1);
    ct_close();
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    CT_OK(ct_ask(ct_text(0), 155, CT_ANSWER));
    ck_assert_int_eq(ct.last.prefilled, 155);
    ck_assert(ct_is_full());
    if (ct.subject->tolerance == 0) /* elsewhere a tie may fall either way, and the proof sees to it */
        ck_assert_mem_eq(ct.last.tokens.ids, by_calls, sizeof by_calls);
    ct_close();
}

void md_contract_what_the_calls_answer(int unused)
{
    (void)unused;
    md_token all[CT_WINDOW];
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    CT_OK(ct_ensure(ct_text(0), 60));
    check_did(0, 60, 0, 0, 60);
    ck_assert_int_eq(ct.did.work.prefilled, 59); /* Decode evaluates the last one, for its logits */
    ck_assert_int_eq(ct.did.available, CT_WINDOW - 60);
    CT_OK(ct_suffix(ct_text(60), 30));
    check_did(0, 30, 0, 30, 60);
    ck_assert_int_eq(ct.did.work.prefilled, 30);
    CT_OK(ct_suffix(ct_text(90), 10)); /* another one: the first stays */
    check_did(0, 10, 0, 10, 60);
    ck_assert_int_eq(ct.did.resident, 100);
    CT_OK(ct_suffix(ct_text(0), 0)); /* empty: changes nothing */
    check_did(0, 0, 0, 0, 60);
    ck_assert_int_eq(ct.did.resident, 100);
    decode_over(ct_text(0), 100);
    ck_assert_int_eq(ct.last.prefilled, 1);
    int32_t count = append_answer(memcpy(all, ct_text(0), 100 * sizeof *all), 100);
    memcpy(all + count, ct_text(200), 20 * sizeof *all);
    CT_OK(ct_suffix(ct_text(200), 20)); /* the next turn */
    ck_assert_int_eq(ct.did.resident, 128);
    ck_assert_int_eq(ct.did.work.prefilled, 20); /* the last sampled one, and all but the last of these */
    decode_over(all, 128);
    /* another prefix, that leaves the old context inside it */
    CT_OK(ct_ensure(ct_text(0), 50));
    check_did(50, 0, 136 - 50, 0, 50);
    CT_OK(ct_ensure(joined(all, 40, 300, 40), 80));
    check_did(40, 40, 10, 0, 80);
    decode_over(all, 80);
    struct md_session_status st = md_session_status(ct.s);
    ck_assert_int_eq(st.prefix_tokens, 80);
    ck_assert_int_eq(st.context_tokens, 88);
    ck_assert_int_eq((int)st.decode_calls, 3);
    ct_close();
}

void md_contract_a_prefix_again_keeps_the_tail_for_the_suffix_that_matches(int unused)
{
    (void)unused;
    md_token other[160];
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    CT_OK(ct_ensure(ct_text(0), 70));
    CT_OK(ct_suffix(ct_text(70), 90));
    decode_over(ct_text(0), 160);
    CT_OK(ct_ensure(ct_text(0), 70));
    check_did(70, 0, 98, 0, 70);
    ck_assert_int_eq(ct.did.work.prefilled, 0);
    ck_assert_int_eq(md_session_status(ct.s).tape_tokens, 167); /* the tail is still there */
    CT_OK(ct_suffix(ct_text(70), 90));                          /* the same: costs nothing */
    ck_assert_int_eq(ct.did.work.prefilled, 0);
    ck_assert(ct.did.work.restored == 0 || (ct_is_whole() && ct.did.work.restored == 159));
    decode_over(ct_text(0), 160);
    ck_assert_int_eq(ct.last.prefilled, 1);
    /* one that matches a part: only the rest */
    joined(other, 130, 500, 30);
    CT_OK(ct_ensure(ct_text(0), 70));
    CT_OK(ct_suffix(other + 70, 90));
    ct_costs(ct.did.work.prefilled, 29);
    decode_over(other, 160);
    /* and Decode over a prefix whose tail nobody wanted */
    CT_OK(ct_ensure(ct_text(0), 70));
    decode_over(ct_text(0), 70);
    ct_close();
}

void md_contract_b048_prefix_empty_suffix_decode_again(int unused)
{
    (void)unused;
    static const int32_t counts[] = { 100, 96, 1 }; /* inside a block, at its border, one token */
    for (size_t i = 0; i < (ct_is_slow() ? 1 : 3); i++) {
        ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
        for (int round = 0; round < 3; round++) {
            CT_OK(ct_ensure(ct_text(0), counts[i]));
            ck_assert_int_eq(ct.did.reused, round == 0 ? 0 : counts[i]);
            CT_OK(ct_suffix(ct_text(0), 0));
            decode_over(ct_text(0), counts[i]);
            ck_assert_int_eq(ct.last.prefilled, 1); /* the last token is evaluated again */
        }
        ct_close();
    }
}

void md_contract_b054_the_next_turn_by_prefix_and_suffix(int unused)
{
    (void)unused;
    md_token next[138];
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    CT_OK(ct_ensure(ct_text(0), 100));
    decode_over(ct_text(0), 100);
    int32_t count = append_answer(memcpy(next, ct_text(0), 100 * sizeof *next), 100);
    memcpy(next + count, ct_text(100), 30 * sizeof *next);
    CT_OK(ct_ensure(next, 138));
    check_did(108, 30, 0, 0, 138);
    ck_assert_int_eq(ct.did.work.cached, 107); /* the last sampled token was never fed to the model */
    ck_assert_int_eq(ct.did.work.prefilled, 30);
    decode_over(next, 138);
    ck_assert_int_eq(ct.last.cached, 137); /* 30 and 1: with the 107 they add up to 138 */
    ct_close();
}

void md_contract_b041_each_call_names_the_window_it_does_not_fit(int unused)
{
    (void)unused;
    ct_open(ct_config(128, 128, CT_KEEP_ALL));
    ck_assert_int_eq(ct_ensure(ct_text(0), 129), MD_TOO_LARGE);
    ct_says("129 tokens", "window is 128");
    ck_assert_int_eq(ct_ask(ct_text(0), 128, CT_ANSWER), MD_TOO_LARGE); /* no room for an answer */
    ct_says("128", "128");
    ck_assert_int_eq(ct_context_count(), 0);
    CT_OK(ct_ensure(ct_text(0), 100));
    ck_assert_int_eq(ct_suffix(ct_text(100), 29), MD_TOO_LARGE);
    ct_says("29 tokens behind 100", "window is 128");
    CT_OK(ct_suffix(ct_text(100), 28)); /* fills it to the last token */
    ck_assert_int_eq(ct.did.available, 0);
    ck_assert_int_eq(ct_decode(CT_ANSWER), MD_TOO_LARGE);
    ct_says("128 tokens", "window of 128");
    ck_assert_int_eq(ct_suffix(ct_text(0), 1), MD_TOO_LARGE);
    CT_OK(ct_suffix(ct_text(0), 0));
    ck_assert_int_eq(ct_context_count(), 128);
    CT_OK(ct_ensure(ct_text(0), 128));
    check_did(128, 0, 0, 0, 128);
    CT_OK(ct_ensure(ct_text(0), 127)); /* room for one */
    CT_OK(ct_decode(CT_ANSWER));
    ck_assert_int_eq(ct.last.completion, 1);
    ck_assert_int_eq(ct.last.finish, MD_FINISH_LENGTH);
    ct_close();
}

/* ---- known again ---- */

void md_contract_cold_then_warm(int unused)
{
    (void)unused;
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    struct ct_talk *t = ct_talk_open(0, 0);
    ck_assert(ct_say(t, 200, 0));
    ck_assert_int_eq(ct.last.prefilled, 200);
    for (int32_t turn = 1; turn <= 3; turn++) {
        ck_assert(ct_say(t, 20, 300 + 20 * turn));
        ck_assert_int_eq(ct.last.cached, t->count - CT_ANSWER - 21); /* all but the end of the last answer */
        ck_assert_int_eq(ct.last.prefilled, 21);
        ck_assert_int_eq(ct.last.restored, 0);
    }
    CT_OK(ct_ask(t->said, t->count - CT_ANSWER, CT_ANSWER)); /* the same once more */
    ck_assert_int_eq(ct.last.prefilled, 1);
    ck_assert(ct_is_full());
    ct_close();
}

void md_contract_a_changed_prefix_and_back(int unused)
{
    (void)unused;
    md_token changed[200];
    memcpy(changed, ct_text(0), sizeof changed);
    changed[90] = *ct_text(191) != changed[90] ? *ct_text(191) : *ct_text(192);
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    CT_OK(ct_ask(ct_text(0), 200, CT_ANSWER));
    CT_OK(ct_ask(changed, 200, CT_ANSWER));
    ct_costs(ct.last.prefilled, 110);
    ck_assert(ct_is_full());
    CT_OK(ct_ask(ct_text(0), 200, CT_ANSWER)); /* what fell off is cold, its last block too */
    ck_assert_int_eq(ct.last.prefilled, 1);
    ck_assert_int_ge(ct.last.restored, 199 - 96);
    ck_assert_int_eq(ct.last.recomputed + ct.last.dropped, 0);
    ck_assert(ct_is_full());
    ct_close();
}

void md_contract_a_warm_suffix_answers_as_a_cold_one(int unused)
{
    (void)unused;
    static const int32_t suffixes[] = { 300, 500, 300, 500 }; /* each cold, then each warm */
    md_token all[160];
    /* they may begin with the same words */
    const int32_t same = (int32_t)md_prefix_common(ct_text(300), 70, ct_text(500), 70);
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    for (size_t i = 0; i < 4; i++) {
        joined(all, 90, suffixes[i], 70);
        CT_OK(ct_ensure(all, 90));
        ck_assert_int_eq(ct.did.reused, i == 0 ? 0 : 90);
        CT_OK(ct_suffix(all + 90, 70));
        ct_costs(ct.did.work.prefilled, i == 0 ? 70 : i < 2 ? 69 - same : 0);
        ck_assert(ct_is_whole() ||
                  (ct.did.work.restored > 0) == (i >= 2)); /* there to go back is one as well */
        decode_over(all, 160);
        ck_assert_int_eq(ct.last.prefilled, 1);
    }
    ct_close();
}

void md_contract_histories_sent_again_are_restored(int unused)
{
    (void)unused;
    static const struct {
        int32_t head, from, tail, prefilled; /* what is new of it; 15 and less are in no whole block */
    } visits[] = { { 150, 400, 150, 300 }, { 150, 700, 100, 100 }, { 150, 400, 150, 1 },
                   { 64, 1000, 160, 160 }, { 150, 700, 100, 1 },   { 150, 400, 150, 1 },
                   { 64, 1000, 100, 1 },   { 150, 400, 80, 1 } };
    enum { VISITS = sizeof visits / sizeof visits[0] };
    int32_t restored = 0;
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    for (size_t i = 0; i < (ct_half_will_do() ? VISITS / 2 : VISITS); i++) {
        md_token prompt[CT_WINDOW];
        int32_t count = visits[i].head + visits[i].tail;
        CT_OK(ct_ask(joined(prompt, visits[i].head, visits[i].from, visits[i].tail), count, CT_ANSWER));
        ct_costs(ct.last.prefilled, visits[i].prefilled);
        ck_assert_int_eq(ct.last.dropped, 0);
        ct_costs(ct.last.recomputed, 0);
        ck_assert(ct_is_full());
        restored += ct.last.restored;
    }
    ck_assert_int_gt(restored, ct_half_will_do() ? 100 : 600);
    ct_close();
}

/* ---- larger than the hot set ---- */

static void check_all_is_kept(void)
{
    struct md_session_status st = md_session_status(ct.s);
    ck_assert_int_eq(st.hot_tokens + st.cold_tokens, st.tape_tokens);
    ck_assert_int_eq(st.lost_tokens, 0);
    ck_assert_int_eq((int)st.dropped_blocks, 0);
    ck_assert_int_eq(st.hot_tokens, md_engine_cells_used(ct.engine));
    ck_assert_int_ge(md_pool_status(ct.pool).cold.token_count, st.cold_tokens);
    ck_assert_int_eq(ct.last.dropped + ct.last.lost, 0);
    ct_costs(ct.last.recomputed, 0);
}

void md_contract_b040_a_turn_larger_than_the_hot_set_is_absorbed(int unused)
{
    (void)unused;
    md_token next[CT_WINDOW];
    ct_open(ct_config(2 * CT_WINDOW, 128, CT_KEEP_ALL));
    CT_OK(ct_ensure(ct_text(0), 250));
    ck_assert_int_eq(ct.did.work.prefilled, 249);
    CT_OK(ct_suffix(ct_text(250), 130)); /* by itself more than the hot set */
    ck_assert_int_eq(ct.did.work.prefilled, 130);
    CT_OK(ct_decode(CT_ANSWER));
    ck_assert_int_eq(ct.last.completion, CT_ANSWER);
    ck_assert_int_gt(ct.cells_max, 128 / 2);
    ck_assert_int_ge((int)md_session_status(ct.s).evicted_blocks, (380 - 128) / CT_BLOCK);
    check_all_is_kept();
    /* the same again, and the next turn: only what is new */
    int32_t count = append_answer(memcpy(next, ct_text(0), 380 * sizeof *next), 380);
    CT_OK(ct_ensure(ct_text(0), 250));
    CT_OK(ct_suffix(ct_text(250), 130));
    ck_assert_int_eq(ct.did.work.prefilled, 0);
    memcpy(next + count, ct_text(500), 20 * sizeof *next);
    CT_OK(ct_ask(next, count + 20, CT_ANSWER));
    ck_assert_int_eq(ct.last.prefilled, 21);
    check_all_is_kept();
    /* away to another history and back: nothing is lost, nothing computed twice */
    CT_OK(ct_ask(joined(next, 100, 700, 120), 220, CT_ANSWER));
    ct_costs(ct.last.prefilled, 120);
    CT_OK(ct_ask(ct_text(0), 380, CT_ANSWER));
    ck_assert_int_eq(ct.last.prefilled, 1);
    ck_assert_int_gt(ct.last.restored, 0);
    check_all_is_kept();
    ct_close();
}

void md_contract_b072_without_a_cold_store_it_drops_and_says_so(int unused)
{
    (void)unused;
    static const size_t budgets[] = { 0, 100 }; /* none, and less than one block */
    for (size_t i = 0; i < 2; i++) {
        ct_open(ct_config(2 * CT_WINDOW, 128, budgets[i]));
        CT_OK(ct_ask(ct_text(0), 380, CT_ANSWER));
        struct md_session_status st = md_session_status(ct.s);
        const int32_t left = 380 + CT_ANSWER - 1 - st.hot_tokens;
        ck_assert_int_ge(left, 380 - 128);
        ck_assert_int_eq(ct.last.dropped, left);
        ck_assert_int_eq(st.lost_tokens, left);
        ck_assert_int_eq(st.cold_tokens, 0); /* no claim that it is cold */
        ck_assert_uint_eq(md_pool_status(ct.pool).cold.used_bytes, 0);
        /* later need: computed again, and counted so */
        md_token other[220];
        CT_OK(ct_ask(joined(other, 180, 700, 40), 220, CT_ANSWER));
        ck_assert_int_gt(ct.last.recomputed, 0);
        ck_assert_int_eq(ct.last.prefilled, 40 + ct.last.recomputed);
        ck_assert_int_eq(ct.last.restored, 0);
        ct_close();
        if (ct_is_slow())
            break;
    }
}

/* Four on the exact model, and on tiny ones; two on real ones, which are slow. */
void md_contract_an_answer_of_four_hot_sets_stays_within_one(int unused)
{
    (void)unused;
    enum { HOT = 96 };
    const int32_t answer = (ct_is_slow() ? 2 : 4) * HOT; /* each block of it makes another one leave */
    ct_open(ct_config(CT_WINDOW, HOT, CT_KEEP_ALL));
    CT_OK(ct_ask(ct_text(0), HOT, answer));
    ck_assert_int_eq(ct.last.completion, answer);
    ck_assert_int_le(ct.last.hot, HOT);
    ck_assert_int_ge((int)md_session_status(ct.s).evicted_blocks, answer / CT_BLOCK);
    check_all_is_kept();
    ct_close();
}
