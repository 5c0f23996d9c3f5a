/* record_spec.h - the record of a conversation (session/record.h) by the words of its layout: a writer that shares no code
 * with src/session/record.c, and what must hold for everything that is accepted.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_TESTS_RECORD_SPEC_H
#define MD_TESTS_RECORD_SPEC_H

#include "session/pool.h"
#include "session/record.h"

/* Where the fields of the head are, in bytes, and where it ends. */
enum {
    RS_VERSION = 0,
    RS_FLAGS = 4,
    RS_ID = 8,
    RS_PARENT = 16,
    RS_BLOCK_TOKENS = 24,
    RS_PREFIX = 28,
    RS_CONTEXT = 32,
    RS_TAPE = 36,
    RS_COMMON = 40,
    RS_SEGMENTS = 44,
    RS_HEAD_BYTES = 48,
    RS_SEGMENT_BYTES = 44,
    RS_BLOCK_BYTES = 12
};

/* The bytes of a record, of which context and tape begin with `common` equal tokens.  Ends the program without memory. */
void rs_write(const struct md_record *r, int32_t common, struct md_buf *out);
/* One i32 of the head, and put another there. */
int32_t rs_get(const uint8_t *bytes, size_t at);
void rs_put(uint8_t *bytes, size_t at, int64_t value, int count);

/* NULL, or what of an accepted record is out of its range. */
const char *rs_wrong(const struct md_record *r);

#endif
