/* show.h - answers of the daemon for people, on standard output.
 *
 * The answers are JSON that came over a wire: the tables say which members are read, and nothing is shown of one that
 * does not pass them (answer.h).  Texts are shown without control characters.  Threads: the main thread. */
#ifndef MD_CLI_SHOW_H
#define MD_CLI_SHOW_H

#include "cli/answer.h"

#include <stdbool.h>
#include <yyjson.h>

extern const struct md_answer_field md_show_status_fields[], md_show_sessions_fields[],
    md_show_explain_fields[], md_show_snapshot_fields[], md_show_restored_fields[],
    md_show_snapshots_fields[];

void md_show_status(yyjson_val *status);
void md_show_sessions(yyjson_val *root);
/* map: the whole map of blocks, else a bar of it. */
void md_show_explain(yyjson_val *root, bool map);
/* What was written. */
void md_show_snapshot(yyjson_val *root);
/* The list. */
void md_show_snapshots(yyjson_val *root);

#endif
