/* http_snapshots.c - see http_snapshots.h. */
#include "fronts/http/http_snapshots.h"

#include "fronts/http/http_front.h"
#include "fronts/http/http_json.h"
#include "host/paths.h"
#include "host/sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

/* ---- bodies ---- */

static const double ID_MAX = 9007199254740991.0; /* what a double holds exactly */

static bool takes_session(const struct http_call *call)
{
    return call->route.target != HTTP_SNAPSHOT_REMOVE;
}

static enum md_status read_name(struct http_call *call, yyjson_val *value, struct md_http_error *e)
{
    struct md_err err;
    if (!yyjson_is_str(value))
        return md_http_refuse(e, MD_INVALID, "name", "name must be a string, got %s",
                              yyjson_get_type_desc(value));
    if (md_sections_check_name(yyjson_get_str(value), yyjson_get_len(value), &err) != MD_OK)
        return md_http_refuse(e, MD_INVALID, "name", "%s", err.text);
    memcpy(call->name, yyjson_get_str(value), yyjson_get_len(value) + 1);
    return MD_OK;
}

static bool takes_tokens_only(const struct http_call *call)
{
    return call->route.target == HTTP_SNAPSHOT_RESTORE;
}

static enum md_status read_tokens_only(struct http_call *call, yyjson_val *value, struct md_http_error *e)
{
    if (!yyjson_is_bool(value))
        return md_http_refuse(e, MD_INVALID, "tokens_only", "tokens_only must be true or false, got %s",
                              yyjson_get_type_desc(value));
    call->tokens_only = yyjson_is_true(value);
    return MD_OK;
}

static enum md_status read_session(struct http_call *call, yyjson_val *value, struct md_http_error *e)
{
    const double n = yyjson_get_num(value);
    if (yyjson_is_null(value))
        return MD_OK;
    if (!yyjson_is_num(value) || n != floor(n) || n < 1 || n > ID_MAX)
        return md_http_refuse(e, MD_INVALID, "session",
                              "session must be the ID of a conversation, a whole number above 0");
    call->route.session = (int64_t)n;
    return MD_OK;
}

/* {"name": "x", "session": 3, "tokens_only": true}; every other key is a mistake. */
static enum md_status read_fields(struct http_call *call, yyjson_val *root, struct md_http_error *e)
{
    enum md_status s = MD_OK;
    yyjson_obj_iter it = yyjson_obj_iter_with(root);
    yyjson_val *key;
    while (s == MD_OK && (key = yyjson_obj_iter_next(&it)) != NULL) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        if (yyjson_equals_str(key, "name")) {
            s = read_name(call, value, e);
        } else if (takes_session(call) && yyjson_equals_str(key, "session")) {
            s = read_session(call, value, e);
        } else if (takes_tokens_only(call) && yyjson_equals_str(key, "tokens_only")) {
            s = read_tokens_only(call, value, e);
        } else {
            char field[32];
            snprintf(field, sizeof field, "%.31s", yyjson_get_str(key));
            s = md_http_refuse(e, MD_INVALID, field, "the field '%s' is not known here: it takes name%s",
                               field,
                               takes_tokens_only(call) ? ", session and tokens_only"
                               : takes_session(call)   ? " and session"
                                                       : "");
        }
    }
    return s;
}

/* The name and the conversation into the call. */
static enum md_status read_body(struct http_call *call, struct md_http_error *e)
{
    yyjson_doc *doc = NULL;
    enum md_status s = md_http_api_body(call, &doc, e);
    if (s == MD_OK && doc != NULL)
        s = read_fields(call, yyjson_doc_get_root(doc), e);
    yyjson_doc_free(doc);
    if (s != MD_OK)
        return s;
    if (call->name[0] == '\0')
        return md_http_refuse(e, MD_INVALID, "name", "name is missing: it says which snapshot");
    if (call->route.session == 0 && call->route.target == HTTP_SNAPSHOTS)
        return md_http_refuse(e, MD_INVALID, "session",
                              "session is missing: it says which conversation is to be written");
    return MD_OK;
}

/* ---- the list ---- */

struct file {
    const char *name;
    int64_t bytes, mtime_ns;
};
struct files {
    struct md_arena names;
    struct file *items;
    size_t count, cap;
    bool full;
};

static bool add_file(void *user, const struct md_sections_file *file)
{
    struct files *all = user;
    void *items = all->items;
    if (file->is_temporary)
        return true;
    char *name = md_arena_strndup(&all->names, file->name, strlen(file->name));
    all->full = name == NULL || !md_grow(NULL, &items, &all->cap, all->count + 1, sizeof *all->items);
    if (all->full)
        return false;
    all->items = items;
    all->items[all->count++] = (struct file){ name, file->bytes, file->mtime_ns };
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static enum md_status put_text(struct md_buf *out, const char *text)
{
    return md_json_put_string(out, (struct md_bytes){ text, strlen(text) }, NULL);
}

static enum md_status put_files(struct md_buf *out, const char *folder, const struct files *all)
{
    enum md_status s = md_buf_printf(out, NULL, "{\"folder\":");
    if (s == MD_OK)
        s = put_text(out, folder);
    if (s == MD_OK)
        s = md_buf_printf(out, NULL, ",\"snapshots\":[");
    for (size_t i = 0; i < all->count && s == MD_OK; i++) {
        const struct file *f = &all->items[i];
        /* a file from before 1970 is a mistake of some clock */
        const double modified = f->mtime_ns > 0 ? (double)f->mtime_ns / 1e9 : 0;
        s = md_buf_printf(out, NULL, "%s{\"name\":", i > 0 ? "," : "");
        if (s == MD_OK)
            s = put_text(out, f->name);
        if (s == MD_OK)
            s = md_buf_printf(out, NULL, ",\"bytes\":%lld,\"modified_seconds\":%.3f}", (long long)f->bytes,
                              modified);
    }
    return s == MD_OK ? md_buf_printf(out, NULL, "]}") : s;
}

static enum md_status list_all(const char *folder, struct md_buf *reply, struct md_http_error *e)
{
    struct files all = { 0 };
    struct md_err err = { 0 };
    md_arena_init(&all.names, NULL, HTTP_REPLY_BYTES_MAX);
    enum md_status s = md_sections_list(folder, add_file, &all, &err);
    if (s == MD_NOT_FOUND) /* nothing was written yet */
        s = MD_OK;
    if (s == MD_OK && all.count > 1)
        qsort(all.items, all.count, sizeof *all.items, by_name);
    if (s == MD_OK && (all.full || put_files(reply, folder, &all) != MD_OK))
        s = md_fail(&err, MD_NO_MEMORY, "no memory for the list of snapshots in '%.200s'", folder);
    md_free(NULL, all.items);
    md_arena_done(&all.names);
    return s == MD_OK ? s : md_http_refuse(e, s, NULL, "%s", err.text);
}

/* ---- the calls ---- */

static enum md_status remove_one(const char *folder, struct http_call *call, struct md_buf *reply,
                                 struct md_http_error *e)
{
    struct md_err err;
    enum md_status s =
        md_sections_remove(&(struct md_sections_place){ .folder = folder, .name = call->name }, &err);
    if (s == MD_NOT_FOUND)
        return md_http_api_no_snapshot(call->name, e);
    if (s != MD_OK)
        return md_http_refuse(e, s, NULL, "%s", err.text);
    s = md_buf_printf(reply, &err, "{\"name\":");
    if (s == MD_OK)
        s = put_text(reply, call->name);
    if (s == MD_OK)
        s = md_buf_printf(reply, &err, ",\"removed\":true}");
    return s == MD_OK ? s : md_http_refuse(e, s, NULL, "removed, but there is no memory to say so");
}

static enum md_status submit(struct http_call *call, const char *folder, struct md_job **ret_job,
                             struct md_http_error *e)
{
    const int64_t session = call->route.session;
    const bool writes = call->route.target == HTTP_SNAPSHOTS;
    struct md_worker *worker = call->http->service.worker;
    struct md_err err;
    enum md_status s = session != 0 ? md_http_api_find(worker, session, "session", e) : MD_OK;
    if (s == MD_OK && writes && md_paths_make_folder(folder, &err) != MD_OK)
        s = md_http_refuse(e, MD_IO, NULL, "%s", err.text);
    if (s != MD_OK)
        return s;
    const struct md_job_request request = {
        .kind = writes ? MD_JOB_SNAPSHOT : MD_JOB_RESTORE,
        .session = session,
        .place = { .folder = folder, .name = call->name },
        .tokens_only = call->tokens_only,
        .client = (uint64_t)session,
        .notify = md_http_call_news,
        .notify_user = call,
    };
    return md_http_api_submit(worker, &request, ret_job, e);
}

enum md_status md_http_snapshots_prepare(struct http_call *call, struct md_buf *reply,
                                         struct md_job **ret_job, struct md_http_error *e)
{
    const char *folder = call->http->service.snapshots;
    if (folder == NULL)
        return md_http_refuse(e, MD_UNSUPPORTED, NULL, "this server has no folder for snapshots");
    if (call->looks)
        return list_all(folder, reply, e);
    enum md_status s = read_body(call, e);
    if (s != MD_OK)
        return s;
    return call->route.target == HTTP_SNAPSHOT_REMOVE ? remove_one(folder, call, reply, e)
                                                      : submit(call, folder, ret_job, e);
}

enum md_status md_http_snapshots_done(struct http_call *call, const struct md_event *event)
{
    const struct md_snapshot *done = &event->snapshot;
    const long long session = (long long)event->session;
    struct md_buf *out = &call->fresh;
    const bool wrote = call->route.target == HTTP_SNAPSHOTS;
    enum md_status s = wrote ? md_buf_printf(out, NULL, "{\"name\":")
                             : md_buf_printf(out, NULL, "{\"id\":%lld,\"name\":", session);
    if (s == MD_OK)
        s = put_text(out, call->name);
    if (s == MD_OK && wrote)
        s = md_buf_printf(out, NULL, ",\"session\":%lld,\"bytes\":%lld", session, (long long)done->bytes);
    if (s == MD_OK)
        s = md_buf_printf(out, NULL, ",\"context_tokens\":%d,\"kv_tokens\":%d}", done->context_tokens,
                          done->kv_tokens);
    return s;
}
