/* store_rig.h - a session on the fake engine (session_rig.h) over a folder on disk, for tests of what outlives a process.
 *
 * Threads: one at a time, one folder per process. */
#ifndef MD_TESTS_STORE_RIG_H
#define MD_TESTS_STORE_RIG_H

#include "session/disk.h"
#include "session/store.h"
#include "support/session_rig.h"

extern char sr_folder[200];
/* A fixture: makes the folder under TMPDIR; removes it. */
void sr_setup(void);
void sr_teardown(void);
/* Remove what is in it. */
void sr_empty(void);

struct store_rig {
    struct rig r;
    struct md_disk *disk;
    struct md_err err; /* of a failed start */
};
/* A process begins: open disk and pool.  Always sr_stop afterwards.
 * alloc  for both; NULL: the C heap
 * Errors as md_disk_open, md_pool_open, md_pool_new (r.session is the new one). */
enum md_status sr_try_start(struct store_rig *s, struct md_pool_config config, int64_t budget_bytes,
                            const struct md_alloc *alloc);
void sr_start(struct store_rig *s, struct md_pool_config config, int64_t budget_bytes); /* or fail the test */
/* It ends; nothing is written, as when it is killed. */
void sr_stop(struct store_rig *s);

/* The conversation with this context, token for token; NULL: there is none. */
struct md_session *sr_find(const struct store_rig *s, const md_token *tokens, int32_t count);
/* How many conversations have any context. */
int sr_used(const struct store_rig *s);

/* What lies in the folder of the one identity. */
struct sr_files {
    int blocks, records, temporary;
    int64_t pages;     /* bytes of blocks and records, in whole pages */
    int64_t all_pages; /* of all files */
};
struct sr_files sr_files(void);

#endif
