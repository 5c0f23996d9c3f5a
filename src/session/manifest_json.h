/* manifest_json.h - a manifest as JSON: read with suspicion, written in the one form its digest is made of.
 *
 * Threads: any; nothing but the arguments is touched. */
#ifndef MD_SESSION_MANIFEST_JSON_H
#define MD_SESSION_MANIFEST_JSON_H

#include "session/manifest.h"

struct yyjson_val; /* yyjson.h */

enum {
    MD_MANIFEST_JSON_MAX = 16 << 20,       /* bytes */
    MD_MANIFEST_JSON_DEPTH = 16,           /* a manifest needs 3; what is not known may bring more */
    MD_MANIFEST_JSON_VALUES_MAX = 1 << 18, /* values and keys; 4096 full segments have 102400 */
};

/* Read an object.  Keys are matched in any case, unknown ones are passed over, null is as if it were not there.
 * Strings are kept as they are given, labels resolved and numbers checked (md_manifest_resolve).
 *
 * ret  owns copies of everything
 * MD_INVALID    not JSON (says where), not an object, too large, too deep, a known key twice, a value of another
 *               type or out of range, a word too long, or what md_manifest_resolve refuses: names the field
 * MD_NO_MEMORY  the heap, or the arena's limit
 * State: ret untouched on failure. */
MD_MUST_USE enum md_status md_manifest_read(struct md_bytes json, const struct md_alloc *alloc,
                                            struct md_manifest *ret, struct md_err *err);
/* The same for an object inside a document that was parsed already; borrowed for the call. */
MD_MUST_USE enum md_status md_manifest_read_value(struct yyjson_val *object, const struct md_alloc *alloc,
                                                  struct md_manifest *ret, struct md_err *err);

/* Append it in the canonical form: fields in the protocol's order, those that may be left out left out when
 * empty, no blanks, and strings escaped as Go's encoding/json does by default: < > & U+2028 U+2029 and what is
 * below U+0020 as escapes (five of them short), each byte that is not UTF-8 as \ufffd.
 * MD_NO_MEMORY: the buffer's limit or the heap; the buffer is as before. */
MD_MUST_USE enum md_status md_manifest_write(const struct md_manifest *m, struct md_buf *out,
                                             struct md_err *err);

/* SHA-256 of the canonical form; "" for the zero manifest.  Tool calls are part of it, token ranges and hashes
 * too: a manifest has another digest once md_manifest_set_tokens was called.  MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_manifest_digest(const struct md_manifest *m, const struct md_alloc *alloc,
                                              char ret_hex[MD_SHA256_HEX + 1], struct md_err *err);

#endif
