/* haystack.c - see haystack.h. */
#include "session/haystack.h"

#include <assert.h>
#include <stdio.h>

static const char intro[] = "Below is a text, and after it a question.\n\n";
/* They stand in a rendered chat for the haystack's tokens, and for a question. */
static const char text_mark[] = "[[modeld: the text]]", question_mark[] = "[[modeld: the question]]";
enum {
    RENDERED_BYTES_MAX = 1 << 16,
    PIECE_BYTES_MAX = 1 << 12,
    PIECES_MOST = 4096,
    REPEATED_PIECES =
        64, /* of each kind: far more than MD_HAYSTACK_COPY_PERIOD different tokens in most vocabularies */
    LINES = 2 * MD_NEEDLES,
};

void md_haystack_done(struct md_haystack *h)
{
    md_tokens_done(&h->prompt);
    for (int i = 0; i <= MD_NEEDLES; i++)
        md_tokens_done(&h->questions[i]);
    *h = (struct md_haystack){ 0 };
}

static struct md_bytes bytes_of(const char *text)
{
    return (struct md_bytes){ text, strlen(text) };
}

/* ---- what stands around ---- */

/* Text before the haystack, between it and a question, and behind that. */
struct frame {
    struct md_buf rendered;
    struct md_bytes before, between, after;
};

static bool split(struct frame *f)
{
    const char *start = (const char *)f->rendered.data, *end = start + f->rendered.len;
    const char *text = start == NULL ? NULL : memmem(start, f->rendered.len, text_mark, strlen(text_mark));
    if (text == NULL)
        return false;
    const char *between = text + strlen(text_mark);
    const char *question = memmem(between, (size_t)(end - between), question_mark, strlen(question_mark));
    if (question == NULL)
        return false;
    const char *after = question + strlen(question_mark);
    f->before = (struct md_bytes){ start, (size_t)(text - start) };
    f->between = (struct md_bytes){ between, (size_t)(question - between) };
    f->after = (struct md_bytes){ after, (size_t)(end - after) };
    return true;
}

static enum md_status render(const struct md_text *text, struct frame *f, struct md_err *err)
{
    char content[sizeof intro + sizeof text_mark + sizeof question_mark + 8];
    snprintf(content, sizeof content, "%s%s\n\n%s", intro, text_mark, question_mark);
    const struct md_chat_message message = { .role = { "user", 4 }, .content = bytes_of(content) };
    const struct md_chat_input in = { .messages = &message, .count = 1, .add_generation_prompt = true };
    struct md_chat_form *form = NULL;
    enum md_status s = md_text_render_chat(text, &in, &f->rendered, &form, err);
    md_chat_form_unref(form);
    return s;
}

/* A template that refuses, or that changes what users say, is none. */
static enum md_status make_frame(const struct md_text *text, struct frame *f, struct md_err *err)
{
    if (text->info.has_chat_template) {
        const enum md_status s = render(text, f, err);
        if (s == MD_NO_MEMORY)
            return s;
        if (s == MD_OK && split(f))
            return MD_OK;
    }
    f->rendered.len = 0;
    f->before = bytes_of(intro);
    f->between = bytes_of("\nQuestion: ");
    f->after = bytes_of("\nAnswer:");
    return MD_OK;
}

/* ---- the haystack ---- */

static enum md_status add_line(const struct md_text *text, const char *line, struct md_tokens *to,
                               struct md_range *ret_span, struct md_err *err)
{
    const int32_t start = (int32_t)to->count;
    enum md_status s = md_text_tokenize(text, bytes_of(line), false, false, to, err);
    *ret_span = (struct md_range){ start, (int32_t)to->count };
    return s == MD_OK ? md_text_tokenize(text, (struct md_bytes){ "\n", 1 }, false, false, to, err) : s;
}

/* Line k of a kind: needles first, then their near-duplicates. */
static const char *line_at(enum md_needles_kind kind, int k)
{
    return k < MD_NEEDLES ? md_needle_at(kind, k)->gold : md_needle_at(kind, k - MD_NEEDLES)->near;
}

static enum md_status count_lines(const struct md_text *text, enum md_needles_kind kind,
                                  const struct md_alloc *alloc, int32_t *ret_count, struct md_err *err)
{
    struct md_tokens all MD_CLEANUP(md_tokens_done) = { .alloc = alloc };
    struct md_range ignored;
    enum md_status s = MD_OK;
    for (int k = 0; k < LINES && s == MD_OK; k++)
        s = add_line(text, line_at(kind, k), &all, &ignored, err);
    *ret_count = (int32_t)all.count;
    return s;
}

/* Filler until `room` tokens of it are there, a line after each LINES + 1st of it. */
static enum md_status fill(const struct md_text *text, enum md_needles_kind kind, int32_t room,
                           struct md_haystack *h, struct md_err *err)
{
    struct md_buf piece MD_CLEANUP(md_buf_done);
    struct md_tokens tokens MD_CLEANUP(md_tokens_done) = { .alloc = h->prompt.alloc };
    int32_t filled = 0;
    int slot = 0;
    enum md_status s = MD_OK;
    md_buf_init(&piece, h->prompt.alloc, PIECE_BYTES_MAX);
    for (uint32_t n = 0; n < PIECES_MOST && s == MD_OK; n++) {
        piece.len = 0;
        tokens.count = 0;
        s = md_needles_filler(kind, n, &piece, err);
        if (s == MD_OK)
            s = md_text_tokenize(text, (struct md_bytes){ piece.data, piece.len }, false, false, &tokens,
                                 err);
        const bool last = filled + (int32_t)tokens.count > room;
        if (s == MD_OK && !last)
            s = md_tokens_append(&h->prompt, tokens.ids, tokens.count, err);
        filled += last ? 0 : (int32_t)tokens.count;
        for (; s == MD_OK && slot < LINES && (last || filled >= room / (LINES + 1) * (slot + 1)); slot++) {
            const int k = md_needles_line_in(slot);
            s = add_line(text, line_at(kind, k), &h->prompt,
                         k < MD_NEEDLES ? &h->gold[k] : &h->near[k - MD_NEEDLES], err);
        }
        if (last)
            break;
    }
    return s;
}

static enum md_status add_questions(const struct md_text *text, enum md_needles_kind kind,
                                    const struct frame *f, struct md_haystack *h, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (int i = 0; i <= MD_NEEDLES && s == MD_OK; i++) {
        const char *question = i < MD_NEEDLES ? md_needle_at(kind, i)->question : md_needles_null();
        struct md_buf all MD_CLEANUP(md_buf_done);
        md_buf_init(&all, h->prompt.alloc, RENDERED_BYTES_MAX);
        h->questions[i].alloc = h->prompt.alloc;
        s = md_buf_append(&all, f->between.data, f->between.len, err);
        if (s == MD_OK)
            s = md_buf_append(&all, question, strlen(question), err);
        if (s == MD_OK)
            s = md_buf_append(&all, f->after.data, f->after.len, err);
        if (s == MD_OK)
            s = md_text_tokenize(text, (struct md_bytes){ all.data, all.len }, false, true, &h->questions[i],
                                 err);
        if (s == MD_OK && (h->questions[i].count > MD_HAYSTACK_QUESTION || h->questions[i].count == 0))
            s = md_fail(err, MD_TOO_LARGE,
                        "a question has %zu tokens with this template, at most %d are measured",
                        h->questions[i].count, MD_HAYSTACK_QUESTION);
    }
    return s;
}

/* A model file's tokenizer may make nothing of letters. */
static enum md_status check_lines(const struct md_haystack *h, struct md_err *err)
{
    for (int i = 0; i < MD_NEEDLES; i++)
        if (md_range_len(h->gold[i]) == 0 || md_range_len(h->near[i]) == 0)
            return md_fail(
                err, MD_UNSUPPORTED,
                "the model's tokenizer makes too few tokens of the texts that heads are measured with");
    return MD_OK;
}

static enum md_status build(const struct md_text *text, enum md_needles_kind kind, int32_t tokens,
                            struct frame *f, struct md_haystack *h, struct md_err *err)
{
    int32_t lines = 0;
    enum md_status s = make_frame(text, f, err);
    if (s == MD_OK)
        s = md_text_tokenize(text, f->before, true, true, &h->prompt, err);
    if (s == MD_OK)
        s = count_lines(text, kind, h->prompt.alloc, &lines, err);
    const int32_t taken = (int32_t)h->prompt.count + lines;
    if (s == MD_OK && taken > tokens / 2)
        s = md_fail(err, MD_TOO_LARGE, "there is room for %d tokens, and %d of them at least are needed",
                    tokens, 2 * taken);
    if (s == MD_OK)
        s = fill(text, kind, tokens - taken, h, err);
    if (s == MD_OK)
        s = check_lines(h, err);
    return s == MD_OK ? add_questions(text, kind, f, h, err) : s;
}

enum md_status md_haystack_build(const struct md_text *text, enum md_needles_kind kind, int32_t tokens,
                                 const struct md_alloc *alloc, struct md_haystack *ret, struct md_err *err)
{
    struct md_haystack h = { .prompt.alloc = alloc };
    struct frame f = { 0 };
    md_buf_init(&f.rendered, alloc, RENDERED_BYTES_MAX);
    enum md_status s = build(text, kind, tokens, &f, &h, err);
    assert(s != MD_OK ||
           (h.prompt.count <= (size_t)tokens && h.gold[MD_NEEDLES - 1].end > 0)); /* check_lines */
    if (s == MD_OK)
        *ret = h;
    else
        md_haystack_done(&h);
    md_buf_done(&f.rendered);
    return s;
}

/* ---- tokens that repeat ---- */

/* The tokens of all kinds of filler, each once, in the order of their first use. */
static enum md_status collect(const struct md_text *text, struct md_tokens *all, uint8_t *seen,
                              struct md_err *err)
{
    struct md_buf piece MD_CLEANUP(md_buf_done);
    struct md_tokens tokens MD_CLEANUP(md_tokens_done) = { .alloc = all->alloc };
    enum md_status s = MD_OK;
    md_buf_init(&piece, all->alloc, PIECE_BYTES_MAX);
    for (uint32_t n = 0; n < REPEATED_PIECES * MD_NEEDLES_KINDS && s == MD_OK; n++) {
        piece.len = 0;
        tokens.count = 0;
        s = md_needles_filler((enum md_needles_kind)(n % MD_NEEDLES_KINDS), n / MD_NEEDLES_KINDS, &piece,
                              err);
        if (s == MD_OK)
            s = md_text_tokenize(text, (struct md_bytes){ piece.data, piece.len }, false, false, &tokens,
                                 err);
        for (size_t i = 0; i < tokens.count && s == MD_OK && all->count < MD_HAYSTACK_COPY_PERIOD; i++) {
            const md_token t = tokens.ids[i];
            if (t < 0 || t >= text->info.vocab_count || seen[t])
                continue;
            seen[t] = 1;
            s = md_tokens_append(all, &t, 1, err);
        }
    }
    return s;
}

/* Text that was mixed is none: heads that follow language find nothing in it. */
static void mix(md_token *t, size_t count)
{
    uint64_t state = 88172645463325252U;
    for (size_t i = count; i > 1; i--) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* Marsaglia, Xorshift RNGs, 2003 */
        const size_t j = state % i;
        const md_token other = t[i - 1];
        t[i - 1] = t[j];
        t[j] = other;
    }
}

enum md_status md_haystack_repeat(const struct md_text *text, int32_t tokens, const struct md_alloc *alloc,
                                  struct md_tokens *ret_prompt, int32_t *ret_period, struct md_err *err)
{
    struct md_tokens all = { .alloc = alloc };
    const size_t least = MD_HAYSTACK_COPY_LEAST;
    uint8_t *seen = md_calloc(alloc, (size_t)text->info.vocab_count + 1, 1);
    enum md_status s =
        seen != NULL ? collect(text, &all, seen, err) : md_fail(err, MD_NO_MEMORY, "a set of tokens");
    if (s == MD_OK && all.count > (size_t)tokens / 3)
        all.count = (size_t)tokens / 3;
    if (s == MD_OK && all.count < least)
        s = md_fail(err, MD_TOO_LARGE, "%zu different tokens can repeat within %d, and %zu are needed",
                    all.count, tokens, least);
    const size_t period = all.count;
    if (s == MD_OK)
        mix(all.ids, period);
    for (size_t i = 0; i < period && s == MD_OK; i++) {
        const md_token t = all.ids[i];
        s = md_tokens_append(&all, &t, 1, err);
    }
    md_free(alloc, seen);
    if (s == MD_OK) {
        *ret_prompt = all;
        *ret_period = (int32_t)period;
    } else {
        md_tokens_done(&all);
    }
    return s;
}
