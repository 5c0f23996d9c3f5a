/* stream.c - see stream.h.  Two small machines in a row: bytes to whole characters, characters to text that
 * can no longer belong to a stop string.  Both go byte by byte, so how the input was split cannot matter. */
#include "text/stream.h"

#include "base/utf8.h"

#include <assert.h>
#include <string.h>

static const unsigned char replacement[] = { 0xEF, 0xBF, 0xBD }; /* U+FFFD */

/* ---- bytes to characters ---- */

/* Bytes of the character this one begins; 0 when none does (C0, C1 and F5 up never occur). */
static size_t char_len(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
}

/* May `next` follow the `len` bytes of an unfinished character?  The second byte is bounded more tightly after
 * some first ones, which keeps out overlong forms, surrogates and what is past U+10FFFF. */
static bool continues(const unsigned char *part, size_t len, unsigned char next)
{
    unsigned char low = 0x80, high = 0xBF;
    if (len == 1 && part[0] == 0xE0)
        low = 0xA0;
    else if (len == 1 && part[0] == 0xED)
        high = 0x9F;
    else if (len == 1 && part[0] == 0xF0)
        low = 0x90;
    else if (len == 1 && part[0] == 0xF4)
        high = 0x8F;
    return next >= low && next <= high;
}

static bool is_utf8(const unsigned char *bytes, size_t len)
{
    int step = 0;
    for (size_t i = 0; i < len && step >= 0; i += step > 0 ? (size_t)step : 0)
        step = md_utf8_step(bytes + i, len - i);
    return step >= 0;
}

/* ---- characters to text ---- */

static bool ends_with(const struct md_buf *b, size_t from, const void *end, size_t len)
{
    return len <= b->len - from && memcmp(b->data + b->len - len, end, len) == 0;
}

/* Bytes of the longest stop string at the end of held[from..]; 0 = none. */
static size_t complete_stop(const struct md_stream *s, size_t from)
{
    size_t longest = 0;
    for (size_t i = 0; i < s->stop_count; i++)
        if (s->stops[i].len > longest && ends_with(&s->held, from, s->stops[i].data, s->stops[i].len))
            longest = s->stops[i].len;
    return longest;
}

/* Bytes at the end of held[from..] that begin a stop string; 0 = none. */
static size_t begun_stop(const struct md_stream *s, size_t from)
{
    size_t longest = 0;
    for (size_t i = 0; i < s->stop_count; i++) {
        size_t n = s->stops[i].len - 1;
        if (n > s->held.len - from)
            n = s->held.len - from;
        while (n > longest && !ends_with(&s->held, from, s->stops[i].data, n))
            n--;
        if (n > longest)
            longest = n;
    }
    return longest;
}

/* Add one whole character; *shown is how much of held may be shown, and grows. */
static enum md_status take_char(struct md_stream *s, const unsigned char *bytes, size_t len, size_t *shown,
                                struct md_err *err)
{
    enum md_status status = md_buf_append(&s->held, bytes, len, err);
    if (status != MD_OK)
        return status;
    /* What was shown before cannot be part of a stop: begun_stop kept all that could. */
    size_t stop = complete_stop(s, *shown);
    s->stopped = stop > 0;
    *shown = s->held.len - (s->stopped ? stop : begun_stop(s, *shown));
    return MD_OK;
}

static enum md_status take_byte(struct md_stream *s, unsigned char byte, size_t *shown, struct md_err *err)
{
    if (s->part_len > 0 && !continues(s->part, s->part_len, byte)) {
        s->part_len = 0;
        enum md_status status = take_char(s, replacement, sizeof replacement, shown, err);
        if (status != MD_OK || s->stopped)
            return status;
    }
    if (s->part_len == 0 && char_len(byte) == 0)
        return take_char(s, replacement, sizeof replacement, shown, err);
    s->part[s->part_len++] = byte;
    if (s->part_len < char_len(s->part[0]))
        return MD_OK;
    s->part_len = 0;
    return take_char(s, s->part, char_len(s->part[0]), shown, err);
}

/* ---- the stream ---- */

enum md_status md_stream_init(struct md_stream *s, const struct md_alloc *alloc, const struct md_bytes *stops,
                              size_t stop_count, struct md_err *err)
{
    if (stop_count > MD_STOP_MAX)
        return md_fail(err, MD_INVALID, "stop may hold %d strings, got %zu", MD_STOP_MAX, stop_count);
    for (size_t i = 0; i < stop_count; i++) {
        if (stops[i].len == 0)
            return md_fail(err, MD_INVALID, "stop string %zu is empty", i);
        if (stops[i].len > MD_STOP_BYTES_MAX)
            return md_fail(err, MD_INVALID, "stop string %zu has %zu bytes, %d are allowed", i, stops[i].len,
                           MD_STOP_BYTES_MAX);
        if (!is_utf8(stops[i].data, stops[i].len))
            return md_fail(err, MD_INVALID, "stop string %zu is not valid UTF-8", i);
    }
    *s = (struct md_stream){ .stops = stops, .stop_count = stop_count };
    md_buf_init(&s->held, alloc, 0); /* each call sets its limit: see feed */
    return MD_OK;
}

/* Take `len` bytes (and, at the end, what is unfinished), then show what may be shown; on failure step back. */
static enum md_status feed(struct md_stream *s, const unsigned char *bytes, size_t len, bool end,
                           struct md_buf *ret_text, struct md_err *err)
{
    if (s->stopped)
        return MD_OK;
    assert(s->held.len < MD_STOP_BYTES_MAX);
    struct md_stream before = *s;
    if (len > (SIZE_MAX - 2 * MD_STOP_BYTES_MAX) / sizeof replacement)
        return md_fail(err, MD_NO_MEMORY, "text of %zu bytes", len);
    /* Every byte may turn out to be a replacement character. */
    s->held.limit_bytes = MD_STOP_BYTES_MAX + (len + sizeof s->part) * sizeof replacement;

    enum md_status status = MD_OK;
    size_t shown = 0;
    for (size_t i = 0; i < len && status == MD_OK && !s->stopped; i++)
        status = take_byte(s, bytes[i], &shown, err);
    if (end && status == MD_OK && !s->stopped && s->part_len > 0)
        status = take_char(s, replacement, sizeof replacement, &shown, err);
    if (status == MD_OK && end && !s->stopped)
        shown = s->held.len;
    if (status == MD_OK)
        status = md_buf_append(ret_text, s->held.data, shown, err);
    if (status != MD_OK) {
        size_t held_len = before.held.len;
        before.held = s->held; /* grown perhaps, but its first bytes are still those of before */
        before.held.len = held_len;
        *s = before;
        return status;
    }
    s->held.len = s->stopped ? 0 : s->held.len - shown;
    if (s->held.len > 0)
        memmove(s->held.data, s->held.data + shown, s->held.len);
    if (end || s->stopped)
        s->part_len = 0;
    return MD_OK;
}

enum md_status md_stream_push(struct md_stream *s, const void *bytes, size_t len, struct md_buf *ret_text,
                              struct md_err *err)
{
    return feed(s, bytes, len, false, ret_text, err);
}

enum md_status md_stream_finish(struct md_stream *s, struct md_buf *ret_text, struct md_err *err)
{
    return feed(s, NULL, 0, true, ret_text, err);
}

void md_stream_done(struct md_stream *s)
{
    md_buf_done(&s->held);
}
