/* device.h - what --device means on this machine.  Pure: what was asked and what there is, to what is opened.
 *
 * Threads: any. */
#ifndef MD_COMMANDS_DEVICE_H
#define MD_COMMANDS_DEVICE_H

#include "engine/backend.h"

/* The first device that takes weights and KV; others of its kind share them.  What only helps the processor ("accel") and
 * what the engine computes nothing on hold neither.
 * NULL: none. */
const struct md_device *md_device_accelerator(const struct md_machine *m);

/* Is the choice ours? */
bool md_device_is_auto(const char *asked);

/* Resolve what was asked.
 *
 * asked       "AUTO" or NULL: as many layers on the accelerator as it takes, whatever is to be opened there: what it
 *             refuses of that is seen when its cost is asked (sizing.h).  "CPU": none.  "GPU": the accelerator alone;
 *             "GPU.N": the N-th one, from 0; or the id of a device.  In any case of letters
 * open        gpu_layers as asked by -ngl; gpu_layers and device are set.  The device points into m; with AUTO it is NULL
 *             (any) where the engine spreads layers over several
 * ret_device  where weights and KV go; NULL: to the host
 * MD_INVALID      no such device here, and the text lists those there are; or -ngl says another thing
 * MD_UNSUPPORTED  the engine computes nothing there */
MD_MUST_USE enum md_status md_device_resolve(const char *asked, const char *engine,
                                             const struct md_machine *m, struct md_open_params *open,
                                             const struct md_device **ret_device, struct md_err *err);

#endif
