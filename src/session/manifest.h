/* manifest.h - what a client says of the context it sends: who made it, where its segments lie, their hashes.
 *
 * A context is a stable text (meant to be found again) and a volatile one behind it; segments lie one behind
 * the other over both, bytes counted from the start of the stable text.  The identity says what the text was
 * made for: KV made under another identity must not be reused.
 *
 * All strings are borrowed from the manifest's arena, which has a limit from birth; a manifest may be moved
 * (the struct copied) but not shared.  "" is a string that is not given; a zeroed struct is the zero manifest.
 *
 * Threads: one at a time.  Source: the session protocol; JSON and digest are in session/manifest_json.h. */
#ifndef MD_SESSION_MANIFEST_H
#define MD_SESSION_MANIFEST_H

#include "base/err.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/types.h"
#include "policy/segment.h"

enum {
    MD_MANIFEST_SEGMENTS_MAX = 4096,
    MD_MANIFEST_WORD_MAX = 4096,       /* bytes of one string but tool_calls_json */
    MD_MANIFEST_MEMORY_MAX = 64 << 20, /* of the arena */
};
#define MD_MANIFEST_TEXT_MAX ((int64_t)1 << 40) /* bytes of the text it may speak of */

struct md_manifest_id {
    struct md_bytes profile_id, backend, backend_version, model_digest, prompt_format, prompt_template_digest,
        runtime_digest;
    bool add_bos;
};

struct md_manifest_segment {
    struct md_segment_label label; /* name: the kind as given; the rest is resolved from what was given */
    struct md_bytes cache_class, invalidation; /* as given */
    int64_t byte_start, byte_end;
    struct md_bytes byte_hash;
    struct md_range tokens; /* {0, 0}: not known */
    struct md_bytes token_hash;
    struct md_bytes tool_calls_json, tool_call_id; /* of a segment that is a chat message */
};

struct md_manifest {
    struct md_arena arena;
    struct md_manifest_id id;
    int64_t stable_bytes, total_bytes;
    struct md_bytes stable_byte_hash, stable_token_hash, volatile_token_hash;
    struct md_manifest_segment *segments;
    size_t segment_count;
};

void md_manifest_done(struct md_manifest *m); /* accepts a zeroed struct, which it becomes again */

/* Make the manifest of two texts.
 *
 * segments  borrowed for the call, everything is copied: label.name, label.stable, the byte range and what
 *           else is given.  Either none, or they lie one behind the other from byte 0 to the last, the stable
 *           ones first and over exactly the stable text
 * Filled in: sizes, the hash of the stable text, hashes of segments, cache classes (md_segment_class).
 *
 * MD_MANIFEST_MISMATCH  segments lie otherwise, or a hash that is given is not that of the text
 * MD_INVALID            a name is missing, unknown or too long, a number out of range: the text names the field
 * MD_NO_MEMORY          the heap, or the arena's limit
 * State: ret untouched on failure. */
MD_MUST_USE enum md_status md_manifest_build(const struct md_manifest_id *id, struct md_bytes stable_text,
                                             struct md_bytes volatile_text,
                                             const struct md_manifest_segment *segments, size_t count,
                                             const struct md_alloc *alloc, struct md_manifest *ret,
                                             struct md_err *err);

/* Resolve the labels of all segments from their names and check every number of a manifest that came from
 * outside (md_manifest_read has done it): ranges within the text, ascending, not overlapping.  Says nothing
 * of the text itself.  MD_INVALID: the text names the field. */
MD_MUST_USE enum md_status md_manifest_resolve(struct md_manifest *m, struct md_err *err);

/* Does a manifest describe these texts?  NULL: not known yet, and not looked at.  Sizes and segments must be
 * as md_manifest_build wants them; hashes that are given must be those of the text.
 * MD_MANIFEST_MISMATCH: the text says what differs.  MD_NO_MEMORY: the digest. */
MD_MUST_USE enum md_status md_manifest_check_text(const struct md_manifest *m,
                                                  const struct md_bytes *stable_text,
                                                  const struct md_bytes *volatile_text, struct md_err *err);

/* Nothing of it says what it was made for: it fits everything and has no digest. */
bool md_manifest_is_zero(const struct md_manifest *m);
/* NULL when KV made under one may be used under the other (either is zero, or the identities are equal), else
 * what differs: "model_digest changed", "bos policy changed".  Static text.  The stable hash has no say. */
const char *md_manifest_incompatible(const struct md_manifest *a, const struct md_manifest *b);

/* SHA-256 over the ids, each as eight bytes, the lowest first.  MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_manifest_token_hash(const md_token *tokens, size_t count,
                                                  char ret_hex[MD_SHA256_HEX + 1], struct md_err *err);

/* Say which tokens the segments have.
 *
 * ranges  one per segment, ascending, not overlapping, within [0, count); empty ones allowed
 * Sets tokens and token_hash of every segment ("" for an empty range), stable_token_hash over all tokens
 * before the end of the last stable segment and volatile_token_hash over the rest ("" for none).
 * MD_INVALID ranges; MD_NO_MEMORY.  State: as before on failure. */
MD_MUST_USE enum md_status md_manifest_set_tokens(struct md_manifest *m, const struct md_range *ranges,
                                                  const md_token *tokens, size_t count, struct md_err *err);

#endif
