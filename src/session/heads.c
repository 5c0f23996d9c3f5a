/* heads.c - see heads.h. */
#include "session/heads.h"

#include "base/log.h"
#include "host/file.h"
#include "host/paths.h"
#include "policy/heads_table.h"
#include "policy/needles.h"
#include "session/calibrator.h"
#include "session/session_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct md_heads {
    struct md_pool *pool; /* borrowed */
    struct md_calibrate_key key;
    char *file; /* NULL: nothing is kept */
    struct md_calibrator *calibrator;
    struct md_heads_status status;
};

const char *md_heads_origin_name(enum md_heads_origin origin)
{
    static const char *const names[] = { "band", "table", "file", "measured" };
    assert((unsigned)origin < sizeof names / sizeof names[0]);
    return names[origin];
}

const char *md_heads_state_name(enum md_heads_state state)
{
    static const char *const names[] = { "none", "settled", "waiting", "running", "failed" };
    assert((unsigned)state < sizeof names / sizeof names[0]);
    return names[state];
}

enum md_status md_heads_key(const struct md_engine *engine, struct md_calibrate_key *ret_key,
                            struct md_err *err)
{
    const char *name = md_engine_info(engine)->model_key;
    ret_key->calibration = MD_NEEDLES_VERSION;
    return md_sha256_hex((struct md_bytes){ name, strlen(name) }, ret_key->model, err);
}

enum md_status md_heads_file(const char *data_root, const struct md_engine *engine, char *out,
                             size_t out_bytes, struct md_err *err)
{
    enum { NAME_DIGITS = 16 };
    struct md_calibrate_key key;
    char name[64];
    enum md_status s = md_heads_key(engine, &key, err);
    if (s != MD_OK)
        return s;
    snprintf(name, sizeof name, "heads/%.*s", NAME_DIGITS, key.model);
    return md_paths_state_file(data_root, name, out, out_bytes)
               ? MD_OK
               : md_fail(err, MD_INVALID, "the path of a model's heads has more than %zu bytes",
                         out_bytes - 1);
}

/* ---- what is known ---- */

static void take(struct md_heads *h, const struct md_calibrate_set *set, enum md_heads_origin origin)
{
    h->status.origin = origin;
    h->status.state = MD_HEADS_SETTLED;
    h->status.source = set->source;
    h->status.count = (int32_t)set->count;
}

static enum md_status use(struct md_heads *h, const struct md_calibrate_set *set, enum md_heads_origin origin,
                          struct md_err *err)
{
    enum md_status s = md_attend_use(h->pool->attend, set, err);
    if (s == MD_OK)
        take(h, set, origin);
    return s;
}

/* MD_NOT_FOUND: there is no file. */
static enum md_status read_file(struct md_heads *h, struct md_calibrate_set *ret_set, struct md_err *err)
{
    struct md_buf text MD_CLEANUP(md_buf_done);
    bool missing = true;
    md_buf_init(&text, h->pool->config.alloc, MD_CALIBRATE_TEXT_BYTES);
    if (h->file == NULL)
        return MD_NOT_FOUND;
    enum md_status s = md_file_read(h->file, MD_CALIBRATE_TEXT_BYTES, &text, &missing, err);
    if (s != MD_OK || missing)
        return s != MD_OK ? s : MD_NOT_FOUND;
    s = md_calibrate_parse((struct md_bytes){ text.data, text.len }, &h->key, ret_set, err);
    return s == MD_NOT_FOUND ? MD_INVALID : s; /* for another model or version: as bad as damaged */
}

/* bad: it is the file that is, and nobody can use it. */
static void refuse_file(struct md_heads *h, bool bad, const struct md_err *why)
{
    const bool gone = bad && unlink(h->file) == 0;
    snprintf(h->status.why, sizeof h->status.why, "the file of measured heads was not used: %.180s",
             why->text);
    md_log(MD_LOG_WARN, "file of measured heads '%s' is not used%s: %s", h->file,
           gone ? " and was removed" : "", why->text);
}

static void find_known(struct md_heads *h)
{
    struct md_err err = { 0 };
    struct md_calibrate_set set;
    enum md_status s = read_file(h, &set, &err);
    /* not what cannot be read for want of memory, or by the system's fault; nor a sound set that this engine or KV type does not
     * give, because the key is the model's alone */
    const bool bad = s != MD_OK && s != MD_NO_MEMORY && s != MD_IO;
    if (s == MD_OK)
        s = use(h, &set, MD_HEADS_FILE, &err);
    h->status.kept = s == MD_OK;
    if (s != MD_OK && s != MD_NOT_FOUND)
        refuse_file(h, bad, &err);
    if (s == MD_OK)
        return;
    s = md_heads_table_find(&h->key, &set, &err);
    if (s == MD_OK)
        s = use(h, &set, MD_HEADS_TABLE, &err);
    if (s != MD_OK && s != MD_NOT_FOUND)
        md_log(MD_LOG_WARN, "the heads of the table are not used: %s", err.text);
}

/* Whoever asks for it anew waits for the end, and says himself how it went. */
static bool is_told(const struct md_heads *h)
{
    return h->pool->config.calibrate != MD_CALIBRATE_ANEW;
}

static void wait_for_calibration(struct md_heads *h)
{
    struct md_err err;
    h->status.state = MD_HEADS_WAITING;
    if (md_calibrator_check(h->pool->engine, &err) == MD_OK)
        return;
    h->status.state = MD_HEADS_FAILED;
    snprintf(h->status.why, sizeof h->status.why, "heads cannot be measured: %.200s", err.text);
    if (is_told(h))
        md_log(MD_LOG_INFO, "%s: those of the band are used", h->status.why);
}

enum md_status md_heads_open(struct md_pool *p, struct md_heads **ret_heads, struct md_err *err)
{
    *ret_heads = NULL;
    if (p->attend == NULL)
        return MD_OK;
    struct md_heads *h = md_calloc(p->config.alloc, 1, sizeof *h);
    if (h == NULL)
        return md_fail(err, MD_NO_MEMORY, "heads");
    h->pool = p;
    take(h, md_attend_heads(p->attend), MD_HEADS_SPREAD);
    enum md_status s = MD_OK;
    if (p->config.retrieve == NULL) {
        const char *file = p->config.heads_file;
        s = md_heads_key(p->engine, &h->key, err);
        if (s == MD_OK && file != NULL) {
            h->file = md_calloc(p->config.alloc, strlen(file) + 1, 1);
            if (h->file == NULL)
                s = md_fail(err, MD_NO_MEMORY, "heads");
            else
                memcpy(h->file, file, strlen(file));
        }
        if (s == MD_OK && p->config.calibrate != MD_CALIBRATE_ANEW)
            find_known(h);
        if (s == MD_OK && h->status.origin == MD_HEADS_SPREAD && p->config.calibrate != MD_CALIBRATE_OFF)
            wait_for_calibration(h);
    }
    if (s == MD_OK)
        *ret_heads = h;
    else
        md_heads_close(h);
    return s;
}

void md_heads_close(struct md_heads *h)
{
    if (h == NULL)
        return;
    md_calibrator_close(h->calibrator);
    md_free(h->pool->config.alloc, h->file);
    md_free(h->pool->config.alloc, h);
}

/* ---- a calibration ---- */

bool md_heads_wants(const struct md_heads *h)
{
    return h != NULL && (h->status.state == MD_HEADS_WAITING || h->status.state == MD_HEADS_RUNNING);
}

static void fail(struct md_heads *h, const struct md_err *err)
{
    h->status.state = MD_HEADS_FAILED;
    snprintf(h->status.why, sizeof h->status.why, "the calibration failed: %.200s", err->text);
    if (is_told(h))
        md_log(MD_LOG_WARN, "the heads for retrieval could not be measured, and are those of the band: %s",
               err->text);
}

static void keep(struct md_heads *h, const struct md_calibrate_set *set)
{
    struct md_buf text MD_CLEANUP(md_buf_done);
    struct md_err err;
    md_buf_init(&text, h->pool->config.alloc, MD_CALIBRATE_TEXT_BYTES);
    if (h->file == NULL)
        return;
    enum md_status s = md_calibrate_print(set, &h->key, &text, &err);
    if (s == MD_OK && !md_paths_make_folder_of(h->file))
        s = md_fail(&err, MD_IO, "its folder cannot be made");
    if (s == MD_OK)
        s = md_file_replace(h->file, (struct md_bytes){ text.data, text.len }, &err);
    h->status.kept = s == MD_OK;
    if (s != MD_OK)
        snprintf(h->status.why, sizeof h->status.why, "measured heads are not kept: %.200s", err.text);
    if (s != MD_OK && is_told(h))
        md_log(MD_LOG_WARN,
               "measured heads are not kept in '%s', and are measured again by the next process: %s", h->file,
               err.text);
}

/* For studies. */
static void log_measures(const struct md_calibrator *c)
{
    size_t count;
    const struct md_calibrate_measure *m = md_calibrator_measures(c, &count);
    for (size_t i = 0; i < count; i++)
        md_log(MD_LOG_DEBUG, "head %d %d: gold %.6f null %.6f near %.6f echo %.6f induction %.6f", m[i].layer,
               m[i].head, (double)m[i].gold, (double)m[i].null, (double)m[i].near, (double)m[i].echo,
               (double)m[i].induction);
}

static void end(struct md_heads *h)
{
    struct md_err err;
    const struct md_calibrate_set *set = md_calibrator_result(h->calibrator);
    if (use(h, set, MD_HEADS_MEASURED, &err) != MD_OK) {
        fail(h, &err);
        return;
    }
    h->status.why[0] = '\0';
    log_measures(h->calibrator);
    keep(h, set);
    md_log(MD_LOG_INFO, "calibrated: %d heads find what is asked for (%s)", h->status.count,
           md_calibrate_source_name(set->source));
}

void md_heads_step(struct md_heads *h, bool (*wanted)(void *user), void *user)
{
    struct md_err err = { 0 };
    bool done = false;
    enum md_status s = MD_OK;
    assert(md_heads_wants(h));
    if (h->calibrator == NULL) {
        const struct md_pool *p = h->pool;
        md_log(MD_LOG_INFO,
               "calibrating: which heads of this model find things is measured while nobody waits");
        s = md_calibrator_open(&h->pool->hot, p->text, p->config.block_tokens, &h->calibrator, &err);
        h->status.state = MD_HEADS_RUNNING;
    }
    if (s == MD_OK)
        s = md_calibrator_step(h->calibrator, wanted, user, &done, &err);
    if (s == MD_CANCELLED)
        return;
    if (s != MD_OK)
        fail(h, &err);
    else if (done)
        end(h);
    else
        h->status.percent = md_calibrator_percent(h->calibrator);
    if (h->status.state != MD_HEADS_RUNNING) {
        md_calibrator_close(h->calibrator);
        h->calibrator = NULL;
    }
}

enum md_status md_heads_print(const struct md_heads *h, struct md_buf *buf, struct md_err *err)
{
    return h != NULL ? md_calibrate_print(md_attend_heads(h->pool->attend), &h->key, buf, err)
                     : md_fail(err, MD_NOT_FOUND, "nothing is scored, so there are no heads");
}

struct md_heads_status md_heads_status(const struct md_heads *h)
{
    return h != NULL ? h->status : (struct md_heads_status){ .state = MD_HEADS_NONE };
}
