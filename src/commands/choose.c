#include "commands/choose.h"

#include "base/clock.h"
#include "base/log.h"
#include "commands/bench.h"
#include "commands/sizing.h"
#include "commands/speeds.h"
#include "policy/choice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    ENGINES_MAX = 4,
    KEY_BYTES = 1024,
    READ_TOKENS = 256,
    WRITTEN_TOKENS = 8,
    CELLS = 320,
    WARM_TOKENS = 16
};

struct candidate {
    struct md_options options; /* with this engine's name; sizing borrows of it */
    struct md_sizing sizing;
    bool sized;          /* it has a plan; why_not may be that the plan does not fit */
    char key[KEY_BYTES]; /* of speeds.h */
    struct md_err why_not;
};

struct choice {
    struct candidate candidates[ENGINES_MAX];
    struct md_choice_engine engines[ENGINES_MAX];
    size_t count;
};

/* What a measurement holds for: the file (choose.h), the library, and what of the options changes speed. */
static void make_key(const struct md_options *o, const struct md_sizing *z, char ret_key[KEY_BYTES])
{
    char key[KEY_BYTES]; /* z may lie beside ret_key */
    struct stat st = { 0 };
    if (stat(z->model_path, &st) != 0)
        st.st_mtim.tv_sec = 0; /* the open will say it */
    snprintf(key, sizeof key,
             "%s %.60s|%s|%" PRId64 "|%" PRId64 ".%09ld|%s/%s|%s|ngl %d|%d threads|fa %s|ub %d",
             z->backend->name, z->machine.runtime_version, z->model_name, z->facts.file_bytes,
             (int64_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, md_kv_type_name(z->cost.mode.type_k),
             md_kv_type_name(z->cost.mode.type_v), z->device == NULL ? "CPU" : z->device->description,
             z->open.gpu_layers, z->open.threads > 0 ? z->open.threads : md_host_processor_count(),
             o->flash_attn, z->cost.mode.ubatch_tokens);
    memcpy(ret_key, key, sizeof key);
}

static enum md_status read_tokens(struct md_engine *e, const md_token *tokens, int32_t start, int32_t end,
                                  struct md_err *err)
{
    const int32_t most = md_engine_info(e)->batch_tokens;
    enum md_status s = MD_OK;
    for (int32_t at = start, n; at < end && s == MD_OK; at += n) {
        n = end - at < most ? end - at : most;
        s = md_engine_prefill(e, 0, at, tokens + at, n, err);
    }
    return s;
}

/* The first steps make room and read weights from the disk: they do not count. */
static enum md_status time_engine(struct md_engine *e, struct md_choice_speed *ret, struct md_err *err)
{
    enum { WRITE_AT = WARM_TOKENS + READ_TOKENS, END = WRITE_AT + WRITTEN_TOKENS + 1 };
    const float *unwanted;
    md_token tokens[END];
    md_bench_fill_tokens(tokens, END, md_engine_info(e)->vocab_count);
    enum md_status s = read_tokens(e, tokens, 0, WARM_TOKENS, err);
    if (s != MD_OK)
        return s;
    const int64_t start = md_clock_mono_ns();
    s = read_tokens(e, tokens, WARM_TOKENS, WRITE_AT, err);
    const int64_t read = md_clock_mono_ns();
    int64_t first = read;
    for (int32_t at = WRITE_AT; at < END && s == MD_OK; at++) {
        s = md_engine_decode(e, 0, at, &tokens[at], 1, &unwanted, err);
        first = at == WRITE_AT ? md_clock_mono_ns() : first;
    }
    const int64_t end = md_clock_mono_ns();
    if (s == MD_OK && read > start && end > first)
        *ret = (struct md_choice_speed){ READ_TOKENS / ((double)(read - start) / 1e9),
                                         WRITTEN_TOKENS / ((double)(end - first) / 1e9) };
    return s;
}

static enum md_status measure_engine(const struct md_sizing *z, struct md_choice_speed *ret,
                                     struct md_err *err)
{
    struct md_open_params p = z->open;
    struct md_engine *e = NULL;
    p.cell_count = CELLS;
    enum md_status s = z->backend->open(&p, &e, NULL, err);
    if (s == MD_OK)
        s = time_engine(e, ret, err);
    md_engine_close(e);
    return s;
}

/* Does it take the model, the options and the window, and what is known of its speed? */
static void ask(const struct md_options *o, const struct md_backend *backends, const char *name,
                struct candidate *c, struct md_choice_engine *e)
{
    c->options = *o;
    c->options.engine = name;
    c->options.engine_choice[0] = '\0';
    enum md_status s = md_sizing_resolve(&c->options, backends, NULL, &c->sizing, &c->why_not);
    c->sized = s == MD_OK;
    if (s == MD_OK)
        s = md_sizing_check(&c->options, &c->sizing, &c->why_not);
    if (s == MD_OK) {
        make_key(&c->options, &c->sizing, c->key);
        e->speed = md_speeds_find_short(o->data_root, c->key);
    }
    e->usable = s == MD_OK;
}

/* Those that can be taken and were not measured yet. */
static void measure_missing(struct choice *c)
{
    for (size_t i = 0; i < c->count; i++) {
        struct candidate *one = &c->candidates[i];
        struct md_choice_engine *e = &c->engines[i];
        if (!e->usable || e->speed.prefill > 0)
            continue;
        e->usable = measure_engine(&one->sizing, &e->speed, &one->why_not) == MD_OK;
        if (e->usable)
            md_speeds_note_short(one->options.data_root, one->key, e->speed);
    }
}

static size_t other_than(const struct choice *c, size_t taken)
{
    return taken == 0 && c->count > 1 ? 1 : 0; /* there are two */
}

/* Has the one that is not taken a reason of its own?  Of a file that is missing both say the same. */
static bool differs(const struct choice *c, size_t taken, size_t other)
{
    return other != taken &&
           strcmp(c->candidates[taken].why_not.text, c->candidates[other].why_not.text) != 0;
}

static void tell(const struct choice *c, size_t taken, enum md_choice_why why, char *out, size_t out_bytes)
{
    const struct candidate *mine = &c->candidates[taken];
    const size_t other = other_than(c, taken);
    const struct candidate *its = &c->candidates[other];
    const double seconds = md_choice_seconds(c->engines[taken].speed, mine->sizing.window_tokens),
                 its_seconds = md_choice_seconds(c->engines[other].speed, mine->sizing.window_tokens);
    switch (why) {
    case MD_CHOICE_NONE: /* the reason of this one is the error that follows */
        if (differs(c, taken, other))
            snprintf(out, out_bytes, "chosen by auto, no engine takes this; '%s' cannot: %.220s",
                     its->options.engine, its->why_not.text);
        else
            snprintf(out, out_bytes, "chosen by auto, no engine takes this");
        break;
    case MD_CHOICE_ONLY:
        if (other == taken)
            snprintf(out, out_bytes, "chosen by auto, this build has no other");
        else
            snprintf(out, out_bytes, "chosen by auto, '%s' cannot: %.220s", its->options.engine,
                     its->why_not.text);
        break;
    case MD_CHOICE_UNMEASURED:
        snprintf(out, out_bytes, "the choice is measured at the first start with --engine auto");
        break;
    default:
        snprintf(out, out_bytes,
                 "chosen by auto, a window of %d tokens takes about %.0f s, with '%s' %.0f s (measured: read "
                 "%.0f, "
                 "write %.1f tokens/s against %.0f and %.1f)%s",
                 mine->sizing.window_tokens, seconds, its->options.engine, its_seconds,
                 c->engines[taken].speed.prefill, c->engines[taken].speed.decode,
                 c->engines[other].speed.prefill, c->engines[other].speed.decode,
                 why == MD_CHOICE_EVEN && its_seconds < seconds ? ", which is as good as even" : "");
    }
}

enum md_status md_choose_engine(struct md_options *o, const struct md_backend *backends, bool measure,
                                struct md_err *err)
{
    if (strcmp(o->engine, "auto") != 0)
        return MD_OK;
    struct choice *c = calloc(1, sizeof *c);
    if (c == NULL)
        return md_fail(err, MD_NO_MEMORY, "choosing an engine");
    for (const struct md_backend *b = backends; b->name != NULL && c->count < ENGINES_MAX; b++, c->count++)
        ask(o, backends, b->name, &c->candidates[c->count], &c->engines[c->count]);
    enum md_choice_why why;
    size_t taken = md_choice_resolve(c->engines, c->count, &why);
    if (measure && why == MD_CHOICE_UNMEASURED) { /* only where there is something to choose */
        measure_missing(c);
        taken = md_choice_resolve(c->engines, c->count, &why);
    }
    o->engine = c->candidates[taken].options.engine;
    tell(c, taken, why, o->engine_choice, sizeof o->engine_choice);
    /* a choice that was none is something to know: asked for two engines, one gets the slower, or reads of one what the
     * other would have */
    const bool none = why == MD_CHOICE_NONE && differs(c, taken, other_than(c, taken)),
               warned = none || (why == MD_CHOICE_ONLY && c->count > 1);
    if (measure || (none && !c->candidates[taken].sized)) /* a plan has it itself, where there is one */
        md_log(warned ? MD_LOG_WARN : MD_LOG_INFO, "engine %s: %s", o->engine, o->engine_choice);
    free(c);
    return MD_OK;
}
