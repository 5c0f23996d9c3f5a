/* chat.c - `modeld chat`: a conversation in the terminal. */
#include "base/log.h"
#include "commands/choose.h"
#include "commands/commands.h"
#include "commands/print.h"
#include "commands/stack.h"
#include "commands/start.h"
#include "commands/talk.h"
#include "host/paths.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char about[] = "Talk to the model in the terminal.  /help lists the commands.";
static const char help[] = "  /context  what of the conversation is hot, cold or lost\n"
                           "  /clear    start a new conversation (the KV of this one is kept)\n"
                           "  /exit     leave (so does the end of input)\n"
                           "  Ctrl-C    stop the answer; what was said stays\n";

enum { LINE_BYTES_MAX = 4 << 20, MAP_COLUMNS = 64, MAP_BLOCKS_MAX = 1 << 16 };

static void on_sigint(int signal_number)
{
    (void)signal_number;
    md_talk_interrupt();
}

static int list_models(const struct md_options *o)
{
    struct md_model_file *files;
    size_t count;
    struct md_err err;
    char folder[MD_PATH_MAX];
    if (md_paths_models(o->data_root, &files, &count, &err) != MD_OK)
        return md_failed("chat", &err);
    md_paths_models_folder(o->data_root, folder, sizeof folder);
    if (count == 0)
        fprintf(stderr,
                "modeld chat: no model found.  Put a .gguf file into '%s', or fetch a small one in the "
                "checkout:\n"
                "  tools/setup.sh model smollm2\n",
                folder);
    else
        fprintf(stderr, "modeld chat: choose a model with -m NAME; these are here:\n");
    char name[sizeof files[0].name * 4], path[MD_PATH_MAX * 4];
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "  %-32s %6.1f MB  %s\n", md_plain_text(files[i].name, name, sizeof name),
                (double)files[i].bytes / 1e6, md_plain_text(files[i].path, path, sizeof path));
    free(files);
    return 1;
}

static const char *block_glyph(struct md_block_view block)
{
    switch ((enum md_block_state)block.state) {
    case MD_STATE_HOT: return "#";
    case MD_STATE_COLD: return ".";
    case MD_STATE_LOST: return "x";
    }
    return "?";
}

static void show_context(const struct md_talk *talk)
{
    static struct md_block_view map[MAP_BLOCKS_MAX];
    struct md_session_status st = md_session_status(talk->session);
    struct md_pool_status pool = md_pool_status(talk->stack->pool);
    size_t count = md_session_map(talk->session, map, MAP_BLOCKS_MAX);
    printf("%d of %d tokens: %d hot (limit %d, %.1f MB), %d cold, %d lost; the cold store holds %.1f of %.1f "
           "MB\n",
           st.tape_tokens, pool.window_tokens, st.hot_tokens, pool.hot_limit_tokens,
           (double)st.hot_bytes / 1e6, st.cold_tokens, st.lost_tokens, (double)pool.cold.used_bytes / 1e6,
           (double)pool.cold.budget_bytes / 1e6);
    for (size_t i = 0; i < count && i < MAP_BLOCKS_MAX; i++) {
        if (i % MAP_COLUMNS == 0)
            printf("%s%7zu ", i > 0 ? "\n" : "", i * (size_t)pool.block_tokens);
        fputs(block_glyph(map[i]), stdout);
    }
    printf("\n        # hot   . cold   x lost   one sign is %d tokens\n", pool.block_tokens);
}

static enum md_status answer(struct md_talk *talk, const char *line, size_t len, struct md_err *err)
{
    struct md_bytes text = { 0 };
    struct md_result r = { 0 };
    enum md_status s = md_talk_add(talk, "user", (struct md_bytes){ line, len }, err);
    if (s != MD_OK)
        return s;
    size_t asked = talk->count;
    s = md_talk_answer(talk, &text, &r, err);
    if (talk->count == asked)
        talk->count--; /* the question got no answer: it must not confuse the next one */
    if (s != MD_OK && s != MD_CANCELLED)
        return s;
    printf("\n");
    if (isatty(STDERR_FILENO))
        fprintf(stderr,
                "\033[2m[%s; %d prompt tokens: %d reused of which %d restored, %d prefilled; %d "
                "attended]\033[0m\n",
                md_finish_name(r.finish), r.prompt, r.cached, r.restored, r.prefilled, r.attended);
    md_result_done(&r);
    return fflush(stdout) == 0 ? MD_OK : md_fail(err, MD_IO, "write standard output: %s", strerror(errno));
}

/* One line of input; *leave is set when the user wants to go. */
static enum md_status handle_line(struct md_talk *talk, const char *line, size_t len, bool *leave,
                                  struct md_err *err)
{
    *leave = strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0;
    if (*leave || len == 0)
        return MD_OK;
    if (strcmp(line, "/clear") == 0)
        return md_talk_start(talk, err);
    if (line[0] != '/')
        return answer(talk, line, len, err);
    if (strcmp(line, "/context") == 0) {
        show_context(talk);
        return MD_OK;
    }
    if (strcmp(line, "/help") != 0)
        printf("'%s' is not a command (a question may begin with a blank):\n", line);
    fputs(help, stdout);
    return MD_OK;
}

/* A line of standard input with its end, as getline gives it; -1 at the end of input, or (errno EINTR) at Ctrl-C.
 * A line that does not end is cut into pieces of LINE_BYTES_MAX, so that no pipe fills the memory. */
static ssize_t read_line(char **line, size_t *cap)
{
    size_t n = 0;
    int c = 0;
    while (n < LINE_BYTES_MAX && c != '\n' && (c = getchar()) != EOF) {
        void *grown = *line;
        if (!md_grow(NULL, &grown, cap, n + 2, 1))
            return -1;
        *line = grown;
        (*line)[n++] = (char)c;
        (*line)[n] = '\0';
    }
    return c == EOF && (n == 0 || ferror(stdin)) ? -1 : (ssize_t)n;
}

/* Returns what made it impossible to go on; other errors are told, and the talk goes on. */
static enum md_status chat_loop(struct md_talk *talk, struct md_err *err)
{
    bool terminal = isatty(STDIN_FILENO), leave = false;
    enum md_status s = MD_OK;
    char *line = NULL;
    size_t cap = 0;
    while (!leave && s != MD_SESSION_FATAL && s != MD_IO) {
        if (terminal) {
            fputs("> ", stdout);
            fflush(stdout);
        }
        ssize_t n = read_line(&line, &cap);
        if (n < 0 && errno == EINTR) { /* Ctrl-C at the prompt: a new one */
            clearerr(stdin);
            putchar('\n');
            continue;
        }
        if (n < 0)
            break;
        if (n > 0 && line[n - 1] == '\n')
            line[--n] = '\0';
        s = handle_line(talk, line, (size_t)n, &leave, err);
        if (s != MD_OK && s != MD_SESSION_FATAL && s != MD_IO)
            md_complain("chat", err->text);
    }
    free(line);
    return s == MD_SESSION_FATAL || s == MD_IO ? s : MD_OK;
}

int md_command_chat(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct md_stack stack;
    struct md_talk talk;
    struct md_err err;
    int rc = md_start(argc, argv, MD_CMD_CHAT, about, &o);
    if (rc >= 0)
        return rc;
    if (o.model == NULL)
        return list_models(&o);
    if (md_choose_engine(&o, backends, true, &err) != MD_OK ||
        md_stack_open(&o, backends, &stack, &err) != MD_OK)
        return md_failed(argv[0], &err);
    if (!stack.text->info.has_chat_template) {
        fprintf(stderr, "modeld chat: '%s' has no chat template: use `modeld run --raw`\n", stack.model_name);
        md_stack_close(&stack);
        return 1;
    }
    struct sigaction action = { .sa_handler = on_sigint }; /* no SA_RESTART: getline must return */
    sigaction(SIGINT, &action, NULL);
    enum md_status s = md_talk_open(&talk, &stack, &o, &err);
    talk.show_text = true;
    if (s == MD_OK)
        s = md_talk_start(&talk, &err);
    if (s == MD_OK)
        s = chat_loop(&talk, &err);
    md_talk_close(&talk);
    md_stack_close(&stack);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}
