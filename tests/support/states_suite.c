/* states_suite.c - see states_suite.h. */
#include "support/states_suite.h"

#include "session/disk.h"
#include "session/snapshot.h"
#include "support/rng.h"
#include "support/run_suite.h"
#include "support/talker.h"
#include "support/temp_folder.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ANSWER = 6, EVERY = 64, CELLS = MD_STATES_CELLS, VOCAB_MAX = 512 };

static const struct md_states_subject *subject;
static struct talker t;

static struct md_pool_config config(int32_t hot)
{
    return (struct md_pool_config){ .window_tokens = CELLS,
                                    .hot_tokens = hot,
                                    .residency = true,
                                    .block_tokens = 16,
                                    .sink_tokens = 16,
                                    .recent_tokens = 128, /* the window and a batch, at least */
                                    .cold_bytes = 1 << 26,
                                    .checkpoint_tokens = EVERY };
}

/* Ranges of it leave and come back; else it is a whole. */
static bool has_ranges(void)
{
    return (md_engine_caps(subject->engine) & MD_CAP_REMOVE_MIDDLE) != 0;
}

static void ask(const md_token *prompt, int32_t count)
{
    ck_assert_msg(talker_ask(&t, prompt, count, ANSWER) == MD_OK, "%s", t.err.text);
    ck_assert(!t.broken && (int)t.last.tokens.count == ANSWER);
}

/* The last answer and the logits it was chosen from. */
struct answer {
    md_token tokens[ANSWER];
    float logits[ANSWER * VOCAB_MAX];
};
static float logits[ANSWER * VOCAB_MAX]; /* of the talker */

static void keep(struct answer *a)
{
    memcpy(a->tokens, t.last.tokens.ids, sizeof a->tokens);
    memcpy(a->logits, logits, sizeof logits);
}

/* A conversation of its own, in a pool of its own, has the same logits at each step, as long as the same is chosen; the
 * talker's is closed. */
static void check_fresh(const md_token *prompt, int32_t count, const struct answer *a)
{
    const int32_t vocab = md_engine_info(subject->engine)->vocab_count;
    talker_open(&t, subject->engine, subject->text, config(CELLS));
    ask(prompt, count);
    for (int i = 0; i < ANSWER; i++) {
        float most = 0;
        for (int32_t v = 0; v < vocab; v++)
            most = fmaxf(most, fabsf(logits[i * vocab + v] - a->logits[i * vocab + v]));
        ck_assert_msg(most <= subject->tolerance, "%s: logits of step %d are off by %g", subject->name, i,
                      (double)most);
        if (t.gap[i] <
            10 * subject->tolerance) /* a coin may fall either way, and what follows is another text */
            break;
        ck_assert_msg(a->tokens[i] == t.last.tokens.ids[i], "%s: token %d of the answer is another",
                      subject->name, i);
    }
    talker_close(&t);
}

START_TEST(an_edit_computes_what_follows_the_last_checkpoint)
{
    static const int32_t edits[] = { 899, 880, 830, 700, 333, 40, 3 };
    md_token prompt[900];
    struct answer answer;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        memcpy(prompt, subject->tokens, sizeof prompt);
        talker_open(&t, subject->engine, subject->text, config(CELLS));
        ask(prompt, 900);
        prompt[edits[i]] ^= 1;
        ask(prompt, 900);
        ck_assert_int_le(t.last.prefilled, 900 - edits[i] + EVERY);
        keep(&answer);
        prompt[edits[i]] ^= 1; /* and back: to the end of the first, which was kept */
        ask(prompt, 900);
        ck_assert_int_le(t.last.prefilled, 1 + EVERY);
        prompt[edits[i]] ^= 1;
        talker_close(&t);
        check_fresh(prompt, 900, &answer);
    }
}
END_TEST

/* One sequence for both: each turn of the one costs the other nothing but a restore. */
START_TEST(conversations_take_turns)
{
    md_token prompt[2][600];
    struct answer answer;
    int32_t count[2] = { 200, 150 };
    struct md_session *s[2];
    for (int32_t hot = has_ranges() ? 256 : CELLS; hot <= CELLS; hot += CELLS - 256) {
        talker_open(&t, subject->engine, subject->text, config(hot));
        s[0] = t.session;
        ck_assert_int_eq(md_pool_new(t.pool, &s[1], &t.err), MD_OK);
        count[0] = 200, count[1] = 150;
        for (int k = 0; k < 2; k++)
            memcpy(prompt[k], subject->tokens + 1000 * k, sizeof prompt[k]);
        for (int turn = 0; turn < 10; turn++) {
            const int k = turn % 2;
            t.session = s[k];
            const int32_t new_tokens = turn < 2 ? count[k] : 21;
            ask(prompt[k], count[k]);
            ck_assert_int_eq(t.last.prefilled, new_tokens);
            ck_assert_int_eq(t.last.lost + t.last.recomputed + t.last.dropped, 0);
            keep(&answer);
            memcpy(prompt[k] + count[k], answer.tokens, sizeof answer.tokens);
            count[k] += ANSWER + 20;
        }
        talker_close(&t);
        if (hot == CELLS)
            check_fresh(prompt[1], count[1] - ANSWER - 20, &answer);
    }
}
END_TEST

/* What has no ranges stays whole, and says so. */
static void check_whole(void)
{
    const struct md_pool_config small = config(256);
    struct md_pool *pool = NULL;
    int32_t n;
    ck_assert_int_eq(md_pool_open(&small, subject->engine, subject->text, &pool, &t.err), MD_UNSUPPORTED);
    talker_open(&t, subject->engine, subject->text, config(CELLS));
    ask(subject->tokens, 700);
    ck_assert_int_eq(t.last.hot, 700 - 1 + ANSWER);
    ck_assert_int_eq(md_session_evict_range(t.session, (struct md_range){ 320, 384 }, &n, &t.err),
                     MD_UNSUPPORTED);
    ck_assert_int_eq(md_session_admit_range(t.session, (struct md_range){ 320, 384 }, &n, &t.err), MD_OK);
    ck_assert_int_eq(n, 64);
    talker_close(&t);
}

/* Far past the hot set: old blocks leave and come back in place. */
START_TEST(more_than_the_hot_set_holds)
{
    md_token prompt[900];
    int32_t count = 700, n;
    if (!has_ranges()) {
        check_whole();
        return;
    }
    memcpy(prompt, subject->tokens, sizeof prompt);
    talker_open(&t, subject->engine, subject->text, config(256));
    ask(prompt, count);
    ck_assert_int_le(t.cells_max, 256);
    ck_assert_int_eq(md_session_status(t.session).cold_tokens + md_session_status(t.session).hot_tokens,
                     count - 1 + ANSWER);
    memcpy(prompt + count, t.last.tokens.ids, ANSWER * sizeof *prompt);
    count += ANSWER + 20;
    ask(prompt, count);
    ck_assert_int_eq(t.last.prefilled, 21);
    ck_assert_int_eq(md_session_admit_range(t.session, (struct md_range){ 320, 384 }, &n, &t.err), MD_OK);
    ck_assert_int_eq(n, 64);
    ck_assert_int_eq(md_session_evict_range(t.session, (struct md_range){ 320, 384 }, &n, &t.err), MD_OK);
    ck_assert_int_eq(n, 64);
    ck_assert_int_eq(md_session_evict_range(t.session, (struct md_range){ 640, 704 }, &n, &t.err),
                     MD_OK); /* in the window */
    memcpy(prompt + count, t.last.tokens.ids, ANSWER * sizeof *prompt);
    count += ANSWER + 20;
    ask(prompt, count);
    ck_assert_int_eq(t.last.prefilled, 21);
    prompt[500] ^= 1;
    ask(prompt, count);
    ck_assert_int_le(t.last.prefilled, count - 500 + EVERY);
    ck_assert(md_pool_check(t.pool));
    talker_close(&t);
}
END_TEST

START_TEST(a_branch_goes_on_from_a_checkpoint)
{
    md_token prompt[700];
    struct answer answer;
    struct md_session *b;
    memcpy(prompt, subject->tokens, sizeof prompt);
    talker_open(&t, subject->engine, subject->text, config(CELLS));
    ask(prompt, 600);
    struct md_session *a = t.session;
    ck_assert_int_eq(md_session_branch(a, 333, &b, &t.err), MD_OK);
    t.session = b;
    memcpy(prompt + 333, subject->tokens + 3000, 40 * sizeof *prompt);
    ask(prompt, 373);
    ck_assert_int_le(t.last.prefilled, 40 + EVERY);
    keep(&answer);
    t.session = a; /* the first one has lost nothing by it */
    ask(subject->tokens, 605);
    ck_assert_int_le(t.last.prefilled, 6 + EVERY);
    talker_close(&t);
    check_fresh(prompt, 373, &answer);
}
END_TEST

/* Without room for checkpoints everything is computed again, and right. */
START_TEST(checkpoints_that_are_gone)
{
    md_token prompt[900];
    struct answer answer;
    struct md_pool_config c = config(CELLS);
    memcpy(prompt, subject->tokens, sizeof prompt);
    c.cold_bytes = 4096;
    talker_open(&t, subject->engine, subject->text, c);
    ask(prompt, 900);
    prompt[600] ^= 1;
    ask(prompt, 900);
    keep(&answer);
    talker_close(&t);
    check_fresh(prompt, 900, &answer);
}
END_TEST

static char folder[4096];

static void make_folder(void)
{
    md_temp_folder(folder, sizeof folder, "states");
}

START_TEST(restarts_and_snapshots_go_on_at_once)
{
    md_token prompt[500];
    struct answer answer;
    struct md_disk *disk;
    struct md_pool_config c = config(CELLS);
    struct md_snapshot snap;
    make_folder();
    const struct md_disk_config dc = { .folder = folder, .identity = "fake", .budget_bytes = 1 << 26 };
    const struct md_sections_place place = { folder, "k" };
    int32_t count = 300;
    memcpy(prompt, subject->tokens, sizeof prompt);
    for (int turn = 0; turn < 4; turn++) {
        ck_assert_msg(md_disk_open(&dc, &disk, &t.err) == MD_OK, "%s", t.err.text);
        c.disk = disk;
        talker_open(&t, subject->engine, subject->text, c);
        struct md_session *s = md_pool_find(t.pool, 1);
        ck_assert_ptr_nonnull(s);
        t.session = s;
        ask(prompt, count);
        ck_assert_int_eq(t.last.prefilled, turn == 0 ? 300 : 21);
        ck_assert_int_eq(t.last.durable, t.last.tape);
        keep(&answer);
        memcpy(prompt + count, answer.tokens, sizeof answer.tokens);
        count += ANSWER + 20;
        ck_assert_int_eq(md_session_snapshot(t.session, &place, NULL, &snap, &t.err), MD_OK);
        talker_close(&t);
        md_disk_close(disk);
    }
    check_fresh(prompt, count - ANSWER - 20, &answer);
    for (int edit = 0; edit < 2; edit++) { /* what was cut off and written anew is there as well */
        ck_assert_msg(md_disk_open(&dc, &disk, &t.err) == MD_OK, "%s", t.err.text);
        c.disk = disk;
        talker_open(&t, subject->engine, subject->text, c);
        t.session = md_pool_find(t.pool, 1);
        if (edit == 0)
            prompt[250] ^= 1;
        ask(prompt, edit == 0 ? 290 : 310);
        ck_assert_int_le(t.last.prefilled, edit == 0 ? 40 + EVERY : 21 + ANSWER);
        talker_close(&t);
        md_disk_close(disk);
    }
    prompt[250] ^= 1;
    talker_open(&t, subject->engine, subject->text, config(CELLS));
    ck_assert_int_eq(md_session_restore(t.session, &place, NULL, NULL, &snap, &t.err), MD_OK);
    ck_assert_int_eq(snap.kv_tokens, count - 20 - 1);
    ask(prompt, count);
    ck_assert_int_eq(t.last.cached, snap.kv_tokens); /* the claim is true */
    ck_assert_int_eq(t.last.prefilled, 21);
    prompt[count - 100] ^= 1;
    ask(prompt, count);
    ck_assert_int_le(t.last.prefilled, 100 + EVERY); /* the checkpoints before came with it */
    keep(&answer);
    talker_close(&t);
    check_fresh(prompt, count, &answer);
}
END_TEST

/* Anything, in any order: what comes out where everything was attended is what a fresh conversation says. */
START_TEST(a_walk)
{
    struct rng rng = rng_open("pool states");
    md_token prompt[3][700];
    struct answer answer;
    int32_t count[3];
    struct md_session *s[3];
    for (int round = 0; round < 6; round++) {
        int32_t last = 0;
        talker_open(&t, subject->engine, subject->text, config(CELLS));
        s[0] = t.session;
        for (int k = 0; k < 3; k++) {
            if (k > 0)
                ck_assert_int_eq(md_pool_new(t.pool, &s[k], &t.err), MD_OK);
            count[k] = 100;
            memcpy(prompt[k], subject->tokens + rng_below(&rng, 3000), sizeof prompt[k]);
        }
        int k = 0;
        for (int step = 0; step < 12; step++) {
            k = (int)rng_below(&rng, 3);
            t.session = s[k];
            const int what = (int)rng_below(&rng, 4);
            if (what == 0)
                prompt[k][rng_below(&rng, (uint32_t)count[k])] ^= 1;
            else if (what == 1)
                count[k] = 1 + (int32_t)rng_below(&rng, (uint32_t)count[k]);
            else if (count[k] < 600)
                count[k] += 1 + (int32_t)rng_below(&rng, 90);
            ask(prompt[k], count[k]);
            ck_assert(md_pool_check(t.pool));
            keep(&answer);
            last = t.last.tokens_of[MD_PROVENANCE_BOUNDED];
        }
        talker_close(&t);
        if (last == 0)
            check_fresh(prompt[k], count[k], &answer);
    }
}
END_TEST

int md_states_run(const struct md_states_subject *s)
{
    Suite *suite = suite_create(s->name);
    TCase *c = tcase_create("states");
    subject = s;
    t.banned[0] = s->end;
    t.banned_count = 1;
    t.logits = logits;
    t.logits_steps = ANSWER;
    if (md_engine_info(s->engine)->vocab_count > VOCAB_MAX)
        return 1;
    tcase_set_timeout(c, 600);
    tcase_add_test(c, an_edit_computes_what_follows_the_last_checkpoint);
    tcase_add_test(c, conversations_take_turns);
    tcase_add_test(c, more_than_the_hot_set_holds);
    tcase_add_test(c, a_branch_goes_on_from_a_checkpoint);
    tcase_add_test(c, checkpoints_that_are_gone);
    tcase_add_test(c, restarts_and_snapshots_go_on_at_once);
    tcase_add_test(c, a_walk);
    suite_add_tcase(suite, c);
    return md_run_suite_here(suite);
}

void md_states_watch(struct md_engine **engine)
{
    talker_watch(&t, engine);
}
