/* calibrate_text.c - a chosen set of heads as text: see calibrate.h.  What is read is parsed to the byte: no
 * blanks, no signs, no leading zeros but 0 itself, so that one set has one text. */
#include "policy/calibrate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { FORM_VERSION = 1 };

static const char *const sources[] = {
    [MD_CALIBRATE_CONTRAST] = "contrast", [MD_CALIBRATE_COPY] = "copy", [MD_CALIBRATE_BAND] = "band"
};
enum { SOURCES = sizeof sources / sizeof sources[0] };

const char *md_calibrate_source_name(enum md_calibrate_source source)
{
    assert((unsigned)source < SOURCES);
    return sources[source];
}

static bool is_digest(const char *s)
{
    return strspn(s, "0123456789abcdef") == MD_SHA256_HEX && s[MD_SHA256_HEX] == '\0';
}

enum md_status md_calibrate_print(const struct md_calibrate_set *set, const struct md_calibrate_key *key,
                                  struct md_buf *buf, struct md_err *err)
{
    assert((unsigned)set->source < SOURCES && set->count <= MD_CALIBRATE_HEADS_MOST);
    if (memchr(key->model, '\0', sizeof key->model) == NULL || !is_digest(key->model))
        return md_fail(err, MD_INVALID, "a model's digest is %d hex digits", MD_SHA256_HEX);
    enum md_status s =
        md_buf_printf(buf, err, "modeld heads %d\nmodel %s\ncalibration %u\nsource %s\nheads %zu\n",
                      FORM_VERSION, key->model, (unsigned)key->calibration, sources[set->source], set->count);
    for (size_t i = 0; i < set->count && s == MD_OK; i++) {
        uint32_t bits;
        memcpy(&bits, &set->heads[i].score, sizeof bits);
        s = md_buf_printf(buf, err, "%d %d %08x\n", set->heads[i].layer, set->heads[i].head, (unsigned)bits);
    }
    return s == MD_OK ? md_buf_printf(buf, err, "end\n") : s;
}

/* ---- reading ---- */

struct reader {
    const char *at, *end;
    int line;
    bool failed;
};

static void fail(struct reader *r)
{
    r->failed = true;
}

/* These bytes come next. */
static void word(struct reader *r, const char *text)
{
    const size_t n = strlen(text);
    if (r->failed || (size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0) {
        fail(r);
        return;
    }
    r->at += n;
}

static void line_end(struct reader *r)
{
    word(r, "\n");
    r->line += !r->failed;
}

static uint32_t number(struct reader *r, uint32_t most)
{
    uint64_t n = 0;
    const char *start = r->at;
    while (!r->failed && r->at < r->end && *r->at >= '0' && *r->at <= '9' && n <= most)
        n = n * 10 + (uint64_t)(*r->at++ - '0');
    if (r->at == start || n > most || (*start == '0' && r->at - start > 1))
        fail(r);
    return r->failed ? 0 : (uint32_t)n;
}

/* The score's 8 digits. */
static float score(struct reader *r)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t bits = 0;
    for (int i = 0; i < 8 && !r->failed; i++) {
        const char *d = r->at < r->end ? memchr(digits, *r->at, 16) : NULL;
        if (d == NULL) {
            fail(r);
        } else {
            bits = bits << 4 | (uint32_t)(d - digits);
            r->at++;
        }
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    if (!isfinite(f))
        fail(r);
    return f;
}

static enum md_calibrate_source source(struct reader *r)
{
    for (int i = 0; i < SOURCES; i++) {
        const size_t n = strlen(sources[i]);
        if (!r->failed && (size_t)(r->end - r->at) >= n && memcmp(r->at, sources[i], n) == 0) {
            r->at += n;
            return (enum md_calibrate_source)i;
        }
    }
    fail(r);
    return MD_CALIBRATE_BAND;
}

static void heads(struct reader *r, struct md_calibrate_set *set)
{
    for (size_t i = 0; i < set->count && !r->failed; i++) {
        struct md_calibrate_head *h = &set->heads[i];
        h->layer = (int32_t)number(r, MD_CALIBRATE_LAYERS_MOST - 1);
        word(r, " ");
        h->head = (int32_t)number(r, MD_CALIBRATE_WIDTH_MOST - 1);
        word(r, " ");
        h->score = score(r);
        if (i > 0 && (h->layer < h[-1].layer || (h->layer == h[-1].layer && h->head <= h[-1].head)))
            fail(r);
        line_end(r);
    }
}

static enum md_status corrupt(const struct reader *r, struct md_err *err)
{
    return md_fail(err, MD_CORRUPT, "set of heads: line %d is not as it must be", r->line);
}

enum md_status md_calibrate_parse(struct md_bytes text, const struct md_calibrate_key *key,
                                  struct md_calibrate_set *ret_set, struct md_err *err)
{
    if (text.len > MD_CALIBRATE_TEXT_BYTES)
        return md_fail(err, MD_CORRUPT, "set of heads: %zu bytes are more than %d", text.len,
                       MD_CALIBRATE_TEXT_BYTES);
    struct reader r = { .at = text.len > 0 ? text.data : "", .line = 1 };
    r.end = r.at + text.len;
    word(&r, "modeld heads ");
    const uint32_t version = number(&r, UINT32_MAX);
    line_end(&r);
    if (r.failed)
        return corrupt(&r, err);
    if (version != FORM_VERSION)
        return md_fail(err, MD_UNSUPPORTED, "set of heads: its form is version %u, not %d", (unsigned)version,
                       FORM_VERSION);
    char model[MD_SHA256_HEX + 1] = { 0 };
    word(&r, "model ");
    if (!r.failed && r.end - r.at > MD_SHA256_HEX) {
        memcpy(model, r.at, MD_SHA256_HEX);
        r.at += MD_SHA256_HEX;
    }
    if (!is_digest(model))
        fail(&r);
    line_end(&r);
    word(&r, "calibration ");
    const uint32_t calibration = number(&r, UINT32_MAX);
    line_end(&r);
    word(&r, "source ");
    ret_set->source = source(&r);
    line_end(&r);
    word(&r, "heads ");
    ret_set->count = number(&r, MD_CALIBRATE_HEADS_MOST);
    line_end(&r);
    heads(&r, ret_set);
    word(&r, "end");
    line_end(&r);
    if (r.failed || r.at != r.end)
        return corrupt(&r, err);
    if (strcmp(model, key->model) != 0 || calibration != key->calibration)
        return md_fail(err, MD_NOT_FOUND, "set of heads: it was made for another model or calibration");
    return MD_OK;
}
