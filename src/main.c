/* main.c - names the adapters and fronts, dispatches the verbs, and runs the daemon (`serve`), the one verb
 * that needs a front. */
#include "adapters/llama/llama_backend.h"
#include "base/log.h"
#include "commands/commands.h"
#include "commands/stack.h"
#include "commands/start.h"
#include "fronts/http/http.h"
#include "session/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char serve_about[] = "Serve the model over HTTP (OpenAI's routes) until SIGTERM or Ctrl-C.";

/* ---- serve ---- */

static void *wait_for_second_signal(void *user)
{
    int number;
    sigwait(user, &number);
    _exit(128 + number); /* the first one asked nicely */
}

/* Until SIGTERM or SIGINT.  SIGHUP ends nothing. */
static void wait_for_end(sigset_t *signals)
{
    int number = SIGHUP;
    while (number == SIGHUP)
        sigwait(signals, &number);
    md_log(MD_LOG_INFO, "signal %d: stopping", number);
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_second_signal, signals) == 0)
        pthread_detach(thread);
}

static enum md_status serve_stack(const struct md_options *o, struct md_http *http, struct md_stack *stack,
                                  sigset_t *signals, struct md_err *err)
{
    struct md_worker *worker;
    enum md_status s = md_worker_open(stack->session, MD_QUEUE_LIMIT, &worker, err);
    if (s != MD_OK)
        return s;
    struct md_session_status st = md_session_status(stack->session);
    char caps[160];
    md_engine_caps_text(st.caps, caps, sizeof caps);
    md_log(MD_LOG_INFO, "model '%s': %s", stack->model_name, md_engine_info(stack->engine)->model);
    md_log(MD_LOG_INFO, "window %d tokens, hot %d, sinks %d, recent %d, cold store %.0f MB, KV %s/%s", st.window_tokens,
           st.hot_limit_tokens, st.sink_tokens, st.recent_tokens, (double)st.cold.budget_bytes / 1e6,
           md_engine_info(stack->engine)->type_k, md_engine_info(stack->engine)->type_v);
    md_log(MD_LOG_INFO, "engine capabilities: %s", caps);
    struct md_http_service service = { .worker = worker,
                                       .text = stack->text,
                                       .model = stack->model_name,
                                       .alias = o->alias,
                                       .trained_tokens = stack->facts.trained_tokens };
    md_http_attach(http, &service);
    md_log(MD_LOG_INFO, "ready at %s", md_http_url(http));
    wait_for_end(signals);
    md_http_close(http);
    md_worker_close(worker);
    return MD_OK;
}

static int command_serve(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct md_stack stack;
    struct md_http *http;
    struct md_err err;
    sigset_t signals;
    if (md_log_level() < MD_LOG_INFO)
        md_log_set_level(MD_LOG_INFO);
    int rc = md_start(argc, argv, MD_CMD_SERVE, serve_about, &o);
    if (rc >= 0)
        return rc;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: they inherit it */
    signal(SIGPIPE, SIG_IGN);

    struct md_http_config config = { .host = o.host, .port = (int)o.port };
    if (md_http_open(&config, &http, &err) != MD_OK)
        return md_failed(argv[0], &err);
    md_log(MD_LOG_INFO, "loading, listening at %s", md_http_url(http));
    enum md_status s = md_stack_open(&o, backends, &stack, &err);
    if (s != MD_OK) {
        md_http_close(http);
        return md_failed(argv[0], &err);
    }
    s = serve_stack(&o, http, &stack, &signals, &err);
    if (s != MD_OK)
        md_http_close(http);
    md_stack_close(&stack);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}

/* ---- the verbs ---- */

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv, const struct md_backend *backends);
    const char *help;
} verbs[] = {
    { "serve", command_serve, "the daemon: OpenAI's HTTP routes over one model" },
    { "run", md_command_run, "one answer, or scripted turns, in this process" },
    { "chat", md_command_chat, "talk in the terminal" },
    { "bench", md_command_bench, "speed of prefill, decode, export and restore" },
};
enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

static int usage(FILE *out, int rc)
{
    fprintf(out, "modeld " MODELD_VERSION ": a very long context for one user and one model on one machine\n\n"
                 "usage: modeld VERB [flags]      (modeld VERB -h lists the flags)\n\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        fprintf(out, "  %-8s %s\n", verbs[i].name, verbs[i].help);
    fprintf(out, "  %-8s %s\n", "version", "the version");
    return rc;
}

int main(int argc, char **argv)
{
    const struct md_backend backends[] = { md_backend_llama, { .name = NULL } };
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
            return verbs[i].run(argc - 1, argv + 1, backends);
    fprintf(stderr, "modeld: unknown verb '%.40s'\n\n", argv[1]);
    return usage(stderr, 2);
}
