/* test_sections_faults.c - each call of the system that a file of sections needs fails once, is interrupted,
 * does less than it was asked for, or is the last thing the process gets to: the old file stands or the new
 * one does, whole, and the reader never takes half a file for one.  B063 is a case of the project's list.
 *
 * The linker puts the __wrap functions in place of the calls (cmake/tests.cmake). */
#include "support/fault_alloc.h"
#include "support/run_suite.h"
#include "support/sections_folder.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- calls that fail on request ---- */

enum how {
    WELL,
    FAIL,        /* call `at`, with `error` */
    FAIL_FROM,   /* that one and all after it */
    KILL,        /* before call `at` */
    INTERRUPTED, /* every second call that can be */
    SWAPPED,     /* what fstatat has seen becomes a link to "other" */
    SHORT,       /* reads and writes do a part of what they are asked for, at least a byte */
};

static struct {
    enum how how;
    long calls, at;
    int error;
    bool hit;
    char call[16]; /* the one that was hit first */
} fault;

static void arm(enum how how, long at, int error)
{
    memset(&fault, 0, sizeof fault);
    fault.how = how;
    fault.at = at;
    fault.error = error;
}

static bool fails(const char *call)
{
    const long n = ++fault.calls;
    if (fault.how == KILL && n == fault.at)
        kill(getpid(), SIGKILL);
    bool now = (fault.how == FAIL && n == fault.at) || (fault.how == FAIL_FROM && n >= fault.at);
    if (now && !fault.hit)
        snprintf(fault.call, sizeof fault.call, "%s", call);
    fault.hit |= now;
    if (fault.how == INTERRUPTED && n % 2 == 1) {
        now = true;
        fault.error = EINTR;
    }
    if (now)
        errno = fault.error;
    return now;
}

static size_t part(size_t len)
{
    return fault.how == SHORT && len > 1 ? 1 + (size_t)(fault.calls * 7919) % (len - 1) : len;
}

ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    return fails("write") ? -1 : __real_write(fd, data, part(len));
}

ssize_t __real_pread(int fd, void *data, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at)
{
    return fails("pread") ? -1 : __real_pread(fd, data, part(len), at);
}

int __real_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails("openat") ? -1 : __real_openat(folder, name, flags, mode);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return fails("fdatasync") ? -1 : __real_fdatasync(fd);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fails("fsync") ? -1 : __real_fsync(fd);
}

/* Linux closes it in any case. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    const bool now = fails("close");
    const int error = errno, result = __real_close(fd);
    errno = error;
    return now ? -1 : result;
}

int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return fault.how != INTERRUPTED && fails("renameat") ? -1
                                                         : __real_renameat(from_folder, from, to_folder, to);
}

int __real_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags)
{
    return fault.how != INTERRUPTED && fails("unlinkat") ? -1 : __real_unlinkat(folder, name, flags);
}

int __real_fstatat(int folder, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int folder, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int folder, const char *name, struct stat *st, int flags)
{
    if (fault.how != INTERRUPTED && fails("fstatat"))
        return -1;
    const int result = __real_fstatat(folder, name, st, flags);
    if (fault.how == SWAPPED)
        ck_assert(__real_unlinkat(folder, name, 0) == 0 && symlinkat("other", folder, name) == 0);
    return result;
}

int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
{
    return fault.how != INTERRUPTED && fails("fstat") ? -1 : __real_fstat(fd, st);
}

ssize_t __real_getrandom(void *out, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags)
{
    return fails("getrandom") ? -1 : __real_getrandom(out, len, flags);
}

/* ---- what is written and read ---- */

enum { BIG = 100000 };
static uint8_t *data;
static struct sections_spec old_file, new_file;

static void setup(void)
{
    arm(WELL, 0, 0);
    sf_setup();
    data = sf_pattern(BIG);
    old_file = sf_write_good("k", data, 5000);
    ss_begin(&new_file, 1, SS_KIND);
    ss_section(&new_file, "META", 0, data, 17);
    ss_section(&new_file, "KVKV", 0, data, BIG);
    ss_section(&new_file, "TAPE", 0, data, 300);
    ss_end(&new_file);
}

static void teardown(void)
{
    arm(WELL, 0, 0);
    ss_done(&old_file);
    ss_done(&new_file);
    free(data);
    sf_teardown();
}

static enum md_status write_new(const struct md_alloc *alloc, bool durable, struct md_err *err)
{
    struct md_sections_writer *w = NULL;
    const struct md_sections_place p = sf_place("k");
    enum md_status s = md_sections_create(alloc, &p, SS_KIND, INT64_MAX, &w, err);
    ck_assert((s == MD_OK) == (w != NULL));
    if (s == MD_OK)
        s = sf_put(w, "META", data, 17, err);
    if (s == MD_OK)
        s = sf_put(w, "KVKV", data, BIG, err);
    if (s == MD_OK)
        s = sf_put(w, "TAPE", data, 300, err);
    if (s == MD_OK)
        return md_sections_commit(w, durable, err);
    md_sections_abort(w);
    return s;
}

static bool is(const char *call)
{
    return strcmp(fault.call, call) == 0;
}

/* It is one of the two, whole. */
static bool the_new_one_stands(void)
{
    struct stat st;
    ck_assert_int_eq(stat(sf_path("k"), &st), 0);
    const bool is_new = st.st_size == (int64_t)new_file.buf.len;
    ck_assert_int_eq(sf_read("k", is_new ? &new_file : &old_file, NULL), MD_OK);
    return is_new;
}

/* ---- writing ---- */

START_TEST(each_call_fails)
{
    static const int errors[] = { EIO, ENOSPC, EDQUOT, EFBIG };
    const int error = errors[_i];
    long nth = 1;
    int writes = 0, unseen_ones = 0;
    bool more = true;
    for (; more; nth++) {
        struct md_err err = { 0 };
        arm(FAIL, nth, error);
        const enum md_status s = write_new(NULL, true, &err);
        more = fault.hit;
        fault.how = WELL;
        const bool unseen = s == MD_OK && more; /* the descriptor of the folder is the last thing that goes */
        ck_assert_msg(s == (more && !unseen ? MD_IO : MD_OK) && (!unseen || is("close")), "%s, call %ld: %s",
                      fault.call, nth, err.text);
        ck_assert_msg(s == MD_OK || error == EIO || is("getrandom") || is("fsync") ||
                          (strstr(err.text, "no space left") != NULL) == !(is("openat") && nth == 1),
                      "%s: %s", fault.call, err.text);
        /* after the renaming only the folder's sync can fail, and the text says what then stands */
        ck_assert_int_eq(the_new_one_stands(), s == MD_OK || is("fsync"));
        ck_assert(!is("fsync") || strstr(err.text, "the file is there") != NULL);
        ck_assert(sf_listed().files == 1 && sf_listed().temporary == 0);
        writes += is("write");
        unseen_ones += unseen;
        sf_save("k", old_file.buf.data, old_file.buf.len);
    }
    ck_assert_int_ge(writes, 3);
    ck_assert_int_eq(unseen_ones, 1);
    ck_assert_int_ge(nth, 1 + 9); /* folder, number, file, 3 writes, sync, close, rename, sync, close */
}
END_TEST

/* The disk is gone from one call on, so that the temporary file cannot be removed either: it is one of ours. */
START_TEST(all_calls_fail_from_one_on)
{
    bool more = true;
    for (long nth = 1; more; nth++) {
        int left = 0;
        struct md_err err = { 0 };
        arm(FAIL_FROM, nth, EIO);
        const enum md_status s = write_new(NULL, true, &err);
        more = fault.hit;
        fault.how = WELL;
        ck_assert(s == MD_IO || (s == MD_OK && (!more || is("close"))));
        ck_assert_int_eq(the_new_one_stands(), s == MD_OK || is("fsync"));
        ck_assert(sf_listed().files == 1 && sf_listed().temporary <= 1);
        ck_assert_int_eq(md_sections_list(sf_folder, sf_remove_temporary, &left, NULL), MD_OK);
        ck_assert_int_eq(sf_listed().temporary, 0);
        sf_save("k", old_file.buf.data, old_file.buf.len);
    }
}
END_TEST

/* B063: SIGKILL before each call. */
START_TEST(killed_at_each_call)
{
    bool more = true;
    int old_ones = 0, new_ones = 0, left = 0;
    for (long nth = 1; more; nth++) {
        int status;
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            arm(KILL, nth, 0);
            _exit(write_new(NULL, true, NULL) == MD_OK ? 0 : 1);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        more = WIFSIGNALED(status);
        ck_assert(more ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
        const bool is_new = the_new_one_stands();
        ck_assert(sf_listed().files == 1 && sf_listed().temporary <= !is_new);
        ck_assert_int_eq(md_sections_list(sf_folder, sf_remove_temporary, &left, NULL), MD_OK);
        ck_assert_int_eq(sf_listed().temporary, 0);
        old_ones += !is_new;
        new_ones += is_new;
        sf_save("k", old_file.buf.data, old_file.buf.len);
    }
    ck_assert_int_ge(old_ones, 8);
    ck_assert_int_ge(new_ones, 2); /* before the folder's sync, and not at all */
    ck_assert_int_ge(left, 5);
}
END_TEST

START_TEST(written_in_bits)
{
    struct md_err err = { 0 };
    arm(_i == 0 ? SHORT : INTERRUPTED, 0, 0);
    const enum md_status s = write_new(NULL, true, &err);
    const long calls = fault.calls;
    arm(WELL, 0, 0);
    ck_assert_msg(s == MD_OK, "%s", err.text);
    ck_assert_int_ge(calls, 15);
    sf_check_bytes("k", new_file.buf.data, new_file.buf.len);
}
END_TEST

/* What does not ask for it is not synced: fsync takes longer than all the rest. */
START_TEST(not_durable)
{
    long durable, not ;
    arm(WELL, 0, 0);
    ck_assert_int_eq(write_new(NULL, true, NULL), MD_OK);
    durable = fault.calls;
    arm(WELL, 0, 0);
    ck_assert_int_eq(write_new(NULL, false, NULL), MD_OK);
    not = fault.calls;
    ck_assert_int_eq(durable, not +2);
}
END_TEST

/* ---- reading ---- */

static enum md_status read_old(void)
{
    struct md_err err = { 0 };
    const enum md_status s = sf_read("k", &old_file, &err);
    ck_assert(s == MD_OK || (err.status == s && err.text[0] != '\0'));
    return s;
}

START_TEST(each_call_of_the_reader_fails)
{
    bool more = true;
    int reads = 0;
    for (long nth = 1; more; nth++) {
        arm(FAIL, nth, EIO);
        const enum md_status s = read_old();
        more = fault.hit;
        fault.how = WELL;
        ck_assert_msg(s == (more && !is("close") ? MD_IO : MD_OK), "%s, call %ld", fault.call, nth);
        reads += is("pread");
    }
    ck_assert_int_ge(reads, 5); /* header, end, all, all again, the end again */
}
END_TEST

START_TEST(read_in_bits)
{
    sf_save("k", new_file.buf.data, new_file.buf.len);
    arm(_i == 0 ? SHORT : INTERRUPTED, 0, 0);
    const enum md_status s = sf_read("k", &new_file, NULL);
    const long calls = fault.calls;
    arm(WELL, 0, 0);
    ck_assert_int_eq(s, MD_OK);
    ck_assert_int_ge(calls, 15);
}
END_TEST

/* A link that is put there between the look and the opening. */
START_TEST(link_after_the_look)
{
    struct md_sections_reader *r = NULL;
    struct md_err err = { 0 };
    sf_save("other", new_file.buf.data, new_file.buf.len);
    arm(SWAPPED, 0, 0);
    const enum md_status s = sf_open("k", INT64_MAX, &r, &err);
    arm(WELL, 0, 0);
    ck_assert_int_eq(s, MD_INVALID);
    ck_assert_msg(strstr(err.text, "is a link") != NULL, "%s", err.text);
}
END_TEST

START_TEST(memory)
{
    struct fault_alloc a;
    struct md_sections_reader *r = NULL;
    const struct md_sections_place p = sf_place("k");
    struct md_err err = { 0 };
    bool more = true;
    for (long nth = 1; more; nth++) {
        fault_alloc_init(&a, nth);
        enum md_status s = write_new(&a.alloc, false, &err);
        more = a.failed;
        ck_assert_int_eq(s, more ? MD_NO_MEMORY : MD_OK);
        ck_assert(a.live_blocks == 0 && sf_listed().temporary == 0);
        ck_assert_int_eq(the_new_one_stands(), !more);
    }
    for (long nth = 1; nth == 1 || more; nth++) {
        fault_alloc_init(&a, nth);
        enum md_status s = md_sections_open(&a.alloc, &p, SS_KIND, ss_known,
                                            sizeof ss_known / sizeof ss_known[0], INT64_MAX, &r, &err);
        more = a.failed;
        ck_assert_int_eq(s, more ? MD_NO_MEMORY : MD_OK);
        ck_assert((r == NULL) == more);
        ck_assert_uint_le(a.peak_bytes, 1 << 20); /* however large the file is */
        md_sections_close(r);
        ck_assert_uint_eq(a.live_blocks, 0);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sections_faults");
    TCase *t = tcase_create("sections_faults");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, each_call_fails, 0, 4);
    tcase_add_test(t, all_calls_fail_from_one_on);
    tcase_add_test(t, killed_at_each_call);
    tcase_add_loop_test(t, written_in_bits, 0, 2);
    tcase_add_test(t, not_durable);
    tcase_add_test(t, each_call_of_the_reader_fails);
    tcase_add_loop_test(t, read_in_bits, 0, 2);
    tcase_add_test(t, link_after_the_look);
    tcase_add_test(t, memory);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
