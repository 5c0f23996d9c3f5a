#include "commands/turns.h"

#include <string.h>
#include <yyjson.h>

enum { TEXT_BYTES_MAX = 128 << 20 };

void md_turns_done(struct md_turns *t)
{
    md_arena_done(&t->memory);
    md_free(NULL, t->turns);
    *t = (struct md_turns){ 0 };
}

static bool blank(struct md_bytes line)
{
    const char *text = line.data;
    for (size_t i = 0; i < line.len; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    return true;
}

static enum md_status copy_message(struct md_turns *t, yyjson_val *role, yyjson_val *content,
                                   struct md_turn *ret, struct md_err *err)
{
    char *role_copy = md_arena_strndup(&t->memory, yyjson_get_str(role), yyjson_get_len(role));
    char *text = md_arena_strndup(&t->memory, yyjson_get_str(content), yyjson_get_len(content));
    if (role_copy == NULL || text == NULL)
        return md_fail(err, MD_NO_MEMORY, "a script of %zu messages", t->count + 1);
    *ret = (struct md_turn){ .role = role_copy, .content = { text, yyjson_get_len(content) } };
    return MD_OK;
}

static enum md_status parse_line(struct md_turns *t, struct md_bytes line, int number, struct md_turn *ret,
                                 struct md_err *err)
{
    *ret = (struct md_turn){ 0 };
    if (blank(line))
        return MD_OK;
    yyjson_read_err why;
    yyjson_doc *doc =
        yyjson_read_opts((char *)(uintptr_t)line.data, line.len, YYJSON_READ_NOFLAG, NULL, &why);
    if (doc == NULL)
        return md_fail(err, MD_INVALID, "line %d of the turns is not JSON: %s", number, why.msg);
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *role = yyjson_obj_get(root, "role"), *content = yyjson_obj_get(root, "content");
    enum md_status s;
    if (yyjson_get_len(role) > 0 && yyjson_is_str(role) && yyjson_is_str(content))
        s = copy_message(t, role, content, ret, err);
    else
        s = md_fail(err, MD_INVALID, "line %d of the turns must be {\"role\":\"...\",\"content\":\"...\"}",
                    number);
    yyjson_doc_free(doc);
    return s;
}

static enum md_status add_turn(struct md_turns *t, struct md_turn turn, struct md_err *err)
{
    void *turns = t->turns;
    bool grown = md_grow(NULL, &turns, &t->cap, t->count + 1, sizeof *t->turns);
    t->turns = turns;
    if (!grown)
        return md_fail(err, MD_NO_MEMORY, "a script of %zu messages", t->count + 1);
    t->turns[t->count++] = turn;
    return MD_OK;
}

/* Decide which messages the model answers; returns how many. */
static size_t mark_answered(struct md_turns *t)
{
    size_t answered = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct md_turn *m = &t->turns[i];
        const char *next = i + 1 < t->count ? t->turns[i + 1].role : NULL;
        bool asks = m->role != NULL && (strcmp(m->role, "user") == 0 || strcmp(m->role, "tool") == 0);
        m->answered = asks && (next == NULL || strcmp(next, "assistant") != 0);
        answered += m->answered;
    }
    return answered;
}

enum md_status md_turns_parse(struct md_bytes script, struct md_turns *ret_turns, struct md_err *err)
{
    struct md_turns t = { 0 };
    const char *at = script.len > 0 ? script.data : "", *end = at + script.len;
    enum md_status s = MD_OK;
    md_arena_init(&t.memory, NULL, TEXT_BYTES_MAX);
    for (int number = 1; s == MD_OK && at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        struct md_bytes line = { at, (size_t)((stop != NULL ? stop : end) - at) };
        struct md_turn turn;
        s = parse_line(&t, line, number, &turn, err);
        if (s == MD_OK)
            s = add_turn(&t, turn, err);
        at = stop != NULL ? stop + 1 : end;
    }
    if (s == MD_OK && mark_answered(&t) == 0)
        s = md_fail(err, MD_INVALID, "the turns hold nothing to answer: end them with a user message");
    if (s != MD_OK) {
        md_turns_done(&t);
        return s;
    }
    *ret_turns = t;
    return MD_OK;
}
