/* options_table.h - what a row of the option table is, for the three files that work on it: options.c (the
 * table, the command line, the file), options_env.c and options_value.c.
 *
 * Threads: the main thread, at start. */
#ifndef MD_COMMANDS_OPTIONS_TABLE_H
#define MD_COMMANDS_OPTIONS_TABLE_H

#include "commands/options.h"

#include <stddef.h>

/* TEXT is borrowed: of the command line or the environment; what modeld.json may say is a WORD, which is copied.
 * SHARE_OR_OFF is above 0 and 1 at most, off is 0. */
enum md_option_kind { TEXT, WORD, COUNT, REAL, SHARE_OR_OFF, SIZE, ON_OFF, FLAG };

struct md_option_def {
    const char *names[3]; /* as typed; the last one is the long name */
    enum md_option_kind kind;
    size_t offset;    /* into struct md_options */
    double low, high; /* COUNT and REAL */
    unsigned commands;
    const char *value, *help;
};

extern const struct md_option_def md_option_defs[];
extern const size_t md_option_count;

const char *md_option_name(const struct md_option_def *d); /* the long one */

/* options_value.c: put `text` into the field of `d` and remember that it was given.
 *
 * zero_is_none  a SIZE of zero is taken for "not given": what that says in settings of other programs
 * MD_INVALID    the text names the flag; MD_IO of md_host_memory for "25%".  Nothing is changed then */
MD_MUST_USE enum md_status md_option_set(const struct md_option_def *d, const char *text, bool zero_is_none,
                                         struct md_options *o, struct md_err *err);

/* options_env.c: what the environment says for one command, and a warning about MODELD_* that nobody reads. */
MD_MUST_USE enum md_status md_options_env(enum md_command_bit command, struct md_options *o,
                                          struct md_err *err);

#endif
