/* test_sections.c - files of sections: what is written is what the format's own words make
 * (support/sections_spec), is read as that, and stays there when something else cannot be written.  B063 and
 * B064 are cases of the project's list. */
#include "support/run_suite.h"
#include "support/sections_folder.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* ---- what is written, and reading it ---- */

START_TEST(round_trip)
{
    static const char *const types[] = { "TAPE", "KVKV", "META", "A  B" };
    enum { BIG = MIB + 13 };
    static const size_t lens[] = {
        0, 1, 7, 8, 9, 0, 4096, 65535, 65536, 65536 + 1, BIG, 256 << 10, (256 << 10) - 24, (256 << 10) + 1, 3
    };
    const size_t count = sizeof lens / sizeof lens[0];
    uint8_t *data = sf_pattern(BIG);
    struct sections_spec want;
    struct md_err err = { 0 };
    struct md_sections_writer *w = sf_begin("k", INT64_MAX);
    ss_begin(&want, 1, SS_KIND);
    for (size_t i = 0; i < count; i++) {
        /* in three parts, one of them empty, and without any for the empty ones */
        const size_t first = lens[i] / 3;
        const struct md_bytes parts[] = { { data, first }, { NULL, 0 }, { data + first, lens[i] - first } };
        ck_assert_msg(md_sections_put(w, SS_TYPE(types[i % 4]), lens[i] == 0 ? NULL : parts,
                                      lens[i] == 0 ? 0 : 3, &err) == MD_OK,
                      "%s", err.text);
        ss_section(&want, types[i % 4], 0, data, lens[i]);
    }
    ss_end(&want);
    ck_assert_int_eq(access(sf_path("k"), F_OK), -1); /* nothing stands there before the commit */
    ck_assert_int_eq(sf_listed().temporary, 1);
    ck_assert_msg(md_sections_commit(w, true, &err) == MD_OK, "%s", err.text);
    sf_check_bytes("k", want.buf.data, want.buf.len);
    ck_assert_int_eq(sf_listed().temporary, 0);

    struct md_sections_reader *r = NULL;
    ck_assert_msg(sf_open("k", (int64_t)want.buf.len, &r, &err) == MD_OK, "%s", err.text);
    static const size_t pieces[] = { 1000, 1, 300000, BIG };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        struct sections_spec got;
        ck_assert_msg(ss_read_all(r, pieces[i], &got, &err) == MD_OK, "%s", err.text);
        ck_assert_uint_eq(got.buf.len, want.buf.len);
        ck_assert_mem_eq(got.buf.data, want.buf.data, want.buf.len);
        ss_done(&got);
        md_sections_rewind(r);
    }
    md_sections_close(r);
    ss_done(&want);
    free(data);
}
END_TEST

/* Sections may be read in part or not at all; the order and the lengths are those of the file. */
START_TEST(read_over)
{
    struct md_err err = { 0 };
    struct md_sections_reader *r = NULL;
    struct md_sections_writer *w = sf_begin("k", INT64_MAX);
    char out[8] = "";
    uint32_t type;
    int64_t bytes;
    ck_assert_int_eq(sf_put(w, "TAPE", "abcdefg", 7, &err), MD_OK);
    ck_assert_int_eq(sf_put(w, "META", "12345", 5, &err), MD_OK);
    ck_assert_int_eq(sf_put(w, "TAPE", "", 0, &err), MD_OK);
    ck_assert_int_eq(md_sections_commit(w, false, &err), MD_OK);
    ck_assert_int_eq(sf_open("k", INT64_MAX, &r, &err), MD_OK);
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(md_sections_next(r, &type, &bytes, &err), MD_OK);
        ck_assert(type == SS_TYPE("TAPE") && bytes == 7);
        ck_assert_int_eq(md_sections_read(r, out, 2, &err), MD_OK);
        ck_assert_mem_eq(out, "ab", 2);
        ck_assert_int_eq(md_sections_next(r, &type, &bytes, &err), MD_OK);
        ck_assert(type == SS_TYPE("META") && bytes == 5);
        ck_assert_int_eq(md_sections_read(r, out, 0, &err), MD_OK);
        ck_assert_int_eq(md_sections_read(r, out, 3, &err), MD_OK);
        ck_assert_int_eq(md_sections_read(r, out + 3, 3, &err), MD_CORRUPT); /* one more than there are */
        ck_assert_str_eq(strstr(err.text, "section '"),
                         "section 'META' at byte 64 has 2 bytes left, 3 were to be read");
        ck_assert_int_eq(md_sections_read(r, out + 3, 2, &err), MD_OK);
        ck_assert_mem_eq(out, "12345", 5);
        ck_assert_int_eq(md_sections_next(r, &type, &bytes, &err), MD_OK);
        ck_assert(type == SS_TYPE("TAPE") && bytes == 0);
        ck_assert_int_eq(md_sections_read(r, out, 0, &err), MD_OK);
        for (int i = 0; i < 2; i++) { /* the end stays the end */
            ck_assert_int_eq(md_sections_next(r, &type, &bytes, &err), MD_OK);
            ck_assert(type == 0 && bytes == 0);
        }
        md_sections_rewind(r);
    }
    md_sections_close(r);
}
END_TEST

START_TEST(nothing_in_it)
{
    struct md_err err = { 0 };
    struct sections_spec want;
    struct stat st;
    const mode_t before = umask(0);
    ck_assert_int_eq(md_sections_commit(sf_begin("k", 80), true, &err), MD_OK);
    umask(before);
    ss_begin(&want, 1, SS_KIND);
    ss_end(&want);
    ck_assert_uint_eq(want.buf.len, 80);
    sf_check_bytes("k", want.buf.data, want.buf.len);
    ck_assert_int_eq(sf_read("k", &want, &err), MD_OK);
    ck_assert_int_eq(stat(sf_path("k"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600); /* for this user alone, whatever the mask */
    ss_done(&want);
}
END_TEST

START_TEST(given_up)
{
    struct sections_spec old = sf_write_good("k", "old", 3);
    struct md_sections_writer *w = sf_begin("k", INT64_MAX);
    ck_assert_int_eq(sf_put(w, "TAPE", "new", 3, NULL), MD_OK);
    md_sections_abort(w);
    md_sections_abort(NULL);
    ck_assert_int_eq(sf_read("k", &old, NULL), MD_OK);
    ck_assert(sf_listed().files == 1 && sf_listed().temporary == 0);
    ss_done(&old);
}
END_TEST

/* Two at once under one name are two files until they commit; who has the old one open reads it on. */
START_TEST(one_name_for_two)
{
    struct sections_spec old = sf_write_good("k", "old", 3), got, want;
    struct md_sections_writer *a = sf_begin("k", INT64_MAX), *b = sf_begin("k", INT64_MAX);
    struct md_sections_reader *r = NULL;
    ck_assert_int_eq(sf_open("k", INT64_MAX, &r, NULL), MD_OK);
    ck_assert_int_eq(sf_put(a, "TAPE", "a", 1, NULL), MD_OK);
    ck_assert_int_eq(sf_put(b, "TAPE", "b", 1, NULL), MD_OK);
    ck_assert_int_eq(sf_listed().temporary, 2);
    ck_assert_int_eq(md_sections_commit(b, false, NULL), MD_OK);
    ck_assert_int_eq(md_sections_commit(a, false, NULL), MD_OK);
    ck_assert_int_eq(ss_read_all(r, 1, &got, NULL), MD_OK);
    ck_assert_mem_eq(got.buf.data, old.buf.data, old.buf.len);
    ss_done(&got);
    md_sections_close(r);
    ss_begin(&want, 1, SS_KIND);
    ss_section(&want, "TAPE", 0, "a", 1);
    ss_end(&want);
    ck_assert_int_eq(sf_read("k", &want, NULL), MD_OK);
    ss_done(&want);
    ss_done(&old);
}
END_TEST

/* ---- limits ---- */

START_TEST(limits)
{
    static uint8_t mib[MIB];
    static struct md_bytes parts[5 << 10];
    const int64_t whole = 32 + 24 + 16 + 48; /* a payload of 9 bytes */
    struct md_err err = { 0 };
    struct md_sections_reader *r = NULL;
    struct md_sections_writer *w = NULL;
    const struct md_sections_place p = sf_place("k");
    ck_assert_int_eq(md_sections_create(NULL, &p, SS_KIND, 79, &w, &err), MD_TOO_LARGE);
    ck_assert_str_eq(err.text, "'k' would have 80 bytes, at most 79 are allowed");
    ck_assert_ptr_null(w);

    w = sf_begin("k", whole - 1);
    ck_assert_int_eq(sf_put(w, "TAPE", "123456789", 9, &err), MD_TOO_LARGE);
    ck_assert_str_eq(strstr(err.text, "would"), "would have 120 bytes, at most 119 are allowed");
    ck_assert_int_eq(sf_put(w, "TAPE", "12345678", 8, &err), MD_OK); /* it goes on */
    ck_assert_int_eq(md_sections_commit(w, false, &err), MD_OK);
    ck_assert_int_eq(sf_listed().bytes, whole - 8);

    w = sf_begin("k", whole);
    ck_assert_int_eq(sf_put(w, "TAPE", "123456789", 9, &err), MD_OK);
    ck_assert_int_eq(sf_put(w, "TAPE", NULL, 0, &err), MD_TOO_LARGE);
    ck_assert_int_eq(md_sections_commit(w, false, &err), MD_OK);
    ck_assert_int_eq(sf_open("k", whole, &r, &err), MD_OK);
    md_sections_close(r);
    r = NULL;
    ck_assert_int_eq(sf_open("k", whole - 1, &r, &err), MD_TOO_LARGE);
    ck_assert_str_eq(strstr(err.text, "has"), "has 120 bytes, at most 119 are read");
    ck_assert_ptr_null(r);

    /* B064: a state of 5 GiB is refused by the limit before a byte is written, and by its number */
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        parts[i] = (struct md_bytes){ mib, sizeof mib };
    w = sf_begin("k", INT64_C(4) << 30);
    ck_assert_int_eq(md_sections_put(w, SS_TYPE("KVKV"), parts, 5 << 10, &err), MD_TOO_LARGE);
    ck_assert_str_eq(strstr(err.text, "would"),
                     "would have 5368709224 bytes, at most 4294967296 are allowed");
    md_sections_abort(w);
    /* more than 63 bits count, without a limit: alone, together, and with what stands around them */
    w = sf_begin("k", INT64_MAX);
    parts[0].len = SIZE_MAX;
    ck_assert_int_eq(md_sections_put(w, SS_TYPE("KVKV"), parts, 1, &err), MD_TOO_LARGE);
    parts[0].len = parts[1].len = (size_t)1 << 62;
    ck_assert_int_eq(md_sections_put(w, SS_TYPE("KVKV"), parts, 2, &err), MD_TOO_LARGE);
    parts[0].len = INT64_MAX - 3; /* its padding is one more than 63 bits */
    ck_assert_int_eq(md_sections_put(w, SS_TYPE("KVKV"), parts, 1, &err), MD_TOO_LARGE);
    md_sections_abort(w);
}
END_TEST

/* ---- no space, and the end in the middle: B063 ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes == 0 ? limit.rlim_max : bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Files of this process may have 1 MiB, and SIGXFSZ is as it is by default: it would end the process. */
START_TEST(no_space)
{
    enum { OLD = 300 << 10, STATE = 5 * MIB, PART = 40000 };
    uint8_t *data = sf_pattern(STATE);
    struct sections_spec old = sf_write_good("k", data, OLD);
    struct md_err err = { 0 }, later = { 0 };
    sigset_t pending;
    for (int in_pieces = 0; in_pieces < 2; in_pieces++) {
        enum md_status s = MD_OK;
        struct md_sections_writer *w = sf_begin("k", INT64_MAX);
        limit_files(MIB);
        if (in_pieces)
            for (size_t at = 0; s == MD_OK && at + PART <= STATE; at += PART)
                s = sf_put(w, "KVKV", data + at, PART, &err);
        else
            s = sf_put(w, "KVKV", data, STATE, &err);
        const enum md_status same = sf_put(w, "TAPE", "abc", 3, &later);
        const int left = sf_listed().temporary;
        limit_files(0);
        ck_assert_int_eq(s, MD_IO);
        ck_assert_msg(strstr(err.text, "no space left") != NULL && strstr(err.text, "ulimit -f") != NULL &&
                          strstr(err.text, sf_path("k")) != NULL,
                      "%s", err.text);
        ck_assert(same == MD_IO && strcmp(later.text, err.text) == 0);
        ck_assert_int_eq(left, 0); /* what could not be finished takes no room, even before it is given up */
        later = (struct md_err){ 0 };
        ck_assert_int_eq(md_sections_commit(w, true, &later), MD_IO); /* though there would be room now */
        ck_assert_str_eq(later.text, err.text);
        ck_assert_int_eq(sigpending(&pending), 0);
        ck_assert_int_eq(sigismember(&pending, SIGXFSZ), 0);
        ck_assert_int_eq(sigprocmask(SIG_BLOCK, NULL, &pending), 0);
        ck_assert_int_eq(sigismember(&pending, SIGXFSZ), 0); /* nor held back any longer */
        ck_assert_int_eq(sf_read("k", &old, NULL), MD_OK);
        ck_assert(sf_listed().files == 1 && sf_listed().temporary == 0);
    }
    ss_done(&old);
    free(data);
}
END_TEST

/* The buffer is written by commit only, so that it is commit that meets the limit. */
START_TEST(no_space_at_the_end)
{
    uint8_t *data = sf_pattern(60000);
    struct sections_spec old = sf_write_good("k", data, 100);
    struct md_err err = { 0 };
    struct md_sections_writer *w = sf_begin("k", INT64_MAX);
    ck_assert_int_eq(sf_put(w, "KVKV", data, 60000, &err), MD_OK);
    limit_files(30000);
    const enum md_status s = md_sections_commit(w, true, &err);
    limit_files(0);
    ck_assert_int_eq(s, MD_IO);
    ck_assert_msg(strstr(err.text, "no space left") != NULL, "%s", err.text);
    ck_assert_int_eq(sf_read("k", &old, NULL), MD_OK);
    ck_assert(sf_listed().files == 1 && sf_listed().temporary == 0);
    ss_done(&old);
    free(data);
}
END_TEST

/* A handler or a mask that others set for SIGXFSZ is as it was; what is pending for them stays pending. */
START_TEST(signal_is_left_alone)
{
    sigset_t xfsz, mask;
    uint8_t *data = sf_pattern(MIB);
    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    ck_assert_int_eq(sigprocmask(SIG_BLOCK, &xfsz, NULL), 0);
    ck_assert_int_eq(raise(SIGXFSZ), 0);
    struct md_sections_writer *w = sf_begin("k", INT64_MAX);
    limit_files(4096);
    const enum md_status s = sf_put(w, "KVKV", data, MIB, NULL);
    limit_files(0);
    md_sections_abort(w);
    ck_assert_int_eq(s, MD_IO);
    ck_assert_int_eq(sigprocmask(SIG_BLOCK, NULL, &mask), 0);
    ck_assert_int_eq(sigismember(&mask, SIGXFSZ), 1);
    ck_assert_int_eq(sigpending(&mask), 0);
    ck_assert_int_eq(sigismember(&mask, SIGXFSZ), 1);
    ck_assert_int_eq(sigtimedwait(&xfsz, NULL, &(const struct timespec){ 0, 0 }), SIGXFSZ);
    ck_assert_int_eq(sigprocmask(SIG_UNBLOCK, &xfsz, NULL), 0);
    free(data);
}
END_TEST

/* SIGKILL between two sections; tests/fault/test_sections_faults.c does it before each call of the system. */
START_TEST(killed)
{
    uint8_t *data = sf_pattern(MIB);
    struct sections_spec old = sf_write_good("k", data, 300 << 10);
    int status, n = 0;
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const struct md_sections_place p = sf_place("k");
        const struct md_bytes part = { data, MIB };
        struct md_sections_writer *w;
        if (md_sections_create(NULL, &p, SS_KIND, INT64_MAX, &w, NULL) != MD_OK ||
            md_sections_put(w, SS_TYPE("KVKV"), &part, 1, NULL) != MD_OK)
            _exit(1);
        kill(getpid(), SIGKILL);
        _exit(2);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert(sf_listed().files == 1 && sf_listed().temporary == 1 && sf_listed().bytes > MIB);
    ck_assert_int_eq(sf_read("k", &old, NULL), MD_OK);
    ck_assert_int_eq(md_sections_list(sf_folder, sf_remove_temporary, &n, NULL), MD_OK);
    ck_assert(n == 1 && sf_listed().temporary == 0 && sf_listed().files == 1);
    ss_done(&old);
    free(data);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sections");
    TCase *t = tcase_create("sections");
    tcase_add_checked_fixture(t, sf_setup, sf_teardown);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, read_over);
    tcase_add_test(t, nothing_in_it);
    tcase_add_test(t, given_up);
    tcase_add_test(t, one_name_for_two);
    tcase_add_test(t, limits);
    tcase_add_test(t, no_space);
    tcase_add_test(t, no_space_at_the_end);
    tcase_add_test(t, signal_is_left_alone);
    tcase_add_test(t, killed);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
