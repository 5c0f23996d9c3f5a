/* test_memory.c - the memory probe on made-up control groups.
 *
 * The figures are those of the kernel's documents (cgroup-v2.rst, cgroup-v1/memory.rst) put into files. */
#include "host/memory.h"
#include "support/run_suite.h"
#include "support/temp_folder.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIB (INT64_C(1) << 30)
#define TOTAL (64 * GIB)
#define FREE (30 * GIB)

static char top[256], root[300], self[300], meminfo[300];

/* ---- the fake machine ---- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    fputs(text, f);
    fclose(f);
}

/* The folder ROOT/NAME with all those above it. */
static const char *group(const char *name)
{
    static char path[8192];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *c = path + strlen(root); c != NULL; c = strchr(c + 1, '/')) {
        *c = '\0';
        ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
        *c = '/';
    }
    ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
    return path;
}

static void v2(const char *name, const char *max, int64_t current, int64_t inactive, int64_t active)
{
    char text[256];
    const char *folder = group(name);
    write_file(folder, "memory.max", max);
    snprintf(text, sizeof text, "%lld\n", (long long)current);
    write_file(folder, "memory.current", text);
    snprintf(text, sizeof text, "anon 4096\nactive_file %lld\ninactive_file %lld\n", (long long)active,
             (long long)inactive);
    write_file(folder, "memory.stat", text);
}

static void v1(const char *name, const char *limit, int64_t usage, int64_t inactive)
{
    char text[256];
    const char *folder = group(name);
    write_file(folder, "memory.limit_in_bytes", limit);
    snprintf(text, sizeof text, "%lld\n", (long long)usage);
    write_file(folder, "memory.usage_in_bytes", text);
    /* the group's own share stands first; with its children it is total_ */
    snprintf(text, sizeof text, "inactive_file 1\ntotal_inactive_file %lld\n", (long long)inactive);
    write_file(folder, "memory.stat", text);
}

static void setup(void)
{
    md_temp_folder(top, sizeof top, "memory");
    snprintf(root, sizeof root, "%s/cgroup", top);
    snprintf(self, sizeof self, "%s/self", top);
    snprintf(meminfo, sizeof meminfo, "%s/meminfo", top);
    ck_assert_int_eq(mkdir(root, 0700), 0);
    write_file(top, "self", "0::/\n");
    write_file(top, "meminfo",
               "MemTotal:       67108864 kB\nMemFree:         1024 kB\nMemAvailable:   31457280 kB\n");
}

static void teardown(void)
{
    md_temp_folder_remove(top);
}

static struct md_host_memory probe_any(void)
{
    struct md_memory_files files = { .meminfo = meminfo, .self_cgroup = self, .cgroup_root = root };
    struct md_host_memory m;
    struct md_err err;
    ck_assert_msg(md_host_memory(&files, &m, &err) == MD_OK, "%s", err.text);
    return m;
}

static struct md_host_memory probe(void)
{
    struct md_host_memory m = probe_any();
    ck_assert_str_eq(m.problem, "");
    return m;
}

static void assert_unlimited(struct md_host_memory m)
{
    ck_assert_int_eq(m.available_bytes, FREE);
    ck_assert_int_eq(m.total_bytes, TOTAL);
    ck_assert_int_eq(m.limit_bytes, 0);
    ck_assert_str_eq(m.limit_path, "");
}

static void assert_limit_at(struct md_host_memory m, int64_t limit, const char *below)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", root, below);
    ck_assert_int_eq(m.limit_bytes, limit);
    ck_assert_int_eq(m.total_bytes, limit);
    ck_assert_str_eq(m.limit_path, path);
}

/* ---- version 2 ---- */

START_TEST(b027_inactive_page_cache_is_available)
{
    v2("", "8589934592\n", 7516192768, 6442450944, 0);
    struct md_host_memory m = probe();
    ck_assert_int_eq(m.available_bytes, 7516192768); /* 8 GiB - (7 - 6), the case's own figure */
    ck_assert_int_eq(m.total_bytes, 8 * GIB);
    ck_assert_int_eq(m.limit_bytes, 8 * GIB);
}
END_TEST

START_TEST(active_page_cache_is_in_use)
{
    v2("", "8589934592\n", 7 * GIB, 2 * GIB, 4 * GIB);
    ck_assert_int_eq(probe().available_bytes, 3 * GIB); /* 8 - (7 - 2) */
}
END_TEST

START_TEST(b028_max_missing_and_v1_unlimited_are_no_limit)
{
    v2("", "max\n", 7516192768, 6442450944, 0);
    assert_unlimited(probe());
    char path[400];
    snprintf(path, sizeof path, "%s/memory.max", root);
    ck_assert_int_eq(unlink(path), 0);
    assert_unlimited(probe());
    write_file(top, "self", "4:memory:/\n0::/\n");
    v1("memory", "9223372036854771712\n", 7516192768, 6442450944);
    assert_unlimited(probe());
}
END_TEST

START_TEST(b028_every_ancestor_counts)
{
    write_file(top, "self", "0::/user/own\n");
    v2("user", "4294967296\n", 0, 0, 0);
    v2("user/own", "max\n", 0, 0, 0);
    struct md_host_memory m = probe();
    ck_assert_int_eq(m.available_bytes, 4 * GIB);
    assert_limit_at(m, 4 * GIB, "user/memory.max");
}
END_TEST

START_TEST(the_fuller_ancestor_counts_before_the_tighter)
{
    write_file(top, "self", "0::/a/b/c\n");
    v2("a", "17179869184\n", 15 * GIB, 0, 0); /* 1 GiB left of 16 */
    v2("a/b", "8589934592\n", 2 * GIB, 0, 0); /* 6 of 8 */
    v2("a/b/c", "9663676416\n", 1 * GIB, 0, 0);
    struct md_host_memory m = probe();
    ck_assert_int_eq(m.available_bytes, 1 * GIB);
    assert_limit_at(m, 8 * GIB, "a/b/memory.max");
}
END_TEST

START_TEST(other_groups_do_not_count)
{
    write_file(top, "self", "0::/a\n");
    v2("a", "max\n", 0, 0, 0);
    v2("a/below", "4096\n", 0, 0, 0);
    v2("ab", "4096\n", 0, 0, 0);
    v2("memory", "4096\n", 0, 0, 0); /* no version 1 here, a group may have that name */
    assert_unlimited(probe());
}
END_TEST

START_TEST(limits_at_the_edges)
{
    v2("", "68719476736\n", 0, 0, 0); /* all there is */
    assert_unlimited(probe());
    v2("", "68719476735\n", 0, 0, 0);
    struct md_host_memory m = probe();
    ck_assert(m.available_bytes == FREE && m.limit_bytes == TOTAL - 1);
    v2("", "99999999999999999999999\n", 0, 0, 0);
    assert_unlimited(probe());
    v2("", "4294967296", 5 * GIB, 0, 0); /* over it already; no line end */
    ck_assert_int_eq(probe().available_bytes, 0);
    v2("", "4294967296\n", 1 * GIB, 3 * GIB, 0); /* the two figures are not read at one moment */
    ck_assert_int_eq(probe().available_bytes, 4 * GIB);
    v2("", "0\n", 0, 0, 0);
    m = probe();
    ck_assert_int_eq(m.available_bytes, 0);
    ck_assert_int_eq(m.total_bytes, 0);
}
END_TEST

/* ---- version 1, and both ---- */

START_TEST(v1_nested)
{
    write_file(top, "self", "9:name=systemd:/x\n5:cpu,memory:/docker/abc\n3:cpuset:/docker\n");
    v1("memory", "9223372036854771712\n", 60 * GIB, 0);
    v1("memory/docker", "4294967296\n", 3 * GIB, 2 * GIB);
    v1("memory/docker/abc", "6442450944\n", 1 * GIB, 0);
    struct md_host_memory m = probe();
    ck_assert_int_eq(m.available_bytes, 3 * GIB); /* docker: 4 - (3 - 2); abc: 5 */
    assert_limit_at(m, 4 * GIB, "memory/docker/memory.limit_in_bytes");
}
END_TEST

START_TEST(controllers_whose_names_only_begin_alike)
{
    write_file(top, "self", "5:memoryx,xmemory:/a\n4:name=memory:/a\n");
    v1("memory", "4096\n", 0, 0);
    assert_unlimited(probe());
}
END_TEST

START_TEST(hybrid_takes_memory_from_v1)
{
    write_file(top, "self", "4:memory:/box\n1:cpu:/box\n0::/box\n");
    v1("memory/box", "2147483648\n", 0, 0);
    struct md_host_memory m = probe();
    ck_assert_int_eq(m.available_bytes, 2 * GIB);
    v2("box", "1073741824\n", 0, 0, 0); /* and where version 2 has a limit, that too */
    m = probe();
    ck_assert_int_eq(m.available_bytes, 1 * GIB);
    assert_limit_at(m, 1 * GIB, "box/memory.max");
}
END_TEST

START_TEST(v1_controller_folder_may_be_a_link)
{
    char link[400];
    write_file(top, "self", "4:cpu,memory:/\n");
    v1("cpu,memory", "2147483648\n", 0, 0);
    snprintf(link, sizeof link, "%s/memory", root);
    ck_assert_int_eq(symlink("cpu,memory", link), 0);
    ck_assert_int_eq(probe().available_bytes, 2 * GIB);
}
END_TEST

/* ---- containers ---- */

START_TEST(own_group_deeper_than_the_mount)
{
    write_file(top, "self", "0::/kubepods/pod1/ctr/inner\n");
    v2("", "8589934592\n", 0, 0, 0);
    ck_assert_int_eq(probe().available_bytes, 8 * GIB); /* the mount is the container's group */
    v2("kubepods", "6442450944\n", 0, 0, 0);
    ck_assert_int_eq(probe().available_bytes, 6 * GIB);
    write_file(top, "self", "4:memory:/docker/0123 (deleted)\n");
    v1("memory", "2147483648\n", 0, 0);
    ck_assert_int_eq(probe().available_bytes, 2 * GIB);
}
END_TEST

START_TEST(a_path_out_of_the_mount_stays_at_the_mount)
{
    static const char *const paths[] = { "/../../x", "/x/../..", "/..", "/x/.." };
    char outside[300];
    v2("", "8589934592\n", 0, 0, 0);
    v2("x", "4294967296\n", 0, 0, 0);
    snprintf(outside, sizeof outside, "%s/x", top);
    ck_assert_int_eq(mkdir(outside, 0700), 0);
    write_file(outside, "memory.max", "4096\n");
    write_file(top, "memory.max", "4096\n");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "0::%s\n", paths[i]);
        write_file(top, "self", line);
        struct md_host_memory m = probe();
        ck_assert_msg(m.available_bytes == 8 * GIB, "%s: %lld", paths[i], (long long)m.available_bytes);
    }
    write_file(top, "self", "0::/..x/y..\n"); /* dots that lead nowhere */
    v2("..x/y..", "2147483648\n", 0, 0, 0);
    ck_assert_int_eq(probe().available_bytes, 2 * GIB);
}
END_TEST

START_TEST(links_below_the_mount_are_not_followed)
{
    char path[400], target[300];
    v2("", "8589934592\n", 0, 0, 0);
    snprintf(target, sizeof target, "%s/elsewhere", top);
    ck_assert_int_eq(mkdir(target, 0700), 0);
    write_file(target, "memory.max", "4096\n");
    snprintf(path, sizeof path, "%s/a", root);
    ck_assert_int_eq(symlink(target, path), 0);
    write_file(top, "self", "0::/a\n");
    ck_assert_int_eq(probe().available_bytes, 8 * GIB);
    snprintf(path, sizeof path, "%s/memory.max", root);
    snprintf(target, sizeof target, "%s/elsewhere/memory.max", top);
    ck_assert(unlink(path) == 0 && symlink(target, path) == 0);
    struct md_host_memory m = probe_any();
    ck_assert_int_eq(m.available_bytes, FREE);
    ck_assert_msg(strstr(m.problem, "cgroup/memory.max'") != NULL, "%s", m.problem);
}
END_TEST

START_TEST(long_paths)
{
    char line[12000], name[3000], below[3100];
    memset(name, 0, sizeof name);
    for (int i = 0; i < 20; i++) /* 20 levels of 100 bytes: as deep as a path of the kernel's gets */
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%0100d", i > 0 ? "/" : "", i);
    v2(name, "4294967296\n", 0, 0, 0);
    snprintf(line, sizeof line, "0::/%s\n", name);
    write_file(top, "self", line);
    struct md_host_memory m = probe();
    ck_assert_int_eq(m.available_bytes, 4 * GIB);
    ck_assert_uint_eq(strlen(m.limit_path), sizeof m.limit_path - 1);
    snprintf(below, sizeof below, "%s/memory.max", name);
    ck_assert(strncmp(m.limit_path, "...", 3) == 0);
    ck_assert_str_eq(m.limit_path + 3, below + strlen(below) - (sizeof m.limit_path - 4));

    /* no kernel writes a name like this: the mount still counts, the rest of it is no line, the next line is */
    v2("", "8589934592\n", 0, 0, 0);
    memset(line, 'x', sizeof line);
    memcpy(line, "0::/", 4);
    memcpy(line + PATH_MAX + 255, "4:memory:/t/", 12); /* where the probe's buffer ends */
    memcpy(line + sizeof line - 13, "\n4:memory:/\n", 13);
    write_file(top, "self", line);
    v1("memory", "2147483648\n", 0, 0);
    v1("memory/t", "4096\n", 0, 0);
    m = probe_any();
    ck_assert_int_eq(m.available_bytes, 2 * GIB);
    ck_assert_msg(strstr(m.problem, strerror(ENAMETOOLONG)) != NULL, "%s", m.problem);
}
END_TEST

/* ---- what cannot be read ---- */

START_TEST(garbage_limits_are_told)
{
    static const char *const texts[] = { "",          "\n",      "-1\n",    "8GiB\n",   "0x1000\n", "MAX\n",
                                         "maximum\n", " 4096\n", "4096 \n", "4096\n\n", "1e9\n" };
    write_file(top, "self", "0::/a\n");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        v2("a", texts[i], 0, 0, 0);
        v2("", "4294967296\n", 0, 0, 0);
        struct md_host_memory m = probe_any();
        ck_assert_msg(strstr(m.problem, "/a/memory.max': '") != NULL, "'%s': '%s'", texts[i], m.problem);
        ck_assert_int_eq(m.available_bytes, 4 * GIB); /* the other levels count */
    }
}
END_TEST

START_TEST(a_limit_whose_use_is_unknown_still_counts)
{
    char path[400];
    v2("", "4294967296\n", 3 * GIB, 0, 0);
    snprintf(path, sizeof path, "%s/memory.current", root);
    ck_assert_int_eq(unlink(path), 0);
    struct md_host_memory m = probe_any();
    ck_assert_int_eq(m.available_bytes, 4 * GIB);
    ck_assert_msg(strstr(m.problem, "memory.current': missing") != NULL, "%s", m.problem);
    write_file(root, "memory.current", "many\n");
    m = probe_any();
    ck_assert_int_eq(m.available_bytes, 4 * GIB);
    ck_assert_msg(strstr(m.problem, "memory.current': 'many'") != NULL, "%s", m.problem);
}
END_TEST

START_TEST(without_statistics_all_that_is_used_stays_used)
{
    char path[400];
    v2("", "4294967296\n", 3 * GIB, 2 * GIB, 0);
    write_file(root, "memory.stat", "inactive_file lots\n");
    ck_assert_int_eq(probe().available_bytes, 1 * GIB);
    snprintf(path, sizeof path, "%s/memory.stat", root);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(probe().available_bytes, 1 * GIB);
}
END_TEST

START_TEST(what_is_no_file_is_told_and_does_not_block)
{
    char path[400];
    snprintf(path, sizeof path, "%s/memory.max", root);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    struct md_host_memory m = probe_any();
    ck_assert_int_eq(m.available_bytes, FREE);
    ck_assert_msg(strstr(m.problem, "memory.max'") != NULL, "%s", m.problem);
    ck_assert(unlink(path) == 0 && mkdir(path, 0700) == 0);
    ck_assert_msg(strstr(probe_any().problem, "memory.max'") != NULL, "%s", m.problem);
}
END_TEST

START_TEST(missing_files)
{
    write_file(top, "self", "");
    v2("", "4294967296\n", 0, 0, 0);
    assert_unlimited(probe()); /* in no group */
    write_file(top, "self", "nonsense\n0\n0:\n0::\n0::a\n:::\n4:memory\n\n7::/\n");
    assert_unlimited(probe());
    ck_assert_int_eq(unlink(self), 0);
    ck_assert_int_eq(probe().available_bytes, 4 * GIB); /* unknown: the mount itself */
    v1("memory", "2147483648\n", 0, 0);
    ck_assert_int_eq(probe().available_bytes, 2 * GIB);
    strcat(root, "/none");
    assert_unlimited(probe());
    root[strlen(root) - strlen("/none")] = '\0';
}
END_TEST

START_TEST(broken_meminfo_is_an_error)
{
    static const char *const texts[] = { "",
                                         "MemTotal: 1 kB\n",
                                         "MemAvailable: 1 kB\n",
                                         "MemTotal: 1 kB\nMemAvailable: -1 kB\n",
                                         "MemTotal: 1 kB\nMemAvailable: kB\n",
                                         "MemTotal: 1 kB\nMemAvailable: 18014398509481985 kB\n",
                                         "MemTotal: 1 kB\nMemAvailable: 1 MB\n" };
    struct md_memory_files files = { .meminfo = meminfo, .self_cgroup = self, .cgroup_root = root };
    struct md_host_memory m = { .total_bytes = 7 };
    struct md_err err;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_file(top, "meminfo", texts[i]);
        ck_assert_msg(md_host_memory(&files, &m, &err) == MD_IO, "'%s'", texts[i]);
        ck_assert(strstr(err.text, meminfo) != NULL && m.total_bytes == 7);
    }
    ck_assert_int_eq(unlink(meminfo), 0);
    ck_assert_int_eq(md_host_memory(&files, &m, NULL), MD_IO);
}
END_TEST

START_TEST(this_machine)
{
    struct md_host_memory m;
    struct md_err err;
    ck_assert_msg(md_host_memory(NULL, &m, &err) == MD_OK, "%s", err.text);
    ck_assert(m.total_bytes > 0 && m.available_bytes >= 0 && m.available_bytes <= m.total_bytes);
    ck_assert((m.limit_path[0] != '\0') == (m.limit_bytes > 0));
}
END_TEST

START_TEST(what_this_process_holds)
{
    char path[300];
    int64_t bytes = -1, more = -1;
    struct md_err err;
    snprintf(path, sizeof path, "%s/status", top);
    ck_assert_int_eq(md_host_own_memory(path, &bytes, &err), MD_IO); /* no such file */
    write_file(top, "status", "Name:\tx\nVmRSS:\t  900 kB\nRssAnon:\t  700 kB\nRssFile:\t  200 kB\n");
    ck_assert_msg(md_host_own_memory(path, &bytes, &err) == MD_OK, "%s", err.text);
    ck_assert_int_eq(bytes, 700 * 1024); /* mapped files are not in it */
    write_file(top, "status", "VmRSS:\t900 kB\nRssAnon:\tmany kB\n");
    ck_assert_int_eq(md_host_own_memory(path, &bytes, &err), MD_IO);
    ck_assert(strstr(err.text, "RssAnon") != NULL);

    enum { BLOCK = 64 << 20 };
    ck_assert_int_eq(md_host_own_memory(NULL, &bytes, NULL), MD_OK);
    char *block = malloc(BLOCK);
    ck_assert_ptr_nonnull(block);
    for (size_t i = 0; i < BLOCK; i += 1024)
        ((volatile char *)block)[i] = 1;
    ck_assert_int_eq(md_host_own_memory(NULL, &more, NULL), MD_OK);
    free(block);
    ck_assert_msg(more - bytes > BLOCK * 9 / 10 && more - bytes < BLOCK * 2LL, "%lld more",
                  (long long)(more - bytes));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("memory");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, b027_inactive_page_cache_is_available);
    tcase_add_test(t, active_page_cache_is_in_use);
    tcase_add_test(t, b028_max_missing_and_v1_unlimited_are_no_limit);
    tcase_add_test(t, b028_every_ancestor_counts);
    tcase_add_test(t, the_fuller_ancestor_counts_before_the_tighter);
    tcase_add_test(t, other_groups_do_not_count);
    tcase_add_test(t, limits_at_the_edges);
    tcase_add_test(t, v1_nested);
    tcase_add_test(t, controllers_whose_names_only_begin_alike);
    tcase_add_test(t, hybrid_takes_memory_from_v1);
    tcase_add_test(t, v1_controller_folder_may_be_a_link);
    tcase_add_test(t, own_group_deeper_than_the_mount);
    tcase_add_test(t, a_path_out_of_the_mount_stays_at_the_mount);
    tcase_add_test(t, links_below_the_mount_are_not_followed);
    tcase_add_test(t, long_paths);
    tcase_add_test(t, garbage_limits_are_told);
    tcase_add_test(t, a_limit_whose_use_is_unknown_still_counts);
    tcase_add_test(t, without_statistics_all_that_is_used_stays_used);
    tcase_add_test(t, what_is_no_file_is_told_and_does_not_block);
    tcase_add_test(t, missing_files);
    tcase_add_test(t, broken_meminfo_is_an_error);
    tcase_add_test(t, this_machine);
    tcase_add_test(t, what_this_process_holds);
    suite_add_tcase(s, t);
    return md_run_suite(s);
}
