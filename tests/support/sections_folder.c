/* sections_folder.c - see sections_folder.h. */
#include "support/sections_folder.h"
#include "support/temp_folder.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

char sf_folder[200];
static int descriptors;

/* ---- a folder for each test, and what lies in it ---- */

static int open_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

void sf_setup(void)
{
    md_temp_folder(sf_folder, sizeof sf_folder, "sections");
    descriptors = open_descriptors();
}

const char *sf_path(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", sf_folder, name);
    return path;
}

void sf_teardown(void)
{
    ck_assert_int_eq(open_descriptors(), descriptors);
    DIR *d = opendir(sf_folder);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            ck_assert_int_eq(remove(sf_path(e->d_name)), 0);
    closedir(d);
    ck_assert_int_eq(rmdir(sf_folder), 0);
}

struct md_sections_place sf_place(const char *name)
{
    return (struct md_sections_place){ sf_folder, name };
}

void sf_save(const char *name, const void *data, size_t len)
{
    FILE *f = fopen(sf_path(name), "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

void sf_check_bytes(const char *name, const void *data, size_t len)
{
    struct stat st;
    uint8_t *got = malloc(len + 1);
    FILE *f = fopen(sf_path(name), "rb");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fstat(fileno(f), &st), 0);
    ck_assert_int_eq(st.st_size, (int64_t)len);
    ck_assert_uint_eq(fread(got, 1, len, f), len);
    ck_assert_mem_eq(got, data, len);
    fclose(f);
    free(got);
}

bool sf_count(void *user, const struct md_sections_file *file)
{
    struct sf_counts *n = user;
    n->files += !file->is_temporary;
    n->temporary += file->is_temporary;
    n->bytes += file->bytes;
    return true;
}

struct sf_counts sf_listed(void)
{
    struct sf_counts n = { 0 };
    struct md_err err;
    ck_assert_msg(md_sections_list(sf_folder, sf_count, &n, &err) == MD_OK, "%s", err.text);
    return n;
}

enum md_status sf_open(const char *name, int64_t limit_bytes, struct md_sections_reader **ret,
                       struct md_err *err)
{
    const struct md_sections_place p = sf_place(name);
    return md_sections_open(NULL, &p, SS_KIND, ss_known, sizeof ss_known / sizeof ss_known[0], limit_bytes,
                            ret, err);
}

/* Open and read it whole; MD_OK: it holds exactly `want`. */
enum md_status sf_read(const char *name, const struct sections_spec *want, struct md_err *err)
{
    struct md_sections_reader *r = NULL;
    struct sections_spec got;
    enum md_status s = sf_open(name, INT64_MAX, &r, err);
    ck_assert((s == MD_OK) == (r != NULL));
    if (s == MD_OK)
        s = ss_read_all(r, 1000, &got, err);
    md_sections_close(r);
    if (s != MD_OK)
        return s;
    ck_assert_uint_eq(got.buf.len, want->buf.len);
    ck_assert_mem_eq(got.buf.data, want->buf.data, want->buf.len);
    ss_done(&got);
    return MD_OK;
}

/* ---- writing for the tests ---- */

struct md_sections_writer *sf_begin(const char *name, int64_t limit_bytes)
{
    struct md_sections_writer *w = NULL;
    struct md_err err;
    const struct md_sections_place p = sf_place(name);
    ck_assert_msg(md_sections_create(NULL, &p, SS_KIND, limit_bytes, &w, &err) == MD_OK, "%s", err.text);
    return w;
}

enum md_status sf_put(struct md_sections_writer *w, const char *type, const void *data, size_t len,
                      struct md_err *err)
{
    const struct md_bytes part = { data, len };
    return md_sections_put(w, SS_TYPE(type), &part, 1, err);
}

/* A file with one section, and the same by the specification. */
struct sections_spec sf_write_good(const char *name, const void *data, size_t len)
{
    struct sections_spec want;
    struct md_err err;
    struct md_sections_writer *w = sf_begin(name, INT64_MAX);
    ck_assert_msg(sf_put(w, "KVKV", data, len, &err) == MD_OK, "%s", err.text);
    ck_assert_msg(md_sections_commit(w, false, &err) == MD_OK, "%s", err.text);
    ss_begin(&want, 1, SS_KIND);
    ss_section(&want, "KVKV", 0, data, len);
    ss_end(&want);
    sf_check_bytes(name, want.buf.data, want.buf.len);
    return want;
}

uint8_t *sf_pattern(size_t len)
{
    uint8_t *p = malloc(len);
    uint32_t x = 12345;
    ck_assert_ptr_nonnull(p);
    for (size_t i = 0; i < len; i++) {
        x = x * 1103515245 + 12345;
        p[i] = (uint8_t)(x >> 16);
    }
    return p;
}

bool sf_remove_temporary(void *user, const struct md_sections_file *file)
{
    const struct md_sections_place p = sf_place(file->name);
    ck_assert(file->mtime_ns > INT64_C(1500000000) * 1000000000);
    if (file->is_temporary)
        ck_assert_int_eq(md_sections_remove(&p, NULL), MD_OK);
    *(int *)user += file->is_temporary;
    return true;
}
