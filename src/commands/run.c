/* run.c - `modeld run`: one answer, or several turns, in this process; text or figures for scripts. */
#include "commands/commands.h"
#include "commands/stack.h"
#include "commands/start.h"
#include "commands/talk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

static const char about[] = "Answer a prompt (-p, -f or standard input), or play turns, in this process.";

enum { INPUT_BYTES_MAX = 64 << 20 };

/* ---- input ---- */

static enum md_status read_all(const char *path, struct md_buf *out, struct md_err *err)
{
    bool standard_input = strcmp(path, "-") == 0;
    FILE *f = standard_input ? stdin : fopen(path, "rbe");
    if (f == NULL)
        return md_fail(err, MD_IO, "open '%s': %s", path, strerror(errno));
    char chunk[65536];
    enum md_status s = MD_OK;
    for (size_t n; s == MD_OK && (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        s = md_buf_append(out, chunk, n, err);
    if (s == MD_NO_MEMORY)
        md_fail(err, s, "'%s' is larger than %d MiB", path, INPUT_BYTES_MAX >> 20);
    if (s == MD_OK && ferror(f))
        s = md_fail(err, MD_IO, "read '%s': %s", path, strerror(errno));
    if (!standard_input)
        fclose(f);
    return s;
}

static enum md_status read_prompt(const struct md_options *o, struct md_buf *out, struct md_err *err)
{
    if (o->prompt != NULL && o->file != NULL)
        return md_fail(err, MD_INVALID, "give -p or -f, not both");
    if (o->prompt != NULL)
        return md_buf_append(out, o->prompt, strlen(o->prompt), err);
    if (o->file == NULL && isatty(STDIN_FILENO))
        return md_fail(err, MD_INVALID, "no prompt: give -p TEXT, -f FILE, or pipe one in");
    return read_all(o->file != NULL ? o->file : "-", out, err);
}

/* ---- output ---- */

static void add_figures(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_talk *t, const struct md_result *r)
{
    struct md_session_status st = md_session_status(t->stack->session);
    yyjson_mut_val *ids = yyjson_mut_obj_add_arr(doc, o, "tokens");
    for (size_t i = 0; i < r->tokens.count; i++)
        yyjson_mut_arr_add_int(doc, ids, r->tokens.ids[i]);
    yyjson_mut_obj_add_str(doc, o, "finish_reason", md_finish_name(r->finish));
    yyjson_mut_obj_add_int(doc, o, "prompt_tokens", r->prompt);
    yyjson_mut_obj_add_int(doc, o, "completion_tokens", r->completion);
    yyjson_mut_obj_add_int(doc, o, "cached_tokens", r->cached);
    yyjson_mut_obj_add_int(doc, o, "prefilled_tokens", r->prefilled);
    yyjson_mut_obj_add_int(doc, o, "restored_tokens", r->restored);
    yyjson_mut_obj_add_int(doc, o, "recomputed_tokens", r->recomputed);
    yyjson_mut_obj_add_int(doc, o, "dropped_tokens", r->dropped);
    yyjson_mut_obj_add_int(doc, o, "attended_tokens", r->attended);
    yyjson_mut_obj_add_int(doc, o, "hot_tokens", r->hot);
    yyjson_mut_obj_add_int(doc, o, "hot_limit_tokens", r->hot_limit);
    yyjson_mut_obj_add_int(doc, o, "tape_tokens", r->tape);
    yyjson_mut_obj_add_int(doc, o, "cold_tokens", st.cold.token_count);
    yyjson_mut_obj_add_uint(doc, o, "cold_bytes", st.cold.used_bytes);
    yyjson_mut_obj_add_uint(doc, o, "cold_limit_bytes", st.cold.budget_bytes);
    yyjson_mut_obj_add_int(doc, o, "hot_bytes", (int64_t)r->hot * st.kv_bytes_per_token);
    yyjson_mut_obj_add_int(doc, o, "evicted_blocks", st.evicted_blocks);
    yyjson_mut_obj_add_int(doc, o, "restored_blocks", st.restored_blocks);
    yyjson_mut_obj_add_real(doc, o, "prefill_seconds", (double)r->prefill_ns / 1e9);
    yyjson_mut_obj_add_real(doc, o, "restore_seconds", (double)r->restore_ns / 1e9);
    yyjson_mut_obj_add_real(doc, o, "decode_seconds", (double)r->decode_ns / 1e9);
    yyjson_mut_obj_add_real(doc, o, "first_token_seconds", (double)r->first_token_ns / 1e9);
    yyjson_mut_obj_add_real(doc, o, "prefill_tokens_per_second",
                            r->prefill_ns > 0 ? r->prefilled / ((double)r->prefill_ns / 1e9) : 0);
    yyjson_mut_obj_add_real(doc, o, "decode_tokens_per_second",
                            r->decode_ns > 0 ? r->completion / ((double)r->decode_ns / 1e9) : 0);
}

static enum md_status print_json(const struct md_talk *t, int turn, struct md_bytes text, const struct md_result *r,
                                 struct md_err *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    if (turn > 0)
        yyjson_mut_obj_add_int(doc, o, "turn", turn);
    yyjson_mut_obj_add_strn(doc, o, "text", text.data, text.len);
    add_figures(doc, o, t, r);
    char *line = yyjson_mut_write(doc, YYJSON_WRITE_NOFLAG, NULL);
    yyjson_mut_doc_free(doc);
    if (line == NULL)
        return md_fail(err, MD_NO_MEMORY, "figures of the answer");
    puts(line);
    free(line);
    return fflush(stdout) == 0 ? MD_OK : md_fail(err, MD_IO, "write standard output: %s", strerror(errno));
}

static enum md_status print_answer(const struct md_talk *t, const struct md_options *o, int turn,
                                   struct md_bytes text, const struct md_result *r, struct md_err *err)
{
    if (o->json)
        return print_json(t, turn, text, r, err);
    putchar('\n'); /* the text itself was written as it came */
    return fflush(stdout) == 0 ? MD_OK : md_fail(err, MD_IO, "write standard output: %s", strerror(errno));
}

/* ---- one prompt ---- */

static enum md_status run_prompt(struct md_talk *t, const struct md_options *o, struct md_err *err)
{
    struct md_buf prompt MD_CLEANUP(md_buf_done);
    struct md_bytes text;
    struct md_result r;
    md_buf_init(&prompt, NULL, INPUT_BYTES_MAX);
    enum md_status s = read_prompt(o, &prompt, err);
    if (s != MD_OK)
        return s;
    if (prompt.len == 0)
        return md_fail(err, MD_INVALID, "the prompt is empty");
    struct md_bytes bytes = { prompt.data, prompt.len };
    if (o->raw || !t->stack->text->info.has_chat_template) {
        s = md_talk_complete(t, bytes, &text, &r, err);
    } else {
        if (o->system != NULL)
            s = md_talk_add(t, "system", (struct md_bytes){ o->system, strlen(o->system) }, err);
        if (s == MD_OK)
            s = md_talk_add(t, "user", bytes, err);
        if (s == MD_OK)
            s = md_talk_answer(t, &text, &r, err);
    }
    if (s != MD_OK)
        return s;
    s = print_answer(t, o, 0, text, &r, err);
    md_result_done(&r);
    return s;
}

/* ---- turns ---- */

struct turn {
    yyjson_doc *doc;
    const char *role;
    struct md_bytes content;
};

static enum md_status parse_turn(const char *line, size_t len, int number, struct turn *ret_turn, struct md_err *err)
{
    yyjson_read_err why;
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)line, len, YYJSON_READ_NOFLAG, NULL, &why);
    if (doc == NULL)
        return md_fail(err, MD_INVALID, "line %d of the turns is not JSON: %s", number, why.msg);
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *role = yyjson_obj_get(root, "role"), *content = yyjson_obj_get(root, "content");
    if (!yyjson_is_str(role) || !yyjson_is_str(content)) {
        yyjson_doc_free(doc);
        return md_fail(err, MD_INVALID, "line %d of the turns must be {\"role\":\"...\",\"content\":\"...\"}", number);
    }
    *ret_turn = (struct turn){ .doc = doc,
                               .role = yyjson_get_str(role),
                               .content = { yyjson_get_str(content), yyjson_get_len(content) } };
    return MD_OK;
}

static enum md_status answer_turn(struct md_talk *t, const struct md_options *o, int turn, struct md_err *err)
{
    struct md_bytes text;
    struct md_result r;
    enum md_status s = md_talk_answer(t, &text, &r, err);
    if (s != MD_OK)
        return s;
    s = print_answer(t, o, turn, text, &r, err);
    md_result_done(&r);
    return s;
}

/* A user or tool message is answered, unless the script brings the answer itself in the next line; an empty
 * line forgets the messages so far (the KV stays), so that a script can branch from an early turn. */
static enum md_status run_turns(struct md_talk *t, const struct md_options *o, struct md_err *err)
{
    struct md_buf all MD_CLEANUP(md_buf_done);
    md_buf_init(&all, NULL, INPUT_BYTES_MAX);
    enum md_status s = read_all(o->turns, &all, err);
    if (s == MD_OK && o->system != NULL)
        s = md_talk_add(t, "system", (struct md_bytes){ o->system, strlen(o->system) }, err);
    bool due = false; /* the last message waits for its answer */
    int number = 0, turn = 0;
    const char *at = (const char *)all.data, *end = at + all.len;
    while (s == MD_OK && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop != NULL ? stop : end) - at);
        struct turn next = { 0 };
        number++;
        if (len > 0)
            s = parse_turn(at, len, number, &next, err);
        bool scripted = s == MD_OK && next.doc != NULL && strcmp(next.role, "assistant") == 0;
        if (s == MD_OK && due && !scripted)
            s = answer_turn(t, o, ++turn, err);
        if (s == MD_OK && next.doc == NULL)
            md_talk_clear(t);
        else if (s == MD_OK)
            s = md_talk_add(t, next.role, next.content, err);
        due = s == MD_OK && next.doc != NULL && (strcmp(next.role, "user") == 0 || strcmp(next.role, "tool") == 0);
        yyjson_doc_free(next.doc);
        at += len + 1;
    }
    if (s == MD_OK && due)
        s = answer_turn(t, o, ++turn, err);
    if (s == MD_OK && turn == 0)
        s = md_fail(err, MD_INVALID, "'%s' has no turn to answer: end it with a user message", o->turns);
    return s;
}

int md_command_run(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct md_stack stack;
    struct md_talk talk;
    struct md_err err;
    int rc = md_start(argc, argv, MD_CMD_RUN, about, &o);
    if (rc >= 0)
        return rc;
    if (o.turns != NULL && (o.prompt != NULL || o.file != NULL || o.raw)) {
        fprintf(stderr, "modeld run: --turns goes without -p, -f and --raw\n");
        return 2;
    }
    if (md_stack_open(&o, backends, &stack, &err) != MD_OK)
        return md_failed(argv[0], &err);
    md_talk_init(&talk, &stack, &o);
    talk.show_text = !o.json;
    enum md_status s = o.turns != NULL ? run_turns(&talk, &o, &err) : run_prompt(&talk, &o, &err);
    md_talk_done(&talk);
    md_stack_close(&stack);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}
