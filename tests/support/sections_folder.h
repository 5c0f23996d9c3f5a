/* sections_folder.h - a folder for one test of files of sections, and the short way to write, read and count
 * in it. All of it fails the running test when it cannot.  sf_setup and sf_teardown are a fixture: the latter
 * also asks that no file descriptor stayed open.
 *
 * Threads: one at a time, one folder per process. */
#ifndef MD_TESTS_SECTIONS_FOLDER_H
#define MD_TESTS_SECTIONS_FOLDER_H

#include "support/sections_spec.h"

extern char sf_folder[200];

void sf_setup(void);
void sf_teardown(void);

/* FOLDER/NAME; holds until the next call. */
const char *sf_path(const char *name);
struct md_sections_place sf_place(const char *name);
void sf_save(const char *name, const void *data, size_t len);
/* The file has exactly these bytes. */
void sf_check_bytes(const char *name, const void *data, size_t len);
/* Numbers that repeat late; free(). */
uint8_t *sf_pattern(size_t len);

struct sf_counts {
    int files, temporary;
    int64_t bytes; /* of both */
};
struct sf_counts sf_listed(void);
/* A callback for md_sections_list that adds to a struct sf_counts. */
bool sf_count(void *user, const struct md_sections_file *file);
/* One that removes the temporary files and adds them up in an int. */
bool sf_remove_temporary(void *user, const struct md_sections_file *file);

/* Of SS_KIND, with the types of ss_known. */
enum md_status sf_open(const char *name, int64_t limit_bytes, struct md_sections_reader **ret,
                       struct md_err *err);
/* Open and read it whole; on MD_OK it held exactly `want`. */
enum md_status sf_read(const char *name, const struct sections_spec *want, struct md_err *err);
struct md_sections_writer *sf_begin(const char *name, int64_t limit_bytes);
enum md_status sf_put(struct md_sections_writer *w, const char *type, const void *data, size_t len,
                      struct md_err *err);
/* A file with one section, written; what it is by the specification is returned (ss_done). */
struct sections_spec sf_write_good(const char *name, const void *data, size_t len);

#endif
