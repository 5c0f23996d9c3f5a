/* contract_claims.c - scenarios of conversations that are written to a file and come back: what a restore claims is what
 * the next call has of it. */
#include "session/snapshot.h"
#include "support/contract_run.h"
#include "support/temp_folder.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SAID = 300, MORE = 20, TAPE = SAID + CT_ANSWER - 1 };

static char folder[4096];
static const struct md_sections_place place = { folder, "k" };

static void make_folder(void)
{
    md_temp_folder(folder, sizeof folder, "contract");
}

static void remove_folder(void)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/k", folder);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

/* A conversation of SAID tokens and an answer, in a file; what was said, and MORE tokens, into `said`. */
static struct md_snapshot write_one(struct md_pool_config c, md_token *said)
{
    struct md_snapshot snap;
    make_folder();
    ct_open(c);
    CT_OK(ct_ask(ct_text(0), SAID, CT_ANSWER));
    memcpy(said, ct_text(0), SAID * sizeof *said);
    memcpy(said + SAID, ct.last.tokens.ids, CT_ANSWER * sizeof *said);
    memcpy(said + SAID + CT_ANSWER, ct_text(700), MORE * sizeof *said);
    CT_OK(md_session_snapshot(ct.s, &place, NULL, &snap, &ct.err));
    ck_assert_int_eq(snap.tape_tokens, TAPE);
    ck_assert_int_eq(snap.kv_tokens, TAPE);
    ct_close();
    return snap;
}

/* Restore into ct.s, and go on with what was said and MORE.  The claim is exact where all is there, and where what is lost is
 * computed in its place or with all there is; else what is behind a lost block is found again when that is computed. */
static int32_t restore_and_go_on(const md_token *said, int32_t count)
{
    struct md_snapshot got;
    CT_OK(md_session_restore(ct.s, &place, NULL, NULL, &got, &ct.err));
    ck_assert(md_pool_check(ct.pool));
    ck_assert_int_eq(got.tape_tokens, TAPE);
    ck_assert_int_eq(got.context_tokens, SAID + CT_ANSWER);
    CT_OK(ct_ask(said, count, CT_ANSWER));
    const bool in_place = (md_engine_caps(ct.engine) & MD_CAP_RECOMPUTE_RANGE) && !ct_goes_back();
    const bool exact = in_place || ct_is_whole() || got.kv_tokens == TAPE;
    ck_assert_msg(exact ? ct.last.cached == got.kv_tokens : ct.last.cached >= got.kv_tokens,
                  "restored %d, used %d", got.kv_tokens, ct.last.cached);
    ck_assert(ct_is_full());
    return got.kv_tokens;
}

/* Into a new conversation of another process, into one that has said something else, and a second time. */
void md_contract_b059_what_a_restore_claims_is_used(int unused)
{
    (void)unused;
    md_token said[SAID + CT_ANSWER + MORE];
    enum { COUNT = sizeof said / sizeof said[0] };
    (void)write_one(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL), said);
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
    ck_assert_int_eq(restore_and_go_on(said, COUNT), TAPE);
    ct_close();
    if (!ct_is_slow()) {
        ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
        CT_OK(ct_ask(ct_text(1000), 150, CT_ANSWER));
        ck_assert_int_eq(restore_and_go_on(said, COUNT), TAPE);
        CT_OK(ct_ask(ct_text(1000), 150, CT_ANSWER)); /* what it was is found by its text */
        ct_costs(ct.last.prefilled, 1);
        said[COUNT - 1] = *ct_text(720) != said[COUNT - 1] ? *ct_text(720) : *ct_text(721);
        ct.s = ct_new();
        struct md_snapshot got; /* beside the first: its tokens up to here are shared, or in the store */
        CT_OK(md_session_restore(ct.s, &place, NULL, NULL, &got, &ct.err));
        ck_assert_int_eq(got.kv_tokens, TAPE);
        CT_OK(ct_ask(said, COUNT, CT_ANSWER));
        ck_assert_int_ge(ct.last.cached, TAPE);
        ct_close();
    }
    remove_folder();
}

/* A store that has room for nothing, a part, and in the end twice what the file takes. */
void md_contract_b059_what_is_claimed_with_little_room_is_used(int unused)
{
    (void)unused;
    enum { WHOLE = 5, PARTS = 10 };
    md_token said[SAID + CT_ANSWER + MORE];
    if (ct_half_will_do())
        return; /* what depends on the room alone is seen on smaller models */
    struct md_pool_config c = ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL);
    const struct md_snapshot snap = write_one(c, said);
    for (int part = ct_is_slow() ? WHOLE / 2 : 0; part <= PARTS; part += ct_is_slow() ? PARTS : 1) {
        c.cold_bytes = (size_t)snap.bytes * (size_t)part / WHOLE;
        ct_open(c);
        const int32_t known = restore_and_go_on(said, SAID + CT_ANSWER + MORE);
        ck_assert(part > 0 || known == 0);
        ck_assert(part < PARTS || known == TAPE);
        ct_close();
    }
    remove_folder();
}
