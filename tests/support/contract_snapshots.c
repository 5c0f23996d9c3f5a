/* contract_snapshots.c - scenarios of conversations that go to a file and come back, in the same pool and in one that has
 * seen nothing, which is what another process has. */
#include "session/snapshot.h"
#include "support/contract_run.h"
#include "support/temp_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROMPT = 100, MORE = 20, TAPE = PROMPT + CT_ANSWER - 1 };

static char folder[4096], path[4200];
static const struct md_sections_place place = { folder, "k" };

static void begin(void)
{
    md_temp_folder(folder, sizeof folder, "suite");
    snprintf(path, sizeof path, "%s/k", folder);
}

static void end(void)
{
    unlink(path);
    rmdir(folder);
}

static void open_all(void)
{
    ct_open(ct_config(CT_WINDOW, CT_WINDOW, CT_KEEP_ALL));
}

static struct md_snapshot save(void)
{
    struct md_snapshot got;
    CT_OK(md_session_snapshot(ct.s, &place, NULL, &got, &ct.err));
    return got;
}

static enum md_status restore(struct md_snapshot *got)
{
    const enum md_status s = md_session_restore(ct.s, &place, NULL, NULL, got, &ct.err);
    ck_assert(md_pool_check(ct.pool));
    return s;
}

/* Say `more` tokens and hear an answer: what it cost, and its tokens. */
static int32_t go_on(int32_t from, int32_t more, md_token answer[CT_ANSWER])
{
    CT_OK(ct_suffix(ct_text(from), more));
    const int32_t cost = ct.did.work.prefilled;
    CT_OK(ct_decode(CT_ANSWER));
    memcpy(answer, ct.last.tokens.ids, CT_ANSWER * sizeof *answer);
    return cost;
}

static void first_turn(void)
{
    CT_OK(ct_ensure(ct_text(0), 48));
    CT_OK(ct_suffix(ct_text(48), PROMPT - 48));
    CT_OK(ct_decode(CT_ANSWER));
}

/* The next answer is the one that it would have given, and costs what is new: the last token sampled, which was not
 * evaluated, and the suffix but for its last one, which Decode evaluates. */
void md_contract_a_snapshot_goes_on_with_the_same_token(int unused)
{
    (void)unused;
    md_token want[CT_ANSWER], got[CT_ANSWER];
    struct md_snapshot snap;
    begin();
    open_all();
    first_turn();
    ck_assert_int_eq(save().kv_tokens, TAPE);
    ck_assert_int_eq(go_on(200, MORE, want), MORE);
    ck_assert(ct_is_full());
    CT_OK(restore(&snap)); /* in the same conversation */
    ck_assert_int_eq(snap.context_tokens, PROMPT + CT_ANSWER);
    ck_assert_int_eq(go_on(200, MORE, got), 0); /* which had that text already */
    ck_assert_mem_eq(got, want, sizeof want);
    ct_close();
    open_all();
    CT_OK(restore(&snap));
    ck_assert_int_eq(snap.kv_tokens, TAPE);
    ck_assert_int_eq(md_session_status(ct.s).prefix_tokens, 48);
    ck_assert_int_eq(go_on(200, MORE, got), MORE);
    ck_assert(ct_is_full());
    ck_assert_mem_eq(got, want, sizeof want);
    ct_close();
    end();
}

void md_contract_a_snapshot_has_what_is_cold(int unused)
{
    (void)unused;
    md_token want[CT_ANSWER], got[CT_ANSWER];
    struct md_snapshot snap;
    begin();
    open_all();
    first_turn();
    ck_assert_int_eq(ct_evict(32, 64), 32);
    ck_assert_int_eq(save().kv_tokens, TAPE);
    ck_assert_int_eq(ct_admit(32, 64), 32);
    (void)go_on(200, MORE, want);
    ct_close();
    open_all();
    CT_OK(restore(&snap));
    ck_assert_int_eq(snap.kv_tokens, TAPE);
    ck_assert_int_eq(md_session_status(ct.s).held_out_tokens, 32); /* as it was */
    ck_assert_int_eq(ct_admit(32, 64), 32);
    ck_assert_int_eq(go_on(200, MORE, got), MORE);
    ck_assert(ct_is_full());
    ck_assert_mem_eq(got, want, sizeof want);
    ct_close();
    end();
}

void md_contract_a_snapshot_of_nothing_and_of_a_cancelled_call(int unused)
{
    (void)unused;
    md_token want[CT_ANSWER], got[CT_ANSWER];
    struct md_snapshot snap;
    begin();
    open_all();
    ck_assert_int_eq(save().context_tokens, 0);
    CT_OK(restore(&snap));
    CT_OK(ct_suffix(ct_text(0), PROMPT));
    CT_OK(restore(&snap)); /* over another one */
    ck_assert_int_eq(ct_context_count(), 0);
    first_turn();
    ct.fault = (struct md_fault){ .op = MD_OP_PREFILL, .nth = 1, .status = MD_CANCELLED };
    ck_assert_int_eq(ct_suffix(ct_text(200), MORE), MD_CANCELLED);
    ct.fault = (struct md_fault){ 0 };
    ck_assert_int_eq(save().context_tokens, PROMPT + CT_ANSWER);
    (void)go_on(200, MORE, want);
    ct_close();
    open_all();
    CT_OK(restore(&snap));
    ck_assert_int_eq(go_on(200, MORE, got), MORE);
    ck_assert_mem_eq(got, want, sizeof want);
    ct_close();
    end();
}

/* Two conversations from one file: what they share is not computed for either, and each answers as if alone. */
void md_contract_branches_from_a_snapshot(int unused)
{
    (void)unused;
    md_token ignored[CT_ANSWER];
    struct md_snapshot snap;
    begin();
    open_all();
    first_turn();
    (void)save();
    ct_close();
    open_all();
    struct md_session *both[2] = { ct.s, ct_new() };
    for (int i = 0; i < 2; i++) {
        ct.s = both[i];
        CT_OK(restore(&snap));
        ck_assert_int_eq(snap.kv_tokens, TAPE);
    }
    for (int turn = 0; turn < 4; turn++) {
        ct.s = both[turn % 2];
        const int32_t cost = go_on(200 + 50 * turn, MORE, ignored);
        ck_assert(cost == MORE ||
                  (turn == 1 && cost == MORE - 1)); /* the other one has evaluated the last token */
        ck_assert(ct_is_full());
    }
    ct_close();
    end();
}

static void write_file(const uint8_t *bytes, size_t len)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

static void is_refused(enum md_status want)
{
    struct md_snapshot snap;
    const struct md_session_status before = md_session_status(ct.s);
    ck_assert_int_eq(restore(&snap), want);
    const struct md_session_status after = md_session_status(ct.s);
    ck_assert_uint_eq(after.changes, before.changes);
    ck_assert_int_eq(after.hot_tokens, before.hot_tokens);
}

void md_contract_a_snapshot_that_is_not_whole_changes_nothing(int unused)
{
    (void)unused;
    md_token ignored[CT_ANSWER];
    struct md_snapshot snap;
    struct stat st;
    begin();
    open_all();
    first_turn();
    (void)save();
    int fd = open(path, O_RDONLY);
    ck_assert_int_eq(fstat(fd, &st), 0);
    const size_t len = (size_t)st.st_size;
    uint8_t *bytes = malloc(len);
    ck_assert_int_eq(read(fd, bytes, len), (ssize_t)len);
    close(fd);
    for (size_t at = 16; at < len; at += len / 40) {
        bytes[at] ^= 0x40;
        write_file(bytes, len);
        bytes[at] ^= 0x40;
        is_refused(MD_CORRUPT);
    }
    for (size_t part = 0; part < 8; part++) {
        write_file(bytes, len * part / 8);
        is_refused(MD_CORRUPT);
    }
    bytes[8]++; /* the version of the format (host/sections.h) */
    write_file(bytes, len);
    bytes[8]--;
    is_refused(MD_UNSUPPORTED);
    const struct md_sections_place outside = { folder, "../k" };
    ck_assert_int_eq(md_session_restore(ct.s, &outside, NULL, NULL, &snap, &ct.err), MD_INVALID);
    ck_assert_int_eq(md_session_snapshot(ct.s, &outside, NULL, &snap, &ct.err), MD_INVALID);
    unlink(path);
    is_refused(MD_NOT_FOUND);
    ck_assert_int_eq(go_on(200, MORE, ignored), MORE); /* as if nothing had been */
    ck_assert(ct_is_full());
    write_file(bytes, len);
    CT_OK(restore(&snap));
    ck_assert_int_eq(ct_context_count(), PROMPT + CT_ANSWER);
    free(bytes);
    ct_close();
    end();
}
