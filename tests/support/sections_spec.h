/* sections_spec.h - files of sections built from the words of host/sections.h, without its code: the right
 * bytes that the writer must make, and the wrong ones that the reader must refuse.
 *
 *     struct sections_spec f;
 *     ss_begin(&f, 1, 7);                          version, kind
 *     ss_section(&f, "TAPE", 0, "abc", 3);
 *     ss_end(&f);                                  count and hashes as they have to be
 *     ... f.buf.data, f.buf.len; write over what shall be wrong ...
 *     ss_done(&f);
 *
 * Little-endian machines only.  Threads: one at a time. */
#ifndef MD_TESTS_SECTIONS_SPEC_H
#define MD_TESTS_SECTIONS_SPEC_H

#include "base/mem.h"
#include "host/sections.h"

#include <stdbool.h>
#include <stdint.h>

enum { SS_HEADER_BYTES = 32, SS_HEAD_BYTES = 24, SS_END_BYTES = 48, SS_KIND = 7 };
#define SS_TYPE(text) MD_SECTION_TYPE((text)[0], (text)[1], (text)[2], (text)[3])

struct sections_spec {
    struct md_buf buf;
    uint64_t count;
};

void ss_begin(struct sections_spec *f, uint32_t version, uint32_t kind);
void ss_section(struct sections_spec *f, const char *type, uint32_t flags, const void *data, size_t len);
void ss_end(struct sections_spec *f);
void ss_done(struct sections_spec *f);

/* Put count, hashes, padding and the end section right for the lengths that stand in the file, as far as they
 * lead. len: at least 80 and a multiple of 8. */
void ss_reseal(uint8_t *file, size_t len);

/* What the tests read: files of SS_KIND with TAPE, KVKV, META and "A  B". */
extern const uint32_t ss_known[4];
/* A reader of bytes in memory; they may be changed behind its back through ret_fd, which the caller closes
 * (NULL: no). */
MD_MUST_USE enum md_status ss_open_bytes(const void *data, size_t len, struct md_sections_reader **ret_reader,
                                         int *ret_fd, struct md_err *err);
/* Read all sections, payloads in pieces of at most piece_bytes, and build the file again from them. */
MD_MUST_USE enum md_status ss_read_all(struct md_sections_reader *r, size_t piece_bytes,
                                       struct sections_spec *ret_file, struct md_err *err);

#endif
