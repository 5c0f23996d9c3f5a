/* modeld.manifest of a chat: what its messages are, and how dear.  Shape and defaults: docs/manifest.md. */
#include "fronts/http/http_parser.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SEGMENTS_MAX = 4096, KIND_BYTES_MAX = MD_SEGMENT_NAME_BYTES - 1, FIELD_BYTES = 80 };

enum { MESSAGE, KIND, STABLE, CACHE_CLASS, INVALIDATION, KEYS };
static const char *const keys[KEYS] = { "message", "kind", "stable", "cache_class", "invalidation" };

/* One entry of segments on its way to the label of its message. */
struct entry {
    struct http_parser *p;
    size_t index;
    yyjson_val *values[KEYS]; /* null is as if it were not there */
    size_t message;
    bool given_stable; /* it says so: then it must be able to be */
};

static void field_of(const struct entry *e, const char *key, char field[FIELD_BYTES])
{
    snprintf(field, FIELD_BYTES, "modeld.manifest.segments[%zu]%s%.30s", e->index, key[0] != '\0' ? "." : "",
             key);
}

static MD_PRINTF(3, 4) enum md_status refuse(const struct entry *e, const char *key, const char *fmt, ...)
{
    char field[FIELD_BYTES], what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    field_of(e, key, field);
    return md_http_refuse(e->p->e, MD_INVALID, field, "%s %s", field, what);
}

static enum md_status find_values(struct entry *e, yyjson_val *v)
{
    if (!yyjson_is_obj(v))
        return refuse(e, "", "must be an object, got %s", yyjson_get_type_desc(v));
    yyjson_obj_iter it = yyjson_obj_iter_with(v);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        int k = 0;
        while (k < KEYS && !yyjson_equals_str(key, keys[k]))
            k++;
        if (k == KEYS)
            return refuse(
                e, yyjson_get_str(key),
                "is not known: a segment takes message, kind, stable, cache_class and invalidation");
        e->values[k] = yyjson_is_null(value) ? NULL : value;
    }
    return MD_OK;
}

/* next: the first message that may still be named. */
static enum md_status read_message(struct entry *e, size_t next)
{
    yyjson_val *v = e->values[MESSAGE];
    const size_t count = e->p->r->in.count;
    if (v == NULL)
        return refuse(e, keys[MESSAGE], "is missing: which of the messages it speaks of");
    const double n = yyjson_get_num(v);
    if (!yyjson_is_num(v) || n != floor(n))
        return refuse(e, keys[MESSAGE], "must be a whole number, the index of a message");
    if (n < 0 || n >= (double)count)
        return refuse(e, keys[MESSAGE], "must be between 0 and %zu, got %.17g", count - 1, n);
    e->message = (size_t)n;
    if (e->message < next)
        return refuse(e, keys[MESSAGE], "is %zu behind %zu: each message once, in their order", e->message,
                      next - 1);
    return MD_OK;
}

static enum md_status read_kind(const struct entry *e, struct md_segment_label *label)
{
    yyjson_val *v = e->values[KIND];
    if (!yyjson_is_str(v))
        return refuse(e, keys[KIND], "must be a string: what this message is");
    const size_t len = yyjson_get_len(v);
    if (len == 0 || len > KIND_BYTES_MAX || memchr(yyjson_get_str(v), 0, len) != NULL)
        return refuse(e, keys[KIND], "must have 1 to %d bytes and no NUL, got %zu bytes", KIND_BYTES_MAX,
                      len);
    label->name = md_http_parser_bytes(v);
    label->kind = md_segment_kind_parse(label->name);
    return MD_OK;
}

/* left_stable: nothing before it is volatile.  Left out, it is what its role makes it there. */
static enum md_status read_stable(struct entry *e, bool left_stable, struct md_segment_label *label)
{
    yyjson_val *v = e->values[STABLE];
    if (v != NULL && !yyjson_is_bool(v))
        return refuse(e, keys[STABLE], "must be true or false, got %s", yyjson_get_type_desc(v));
    if (yyjson_get_bool(v) && !left_stable)
        return refuse(e, keys[STABLE], "is true behind a volatile message: stable ones come first");
    label->stable = v != NULL ? yyjson_get_bool(v) : label->stable && left_stable;
    return MD_OK;
}

static enum md_status read_word(const struct entry *e, int key, struct md_bytes *ret)
{
    yyjson_val *v = e->values[key];
    if (v != NULL && !yyjson_is_str(v))
        return refuse(e, keys[key], "must be a string, got %s", yyjson_get_type_desc(v));
    *ret = v != NULL ? md_http_parser_bytes(v) : (struct md_bytes){ NULL, 0 };
    return MD_OK;
}

static enum md_status read_class_and_hint(const struct entry *e, struct md_segment_label *label)
{
    enum md_cache_class given = MD_CLASS_COUNT;
    struct md_bytes word;
    char field[FIELD_BYTES];
    struct md_err err;
    enum md_status s = read_word(e, CACHE_CLASS, &word);
    field_of(e, keys[CACHE_CLASS], field);
    if (s == MD_OK && word.data != NULL && md_cache_class_parse(word, field, &given, &err) != MD_OK)
        return md_http_refuse(e->p->e, MD_INVALID, field, "%s", err.text);
    label->cls = md_segment_class(label->kind, label->stable, given);
    if (s == MD_OK)
        s = read_word(e, INVALIDATION, &word);
    field_of(e, keys[INVALIDATION], field);
    label->invalidation = MD_INVALIDATION_NONE;
    if (s == MD_OK && word.data != NULL &&
        md_invalidation_parse(word, field, &label->invalidation, &err) != MD_OK)
        return md_http_refuse(e->p->e, MD_INVALID, field, "%s", err.text);
    return s;
}

/* Messages [from, to) that nobody names: what their roles say, but not stable behind what is not.  Returns whether
 * one behind them may be. */
static bool pass_over(struct md_segment_label *labels, size_t from, size_t to, bool left_stable)
{
    for (; from < to; from++)
        left_stable = labels[from].stable = labels[from].stable && left_stable;
    return left_stable;
}

static enum md_status read_segments(struct http_parser *p, yyjson_val *segments,
                                    struct md_segment_label *labels)
{
    struct entry e = { .p = p };
    yyjson_arr_iter it = yyjson_arr_iter_with(segments);
    yyjson_val *item;
    size_t next = 0;
    bool left_stable = true;
    for (; (item = yyjson_arr_iter_next(&it)) != NULL; e.index++) {
        memset(e.values, 0, sizeof e.values);
        enum md_status s = find_values(&e, item);
        if (s == MD_OK)
            s = read_message(&e, next);
        if (s != MD_OK)
            return s;
        left_stable = pass_over(labels, next, e.message, left_stable);
        s = read_kind(&e, &labels[e.message]);
        if (s == MD_OK)
            s = read_stable(&e, left_stable, &labels[e.message]);
        if (s == MD_OK)
            s = read_class_and_hint(&e, &labels[e.message]);
        if (s != MD_OK)
            return s;
        left_stable = labels[e.message].stable;
        next = e.message + 1;
    }
    pass_over(labels, next, p->r->in.count, left_stable);
    return MD_OK;
}

/* {"segments": [...]}. */
static enum md_status find_segments(struct http_parser *p, yyjson_val **ret)
{
    static const char name[] = "modeld.manifest", list[] = "modeld.manifest.segments";
    *ret = NULL;
    if (!yyjson_is_obj(p->manifest))
        return md_http_refuse(p->e, MD_INVALID, name, "%s must be an object, got %s", name,
                              yyjson_get_type_desc(p->manifest));
    yyjson_obj_iter it = yyjson_obj_iter_with(p->manifest);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        if (!yyjson_equals_str(key, "segments")) {
            char field[48];
            snprintf(field, sizeof field, "%s.%.30s", name, yyjson_get_str(key));
            return md_http_refuse(p->e, MD_INVALID, field, "%s is not known: a manifest takes segments",
                                  field);
        }
        *ret = yyjson_obj_iter_get_val(key);
    }
    if (!yyjson_is_arr(*ret))
        return md_http_refuse(p->e, MD_INVALID, list, "%s must be an array, got %s", list,
                              *ret != NULL ? yyjson_get_type_desc(*ret) : "nothing");
    if (yyjson_arr_size(*ret) > SEGMENTS_MAX)
        return md_http_refuse(p->e, MD_INVALID, list, "%s has %zu entries, more than %d", list,
                              yyjson_arr_size(*ret), SEGMENTS_MAX);
    return MD_OK;
}

enum md_status md_http_check_manifest(struct http_parser *p)
{
    struct md_http_request *r = p->r;
    yyjson_val *segments;
    if (p->manifest == NULL)
        return MD_OK;
    if (!r->chat)
        return md_http_refuse(p->e, MD_INVALID, "modeld.manifest",
                              "modeld.manifest speaks of messages: a completion has none");
    enum md_status s = find_segments(p, &segments);
    if (s != MD_OK)
        return s;
    struct md_segment_label *labels = md_arena_get(&r->arena, r->in.count, sizeof *labels);
    if (labels == NULL)
        return md_http_parser_no_memory(p);
    md_prompt_labels(r->in.messages, r->in.count, labels);
    r->labels = labels;
    return read_segments(p, segments, labels);
}
