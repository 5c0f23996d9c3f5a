/* eval_haystack.c - see eval_haystack.h. */
#include "commands/eval_haystack.h"

#include <assert.h>
#include <stdlib.h>

enum {
    REACH = 256, /* tokens to either side in which the end of a paragraph or a line is looked for */
    PIECES_MAX = MD_EVAL_NEEDLES_MAX * MD_EVAL_PARTS_MAX,
};

/* ---- the text ---- */

void md_eval_filler_done(struct md_eval_filler *f)
{
    md_tokens_done(&f->tokens);
    md_free(NULL, f->breaks);
    *f = (struct md_eval_filler){ 0 };
}

/* How many ends of lines end the text, when `before` of them ended it before this piece. */
static uint8_t count_breaks(const struct md_buf *piece, uint8_t before)
{
    size_t n = 0;
    while (n < piece->len && piece->data[piece->len - 1 - n] == '\n')
        n++;
    if (n == piece->len)
        n += before;
    return n < 2 ? (uint8_t)n : 2;
}

static enum md_status find_breaks(const struct md_text *text, struct md_eval_filler *f, struct md_err *err)
{
    struct md_buf piece MD_CLEANUP(md_buf_done);
    uint8_t before = 0;
    enum md_status s = MD_OK;
    md_buf_init(&piece, NULL, 1 << 20);
    f->breaks = md_calloc(NULL, f->tokens.count + 1, sizeof *f->breaks);
    if (f->breaks == NULL)
        return md_fail(err, MD_NO_MEMORY, "a text of %zu tokens", f->tokens.count);
    for (size_t i = 0; i < f->tokens.count && s == MD_OK; i++) {
        piece.len = 0;
        s = md_text_piece(text, f->tokens.ids[i], false, &piece, err);
        before = f->breaks[i] = count_breaks(&piece, before);
        if (before > f->longest)
            f->longest = before;
    }
    return s;
}

enum md_status md_eval_filler_read(const struct md_text *text, struct md_bytes bytes,
                                   struct md_eval_filler *ret, struct md_err *err)
{
    struct md_eval_filler f MD_CLEANUP(md_eval_filler_done) = { 0 };
    enum md_status s = md_text_tokenize(text, bytes, false, false, &f.tokens, err);
    if (s == MD_OK && f.tokens.count > INT32_MAX)
        s = md_fail(err, MD_TOO_LARGE, "the text has %zu tokens", f.tokens.count);
    if (s == MD_OK)
        s = find_breaks(text, &f, err);
    if (s == MD_OK) {
        *ret = f;
        f = (struct md_eval_filler){ 0 };
    }
    return s;
}

/* The place between tokens that is nearest to `wanted` and ends a paragraph, else a line, else `wanted` itself.  What is
 * wanted at the end is there, and the text breaks off before it. */
static int32_t snap(const struct md_eval_filler *f, int32_t wanted, int32_t end)
{
    for (uint8_t least = 2; least > 0 && wanted < end; least--)
        for (int32_t d = 0; d <= REACH; d++)
            for (int sign = -1; sign <= 1; sign += 2) {
                const int32_t at = wanted + sign * d;
                if (at == 0 || (at > 0 && at <= end && f->breaks[at - 1] >= least))
                    return at;
            }
    return wanted;
}

/* ---- needles ---- */

/* A line on its way into the text. */
struct piece {
    int needle, part;
    int32_t at; /* place in the text */
    struct md_tokens tokens;
    int32_t line_tokens; /* of tokens: without the ends of lines behind it */
};

struct pieces {
    struct piece list[PIECES_MAX];
    int count;
    int32_t tokens; /* of all */
};

static void pieces_done(struct pieces *p)
{
    for (int i = 0; i < p->count; i++)
        md_tokens_done(&p->list[i].tokens);
    md_free(NULL, p);
}

static void pieces_donep(struct pieces **p)
{
    if (*p != NULL)
        pieces_done(*p);
}

/* Without the tokens at its end that are ends of lines and nothing else. */
static enum md_status measure_line(const struct md_text *text, struct piece *p, struct md_err *err)
{
    struct md_buf bytes MD_CLEANUP(md_buf_done);
    enum md_status s = MD_OK;
    md_buf_init(&bytes, NULL, 1 << 20);
    p->line_tokens = (int32_t)p->tokens.count;
    while (p->line_tokens > 1) {
        size_t n = 0;
        bytes.len = 0;
        s = md_text_piece(text, p->tokens.ids[p->line_tokens - 1], false, &bytes, err);
        while (s == MD_OK && n < bytes.len && bytes.data[n] == '\n')
            n++;
        if (s != MD_OK || n == 0 || n < bytes.len)
            break;
        p->line_tokens--;
    }
    return s;
}

static enum md_status read_pieces(const struct md_text *text, const struct md_eval_filler *f,
                                  const struct md_eval_needle *needles, int count, struct pieces *out,
                                  struct md_err *err)
{
    struct md_buf line MD_CLEANUP(md_buf_done);
    enum md_status s = MD_OK;
    md_buf_init(&line, NULL, 1 << 16);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < needles[i].part_count && s == MD_OK; k++) {
            struct piece *p = &out->list[out->count++];
            p->needle = i;
            p->part = k;
            line.len = 0;
            s = md_buf_printf(&line, err, "%s%s", needles[i].parts[k], f->longest == 1 ? "\n" : "\n\n");
            if (s == MD_OK)
                s = md_text_tokenize(text, (struct md_bytes){ line.data, line.len }, false, false, &p->tokens,
                                     err);
            if (s == MD_OK)
                s = measure_line(text, p, err);
            out->tokens += (int32_t)p->tokens.count;
        }
    return s;
}

/* In the order of the text; needles that meet stand in their own order. */
static int by_place(const void *pa, const void *pb)
{
    const struct piece *a = pa, *b = pb;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    if (a->needle != b->needle)
        return a->needle < b->needle ? -1 : 1;
    return a->part - b->part;
}

static enum md_status join(const struct md_text *text, const struct md_eval_filler *f, const struct pieces *p,
                           int32_t filler_tokens, struct md_eval_haystack *h, struct md_err *err)
{
    int32_t done = 0;
    enum md_status s = MD_OK;
    for (int i = 0; i <= p->count && s == MD_OK; i++) {
        const int32_t to = i < p->count ? p->list[i].at : filler_tokens;
        s = md_tokens_append(&h->tokens, f->tokens.ids + done, (size_t)(to - done), err);
        done = to;
        if (s != MD_OK || i == p->count)
            break;
        const struct piece *piece = &p->list[i];
        if (to > 0 && f->breaks[to - 1] == 0 && (i == 0 || p->list[i - 1].at != to))
            s = md_text_tokenize(text, (struct md_bytes){ "\n", 1 }, false, false, &h->tokens, err);
        const int32_t start = (int32_t)h->tokens.count;
        h->spans[piece->needle][piece->part] = (struct md_range){ start, start + piece->line_tokens };
        if (s == MD_OK)
            s = md_tokens_append(&h->tokens, piece->tokens.ids, piece->tokens.count, err);
    }
    return s;
}

void md_eval_haystack_done(struct md_eval_haystack *h)
{
    md_tokens_done(&h->tokens);
}

enum md_status md_eval_haystack_build(const struct md_text *text, const struct md_eval_filler *filler,
                                      int32_t length, const struct md_eval_needle *needles, int count,
                                      struct md_eval_haystack *ret, struct md_err *err)
{
    struct pieces *p MD_CLEANUP(pieces_donep) = md_calloc(NULL, 1, sizeof *p);
    if (p == NULL)
        return md_fail(err, MD_NO_MEMORY, "%d needles", count);
    enum md_status s = read_pieces(text, filler, needles, count, p, err);
    if (s != MD_OK)
        return s;
    const int32_t rest = length - p->tokens;
    if (rest < p->tokens)
        return md_fail(err, MD_INVALID,
                       "--length %d is too short: its needles take %d tokens, so that %d is the least",
                       length, p->tokens, 2 * p->tokens);
    if (filler->tokens.count < (size_t)rest)
        return md_fail(err, MD_INVALID,
                       "the text of --haystack is too short: it has %zu tokens, --length %d needs %d",
                       filler->tokens.count, length, rest);
    for (int i = 0; i < p->count; i++) {
        struct piece *piece = &p->list[i];
        piece->at = snap(filler, (int32_t)(needles[piece->needle].depths[piece->part] * rest), rest);
    }
    qsort(p->list, (size_t)p->count, sizeof p->list[0], by_place);
    struct md_eval_haystack h MD_CLEANUP(md_eval_haystack_done) = { 0 };
    s = join(text, filler, p, rest, &h, err);
    if (s == MD_OK) {
        *ret = h;
        h.tokens = (struct md_tokens){ 0 };
    }
    return s;
}
