/* test_store.c - conversations on disk (session/store.h over session/disk.h): a pool that is closed and opened again, on
 * the fake engine, whose KV is exact to the last bit.  Nothing is written when a pool closes, so that closing it stands
 * for a kill; real kills are in test_store_kill.c.
 *
 * What is right: the answers of a session that has seen nothing else (rig_fresh_answer), and counts of tokens that follow
 * from what was asked. */
#include "session/disk.h"
#include "session/store.h"
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

enum { RAM = 64 << 20, DISK = 64 << 20, ANSWER = 8, TEXT = 4096, BLOCK = 16, LOCK = 4096 };

static char folder[4096];
static md_token text[TEXT];
static struct rig r;
static struct md_disk *disk;

static void fill(void)
{
    md_temp_folder(folder, sizeof folder, "store");
    rig_tokens(text, TEXT, 1);
}

static void start_with(struct md_pool_config c, const char *identity, int64_t bytes)
{
    const struct md_disk_config d = { .folder = folder, .identity = identity, .budget_bytes = bytes };
    struct md_err err;
    ck_assert_msg(md_disk_open(&d, &disk, &err) == MD_OK, "%s", err.text);
    c.disk = disk;
    rig_open(&r, c, 0);
}

static void start(int32_t hot, size_t ram)
{
    start_with(rig_config(1024, hot, ram), "fake", DISK);
}

/* The process ends. */
static void stop(void)
{
    rig_close(&r);
    md_disk_close(disk);
    disk = NULL;
}

static struct md_session *session_of(int64_t id)
{
    struct md_session *s = md_pool_find(r.pool, id);
    ck_assert_msg(s != NULL, "conversation %lld is not there", (long long)id);
    return s;
}

/* How many files there are, by the beginning of their names; largest: one of the largest of them. */
static int files(const char *prefix, char *largest)
{
    int count = 0;
    off_t most = -1;
    DIR *top = opendir(folder);
    for (struct dirent *e; (e = readdir(top)) != NULL;) {
        char path[4400];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        DIR *d = opendir(path);
        for (struct dirent *f; d != NULL && (f = readdir(d)) != NULL;) {
            if (strncmp(f->d_name, prefix, strlen(prefix)) != 0 || strcmp(f->d_name, ".") == 0 ||
                strcmp(f->d_name, "..") == 0)
                continue;
            char file[8500];
            struct stat st;
            snprintf(file, sizeof file, "%s/%s", path, f->d_name);
            ck_assert_int_eq(stat(file, &st), 0);
            count++;
            if (largest != NULL && st.st_size > most)
                memcpy(largest, file, sizeof file);
            most = st.st_size > most ? st.st_size : most;
        }
        if (d != NULL)
            closedir(d);
    }
    closedir(top);
    return count;
}

/* ---- what comes back ---- */

START_TEST(a_conversation_goes_on_where_it_was)
{
    for (int32_t hot = 128; hot <= 1024; hot += 896) {
        md_token prompt[600], want[ANSWER];
        int32_t count = 300;
        memcpy(prompt, text, sizeof prompt);
        start(hot, RAM);
        const int64_t id = md_session_id(r.session);
        for (int turn = 0; turn < 6; turn++) {
            r.session = session_of(id);
            ck_assert_int_eq(rig_ask(&r, prompt, count, ANSWER, false), MD_OK);
            /* all but the first turn: the last token of the answer, which was not evaluated, and 20 new ones */
            ck_assert_int_eq(r.last.prefilled, turn == 0 ? 300 : 21);
            ck_assert_int_eq(r.last.durable, r.last.tape);
            ck_assert_int_eq(r.last.recomputed + r.last.dropped + r.last.lost, 0);
            if (hot == 1024) {
                rig_fresh_answer(prompt, count, ANSWER, want);
                ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
            }
            memcpy(prompt + count, r.last.tokens.ids, ANSWER * sizeof *prompt);
            count += ANSWER + 20;
            const int32_t tape = r.last.tape;
            stop();
            start(hot, RAM);
            const struct md_session_status st = md_session_status(session_of(id));
            ck_assert_int_eq(st.tape_tokens, tape);
            ck_assert_int_eq(st.cold_tokens, tape);
            ck_assert_int_eq(st.durable_tokens, tape);
            ck_assert_int_eq(st.context_tokens, tape + 1);
        }
        stop();
        ck_assert_int_eq(files("s-", NULL), 1); /* what was never used is not written */
        md_temp_folder_empty(folder);
    }
}
END_TEST

START_TEST(conversations_share_what_they_begin_with_and_keep_their_marks)
{
    int32_t tokens;
    struct md_session *branch;
    start(1024, RAM);
    const int64_t id = md_session_id(r.session);
    struct md_segment segments[] = {
        { .range = { 0, 100 }, .kind = MD_SEGMENT_SYSTEM, .stable = true, .cls = MD_CLASS_TASK_PINNED },
        { .range = { 100, 300 },
          .kind = MD_SEGMENT_USER,
          .cls = MD_CLASS_VOLATILE,
          .invalidation = MD_INVALIDATION_ON_EDIT },
    };
    snprintf(segments[1].name, sizeof segments[1].name, "question");
    const struct md_context prompt = { text, 300, segments, 2 };
    ck_assert_int_eq(rig_ask_segments(&r, &prompt, ANSWER), MD_OK);
    ck_assert_int_eq(md_session_branch(r.session, 200, &branch, &r.err), MD_OK);
    md_pool_keep(branch);
    const int64_t other = md_session_id(branch);
    struct md_session *first = r.session;
    r.session = branch;
    ck_assert_int_eq(rig_suffix(&r, text + 1000, 40), MD_OK);
    ck_assert_int_eq(md_session_evict_range(first, (struct md_range){ 32, 64 }, &tokens, &r.err), MD_OK);
    stop();
    start(1024, RAM);
    const struct md_session_status a = md_session_status(session_of(id)),
                                   b = md_session_status(session_of(other));
    ck_assert_int_eq(a.held_out_tokens, 32);
    ck_assert_int_eq(a.lost_tokens + b.lost_tokens, 0);
    ck_assert_int_eq((int)b.parent, (int)id);
    ck_assert_int_eq(a.tokens_in_class[MD_CLASS_TASK_PINNED], 112);
    size_t count;
    const struct md_segment *g = md_session_segments(session_of(id), &count);
    ck_assert_uint_eq(count, 2);
    ck_assert(g[0].stable && g[1].invalidation == MD_INVALIDATION_ON_EDIT);
    ck_assert_str_eq(g[1].name, "question");
    r.session = session_of(other);
    ck_assert_int_eq(rig_decode(&r, ANSWER), MD_OK);
    md_token own[240], want[ANSWER];
    memcpy(own, text, 200 * sizeof *own);
    memcpy(own + 200, text + 1000, 40 * sizeof *own);
    rig_fresh_answer(own, 240, ANSWER, want);
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    ck_assert_int_eq(r.last.prefilled, 0 + 1);
    /* a new one is none of those that were */
    ck_assert(md_session_id(rig_new(&r)) > other);
    stop();
}
END_TEST

/* Little memory: what is pushed out of it comes from the disk, in this process too. */
START_TEST(what_has_no_room_in_memory_is_on_disk)
{
    md_token prompt[900], want[ANSWER];
    memcpy(prompt, text, sizeof prompt);
    for (int none = 0; none < 2; none++) {
        start(128, none ? 0 : 200 << 10);
        ck_assert_int_eq(rig_ask(&r, prompt, 800, ANSWER, false), MD_OK);
        ck_assert_int_eq(r.last.dropped, 0);
        ck_assert_int_eq(r.last.durable, r.last.tape);
        const int32_t tape = r.last.tape;
        struct md_pool_status st = md_pool_status(r.pool);
        ck_assert_int_gt((int)st.disk.entry_count, 40);
        ck_assert_int_eq((int)st.disk.dropped, 0);
        /* brought back from there, bit for bit */
        int32_t tokens;
        ck_assert_int_eq(md_session_admit_range(r.session, (struct md_range){ 304, 352 }, &tokens, &r.err),
                         MD_OK);
        ck_assert_int_eq(tokens, 48);
        ck_assert_int_eq(md_session_status(r.session).lost_tokens, 0);
        ck_assert_int_eq(md_session_status(r.session).tape_tokens, tape);
        stop();
        md_temp_folder_empty(folder);
    }
    (void)want;
}
END_TEST

START_TEST(a_closed_conversation_is_gone_from_the_disk)
{
    start(1024, RAM);
    const int64_t id = md_session_id(r.session);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    ck_assert_int_gt(files("b-", NULL), 18);
    md_session_close(session_of(id));
    ck_assert_int_eq(files("b-", NULL), 0);
    ck_assert_int_eq(files("s-", NULL), 0);
    stop();
    start(1024, RAM);
    ck_assert_ptr_null(md_pool_find(r.pool, id));
    stop();
}
END_TEST

/* One that grows leaves no piece of its last block behind. */
START_TEST(only_what_is_on_the_tape_stays_on_disk)
{
    md_token prompt[600];
    int32_t count = 100;
    memcpy(prompt, text, sizeof prompt);
    start(1024, RAM);
    for (int turn = 0; turn < 10; turn++) {
        ck_assert_int_eq(rig_ask(&r, prompt, count, ANSWER, false), MD_OK);
        memcpy(prompt + count, r.last.tokens.ids, ANSWER * sizeof *prompt);
        ck_assert_int_eq(files("b-", NULL), (r.last.tape + BLOCK - 1) / BLOCK);
        ck_assert_int_eq(files("s-", NULL), 1);
        count += ANSWER + 7;
    }
    stop();
}
END_TEST

/* A call that failed leaves the context that the header says, in the next process too. */
START_TEST(what_a_failed_call_leaves_is_what_comes_back)
{
    start(1024, RAM);
    const int64_t id = md_session_id(r.session);
    ck_assert_int_eq(rig_ensure(&r, text, 100), MD_OK);
    r.cancel_after = 3;
    ck_assert_int_eq(rig_suffix(&r, text + 100, 500), MD_CANCELLED);
    r.cancel_after = -1;
    ck_assert_int_eq(md_session_status(r.session).context_tokens, 100);
    stop();
    start(1024, RAM);
    r.session = session_of(id);
    ck_assert_int_eq(md_session_status(r.session).context_tokens, 100);
    r.cancel_after = 3;
    ck_assert_int_eq(rig_ensure(&r, text + 1000, 500), MD_CANCELLED);
    const int32_t left = md_session_status(r.session).context_tokens;
    stop();
    start(1024, RAM);
    ck_assert_int_eq(md_session_status(session_of(id)).context_tokens, left);
    stop();
}
END_TEST

/* ---- limits and damage ---- */

START_TEST(the_budget_holds_and_what_has_no_room_is_not_called_durable)
{
    const int64_t budget = 1 << 20;
    start_with(rig_config(4096, 128, RAM), "fake", budget);
    const int64_t id = md_session_id(r.session);
    ck_assert_int_eq(rig_ask(&r, text, 3000, ANSWER, false), MD_OK);
    struct md_pool_status st = md_pool_status(r.pool);
    ck_assert(st.disk.used_bytes + st.disk.reserved_bytes <= (size_t)budget);
    ck_assert_int_gt((int)st.disk.dropped, 0);
    ck_assert_int_lt(r.last.durable, r.last.tape);
    const int32_t durable = md_session_status(r.session).durable_tokens;
    stop();
    start_with(rig_config(4096, 128, RAM), "fake", budget);
    struct md_session_status s = md_session_status(session_of(id));
    ck_assert_int_eq(s.cold_tokens, durable);
    ck_assert_int_eq(s.lost_tokens, s.tape_tokens - durable);
    /* it goes on all the same, and does not write what pushes out its own */
    r.session = session_of(id);
    ck_assert_int_eq(rig_ask(&r, text, 3010, ANSWER, false), MD_OK);
    st = md_pool_status(r.pool);
    ck_assert_int_eq(rig_ask(&r, text, 3014, ANSWER, false), MD_OK);
    ck_assert_int_le((int)(md_pool_status(r.pool).disk.stored - st.disk.stored), 3);
    stop();
}
END_TEST

static void flip_byte(const char *path, off_t at)
{
    uint8_t b;
    const int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &b, 1, at), 1);
    b ^= 0x40;
    ck_assert_int_eq(pwrite(fd, &b, 1, at), 1);
    close(fd);
}

START_TEST(damaged_files_are_given_up_alone)
{
    char path[8500];
    struct stat st;
    md_token want[ANSWER];
    for (int what = 0; what < 4; what++) {
        start(1024, RAM);
        const int64_t id = md_session_id(r.session);
        ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
        stop();
        ck_assert_int_gt(files(what == 3 ? "s-" : "b-", path), 0);
        ck_assert_int_eq(stat(path, &st), 0);
        if (what == 0)
            flip_byte(path, st.st_size / 2); /* in the KV: seen when it is wanted */
        else if (what == 1)
            flip_byte(path, 40);
        else
            ck_assert_int_eq(truncate(path, st.st_size - 100), 0);
        start(1024, RAM);
        if (what > 0)
            ck_assert_int_ne(access(path, F_OK), 0); /* removed at the start */
        if (what == 3)
            ck_assert_ptr_null(md_pool_find(r.pool, id));
        else
            r.session = session_of(id);
        ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
        rig_fresh_answer(text, 300, ANSWER, want);
        ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
        ck_assert_int_eq(r.last.prefilled,
                         what == 3 ? 1 : 1 + BLOCK); /* blocks are found without a record as well */
        stop();
        md_temp_folder_empty(folder);
    }
}
END_TEST

/* Its text is wanted somewhere else: it is computed there. */
START_TEST(a_damaged_block_that_would_be_moved)
{
    struct md_pool_config c = rig_config(1024, 1024, RAM);
    char path[8500];
    struct stat st;
    md_token prompt[240];
    c.reuse = MD_REUSE_APPROXIMATE;
    start_with(c, "fake", DISK);
    ck_assert_int_eq(rig_ask(&r, text, 200, ANSWER, false), MD_OK);
    stop();
    ck_assert_int_gt(files("b-", path), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    flip_byte(path, st.st_size / 2);
    start_with(c, "fake", DISK);
    memcpy(prompt, text + 1000, 40 * sizeof *prompt);
    memcpy(prompt + 40, text, 200 * sizeof *prompt);
    ck_assert_msg(rig_ask(&r, prompt, 240, ANSWER, false) == MD_OK, "%s", r.err.text);
    ck_assert_int_gt(r.last.moved, 100);
    ck_assert_int_lt(r.last.moved, 192); /* twelve blocks but one */
    ck_assert_int_ne(access(path, F_OK), 0);
    stop();
}
END_TEST

/* The notes of the front are written with the record: those of the last call, in a branch too. */
START_TEST(notes_come_back)
{
    struct md_session *branch;
    start(1024, RAM);
    const int64_t id = md_session_id(r.session);
    r.notes = "first";
    r.adds = " and answered";
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    r.notes = "second";
    ck_assert_int_eq(rig_ask(&r, text, 120, ANSWER, false), MD_OK);
    ck_assert_int_eq(md_session_branch(r.session, 50, &branch, &r.err), MD_OK);
    md_store_commit(branch);
    const int64_t other = md_session_id(branch);
    stop();
    start(1024, RAM);
    ck_assert(md_bytes_are(md_session_notes(session_of(id)), "second and answered"));
    ck_assert(md_bytes_are(md_session_notes(session_of(other)), "second and answered"));
    r.session = session_of(id);
    ck_assert_int_eq(rig_ask(&r, text, 130, ANSWER, false), MD_OK); /* which brings none */
    stop();
    start(1024, RAM);
    ck_assert_uint_eq(md_session_notes(session_of(id)).len, 0);
    ck_assert_uint_gt(md_session_notes(session_of(other)).len, 0);
    stop();
}
END_TEST

/* More than may be kept is refused before anything is changed. */
START_TEST(notes_that_are_too_long)
{
    static char long_notes[MD_NOTES_BYTES_MAX + 2];
    memset(long_notes, 'x', MD_NOTES_BYTES_MAX + 1);
    start(1024, RAM);
    const int64_t id = md_session_id(r.session);
    r.notes = "short";
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    r.notes = long_notes;
    ck_assert_int_eq(rig_ask(&r, text, 130, ANSWER, false), MD_INVALID);
    ck_assert(md_bytes_are(md_session_notes(r.session), "short"));
    long_notes[MD_NOTES_BYTES_MAX] = '\0';
    ck_assert_int_eq(rig_ask(&r, text, 130, ANSWER, false), MD_OK);
    stop();
    start(1024, RAM);
    ck_assert_uint_eq(md_session_notes(session_of(id)).len, MD_NOTES_BYTES_MAX);
    stop();
}
END_TEST

/* Each byte of the notes' section flipped: they are lost, and the conversation is whole.  Where the section begins: 24
 * bytes before its payload (host/sections.h). */
START_TEST(notes_that_are_damaged_are_lost_alone)
{
    char path[8500];
    static char bytes[1 << 16];
    start(1024, RAM);
    const int64_t id = md_session_id(r.session);
    r.notes = "what the front has noted";
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    stop();
    ck_assert_int_eq(files("s-", path), 1);
    int fd = open(path, O_RDWR);
    const ssize_t len = read(fd, bytes, sizeof bytes);
    const char *payload = memmem(bytes, (size_t)len, "what the front", 14);
    ck_assert_ptr_nonnull(payload);
    const off_t from = payload - bytes - 24, to = payload - bytes + 24;
    for (off_t at = from; at < to; at++) {
        const char other = bytes[at] ^ 0x20;
        ck_assert_int_eq(pwrite(fd, &other, 1, at), 1);
        start(1024, RAM);
        r.session = session_of(id);
        ck_assert_uint_eq(md_session_notes(r.session).len, 0);
        ck_assert_int_eq(md_session_status(r.session).cold_tokens, 107);
        stop();
        ck_assert_int_eq(pwrite(fd, &bytes[at], 1, at), 1);
    }
    close(fd);
    start(1024, RAM);
    ck_assert(md_bytes_are(md_session_notes(session_of(id)), "what the front has noted"));
    stop();
}
END_TEST

/* A record never goes, and takes whole pages: with a budget that has no page more the folder is not opened. */
START_TEST(a_budget_that_the_records_fill)
{
    const int64_t page = 4096;
    struct md_disk_config d = { .folder = folder, .identity = "fake", .budget_bytes = DISK };
    struct md_err err;
    ck_assert_int_eq(md_disk_open(&d, &disk, &err), MD_OK);
    for (int64_t id = 1; id <= 257; id++)
        ck_assert_int_eq(md_disk_put_record(disk, id, (struct md_bytes){ "few bytes", 9 },
                                            (struct md_bytes){ 0 }, &err),
                         MD_OK);
    md_disk_close(disk);
    d.budget_bytes = LOCK + 256 * page + 2000;
    ck_assert_int_eq(md_disk_open(&d, &disk, &err), MD_NO_MEMORY);
    ck_assert_msg(strstr(err.text, "--kv-disk") != NULL, "%s", err.text);
    ck_assert_int_eq(files("s-", NULL), 257);
    d.budget_bytes = LOCK + 257 * page;
    ck_assert_int_eq(md_disk_open(&d, &disk, &err), MD_OK);
    ck_assert_int_eq((int)md_disk_record_count(disk), 257);
    md_disk_close(disk);
    disk = NULL;
}
END_TEST

/* Bytes that say which version of the format a file has: at 8, little-endian (host/sections.h). */
static void set_version(const char *path, uint8_t version)
{
    const int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, &version, 1, 8), 1);
    close(fd);
}

static int64_t pages_of(const char *path)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    return (st.st_size + 4095) / 4096 * 4096;
}

/* Another version is not damage: the modeld that wrote it may come back. */
START_TEST(files_of_another_version_are_left_alone)
{
    char block[8500], record[8500];
    md_token want[ANSWER];
    start(1024, RAM);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    rig_fresh_answer(text, 300, ANSWER, want);
    stop();
    const int blocks = files("b-", block);
    ck_assert_int_eq(files("s-", record), 1);
    set_version(block, 9);
    start(1024, RAM); /* one block less */
    struct md_coldstore_stats st = md_pool_status(r.pool).disk;
    ck_assert_int_eq(access(block, F_OK), 0);
    ck_assert_int_eq(st.entry_count, blocks - 1);
    ck_assert_int_eq((int64_t)st.reserved_bytes, LOCK + pages_of(record) + pages_of(block));
    ck_assert_int_eq(md_session_status(session_of(1)).lost_tokens, BLOCK);
    stop();
    set_version(block, 1);
    set_version(record, 9);
    start(1024, RAM); /* no conversation, and its id is not used again */
    ck_assert_int_eq(access(record, F_OK), 0);
    ck_assert_ptr_null(md_pool_find(r.pool, 1));
    const int64_t other = md_session_id(r.session);
    ck_assert_int_gt(other, 1);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.prefilled, 1); /* blocks need no record */
    ck_assert_mem_eq(r.last.tokens.ids, want, sizeof want);
    stop();
    set_version(record, 1);
    start(1024, RAM); /* all is as it was */
    ck_assert_int_eq(md_session_status(session_of(1)).lost_tokens, 0);
    (void)session_of(other);
    stop();
}
END_TEST

/* A conversation's own version, within a file that is sound. */
START_TEST(records_of_another_version_are_left_alone)
{
    struct md_disk_config d = { .folder = folder, .identity = "fake", .budget_bytes = DISK };
    struct md_err err;
    const uint8_t later[16] = { 2 }; /* u32 version comes first (record.c) */
    char record[8500];
    ck_assert_int_eq(md_disk_open(&d, &disk, &err), MD_OK);
    ck_assert_int_eq(md_disk_put_record(disk, 7, (struct md_bytes){ later, sizeof later },
                                        (struct md_bytes){ 0 }, &err),
                     MD_OK);
    md_disk_close(disk);
    for (int i = 0; i < 2; i++) {
        start(1024, RAM);
        ck_assert_int_eq(files("s-", record), 1);
        ck_assert_ptr_null(md_pool_find(r.pool, 7));
        ck_assert_int_gt(md_session_id(r.session), 7);
        ck_assert_int_eq((int64_t)md_pool_status(r.pool).disk.reserved_bytes, LOCK + pages_of(record));
        stop();
    }
}
END_TEST

/* They count: what does not fit beside them is not written, and is said not to be durable. */
START_TEST(files_that_are_left_alone_count_against_the_budget)
{
    struct dirent **names;
    char path[8500];
    start(1024, RAM);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(rig_ask(&r, text + 1000 * i, 900, ANSWER, false), MD_OK);
        r.session = rig_new(&r);
    }
    const size_t used = md_pool_status(r.pool).disk.used_bytes;
    stop();
    ck_assert_int_gt(files("b-", path), 0);
    *strrchr(path, '/') = '\0';
    const int count = scandir(path, &names, NULL, NULL);
    for (int i = 0; i < count; i++) {
        char file[9000];
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (strncmp(names[i]->d_name, "b-", 2) == 0)
            set_version(file, 9);
        free(names[i]);
    }
    free(names);
    start_with(rig_config(1024, 1024, RAM), "fake", (int64_t)used + (128 << 10));
    const struct md_coldstore_stats st = md_pool_status(r.pool).disk;
    ck_assert_int_eq((int)st.entry_count, 0);
    ck_assert_uint_ge(st.reserved_bytes, used);
    ck_assert_uint_le(st.used_bytes + st.reserved_bytes, st.budget_bytes);
    ck_assert_int_eq(rig_ask(&r, text + 3100, 900, ANSWER, false), MD_OK);
    ck_assert_int_gt(r.last.durable, 0); /* what found room */
    ck_assert_int_lt(r.last.durable, 900);
    ck_assert(md_pool_check(r.pool));
    stop();
}
END_TEST

START_TEST(what_is_not_ours_is_left_alone)
{
    char path[8500], mine[8600], temporary[8600];
    start(1024, RAM);
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    stop();
    ck_assert_int_gt(files("s-", path), 0);
    *strrchr(path, '/') = '\0';
    snprintf(mine, sizeof mine, "%s/notes.txt", path);
    snprintf(temporary, sizeof temporary, "%s/.s-1.session.0123456789abcdef.tmp", path);
    close(open(mine, O_CREAT | O_WRONLY, 0600));
    close(open(temporary, O_CREAT | O_WRONLY, 0600));
    start_with(rig_config(1024, 1024, RAM), "another model", DISK); /* has a folder of its own */
    ck_assert_ptr_null(md_pool_find(r.pool, 2));
    stop();
    ck_assert_int_eq(access(temporary, F_OK), 0);
    start(1024, RAM);
    ck_assert_int_eq(access(mine, F_OK), 0);
    ck_assert_int_ne(access(temporary, F_OK), 0);
    (void)session_of(1);
    stop();
}
END_TEST

START_TEST(the_folder_is_for_one_process)
{
    struct md_disk *second;
    struct md_err err;
    const struct md_disk_config d = { .folder = folder, .identity = "fake", .budget_bytes = DISK },
                                small = { .folder = folder, .identity = "x", .budget_bytes = 1000 },
                                nowhere = { .folder = "/proc/none", .identity = "x", .budget_bytes = DISK };
    start(1024, RAM);
    ck_assert_int_eq(md_disk_open(&d, &second, &err), MD_BUSY);
    ck_assert_msg(strstr(err.text, "--kv-dir") != NULL, "%s", err.text);
    stop();
    ck_assert_int_eq(md_disk_open(&small, &second, &err), MD_INVALID);
    ck_assert_int_eq(md_disk_open(&nowhere, &second, &err), MD_IO);
}
END_TEST

/* The system refuses to write: the answer stands, and what was there before is called durable, and nothing else. */
START_TEST(a_disk_that_refuses_is_told_and_survived)
{
    char path[8500];
    start(1024, RAM);
    const int64_t id = md_session_id(r.session);
    ck_assert_int_eq(rig_ask(&r, text, 100, ANSWER, false), MD_OK);
    ck_assert_int_gt(files("s-", path), 0);
    *strrchr(path, '/') = '\0';
    char moved[8600];
    snprintf(moved, sizeof moved, "%s.moved", path);
    ck_assert_int_eq(rename(path, moved), 0);
    ck_assert_int_eq(rig_ask(&r, text, 200, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.durable, 100); /* what the record there and this one begin with */
    ck_assert_int_eq(rename(moved, path), 0);
    ck_assert_int_eq(rig_ask(&r, text, 220, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.durable, r.last.tape);
    const int32_t tape = r.last.tape;
    stop();
    start(1024, RAM);
    ck_assert_int_eq(md_session_status(session_of(id)).cold_tokens, tape);
    stop();
}
END_TEST

/* The memory has no room for any block: each that leaves is for the disk, which does not take it. */
START_TEST(a_folder_that_was_taken_away_fails_no_turn)
{
    char path[8500], moved[8600];
    start(128, 0);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    ck_assert_int_eq(r.last.dropped, 0);
    ck_assert_int_gt(files("s-", path), 0);
    *strrchr(path, '/') = '\0';
    snprintf(moved, sizeof moved, "%s.moved", path);
    ck_assert_int_eq(rename(path, moved), 0);
    ck_assert_msg(rig_ask(&r, text, 800, ANSWER, false) == MD_OK, "%s", r.err.text);
    ck_assert_int_gt(r.last.dropped, 400); /* of the 500 that came, all but what is hot */
    ck_assert_int_le(r.last.durable, 300); /* what was read in vain is given up */
    ck_assert_int_eq(rename(moved, path), 0);
    ck_assert_int_eq(rig_ask(&r, text, 820, ANSWER, false), MD_OK);
    ck_assert_int_gt(r.last.durable, 0);
    stop();
}
END_TEST

START_TEST(another_window_or_block_size)
{
    struct md_pool_config c = rig_config(200, 200, RAM);
    start(1024, RAM);
    const int64_t id = md_session_id(r.session);
    ck_assert_int_eq(rig_ask(&r, text, 300, ANSWER, false), MD_OK);
    stop();
    start_with(c, "fake", DISK); /* too small a window: it stays on the disk */
    ck_assert_ptr_null(md_pool_find(r.pool, id));
    ck_assert(md_session_id(r.session) > id);
    stop();
    c = rig_config(1024, 1024, RAM);
    c.block_tokens = 32;
    start_with(c, "fake", DISK);
    ck_assert_ptr_null(md_pool_find(r.pool, id));
    stop();
    start(1024, RAM);
    ck_assert_int_eq(md_session_status(session_of(id)).cold_tokens, 307);
    stop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store");
    TCase *c = tcase_create("store");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, fill, NULL);
    tcase_add_test(c, a_conversation_goes_on_where_it_was);
    tcase_add_test(c, conversations_share_what_they_begin_with_and_keep_their_marks);
    tcase_add_test(c, what_has_no_room_in_memory_is_on_disk);
    tcase_add_test(c, a_closed_conversation_is_gone_from_the_disk);
    tcase_add_test(c, what_a_failed_call_leaves_is_what_comes_back);
    tcase_add_test(c, only_what_is_on_the_tape_stays_on_disk);
    tcase_add_test(c, the_budget_holds_and_what_has_no_room_is_not_called_durable);
    tcase_add_test(c, damaged_files_are_given_up_alone);
    tcase_add_test(c, a_damaged_block_that_would_be_moved);
    tcase_add_test(c, notes_come_back);
    tcase_add_test(c, notes_that_are_too_long);
    tcase_add_test(c, notes_that_are_damaged_are_lost_alone);
    tcase_add_test(c, a_budget_that_the_records_fill);
    tcase_add_test(c, what_is_not_ours_is_left_alone);
    tcase_add_test(c, files_of_another_version_are_left_alone);
    tcase_add_test(c, records_of_another_version_are_left_alone);
    tcase_add_test(c, files_that_are_left_alone_count_against_the_budget);
    tcase_add_test(c, the_folder_is_for_one_process);
    tcase_add_test(c, a_disk_that_refuses_is_told_and_survived);
    tcase_add_test(c, a_folder_that_was_taken_away_fails_no_turn);
    tcase_add_test(c, another_window_or_block_size);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
