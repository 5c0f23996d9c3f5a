#include "commands/speeds.h"

#include "base/log.h"
#include "host/file.h"
#include "host/paths.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

enum { TOKENS_MIN = 256, ENTRIES_MAX = 64, FILE_BYTES_MAX = 1 << 20 };
static const double SPEED_MIN = 1e-3; /* tokens a second: what is less was not measured by anybody */

void md_speeds_key(const struct md_sizing *s, char *out, size_t out_bytes)
{
    char sparse[48] = "";
    if (s->open.xattention > 0)
        snprintf(sparse, sizeof sparse, "/xattention %.15g", s->open.xattention);
    snprintf(out, out_bytes, "%s/%s/%" PRId64 "/%s%s", s->backend->name, s->model_name, s->facts.file_bytes,
             s->device == NULL ? "cpu" : s->device->description, sparse);
}

/* The file's entries, or NULL: a file that is not ours to understand is as good as none, and is replaced. */
static yyjson_doc *read_file(const char *path)
{
    struct md_buf b;
    bool missing;
    md_buf_init(&b, NULL, FILE_BYTES_MAX);
    yyjson_doc *doc = NULL;
    if (md_file_read(path, FILE_BYTES_MAX, &b, &missing, NULL) == MD_OK && !missing)
        doc = yyjson_read((const char *)b.data, b.len, 0);
    md_buf_done(&b);
    return doc;
}

static const char *key_of(yyjson_val *entry)
{
    const char *key = yyjson_get_str(yyjson_obj_get(entry, "key"));
    return key == NULL ? "" : key;
}

/* The lists of the file: what their entries have besides a key. */
enum list { PREFILL, SHORT, LIST_COUNT };
enum { FIELDS_MAX = 2 };
static const struct {
    const char *name, *fields[FIELDS_MAX];
} lists[LIST_COUNT] = {
    [PREFILL] = { "prefill", { "tokens_per_second" } },
    [SHORT] = { "short", { "prefill_tokens_per_second", "decode_tokens_per_second" } },
};

/* Its speeds, all of which must be such; ret_speeds is left as it is where there is no such entry. */
static void find(const char *data_root, enum list which, const char *key, double ret_speeds[FIELDS_MAX])
{
    char path[MD_PATH_MAX];
    yyjson_doc *doc =
        md_paths_state_file(data_root, "speeds.json", path, sizeof path) ? read_file(path) : NULL;
    size_t i, count;
    yyjson_val *entry;
    yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(doc), lists[which].name), i, count, entry)
    {
        double speeds[FIELDS_MAX] = { 0 };
        bool whole = strcmp(key_of(entry), key) == 0;
        for (int k = 0; k < FIELDS_MAX && lists[which].fields[k] != NULL && whole; k++) {
            speeds[k] = yyjson_get_num(yyjson_obj_get(entry, lists[which].fields[k]));
            whole = speeds[k] > SPEED_MIN;
        }
        if (whole)
            memcpy(ret_speeds, speeds, sizeof speeds);
    }
    yyjson_doc_free(doc);
}

/* In one list the new entry first, then the others, as many as there is room for; the other lists as they are. */
static yyjson_mut_doc *with_entry(yyjson_doc *old, enum list which, const char *key, const double *speeds)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    for (int n = 0; n < LIST_COUNT; n++) {
        const bool changed = n == (int)which;
        yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, lists[n].name);
        if (changed) {
            yyjson_mut_val *first = yyjson_mut_arr_add_obj(doc, list);
            yyjson_mut_obj_add_str(doc, first, "key", key);
            for (int k = 0; k < FIELDS_MAX && lists[n].fields[k] != NULL; k++)
                yyjson_mut_obj_add_real(doc, first, lists[n].fields[k], speeds[k]);
        }
        size_t i, count;
        yyjson_val *entry;
        yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(old), lists[n].name), i, count, entry)
        {
            if ((!changed || strcmp(key_of(entry), key) != 0) && yyjson_mut_arr_size(list) < ENTRIES_MAX)
                yyjson_mut_arr_append(list, yyjson_val_mut_copy(doc, entry));
        }
    }
    return doc;
}

static void note(const char *data_root, enum list which, const char *key, const double *speeds)
{
    char path[MD_PATH_MAX];
    if (!md_paths_state_file(data_root, "speeds.json", path, sizeof path) || !md_paths_make_folder_of(path))
        return;
    yyjson_doc *old = read_file(path);
    yyjson_mut_doc *doc = with_entry(old, which, key, speeds);
    size_t length;
    struct md_err err;
    char *text = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY_TWO_SPACES, &length);
    enum md_status s = text != NULL ? md_file_replace(path, (struct md_bytes){ text, length }, &err)
                                    : md_fail(&err, MD_NO_MEMORY, "its text");
    if (s != MD_OK)
        md_log(MD_LOG_DEBUG, "a measured speed is not kept: %s", err.text);
    free(text);
    yyjson_mut_doc_free(doc);
    yyjson_doc_free(old);
}

double md_speeds_find(const char *data_root, const struct md_sizing *s)
{
    char key[512];
    double speeds[FIELDS_MAX] = { 0 };
    md_speeds_key(s, key, sizeof key);
    find(data_root, PREFILL, key, speeds);
    return speeds[0];
}

void md_speeds_note(const char *data_root, const char *key, int64_t tokens, int64_t ns)
{
    const double speed = (double)tokens / ((double)ns / 1e9);
    if (tokens >= TOKENS_MIN && ns > 0)
        note(data_root, PREFILL, key, &speed);
}

struct md_choice_speed md_speeds_find_short(const char *data_root, const char *key)
{
    double speeds[FIELDS_MAX] = { 0 };
    find(data_root, SHORT, key, speeds);
    return (struct md_choice_speed){ speeds[0], speeds[1] };
}

void md_speeds_note_short(const char *data_root, const char *key, struct md_choice_speed speed)
{
    const double speeds[FIELDS_MAX] = { speed.prefill, speed.decode };
    note(data_root, SHORT, key, speeds);
}
