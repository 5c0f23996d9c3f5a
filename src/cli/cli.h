/* cli.h - the verbs that talk to a daemon that runs: ps, status, explain, close, branch, snapshot, restore,
 * snapshots.
 *
 * Threads: the main thread. */
#ifndef MD_CLI_CLI_H
#define MD_CLI_CLI_H

/* argv[0] is the verb.  default_address: where the daemon is when neither --connect nor MODELD_CONNECT say.
 * Returns the exit status: 0, 1 after an error, 2 when the command line is wrong. */
int md_cli_run(int argc, char **argv, const char *default_address);

#endif
