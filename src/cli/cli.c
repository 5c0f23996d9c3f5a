#include "cli/cli.h"

#include "base/log.h"
#include "cli/client.h"
#include "cli/show.h"
#include "host/sections.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command line ---- */

enum flag {
    FLAG_JSON = 1 << 0,
    FLAG_MAP = 1 << 1,
    FLAG_AT = 1 << 2,
    FLAG_SESSION = 1 << 3,
    TAKES_ID = 1 << 4, /* words that are no flags, in this order */
    TAKES_NAME = 1 << 5,
    FLAG_TOKENS_ONLY = 1 << 6,
};

struct words {
    struct md_client client;
    bool json, map, tokens_only, help;
    int64_t at;       /* -1: not given */
    int64_t id;       /* 0: not given */
    const char *name; /* of a snapshot; NULL: not given */
};

struct verb {
    const char *name, *about;
    unsigned takes;
    enum md_status (*run)(const struct words *w, struct md_err *err);
};

/* A whole number of at most 18 digits; false: it is none, or outside. */
static bool parse_number(const char *text, int64_t low, int64_t high, int64_t *ret)
{
    char *end;
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || text[digits] != '\0')
        return false;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (errno != 0 || n < low || n > high)
        return false;
    *ret = n;
    return true;
}

/* The value of a flag that takes one: behind '=' or the next word. */
static const char *value_of(const char *name, int argc, char **argv, int *i, struct md_err *err)
{
    const size_t len = strlen(name);
    if (argv[*i][len] == '=')
        return argv[*i] + len + 1;
    if (*i + 1 < argc)
        return argv[++*i];
    md_fail(err, MD_INVALID, "%s needs a value", name);
    return NULL;
}

static bool is_flag(const char *word, const char *name)
{
    const size_t len = strlen(name);
    return strncmp(word, name, len) == 0 && (word[len] == '\0' || word[len] == '=');
}

static enum md_status take_id(const char *text, struct words *w, struct md_err *err)
{
    if (!parse_number(text, 1, INT64_MAX, &w->id))
        return md_fail(err, MD_INVALID, "the ID of a conversation is a number above 0, got '%.40s'", text);
    return MD_OK;
}

static enum md_status take_value(const char *name, const char *text, struct words *w, struct md_err *err)
{
    int64_t n;
    if (strcmp(name, "--connect") == 0) {
        w->client.address = text;
        return MD_OK;
    }
    if (strcmp(name, "--timeout") == 0) {
        if (!parse_number(text, 0, MD_CLIENT_TIMEOUT_S_MAX, &n))
            return md_fail(err, MD_INVALID, "--timeout must be seconds from 0 (no limit) to %d, got '%.40s'",
                           MD_CLIENT_TIMEOUT_S_MAX, text);
        w->client.timeout_s = (long)n;
        return MD_OK;
    }
    if (strcmp(name, "--session") == 0)
        return take_id(text, w, err);
    if (!parse_number(text, 0, INT32_MAX, &w->at))
        return md_fail(err, MD_INVALID, "--at must be a number of tokens, got '%.40s'", text);
    return MD_OK;
}

static enum md_status take_flag(int argc, char **argv, int *i, const struct verb *v, struct words *w,
                                struct md_err *err)
{
    static const struct {
        const char *name;
        unsigned needs; /* of the verb; 0: all have it */
    } with_value[] = {
        { "--connect", 0 }, { "--timeout", 0 }, { "--at", FLAG_AT }, { "--session", FLAG_SESSION }
    };
    const char *word = argv[*i];
    for (size_t f = 0; f < sizeof with_value / sizeof with_value[0]; f++) {
        if (!is_flag(word, with_value[f].name) || (v->takes & with_value[f].needs) != with_value[f].needs)
            continue;
        const char *text = value_of(with_value[f].name, argc, argv, i, err);
        return text == NULL ? MD_INVALID : take_value(with_value[f].name, text, w, err);
    }
    if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0)
        w->help = true;
    else if (strcmp(word, "--json") == 0 && (v->takes & FLAG_JSON) != 0)
        w->json = true;
    else if (strcmp(word, "--map") == 0 && (v->takes & FLAG_MAP) != 0)
        w->map = true;
    else if (strcmp(word, "--tokens-only") == 0 && (v->takes & FLAG_TOKENS_ONLY) != 0)
        w->tokens_only = true;
    else
        return md_fail(err, MD_INVALID, "unknown flag '%.100s': -h lists the flags", word);
    return MD_OK;
}

static enum md_status take_word(const char *word, const struct verb *v, struct words *w, struct md_err *err)
{
    struct md_err why;
    if ((v->takes & TAKES_ID) != 0 && w->id == 0)
        return take_id(word, w, err);
    if ((v->takes & TAKES_NAME) == 0 || w->name != NULL)
        return md_fail(err, MD_INVALID, "unexpected argument '%.100s': -h says what it takes", word);
    if (md_sections_check_name(word, strlen(word), &why) != MD_OK)
        return md_fail(err, MD_INVALID, "the snapshot's name: %.400s", why.text);
    w->name = word;
    return MD_OK;
}

/* Behind "--" nothing is a flag: names may begin with '-'. */
static enum md_status parse(int argc, char **argv, const struct verb *v, struct words *w, struct md_err *err)
{
    bool words_only = false;
    for (int i = 1; i < argc; i++) {
        enum md_status s = MD_OK;
        if (!words_only && strcmp(argv[i], "--") == 0)
            words_only = true;
        else if (!words_only && argv[i][0] == '-' && argv[i][1] != '\0')
            s = take_flag(argc, argv, &i, v, w, err);
        else
            s = take_word(argv[i], v, w, err);
        if (s != MD_OK)
            return s;
    }
    if ((v->takes & TAKES_ID) != 0 && w->id == 0 && !w->help)
        return md_fail(err, MD_INVALID, "which conversation? give its ID (`modeld ps` lists them)");
    if ((v->takes & TAKES_ID) != 0 && (v->takes & TAKES_NAME) != 0 && w->name == NULL && !w->help)
        return md_fail(err, MD_INVALID, "under which name? give it behind the ID: modeld %s ID NAME",
                       v->name);
    if ((v->takes & TAKES_NAME) != 0 && w->name == NULL && !w->help)
        return md_fail(err, MD_INVALID, "which snapshot? give its name (`modeld snapshots` lists them)");
    return md_client_check(&w->client, err);
}

static void help(const struct verb *v, const char *default_address)
{
    printf("usage: modeld %s [flags]%s%s\n%s\n\n", v->name, (v->takes & TAKES_ID) != 0 ? " ID" : "",
           (v->takes & TAKES_NAME) != 0 ? " NAME" : "", v->about);
    if (v->takes & FLAG_AT)
        puts("  --at N          begin with the first N tokens (all)");
    if (v->takes & FLAG_SESSION)
        puts("  --session ID    into this conversation, whose place it takes (a new one)");
    if (v->takes & FLAG_TOKENS_ONLY)
        puts("  --tokens-only   without the KV in it, which the next call computes: that of another engine "
             "will do");
    if (v->takes & FLAG_MAP)
        puts("  --map           every block of the map, not a bar of it");
    if (v->takes & FLAG_JSON)
        puts("  --json          the answer of the daemon as it is");
    printf("  --connect URL   the daemon: http://HOST:PORT, unix:PATH or *.sock (%s)\n", default_address);
    printf("  --timeout N     seconds to wait for an answer (%d); 0: no limit\n", MD_CLIENT_TIMEOUT_S);
    if (v->takes & TAKES_NAME)
        puts("  --              what follows is no flag: a name that begins with '-'");
    puts("  -h, --help      this text\n\nMODELD_CONNECT is what --connect says where it is not given.");
}

/* ---- the verbs ---- */

static enum md_status print_document(yyjson_doc *doc, struct md_err *err)
{
    char *text = yyjson_write(doc, YYJSON_WRITE_PRETTY_TWO_SPACES, NULL);
    if (text == NULL)
        return md_fail(err, MD_NO_MEMORY, "JSON for standard output");
    puts(text);
    free(text);
    return MD_OK;
}

static enum md_status run_status(const struct words *w, struct md_err *err)
{
    yyjson_doc *doc;
    enum md_status s =
        md_client_call(&w->client, "GET", "/api/status", NULL, md_show_status_fields, &doc, err);
    if (s != MD_OK)
        return s;
    if (w->json)
        s = print_document(doc, err);
    else
        md_show_status(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return s;
}

static enum md_status run_ps(const struct words *w, struct md_err *err)
{
    yyjson_doc *doc;
    enum md_status s =
        md_client_call(&w->client, "GET", "/api/sessions", NULL, md_show_sessions_fields, &doc, err);
    if (s != MD_OK)
        return s;
    if (w->json)
        s = print_document(doc, err);
    else
        md_show_sessions(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return s;
}

static const char *session_path(const struct words *w, const char *end, char out[64])
{
    snprintf(out, 64, "/api/sessions/%lld%s", (long long)w->id, end);
    return out;
}

static enum md_status run_explain(const struct words *w, struct md_err *err)
{
    char path[64];
    yyjson_doc *doc;
    enum md_status s =
        md_client_call(&w->client, "GET", session_path(w, "", path), NULL, md_show_explain_fields, &doc, err);
    if (s != MD_OK)
        return s;
    if (w->json)
        s = print_document(doc, err);
    else
        md_show_explain(yyjson_doc_get_root(doc), w->map);
    yyjson_doc_free(doc);
    return s;
}

static enum md_status run_close(const struct words *w, struct md_err *err)
{
    static const struct md_answer_field fields[] = { { "closed", MD_ANSWER_TRUE, NULL }, { 0 } };
    char path[64];
    yyjson_doc *doc;
    enum md_status s =
        md_client_call(&w->client, "DELETE", session_path(w, "", path), NULL, fields, &doc, err);
    if (s == MD_OK)
        yyjson_doc_free(doc); /* nothing to say: it is closed */
    return s;
}

static enum md_status run_branch(const struct words *w, struct md_err *err)
{
    static const struct md_answer_field fields[] = { { "id", MD_ANSWER_ID, NULL }, { 0 } };
    char path[64], body[48] = "{}";
    yyjson_doc *doc;
    if (w->at >= 0)
        snprintf(body, sizeof body, "{\"tokens\":%lld}", (long long)w->at);
    enum md_status s =
        md_client_call(&w->client, "POST", session_path(w, "/branch", path), body, fields, &doc, err);
    if (s != MD_OK)
        return s;
    printf("%lld\n", (long long)yyjson_get_sint(yyjson_obj_get(yyjson_doc_get_root(doc), "id")));
    yyjson_doc_free(doc);
    return MD_OK;
}

/* {"name": "x", "session": 3, "tokens_only": true}; the latter two only where they were given.  NULL: no memory.  The caller's: free. */
static char *snapshot_body(const struct words *w)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc); /* all of them take NULL */
    bool ok = yyjson_mut_obj_add_str(doc, root, "name", w->name);
    if (ok && w->id != 0)
        ok = yyjson_mut_obj_add_sint(doc, root, "session", w->id);
    if (ok && w->tokens_only)
        ok = yyjson_mut_obj_add_bool(doc, root, "tokens_only", true);
    yyjson_mut_doc_set_root(doc, root);
    char *text = ok ? yyjson_mut_write(doc, YYJSON_WRITE_NOFLAG, NULL) : NULL;
    yyjson_mut_doc_free(doc);
    return text;
}

/* Write or restore one, and say what came of it. */
static enum md_status call_snapshots(const struct words *w, const char *path,
                                     const struct md_answer_field *fields, void (*show)(yyjson_val *answer),
                                     struct md_err *err)
{
    yyjson_doc *doc;
    char *body = snapshot_body(w);
    if (body == NULL)
        return md_fail(err, MD_NO_MEMORY, "JSON for the request");
    enum md_status s = md_client_call(&w->client, "POST", path, body, fields, &doc, err);
    free(body);
    if (s != MD_OK)
        return s;
    if (w->json)
        s = print_document(doc, err);
    else
        show(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return s;
}

static enum md_status run_snapshot(const struct words *w, struct md_err *err)
{
    return call_snapshots(w, "/api/snapshots", md_show_snapshot_fields, md_show_snapshot, err);
}

static void show_id(yyjson_val *answer)
{
    printf("%lld\n", (long long)yyjson_get_sint(yyjson_obj_get(answer, "id")));
}

static enum md_status run_restore(const struct words *w, struct md_err *err)
{
    return call_snapshots(w, "/api/snapshots/restore", md_show_restored_fields, show_id, err);
}

static enum md_status run_snapshots(const struct words *w, struct md_err *err)
{
    yyjson_doc *doc;
    enum md_status s =
        md_client_call(&w->client, "GET", "/api/snapshots", NULL, md_show_snapshots_fields, &doc, err);
    if (s != MD_OK)
        return s;
    if (w->json)
        s = print_document(doc, err);
    else
        md_show_snapshots(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return s;
}

static const struct verb verbs[] = {
    { "ps", "The conversations that are open in the daemon.", FLAG_JSON, run_ps },
    { "status", "What the daemon serves, and how full hot set and cold store are.", FLAG_JSON, run_status },
    { "explain", "One conversation: its segments, what of it is hot, cold or lost, and why.",
      TAKES_ID | FLAG_JSON | FLAG_MAP, run_explain },
    { "close", "Close a conversation: its KV is dropped.  It waits its turn behind what runs.", TAKES_ID,
      run_close },
    { "branch", "A new conversation that begins as this one; prints its ID.  Nothing is computed or copied.",
      TAKES_ID | FLAG_AT, run_branch },
    { "snapshot",
      "Write a conversation to a file of the daemon's, with the KV it has; one of that name is replaced.",
      TAKES_ID | TAKES_NAME | FLAG_JSON, run_snapshot },
    { "restore", "Open the conversation that a snapshot holds; prints its ID.  Nothing is computed.",
      TAKES_NAME | FLAG_SESSION | FLAG_TOKENS_ONLY | FLAG_JSON, run_restore },
    { "snapshots", "The snapshots there are.", FLAG_JSON, run_snapshots },
};

int md_cli_run(int argc, char **argv, const char *default_address)
{
    const struct verb *v = verbs;
    while (strcmp(v->name, argv[0]) != 0)
        v++; /* main.c has the same names */
    const char *environment = getenv("MODELD_CONNECT");
    const bool set = environment != NULL && environment[0] != '\0';
    struct words w = { .client = { set ? environment : default_address, MD_CLIENT_TIMEOUT_S }, .at = -1 };
    struct md_err err;
    if (parse(argc, argv, v, &w, &err) != MD_OK) {
        md_complain(v->name, err.text);
        return 2;
    }
    if (w.help) {
        help(v, default_address);
        return 0;
    }
    enum md_status s = v->run(&w, &err);
    if (s == MD_OK)
        return 0;
    fflush(stdout);
    md_complain(v->name, err.text);
    return 1;
}
