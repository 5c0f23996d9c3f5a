/* heads_table.h - heads of known models, measured beforehand: nobody who uses one of them waits for a calibration.  Pure.
 *
 * Each is the text that `modeld calibrate --print -m FILE` gave (policy/calibrate.h), so that it can be made again:
 * tools/heads-table.sh does it for all models of the tests.
 *
 * Threads: any. */
#ifndef MD_POLICY_HEADS_TABLE_H
#define MD_POLICY_HEADS_TABLE_H

#include "policy/calibrate.h"

/* The set of that model and calibration.
 *
 * MD_NOT_FOUND  the table has none
 * State: ret_set undefined on failure. */
MD_MUST_USE enum md_status md_heads_table_find(const struct md_calibrate_key *key,
                                               struct md_calibrate_set *ret_set, struct md_err *err);
/* How many there are, and text i of them. */
size_t md_heads_table_count(void);
struct md_bytes md_heads_table_text(size_t i);

#endif
