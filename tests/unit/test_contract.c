/* test_contract.c - EnsurePrefix, PrefillSuffix, Decode one by one: what they answer, their limits, what a cancel
 * leaves.  On the fake engine, whose KV is exact to the last bit, so that "as a fresh run" means equal. */
#include "support/run_suite.h"
#include "support/session_rig.h"

#include <check.h>
#include <string.h>

enum { KEEP_ALL = 64 << 20, ANSWER = 8, TEXT = 2048 };

static md_token text[TEXT];

static void fill(void)
{
    rig_tokens(text, TEXT, 1);
}

static int32_t context_count(const struct rig *r)
{
    int32_t count;
    (void)md_session_context(r->session, &count);
    return count;
}

/* Context and answer are what a fresh run over `count` tokens makes of them. */
static void decode_as_fresh(struct rig *r, const md_token *tokens, int32_t count)
{
    md_token want[ANSWER];
    int32_t have;
    rig_fresh_answer(tokens, count, ANSWER, want);
    const md_token *context = md_session_context(r->session, &have);
    ck_assert_int_eq(have, count);
    ck_assert_mem_eq(context, tokens, (size_t)count * sizeof *tokens);
    ck_assert_msg(rig_decode(r, ANSWER) == MD_OK, "%s", r->err.text);
    ck_assert_int_eq(r->last.completion, ANSWER);
    ck_assert_mem_eq(r->last.tokens.ids, want, sizeof want);
    ck_assert_int_eq(context_count(r), count + ANSWER); /* the answer joins the context */
}

static void check_did(const struct rig *r, int32_t reused, int32_t prefilled, int32_t dropped, int32_t suffix,
                      int32_t prefix)
{
    ck_assert_int_eq(r->did.reused, reused);
    ck_assert_int_eq(r->did.prefilled, prefilled);
    ck_assert_int_eq(r->did.dropped, dropped);
    ck_assert_int_eq(r->did.suffix, suffix);
    ck_assert_int_eq(r->did.prefix, prefix);
}

static bool never_mind(void *user)
{
    (void)user;
    return true;
}

/* ---- the three calls ---- */

START_TEST(b048_nothing_at_all_is_a_clear_error)
{
    struct rig r;
    rig_open(&r, rig_config(256, 256, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 0), MD_OK); /* a chat without a system text has none */
    check_did(&r, 0, 0, 0, 0, 0);
    ck_assert_int_eq(rig_suffix(&r, text, 0), MD_OK);
    ck_assert_int_eq(rig_decode(&r, ANSWER), MD_INVALID);
    ck_assert_msg(strstr(r.err.text, "context is empty") != NULL, "%s", r.err.text);
    ck_assert_int_eq(rig_suffix(&r, text, 5), MD_OK); /* without a prefix */
    decode_as_fresh(&r, text, 5);
    ck_assert_int_eq(rig_ensure(&r, text, 0), MD_OK);
    check_did(&r, 0, 0, 13, 0, 0);
    ck_assert_int_eq(context_count(&r), 0);
    ck_assert_int_eq(rig_suffix(&r, text, 5), MD_OK); /* what fell off is still known */
    ck_assert_int_eq(r.did.work.prefilled, 0);
    decode_as_fresh(&r, text, 5);
    rig_close(&r);
}
END_TEST

/* Another runtime: nothing that was computed before may be used, hot or cold (the session protocol's EnsurePrefix). */
START_TEST(a_fresh_prefix_uses_nothing_of_before)
{
    struct rig r;
    const struct md_context prefix = { .tokens = text, .count = 80 };
    rig_open(&r, rig_config(256, 128, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 80), MD_OK);
    ck_assert_int_eq(rig_suffix(&r, text + 80, 100), MD_OK); /* some of it is cold */
    ck_assert_int_gt(md_session_status(r.session).cold_tokens, 0);
    ck_assert_int_eq(md_session_ensure_prefix(r.session, &prefix, true, NULL, &r.did, NULL), MD_OK);
    check_did(&r, 0, 80, 180, 0, 80);
    ck_assert_int_eq(r.did.work.prefilled, 79);
    ck_assert_int_eq(r.did.work.restored, 0);
    decode_as_fresh(&r, text, 80);
    rig_close(&r);
}
END_TEST

/* A template that writes the prefix otherwise once more follows: the suffix says how much of it stays. */
START_TEST(a_suffix_may_cut_the_prefix)
{
    struct rig r;
    md_token all[256];
    rig_open(&r, rig_config(256, 256, KEEP_ALL), 0);
    const struct md_segment g[] = { { .range = { 0, 40 }, .stable = true }, { .range = { 40, 60 } } };
    const struct md_context prefix = { text, 60, g, 2 }, suffix = { .tokens = text + 500, .count = 30 };
    ck_assert_int_eq(md_session_ensure_prefix(r.session, &prefix, false, NULL, &r.did, NULL), MD_OK);
    ck_assert_int_eq(rig_suffix(&r, text + 60, 40), MD_OK);
    ck_assert_int_eq(md_session_prefill_suffix(r.session, &suffix, 61, NULL, &r.did, &r.err), MD_INVALID);
    ck_assert_int_eq(md_session_prefill_suffix(r.session, &suffix, -2, NULL, &r.did, &r.err), MD_INVALID);
    /* one that fails leaves all as it was */
    const struct md_sink cancels = { .cancelled = never_mind };
    ck_assert_int_eq(md_session_prefill_suffix(r.session, &suffix, 50, &cancels, &r.did, NULL), MD_CANCELLED);
    size_t count;
    const struct md_segment *have = md_session_segments(r.session, &count);
    ck_assert(count == 2 && have[1].range.start == 40 && have[1].range.end == 60);
    ck_assert_int_eq(md_session_status(r.session).prefix_tokens, 60);
    decode_as_fresh(&r, text, 100);
    /* and one that does not */
    ck_assert_int_eq(md_session_prefill_suffix(r.session, &suffix, 50, NULL, &r.did, NULL), MD_OK);
    check_did(&r, 0, 30, 0, 30, 50);
    ck_assert_int_eq(r.did.resident, 80);
    ck_assert_int_eq(r.did.work.cached, 50);
    have = md_session_segments(r.session, &count);
    ck_assert(count == 2 && have[1].range.end == 50);
    memcpy(all, text, 50 * sizeof *all);
    memcpy(all + 50, text + 500, 30 * sizeof *all);
    decode_as_fresh(&r, all, 80);
    /* all of the prefix: nothing is cut, and what follows stays */
    ck_assert_int_eq(md_session_prefill_suffix(r.session, &suffix, 50, NULL, &r.did, NULL), MD_OK);
    ck_assert_int_eq(r.did.resident, 118);
    const struct md_context none = { 0 };
    ck_assert_int_eq(md_session_prefill_suffix(r.session, &none, 10, NULL, &r.did, NULL), MD_OK);
    check_did(&r, 0, 0, 0, 0, 10);
    decode_as_fresh(&r, text, 10);
    rig_close(&r);
}
END_TEST

START_TEST(b047_the_same_prefix_three_times)
{
    struct rig r;
    struct md_pool_config c = rig_config(256, 256, KEEP_ALL);
    c.block_tokens = MD_BLOCK_TOKENS_MIN;
    rig_open(&r, c, 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(rig_ensure(&r, text, 12), MD_OK);
        decode_as_fresh(&r, text, 12);
        ck_assert_int_eq(r.last.prompt, 12);
    }
    rig_close(&r);
}
END_TEST

START_TEST(b050_another_tokenization_of_the_answer)
{
    struct rig r;
    md_token sent[128];
    rig_open(&r, rig_config(256, 256, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 60), MD_OK);
    ck_assert_int_eq(rig_decode(&r, 10), MD_OK);
    memcpy(sent, text, 60 * sizeof *sent);
    memcpy(sent + 60, r.last.tokens.ids, 10 * sizeof *sent);
    sent[63] = (sent[63] + 1) % 256; /* one id stands for two */
    memmove(sent + 64, sent + 65, 5 * sizeof *sent);
    ck_assert_int_eq(rig_ensure(&r, text, 60), MD_OK);
    ck_assert_int_eq(rig_suffix(&r, sent + 60, 9), MD_OK);
    ck_assert_int_eq(r.did.work.cached, 63);
    decode_as_fresh(&r, sent, 69);
    rig_close(&r);
}
END_TEST

/* ---- limits ---- */

static void says(const struct rig *r, const char *a, const char *b)
{
    ck_assert_msg(strstr(r->err.text, a) != NULL && strstr(r->err.text, b) != NULL, "%s", r->err.text);
}

START_TEST(bad_calls_change_nothing)
{
    struct rig r;
    md_token bad[] = { 1, 2, 259 };
    rig_open(&r, rig_config(128, 128, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 50), MD_OK);
    ck_assert_int_eq(rig_ensure(&r, bad, 3), MD_INVALID);
    says(&r, "token 2", "259");
    ck_assert_int_eq(rig_suffix(&r, bad, 3), MD_INVALID);
    ck_assert_int_eq(rig_decode(&r, -2), MD_INVALID);
    ck_assert_int_eq(context_count(&r), 50);
    ck_assert_int_eq(rig_decode(&r, 0), MD_OK); /* nothing is sampled */
    ck_assert_int_eq(r.last.completion, 0);
    decode_as_fresh(&r, text, 50);
    rig_close(&r);
}
END_TEST

/* ---- cancel ---- */

/* The context is a prefix of text, and the tape computed of it is what the engine has. */
static void check_context(const struct rig *r, int32_t least, int32_t most)
{
    int32_t count;
    const md_token *context = md_session_context(r->session, &count);
    ck_assert_int_ge(count, least);
    ck_assert_int_le(count, most);
    if (count > 0)
        ck_assert_mem_eq(context, text, (size_t)count * sizeof *text);
}

/* Cancel a prefix that goes on with the first `known` tokens of text at each of its polls; what was computed is not
 * paid again. */
static void cancel_ensure(int32_t hot, int32_t known)
{
    bool met = true;
    int cancels = 0;
    for (int nth = 0; met; nth += hot < 512 ? 7 : 1) {
        struct rig r;
        rig_open(&r, rig_config(512, hot, KEEP_ALL), 0);
        if (known > 0)
            ck_assert_int_eq(rig_ensure(&r, text, known), MD_OK);
        r.cancel_after = nth;
        enum md_status s = rig_ensure(&r, text, 300);
        met = s == MD_CANCELLED;
        ck_assert_msg(met || s == MD_OK, "%s", r.err.text);
        r.cancel_after = -1;
        cancels += met;
        int32_t tape = md_session_status(r.session).tape_tokens;
        if (met) {
            check_context(&r, known > 0 ? known - 1 : 0, 300);
            ck_assert_int_eq(context_count(&r), tape); /* the context is what of the prefix was computed */
        }
        ck_assert_int_eq(rig_ensure(&r, text, 300), MD_OK);
        ck_assert_int_eq(r.did.work.prefilled, 299 - tape);
        ck_assert_int_eq(r.did.work.recomputed, 0);
        if (hot == 512)
            decode_as_fresh(&r, text, 300);
        rig_close(&r);
    }
    ck_assert_int_gt(cancels, 4);
}

START_TEST(a_prefix_cancelled_at_every_poll)
{
    cancel_ensure(512, 0);
    cancel_ensure(512, 90);
    cancel_ensure(128, 90);
}
END_TEST

START_TEST(a_prefix_cancelled_at_once_is_not_what_was_there_before)
{
    /* the old context has nothing in common with the new one: nothing of the new one was computed */
    struct rig r;
    md_token other[200];
    rig_tokens(other, 200, 7);
    rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
    ck_assert_int_eq(rig_ensure(&r, other, 200), MD_OK);
    r.cancel_after = 0;
    ck_assert_int_eq(rig_ensure(&r, text, 100), MD_CANCELLED);
    r.cancel_after = -1;
    ck_assert_int_eq(context_count(&r), 0);
    ck_assert_int_eq(rig_ensure(&r, other, 200), MD_OK); /* and the old one is still known */
    ck_assert_int_le(r.did.work.prefilled, 1);
    ck_assert_int_eq(rig_ensure(&r, text, 100), MD_OK);
    decode_as_fresh(&r, text, 100);
    /* the same where the turn cannot even begin: no sequence can be had, for the one that lends it cannot leave */
    rig_close(&r);
    rig_open_seqs(&r, rig_config(512, 512, KEEP_ALL), 0, 1);
    ck_assert_int_eq(rig_ensure(&r, other, 200), MD_OK);
    struct md_session *first = r.session, *second = rig_new(&r);
    r.session = second;
    ck_assert_int_eq(rig_ensure(&r, other + 50, 40), MD_OK);
    r.session = first;
    r.fault = (struct md_fault){ .op = MD_OP_EXPORT, .nth = 1, .status = MD_INTERNAL };
    ck_assert_int_eq(rig_ensure(&r, text, 100), MD_INTERNAL);
    ck_assert_int_eq(context_count(&r), 0);
    ck_assert_int_eq(rig_ensure(&r, text, 100), MD_OK);
    decode_as_fresh(&r, text, 100);
    rig_close(&r);
}
END_TEST

static void cancel_suffix(int32_t hot)
{
    bool met = true;
    int cancels = 0;
    for (int nth = 0; met; nth += hot < 512 ? 7 : 1) {
        struct rig r;
        rig_open(&r, rig_config(512, hot, KEEP_ALL), 0);
        ck_assert_int_eq(rig_ensure(&r, text, 100), MD_OK);
        r.cancel_after = nth;
        enum md_status s = rig_suffix(&r, text + 100, 250);
        met = s == MD_CANCELLED;
        ck_assert_msg(met || s == MD_OK, "%s", r.err.text);
        r.cancel_after = -1;
        cancels += met;
        int32_t tape = md_session_status(r.session).tape_tokens;
        if (met)
            check_context(&r, 100, 100); /* as before */
        if (met && nth % 2 == 1) {       /* another suffix may come instead */
            ck_assert_int_eq(rig_suffix(&r, text + 600, 50), MD_OK);
            ck_assert_int_eq(rig_ensure(&r, text, 100), MD_OK);
        }
        if (met)
            ck_assert_int_eq(rig_suffix(&r, text + 100, 250), MD_OK);
        if (met && nth % 2 == 0)
            ck_assert_int_eq(r.did.work.prefilled, 349 - tape);
        ck_assert_int_eq(r.did.work.recomputed, 0);
        if (hot == 512)
            decode_as_fresh(&r, text, 350);
        rig_close(&r);
    }
    ck_assert_int_gt(cancels, 4);
}

START_TEST(a_suffix_cancelled_at_every_poll)
{
    cancel_suffix(512);
    cancel_suffix(128);
}
END_TEST

START_TEST(an_answer_cancelled_at_every_poll)
{
    md_token want[32];
    bool met = true;
    int cancels = 0;
    rig_fresh_answer(text, 100, 32, want);
    for (int nth = 0; met; nth++) {
        struct rig r;
        rig_open(&r, rig_config(512, 512, KEEP_ALL), 0);
        ck_assert_int_eq(rig_ensure(&r, text, 100), MD_OK);
        r.cancel_after = nth;
        enum md_status s = rig_decode(&r, 32);
        met = s == MD_CANCELLED;
        ck_assert_msg(met || s == MD_OK, "%s", r.err.text);
        r.cancel_after = -1;
        cancels += met;
        const int32_t done = (int32_t)r.last.tokens.count, count = context_count(&r);
        ck_assert_int_eq(count, 100 + done); /* what was sampled stays */
        ck_assert_int_eq(r.last.completion, done);
        ck_assert_int_eq(r.last.finish, met ? MD_FINISH_CANCELLED : MD_FINISH_LENGTH);
        ck_assert_int_ge(md_session_status(r.session).tape_tokens, count - 2);
        for (int32_t i = 0; i < done; i++)
            ck_assert_int_eq(r.last.tokens.ids[i], want[i]);
        if (met) { /* and Decode goes on where it was */
            ck_assert_int_eq(rig_decode(&r, 32 - done), MD_OK);
            ck_assert_mem_eq(r.last.tokens.ids, want + done, (size_t)(32 - done) * sizeof *want);
        }
        rig_close(&r);
    }
    ck_assert_int_gt(cancels, 30);
}
END_TEST

START_TEST(a_disconnect_during_prefill_is_paid_once)
{
    static const int percents[] = { 10, 50, 90 };
    for (int residency = 0; residency < 2; residency++) {
        int polls = 0;
        for (size_t i = 0; i < 4; i++) { /* the first time counts the polls */
            struct rig r;
            rig_open(&r, rig_config(2048, residency ? 256 : 0, KEEP_ALL), 0);
            r.cancel_after = i == 0 ? 1 << 30 : polls * percents[i - 1] / 100;
            enum md_status s = rig_ask(&r, text, 1500, 1, false);
            if (i == 0) {
                ck_assert_int_eq(s, MD_OK);
                polls = (1 << 30) - r.cancel_after;
                rig_close(&r);
                continue;
            }
            ck_assert_int_eq(s, MD_CANCELLED);
            int32_t tape = md_session_status(r.session).tape_tokens;
            ck_assert_int_ge(tape, 1500 * percents[i - 1] / 100 - 128); /* a batch at most is lost */
            r.cancel_after = -1;
            ck_assert_int_eq(rig_ask(&r, text, 1500, 1, false), MD_OK);
            ck_assert_int_eq(r.last.prefilled, 1500 - tape);
            ck_assert_int_eq(r.last.recomputed + r.last.dropped, 0);
            rig_close(&r);
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("contract");
    TCase *c = tcase_create("contract");
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_test(c, b048_nothing_at_all_is_a_clear_error);
    tcase_add_test(c, a_fresh_prefix_uses_nothing_of_before);
    tcase_add_test(c, a_suffix_may_cut_the_prefix);
    tcase_add_test(c, b047_the_same_prefix_three_times);
    tcase_add_test(c, b050_another_tokenization_of_the_answer);
    tcase_add_test(c, bad_calls_change_nothing);
    tcase_add_test(c, a_prefix_cancelled_at_every_poll);
    tcase_add_test(c, a_prefix_cancelled_at_once_is_not_what_was_there_before);
    tcase_add_test(c, a_suffix_cancelled_at_every_poll);
    tcase_add_test(c, an_answer_cancelled_at_every_poll);
    tcase_add_test(c, a_disconnect_during_prefill_is_paid_once);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
