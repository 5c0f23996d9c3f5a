/* options.h - flags, environment, settings file and help from one table.
 *
 * Each flag has an environment variable MODELD_<LONG NAME>, and a few have a second one under the name that
 * contenox gave it (CONTENOX_MODELD_MEM_MAX), which counts where the first is not set.  Some can be set in
 * modeld.json (config.h).  The command line wins over the environment, the environment over the file.  Unknown
 * MODELD_* variables get a warning.  Numbers are whole words: "4096abc" and "" are refused, with the flag named.
 * What is on or off takes on, 1, true, yes, off, 0, false, no, in any case, wherever it is said: --past-window=yes,
 * MODELD_PAST_WINDOW=1.
 *
 * Threads: the main thread, at start. */
#ifndef MD_COMMANDS_OPTIONS_H
#define MD_COMMANDS_OPTIONS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum md_command_bit {
    MD_CMD_SERVE = 1 << 0,
    MD_CMD_RUN = 1 << 1,
    MD_CMD_CHAT = 1 << 2,
    MD_CMD_BENCH = 1 << 3,
    MD_CMD_PLAN = 1 << 4,
    MD_CMD_SHOW = 1 << 5,
    MD_CMD_DOCTOR = 1 << 6,
    MD_CMD_EVAL = 1 << 7,
    MD_CMD_CALIBRATE = 1 << 8,
};

enum { MD_OPTION_WORD_BYTES = 16, MD_OPTION_ROWS_MAX = 128 };

struct md_options {
    /* model and engine */
    const char *model, *alias, *data_root;
    const char *engine;      /* "auto": md_choose_engine puts a name there */
    char engine_choice[320]; /* and here why; "": no choice was asked for */
    const char *device;      /* "AUTO", "CPU", "GPU", "GPU.1", an id of md_machine; in any case */
    const char *type_k, *type_v, *flash_attn;
    int64_t threads, batch, ubatch, gpu_layers;
    double xattention; /* 0: off */
    /* positions: policy/rope.h; 0, "", and -1 for yarn_ext_factor: as the model file has it */
    char rope_scaling[MD_OPTION_WORD_BYTES];
    double rope_scale, rope_freq_base, rope_freq_scale;
    int64_t yarn_orig_ctx;
    double yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    /* residency */
    int64_t ctx_size;                   /* 0: the trained window */
    int64_t hot;                        /* 0: what memory allows */
    int64_t block_tokens, sink, recent; /* -1 for sink and recent: hot/16, hot/4 */
    bool residency, past_window;
    const char *reuse, *cold_policy, *retrieval, *evict;
    bool calibrate; /* when idle, where attention is scored (retrieval, evict) and nothing is known */
    int64_t checkpoint_tokens;
    const char *kv_dir;    /* NULL: no disk tier */
    int64_t kv_disk;       /* bytes; -1: a quarter of what is free there */
    const char *snapshots; /* NULL: md_paths_state_file */
    int64_t sessions;
    /* memory, in bytes */
    int64_t mem_max, mem_reserve; /* 0: derived */
    int64_t mem_cold;             /* -1: a quarter of the available memory; 0: none */
    double mem_headroom;          /* share of what is usable; 0: derived */
    int64_t min_hot_context;      /* tokens; -1: derived, 0: any will do */
    bool swa_full;
    /* plan */
    int64_t budget, seq_max; /* 0: none; 0: what modeld opens */
    const char *mmproj;
    /* sampling */
    int64_t predict; /* -1: to the end */
    double temp, top_p, min_p, repeat_penalty;
    int64_t top_k, repeat_last_n, seed;
    /* run, chat; json is of the others as well */
    const char *prompt, *file, *turns, *system;
    bool json, raw;
    /* bench */
    int64_t depth;
    /* eval; lists are words with commas between */
    const char *lengths, *depths, *policies, *orders, *prefill, *haystack, *map, *resume, *dump;
    const char *kind, *ask;
    int64_t needles, trials;
    /* calibrate */
    bool print_heads;
    /* serve */
    const char *host;
    int64_t port;
    bool verbose, help;
    bool given[MD_OPTION_ROWS_MAX]; /* the rows of the table that environment or command line set */
};

/* Parse environment and argv[1..] for one command.  argv strings are borrowed for ever.
 *
 * Commands about a file (plan, show) take the model as a word of its own as well.
 *
 * MD_INVALID  unknown flag, missing or bad value, flag of another command, two models: the text says what to do */
MD_MUST_USE enum md_status md_options_parse(int argc, char **argv, enum md_command_bit command,
                                            struct md_options *ret_options, struct md_err *err);
/* What md_options_parse found nothing about is taken from modeld.json, in --data-root or the XDG folder, as far
 * as this command has a flag for it.  Errors of md_config_read, for the whole file; *o is as before then. */
MD_MUST_USE enum md_status md_options_read_file(enum md_command_bit command, struct md_options *o,
                                                struct md_err *err);
/* The flags of a command, one line each. */
void md_options_help(enum md_command_bit command);

/* A decimal number and a unit, in any case: none or B; KB, MB, GB, TB (or K, M, G, T) of 1000; KiB, MiB, GiB,
 * TiB (or Ki, ...) of 1024; % of `whole`.  Blanks around it are allowed.
 *
 * MD_INVALID: not a size, a sign, hex, an exponent, over 100 %, too large, or less than a byte but not 0. */
MD_MUST_USE enum md_status md_parse_size(const char *text, int64_t whole, int64_t *ret_bytes,
                                         struct md_err *err);

#endif
