/* eval_text.c - see eval_text.h.  Sentences are patterns with places for words; `%x` takes a word of list x. */
#include "commands/eval_text.h"

#include <assert.h>
#include <stdio.h>

/* ---- chance ---- */

uint64_t md_eval_next(struct md_eval_rng *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

struct md_eval_rng md_eval_rng(uint64_t seed, uint64_t what, uint64_t which)
{
    struct md_eval_rng r = { seed };
    r.state = md_eval_next(&r) ^ what;
    r.state = md_eval_next(&r) ^ which;
    r.state = md_eval_next(&r);
    return r;
}

uint32_t md_eval_below(struct md_eval_rng *r, uint32_t n)
{
    assert(n > 0);
    return (uint32_t)((md_eval_next(r) >> 32) * n >> 32);
}

uint64_t md_eval_hash(struct md_bytes text)
{
    const uint8_t *p = text.data;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < text.len; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* ---- words ---- */

static const char *const names[] = { "Anna",   "Bernard", "Clara", "Daniel", "Edith",  "Felix",
                                     "Greta",  "Henry",   "Irene", "Jonas",  "Karin",  "Leo",
                                     "Maria",  "Nils",    "Olga",  "Peter",  "Rosa",   "Simon",
                                     "Teresa", "Ulrich",  "Vera",  "Walter", "Yvonne", "Zoe" };
static const char *const places[] = { "market",  "harbour", "library", "station", "bakery",   "garden",
                                      "school",  "chapel",  "orchard", "mill",    "theatre",  "workshop",
                                      "kitchen", "cellar",  "meadow",  "bridge",  "hospital", "museum",
                                      "tavern",  "office",  "quarry",  "village", "valley",   "courtyard" };
static const char *const things[] = { "letter",   "basket", "ladder",  "lantern", "kettle", "map",
                                      "blanket",  "barrel", "clock",   "violin",  "shovel", "window",
                                      "notebook", "rope",   "bicycle", "carpet",  "bottle", "chair",
                                      "curtain",  "hammer", "mirror",  "piano",   "wheel",  "painting" };
static const char *const qualities[] = { "old",    "small",  "heavy",  "narrow", "broken",  "quiet",
                                         "wooden", "clean",  "empty",  "round",  "bright",  "dusty",
                                         "cheap",  "famous", "simple", "warm",   "strange", "pale",
                                         "plain",  "sturdy", "light",  "rusty",  "soft",    "long" };
static const char *const deeds[] = { "repaired", "carried",  "painted", "borrowed",  "mended",   "sold",
                                     "found",    "cleaned",  "moved",   "described", "returned", "measured",
                                     "admired",  "replaced", "wrapped", "bought",    "sketched", "lifted",
                                     "washed",   "counted",  "dropped", "noticed",   "wanted",   "kept" };
static const char *const times[] = {
    "in the morning",    "after lunch",     "before sunset",    "on Monday",          "late in the evening",
    "during the winter", "last week",       "at noon",          "in early spring",    "on a rainy day",
    "after the holiday", "in October",      "once a month",     "just before dinner", "on Friday",
    "that summer",       "around midnight", "in the afternoon", "two days later",     "at the weekend"
};
static const char *const people[] = { "teacher", "farmer",    "doctor",   "baker",  "captain",   "student",
                                      "painter", "neighbour", "gardener", "guard",  "carpenter", "nurse",
                                      "tailor",  "driver",    "singer",   "miller", "clerk",     "fisherman",
                                      "cook",    "sailor",    "visitor",  "mayor",  "librarian", "mason" };
static const char *const verbs[] = { "load",  "store", "merge", "split", "scan",  "parse", "count", "sort",
                                     "check", "reset", "apply", "build", "close", "drain", "fetch", "group",
                                     "index", "join",  "mark",  "pack",  "read",  "send",  "trim",  "write" };
static const char *const nouns[] = { "table",  "frame",  "buffer", "record", "column", "header",
                                     "packet", "node",   "region", "string", "symbol", "cursor",
                                     "matrix", "bucket", "button", "layer",  "branch", "vector",
                                     "page",   "event",  "signal", "window", "filter", "ticket" };
static const char *const ways[] = { "next", "last",  "open",  "free",  "dirty", "local", "inner", "outer",
                                    "full", "spare", "fresh", "stale", "wide",  "short", "front", "rear",
                                    "left", "right", "upper", "lower", "plain", "early", "final", "first" };
/* of keys alone */
static const char *const stones[] = { "agate",  "basalt", "cobalt", "garnet", "granite", "jasper",
                                      "marble", "onyx",   "opal",   "quartz", "ruby",    "slate",
                                      "topaz",  "zircon", "beryl",  "flint",  "amber",   "coral",
                                      "pearl",  "gypsum", "pumice", "shale",  "chalk",   "ivory" };
static const char *const trees[] = { "alder",   "aspen",  "beech",  "birch",   "cedar", "cherry",
                                     "cypress", "elder",  "hazel",  "juniper", "larch", "laurel",
                                     "linden",  "maple",  "oak",    "olive",   "pine",  "poplar",
                                     "rowan",   "spruce", "walnut", "willow",  "yew",   "elm" };

#define LIST(letter, words)                                 \
    {                                                       \
        (letter), (words), sizeof(words) / sizeof(words)[0] \
    }
static const struct list {
    char letter;
    const char *const *words;
    uint32_t count;
} lists[] = {
    LIST('n', names), LIST('p', places), LIST('o', things), LIST('a', qualities), LIST('d', deeds),
    LIST('t', times), LIST('k', people), LIST('v', verbs),  LIST('N', nouns),     LIST('w', ways),
};

/* ---- patterns ---- */

static const char *const prose[] = {
    "The %k %d a %a %o near the %p %t.",
    "%n met the %k at the %p and spoke about the %a %o.",
    "Nobody in the %p knew why the %k had %d the %o.",
    "A %a %o stood beside the door of the %p, and %n liked it.",
    "When the %k came back from the %p, the %o was still %a.",
    "%n and %n walked to the %p %t.",
    "It was said that the %k of the %p once owned a %a %o.",
    "The road from the %p to the %p was %a, and few people used it %t.",
    "%n wrote to the %k that the %o would arrive %t.",
    "Behind the %p there was a %a yard where the %k kept a %o.",
    "%n had %d the %o, but the %k did not mention it.",
    "For years the %a %o belonged to a %k who lived by the %p.",
    "The %k asked %n to bring the %o to the %p %t.",
    "There was a %a smell in the %p, and %n opened the door %t.",
    "%n thought that the %o looked %a, although the %k disagreed.",
    "At the %p, a %k and a %k shared a %a table %t.",
    "The %o was too %a for the %p, so %n %d another one.",
    "Everybody at the %p remembered the day when %n %d the %a %o.",
    "%t, the %p was %a and the %k went home.",
    "If the %k had not %d the %o, %n would have stayed at the %p.",
};
static const char *const chat[] = {
    "%n: Has anyone seen the %a %o from the %p?",
    "%n: I think the %k %d it %t.",
    "%n: We could meet at the %p %t and look at the %o.",
    "%n: The %k told me that the %p is %a now.",
    "%n: Please ask %n about the %a %o before you leave the %p.",
    "%n: Fine with me, but the %o is rather %a.",
    "%n: %n just %d a %o at the %p, do we need another one?",
    "%n: I was at the %p %t and it was %a.",
    "%n: No, the %k wanted the %o, not me.",
    "%n: Thanks! The %a %o from the %p works well.",
    "%n: Could the %k bring the %o to the %p %t?",
    "%n: My %k says that a %a %o is better than a %a one.",
};
/* `$` stands for the function's name, and `#` for a small number. */
static const char *const code_heads[] = {
    "/* Finds the %w %N of a %N. */\nstatic int $(struct %N *%N, int limit)\n{\n    int result = #;\n",
    "/* Puts a %w %N behind the others. */\nstatic int $(const struct %N *list, int limit)\n{\n    int "
    "result = #;\n",
    "/* Is there a %w %N left? */\nstatic int $(struct %N *owner, int limit)\n{\n    int result = # * "
    "limit;\n",
    "/* Takes the %N out of the %w %N. */\nstatic int $(struct %N *from, int limit)\n{\n    int result = "
    "limit;\n",
};
static const char *const code_lines[] = {
    "    for (int i = #; i < limit; i++)\n        result += %v_%N(i, #);\n",
    "    if (result > # && !%v_%w_%N(limit))\n        return -#;\n",
    "    while (result < # * limit)\n        result = %v_%N(result + #);\n",
    "    result -= %v_%w_%N(&limit, #);\n",
    "    if (limit == #)\n        result = %v_%N(limit) / #;\n",
    "    %v_%w_%N(result, limit, #);\n",
    "    result ^= %v_%N(limit << #);\n",
};

/* ---- writing ---- */

/* What was written already: hashes, open addressing; 0 is an empty place. */
struct seen {
    uint64_t *places;
    size_t size, used;
};

struct writer {
    struct md_eval_rng rng;
    struct seen seen;
    struct md_buf piece; /* one sentence, function or line */
    struct md_buf *out;
    uint32_t last[2]; /* patterns that the next sentence does not take */
};

static bool seen_grow(struct seen *s)
{
    const size_t size = s->size > 0 ? s->size * 2 : 1024;
    uint64_t *places_new = md_calloc(NULL, size, sizeof *places_new);
    if (places_new == NULL)
        return false;
    for (size_t i = 0; i < s->size; i++) {
        size_t at = s->places[i] & (size - 1);
        while (s->places[i] != 0 && places_new[at] != 0)
            at = (at + 1) & (size - 1);
        if (s->places[i] != 0)
            places_new[at] = s->places[i];
    }
    md_free(NULL, s->places);
    s->places = places_new;
    s->size = size;
    return true;
}

/* *ret_new: it was not there, and is now. */
static enum md_status seen_add(struct seen *s, struct md_bytes text, bool *ret_new, struct md_err *err)
{
    if (s->used * 2 >= s->size && !seen_grow(s))
        return md_fail(err, MD_NO_MEMORY, "set of %zu sentences", s->used);
    const uint64_t h = md_eval_hash(text) | 1;
    size_t at = h & (s->size - 1);
    while (s->places[at] != 0 && s->places[at] != h)
        at = (at + 1) & (s->size - 1);
    *ret_new = s->places[at] == 0;
    s->used += *ret_new;
    s->places[at] = h;
    return MD_OK;
}

static const char *word_of(struct writer *w, char letter)
{
    size_t i = 0;
    while (i + 1 < sizeof lists / sizeof lists[0] && lists[i].letter != letter)
        i++;
    assert(lists[i].letter == letter);
    return lists[i].words[md_eval_below(&w->rng, lists[i].count)];
}

/* "a old map" becomes "an old map". */
static enum md_status add_word(struct md_buf *b, const char *word, struct md_err *err)
{
    const char *end = (const char *)b->data + b->len;
    const bool article = b->len >= 2 && (end[-2] == 'a' || end[-2] == 'A') && end[-1] == ' ' &&
                         (b->len == 2 || end[-3] == ' ');
    enum md_status s = MD_OK;
    if (article && strchr("aeiou", word[0]) != NULL) {
        b->len--;
        s = md_buf_append(b, "n ", 2, err);
    }
    return s == MD_OK ? md_buf_append(b, word, strlen(word), err) : s;
}

static enum md_status expand(struct writer *w, const char *pattern, const char *name, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (const char *p = pattern; *p != '\0' && s == MD_OK; p++) {
        char digits[2] = { (char)('2' + md_eval_below(&w->rng, 8)), '\0' };
        const char *word = *p == '%' ? word_of(w, *++p) : *p == '$' ? name : *p == '#' ? digits : NULL;
        s = word != NULL ? add_word(&w->piece, word, err) : md_buf_append(&w->piece, p, 1, err);
    }
    return s;
}

/* One of the patterns, in words that it has not had yet, behind what the piece holds; a capital begins it. */
static enum md_status add_new(struct writer *w, const char *const *patterns, uint32_t count, const char *name,
                              struct md_err *err)
{
    const size_t start = w->piece.len;
    enum md_status s = MD_OK;
    for (bool is_new = false;
         s == MD_OK && !is_new;) { /* there are far more sentences than a text may have */
        uint32_t p;
        do
            p = md_eval_below(&w->rng, count);
        while (p == w->last[0] || p == w->last[1]);
        w->piece.len = start;
        s = expand(w, patterns[p], name, err);
        if (s == MD_OK)
            s = seen_add(&w->seen, (struct md_bytes){ w->piece.data + start, w->piece.len - start }, &is_new,
                         err);
        w->last[1] = w->last[0];
        w->last[0] = p;
    }
    if (s == MD_OK && w->piece.data[start] >= 'a' && w->piece.data[start] <= 'z')
        w->piece.data[start] = (uint8_t)(w->piece.data[start] - 'a' + 'A');
    return s;
}

#define COUNT(list) ((uint32_t)(sizeof(list) / sizeof(list)[0]))

static enum md_status add_paragraph(struct writer *w, struct md_err *err)
{
    const uint32_t sentences = 3 + md_eval_below(&w->rng, 3);
    enum md_status s = MD_OK;
    for (uint32_t i = 0; i < sentences && s == MD_OK; i++) {
        s = add_new(w, prose, COUNT(prose), NULL, err);
        if (s == MD_OK)
            s = i + 1 < sentences ? md_buf_append(&w->piece, " ", 1, err)
                                  : md_buf_append(&w->piece, "\n\n", 2, err);
    }
    return s;
}

/* Names come once; the lines inside repeat as they do in code. */
static enum md_status add_function(struct writer *w, struct md_err *err)
{
    char name[64];
    bool is_new = false;
    enum md_status s = MD_OK;
    while (s == MD_OK && !is_new) {
        const char *verb = word_of(w, 'v'), *way = word_of(w, 'w'), *first = word_of(w, 'N'),
                   *second = word_of(w, 'N');
        const int n = snprintf(name, sizeof name, "%s_%s_%s_%s", verb, way, first, second);
        s = seen_add(&w->seen, (struct md_bytes){ name, (size_t)n }, &is_new, err);
    }
    if (s == MD_OK)
        s = expand(w, code_heads[md_eval_below(&w->rng, COUNT(code_heads))], name, err);
    const uint32_t lines = 1 + md_eval_below(&w->rng, 3);
    for (uint32_t i = 0; i < lines && s == MD_OK; i++)
        s = expand(w, code_lines[md_eval_below(&w->rng, COUNT(code_lines))], name, err);
    return s == MD_OK ? expand(w, "    return result;\n}\n\n", name, err) : s;
}

void md_eval_pair_key(struct md_eval_rng *r, char out[MD_EVAL_KEY_BYTES])
{
    const char *stone = stones[md_eval_below(r, COUNT(stones))],
               *tree = trees[md_eval_below(r, COUNT(trees))];
    snprintf(out, MD_EVAL_KEY_BYTES, "%s-%s-%u", stone, tree, 100000 + md_eval_below(r, 900000));
}

uint32_t md_eval_pair_value(struct md_eval_rng *r)
{
    return 10000 + md_eval_below(r, 90000);
}

static enum md_status add_pair(struct writer *w, struct md_err *err)
{
    char key[MD_EVAL_KEY_BYTES];
    bool is_new = false;
    enum md_status s = MD_OK;
    while (s == MD_OK && !is_new) {
        md_eval_pair_key(&w->rng, key);
        s = seen_add(&w->seen, (struct md_bytes){ key, strlen(key) }, &is_new, err);
    }
    return s == MD_OK ? md_buf_printf(&w->piece, err, "%s: %u\n", key, md_eval_pair_value(&w->rng)) : s;
}

static enum md_status add_piece(struct writer *w, enum md_eval_text kind, struct md_err *err)
{
    enum md_status s;
    w->piece.len = 0;
    switch (kind) {
    case MD_EVAL_PROSE: s = add_paragraph(w, err); break;
    case MD_EVAL_CODE: s = add_function(w, err); break;
    case MD_EVAL_CHAT:
        s = add_new(w, chat, COUNT(chat), NULL, err);
        if (s == MD_OK)
            s = md_buf_append(&w->piece, "\n", 1, err);
        break;
    default: s = add_pair(w, err); break;
    }
    return s == MD_OK ? md_buf_append(w->out, w->piece.data, w->piece.len, err) : s;
}

const char *md_eval_text_name(enum md_eval_text kind)
{
    static const char *const kinds[] = { "prose", "code", "chat", "pairs" };
    assert((unsigned)kind < MD_EVAL_TEXT_COUNT);
    return kinds[kind];
}

enum md_status md_eval_text_write(enum md_eval_text kind, uint64_t seed, size_t least_bytes,
                                  struct md_buf *out, struct md_err *err)
{
    struct writer w = { .rng = md_eval_rng(seed, 't', kind), .out = out, .last = { UINT32_MAX, UINT32_MAX } };
    const size_t start = out->len;
    if (least_bytes > MD_EVAL_TEXT_BYTES_MAX)
        return md_fail(err, MD_INVALID, "text of %zu bytes: %d at most", least_bytes, MD_EVAL_TEXT_BYTES_MAX);
    md_buf_init(&w.piece, NULL, 1 << 20);
    enum md_status s = MD_OK;
    while (out->len - start < least_bytes && s == MD_OK)
        s = add_piece(&w, kind, err);
    md_buf_done(&w.piece);
    md_free(NULL, w.seen.places);
    return s;
}
