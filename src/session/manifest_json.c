/* manifest_json.c - see manifest_json.h.  One table says which key is which member, for both directions: it stands
 * in the order of the canonical form. */
#include "session/manifest_json.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yyjson.h>

enum type { WORD, TEXT, BOOL, BYTES, TOKENS, SEGMENTS }; /* TEXT: a string of any length */

struct field {
    const char *key;
    enum type type;
    bool omit_empty;
    size_t offset;
};

#define IN_MANIFEST(key, type, omit, member)                  \
    {                                                         \
        key, type, omit, offsetof(struct md_manifest, member) \
    }
#define IN_SEGMENT(key, type, omit, member)                           \
    {                                                                 \
        key, type, omit, offsetof(struct md_manifest_segment, member) \
    }

static const struct field manifest_fields[] = {
    IN_MANIFEST("profile_id", WORD, true, id.profile_id),
    IN_MANIFEST("backend", WORD, false, id.backend),
    IN_MANIFEST("backend_version", WORD, true, id.backend_version),
    IN_MANIFEST("model_digest", WORD, true, id.model_digest),
    IN_MANIFEST("prompt_format", WORD, false, id.prompt_format),
    IN_MANIFEST("prompt_template_digest", WORD, false, id.prompt_template_digest),
    IN_MANIFEST("runtime_digest", WORD, false, id.runtime_digest),
    IN_MANIFEST("add_bos", BOOL, false, id.add_bos),
    IN_MANIFEST("stable_bytes", BYTES, false, stable_bytes),
    IN_MANIFEST("total_bytes", BYTES, false, total_bytes),
    IN_MANIFEST("stable_byte_hash", WORD, false, stable_byte_hash),
    IN_MANIFEST("stable_token_hash", WORD, true, stable_token_hash),
    IN_MANIFEST("volatile_token_hash", WORD, true, volatile_token_hash),
    IN_MANIFEST("segments", SEGMENTS, true, segments),
};
static const struct field segment_fields[] = {
    IN_SEGMENT("kind", WORD, false, label.name),
    IN_SEGMENT("stable", BOOL, false, label.stable),
    IN_SEGMENT("cache_class", WORD, true, cache_class),
    IN_SEGMENT("invalidation", WORD, true, invalidation),
    IN_SEGMENT("byte_start", BYTES, false, byte_start),
    IN_SEGMENT("byte_end", BYTES, false, byte_end),
    IN_SEGMENT("byte_hash", WORD, false, byte_hash),
    IN_SEGMENT("token_start", TOKENS, true, tokens.start),
    IN_SEGMENT("token_end", TOKENS, true, tokens.end),
    IN_SEGMENT("token_hash", WORD, true, token_hash),
    IN_SEGMENT("tool_calls_json", TEXT, true, tool_calls_json),
    IN_SEGMENT("tool_call_id", WORD, true, tool_call_id),
};
enum {
    MANIFEST_FIELDS = sizeof manifest_fields / sizeof manifest_fields[0],
    SEGMENT_FIELDS = sizeof segment_fields / sizeof segment_fields[0]
};

/* ---- reading ---- */

struct reader {
    struct md_manifest m;
    struct md_err *err;
    char where[48]; /* "" or "segments[12]." */
};

static enum md_status wants(struct reader *r, const struct field *f, const char *what, yyjson_val *v)
{
    return md_fail(r->err, MD_INVALID, "%s%s must be %s, got %s", r->where, f->key, what,
                   yyjson_get_type_desc(v));
}

static enum md_status read_string(struct reader *r, const struct field *f, yyjson_val *v,
                                  struct md_bytes *ret)
{
    if (!yyjson_is_str(v))
        return wants(r, f, "a string", v);
    const size_t len = yyjson_get_len(v);
    if (f->type == WORD && len > MD_MANIFEST_WORD_MAX)
        return md_fail(r->err, MD_INVALID, "%s%s has %zu bytes, more than %d", r->where, f->key, len,
                       MD_MANIFEST_WORD_MAX);
    if (len == 0)
        return MD_OK;
    ret->len = len;
    ret->data = md_arena_strndup(&r->m.arena, yyjson_get_str(v), len);
    return ret->data != NULL ? MD_OK : md_fail(r->err, MD_NO_MEMORY, "manifest: %s%s", r->where, f->key);
}

static enum md_status read_integer(struct reader *r, const struct field *f, yyjson_val *v, int64_t high,
                                   int64_t *ret)
{
    if (!yyjson_is_int(v))
        return wants(r, f, "a whole number", v);
    if (yyjson_is_sint(v))
        return md_fail(r->err, MD_INVALID, "%s%s must be between 0 and %lld, got %lld", r->where, f->key,
                       (long long)high, (long long)yyjson_get_sint(v));
    if (yyjson_get_uint(v) > (uint64_t)high)
        return md_fail(r->err, MD_INVALID, "%s%s must be between 0 and %lld, got %llu", r->where, f->key,
                       (long long)high, (unsigned long long)yyjson_get_uint(v));
    *ret = (int64_t)yyjson_get_uint(v);
    return MD_OK;
}

static enum md_status read_object(struct reader *r, yyjson_val *v, const struct field *fields, int count,
                                  void *base);

static enum md_status read_segments(struct reader *r, const struct field *f, yyjson_val *v)
{
    if (!yyjson_is_arr(v))
        return wants(r, f, "an array", v);
    const size_t count = yyjson_arr_size(v);
    if (count > MD_MANIFEST_SEGMENTS_MAX)
        return md_fail(r->err, MD_INVALID, "segments: %zu are more than %d", count, MD_MANIFEST_SEGMENTS_MAX);
    if (count == 0)
        return MD_OK;
    r->m.segments = md_arena_get(&r->m.arena, count, sizeof *r->m.segments);
    if (r->m.segments == NULL)
        return md_fail(r->err, MD_NO_MEMORY, "manifest of %zu segments", count);
    yyjson_arr_iter it = yyjson_arr_iter_with(v);
    yyjson_val *item;
    enum md_status s = MD_OK;
    for (size_t i = 0; s == MD_OK && (item = yyjson_arr_iter_next(&it)) != NULL; i++) {
        snprintf(r->where, sizeof r->where, "segments[%zu]", i);
        if (!yyjson_is_obj(item))
            return md_fail(r->err, MD_INVALID, "%s must be an object, got %s", r->where,
                           yyjson_get_type_desc(item));
        strcat(r->where, ".");
        s = read_object(r, item, segment_fields, SEGMENT_FIELDS, &r->m.segments[i]);
    }
    r->where[0] = '\0';
    r->m.segment_count = count;
    return s;
}

static enum md_status read_field(struct reader *r, const struct field *f, yyjson_val *v, void *base)
{
    void *member = (char *)base + f->offset;
    int64_t number = 0;
    enum md_status s = MD_OK;
    switch (f->type) {
    case WORD:
    case TEXT: return read_string(r, f, v, member);
    case BOOL:
        if (!yyjson_is_bool(v))
            return wants(r, f, "true or false", v);
        *(bool *)member = yyjson_get_bool(v);
        return MD_OK;
    case BYTES: return read_integer(r, f, v, MD_MANIFEST_TEXT_MAX, member);
    case TOKENS:
        s = read_integer(r, f, v, INT32_MAX, &number);
        *(int32_t *)member = (int32_t)number;
        return s;
    case SEGMENTS: break;
    }
    return read_segments(r, f, v);
}

static enum md_status read_object(struct reader *r, yyjson_val *v, const struct field *fields, int count,
                                  void *base)
{
    unsigned seen = 0;
    yyjson_obj_iter it = yyjson_obj_iter_with(v);
    yyjson_val *key;
    enum md_status s = MD_OK;
    while (s == MD_OK && (key = yyjson_obj_iter_next(&it)) != NULL) {
        const char *name = yyjson_get_str(key);
        const size_t len = yyjson_get_len(key);
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        int i = 0;
        while (i < count && (len != strlen(fields[i].key) || strncasecmp(name, fields[i].key, len) != 0))
            i++;
        if (i == count)
            continue;
        if ((seen & 1u << i) != 0)
            return md_fail(r->err, MD_INVALID, "%s%s is there twice", r->where, fields[i].key);
        seen |= 1u << i;
        if (!yyjson_is_null(value))
            s = read_field(r, &fields[i], value, base);
    }
    return s;
}

enum md_status md_manifest_read_value(struct yyjson_val *object, const struct md_alloc *alloc,
                                      struct md_manifest *ret, struct md_err *err)
{
    struct reader r = { .err = err };
    if (!yyjson_is_obj(object))
        return md_fail(err, MD_INVALID, "a manifest must be an object, got %s", yyjson_get_type_desc(object));
    md_arena_init(&r.m.arena, alloc, MD_MANIFEST_MEMORY_MAX);
    enum md_status s = read_object(&r, object, manifest_fields, MANIFEST_FIELDS, &r.m);
    if (s == MD_OK)
        s = md_manifest_resolve(&r.m, err);
    if (s != MD_OK) {
        md_manifest_done(&r.m);
        return s;
    }
    *ret = r.m;
    return MD_OK;
}

/* What the parser would take memory for before anybody looks at it. */
static enum md_status guard(struct md_bytes json, struct md_err *err)
{
    const char *p = json.data;
    int depth = 0;
    size_t values = 1;
    if (json.len > MD_MANIFEST_JSON_MAX)
        return md_fail(err, MD_INVALID, "a manifest of %zu bytes is larger than %d", json.len,
                       MD_MANIFEST_JSON_MAX);
    for (size_t i = 0; i < json.len; i++) {
        if (p[i] == '"') {
            for (i++; i < json.len && p[i] != '"'; i++)
                i += p[i] == '\\';
        } else if (p[i] == '{' || p[i] == '[') {
            values++;
            depth++;
        } else if (p[i] == '}' || p[i] == ']') {
            depth--; /* may fall below 0: the parser refuses that */
        } else if (p[i] == ',' || p[i] == ':') {
            values++;
        }
        if (depth > MD_MANIFEST_JSON_DEPTH)
            return md_fail(err, MD_INVALID, "a manifest nested deeper than %d levels at byte %zu",
                           MD_MANIFEST_JSON_DEPTH, i);
        if (values > MD_MANIFEST_JSON_VALUES_MAX)
            return md_fail(err, MD_INVALID, "a manifest of more than %d values", MD_MANIFEST_JSON_VALUES_MAX);
    }
    return MD_OK;
}

static void *take(void *user, size_t size)
{
    return md_realloc(user, NULL, size);
}

static void *retake(void *user, void *old, size_t old_size, size_t size)
{
    (void)old_size;
    return md_realloc(user, old, size);
}

static void give_back(void *user, void *p)
{
    md_free(user, p);
}

enum md_status md_manifest_read(struct md_bytes json, const struct md_alloc *alloc, struct md_manifest *ret,
                                struct md_err *err)
{
    enum md_status s = guard(json, err);
    if (s != MD_OK)
        return s;
    const yyjson_alc heap = { take, retake, give_back, (void *)alloc };
    yyjson_read_err trouble;
    yyjson_doc *doc = yyjson_read_opts(json.len > 0 ? (char *)json.data : (char *)"", json.len,
                                       YYJSON_READ_NOFLAG, &heap, &trouble);
    if (doc == NULL && trouble.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return md_fail(err, MD_NO_MEMORY, "manifest of %zu bytes", json.len);
    if (doc == NULL)
        return md_fail(err, MD_INVALID, "a manifest that is not JSON: %s at byte %zu", trouble.msg,
                       trouble.pos);
    s = md_manifest_read_value(yyjson_doc_get_root(doc), alloc, ret, err);
    yyjson_doc_free(doc);
    return s;
}

/* ---- writing ---- */

/* The escape of the character of n bytes at p (n = 0: of one bad byte), or "": it stands for itself. */
static const char *escape(const unsigned char *p, size_t n, char buf[8])
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    if (n == 0)
        return "\\ufffd";
    if (n == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9))
        return p[2] == 0xa8 ? "\\u2028" : "\\u2029";
    buf[0] = '\0';
    const char *at = n == 1 && p[0] != '\0' ? strchr(from, p[0]) : NULL;
    if (at != NULL)
        snprintf(buf, 8, "\\%c", to[at - from]);
    else if (n == 1 && (p[0] < 0x20 || p[0] == '<' || p[0] == '>' || p[0] == '&'))
        snprintf(buf, 8, "\\u%04x", p[0]);
    return buf;
}

static enum md_status put_string(struct md_buf *out, struct md_bytes text, struct md_err *err)
{
    const unsigned char *p = text.data;
    char buf[8];
    size_t run = 0; /* start of what can be copied as it stands */
    enum md_status s = md_buf_append(out, "\"", 1, err);
    for (size_t i = 0; i < text.len && s == MD_OK;) {
        const int at = md_utf8_step(p + i, text.len - i);
        const size_t n = at > 0 ? (size_t)at : 0, step = at > 0 ? n : 1; /* each bad byte by itself */
        const char *e = escape(p + i, n, buf);
        if (e[0] != '\0') {
            s = md_buf_append(out, p + run, i - run, err);
            if (s == MD_OK)
                s = md_buf_append(out, e, strlen(e), err);
            run = i + step;
        }
        i += step;
    }
    if (s == MD_OK && run < text.len)
        s = md_buf_append(out, p + run, text.len - run, err);
    return s == MD_OK ? md_buf_append(out, "\"", 1, err) : s;
}

static enum md_status put_object(const struct md_manifest *m, const void *base, const struct field *fields,
                                 int count, struct md_buf *out, struct md_err *err);

static enum md_status put_segments(const struct md_manifest *m, struct md_buf *out, struct md_err *err)
{
    enum md_status s = md_buf_append(out, "[", 1, err);
    for (size_t i = 0; i < m->segment_count && s == MD_OK; i++) {
        if (i > 0)
            s = md_buf_append(out, ",", 1, err);
        if (s == MD_OK)
            s = put_object(m, &m->segments[i], segment_fields, SEGMENT_FIELDS, out, err);
    }
    return s == MD_OK ? md_buf_append(out, "]", 1, err) : s;
}

static bool is_empty(const struct md_manifest *m, const struct field *f, const void *member)
{
    switch (f->type) {
    case WORD:
    case TEXT: return ((const struct md_bytes *)member)->len == 0;
    case BOOL: return !*(const bool *)member;
    case BYTES: return *(const int64_t *)member == 0;
    case TOKENS: return *(const int32_t *)member == 0;
    case SEGMENTS: break;
    }
    return m->segment_count == 0;
}

static enum md_status put_value(const struct md_manifest *m, const struct field *f, const void *member,
                                struct md_buf *out, struct md_err *err)
{
    switch (f->type) {
    case WORD:
    case TEXT: return put_string(out, *(const struct md_bytes *)member, err);
    case BOOL: return md_buf_printf(out, err, "%s", *(const bool *)member ? "true" : "false");
    case BYTES: return md_buf_printf(out, err, "%lld", (long long)*(const int64_t *)member);
    case TOKENS: return md_buf_printf(out, err, "%d", *(const int32_t *)member);
    case SEGMENTS: break;
    }
    return put_segments(m, out, err);
}

static enum md_status put_object(const struct md_manifest *m, const void *base, const struct field *fields,
                                 int count, struct md_buf *out, struct md_err *err)
{
    const char *before = "{";
    enum md_status s = MD_OK;
    for (int i = 0; i < count && s == MD_OK; i++) {
        const void *member = (const char *)base + fields[i].offset;
        if (fields[i].omit_empty && is_empty(m, &fields[i], member))
            continue;
        s = md_buf_printf(out, err, "%s\"%s\":", before, fields[i].key);
        if (s == MD_OK)
            s = put_value(m, &fields[i], member, out, err);
        before = ",";
    }
    return s == MD_OK ? md_buf_append(out, "}", 1, err) : s;
}

enum md_status md_manifest_write(const struct md_manifest *m, struct md_buf *out, struct md_err *err)
{
    const size_t len = out->len;
    enum md_status s = put_object(m, m, manifest_fields, MANIFEST_FIELDS, out, err);
    if (s != MD_OK)
        out->len = len;
    return s;
}

enum md_status md_manifest_digest(const struct md_manifest *m, const struct md_alloc *alloc,
                                  char ret_hex[MD_SHA256_HEX + 1], struct md_err *err)
{
    struct md_buf json;
    if (md_manifest_is_zero(m)) {
        ret_hex[0] = '\0';
        return MD_OK;
    }
    md_buf_init(&json, alloc, 6 * (size_t)MD_MANIFEST_MEMORY_MAX); /* a byte may become \u003c */
    enum md_status s = md_manifest_write(m, &json, err);
    if (s == MD_OK)
        s = md_sha256_hex((struct md_bytes){ json.data, json.len }, ret_hex, err);
    md_buf_done(&json);
    return s;
}
