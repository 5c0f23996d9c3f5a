/* snapshot_spec.h - snapshots (session/snapshot.h) small enough for a fuzzer: engines with a few bytes of KV for a token, and
 * the names and hashes of a file made right again, so that what else is wrong in it gets as far as it can.
 *
 * Threads: one at a time, in one process. */
#ifndef MD_TESTS_SNAPSHOT_SPEC_H
#define MD_TESTS_SNAPSHOT_SPEC_H

#include "session/pool.h"
#include "session/snapshot.h"
#include "text/calls.h"

enum { SN_WINDOW = 128, SN_HOT = 64, SN_BLOCK = 8 };
/* All layers attend to everything; or every second one to the last few tokens, so that there are tail states. */
enum sn_kind { SN_DENSE, SN_WINDOWED, SN_KINDS };

/* One pool, with one conversation, on an engine that is opened once for each kind.  Asserts that all goes well. */
struct sn {
    struct md_pool *pool;
    struct md_session *s;
    struct md_text *text;
};
void sn_open(struct sn *n, enum sn_kind kind);
void sn_close(struct sn *n);
/* Run a prompt, greedily, and hear `answer` tokens. */
enum md_status sn_ask(struct sn *n, const struct md_context *prompt, int32_t answer, struct md_bytes notes);

/* A folder of this process, removed when it ends, and one name in it; another one for "b". */
struct md_sections_place sn_place(const char *name);
void sn_write(const struct md_sections_place *place, const uint8_t *bytes, size_t len);
size_t sn_read(const struct md_sections_place *place, uint8_t *out, size_t cap);

/* Blocks and states get the names that the record's text gives them, then the file its hashes.
 * len: as ss_reseal wants it. */
void sn_make_right(uint8_t *file, size_t len, enum sn_kind kind);

#endif
