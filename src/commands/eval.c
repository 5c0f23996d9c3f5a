/* eval.c - `modeld eval`: how good answers about a long text are when only some of it is hot.  Flags, units, progress; the
 * rest is named in eval.h. */
#include "commands/eval.h"
#include "commands/eval_dump.h"

#include "base/clock.h"
#include "base/log.h"
#include "commands/choose.h"
#include "commands/commands.h"
#include "commands/print.h"
#include "commands/start.h"
#include "host/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char about[] = "Ask about what is hidden in a long text, under each policy of what is hot, and "
                            "count what was hot and what was answered.\n"
                            "TASK: needle (a sentence), keys (a pair among pairs), vt (a chain of "
                            "assignments), code (a constant, asked for in\n"
                            "other words).";

enum { LENGTH_MIN = 64, LENGTH_MAX = 1 << 24, LIST_MAX = MD_EVAL_DEPTHS_MAX };

/* ---- flags ---- */

/* "1000,2000": whole numbers, all different. */
static enum md_status read_numbers(const char *flag, const char *text, long low, long high, int most,
                                   int *out, int *ret_count, struct md_err *err)
{
    int n = 0;
    for (const char *p = text;; p++) {
        char *end;
        errno = 0;
        const long value = *p >= '0' && *p <= '9' ? strtol(p, &end, 10) : -1;
        if (value < low || value > high || errno != 0 || (*end != ',' && *end != '\0'))
            return md_fail(err, MD_INVALID,
                           "%s must be whole numbers from %ld to %ld with commas between, got '%.60s'", flag,
                           low, high, text);
        for (int i = 0; i < n; i++)
            if (out[i] == value)
                return md_fail(err, MD_INVALID, "%s has %ld twice", flag, value);
        if (n == most)
            return md_fail(err, MD_INVALID, "%s has more than %d numbers", flag, most);
        out[n++] = (int)value;
        p = end;
        if (*p == '\0')
            break;
    }
    *ret_count = n;
    return MD_OK;
}

static const struct md_eval_policy *find_policy(const char *name, size_t len)
{
    for (const struct md_eval_policy *p = md_eval_policies; p->name != NULL; p++)
        if (strlen(p->name) == len && strncmp(p->name, name, len) == 0)
            return p;
    return NULL;
}

static enum md_status read_policies(const char *text, struct md_eval_settings *s, struct md_err *err)
{
    for (const char *p = text, *end; p != NULL; p = *end == ',' ? end + 1 : NULL) {
        end = strchrnul(p, ',');
        const struct md_eval_policy *policy = find_policy(p, (size_t)(end - p));
        if (policy == NULL)
            return md_fail(
                err, MD_INVALID,
                "--policy '%.*s' is not known: it is one of dense, t1, t1-retrieval, t2, t2-retrieval",
                (int)(end - p > 60 ? 60 : end - p), p);
        for (int i = 0; i < s->policy_count; i++)
            if (s->policies[i] == policy)
                return md_fail(err, MD_INVALID, "--policy has %s twice", policy->name);
        s->policies[s->policy_count++] = policy; /* there are fewer than places */
    }
    return MD_OK;
}

static enum md_status read_lists(const struct md_options *o, struct md_eval_settings *s, struct md_err *err)
{
    enum md_status st = read_numbers("--length", o->lengths, LENGTH_MIN, LENGTH_MAX, MD_EVAL_LENGTHS_MAX,
                                     s->lengths, &s->length_count, err);
    if (st == MD_OK)
        st = read_policies(o->policies, s, err);
    if (st != MD_OK)
        return st;
    if (s->needles == 1 && s->task != MD_EVAL_VT)
        return read_numbers("--depths", o->depths != NULL ? o->depths : "0,25,50,75,100", 0, 100, LIST_MAX,
                            s->depths, &s->depth_count, err);
    if (o->depths != NULL)
        return md_fail(err, MD_INVALID, "--depths is for a single needle: %s stand all over the text",
                       s->task == MD_EVAL_VT ? "the links of a chain" : "several");
    s->depths[s->depth_count++] = MD_EVAL_SPREAD;
    return MD_OK;
}

/* A name of a text that is written, or a file. */
static void read_haystack(const struct md_options *o, struct md_eval_settings *s)
{
    s->text = md_eval_task_text(s->task);
    s->file = o->haystack;
    for (int k = 0; k < MD_EVAL_PAIRS && s->file != NULL; k++)
        if (strcmp(s->file, md_eval_text_name((enum md_eval_text)k)) == 0) {
            s->text = (enum md_eval_text)k;
            s->file = NULL;
        }
}

/* What goes with what. */
static enum md_status check_settings(const struct md_options *o, const struct md_eval_settings *s,
                                     struct md_err *err)
{
    const int most = md_eval_task_most(s->task, s->near_duplicates);
    const char *task = md_eval_task_name(s->task);
    if (s->needles > most)
        return md_fail(err, MD_INVALID, "--needles %d: task '%s' has %d different ones", s->needles, task,
                       most);
    if (s->near_duplicates && (s->task != MD_EVAL_NEEDLE || s->needles < 2))
        return md_fail(err, MD_INVALID, "--kind near is for task 'needle' with --needles 2 or more");
    if (s->task == MD_EVAL_KEYS && o->haystack != NULL)
        return md_fail(err, MD_INVALID,
                       "--haystack: task 'keys' hides pairs among pairs, which it writes itself");
    for (int i = 0; i < s->policy_count; i++) {
        if (!s->policies[i]->all_hot && s->hot_tokens == 0)
            return md_fail(err, MD_INVALID, "--policy %s: give --hot N, the tokens that may be hot",
                           s->policies[i]->name);
        if (s->dense_prefill && !s->policies[i]->by_place)
            return md_fail(
                err, MD_INVALID,
                "--prefill dense: policy %s chooses by the question, so nothing can be evicted before it",
                s->policies[i]->name);
    }
    return MD_OK;
}

static enum md_status one_of_two(const char *flag, const char *text, const char *no, const char *yes,
                                 bool *ret, struct md_err *err)
{
    *ret = strcmp(text, yes) == 0;
    return *ret || strcmp(text, no) == 0
               ? MD_OK
               : md_fail(err, MD_INVALID, "%s must be %s or %s, got '%.60s'", flag, no, yes, text);
}

static enum md_status read_asking(const char *text, enum md_eval_asking *ret, struct md_err *err)
{
    for (int i = 0; i < MD_EVAL_ASKING_COUNT; i++)
        if (strcmp(text, md_eval_asking_name((enum md_eval_asking)i)) == 0) {
            *ret = (enum md_eval_asking)i;
            return MD_OK;
        }
    return md_fail(err, MD_INVALID, "--ask must be turns, alone or together, got '%.60s'", text);
}

static enum md_status read_settings(const struct md_options *o, enum md_eval_task task,
                                    struct md_eval_settings *s, struct md_err *err)
{
    *s = (struct md_eval_settings){ .task = task,
                                    .needles = (int)o->needles,
                                    .trials = (int)o->trials,
                                    .hot_tokens = (int32_t)o->hot,
                                    .seed = o->seed < 0 ? 1 : (uint64_t)o->seed };
    enum md_status st = one_of_two("--kind", o->kind, "distinct", "near", &s->near_duplicates, err);
    if (st == MD_OK)
        st = read_asking(o->ask, &s->asking, err);
    if (st == MD_OK)
        st = one_of_two("--orders", o->orders, "1", "all", &s->all_orders, err);
    if (st == MD_OK)
        st = one_of_two("--prefill", o->prefill, "bounded", "dense", &s->dense_prefill, err);
    if (st == MD_OK)
        st = read_lists(o, s, err);
    read_haystack(o, s);
    return st == MD_OK ? check_settings(o, s, err) : st;
}

/* ---- units ---- */

struct run {
    struct md_options *options;
    const struct md_backend *backends;
    struct md_eval_settings settings;
    struct md_buf contents; /* of --haystack FILE */
    FILE *map;
    struct md_eval_dump dump;
    struct md_eval_bench bench;
    struct md_engine_info engine; /* as it was first opened: the same for all policies */
    struct md_eval_resume resume;
    struct md_eval_result *results; /* of all units; those of the resume file are its own */
    bool *mine;
    size_t count;
    int64_t start_ns, todo_tokens, done_tokens;
};

static enum md_status open_policy(struct run *r, int policy, struct md_err *err)
{
    if (r->bench.policy == policy)
        return MD_OK;
    md_eval_close(&r->bench);
    enum md_status s = md_eval_open(r->options, r->backends, &r->settings, policy,
                                    r->dump.file != NULL ? &r->dump : NULL, &r->bench, err);
    if (s == MD_OK && r->engine.engine[0] == '\0')
        r->engine = *md_engine_info(r->bench.stack.engine);
    if (s != MD_OK)
        r->bench = (struct md_eval_bench){ .policy = -1 };
    return s;
}

static void show_progress(struct run *r, int unit, const struct md_eval_result *result, double seconds)
{
    const struct md_eval_settings *s = &r->settings;
    int recalled = 0, found = 0;
    char depth[24] = "";
    for (int i = 0; i < result->count; i++) {
        recalled += result->items[i].recalled;
        found += result->items[i].found;
    }
    if (s->depths[result->unit.depth] >= 0)
        snprintf(depth, sizeof depth, " at %d %%", s->depths[result->unit.depth]);
    r->done_tokens += s->lengths[result->unit.length];
    r->todo_tokens -= s->lengths[result->unit.length];
    const double per_token = (double)(md_clock_mono_ns() - r->start_ns) / 1e9 / (double)r->done_tokens;
    fprintf(stderr,
            "modeld eval: %d of %d: %s, %d tokens%s: recall %d/%d, found %d/%d, %.1f s; %.0f s left\n",
            unit + 1, md_eval_unit_count(s), s->policies[result->unit.policy]->name,
            s->lengths[result->unit.length], depth, recalled, result->count, found, result->count, seconds,
            per_token * (double)r->todo_tokens);
}

static enum md_status run_unit(struct run *r, int i, struct md_err *err)
{
    const struct md_eval_unit unit = md_eval_unit_at(&r->settings, i);
    const struct md_eval_result *done = md_eval_resume_find(&r->resume, &unit);
    struct md_eval_result *mine = &r->results[r->count];
    if (done != NULL) {
        r->results[r->count++] = *done;
        return MD_OK;
    }
    const int64_t start = md_clock_mono_ns();
    enum md_status s = open_policy(r, unit.policy, err);
    if (s == MD_OK)
        s = md_eval_run(&r->bench, unit, mine, err);
    if (s != MD_OK)
        return s;
    r->mine[r->count++] = true;
    s = md_eval_resume_add(&r->resume, &r->settings, mine, err);
    if (s == MD_OK)
        show_progress(r, i, mine, (double)(md_clock_mono_ns() - start) / 1e9);
    return s;
}

/* A policy whose pool tells which heads are in use: one that retrieves, for a file of heads is for those alone; else one that scores,
 * else the first. */
static int policy_with_heads(const struct md_eval_settings *s)
{
    int scores = 0;
    for (int i = s->policy_count - 1; i >= 0; i--)
        if (s->policies[i]->caps & MD_CAP_ATTENTION_SCORES)
            scores = i;
    for (int i = 0; i < s->policy_count; i++)
        if (s->policies[i]->retrieves)
            return i;
    return scores;
}

static enum md_status open_resume(struct run *r, struct md_err *err)
{
    struct md_buf heads MD_CLEANUP(md_buf_done);
    md_buf_init(&heads, NULL, MD_CALIBRATE_TEXT_BYTES);
    enum md_status s = MD_OK;
    if (r->options->resume != NULL) /* with --dump heads have no text, and there is no --resume */
        s = md_pool_print_heads(r->bench.stack.pool, &heads, err);
    if (s == MD_NOT_FOUND) /* nothing is scored */
        s = MD_OK;
    return s == MD_OK ? md_eval_resume_open(r->options->resume, &r->settings, r->options, &r->engine,
                                            (struct md_bytes){ heads.data, heads.len }, &r->resume, err)
                      : s;
}

static enum md_status run_all(struct run *r, struct md_err *err)
{
    const int units = md_eval_unit_count(&r->settings);
    r->results = md_calloc(NULL, (size_t)units, sizeof *r->results);
    r->mine = md_calloc(NULL, (size_t)units, sizeof *r->mine);
    enum md_status s = md_eval_check(r->options, r->backends, &r->settings, err);
    if (s == MD_OK && (r->results == NULL || r->mine == NULL))
        s = md_fail(err, MD_NO_MEMORY, "%d haystacks", units);
    if (s == MD_OK)
        s = open_policy(r, r->options->resume != NULL ? policy_with_heads(&r->settings) : 0, err);
    if (s == MD_OK)
        s = md_eval_rehearse(&r->bench, err);
    if (s == MD_OK)
        s = open_resume(r, err);
    for (int i = 0; i < units && s == MD_OK; i++) {
        const struct md_eval_unit u = md_eval_unit_at(&r->settings, i);
        r->todo_tokens += md_eval_resume_find(&r->resume, &u) == NULL ? r->settings.lengths[u.length] : 0;
    }
    r->start_ns = md_clock_mono_ns();
    for (int i = 0; i < units && s == MD_OK; i++)
        s = run_unit(r, i, err);
    if (s == MD_OK)
        s = md_eval_dump_close(&r->dump, err);
    return s;
}

/* ---- files ---- */

/* What stands there already is replaced only where it is a picture: not a text, a model or the units that are done. */
static enum md_status open_map(const struct md_options *o, FILE **ret, struct md_err *err)
{
    static const char mark[] = "<?xml";
    char head[sizeof mark - 1];
    struct stat st, units;
    const int fd = open(o->map, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0 || fstat(fd, &st) != 0) {
        const enum md_status s = md_fail(err, MD_IO, "--map: open '%.300s': %s", o->map, strerror(errno));
        if (fd >= 0)
            close(fd);
        return s;
    }
    enum md_status s = MD_OK;
    if (!S_ISREG(st.st_mode))
        s = md_fail(err, MD_INVALID, "--map '%.300s' is not a regular file: name another", o->map);
    else if (o->resume != NULL && stat(o->resume, &units) == 0 && units.st_ino == st.st_ino &&
             units.st_dev == st.st_dev)
        s = md_fail(err, MD_INVALID, "--map and --resume name the same file, '%.300s': name another", o->map);
    else if (st.st_size > 0 &&
             (pread(fd, head, sizeof head, 0) != sizeof head || memcmp(head, mark, sizeof head) != 0))
        s = md_fail(err, MD_INVALID, "--map '%.300s' is there and is no picture: name another, or remove it",
                    o->map);
    if (s == MD_OK && (*ret = fdopen(fd, "a")) == NULL)
        s = md_fail(err, MD_IO, "--map: open '%.300s': %s", o->map, strerror(errno));
    if (s != MD_OK)
        close(fd);
    return s;
}

/* Of one policy: in a file of two nobody would know whose a record is. */
static enum md_status open_dump(struct run *r, struct md_err *err)
{
    const struct md_eval_settings *s = &r->settings;
    if (s->policy_count != 1 || !s->policies[0]->retrieves)
        return md_fail(err, MD_INVALID, "--dump needs one policy that retrieves: --policy t1-retrieval");
    if (s->asking == MD_EVAL_TOGETHER)
        return md_fail(err, MD_INVALID, "--dump is about one needle a question: not with --ask together");
    if (r->options->resume != NULL)
        return md_fail(err, MD_INVALID,
                       "--dump has no records of what --resume has done already: leave one out");
    enum md_status st = md_eval_dump_open(r->options->dump, &r->dump, err);
    r->dump.settings = s;
    return st;
}

/* All are tried before a model is loaded, and before hours of work. */
static enum md_status open_files(struct run *r, struct md_err *err)
{
    const char *file = r->settings.file;
    bool missing = false;
    enum md_status s = MD_OK;
    if (file != NULL)
        s = md_file_read(file, MD_EVAL_TEXT_BYTES_MAX, &r->contents, &missing, err);
    if (s == MD_OK && missing)
        s = md_fail(err, MD_NOT_FOUND, "--haystack '%.300s' is neither prose, code, chat nor a file", file);
    if (s == MD_OK && file != NULL && r->contents.len == 0)
        s = md_fail(err, MD_INVALID, "--haystack '%.300s' is empty", file);
    r->settings.contents = (struct md_bytes){ r->contents.data, r->contents.len };
    if (s == MD_OK && r->options->map != NULL)
        s = open_map(r->options, &r->map, err);
    return s == MD_OK && r->options->dump != NULL ? open_dump(r, err) : s;
}

static enum md_status write_map(struct run *r, struct md_err *err)
{
    if (r->map == NULL)
        return MD_OK;
    if (ftruncate(fileno(r->map), 0) != 0)
        return md_fail(err, MD_IO, "--map: cut '%.300s': %s", r->options->map, strerror(errno));
    return md_eval_map_write(r->map, &r->settings, &r->engine, r->results, r->count, err);
}

/* Neither is lost when the other cannot be written; the first failure is told. */
static enum md_status report(struct run *r, struct md_err *err)
{
    enum md_status s = MD_OK;
    if (r->options->json) {
        s = md_eval_print_json(&r->settings, &r->engine, r->results, r->count, err);
    } else {
        md_eval_print_table(&r->settings, &r->engine, r->results, r->count);
        s = md_print_flush(err);
    }
    const enum md_status map = write_map(r, s == MD_OK ? err : NULL);
    return s == MD_OK ? map : s;
}

static void run_done(struct run *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->mine[i])
            md_eval_result_done(&r->results[i]);
    md_free(NULL, r->results);
    md_free(NULL, r->mine);
    md_eval_close(&r->bench);
    struct md_err told; /* already */
    (void)!md_eval_dump_close(&r->dump, &told);
    md_eval_resume_close(&r->resume);
    md_buf_done(&r->contents);
    if (r->map != NULL)
        fclose(r->map);
}

static bool find_task(const char *word, enum md_eval_task *ret)
{
    for (int t = 0; t < MD_EVAL_TASK_COUNT; t++)
        if (strcmp(word, md_eval_task_name((enum md_eval_task)t)) == 0) {
            *ret = (enum md_eval_task)t;
            return true;
        }
    return false;
}

int md_command_eval(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct run r = { .options = &o, .backends = backends, .resume = { .fd = -1 }, .bench = { .policy = -1 } };
    struct md_err err;
    enum md_eval_task task = MD_EVAL_NEEDLE;
    const bool named = argc > 1 && argv[1][0] != '-';
    if (named && !find_task(argv[1], &task)) {
        md_fail(&err, MD_INVALID, "task '%.60s' is not known: it is one of needle, keys, vt, code", argv[1]);
        md_complain(argv[0], err.text);
        return 2;
    }
    if (named) { /* flags follow the task */
        argv[1] = argv[0];
        argv++;
        argc--;
    }
    int rc = md_start(argc, argv, MD_CMD_EVAL, about, &o);
    if (rc >= 0)
        return rc;
    if (!named || read_settings(&o, task, &r.settings, &err) != MD_OK) {
        md_complain(argv[0], named ? err.text : "no task: `modeld eval needle ...`, or keys, vt, code");
        return 2;
    }
    md_buf_init(&r.contents, NULL, MD_EVAL_TEXT_BYTES_MAX + 1);
    enum md_status s = open_files(&r, &err);
    if (s == MD_OK)
        s = md_choose_engine(&o, backends, true, &err);
    if (s == MD_OK)
        s = run_all(&r, &err);
    if (s == MD_OK)
        s = report(&r, &err);
    run_done(&r);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}
