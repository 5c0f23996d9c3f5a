/* test_snapshot.c - a conversation to a file and back (session/snapshot.h), on the fake engine, whose KV is exact to the
 * last bit.  What is right: the answers of a session that has seen nothing else, and the cases named at each test. */
#include "host/sections.h"
#include "session/snapshot.h"
#include "support/run_suite.h"
#include "support/session_rig.h"
#include "support/temp_folder.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RAM = 64 << 20, ANSWER = 8, TEXT = 2048, BLOCK = 16, WINDOW = 1024 };

/* Dense; windowed, hybrid and recurrent ones, whose tail states are sections of their own. */
static const enum rig_model models[] = { RIG_DENSE, RIG_WINDOWED, RIG_HYBRID, RIG_RECURRENT };
enum { MODELS = sizeof models / sizeof models[0] };

/* The smallest hot set of a test; a state alone has none. */
static int32_t small_hot(enum rig_model model)
{
    return model == RIG_RECURRENT ? WINDOW : model == RIG_DENSE ? 128 : 160;
}

static char folder[4096], path[4200];
static md_token text[TEXT];
static const struct md_sections_place place = { folder, "k" };

static void fill(void)
{
    md_temp_folder(folder, sizeof folder, "snapshot");
    snprintf(path, sizeof path, "%s/k", folder);
    rig_tokens(text, TEXT, 1);
}

static struct md_snapshot save(struct rig *r)
{
    struct md_snapshot snap;
    ck_assert_msg(md_session_snapshot(r->session, &place, NULL, &snap, &r->err) == MD_OK, "%s", r->err.text);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_size, snap.bytes);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    return snap;
}

static enum md_status restore(struct rig *r, struct md_snapshot *snap)
{
    enum md_status s = md_session_restore(r->session, &place, NULL, NULL, snap, &r->err);
    ck_assert(md_pool_check(r->pool));
    return s;
}

/* The whole claim: what it says is restored is used, to the last token, and the answer is that of a fresh run. */
static void check_goes_on(struct rig *r, const md_token *tokens, int32_t count,
                          const struct md_snapshot *snap)
{
    md_token want[ANSWER];
    rig_fresh_answer(tokens, count, ANSWER, want);
    ck_assert_int_eq(rig_ask(r, tokens, count, ANSWER, false), MD_OK);
    ck_assert_int_eq(r->last.cached, snap->kv_tokens < count ? snap->kv_tokens : count - 1);
    ck_assert_int_eq(r->last.lost + r->last.recomputed, 0);
    ck_assert_mem_eq(r->last.tokens.ids, want, sizeof want);
}

/* B056: nothing is as good a conversation as any. */
START_TEST(b056_empty)
{
    struct rig r;
    struct md_snapshot snap;
    rig_use_model(models[_i]);
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    snap = save(&r);
    ck_assert_int_eq(snap.tape_tokens + snap.kv_tokens + snap.context_tokens, 0);
    ck_assert_int_eq(restore(&r, &snap), MD_OK);
    check_goes_on(&r, text, 100, &snap);
    r.session = rig_new(&r);
    ck_assert_int_eq(restore(&r, &snap), MD_OK);
    ck_assert_int_eq(md_session_status(r.session).context_tokens, 0);
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    rig_close(&r);
}
END_TEST

/* B059: in another process, in the same one, twice, and over another conversation. */
START_TEST(b059_goes_on_where_it_was)
{
    const int32_t least = small_hot(models[_i]);
    rig_use_model(models[_i]);
    for (int32_t hot = least; hot > 0; hot = hot < WINDOW ? WINDOW : 0) {
        struct rig r;
        struct md_snapshot snap, got;
        md_token prompt[400];
        rig_open(&r, rig_config(1024, hot, RAM), 0);
        ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
        memcpy(prompt, text, 300 * sizeof *prompt);
        memcpy(prompt + 300, r.last.tokens.ids, ANSWER * sizeof *prompt);
        memcpy(prompt + 308, text + 900, 20 * sizeof *prompt);
        snap = save(&r);
        ck_assert_int_eq(snap.tape_tokens, 307);
        ck_assert_int_eq(snap.kv_tokens, 307);
        ck_assert_int_eq(snap.context_tokens, 308);
        for (int twice = 0; twice < 2; twice++) { /* what it has become since goes */
            ck_assert_int_eq(rig_ask(&r, text + 500, 200, ANSWER, false), MD_OK);
            ck_assert_int_eq(restore(&r, &got), MD_OK);
            ck_assert_int_eq(got.kv_tokens, 307);
            ck_assert_int_eq(got.bytes, snap.bytes);
            ck_assert_int_eq(rig_ask(&r, prompt, 328, ANSWER, false), MD_OK);
            ck_assert_int_eq(r.last.cached,
                             twice ? 327 : 307); /* the cold store has what was computed since */
        }
        rig_close(&r);
        rig_open(&r, rig_config(1024, hot, RAM), 0);
        ck_assert_int_eq(restore(&r, &got), MD_OK);
        ck_assert_int_eq(got.kv_tokens, 307);
        if (hot == 1024)
            check_goes_on(&r, prompt, 328, &got);
        r.session = rig_new(&r);
        ck_assert_int_eq(restore(&r, &got),
                         MD_OK); /* a branch: it shares what the first one has, or its state */
        ck_assert_int_eq(rig_ask(&r, prompt, 328, ANSWER, false), MD_OK);
        const bool shares = models[_i] == RIG_DENSE || models[_i] == RIG_RECURRENT;
        ck_assert_int_eq(r.last.prefilled, hot == WINDOW && shares ? 1 : 21);
        rig_close(&r);
    }
}
END_TEST

START_TEST(marks_segments_and_provenance_come_back)
{
    struct rig r;
    struct md_snapshot snap;
    int32_t tokens;
    struct md_segment segments[] = {
        { .range = { 0, 100 },
          .kind = MD_SEGMENT_SYSTEM,
          .stable = true,
          .cls = MD_CLASS_TASK_PINNED,
          .name = "system" },
        { .range = { 100, 300 }, .kind = MD_SEGMENT_USER, .cls = MD_CLASS_VOLATILE, .name = "user" },
    };
    const struct md_context prompt = { text, 300, segments, 2 };
    rig_open(&r, rig_config(1024, 192, RAM), 0);
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    ck_assert_int_eq(md_session_evict_range(r.session, (struct md_range){ 128, 160 }, &tokens, &r.err),
                     MD_OK);
    const struct md_session_status before = md_session_status(r.session);
    ck_assert_int_gt(before.tokens_of[MD_PROVENANCE_BOUNDED], 0);
    (void)save(&r);
    rig_close(&r);
    rig_open(&r, rig_config(1024, 192, RAM), 0);
    ck_assert_int_eq(restore(&r, &snap), MD_OK);
    const struct md_session_status after = md_session_status(r.session);
    ck_assert_int_eq(after.held_out_tokens, 32);
    ck_assert_mem_eq(after.tokens_of, before.tokens_of, sizeof before.tokens_of);
    ck_assert_mem_eq(after.tokens_in_class, before.tokens_in_class, sizeof before.tokens_in_class);
    ck_assert_int_eq(after.prefix_tokens, before.prefix_tokens);
    size_t count;
    const struct md_segment *g = md_session_segments(r.session, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(g[0].name, "system");
    rig_close(&r);
}
END_TEST

/* The notes of the front are those of the conversation that was written; a file without them has none. */
START_TEST(notes_come_back)
{
    struct rig r;
    struct md_snapshot snap;
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    r.notes = "noted";
    r.adds = ", answered";
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    (void)save(&r);
    rig_close(&r);
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    r.notes = "of something else, and longer than those in the file";
    ck_assert_int_eq(rig_ask(&r, text + 500, 100, ANSWER, false), MD_OK);
    ck_assert_int_eq(restore(&r, &snap), MD_OK);
    ck_assert(md_bytes_are(md_session_notes(r.session), "noted, answered"));
    ck_assert_int_eq(rig_ask(&r, text + 500, 100, ANSWER, false), MD_OK);
    r.notes = NULL;
    r.session = rig_new(&r);
    ck_assert_int_eq(rig_ask(&r, text, 50, ANSWER, false), MD_OK);
    (void)save(&r);
    r.notes = "noted";
    ck_assert_int_eq(rig_ask(&r, text, 60, ANSWER, false), MD_OK);
    ck_assert_int_eq(restore(&r, &snap), MD_OK);
    ck_assert_uint_eq(md_session_notes(r.session).len, 0);
    rig_close(&r);
}
END_TEST

/* An edit of what a conversation was is none of what is restored over it: a segment whose KV goes when it is edited takes
 * nothing of the file with it. */
START_TEST(what_was_edited_before_costs_nothing)
{
    struct rig r;
    struct md_snapshot snap, got;
    const struct md_segment segments[] = {
        { .range = { 0, 40 },
          .kind = MD_SEGMENT_SYSTEM,
          .stable = true,
          .cls = MD_CLASS_TASK_PINNED,
          .name = "a" },
        { .range = { 40, 200 },
          .kind = MD_SEGMENT_USER,
          .cls = MD_CLASS_VOLATILE,
          .invalidation = MD_INVALIDATION_ON_EDIT,
          .name = "b" },
    };
    md_token was[200]; /* they begin alike, for it is the first segment that differs that is edited */
    const struct md_context prompt = { was, 200, segments, 2 };
    memcpy(was, text, 40 * sizeof *was);
    memcpy(was + 40, text + 900, 160 * sizeof *was);
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    snap = save(&r);
    md_session_close(r.session); /* what is on another tape would not be dropped */
    r.session = rig_new(&r);
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    ck_assert_int_eq(restore(&r, &got), MD_OK);
    ck_assert_int_eq(got.kv_tokens, snap.kv_tokens);
    check_goes_on(&r, text, 300, &got);
    ck_assert_int_eq(r.last.dropped, 0);
    rig_close(&r);
}
END_TEST

/* A cold store that is too small: what has no room is not claimed. */
START_TEST(only_what_is_kept_is_claimed)
{
    struct rig r;
    struct md_snapshot snap, got;
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(rig_ask(&r, text, 600, ANSWER, false), MD_OK);
    snap = save(&r);
    rig_close(&r);
    rig_open(&r, rig_config(1024, 1024, 64 << 10), 0);
    ck_assert_int_eq(restore(&r, &got), MD_OK);
    ck_assert_int_gt(got.kv_tokens, 0);
    ck_assert_int_lt(got.kv_tokens, snap.kv_tokens);
    const struct md_session_status st = md_session_status(r.session);
    ck_assert_int_eq(st.cold_tokens, got.kv_tokens);
    ck_assert_int_eq(st.lost_tokens, 607 - got.kv_tokens);
    ck_assert_int_eq(rig_ask(&r, text, 600, ANSWER, false), MD_OK);
    rig_close(&r);
}
END_TEST

/* ---- what is refused ---- */

static uint8_t *read_file(size_t *ret_len)
{
    struct stat st;
    const int fd = open(path, O_RDONLY);
    ck_assert_int_eq(fstat(fd, &st), 0);
    uint8_t *bytes = malloc((size_t)st.st_size);
    ck_assert_int_eq(read(fd, bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    *ret_len = (size_t)st.st_size;
    return bytes;
}

static void write_file(const uint8_t *bytes, size_t len)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

/* Refused, and the conversation is what it was. */
static void check_refused(struct rig *r, const char *what)
{
    struct md_snapshot snap;
    const struct md_session_status before = md_session_status(r->session);
    const struct md_pool_status pool = md_pool_status(r->pool);
    const enum md_status s = restore(r, &snap);
    ck_assert_msg(s == MD_CORRUPT || s == MD_INVALID || s == MD_UNSUPPORTED || s == MD_TOO_LARGE, "%s: %s",
                  what, md_status_name(s));
    const struct md_session_status after = md_session_status(r->session);
    ck_assert_int_eq(after.hot_tokens, before.hot_tokens);
    ck_assert_int_eq(after.context_tokens, before.context_tokens);
    ck_assert(md_pool_status(r->pool).cold.entry_count == pool.cold.entry_count);
}

/* B061: a byte of each part flipped, and the file cut. */
START_TEST(b061_damaged)
{
    struct rig r;
    size_t len;
    md_token before[ANSWER];
    struct md_snapshot snap;
    rig_use_model(models[_i]);
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    r.notes = "a section more";
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    snap = save(&r);
    r.session = rig_new(&r);
    ck_assert_int_eq(rig_ask(&r, text + 700, 50, ANSWER, false), MD_OK);
    memcpy(before, r.last.tokens.ids, sizeof before);
    uint8_t *bytes = read_file(&len);
    for (size_t at = 0; at < len; at += at < 2000 ? 1 : 997) {
        bytes[at] ^= 0x10;
        write_file(bytes, len);
        check_refused(&r, "flipped");
        bytes[at] ^= 0x10;
    }
    for (size_t part = 1; part < 100; part += 7) {
        write_file(bytes, len * part / 100);
        check_refused(&r, "cut");
    }
    ck_assert_int_eq(rig_ask(&r, text + 700, 50, ANSWER, false), MD_OK);
    ck_assert_mem_eq(r.last.tokens.ids, before, sizeof before);
    write_file(bytes, len);
    ck_assert_int_eq(restore(&r, &snap), MD_OK);
    free(bytes);
    rig_close(&r);
}
END_TEST

/* Sections put together by somebody who knows the format. */
static enum md_status forged(struct rig *r, uint32_t kind, const uint32_t *types,
                             const struct md_bytes *parts, size_t count)
{
    struct md_sections_writer *w;
    struct md_snapshot snap;
    ck_assert_int_eq(md_sections_create(NULL, &place, kind, INT64_MAX, &w, &r->err), MD_OK);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(md_sections_put(w, types[i], &parts[i], 1, &r->err), MD_OK);
    ck_assert_int_eq(md_sections_commit(w, false, &r->err), MD_OK);
    return restore(r, &snap);
}

/* B065: another model, another block size, another window, an unknown section, another kind of file. */
START_TEST(b065_of_something_else)
{
    struct rig r;
    enum { SNAP = MD_SECTION_TYPE('S', 'N', 'A', 'P') };
    const char *identity;
    const uint32_t types[] = { MD_SECTION_TYPE('I', 'D', 'E', 'N'), MD_SECTION_TYPE('C', 'O', 'N', 'V'),
                               MD_SECTION_TYPE('B', 'L', 'C', 'K') },
                   unknown[] = { types[0], MD_SECTION_TYPE('M', 'I', 'R', 'R') };
    struct md_pool_config c = rig_config(1024, 1024, RAM);
    struct md_snapshot snap;
    rig_use_model(models[_i]);
    rig_open(&r, c, 0);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    (void)save(&r);
    rig_close(&r);
    c.block_tokens = 32;
    rig_open(&r, c, 0);
    check_refused(&r, "blocks");
    ck_assert_msg(strstr(r.err.text, "blocks of 16") != NULL && strstr(r.err.text, "32") != NULL, "%s",
                  r.err.text);
    rig_close(&r);
    rig_open(&r, rig_config(256, 256, RAM), 0);
    check_refused(&r, "window");
    ck_assert_msg(strstr(r.err.text, "308") != NULL && strstr(r.err.text, "256") != NULL, "%s", r.err.text);
    rig_close(&r);
    rig_open(&r, rig_config(2048, 2048, RAM), 0); /* a larger one will do */
    ck_assert_int_eq(restore(&r, &snap), MD_OK);
    identity = md_engine_info(r.engine)->identity;
    const struct md_bytes other = { "another model", 13 }, same = { identity, strlen(identity) },
                          junk = { "junk", 4 };
    ck_assert_int_eq(forged(&r, SNAP, types, (struct md_bytes[]){ other, junk }, 2), MD_INVALID);
    ck_assert_msg(strstr(r.err.text, "'another model'") != NULL, "%s", r.err.text);
    ck_assert_int_eq(forged(&r, SNAP, types, (struct md_bytes[]){ same, junk }, 2), MD_UNSUPPORTED);
    ck_assert_int_eq(forged(&r, SNAP, types, (struct md_bytes[]){ same }, 1), MD_CORRUPT);
    ck_assert_int_eq(forged(&r, SNAP, unknown, (struct md_bytes[]){ same, junk }, 2), MD_UNSUPPORTED);
    ck_assert_msg(strstr(r.err.text, "MIRR") != NULL, "%s", r.err.text);
    ck_assert_int_eq(forged(&r, SNAP + 1, types, (struct md_bytes[]){ same, junk }, 2), MD_INVALID);
    unlink(path);
    ck_assert_int_eq(restore(&r, &snap), MD_NOT_FOUND);
    rig_close(&r);
}
END_TEST

/* Blocks, or states, of a sound file that are not those of its tape, that end behind it, that are larger than any that is
 * written, or whose bytes the engine will not have. */
START_TEST(blocks_of_another_text)
{
    struct rig r;
    struct md_snapshot snap;
    size_t len;
    md_token want[ANSWER];
    enum { MORE = 2 << 20 }; /* above the notes as well, which are no longer than 1 MiB */
    const int section = models[_i] == RIG_DENSE ? 3 : 4, number = models[_i] == RIG_DENSE ? 5 : 1;
    rig_use_model(models[_i]);
    rig_fresh_answer(text, 300, ANSWER, want);
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    (void)save(&r);
    uint8_t *bytes = read_file(&len);
    struct md_sections_reader *in;
    static const uint32_t known[] = {
        MD_SECTION_TYPE('I', 'D', 'E', 'N'), MD_SECTION_TYPE('C', 'O', 'N', 'V'),
        MD_SECTION_TYPE('F', 'R', 'N', 'T'), MD_SECTION_TYPE('B', 'L', 'C', 'K'),
        MD_SECTION_TYPE('S', 'T', 'A', 'T'), MD_SECTION_TYPE('O', 'R', 'I', 'G')
    };
    for (int what = 0; what < 5; what++) {
        struct md_sections_writer *out;
        uint32_t type;
        int64_t n;
        int blocks = 0;
        write_file(bytes, len);
        ck_assert_int_eq(md_sections_open(NULL, &place, MD_SECTION_TYPE('S', 'N', 'A', 'P'), known, 6,
                                          INT64_MAX, &in, &r.err),
                         MD_OK);
        ck_assert_int_eq(md_sections_create(NULL, &place, MD_SECTION_TYPE('S', 'N', 'A', 'P'), INT64_MAX,
                                            &out, &r.err),
                         MD_OK);
        while (md_sections_next(in, &type, &n, &r.err) == MD_OK && type != 0) {
            uint8_t *payload = calloc(1, (size_t)n + MORE);
            struct md_bytes part = { payload, (size_t)n };
            ck_assert_int_eq(md_sections_read(in, payload, (size_t)n, &r.err), MD_OK);
            const bool at_hand = type == known[section] && ++blocks == number;
            if (at_hand && what == 0)
                part.len += MORE;
            else if (at_hand && what == 3)
                payload[37] ^= 8; /* 2048 tokens more: it ends behind the tape */
            else if (at_hand)
                payload[what == 1 ? 3 : what == 2 ? 33 : 70] ^= 1; /* key; start; bytes */
            ck_assert_int_eq(md_sections_put(out, type, &part, 1, &r.err), MD_OK);
            free(payload);
        }
        md_sections_close(in);
        ck_assert_int_ge(blocks, number);
        ck_assert_int_eq(md_sections_commit(out, false, &r.err), MD_OK);
        r.session = rig_new(&r);
        if (what < 4) {
            check_refused(&r, "block");
            ck_assert_msg(what > 0 || strstr(r.err.text, "at most") != NULL, "%s", r.err.text);
            continue;
        }
        ck_assert_int_eq(restore(&r, &snap), MD_OK);
        ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false),
                         MD_OK); /* computed again, where it is not to be had */
        ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    }
    free(bytes);
    rig_close(&r);
}
END_TEST

/* B058: names that are none; a link is not followed. */
START_TEST(b058_names)
{
    static const char *const bad[] = { "../x", "a/b", "a\\b", "", ".", ".." };
    static const char *const good[] = { "CON", " x ", "-rf" };
    struct rig r;
    struct md_snapshot snap;
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct md_sections_place p = { folder, bad[i] };
        ck_assert_int_eq(md_session_snapshot(r.session, &p, NULL, &snap, &r.err), MD_INVALID);
        ck_assert_int_eq(md_session_restore(r.session, &p, NULL, NULL, &snap, &r.err), MD_INVALID);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const struct md_sections_place p = { folder, good[i] };
        ck_assert_int_eq(md_session_snapshot(r.session, &p, NULL, &snap, &r.err), MD_OK);
        ck_assert_int_eq(md_session_restore(r.session, &p, NULL, NULL, &snap, &r.err), MD_OK);
    }
    char target[4300];
    snprintf(target, sizeof target, "%s/target", folder);
    close(open(target, O_CREAT | O_WRONLY, 0600));
    ck_assert_int_eq(symlink(target, path), 0);
    ck_assert_int_eq(restore(&r, &snap), MD_INVALID);
    (void)save(&r); /* replaces the link */
    struct stat st;
    ck_assert_int_eq(stat(target, &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    rig_close(&r);
}
END_TEST

/* Says that the client left at the nth question. */
static bool left_at(void *user)
{
    int *polls = user;
    return --*polls <= 0;
}

static int files_there(void)
{
    int count = 0;
    DIR *d = opendir(folder);
    ck_assert_ptr_nonnull(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return count;
}

/* At whatever block: nothing of it is left, what stood under the name stands there, and the conversation goes on. */
START_TEST(a_client_that_leaves_costs_its_own_file_only)
{
    struct rig r;
    struct md_snapshot snap;
    int asked = 0;
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    for (int kept = 0; kept < 2; kept++) { /* without a file of that name, and with one */
        for (int nth = 1;; nth++) {
            int polls = nth;
            const struct md_sink sink = { .user = &polls, .cancelled = left_at };
            const enum md_status s = md_session_snapshot(r.session, &place, &sink, &snap, &r.err);
            if (s == MD_OK)
                break;
            ck_assert_int_eq(s, MD_CANCELLED);
            ck_assert_int_eq(files_there(), kept);
            ck_assert(md_pool_check(r.pool));
            asked++;
        }
        ck_assert_int_eq(files_there(), 1);
    }
    ck_assert_int_eq(asked, 2 * (20 + 1)); /* before each block of 307 tokens, and before it gets its name */
    ck_assert_int_eq(restore(&r, &snap), MD_OK);
    check_goes_on(&r, text, 300, &snap);
    rig_close(&r);
}
END_TEST

/* A file of 307 tokens, a conversation in which it is to be restored, and another one. */
static void open_two(struct rig *r, const struct md_pool_config *config, struct md_session **ret_other)
{
    rig_open(r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(rig_ask(r, text, 300, ANSWER, false), MD_OK);
    (void)save(r);
    rig_close(r);
    rig_open(r, *config, 0);
    ck_assert_int_eq(rig_ask(r, text + 900, 200, ANSWER, false), MD_OK);
    *ret_other = r->session;
    r->session = rig_new(r);
    ck_assert_int_eq(rig_ask(r, text + 500, 200, ANSWER, false), MD_OK);
}

/* At whatever section of whichever pass, also when blocks of the file are in the cold store already. */
START_TEST(a_restore_whose_client_leaves_changes_nothing)
{
    struct rig r;
    struct md_snapshot snap;
    struct md_session *other;
    md_token want[ANSWER];
    int asked = 0;
    rig_use_model(models[_i]);
    const struct md_pool_config config = rig_config(1024, 1024, RAM);
    open_two(&r, &config, &other);
    const struct rig_seen before = rig_look(&r, other);
    for (int nth = 1;; nth++) {
        int polls = nth;
        const struct md_sink sink = { .user = &polls, .cancelled = left_at };
        const enum md_status s = md_session_restore(r.session, &place, NULL, &sink, &snap, &r.err);
        ck_assert(md_pool_check(r.pool));
        if (s == MD_OK)
            break;
        ck_assert_int_eq(s, MD_CANCELLED);
        rig_check_same(&r, &before);
        asked++;
    }
    /* before each section, and the end, of the three passes; and before the record and the two that tell whose it is */
    if (models[_i] == RIG_DENSE)
        ck_assert_int_eq(asked, 3 * (3 + 20 + 1) + 3);
    ck_assert_int_gt(asked, 10);
    check_goes_on(&r, text, 300, &snap);
    r.session = other;
    rig_fresh_answer(text + 900, 200, ANSWER, want);
    ck_assert_int_eq(rig_ask(&r, text + 900, 200, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.cached, 199);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    rig_close(&r);
}
END_TEST

/* A cold store without room for all of it: once another block has gone for it, the client that leaves is too late, and
 * before that nothing went. */
START_TEST(a_restore_is_cancelled_until_others_make_way)
{
    struct rig r;
    struct md_snapshot snap;
    struct md_session *other;
    int asked = 0;
    const struct md_pool_config config = rig_config(1024, 256, 96 << 10);
    open_two(&r, &config, &other);
    ck_assert_int_gt(md_session_status(other).cold_tokens, 0);
    const struct rig_seen before = rig_look(&r, other);
    for (int nth = 1;; nth++, asked++) {
        int polls = nth;
        const struct md_sink sink = { .user = &polls, .cancelled = left_at };
        const enum md_status s = md_session_restore(r.session, &place, NULL, &sink, &snap, &r.err);
        ck_assert(md_pool_check(r.pool));
        if (s == MD_OK)
            break;
        ck_assert_int_eq(s, MD_CANCELLED);
        rig_check_same(&r, &before);
    }
    ck_assert_int_gt(asked, 2 * (3 + 20 + 1) + 3); /* until within the last pass */
    ck_assert_int_lt(asked, 3 * (3 + 20 + 1) + 3);
    ck_assert(md_pool_status(r.pool).cold.dropped > before.pool.cold.dropped);
    rig_close(&r);
}
END_TEST

START_TEST(a_fatal_conversation_is_not_written)
{
    struct rig r;
    struct md_snapshot snap;
    const enum md_engine_op op = models[_i] == RIG_RECURRENT ? MD_OP_CHECKPOINT : MD_OP_EXPORT;
    rig_use_model(models[_i]);
    rig_open(&r, rig_config(1024, 1024, RAM), 0);
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    (void)save(&r);
    r.fault = (struct md_fault){ .op = op, .nth = 1, .status = MD_INTERNAL };
    ck_assert_int_eq(md_session_snapshot(r.session, &place, NULL, &snap, &r.err), MD_INTERNAL);
    r.fault = (struct md_fault){ 0 };
    ck_assert_int_eq(restore(&r, &snap), MD_OK); /* what was there is still there */
    ck_assert_int_eq(rig_ask(&r, text, 110, ANSWER, false), MD_OK);
    r.fault = (struct md_fault){ .op = op, .nth = 1, .status = MD_SESSION_FATAL };
    ck_assert_int_eq(md_session_snapshot(r.session, &place, NULL, &snap, &r.err), MD_SESSION_FATAL);
    r.fault = (struct md_fault){ 0 };
    ck_assert_int_eq(md_session_snapshot(r.session, &place, NULL, &snap, &r.err), MD_SESSION_FATAL);
    ck_assert_int_eq(restore(&r, &snap), MD_SESSION_FATAL);
    r.session = rig_new(&r);
    ck_assert_int_eq(restore(&r, &snap), MD_OK);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("snapshot");
    TCase *c = tcase_create("snapshot");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, fill, NULL);
    tcase_add_loop_test(c, b056_empty, 0, MODELS);
    tcase_add_loop_test(c, b059_goes_on_where_it_was, 0, MODELS);
    tcase_add_test(c, marks_segments_and_provenance_come_back);
    tcase_add_test(c, notes_come_back);
    tcase_add_test(c, what_was_edited_before_costs_nothing);
    tcase_add_test(c, only_what_is_kept_is_claimed);
    tcase_add_loop_test(c, b061_damaged, 0, MODELS);
    tcase_add_loop_test(c, b065_of_something_else, 0, MODELS);
    tcase_add_loop_test(c, blocks_of_another_text, 0, MODELS);
    tcase_add_test(c, b058_names);
    tcase_add_test(c, a_client_that_leaves_costs_its_own_file_only);
    tcase_add_loop_test(c, a_restore_whose_client_leaves_changes_nothing, 0, MODELS);
    tcase_add_test(c, a_restore_is_cancelled_until_others_make_way);
    tcase_add_loop_test(c, a_fatal_conversation_is_not_written, 0, MODELS);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
