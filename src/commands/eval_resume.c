/* eval_resume.c - the file of units that are done: JSON, one object a line, the first of which says what was asked of which
 * model.  A line counts when its end is there: nothing else is needed to survive kill -9.  See eval.h. */
#include "commands/eval.h"

#include "base/sha256.h"
#include "commands/options_table.h"
#include "commands/print.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yyjson.h>

enum { FILE_BYTES_MAX = 256 << 20 };

/* ---- the first line ---- */

/* Of this program: what it chooses by, and the text it writes, are part of it.  Once a process. */
static enum md_status program_digest(char ret[MD_SHA256_HEX + 1], struct md_err *err)
{
    static char known[MD_SHA256_HEX + 1];
    static uint8_t part[1 << 16];
    struct md_sha256 h;
    ssize_t n = 0;
    if (known[0] == '\0') {
        const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        md_sha256_init(&h);
        while (fd >= 0 && ((n = read(fd, part, sizeof part)) > 0 || (n < 0 && errno == EINTR)))
            md_sha256_update(&h, part, n > 0 ? (size_t)n : 0);
        if (fd < 0 || n < 0) {
            const enum md_status s = md_fail(err, MD_IO, "--resume: read the program: %s", strerror(errno));
            if (fd >= 0)
                close(fd);
            return s;
        }
        close(fd);
        const enum md_status s = md_sha256_finish(&h, known, err);
        if (s != MD_OK)
            return s;
    }
    memcpy(ret, known, sizeof known);
    return MD_OK;
}

/* Flags that change no answer, and those that stand in the settings. */
static bool is_left_out(const struct md_option_def *d)
{
    static const char *const names[] = { "--model",  "--data-root", "--json",     "--verbose", "--help",
                                         "--map",    "--resume",    "--dump",     "--length",  "--depths",
                                         "--policy", "--needles",   "--kind",     "--ask",     "--orders",
                                         "--trials", "--prefill",   "--haystack", "--seed",    "--hot" };
    /* a size may be a share of what is free just now; what is too little for the haystack is an error */
    bool found = d->kind == SIZE || !(d->commands & MD_CMD_EVAL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        found = found || strcmp(md_option_name(d), names[i]) == 0;
    return found;
}

static void add_flags(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_options *flags)
{
    for (size_t i = 0; i < md_option_count; i++) {
        const struct md_option_def *d = &md_option_defs[i];
        const char *field = (const char *)flags + d->offset, *name = md_option_name(d);
        if (is_left_out(d))
            continue;
        switch (d->kind) {
        case TEXT: yyjson_mut_obj_add_strcpy(doc, o, name, *(const char *const *)field); break;
        case WORD: yyjson_mut_obj_add_strcpy(doc, o, name, field); break;
        case COUNT:
        case SIZE: yyjson_mut_obj_add_int(doc, o, name, *(const int64_t *)field); break;
        case SHARE_OR_OFF:
        case REAL: yyjson_mut_obj_add_real(doc, o, name, *(const double *)field); break;
        case ON_OFF:
        case FLAG: yyjson_mut_obj_add_bool(doc, o, name, *(const bool *)field); break;
        }
    }
}

static void add_settings(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_eval_settings *s,
                         const struct md_options *flags, const char *text)
{
    yyjson_mut_obj_add_str(doc, o, "task", md_eval_task_name(s->task));
    yyjson_mut_obj_add_str(doc, o, "kind", s->near_duplicates ? "near" : "distinct");
    yyjson_mut_obj_add_str(doc, o, "ask", md_eval_asking_name(s->asking));
    yyjson_mut_obj_add_int(doc, o, "needles", s->needles);
    yyjson_mut_obj_add_strcpy(doc, o, "orders", s->all_orders ? "all" : "1");
    yyjson_mut_obj_add_int(doc, o, "trials", s->trials);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, o, "lengths");
    for (int i = 0; i < s->length_count; i++)
        yyjson_mut_arr_add_int(doc, list, s->lengths[i]);
    list = yyjson_mut_obj_add_arr(doc, o, "depths");
    for (int i = 0; i < s->depth_count; i++)
        yyjson_mut_arr_add_int(doc, list, s->depths[i]);
    list = yyjson_mut_obj_add_arr(doc, o, "policies");
    for (int i = 0; i < s->policy_count; i++)
        yyjson_mut_arr_add_str(doc, list, s->policies[i]->name);
    yyjson_mut_obj_add_int(doc, o, "hot", s->hot_tokens);
    yyjson_mut_obj_add_str(doc, o, "prefill", s->dense_prefill ? "dense" : "bounded");
    yyjson_mut_obj_add_uint(doc, o, "seed", s->seed);
    yyjson_mut_obj_add_strcpy(doc, o, "haystack", text);
    add_flags(doc, o, flags);
}

static enum md_status first_line(const struct md_eval_settings *s, const struct md_options *flags,
                                 const struct md_engine_info *engine, struct md_bytes heads, char **ret,
                                 struct md_err *err)
{
    char text[MD_SHA256_HEX + 1], program[MD_SHA256_HEX + 1], scored[MD_SHA256_HEX + 1] = "none";
    snprintf(text, sizeof text, "%s", md_eval_text_name(s->text));
    enum md_status st = s->file != NULL ? md_sha256_hex(s->contents, text, err) : MD_OK;
    if (st == MD_OK)
        st = program_digest(program, err);
    if (st == MD_OK && heads.len > 0)
        st = md_sha256_hex(heads, scored, err);
    if (st != MD_OK)
        return st;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    yyjson_mut_obj_add_int(doc, o, "modeld_eval", 2);
    yyjson_mut_obj_add_strcpy(doc, o, "program", program);
    yyjson_mut_obj_add_strcpy(doc, o, "model", engine->identity);
    yyjson_mut_obj_add_strcpy(doc, o, "engine", engine->engine);
    yyjson_mut_obj_add_strcpy(doc, o, "engine_version", engine->version);
    yyjson_mut_obj_add_strcpy(doc, o, "heads", scored);
    add_settings(doc, o, s, flags, text);
    return md_write_json(doc, false, ret, err);
}

/* The first entry that is not the same; both lines are ours, or the file's is not and differs in all. */
static enum md_status refuse(const char *path, struct md_bytes theirs, const char *ours, struct md_err *err)
{
    yyjson_doc *a = yyjson_read(theirs.data, theirs.len, YYJSON_READ_NOFLAG);
    yyjson_doc *b = yyjson_read(ours, strlen(ours), YYJSON_READ_NOFLAG);
    yyjson_val *was = yyjson_doc_get_root(a), *key, *value;
    enum md_status s = MD_OK;
    yyjson_obj_iter it = yyjson_obj_iter_with(yyjson_doc_get_root(b));
    if (yyjson_obj_get(was, "modeld_eval") == NULL)
        s = md_fail(err, MD_INVALID, "--resume '%.200s' is not a file of `modeld eval`: name another", path);
    while (s == MD_OK && (key = yyjson_obj_iter_next(&it)) != NULL) {
        value = yyjson_obj_iter_get_val(key);
        if (!yyjson_equals(value, yyjson_obj_get(was, yyjson_get_str(key))))
            s = md_fail(
                err, MD_INVALID,
                "--resume '%.200s' was begun with another '%s': ask for the same again, or name another file",
                path, yyjson_get_str(key));
    }
    yyjson_doc_free(a);
    yyjson_doc_free(b);
    return s;
}

/* ---- a unit as a line ---- */

static void add_item(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_eval_item *i)
{
    yyjson_mut_obj_add_int(doc, o, "order", i->order);
    yyjson_mut_obj_add_int(doc, o, "turn", i->turn);
    yyjson_mut_obj_add_int(doc, o, "needle", i->needle);
    yyjson_mut_obj_add_int(doc, o, "depth", i->depth);
    yyjson_mut_obj_add_bool(doc, o, "recalled", i->recalled);
    yyjson_mut_obj_add_bool(doc, o, "found", i->found);
    yyjson_mut_obj_add_int(doc, o, "prompt", i->prompt);
    yyjson_mut_obj_add_int(doc, o, "attended", i->attended);
    yyjson_mut_val *spans = yyjson_mut_obj_add_arr(doc, o, "spans");
    for (int k = 0; k < i->part_count; k++) {
        yyjson_mut_val *span = yyjson_mut_arr_add_arr(doc, spans);
        yyjson_mut_arr_add_int(doc, span, i->spans[k].start);
        yyjson_mut_arr_add_int(doc, span, i->spans[k].end);
    }
    yyjson_mut_obj_add_int(doc, o, "question", i->question);
    yyjson_mut_obj_add_int(doc, o, "evaluations", i->evaluations);
    yyjson_mut_obj_add_int(doc, o, "heads_used", i->heads_used);
    yyjson_mut_obj_add_int(doc, o, "first_rank", i->first_rank);
    yyjson_mut_obj_add_int(doc, o, "rank", i->rank);
    if (i->blocks != NULL)
        yyjson_mut_obj_add_strcpy(doc, o, "blocks", i->blocks);
    yyjson_mut_obj_add_real(doc, o, "seconds", i->seconds);
    yyjson_mut_obj_add_strcpy(doc, o, "value", i->value);
    yyjson_mut_obj_add_strcpy(doc, o, "answer", i->answer);
}

/* *ret_room false: there was no memory for it. */
static bool read_item(yyjson_val *v, struct md_eval_item *i, bool *ret_room)
{
    yyjson_val *spans = yyjson_obj_get(v, "spans"), *seconds = yyjson_obj_get(v, "seconds");
    const char *answer = yyjson_get_str(yyjson_obj_get(v, "answer"));
    const char *value = yyjson_get_str(yyjson_obj_get(v, "value"));
    *i = (struct md_eval_item){ .order = yyjson_get_int(yyjson_obj_get(v, "order")),
                                .turn = yyjson_get_int(yyjson_obj_get(v, "turn")),
                                .needle = yyjson_get_int(yyjson_obj_get(v, "needle")),
                                .depth = yyjson_get_int(yyjson_obj_get(v, "depth")),
                                .recalled = yyjson_get_bool(yyjson_obj_get(v, "recalled")),
                                .found = yyjson_get_bool(yyjson_obj_get(v, "found")),
                                .prompt = yyjson_get_int(yyjson_obj_get(v, "prompt")),
                                .attended = yyjson_get_int(yyjson_obj_get(v, "attended")),
                                .question = yyjson_get_int(yyjson_obj_get(v, "question")),
                                .evaluations = yyjson_get_int(yyjson_obj_get(v, "evaluations")),
                                .heads_used = yyjson_get_int(yyjson_obj_get(v, "heads_used")),
                                .first_rank = yyjson_get_int(yyjson_obj_get(v, "first_rank")),
                                .rank = yyjson_get_int(yyjson_obj_get(v, "rank")),
                                .seconds = yyjson_get_num(seconds) };
    if (answer == NULL || value == NULL || !yyjson_is_num(seconds) || !(i->seconds >= 0) || i->prompt < 0 ||
        i->attended < 0 || i->first_rank < 0 || i->rank < 0 || yyjson_arr_size(spans) > MD_EVAL_PARTS_MAX ||
        i->depth < MD_EVAL_SPREAD || i->depth > 100)
        return false;
    snprintf(i->value, sizeof i->value, "%s", value);
    snprintf(i->answer, sizeof i->answer, "%s", answer);
    yyjson_val *blocks = yyjson_obj_get(v, "blocks");
    if (yyjson_is_str(blocks)) {
        i->blocks = md_calloc(NULL, yyjson_get_len(blocks) + 1, 1);
        *ret_room = i->blocks != NULL;
        if (*ret_room)
            memcpy(i->blocks, yyjson_get_str(blocks), yyjson_get_len(blocks));
    }
    for (size_t k = 0; k < yyjson_arr_size(spans); k++) {
        yyjson_val *span = yyjson_arr_get(spans, k);
        i->spans[i->part_count++] = (struct md_range){ yyjson_get_int(yyjson_arr_get(span, 0)),
                                                       yyjson_get_int(yyjson_arr_get(span, 1)) };
    }
    return true;
}

static enum md_status unit_line(const struct md_eval_settings *s, const struct md_eval_result *r, char **ret,
                                struct md_err *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    yyjson_mut_obj_add_str(doc, o, "policy", s->policies[r->unit.policy]->name);
    yyjson_mut_obj_add_int(doc, o, "length", s->lengths[r->unit.length]);
    yyjson_mut_obj_add_int(doc, o, "depth", s->depths[r->unit.depth]);
    yyjson_mut_obj_add_int(doc, o, "trial", r->unit.trial);
    yyjson_mut_val *items = yyjson_mut_obj_add_arr(doc, o, "items");
    for (int i = 0; i < r->count; i++)
        add_item(doc, yyjson_mut_arr_add_obj(doc, items), &r->items[i]);
    return md_write_json(doc, false, ret, err);
}

/* The unit that a line is about; false: none of these settings. */
static bool read_unit(const struct md_eval_settings *s, yyjson_val *root, struct md_eval_unit *u)
{
    const char *policy = yyjson_get_str(yyjson_obj_get(root, "policy"));
    const int length = yyjson_get_int(yyjson_obj_get(root, "length"));
    const int depth = yyjson_get_int(yyjson_obj_get(root, "depth"));
    *u = (struct md_eval_unit){ -1, -1, -1, yyjson_get_int(yyjson_obj_get(root, "trial")) };
    for (int i = 0; i < s->policy_count && policy != NULL; i++)
        if (strcmp(s->policies[i]->name, policy) == 0)
            u->policy = i;
    for (int i = 0; i < s->length_count; i++)
        if (s->lengths[i] == length)
            u->length = i;
    for (int i = 0; i < s->depth_count; i++)
        if (s->depths[i] == depth)
            u->depth = i;
    return u->policy >= 0 && u->length >= 0 && u->depth >= 0 && u->trial >= 0 && u->trial < s->trials;
}

/* Is it what this unit asks as its item number `i`, so that reports count it where it belongs? */
static bool is_asked(const struct md_eval_settings *s, const struct md_eval_unit *u, int i,
                     const struct md_eval_item *item)
{
    const int depth = s->depths[u->depth];
    return item->order == i / s->needles && item->turn == i % s->needles &&
           item->needle == md_eval_asked(s, item->order, item->turn) &&
           (depth == MD_EVAL_SPREAD || item->depth == depth);
}

static enum md_status take_line(struct md_eval_resume *r, const struct md_eval_settings *s,
                                struct md_bytes line, struct md_err *err)
{
    struct md_eval_result result = { 0 };
    yyjson_doc *doc = yyjson_read(line.data, line.len, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(doc), *items = yyjson_obj_get(root, "items"), *v;
    const int want = md_eval_item_count(s);
    bool good = read_unit(s, root, &result.unit) && yyjson_arr_size(items) == (size_t)want;
    if (good && md_eval_resume_find(r, &result.unit) != NULL) { /* once is enough */
        yyjson_doc_free(doc);
        return MD_OK;
    }
    result.items = md_calloc(NULL, (size_t)want, sizeof *result.items);
    void *done = r->done;
    bool room = result.items != NULL && md_grow(NULL, &done, &r->cap, r->count + 1, sizeof *r->done);
    r->done = done;
    yyjson_arr_iter it = yyjson_arr_iter_with(items);
    for (int i = 0; good && room && (v = yyjson_arr_iter_next(&it)) != NULL; i++) {
        good = read_item(v, &result.items[i], &room) && is_asked(s, &result.unit, i, &result.items[i]);
        result.count++;
    }
    yyjson_doc_free(doc);
    if (good && room) {
        r->done[r->count++] = result;
        return MD_OK;
    }
    md_eval_result_done(&result);
    return !room ? md_fail(err, MD_NO_MEMORY, "%zu units of --resume", r->count + 1)
                 : md_fail(err, MD_INVALID,
                           "--resume '%.200s': the line of unit %zu is damaged: name another file", r->path,
                           r->count + 1);
}

/* ---- the file ---- */

static enum md_status failed(const struct md_eval_resume *r, const char *what, struct md_err *err)
{
    return md_fail(err, MD_IO, "--resume: %s '%.300s': %s", what, r->path, strerror(errno));
}

static enum md_status write_line(struct md_eval_resume *r, char *line, struct md_err *err)
{
    const size_t len = strlen(line);
    line[len] = '\n'; /* in the place of the NUL: one write */
    size_t done = 0;
    while (done < len + 1) {
        const ssize_t n = write(r->fd, line + done, len + 1 - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        done += (size_t)n;
    }
    const bool whole = done == len + 1;
    free(line);
    return whole ? MD_OK : failed(r, "write", err);
}

static enum md_status read_file(struct md_eval_resume *r, struct md_buf *b, struct md_err *err)
{
    struct stat st;
    enum md_status s = MD_OK;
    if (fstat(r->fd, &st) != 0)
        return failed(r, "look at", err);
    if (!S_ISREG(st.st_mode))
        return md_fail(err, MD_INVALID, "--resume '%.300s' is not a regular file: name another", r->path);
    if (st.st_size > FILE_BYTES_MAX)
        return md_fail(err, MD_INVALID,
                       "--resume '%.300s' has more than %d MiB: it is not one of `modeld eval`", r->path,
                       FILE_BYTES_MAX >> 20);
    s = md_buf_reserve(b, (size_t)st.st_size + 1, err);
    while (s == MD_OK && b->len < (size_t)st.st_size) {
        const ssize_t n = pread(r->fd, b->data + b->len, (size_t)st.st_size - b->len, (off_t)b->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            s = failed(r, "read", err);
        if (n <= 0)
            break;
        b->len += (size_t)n;
    }
    return s;
}

/* What stands behind the last end of a line was being written when the process ended. */
static enum md_status take_lines(struct md_eval_resume *r, const struct md_eval_settings *s,
                                 struct md_bytes all, const char *ours, struct md_err *err)
{
    const char *start = all.data, *end = start + all.len, *at = start;
    enum md_status st = MD_OK;
    for (const char *stop; st == MD_OK && (stop = memchr(at, '\n', (size_t)(end - at))) != NULL;
         at = stop + 1) {
        const struct md_bytes line = { at, (size_t)(stop - at) };
        if (at > start)
            st = take_line(r, s, line, err);
        else if (!md_bytes_are(line, ours))
            st = refuse(r->path, line, ours, err);
    }
    if (st == MD_OK && at == start && !(all.len <= strlen(ours) && memcmp(start, ours, all.len) == 0))
        st = refuse(r->path, all, ours, err); /* somebody's file without any end of a line */
    if (st == MD_OK && at < end && ftruncate(r->fd, at - start) != 0)
        st = failed(r, "cut", err);
    return st;
}

enum md_status md_eval_resume_open(const char *path, const struct md_eval_settings *s,
                                   const struct md_options *flags, const struct md_engine_info *engine,
                                   struct md_bytes heads, struct md_eval_resume *ret, struct md_err *err)
{
    struct md_eval_resume r = { .fd = -1 };
    struct md_buf all MD_CLEANUP(md_buf_done);
    char *ours = NULL;
    md_buf_init(&all, NULL, FILE_BYTES_MAX + 1);
    if (path == NULL) {
        *ret = r;
        return MD_OK;
    }
    if (strlen(path) >= sizeof r.path)
        return md_fail(err, MD_INVALID, "--resume: the path has more than %zu bytes", sizeof r.path - 1);
    snprintf(r.path, sizeof r.path, "%s", path);
    r.fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    enum md_status st = r.fd >= 0 ? MD_OK : failed(&r, "open", err);
    if (st == MD_OK && flock(r.fd, LOCK_EX | LOCK_NB) != 0)
        st = errno == EWOULDBLOCK
                 ? md_fail(err, MD_BUSY, "--resume '%.300s': another `modeld eval` writes it: wait for it",
                           path)
                 : failed(&r, "lock", err);
    if (st == MD_OK)
        st = read_file(&r, &all, err);
    if (st == MD_OK)
        st = first_line(s, flags, engine, heads, &ours, err);
    const bool whole = st == MD_OK && all.len > 0 && memchr(all.data, '\n', all.len) != NULL;
    if (st == MD_OK && all.len > 0)
        st = take_lines(&r, s, (struct md_bytes){ all.data, all.len }, ours, err);
    if (st == MD_OK && !whole) {
        st = write_line(&r, ours, err);
        ours = NULL;
    }
    free(ours);
    if (st == MD_OK)
        *ret = r;
    else
        md_eval_resume_close(&r);
    return st;
}

void md_eval_resume_close(struct md_eval_resume *r)
{
    if (r->fd >= 0)
        close(r->fd);
    for (size_t i = 0; i < r->count; i++)
        md_eval_result_done(&r->done[i]);
    md_free(NULL, r->done);
    *r = (struct md_eval_resume){ .fd = -1 };
}

const struct md_eval_result *md_eval_resume_find(const struct md_eval_resume *r,
                                                 const struct md_eval_unit *unit)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct md_eval_unit *u = &r->done[i].unit;
        if (u->policy == unit->policy && u->length == unit->length && u->depth == unit->depth &&
            u->trial == unit->trial)
            return &r->done[i];
    }
    return NULL;
}

enum md_status md_eval_resume_add(struct md_eval_resume *r, const struct md_eval_settings *s,
                                  const struct md_eval_result *result, struct md_err *err)
{
    char *line;
    if (r->fd < 0)
        return MD_OK;
    enum md_status st = unit_line(s, result, &line, err);
    if (st == MD_OK)
        st = write_line(r, line, err);
    if (st == MD_OK && fdatasync(r->fd) != 0)
        st = failed(r, "sync", err);
    return st;
}
