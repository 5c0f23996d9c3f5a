/* words_text.c - see words_text.h. */
#include "support/words_text.h"

#include "policy/needles.h"
#include "support/exact_model.h"
#include "support/lookup_model.h"
#include "support/scripted.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { SAME = 17 };

struct words {
    struct md_text base;
    struct md_text *inner;
    bool same;
};

static const struct words *words_of(const struct md_text *t)
{
    return (const struct words *)t;
}

static void words_close(struct md_text *t)
{
    md_text_close(words_of(t)->inner);
    free(t);
}

static enum md_status put(struct md_tokens *to, int32_t number, struct md_err *err)
{
    const md_token token = MD_EXACT_TOKEN_OF_BYTE_0 + number;
    return md_tokens_append(to, &token, 1, err);
}

static bool is_in(struct md_bytes text, const char *line, bool whole)
{
    const size_t n = strlen(line);
    return whole ? md_bytes_are(text, line) : text.len >= n && memmem(text.data, text.len, line, n) != NULL;
}

/* The mark of what this is; -1: none of them. */
static int32_t mark_of(const struct words *w, struct md_bytes text)
{
    for (int k = 0; k < MD_NEEDLES_KINDS; k++)
        for (int i = 0; i < MD_NEEDLES; i++) {
            const struct md_needle *n = md_needle_at((enum md_needles_kind)k, i);
            if (is_in(text, n->gold, true) || is_in(text, n->question, false))
                return w->same ? SAME : MD_WORDS_GOLD + i;
            if (is_in(text, n->near, true))
                return w->same ? SAME : MD_WORDS_NEAR + i;
        }
    return w->same && is_in(text, md_needles_null(), false) && text.len < 64 ? SAME : -1;
}

static enum md_status words_tokenize(const struct md_text *t, struct md_bytes text, bool add_special,
                                     bool parse_special, struct md_tokens *ret, struct md_err *err)
{
    const struct words *w = words_of(t);
    const int32_t mark = mark_of(w, text), most = w->same ? MD_LOOKUP_TOKENS : MD_WORDS_COMMON;
    const char *p = text.data, *end = p + text.len;
    enum md_status s = MD_OK;
    (void)add_special, (void)parse_special;
    if (mark >= 0) {
        for (int32_t i = 0; i < 4 && s == MD_OK; i++)
            s = put(ret, i == 1 ? mark : 0, err);
        return s;
    }
    while (p < end && s == MD_OK) {
        uint32_t h = 2166136261U;
        while (p < end && !isalnum((unsigned char)*p))
            p++;
        const char *word = p;
        for (; p < end && isalnum((unsigned char)*p); p++)
            h = (h ^ (uint32_t)(unsigned char)*p) * 16777619U;
        if (p > word)
            s = put(ret, (int32_t)((h >> 8) % (uint32_t)most), err);
    }
    return s;
}

static enum md_status words_piece(const struct md_text *t, md_token token, bool special, struct md_buf *ret,
                                  struct md_err *err)
{
    return md_text_piece(words_of(t)->inner, token, special, ret, err);
}

static bool words_is_end(const struct md_text *t, md_token token)
{
    return md_text_is_end(words_of(t)->inner, token);
}

static enum md_status words_sampler(const struct md_text *t, const struct md_sample_params *params,
                                    struct md_sampler **ret, struct md_err *err)
{
    return md_sampler_open(words_of(t)->inner, params, ret, err);
}

enum md_status md_words_open(bool same, struct md_text **ret_text, struct md_err *err)
{
    static const struct md_text_ops ops = { .name = "words",
                                            .close = words_close,
                                            .tokenize = words_tokenize,
                                            .piece = words_piece,
                                            .is_end = words_is_end,
                                            .sampler_open = words_sampler };
    static const struct md_bytes two[] = { { "", 0 }, { "", 0 } };
    const struct md_script script = { .pieces = two, .count = 2 };
    struct words *w = calloc(1, sizeof *w);
    if (w == NULL)
        return md_fail(err, MD_NO_MEMORY, "text");
    enum md_status s = md_scripted_open(&script, NULL, &w->inner, err);
    if (s != MD_OK) {
        free(w);
        return s;
    }
    w->base = (struct md_text){ .ops = &ops, .info = w->inner->info };
    w->base.info.has_chat_template = false;
    w->same = same;
    *ret_text = &w->base;
    return MD_OK;
}
