#include "cli/show.h"

#include "base/clock.h"
#include "host/gguf.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BAR_COLUMNS = 64 };

/* ---- what is read ---- */

#define COUNT(name)                 \
    {                               \
        name, MD_ANSWER_COUNT, NULL \
    }
#define TEXT(name)                 \
    {                              \
        name, MD_ANSWER_TEXT, NULL \
    }

static const struct md_answer_field hot_fields[] = {
    COUNT("tokens"), COUNT("limit_tokens"), COUNT("bytes"), { 0 }
};
static const struct md_answer_field eviction_fields[] = {
    TEXT("asked"), TEXT("used"), { "reason", MD_ANSWER_TEXT_OR_NULL, NULL }, { 0 }
};
static const struct md_answer_field heads_fields[] = {
    { "source", MD_ANSWER_TEXT_OR_NULL, NULL },
    { "from", MD_ANSWER_TEXT_OR_NULL, NULL },
    COUNT("count"),
    { "calibration", MD_ANSWER_TEXT, NULL },
    { "reason", MD_ANSWER_TEXT_OR_NULL, NULL },
    COUNT("percent"),
    { 0 },
};
static const struct md_answer_field retrieval_fields[] = {
    { "on", MD_ANSWER_BOOL, NULL },
    { "reason", MD_ANSWER_TEXT_OR_NULL, NULL },
    { "heads", MD_ANSWER_OBJECT, heads_fields },
    COUNT("keys_bytes"),
    COUNT("keys_budget_bytes"),
    { 0 },
};
static const struct md_answer_field cold_fields[] = {
    COUNT("tokens"),     COUNT("blocks"),  COUNT("used_bytes"), COUNT("budget_bytes"),
    COUNT("peak_bytes"), COUNT("dropped"), COUNT("refused"),    { 0 },
};
const struct md_answer_field md_show_status_fields[] = {
    TEXT("model"),
    TEXT("engine"),
    { "engine_version", MD_ANSWER_TEXT_OR_NULL, NULL },
    { "device", MD_ANSWER_TEXT_OR_NULL, NULL },
    { "engine_choice", MD_ANSWER_TEXT_OR_NULL, NULL },
    { "type_k", MD_ANSWER_TEXT_OR_NULL, NULL },
    { "type_v", MD_ANSWER_TEXT_OR_NULL, NULL },
    { "uptime_seconds", MD_ANSWER_SECONDS, NULL },
    TEXT("state"),
    { "running", MD_ANSWER_ID_OR_NULL, NULL },
    COUNT("queued"),
    COUNT("requests"),
    COUNT("sessions"),
    COUNT("session_limit"),
    COUNT("window_tokens"),
    COUNT("sliding_window_attention_tokens"),
    { "xattention", MD_ANSWER_TEXT_OR_NULL, NULL },
    { "rope", MD_ANSWER_TEXT_OR_NULL, NULL },
    COUNT("trained_tokens"),
    { "past_window", MD_ANSWER_BOOL, NULL },
    COUNT("block_tokens"),
    COUNT("sink_tokens"),
    COUNT("recent_tokens"),
    { "hot", MD_ANSWER_OBJECT, hot_fields },
    { "cold", MD_ANSWER_OBJECT, cold_fields },
    { "disk", MD_ANSWER_OBJECT_OR_NULL, cold_fields },
    TEXT("reuse"),
    TEXT("cold_policy"),
    { "eviction", MD_ANSWER_OBJECT, eviction_fields },
    { "retrieval", MD_ANSWER_OBJECT, retrieval_fields },
    { "diagnostic", MD_ANSWER_TEXT_OR_NULL, NULL },
    { 0 },
};

static const struct md_answer_field session_fields[] = {
    { "id", MD_ANSWER_ID, NULL },
    COUNT("context_tokens"),
    COUNT("hot_tokens"),
    COUNT("cold_tokens"),
    COUNT("lost_tokens"),
    COUNT("requests"),
    { "idle_seconds", MD_ANSWER_SECONDS, NULL },
    { "running", MD_ANSWER_BOOL, NULL },
    { "fatal", MD_ANSWER_TEXT_OR_NULL, NULL },
    { "tokens_only", MD_ANSWER_BOOL, NULL },
    { 0 },
};
const struct md_answer_field md_show_sessions_fields[] = { { "sessions", MD_ANSWER_LIST, session_fields },
                                                           { 0 } };

static const struct md_answer_field class_fields[] = {
    COUNT("task_pinned"), COUNT("repo_map"), COUNT("volatile"), { 0 }
};
static const struct md_answer_field provenance_fields[] = {
    COUNT("full"), COUNT("bounded"), COUNT("approximate"), { 0 }
};
static const struct md_answer_field segment_fields[] = {
    TEXT("kind"),
    TEXT("class"),
    { "stable", MD_ANSWER_BOOL, NULL },
    TEXT("invalidation"),
    COUNT("token_start"),
    COUNT("token_end"),
    { 0 },
};
static const struct md_answer_field map_fields[] = {
    COUNT("block_tokens"), TEXT("state"), TEXT("class"), TEXT("provenance"), { 0 }
};
const struct md_answer_field md_show_explain_fields[] = {
    { NULL, MD_ANSWER_AND, session_fields },
    { "parent", MD_ANSWER_ID_OR_NULL, NULL },
    { "class_tokens", MD_ANSWER_OBJECT, class_fields },
    { "provenance_tokens", MD_ANSWER_OBJECT, provenance_fields },
    { "segments", MD_ANSWER_LIST, segment_fields },
    { "map", MD_ANSWER_OBJECT, map_fields },
    COUNT("tape_tokens"),
    COUNT("hot_bytes"),
    COUNT("cold_bytes"),
    COUNT("protected_tokens"),
    COUNT("held_out_tokens"),
    COUNT("pinned_cold_tokens"),
    COUNT("prefilled_tokens"),
    COUNT("decoded_tokens"),
    COUNT("evicted_blocks"),
    COUNT("restored_blocks"),
    COUNT("shared_blocks"),
    COUNT("recomputed_blocks"),
    COUNT("dropped_blocks"),
    { 0 },
};

const struct md_answer_field md_show_snapshot_fields[] = {
    TEXT("name"),       { "session", MD_ANSWER_ID, NULL },
    COUNT("bytes"),     COUNT("context_tokens"),
    COUNT("kv_tokens"), { 0 },
};
const struct md_answer_field md_show_restored_fields[] = {
    { "id", MD_ANSWER_ID, NULL }, TEXT("name"), COUNT("context_tokens"), COUNT("kv_tokens"), { 0 }
};
static const struct md_answer_field file_fields[] = {
    TEXT("name"), COUNT("bytes"), { "modified_seconds", MD_ANSWER_SECONDS, NULL }, { 0 }
};
const struct md_answer_field md_show_snapshots_fields[] = { TEXT("folder"),
                                                            { "snapshots", MD_ANSWER_LIST, file_fields },
                                                            { 0 } };

/* ---- values ---- */

/* A count or an ID; 0 where it is null. */
static int64_t number(yyjson_val *object, const char *key)
{
    return (int64_t)yyjson_get_uint(yyjson_obj_get(object, key));
}

static int64_t seconds(yyjson_val *object, const char *key)
{
    return (int64_t)yyjson_get_num(yyjson_obj_get(object, key));
}

/* Text as a terminal may have it, in `out`, which is returned. */
static const char *text(yyjson_val *object, const char *key, char *out, size_t out_bytes)
{
    yyjson_val *v = yyjson_obj_get(object, key);
    out[0] = '\0';
    if (yyjson_is_str(v))
        md_gguf_escape(out, out_bytes, yyjson_get_str(v), yyjson_get_len(v));
    return out;
}

struct letters {
    const char *at;
    size_t count;
};
static struct letters letters_of(yyjson_val *object, const char *key)
{
    yyjson_val *v = yyjson_obj_get(object, key);
    return (struct letters){ yyjson_get_str(v), yyjson_get_len(v) };
}

static double megabytes(yyjson_val *object, const char *key)
{
    return (double)number(object, key) / 1e6;
}

static const char *ago(int64_t seconds, char *out, size_t out_bytes)
{
    static const struct {
        int64_t seconds;
        char unit;
    } units[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
    size_t u = 0;
    while (u < 3 && seconds < 2 * units[u].seconds)
        u++;
    snprintf(out, out_bytes, "%" PRId64 "%c", seconds / units[u].seconds, units[u].unit);
    return out;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* ---- status ---- */

static void show_store(const char *name, yyjson_val *store)
{
    printf("%-9s %" PRId64 " tokens in %" PRId64 " blocks, %.1f of %.1f MB (most: %.1f); %" PRId64
           " dropped, %" PRId64 " refused\n",
           name, number(store, "tokens"), number(store, "blocks"), megabytes(store, "used_bytes"),
           megabytes(store, "budget_bytes"), megabytes(store, "peak_bytes"), number(store, "dropped"),
           number(store, "refused"));
}

/* "heads     16 by contrast, from the table". */
static void show_heads(yyjson_val *heads)
{
    char source[16], from[16], calibration[16], why[300];
    text(heads, "calibration", calibration, sizeof calibration);
    text(heads, "reason", why, sizeof why);
    printf("heads     %" PRId64 " by %s", number(heads, "count"),
           text(heads, "source", source, sizeof source));
    if (strcmp(text(heads, "from", from, sizeof from), "band") != 0)
        printf(", from %s", strcmp(from, "measured") == 0 ? "a calibration just now" : from);
    else if (strcmp(calibration, "running") == 0)
        printf(", until they are calibrated: %" PRId64 " %% done", number(heads, "percent"));
    else
        printf("%s", strcmp(calibration, "waiting") == 0 ? ", until a quiet moment to calibrate them"
                                                         : ": they are not calibrated");
    printf("%s%s\n", why[0] != '\0' ? "; " : "", why);
}

void md_show_status(yyjson_val *s)
{
    char a[300], b[100], c[40], d[100], k[16], v[16], why[400];
    yyjson_val *retrieval = yyjson_obj_get(s, "retrieval");
    yyjson_val *hot = yyjson_obj_get(s, "hot"), *cold = yyjson_obj_get(s, "cold"),
               *disk = yyjson_obj_get(s, "disk");
    printf("model     %s, engine %s, up for %s\n", text(s, "model", a, sizeof a),
           text(s, "engine", b, sizeof b), ago(seconds(s, "uptime_seconds"), c, sizeof c));
    if (text(s, "device", a, sizeof a)[0] != '\0')
        printf("engine    %s %s on %s, KV %s/%s\n", text(s, "engine", b, sizeof b),
               text(s, "engine_version", d, sizeof d), a, text(s, "type_k", k, sizeof k),
               text(s, "type_v", v, sizeof v));
    if (text(s, "engine_choice", why, sizeof why)[0] != '\0')
        printf("          %s\n", why);
    printf("state     %s", text(s, "state", a, sizeof a));
    if (number(s, "running") != 0)
        printf(" with conversation %" PRId64, number(s, "running"));
    printf(", %" PRId64 " waiting, %" PRId64 " request%s so far\n", number(s, "queued"),
           number(s, "requests"), plural(number(s, "requests")));
    printf("open      %" PRId64 " of at most %" PRId64 " conversations\n", number(s, "sessions"),
           number(s, "session_limit"));
    printf("window    %" PRId64 " tokens; blocks of %" PRId64 ", %" PRId64 " sinks, %" PRId64 " recent\n",
           number(s, "window_tokens"), number(s, "block_tokens"), number(s, "sink_tokens"),
           number(s, "recent_tokens"));
    if (number(s, "sliding_window_attention_tokens") > 0)
        printf("sliding   layers with a window see %" PRId64 " tokens\n",
               number(s, "sliding_window_attention_tokens"));
    if (text(s, "xattention", a, sizeof a)[0] != '\0')
        printf("sparse    xattention: %s\n", a);
    if (text(s, "rope", a, sizeof a)[0] != '\0')
        printf("RoPE      %s\n", a);
    if (yyjson_is_true(yyjson_obj_get(s, "past_window")))
        printf("past      on: goes on behind the %" PRId64 " tokens the model was trained for\n",
               number(s, "trained_tokens"));
    printf("hot       %" PRId64 " of %" PRId64 " tokens, %.1f MB\n", number(hot, "tokens"),
           number(hot, "limit_tokens"), megabytes(hot, "bytes"));
    show_store("cold", cold);
    if (disk != NULL && !yyjson_is_null(disk))
        show_store("disk", disk);
    printf("reuse     %s, %s\n", text(s, "reuse", a, sizeof a), text(s, "cold_policy", b, sizeof b));
    yyjson_val *eviction = yyjson_obj_get(s, "eviction");
    printf("eviction  by %s", text(eviction, "used", a, sizeof a));
    if (text(eviction, "reason", why, sizeof why)[0] != '\0')
        printf(", not by %s: %s", text(eviction, "asked", b, sizeof b), why);
    printf("\n");
    if (yyjson_is_true(yyjson_obj_get(retrieval, "on"))) {
        printf("retrieval on: keys of %.1f of %.1f MB are kept to be scored\n",
               megabytes(retrieval, "keys_bytes"), megabytes(retrieval, "keys_budget_bytes"));
        show_heads(yyjson_obj_get(retrieval, "heads"));
    } else if (strcmp(text(retrieval, "reason", a, sizeof a), "off") != 0)
        printf("retrieval none: %s\n", a);
    if (text(s, "diagnostic", a, sizeof a)[0] != '\0')
        printf("note      %s\n", a);
}

/* ---- ps ---- */

static const char *state_of(yyjson_val *session)
{
    if (yyjson_is_str(yyjson_obj_get(session, "fatal")))
        return "fatal";
    if (yyjson_is_true(yyjson_obj_get(session, "running")))
        return "running";
    return yyjson_is_true(yyjson_obj_get(session, "tokens_only")) ? "tokens only" : "idle";
}

enum { COLUMNS = 7, CELL_BYTES = 24 };
typedef char ps_row[COLUMNS][CELL_BYTES];

/* The figures of a conversation; what is at work is not idle. */
static void fill_row(yyjson_val *s, ps_row row)
{
    static const char *const keys[] = { "id",          "context_tokens", "hot_tokens",
                                        "cold_tokens", "lost_tokens",    "requests" };
    for (size_t i = 0; i < COLUMNS - 1; i++)
        snprintf(row[i], CELL_BYTES, "%" PRId64, number(s, keys[i]));
    if (yyjson_is_true(yyjson_obj_get(s, "running")))
        snprintf(row[COLUMNS - 1], CELL_BYTES, "-");
    else
        ago(seconds(s, "idle_seconds"), row[COLUMNS - 1], CELL_BYTES);
}

static void widen(size_t width[COLUMNS], ps_row row)
{
    for (size_t i = 0; i < COLUMNS; i++)
        width[i] = strlen(row[i]) > width[i] ? strlen(row[i]) : width[i];
}

static void show_row_of(const size_t width[COLUMNS], ps_row row, const char *state)
{
    for (size_t i = 0; i < COLUMNS; i++)
        printf("%*s  ", (int)width[i], row[i]);
    puts(state);
}

/* As wide as what stands in them: an ID that grows long does not push the others out of their columns. */
void md_show_sessions(yyjson_val *root)
{
    ps_row head = { "ID", "CONTEXT", "HOT", "COLD", "LOST", "REQUESTS", "IDLE" }, row;
    size_t width[COLUMNS] = { 0 }, i, count;
    yyjson_val *s, *list = yyjson_obj_get(root, "sessions");
    widen(width, head);
    yyjson_arr_foreach(list, i, count, s)
    {
        fill_row(s, row);
        widen(width, row);
    }
    show_row_of(width, head, "STATE");
    yyjson_arr_foreach(list, i, count, s)
    {
        char why[600], state[640];
        snprintf(state, sizeof state, "%s%s%s", state_of(s),
                 yyjson_is_str(yyjson_obj_get(s, "fatal")) ? ": " : "", text(s, "fatal", why, sizeof why));
        fill_row(s, row);
        show_row_of(width, row, state);
    }
}

/* ---- explain ---- */

static void show_head(yyjson_val *s)
{
    char a[600], idle[40];
    yyjson_val *classes = yyjson_obj_get(s, "class_tokens"), *from = yyjson_obj_get(s, "provenance_tokens");
    const char *state = state_of(s);
    printf("conversation %" PRId64 ": %" PRId64 " tokens, %s", number(s, "id"), number(s, "context_tokens"),
           state);
    if (strcmp(state, "running") != 0)
        printf("%s for %s", strcmp(state, "idle") == 0 ? "" : ", idle",
               ago(seconds(s, "idle_seconds"), idle, sizeof idle));
    if (number(s, "parent") != 0)
        printf(", a branch of %" PRId64, number(s, "parent"));
    putchar('\n');
    if (text(s, "fatal", a, sizeof a)[0] != '\0')
        printf("  given up: %s\n", a);
    printf("  hot %" PRId64 " (%.1f MB), cold %" PRId64 " (%.1f MB), lost %" PRId64 "; protected %" PRId64
           ", held out %" PRId64 "\n",
           number(s, "hot_tokens"), megabytes(s, "hot_bytes"), number(s, "cold_tokens"),
           megabytes(s, "cold_bytes"), number(s, "lost_tokens"), number(s, "protected_tokens"),
           number(s, "held_out_tokens"));
    printf("  task_pinned %" PRId64 ", repo_map %" PRId64 ", volatile %" PRId64 "; computed in full %" PRId64
           ", bounded %" PRId64 ", approximate %" PRId64 "\n",
           number(classes, "task_pinned"), number(classes, "repo_map"), number(classes, "volatile"),
           number(from, "full"), number(from, "bounded"), number(from, "approximate"));
    printf("  %" PRId64 " request%s: %" PRId64 " tokens prefilled, %" PRId64
           " decoded; blocks evicted %" PRId64 ", restored %" PRId64 ", shared %" PRId64
           ", recomputed %" PRId64 ", dropped %" PRId64 "\n",
           number(s, "requests"), plural(number(s, "requests")), number(s, "prefilled_tokens"),
           number(s, "decoded_tokens"), number(s, "evicted_blocks"), number(s, "restored_blocks"),
           number(s, "shared_blocks"), number(s, "recomputed_blocks"), number(s, "dropped_blocks"));
    if (yyjson_is_true(yyjson_obj_get(s, "tokens_only")))
        puts("  tokens only: it was restored without its KV, and the next call computes it");
    if (number(s, "rebased_tokens") > 0)
        printf("  %" PRId64 " tokens stand nearer to the end than they were computed (--past-window)\n",
               number(s, "rebased_tokens"));
    if (number(s, "pinned_cold_tokens") > 0)
        printf("  %" PRId64 " task_pinned tokens are cold: the hot set has no room for all that is pinned\n",
               number(s, "pinned_cold_tokens"));
}

/* Tokens of [start, end) in blocks of one state; the tape may be shorter than the context. */
static int64_t tokens_in(struct letters state, char letter, int64_t block, int64_t start, int64_t end,
                         int64_t tape)
{
    int64_t sum = 0;
    end = end < tape ? end : tape;
    if (block <= 0 || block > INT32_MAX || start < 0)
        return 0;
    for (int64_t i = start / block; i < (int64_t)state.count && i * block < end; i++) {
        const int64_t from = i * block > start ? i * block : start;
        const int64_t to = (i + 1) * block < end ? (i + 1) * block : end;
        sum += state.at[i] == letter && to > from ? to - from : 0;
    }
    return sum;
}

static void show_segments(yyjson_val *root, struct letters state, int64_t block)
{
    char kind[100], cls[60], when[60];
    yyjson_val *segments = yyjson_obj_get(root, "segments"), *s;
    yyjson_arr_iter it = yyjson_arr_iter_with(segments);
    const int64_t tape = number(root, "tape_tokens");
    if (yyjson_arr_size(segments) == 0) {
        puts("\nno segments: whoever sent it did not say what its parts are");
        return;
    }
    printf("\n%-16s %-12s %8s %8s %8s %8s %8s  %s\n", "SEGMENT", "CLASS", "FROM", "TOKENS", "HOT", "COLD",
           "LOST", "NOTE");
    while ((s = yyjson_arr_iter_next(&it)) != NULL) {
        const int64_t from = number(s, "token_start"), to = number(s, "token_end");
        text(s, "invalidation", when, sizeof when);
        printf("%-16s %-12s %8" PRId64 " %8" PRId64 " %8" PRId64 " %8" PRId64 " %8" PRId64 "  %s%s%s\n",
               text(s, "kind", kind, sizeof kind), text(s, "class", cls, sizeof cls), from, to - from,
               tokens_in(state, '#', block, from, to, tape), tokens_in(state, '.', block, from, to, tape),
               tokens_in(state, 'x', block, from, to, tape),
               yyjson_is_true(yyjson_obj_get(s, "stable")) ? "stable " : "",
               strcmp(when, "none") == 0 ? "" : "changes ", strcmp(when, "none") == 0 ? "" : when);
    }
}

/* A column stands for one block or several: what is lost shows, else what most of them are. */
static char column(struct letters state, size_t from, size_t to)
{
    size_t hot = 0;
    for (size_t i = from; i < to; i++) {
        if (state.at[i] == 'x')
            return 'x';
        hot += state.at[i] == '#';
    }
    return 2 * hot >= to - from ? '#' : '.';
}

static void show_bar(struct letters state, int64_t block)
{
    const size_t columns = state.count < BAR_COLUMNS ? state.count : BAR_COLUMNS;
    if (state.count == 0) {
        puts("\nno blocks: nothing is computed yet");
        return;
    }
    printf("\n[");
    for (size_t i = 0; i < columns; i++)
        putchar(column(state, i * state.count / columns, (i + 1) * state.count / columns));
    printf("]\n %zu block%s of %" PRId64 " tokens: # hot  . cold  x lost (--map shows each)\n", state.count,
           plural((int64_t)state.count), block);
}

static void show_row(struct letters all, size_t from, size_t to)
{
    for (size_t i = from; i < to && i < all.count; i++)
        putchar(all.at[i] > ' ' && all.at[i] < 0x7f ? all.at[i] : '?');
    putchar('\n');
}

static void show_map(yyjson_val *map, struct letters state, int64_t block)
{
    const struct letters cls = letters_of(map, "class"), from = letters_of(map, "provenance");
    printf("\nblocks of %" PRId64 " tokens\n"
           "  # hot  . cold  x lost\n"
           "  t task_pinned  r repo_map  v volatile\n"
           "  f computed over all before it  b over a part  a approximate\n",
           block);
    for (size_t i = 0; i < state.count; i += BAR_COLUMNS) {
        printf("%9.0f  ", (double)i * (double)block);
        show_row(state, i, i + BAR_COLUMNS);
        printf("%11s", "");
        show_row(cls, i, i + BAR_COLUMNS);
        printf("%11s", "");
        show_row(from, i, i + BAR_COLUMNS);
    }
}

void md_show_explain(yyjson_val *root, bool whole_map)
{
    yyjson_val *map = yyjson_obj_get(root, "map");
    const struct letters state = letters_of(map, "state");
    const int64_t block = number(map, "block_tokens");
    show_head(root);
    show_segments(root, state, block);
    if (whole_map)
        show_map(map, state, block);
    else
        show_bar(state, block);
}

/* ---- snapshots ---- */

enum { NAME_BYTES = 1000 }; /* of a name, every byte of it escaped */

void md_show_snapshot(yyjson_val *root)
{
    char name[NAME_BYTES];
    printf("%s: %" PRId64 " tokens, KV of %" PRId64 ", %.1f MB\n", text(root, "name", name, sizeof name),
           number(root, "context_tokens"), number(root, "kv_tokens"), megabytes(root, "bytes"));
}

/* Names come last: they are as long as they like. */
void md_show_snapshots(yyjson_val *root)
{
    char name[NAME_BYTES], age[40];
    size_t i, count;
    yyjson_val *s, *list = yyjson_obj_get(root, "snapshots");
    const int64_t now = md_clock_wall_s();
    printf("%12s  %6s  %s\n", "MB", "AGE", "NAME");
    yyjson_arr_foreach(list, i, count, s)
    {
        const int64_t old = now - seconds(s, "modified_seconds");
        printf("%12.1f  %6s  %s\n", megabytes(s, "bytes"), ago(old > 0 ? old : 0, age, sizeof age),
               text(s, "name", name, sizeof name));
    }
}
