/* kill_rig.h - a process is killed at any moment (SIGKILL), and the next one finds the conversations as after one call,
 * whole: the last one that was told as finished, or the one after it.
 *
 * What is right: contexts and costs of the same calls in one process without a disk, and rig_fresh_answer. */
#ifndef MD_TESTS_KILL_RIG_H
#define MD_TESTS_KILL_RIG_H

#include "support/store_rig.h"

enum { KILL_RIG_WINDOW = 1024 };

/* Within the fixture of store_rig.h.  hot: of the window; where it is all of it, each answer behind a kill is that of the
 * process that was not killed. */
void kill_often(const char *name, enum rig_model model, int32_t hot, int kills);

#endif
