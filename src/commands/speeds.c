#include "commands/speeds.h"

#include "base/log.h"
#include "host/file.h"
#include "host/paths.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

enum { TOKENS_MIN = 256, ENTRIES_MAX = 64, FILE_BYTES_MAX = 1 << 20 };
static const double SPEED_MIN = 1e-3; /* tokens a second: what is less was not measured by anybody */

void md_speeds_key(const struct md_sizing *s, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s/%s/%" PRId64 "/%s", s->backend->name, s->model_name, s->facts.file_bytes,
             s->device == NULL ? "cpu" : s->device->description);
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

double md_speeds_find(const char *data_root, const struct md_sizing *s)
{
    char path[MD_PATH_MAX], key[512];
    md_speeds_key(s, key, sizeof key);
    yyjson_doc *doc =
        md_paths_state_file(data_root, "speeds.json", path, sizeof path) ? read_file(path) : NULL;
    double speed = 0;
    size_t i, count;
    yyjson_val *entry, *list = yyjson_obj_get(yyjson_doc_get_root(doc), "prefill");
    yyjson_arr_foreach(list, i, count, entry)
    {
        double tokens_per_second = yyjson_get_num(yyjson_obj_get(entry, "tokens_per_second"));
        if (strcmp(key_of(entry), key) == 0 && tokens_per_second > SPEED_MIN)
            speed = tokens_per_second;
    }
    yyjson_doc_free(doc);
    return speed;
}

/* ---- writing ---- */

static const char *const lists[] = { "prefill", "short" };
enum { LIST_COUNT = sizeof lists / sizeof lists[0] };

/* In `name` the new entry first, then the others, as many as there is room for; the other lists as they are. */
static yyjson_mut_doc *with_entry(yyjson_doc *old, const char *name, const char *key,
                                  void (*fill)(yyjson_mut_doc *doc, yyjson_mut_val *entry,
                                               const double *speeds),
                                  const double *speeds)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    for (int k = 0; k < LIST_COUNT; k++) {
        const bool changed = strcmp(lists[k], name) == 0;
        yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, lists[k]);
        if (changed) {
            yyjson_mut_val *first = yyjson_mut_arr_add_obj(doc, list);
            yyjson_mut_obj_add_str(doc, first, "key", key);
            fill(doc, first, speeds);
        }
        size_t i, count;
        yyjson_val *entry;
        yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(old), lists[k]), i, count, entry)
        {
            if ((!changed || strcmp(key_of(entry), key) != 0) && yyjson_mut_arr_size(list) < ENTRIES_MAX)
                yyjson_mut_arr_append(list, yyjson_val_mut_copy(doc, entry));
        }
    }
    return doc;
}

static void note(const char *data_root, const char *name, const char *key,
                 void (*fill)(yyjson_mut_doc *doc, yyjson_mut_val *entry, const double *speeds),
                 const double *speeds)
{
    char path[MD_PATH_MAX], temporary[MD_PATH_MAX + 32];
    if (!md_paths_state_file(data_root, "speeds.json", path, sizeof path) || !md_paths_make_folder_of(path))
        return;
    yyjson_doc *old = read_file(path);
    yyjson_mut_doc *doc = with_entry(old, name, key, fill, speeds);
    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    yyjson_write_err why = { 0 };
    if (!yyjson_mut_write_file(temporary, doc, YYJSON_WRITE_PRETTY_TWO_SPACES, NULL, &why) ||
        rename(temporary, path) != 0) {
        md_log(MD_LOG_DEBUG, "a measured speed is not kept: write '%s': %s", path,
               why.msg != NULL ? why.msg : strerror(errno));
        unlink(temporary);
    }
    yyjson_mut_doc_free(doc);
    yyjson_doc_free(old);
}

static void fill_prefill(yyjson_mut_doc *doc, yyjson_mut_val *entry, const double *speeds)
{
    yyjson_mut_obj_add_real(doc, entry, "tokens_per_second", speeds[0]);
}

void md_speeds_note(const char *data_root, const char *key, int64_t tokens, int64_t ns)
{
    const double speed = (double)tokens / ((double)ns / 1e9);
    if (tokens >= TOKENS_MIN && ns > 0)
        note(data_root, "prefill", key, fill_prefill, &speed);
}

/* ---- for the choice of an engine ---- */

static void fill_short(yyjson_mut_doc *doc, yyjson_mut_val *entry, const double *speeds)
{
    yyjson_mut_obj_add_real(doc, entry, "prefill_tokens_per_second", speeds[0]);
    yyjson_mut_obj_add_real(doc, entry, "decode_tokens_per_second", speeds[1]);
}

void md_speeds_note_short(const char *data_root, const char *key, struct md_choice_speed speed)
{
    const double both[] = { speed.prefill, speed.decode };
    note(data_root, "short", key, fill_short, both);
}

struct md_choice_speed md_speeds_find_short(const char *data_root, const char *key)
{
    char path[MD_PATH_MAX];
    struct md_choice_speed speed = { 0, 0 };
    yyjson_doc *doc =
        md_paths_state_file(data_root, "speeds.json", path, sizeof path) ? read_file(path) : NULL;
    size_t i, count;
    yyjson_val *entry;
    yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(doc), "short"), i, count, entry)
    {
        const double prefill = yyjson_get_num(yyjson_obj_get(entry, "prefill_tokens_per_second"));
        const double decode = yyjson_get_num(yyjson_obj_get(entry, "decode_tokens_per_second"));
        if (strcmp(key_of(entry), key) == 0 && prefill > SPEED_MIN && decode > SPEED_MIN)
            speed = (struct md_choice_speed){ prefill, decode };
    }
    yyjson_doc_free(doc);
    return speed;
}
