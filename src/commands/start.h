/* start.h - what the verbs do alike at their start and end. */
#ifndef MD_COMMANDS_START_H
#define MD_COMMANDS_START_H

#include "commands/options.h"
#include "host/memory.h"

/* Parse environment, flags and modeld.json, which must name a model (but for chat, which lists them, and doctor);
 * -h prints `about` and the flags.  Returns -1 to go on, or the exit status. */
int md_start(int argc, char **argv, enum md_command_bit command, const char *about,
             struct md_options *ret_options);
/* md_complain for an error; returns 1. */
int md_failed(const char *verb, const struct md_err *err);

/* The memory of this machine (md_host_memory); a limit that could not be read is logged, once for the process.
 * MD_IO.  Threads: the main thread. */
MD_MUST_USE enum md_status md_start_memory(struct md_host_memory *ret, struct md_err *err);

#endif
