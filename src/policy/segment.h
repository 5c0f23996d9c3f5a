/* segment.h - what a part of a prompt is, and how dear it is.  Pure: no engine, clock, lock or I/O.
 *
 * A segment is a stretch of a prompt that its sender gave a kind: the system text, a map of the repository,
 * the output of a terminal, a turn.  The kind says in which order segments are put together (what seldom
 * changes first, so that its KV is found again) and which cache class its KV is in.
 *
 * Source: kinds, default classes and names are those of the session protocol's manifest; ranks of the kinds
 * beyond `user` are this project's. */
#ifndef MD_POLICY_SEGMENT_H
#define MD_POLICY_SEGMENT_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"
#include "policy/residency.h"

enum md_segment_kind {
    MD_SEGMENT_SYSTEM, /* stable ones, in the order of a prompt */
    MD_SEGMENT_TOOLS,
    MD_SEGMENT_REPO_RULES,
    MD_SEGMENT_REPO_MAP,
    MD_SEGMENT_PINNED,
    MD_SEGMENT_DIFF, /* volatile ones, likewise */
    MD_SEGMENT_TERMINAL,
    MD_SEGMENT_USER,
    MD_SEGMENT_ASSISTANT, /* what a template makes of a conversation */
    MD_SEGMENT_TOOL,
    MD_SEGMENT_ASSISTANT_PROMPT,
    MD_SEGMENT_BOS,
    MD_SEGMENT_OTHER, /* a name that is not known here; it stays as it was given */
    MD_SEGMENT_KIND_COUNT
};

/* When the sender expects the text to change; what follows from it is done by session/turn.c.
 *   on_edit  a prompt that differs inside the segment or leaves it out: the KV from its start on is dropped, not kept in
 *            the cold store
 *   on_turn  when the answer is there: likewise */
enum md_invalidation { MD_INVALIDATION_NONE, MD_INVALIDATION_ON_EDIT, MD_INVALIDATION_ON_TURN };

/* "system", "repo_rules", ...; "other" for OTHER.  Never NULL. */
const char *md_segment_kind_name(enum md_segment_kind kind);
/* The kind of that very name, else OTHER: names are words of the protocol, not of people. */
enum md_segment_kind md_segment_kind_parse(struct md_bytes name);
/* Where a kind stands when segments are put together, lowest first; equal ones keep the order they have.
 * bos, the eight from system to user; turns, answers and names that are not known stand with user. */
int md_segment_rank(enum md_segment_kind kind);

/* The class of a segment that was given none (MD_CLASS_COUNT), else the one it was given.
 *   system tools repo_rules -> task_pinned; repo_map pinned -> repo_map; all others that are named above
 *   -> volatile; bos and other -> task_pinned if stable, else volatile */
enum md_cache_class md_segment_class(enum md_segment_kind kind, bool stable, enum md_cache_class given);

/* "task_pinned", "repo_map", "volatile".  Never NULL. */
const char *md_cache_class_name(enum md_cache_class cls);
/* "none", "on_edit", "on_turn".  Never NULL. */
const char *md_invalidation_name(enum md_invalidation i);
/* From a name in any case, with blanks around it.  `field` names the place in the error.
 * MD_INVALID  another name, or none */
MD_MUST_USE enum md_status md_cache_class_parse(struct md_bytes name, const char *field,
                                                enum md_cache_class *ret_class, struct md_err *err);
MD_MUST_USE enum md_status md_invalidation_parse(struct md_bytes name, const char *field,
                                                 enum md_invalidation *ret, struct md_err *err);

/* All that is said of a segment besides its place. */
struct md_segment_label {
    struct md_bytes name; /* the kind as it was given: borrowed */
    enum md_segment_kind kind;
    enum md_cache_class cls;
    bool stable; /* belongs to the prefix that is meant to be found again */
    enum md_invalidation invalidation;
};
/* The label of a name that brings no class and no hint; `name` is borrowed. */
struct md_segment_label md_segment_label_of(struct md_bytes name, bool stable);

/* ---- blocks ---- */

struct md_segment_span {
    struct md_range range;
    enum md_cache_class cls;
};

/* The class of a block: the least evictable one of the segments it shares a token with; volatile if none.
 * spans  count spans, ascending, not overlapping; empty ones are passed over */
enum md_cache_class md_segment_block_class(struct md_range block, const struct md_segment_span *spans,
                                           size_t count);

#endif
