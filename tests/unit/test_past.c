/* test_past.c - conversations past the trained window (--past-window) on the fake engine: what moves, what is refused,
 * edits, branches and switches, loss, and what outlives the process.  What is right: past_check.h. */
#include "session/session_internal.h"
#include "session/snapshot.h"
#include "support/past_check.h"
#include "support/run_suite.h"
#include "support/store_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRAINED = 256,
    HOT = 160,
    WINDOW = 6000,
    KEEP_ALL = 64 << 20,
    ANSWER = 8,
    BLOCK = 16, /* of rig_config */
    DISK = 64 << 20
};

static md_token text[WINDOW];

static void fill(void)
{
    rig_tokens(text, WINDOW, 1);
}

static void open_small(struct rig *r)
{
    past_open(r, rig_config(WINDOW, HOT, KEEP_ALL), 0, 0, TRAINED);
}

/* Ask with the first `count` tokens of `prompt`; all that must hold, holds. */
static void ask(struct rig *r, const md_token *prompt, int32_t count)
{
    enum md_status s = rig_ask(r, prompt, count, ANSWER, false);
    ck_assert_msg(s == MD_OK, "%s: %s", md_status_name(s), r->err.text);
    past_check_moved(r, r->session);
    past_check_answer(r);
}

static struct md_block_view view_of(const struct rig *r, int32_t position)
{
    static struct md_block_view map[WINDOW / BLOCK + 1];
    size_t count = md_session_map(r->session, map, sizeof map / sizeof map[0]);
    ck_assert_uint_lt((size_t)(position / BLOCK), count);
    return map[position / BLOCK];
}

/* ---- going on ---- */

START_TEST(the_first_tokens_come_along)
{
    struct rig r;
    open_small(&r);
    for (int32_t count = 100; count + ANSWER <= WINDOW; count += 700) {
        ask(&r, text, count);
        struct md_session_status st = md_session_status(r.session);
        ck_assert_int_eq(st.lost_tokens, 0);
        ck_assert_int_eq(view_of(&r, 0).state, MD_STATE_HOT);
        ck_assert_int_eq(view_of(&r, 0).rebased, count > TRAINED);
        ck_assert_int_eq(st.rebased_tokens > 0, count > TRAINED);
        ck_assert_int_le(r.last.attended, HOT);
        ck_assert_int_eq(r.last.recomputed, 0);
    }
    ck_assert_int_gt((int)md_session_status(r.session).rebased_blocks, 100);
    rig_close(&r);
}
END_TEST

/* One token at a time is the same as a whole prompt: the plan does not depend on how it came. */
START_TEST(a_long_answer_goes_over_the_border)
{
    struct rig r;
    md_token prompt[1200];
    open_small(&r);
    memcpy(prompt, text, sizeof prompt);
    ck_assert_int_eq(rig_ask(&r, prompt, 200, 900, false), MD_OK);
    past_check_answer(&r);
    ck_assert_int_gt(past_check_moved(&r, r.session), 0);
    ck_assert_int_eq(r.last.completion, 900);
    ck_assert_int_eq(md_session_status(r.session).lost_tokens, 0);
    rig_close(&r);
}
END_TEST

/* Up to the trained window nothing is different with the flag: the same answers, all at their own places. */
START_TEST(within_the_window_nothing_moves)
{
    struct rig with, without;
    open_small(&with);
    rig_open(&without, rig_config(WINDOW, HOT, KEEP_ALL), 0);
    for (int32_t count = 20; count + ANSWER < TRAINED - BLOCK; count += 50) {
        ask(&with, text, count);
        ck_assert_int_eq(rig_ask(&without, text, count, ANSWER, false), MD_OK);
        ck_assert_mem_eq(with.last.tokens.ids, without.last.tokens.ids, ANSWER * sizeof *text);
        ck_assert_int_eq(md_session_status(with.session).rebased_tokens, 0);
        ck_assert_int_eq((int)md_session_status(with.session).rebased_blocks, 0);
    }
    rig_close(&with);
    rig_close(&without);
}
END_TEST

/* What is computed over a moved block is bounded: --reuse full finds nothing of it again. */
START_TEST(nothing_computed_past_the_window_is_called_full)
{
    struct rig r;
    struct md_pool_config c = rig_config(WINDOW, HOT, KEEP_ALL);
    open_small(&r);
    ask(&r, text, 2000);
    struct md_session_status st = md_session_status(r.session);
    ck_assert_int_le(st.tokens_of[MD_PROVENANCE_FULL], HOT);
    ck_assert_int_eq(view_of(&r, 1999).provenance, MD_PROVENANCE_BOUNDED);
    ck_assert_int_eq(view_of(&r, 0).provenance, MD_PROVENANCE_FULL); /* its own is as it was */
    rig_close(&r);

    c.reuse = MD_REUSE_FULL; /* what is cold and bounded is lost; what is hot goes on */
    past_open(&r, c, 0, 0, TRAINED);
    for (int32_t count = 500; count < 3000; count += 500)
        ask(&r, text, count);
    ck_assert_int_eq(view_of(&r, 0).state, MD_STATE_HOT);
    rig_close(&r);
}
END_TEST

/* ---- by hand ---- */

START_TEST(a_block_from_the_middle_comes_near_and_leaves)
{
    struct rig r;
    int32_t tokens;
    open_small(&r);
    ask(&r, text, 3000);
    ck_assert_int_eq(md_session_admit_range(r.session, (struct md_range){ 1600, 1632 }, &tokens, &r.err),
                     MD_OK);
    ck_assert_int_eq(tokens, 32);
    ck_assert(md_pool_check(r.pool));
    ck_assert(view_of(&r, 1600).rebased && view_of(&r, 1616).rebased);
    ck_assert_int_ge(past_check_moved(&r, r.session), 3);
    ask(&r, text, 3040);
    ck_assert_int_eq(view_of(&r, 1600).state, MD_STATE_HOT);
    ck_assert_int_eq(md_session_evict_range(r.session, (struct md_range){ 1600, 1632 }, &tokens, &r.err),
                     MD_OK);
    ck_assert_int_eq(tokens, 32);
    ck_assert(md_pool_check(r.pool));
    ck_assert_int_eq(view_of(&r, 1600).state, MD_STATE_COLD);
    ask(&r, text, 3080);
    ck_assert_int_eq(md_session_status(r.session).lost_tokens, 0);
    rig_close(&r);
}
END_TEST

/* ---- edits ---- */

START_TEST(cut_anywhere_and_go_on)
{
    static md_token prompt[WINDOW];
    static const int32_t cuts[] = { 2999, 2993, 2984, 2976, 2900, 2890, 2800, 2700,
                                    1500, 1499, 260,  200,  17,   16,   3,    0 };
    struct rig r;
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        open_small(&r);
        memcpy(prompt, text, sizeof prompt);
        ask(&r, prompt, 3000);
        rig_tokens(prompt + cuts[i], 40, 77);
        ask(&r, prompt, cuts[i] + 40);
        ck_assert_int_eq(md_session_status(r.session).lost_tokens, 0);
        ask(&r, text, 3000); /* and back: all of it is known */
        ck_assert_int_le(r.last.prefilled, 1);
        rig_close(&r);
    }
}
END_TEST

/* ---- several ---- */

START_TEST(branch_and_switch)
{
    static md_token left[WINDOW], right[WINDOW];
    struct rig r;
    struct md_session *a, *b;
    past_open(&r, rig_config(WINDOW, TRAINED - TRAINED / 8, KEEP_ALL), 0, 4, TRAINED);
    memcpy(left, text, sizeof left);
    ask(&r, left, 2000);
    a = r.session;
    ck_assert_int_eq(md_session_branch(a, 1999, &b, &r.err), MD_OK);
    memcpy(right, left, sizeof right);
    rig_tokens(left + 2000, 2000, 5);
    rig_tokens(right + 1999, 2000, 6);
    for (int32_t more = 10; more < 800; more += 100) {
        r.session = a;
        ask(&r, left, 2000 + more);
        past_check_moved(&r, b);
        r.session = b;
        ask(&r, right, 1999 + more);
        past_check_moved(&r, a);
        ck_assert_int_eq(md_session_status(a).lost_tokens + md_session_status(b).lost_tokens, 0);
        ck_assert_int_eq(r.last.recomputed, 0);
    }
    md_session_close(a);
    ck_assert(md_pool_check(r.pool));
    r.session = b;
    ask(&r, right, 3000);
    ck_assert_int_eq(md_session_status(b).lost_tokens, 0);
    rig_close(&r);
}
END_TEST

/* A block that is hot with one conversation alone, at its own place, and cold for another because of that: before the
 * first moves it, the store has it; and where the other wants it elsewhere than there, it is copied for it. */
START_TEST(what_another_relies_on_is_kept)
{
    static md_token left[WINDOW], right[WINDOW];
    struct rig r;
    past_open(&r, rig_config(WINDOW, TRAINED - TRAINED / 8, KEEP_ALL), 0, 4, TRAINED);
    memcpy(left, text, sizeof left);
    ask(&r, left, 60);
    struct md_session *a = r.session, *b;
    ck_assert_int_eq(md_session_branch(a, 60, &b, &r.err), MD_OK);
    memcpy(right, left, sizeof right);
    rig_tokens(right + 60, 1000, 9);
    ck_assert_int_eq(b->tape.blocks[0].state, MD_STATE_COLD);
    ask(&r, left, 1500); /* a goes on: its first block moves */
    ck_assert(a->tape.blocks[0].moved_by > 0);
    ck_assert_int_eq(md_session_status(b).lost_tokens, 0);
    r.session = b;
    ask(&r, right, 100);
    ck_assert_int_eq(r.last.recomputed, 0);
    ck_assert_int_eq(b->tape.blocks[0].moved_by, 0);
    ask(&r, right, 900);
    past_check_moved(&r, a);
    ck_assert_int_eq(md_session_status(b).lost_tokens, 0);
    rig_close(&r);
}
END_TEST

/* The other way round: a block is cold for the far one because a near one has it hot at its own place, and alone. */
START_TEST(what_only_another_has_comes_from_there)
{
    struct rig r;
    struct md_session *far, *near;
    int32_t tokens;
    past_open(&r, rig_config(WINDOW, HOT, KEEP_ALL), 0, 4, TRAINED);
    ask(&r, text, 2000);
    far = r.session;
    ck_assert_int_eq(md_session_evict_range(far, (struct md_range){ 16, 1960 }, &tokens, &r.err), MD_OK);
    near = r.session = rig_new(&r);
    ask(&r, text, 60); /* takes the second block out of the store */
    struct md_cold_ref ref = md_tape_ref(&far->tape, 1);
    ck_assert(!md_cold_has(r.pool->cold, &ref, MD_PROVENANCE_APPROXIMATE));
    ck_assert_int_eq(near->tape.blocks[1].state, MD_STATE_HOT);
    ck_assert_int_eq(md_session_admit_range(far, (struct md_range){ 16, 32 }, &tokens, &r.err), MD_OK);
    ck_assert_int_eq(tokens, 16);
    ck_assert_int_gt(far->tape.blocks[1].moved_by, 0);
    ck_assert(md_pool_check(r.pool));
    ck_assert_int_ge(past_check_moved(&r, far), 2);
    ck_assert_int_eq(md_session_status(near).lost_tokens, 0);
    rig_close(&r);
}
END_TEST

/* Which positions were attended, and whose text stood there, is in the digest; and moved is never full. */
START_TEST(the_digest_knows_what_was_moved)
{
    struct md_tape t;
    uint64_t digests[3];
    md_tape_init(&t, NULL, BLOCK, (struct md_key){ 0 });
    ck_assert_int_eq(md_tape_reserve(&t, 4 * BLOCK, NULL), MD_OK);
    md_tape_append(&t, text, 4 * BLOCK, (struct md_tape_block){ .state = MD_STATE_HOT });
    ck_assert_int_eq(md_tape_provenance(&t, 3).kind, MD_PROVENANCE_FULL);
    for (int i = 0; i < 3; i++) {
        t.blocks[1].state = MD_STATE_COLD;
        t.blocks[0].moved_by = i * 8;
        digests[i] = md_tape_provenance(&t, 3).attended;
        t.blocks[1].state = MD_STATE_HOT;
        t.blocks[0].moved_by = 0;
    }
    ck_assert(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
    t.blocks[2].moved_by = BLOCK; /* all is there, and yet */
    ck_assert_int_eq(md_tape_provenance(&t, 3).kind, MD_PROVENANCE_BOUNDED);
    md_tape_done(&t);
}
END_TEST

/* ---- loss ---- */

/* The store is as small as it may be: what is moved is held all the same, and what others have goes. */
START_TEST(a_small_store_keeps_what_is_moved)
{
    static md_token other[WINDOW];
    struct rig r;
    struct md_pool_config c = rig_config(WINDOW, HOT, past_least_cold(HOT, BLOCK));
    past_open(&r, c, 0, 4, TRAINED);
    struct md_session *a = r.session, *b = rig_new(&r);
    rig_tokens(other, WINDOW, 4);
    for (int32_t count = 400; count < 3000; count += 400) {
        r.session = a;
        ask(&r, text, count);
        ck_assert_int_eq(view_of(&r, 0).state, MD_STATE_HOT);
        r.session = b;
        ask(&r, other, count);
        ck_assert_int_eq(view_of(&r, 0).state, MD_STATE_HOT);
        ck_assert_uint_le(md_pool_status(r.pool).cold.peak_bytes, c.cold_bytes);
    }
    rig_close(&r);
}
END_TEST

/* It is held whatever its class: the store is full of what is dearer, and that makes way. */
START_TEST(what_is_moved_displaces_what_is_dearer)
{
    static md_token other[WINDOW];
    struct rig r;
    struct md_pool_config c = rig_config(WINDOW, HOT, past_least_cold(HOT, BLOCK));
    struct md_segment pinned = { .range = { 0, 2000 },
                                 .kind = MD_SEGMENT_SYSTEM,
                                 .cls = MD_CLASS_TASK_PINNED };
    const struct md_context prompt = {
        .tokens = text, .count = 2001, .segments = &pinned, .segment_count = 1
    };
    past_open(&r, c, 0, 4, TRAINED);
    ck_assert_msg(rig_ask_segments(&r, &prompt, ANSWER) == MD_OK, "%s", r.err.text);
    ck_assert_int_gt(md_session_status(r.session).lost_tokens, 0); /* it is full */
    r.session = rig_new(&r);
    rig_tokens(other, WINDOW, 4);
    for (int32_t count = 200; count < 1200; count += 200) {
        ask(&r, other, count);
        ck_assert_int_eq(view_of(&r, 0).state, MD_STATE_HOT);
    }
    rig_close(&r);
}
END_TEST

static enum md_status try_with(struct md_pool_config c, unsigned caps_off, int32_t trained, char *text_out)
{
    struct rig r;
    c.past_window = true;
    enum md_status s = rig_try_open_trained(&r, c, caps_off, 0, trained);
    memcpy(text_out, r.err.text, sizeof r.err.text);
    rig_close(&r);
    return s;
}

START_TEST(refused_at_open)
{
    const struct md_pool_config good = rig_config(WINDOW, HOT, KEEP_ALL);
    struct md_pool_config wide = good, off = good, no_cold = good, little = good;
    wide.hot_tokens = TRAINED - TRAINED / 8 + 1;
    off.residency = false;
    no_cold.cold_bytes = 0;
    little.cold_bytes = past_least_cold(HOT, BLOCK) - 1;
    const struct {
        const char *label, *says;
        enum md_status want;
        struct md_pool_config config;
        unsigned caps_off;
        int32_t trained;
    } rows[] = {
        { "good", "", MD_OK, good, 0, TRAINED },
        { "hot set", "--hot 225 is more than the 224", MD_INVALID, wide, 0, TRAINED },
        { "residency", "needs --residency on", MD_INVALID, off, 0, TRAINED },
        { "no store", "needs a cold store: see --mem-cold", MD_UNSUPPORTED, no_cold, 0, TRAINED },
        { "small store", "raise it, or lower --hot", MD_INVALID, little, 0, TRAINED },
        { "no shift", "cannot be moved", MD_UNSUPPORTED, good, MD_CAP_POSITION_SHIFT, TRAINED },
        { "no export", "cannot be moved", MD_UNSUPPORTED, good, MD_CAP_COLD_STORE, TRAINED },
        { "no holes", "cannot be moved", MD_UNSUPPORTED, good, MD_CAP_REMOVE_MIDDLE, TRAINED },
        { "tiny window", "too small", MD_UNSUPPORTED, good, 0, 63 },
    };
    char says[sizeof((struct md_err *)0)->text];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_msg(try_with(rows[i].config, rows[i].caps_off, rows[i].trained, says) == rows[i].want,
                      "%s: %s", rows[i].label, says);
        ck_assert_msg(rows[i].want == MD_OK || strstr(says, rows[i].says) != NULL, "%s: %s", rows[i].label,
                      says);
    }
    struct rig r; /* and without the flag the window is the trained one */
    ck_assert_int_eq(rig_try_open_trained(&r, good, 0, 0, TRAINED), MD_INVALID);
    ck_assert_ptr_nonnull(strstr(r.err.text, "--past-window"));
    rig_close(&r);
}
END_TEST

/* ---- what outlives the process ---- */

static void start(struct store_rig *s, size_t cold_bytes)
{
    struct md_pool_config c = rig_config(WINDOW, HOT, cold_bytes);
    const struct md_disk_config d = { .folder = sr_folder, .identity = "fake", .budget_bytes = DISK };
    memset(s, 0, sizeof *s);
    ck_assert_int_eq(md_disk_open(&d, &s->disk, &s->err), MD_OK);
    c.disk = s->disk;
    past_open(&s->r, c, 0, 0, TRAINED);
}

START_TEST(restart_from_disk)
{
    static const size_t stores[] = { KEEP_ALL, 0 }; /* without memory the disk holds what is moved */
    for (int i = 0; i < 2; i++) {
        struct store_rig s;
        md_token prompt[2100];
        start(&s, stores[i]);
        ask(&s.r, text, 2000);
        memcpy(prompt, text, 2000 * sizeof *prompt);
        memcpy(prompt + 2000, s.r.last.tokens.ids, ANSWER * sizeof *prompt);
        ck_assert_int_eq(s.r.last.durable, 2000 + ANSWER - 1);
        sr_stop(&s);
        start(&s, stores[i]);
        s.r.session = sr_find(&s, prompt, 2000 + ANSWER);
        ck_assert_ptr_nonnull(s.r.session);
        rig_tokens(prompt + 2000 + ANSWER, 50, 3);
        ask(&s.r, prompt, 2050 + ANSWER);
        ck_assert_int_eq(s.r.last.cached, 2000 + ANSWER - 1);
        ck_assert_int_eq(s.r.last.lost, 0);
        ck_assert_int_gt(past_check_moved(&s.r, s.r.session), 0);
        sr_stop(&s);
        sr_empty();
    }
}
END_TEST

START_TEST(snapshot_and_restore)
{
    struct rig r, fresh;
    struct md_snapshot snap, got;
    char folder[400];
    md_token prompt[2100];
    snprintf(folder, sizeof folder, "%s", sr_folder);
    const struct md_sections_place place = { folder, "k" };
    open_small(&r);
    ask(&r, text, 2000);
    memcpy(prompt, text, 2000 * sizeof *prompt);
    memcpy(prompt + 2000, r.last.tokens.ids, ANSWER * sizeof *prompt);
    rig_tokens(prompt + 2000 + ANSWER, 50, 3);
    ck_assert_int_eq(md_session_snapshot(r.session, &place, NULL, &snap, &r.err), MD_OK);
    ck_assert_int_eq(snap.kv_tokens, 2000 + ANSWER - 1);
    open_small(&fresh);
    ck_assert_msg(md_session_restore(fresh.session, &place, NULL, NULL, &got, &fresh.err) == MD_OK, "%s",
                  fresh.err.text);
    ck_assert_int_eq(got.kv_tokens, 2000 + ANSWER - 1);
    ask(&fresh, prompt, 2050 + ANSWER);
    ck_assert_int_eq(fresh.last.cached, 2000 + ANSWER - 1);
    ck_assert_int_eq(fresh.last.lost, 0);
    ask(&r, prompt, 2050 + ANSWER); /* the plan is the same, so the answer is */
    ck_assert_mem_eq(fresh.last.tokens.ids, r.last.tokens.ids, ANSWER * sizeof *prompt);
    rig_close(&fresh);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("past");
    TCase *c = tcase_create("past"), *disk = tcase_create("disk");
    tcase_set_timeout(c, 120);
    tcase_set_timeout(disk, 120);
    tcase_add_unchecked_fixture(c, fill, NULL);
    tcase_add_test(c, the_first_tokens_come_along);
    tcase_add_test(c, a_long_answer_goes_over_the_border);
    tcase_add_test(c, within_the_window_nothing_moves);
    tcase_add_test(c, nothing_computed_past_the_window_is_called_full);
    tcase_add_test(c, a_block_from_the_middle_comes_near_and_leaves);
    tcase_add_test(c, cut_anywhere_and_go_on);
    tcase_add_test(c, branch_and_switch);
    tcase_add_test(c, what_another_relies_on_is_kept);
    tcase_add_test(c, what_only_another_has_comes_from_there);
    tcase_add_test(c, the_digest_knows_what_was_moved);
    tcase_add_test(c, a_small_store_keeps_what_is_moved);
    tcase_add_test(c, what_is_moved_displaces_what_is_dearer);
    tcase_add_test(c, refused_at_open);
    suite_add_tcase(s, c);
    tcase_add_unchecked_fixture(disk, fill, NULL);
    tcase_add_checked_fixture(disk, sr_setup, sr_teardown);
    tcase_add_test(disk, restart_from_disk);
    tcase_add_test(disk, snapshot_and_restore);
    suite_add_tcase(s, disk);
    return md_run_suite(s);
}
