/* eval_tasks.c - see eval_tasks.h. */
#include "commands/eval_tasks.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- words ---- */

static const char *const animals[] = { "heron",   "otter",  "badger", "falcon", "lynx",   "beaver",
                                       "marten",  "osprey", "viper",  "walrus", "ferret", "jackal",
                                       "gazelle", "condor", "iguana", "lemur",  "moose",  "panda",
                                       "puffin",  "raven",  "salmon", "stork",  "tapir",  "weasel" };
static const char *const secrets[] = { "password",     "serial number",   "access code",   "code name",
                                       "PIN",          "passphrase",      "call sign",     "registration",
                                       "tracking tag", "inventory label", "licence plate", "batch mark",
                                       "release name", "reference",       "locker tag",    "docking code",
                                       "radio name",   "project title",   "file label",    "shipping mark",
                                       "hatch code",   "alarm word",      "visa number",   "archive mark" };
static const char *const owners[] = {
    "build server",    "north antenna",  "blue submarine",   "spare generator",  "night courier",
    "weather balloon", "test reactor",   "coffee machine",   "mountain shelter", "third satellite",
    "patrol boat",     "cargo elevator", "polar expedition", "glass tunnel",     "training robot",
    "desert camp",     "rescue plane",   "seed vault",       "print room",       "deep mine",
    "ice drill",       "tidal turbine",  "parking tower",    "sound studio"
};
static const char *const colours[] = {
    "crimson", "turquoise", "violet",   "scarlet", "indigo",  "maroon", "silver",    "golden",
    "purple",  "orange",    "emerald",  "lilac",   "magenta", "ochre",  "teal",      "azure",
    "copper",  "bronze",    "lavender", "khaki",   "fuchsia", "mauve",  "vermilion", "saffron"
};

/* A constant, and what it is for in other words: no word of four letters or more is in both. */
static const struct hidden {
    const char *line; /* %s: the value */
    const char *question;
} hidden[] = {
    { "static const int idle_cut_ms = %s;",
      "How long, in milliseconds, may a silent peer stay before the program disconnects it?" },
    { "static const unsigned attempt_cap = %s;", "How many tries does the program make before it gives up?" },
    { "enum { SCRATCH_AREA = %s };", "How large is the temporary workspace?" },
    { "#define LISTEN_PORT %s", "On which TCP number does the server accept connections?" },
    { "static int cache_lifetime(void) { return %s; }",
      "After how many seconds is a remembered result considered outdated?" },
    { "static const long upload_ceiling = %s;", "How many kilobytes may a visitor send at most?" },
    { "enum { WORKER_STACK = %s };", "How much memory does each thread get for its nested calls?" },
    { "static const int log_rotation = %s;", "After how many entries does the program begin a new journal?" },
    { "static int random_origin(void) { return %s; }", "With which number does the dice generator start?" },
    { "static const int battery_alarm = %s;",
      "Below how many millivolts does the device warn that its power is low?" },
    { "static const int poll_gap = %s;", "How many microseconds pass between two checks of the sensor?" },
    { "static int discount_threshold(void) { return %s; }",
      "From which amount on does a customer pay less?" },
    { "enum { CHECKSUM_POLYNOMIAL = %s };", "By which number does the error detection divide?" },
    { "static const int queue_high_water = %s;", "How many jobs may wait before new ones are refused?" },
    { "static const int altitude_floor = %s;", "How low, in metres above ground, may the drone fly?" },
    { "static int license_year_fee(void) { return %s; }",
      "What does a subscription cost for twelve months?" },
};

enum { WORDS = 24 };
static_assert(sizeof animals == WORDS * sizeof *animals && sizeof secrets == sizeof animals,
              "lists of equal length");
static_assert(sizeof owners == sizeof animals && sizeof colours == sizeof animals, "lists of equal length");

/* ---- tasks ---- */

const char *md_eval_task_name(enum md_eval_task task)
{
    static const char *const names[] = { "needle", "keys", "vt", "code" };
    assert((unsigned)task < MD_EVAL_TASK_COUNT);
    return names[task];
}

enum md_eval_text md_eval_task_text(enum md_eval_task task)
{
    return task == MD_EVAL_KEYS ? MD_EVAL_PAIRS : task == MD_EVAL_CODE_NEEDLE ? MD_EVAL_CODE : MD_EVAL_PROSE;
}

int md_eval_task_most(enum md_eval_task task, bool near_duplicates)
{
    (void)near_duplicates; /* as many colours as owners */
    return task == MD_EVAL_NEEDLE        ? WORDS
           : task == MD_EVAL_CODE_NEEDLE ? (int)(sizeof hidden / sizeof hidden[0])
                                         : MD_EVAL_NEEDLES_MAX;
}

struct maker {
    const struct md_eval_spec *spec;
    struct md_bytes hay;
    struct md_arena *arena;
    struct md_eval_rng rng;
    const char *used[MD_EVAL_NEEDLES_MAX * (1 + MD_EVAL_PARTS_MAX)]; /* values and names that were given */
    int used_count;
    bool no_memory;
};

static MD_PRINTF(2, 3) const char *put(struct maker *m, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert(n >= 0 && (size_t)n < sizeof text);
    const char *copy = md_arena_strndup(m->arena, text, (size_t)n);
    m->no_memory = m->no_memory || copy == NULL;
    return copy != NULL ? copy : "";
}

/* Neither in the text nor in a word given before, nor is one of those in it. */
static bool is_free(const struct maker *m, const char *word)
{
    for (int i = 0; i < m->used_count; i++)
        if (strstr(m->used[i], word) != NULL || strstr(word, m->used[i]) != NULL)
            return false;
    return m->hay.len == 0 || memmem(m->hay.data, m->hay.len, word, strlen(word)) == NULL;
}

enum word_form { WORD_VALUE, NUMBER_VALUE, PAIR_KEY, VARIABLE };

static void draw(struct maker *m, enum word_form form, char out[MD_EVAL_KEY_BYTES])
{
    struct md_eval_rng *r = &m->rng;
    static const char letters[] = "BCDFGHJKLMNPQRSTVWXZ";
    const char *animal;
    switch (form) {
    case WORD_VALUE:
        animal = animals[md_eval_below(r, WORDS)];
        snprintf(out, MD_EVAL_KEY_BYTES, "%s-%u", animal, 1000 + md_eval_below(r, 9000));
        break;
    case NUMBER_VALUE: snprintf(out, MD_EVAL_KEY_BYTES, "%u", md_eval_pair_value(r)); break;
    case PAIR_KEY: md_eval_pair_key(r, out); break;
    case VARIABLE:
        for (size_t i = 0; i < 4; i++)
            out[i] = letters[md_eval_below(r, sizeof letters - 1)];
        out[4] = '\0';
        break;
    }
}

static enum md_status take(struct maker *m, enum word_form form, const char **ret, struct md_err *err)
{
    enum { TRIES = 10000 };
    char word[MD_EVAL_KEY_BYTES];
    for (int i = 0; i < TRIES; i++) {
        draw(m, form, word);
        if (!is_free(m, word))
            continue;
        *ret = put(m, "%s", word);
        m->used[m->used_count++] = *ret;
        return MD_OK;
    }
    return md_fail(err, MD_INVALID, "the text has all of %d values like '%s': it cannot hide one of them",
                   TRIES, word);
}

/* `count` of `n` indices, all different, in an order of chance. */
static void choose(struct md_eval_rng *r, int n, int count, int *out)
{
    int all[MD_EVAL_NEEDLES_MAX];
    assert(count <= n && n <= MD_EVAL_NEEDLES_MAX);
    for (int i = 0; i < n; i++)
        all[i] = i;
    for (int i = 0; i < count; i++) {
        const int k = i + (int)md_eval_below(r, (uint32_t)(n - i)), kept = all[i];
        out[i] = all[k];
        all[k] = kept;
    }
}

/* ---- one task each ---- */

static enum md_status make_sentences(struct maker *m, struct md_eval_needle *n, struct md_err *err)
{
    int what[MD_EVAL_NEEDLES_MAX], whose[MD_EVAL_NEEDLES_MAX], colour[MD_EVAL_NEEDLES_MAX];
    choose(&m->rng, WORDS, m->spec->count, what);
    choose(&m->rng, WORDS, m->spec->count, whose);
    choose(&m->rng, WORDS, m->spec->count, colour);
    const bool near = m->spec->near_duplicates;
    enum md_status s = MD_OK;
    for (int i = 0; i < m->spec->count && s == MD_OK; i++, n++) {
        const char *secret = secrets[what[near ? 0 : i]], *owner = owners[whose[near ? 0 : i]];
        s = take(m, WORD_VALUE, &n->value, err);
        if (s != MD_OK)
            break;
        n->key = near ? colours[colour[i]] : put(m, "%s of the %s", secret, owner);
        const char *thing = near ? put(m, "%s of the %s %s", secret, n->key, owner) : n->key;
        n->parts[n->part_count++] = put(m, "The %s is %s.", thing, n->value);
        n->question = put(m, "What is the %s? Answer with the %s only.", thing, secret);
    }
    return s;
}

static enum md_status make_pairs(struct maker *m, struct md_eval_needle *n, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (int i = 0; i < m->spec->count && s == MD_OK; i++, n++) {
        s = take(m, PAIR_KEY, &n->key, err);
        if (s == MD_OK)
            s = take(m, NUMBER_VALUE, &n->value, err);
        if (s != MD_OK)
            break;
        n->parts[n->part_count++] = put(m, "%s: %s", n->key, n->value);
        n->question = put(m, "What is the value of %s? Answer with the number only.", n->key);
    }
    return s;
}

static enum md_status make_chains(struct maker *m, struct md_eval_needle *n, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (int i = 0; i < m->spec->count && s == MD_OK; i++, n++) {
        const char *before = NULL;
        s = take(m, NUMBER_VALUE, &n->value, err);
        for (int k = 0; k < MD_EVAL_PARTS_MAX && s == MD_OK; k++) {
            s = take(m, VARIABLE, &n->key, err);
            if (s != MD_OK)
                break;
            n->parts[n->part_count++] = before == NULL ? put(m, "VAR %s = %s.", n->key, n->value)
                                                       : put(m, "VAR %s = VAR %s.", n->key, before);
            before = n->key;
        }
        if (s == MD_OK)
            n->question =
                put(m, "Which number does VAR %s stand for in the end? Answer with the number only.", n->key);
    }
    return s;
}

static enum md_status make_constants(struct maker *m, struct md_eval_needle *n, struct md_err *err)
{
    int which[MD_EVAL_NEEDLES_MAX];
    choose(&m->rng, (int)(sizeof hidden / sizeof hidden[0]), m->spec->count, which);
    enum md_status s = MD_OK;
    for (int i = 0; i < m->spec->count && s == MD_OK; i++, n++) {
        const struct hidden *h = &hidden[which[i]];
        s = take(m, NUMBER_VALUE, &n->value, err);
        if (s != MD_OK)
            break;
        const char *place = strstr(h->line, "%s");
        n->parts[n->part_count++] =
            put(m, "%.*s%s%s", (int)(place - h->line), h->line, n->value, place + strlen("%s"));
        n->key = put(m, "%.*s", (int)(place - h->line), h->line);
        n->question = put(m, "%s Answer with the number only.", h->question);
    }
    return s;
}

/* Links of all chains alternate, so that each chain has the others' between its own. */
static void set_depths(const struct md_eval_spec *spec, struct md_eval_needle *needles)
{
    for (int i = 0; i < spec->count; i++) {
        struct md_eval_needle *n = &needles[i];
        const double at = spec->depth >= 0 ? spec->depth / 100.0 : (i + 0.5) / spec->count;
        n->depth = n->part_count > 1 ? MD_EVAL_SPREAD : (int)lround(at * 100);
        for (int k = 0; k < n->part_count; k++)
            n->depths[k] =
                n->part_count == 1 ? at : (k * spec->count + i + 0.5) / ((double)n->part_count * spec->count);
    }
}

enum md_status md_eval_needles(const struct md_eval_spec *spec, struct md_bytes hay, struct md_arena *arena,
                               struct md_eval_needle *ret_needles, struct md_err *err)
{
    static enum md_status (*const makers[])(struct maker *, struct md_eval_needle *,
                                            struct md_err *) = { make_sentences, make_pairs, make_chains,
                                                                 make_constants };
    assert(spec->count >= 1 && spec->count <= md_eval_task_most(spec->task, spec->near_duplicates));
    struct maker m = {
        .spec = spec, .hay = hay, .arena = arena, .rng = md_eval_rng(spec->seed, 'n', spec->task)
    };
    memset(ret_needles, 0, (size_t)spec->count * sizeof *ret_needles);
    enum md_status s = makers[spec->task](&m, ret_needles, err);
    if (s == MD_OK && m.no_memory)
        s = md_fail(err, MD_NO_MEMORY, "%d needles", spec->count);
    if (s == MD_OK)
        set_depths(spec, ret_needles);
    return s;
}

/* ---- answers ---- */

/* How many bytes of text from p on are the value; 0: it is not there. */
static size_t match_at(const char *p, const char *end, const char *value)
{
    const char *start = p;
    while (*value != '\0') {
        if (isspace((unsigned char)*value)) {
            if (p == end || !isspace((unsigned char)*p))
                return 0;
            while (p < end && isspace((unsigned char)*p))
                p++;
            while (isspace((unsigned char)*value))
                value++;
        } else if (p < end && tolower((unsigned char)*p) == tolower((unsigned char)*value)) {
            p++;
            value++;
        } else {
            return 0;
        }
    }
    return (size_t)(p - start);
}

bool md_eval_found(struct md_bytes answer, const char *value)
{
    const char *text = answer.data, *end = text + answer.len;
    for (const char *p = text; p < end; p++) {
        const size_t n = match_at(p, end, value);
        if (n > 0 && (p == text || !isalnum((unsigned char)p[-1])) &&
            (p + n == end || !isalnum((unsigned char)p[n])))
            return true;
    }
    return false;
}

struct md_eval_interval md_eval_wilson(int found, int total)
{
    if (total <= 0)
        return (struct md_eval_interval){ 0, 1 };
    const double z = 1.959964, n = total, p = found / n;
    const double middle = p + z * z / (2 * n), half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n));
    const double low = (middle - half) / (1 + z * z / n), high = (middle + half) / (1 + z * z / n);
    return (struct md_eval_interval){ low > 0 ? low : 0, high < 1 ? high : 1 };
}
