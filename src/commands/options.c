#include "commands/options.h"

#include "base/log.h"
#include "host/memory.h"
#include "session/session.h"
#include "text/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, COUNT, REAL, SIZE, ON_OFF, FLAG };

struct option_def {
    const char *names[3]; /* as typed; the last one is the long name */
    enum kind kind;
    size_t offset;    /* into struct md_options */
    double low, high; /* COUNT and REAL */
    unsigned commands;
    const char *value, *help;
};

#define AT(field) offsetof(struct md_options, field)
enum {
    ALL = MD_CMD_SERVE | MD_CMD_RUN | MD_CMD_CHAT | MD_CMD_BENCH,
    TALK = MD_CMD_RUN | MD_CMD_CHAT,
    SESSION = MD_CMD_SERVE | TALK,
};

/* A row is a flag. */
/* clang-format off */
static const struct option_def defs[] = {
    { { "-m", "--model" }, TEXT, AT(model), 0, 0, ALL, "FILE|NAME",
      "model: a .gguf file, or a name among the models" },
    { { "--alias" }, TEXT, AT(alias), 0, 0, MD_CMD_SERVE, "NAME",
      "a second name for the model in /v1/models" },
    { { "--engine" }, TEXT, AT(engine), 0, 0, ALL, "NAME", "engine (llama)" },
    { { "-c", "--ctx-size" }, COUNT, AT(ctx_size), 0, INT32_MAX, ALL, "N",
      "logical window in tokens (0: as trained)" },
    { { "--hot" }, COUNT, AT(hot), 0, INT32_MAX, SESSION, "N",
      "tokens of KV kept in the engine (0: 4096 or -c)" },
    { { "--mem-cold" }, SIZE, AT(mem_cold), 0, 0, SESSION, "SIZE",
      "cold store in RAM: 512MiB, 8G, 25% (default 25%)" },
    { { "--block-tokens" }, COUNT, AT(block_tokens), 0, INT32_MAX, SESSION, "N", "tokens per block (64)" },
    { { "--sink" }, COUNT, AT(sink), 0, INT32_MAX, SESSION, "N",
      "first tokens that always stay hot (hot/16)" },
    { { "--recent" }, COUNT, AT(recent), 0, INT32_MAX, SESSION, "N",
      "last tokens that always stay hot (hot/4)" },
    { { "--residency" }, ON_OFF, AT(residency), 0, 0, SESSION, "on|off",
      "hot and cold tiers (on); off: -c tokens, all hot" },
    { { "-t", "--threads" }, COUNT, AT(threads), 1, 512, ALL, "N", "threads (all cores)" },
    { { "-b", "--batch-size" }, COUNT, AT(batch), 1, 65536, ALL, "N",
      "most tokens of one prefill step (512)" },
    { { "-ub", "--ubatch-size" }, COUNT, AT(ubatch), 1, 65536, ALL, "N", "micro-batch (512)" },
    { { "-ngl", "--gpu-layers" }, COUNT, AT(gpu_layers), 0, 9999, ALL, "N",
      "layers on the accelerator (as many as fit)" },
    { { "-fa", "--flash-attn" }, TEXT, AT(flash_attn), 0, 0, ALL, "on|off|auto", "flash attention (auto)" },
    { { "-ctk", "--cache-type-k" }, TEXT, AT(type_k), 0, 0, ALL, "TYPE",
      "KV type of keys (f16); quantised is lossy" },
    { { "-ctv", "--cache-type-v" }, TEXT, AT(type_v), 0, 0, ALL, "TYPE", "KV type of values (f16)" },
    { { "-n", "--predict" }, COUNT, AT(predict), -1, INT32_MAX, SESSION | MD_CMD_BENCH, "N",
      "most tokens to generate (-1: to the end)" },
    { { "--temp" }, REAL, AT(temp), 0, 100, SESSION, "T", "temperature (0.8); 0 is greedy" },
    { { "--top-k" }, COUNT, AT(top_k), 0, INT32_MAX, SESSION, "N", "keep the N best tokens (40); 0: off" },
    { { "--top-p" }, REAL, AT(top_p), 1e-6, 1, SESSION, "P", "nucleus sampling (0.95); 1: off" },
    { { "--min-p" }, REAL, AT(min_p), 0, 1, SESSION, "P", "least share of the best token (0.05); 0: off" },
    { { "--repeat-penalty" }, REAL, AT(repeat_penalty), 1e-6, 10, SESSION, "R",
      "penalty of repeated tokens (1: off)" },
    { { "--repeat-last-n" }, COUNT, AT(repeat_last_n), 0, 32768, SESSION, "N",
      "tokens the penalties look back (64)" },
    { { "-s", "--seed" }, COUNT, AT(seed), -1, UINT32_MAX, SESSION, "N", "random seed (-1: a new one)" },
    { { "-p", "--prompt" }, TEXT, AT(prompt), 0, 0, MD_CMD_RUN, "TEXT", "the prompt" },
    { { "-f", "--file" }, TEXT, AT(file), 0, 0, MD_CMD_RUN, "FILE",
      "the prompt from a file (-: standard input)" },
    { { "--turns" }, TEXT, AT(turns), 0, 0, MD_CMD_RUN, "FILE",
      "play several turns: JSON lines {\"role\",\"content\"}" },
    { { "-sys", "--system" }, TEXT, AT(system), 0, 0, TALK, "TEXT", "system message" },
    { { "--raw" }, FLAG, AT(raw), 0, 0, MD_CMD_RUN, NULL, "the prompt as it is, without the chat template" },
    { { "--json" }, FLAG, AT(json), 0, 0, MD_CMD_RUN | MD_CMD_BENCH, NULL, "figures as JSON" },
    { { "-d", "--depth" }, COUNT, AT(depth), 256, INT32_MAX, MD_CMD_BENCH, "N",
      "tokens of context to measure at (2048)" },
    { { "--host" }, TEXT, AT(host), 0, 0, MD_CMD_SERVE, "ADDR",
      "address to listen on (127.0.0.1); *.sock: Unix socket" },
    { { "--port" }, COUNT, AT(port), 0, 65535, MD_CMD_SERVE, "N", "port (8080); 0: a free one" },
    { { "--data-root" }, TEXT, AT(data_root), 0, 0, ALL, "DIR",
      "one folder for all files instead of XDG folders" },
    { { "-v", "--verbose" }, FLAG, AT(verbose), 0, 0, ALL, NULL, "log what the engine does" },
    { { "-h", "--help" }, FLAG, AT(help), 0, 0, ALL, NULL, "this text" },
};
/* clang-format on */
enum { DEF_COUNT = sizeof defs / sizeof defs[0] };

static const struct md_options defaults = {
    .engine = "llama",
    .flash_attn = "auto",
    .gpu_layers = -1,
    .mem_cold = -1,
    .block_tokens = MD_BLOCK_TOKENS_DEFAULT,
    .sink = -1,
    .recent = -1,
    .residency = true,
    .predict = -1,
    .depth = 2048,
    .host = "127.0.0.1",
    .port = 8080,
};

static struct md_options default_options(void)
{
    const struct md_sample_params p = md_sample_defaults();
    struct md_options o = defaults;
    o.temp = p.temperature;
    o.top_k = p.top_k;
    o.top_p = p.top_p;
    o.min_p = p.min_p;
    o.repeat_penalty = p.repeat_penalty;
    o.repeat_last_n = p.repeat_last_n;
    o.seed = p.seed;
    return o;
}

static const char *long_name(const struct option_def *d)
{
    return d->names[1] != NULL ? d->names[1] : d->names[0];
}

/* ---- values ---- */

enum md_status md_parse_size(const char *text, int64_t whole, int64_t *ret_bytes, struct md_err *err)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = { { "", 1 },
                  { "B", 1 },
                  { "K", 1024 },
                  { "KB", 1e3 },
                  { "KiB", 1024 },
                  { "M", 1048576 },
                  { "MB", 1e6 },
                  { "MiB", 1048576 },
                  { "G", 1073741824 },
                  { "GB", 1e9 },
                  { "GiB", 1073741824 },
                  { "T", 1099511627776 },
                  { "TB", 1e12 },
                  { "TiB", 1099511627776 } };
    char *end;
    if (!isdigit((unsigned char)text[0])) /* strtod would take signs, blanks, hex, "nan" and "inf" */
        return md_fail(err, MD_INVALID, "'%.40s' is not a size: write 512MiB, 8G or 25%%", text);
    double value = strtod(text, &end), factor = -1;
    if (end != text + strspn(text, "0123456789.")) /* hex and exponents */
        return md_fail(err, MD_INVALID, "'%.40s' is not a size: write 512MiB, 8G or 25%%", text);
    if (strcmp(end, "%") == 0 && value <= 100)
        factor = (double)whole / 100;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcasecmp(end, units[i].suffix) == 0)
            factor = units[i].factor;
    if (factor < 0 || !isfinite(value))
        return md_fail(err, MD_INVALID, "'%.40s' is not a size: write 512MiB, 8G or 25%%", text);
    if (value * factor >= 9e18)
        return md_fail(err, MD_INVALID, "'%.40s' is more than any machine has", text);
    *ret_bytes = (int64_t)(value * factor);
    return MD_OK;
}

static enum md_status parse_count(const struct option_def *d, const char *text, int64_t *ret,
                                  struct md_err *err)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool word = (isdigit((unsigned char)text[0]) || text[0] == '-') && end != text && *end == '\0';
    if (!word || errno != 0 || (double)value < d->low || (double)value > d->high)
        return md_fail(err, MD_INVALID, "%s must be a whole number from %.0f to %.0f, got '%.40s'",
                       long_name(d), d->low, d->high, text);
    *ret = value;
    return MD_OK;
}

static enum md_status parse_real(const struct option_def *d, const char *text, double *ret,
                                 struct md_err *err)
{
    char *end;
    double value = strtod(text, &end); /* would take blanks, hex, "nan" and "inf" */
    if (text[0] == '\0' || text[strspn(text, "0123456789.-+eE")] != '\0' || *end != '\0' ||
        !(value >= d->low && value <= d->high))
        return md_fail(err, MD_INVALID, "%s must be a number from %g to %g, got '%.40s'", long_name(d),
                       d->low, d->high, text);
    *ret = value;
    return MD_OK;
}

static enum md_status set_value(const struct option_def *d, const char *text, struct md_options *o,
                                struct md_err *err)
{
    char *field = (char *)o + d->offset;
    int64_t whole = 0;
    switch (d->kind) {
    case TEXT: *(const char **)field = text; return MD_OK;
    case COUNT: return parse_count(d, text, (int64_t *)field, err);
    case REAL: return parse_real(d, text, (double *)field, err);
    case SIZE: {
        struct md_host_memory memory = { 0 };
        enum md_status s = strchr(text, '%') == NULL ? MD_OK : md_host_memory(NULL, &memory, err);
        whole = memory.available_bytes;
        if (s == MD_OK)
            s = md_parse_size(text, whole, (int64_t *)field, err);
        struct md_err why = *err;
        return s == MD_OK ? s : md_fail(err, s, "%s: %.400s", long_name(d), why.text);
    }
    case ON_OFF:
    case FLAG:
        if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
            return md_fail(err, MD_INVALID, "%s must be on or off, got '%.40s'", long_name(d), text);
        *(bool *)field = strcmp(text, "on") == 0;
        return MD_OK;
    }
    assert(false);
    return MD_INVALID;
}

/* ---- environment ---- */

static void env_name(const struct option_def *d, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "MODELD_%s", long_name(d) + 2);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static void warn_unknown_env(void)
{
    /* read by the llama adapter, and by the build, which exports them to what it runs */
    static const char *const others[] = { "MODELD_LLAMA_LIBDIR=", "MODELD_LLAMA_ROOT=", "MODELD_ACCEL=" };
    extern char **environ;
    for (char **e = environ; *e != NULL; e++) {
        bool known = strncmp(*e, "MODELD_", 7) != 0 || strncmp(*e, "MODELD_TEST_", 12) == 0;
        for (size_t i = 0; i < sizeof others / sizeof others[0] && !known; i++)
            known = strncmp(*e, others[i], strlen(others[i])) == 0;
        for (size_t i = 0; i < DEF_COUNT && !known; i++) {
            char name[64];
            env_name(&defs[i], name, sizeof name);
            known = strncmp(*e, name, strlen(name)) == 0 && (*e)[strlen(name)] == '=';
        }
        if (!known)
            md_log(MD_LOG_WARN, "unknown environment variable '%.*s' is ignored", (int)strcspn(*e, "="), *e);
    }
}

static enum md_status parse_env(enum md_command_bit command, struct md_options *o, struct md_err *err)
{
    for (size_t i = 0; i < DEF_COUNT; i++) {
        char name[64];
        env_name(&defs[i], name, sizeof name);
        const char *text = getenv(name);
        if (text == NULL || !(defs[i].commands & command))
            continue;
        enum md_status s = set_value(&defs[i], text, o, err);
        if (s != MD_OK) {
            struct md_err why = *err;
            return md_fail(err, s, "environment variable %s: %.400s", name, why.text);
        }
    }
    warn_unknown_env();
    return MD_OK;
}

/* ---- the command line ---- */

static const struct option_def *find(const char *word, size_t len)
{
    for (size_t i = 0; i < DEF_COUNT; i++)
        for (size_t n = 0; n < 3 && defs[i].names[n] != NULL; n++)
            if (strlen(defs[i].names[n]) == len && strncmp(defs[i].names[n], word, len) == 0)
                return &defs[i];
    return NULL;
}

enum md_status md_options_parse(int argc, char **argv, enum md_command_bit command,
                                struct md_options *ret_options, struct md_err *err)
{
    struct md_options o = default_options();
    enum md_status s = parse_env(command, &o, err);
    for (int i = 1; i < argc && s == MD_OK; i++) {
        const char *equals = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
        size_t len = equals != NULL ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        const struct option_def *d = find(argv[i], len);
        if (d == NULL && argv[i][0] != '-')
            return md_fail(err, MD_INVALID, "unexpected argument '%.100s': -h lists the flags", argv[i]);
        if (d == NULL)
            return md_fail(err, MD_INVALID, "unknown flag '%.100s': -h lists the flags", argv[i]);
        if (!(d->commands & command))
            return md_fail(err, MD_INVALID, "%s is not a flag of this command: -h lists them", long_name(d));
        if (d->kind == FLAG && equals == NULL) {
            *(bool *)((char *)&o + d->offset) = true;
            continue;
        }
        if (equals == NULL && ++i >= argc)
            return md_fail(err, MD_INVALID, "%s needs a value: %s", long_name(d), d->value);
        s = set_value(d, equals != NULL ? equals + 1 : argv[i], &o, err);
    }
    if (s == MD_OK)
        *ret_options = o;
    return s;
}

void md_options_help(enum md_command_bit command)
{
    for (size_t i = 0; i < DEF_COUNT; i++) {
        char left[64];
        if (!(defs[i].commands & command))
            continue;
        snprintf(left, sizeof left, "%s%s%s %s", defs[i].names[0], defs[i].names[1] != NULL ? ", " : "",
                 defs[i].names[1] != NULL ? defs[i].names[1] : "",
                 defs[i].value != NULL ? defs[i].value : "");
        printf("  %-34s %s\n", left, defs[i].help);
    }
}
