/* commands.h - the verbs that work in their own process.  Each returns the exit status: 0, 1 (failed; one
 * line on standard error says what and what to do) or 2 (usage).  argv[0] is the verb. */
#ifndef MD_COMMANDS_COMMANDS_H
#define MD_COMMANDS_COMMANDS_H

#include "engine/backend.h"

int md_command_run(int argc, char **argv, const struct md_backend *backends);
int md_command_chat(int argc, char **argv, const struct md_backend *backends);
int md_command_bench(int argc, char **argv, const struct md_backend *backends);
int md_command_calibrate(int argc, char **argv, const struct md_backend *backends);
int md_command_eval(int argc, char **argv, const struct md_backend *backends);
int md_command_plan(int argc, char **argv, const struct md_backend *backends);
int md_command_show(int argc, char **argv, const struct md_backend *backends);
int md_command_doctor(int argc, char **argv, const struct md_backend *backends);

#endif
