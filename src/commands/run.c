/* run.c - `modeld run`: one answer, or several turns, in this process; text or figures for scripts. */
#include "base/log.h"
#include "commands/choose.h"
#include "commands/commands.h"
#include "commands/print.h"
#include "commands/stack.h"
#include "commands/start.h"
#include "commands/talk.h"
#include "commands/turns.h"

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

/* Bad input must not cost the loading of a model: it is read whole before. */
static enum md_status read_input(const struct md_options *o, struct md_buf *out, struct md_turns *ret_turns,
                                 struct md_err *err)
{
    enum md_status s;
    if (o->prompt != NULL)
        s = md_buf_append(out, o->prompt, strlen(o->prompt), err);
    else
        s = read_all(o->turns != NULL ? o->turns : o->file != NULL ? o->file : "-", out, err);
    if (s == MD_OK && o->turns != NULL)
        return md_turns_parse((struct md_bytes){ out->data, out->len }, ret_turns, err);
    if (s == MD_OK && out->len == 0)
        s = md_fail(err, MD_INVALID, "the prompt is empty");
    return s;
}

/* What is wrong with the flags together; NULL: nothing. */
static const char *check_flags(const struct md_options *o)
{
    if (o->turns != NULL && (o->prompt != NULL || o->file != NULL || o->raw))
        return "--turns goes without -p, -f and --raw";
    if (o->prompt != NULL && o->file != NULL)
        return "give -p or -f, not both";
    if (o->raw && o->system != NULL)
        return "--raw leaves the chat template out, so it goes without --system: write it into the prompt";
    if (o->prompt == NULL && o->file == NULL && o->turns == NULL && isatty(STDIN_FILENO))
        return "no prompt: give -p TEXT, -f FILE, or pipe one in";
    return NULL;
}

/* ---- output ---- */

static void add_figures(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_talk *t,
                        const struct md_result *r)
{
    struct md_session_status st = md_session_status(t->session);
    struct md_coldstore_stats cold = md_pool_status(t->stack->pool).cold;
    yyjson_mut_val *ids = yyjson_mut_obj_add_arr(doc, o, "tokens");
    for (size_t i = 0; i < r->tokens.count; i++)
        yyjson_mut_arr_add_int(doc, ids, r->tokens.ids[i]);
    yyjson_mut_obj_add_str(doc, o, "finish_reason", md_finish_name(r->finish));
    yyjson_mut_obj_add_int(doc, o, "prompt_tokens", r->prompt);
    yyjson_mut_obj_add_int(doc, o, "completion_tokens", r->completion);
    yyjson_mut_obj_add_int(doc, o, "cached_tokens", r->cached);
    yyjson_mut_obj_add_int(doc, o, "prefilled_tokens", r->prefilled);
    yyjson_mut_obj_add_int(doc, o, "restored_tokens", r->restored);
    yyjson_mut_obj_add_int(doc, o, "lost_tokens", r->lost);
    yyjson_mut_obj_add_int(doc, o, "recomputed_tokens", r->recomputed);
    yyjson_mut_obj_add_int(doc, o, "dropped_tokens", r->dropped);
    yyjson_mut_obj_add_int(doc, o, "attended_tokens", r->attended);
    yyjson_mut_obj_add_int(doc, o, "hot_tokens", r->hot);
    yyjson_mut_obj_add_int(doc, o, "hot_limit_tokens", r->hot_limit);
    yyjson_mut_obj_add_int(doc, o, "tape_tokens", r->tape);
    yyjson_mut_obj_add_int(doc, o, "cold_tokens", cold.token_count);
    yyjson_mut_obj_add_uint(doc, o, "cold_bytes", cold.used_bytes);
    yyjson_mut_obj_add_uint(doc, o, "cold_limit_bytes", cold.budget_bytes);
    yyjson_mut_obj_add_int(doc, o, "hot_bytes", st.hot_bytes);
    yyjson_mut_obj_add_int(doc, o, "evicted_blocks", st.evicted_blocks);
    yyjson_mut_obj_add_int(doc, o, "restored_blocks", st.restored_blocks);
    yyjson_mut_obj_add_real(doc, o, "prefill_seconds", (double)r->prefill_ns / 1e9);
    yyjson_mut_obj_add_real(doc, o, "restore_seconds", (double)r->restore_ns / 1e9);
    yyjson_mut_obj_add_real(doc, o, "decode_seconds", (double)r->decode_ns / 1e9);
    yyjson_mut_obj_add_real(doc, o, "first_token_seconds", (double)r->first_token_ns / 1e9);
    yyjson_mut_obj_add_real(doc, o, "prefill_tokens_per_second",
                            r->prefill_ns > 0 ? r->prefilled / ((double)r->prefill_ns / 1e9) : 0);
    yyjson_mut_obj_add_real(doc, o, "decode_tokens_per_second",
                            r->decode_ns > 0 ? r->decoded / ((double)r->decode_ns / 1e9) : 0);
}

static enum md_status print_json(const struct md_talk *t, int turn, struct md_bytes text,
                                 const struct md_result *r, struct md_err *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, o);
    if (turn > 0)
        yyjson_mut_obj_add_int(doc, o, "turn", turn);
    yyjson_mut_obj_add_strn(doc, o, "text", text.data, text.len);
    add_figures(doc, o, t, r);
    return md_print_json(doc, false, err);
}

static enum md_status print_answer(const struct md_talk *t, const struct md_options *o, int turn,
                                   struct md_bytes text, const struct md_result *r, struct md_err *err)
{
    if (o->json)
        return print_json(t, turn, text, r, err);
    putchar('\n'); /* the text itself was written as it came */
    return md_print_flush(err);
}

/* ---- answers ---- */

static enum md_status run_raw(struct md_talk *t, const struct md_options *o, struct md_bytes prompt,
                              struct md_err *err)
{
    struct md_bytes text;
    struct md_result r = { 0 };
    enum md_status s = md_talk_complete(t, prompt, &text, &r, err);
    if (s == MD_OK)
        s = print_answer(t, o, 0, text, &r, err);
    md_result_done(&r);
    return s;
}

static enum md_status answer_turn(struct md_talk *t, const struct md_options *o, int turn, struct md_err *err)
{
    struct md_bytes text;
    struct md_result r = { 0 };
    enum md_status s = md_talk_answer(t, &text, &r, err);
    if (s == MD_OK)
        s = print_answer(t, o, turn, text, &r, err);
    md_result_done(&r);
    return s;
}

static enum md_status run_prompt(struct md_talk *t, const struct md_options *o, struct md_bytes prompt,
                                 struct md_err *err)
{
    if (!o->raw && !t->stack->text->info.has_chat_template)
        md_log(MD_LOG_WARN, "'%s' has no chat template: the prompt is continued as it is",
               t->stack->model_name);
    if (o->raw || !t->stack->text->info.has_chat_template)
        return run_raw(t, o, prompt, err);
    enum md_status s = md_talk_start(t, err);
    if (s == MD_OK)
        s = md_talk_add(t, "user", prompt, err);
    return s == MD_OK ? answer_turn(t, o, 0, err) : s;
}

static enum md_status run_turns(struct md_talk *t, const struct md_options *o, const struct md_turns *script,
                                struct md_err *err)
{
    enum md_status s = md_talk_start(t, err);
    int turn = 0;
    for (size_t i = 0; i < script->count && s == MD_OK; i++) {
        const struct md_turn *next = &script->turns[i];
        s = next->role == NULL ? md_talk_start(t, err) : md_talk_add(t, next->role, next->content, err);
        if (s == MD_OK && next->answered)
            s = answer_turn(t, o, ++turn, err);
    }
    return s;
}

static enum md_status run_input(const struct md_options *o, const struct md_backend *backends,
                                struct md_bytes input, const struct md_turns *script, struct md_err *err)
{
    struct md_stack stack;
    struct md_talk talk;
    enum md_status s = md_stack_open(o, backends, &stack, err);
    if (s != MD_OK)
        return s;
    s = md_talk_open(&talk, &stack, o, err);
    talk.show_text = !o->json;
    if (s == MD_OK)
        s = o->turns != NULL ? run_turns(&talk, o, script, err) : run_prompt(&talk, o, input, err);
    md_talk_close(&talk);
    md_stack_close(&stack);
    return s;
}

int md_command_run(int argc, char **argv, const struct md_backend *backends)
{
    struct md_options o;
    struct md_buf input;
    struct md_turns script = { 0 };
    struct md_err err;
    int rc = md_start(argc, argv, MD_CMD_RUN, about, &o);
    if (rc >= 0)
        return rc;
    const char *wrong = check_flags(&o);
    if (wrong != NULL) {
        md_complain(argv[0], wrong);
        return 2;
    }
    md_buf_init(&input, NULL, INPUT_BYTES_MAX);
    enum md_status s = read_input(&o, &input, &script, &err);
    if (s == MD_OK)
        s = md_choose_engine(&o, backends, true, &err);
    if (s == MD_OK)
        s = run_input(&o, backends, (struct md_bytes){ input.data, input.len }, &script, &err);
    md_turns_done(&script);
    md_buf_done(&input);
    return s == MD_OK ? 0 : md_failed(argv[0], &err);
}
