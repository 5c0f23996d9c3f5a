/* show.h - answers of the daemon for people, on standard output.
 *
 * The answers are JSON that came over a wire: what is missing counts as 0 or "", what is odd is shown without control
 * characters, and nothing is asserted.  Threads: the main thread. */
#ifndef MD_CLI_SHOW_H
#define MD_CLI_SHOW_H

#include <stdbool.h>
#include <yyjson.h>

void md_show_status(yyjson_val *status);
void md_show_sessions(yyjson_val *root);
/* map: the whole map of blocks, else a bar of it. */
void md_show_explain(yyjson_val *root, bool map);

#endif
