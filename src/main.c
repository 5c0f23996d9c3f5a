/* main.c - names the fronts, dispatches the verbs, and runs the daemon (`serve`), the one verb
 * that needs a front. */
#include "adapters/all/engines.h"
#include "base/log.h"
#include "cli/cli.h"
#include "commands/choose.h"
#include "commands/commands.h"
#include "commands/describe.h"
#include "commands/stack.h"
#include "commands/start.h"
#include "fronts/http/http.h"
#include "host/paths.h"
#include "policy/rebase.h"
#include "session/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char serve_about[] = "Serve the model over HTTP (OpenAI's routes) until SIGTERM or Ctrl-C.";

/* ---- serve ---- */

/* SIGTERM and SIGINT end the daemon, SIGHUP ends nothing.  A thread waits for them from the start, because
 * loading a large model takes long and cannot be interrupted. */
struct ending {
    sigset_t signals;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool loading, asked;  /* under lock */
    struct md_http *http; /* closed by the thread only while loading */
};

static int wait_for_signal(const sigset_t *signals)
{
    int number = SIGHUP;
    while (number == SIGHUP)
        sigwait(signals, &number);
    return number;
}

static void *watch_signals(void *user)
{
    struct ending *e = user;
    int number = wait_for_signal(&e->signals);
    md_log(MD_LOG_INFO, "signal %d: stopping", number);
    pthread_mutex_lock(&e->lock);
    if (e->loading) { /* nobody's conversation is in memory yet; the lock keeps main() from going on */
        md_http_close(e->http);
        _exit(0);
    }
    e->asked = true;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->lock);
    _exit(128 + wait_for_signal(&e->signals)); /* the first one asked nicely */
}

static enum md_status ending_init(struct ending *e, struct md_http *http, struct md_err *err)
{
    pthread_t thread;
    e->loading = true;
    e->asked = false;
    e->http = http;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    int failed = pthread_create(&thread, NULL, watch_signals, e);
    if (failed != 0)
        return md_fail(err, MD_IO, "start the signal thread: %s", strerror(failed));
    pthread_detach(thread); /* it lasts as long as the process */
    return MD_OK;
}

static void ending_loaded(struct ending *e)
{
    pthread_mutex_lock(&e->lock);
    e->loading = false;
    pthread_mutex_unlock(&e->lock);
}

static void ending_wait(struct ending *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->asked)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

/* What does not fit the cold store will be dropped: nobody shall learn that in the middle of a long task. */
static void warn_small_store(const struct md_pool_status *st)
{
    int32_t evictable = st->window_tokens - st->hot_limit_tokens;
    int64_t need = (int64_t)evictable * st->kv_bytes_per_token;
    if (st->residency && evictable > 0 && (int64_t)st->cold.budget_bytes < need)
        md_log(MD_LOG_WARN,
               "the cold store of %.0f MB is smaller than the %.0f MB of KV that this window may evict: what "
               "does not fit is dropped and computed again when it is needed (--mem-cold)",
               (double)st->cold.budget_bytes / 1e6, (double)need / 1e6);
}

/* What the front asks back about what is open. */
struct serving {
    const struct md_options *options;
    const struct md_backend *backends;
    const struct md_stack *stack;
};

/* On the front's preparer: it reads the header of the model, the memory of the machine and its devices, and nothing
 * of engine and conversations, which are the worker's. */
static enum md_status tell_capacity(void *user, struct md_buf *out, struct md_err *err)
{
    const struct serving *s = user;
    return md_describe_capacity(s->options, s->backends, s->stack->device_bytes, out, err);
}

/* Nothing is made here: the front does it when the first snapshot is written. */
static enum md_status find_snapshots(const struct md_options *o, char *out, size_t out_bytes,
                                     struct md_err *err)
{
    struct md_err why;
    if (o->snapshots == NULL)
        return md_paths_state_file(o->data_root, "snapshots", out, out_bytes)
                   ? MD_OK
                   : md_fail(err, MD_INVALID, "the path of the snapshots has more than %zu bytes",
                             out_bytes - 1);
    enum md_status s = md_paths_check_folder(o->snapshots, &why);
    if (s != MD_OK)
        return md_fail(err, s, "--snapshots: %.400s", why.text);
    snprintf(out, out_bytes, "%s", o->snapshots); /* which is no longer than that */
    return MD_OK;
}

static enum md_status serve_stack(const struct md_options *o, const struct md_backend *backends,
                                  const char *snapshots, struct md_http *http, struct md_stack *stack,
                                  struct ending *ending, struct md_err *err)
{
    struct md_worker *worker;
    enum md_status s = md_worker_open(stack->pool, MD_QUEUE_LIMIT, &worker, err);
    if (s != MD_OK)
        return s;
    struct md_pool_status st = md_pool_status(stack->pool);
    char caps[160];
    md_engine_caps_text(st.caps, caps, sizeof caps);
    const struct md_engine_info *info = md_engine_info(stack->engine);
    md_log(MD_LOG_INFO, "model '%s': %s; engine %s %s on %s", stack->model_name, info->model, info->engine,
           info->version, info->device);
    md_log(MD_LOG_INFO, "window %d tokens, hot %d, sinks %d, recent %d, cold store %.0f MB, KV %s/%s%s%s",
           st.window_tokens, st.hot_limit_tokens, st.sink_tokens, st.recent_tokens,
           (double)st.cold.budget_bytes / 1e6, info->type_k, info->type_v,
           info->rope[0] != '\0' ? ", RoPE " : "", info->rope);
    if (st.past_window)
        md_log(
            MD_LOG_INFO,
            "past window on: conversations go on behind the %d tokens the model was trained for, and "
            "every %d tokens what is far is moved nearer; how good answers are there is the model's affair",
            st.trained_tokens, md_rebase_step(st.trained_tokens));
    if (info->sparse_from_tokens > 0)
        md_log(MD_LOG_INFO,
               "xattention %s: a conversation's first %d tokens and more, of one step with nothing before "
               "it, are "
               "computed over a part of the text: their KV, and what follows, is bounded and not exact",
               info->xattention, info->sparse_from_tokens);
    if (o->kv_dir != NULL)
        md_log(MD_LOG_INFO,
               "kv folder '%s': %d conversations are open again, %lld tokens of KV; %.0f of %.0f MB in use",
               o->kv_dir, st.sessions, (long long)st.disk.token_count, (double)st.disk.used_bytes / 1e6,
               (double)st.disk.budget_bytes / 1e6);
    md_log(MD_LOG_INFO, "engine capabilities: %s", caps);
    if (!stack->text->info.has_chat_template)
        md_log(MD_LOG_WARN, "the model has no chat template: only /v1/completions works");
    warn_small_store(&st);
    struct serving serving = { .options = o, .backends = backends, .stack = stack };
    struct md_http_service service = { .worker = worker,
                                       .text = stack->text,
                                       .model = stack->model_name,
                                       .alias = o->alias,
                                       .engine = info->engine,
                                       .engine_choice = o->engine_choice,
                                       .engine_version = info->version,
                                       .device = info->device,
                                       .type_k = info->type_k,
                                       .type_v = info->type_v,
                                       .trained_tokens = stack->trained_tokens,
                                       .attention_window_tokens = info->window_tokens,
                                       .xattention = info->xattention,
                                       .rope = info->rope,
                                       .snapshots = snapshots,
                                       .defaults = { .sample = md_stack_sampling(o),
                                                     .max_tokens = (int32_t)o->predict },
                                       .capacity = tell_capacity,
                                       .capacity_user = &serving };
    md_http_attach(http, &service);
    md_log(MD_LOG_INFO, "ready at %s", md_http_url(http));
    ending_wait(ending);
    md_http_close(http);
    md_worker_close(worker);
    return MD_OK;
}

static int command_serve(int argc, char **argv, const struct md_backend *backends)
{
    static struct ending ending; /* outlives this call: its thread is never joined */
    struct md_options o;
    struct md_stack stack;
    struct md_http *http;
    struct md_err err;
    char snapshots[MD_PATH_MAX];
    if (md_log_level() < MD_LOG_INFO)
        md_log_set_level(MD_LOG_INFO);
    int rc = md_start(argc, argv, MD_CMD_SERVE, serve_about, &o);
    if (rc >= 0)
        return rc;
    if (find_snapshots(&o, snapshots, sizeof snapshots, &err) != MD_OK)
        return md_failed(argv[0], &err);
    sigemptyset(&ending.signals);
    sigaddset(&ending.signals, SIGTERM);
    sigaddset(&ending.signals, SIGINT);
    sigaddset(&ending.signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ending.signals, NULL); /* before any thread: they inherit it */
    signal(SIGPIPE, SIG_IGN);

    struct md_http_config config = { .host = o.host, .port = (int)o.port };
    if (md_http_open(&config, &http, &err) != MD_OK)
        return md_failed(argv[0], &err);
    md_log(MD_LOG_INFO, "loading, listening at %s", md_http_url(http));
    enum md_status s = ending_init(&ending, http, &err);
    if (s == MD_OK)
        s = md_choose_engine(&o, backends, true, &err);
    if (s == MD_OK)
        s = md_stack_open(&o, backends, &stack, &err);
    ending_loaded(&ending);
    if (s != MD_OK) {
        md_http_close(http);
        return md_failed(argv[0], &err);
    }
    s = serve_stack(&o, backends, snapshots, http, &stack, &ending, &err);
    if (s != MD_OK)
        md_http_close(http);
    md_stack_close(&stack);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}

/* ---- the verbs ---- */

static int command_client(int argc, char **argv, const struct md_backend *backends)
{
    char address[40];
    (void)backends; /* the daemon has them */
    snprintf(address, sizeof address, "http://127.0.0.1:%d", MD_HTTP_PORT_DEFAULT);
    return md_cli_run(argc, argv, address);
}

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv, const struct md_backend *backends);
    const char *help;
} verbs[] = {
    { "serve", command_serve, "the daemon: OpenAI's HTTP routes over one model" },
    { "run", md_command_run, "one answer, or scripted turns, in this process" },
    { "chat", md_command_chat, "talk in the terminal" },
    { "bench", md_command_bench, "speed of prefill, decode, export and restore" },
    { "eval", md_command_eval, "answers about long texts under a hot budget: needles, keys, chains, code" },
    { "calibrate", md_command_calibrate,
      "which attention heads of a model find things, for --retrieval auto" },
    { "ps", command_client, "the conversations that are open in the daemon" },
    { "status", command_client, "what the daemon serves, and how full it is" },
    { "explain", command_client, "one conversation: segments, what is hot and what is cold" },
    { "branch", command_client, "a new conversation that begins as another" },
    { "close", command_client, "close a conversation" },
    { "snapshot", command_client, "write a conversation, KV and all, to a file" },
    { "restore", command_client, "a conversation out of such a file" },
    { "snapshots", command_client, "the files there are" },
    { "plan", md_command_plan, "the context a model gets here, and where the memory goes" },
    { "show", md_command_show, "what a model file says about itself" },
    { "doctor", md_command_doctor, "what this machine offers, and what would be refused" },
};
enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

static int usage(FILE *out, int rc)
{
    fprintf(out,
            "modeld " MODELD_VERSION ": a very long context for one user and one model on one machine\n\n"
            "usage: modeld VERB [flags]      (modeld VERB -h lists the flags)\n\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        fprintf(out, "  %-9s %s\n", verbs[i].name, verbs[i].help);
    fprintf(out, "  %-9s %s\n", "version", "the version");
    return rc;
}

/* A caller may have closed 0, 1 or 2; then the next file opened (a model, a socket) would get that number,
 * and answers or log lines would be written into it. */
static void open_standard_files(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            _exit(1);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2)
        return usage(stderr, 2);
    if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return usage(stdout, 0);
    if (strcmp(argv[1], "version") == 0 || strcmp(argv[1], "--version") == 0) {
        puts("modeld " MODELD_VERSION);
        return 0;
    }
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1, md_engines_list());
    fprintf(stderr, "modeld: unknown verb '%.40s'\n\n", argv[1]);
    return usage(stderr, 2);
}

int main(int argc, char **argv)
{
    open_standard_files();
    md_engines_prepare();
    int rc = dispatch(argc, argv);
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout))) { /* a full disk: help and version count too */
        fprintf(stderr, "modeld: write standard output: %s\n", strerror(errno));
        return 1;
    }
    return rc;
}
