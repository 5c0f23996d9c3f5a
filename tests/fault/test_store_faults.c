/* test_store_faults.c - conversations on disk when something fails once: each allocation of a start, a turn, a commit, a
 * spill and a load, each engine call of a commit, each call of the system that a commit or a load makes.
 *
 * What is right: an answer stands (rig_fresh_answer) or its call fails; what is called durable is there for the next
 * process, in the context it was said of; a later commit makes good what was missed; the index and the folder agree.
 *
 * The linker puts the __wrap functions in place of the calls (cmake/tests.cmake); nothing waits for the device. */
#include "support/fault_alloc.h"
#include "support/rng.h"
#include "support/run_suite.h"
#include "support/store_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { DISK = 16 << 20, RAM = 16 << 20, ANSWER = 4, TEXT = 1024 };

static md_token text[TEXT];

static void setup(void)
{
    sr_setup();
    rig_tokens(text, TEXT, 1);
}

/* ---- calls of the system that fail on request ---- */

static struct {
    long calls, at; /* at 0: none fails */
    bool from_then_on, hit;
    const char *call; /* the first that was hit */
    int error;
} sys;

static int64_t limit; /* that all files keep, whenever the system is called; 0: nobody looks */

static bool fails(const char *call)
{
    const long n = ++sys.calls;
    if (limit > 0)
        ck_assert_int_le(sr_files().all_pages, limit);
    const bool now = sys.at > 0 && (n == sys.at || (sys.from_then_on && n > sys.at));
    if (now && !sys.hit)
        sys.call = call;
    sys.hit |= now;
    if (now)
        errno = sys.error;
    return now;
}

static void arm(long at, int error, bool from_then_on)
{
    memset(&sys, 0, sizeof sys);
    sys.at = at;
    sys.error = error;
    sys.from_then_on = from_then_on;
}

ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    return fails("write") ? -1 : __real_write(fd, data, len);
}

ssize_t __real_pread(int fd, void *out, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *out, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *out, size_t len, off_t at)
{
    return fails("pread") ? -1 : __real_pread(fd, out, len, at);
}

int __real_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails("openat") ? -1 : __real_openat(folder, name, flags, mode);
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    (void)fd;
    return fails("fdatasync") ? -1 : 0;
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    (void)fd;
    return fails("fsync") ? -1 : 0;
}

int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return fails("renameat") ? -1 : __real_renameat(from_folder, from, to_folder, to);
}

/* ---- what holds always ---- */

static struct md_pool_config all_hot(void)
{
    return rig_config(1024, 1024, RAM);
}

/* Little is hot and little fits the memory: blocks go through it to the disk. */
static struct md_pool_config spills(void)
{
    return rig_config(1024, 128, 40 << 10);
}

/* The index has what lies in the folder, and no other file but for `left` that the system would not remove: the next
 * start finds them. */
static void check_folder_but(const struct store_rig *s, int left)
{
    const struct sr_files f = sr_files();
    const struct md_coldstore_stats st = md_pool_status(s->r.pool).disk;
    ck_assert(md_pool_check(s->r.pool));
    ck_assert_int_ge(f.blocks, (int)st.entry_count);
    ck_assert_int_le(f.blocks, (int)st.entry_count + left);
    ck_assert_int_ge(f.records, (int)md_disk_record_count(s->disk));
    ck_assert_int_le(f.records, (int)md_disk_record_count(s->disk) + left);
    ck_assert_int_eq(f.temporary, 0);
    ck_assert_int_le(f.pages, (int64_t)(st.used_bytes + st.reserved_bytes) + left * 65536);
}

static void check_folder(const struct store_rig *s)
{
    check_folder_but(s, 0);
}

/* The process ends; the next one has of this conversation what was called durable.  The records before and after the last
 * call are `before` tokens and all of `now`. */
static void check_durable(struct store_rig *s, struct md_pool_config c, const md_token *now, int32_t before)
{
    int32_t count;
    const int32_t durable = md_session_status(s->r.session).durable_tokens;
    (void)md_session_context(s->r.session, &count);
    sr_stop(s);
    sr_start(s, c, DISK);
    struct md_session *found = sr_find(s, now, count);
    const bool written = found != NULL;
    if (found == NULL)
        found = sr_find(s, now, before);
    ck_assert_msg(found != NULL, "what is there is neither what was nor what is");
    /* the record may stand there though its write failed (host/sections.h: the folder was not synced) */
    const int32_t cold = md_session_status(found).cold_tokens;
    ck_assert_msg(cold == durable || (written && durable < count && cold > durable),
                  "%d tokens are called durable, %d are there", durable, cold);
    ck_assert_int_eq(sr_used(s), 1);
    check_folder(s);
    s->r.session = found;
}

static md_token said[TEXT];
static int32_t said_count;

/* Ask with `more` tokens more.  True: it was answered, rightly where all was attended. */
static enum md_status say(struct store_rig *s, int32_t more)
{
    md_token want[ANSWER];
    memcpy(said + said_count, text + said_count, (size_t)more * sizeof *said);
    char notes[20];
    snprintf(notes, sizeof notes, "%d tokens", said_count + more);
    s->r.notes = notes;
    s->r.adds = ", an answer"; /* where there is memory */
    const enum md_status st = rig_ask(&s->r, said, said_count + more, ANSWER, false);
    s->r.notes = NULL;
    if (st != MD_OK)
        return st;
    const struct md_bytes noted = md_session_notes(s->r.session);
    ck_assert(noted.len >= strlen(notes) && memcmp(noted.data, notes, strlen(notes)) == 0);
    said_count += more;
    if (rig_is_full(&s->r, s->r.session)) {
        rig_fresh_answer(said, said_count, ANSWER, want);
        ck_assert_mem_eq(s->r.last.tokens.ids, want, sizeof want);
    }
    memcpy(said + said_count, s->r.last.tokens.ids, ANSWER * sizeof *said);
    said_count += ANSWER;
    return MD_OK;
}

static void say_well(struct store_rig *s, int32_t more)
{
    ck_assert_msg(say(s, more) == MD_OK, "%s", s->r.err.text);
}

/* A later commit makes it good: all is durable whose KV is not lost, and the next process has it. */
static void check_made_good(struct store_rig *s, struct md_pool_config c)
{
    say_well(s, 5);
    const struct md_session_status st = md_session_status(s->r.session);
    ck_assert_int_eq(st.durable_tokens, st.tape_tokens - st.lost_tokens);
    check_durable(s, c, said, 0); /* and the folder */
}

/* ---- memory ---- */

START_TEST(nth_allocation_of_a_start)
{
    struct store_rig s;
    int failures = 0;
    sr_start(&s, all_hot(), DISK);
    said_count = 0;
    say_well(&s, 200);
    const int64_t id = md_session_id(s.r.session);
    sr_stop(&s);
    const struct sr_files before = sr_files();
    for (long nth = 1;; nth++) {
        struct fault_alloc f;
        fault_alloc_init(&f, nth);
        const enum md_status st = sr_try_start(&s, all_hot(), DISK, &f.alloc);
        const bool met = f.failed;
        ck_assert_msg(st == (met ? MD_NO_MEMORY : MD_OK), "call %ld: %s", nth, md_status_name(st));
        ck_assert_msg(st == MD_OK || s.err.text[0] != '\0', "call %ld says nothing", nth);
        sr_stop(&s);
        ck_assert_msg(f.live_blocks == 0, "call %ld: %zu blocks leaked", nth, f.live_blocks);
        const struct sr_files now = sr_files();
        ck_assert_msg(memcmp(&now, &before, sizeof now) == 0, "call %ld: files went", nth);
        failures += met;
        if (!met)
            break;
    }
    ck_assert_int_gt(failures, 20);
    sr_start(&s, all_hot(), DISK);
    ck_assert_ptr_eq(sr_find(&s, said, said_count), md_pool_find(s.r.pool, id));
    sr_stop(&s);
}
END_TEST

/* One turn behind another while the nth allocation fails; then what of it is there, and then what comes of it. */
static int fail_allocations(struct md_pool_config c, int32_t first, int32_t more, bool reopen)
{
    int failures = 0;
    for (long nth = 1;; nth++) {
        struct fault_alloc f;
        struct store_rig s;
        sr_empty();
        said_count = 0;
        fault_alloc_init(&f, 0);
        ck_assert_int_eq(sr_try_start(&s, c, DISK, &f.alloc), MD_OK);
        say_well(&s, first);
        if (reopen) { /* all of it is to be loaded */
            sr_stop(&s);
            ck_assert_int_eq(sr_try_start(&s, c, DISK, &f.alloc), MD_OK);
            s.r.session = sr_find(&s, said, said_count);
        }
        const int32_t before = said_count;
        const int blocks = sr_files().blocks;
        fault_alloc_arm(&f, nth);
        const enum md_status st = say(&s, more);
        const bool met = f.failed;
        ck_assert_msg(st == MD_OK || (met && st == MD_NO_MEMORY), "call %ld: %s: %s", nth, md_status_name(st),
                      s.r.err.text);
        failures += met;
        fault_alloc_arm(&f, 0);
        check_folder(&s);
        ck_assert_msg(sr_files().blocks >= blocks - 1, "call %ld: blocks went", nth); /* but for the end */
        if (nth % 2 == 0 && st == MD_OK)
            check_durable(&s, c, said, before);
        check_made_good(&s, c);
        sr_stop(&s);
        ck_assert_msg(f.live_blocks == 0, "call %ld: %zu blocks leaked", nth, f.live_blocks);
        if (!met)
            return failures;
    }
}

START_TEST(nth_allocation_of_a_turn_and_its_commit)
{
    ck_assert_int_gt(fail_allocations(all_hot(), 60, 40, false), 20);
}
END_TEST

START_TEST(nth_allocation_while_blocks_spill)
{
    ck_assert_int_gt(fail_allocations(spills(), 150, 60, false), 30);
}
END_TEST

START_TEST(nth_allocation_of_a_load)
{
    ck_assert_int_gt(fail_allocations(all_hot(), 60, 20, true), 20);
    ck_assert_int_gt(fail_allocations(spills(), 150, 20, true), 20);
}
END_TEST

/* ---- the engine ---- */

static bool fail_export(int nth, enum md_status status)
{
    struct store_rig s;
    sr_empty();
    said_count = 0;
    sr_start(&s, all_hot(), DISK);
    say_well(&s, 60);
    const int32_t before = said_count;
    s.r.fault = (struct md_fault){ .op = MD_OP_EXPORT, .nth = nth, .status = status };
    say_well(&s, 80); /* all is hot: nothing is exported but by the commit */
    const bool met = s.r.fault.failed > 0;
    s.r.fault = (struct md_fault){ 0 };
    const struct md_session_status st = md_session_status(s.r.session);
    ck_assert_int_eq(s.r.last.durable,
                     met ? before - 1 : st.tape_tokens); /* the last token was sampled only */
    ck_assert_int_eq(st.durable_tokens, s.r.last.durable);
    ck_assert_int_eq(st.fatal, met && status == MD_SESSION_FATAL);
    check_folder(&s);
    if (status == MD_SESSION_FATAL && met) { /* it ends; what it was before is there for the next process */
        check_durable(&s, all_hot(), said, before);
        const struct md_session_status again = md_session_status(s.r.session);
        ck_assert_int_eq(again.context_tokens, before);
        ck_assert_int_eq(again.cold_tokens, again.tape_tokens);
    } else {
        if (nth % 2 == 0)
            check_durable(&s, all_hot(), said, before);
        check_made_good(&s, all_hot());
    }
    sr_stop(&s);
    return met;
}

START_TEST(nth_engine_call_of_a_commit)
{
    static const enum md_status all[] = { MD_INTERNAL, MD_NO_MEMORY, MD_SESSION_FATAL };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int nth = 1;
        while (fail_export(nth, all[i]))
            nth++;
        ck_assert_int_gt(nth, 4); /* five blocks were new, and one longer */
    }
}
END_TEST

/* ---- the system ---- */

static int missed; /* commits */

/* Files that cannot be removed: the folder was not opened for it. */
static int may_be_left(void)
{
    return sys.hit && (sys.from_then_on || strcmp(sys.call, "openat") == 0);
}

static bool fail_call(long nth, int32_t first, int error, bool from_then_on)
{
    struct store_rig s;
    sr_empty();
    said_count = 0;
    sr_start(&s, all_hot(), DISK);
    if (first > 0)
        say_well(&s, first);
    const int32_t before = said_count;
    arm(nth, error, from_then_on);
    say_well(&s, 40);
    const bool met = sys.hit;
    const int left = may_be_left();
    arm(0, 0, false);
    const struct md_session_status st = md_session_status(s.r.session);
    /* all, when it was only the piece that nobody needs any more that would not go; else what was there before */
    const int32_t old = before > 0 ? before - 1 : 0;
    ck_assert_msg(s.r.last.durable == st.tape_tokens || (met && s.r.last.durable == old),
                  "call %ld (%s): %d are called durable, of %d and %d", nth, sys.call, s.r.last.durable, old,
                  st.tape_tokens);
    missed += s.r.last.durable == old;
    check_folder_but(&s, left);
    if (nth % 2 == 0 && first > 0)
        check_durable(&s, all_hot(), said, before);
    check_made_good(&s, all_hot());
    sr_stop(&s);
    return met;
}

START_TEST(nth_call_of_the_system_in_a_commit)
{
    for (int i = 0; i < 4; i++) {
        long nth = 1;
        while (fail_call(nth, i < 2 ? 0 : 60, i % 2 == 0 ? ENOSPC : EIO, i % 2 == 0))
            nth++;
        ck_assert_int_gt(nth, 20);
    }
    ck_assert_int_gt(missed, 40);
}
END_TEST

/* Conversations that grow, part and end, more than there is room for: before and behind each call of the system, those in
 * which files are written included, all files keep the limit. */
START_TEST(the_limit_holds_at_every_moment)
{
    enum { TALKS = 4, TURNS = 40 };
    static const int64_t limits[] = { 1 << 20, (1 << 20) + 4095, (1 << 20) + 4096 };
    struct rng rng = rng_open("the limit of a KV folder");
    struct store_rig s;
    struct md_session *talks[TALKS];
    int64_t most = 0;
    limit = limits[_i];
    sr_start(&s, rig_config(1024, 1024, RAM), limit);
    talks[0] = s.r.session;
    for (int i = 1; i < TALKS; i++)
        talks[i] = rig_new(&s.r);
    for (int turn = 0; turn < TURNS; turn++) {
        md_token prompt[TEXT];
        const uint32_t talk = rng_below(&rng, TALKS), cut = rng_below(&rng, 700);
        rig_tokens(prompt, TEXT, 10 + talk);
        rig_tokens(prompt + cut, TEXT - (int32_t)cut, 100 + rng_below(&rng, 3));
        s.r.session = talks[talk];
        if (rng_below(&rng, 8) == 0) {
            md_session_close(s.r.session);
            s.r.session = talks[talk] = rig_new(&s.r);
        }
        ck_assert_int_eq(rig_ask(&s.r, prompt, 100 + (int32_t)rng_below(&rng, 900), ANSWER, false), MD_OK);
        const int64_t now = sr_files().all_pages;
        const struct md_coldstore_stats disk = md_pool_status(s.r.pool).disk;
        ck_assert_int_le(now, limit);
        ck_assert_int_le(now, (int64_t)(disk.used_bytes + disk.reserved_bytes)); /* what is told */
        most = now > most ? now : most;
    }
    ck_assert_int_gt(most, limit - 16 * 4096); /* it was reached */
    ck_assert_int_gt(md_pool_status(s.r.pool).disk.dropped, 20);
    sr_stop(&s);
    sr_start(&s, rig_config(1024, 1024, RAM), limit); /* and so does the next process */
    ck_assert_int_le(sr_files().all_pages, limit);
    sr_stop(&s);
    limit = 0;
}
END_TEST

/* A full disk is no reason to fail a turn: what has no other place is lost, and said to be. */
START_TEST(a_full_disk_while_blocks_spill)
{
    for (int none = 0; none < 2; none++) {
        struct md_pool_config c = spills();
        struct store_rig s;
        c.cold_bytes = none ? 0 : c.cold_bytes;
        sr_empty();
        said_count = 0;
        sr_start(&s, c, DISK);
        arm(1, ENOSPC, true);
        say_well(&s, 300);
        arm(0, 0, false);
        ck_assert_int_gt(s.r.last.dropped, 0);
        ck_assert_int_eq(s.r.last.durable, 0);
        ck_assert_int_eq(sr_files().blocks, 0);
        check_made_good(&s, c);
        sr_stop(&s);
    }
}
END_TEST

/* A block that cannot be read costs its own computation; it is not taken for damaged. */
START_TEST(nth_call_of_the_system_in_a_load)
{
    for (long nth = 1;; nth++) {
        struct store_rig s;
        sr_empty();
        said_count = 0;
        sr_start(&s, all_hot(), DISK);
        say_well(&s, 60);
        sr_stop(&s);
        const int blocks = sr_files().blocks;
        sr_start(&s, all_hot(), DISK);
        s.r.session = sr_find(&s, said, said_count);
        arm(nth, EIO, false);
        say_well(&s, 1);
        const bool met = sys.hit;
        const int left = may_be_left();
        arm(0, 0, false);
        ck_assert_int_ge(sr_files().blocks, blocks);
        ck_assert_int_le(s.r.last.prefilled, 2 + 16);
        check_folder_but(&s, left);
        check_made_good(&s, all_hot());
        sr_stop(&s);
        if (!met)
            break;
        ck_assert_int_lt((int)nth, 200);
    }
}
END_TEST

/* At the start it costs its own block or conversation, for this process: the file stays, and counts. */
START_TEST(nth_call_of_the_system_in_a_start)
{
    struct store_rig s;
    int started = 0, blocks_lost = 0, closed = 0, nothing = 0;
    said_count = 0;
    sr_start(&s, all_hot(), DISK);
    say_well(&s, 200);
    sr_stop(&s);
    const struct sr_files before = sr_files();
    for (long nth = 1;; nth++) {
        arm(nth, EIO, false);
        const enum md_status st = sr_try_start(&s, all_hot(), DISK, NULL);
        const bool met = sys.hit;
        arm(0, 0, false);
        if (st != MD_OK) { /* the folder itself cannot be read */
            ck_assert_msg(st == MD_IO && nth == 1, "call %ld (%s): %s", nth, sys.hit ? sys.call : "none",
                          s.err.text);
            sr_stop(&s);
            continue;
        }
        const struct sr_files now = sr_files();
        const struct md_coldstore_stats disk = md_pool_status(s.r.pool).disk;
        ck_assert_msg(memcmp(&now, &before, sizeof now) == 0, "call %ld: files went", nth);
        ck_assert(md_pool_check(s.r.pool));
        ck_assert_int_ge(disk.entry_count, before.blocks - 1);
        ck_assert_int_ge((int64_t)(disk.used_bytes + disk.reserved_bytes), before.pages);
        struct md_session *found = sr_find(&s, said, said_count);
        blocks_lost += disk.entry_count < before.blocks;
        closed += found == NULL;
        const int lost = (disk.entry_count < before.blocks) + (found == NULL);
        ck_assert_int_le(lost, met);
        nothing += met && lost == 0;
        if (found != NULL) {
            const struct md_session_status now_there = md_session_status(found);
            ck_assert_int_ge(now_there.cold_tokens, now_there.tape_tokens - 16);
            ck_assert_int_eq(now_there.cold_tokens + now_there.lost_tokens, now_there.tape_tokens);
        }
        started++;
        sr_stop(&s);
        if (!met)
            break;
        ck_assert_int_lt((int)nth, 400);
    }
    ck_assert_int_gt(blocks_lost, before.blocks);
    ck_assert_int_gt(closed, 1);
    ck_assert_int_eq(nothing, 1); /* the highest id that was noted: those of the records tell it as well */
    /* what was lost is computed again, written in its place, and whole for the next one */
    arm(before.blocks / 2 * 3, EIO, false);
    ck_assert_int_eq(sr_try_start(&s, all_hot(), DISK, NULL), MD_OK);
    arm(0, 0, false);
    s.r.session = sr_find(&s, said, said_count);
    ck_assert_ptr_nonnull(s.r.session);
    ck_assert_int_gt(md_session_status(s.r.session).lost_tokens, 0);
    check_made_good(&s, all_hot());
    sr_stop(&s);
    ck_assert_int_gt(started, 20);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store faults");
    TCase *c = tcase_create("faults");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, setup, sr_teardown);
    tcase_add_test(c, nth_allocation_of_a_start);
    tcase_add_test(c, nth_allocation_of_a_turn_and_its_commit);
    tcase_add_test(c, nth_allocation_while_blocks_spill);
    tcase_add_test(c, nth_allocation_of_a_load);
    tcase_add_test(c, nth_engine_call_of_a_commit);
    tcase_add_test(c, nth_call_of_the_system_in_a_commit);
    tcase_add_loop_test(c, the_limit_holds_at_every_moment, 0, 3);
    tcase_add_test(c, a_full_disk_while_blocks_spill);
    tcase_add_test(c, nth_call_of_the_system_in_a_load);
    tcase_add_test(c, nth_call_of_the_system_in_a_start);
    suite_add_tcase(s, c);
    return md_run_suite(s);
}
