/* test_snapshot_tokens.c - snapshots of another engine, and restores of tokens alone (session/snapshot.h), on fake engines
 * of one model and two names, whose KV is each exact to the last bit.  What is right: the answers of a session that has seen
 * nothing else, and that nothing is said to be there which is computed. */
#include "host/sections.h"
#include "session/disk.h"
#include "session/snapshot.h"
#include "support/run_suite.h"
#include "support/session_rig.h"
#include "support/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { RAM = 64 << 20, ANSWER = 8, TEXT = 2048, WINDOW = 1024, TAPE = 300 + ANSWER - 1 };

static const enum rig_model models[] = { RIG_DENSE, RIG_WINDOWED, RIG_HYBRID, RIG_RECURRENT };
enum { MODELS = sizeof models / sizeof models[0] };

static char folder[4096];
static md_token text[TEXT];
static const struct md_sections_place place = { folder, "k" };

static void fill(void)
{
    md_temp_folder(folder, sizeof folder, "tokens");
    rig_tokens(text, TEXT, 1);
    rig_use_engine(NULL);
}

static int32_t small_hot(enum rig_model model)
{
    return model == RIG_RECURRENT ? WINDOW : model == RIG_DENSE ? 128 : 160;
}

/* A conversation of 300 tokens and an answer, by the engine of that name. */
static void write_one(const char *engine, struct md_pool_config config)
{
    struct rig r;
    struct md_snapshot snap;
    rig_use_engine(engine);
    rig_open(&r, config, 0);
    r.notes = "noted";
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    ck_assert_int_eq(md_session_snapshot(r.session, &place, NULL, &snap, &r.err), MD_OK);
    ck_assert_int_eq(snap.kv_tokens, TAPE);
    rig_close(&r);
}

static enum md_status restore_tokens(struct rig *r, struct md_snapshot *snap)
{
    const enum md_status s = md_session_restore_tokens(r->session, &place, NULL, NULL, snap, &r->err);
    ck_assert(md_pool_check(r->pool));
    return s;
}

/* Nothing of it is there, and it says so. */
static void check_bare(const struct rig *r, const struct md_snapshot *snap)
{
    const struct md_session_status st = md_session_status(r->session);
    ck_assert_int_eq(snap->kv_tokens, 0);
    ck_assert_int_eq(snap->context_tokens, 308);
    ck_assert_int_eq(snap->tape_tokens, TAPE);
    ck_assert(st.tokens_only);
    ck_assert_int_eq(st.tape_tokens, TAPE);
    ck_assert_int_eq(st.lost_tokens, TAPE);
    ck_assert_int_eq(st.hot_tokens + st.cold_tokens, 0);
    for (int k = 0; k < MD_PROVENANCE_COUNT; k++)
        ck_assert_int_eq(st.tokens_of[k], 0);
    ck_assert(md_bytes_are(md_session_notes(r->session), "noted"));
}

/* Refused, and nothing is changed. */
START_TEST(of_the_other_engine)
{
    struct rig r;
    struct md_snapshot snap;
    rig_use_model(models[_i]);
    write_one("one", rig_config(1024, 1024, RAM));
    rig_use_engine("two");
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    struct md_session *other = r.session;
    ck_assert_int_eq(rig_ask(&r, text + 900, 100, ANSWER, false), MD_OK);
    r.session = rig_new(&r);
    ck_assert_int_eq(rig_ask(&r, text + 500, 100, ANSWER, false), MD_OK);
    const struct rig_seen before = rig_look(&r, other);
    ck_assert_int_eq(md_session_restore(r.session, &place, NULL, NULL, &snap, &r.err), MD_INVALID);
    rig_check_same(&r, &before);
    ck_assert_msg(strstr(r.err.text, "one with f32/f32 KV") != NULL &&
                      strstr(r.err.text, "two with f32/f32 KV") != NULL &&
                      strstr(r.err.text, "--tokens-only") != NULL && strchr(r.err.text, '\n') == NULL,
                  "%s", r.err.text);
    rig_close(&r);
}
END_TEST

/* The next call computes all of it, as it does a prompt that is new. */
START_TEST(goes_on_as_if_it_were_new)
{
    static const char *const to[] = { "two", "one" }; /* its own as well */
    md_token prompt[400], want[ANSWER];
    rig_use_model(models[_i]);
    for (int k = 0; k < 2; k++)
        for (int32_t hot = small_hot(models[_i]); hot > 0; hot = hot < WINDOW ? WINDOW : 0) {
            struct rig r, fresh;
            struct md_snapshot snap;
            write_one("one", rig_config(1024, hot, RAM));
            rig_use_engine(to[k]);
            rig_open(&r, rig_config(1024, hot, RAM), 0);
            ck_assert_msg(restore_tokens(&r, &snap) == MD_OK, "%s", r.err.text);
            check_bare(&r, &snap);
            int32_t count;
            const md_token *context = md_session_context(r.session, &count);
            ck_assert_int_eq(count, 308);
            memcpy(prompt, context, 308 * sizeof *prompt);
            memcpy(prompt + 308, text + 900, 20 * sizeof *prompt);
            rig_open(&fresh, rig_config(1024, hot, RAM), 0); /* with the same hot set */
            ck_assert_int_eq(rig_ask(&fresh, prompt, 328, ANSWER, false), MD_OK);
            memcpy(want, fresh.last.tokens.ids, sizeof want);
            ck_assert_int_eq(rig_ask(&r, prompt, 328, ANSWER, false), MD_OK);
            ck_assert_int_eq(r.last.cached, 0);
            ck_assert_int_eq(r.last.prefilled, 328);
            ck_assert_int_eq(r.last.lost + r.last.restored + r.last.recomputed + r.last.dropped, 0);
            ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
            ck_assert_mem_eq(r.last.tokens_of, fresh.last.tokens_of, sizeof fresh.last.tokens_of);
            ck_assert_int_eq(r.last.attended, fresh.last.attended);
            const struct md_session_status st = md_session_status(r.session);
            ck_assert(!st.tokens_only);
            ck_assert_int_eq(st.lost_tokens, 0);
            ck_assert_int_eq(st.tape_tokens, 328 + ANSWER - 1);
            ck_assert_int_eq(rig_ask(&r, prompt, 328, ANSWER, false), MD_OK); /* and from here on as any */
            ck_assert_int_eq(r.last.prefilled, 1);
            rig_close(&fresh);
            rig_close(&r);
        }
}
END_TEST

/* What is known here of the text is used when it is needed, and claimed then. */
START_TEST(what_is_known_here_is_claimed_when_it_is_used)
{
    struct rig r;
    struct md_snapshot snap;
    md_token want[ANSWER];
    rig_use_model(models[_i]);
    write_one("one", rig_config(1024, 1024, RAM));
    rig_use_engine("two");
    rig_fresh_answer(text, 300, ANSWER, want);
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    ck_assert_int_eq(restore_tokens(&r, &snap), MD_OK); /* over itself: what it was goes cold */
    check_bare(&r, &snap);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.cached, 299);
    ck_assert_int_eq(r.last.restored, 299);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    rig_close(&r);
}
END_TEST

/* Provenance is that of what was computed, not that of the file. */
START_TEST(provenance_is_that_of_what_was_computed)
{
    struct rig r;
    struct md_snapshot snap;
    rig_use_model(RIG_DENSE);
    write_one("one", rig_config(1024, 128, RAM)); /* most of it bounded */
    rig_use_engine("two");
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(restore_tokens(&r, &snap), MD_OK);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    ck_assert(rig_is_full(&r, r.session));
    ck_assert_int_eq(restore_tokens(&r, &snap), MD_OK);
    ck_assert_int_eq(md_session_snapshot(r.session, &place, NULL, &snap, &r.err), MD_OK);
    ck_assert_int_eq(snap.kv_tokens, 0); /* a file of it has nothing either */
    rig_close(&r);
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(md_session_restore(r.session, &place, NULL, NULL, &snap, &r.err), MD_OK);
    check_bare(&r, &snap);
    rig_close(&r);
}
END_TEST

/* Segments, classes and what was held out by hand, before the next call and after it. */
START_TEST(marks_come_back)
{
    struct rig r;
    struct md_snapshot snap;
    int32_t tokens;
    size_t count;
    const struct md_segment segments[] = {
        { .range = { 0, 100 },
          .kind = MD_SEGMENT_SYSTEM,
          .stable = true,
          .cls = MD_CLASS_TASK_PINNED,
          .name = "system" },
        { .range = { 100, 300 }, .kind = MD_SEGMENT_USER, .cls = MD_CLASS_VOLATILE, .name = "user" },
    };
    const struct md_context prompt = { text, 300, segments, 2 };
    rig_use_model(RIG_DENSE);
    rig_use_engine("one");
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    ck_assert_int_eq(md_session_evict_range(r.session, (struct md_range){ 128, 160 }, &tokens, &r.err),
                     MD_OK);
    const struct md_session_status before = md_session_status(r.session);
    ck_assert_int_eq(md_session_snapshot(r.session, &place, NULL, &snap, &r.err), MD_OK);
    rig_close(&r);
    rig_use_engine("two");
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(restore_tokens(&r, &snap), MD_OK);
    for (int after = 0; after < 2; after++) {
        const struct md_session_status st = md_session_status(r.session);
        const struct md_segment *g = md_session_segments(r.session, &count);
        ck_assert_int_eq(st.held_out_tokens, 32);
        ck_assert_mem_eq(st.tokens_in_class, before.tokens_in_class, sizeof before.tokens_in_class);
        ck_assert_int_eq(st.prefix_tokens, 100);
        ck_assert_uint_eq(count, 2);
        ck_assert_str_eq(g[0].name, "system");
        ck_assert_int_eq(st.cold_tokens, after ? 32 : 0);
        ck_assert_int_eq(st.lost_tokens, after ? 0 : TAPE);
        if (after == 0)
            ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    }
    ck_assert_int_eq(md_session_admit_range(r.session, (struct md_range){ 128, 160 }, &tokens, &r.err),
                     MD_OK);
    ck_assert_int_eq(tokens, 32);
    rig_close(&r);
}
END_TEST

/* The calls of the contract: what EnsurePrefix says is resident has been computed. */
START_TEST(the_contract_computes_it)
{
    struct rig r;
    struct md_snapshot snap;
    md_token want[ANSWER];
    rig_use_model(models[_i]);
    write_one("one", rig_config(1024, 1024, RAM));
    rig_use_engine("two");
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(restore_tokens(&r, &snap), MD_OK);
    int32_t count;
    md_token all[308];
    memcpy(all, md_session_context(r.session, &count), sizeof all);
    rig_fresh_answer(all, 308, ANSWER, want);
    ck_assert_int_eq(rig_decode(&r, ANSWER), MD_OK);
    ck_assert_int_eq(r.last.cached, 0);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    r.session = rig_new(&r);
    ck_assert_int_eq(restore_tokens(&r, &snap), MD_OK);
    ck_assert_int_eq(rig_ensure(&r, text, 200), MD_OK);
    ck_assert_int_eq(r.did.reused, 200);
    ck_assert_int_eq(r.did.work.lost, 0);
    ck_assert_int_eq(md_session_status(r.session).lost_tokens, 0);
    rig_close(&r);
}
END_TEST

/* A call that fails or is cancelled leaves a conversation that goes on; one that cannot begin leaves it as it was. */
START_TEST(a_call_that_fails)
{
    struct rig r;
    struct md_snapshot snap;
    md_token want[ANSWER];
    rig_use_model(models[_i]);
    write_one("one", rig_config(1024, 1024, RAM));
    rig_use_engine("two");
    rig_fresh_answer(text, 300, ANSWER, want);
    for (int polls = 0; polls < 4; polls++) {
        rig_open(&r, rig_config(1024, 1024, RAM), 0);
        ck_assert_int_eq(restore_tokens(&r, &snap), MD_OK);
        r.cancel_after = polls;
        ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_CANCELLED);
        ck_assert(md_pool_check(r.pool));
        r.cancel_after = -1;
        ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
        ck_assert_int_eq(r.last.lost, 0);
        ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
        rig_close(&r);
    }
}
END_TEST

/* It outlives a restart as what it is. */
START_TEST(on_the_disk)
{
    struct rig r;
    struct md_snapshot snap;
    struct md_disk *disk;
    struct md_pool_config c = rig_config(1024, small_hot(models[_i]), RAM);
    md_token want[ANSWER];
    rig_use_model(models[_i]);
    write_one("one", rig_config(1024, 1024, RAM));
    rig_use_engine("two");
    const struct md_disk_config dc = { .folder = folder, .identity = "two", .budget_bytes = RAM };
    for (int turn = 0; turn < 3; turn++) {
        ck_assert_int_eq(md_disk_open(&dc, &disk, NULL), MD_OK);
        c.disk = disk;
        rig_open(&r, c, 0);
        if (turn == 0) { /* a part of the text is known from elsewhere */
            ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
            r.session = rig_new(&r);
            ck_assert_int_eq(restore_tokens(&r, &snap), MD_OK);
        } else {
            r.session = md_pool_find(r.pool, 2);
            ck_assert_ptr_nonnull(r.session);
        }
        if (turn < 2) {
            check_bare(&r, &(struct md_snapshot){ .context_tokens = 308, .tape_tokens = TAPE });
        }
        if (turn > 0) {
            ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
            ck_assert_int_eq(r.last.lost, 0);
            ck_assert_int_eq(r.last.cached > 200, turn == 2);
            if (turn == 1)
                memcpy(want, r.last.tokens.ids, sizeof want);
            ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
        }
        rig_close(&r);
        md_disk_close(disk);
    }
}
END_TEST

/* ---- files that nobody wrote ---- */

enum { IDEN, ORIG, SECTIONS };

static struct md_bytes blocks_of_it; /* in place of each block; empty: they stay */

/* The file again, with sections of another content; a NULL one is left out. */
static void forge(const struct md_bytes *const other[SECTIONS])
{
    static const uint32_t known[] = {
        MD_SECTION_TYPE('I', 'D', 'E', 'N'), MD_SECTION_TYPE('O', 'R', 'I', 'G'),
        MD_SECTION_TYPE('C', 'O', 'N', 'V'), MD_SECTION_TYPE('F', 'R', 'N', 'T'),
        MD_SECTION_TYPE('B', 'L', 'C', 'K'), MD_SECTION_TYPE('S', 'T', 'A', 'T'),
    };
    enum { SNAP = MD_SECTION_TYPE('S', 'N', 'A', 'P') };
    static uint8_t payload[1 << 20];
    struct md_sections_reader *in;
    struct md_sections_writer *out;
    uint32_t type;
    int64_t n;
    ck_assert_int_eq(md_sections_open(NULL, &place, SNAP, known, 6, INT64_MAX, &in, NULL), MD_OK);
    ck_assert_int_eq(md_sections_create(NULL, &(struct md_sections_place){ folder, "k" }, SNAP, INT64_MAX,
                                        &out, NULL),
                     MD_OK);
    while (md_sections_next(in, &type, &n, NULL) == MD_OK && type != 0) {
        ck_assert_int_le(n, (int64_t)sizeof payload);
        ck_assert_int_eq(md_sections_read(in, payload, (size_t)n, NULL), MD_OK);
        struct md_bytes part = { payload, (size_t)n };
        const int at = type == known[IDEN] ? IDEN : type == known[ORIG] ? ORIG : SECTIONS;
        if (at < SECTIONS && other[at] == NULL)
            continue;
        if (at < SECTIONS && other[at]->data != NULL)
            part = *other[at];
        if (type == known[4] && blocks_of_it.len > 0)
            part = blocks_of_it;
        ck_assert_int_eq(md_sections_put(out, type, &part, 1, NULL), MD_OK);
    }
    md_sections_close(in);
    ck_assert_int_eq(md_sections_commit(out, false, NULL), MD_OK);
}

static void check_both(struct rig *r, const struct md_bytes *iden, const struct md_bytes *orig,
                       enum md_status with_kv, enum md_status tokens, const char *says)
{
    struct md_snapshot snap;
    write_one("one", rig_config(1024, 1024, RAM));
    forge((const struct md_bytes *const[]){ iden, orig });
    const struct rig_seen before = rig_look(r, r->session);
    for (int tokens_only = 0; tokens_only < 2; tokens_only++) {
        const enum md_status want = tokens_only ? tokens : with_kv;
        struct md_session *s = r->session;
        if (want == MD_OK)
            r->session = rig_new(r);
        const enum md_status got = tokens_only
                                       ? restore_tokens(r, &snap)
                                       : md_session_restore(r->session, &place, NULL, NULL, &snap, &r->err);
        ck_assert_msg(got == want, "tokens only %d: %s %s", tokens_only, md_status_name(got), r->err.text);
        ck_assert_msg(want == MD_OK || strstr(r->err.text, says) != NULL, "%s", r->err.text);
        if (want == MD_OK)
            md_session_close(r->session);
        else
            rig_check_same(r, &before);
        r->session = s;
    }
}

START_TEST(whose_it_is_is_checked)
{
    static uint8_t large[20 << 10];
    static const char control[] = "\1\0\0\0\3\0a\x1b"
                                  "b";
    const struct md_bytes same = { NULL, 0 }, empty = { "", 0 }, cut = { "\1\0\0\0\3\0on", 8 },
                          version = { "\2\0\0\0", 4 }, evil = { control, sizeof control - 1 },
                          long_name = { large, 6 + (10 << 10) }, huge = { large, sizeof large },
                          two = { "two/x/f32/f32", 13 };
    struct rig r;
    rig_use_model(RIG_DENSE);
    memset(large, 'e', sizeof large);
    memcpy(large, "\1\0\0\0\0\x28", 6);
    rig_use_engine("one");
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    check_both(&r, &same, &same, MD_OK, MD_OK, "");
    check_both(&r, &same, NULL, MD_OK, MD_OK, ""); /* from before there was an origin */
    check_both(&r, &two, NULL, MD_INVALID, MD_INVALID, "too old");
    check_both(&r, &two, &same, MD_INVALID, MD_OK, "('two/x/f32/f32' there"); /* by what no member is for */
    check_both(&r, NULL, &same, MD_CORRUPT, MD_CORRUPT, "another order");
    check_both(&r, NULL, NULL, MD_CORRUPT, MD_CORRUPT, "");
    check_both(&r, &same, &empty, MD_CORRUPT, MD_CORRUPT, "ends in its version");
    check_both(&r, &same, &cut, MD_CORRUPT, MD_CORRUPT, "ends in its engine");
    check_both(&r, &same, &version, MD_UNSUPPORTED, MD_UNSUPPORTED, "version 2");
    check_both(&r, &same, &evil, MD_CORRUPT, MD_CORRUPT, "no text");
    check_both(&r, &same, &long_name, MD_CORRUPT, MD_CORRUPT, "10240 bytes");
    check_both(&r, &same, &huge, MD_CORRUPT, MD_CORRUPT, "at most 16384");
    rig_close(&r);
    rig_use_engine("two");
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    check_both(&r, &same, &same, MD_INVALID, MD_OK, "--tokens-only");
    check_both(&r, &same, NULL, MD_INVALID, MD_INVALID, "'one");
    rig_close(&r);
    rig_use_model(RIG_WINDOWED); /* another model, by an engine of the other name and of the same */
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    struct md_snapshot snap;
    rig_use_model(RIG_DENSE);
    write_one("one", rig_config(1024, 1024, RAM));
    ck_assert_int_eq(restore_tokens(&r, &snap), MD_INVALID);
    ck_assert_msg(strstr(r.err.text, "another model") != NULL && strstr(r.err.text, "--tokens") == NULL, "%s",
                  r.err.text);
    rig_close(&r);
}
END_TEST

/* KV that nobody wants may be of any size and form, as that of another engine is. */
START_TEST(kv_that_is_not_wanted)
{
    static uint8_t large[3 << 20]; /* above the notes too, which are no longer than 1 MiB */
    const struct md_bytes same = { NULL, 0 };
    struct rig r;
    rig_use_model(RIG_DENSE);
    rig_use_engine("one");
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    blocks_of_it = (struct md_bytes){ large, sizeof large };
    check_both(&r, &same, &same, MD_CORRUPT, MD_OK, "at most");
    blocks_of_it.len = 7;
    check_both(&r, &same, &same, MD_CORRUPT, MD_OK, "a block");
    blocks_of_it.len = 0;
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("snapshot, tokens");
    TCase *c = tcase_create("tokens");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, fill, NULL);
    tcase_add_loop_test(c, of_the_other_engine, 0, MODELS);
    tcase_add_loop_test(c, goes_on_as_if_it_were_new, 0, MODELS);
    tcase_add_loop_test(c, what_is_known_here_is_claimed_when_it_is_used, 0, MODELS);
    tcase_add_test(c, provenance_is_that_of_what_was_computed);
    tcase_add_test(c, marks_come_back);
    tcase_add_loop_test(c, the_contract_computes_it, 0, MODELS);
    tcase_add_loop_test(c, a_call_that_fails, 0, MODELS);
    tcase_add_loop_test(c, on_the_disk, 0, MODELS);
    tcase_add_test(c, whose_it_is_is_checked);
    tcase_add_test(c, kv_that_is_not_wanted);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
