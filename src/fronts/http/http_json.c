/* http_json.c - see http_json.h. */
#include "fronts/http/http_json.h"

#include "base/utf8.h"

#include <stdbool.h>
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
