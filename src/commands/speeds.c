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

/* The newest first, then the others, as many as there is room for. */
static yyjson_mut_doc *with_speed(yyjson_doc *old, const char *key, double tokens_per_second)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc), *list = yyjson_mut_obj_add_arr(doc, root, "prefill");
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_val *first = yyjson_mut_arr_add_obj(doc, list);
    yyjson_mut_obj_add_str(doc, first, "key", key);
    yyjson_mut_obj_add_real(doc, first, "tokens_per_second", tokens_per_second);
    size_t i, count;
    yyjson_val *entry;
    yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(old), "prefill"), i, count, entry)
    {
        if (strcmp(key_of(entry), key) != 0 && yyjson_mut_arr_size(list) < ENTRIES_MAX)
            yyjson_mut_arr_append(list, yyjson_val_mut_copy(doc, entry));
    }
    return doc;
}

void md_speeds_note(const char *data_root, const char *key, int64_t tokens, int64_t ns)
{
    char path[MD_PATH_MAX], temporary[MD_PATH_MAX + 32];
    if (tokens < TOKENS_MIN || ns <= 0)
        return;
    if (!md_paths_state_file(data_root, "speeds.json", path, sizeof path) || !md_paths_make_folder_of(path))
        return;
    yyjson_doc *old = read_file(path);
    yyjson_mut_doc *doc = with_speed(old, key, (double)tokens / ((double)ns / 1e9));
    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    yyjson_write_err why = { 0 };
    if (!yyjson_mut_write_file(temporary, doc, YYJSON_WRITE_PRETTY_TWO_SPACES, NULL, &why) ||
        rename(temporary, path) != 0) {
        md_log(MD_LOG_DEBUG, "the prefill speed is not kept: write '%s': %s", path,
               why.msg != NULL ? why.msg : strerror(errno));
        unlink(temporary);
    }
    yyjson_mut_doc_free(doc);
    yyjson_doc_free(old);
}
