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

static const unsigned char mark[3] = { 0xe2, 0x96, 0x81 }; /* U+2581, sentencepiece's space */

/* Where the next token's bytes are expected. */
struct place {
    size_t at;
    int half; /* bytes of a U+2581 that tokens of single bytes have written for the space at `at` */
};

struct walk {
    const unsigned char *text;
    size_t len;
    struct place now;
    int held; /* tokens that wait for one that is found; they begin at now.at */
};

/* Do these bytes stand at `from`, U+2581 and a space being the same?  *ret is the place behind them. */
static bool match(const struct walk *w, struct place from, const unsigned char *piece, size_t len,
                  struct place *ret)
{
    struct place p = from;
    for (size_t i = 0; i < len; i++) {
        const size_t left = w->len - p.at;
        if (p.half > 0) {
            if (piece[i] != mark[p.half])
                return false;
            p = p.half == 2 ? (struct place){ p.at + 1, 0 } : (struct place){ p.at, p.half + 1 };
        } else if (left > 0 && piece[i] == w->text[p.at]) {
            p.at++;
        } else if (left > 0 && piece[i] == mark[0] && w->text[p.at] == ' ') {
            p.half = 1;
        } else if (left >= sizeof mark && piece[i] == ' ' && memcmp(w->text + p.at, mark, sizeof mark) == 0) {
            p.at += sizeof mark;
        } else {
            return false;
        }
    }
    *ret = p;
    return true;
}

/* Bytes of the space at the start of a piece, or 0. */
static size_t leading_space(const unsigned char *piece, size_t len)
{
    if (len > 0 && piece[0] == ' ')
        return 1;
    return len >= sizeof mark && memcmp(piece, mark, sizeof mark) == 0 ? sizeof mark : 0;
}

/* Find the bytes of one token at the place that is expected or a little behind it; *ret_start is where it begins. */
static bool find(struct walk *w, const unsigned char *piece, size_t len, size_t *ret_start)
{
    const struct place now = w->now;
    const size_t put_in = leading_space(piece, len);
    *ret_start = now.at;
    if (match(w, now, piece, len, &w->now))
        return true;
    if (put_in > 0 && match(w, now, piece + put_in, len - put_in, &w->now))
        return true; /* a space that the tokenizer put there */
    struct place behind = { now.at, 0 };
    while (behind.at < w->len && blank(w->text[behind.at]))
        behind.at++;
    if (match(w, behind, piece, len, &w->now))
        return true; /* blanks that it dropped are this token's */
    for (size_t d = 1; w->held > 0 && d <= HELD_BYTES && now.at + d < w->len; d++) {
        *ret_start = now.at + d; /* what lies between is of those that were held */
        if (match(w, (struct place){ *ret_start, 0 }, piece, len, &w->now))
            return true;
    }
    *ret_start = now.at;
    return false;
}

/* Lay one token; returns where it begins.  *lost: it cannot be laid, nor could too many before it. */
static size_t lay(struct walk *w, const unsigned char *piece, size_t len, bool *lost)
{
    size_t start = w->now.at;
    if (len == 0)
        return start;
    w->held = find(w, piece, len, &start) ? 0 : w->held + 1;
    *lost = w->held > HELD_MAX;
    return start;
}

/* All of the text has its token, but for blanks dropped at the end. */
static bool reached_end(const struct walk *w)
{
    size_t at = w->now.at;
    while (at < w->len && blank(w->text[at]))
        at++;
    return w->held > 0 || at == w->len;
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
