/* scripted_server - the HTTP front over session, worker and a scripted model, for tests/wire.
 *
 *     scripted_server [--NAME NUMBER]... [--template FILE] [--snapshots DIR] [--kv-dir DIR] [--engine NAME]
 *                     [PIECE]...
 *
 * A PIECE is the bytes of one token in hex ("f09fa6").  Prints "port N" when it listens and "ready" when
 * it serves, on standard output; stops at SIGTERM or at the end of standard input.
 *
 * With a template, chats are rendered and answers are read as for a model that brings it (adapters/llama); the
 * script says what it says whatever grammar there is. */
#include "adapters/llama/llama_chat.h"
#include "base/log.h"
#include "fronts/http/http.h"
#include "session/disk.h"
#include "support/scripted.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECES_MAX = 4096 };

struct options {
    int window, hot, block, cold, queue, decode_ms, prefill_ms, export_ms, batch, load_ms, residency;
    struct md_http_config http;
    struct md_bytes pieces[PIECES_MAX];
    size_t count;
    struct md_chat_template *template;
    const char *snapshots, *kv_dir, *engine;
};

static volatile sig_atomic_t stop;
static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static int *number_option(struct options *o, const char *name)
{
    const struct {
        const char *name;
        int *value;
    } all[] = {
        { "--window", &o->window },
        { "--hot", &o->hot },
        { "--block", &o->block },
        { "--cold", &o->cold },
        { "--queue", &o->queue },
        { "--decode-ms", &o->decode_ms },
        { "--prefill-ms", &o->prefill_ms },
        { "--export-ms", &o->export_ms },
        { "--batch", &o->batch },
        { "--load-ms", &o->load_ms },
        { "--residency", &o->residency },
        { "--port", &o->http.port },
        { "--header-ms", &o->http.header_ms },
        { "--body-ms", &o->http.body_ms },
        { "--stall-ms", &o->http.stall_ms },
        { "--idle-ms", &o->http.idle_ms },
        { "--keepalive-ms", &o->http.keepalive_ms },
        { "--connections", &o->http.connection_limit },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].value;
    return NULL;
}

static bool add_piece(struct options *o, const char *hex)
{
    size_t len = strlen(hex) / 2;
    unsigned char *bytes = malloc(len + 1); /* lives as long as the program */
    if (bytes == NULL || o->count == PIECES_MAX || strlen(hex) % 2 != 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned value;
        if (sscanf(hex + 2 * i, "%2x", &value) != 1)
            return false;
        bytes[i] = (unsigned char)value;
    }
    o->pieces[o->count++] = (struct md_bytes){ bytes, len };
    return true;
}

static bool read_template(struct options *o, const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return md_chat_template_open(text, "<s>", "</s>", &o->template, NULL) == MD_OK;
}

static enum md_status render(void *user, const struct md_chat_input *in, struct md_buf *ret_prompt,
                             struct md_chat_form **ret_form, struct md_err *err)
{
    return md_chat_template_render(user, NULL, in, ret_prompt, ret_form, err);
}

static enum md_status constrain(struct md_bytes json_schema, struct md_bytes grammar,
                                struct md_chat_form **ret_form, struct md_err *err)
{
    return md_llama_constrain(NULL, json_schema, grammar, ret_form, err);
}

static bool parse(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int *value = number_option(o, argv[i]);
        if (strcmp(argv[i], "--host") == 0 && i + 1 < argc)
            o->http.host = argv[++i];
        else if (strcmp(argv[i], "--snapshots") == 0 && i + 1 < argc)
            o->snapshots = argv[++i];
        else if (strcmp(argv[i], "--kv-dir") == 0 && i + 1 < argc)
            o->kv_dir = argv[++i];
        else if (strcmp(argv[i], "--engine") == 0 && i + 1 < argc)
            o->engine = argv[++i];
        else if (strcmp(argv[i], "--template") == 0 && i + 1 < argc && read_template(o, argv[i + 1]))
            i++;
        else if (strcmp(argv[i], "--body-limit") == 0 && i + 1 < argc)
            o->http.body_limit_bytes = strtoull(argv[++i], NULL, 10);
        else if (value != NULL && i + 1 < argc)
            *value = atoi(argv[++i]);
        else if (value != NULL || !add_piece(o, argv[i]))
            return fprintf(stderr, "scripted_server: bad argument '%s'\n", argv[i]), false;
    }
    return true;
}

static void wait_for_end(void)
{
    while (!stop) {
        struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
        char byte;
        if (poll(&in, 1, 100) > 0 && read(STDIN_FILENO, &byte, 1) <= 0)
            return;
    }
}

/* There is no model file: what the front was given, so that a test sees that it is asked afresh. */
static enum md_status tell_capacity(void *user, struct md_buf *out, struct md_err *err)
{
    const struct md_pool_status now = md_worker_status(user).pool;
    return md_buf_printf(out, err, "{\"window_tokens\":%d,\"cold_used_bytes\":%zu}", now.window_tokens,
                         now.cold.used_bytes);
}

/* Everything between the open port and its end. */
static enum md_status serve(const struct options *o, struct md_http *http, struct md_err *err)
{
    struct md_engine *engine = NULL;
    struct md_text *text = NULL;
    struct md_pool *pool = NULL;
    struct md_worker *worker = NULL;
    const struct md_script script = { .pieces = o->pieces,
                                      .count = o->count,
                                      .cell_count = o->hot,
                                      .batch_tokens = o->batch,
                                      .engine = o->engine,
                                      .decode_delay_ms = o->decode_ms,
                                      .prefill_delay_ms = o->prefill_ms,
                                      .export_delay_ms = o->export_ms,
                                      .render = o->template != NULL ? render : NULL,
                                      .constrain = constrain,
                                      .render_user = o->template };
    struct md_disk *disk = NULL;
    struct md_pool_config config = { .window_tokens = o->window,
                                     .hot_tokens = o->hot,
                                     .residency = o->residency != 0,
                                     .block_tokens = o->block,
                                     .sink_tokens = -1,
                                     .recent_tokens = -1,
                                     .cold_bytes = (size_t)o->cold };
    nanosleep(&(struct timespec){ .tv_sec = o->load_ms / 1000, .tv_nsec = o->load_ms % 1000 * 1000000L },
              NULL);
    enum md_status s = md_scripted_open(&script, &engine, &text, err);
    if (s == MD_OK && o->kv_dir != NULL)
        s = md_disk_open(&(struct md_disk_config){ .folder = o->kv_dir,
                                                   .identity = md_engine_info(engine)->identity,
                                                   .budget_bytes = 256 << 20 },
                         &disk, err);
    config.disk = disk;
    if (s == MD_OK)
        s = md_pool_open(&config, engine, text, &pool, err);
    if (s == MD_OK)
        s = md_worker_open(pool, o->queue, &worker, err);
    if (s == MD_OK) {
        md_http_attach(http, &(struct md_http_service){ .worker = worker,
                                                        .text = text,
                                                        .model = "scripted",
                                                        .alias = "alias",
                                                        .engine = "fake",
                                                        .trained_tokens = 8192,
                                                        .snapshots = o->snapshots,
                                                        .defaults = md_http_defaults(),
                                                        .capacity = tell_capacity,
                                                        .capacity_user = worker });
        printf("ready\n");
        fflush(stdout);
        wait_for_end();
    }
    md_http_close(http);
    md_worker_close(worker);
    md_pool_close(pool);
    md_disk_close(disk);
    md_engine_close(engine);
    md_text_close(text);
    return s;
}

int main(int argc, char **argv)
{
    static struct options o = {
        .window = 4096, .hot = 4096, .block = 64, .cold = 64 << 20, .queue = MD_QUEUE_LIMIT, .residency = 1
    };
    struct md_http *http = NULL;
    struct md_err err = { 0 };
    if (!parse(&o, argc, argv))
        return 2;
    signal(SIGTERM, on_signal);
    enum md_status s = md_http_open(&o.http, &http, &err);
    if (s == MD_OK) {
        printf("port %d\n", md_http_port(http));
        fflush(stdout);
        s = serve(&o, http, &err);
    }
    if (s != MD_OK)
        fprintf(stderr, "scripted_server: %s\n", err.text);
    return s == MD_OK ? 0 : 1;
}
