/* test_sections_names.c - under which names files of sections lie, what else can lie there, and the list of
 * them.  B058 is a case of the project's list. */
#include "host/sections_internal.h"
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

/* ---- names, links and other things: B058 ---- */

static char a300[300], a201[201], a200[200];

static const struct {
    const char *name;
    size_t len;
    const char *text; /* NULL: a name */
} names[] = {
    { "../x", 4, "begins with '.'" },
    { "a/b", 3, "has a '/' at byte 1" },
    { "a\\b", 3, "has a '\\' at byte 1" },
    { "", 0, "is empty" },
    { ".", 1, "begins with '.'" },
    { "..", 2, "begins with '.'" },
    { "x\0y", 3, "control character (0x00) at byte 1" },
    { a300, 300, "has 300 bytes: give at most 200" },
    { a201, 201, "has 201 bytes: give at most 200" },
    { "CON", 3, NULL },
    { " x ", 3, NULL },
    { "-rf", 3, NULL },
    { a200, 200, NULL },
    { ".k.0123456789abcdef.tmp", 23, "begins with '.'" },
    { "/", 1, "has a '/' at byte 0" },
    { "/etc", 4, "has a '/' at byte 0" },
    { "a\n", 2, "control character (0x0a) at byte 1" },
    { "\x7f", 1, "control character (0x7f) at byte 0" },
    { "a\xc2\x85", 3, "control character (0x85) at byte 1" }, /* U+0085, next line */
    { "a\xc2\xa0", 3, NULL },
    { "\xff", 1, "not valid UTF-8 at byte 0" },
    { "a\xc3", 2, "not valid UTF-8 at byte 1" },
    { "a\xc0\xaf", 3, "not valid UTF-8 at byte 1" }, /* a slash, spelled too long */
    { "\xc3\xa4\xe2\x82\xac.tmp", 9, NULL },
    { "a..b", 4, NULL },
    { "a.tmp", 5, NULL },
};

START_TEST(each_name)
{
    struct md_err err = { 0 };
    struct md_sections_writer *w = NULL;
    struct md_sections_reader *r = NULL;
    char text[301];
    memset(a300, 'a', sizeof a300);
    memset(a201, 'a', sizeof a201);
    memset(a200, 'a', sizeof a200);
    const char *want = names[_i].text;
    enum md_status s = md_sections_check_name(names[_i].name, names[_i].len, &err);
    ck_assert_msg(s == (want == NULL ? MD_OK : MD_INVALID), "%s", err.text);
    ck_assert_msg(want == NULL || strstr(err.text, want) != NULL, "%s", err.text);
    for (const char *c = err.text; *c != '\0'; c++)
        ck_assert_msg(*c >= ' ' && *c <= '~', "%s", err.text); /* no bytes of the name */
    if (memchr(names[_i].name, '\0', names[_i].len) != NULL)
        return;
    snprintf(text, sizeof text, "%.*s", (int)names[_i].len, names[_i].name);
    const struct md_sections_place p = sf_place(text);
    if (want != NULL) {
        ck_assert_int_eq(md_sections_create(NULL, &p, SS_KIND, INT64_MAX, &w, NULL), MD_INVALID);
        ck_assert_int_eq(sf_open(text, INT64_MAX, &r, NULL), MD_INVALID);
        ck_assert(w == NULL && r == NULL);
        /* remove takes our temporary names too */
        ck_assert_int_eq(md_sections_remove(&p, NULL),
                         strstr(text, ".tmp") != NULL ? MD_NOT_FOUND : MD_INVALID);
        ck_assert(sf_listed().files == 0 && sf_listed().temporary == 0);
        return;
    }
    struct sections_spec f = sf_write_good(text, "abc", 3); /* under exactly that name */
    ck_assert_int_eq(sf_read(text, &f, NULL), MD_OK);
    ck_assert(sf_listed().files == 1 && sf_listed().bytes == (int64_t)f.buf.len);
    ck_assert_int_eq(md_sections_remove(&p, NULL), MD_OK);
    ck_assert_int_eq(md_sections_remove(&p, &err), MD_NOT_FOUND);
    ck_assert_int_eq(sf_listed().files, 0);
    ss_done(&f);
}
END_TEST

START_TEST(links)
{
    struct md_err err = { 0 };
    struct md_sections_reader *r = NULL;
    struct sections_spec f = sf_write_good("target", "abc", 3);
    struct stat st;
    ck_assert_int_eq(symlink("target", sf_path("good.kv")), 0);
    ck_assert_int_eq(sf_open("good.kv", INT64_MAX, &r, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "good.kv' is a link: links are not followed") != NULL, "%s", err.text);
    ck_assert_int_eq(sf_listed().files, 1); /* the target */

    struct sections_spec other =
        sf_write_good("good.kv", "other", 5); /* the link goes, what it named stays */
    ck_assert_int_eq(lstat(sf_path("good.kv"), &st), 0);
    ck_assert(S_ISREG(st.st_mode));
    ck_assert_int_eq(sf_read("target", &f, NULL), MD_OK);
    ck_assert_int_eq(sf_read("good.kv", &other, NULL), MD_OK);

    const struct md_sections_place p = sf_place("link"); /* one that leads nowhere: nothing is made there */
    ck_assert_int_eq(symlink("nowhere", sf_path("link")), 0);
    ck_assert_int_eq(sf_open("link", INT64_MAX, &r, &err), MD_INVALID);
    ck_assert_int_eq(md_sections_remove(&p, NULL), MD_OK);
    ck_assert_int_eq(lstat(sf_path("link"), &st), -1);
    ck_assert_int_eq(symlink("nowhere", sf_path("link")), 0);
    struct sections_spec third = sf_write_good("link", "third", 5);
    ck_assert_int_eq(access(sf_path("nowhere"), F_OK), -1);
    ss_done(&third);
    ss_done(&other);
    ss_done(&f);
}
END_TEST

/* The folder is whatever the user named: a link to one is fine. */
START_TEST(linked_folder)
{
    char link[300];
    struct md_sections_writer *w = NULL;
    snprintf(link, sizeof link, "%s.link", sf_folder);
    ck_assert_int_eq(symlink(sf_folder, link), 0);
    const struct md_sections_place p = { link, "k" };
    ck_assert_int_eq(md_sections_create(NULL, &p, SS_KIND, INT64_MAX, &w, NULL), MD_OK);
    ck_assert_int_eq(md_sections_commit(w, true, NULL), MD_OK);
    ck_assert_int_eq(sf_listed().files, 1);
    ck_assert_int_eq(unlink(link), 0);
}
END_TEST

START_TEST(other_things)
{
    struct md_err err = { 0 };
    struct md_sections_reader *r = NULL;
    struct md_sections_writer *w = NULL;
    ck_assert_int_eq(sf_open("k", INT64_MAX, &r, &err), MD_NOT_FOUND);
    ck_assert_int_eq(mkdir(sf_path("folder"), 0700), 0);
    ck_assert_int_eq(mkfifo(sf_path("fifo"), 0600), 0);
    ck_assert_int_eq(sf_open("folder", INT64_MAX, &r, &err), MD_INVALID);
    ck_assert_msg(strstr(err.text, "folder' is no regular file") != NULL, "%s", err.text);
    ck_assert_int_eq(sf_open("fifo", INT64_MAX, &r, &err), MD_INVALID); /* and nobody waits for a writer */
    ck_assert_int_eq(mknod(sf_path("socket"), S_IFSOCK | 0600, 0), 0);
    ck_assert_int_eq(sf_open("socket", INT64_MAX, &r, &err), MD_INVALID); /* not even opened */
    ck_assert_int_eq(sf_listed().files, 0);
    /* put there after the look at it */
    const struct md_sections_path path = { "elsewhere" };
    const int fd = open(sf_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(md_sections_open_fd(NULL, fd, &path, SS_KIND, NULL, 0, INT64_MAX, &r, &err), MD_INVALID);

    w = sf_begin("folder", INT64_MAX); /* a folder is not replaced, and the temporary file goes */
    ck_assert_int_eq(md_sections_commit(w, false, &err), MD_IO);
    ck_assert_msg(strstr(err.text, "put in place") != NULL && strstr(err.text, "directory") != NULL, "%s",
                  err.text);
    ck_assert_int_eq(sf_listed().temporary, 0);
    const struct md_sections_place p = sf_place("folder");
    ck_assert_int_eq(md_sections_remove(&p, &err), MD_IO);
    ck_assert_int_eq(access(sf_path("folder"), F_OK), 0);

    const struct md_sections_place missing = { sf_path("none"), "k" };
    ck_assert_int_eq(md_sections_create(NULL, &missing, SS_KIND, INT64_MAX, &w, &err), MD_NOT_FOUND);
    ck_assert_msg(strstr(err.text, "open the folder") != NULL, "%s", err.text);
    ck_assert_int_eq(md_sections_open(NULL, &missing, SS_KIND, NULL, 0, INT64_MAX, &r, &err), MD_NOT_FOUND);
    ck_assert_int_eq(md_sections_remove(&missing, &err), MD_NOT_FOUND);
    ck_assert_int_eq(md_sections_list(missing.folder, sf_count, NULL, &err), MD_NOT_FOUND);
    const struct md_sections_place file = { sf_path("fifo"), "k" };
    ck_assert_int_eq(md_sections_create(NULL, &file, SS_KIND, INT64_MAX, &w, &err), MD_IO);
}
END_TEST

/* A path and a name that are as long as they may be still leave room for the reason. */
START_TEST(long_path)
{
    char deep[500], name[201] = "";
    struct md_err err = { 0 };
    struct md_sections_reader *r = NULL;
    const int own = (int)strlen(strrchr(sf_folder, '/') + 1), longest = 255; /* of one name */
    snprintf(deep, sizeof deep, "%s%0*d", sf_folder, longest - own, 0);
    memset(name, 'n', 200);
    ck_assert_int_eq(mkdir(deep, 0700), 0);
    const struct md_sections_place p = { deep, name };
    ck_assert_int_eq(md_sections_open(NULL, &p, SS_KIND, NULL, 0, INT64_MAX, &r, &err), MD_NOT_FOUND);
    ck_assert_msg(strstr(err.text, "No such file") != NULL && strstr(err.text, "open '...0000") != NULL, "%s",
                  err.text);
    ck_assert_int_eq(rmdir(deep), 0);
}
END_TEST

/* ---- the list ---- */

static bool stop_at_first(void *user, const struct md_sections_file *file)
{
    (void)file;
    ++*(int *)user;
    return false;
}

START_TEST(list)
{
    /* ours are told by the whole shape; others' hidden files are neither listed nor removed */
    static const char *const others[] = { ".hidden",
                                          ".k.0123456789abcdef.tmq",
                                          ".tmp",
                                          ".k.tmp",
                                          ".k.0123456789abcdeg.tmp",
                                          ".k.0123456789abcdef.tmp~",
                                          "..0123456789abcdef.tmp",
                                          ".0123456789abcdef.tmp",
                                          "..k.0123456789abcdef.tmp",
                                          "a\nb",
                                          "a\\b" };
    int n = 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        sf_save(others[i], "", 0);
    ck_assert(sf_listed().files == 0 && sf_listed().temporary == 0);
    sf_save("a", "12345", 5);
    sf_save("b.tmp", "1", 1);
    sf_save(".a.0123456789abcdef.tmp", "123", 3);
    sf_save(".\xc3\xa4.b.ffffffffffffffff.tmp", "123", 3);
    ck_assert(sf_listed().files == 2 && sf_listed().temporary == 2 && sf_listed().bytes == 12);
    ck_assert_int_eq(md_sections_list(sf_folder, stop_at_first, &n, NULL), MD_OK);
    ck_assert_int_eq(n, 1);
    n = 0;
    ck_assert_int_eq(md_sections_list(sf_folder, sf_remove_temporary, &n, NULL), MD_OK);
    ck_assert_int_eq(n, 2);
    ck_assert(sf_listed().files == 2 && sf_listed().temporary == 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sections_names");
    TCase *t = tcase_create("sections_names");
    tcase_add_checked_fixture(t, sf_setup, sf_teardown);
    tcase_add_loop_test(t, each_name, 0, sizeof names / sizeof names[0]);
    tcase_add_test(t, links);
    tcase_add_test(t, linked_folder);
    tcase_add_test(t, other_things);
    tcase_add_test(t, long_path);
    tcase_add_test(t, list);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
