/* manifest.c - see manifest.h. */
#include "session/manifest.h"

#include "base/le.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { FIELD_BYTES = 64 };

void md_manifest_done(struct md_manifest *m)
{
    md_arena_done(&m->arena);
    *m = (struct md_manifest){ 0 };
}

static struct md_bytes part_of(struct md_bytes text, int64_t start, int64_t end)
{
    return (struct md_bytes){ (const char *)text.data + start, (size_t)(end - start) };
}

/* ---- labels and numbers ---- */

struct bounds {
    int64_t before, limit;
    enum md_status status; /* of what is out of them */
};

static enum md_status check_range(const char *field, int64_t start, int64_t end, struct bounds b,
                                  size_t index, struct md_err *err)
{
    if (start < b.before)
        return md_fail(err, b.status, "segments[%zu].%s_start is %lld, %s", index, field, (long long)start,
                       start < 0 ? "below 0" : "inside the segment before it");
    if (end < start)
        return md_fail(err, b.status, "segments[%zu].%s_end is %lld, before its start at %lld", index, field,
                       (long long)end, (long long)start);
    if (end > b.limit)
        return md_fail(err, b.status, "segments[%zu].%s_end is %lld, more than %lld", index, field,
                       (long long)end, (long long)b.limit);
    return MD_OK;
}

static enum md_status resolve_label(struct md_manifest_segment *g, size_t index, struct md_err *err)
{
    char field[FIELD_BYTES];
    enum md_cache_class given = MD_CLASS_COUNT;
    enum md_status s = MD_OK;
    struct md_segment_label *l = &g->label;
    if (l->name.len == 0)
        return md_fail(err, MD_INVALID, "segments[%zu].kind is missing", index);
    l->kind = md_segment_kind_parse(l->name);
    l->invalidation = MD_INVALIDATION_NONE;
    if (g->cache_class.len > 0) {
        snprintf(field, sizeof field, "segments[%zu].cache_class", index);
        s = md_cache_class_parse(g->cache_class, field, &given, err);
    }
    if (s == MD_OK && g->invalidation.len > 0) {
        snprintf(field, sizeof field, "segments[%zu].invalidation", index);
        s = md_invalidation_parse(g->invalidation, field, &l->invalidation, err);
    }
    l->cls = md_segment_class(l->kind, l->stable, given);
    return s;
}

/* misplaced: the status of a range that lies wrong */
static enum md_status resolve(struct md_manifest *m, enum md_status misplaced, struct md_err *err)
{
    if (m->segment_count > MD_MANIFEST_SEGMENTS_MAX)
        return md_fail(err, MD_INVALID, "segments: %zu are more than %d", m->segment_count,
                       MD_MANIFEST_SEGMENTS_MAX);
    if (m->total_bytes < 0 || m->total_bytes > MD_MANIFEST_TEXT_MAX)
        return md_fail(err, MD_INVALID, "total_bytes must be between 0 and %lld, got %lld",
                       (long long)MD_MANIFEST_TEXT_MAX, (long long)m->total_bytes);
    if (m->stable_bytes < 0 || m->stable_bytes > m->total_bytes)
        return md_fail(err, MD_INVALID, "stable_bytes must be between 0 and total_bytes (%lld), got %lld",
                       (long long)m->total_bytes, (long long)m->stable_bytes);
    int64_t byte = 0;
    int32_t token = 0;
    for (size_t i = 0; i < m->segment_count; i++) {
        struct md_manifest_segment *g = &m->segments[i];
        enum md_status s = resolve_label(g, i, err);
        if (s == MD_OK)
            s = check_range("byte", g->byte_start, g->byte_end,
                            (struct bounds){ byte, m->total_bytes, misplaced }, i, err);
        const bool known = g->tokens.start != 0 || g->tokens.end != 0;
        if (s == MD_OK && known)
            s = check_range("token", g->tokens.start, g->tokens.end,
                            (struct bounds){ token, INT32_MAX, misplaced }, i, err);
        if (s != MD_OK)
            return s;
        byte = g->byte_end;
        token = known ? g->tokens.end : token;
    }
    return MD_OK;
}

enum md_status md_manifest_resolve(struct md_manifest *m, struct md_err *err)
{
    return resolve(m, MD_INVALID, err);
}

/* ---- against the text ---- */

static enum md_status check_hash(const char *field, struct md_bytes given, struct md_bytes text,
                                 struct md_err *err)
{
    char hex[MD_SHA256_HEX + 1];
    if (given.len == 0)
        return MD_OK;
    enum md_status s = md_sha256_hex(text, hex, err);
    if (s == MD_OK && !md_bytes_equal(given, (struct md_bytes){ hex, MD_SHA256_HEX }))
        s = md_fail(err, MD_MANIFEST_MISMATCH, "%s is '%.*s', the text has '%s'", field,
                    given.len < 80 ? (int)given.len : 80, (const char *)given.data, hex);
    return s;
}

static enum md_status check_size(const char *which, struct md_bytes text, int64_t said, struct md_err *err)
{
    if ((uint64_t)said == text.len)
        return MD_OK;
    return md_fail(err, MD_MANIFEST_MISMATCH, "the %s text has %zu bytes, the manifest says %lld", which,
                   text.len, (long long)said);
}

/* One behind the other, the stable ones over exactly the stable bytes, the others over exactly the rest. */
static enum md_status check_tiling(const struct md_manifest *m, struct md_err *err)
{
    int64_t at = 0;
    for (size_t i = 0; i < m->segment_count; i++) {
        const struct md_manifest_segment *g = &m->segments[i];
        if (g->byte_start != at)
            return md_fail(err, MD_MANIFEST_MISMATCH,
                           "segments[%zu] starts at byte %lld, the one before it ends at %lld", i,
                           (long long)g->byte_start, (long long)at);
        if (g->label.stable ? g->byte_end > m->stable_bytes : g->byte_start < m->stable_bytes)
            return md_fail(err, MD_MANIFEST_MISMATCH,
                           "segments[%zu] is %s and has bytes %lld to %lld, the stable text has %lld", i,
                           g->label.stable ? "stable" : "volatile", (long long)g->byte_start,
                           (long long)g->byte_end, (long long)m->stable_bytes);
        at = g->byte_end;
    }
    if (m->segment_count > 0 && at != m->total_bytes)
        return md_fail(err, MD_MANIFEST_MISMATCH, "the segments end at byte %lld, the text has %lld",
                       (long long)at, (long long)m->total_bytes);
    return MD_OK;
}

enum md_status md_manifest_check_text(const struct md_manifest *m, const struct md_bytes *stable_text,
                                      const struct md_bytes *volatile_text, struct md_err *err)
{
    char field[FIELD_BYTES];
    enum md_status s = check_tiling(m, err);
    if (s == MD_OK && stable_text != NULL)
        s = check_size("stable", *stable_text, m->stable_bytes, err);
    if (s == MD_OK && volatile_text != NULL)
        s = check_size("volatile", *volatile_text, m->total_bytes - m->stable_bytes, err);
    if (s == MD_OK && stable_text != NULL)
        s = check_hash("stable_byte_hash", m->stable_byte_hash, *stable_text, err);
    for (size_t i = 0; i < m->segment_count && s == MD_OK; i++) {
        const struct md_manifest_segment *g = &m->segments[i];
        const int64_t base = g->label.stable ? 0 : m->stable_bytes;
        const struct md_bytes *text = g->label.stable ? stable_text : volatile_text;
        snprintf(field, sizeof field, "segments[%zu].byte_hash", i);
        if (text != NULL)
            s = check_hash(field, g->byte_hash, part_of(*text, g->byte_start - base, g->byte_end - base),
                           err);
    }
    return s;
}

/* ---- building ---- */

static enum md_status copy(struct md_arena *a, struct md_bytes *string, const char *field, struct md_err *err)
{
    if (string->len == 0) {
        *string = (struct md_bytes){ 0 };
        return MD_OK;
    }
    if (field != NULL && string->len > MD_MANIFEST_WORD_MAX)
        return md_fail(err, MD_INVALID, "%s has %zu bytes, more than %d", field, string->len,
                       MD_MANIFEST_WORD_MAX);
    string->data = md_arena_strndup(a, string->data, string->len);
    return string->data != NULL
               ? MD_OK
               : md_fail(err, MD_NO_MEMORY, "manifest of more than %d bytes", MD_MANIFEST_MEMORY_MAX);
}

static enum md_status copy_id(struct md_arena *a, struct md_manifest_id *id, struct md_err *err)
{
    const struct {
        const char *field;
        struct md_bytes *string;
    } all[] = {
        { "profile_id", &id->profile_id },
        { "backend", &id->backend },
        { "backend_version", &id->backend_version },
        { "model_digest", &id->model_digest },
        { "prompt_format", &id->prompt_format },
        { "prompt_template_digest", &id->prompt_template_digest },
        { "runtime_digest", &id->runtime_digest },
    };
    enum md_status s = MD_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && s == MD_OK; i++)
        s = copy(a, all[i].string, all[i].field, err);
    return s;
}

static enum md_status copy_segment(struct md_arena *a, struct md_manifest_segment *g, struct md_err *err)
{
    const struct {
        const char *field;
        struct md_bytes *string;
    } all[] = {
        { "kind", &g->label.name },           { "cache_class", &g->cache_class },
        { "invalidation", &g->invalidation }, { "byte_hash", &g->byte_hash },
        { "token_hash", &g->token_hash },     { "tool_call_id", &g->tool_call_id },
        { NULL, &g->tool_calls_json },
    };
    enum md_status s = MD_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && s == MD_OK; i++)
        s = copy(a, all[i].string, all[i].field, err);
    return s;
}

/* The digest of `text` as a string of the arena. */
static enum md_status hash_of(struct md_arena *a, struct md_bytes text, struct md_bytes *ret,
                              struct md_err *err)
{
    char hex[MD_SHA256_HEX + 1];
    enum md_status s = md_sha256_hex(text, hex, err);
    struct md_bytes string = { hex, MD_SHA256_HEX };
    if (s == MD_OK)
        s = copy(a, &string, NULL, err);
    if (s == MD_OK)
        *ret = string;
    return s;
}

static enum md_status fill(struct md_manifest *m, struct md_bytes stable_text, struct md_bytes volatile_text,
                           struct md_err *err)
{
    enum md_status s = hash_of(&m->arena, stable_text, &m->stable_byte_hash, err);
    for (size_t i = 0; i < m->segment_count && s == MD_OK; i++) {
        struct md_manifest_segment *g = &m->segments[i];
        const int64_t base = g->label.stable ? 0 : m->stable_bytes;
        const struct md_bytes text = g->label.stable ? stable_text : volatile_text;
        const char *cls = md_cache_class_name(g->label.cls);
        if (g->cache_class.len == 0)
            g->cache_class = (struct md_bytes){ cls, strlen(cls) };
        if (g->byte_hash.len == 0)
            s = hash_of(&m->arena, part_of(text, g->byte_start - base, g->byte_end - base), &g->byte_hash,
                        err);
    }
    return s;
}

enum md_status md_manifest_build(const struct md_manifest_id *id, struct md_bytes stable_text,
                                 struct md_bytes volatile_text, const struct md_manifest_segment *segments,
                                 size_t count, const struct md_alloc *alloc, struct md_manifest *ret,
                                 struct md_err *err)
{
    if (count > MD_MANIFEST_SEGMENTS_MAX)
        return md_fail(err, MD_INVALID, "segments: %zu are more than %d", count, MD_MANIFEST_SEGMENTS_MAX);
    if (stable_text.len > (size_t)MD_MANIFEST_TEXT_MAX || volatile_text.len > (size_t)MD_MANIFEST_TEXT_MAX)
        return md_fail(err, MD_INVALID, "total_bytes is more than %lld", (long long)MD_MANIFEST_TEXT_MAX);
    struct md_manifest m = { .id = *id,
                             .stable_bytes = (int64_t)stable_text.len,
                             .total_bytes = (int64_t)(stable_text.len + volatile_text.len),
                             .segment_count = count };
    md_arena_init(&m.arena, alloc, MD_MANIFEST_MEMORY_MAX);
    enum md_status s = copy_id(&m.arena, &m.id, err);
    if (s == MD_OK && count > 0) {
        m.segments = md_arena_get(&m.arena, count, sizeof *m.segments);
        s = m.segments != NULL ? MD_OK : md_fail(err, MD_NO_MEMORY, "manifest of %zu segments", count);
    }
    for (size_t i = 0; i < count && s == MD_OK; i++) {
        m.segments[i] = segments[i];
        s = copy_segment(&m.arena, &m.segments[i], err);
    }
    if (s == MD_OK)
        s = resolve(&m, MD_MANIFEST_MISMATCH, err);
    if (s == MD_OK) /* what is given must be right before what is not given is filled in */
        s = md_manifest_check_text(&m, &stable_text, &volatile_text, err);
    if (s == MD_OK)
        s = fill(&m, stable_text, volatile_text, err);
    if (s != MD_OK) {
        md_manifest_done(&m);
        return s;
    }
    *ret = m;
    return MD_OK;
}

/* ---- identity ---- */

bool md_manifest_is_zero(const struct md_manifest *m)
{
    const struct md_manifest_id *id = &m->id;
    return id->backend.len + id->profile_id.len + id->model_digest.len + id->prompt_format.len +
               id->prompt_template_digest.len + id->runtime_digest.len + m->stable_byte_hash.len ==
           0;
}

const char *md_manifest_incompatible(const struct md_manifest *a, const struct md_manifest *b)
{
    const struct md_manifest_id *x = &a->id, *y = &b->id;
    if (md_manifest_is_zero(a) || md_manifest_is_zero(b))
        return NULL;
    if (!md_bytes_equal(x->profile_id, y->profile_id))
        return "profile_id changed";
    if (!md_bytes_equal(x->backend, y->backend))
        return "backend changed";
    if (!md_bytes_equal(x->backend_version, y->backend_version))
        return "backend_version changed";
    if (!md_bytes_equal(x->model_digest, y->model_digest))
        return "model_digest changed";
    if (!md_bytes_equal(x->prompt_format, y->prompt_format))
        return "prompt_format changed";
    if (!md_bytes_equal(x->prompt_template_digest, y->prompt_template_digest))
        return "prompt_template_digest changed";
    if (!md_bytes_equal(x->runtime_digest, y->runtime_digest))
        return "runtime_digest changed";
    return x->add_bos != y->add_bos ? "bos policy changed" : NULL;
}

/* ---- tokens ---- */

enum md_status md_manifest_token_hash(const md_token *tokens, size_t count, char ret_hex[MD_SHA256_HEX + 1],
                                      struct md_err *err)
{
    enum { AT_ONCE = 64 };
    unsigned char bytes[8 * AT_ONCE];
    struct md_sha256 h;
    md_sha256_init(&h);
    for (size_t i = 0; i < count;) {
        size_t n = 0;
        for (; n < AT_ONCE && i < count; n++, i++)
            md_le_store(bytes + 8 * n, (uint64_t)(int64_t)tokens[i], 8);
        md_sha256_update(&h, bytes, 8 * n);
    }
    return md_sha256_finish(&h, ret_hex, err);
}

/* hex: room for one digest.  "" for no tokens. */
static enum md_status hash_range(const md_token *tokens, int32_t start, int32_t end, char *hex,
                                 struct md_bytes *ret, struct md_err *err)
{
    *ret = (struct md_bytes){ 0 };
    if (start == end)
        return MD_OK;
    *ret = (struct md_bytes){ hex, MD_SHA256_HEX };
    return md_manifest_token_hash(tokens + start, (size_t)(end - start), hex, err);
}

enum md_status md_manifest_set_tokens(struct md_manifest *m, const struct md_range *ranges,
                                      const md_token *tokens, size_t count, struct md_err *err)
{
    enum { ROOM = MD_SHA256_HEX + 1 };
    const size_t n = m->segment_count;
    int32_t at = 0, stable_end = 0;
    struct md_bytes stable, rest;
    if (count > INT32_MAX)
        return md_fail(err, MD_INVALID, "%zu tokens are more than %d", count, INT32_MAX);
    for (size_t i = 0; i < n; i++) {
        enum md_status s = check_range("token", ranges[i].start, ranges[i].end,
                                       (struct bounds){ at, (int64_t)count, MD_INVALID }, i, err);
        if (s != MD_OK)
            return s;
        at = ranges[i].end;
        stable_end = m->segments[i].label.stable ? at : stable_end;
    }
    char(*hex)[ROOM] = md_arena_get(&m->arena, n + 2, ROOM);
    struct md_bytes *hashes = md_arena_get(&m->arena, n + 1, sizeof *hashes);
    if (hex == NULL || hashes == NULL)
        return md_fail(err, MD_NO_MEMORY, "token hashes of %zu segments", n);
    enum md_status s = hash_range(tokens, 0, stable_end, hex[n], &stable, err);
    if (s == MD_OK)
        s = hash_range(tokens, stable_end, (int32_t)count, hex[n + 1], &rest, err);
    for (size_t i = 0; i < n && s == MD_OK; i++)
        s = hash_range(tokens, ranges[i].start, ranges[i].end, hex[i], &hashes[i], err);
    if (s != MD_OK)
        return s;
    for (size_t i = 0; i < n; i++) {
        m->segments[i].tokens = ranges[i];
        m->segments[i].token_hash = hashes[i];
    }
    m->stable_token_hash = stable;
    m->volatile_token_hash = rest;
    return MD_OK;
}
