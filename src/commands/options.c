#include "commands/options_table.h"

#include "commands/config.h"
#include "host/paths.h"
#include "policy/checkpoint.h"
#include "policy/rope.h"
#include "session/pool.h"
#include "text/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(struct md_options, field)
enum {
    TALK = MD_CMD_RUN | MD_CMD_CHAT,
    SESSION = MD_CMD_SERVE | TALK,
    POOL = SESSION | MD_CMD_EVAL, /* what decides what is hot */
    COMPUTE = POOL | MD_CMD_BENCH | MD_CMD_CALIBRATE,
    SHAPE = COMPUTE | MD_CMD_PLAN, /* what decides how much memory the KV cache takes */
    ONE_MODEL = SHAPE | MD_CMD_SHOW,
    ALL = ONE_MODEL | MD_CMD_DOCTOR,
    MEMORY = POOL | MD_CMD_PLAN | MD_CMD_DOCTOR,
    POSITIONAL = MD_CMD_PLAN | MD_CMD_SHOW, /* `modeld plan FILE` */
};

/* A row is a flag. */
/* clang-format off */
const struct md_option_def md_option_defs[] = {
    { { "-m", "--model" }, TEXT, AT(model), 0, 0, ONE_MODEL, "FILE|NAME",
      "model: a .gguf file, or a name among the models" },
    { { "--alias" }, TEXT, AT(alias), 0, 0, MD_CMD_SERVE, "NAME",
      "a second name for the model in /v1/models" },
    { { "--engine" }, TEXT, AT(engine), 0, 0, ALL, "NAME", "engine: llama, openvino where it was built in, or auto: the faster one here (llama); bench: both" },
    { { "--device" }, TEXT, AT(device), 0, 0, SHAPE, "NAME",
      "where to compute: CPU, GPU, GPU.N or a name that `modeld doctor` lists (AUTO)" },
    { { "-c", "--ctx-size" }, COUNT, AT(ctx_size), 0, INT32_MAX, SHAPE & ~MD_CMD_EVAL & ~MD_CMD_CALIBRATE, "N",
      "logical window in tokens (0: as trained, or what fits)" },
    { { "--hot" }, COUNT, AT(hot), 0, INT32_MAX, POOL | MD_CMD_PLAN, "N",
      "tokens of KV kept in the engine (0: what memory allows)" },
    { { "--mem-max" }, SIZE, AT(mem_max), 0, 0, MEMORY, "SIZE",
      "most of weights, KV and work memory: 8GiB, 50% (0: derived)" },
    { { "--mem-reserve" }, SIZE, AT(mem_reserve), 0, 0, MEMORY, "SIZE",
      "memory left alone: 2GiB, 10% (0: derived)" },
    { { "--mem-cold" }, SIZE, AT(mem_cold), 0, 0, MEMORY, "SIZE",
      "cold store in RAM: 512MiB, 8GiB, 25% (default 25%)" },
    { { "--mem-headroom" }, REAL, AT(mem_headroom), 1e-6, 0.999999, MEMORY, "FRAC",
      "share of the usable memory kept for fragmentation (derived)" },
    { { "--min-hot-context" }, COUNT, AT(min_hot_context), 0, INT32_MAX, SESSION | MD_CMD_PLAN, "N",
      "smallest hot context worth opening (4096); 0: any" },
    { { "--budget" }, SIZE, AT(budget), 0, 0, MD_CMD_PLAN, "SIZE", "plan for a KV cache of so many bytes" },
    { { "--seq-max" }, COUNT, AT(seq_max), 0, 256, MD_CMD_PLAN, "N",
      "plan for N sequences (0: as many as modeld opens)" },
    { { "--mmproj" }, TEXT, AT(mmproj), 0, 0, MD_CMD_PLAN, "FILE", "plan for a projector besides the model" },
    { { "--swa-full" }, ON_OFF, AT(swa_full), 0, 0, POOL | MD_CMD_PLAN, "on|off",
      "windowed layers keep the whole context (off): more memory, cuts back anywhere" },
    { { "--reuse" }, TEXT, AT(reuse), 0, 0, SESSION, "NAME",
      "KV used again: of the same text at its place (place), only if exact (full), or also re-based (approximate)" },
    { { "--cold-policy" }, TEXT, AT(cold_policy), 0, 0, SESSION, "NAME",
      "blocks go to the cold store when they leave (write-back) or at once (write-through)" },
    { { "--retrieval" }, TEXT, AT(retrieval), 0, 0, SESSION | MD_CMD_PLAN, "NAME",
      "cold blocks that a question attends to come back for its answer: off, or auto, where the engine can tell (off)" },
    { { "--evict" }, TEXT, AT(evict), 0, 0, SESSION | MD_CMD_PLAN, "NAME",
      "who leaves the hot set first: the oldest (recency), or what was attended least, where the engine can tell (attention) (recency)" },
    { { "--calibrate" }, ON_OFF, AT(calibrate), 0, 0, MD_CMD_SERVE, "on|off",
      "--retrieval auto: measure a new model's heads when nobody waits (on)" },
    { { "--checkpoint-tokens" }, COUNT, AT(checkpoint_tokens), 1, INT32_MAX, POOL, "N",
      "windowed and recurrent layers: most tokens between two checkpoints (512)" },
    { { "--kv-dir" }, TEXT, AT(kv_dir), 0, 0, MD_CMD_SERVE, "DIR",
      "disk tier: conversations and their KV outlive the daemon (off: nothing is written)" },
    { { "--kv-disk" }, SIZE, AT(kv_disk), 0, 0, MD_CMD_SERVE, "SIZE",
      "most bytes in --kv-dir: 20GiB (a quarter of what is free there)" },
    { { "--snapshots" }, TEXT, AT(snapshots), 0, 0, MD_CMD_SERVE, "DIR",
      "folder of snapshots, made when one is written (DATA_ROOT/snapshots or XDG's)" },
    { { "--sessions" }, COUNT, AT(sessions), 1, MD_SESSIONS_MAX, MD_CMD_SERVE, "N",
      "conversations open at once (64)" },
    { { "--block-tokens" }, COUNT, AT(block_tokens), 0, INT32_MAX, POOL, "N", "tokens per block (64)" },
    { { "--sink" }, COUNT, AT(sink), 0, INT32_MAX, POOL, "N",
      "first tokens that always stay hot (hot/16)" },
    { { "--recent" }, COUNT, AT(recent), 0, INT32_MAX, POOL, "N",
      "last tokens that always stay hot (hot/4)" },
    { { "--residency" }, ON_OFF, AT(residency), 0, 0, SESSION | MD_CMD_PLAN, "on|off",
      "hot and cold tiers (on); off: -c tokens, all hot" },
    { { "--past-window" }, FLAG, AT(past_window), 0, 0, SESSION | MD_CMD_PLAN, NULL,
      "conversations go on past the trained window: what is far is moved nearer (off)" },
    { { "-t", "--threads" }, COUNT, AT(threads), 0, 512, SHAPE, "N", "threads (0: all cores)" },
    { { "-b", "--batch-size" }, COUNT, AT(batch), 0, 65536, SHAPE, "N",
      "most tokens of one prefill step (0: 512)" },
    { { "-ub", "--ubatch-size" }, COUNT, AT(ubatch), 0, 65536, SHAPE, "N", "micro-batch (0: 512)" },
    { { "-ngl", "--gpu-layers" }, COUNT, AT(gpu_layers), 0, 9999, SHAPE, "N",
      "layers on the accelerator (as many as fit)" },
    { { "-fa", "--flash-attn" }, TEXT, AT(flash_attn), 0, 0, SHAPE, "on|off|auto", "flash attention (auto)" },
    { { "--xattention" }, SHARE_OR_OFF, AT(xattention), 0, 0, SHAPE, "SHARE|off",
      "openvino: the first step of a text keeps 0.9, say, of its attention: sooner in long steps (-ub), not exact (off)" },
    { { "-ctk", "--cache-type-k" }, TEXT, AT(type_k), 0, 0, SHAPE, "TYPE",
      "KV type of keys (f16); quantised is lossy" },
    { { "-ctv", "--cache-type-v" }, TEXT, AT(type_v), 0, 0, SHAPE, "TYPE", "KV type of values (f16)" },
    { { "--rope-scaling" }, WORD, AT(rope_scaling), 0, 0, SHAPE, "NAME",
      "more positions than the file says: none, linear or yarn (the file's)" },
    { { "--rope-scale" }, REAL, AT(rope_scale), 1, MD_ROPE_SCALE_MAX, SHAPE, "N",
      "--rope-scaling: times as many tokens (the file's)" },
    { { "--rope-freq-scale" }, REAL, AT(rope_freq_scale), 1 / MD_ROPE_SCALE_MAX, 1, SHAPE, "N",
      "the same, as 1 / --rope-scale" },
    { { "--rope-freq-base" }, REAL, AT(rope_freq_base), 1, MD_ROPE_BASE_MAX, SHAPE, "N",
      "RoPE base frequency (the file's)" },
    { { "--yarn-orig-ctx" }, COUNT, AT(yarn_orig_ctx), 1, 1 << 30, SHAPE, "N",
      "YaRN: window before scaling (the file's)" },
    { { "--yarn-ext-factor" }, REAL, AT(yarn_ext_factor), 0, 1, SHAPE, "N",
      "YaRN: mix of extrapolation (1); 0: all is interpolated" },
    { { "--yarn-attn-factor" }, REAL, AT(yarn_attn_factor), 1e-6, MD_ROPE_YARN_MAX, SHAPE, "N",
      "YaRN: factor of attention, with --yarn-ext-factor 0 (1)" },
    { { "--yarn-beta-fast" }, REAL, AT(yarn_beta_fast), 1e-6, MD_ROPE_YARN_MAX, SHAPE, "N",
      "YaRN: turns from which on nothing is scaled (32)" },
    { { "--yarn-beta-slow" }, REAL, AT(yarn_beta_slow), 1e-6, MD_ROPE_YARN_MAX, SHAPE, "N",
      "YaRN: turns up to which all is scaled (1)" },
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
    { { "-s", "--seed" }, COUNT, AT(seed), -1, UINT32_MAX, POOL, "N", "random seed (-1: a new one; eval: 1)" },
    { { "-p", "--prompt" }, TEXT, AT(prompt), 0, 0, MD_CMD_RUN, "TEXT", "the prompt" },
    { { "-f", "--file" }, TEXT, AT(file), 0, 0, MD_CMD_RUN, "FILE",
      "the prompt from a file (-: standard input)" },
    { { "--turns" }, TEXT, AT(turns), 0, 0, MD_CMD_RUN, "FILE",
      "play several turns: JSON lines {\"role\",\"content\"}" },
    { { "-sys", "--system" }, TEXT, AT(system), 0, 0, TALK, "TEXT", "system message" },
    { { "--raw" }, FLAG, AT(raw), 0, 0, MD_CMD_RUN, NULL, "the prompt as it is, without the chat template" },
    { { "--json" }, FLAG, AT(json), 0, 0,
      MD_CMD_RUN | MD_CMD_BENCH | MD_CMD_EVAL | MD_CMD_PLAN | MD_CMD_SHOW | MD_CMD_DOCTOR, NULL,
      "figures as JSON" },
    { { "-d", "--depth" }, COUNT, AT(depth), 256, INT32_MAX, MD_CMD_BENCH, "N",
      "tokens of context to measure at (2048)" },
    { { "--length" }, TEXT, AT(lengths), 0, 0, MD_CMD_EVAL, "N,...", "tokens of the haystacks (4096)" },
    { { "--depths" }, TEXT, AT(depths), 0, 0, MD_CMD_EVAL, "N,...",
      "where a single needle is, in percent (0,25,50,75,100)" },
    { { "--policy" }, TEXT, AT(policies), 0, 0, MD_CMD_EVAL, "NAME,...",
      "what is hot: dense, t1, t1-retrieval, t2, t2-retrieval (dense,t1)" },
    { { "--needles" }, COUNT, AT(needles), 1, 64, MD_CMD_EVAL, "N", "needles in one haystack (1)" },
    { { "--kind" }, TEXT, AT(kind), 0, 0, MD_CMD_EVAL, "distinct|near",
      "several needles: about different things, or near-duplicates that differ in one word and the value (distinct)" },
    { { "--ask" }, TEXT, AT(ask), 0, 0, MD_CMD_EVAL, "turns|alone|together",
      "several needles: one question after the other's answer, each for itself, or all in one message (turns)" },
    { { "--orders" }, TEXT, AT(orders), 0, 0, MD_CMD_EVAL, "all|1",
      "several needles: every rotation of the questions, or one (1)" },
    { { "--trials" }, COUNT, AT(trials), 1, 1000, MD_CMD_EVAL, "N", "haystacks for each cell (1)" },
    { { "--prefill" }, TEXT, AT(prefill), 0, 0, MD_CMD_EVAL, "bounded|dense",
      "haystacks are read under the hot set, or all hot and evicted afterwards (bounded)" },
    { { "--haystack" }, TEXT, AT(haystack), 0, 0, MD_CMD_EVAL, "prose|code|chat|FILE",
      "text to hide needles in (as the task has it)" },
    { { "--map" }, TEXT, AT(map), 0, 0, MD_CMD_EVAL, "FILE.svg", "draw depth and length" },
    { { "--dump" }, TEXT, AT(dump), 0, 0, MD_CMD_EVAL, "FILE",
      "with one policy that retrieves: what every head pays to every token, for studies (src/commands/eval_dump.h)" },
    { { "--resume" }, TEXT, AT(resume), 0, 0, MD_CMD_EVAL, "FILE",
      "keep what is done there, and go on with the rest" },
    { { "--print" }, FLAG, AT(print_heads), 0, 0, MD_CMD_CALIBRATE, NULL,
      "print what was measured instead of keeping it" },
    { { "--host" }, TEXT, AT(host), 0, 0, MD_CMD_SERVE, "ADDR",
      "address to listen on (127.0.0.1); *.sock: Unix socket" },
    { { "--port" }, COUNT, AT(port), 0, 65535, MD_CMD_SERVE, "N", "port (8080); 0: a free one" },
    { { "--data-root" }, TEXT, AT(data_root), 0, 0, ALL, "DIR",
      "one folder for all files instead of XDG folders" },
    { { "-v", "--verbose" }, FLAG, AT(verbose), 0, 0, ALL, NULL, "log what the engine does" },
    { { "-h", "--help" }, FLAG, AT(help), 0, 0, ALL, NULL, "this text" },
};
/* clang-format on */
enum { DEF_COUNT = sizeof md_option_defs / sizeof md_option_defs[0] };
static_assert((int)DEF_COUNT <= (int)MD_OPTION_ROWS_MAX, "each has a place in md_options.given");
const size_t md_option_count = DEF_COUNT;

static const struct md_options defaults = {
    .engine = "llama",
    .device = "AUTO",
    .flash_attn = "auto",
    .gpu_layers = -1,
    .yarn_ext_factor = -1,
    .mem_cold = -1,
    .kv_disk = -1,
    .checkpoint_tokens = MD_CHECKPOINT_TOKENS,
    .min_hot_context = -1,
    .block_tokens = MD_BLOCK_TOKENS_DEFAULT,
    .reuse = "place",
    .cold_policy = "write-back",
    .retrieval = "off",
    .evict = "recency",
    .calibrate = true,
    .sessions = MD_SESSIONS_DEFAULT,
    .sink = -1,
    .recent = -1,
    .residency = true,
    .predict = -1,
    .depth = 2048,
    .lengths = "4096",
    .policies = "dense,t1",
    .kind = "distinct",
    .ask = "turns",
    .needles = 1,
    .orders = "1",
    .trials = 1,
    .prefill = "bounded",
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

const char *md_option_name(const struct md_option_def *d)
{
    return d->names[1] != NULL ? d->names[1] : d->names[0];
}

/* ---- the command line ---- */

static const struct md_option_def *find(const char *word, size_t len)
{
    for (size_t i = 0; i < DEF_COUNT; i++)
        for (size_t n = 0; n < 3 && md_option_defs[i].names[n] != NULL; n++)
            if (strlen(md_option_defs[i].names[n]) == len &&
                strncmp(md_option_defs[i].names[n], word, len) == 0)
                return &md_option_defs[i];
    return NULL;
}

/* A word that is no flag: the model, for commands that are about a file. */
static enum md_status take_word(const char *word, enum md_command_bit command, const char **model,
                                struct md_err *err)
{
    if (!(command & POSITIONAL))
        return md_fail(err, MD_INVALID, "unexpected argument '%.100s': -h lists the flags", word);
    if (*model != NULL)
        return md_fail(err, MD_INVALID, "two models, '%.100s' and '%.100s': give one", *model, word);
    *model = word;
    return MD_OK;
}

static enum md_status take_flag(int argc, char **argv, int *i, enum md_command_bit command,
                                struct md_options *o, struct md_err *err)
{
    const char *word = argv[*i], *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    const struct md_option_def *d = find(word, equals != NULL ? (size_t)(equals - word) : strlen(word));
    if (d == NULL)
        return md_fail(err, MD_INVALID, "unknown flag '%.100s': -h lists the flags", word);
    if (!(d->commands & command))
        return md_fail(err, MD_INVALID, "%s is not a flag of this command: -h lists them", md_option_name(d));
    if (d->kind == FLAG && equals == NULL)
        return md_option_set(d, "on", false, o, err);
    if (equals == NULL && *i + 1 >= argc)
        return md_fail(err, MD_INVALID, "%s needs a value: %s", md_option_name(d), d->value);
    return md_option_set(d, equals != NULL ? equals + 1 : argv[++*i], false, o, err);
}

enum md_status md_options_parse(int argc, char **argv, enum md_command_bit command,
                                struct md_options *ret_options, struct md_err *err)
{
    struct md_options o = default_options();
    enum md_status s = md_options_env(command, &o, err);
    const char *environment_model = o.model, *word_model = NULL;
    o.model = NULL;
    for (int i = 1; i < argc && s == MD_OK; i++)
        s = argv[i][0] == '-' ? take_flag(argc, argv, &i, command, &o, err)
                              : take_word(argv[i], command, &word_model, err);
    if (s == MD_OK && word_model != NULL && o.model != NULL)
        s = md_fail(err, MD_INVALID, "two models, --model '%.100s' and '%.100s': give one", o.model,
                    word_model);
    if (s != MD_OK)
        return s;
    if (o.model == NULL)
        o.model = word_model != NULL ? word_model : environment_model;
    *ret_options = o;
    return MD_OK;
}

/* ---- the file ---- */

enum md_status md_options_read_file(enum md_command_bit command, struct md_options *o, struct md_err *err)
{
    char path[MD_PATH_MAX];
    struct md_config config;
    struct md_err why;
    struct md_options new = *o;
    enum md_status s = md_paths_config_file(o->data_root, path, sizeof path, err);
    if (s == MD_OK)
        s = md_config_read(path, &config, err);
    for (size_t i = 0; s == MD_OK && i < config.count; i++) {
        const struct md_config_value *v = &config.values[i];
        const struct md_option_def *d = find(v->option, strlen(v->option));
        assert(d != NULL);
        if (!(d->commands & command) || o->given[d - md_option_defs])
            continue;
        s = md_option_set(d, v->text, true, &new, &why);
        if (s != MD_OK)
            return md_fail(err, s, "file '%.250s': %s: %.200s", path, v->key, why.text);
    }
    if (s == MD_OK)
        *o = new;
    return s;
}

/* ---- help ---- */

void md_options_help(enum md_command_bit command)
{
    for (size_t i = 0; i < DEF_COUNT; i++) {
        const struct md_option_def *d = &md_option_defs[i];
        char left[64];
        if (!(d->commands & command))
            continue;
        snprintf(left, sizeof left, "%s%s%s %s", d->names[0], d->names[1] != NULL ? ", " : "",
                 d->names[1] != NULL ? d->names[1] : "", d->value != NULL ? d->value : "");
        printf("  %-34s %s\n", left, d->help);
    }
    puts("\nEach flag has an environment variable: MODELD_ and its long name; switches take on, off, 1 or 0. "
         "Memory and RoPE can be set in "
         "modeld.json too.");
}
