/* gguf_value.c - values of keys, read from the file when somebody asks.
 *
 * What was checked at open may have changed since: each read is checked again, against where the metadata
 * ended then. */
#include "host/gguf_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_ELEMENTS = 64, TEXT_STRING_BYTES = 64, TEXT_ELEMENT_BYTES = 24 };

/* A cursor at the value of e. */
static void cursor_at(const struct md_gguf *f, const struct md_gguf_entry *e, struct md_gguf_cursor *c)
{
    md_gguf_cursor_init(c, f->fd, f->path, e->offset, f->first.metadata_end,
                        "in the metadata; the file was changed");
    c->kind = "key";
    c->name = e->key;
}

static enum md_status start(const struct md_gguf *f, const char *key, struct md_gguf_cursor *c,
                            const struct md_gguf_entry **ret, struct md_err *err)
{
    *ret = md_gguf_find(f, key);
    if (*ret == NULL)
        return md_fail(err, MD_NOT_FOUND, "key '%.100s' is not in '%.300s'", key, f->path);
    cursor_at(f, *ret, c);
    return MD_OK;
}

static enum md_status wrong_type(const struct md_gguf_cursor *c, const struct md_gguf_entry *e,
                                 const char *wanted, struct md_err *err)
{
    return md_gguf_fail(c, e->offset, MD_INVALID, err, "expected %s, found %s%s", wanted,
                        e->is_array ? "an array of " : "", md_gguf_type_name(e->type));
}

static enum md_status get_in_range(struct md_gguf_cursor *c, enum md_gguf_type type, int64_t low,
                                   int64_t high, int64_t *ret, struct md_err *err)
{
    const uint64_t at = c->at;
    struct md_gguf_number n;
    enum md_status s = md_gguf_get_integer(c, type, &n, err);
    if (s != MD_OK)
        return s;
    if (n.over)
        return md_gguf_fail(c, at, MD_INVALID, err, "%" PRIu64 " is not from %" PRId64 " to %" PRId64, n.u,
                            low, high);
    if (n.i < low || n.i > high)
        return md_gguf_fail(c, at, MD_INVALID, err, "%" PRId64 " is not from %" PRId64 " to %" PRId64, n.i,
                            low, high);
    *ret = n.i;
    return MD_OK;
}

enum md_status md_gguf_int(struct md_gguf *f, const char *key, int64_t low, int64_t high, int64_t *ret,
                           struct md_err *err)
{
    struct md_gguf_cursor c;
    const struct md_gguf_entry *e;
    enum md_status s = start(f, key, &c, &e, err);
    if (s != MD_OK)
        return s;
    if (e->is_array || !md_gguf_type_is_integer(e->type))
        return wrong_type(&c, e, "an integer", err);
    return get_in_range(&c, e->type, low, high, ret, err);
}

enum md_status md_gguf_ints(struct md_gguf *f, const char *key, int64_t low, int64_t high, int64_t *out,
                            size_t count, struct md_err *err)
{
    struct md_gguf_cursor c;
    const struct md_gguf_entry *e;
    int64_t v = 0;
    enum md_status s = start(f, key, &c, &e, err);
    if (s != MD_OK)
        return s;
    if (!md_gguf_type_is_integer(e->type))
        return wrong_type(&c, e, "an integer or an array of integers", err);
    if (e->is_array && e->count != count)
        return md_gguf_fail(&c, e->offset, MD_INVALID, err, "expected %zu, found %" PRIu64, count, e->count);
    if (!e->is_array)
        s = get_in_range(&c, e->type, low, high, &v, err);
    for (size_t i = 0; i < count && s == MD_OK; i++) {
        if (e->is_array)
            s = get_in_range(&c, e->type, low, high, &v, err);
        if (s == MD_OK)
            out[i] = v;
    }
    return s;
}

static enum md_status get_real(struct md_gguf_cursor *c, enum md_gguf_type type, double *ret,
                               struct md_err *err)
{
    float narrow;
    if (type == MD_GGUF_F64)
        return md_gguf_get(c, "f64", ret, sizeof *ret, err);
    enum md_status s = md_gguf_get(c, "f32", &narrow, sizeof narrow, err);
    if (s == MD_OK)
        *ret = narrow;
    return s;
}

enum md_status md_gguf_real(struct md_gguf *f, const char *key, double *ret, struct md_err *err)
{
    struct md_gguf_cursor c;
    const struct md_gguf_entry *e;
    double v = 0;
    enum md_status s = start(f, key, &c, &e, err);
    if (s != MD_OK)
        return s;
    if (e->is_array || (e->type != MD_GGUF_F32 && e->type != MD_GGUF_F64))
        return wrong_type(&c, e, "f32 or f64", err);
    s = get_real(&c, e->type, &v, err);
    if (s == MD_OK && !isfinite(v))
        s = md_gguf_fail(&c, e->offset, MD_INVALID, err, "%g is not a finite number", v);
    if (s == MD_OK)
        *ret = v;
    return s;
}

/* The length of a string and that it is there.  The cursor then stands before its bytes. */
static enum md_status get_length(struct md_gguf_cursor *c, uint64_t *ret, struct md_err *err)
{
    enum md_status s = md_gguf_get(c, "length of a string", ret, sizeof *ret, err);
    if (s == MD_OK && *ret > md_gguf_left(c))
        s = md_gguf_fail_short(c, "a string", *ret, err);
    return s;
}

/* Read at most `room` bytes of a string of `len`, and not a part of the character at the cut. */
static enum md_status get_cut(struct md_gguf_cursor *c, uint64_t len, char *out, size_t room, size_t *ret_len,
                              struct md_err *err)
{
    size_t n = len < room ? (size_t)len : room;
    uint8_t next = 0;
    enum md_status s = md_gguf_get(c, "a string", out, n, err);
    if (s == MD_OK && n < len)
        s = md_gguf_get(c, "a string", &next, 1, err);
    if (s != MD_OK)
        return s;
    size_t back = 0; /* a character has at most three bytes behind its first */
    while (back < 3 && back < n && (next & 0xc0) == 0x80)
        next = (uint8_t)out[n - ++back];
    *ret_len = (next & 0xc0) == 0x80 ? n : n - back;
    return MD_OK;
}

enum md_status md_gguf_string(struct md_gguf *f, const char *key, char *out, size_t out_bytes,
                              struct md_err *err)
{
    struct md_gguf_cursor c;
    const struct md_gguf_entry *e;
    uint64_t len;
    size_t n = 0;
    assert(out_bytes > 0);
    enum md_status s = start(f, key, &c, &e, err);
    if (s != MD_OK)
        return s;
    if (e->is_array || e->type != MD_GGUF_STRING)
        return wrong_type(&c, e, "a string", err);
    s = get_length(&c, &len, err);
    if (s == MD_OK)
        s = get_cut(&c, len, out, out_bytes - 1, &n, err);
    if (s != MD_OK)
        return s;
    for (size_t i = 0; i < n; i++)
        if (out[i] == '\0')
            out[i] = '?';
    out[n] = '\0';
    return MD_OK;
}

/* The bytes of a string in one piece: where the cursor holds them, or in *big, which grows. */
static enum md_status borrow_string(struct md_gguf *f, struct md_gguf_cursor *c, struct md_buf *big,
                                    struct md_bytes *ret, struct md_err *err)
{
    uint64_t len;
    enum md_status s = get_length(c, &len, err);
    if (s != MD_OK)
        return s;
    const uint64_t skip = c->at - c->held_at;
    *ret = (struct md_bytes){ "", (size_t)len };
    if (c->at >= c->held_at && skip <= c->held && len <= c->held - skip) {
        ret->data = c->buf + skip;
        return md_gguf_skip(c, "a string", len, err);
    }
    if (big->cap < len) {
        md_buf_done(big);
        md_buf_init(big, f->alloc, MD_GGUF_HEADER_BYTES_MAX);
        s = md_buf_reserve(big, (size_t)len, err);
    }
    if (s == MD_OK)
        s = md_gguf_get(c, "a string", big->data, (size_t)len, err);
    if (s == MD_OK && len > 0)
        ret->data = big->data;
    return s;
}

enum md_status md_gguf_each_string(struct md_gguf *f, const char *key,
                                   enum md_status (*each)(void *user, const char *text, size_t len,
                                                          struct md_err *err),
                                   void *user, struct md_err *err)
{
    struct md_gguf_cursor c;
    const struct md_gguf_entry *e;
    struct md_buf big;
    enum md_status s = start(f, key, &c, &e, err);
    if (s != MD_OK)
        return s;
    if (!e->is_array || e->type != MD_GGUF_STRING)
        return wrong_type(&c, e, "an array of strings", err);
    md_buf_init(&big, f->alloc, MD_GGUF_HEADER_BYTES_MAX);
    for (uint64_t i = 0; i < e->count && s == MD_OK; i++) {
        struct md_bytes text;
        s = borrow_string(f, &c, &big, &text, err);
        if (s == MD_OK)
            s = each(user, text.data, text.len, err);
    }
    md_buf_done(&big);
    return s;
}

/* ---- for people ---- */

static enum md_status string_text(struct md_gguf_cursor *c, size_t shown, char *out, size_t out_bytes)
{
    char raw[TEXT_STRING_BYTES], escaped[4 * TEXT_STRING_BYTES + 1];
    uint64_t len;
    size_t n = 0;
    assert(shown <= sizeof raw);
    enum md_status s = get_length(c, &len, NULL);
    const uint64_t end = s == MD_OK ? c->at + len : 0;
    if (s == MD_OK)
        s = get_cut(c, len, raw, shown, &n, NULL);
    if (s != MD_OK)
        return s;
    c->at = end;
    md_gguf_escape(escaped, sizeof escaped, raw, n);
    snprintf(out, out_bytes, "\"%s%s\"", escaped, n < len ? "..." : "");
    return MD_OK;
}

/* The value under the cursor. */
static enum md_status one_text(struct md_gguf_cursor *c, enum md_gguf_type type, size_t string_bytes,
                               char *out, size_t out_bytes)
{
    struct md_gguf_number n = { 0 };
    double real = 0;
    enum md_status s;
    if (type == MD_GGUF_STRING)
        return string_text(c, string_bytes, out, out_bytes);
    if (type == MD_GGUF_F32 || type == MD_GGUF_F64) {
        s = get_real(c, type, &real, NULL);
        snprintf(out, out_bytes, type == MD_GGUF_F32 ? "%.7g" : "%.15g", real);
        return s;
    }
    s = md_gguf_get_integer(c, type, &n, NULL);
    if (type == MD_GGUF_BOOL)
        snprintf(out, out_bytes, "%s", n.i != 0 ? "true" : "false");
    else if (n.over)
        snprintf(out, out_bytes, "%" PRIu64, n.u);
    else
        snprintf(out, out_bytes, "%" PRId64, n.i);
    return s;
}

static void array_text(struct md_gguf_cursor *c, const struct md_gguf_entry *e, char *out, size_t out_bytes)
{
    char one[4 * TEXT_STRING_BYTES + 8], tail[64];
    const size_t tail_len = (size_t)snprintf(tail, sizeof tail, ", ...] (%" PRIu64 " x %s)", e->count,
                                             md_gguf_type_name(e->type));
    size_t used = 0;
    uint64_t shown = 0;
    for (; shown < e->count && shown < TEXT_ELEMENTS; shown++) {
        if (one_text(c, e->type, TEXT_ELEMENT_BYTES, one, sizeof one) != MD_OK) {
            snprintf(out, out_bytes, "?");
            return;
        }
        const size_t len = strlen(one) + (shown == 0 ? 1 : 2);
        if (used + len + tail_len >= out_bytes)
            break;
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", shown == 0 ? "[" : ", ", one);
    }
    snprintf(out + used, out_bytes - used, "%s%s", used > 0 ? "" : "[",
             tail + (shown == e->count ? strlen(", ...")
                     : used > 0        ? 0
                                       : 2));
}

void md_gguf_value_text(struct md_gguf *f, const struct md_gguf_entry *e, char *out, size_t out_bytes)
{
    struct md_gguf_cursor c;
    char one[4 * TEXT_STRING_BYTES + 8];
    assert(out_bytes > 0);
    cursor_at(f, e, &c);
    if (e->is_array) {
        array_text(&c, e, out, out_bytes);
        return;
    }
    const bool good = one_text(&c, e->type, TEXT_STRING_BYTES, one, sizeof one) == MD_OK;
    snprintf(out, out_bytes, "%s", good ? one : "?");
}
