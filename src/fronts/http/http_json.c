/* http_json.c - see http_json.h. */
#include "fronts/http/http_json.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the guard ---- */

/* Value of four hex digits, or -1. */
static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        if (c >= '0' && c <= '9')
            v = v << 4 | (c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            v = v << 4 | ((c | 0x20) - 'a' + 10);
        else
            return -1;
    }
    return v;
}

/* p stands on a backslash.  Returns the length of the escape (for \u: of the pair, where it is one). */
static size_t guard_escape(char *p, size_t left)
{
    if (left < 6 || p[1] != 'u')
        return left < 2 ? left : 2;
    int v = hex4(p + 2);
    if (v < 0xd800 || v > 0xdfff)
        return v < 0 ? 2 : 6;
    if (v < 0xdc00 && left >= 12 && p[6] == '\\' && p[7] == 'u') {
        int low = hex4(p + 8);
        if (low >= 0xdc00 && low <= 0xdfff)
            return 12;
    }
    memcpy(p + 2, "fffd", 4);
    return 6;
}

/* i stands behind the opening quote; returns the index behind the closing one (or len). */
static size_t guard_string(char *json, size_t i, size_t len)
{
    while (i < len && json[i] != '"')
        i += json[i] == '\\' ? guard_escape(json + i, len - i) : 1;
    return i < len ? i + 1 : len;
}

static bool in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

enum md_status md_json_guard(char *json, size_t len, int depth_max, struct md_err *err)
{
    int depth = 0;
    for (size_t i = 0; i < len;) {
        char c = json[i];
        if (c == '"') {
            i = guard_string(json, i + 1, len);
            continue;
        }
        if (c == '{' || c == '[') {
            if (++depth > depth_max)
                return md_fail(err, MD_INVALID, "the JSON is nested deeper than %d levels", depth_max);
        } else if (c == '}' || c == ']') {
            depth--; /* may fall below 0: the parser refuses that */
        } else if (c >= '0' && c <= '9') {
            size_t start = i;
            while (i < len && in_number(json[i]))
                i++;
            if (i - start > MD_JSON_NUMBER_MAX)
                return md_fail(err, MD_INVALID, "the JSON has a number of more than %d characters",
                               MD_JSON_NUMBER_MAX);
            continue;
        }
        i++;
    }
    return MD_OK;
}

static bool plain_word(const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= '0' && p[i] <= '9') || p[i] == '_'))
            return false;
    return len > 0 && len <= 40;
}

struct md_bytes md_json_key_before(const char *json, size_t len, size_t offset)
{
    struct md_bytes last = { 0 }, string = { 0 };
    int depth = 0;
    for (size_t i = 0; i < len && i <= offset; i++) {
        char c = json[i];
        if (c == '"') {
            size_t start = ++i;
            while (i < len && json[i] != '"')
                i += json[i] == '\\' ? 2 : 1;
            if (i >= len)
                break;
            string = (struct md_bytes){ json + start, i - start };
        } else if (c == ':' && depth == 1) {
            last = string;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return last.data != NULL && plain_word(last.data, last.len) ? last : (struct md_bytes){ 0 };
}

/* ---- keys that are there twice ---- */

enum { FEW_KEYS = 32 };

/* Where a value is, from within to without. */
struct place {
    const struct place *outer;
    const char *key; /* NULL: an element, and index says which */
    size_t index;
};

static size_t put_place(const struct place *p, char *out, size_t bytes)
{
    if (p == NULL)
        return 0;
    size_t at = put_place(p->outer, out, bytes);
    if (at >= bytes)
        return at;
    const int n = p->key == NULL ? snprintf(out + at, bytes - at, "[%zu]", p->index)
                                 : snprintf(out + at, bytes - at, "%s%s", at > 0 ? "." : "", p->key);
    return at + (size_t)n;
}

static int compare_keys(const void *a, const void *b)
{
    yyjson_val *x = *(yyjson_val *const *)a, *y = *(yyjson_val *const *)b;
    const size_t n = yyjson_get_len(x), m = yyjson_get_len(y);
    return n != m ? (n < m ? -1 : 1) : memcmp(yyjson_get_str(x), yyjson_get_str(y), n);
}

/* ret_key: one that is there twice; NULL: none is. */
static enum md_status find_twice(yyjson_val *object, yyjson_val **ret_key, struct md_err *err)
{
    yyjson_val *few[FEW_KEYS], **keys = few, *key;
    const size_t count = yyjson_obj_size(object);
    size_t n = 0;
    *ret_key = NULL;
    if (count > FEW_KEYS)
        keys = md_calloc(NULL, count, sizeof *keys);
    if (keys == NULL)
        return md_fail(err, MD_NO_MEMORY, "out of memory while reading an object of %zu keys", count);
    yyjson_obj_iter it = yyjson_obj_iter_with(object);
    while ((key = yyjson_obj_iter_next(&it)) != NULL)
        keys[n++] = key;
    qsort(keys, n, sizeof *keys, compare_keys); /* not a hash: nobody can choose keys that make it slow */
    for (size_t i = 1; i < n && *ret_key == NULL; i++)
        if (compare_keys(&keys[i - 1], &keys[i]) == 0)
            *ret_key = keys[i];
    if (keys != few)
        md_free(NULL, keys);
    return MD_OK;
}

struct search {
    char *where;
    size_t bytes;
    struct md_err *err;
};

static enum md_status search(const struct search *q, yyjson_val *v, const struct place *outer)
{
    struct place here = { .outer = outer };
    enum md_status s = MD_OK;
    yyjson_val *item;
    if (yyjson_is_arr(v)) {
        yyjson_arr_iter it = yyjson_arr_iter_with(v);
        for (; s == MD_OK && (item = yyjson_arr_iter_next(&it)) != NULL; here.index++)
            s = yyjson_is_ctn(item) ? search(q, item, &here) : MD_OK;
        return s;
    }
    if (yyjson_obj_size(v) > MD_JSON_KEYS_MAX) {
        put_place(outer, q->where, q->bytes);
        return md_fail(q->err, MD_INVALID, "an object has %zu keys, at most %d are allowed",
                       yyjson_obj_size(v), MD_JSON_KEYS_MAX);
    }
    s = find_twice(v, &item, q->err);
    if (s == MD_OK && item != NULL) {
        here.key = yyjson_get_str(item);
        put_place(&here, q->where, q->bytes);
        return md_fail(q->err, MD_INVALID, "%s is given twice", q->where);
    }
    yyjson_obj_iter it = yyjson_obj_iter_with(v);
    while (s == MD_OK && (item = yyjson_obj_iter_next(&it)) != NULL) {
        here.key = yyjson_get_str(item);
        if (yyjson_is_ctn(yyjson_obj_iter_get_val(item)))
            s = search(q, yyjson_obj_iter_get_val(item), &here);
    }
    return s;
}

enum md_status md_json_unique(yyjson_val *root, char *ret_where, size_t where_bytes, struct md_err *err)
{
    ret_where[0] = '\0';
    return yyjson_is_ctn(root) ? search(&(struct search){ ret_where, where_bytes, err }, root, NULL) : MD_OK;
}

/* ---- the writer ---- */

enum md_status md_json_put_string(struct md_buf *out, struct md_bytes text, struct md_err *err)
{
    const unsigned char *p = text.data;
    enum md_status s = md_buf_append(out, "\"", 1, err);
    size_t run = 0; /* start of what can be copied as it stands */
    for (size_t i = 0; s == MD_OK && i < text.len;) {
        int step = md_utf8_step(p + i, text.len - i);
        if (step > 0 && p[i] >= 0x20 && p[i] != '"' && p[i] != '\\' && p[i] != 0x7f) {
            i += (size_t)step;
            continue;
        }
        s = md_buf_append(out, p + run, i - run, err);
        if (s != MD_OK)
            break;
        if (step < 0)
            s = md_buf_append(out, "\xef\xbf\xbd", 3, err);
        else if (p[i] == '"' || p[i] == '\\')
            s = md_buf_printf(out, err, "\\%c", p[i]);
        else if (p[i] == '\n')
            s = md_buf_append(out, "\\n", 2, err);
        else
            s = md_buf_printf(out, err, "\\u%04x", p[i]);
        i += (size_t)(step < 0 ? -step : step);
        run = i;
    }
    if (s == MD_OK && run < text.len)
        s = md_buf_append(out, p + run, text.len - run, err);
    return s == MD_OK ? md_buf_append(out, "\"", 1, err) : s;
}
