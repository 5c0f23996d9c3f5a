/* start.h - what the verbs do alike at their start and end. */
#ifndef MD_COMMANDS_START_H
#define MD_COMMANDS_START_H

#include "commands/options.h"

/* Parse the flags, which must name a model (but for chat, which lists them); -h prints `about` and the flags.  Returns -1 to go on, or the exit status. */
int md_start(int argc, char **argv, enum md_command_bit command, const char *about,
             struct md_options *ret_options);
/* "modeld run: TEXT" as one line on standard error: control characters, which may come from a model file, are
 * shown as question marks. */
void md_complain(const char *verb, const char *text);
/* The same for an error; returns 1. */
int md_failed(const char *verb, const struct md_err *err);

#endif
