/* options.h - flags, environment and help from one table.
 *
 * Each flag has an environment variable MODELD_<LONG NAME>; the command line wins.  Unknown MODELD_*
 * variables get a warning.  Numbers are whole words: "4096abc" and "" are refused, with the flag named.
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
};

struct md_options {
    /* model and engine */
    const char *model, *alias, *engine, *data_root;
    const char *type_k, *type_v, *flash_attn;
    int64_t threads, batch, ubatch, gpu_layers;
    /* residency */
    int64_t ctx_size;                   /* 0: the trained window */
    int64_t hot;                        /* 0: min(4096, ctx_size) */
    int64_t mem_cold;                   /* bytes; -1: a quarter of the available memory */
    int64_t block_tokens, sink, recent; /* -1 for sink and recent: hot/16, hot/4 */
    bool residency;
    /* sampling */
    int64_t predict; /* -1: to the end */
    double temp, top_p, min_p, repeat_penalty;
    int64_t top_k, repeat_last_n, seed;
    /* run, chat */
    const char *prompt, *file, *turns, *system;
    bool json, raw;
    /* bench */
    int64_t depth;
    /* serve */
    const char *host;
    int64_t port;
    bool verbose, help;
};

/* Parse environment and argv[1..] for one command.  argv strings are borrowed for ever.
 *
 * MD_INVALID  unknown flag, missing or bad value, flag of another command: the text says what to do */
MD_MUST_USE enum md_status md_options_parse(int argc, char **argv, enum md_command_bit command,
                                            struct md_options *ret_options, struct md_err *err);
/* The flags of a command, one line each. */
void md_options_help(enum md_command_bit command);

/* "512MiB", "8G", "25%" (of `whole`), "1000".  MD_INVALID: not a size, negative, or too large. */
MD_MUST_USE enum md_status md_parse_size(const char *text, int64_t whole, int64_t *ret_bytes,
                                         struct md_err *err);

#endif
