/* prompt_align.c - see prompt_internal.h: tokens laid along the bytes they were made of. */
#include "session/prompt_internal.h"

#include <string.h>

enum {
    HELD_MAX = 8,     /* tokens in a row whose bytes are not in the prompt */
    HELD_BYTES = 256, /* how far behind them the next one may lie */
    PIECE_BYTES_MAX = 1 << 20
};

static bool blank(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Bytes of a space at p as sentencepiece knows it, " " or U+2581; 0: another character. */
static size_t space(const unsigned char *p, size_t len)
{
    if (len > 0 && p[0] == ' ')
        return 1;
    return len >= 3 && memcmp(p, "\xe2\x96\x81", 3) == 0 ? 3 : 0;
}

struct walk {
    const unsigned char *text;
    size_t len, at; /* the next byte that no token has */
    int held;       /* tokens that wait for one that is found; they begin at `at` */
};

/* Does the piece stand at text[from]?  Returns the bytes it has there, or -1. */
static int64_t match(const struct walk *w, size_t from, const unsigned char *piece, size_t len)
{
    size_t at = from;
    for (size_t i = 0; i < len;) {
        const size_t a = space(piece + i, len - i), b = space(w->text + at, w->len - at);
        if (a > 0 && b > 0) {
            i += a;
            at += b;
        } else if (at < w->len && piece[i] == w->text[at]) {
            i++;
            at++;
        } else {
            return -1;
        }
    }
    return (int64_t)(at - from);
}

/* Lay one token; returns where it begins.  Sets *lost when it cannot be laid and too many were not before it. */
static size_t lay(struct walk *w, const unsigned char *piece, size_t len, bool *lost)
{
    if (len == 0)
        return w->at;
    const size_t put_in = space(piece, len);
    size_t start = w->at;
    int64_t n = match(w, start, piece, len);
    if (n < 0 && put_in > 0) /* a space the tokenizer put there */
        n = match(w, start, piece + put_in, len - put_in);
    if (n < 0) { /* blanks it dropped: they are this token's */
        size_t behind = w->at;
        while (behind < w->len && blank(w->text[behind]))
            behind++;
        n = match(w, behind, piece, len);
        n = n < 0 ? n : n + (int64_t)(behind - w->at);
    }
    for (size_t d = 1; n < 0 && w->held > 0 && d <= HELD_BYTES && w->at + d < w->len; d++) {
        start = w->at + d; /* what lies between is of those that were held */
        n = match(w, start, piece, len);
    }
    if (n < 0) {
        *lost = ++w->held > HELD_MAX;
        return w->at;
    }
    w->held = 0;
    w->at = start + (size_t)n;
    return start;
}

/* All of the text has its token, but for blanks dropped at the end. */
static bool reached_end(struct walk *w)
{
    while (w->at < w->len && blank(w->text[w->at]))
        w->at++;
    return w->held > 0 || w->at == w->len;
}

enum md_status md_prompt_align(const struct md_text *text, struct md_bytes prompt,
                               const struct md_tokens *tokens, const size_t *ends, size_t count,
                               const struct md_alloc *alloc, int32_t *ret_tokens, bool *ret_aligned,
                               struct md_err *err)
{
    struct walk w = { .text = prompt.data, .len = prompt.len };
    struct md_buf piece;
    bool lost = false;
    size_t next = 0;
    enum md_status s = MD_OK;
    md_buf_init(&piece, alloc, PIECE_BYTES_MAX);
    for (size_t i = 0; i < tokens->count && s == MD_OK && !lost; i++) {
        piece.len = 0;
        s = md_text_piece(text, tokens->ids[i], true, &piece, err);
        if (s != MD_OK)
            break;
        const size_t start = lay(&w, piece.data, piece.len, &lost);
        while (next < count && ends[next] <= start)
            ret_tokens[next++] = (int32_t)i;
    }
    md_buf_done(&piece);
    while (next < count)
        ret_tokens[next++] = (int32_t)tokens->count;
    *ret_aligned = !lost && reached_end(&w);
    return s;
}
